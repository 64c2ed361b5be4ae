/* SPDX-License-Identifier: Apache-2.0 */
#include "api/compare.h"

#include <math.h>
#include <string.h>

compare_tolerance compare_default(tacit_dtype dtype)
{
    double ulp;
    switch (dtype) {
    case TACIT_BF16:
        ulp = 0x1p-7;
        break;
    case TACIT_F8E4M3FN:
    case TACIT_F8E4M3FNUZ:
        ulp = 0x1p-3;
        break;
    case TACIT_F8E5M2:
    case TACIT_F8E5M2FNUZ:
        ulp = 0x1p-2;
        break;
    default:
        ulp = 1e-3;
        break;
    }
    return (compare_tolerance){.relative = ulp, .absolute = 1e-7};
}

static bool close_enough(double want, double have, compare_tolerance t)
{
    if (isnan(want) || isnan(have))
        return isnan(want) && isnan(have);
    if (isinf(want) || isinf(have))
        return want == have;
    return fabs(want - have) <= t.absolute + t.relative * fabs(want);
}

static tacit_status compare_strings(const ir_tensor *want, const ir_tensor *have, tacit_error *err)
{
    const ir_string *a = want->data, *b = have->data;
    for (int64_t i = 0, n = ir_tensor_count(want); i < n; i++)
        if (a[i].length != b[i].length ||
            (a[i].length && memcmp(a[i].data, b[i].data, a[i].length) != 0))
            return error_set(err, TACIT_ERR_VALUE, "element %lld is '%.*s', expected '%.*s'",
                             (long long)i, (int)b[i].length, b[i].data ? b[i].data : "",
                             (int)a[i].length, a[i].data ? a[i].data : "");
    return TACIT_OK;
}

static tacit_status compare_numbers(const ir_tensor *want, const ir_tensor *have, tacit_error *err)
{
    ir_dtype_class cls = ir_dtype_classify(want->dtype);
    compare_tolerance t = compare_default(want->dtype);
    int64_t n = ir_tensor_count(want), wrong = 0, first = -1;
    for (int64_t i = 0; i < n; i++) {
        double a[2] = {0}, b[2] = {0};
        bool same;
        if (cls == IR_CLASS_COMPLEX) {
            ir_load_complex(want->dtype, want->data, i, a);
            ir_load_complex(have->dtype, have->data, i, b);
            same = close_enough(a[0], b[0], t) && close_enough(a[1], b[1], t);
        } else if (cls == IR_CLASS_FLOAT) {
            same = close_enough(ir_load_f64(want->dtype, want->data, i),
                                ir_load_f64(have->dtype, have->data, i), t);
        } else {
            same =
                ir_load_i64(want->dtype, want->data, i) == ir_load_i64(have->dtype, have->data, i);
        }
        if (!same && wrong++ == 0)
            first = i;
    }
    if (!wrong)
        return TACIT_OK;
    return error_set(err, TACIT_ERR_VALUE,
                     "%lld of %lld elements differ; element %lld is %g, "
                     "expected %g",
                     (long long)wrong, (long long)n, (long long)first,
                     ir_load_f64(have->dtype, have->data, first),
                     ir_load_f64(want->dtype, want->data, first));
}

static tacit_status compare_tensors(const ir_tensor *want, const ir_tensor *have, tacit_error *err)
{
    if (want->dtype != have->dtype)
        return error_set(err, TACIT_ERR_TYPE, "element type is %s, expected %s",
                         tacit_dtype_text(have->dtype), tacit_dtype_text(want->dtype));
    if (!ir_shape_equal(&want->shape, &have->shape)) {
        char a[IR_SHAPE_TEXT], b[IR_SHAPE_TEXT];
        return error_set(err, TACIT_ERR_SHAPE, "shape is %s, expected %s",
                         ir_shape_text(&have->shape, a), ir_shape_text(&want->shape, b));
    }
    if (ir_tensor_count(want) && !have->data)
        return error_set(err, TACIT_ERR_VALUE, "there is no data");
    return want->dtype == TACIT_STRING ? compare_strings(want, have, err)
                                       : compare_numbers(want, have, err);
}

static bool is_optional(const ir_tensor *t)
{
    return t->kind == IR_OPTIONAL || t->kind == IR_OPTIONAL_SEQUENCE;
}

static tacit_status compare_items(const ir_tensor *want, const ir_tensor *have, tacit_error *err)
{
    if (want->count != have->count)
        return error_set(err, TACIT_ERR_VALUE, "%u items, expected %u", have->count, want->count);
    for (uint32_t i = 0; i < want->count; i++) {
        tacit_status status = compare_values(&want->items[i], &have->items[i], err);
        if (status != TACIT_OK)
            return error_context(err, status, "item %u", i);
    }
    return TACIT_OK;
}

tacit_status compare_values(const ir_tensor *want, const ir_tensor *have, tacit_error *err)
{
    bool absent = is_optional(want) && !want->present;
    if (absent || (is_optional(have) && !have->present))
        return absent && is_optional(have) && !have->present
                   ? TACIT_OK
                   : error_set(err, TACIT_ERR_VALUE, "one is absent, the other is not");
    bool list_a = want->kind == IR_SEQUENCE || want->kind == IR_OPTIONAL_SEQUENCE;
    bool list_b = have->kind == IR_SEQUENCE || have->kind == IR_OPTIONAL_SEQUENCE;
    if (list_a != list_b)
        return error_set(err, TACIT_ERR_TYPE, "one is a sequence, the other is not");
    return list_a ? compare_items(want, have, err) : compare_tensors(want, have, err);
}
