/* SPDX-License-Identifier: Apache-2.0
 * What the lower rules share. */
#include "cpu/epilogue.h"
#include "op/activation.h"
#include "op/lowerings.h"

void op_lower_strides(const op_operand *o, const ir_shape *shape, int64_t *strides)
{
    int32_t lead = shape->rank - o->type.shape.rank;
    for (int32_t d = 0; d < shape->rank; d++) {
        int32_t own = d - lead;
        bool spread = own < 0 || (o->type.shape.dims[own] == 1 && shape->dims[d] != 1);
        strides[d] = spread ? 0 : o->strides[own];
    }
}

bool op_lower_all_f32(const op_lower *c)
{
    for (uint32_t i = 0; i < c->node->n_inputs; i++)
        if (op_lower_has(c, i) && c->in[i].type.dtype != TACIT_F32)
            return false;
    return true;
}

bool op_lower_scalar(const op_operand *o, float *value)
{
    const ir_tensor *t = o->constant;
    if (!t || !t->data || t->dtype != TACIT_F32 || ir_tensor_count(t) != 1)
        return false;
    *value = *(const float *)t->data;
    return true;
}

uint64_t op_lower_bytes(const op_operand *o)
{
    size_t bytes = 0;
    return o->value && ir_type_bytes(&o->type, &bytes) ? bytes : 0;
}

uint64_t op_lower_all_bytes(const op_lower *c)
{
    uint64_t bytes = op_lower_bytes(&c->out[0]);
    for (uint32_t i = 0; i < c->node->n_inputs; i++)
        if (op_lower_has(c, i))
            bytes += op_lower_bytes(&c->in[i]);
    return bytes;
}

uint32_t op_lower_element(tacit_dtype dtype)
{
    uint32_t bits = tacit_dtype_bits(dtype);
    return dtype == TACIT_STRING || bits < 8 || bits > 128 ? 0 : bits / 8;
}

bool op_lower_number(tacit_dtype dtype, cpu_number *number)
{
    switch (dtype) {
#define ROW(id, type)                                                                              \
    case TACIT_##id:                                                                               \
        *number = CPU_##id;                                                                        \
        return true;
        CPU_INTEGERS(ROW)
        CPU_REALS(ROW)
#undef ROW
    case TACIT_BOOL:
        *number = CPU_BOOL;
        return true;
    default:
        return false;
    }
}

bool op_accepts_any(const ir_node *node, uint32_t in, const op_operand *view)
{
    (void)node, (void)in, (void)view;
    return true;
}

tacit_status op_lower_epilogue(op_lower *c, struct cpu_epilogue *e)
{
    static const cpu_act acts[] = {
        [OP_ACT_NONE] = CPU_ACT_NONE, [OP_ACT_RELU] = CPU_ACT_RELU,
        [OP_ACT_GELU] = CPU_ACT_GELU, [OP_ACT_GELU_TANH] = CPU_ACT_GELU_TANH,
        [OP_ACT_SILU] = CPU_ACT_SILU, [OP_ACT_SIGMOID] = CPU_ACT_SIGMOID,
        [OP_ACT_TANH] = CPU_ACT_TANH, [OP_ACT_CLIP] = CPU_ACT_CLIP,
    };
    op_activation a;
    e->alpha = 1;
    if (!*c->node->domain) /* the ONNX ops have no epilogue, whatever attributes they carry */
        return TACIT_OK;
    TRY(op_activation_read(c->node, &a, c->err));
    e->alpha = (float)ir_attr_float(c->node, "alpha", 1);
    e->act = acts[a.kind];
    e->act_min = (float)a.low;
    e->act_max = (float)a.high;
    e->act_last = ir_attr_int(c->node, "activation_last", 0) != 0;
    return TACIT_OK;
}
