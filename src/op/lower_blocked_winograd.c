/* SPDX-License-Identifier: Apache-2.0
 * 3×3 convolutions on blocked channels by Winograd F(4×4, 3×3): transform, 36 pointwise
 * convolutions over the tiles, transform back (cpu/blocked.h). */
#include "cpu/blocked.h"
#include "cpu/gemm.h"
#include "op/blocked.h"
#include "op/lowerings.h"

typedef struct winograd {
    int64_t images, in, out; /* blocks */
    int64_t rows, columns;   /* of tiles */
    const float *weights, *bias;
} winograd;

/* Rows of tiles that go through all steps before the next do. */
typedef struct winograd_band {
    const winograd *all;
    int64_t first, rows, tiles;
    int64_t step;        /* floats from a point of the values to the next */
    size_t values, sums; /* places in the scratch */
} winograd_band;

bool op_blocked_winograd_suits(op_lower *c, const op_conv *conv)
{
    const op_window *w = &conv->w;
    if (c->plain_sums || !op_lower_is_weight(c, 1) || conv->group != 1 ||
        c->in[0].type.shape.rank != 5 || conv->c % OP_BLOCK ||
        (op_lower_has(c, 2) && !ir_value_known(c->in[2].value)))
        return false;
    for (int i = 0; i < 2; i++)
        if (w->kernel[i] != 3 || w->stride[i] != 1 || w->dilation[i] != 1 || w->pad_begin[i] < 0)
            return false;
    int64_t tiles = (w->out[0] + 3) / 4 * ((w->out[1] + 3) / 4);
    /* Transformed weights are four times as many: few tiles do not pay for reading them, few
     * channels not for the transforms. Images are not counted: the choice must not depend on the
     * batch. */
    bool suits = tiles >= 16 && conv->c >= 16 && conv->m >= 32 && tiles * 16 <= 2 * w->out_size;
    enum { OWN, DIRECT, WINOGRAD };
    int way = op_lower_choice(c, WINOGRAD, "conv3x3 %lld %lld %lld %lld", (long long)conv->c,
                              (long long)conv->m, (long long)w->out[0], (long long)w->out[1]);
    return way == OWN ? suits : way == WINOGRAD;
}

static int64_t rows_of_tile(const winograd *w)
{
    return 400 / w->columns + 1; /* about 20 µs */
}

static tacit_status emit_in(op_lower *c, const op_conv *conv, const winograd_band *b)
{
    const winograd *w = b->all;
    int64_t group = rows_of_tile(w), all = w->images * w->in * b->rows;
    cpu_blocked_winograd_in_args *a =
        op_lower_thunk(c, CPU_PICK_NAME(c->cpu.isa, blocked_winograd_in_f32),
                       CPU_PICK(c->cpu.isa, cpu_blocked_winograd_in_f32), sizeof *a,
                       (uint32_t)((all + group - 1) / group));
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = (cpu_blocked_winograd_in_args){.images = w->images,
                                        .blocks = w->in,
                                        .in_height = conv->w.in[0],
                                        .in_width = conv->w.in[1],
                                        .pad_top = conv->w.pad_begin[0],
                                        .pad_left = conv->w.pad_begin[1],
                                        .first = b->first,
                                        .rows = b->rows,
                                        .columns = w->columns,
                                        .step = b->step,
                                        .group = group};
    TRY(op_lower_in(c, offsetof(cpu_blocked_winograd_in_args, x), 0));
    TRY(op_lower_scratch(c, offsetof(cpu_blocked_winograd_in_args, values), b->values, true));
    uint64_t tiles = (uint64_t)(w->images * w->in * OP_BLOCK * b->tiles);
    op_lower_cost(c, 4.0 * 36 * (double)tiles, tiles * 52 * sizeof(float));
    return TACIT_OK;
}

static const float *transform_weights(op_lower *c, const op_conv *conv)
{
    int64_t channels = op_blocks(conv->m) * OP_BLOCK;
    float *to =
        op_lower_pack_later(c, (size_t)(CPU_BLOCKED_POINTS * channels * conv->c) * sizeof *to);
    cpu_blocked_pack_args a = {
        .to = to, .channels = conv->m, .inputs = conv->c, .taps = 9, .depth = OP_BLOCK};
    if (!to)
        return NULL;
    return op_lower_pack_panels(c, CPU_PICK(c->cpu.isa, cpu_blocked_winograd_pack_f32), &a,
                                conv->c * 9, 0) == TACIT_OK
               ? to
               : NULL;
}

static tacit_status emit_products(op_lower *c, const op_conv *conv, const winograd_band *b)
{
    const winograd *w = b->all;
    int64_t tiles = b->tiles, width = cpu_gemm_width(c->cpu.isa);
    int64_t units = w->images * CPU_BLOCKED_POINTS, channels = w->out * OP_BLOCK;
    int32_t *taps = op_lower_pack(c, (size_t)w->in * sizeof *taps);
    cpu_blocked_conv_args plan = {.weights = w->weights,
                                  .taps = taps,
                                  .n_taps = w->in,
                                  .full = w->in,
                                  .depth = OP_BLOCK,
                                  .x_step = b->step,
                                  .step = OP_BLOCK,
                                  .row_step = tiles * OP_BLOCK,
                                  .width = tiles,
                                  .height = 1,
                                  .pixels = tiles,
                                  .channels = channels,
                                  .k = conv->c,
                                  .weight_sets = CPU_BLOCKED_POINTS,
                                  .weight_step = channels * conv->c,
                                  .band = 1,
                                  .bands = 1,
                                  .epilogue = {.alpha = 1}};
    if (!taps)
        return TACIT_ERR_MEMORY;
    for (int64_t i = 0; i < w->in; i++)
        taps[i] = (int32_t)(i * tiles * OP_BLOCK);
    int64_t panels = (channels + width - 1) / width;
    double us = 2.0 * (double)(channels * tiles) * (double)conv->c / 1e5;
    int64_t parts = us > 40 ? (int64_t)(us / 20) : 1;
    parts = parts < panels ? parts : panels;
    plan.panels = (panels + parts - 1) / parts;
    plan.panel_tiles = (uint32_t)((panels + plan.panels - 1) / plan.panels);
    cpu_blocked_conv_args *a = op_lower_thunk(c, CPU_PICK_NAME(c->cpu.isa, blocked_conv_f32),
                                              CPU_PICK(c->cpu.isa, cpu_blocked_conv_f32), sizeof *a,
                                              (uint32_t)units * plan.panel_tiles);
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = plan;
    TRY(op_lower_scratch(c, offsetof(cpu_blocked_conv_args, x), b->values, false));
    TRY(op_lower_scratch(c, offsetof(cpu_blocked_conv_args, y), b->sums, true));
    op_lower_cost(
        c, 2.0 * (double)(units * channels * tiles) * (double)conv->c,
        (uint64_t)(units * (channels + conv->c) * tiles + CPU_BLOCKED_POINTS * channels * conv->c) *
            sizeof(float));
    return TACIT_OK;
}

static tacit_status emit_out(op_lower *c, const op_conv *conv, const winograd_band *b)
{
    const winograd *w = b->all;
    int64_t group = rows_of_tile(w), all = w->images * w->out * b->rows;
    cpu_blocked_winograd_out_args *a =
        op_lower_thunk(c, CPU_PICK_NAME(c->cpu.isa, blocked_winograd_out_f32),
                       CPU_PICK(c->cpu.isa, cpu_blocked_winograd_out_f32), sizeof *a,
                       (uint32_t)((all + group - 1) / group));
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = (cpu_blocked_winograd_out_args){.bias = w->bias,
                                         .images = w->images,
                                         .blocks = w->out,
                                         .height = conv->w.out[0],
                                         .width = conv->w.out[1],
                                         .first = b->first,
                                         .rows = b->rows,
                                         .columns = w->columns,
                                         .group = group};
    TRY(op_lower_epilogue(c, &a->epilogue));
    if (w->bias)
        a->epilogue.bias = CPU_BIAS_COLUMN;
    TRY(op_lower_scratch(c, offsetof(cpu_blocked_winograd_out_args, sums), b->sums, false));
    if (op_lower_has(c, 3))
        TRY(op_lower_in(c, offsetof(cpu_blocked_winograd_out_args, residual), 3));
    TRY(op_lower_out(c, offsetof(cpu_blocked_winograd_out_args, y), 0));
    uint64_t tiles = (uint64_t)(w->images * w->out * OP_BLOCK * b->tiles);
    op_lower_cost(c, 3.0 * 36 * (double)tiles, tiles * 52 * sizeof(float));
    return TACIT_OK;
}

/* Rows of tiles of which values and sums stay in a core's cache, about, where the weights, which
 * are read again for each band, are few enough for that. */
static int64_t rows_of_band(const winograd *w)
{
    enum { ROOM = 640 << 10, TILES = 28 };
    int64_t tile = CPU_BLOCKED_POINTS * OP_BLOCK * (int64_t)sizeof(float) * (w->in + w->out);
    int64_t weights =
        CPU_BLOCKED_POINTS * OP_BLOCK * OP_BLOCK * (int64_t)sizeof(float) * w->in * w->out;
    int64_t rows = ROOM / (tile * w->columns * w->images);
    int64_t least = (TILES + w->columns - 1) / w->columns;
    rows = rows > least ? rows : least;
    int64_t bands = (w->rows + rows - 1) / rows;
    if ((bands - 1) * weights > 2 * tile * w->rows * w->columns)
        return w->rows;
    return (w->rows + bands - 1) / bands;
}

tacit_status op_lower_blocked_winograd(op_lower *c, const op_conv *conv)
{
    winograd w = {.images = conv->n,
                  .in = conv->c / OP_BLOCK,
                  .out = op_blocks(conv->m),
                  .rows = (conv->w.out[0] + 3) / 4,
                  .columns = (conv->w.out[1] + 3) / 4};
    if (op_lower_has(c, 2)) {
        const ir_tensor *known = ir_value_known(c->in[2].value);
        float *bias = op_lower_pack(c, (size_t)(w.out * OP_BLOCK) * sizeof *bias);
        if (!bias)
            return TACIT_ERR_MEMORY;
        for (int64_t i = 0; i < w.out * OP_BLOCK; i++)
            bias[i] = i < conv->m ? ((const float *)known->data)[i] : 0.0f;
        w.bias = bias;
    }
    w.weights = transform_weights(c, conv);
    if (!w.weights)
        return TACIT_ERR_MEMORY;
    /* Threads would wait for each other at the end of each step of each band. */
    int64_t band = c->serial ? rows_of_band(&w) : w.rows;
    /* Lines between two points are odd in number: a window's 36 then go to as many places of a
     * cache. */
    winograd_band b = {.all = &w, .step = (w.in * band * w.columns | 1) * OP_BLOCK};
    size_t points = (size_t)(w.images * CPU_BLOCKED_POINTS) * sizeof(float);
    b.values = op_lower_reserve(c, points * (size_t)b.step);
    b.sums = op_lower_reserve(c, points * (size_t)(w.out * band * w.columns * OP_BLOCK));
    for (; b.first < w.rows; b.first += band) {
        b.rows = w.rows - b.first < band ? w.rows - b.first : band;
        b.tiles = b.rows * w.columns;
        TRY(emit_in(c, conv, &b));
        TRY(emit_products(c, conv, &b));
        TRY(emit_out(c, conv, &b));
    }
    op_lower_note(c,
                  "Winograd F(4x4,3x3) on %s: %lldx%lld tiles, 36 products of %lldx%lldx%lld; the "
                  "direct sums would multiply 4 times as often",
                  cpu_isa_name(c->cpu.isa), (long long)w.rows, (long long)w.columns,
                  (long long)conv->m, (long long)w.rows * w.columns, (long long)conv->c);
    return TACIT_OK;
}
