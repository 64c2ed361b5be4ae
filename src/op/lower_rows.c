/* SPDX-License-Identifier: Apache-2.0
 * Softmax, LpNormalization and the normalisations over trailing axes (cpu/rows.h, cpu/lpnorm.h). */
#include "cpu/lpnorm.h"
#include "cpu/rows.h"
#include "op/lowerings.h"

/* Rows of a tile so that it holds about `elements`. */
static int64_t rows_of_tile(int64_t rows, int64_t length, int64_t elements)
{
    int64_t n = length >= elements ? 1 : elements / (length ? length : 1);
    return n < rows ? n : rows;
}

static void split_shape(const ir_shape *s, int32_t axis, int32_t end, int64_t *outer,
                        int64_t *length, int64_t *inner)
{
    *outer = *length = *inner = 1;
    for (int32_t d = 0; d < s->rank; d++)
        *(d < axis ? outer : d < end ? length : inner) *= s->dims[d];
}

/* Lines along an axis, and how they are shared: `rows` lines a tile where these are rows, else a
 * group of columns. */
typedef struct lines {
    int64_t outer, length, inner, rows;
    int64_t count; /* elements; 0: there is nothing to do */
    uint32_t tiles;
    uint64_t run; /* bytes of a tile; 0: they lie apart */
} lines;

static tacit_status read_lines(const op_lower *c, int64_t columns, lines *l)
{
    const ir_shape *shape = &c->in[0].type.shape;
    int32_t axis;
    if (c->in[0].type.dtype != TACIT_F32 || shape->rank == 0)
        return OP_LOWER_NO_KERNEL;
    TRY(ir_axis(ir_attr_int(c->node, "axis", -1), shape->rank, &axis, c->err));
    split_shape(shape, axis, axis + 1, &l->outer, &l->length, &l->inner);
    l->count = l->outer * l->length * l->inner;
    if (l->count == 0)
        return TACIT_OK;
    l->rows = rows_of_tile(l->outer, l->length, 8192);
    int64_t groups = (l->inner + columns - 1) / columns;
    int64_t tiles = l->inner == 1 ? (l->outer + l->rows - 1) / l->rows : l->outer * groups;
    l->tiles = (uint32_t)tiles;
    l->run = l->inner == 1 ? (uint64_t)(l->rows * l->length) * sizeof(float) : 0;
    return tiles > INT32_MAX ? OP_LOWER_NO_KERNEL : TACIT_OK;
}

tacit_status op_lower_softmax(op_lower *c)
{
    lines l;
    TRY(read_lines(c, CPU_SOFTMAX_COLUMNS, &l));
    if (l.count == 0)
        return TACIT_OK;
    cpu_softmax_args *a = op_lower_thunk(c, CPU_PICK_NAME(c->cpu.isa, softmax_f32),
                                         CPU_PICK(c->cpu.isa, cpu_softmax_f32), sizeof *a, l.tiles);
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = (cpu_softmax_args){.outer = l.outer,
                            .length = l.length,
                            .inner = l.inner,
                            .tile_rows = l.rows,
                            .log = c->node->type[0] == 'L'};
    TRY(op_lower_in_tiled(c, offsetof(cpu_softmax_args, x), 0, l.run, l.run));
    TRY(op_lower_out_tiled(c, offsetof(cpu_softmax_args, y), 0, l.run, l.run));
    op_lower_cost(c, 8.0 * (double)l.count, 2 * op_lower_bytes(&c->out[0]));
    op_lower_note(c, "softmax_f32_%s over %lld elements %lld apart", cpu_isa_name(c->cpu.isa),
                  (long long)l.length, (long long)l.inner);
    return TACIT_OK;
}

tacit_status op_lower_lp_norm(op_lower *c)
{
    int64_t power = ir_attr_int(c->node, "p", 2);
    lines l;
    if (power != 1 && power != 2)
        return OP_LOWER_NO_KERNEL;
    TRY(read_lines(c, CPU_LPNORM_COLUMNS, &l));
    if (l.count == 0)
        return TACIT_OK;
    cpu_lpnorm_args *a = op_lower_thunk(c, CPU_PICK_NAME(c->cpu.isa, lpnorm_f32),
                                        CPU_PICK(c->cpu.isa, cpu_lpnorm_f32), sizeof *a, l.tiles);
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = (cpu_lpnorm_args){.outer = l.outer,
                           .length = l.length,
                           .inner = l.inner,
                           .tile = l.rows,
                           .absolute = power == 1};
    TRY(op_lower_in_tiled(c, offsetof(cpu_lpnorm_args, x), 0, l.run, l.run));
    TRY(op_lower_out_tiled(c, offsetof(cpu_lpnorm_args, y), 0, l.run, l.run));
    op_lower_cost(c, 4.0 * (double)l.count, 2 * op_lower_bytes(&c->out[0]));
    op_lower_note(c, "lpnorm_f32_%s over %lld elements %lld apart", cpu_isa_name(c->cpu.isa),
                  (long long)l.length, (long long)l.inner);
    return TACIT_OK;
}

/* The thunk for inputs x, scale, bias, residual and outputs y, sum; -1: absent. */
static tacit_status emit_norm(op_lower *c, int64_t rows, int64_t length, int scale, int bias,
                              int residual, int sum, bool rms)
{
    if (rows == 0)
        return TACIT_OK;
    if (length == 0) /* statistics of nothing: as the evaluator has them */
        return OP_LOWER_NO_KERNEL;
    int64_t tile = rows_of_tile(rows, length, 6144);
    int64_t tiles = (rows + tile - 1) / tile;
    if (tiles > INT32_MAX)
        return OP_LOWER_NO_KERNEL;
    cpu_norm_args *a =
        op_lower_thunk(c, CPU_PICK_NAME(c->cpu.isa, norm_f32), CPU_PICK(c->cpu.isa, cpu_norm_f32),
                       sizeof *a, (uint32_t)tiles);
    if (!a)
        return TACIT_ERR_MEMORY;
    a->rows = rows;
    a->length = length;
    a->tile_rows = tile;
    a->epsilon = (float)ir_attr_float(c->node, "epsilon", 1e-5);
    a->rms = rms;
    uint64_t run = (uint64_t)(tile * length) * sizeof(float);
    TRY(op_lower_in_tiled(c, offsetof(cpu_norm_args, x), 0, run, run));
    if (scale >= 0)
        TRY(op_lower_in(c, offsetof(cpu_norm_args, scale), (uint32_t)scale));
    if (bias >= 0)
        TRY(op_lower_in(c, offsetof(cpu_norm_args, bias), (uint32_t)bias));
    if (residual >= 0)
        TRY(op_lower_in_tiled(c, offsetof(cpu_norm_args, residual), (uint32_t)residual, run, run));
    TRY(op_lower_out_tiled(c, offsetof(cpu_norm_args, y), 0, run, run));
    if (sum >= 0)
        TRY(op_lower_out_tiled(c, offsetof(cpu_norm_args, sum), (uint32_t)sum, run, run));
    uint64_t streams = 2 + (residual >= 0) + (sum >= 0);
    op_lower_cost(c, 8.0 * (double)(rows * length), streams * op_lower_bytes(&c->in[0]));
    op_lower_note(c, "norm_f32_%s: %lld rows of %lld in one visit", cpu_isa_name(c->cpu.isa),
                  (long long)rows, (long long)length);
    return TACIT_OK;
}

/* Is input i absent, or exactly one row long? */
static bool fits_row(const op_lower *c, uint32_t i, int64_t length)
{
    return !op_lower_has(c, i) || ir_shape_size(&c->in[i].type.shape) == length;
}

tacit_status op_lower_layer_norm(op_lower *c)
{
    const ir_shape *shape = &c->in[0].type.shape;
    int32_t axis;
    int64_t rows, length, inner;
    if (!op_lower_all_f32(c) || shape->rank == 0 || op_lower_wants(c, 1) || op_lower_wants(c, 2))
        return OP_LOWER_NO_KERNEL;
    TRY(ir_axis(ir_attr_int(c->node, "axis", -1), shape->rank, &axis, c->err));
    split_shape(shape, axis, shape->rank, &rows, &length, &inner);
    if (!fits_row(c, 1, length) || !fits_row(c, 2, length))
        return OP_LOWER_NO_KERNEL;
    return emit_norm(c, rows, length, 1, op_lower_has(c, 2) ? 2 : -1, -1, -1,
                     c->node->type[0] == 'R');
}

tacit_status op_lower_norm(op_lower *c)
{
    const ir_shape *shape = &c->in[0].type.shape;
    int64_t rows, length, inner;
    if (!op_lower_all_f32(c) || shape->rank == 0)
        return OP_LOWER_NO_KERNEL;
    split_shape(shape, shape->rank - 1, shape->rank, &rows, &length, &inner);
    if (!fits_row(c, 1, length) || !fits_row(c, 2, length))
        return OP_LOWER_NO_KERNEL;
    return emit_norm(c, rows, length, op_lower_has(c, 1) ? 1 : -1, op_lower_has(c, 2) ? 2 : -1,
                     op_lower_has(c, 3) ? 3 : -1, op_lower_wants(c, 1) ? 1 : -1,
                     ir_attr_int(c->node, "rms", 0) != 0);
}
