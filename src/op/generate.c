/* SPDX-License-Identifier: Apache-2.0
 * Tensors made from little: Constant, ConstantOfShape, Range, EyeLike, OneHot, Trilu. */
#include <math.h>
#include <string.h>

#include "op/elementwise.h"
#include "op/index.h"
#include "op/loop.h"
#include "op/strip.h"
#include "op/view.h"
#include "op/vjp.h"

/* --- Constant --------------------------------------------------------------------------------- */

static const ir_attr *constant_attr(const ir_node *node)
{
    static const char *const names[] = {"value",        "value_int",    "value_ints",
                                        "value_float",  "value_floats", "value_string",
                                        "value_strings"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (ir_attr_find(node, names[i]))
            return ir_attr_find(node, names[i]);
    return NULL;
}

static tacit_status constant_infer(op_infer *c)
{
    const ir_attr *a = constant_attr(c->node);
    int64_t n = a ? a->count : 0;
    if (!a)
        return error_set(c->err, TACIT_ERR_GRAPH, "no value attribute");
    switch (a->kind) {
    case IR_ATTR_TENSOR:
        c->out[0] = ir_tensor_type(a->tensor);
        c->known[0] = a->tensor;
        return TACIT_OK;
    case IR_ATTR_INT:
        c->out[0] = ir_type_tensor(TACIT_I64, 0, NULL);
        return TACIT_OK;
    case IR_ATTR_INTS:
        c->out[0] = ir_type_tensor(TACIT_I64, 1, &n);
        return TACIT_OK;
    case IR_ATTR_FLOAT:
        c->out[0] = ir_type_tensor(TACIT_F32, 0, NULL);
        return TACIT_OK;
    case IR_ATTR_FLOATS:
        c->out[0] = ir_type_tensor(TACIT_F32, 1, &n);
        return TACIT_OK;
    case IR_ATTR_STRING:
        c->out[0] = ir_type_tensor(TACIT_STRING, 0, NULL);
        return TACIT_OK;
    case IR_ATTR_STRINGS:
        c->out[0] = ir_type_tensor(TACIT_STRING, 1, &n);
        return TACIT_OK;
    default:
        return error_set(c->err, TACIT_ERR_GRAPH, "attribute '%s' has the wrong kind", a->name);
    }
}

static tacit_status constant_eval(op_eval *c)
{
    const ir_attr *a = constant_attr(c->node);
    ir_tensor *y = op_out(c, 0);
    if (!a)
        return error_set(c->err, TACIT_ERR_GRAPH, "no value attribute");
    switch (a->kind) {
    case IR_ATTR_TENSOR:
        return op_eval_copy(c, y, a->tensor);
    case IR_ATTR_INT:
        *(int64_t *)y->data = a->i;
        return TACIT_OK;
    case IR_ATTR_FLOAT:
        *(float *)y->data = (float)a->f;
        return TACIT_OK;
    case IR_ATTR_STRING:
        *(ir_string *)y->data = a->s;
        return TACIT_OK;
    default:
        break;
    }
    for (uint32_t i = 0; i < a->count; i++) {
        if (a->kind == IR_ATTR_INTS)
            ((int64_t *)y->data)[i] = a->ints[i];
        else if (a->kind == IR_ATTR_FLOATS)
            ((float *)y->data)[i] = (float)a->floats[i];
        else
            ((ir_string *)y->data)[i] = a->strings[i];
    }
    return TACIT_OK;
}

/* --- ConstantOfShape -------------------------------------------------------------------------- */

static tacit_status fill_infer(op_infer *c)
{
    TRY(op_check_class(c, 0, OP_INT));
    const ir_tensor *value = ir_attr_tensor(c->node, "value");
    if (value && ir_tensor_count(value) != 1)
        return error_set(c->err, TACIT_ERR_SHAPE, "value must have one element");
    tacit_dtype dtype = value ? value->dtype : TACIT_F32;
    if (!op_in_value(c, 0))
        return op_infer_open(c, dtype, ir_shape_size(&c->in[0]->shape));
    ir_shape shape;
    TRY(op_read_shape(op_in_value(c, 0), &shape, c->err));
    c->out[0] = ir_type_tensor(dtype, shape.rank, shape.dims);
    return TACIT_OK;
}

static tacit_status fill_eval(op_eval *c)
{
    const ir_tensor *value = ir_attr_tensor(c->node, "value");
    ir_tensor *y = op_out(c, 0);
    const float zero = 0;
    op_strip_fill(y->dtype, y->data, 0, ir_tensor_count(y), value ? value->data : &zero, 0);
    return TACIT_OK;
}

/* --- Range ------------------------------------------------------------------------------------ */

static tacit_status range_count(const ir_tensor *start, const ir_tensor *limit,
                                const ir_tensor *delta, int64_t *n, tacit_error *err)
{
    if (ir_tensor_count(start) != 1 || ir_tensor_count(limit) != 1 || ir_tensor_count(delta) != 1)
        return error_set(err, TACIT_ERR_SHAPE, "start, limit and delta must be scalars");
    if (ir_dtype_is_float(start->dtype)) {
        double a = ir_load_f64(start->dtype, start->data, 0);
        double b = ir_load_f64(limit->dtype, limit->data, 0);
        double d = ir_load_f64(delta->dtype, delta->data, 0);
        double count = ceil((b - a) / d);
        if (!(d != 0) || !(count < 0x1p62))
            return error_set(err, TACIT_ERR_VALUE, "no range from %g to %g by %g", a, b, d);
        *n = count > 0 ? (int64_t)count : 0;
        return TACIT_OK;
    }
    int64_t a = ir_load_i64(start->dtype, start->data, 0);
    int64_t b = ir_load_i64(limit->dtype, limit->data, 0);
    int64_t d = ir_load_i64(delta->dtype, delta->data, 0);
    if (d == 0)
        return error_set(err, TACIT_ERR_VALUE, "delta is zero");
    __int128 span = d > 0 ? (__int128)b - a : (__int128)a - b;
    __int128 step = d > 0 ? (__int128)d : -(__int128)d;
    __int128 count = span <= 0 ? 0 : (span - 1) / step + 1;
    if (count > INT64_MAX / 16)
        return error_set(err, TACIT_ERR_LIMIT, "the range has too many elements");
    *n = (int64_t)count;
    return TACIT_OK;
}

static tacit_status range_infer(op_infer *c)
{
    TRY(op_check_class(c, 0, OP_REAL));
    TRY(op_check_same_dtype(c));
    if (!c->value[0] || !c->value[1] || !c->value[2])
        return op_infer_open(c, c->in[0]->dtype, 1);
    int64_t n;
    TRY(range_count(c->value[0], c->value[1], c->value[2], &n, c->err));
    c->out[0] = ir_type_tensor(c->in[0]->dtype, 1, &n);
    return TACIT_OK;
}

static tacit_status range_eval(op_eval *c)
{
    const ir_tensor *start = op_in(c, 0), *delta = op_in(c, 2);
    ir_tensor *y = op_out(c, 0);
    tacit_dtype t = y->dtype;
    for (int64_t i = 0, n = ir_tensor_count(y); i < n; i++) {
        if (ir_dtype_is_float(t))
            ir_store_f64(t, y->data, i,
                         ir_load_f64(t, start->data, 0) +
                             (double)i * ir_load_f64(t, delta->data, 0));
        else
            ir_store_i64(t, y->data, i,
                         (int64_t)((uint64_t)ir_load_i64(t, start->data, 0) +
                                   (uint64_t)i * (uint64_t)ir_load_i64(t, delta->data, 0)));
    }
    return TACIT_OK;
}

/* --- EyeLike ---------------------------------------------------------------------------------- */

static tacit_status eye_infer(op_infer *c)
{
    TRY(op_check_class(c, 0, OP_ANY));
    if (c->in[0]->shape.rank != 2)
        return error_set(c->err, TACIT_ERR_SHAPE, "the input must have rank 2");
    c->out[0] = *c->in[0];
    int64_t code = ir_attr_int(c->node, "dtype", ir_dtype_to_onnx(c->in[0]->dtype));
    c->out[0].dtype = ir_dtype_from_onnx(code);
    if (c->out[0].dtype == TACIT_DTYPE_NONE || c->out[0].dtype == TACIT_STRING)
        return error_set(c->err, TACIT_ERR_TYPE, "dtype %lld is not numeric", (long long)code);
    return TACIT_OK;
}

static tacit_status eye_eval(op_eval *c)
{
    ir_tensor *y = op_out(c, 0);
    int64_t rows = y->shape.dims[0], columns = y->shape.dims[1];
    int64_t k = ir_attr_int(c->node, "k", 0);
    memset(y->data, 0, y->bytes);
    for (int64_t i = 0; i < rows; i++)
        if (k >= -i && k < columns - i)
            ir_store_f64(y->dtype, y->data, i * columns + i + k, 1);
    return TACIT_OK;
}

/* --- OneHot ----------------------------------------------------------------------------------- */

static tacit_status one_hot_infer(op_infer *c)
{
    TRY(op_check_class(c, 0, OP_REAL));
    TRY(op_check_class(c, 1, OP_REAL));
    TRY(op_check_class(c, 2, OP_ANY));
    const ir_shape *x = &c->in[0]->shape;
    int32_t axis;
    if (x->rank >= IR_MAX_RANK)
        return error_set(c->err, TACIT_ERR_LIMIT, "rank %d is too high", x->rank);
    TRY(ir_axis(ir_attr_int(c->node, "axis", -1), x->rank + 1, &axis, c->err));
    if (ir_shape_size(&c->in[2]->shape) != 2 || ir_shape_size(&c->in[1]->shape) != 1)
        return error_set(c->err, TACIT_ERR_SHAPE, "expected one depth and two values");
    ir_shape y = {.rank = x->rank + 1};
    for (int32_t d = 0; d < y.rank; d++)
        y.dims[d] = d < axis ? x->dims[d] : d > axis ? x->dims[d - 1] : IR_DIM_UNKNOWN;
    const ir_tensor *depth = c->value[1];
    if (depth) {
        y.dims[axis] = ir_load_i64(depth->dtype, depth->data, 0);
        if (y.dims[axis] < 0)
            return error_set(c->err, TACIT_ERR_VALUE, "depth is negative");
    }
    c->out[0] = ir_type_tensor(c->in[2]->dtype, y.rank, y.dims);
    return TACIT_OK;
}

/* An index outside [-depth, depth) leaves its whole column off. */
static tacit_status one_hot_eval(op_eval *c)
{
    const ir_tensor *index = op_in(c, 0), *values = op_in(c, 2);
    ir_tensor *y = op_out(c, 0);
    op_split_axis s;
    TRY(op_split_at(&y->shape, ir_attr_int(c->node, "axis", -1), &s, c->err));
    op_strip_fill(y->dtype, y->data, 0, ir_tensor_count(y), values->data, 0);
    for (int64_t o = 0; o < s.outer; o++)
        for (int64_t i = 0; i < s.inner; i++) {
            int64_t k = ir_load_i64(index->dtype, index->data, o * s.inner + i);
            if (k < -s.size || k >= s.size)
                continue;
            k = k < 0 ? k + s.size : k;
            ir_copy_element(y->dtype, y->data, (o * s.size + k) * s.inner + i, values->data, 1);
        }
    return TACIT_OK;
}

/* --- Trilu ------------------------------------------------------------------------------------ */

static tacit_status trilu_infer(op_infer *c)
{
    TRY(op_check_class(c, 0, OP_NUMBER | OP_BOOL));
    if (c->in[0]->shape.rank < 2)
        return error_set(c->err, TACIT_ERR_SHAPE, "the input must have rank 2 or more");
    if (op_in_type(c, 1))
        TRY(op_check_class(c, 1, OP_INT));
    return op_infer_same(c);
}

static tacit_status trilu_eval(op_eval *c)
{
    const ir_tensor *x = op_in(c, 0);
    ir_tensor *y = op_out(c, 0);
    bool upper = ir_attr_int(c->node, "upper", 1) != 0;
    int64_t k = 0, rows = y->shape.dims[y->shape.rank - 2];
    int64_t columns = y->shape.dims[y->shape.rank - 1];
    if (op_in(c, 1))
        TRY(op_read_int(op_in(c, 1), &k, c->err));
    k = k < -rows ? -rows : k > columns ? columns : k;
    TRY(op_eval_copy(c, y, x));
    for (int64_t row = 0, all = columns ? ir_tensor_count(x) / columns : 0; row < all; row++) {
        int64_t edge = row % rows + k; /* column of the diagonal */
        for (int64_t i = 0; i < columns; i++)
            if (upper ? i < edge : i > edge)
                ir_store_i64(y->dtype, y->data, row * columns + i, 0);
    }
    return TACIT_OK;
}

const op_def op_rows_generate[] = {
    OP_ROW("Constant", 0, 0, constant_infer, constant_eval),
    OP_ROW("ConstantOfShape", 1, 1, fill_infer, fill_eval, .flags = OP_NOT_DIFFERENTIABLE),
    OP_ROW("Range", 3, 3, range_infer, range_eval),
    OP_ROW("EyeLike", 1, 1, eye_infer, eye_eval, .flags = OP_NOT_DIFFERENTIABLE),
    OP_ROW("OneHot", 3, 3, one_hot_infer, one_hot_eval, .lower = op_lower_one_hot,
           .vjp = op_vjp_one_hot),
    OP_ROW("Trilu", 1, 2, trilu_infer, trilu_eval, .lower = op_lower_trilu, .vjp = op_vjp_trilu),
    {0},
};
