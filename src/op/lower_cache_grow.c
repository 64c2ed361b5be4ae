/* SPDX-License-Identifier: Apache-2.0
 * tacit.GrowCache (cpu/cache_grow.h). */
#include <string.h>

#include "cpu/cache_grow.h"
#include "op/lowerings.h"

enum { PAST, FRESH, FIRST };

bool op_accepts_grow_cache(const ir_node *node, uint32_t in, const op_operand *view)
{
    (void)node;
    return in == FRESH && view->type.dtype == TACIT_F32 &&
           (view->strides[3] == 1 || view->type.shape.dims[3] == 1);
}

tacit_status op_lower_grow_cache(op_lower *c)
{
    const int64_t *past = c->in[PAST].type.shape.dims, *fresh = c->in[FRESH].type.shape.dims;
    int64_t tiles = past[0] * past[1];
    if (c->in[PAST].type.dtype != TACIT_F32 || tiles > INT32_MAX)
        return OP_LOWER_NO_KERNEL;
    if (ir_shape_size(&c->out[0].type.shape) == 0)
        return TACIT_OK;
    cpu_cache_grow_args *a =
        op_lower_thunk(c, "cache_grow", cpu_cache_grow, sizeof *a, (uint32_t)tiles);
    if (!a)
        return TACIT_ERR_MEMORY;
    a->heads = past[1];
    a->past_rows = past[2];
    a->fresh_rows = fresh[2];
    a->size = c->out[0].type.shape.dims[2];
    a->depth = past[3];
    memcpy(a->fresh_stride, c->in[FRESH].strides, sizeof a->fresh_stride);
    TRY(op_lower_in(c, offsetof(cpu_cache_grow_args, past), PAST));
    TRY(op_lower_in(c, offsetof(cpu_cache_grow_args, fresh), FRESH));
    TRY(op_lower_in(c, offsetof(cpu_cache_grow_args, first), FIRST));
    uint64_t head = (uint64_t)(a->size * a->depth) * sizeof(float);
    TRY(op_lower_out_tiled(c, offsetof(cpu_cache_grow_args, y), 0, head, head));
    TRY(op_lower_fault(c, offsetof(cpu_cache_grow_args, fault)));
    op_lower_cost(c, 0, 2 * op_lower_bytes(&c->out[0]));
    op_lower_note(c, "cache_grow: %lld rows behind those that each batch has", (long long)fresh[2]);
    return TACIT_OK;
}
