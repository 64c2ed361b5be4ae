/* SPDX-License-Identifier: Apache-2.0 */
#include "op/index.h"

#include <math.h>
#include <string.h>

tacit_status op_index_refused(int64_t index, int64_t entry, int64_t n, int32_t axis,
                              tacit_error *err)
{
    return error_set(err, TACIT_ERR_VALUE,
                     "index %lld (entry %lld) is outside [-%lld, %lld) of axis %d",
                     (long long)index, (long long)entry, (long long)n, (long long)n, axis);
}

tacit_status op_index_at(const ir_tensor *indices, int64_t i, int64_t n, int32_t axis, int64_t *out,
                         tacit_error *err)
{
    int64_t k = ir_load_i64(indices->dtype, indices->data, i);
    if (k < -n || k >= n)
        return op_index_refused(k, i, n, axis, err);
    *out = k < 0 ? k + n : k;
    return TACIT_OK;
}

tacit_status op_read_reduction(const ir_node *node, op_combine_kind *out, tacit_error *err)
{
    static const struct {
        const char *name;
        op_combine_kind kind;
    } names[] = {{"none", OP_COMBINE_SET},
                 {"add", OP_COMBINE_ADD},
                 {"mul", OP_COMBINE_MUL},
                 {"max", OP_COMBINE_MAX},
                 {"min", OP_COMBINE_MIN}};
    const char *text = ir_attr_string(node, "reduction", "none");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i].name, text) == 0) {
            *out = names[i].kind;
            return TACIT_OK;
        }
    return error_set(err, TACIT_ERR_VALUE, "reduction '%s' is not known", text);
}

static double combine_f64(op_combine_kind kind, double a, double b)
{
    switch (kind) {
    case OP_COMBINE_ADD:
        return a + b;
    case OP_COMBINE_MUL:
        return a * b;
    case OP_COMBINE_MAX:
        return isnan(a) || a > b ? a : b;
    default:
        return isnan(a) || a < b ? a : b;
    }
}

static int64_t combine_i64(op_combine_kind kind, bool wide, int64_t a, int64_t b)
{
    bool less = wide ? (uint64_t)a < (uint64_t)b : a < b;
    switch (kind) {
    case OP_COMBINE_ADD:
        return (int64_t)((uint64_t)a + (uint64_t)b);
    case OP_COMBINE_MUL:
        return (int64_t)((uint64_t)a * (uint64_t)b);
    case OP_COMBINE_MAX:
        return less ? b : a;
    default:
        return less ? a : b;
    }
}

void op_combine(op_combine_kind kind, tacit_dtype dtype, void *to, int64_t at, const void *from,
                int64_t from_at)
{
    if (kind == OP_COMBINE_SET)
        ir_copy_element(dtype, to, at, from, from_at);
    else if (ir_dtype_is_float(dtype))
        ir_store_f64(
            dtype, to, at,
            combine_f64(kind, ir_load_f64(dtype, to, at), ir_load_f64(dtype, from, from_at)));
    else
        ir_store_i64(dtype, to, at,
                     combine_i64(kind, dtype == TACIT_U64, ir_load_i64(dtype, to, at),
                                 ir_load_i64(dtype, from, from_at)));
}

tacit_status op_split_at(const ir_shape *s, int64_t axis, op_split_axis *out, tacit_error *err)
{
    TRY(ir_axis(axis, s->rank, &out->axis, err));
    out->outer = out->inner = 1;
    out->size = s->dims[out->axis];
    for (int32_t d = 0; d < s->rank; d++) {
        if (d < out->axis)
            out->outer *= s->dims[d];
        if (d > out->axis)
            out->inner *= s->dims[d];
    }
    return TACIT_OK;
}
