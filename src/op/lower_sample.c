/* SPDX-License-Identifier: Apache-2.0
 * Images read at computed places: GridSample, and DeformConv, whose columns are read so and then
 * multiplied by the weights. */
#include <string.h>

#include "cpu/gemm.h"
#include "cpu/move.h"
#include "cpu/sample.h"
#include "op/conv.h"
#include "op/lowerings.h"

tacit_status op_lower_turn_images(op_lower *c, int64_t images, cpu_images *from, size_t *offset)
{
    int64_t size = from->channels * from->pixels;
    uint32_t row_tiles = (uint32_t)((from->pixels + CPU_TRANSPOSE_ROWS - 1) / CPU_TRANSPOSE_ROWS);
    if (images * row_tiles > INT32_MAX)
        return OP_LOWER_NO_KERNEL;
    *offset = op_lower_reserve(c, (size_t)(images * size) * sizeof(float));
    cpu_transpose_args *a =
        op_lower_thunk(c, CPU_PICK_NAME(c->cpu.isa, transpose), CPU_PICK(c->cpu.isa, cpu_transpose),
                       sizeof *a, (uint32_t)images * row_tiles);
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = (cpu_transpose_args){.size = sizeof(float),
                              .rows = from->pixels,
                              .columns = from->channels,
                              .to_row = from->channels,
                              .from_column = from->pixels,
                              .rank = 1,
                              .dims = {images},
                              .from_stride = {size},
                              .to_stride = {size},
                              .row_tiles = row_tiles};
    from->inside = true;
    op_lower_cost(c, 0, 2 * op_lower_bytes(&c->in[0]));
    TRY(op_lower_in(c, offsetof(cpu_transpose_args, from), 0));
    return op_lower_scratch(c, offsetof(cpu_transpose_args, to), *offset, true);
}

tacit_status op_lower_bind_images(op_lower *c, const cpu_images *from, size_t field, size_t offset)
{
    field += offsetof(cpu_images, x);
    return from->inside ? op_lower_scratch(c, field, offset, false) : op_lower_in(c, field, 0);
}

/* Points of a tile: about 20 µs of them, whole blocks. */
static int64_t tile_points(int64_t channels, int64_t taps)
{
    int64_t blocks = 100000 / (CPU_SAMPLE_POINTS * (channels * (taps + 2) + 20 * taps));
    return (blocks < 1 ? 1 : blocks) * CPU_SAMPLE_POINTS;
}

/* --- GridSample ------------------------------------------------------------------------------- */

static void read_grid(const ir_node *node, cpu_grid_args *g)
{
    const char *pad = ir_attr_string(node, "padding_mode", "zeros");
    const char *mode = ir_attr_string(node, "mode", "linear");
    g->pad = pad[0] == 'z' ? CPU_GRID_ZEROS : pad[0] == 'b' ? CPU_GRID_BORDER : CPU_GRID_REFLECTION;
    g->mode = strcmp(mode, "nearest") == 0                                   ? CPU_GRID_NEAREST
              : strcmp(mode, "linear") == 0 || strcmp(mode, "bilinear") == 0 ? CPU_GRID_LINEAR
                                                                             : CPU_GRID_CUBIC;
    g->corners = ir_attr_int(node, "align_corners", 0) != 0;
}

tacit_status op_lower_grid_sample(op_lower *c)
{
    const ir_shape *x = &c->in[0].type.shape, *y = &c->out[0].type.shape;
    int64_t images = x->dims[0], taps = 1;
    size_t turned = 0;
    cpu_grid_args g = {
        .from = {.channels = x->dims[1], .pixels = 1}, .rank = x->rank - 2, .points = 1};
    if (!op_lower_all_f32(c) || g.rank > CPU_SAMPLE_RANK)
        return OP_LOWER_NO_KERNEL;
    if (ir_shape_size(y) == 0)
        return TACIT_OK;
    read_grid(c->node, &g);
    for (int32_t i = 0; i < g.rank; i++) {
        g.in[i] = x->dims[i + 2];
        g.from.pixels *= g.in[i];
        g.points *= y->dims[i + 2];
        taps *= g.mode == CPU_GRID_NEAREST ? 1 : g.mode == CPU_GRID_LINEAR ? 2 : 4;
    }
    g.tile = tile_points(g.from.channels, taps);
    int64_t tiles = (g.points + g.tile - 1) / g.tile;
    if (g.from.pixels >= CPU_SAMPLE_PIXELS || images * tiles > INT32_MAX)
        return OP_LOWER_NO_KERNEL;
    g.tiles = (uint32_t)tiles;
    if (g.points * taps >= g.from.pixels)
        TRY(op_lower_turn_images(c, images, &g.from, &turned));
    cpu_grid_args *a =
        op_lower_thunk(c, CPU_PICK_NAME(c->cpu.isa, grid_f32), CPU_PICK(c->cpu.isa, cpu_grid_f32),
                       sizeof *a, (uint32_t)(images * tiles));
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = g;
    TRY(op_lower_bind_images(c, &g.from, offsetof(cpu_grid_args, from), turned));
    TRY(op_lower_in(c, offsetof(cpu_grid_args, grid), 1));
    TRY(op_lower_out(c, offsetof(cpu_grid_args, y), 0));
    double points = (double)images * (double)g.points;
    op_lower_cost(c, 2 * points * (double)(taps * (g.from.channels + 8)), op_lower_all_bytes(c));
    op_lower_note(c, "grid_f32_%s: %lld pixels of a point found once, for %lld channels %s",
                  cpu_isa_name(c->cpu.isa), (long long)taps, (long long)g.from.channels,
                  g.from.inside ? "side by side" : "where they lie: few points");
    return TACIT_OK;
}

/* --- DeformConv ------------------------------------------------------------------------------- */

/* Images and points that are worked on together: one image's part, or whole images. */
typedef struct block {
    int64_t image, images, first, points;
} block;

/* Constant weights [M][channel][tap] with the channels inside, as the columns have them. */
static tacit_status turn_weights(op_lower *c, const op_conv *conv, cpu_gemm_args *g)
{
    const float *from = c->in[1].constant->data;
    int64_t taps = conv->w.taps, cg = conv->c / conv->group;
    float *to = op_lower_pack(c, (size_t)(conv->m * g->k) * sizeof *to);
    if (!to)
        return TACIT_ERR_MEMORY;
    for (int64_t m = 0; m < conv->m; m++)
        for (int64_t k = 0; k < g->k; k++)
            to[m * g->k + k % taps * cg + k / taps] = from[m * g->k + k];
    op_lower_packed_away(c, 1);
    g->a = to;
    return TACIT_OK;
}

static tacit_status emit_columns(op_lower *c, const cpu_deform_args *plan, const block *b,
                                 size_t turned, size_t columns)
{
    int64_t taps = plan->kernel[0] * plan->kernel[1], row = plan->points * (int64_t)sizeof(float);
    int64_t set = b->image * plan->sets * taps;
    int64_t image = plan->from.channels * plan->from.pixels * (int64_t)sizeof(float);
    int64_t tiles = (b->points + plan->tile - 1) / plan->tile;
    if (b->images * tiles > INT32_MAX)
        return OP_LOWER_NO_KERNEL;
    cpu_deform_args *a = op_lower_thunk(c, CPU_PICK_NAME(c->cpu.isa, deform_f32),
                                        CPU_PICK(c->cpu.isa, cpu_deform_f32), sizeof *a,
                                        (uint32_t)(b->images * tiles));
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = *plan;
    a->first = b->first;
    a->count = b->points;
    a->tiles = (uint32_t)tiles;
    TRY(op_lower_bind_images(c, &plan->from, offsetof(cpu_deform_args, from), turned));
    op_lower_behind(c, b->image * image);
    TRY(op_lower_in(c, offsetof(cpu_deform_args, offset), 2));
    op_lower_behind(c, 2 * set * row);
    if (op_lower_has(c, 4)) {
        TRY(op_lower_in(c, offsetof(cpu_deform_args, mask), 4));
        op_lower_behind(c, set * row);
    }
    TRY(op_lower_scratch(c, offsetof(cpu_deform_args, columns), columns, true));
    double values = (double)(b->images * b->points) * (double)(taps * plan->from.channels);
    op_lower_cost(c, 8 * values, (uint64_t)(values * 2 * sizeof(float)));
    return TACIT_OK;
}

static tacit_status emit_product(op_lower *c, const op_conv *conv, cpu_gemm_args g, const block *b,
                                 size_t columns)
{
    int64_t batch = b->images * conv->group, mg = conv->m / conv->group, pixels = conv->w.out_size;
    g.n = b->points;
    g.batch_dims[0] = b->images;
    g.b_batch[0] = conv->group * b->points * g.k;
    g.b_batch[1] = b->points * g.k;
    op_lower_cut(&g, batch, c->cpu.isa);
    uint64_t tiles = (uint64_t)g.row_tiles * g.col_tiles * (uint64_t)batch;
    if (tiles > INT32_MAX)
        return OP_LOWER_NO_KERNEL;
    cpu_gemm_args *a =
        op_lower_thunk(c, CPU_PICK_NAME(c->cpu.isa, gemm_f32), CPU_PICK(c->cpu.isa, cpu_gemm_f32),
                       sizeof *a, (uint32_t)tiles);
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = g;
    int64_t behind = (b->image * conv->m * pixels + b->first) * (int64_t)sizeof(float);
    TRY(op_lower_scratch(c, offsetof(cpu_gemm_args, b), columns, false));
    if (op_lower_has(c, 3))
        TRY(op_lower_in(c, offsetof(cpu_gemm_args, bias), 3));
    TRY(op_lower_out(c, offsetof(cpu_gemm_args, c), 0));
    op_lower_behind(c, behind);
    TRY(op_lower_out(c, offsetof(cpu_gemm_args, y), 0));
    op_lower_behind(c, behind);
    op_lower_cost(c, 2.0 * (double)batch * (double)mg * (double)g.n * (double)g.k,
                  (uint64_t)(batch * (mg + g.k) * g.n + conv->m * g.k) * sizeof(float));
    return TACIT_OK;
}

static cpu_deform_args plan_columns(const op_lower *c, const op_conv *conv)
{
    const op_window *w = &conv->w;
    cpu_deform_args a = {.from = {.channels = conv->c, .pixels = w->in_size},
                         .height = w->in[0],
                         .width = w->in[1],
                         .across = w->out[1],
                         .points = w->out_size,
                         .groups = conv->group,
                         .sets = ir_attr_int(c->node, "offset_group", 1),
                         .tile = tile_points(conv->c, 4 * w->taps)};
    memcpy(a.kernel, w->kernel, sizeof a.kernel);
    memcpy(a.stride, w->stride, sizeof a.stride);
    memcpy(a.dilation, w->dilation, sizeof a.dilation);
    memcpy(a.pad, w->pad_begin, sizeof a.pad);
    return a;
}

static tacit_status emit_blocks(op_lower *c, const op_conv *conv, const cpu_deform_args *plan,
                                const cpu_gemm_args *g, size_t turned)
{
    enum { TOGETHER = 1 << 18, MOST = 256 }; /* floats of columns: they stay in L2; blocks */
    int64_t column = conv->c * conv->w.taps, pixels = conv->w.out_size;
    int64_t points = TOGETHER / column / 64 * 64, least = conv->n * pixels / MOST;
    points = points < least ? least : points;
    points = points < 128 ? 128 : points;
    int64_t images = points / pixels < 1 ? 1 : points / pixels;
    images = images < conv->n ? images : conv->n;
    points = points < pixels ? points : pixels;
    size_t columns = op_lower_reserve(c, (size_t)(images * points * column) * sizeof(float));
    for (int64_t i = 0; i < conv->n; i += images)
        for (int64_t p = 0; p < pixels; p += points) {
            block b = {i, conv->n - i < images ? conv->n - i : images, p,
                       pixels - p < points ? pixels - p : points};
            TRY(emit_columns(c, plan, &b, turned, columns));
            TRY(emit_product(c, conv, *g, &b, columns));
        }
    op_lower_note(
        c,
        "deform_f32_%s reads %lld columns of %lld at a time, which gemm_f32 multiplies by "
        "the weights",
        cpu_isa_name(c->cpu.isa), (long long)images * points, (long long)column);
    return TACIT_OK;
}

tacit_status op_lower_deform_conv(op_lower *c)
{
    op_conv conv;
    if (!op_lower_all_f32(c) || !op_lower_known(c, 1))
        return OP_LOWER_NO_KERNEL;
    TRY(op_conv_plan(c->node, &c->in[0].type.shape, &c->in[1].type.shape, &conv, c->err));
    if (ir_shape_size(&c->out[0].type.shape) == 0)
        return TACIT_OK;
    if (conv.w.rank != 2 || conv.c == 0 || conv.w.in_size == 0 ||
        conv.w.in_size >= CPU_SAMPLE_PIXELS)
        return OP_LOWER_NO_KERNEL;
    int64_t cg = conv.c / conv.group, mg = conv.m / conv.group;
    cpu_deform_args plan = plan_columns(c, &conv);
    cpu_gemm_args g = {.m = mg,
                       .k = cg * conv.w.taps,
                       .a_row = cg * conv.w.taps,
                       .a_col = 1,
                       .b_row = 1,
                       .b_col = cg * conv.w.taps,
                       .c_row = conv.w.out_size,
                       .batch_rank = 2,
                       .batch_dims = {1, conv.group},
                       .a_batch = {0, mg * cg * conv.w.taps},
                       .c_batch = {conv.m * conv.w.out_size, mg * conv.w.out_size},
                       .bias_batch = {0, mg}};
    g.epilogue.alpha = 1;
    if (op_lower_has(c, 3))
        g.epilogue.bias = CPU_BIAS_ROW;
    size_t turned;
    TRY(turn_weights(c, &conv, &g));
    TRY(op_lower_turn_images(c, conv.n, &plan.from, &turned));
    return emit_blocks(c, &conv, &plan, &g, turned);
}
