/* SPDX-License-Identifier: Apache-2.0
 * The kinds of gates and the forms each has: an instance of a kernel for every one. */
#ifndef CUDA_KINDS_CUH
#define CUDA_KINDS_CUH

#include "cuda/gate.h"

#define KINDS_PLAIN(kernel, kind)                                                                  \
    case CUDA_##kind:                                                                              \
        return kernel<CUDA_##kind, CUDA_PLAIN>;
#define KINDS_BOTH(kernel, kind)                                                                   \
    case CUDA_##kind:                                                                              \
        return form == CUDA_DIRECT ? kernel<CUDA_##kind, CUDA_DIRECT>                              \
                                   : kernel<CUDA_##kind, CUDA_PLAIN>;
#define KINDS_ALL(kernel, kind)                                                                    \
    case CUDA_##kind:                                                                              \
        return form == CUDA_DIRECT ? kernel<CUDA_##kind, CUDA_DIRECT>                              \
               : form == CUDA_WIDE ? kernel<CUDA_##kind, CUDA_WIDE>                                \
                                   : kernel<CUDA_##kind, CUDA_PLAIN>;

/* The body of a function that returns the instance for `kind` and `form`. */
#define KINDS_CHOOSE(kernel)                                                                       \
    switch (kind) {                                                                                \
        KINDS_PLAIN(kernel, SHARE)                                                                 \
        KINDS_PLAIN(kernel, BIT)                                                                   \
        KINDS_PLAIN(kernel, DRELU)                                                                 \
        KINDS_PLAIN(kernel, LESS)                                                                  \
        KINDS_PLAIN(kernel, SELECT)                                                                \
        KINDS_BOTH(kernel, RELU)                                                                   \
        KINDS_BOTH(kernel, PIECES)                                                                 \
        KINDS_BOTH(kernel, MAX)                                                                    \
        KINDS_ALL(kernel, TR)                                                                      \
        KINDS_PLAIN(kernel, ARS)                                                                   \
        KINDS_ALL(kernel, GAP)                                                                     \
        KINDS_PLAIN(kernel, LUT)                                                                   \
        KINDS_PLAIN(kernel, SPLINE)                                                                \
        KINDS_PLAIN(kernel, LUT2)                                                                  \
        KINDS_PLAIN(kernel, MUL)                                                                   \
        KINDS_PLAIN(kernel, SQUARE)                                                                \
        KINDS_PLAIN(kernel, CURVE)                                                                 \
    default:                                                                                       \
        return NULL;                                                                               \
    }

#endif
