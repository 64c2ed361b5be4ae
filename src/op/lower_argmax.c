/* SPDX-License-Identifier: Apache-2.0
 * ArgMax, ArgMin and Hardmax (cpu/argmax.h). */
#include <string.h>

#include "cpu/argmax.h"
#include "op/lowerings.h"

enum { TILE_ELEMENTS = 32768 }; /* of the input, about */

/* x as [outer, length, inner]; false where no kernel takes it. */
static bool split(const op_lower *c, int32_t axis, int64_t *outer, int64_t *length, int64_t *inner)
{
    const ir_shape *x = &c->in[0].type.shape;
    *outer = *inner = 1;
    *length = x->dims[axis];
    for (int32_t d = 0; d < x->rank; d++)
        if (d != axis)
            *(d < axis ? outer : inner) *= x->dims[d];
    return *length > 0 && *length <= INT32_MAX;
}

static int64_t results_of_tile(int64_t length)
{
    return TILE_ELEMENTS / length < 1 ? 1 : TILE_ELEMENTS / length;
}

tacit_status op_lower_argmax(op_lower *c)
{
    const ir_shape *x = &c->in[0].type.shape;
    int32_t axis;
    if (c->in[0].type.dtype != TACIT_F32 || x->rank == 0)
        return OP_LOWER_NO_KERNEL;
    TRY(ir_axis(ir_attr_int(c->node, "axis", 0), x->rank, &axis, c->err));
    cpu_argmax_args p = {.smallest = strcmp(c->node->type, "ArgMin") == 0,
                         .last = ir_attr_int(c->node, "select_last_index", 0) != 0};
    if (!split(c, axis, &p.outer, &p.length, &p.inner))
        return OP_LOWER_NO_KERNEL;
    int64_t all = p.outer * p.inner;
    if (all == 0)
        return TACIT_OK;
    p.tile = results_of_tile(p.length);
    if (p.inner > 1 && p.tile < CPU_ARGMAX_STRIP)
        p.tile = CPU_ARGMAX_STRIP; /* of results that lie side by side */
    int64_t tiles = (all + p.tile - 1) / p.tile;
    if (tiles > INT32_MAX)
        return OP_LOWER_NO_KERNEL;
    cpu_argmax_args *a =
        op_lower_thunk(c, CPU_PICK_NAME(c->cpu.isa, argmax_f32),
                       CPU_PICK(c->cpu.isa, cpu_argmax_f32), sizeof *a, (uint32_t)tiles);
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = p;
    uint64_t run = (uint64_t)p.tile * sizeof(int64_t);
    TRY(op_lower_in(c, offsetof(cpu_argmax_args, x), 0));
    TRY(op_lower_out_tiled(c, offsetof(cpu_argmax_args, y), 0, run, run));
    op_lower_cost(c, (double)(all * p.length), op_lower_bytes(&c->in[0]));
    return TACIT_OK;
}

tacit_status op_lower_hardmax(op_lower *c)
{
    const ir_shape *x = &c->in[0].type.shape;
    int32_t axis;
    if (c->in[0].type.dtype != TACIT_F32 || x->rank == 0)
        return OP_LOWER_NO_KERNEL;
    TRY(ir_axis(ir_attr_int(c->node, "axis", -1), x->rank, &axis, c->err));
    cpu_hardmax_args p = {0};
    if (ir_shape_size(x) == 0)
        return TACIT_OK;
    if (!split(c, axis, &p.outer, &p.length, &p.inner))
        return OP_LOWER_NO_KERNEL;
    p.tile = results_of_tile(p.length);
    int64_t strips = (p.inner + CPU_ARGMAX_STRIP - 1) / CPU_ARGMAX_STRIP;
    int64_t tiles = p.inner == 1 ? (p.outer + p.tile - 1) / p.tile : p.outer * strips;
    if (tiles > INT32_MAX)
        return OP_LOWER_NO_KERNEL;
    cpu_hardmax_args *a =
        op_lower_thunk(c, CPU_PICK_NAME(c->cpu.isa, hardmax_f32),
                       CPU_PICK(c->cpu.isa, cpu_hardmax_f32), sizeof *a, (uint32_t)tiles);
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = p;
    uint64_t run = p.inner == 1 ? (uint64_t)(p.tile * p.length) * sizeof(float) : 0;
    TRY(op_lower_in_tiled(c, offsetof(cpu_hardmax_args, x), 0, run, run));
    TRY(op_lower_out_tiled(c, offsetof(cpu_hardmax_args, y), 0, run, run));
    op_lower_cost(c, (double)ir_shape_size(x), 2 * op_lower_bytes(&c->out[0]));
    return TACIT_OK;
}
