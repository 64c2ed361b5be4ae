/* SPDX-License-Identifier: Apache-2.0 */
#include "op/elementwise.h"

#include "op/loop.h"
#include "op/strip.h"

#ifndef CMPLX /* the C library hides it from clang */
#define CMPLX(re, im) __builtin_complex((double)(re), (double)(im))
#endif

/* Walks the output in runs along its last axis; operands broadcast. */
typedef struct runs {
    op_loop outer;
    int64_t length;                  /* of the last axis */
    int64_t step[OP_LOOP_OPERANDS];  /* of each operand along it */
    int64_t done;                    /* elements of the present row already visited */
    int64_t base, n;                 /* the present run: first output element, elements */
    int64_t start[OP_LOOP_OPERANDS]; /* first element of each operand's run */
} runs;

static void runs_begin(runs *r, const ir_shape *shape, uint32_t n, const ir_tensor *const *in)
{
    ir_shape outer = *shape;
    r->length = shape->rank ? shape->dims[shape->rank - 1] : 1;
    outer.rank = shape->rank ? shape->rank - 1 : 0;
    op_loop_begin(&r->outer, &outer);
    if (r->length == 0)
        r->outer.count = 0;
    for (uint32_t k = 0; k < n; k++) {
        op_loop whole;
        op_loop_begin(&whole, shape);
        op_loop_broadcast(&whole, &in[k]->shape);
        r->step[k] = shape->rank ? whole.strides[0][shape->rank - 1] : 0;
        op_loop_strided(&r->outer, whole.strides[0], 0);
    }
    r->done = 0;
    r->n = 0;
    r->base = 0;
}

static bool runs_next(runs *r)
{
    r->base += r->n;
    r->done += r->n;
    if (r->n && r->done >= r->length) {
        op_loop_next(&r->outer);
        r->done = 0;
    }
    if (op_loop_done(&r->outer))
        return false;
    int64_t left = r->length - r->done;
    r->n = left < OP_STRIP ? left : OP_STRIP;
    for (uint32_t k = 0; k < r->outer.n; k++)
        r->start[k] = r->outer.at[k] + r->done * r->step[k];
    return true;
}

static double complex load_complex(const ir_tensor *t, int64_t at)
{
    double v[2];
    ir_load_complex(t->dtype, t->data, at, v);
    return CMPLX(v[0], v[1]);
}

static void store_complex(ir_tensor *t, int64_t at, double complex v)
{
    ir_store_complex(t->dtype, t->data, at, (double[2]){creal(v), cimag(v)});
}

static bool is_complex(const ir_tensor *t)
{
    return ir_dtype_classify(t->dtype) == IR_CLASS_COMPLEX;
}

static tacit_status no_function(op_eval *c, tacit_dtype dtype)
{
    return error_set(c->err, TACIT_ERR_TYPE, "%s is not supported", tacit_dtype_text(dtype));
}

tacit_status op_eval_unary(op_eval *c, const op_unary_rule *rule, const double *p)
{
    const ir_tensor *x = op_in(c, 0);
    ir_tensor *y = op_out(c, 0);
    int64_t n = ir_tensor_count(x);
    bool real = ir_dtype_is_float(x->dtype);
    if (is_complex(x)) {
        if (!rule->c128)
            return no_function(c, x->dtype);
        for (int64_t i = 0; i < n; i++)
            store_complex(y, i, rule->c128(load_complex(x, i)));
        return TACIT_OK;
    }
    if (real ? !rule->f64 : !rule->i64)
        return no_function(c, x->dtype);
    for (int64_t at = 0; at < n; at += OP_STRIP) {
        int64_t m = n - at < OP_STRIP ? n - at : OP_STRIP;
        if (real) {
            double v[OP_STRIP];
            op_strip_load_f64(x->dtype, x->data, at, 1, m, v);
            for (int64_t i = 0; i < m; i++)
                v[i] = rule->f64(v[i], p);
            op_strip_store_f64(y->dtype, y->data, at, m, v);
        } else {
            int64_t v[OP_STRIP];
            op_strip_load_i64(x->dtype, x->data, at, 1, m, v);
            for (int64_t i = 0; i < m; i++)
                v[i] = rule->i64(v[i], p);
            op_strip_store_i64(y->dtype, y->data, at, m, v);
        }
    }
    return TACIT_OK;
}

static void binary_f64(const runs *r, const op_binary_rule *rule, const ir_tensor *const *in,
                       ir_tensor *y)
{
    double a[OP_STRIP], b[OP_STRIP];
    op_strip_load_f64(in[0]->dtype, in[0]->data, r->start[0], r->step[0], r->n, a);
    op_strip_load_f64(in[1]->dtype, in[1]->data, r->start[1], r->step[1], r->n, b);
    for (int64_t i = 0; i < r->n; i++)
        a[i] = rule->f64(a[i], b[i]);
    op_strip_store_f64(y->dtype, y->data, r->base, r->n, a);
}

static int64_t apply_i64(const op_binary_rule *rule, bool wide, int64_t a, int64_t b)
{
    return wide ? rule->u64((uint64_t)a, (uint64_t)b) : rule->i64(a, b);
}

static void binary_i64(const runs *r, const op_binary_rule *rule, const ir_tensor *const *in,
                       ir_tensor *y)
{
    int64_t a[OP_STRIP], b[OP_STRIP];
    bool wide = in[0]->dtype == TACIT_U64 && rule->u64;
    op_strip_load_i64(in[0]->dtype, in[0]->data, r->start[0], r->step[0], r->n, a);
    op_strip_load_i64(in[1]->dtype, in[1]->data, r->start[1], r->step[1], r->n, b);
    for (int64_t i = 0; i < r->n; i++)
        a[i] = apply_i64(rule, wide, a[i], b[i]);
    op_strip_store_i64(y->dtype, y->data, r->base, r->n, a);
}

static void binary_c128(const runs *r, const op_binary_rule *rule, const ir_tensor *const *in,
                        ir_tensor *y)
{
    bool test = !is_complex(y);
    for (int64_t i = 0; i < r->n; i++) {
        double complex v = rule->c128(load_complex(in[0], r->start[0] + i * r->step[0]),
                                      load_complex(in[1], r->start[1] + i * r->step[1]));
        if (test)
            ir_store_f64(y->dtype, y->data, r->base + i, creal(v));
        else
            store_complex(y, r->base + i, v);
    }
}

tacit_status op_eval_binary(op_eval *c, const op_binary_rule *rule)
{
    const ir_tensor *a = op_in(c, 0), *b = op_in(c, 1);
    ir_tensor *y = op_out(c, 0);
    bool complex_in = is_complex(a) || is_complex(b);
    bool real = ir_dtype_is_float(a->dtype) || ir_dtype_is_float(b->dtype);
    if (complex_in ? !rule->c128 : real ? !rule->f64 : !rule->i64)
        return no_function(c, a->dtype);
    runs r;
    runs_begin(&r, &y->shape, 2, c->in);
    while (runs_next(&r)) {
        if (complex_in)
            binary_c128(&r, rule, c->in, y);
        else if (real)
            binary_f64(&r, rule, c->in, y);
        else
            binary_i64(&r, rule, c->in, y);
    }
    return TACIT_OK;
}

/* One run of one more operand folded into the accumulator. */
static void fold_f64(const op_binary_rule *rule, const ir_tensor *t, int64_t at, int64_t step,
                     int64_t n, double *acc)
{
    double v[OP_STRIP];
    op_strip_load_f64(t->dtype, t->data, at, step, n, v);
    for (int64_t i = 0; i < n; i++)
        acc[i] = rule->f64(acc[i], v[i]);
}

static void fold_i64(const op_binary_rule *rule, const ir_tensor *t, int64_t at, int64_t step,
                     int64_t n, int64_t *acc)
{
    int64_t v[OP_STRIP];
    bool wide = t->dtype == TACIT_U64 && rule->u64;
    op_strip_load_i64(t->dtype, t->data, at, step, n, v);
    for (int64_t i = 0; i < n; i++)
        acc[i] = apply_i64(rule, wide, acc[i], v[i]);
}

/* Where operand `t` of `shape` starts for output element `base` (a row-aligned run), and its step.
 */
static int64_t run_start(const runs *r, const ir_shape *shape, const ir_tensor *t, int64_t *step)
{
    op_loop l;
    op_loop_begin(&l, shape);
    op_loop_broadcast(&l, &t->shape);
    int64_t at = 0;
    for (int32_t d = 0; d + 1 < shape->rank; d++)
        at += r->outer.index[d] * l.strides[0][d];
    *step = shape->rank ? l.strides[0][shape->rank - 1] : 0;
    return at + r->done * *step;
}

tacit_status op_eval_fold(op_eval *c, const op_binary_rule *rule, double divisor)
{
    ir_tensor *y = op_out(c, 0);
    bool real = ir_dtype_is_float(y->dtype);
    if (is_complex(y) || (real ? !rule->f64 : !rule->i64))
        return no_function(c, y->dtype);
    runs r;
    runs_begin(&r, &y->shape, 0, NULL);
    while (runs_next(&r)) {
        double f[OP_STRIP];
        int64_t n[OP_STRIP], step;
        for (uint32_t k = 0; k < c->n_in; k++) {
            const ir_tensor *t = op_in(c, k);
            int64_t at = run_start(&r, &y->shape, t, &step);
            if (real && k == 0)
                op_strip_load_f64(t->dtype, t->data, at, step, r.n, f);
            else if (real)
                fold_f64(rule, t, at, step, r.n, f);
            else if (k == 0)
                op_strip_load_i64(t->dtype, t->data, at, step, r.n, n);
            else
                fold_i64(rule, t, at, step, r.n, n);
        }
        for (int64_t i = 0; divisor != 1 && i < r.n; i++) {
            f[i] = real ? f[i] / divisor : 0;
            n[i] = real ? 0 : n[i] / (int64_t)divisor;
        }
        if (real)
            op_strip_store_f64(y->dtype, y->data, r.base, r.n, f);
        else
            op_strip_store_i64(y->dtype, y->data, r.base, r.n, n);
    }
    return TACIT_OK;
}

static uint32_t class_bit(tacit_dtype dtype)
{
    switch (ir_dtype_classify(dtype)) {
    case IR_CLASS_FLOAT:
        return OP_FLOAT;
    case IR_CLASS_SIGNED:
    case IR_CLASS_UNSIGNED:
        return OP_INT;
    case IR_CLASS_BOOLEAN:
        return OP_BOOL;
    case IR_CLASS_COMPLEX:
        return OP_COMPLEX;
    case IR_CLASS_STRING:
        return OP_STRING;
    default:
        return 0;
    }
}

tacit_status op_check_class(const op_infer *c, uint32_t i, uint32_t classes)
{
    const ir_type *t = op_in_type(c, i);
    if (!t || t->kind != IR_TENSOR)
        return error_set(c->err, TACIT_ERR_TYPE, "input %u must be a tensor", i);
    if (!(class_bit(t->dtype) & classes) && class_bit(t->dtype) == OP_COMPLEX)
        return error_set(c->err, TACIT_ERR_TYPE,
                         "input %u is %s: this op is not defined for complex numbers", i,
                         tacit_dtype_text(t->dtype));
    if (!(class_bit(t->dtype) & classes))
        return error_set(c->err, TACIT_ERR_TYPE, "input %u has type %s, which is not supported", i,
                         tacit_dtype_text(t->dtype));
    return TACIT_OK;
}

tacit_status op_infer_same_float(op_infer *c)
{
    TRY(op_check_class(c, 0, OP_FLOAT | OP_COMPLEX));
    return op_infer_same(c);
}

tacit_status op_infer_same_real(op_infer *c)
{
    TRY(op_check_class(c, 0, OP_REAL));
    return op_infer_same(c);
}

tacit_status op_infer_same_number(op_infer *c)
{
    TRY(op_check_class(c, 0, OP_NUMBER));
    return op_infer_same(c);
}

static tacit_status infer_broadcast_class(op_infer *c, uint32_t classes)
{
    for (uint32_t i = 0; i < c->n_in; i++)
        TRY(op_check_class(c, i, classes));
    return op_infer_broadcast(c);
}

tacit_status op_infer_broadcast_number(op_infer *c)
{
    return infer_broadcast_class(c, OP_NUMBER);
}

tacit_status op_infer_broadcast_real(op_infer *c)
{
    return infer_broadcast_class(c, OP_REAL);
}

tacit_status op_infer_broadcast_int(op_infer *c)
{
    return infer_broadcast_class(c, OP_INT);
}

tacit_status op_infer_broadcast_bool(op_infer *c)
{
    return infer_broadcast_class(c, OP_BOOL);
}
