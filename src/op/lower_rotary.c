/* SPDX-License-Identifier: Apache-2.0
 * RotaryEmbedding (cpu/rotary.h). */
#include "cpu/rotary.h"
#include "op/lowerings.h"

bool op_accepts_rotary(const ir_node *node, uint32_t in, const op_operand *view)
{
    (void)node;
    int32_t last = view->type.shape.rank - 1;
    return in == 0 && view->type.dtype == TACIT_F32 && last >= 2 &&
           (view->strides[last] == 1 || view->type.shape.dims[last] == 1);
}

/* Strides of batch, head and position: x is [B,H,S,D] or [B,S,H·D]. */
static void head_strides(const op_operand *o, int64_t depth, int64_t *out)
{
    bool flat = o->type.shape.rank == 3;
    out[0] = o->strides[0];
    out[1] = flat ? depth : o->strides[1];
    out[2] = flat ? o->strides[1] : o->strides[2];
}

static void fill(const op_lower *c, cpu_rotary_args *a)
{
    const ir_shape *x = &c->in[0].type.shape, *table = &c->in[1].type.shape;
    bool flat = x->rank == 3;
    a->heads = flat ? ir_attr_int(c->node, "num_heads", 1) : x->dims[1];
    a->positions = x->dims[flat ? 1 : 2];
    a->depth = flat ? x->dims[2] / a->heads : x->dims[3];
    a->half = table->dims[table->rank - 1];
    a->rows = a->half ? ir_shape_size(table) / a->half : 0;
    a->interleaved = ir_attr_int(c->node, "interleaved", 0) != 0;
    head_strides(&c->in[0], a->depth, a->x_stride);
    head_strides(&c->out[0], a->depth, a->y_stride);
}

tacit_status op_lower_rotary(op_lower *c)
{
    const ir_shape *x = &c->in[0].type.shape;
    bool ids = op_lower_has(c, 3);
    for (int i = 0; i < 3; i++)
        if (c->in[i].type.dtype != TACIT_F32)
            return OP_LOWER_NO_KERNEL;
    if (ids && c->in[3].type.dtype != TACIT_I64)
        return OP_LOWER_NO_KERNEL;
    if (ir_shape_size(x) == 0)
        return TACIT_OK;
    cpu_rotary_args filled = {0};
    fill(c, &filled);
    int64_t tiles = x->dims[0] * filled.heads;
    if (filled.half == 0 || tiles > INT32_MAX)
        return OP_LOWER_NO_KERNEL;
    cpu_rotary_args *a =
        op_lower_thunk(c, CPU_PICK_NAME(c->cpu.isa, rotary_f32),
                       CPU_PICK(c->cpu.isa, cpu_rotary_f32), sizeof *a, (uint32_t)tiles);
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = filled;
    TRY(op_lower_in(c, offsetof(cpu_rotary_args, x), 0));
    TRY(op_lower_in(c, offsetof(cpu_rotary_args, cosine), 1));
    TRY(op_lower_in(c, offsetof(cpu_rotary_args, sine), 2));
    if (ids)
        TRY(op_lower_in(c, offsetof(cpu_rotary_args, ids), 3));
    TRY(op_lower_out(c, offsetof(cpu_rotary_args, y), 0));
    TRY(op_lower_fault(c, offsetof(cpu_rotary_args, fault)));
    op_lower_cost(c, 3.0 * (double)ir_shape_size(x), 2 * op_lower_bytes(&c->out[0]));
    op_lower_note(c, "rotary_f32_%s, %lld heads of %lld by tables of %lld rows",
                  cpu_isa_name(c->cpu.isa), (long long)filled.heads, (long long)filled.depth,
                  (long long)filled.rows);
    return TACIT_OK;
}
