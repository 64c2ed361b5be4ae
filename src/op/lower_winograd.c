/* SPDX-License-Identifier: Apache-2.0
 * 3×3 convolutions with constant weights and enough pixels, by Winograd (cpu/winograd.h). In a
 * volume planes are transformed one by one, and the taps along its depth are terms of the products.
 */
#include "cpu/gemm.h"
#include "cpu/window.h"
#include "cpu/winograd.h"
#include "op/conv.h"
#include "op/lowerings.h"

/* What the four thunks share. */
typedef struct winograd {
    int64_t in, out;   /* channels */
    op_depth depth;    /* of a volume */
    int64_t in_planes; /* of all channels, with the padding of the depth */
    int64_t out_planes;
    int64_t terms;         /* of a product: channels and taps along the depth */
    int64_t rows, columns; /* blocks of a plane */
    int64_t height, width; /* of the output */
    cpu_window_pad_args pad;
    size_t padded, values, sums; /* places in the scratch */
} winograd;

/* What transformed planes take must not be out of proportion; floats. */
static const int64_t most_values = INT64_C(64) << 20;

/* Padded planes of a volume. */
static int64_t padded_depth(const op_depth *z)
{
    return (z->out - 1) * z->stride + (z->kernel - 1) * z->dilation + 1;
}

bool op_winograd_suits(const op_lower *c, const op_conv *conv)
{
    const ir_tensor *weights = c->in[1].constant;
    op_plane p;
    op_depth z;
    if (!weights || !weights->data || conv->group != 1 || conv->n != 1 || conv->w.rank < 2 ||
        !op_volume_of(&conv->w, &p, &z) || c->batch_invariant || c->plain_sums)
        return false;
    for (int i = 0; i < 2; i++)
        if (p.kernel[i] != 3 || p.stride[i] != 1 || p.dilation[i] != 1)
            return false;
    int64_t blocks = (p.out[0] + 3) / 4 * ((p.out[1] + 3) / 4), in_depth = padded_depth(&z);
    /* Transforming planes that are only stepped over would not pay. */
    if (z.kernel < z.stride || in_depth > INT32_MAX ||
        (conv->w.rank == 3 && (conv->c * in_depth + conv->m * z.out) * blocks > most_values / 36))
        return false;
    /* Fewer blocks do not fill a vector, fewer channels do not pay for the transforms; the deeper
     * the kernel, the more sums read what was transformed. */
    bool enough = conv->w.rank == 3
                      ? conv->c * conv->m * z.kernel >= 16 * (conv->c + conv->m) && conv->m >= 8
                      : conv->c >= 32 && conv->m >= 32;
    return enough && blocks * z.out >= 16 && p.out[1] <= CPU_WINOGRAD_WIDTH - 4 &&
           blocks * 16 <= 2 * p.out[0] * p.out[1];
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

static int64_t planes_of_tile(const winograd *w, int64_t planes)
{
    int64_t n = 60 / (w->rows * ((w->columns + 15) / 16)) + 1; /* about 20 µs */
    return n < planes ? n : planes;
}

static tacit_status emit_in(op_lower *c, const winograd *w)
{
    int64_t tile = planes_of_tile(w, w->in_planes);
    cpu_winograd_in_args *a = op_lower_thunk(c, CPU_PICK_NAME(c->cpu.isa, winograd_in_f32),
                                             CPU_PICK(c->cpu.isa, cpu_winograd_in_f32), sizeof *a,
                                             (uint32_t)((w->in_planes + tile - 1) / tile));
    if (!a)
        return TACIT_ERR_MEMORY;
    int64_t pitch = w->pad.phases * w->pad.width;
    *a = (cpu_winograd_in_args){.channels = w->in_planes,
                                .rows = w->rows,
                                .columns = w->columns,
                                .plane = w->pad.height * pitch,
                                .pitch = pitch,
                                .width = w->pad.width,
                                .tile = tile};
    TRY(op_lower_scratch(c, offsetof(cpu_winograd_in_args, x), w->padded, false));
    TRY(op_lower_scratch(c, offsetof(cpu_winograd_in_args, values), w->values, true));
    op_lower_cost(c, 4.0 * 36 * (double)(w->in_planes * w->rows * w->columns),
                  (uint64_t)(w->in_planes * w->rows * w->columns) * 36 * 8);
    return TACIT_OK;
}

/* The weights as 36 matrices [out][terms], rows a little apart where they would collide. */
static const float *transform_weights(op_lower *c, const winograd *w, int64_t *row)
{
    bool collide = op_lower_rows_in_set(w->terms, cpu_gemm_height(c->cpu.isa)) > 6;
    *row = w->terms + (collide ? 16 : 0);
    size_t bytes = (size_t)(CPU_WINOGRAD_POINTS * w->out * *row) * sizeof(float);
    float *to = op_lower_pack(c, bytes);
    const float *from = c->in[1].constant->data;
    for (int64_t o = 0; to && o < w->out; o++)
        cpu_winograd_weights(from + o * w->terms * 9, w->terms, to + o * *row, w->out * *row);
    if (to)
        op_lower_packed_away(c, 1);
    return to;
}

/* Where term (channel, kz) lies behind what a block of the first plane reads. */
static const int32_t *depth_taps(op_lower *c, const winograd *w)
{
    const op_depth *z = &w->depth;
    int64_t blocks = w->rows * w->columns;
    int32_t *taps = op_lower_pack(c, (size_t)w->terms * sizeof *taps);
    for (int64_t i = 0; taps && i < w->terms; i++)
        taps[i] = (int32_t)((i / z->kernel * w->pad.depth + i % z->kernel * z->dilation) * blocks);
    return taps;
}

static tacit_status emit_products(op_lower *c, const winograd *w)
{
    int64_t plane = w->rows * w->columns, blocks = w->depth.out * plane, row;
    cpu_gemm_args g = {.a = transform_weights(c, w, &row),
                       .m = w->out,
                       .n = blocks,
                       .k = w->terms,
                       .a_row = row,
                       .a_col = 1,
                       .b_row = blocks,
                       .b_col = 1,
                       .c_row = blocks,
                       .batch_rank = 1,
                       .batch_dims = {CPU_WINOGRAD_POINTS},
                       .a_batch = {w->out * row},
                       .b_batch = {w->in_planes * plane},
                       .c_batch = {w->out * blocks},
                       .epilogue = {.alpha = 1}};
    if (w->pad.depth != 1) {
        g.taps = depth_taps(c, w);
        g.streamed = true;
        g.out_width = plane;
        g.pixel_row = w->depth.stride * plane;
    }
    if (!g.a || (w->pad.depth != 1 && !g.taps))
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
    op_lower_cost(c, 2.0 * 36 * (double)(w->out * w->terms * blocks),
                  (uint64_t)(w->terms * w->out + w->in_planes * plane + w->out * blocks) * 36 * 4);
    return TACIT_OK;
}

static tacit_status emit_out(op_lower *c, const winograd *w)
{
    int64_t tile = planes_of_tile(w, w->out_planes);
    cpu_winograd_out_args *a = op_lower_thunk(c, CPU_PICK_NAME(c->cpu.isa, winograd_out_f32),
                                              CPU_PICK(c->cpu.isa, cpu_winograd_out_f32), sizeof *a,
                                              (uint32_t)((w->out_planes + tile - 1) / tile));
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = (cpu_winograd_out_args){.channels = w->out_planes,
                                 .depth = w->depth.out,
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
    op_lower_cost(c, 3.0 * 36 * (double)(w->out_planes * w->rows * w->columns),
                  op_lower_bytes(&c->out[0]));
    return TACIT_OK;
}

tacit_status op_lower_winograd(op_lower *c, const op_conv *conv)
{
    op_plane p;
    winograd w = {.in = conv->c, .out = conv->m};
    if (!op_volume_of(&conv->w, &p, &w.depth))
        return OP_LOWER_NO_KERNEL;
    w.height = p.out[0], w.width = p.out[1];
    w.rows = (p.out[0] + 3) / 4, w.columns = (p.out[1] + 3) / 4;
    w.terms = w.in * w.depth.kernel;
    w.out_planes = w.out * w.depth.out;
    w.pad = (cpu_window_pad_args){.in_depth = w.depth.in,
                                  .in_height = p.in[0],
                                  .in_width = p.in[1],
                                  .depth = padded_depth(&w.depth),
                                  .height = 4 * w.rows + 2,
                                  .width = w.columns + 1,
                                  .phases = 4,
                                  .depth_step = 1,
                                  .row_step = 1,
                                  .column_step = 1,
                                  .pad_front = w.depth.pad,
                                  .pad_top = p.pad[0],
                                  .pad_left = p.pad[1]};
    w.in_planes = w.pad.planes = w.in * w.pad.depth;
    w.pad.tile = 65536 / (w.pad.height * 4 * w.pad.width) + 1;
    size_t padded = (size_t)(w.in_planes * w.pad.height * 4 * w.pad.width);
    size_t blocks = (size_t)(w.rows * w.columns);
    size_t values = 36 * (size_t)w.in_planes * blocks + CPU_GEMM_SLACK;
    w.padded = op_lower_reserve(c, (padded + 2 * CPU_GEMM_SLACK) * sizeof(float));
    w.values = op_lower_reserve(c, values * sizeof(float));
    w.sums = op_lower_reserve(c, (36 * (size_t)w.out_planes * blocks) * sizeof(float));
    TRY(emit_pad(c, &w));
    TRY(emit_in(c, &w));
    TRY(emit_products(c, &w));
    TRY(emit_out(c, &w));
    int64_t columns = w.depth.out * w.rows * w.columns; /* of a product */
    op_lower_note(c,
                  "Winograd F(4x4,3x3) on %s: %lldx%lldx%lld blocks, 36 products of "
                  "%lldx%lldx%lld; the direct product would multiply 4 times as often",
                  cpu_isa_name(c->cpu.isa), (long long)w.depth.out, (long long)w.rows,
                  (long long)w.columns, (long long)w.out, (long long)columns, (long long)w.terms);
    return TACIT_OK;
}
