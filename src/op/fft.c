/* SPDX-License-Identifier: Apache-2.0 */
#include "op/fft.h"

#include <math.h>
#include <string.h>

#include "op/values.h"

static void multiply(double *a, double re, double im)
{
    double r = a[0] * re - a[1] * im;
    a[1] = a[0] * im + a[1] * re;
    a[0] = r;
}

/* e^(sign·2πi·k/n) */
static void root(double sign, int64_t k, int64_t n, double *re, double *im)
{
    double angle = 2 * M_PI * (double)k / (double)n;
    *re = cos(angle);
    *im = sign * sin(angle);
}

static void bit_reverse(double *x, int64_t n)
{
    for (int64_t i = 1, j = 0; i < n; i++) {
        int64_t bit = n >> 1;
        for (; j & bit; bit >>= 1)
            j ^= bit;
        j |= bit;
        if (i >= j)
            continue;
        for (int k = 0; k < 2; k++) {
            double t = x[2 * i + k];
            x[2 * i + k] = x[2 * j + k];
            x[2 * j + k] = t;
        }
    }
}

static void radix2(double *x, int64_t n, double sign)
{
    bit_reverse(x, n);
    for (int64_t span = 2; span <= n; span *= 2)
        for (int64_t k = 0; k < span / 2; k++) {
            double re, im;
            root(sign, k, span, &re, &im);
            for (int64_t at = k; at < n; at += span) {
                double *a = x + 2 * at, *b = x + 2 * (at + span / 2), t[2] = {b[0], b[1]};
                multiply(t, re, im);
                b[0] = a[0] - t[0];
                b[1] = a[1] - t[1];
                a[0] += t[0];
                a[1] += t[1];
            }
        }
}

/* Bluestein: jk = (j² + k² − (k−j)²)/2 turns the sum into a convolution with a chirp. */
static tacit_status chirp(op_eval *c, double *x, int64_t n, double sign)
{
    int64_t m = 1;
    while (m < 2 * n)
        m *= 2;
    double *w, *a, *b;
    TRY(op_scratch_f64(c, 2 * n, &w));
    TRY(op_scratch_f64(c, 2 * m, &a));
    TRY(op_scratch_f64(c, 2 * m, &b));
    for (int64_t j = 0; j < n; j++) { /* j² mod 2n keeps the angle small and exact */
        int64_t square = (int64_t)((unsigned __int128)j * (unsigned __int128)j % (2 * (uint64_t)n));
        root(sign, square, 2 * n, &w[2 * j], &w[2 * j + 1]);
        memcpy(a + 2 * j, x + 2 * j, 2 * sizeof *a);
        multiply(a + 2 * j, w[2 * j], w[2 * j + 1]);
        for (int64_t at = j;; at = m - j) {
            b[2 * at] = w[2 * j];
            b[2 * at + 1] = -w[2 * j + 1];
            if (at == m - j || j == 0)
                break;
        }
    }
    radix2(a, m, -1);
    radix2(b, m, -1);
    for (int64_t k = 0; k < m; k++)
        multiply(a + 2 * k, b[2 * k], b[2 * k + 1]);
    radix2(a, m, 1);
    for (int64_t k = 0; k < n; k++) {
        x[2 * k] = a[2 * k] / (double)m;
        x[2 * k + 1] = a[2 * k + 1] / (double)m;
        multiply(x + 2 * k, w[2 * k], w[2 * k + 1]);
    }
    return TACIT_OK;
}

tacit_status op_fft(op_eval *c, double *x, int64_t n, bool inverse)
{
    double sign = inverse ? 1 : -1;
    if (n < 2)
        return TACIT_OK;
    if (n > INT64_C(1) << 40)
        return error_set(c->err, TACIT_ERR_LIMIT, "a transform of %lld points", (long long)n);
    if ((n & (n - 1)) != 0)
        return chirp(c, x, n, sign);
    radix2(x, n, sign);
    return TACIT_OK;
}
