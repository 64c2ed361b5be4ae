/* SPDX-License-Identifier: Apache-2.0
 * Rotary position embedding of one head vector. */
#ifndef OP_ROTARY_H
#define OP_ROTARY_H

#include <stdbool.h>
#include <stdint.h>

/* Rotates the first 2·half entries of x by the angles whose cosines and sines are given: pairs are
 * (i, i+half), or (2i, 2i+1) when interleaved. */
static inline void op_rotate(double *x, int64_t half, bool interleaved, const double *cosine,
                             const double *sine)
{
    for (int64_t i = 0; i < half; i++) {
        double *a = &x[interleaved ? 2 * i : i], *b = &x[interleaved ? 2 * i + 1 : i + half];
        double real = cosine[i] * *a - sine[i] * *b, imaginary = sine[i] * *a + cosine[i] * *b;
        *a = real;
        *b = imaginary;
    }
}

#endif
