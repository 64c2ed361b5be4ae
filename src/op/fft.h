/* SPDX-License-Identifier: Apache-2.0
 * Discrete Fourier transforms of any length. */
#ifndef OP_FFT_H
#define OP_FFT_H

#include "op/op.h"

enum { OP_FFT_FACTORS = 48 };

/* What transforms of one length share: factors, roots of one, work space. */
typedef struct op_fft {
    int64_t n;
    bool single; /* computed in f32, else in f64 */
    uint32_t n_factors;
    uint32_t factors[OP_FFT_FACTORS];
    void *roots, *line, *work; /* f32 or f64 pairs */
    /* A length with a large prime factor is a convolution with a chirp, of a smooth length. */
    struct op_fft *smooth;
    void *chirp, *filter;
} op_fft;

/* Passes of radix 4, 2, 3, 5 and any other small prime; roots are computed in f64 and rounded once.
 * `dtype` decides the precision: f64 and c128 transform in f64, narrower types in f32. */
tacit_status op_fft_plan(op_eval *c, int64_t n, tacit_dtype dtype, op_fft *plan);
/* x[2n]: interleaved complex, transformed in place; y[k] = Σ x[j]·e^(∓2πi·jk/n), not scaled. */
void op_fft_run(const op_fft *plan, double *x, bool inverse);

#endif
