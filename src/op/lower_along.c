/* SPDX-License-Identifier: Apache-2.0
 * CumSum, CumProd, TopK and LRN (cpu/along.h). */
#include <string.h>

#include "cpu/along.h"
#include "op/lowerings.h"
#include "op/view.h"

enum { TILE_ELEMENTS = 32768 }; /* of the input, about */

static void split_axis(const ir_shape *x, int32_t axis, int64_t *outer, int64_t *inner)
{
    *outer = *inner = 1;
    for (int32_t d = 0; d < x->rank; d++)
        if (d != axis)
            *(d < axis ? outer : inner) *= x->dims[d];
}

tacit_status op_lower_cumulate(op_lower *c)
{
    const ir_shape *x = &c->in[0].type.shape;
    const ir_tensor *given = ir_value_known(c->node->inputs[1]);
    int64_t asked;
    int32_t axis;
    if (c->in[0].type.dtype != TACIT_F32 || !given)
        return OP_LOWER_NO_KERNEL;
    TRY(op_read_int(given, &asked, c->err));
    TRY(ir_axis(asked, x->rank, &axis, c->err));
    if (ir_shape_size(x) == 0)
        return TACIT_OK;
    cpu_cumulate_args p = {.length = x->dims[axis],
                           .product = strcmp(c->node->type, "CumProd") == 0,
                           .exclusive = ir_attr_int(c->node, "exclusive", 0) != 0,
                           .reverse = ir_attr_int(c->node, "reverse", 0) != 0};
    split_axis(x, axis, &p.outer, &p.inner);
    int64_t run = p.length * p.inner, tiles;
    p.tile = TILE_ELEMENTS / run < 1 ? 1 : TILE_ELEMENTS / run;
    if (p.inner > 64 && run > TILE_ELEMENTS) { /* neighbours are worth tiles of their own */
        p.tile = TILE_ELEMENTS / p.length / 16 * 16;
        p.tile = p.tile < 64 ? 64 : p.tile;
        p.split = (p.inner + p.tile - 1) / p.tile;
        tiles = p.outer * p.split;
    } else {
        tiles = (p.outer + p.tile - 1) / p.tile;
    }
    if (tiles > INT32_MAX)
        return OP_LOWER_NO_KERNEL;
    cpu_cumulate_args *a =
        op_lower_thunk(c, CPU_PICK_NAME(c->cpu.isa, cumulate_f32),
                       CPU_PICK(c->cpu.isa, cpu_cumulate_f32), sizeof *a, (uint32_t)tiles);
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = p;
    uint64_t bytes = p.split ? 0 : (uint64_t)(p.tile * run) * sizeof(float);
    TRY(op_lower_in_tiled(c, offsetof(cpu_cumulate_args, x), 0, bytes, bytes));
    TRY(op_lower_out_tiled(c, offsetof(cpu_cumulate_args, y), 0, bytes, bytes));
    op_lower_cost(c, (double)ir_shape_size(x), 2 * op_lower_bytes(&c->in[0]));
    return TACIT_OK;
}

static bool has_output(const op_lower *c, uint32_t i)
{
    return i < c->node->n_outputs && c->node->outputs[i];
}

/* Both outputs are where it works: what nobody wants goes to scratch of `whole` bytes. */
static tacit_status bind_found(op_lower *c, size_t field, uint32_t output, uint64_t tile,
                               size_t whole)
{
    if (has_output(c, output))
        return op_lower_out_tiled(c, field, output, tile, tile);
    return op_lower_scratch(c, field, op_lower_reserve(c, whole), true);
}

tacit_status op_lower_top_k(op_lower *c)
{
    bool has_values = has_output(c, 0), has_indices = has_output(c, 1);
    const ir_shape *x = &c->in[0].type.shape, *found = &c->out[has_values ? 0 : 1].type.shape;
    int32_t axis;
    if (c->in[0].type.dtype != TACIT_F32 || (!has_values && !has_indices))
        return OP_LOWER_NO_KERNEL;
    TRY(ir_axis(ir_attr_int(c->node, "axis", -1), x->rank, &axis, c->err));
    cpu_top_k_args p = {.length = x->dims[axis],
                        .k = found->dims[axis],
                        .smallest = ir_attr_int(c->node, "largest", 1) == 0};
    split_axis(x, axis, &p.outer, &p.inner);
    int64_t count = ir_shape_size(found);
    if (count == 0)
        return TACIT_OK;
    int64_t run = p.length * p.inner;
    p.tile = TILE_ELEMENTS / run < 1 ? 1 : TILE_ELEMENTS / run;
    int64_t tiles = (p.outer + p.tile - 1) / p.tile;
    if (tiles > INT32_MAX)
        return OP_LOWER_NO_KERNEL;
    cpu_top_k_args *a =
        op_lower_thunk(c, CPU_PICK_NAME(c->cpu.isa, top_k_f32), CPU_PICK(c->cpu.isa, cpu_top_k_f32),
                       sizeof *a, (uint32_t)tiles);
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = p;
    uint64_t read = (uint64_t)(p.tile * run) * sizeof(float);
    uint64_t each = (uint64_t)(p.tile * p.k * p.inner);
    TRY(op_lower_in_tiled(c, offsetof(cpu_top_k_args, x), 0, read, read));
    TRY(bind_found(c, offsetof(cpu_top_k_args, values), 0, each * sizeof(float),
                   (size_t)count * sizeof(float)));
    TRY(bind_found(c, offsetof(cpu_top_k_args, indices), 1, each * sizeof(int64_t),
                   (size_t)count * sizeof(int64_t)));
    op_lower_cost(c, (double)ir_shape_size(x), op_lower_bytes(&c->in[0]));
    return TACIT_OK;
}

tacit_status op_lower_lrn(op_lower *c)
{
    const ir_shape *x = &c->in[0].type.shape;
    int64_t size = ir_attr_int(c->node, "size", 1);
    double alpha = ir_attr_float(c->node, "alpha", 1e-4), bias = ir_attr_float(c->node, "bias", 1);
    /* A base that may be negative, or 0, has powers that exp and log do not make. */
    if (c->in[0].type.dtype != TACIT_F32 || size > CPU_LRN_SIZE || alpha < 0 || !(bias > 0))
        return OP_LOWER_NO_KERNEL;
    if (ir_shape_size(x) == 0)
        return TACIT_OK;
    cpu_lrn_args p = {.length = x->dims[1],
                      .below = (size - 1) / 2,
                      .alpha = (float)(alpha / (double)size),
                      .beta = (float)ir_attr_float(c->node, "beta", 0.75),
                      .bias = (float)bias};
    split_axis(x, 1, &p.outer, &p.inner);
    p.above = size - 1 - p.below;
    p.strips = (p.inner + CPU_LRN_STRIP - 1) / CPU_LRN_STRIP;
    if (p.outer * p.strips > INT32_MAX)
        return OP_LOWER_NO_KERNEL;
    cpu_lrn_args *a =
        op_lower_thunk(c, CPU_PICK_NAME(c->cpu.isa, lrn_f32), CPU_PICK(c->cpu.isa, cpu_lrn_f32),
                       sizeof *a, (uint32_t)(p.outer * p.strips));
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = p;
    TRY(op_lower_in(c, offsetof(cpu_lrn_args, x), 0));
    TRY(op_lower_out(c, offsetof(cpu_lrn_args, y), 0));
    op_lower_cost(c, (double)ir_shape_size(x) * (double)(size + 40),
                  2 * op_lower_bytes(&c->out[0]));
    op_lower_note(c, "lrn_f32_%s: %d positions at a time, channel by channel",
                  cpu_isa_name(c->cpu.isa), (int)CPU_LRN_STRIP);
    return TACIT_OK;
}
