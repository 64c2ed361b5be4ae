/* SPDX-License-Identifier: Apache-2.0
 * 3×3 convolutions with constant weights and enough pixels, by Winograd (cpu/winograd.h). */
#include "cpu/gemm.h"
#include "cpu/window.h"
#include "cpu/winograd.h"
#include "op/conv.h"
#include "op/lowerings.h"

/* What the four thunks share. */
typedef struct winograd {
    int64_t in, out;       /* channels */
    int64_t rows, columns; /* blocks */
    int64_t height, width; /* of the output */
    cpu_window_pad_args pad;
    size_t padded, values, sums; /* places in the scratch */
} winograd;

bool op_winograd_suits(const op_lower *c, const op_conv *conv)
{
    const op_window *w = &conv->w;
    const ir_tensor *weights = c->in[1].constant;
    if (!weights || !weights->data || conv->group != 1 || conv->n != 1 || w->rank != 2 ||
        c->batch_invariant || c->plain_sums)
        return false;
    for (int i = 0; i < 2; i++)
        if (w->kernel[i] != 3 || w->stride[i] != 1 || w->dilation[i] != 1 || w->pad_begin[i] < 0)
            return false;
    int64_t blocks = (w->out[0] + 3) / 4 * ((w->out[1] + 3) / 4);
    /* Fewer blocks do not fill a vector, fewer channels do not pay for the transforms. */
    return blocks >= 16 && conv->c >= 32 && conv->m >= 32 && w->out[1] <= CPU_WINOGRAD_WIDTH - 4 &&
           blocks * 16 <= 2 * w->out_size;
}

static tacit_status emit_pad(op_lower *c, winograd *w)
{
    cpu_window_pad_args *a = op_lower_thunk(
        c, CPU_PICK_NAME(c->cpu.isa, window_pad_f32), CPU_PICK(c->cpu.isa, cpu_window_pad_f32),
        sizeof *a, (uint32_t)((w->pad.planes + w->pad.tile - 1) / w->pad.tile));
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = w->pad;
    TRY(op_lower_in(c, offsetof(cpu_window_pad_args, x), 0));
    TRY(op_lower_scratch(c, offsetof(cpu_window_pad_args, to), w->padded, true));
    op_lower_cost(c, 0, 2 * op_lower_bytes(&c->in[0]));
    return TACIT_OK;
}

static int64_t channels_of_tile(const winograd *w, int64_t channels)
{
    int64_t n = 60 / (w->rows * ((w->columns + 15) / 16)) + 1; /* about 20 µs */
    return n < channels ? n : channels;
}

static tacit_status emit_in(op_lower *c, const winograd *w)
{
    int64_t tile = channels_of_tile(w, w->in);
    cpu_winograd_in_args *a = op_lower_thunk(c, CPU_PICK_NAME(c->cpu.isa, winograd_in_f32),
                                             CPU_PICK(c->cpu.isa, cpu_winograd_in_f32), sizeof *a,
                                             (uint32_t)((w->in + tile - 1) / tile));
    if (!a)
        return TACIT_ERR_MEMORY;
    int64_t pitch = w->pad.phases * w->pad.width;
    *a = (cpu_winograd_in_args){.channels = w->in,
                                .rows = w->rows,
                                .columns = w->columns,
                                .plane = w->pad.height * pitch,
                                .pitch = pitch,
                                .width = w->pad.width,
                                .tile = tile};
    TRY(op_lower_scratch(c, offsetof(cpu_winograd_in_args, x), w->padded, false));
    TRY(op_lower_scratch(c, offsetof(cpu_winograd_in_args, values), w->values, true));
    op_lower_cost(c, 4.0 * 36 * (double)(w->in * w->rows * w->columns),
                  (uint64_t)(w->in * w->rows * w->columns) * 36 * 8);
    return TACIT_OK;
}

/* The weights as 36 matrices [out][in], rows a little apart where they would collide. */
static const float *transform_weights(op_lower *c, const winograd *w, int64_t *row)
{
    bool collide = op_lower_rows_in_set(w->in, cpu_gemm_height(c->cpu.isa)) > 6;
    *row = w->in + (collide ? 16 : 0);
    size_t bytes = (size_t)(CPU_WINOGRAD_POINTS * w->out * *row) * sizeof(float);
    float *to = op_lower_pack(c, bytes);
    const float *from = c->in[1].constant->data;
    for (int64_t o = 0; to && o < w->out; o++)
        for (int64_t i = 0; i < w->in; i++)
            cpu_winograd_weights(from + (o * w->in + i) * 9, to + o * *row + i, w->out * *row);
    if (to)
        op_lower_packed_away(c, 1);
    return to;
}

static tacit_status emit_products(op_lower *c, const winograd *w)
{
    int64_t blocks = w->rows * w->columns, row;
    cpu_gemm_args g = {.a = transform_weights(c, w, &row),
                       .m = w->out,
                       .n = blocks,
                       .k = w->in,
                       .a_row = row,
                       .a_col = 1,
                       .b_row = blocks,
                       .b_col = 1,
                       .c_row = blocks,
                       .batch_rank = 1,
                       .batch_dims = {CPU_WINOGRAD_POINTS},
                       .a_batch = {w->out * row},
                       .b_batch = {w->in * blocks},
                       .c_batch = {w->out * blocks},
                       .epilogue = {.alpha = 1}};
    if (!g.a)
        return TACIT_ERR_MEMORY;
    op_lower_cut(&g, CPU_WINOGRAD_POINTS, c->cpu.isa);
    cpu_gemm_args *a =
        op_lower_thunk(c, CPU_PICK_NAME(c->cpu.isa, gemm_f32), CPU_PICK(c->cpu.isa, cpu_gemm_f32),
                       sizeof *a, g.row_tiles * g.col_tiles * CPU_WINOGRAD_POINTS);
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = g;
    TRY(op_lower_scratch(c, offsetof(cpu_gemm_args, b), w->values, false));
    TRY(op_lower_scratch(c, offsetof(cpu_gemm_args, c), w->sums, true));
    TRY(op_lower_scratch(c, offsetof(cpu_gemm_args, y), w->sums, true));
    op_lower_cost(c, 2.0 * 36 * (double)(w->out * w->in * blocks),
                  (uint64_t)(w->in * (w->out + blocks) + w->out * blocks) * 36 * 4);
    return TACIT_OK;
}

static tacit_status emit_out(op_lower *c, const winograd *w)
{
    int64_t tile = channels_of_tile(w, w->out);
    cpu_winograd_out_args *a = op_lower_thunk(c, CPU_PICK_NAME(c->cpu.isa, winograd_out_f32),
                                              CPU_PICK(c->cpu.isa, cpu_winograd_out_f32), sizeof *a,
                                              (uint32_t)((w->out + tile - 1) / tile));
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = (cpu_winograd_out_args){.channels = w->out,
                                 .rows = w->rows,
                                 .columns = w->columns,
                                 .out_height = w->height,
                                 .out_width = w->width,
                                 .tile = tile};
    TRY(op_lower_epilogue(c, &a->epilogue));
    uint64_t run = (uint64_t)(tile * w->height * w->width) * sizeof(float);
    TRY(op_lower_scratch(c, offsetof(cpu_winograd_out_args, sums), w->sums, false));
    if (op_lower_has(c, 2)) {
        a->epilogue.bias = CPU_BIAS_ROW;
        TRY(op_lower_in(c, offsetof(cpu_winograd_out_args, bias), 2));
    }
    if (op_lower_has(c, 3))
        TRY(op_lower_in_tiled(c, offsetof(cpu_winograd_out_args, residual), 3, run, run));
    TRY(op_lower_out_tiled(c, offsetof(cpu_winograd_out_args, y), 0, run, run));
    op_lower_cost(c, 3.0 * 36 * (double)(w->out * w->rows * w->columns),
                  op_lower_bytes(&c->out[0]));
    return TACIT_OK;
}

tacit_status op_lower_winograd(op_lower *c, const op_conv *conv)
{
    winograd w = {.in = conv->c,
                  .out = conv->m,
                  .height = conv->w.out[0],
                  .width = conv->w.out[1],
                  .rows = (conv->w.out[0] + 3) / 4,
                  .columns = (conv->w.out[1] + 3) / 4};
    w.pad = (cpu_window_pad_args){.planes = w.in,
                                  .in_height = conv->w.in[0],
                                  .in_width = conv->w.in[1],
                                  .height = 4 * w.rows + 2,
                                  .width = w.columns + 1,
                                  .phases = 4,
                                  .row_step = 1,
                                  .column_step = 1,
                                  .pad_top = conv->w.pad_begin[0],
                                  .pad_left = conv->w.pad_begin[1]};
    w.pad.tile = 65536 / (w.pad.height * 4 * w.pad.width) + 1;
    size_t padded = (size_t)(w.in * w.pad.height * 4 * w.pad.width);
    size_t blocks = (size_t)(w.rows * w.columns);
    w.padded = op_lower_reserve(c, (padded + 2 * CPU_GEMM_SLACK) * sizeof(float));
    w.values = op_lower_reserve(c, (36 * (size_t)w.in * blocks) * sizeof(float));
    w.sums = op_lower_reserve(c, (36 * (size_t)w.out * blocks) * sizeof(float));
    TRY(emit_pad(c, &w));
    TRY(emit_in(c, &w));
    TRY(emit_products(c, &w));
    TRY(emit_out(c, &w));
    op_lower_note(c,
                  "Winograd F(4x4,3x3) on %s: %lldx%lld blocks, 36 products of %lldx%lldx%lld; the "
                  "direct product would multiply 4 times as often",
                  cpu_isa_name(c->cpu.isa), (long long)w.rows, (long long)w.columns,
                  (long long)w.out, (long long)blocks, (long long)w.in);
    return TACIT_OK;
}
