/* SPDX-License-Identifier: Apache-2.0
 * Building nodes of derivative graphs. */
#include <string.h>

#include "op/build.h"
#include "op/diff.h"

static ir_value *out_of_memory(op_diff *c)
{
    c->status = error_memory(c->err, "a derivative graph");
    return NULL;
}

/* Infers the node that made `v`. */
static ir_value *inferred(op_diff *c, ir_value *v)
{
    if (c->status != TACIT_OK)
        return NULL;
    if (!v)
        return out_of_memory(c);
    if (v->producer)
        c->status = op_infer_node(c->graph, v->producer, c->err);
    return c->status == TACIT_OK ? v : NULL;
}

tacit_status op_diff_fail(op_diff *c, tacit_status status, const char *what)
{
    if (c->status == TACIT_OK)
        c->status =
            error_set(c->err, status, "node '%s' (%s): %s", c->node->name, c->node->type, what);
    return c->status;
}

static ir_node *raw_node(op_diff *c, const char *type, uint32_t n, ir_value *const *inputs)
{
    if (c->status != TACIT_OK)
        return NULL;
    bool own = strncmp(type, "tacit.", 6) == 0;
    ir_node *node =
        ir_node_new(c->graph, own ? type + 6 : type, own ? "tacit" : "", NULL, n, inputs, 1, NULL);
    if (node)
        op_resolve(NULL, node);
    else
        out_of_memory(c);
    return node;
}

ir_value *op_diff_node(op_diff *c, const char *type, uint32_t n, ir_value *const *inputs)
{
    ir_node *node = raw_node(c, type, n, inputs);
    return node ? inferred(c, node->outputs[0]) : NULL;
}

ir_value *op_diff_open(op_diff *c, const char *type, uint32_t n, ir_value *const *inputs)
{
    for (uint32_t i = 0; i < n; i++)
        if (!inputs[i])
            return NULL;
    ir_node *node = raw_node(c, type, n, inputs);
    return node ? node->outputs[0] : NULL;
}

ir_value *op_diff1(op_diff *c, const char *type, ir_value *x)
{
    return x ? op_diff_node(c, type, 1, &x) : NULL;
}

ir_value *op_diff2(op_diff *c, const char *type, ir_value *x, ir_value *y)
{
    return x && y ? op_diff_node(c, type, 2, (ir_value *[]){x, y}) : NULL;
}

ir_value *op_diff3(op_diff *c, const char *type, ir_value *x, ir_value *y, ir_value *z)
{
    return x && y && z ? op_diff_node(c, type, 3, (ir_value *[]){x, y, z}) : NULL;
}

ir_value *op_diff_attr_int(op_diff *c, ir_value *v, const char *name, int64_t value)
{
    if (!v)
        return NULL;
    if (!ir_attr_set_int(c->graph, v->producer, name, value))
        return out_of_memory(c);
    return inferred(c, v);
}

ir_value *op_diff_attr_ints(op_diff *c, ir_value *v, const char *name, uint32_t n,
                            const int64_t *values)
{
    if (!v)
        return NULL;
    if (!ir_attr_set_ints(c->graph, v->producer, name, n, values))
        return out_of_memory(c);
    return inferred(c, v);
}

ir_value *op_diff_scalar(op_diff *c, tacit_dtype dtype, double value)
{
    return inferred(c, op_build_scalar(c->graph, dtype, value));
}

ir_value *op_diff_ints(op_diff *c, uint32_t n, const int64_t *values)
{
    return inferred(c, op_build_ints(c->graph, n, values));
}

ir_value *op_diff_conj(op_diff *c, ir_value *x)
{
    bool complex = x && ir_dtype_classify(x->type.dtype) == IR_CLASS_COMPLEX;
    return complex ? op_diff1(c, "tacit.Conj", x) : x;
}

ir_value *op_diff_scale(op_diff *c, ir_value *x, double factor)
{
    return x ? op_diff2(c, "Mul", x, op_diff_scalar(c, x->type.dtype, factor)) : NULL;
}

ir_value *op_diff_reshape(op_diff *c, ir_value *x, const ir_shape *shape)
{
    if (!x || ir_shape_equal(&x->type.shape, shape))
        return x;
    ir_value *dims = op_diff_ints(c, (uint32_t)shape->rank, shape->dims);
    if (!dims)
        return NULL;
    /* allowzero: a zero here is a size, not "copy". */
    ir_node *n = raw_node(c, "Reshape", 2, (ir_value *[]){x, dims});
    if (n && !ir_attr_set_int(c->graph, n, "allowzero", 1))
        return out_of_memory(c);
    return n ? inferred(c, n->outputs[0]) : NULL;
}

ir_value *op_diff_expand(op_diff *c, ir_value *x, const ir_shape *shape)
{
    if (!x || ir_shape_equal(&x->type.shape, shape))
        return x;
    return op_diff2(c, "Expand", x, op_diff_ints(c, (uint32_t)shape->rank, shape->dims));
}

ir_value *op_diff_transpose(op_diff *c, ir_value *x, const int64_t *perm)
{
    if (!x)
        return NULL;
    ir_node *n = raw_node(c, "Transpose", 1, &x);
    if (n && !ir_attr_set_ints(c->graph, n, "perm", (uint32_t)x->type.shape.rank, perm))
        return out_of_memory(c);
    return n ? inferred(c, n->outputs[0]) : NULL;
}

ir_value *op_diff_swap_last(op_diff *c, ir_value *x)
{
    if (!x)
        return NULL;
    int64_t perm[IR_MAX_RANK];
    int32_t rank = x->type.shape.rank;
    for (int32_t i = 0; i < rank; i++)
        perm[i] = i;
    perm[rank - 1] = rank - 2;
    perm[rank - 2] = rank - 1;
    return op_diff_transpose(c, x, perm);
}

ir_value *op_diff_sum(op_diff *c, ir_value *x, uint32_t n, const int64_t *axes, bool keep)
{
    if (!x || n == 0)
        return x;
    ir_value *list = op_diff_ints(c, n, axes);
    if (!list)
        return NULL;
    ir_node *node = raw_node(c, "ReduceSum", 2, (ir_value *[]){x, list});
    if (node && !ir_attr_set_int(c->graph, node, "keepdims", keep))
        return out_of_memory(c);
    return node ? inferred(c, node->outputs[0]) : NULL;
}

ir_value *op_diff_zeros(op_diff *c, const ir_type *type)
{
    ir_value *zero = op_diff_scalar(c, type->dtype, 0);
    return op_diff_expand(c, zero, &type->shape);
}

ir_value *op_diff_cast(op_diff *c, ir_value *x, tacit_dtype dtype)
{
    if (!x || x->type.dtype == dtype)
        return x;
    return inferred(c, op_build_cast(c->graph, x, dtype));
}

ir_value *op_diff_sum_to(op_diff *c, ir_value *x, const ir_shape *shape)
{
    if (!x || ir_shape_equal(&x->type.shape, shape))
        return x;
    int64_t axes[IR_MAX_RANK];
    uint32_t n = 0;
    int32_t lead = x->type.shape.rank - shape->rank;
    for (int32_t i = 0; i < x->type.shape.rank; i++)
        if (i < lead || (shape->dims[i - lead] == 1 && x->type.shape.dims[i] != 1))
            axes[n++] = i;
    return op_diff_reshape(c, op_diff_sum(c, x, n, axes, true), shape);
}

ir_value *op_diff_add(op_diff *c, ir_value *a, ir_value *b)
{
    if (!a || !b)
        return a ? a : b;
    return op_diff2(c, "Add", a, b);
}
