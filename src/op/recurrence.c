/* SPDX-License-Identifier: Apache-2.0
 * tacit SelectiveScan (Mamba) and GatedDeltaNet: linear recurrences with an explicit state. */
#include <math.h>
#include <string.h>

#include "op/values.h"

/* --- SelectiveScan(x [B,S,C], delta [B,S,C], A [C,N], B [B,S,N], C [B,S,N], state? [B,C,N])
 * ------- h ← exp(δA)·h + δ·B·x; y = Σ C·h. Outputs y and the last state. */

static tacit_status selective_infer(op_infer *c)
{
    const ir_shape *x = &c->in[0]->shape, *a = &c->in[2]->shape;
    TRY(op_need_float(c, 0));
    TRY(op_check_same_dtype(c));
    TRY(op_need_rank(c, 0, 3));
    TRY(op_need_rank(c, 2, 2));
    int64_t b = x->dims[0], s = x->dims[1], ch = x->dims[2], n = a->dims[1];
    TRY(op_need_shape(c, 1, 3, x->dims));
    TRY(op_need_shape(c, 2, 2, (int64_t[]){ch, n}));
    TRY(op_need_shape(c, 3, 3, (int64_t[]){b, s, n}));
    TRY(op_need_shape(c, 4, 3, (int64_t[]){b, s, n}));
    TRY(op_need_shape(c, 5, 3, (int64_t[]){b, ch, n}));
    op_set_out(c, 0, c->in[0]->dtype, x);
    op_set_out_dims(c, 1, c->in[0]->dtype, 3, (int64_t[]){b, ch, n});
    return TACIT_OK;
}

static tacit_status selective_eval(op_eval *c)
{
    const int64_t *d = op_in(c, 0)->shape.dims;
    int64_t steps = d[1], channels = d[2], n = op_in(c, 2)->shape.dims[1];
    double *v[6], *y, *state;
    for (uint32_t i = 0; i < 6; i++)
        TRY(op_input_f64(c, i, &v[i]));
    TRY(op_scratch_f64(c, d[0] * steps * channels, &y));
    TRY(op_scratch_f64(c, d[0] * channels * n, &state));
    if (v[5])
        state = v[5];
    for (int64_t t = 0; t < d[0] * steps; t++)
        for (int64_t ch = 0; ch < channels; ch++) {
            double x = v[0][t * channels + ch], delta = v[1][t * channels + ch];
            double *h = state + (t / steps * channels + ch) * n;
            for (int64_t i = 0; i < n; i++) {
                h[i] = exp(delta * v[2][ch * n + i]) * h[i] + delta * v[3][t * n + i] * x;
                y[t * channels + ch] += v[4][t * n + i] * h[i];
            }
        }
    op_output_f64(c, 0, y);
    op_output_f64(c, 1, state);
    return TACIT_OK;
}

/* --- GatedDeltaNet(q, k, v [B,S,H,N], g, beta [B,S,H], state? [B,H,N,N])
 * ---------------------------- S is indexed [key][value]. Outputs the reads and the last state. */

static tacit_status delta_infer(op_infer *c)
{
    const ir_shape *q = &c->in[0]->shape;
    TRY(op_need_float(c, 0));
    TRY(op_check_same_dtype(c));
    TRY(op_need_rank(c, 0, 4));
    const int64_t *d = q->dims;
    for (uint32_t i = 1; i < 3; i++)
        TRY(op_need_shape(c, i, 4, d));
    for (uint32_t i = 3; i < 5; i++)
        TRY(op_need_shape(c, i, 3, d));
    int64_t state[4] = {d[0], d[2], d[3], d[3]};
    TRY(op_need_shape(c, 5, 4, state));
    op_set_out(c, 0, c->in[0]->dtype, q);
    op_set_out_dims(c, 1, c->in[0]->dtype, 4, state);
    return TACIT_OK;
}

static void delta_step(int64_t n, double *s, const double *q, const double *k, const double *v,
                       double decay, double beta, double *y)
{
    for (int64_t i = 0; i < n * n; i++)
        s[i] *= decay;
    for (int64_t j = 0; j < n; j++) {
        double seen = 0, out = 0;
        for (int64_t i = 0; i < n; i++)
            seen += s[i * n + j] * k[i];
        for (int64_t i = 0; i < n; i++) {
            s[i * n + j] += k[i] * beta * (v[j] - seen);
            out += s[i * n + j] * q[i];
        }
        y[j] = out / sqrt((double)n);
    }
}

static tacit_status delta_eval(op_eval *c)
{
    const int64_t *d = op_in(c, 0)->shape.dims;
    int64_t steps = d[1], heads = d[2], n = d[3];
    double *v[6], *y, *state;
    for (uint32_t i = 0; i < 6; i++)
        TRY(op_input_f64(c, i, &v[i]));
    TRY(op_scratch_f64(c, d[0] * steps * heads * n, &y));
    TRY(op_scratch_f64(c, d[0] * heads * n * n, &state));
    if (v[5])
        state = v[5];
    for (int64_t at = 0; at < d[0] * steps * heads; at++) {
        int64_t b = at / heads / steps, h = at % heads;
        delta_step(n, state + (b * heads + h) * n * n, v[0] + at * n, v[1] + at * n, v[2] + at * n,
                   exp(v[3][at]), v[4][at], y + at * n);
    }
    op_output_f64(c, 0, y);
    op_output_f64(c, 1, state);
    return TACIT_OK;
}

const op_def op_rows_recurrence[] = {
    {.name = "SelectiveScan",
     .domain = "tacit",
     .min_in = 5,
     .max_in = 6,
     .min_out = 1,
     .max_out = 2,
     .infer = selective_infer,
     .eval = selective_eval},
    {.name = "GatedDeltaNet",
     .domain = "tacit",
     .min_in = 5,
     .max_in = 6,
     .min_out = 1,
     .max_out = 2,
     .infer = delta_infer,
     .eval = delta_eval},
    {0},
};
