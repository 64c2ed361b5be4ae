/* SPDX-License-Identifier: Apache-2.0
 * Conversions between element types: Cast, CastLike, BitCast. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "op/elementwise.h"
#include "op/range.h"
#include "op/strip.h"
#include "op/view.h"
#include "op/vjp.h"

/* How to fill an E8M0 or f8 element when the value does not fit. */
typedef enum round_mode { ROUND_UP, ROUND_DOWN, ROUND_NEAREST } round_mode;

static tacit_status read_round_mode(const ir_node *node, round_mode *out, tacit_error *err)
{
    const char *text = ir_attr_string(node, "round_mode", "up");
    if (strcmp(text, "up") == 0)
        *out = ROUND_UP;
    else if (strcmp(text, "down") == 0)
        *out = ROUND_DOWN;
    else if (strcmp(text, "nearest") == 0)
        *out = ROUND_NEAREST;
    else
        return error_set(err, TACIT_ERR_VALUE, "round_mode '%s' is not up, down or nearest", text);
    return TACIT_OK;
}

/* E8M0 holds 2^-127 … 2^127 and NaN; the exponent is rounded as asked. */
static uint8_t to_e8m0(double v, bool saturate, round_mode mode)
{
    enum { LEAST = 0x00, MOST = 0xfe, NAN_BITS = 0xff };
    if (isnan(v))
        return NAN_BITS;
    v = fabs(v);
    if (v == 0)
        return saturate ? LEAST : NAN_BITS;
    if (isinf(v))
        return saturate ? MOST : NAN_BITS;
    int exponent;
    double m = frexp(v, &exponent); /* v = m·2^exponent, m in [0.5, 1) */
    int e = exponent - 1 + 127;
    bool up = mode == ROUND_UP ? m > 0.5 : mode == ROUND_NEAREST && m >= 0.75;
    e += up;
    if (e > MOST)
        return saturate ? MOST : NAN_BITS;
    if (e < LEAST || v < 0x1p-127)
        return saturate ? LEAST : NAN_BITS;
    return (uint8_t)e;
}

static tacit_status string_to_f64(const ir_string *s, double *out, op_eval *c)
{
    char text[128], *end;
    if (s->length == 0 || s->length >= sizeof text)
        return error_set(c->err, TACIT_ERR_VALUE, "a string of %llu bytes is not a number",
                         (unsigned long long)s->length);
    memcpy(text, s->data, s->length);
    text[s->length] = 0;
    *out = strtod(text, &end);
    if (*end)
        return error_set(c->err, TACIT_ERR_VALUE, "'%s' is not a number", text);
    return TACIT_OK;
}

static tacit_status string_to_i64(const ir_string *s, int64_t *out, op_eval *c)
{
    char text[128], *end;
    if (s->length && s->length < sizeof text) {
        memcpy(text, s->data, s->length);
        text[s->length] = 0;
        *out = text[0] == '-' ? strtoll(text, &end, 10) : (int64_t)strtoull(text, &end, 10);
        if (!*end)
            return TACIT_OK;
    }
    double v;
    TRY(string_to_f64(s, &v, c));
    *out = v >= -0x1p63 && v < 0x1p63 ? (int64_t)v : 0;
    return TACIT_OK;
}

/* The shortest decimal that reads back as the same value of its type; never an exponent's letter
 * where plain digits are shorter to read. */
static int format_float(tacit_dtype dtype, double v, char *text, size_t size)
{
    if (isnan(v))
        return snprintf(text, size, "NaN");
    if (isinf(v))
        return snprintf(text, size, v < 0 ? "-INF" : "INF");
    int most = dtype == TACIT_F64 ? 17 : 9;
    for (int digits = 1; digits <= most; digits++) {
        int n = snprintf(text, size, "%.*g", digits, v);
        double back = strtod(text, NULL);
        if (dtype == TACIT_F64 ? back == v : (float)back == (float)v)
            return n;
    }
    return (int)strlen(text);
}

static tacit_status to_string(op_eval *c, const ir_tensor *x, ir_tensor *y)
{
    ir_string *out = y->data;
    for (int64_t i = 0, n = ir_tensor_count(x); i < n; i++) {
        char text[64];
        if (ir_dtype_is_float(x->dtype))
            format_float(x->dtype, ir_load_f64(x->dtype, x->data, i), text, sizeof text);
        else if (x->dtype == TACIT_U64)
            snprintf(text, sizeof text, "%llu", (unsigned long long)((uint64_t *)x->data)[i]);
        else
            snprintf(text, sizeof text, "%lld", (long long)ir_load_i64(x->dtype, x->data, i));
        out[i].data = arena_strdup(c->memory, text);
        out[i].length = strlen(text);
        if (!out[i].data)
            return error_memory(c->err, "strings");
    }
    return TACIT_OK;
}

static tacit_status from_string(op_eval *c, const ir_tensor *x, ir_tensor *y)
{
    const ir_string *in = x->data;
    for (int64_t i = 0, n = ir_tensor_count(x); i < n; i++) {
        double v;
        int64_t k;
        if (ir_dtype_is_int(y->dtype)) {
            TRY(string_to_i64(&in[i], &k, c));
            ir_store_i64(y->dtype, y->data, i, k);
        } else {
            TRY(string_to_f64(&in[i], &v, c));
            ir_store_f64(y->dtype, y->data, i, v);
        }
    }
    return TACIT_OK;
}

static void cast_small_float(const ir_tensor *x, ir_tensor *y, bool saturate, round_mode mode)
{
    for (int64_t i = 0, n = ir_tensor_count(x); i < n; i++) {
        double v = ir_load_f64(x->dtype, x->data, i);
        if (y->dtype == TACIT_F8E8M0)
            ((uint8_t *)y->data)[i] = to_e8m0(v, saturate, mode);
        else
            ir_store_f64_saturate(y->dtype, y->data, i, v, saturate);
    }
}

static void cast_runs(const ir_tensor *x, ir_tensor *y)
{
    /* Integers go to integers through 64 bits, everything else through double (which holds all
     * but 64-bit integers exactly; those go to f32 directly, so that they round once). */
    bool whole = !ir_dtype_is_float(x->dtype) && !ir_dtype_is_float(y->dtype);
    bool wide = y->dtype == TACIT_F32 && (x->dtype == TACIT_I64 || x->dtype == TACIT_U64);
    for (int64_t at = 0, n = ir_tensor_count(x); at < n; at += OP_STRIP) {
        int64_t m = n - at < OP_STRIP ? n - at : OP_STRIP;
        if (whole) {
            int64_t v[OP_STRIP];
            op_strip_load_i64(x->dtype, x->data, at, 1, m, v);
            op_strip_store_i64(y->dtype, y->data, at, m, v);
        } else if (wide) {
            float *to = (float *)y->data + at;
            for (int64_t i = 0; i < m; i++)
                to[i] = x->dtype == TACIT_I64 ? (float)((const int64_t *)x->data)[at + i]
                                              : (float)((const uint64_t *)x->data)[at + i];
        } else {
            double v[OP_STRIP];
            op_strip_load_f64(x->dtype, x->data, at, 1, m, v);
            op_strip_store_f64(y->dtype, y->data, at, m, v);
        }
    }
}

static bool is_float8(tacit_dtype d)
{
    return d == TACIT_F8E4M3FN || d == TACIT_F8E4M3FNUZ || d == TACIT_F8E5M2 ||
           d == TACIT_F8E5M2FNUZ || d == TACIT_F8E8M0;
}

static tacit_status cast_eval(op_eval *c)
{
    const ir_tensor *x = op_in(c, 0);
    ir_tensor *y = op_out(c, 0);
    round_mode mode = ROUND_UP;
    TRY(read_round_mode(c->node, &mode, c->err));
    if (x->dtype == y->dtype)
        return op_eval_copy(c, y, x);
    if (y->dtype == TACIT_STRING)
        return to_string(c, x, y);
    if (x->dtype == TACIT_STRING)
        return from_string(c, x, y);
    if (ir_dtype_classify(x->dtype) == IR_CLASS_COMPLEX ||
        ir_dtype_classify(y->dtype) == IR_CLASS_COMPLEX) {
        for (int64_t i = 0, n = ir_tensor_count(x); i < n; i++) {
            double v[2];
            ir_load_complex(x->dtype, x->data, i, v);
            ir_store_complex(y->dtype, y->data, i, v);
        }
    } else if (is_float8(y->dtype)) {
        cast_small_float(x, y, ir_attr_int(c->node, "saturate", 1) != 0, mode);
    } else {
        cast_runs(x, y);
    }
    return TACIT_OK;
}

static tacit_status cast_to(op_infer *c, tacit_dtype to)
{
    TRY(op_check_class(c, 0, OP_ANY));
    if (to == TACIT_DTYPE_NONE)
        return error_set(c->err, TACIT_ERR_TYPE, "'to' names no element type");
    c->out[0] = *c->in[0];
    c->out[0].dtype = to;
    return TACIT_OK;
}

static tacit_status cast_infer(op_infer *c)
{
    return cast_to(c, ir_dtype_from_onnx(ir_attr_int(c->node, "to", 0)));
}

static tacit_status cast_like_infer(op_infer *c)
{
    TRY(op_check_class(c, 1, OP_ANY));
    return cast_to(c, c->in[1]->dtype);
}

static tacit_status bit_cast_infer(op_infer *c)
{
    TRY(cast_infer(c));
    tacit_dtype from = c->in[0]->dtype, to = c->out[0].dtype;
    if (from == TACIT_STRING || to == TACIT_STRING ||
        tacit_dtype_bits(from) != tacit_dtype_bits(to))
        return error_set(c->err, TACIT_ERR_TYPE, "%s and %s do not have the same width",
                         tacit_dtype_text(from), tacit_dtype_text(to));
    return TACIT_OK;
}

static tacit_status bit_cast_eval(op_eval *c)
{
    const ir_tensor *x = op_in(c, 0);
    ir_tensor *y = op_out(c, 0);
    if (x->bytes && x->data != y->data)
        memcpy(y->data, x->data, x->bytes);
    return TACIT_OK;
}

const op_def op_rows_cast[] = {
    {.name = "Cast",
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .flags = OP_ELEMENTWISE,
     .infer = cast_infer,
     .eval = cast_eval,
     .lower = op_lower_cast,
     .accepts = op_accepts_map,
     .inplace = 1,
     .vjp = op_vjp_cast,
     .range = op_bounds_cast},
    {.name = "CastLike",
     .min_in = 2,
     .max_in = 2,
     .min_out = 1,
     .max_out = 1,
     .flags = OP_ELEMENTWISE,
     .infer = cast_like_infer,
     .eval = cast_eval,
     .lower = op_lower_cast,
     .accepts = op_accepts_map,
     .vjp = op_vjp_cast_like},
    {.name = "BitCast",
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .flags = OP_ELEMENTWISE | OP_NOT_DIFFERENTIABLE,
     .infer = bit_cast_infer,
     .eval = bit_cast_eval,
     .alias = op_alias_reshape,
     .inplace = 1},
    {0},
};
