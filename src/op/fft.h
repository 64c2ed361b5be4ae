/* SPDX-License-Identifier: Apache-2.0
 * Discrete Fourier transforms of any length. */
#ifndef OP_FFT_H
#define OP_FFT_H

#include "op/op.h"

/* x[2n]: interleaved complex, transformed in place; y[k] = Σ x[j]·e^(∓2πi·jk/n), not scaled.
 * Powers of two by radix 2, other lengths as a convolution of powers of two. */
tacit_status op_fft(op_eval *c, double *x, int64_t n, bool inverse);

#endif
