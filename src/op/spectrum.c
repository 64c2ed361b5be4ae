/* SPDX-License-Identifier: Apache-2.0
 * tacit Fft, FftButterflyStage and LogMel. */
#include <math.h>
#include <string.h>

#include "op/fft.h"
#include "op/values.h"
#include "op/vjp.h"

/* --- Fft: last axis. Real dtypes hold a row as N reals then N imaginaries ([…, 2N]); complex
 * dtypes as N elements. norm: "none", "backward" (inverse ÷ N), "forward" (forward ÷ N), "ortho" (÷
 * √N). */

static bool is_complex(tacit_dtype d)
{
    return d == TACIT_C64 || d == TACIT_C128;
}

static tacit_status fft_scale(const ir_node *node, int64_t n, double *scale, tacit_error *err)
{
    const char *norm = ir_attr_string(node, "norm", "backward");
    bool inverse = ir_attr_int(node, "inverse", 0) != 0;
    double count = n > 0 ? (double)n : 1;
    *scale = 1;
    if (strcmp(norm, "ortho") == 0)
        *scale = 1 / sqrt(count);
    else if (strcmp(norm, "backward") == 0)
        *scale = inverse ? 1 / count : 1;
    else if (strcmp(norm, "forward") == 0)
        *scale = inverse ? 1 : 1 / count;
    else if (strcmp(norm, "none") != 0)
        return error_set(err, TACIT_ERR_VALUE, "unknown norm '%s'", norm);
    return TACIT_OK;
}

static tacit_status fft_infer(op_infer *c)
{
    const ir_shape *x = &c->in[0]->shape;
    double scale;
    if (!is_complex(c->in[0]->dtype))
        TRY(op_need_float(c, 0));
    if (x->rank < 1 || (!is_complex(c->in[0]->dtype) && x->dims[x->rank - 1] % 2))
        return error_set(c->err, TACIT_ERR_SHAPE, "the last axis must hold N reals, N imaginaries");
    TRY(fft_scale(c->node, 1, &scale, c->err));
    return op_infer_same(c);
}

static tacit_status fft_eval(op_eval *c)
{
    const ir_tensor *x = op_in(c, 0);
    ir_tensor *y = op_out(c, 0);
    bool pairs = is_complex(x->dtype), inverse = ir_attr_int(c->node, "inverse", 0) != 0;
    int64_t last = x->shape.dims[x->shape.rank - 1], n = pairs ? last : last / 2;
    int64_t rows = last ? ir_tensor_count(x) / last : 0;
    double *line, scale;
    op_fft plan;
    TRY(fft_scale(c->node, n, &scale, c->err));
    TRY(op_fft_plan(c, n, x->dtype, &plan));
    TRY(op_scratch_f64(c, 2 * n, &line));
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < n; i++)
            if (pairs) {
                ir_load_complex(x->dtype, x->data, r * n + i, line + 2 * i);
            } else {
                line[2 * i] = ir_load_f64(x->dtype, x->data, r * last + i);
                line[2 * i + 1] = ir_load_f64(x->dtype, x->data, r * last + n + i);
            }
        op_fft_run(&plan, line, inverse);
        for (int64_t i = 0; i < 2 * n; i++)
            line[i] *= scale;
        for (int64_t i = 0; i < n; i++)
            if (pairs) {
                ir_store_complex(y->dtype, y->data, r * n + i, line + 2 * i);
            } else {
                ir_store_f64(y->dtype, y->data, r * last + i, line[2 * i]);
                ir_store_f64(y->dtype, y->data, r * last + n + i, line[2 * i + 1]);
            }
    }
    return TACIT_OK;
}

/* --- FftButterflyStage(state [B,n,2], gate, reverse, re, im [n/2]): one radix-2 stage, pruned
 * ------ */

static tacit_status butterfly_infer(op_infer *c)
{
    const ir_shape *x = &c->in[0]->shape;
    int64_t stage = ir_attr_int(c->node, "stage", 0);
    TRY(op_need_float(c, 0));
    TRY(op_check_same_dtype(c));
    TRY(op_need_rank(c, 0, 3));
    int64_t n = x->dims[1], half = n / 2;
    if (x->dims[2] != 2 || n < 2 || (n & (n - 1)) || stage < 0 || stage > 40 ||
        INT64_C(2) << stage > n)
        return error_set(c->err, TACIT_ERR_SHAPE, "stage %lld of a state of %lld points",
                         (long long)stage, (long long)n);
    for (uint32_t i = 1; i < 5; i++)
        TRY(op_need_shape(c, i, 1, &half));
    return op_infer_same(c);
}

static tacit_status butterfly_eval(op_eval *c)
{
    const int64_t *d = op_in(c, 0)->shape.dims;
    int64_t n = d[1], stride = INT64_C(1) << ir_attr_int(c->node, "stage", 0);
    double *x, *gate, *reverse, *re, *im;
    TRY(op_input_f64(c, 0, &x));
    TRY(op_input_f64(c, 1, &gate));
    TRY(op_input_f64(c, 2, &reverse));
    TRY(op_input_f64(c, 3, &re));
    TRY(op_input_f64(c, 4, &im));
    for (int64_t at = 0; at < d[0] * (n / 2); at++) {
        int64_t k = at % (n / 2), first = k / stride * 2 * stride + k % stride;
        double *a = x + (at / (n / 2) * n + first) * 2, *b = a + stride * 2;
        if (gate[k] == 0)
            continue;
        double t[2] = {b[0] * re[k] - b[1] * im[k], b[0] * im[k] + b[1] * re[k]};
        double top[2] = {a[0] + t[0], a[1] + t[1]}, bottom[2] = {a[0] - t[0], a[1] - t[1]};
        bool swap = reverse[k] >= 0.5;
        memcpy(a, swap ? bottom : top, sizeof top);
        memcpy(b, swap ? top : bottom, sizeof top);
    }
    op_output_f64(c, 0, x);
    return TACIT_OK;
}

/* --- LogMel(spectrum […, 2·n_fft], filters [n_mels, n_bins]) → […, n_mels]
 * ------------------------- log of Σ filter·(re² + im²), floored; attributes floor (1e-10) and base
 * (0: natural, else its log). */

static tacit_status log_mel_infer(op_infer *c)
{
    const ir_shape *x = &c->in[0]->shape, *f = &c->in[1]->shape;
    TRY(op_need_float(c, 0));
    TRY(op_check_same_dtype(c));
    TRY(op_need_rank(c, 1, 2));
    if (x->rank < 1 || x->dims[x->rank - 1] % 2 || f->dims[1] > x->dims[x->rank - 1] / 2)
        return error_set(c->err, TACIT_ERR_SHAPE, "%lld bins do not fit the spectrum",
                         (long long)f->dims[1]);
    double base = ir_attr_float(c->node, "base", 10),
           floor_at = ir_attr_float(c->node, "floor", 1e-10);
    if (base < 0 || base == 1 || !(floor_at > 0))
        return error_set(c->err, TACIT_ERR_VALUE, "base %g or floor %g", base, floor_at);
    ir_shape y = *x;
    y.dims[y.rank - 1] = f->dims[0];
    op_set_out(c, 0, c->in[0]->dtype, &y);
    return TACIT_OK;
}

static tacit_status log_mel_eval(op_eval *c)
{
    const ir_shape *s = &op_in(c, 0)->shape, *f = &op_in(c, 1)->shape;
    int64_t last = s->dims[s->rank - 1], n = last / 2, rows = last ? ir_shape_size(s) / last : 0;
    int64_t mels = f->dims[0], bins = f->dims[1];
    double *x, *filter, *y, base = ir_attr_float(c->node, "base", 10);
    double least = ir_attr_float(c->node, "floor", 1e-10), unit = base == 0 ? 1 : log(base);
    TRY(op_input_f64(c, 0, &x));
    TRY(op_input_f64(c, 1, &filter));
    TRY(op_scratch_f64(c, rows * mels, &y));
    for (int64_t at = 0; at < rows * mels; at++) {
        const double *re = x + at / mels * last, *im = re + n;
        double sum = 0;
        for (int64_t k = 0; k < bins; k++)
            sum += filter[at % mels * bins + k] * (re[k] * re[k] + im[k] * im[k]);
        y[at] = log(sum > least ? sum : least) / unit;
    }
    op_output_f64(c, 0, y);
    return TACIT_OK;
}

const op_def op_rows_spectrum[] = {
    {.name = "Fft",
     .domain = "tacit",
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .infer = fft_infer,
     .eval = fft_eval,
     .vjp = op_vjp_fft,
     .inplace = 1},
    {.name = "FftButterflyStage",
     .domain = "tacit",
     .min_in = 5,
     .max_in = 5,
     .min_out = 1,
     .max_out = 1,
     .infer = butterfly_infer,
     .eval = butterfly_eval,
     .spell = op_spell_butterfly,
     .inplace = 1},
    {.name = "LogMel",
     .domain = "tacit",
     .min_in = 2,
     .max_in = 2,
     .min_out = 1,
     .max_out = 1,
     .infer = log_mel_infer,
     .eval = log_mel_eval,
     .vjp = op_vjp_log_mel},
    {0},
};
