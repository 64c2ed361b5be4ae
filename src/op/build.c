/* SPDX-License-Identifier: Apache-2.0 */
#include "op/build.h"

static ir_value *single(ir_node *node)
{
    return node ? node->outputs[0] : NULL;
}

ir_value *op_build1(ir_graph *g, const char *type, ir_value *x)
{
    return x ? single(op_node(g, type, NULL, 1, &x)) : NULL;
}

ir_value *op_build2(ir_graph *g, const char *type, ir_value *x, ir_value *y)
{
    return x && y ? single(op_node(g, type, NULL, 2, (ir_value *[]){x, y})) : NULL;
}

ir_value *op_build3(ir_graph *g, const char *type, ir_value *x, ir_value *y, ir_value *z)
{
    return x && y && z ? single(op_node(g, type, NULL, 3, (ir_value *[]){x, y, z})) : NULL;
}

ir_value *op_build_scalar(ir_graph *g, tacit_dtype dtype, double value)
{
    ir_shape scalar = {0};
    ir_tensor *t = ir_tensor_new(g->memory, dtype, &scalar);
    if (!t)
        return NULL;
    ir_store_f64(dtype, t->data, 0, value);
    return ir_constant_new(g, "constant", t);
}

ir_value *op_build_ints(ir_graph *g, int64_t count, const int64_t *values)
{
    return ir_constant_i64(g, "ints", 1, count, values);
}

ir_value *op_build_reshape(ir_graph *g, ir_value *x, int32_t rank, const int64_t *dims)
{
    ir_value *y = op_build2(g, "Reshape", x, op_build_ints(g, rank, dims));
    /* A zero dim means zero here, not "copy". */
    for (int32_t i = 0; y && i < rank; i++)
        if (dims[i] == 0 && !ir_attr_set_int(g, y->producer, "allowzero", 1))
            return NULL;
    return y;
}

ir_value *op_build_transpose(ir_graph *g, ir_value *x, int32_t rank, const int64_t *perm)
{
    ir_value *y = op_build1(g, "Transpose", x);
    return y && ir_attr_set_ints(g, y->producer, "perm", (uint32_t)rank, perm) ? y : NULL;
}

ir_value *op_build_cast(ir_graph *g, ir_value *x, tacit_dtype dtype)
{
    ir_value *y = op_build1(g, "Cast", x);
    return y && ir_attr_set_int(g, y->producer, "to", ir_dtype_to_onnx(dtype)) ? y : NULL;
}

ir_value *op_build_reduce(ir_graph *g, const char *type, ir_value *x, int64_t count,
                          const int64_t *axes)
{
    return op_build2(g, type, x, op_build_ints(g, count, axes));
}

tacit_status op_build_finish(ir_graph *g, ir_node *node, uint32_t i, ir_value *value,
                             tacit_error *err)
{
    if (!value)
        return error_memory(err, "decomposing a node");
    if (i >= node->n_outputs || !node->outputs[i])
        return TACIT_OK;
    if (ir_type_is_static(&node->outputs[i]->type))
        value->type = node->outputs[i]->type;
    ir_replace_uses(g, node->outputs[i], value);
    return TACIT_OK;
}
