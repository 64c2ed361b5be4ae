/* SPDX-License-Identifier: Apache-2.0 */
#include "op/fft.h"

#include <math.h>
#include <string.h>

#include "op/values.h"

enum { FFT_LARGEST = 61 }; /* a prime above this makes the length a convolution */

#define REAL float
#define FFT(name) f32_##name
#include "op/fft_passes.h"
#undef REAL
#undef FFT
#define REAL double
#define FFT(name) f64_##name
#include "op/fft_passes.h"
#undef REAL
#undef FFT

/* A single radix 2 goes first: the passes after it have short inner loops anyway. */
static bool factorise(int64_t n, uint32_t *factors, uint32_t *count)
{
    uint32_t f = 0;
    for (; n % 4 == 0; n /= 4)
        factors[f++] = 4;
    if (n % 2 == 0) {
        factors[f] = f ? factors[0] : 2;
        factors[0] = 2;
        f++;
        n /= 2;
    }
    for (uint32_t p = 3; p <= FFT_LARGEST; p += 2)
        for (; n % p == 0; n /= p)
            factors[f++] = p;
    *count = f;
    return n == 1;
}

/* e^(2πi·t/n), the angle taken within an eighth of a turn so that it is accurate and symmetric. */
static void root(int64_t t, int64_t n, double *out)
{
    uint64_t eighths = (uint64_t)t * 8, octant = eighths / (uint64_t)n;
    uint64_t rest = eighths - octant * (uint64_t)n;
    if (octant & 1)
        rest = (uint64_t)n - rest;
    double angle = M_PI_4 * (double)rest / (double)n, c = cos(angle), s = sin(angle);
    bool swap = ((octant + 1) & 2) != 0;
    out[0] = swap ? s : c;
    out[1] = swap ? c : s;
    if (octant >= 2 && octant < 6)
        out[0] = -out[0];
    if (octant >= 4)
        out[1] = -out[1];
}

static void store(const op_fft *plan, void *to, int64_t i, double re, double im)
{
    if (plan->single)
        ((f32_pair *)to)[i] = (f32_pair){(float)re, (float)im};
    else
        ((f64_pair *)to)[i] = (f64_pair){re, im};
}

static tacit_status pairs(op_eval *c, const op_fft *plan, int64_t n, void **out)
{
    size_t each = plan->single ? sizeof(f32_pair) : sizeof(f64_pair);
    *out = op_eval_scratch(c, (size_t)(n ? n : 1) * each);
    return *out ? TACIT_OK : error_memory(c->err, "a Fourier transform");
}

static void run(const op_fft *plan, void *x, bool inverse)
{
    if (plan->single)
        f32_transform(x, plan->work, plan->n, plan->n_factors, plan->factors, plan->roots, inverse);
    else
        f64_transform(x, plan->work, plan->n, plan->n_factors, plan->factors, plan->roots, inverse);
}

static tacit_status plan_chirp(op_eval *c, op_fft *plan)
{
    int64_t n = plan->n, m = 1;
    while (m < 2 * n - 1)
        m *= 2;
    plan->smooth = op_eval_scratch(c, sizeof *plan->smooth);
    if (!plan->smooth)
        return error_memory(c->err, "a Fourier transform");
    TRY(op_fft_plan(c, m, plan->single ? TACIT_F32 : TACIT_F64, plan->smooth));
    TRY(pairs(c, plan, n, &plan->chirp));
    TRY(pairs(c, plan, m, &plan->filter));
    op_fft exact; /* the filter's spectrum is made in f64 and rounded once */
    double *spectrum;
    TRY(op_fft_plan(c, m, TACIT_F64, &exact));
    TRY(op_scratch_f64(c, 2 * m, &spectrum));
    for (int64_t j = 0; j < n; j++) { /* j² mod 2n keeps the angle small and exact */
        double w[2];
        root((int64_t)((unsigned __int128)j * (unsigned __int128)j % (2 * (uint64_t)n)), 2 * n, w);
        store(plan, plan->chirp, j, w[0], w[1]);
        spectrum[2 * j] = w[0] / (double)m;
        spectrum[2 * j + 1] = -w[1] / (double)m;
        if (j)
            memcpy(spectrum + 2 * (m - j), spectrum + 2 * j, 2 * sizeof *spectrum);
    }
    run(&exact, spectrum, false);
    for (int64_t j = 0; j < m; j++)
        store(plan, plan->filter, j, spectrum[2 * j], spectrum[2 * j + 1]);
    return TACIT_OK;
}

tacit_status op_fft_plan(op_eval *c, int64_t n, tacit_dtype dtype, op_fft *plan)
{
    *plan = (op_fft){.n = n, .single = dtype != TACIT_F64 && dtype != TACIT_C128};
    if (n < 0 || n > INT64_C(1) << 40)
        return error_set(c->err, TACIT_ERR_LIMIT, "a transform of %lld points", (long long)n);
    if (n < 2)
        return TACIT_OK;
    TRY(pairs(c, plan, n, &plan->line));
    if (!factorise(n, plan->factors, &plan->n_factors))
        return plan_chirp(c, plan);
    TRY(pairs(c, plan, n, &plan->work));
    TRY(pairs(c, plan, n, &plan->roots));
    for (int64_t t = 0; t < n; t++) {
        double w[2];
        root(t, n, w);
        store(plan, plan->roots, t, w[0], w[1]);
    }
    return TACIT_OK;
}

void op_fft_run(const op_fft *plan, double *x, bool inverse)
{
    const op_fft *s = plan->smooth;
    int64_t n = plan->n;
    if (n < 2)
        return;
    for (int64_t i = 0; i < n; i++)
        store(plan, plan->line, i, x[2 * i], x[2 * i + 1]);
    if (!s)
        run(plan, plan->line, inverse);
    else if (plan->single)
        f32_convolve(plan->line, n, s->line, s->work, s->n, s->n_factors, s->factors, s->roots,
                     plan->chirp, plan->filter, inverse);
    else
        f64_convolve(plan->line, n, s->line, s->work, s->n, s->n_factors, s->factors, s->roots,
                     plan->chirp, plan->filter, inverse);
    const float *narrow = plan->line;
    const double *wide = plan->line;
    for (int64_t i = 0; i < 2 * n; i++)
        x[i] = plan->single ? (double)narrow[i] : wide[i];
}
