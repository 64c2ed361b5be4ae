/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDA_LOOKUP_CUH
#define CUDA_LOOKUP_CUH

#include "cuda/elem_lookup.h"
#include "cuda/shared.cuh"

__device__ static inline elem_ctx context_of(const cuda_gate *g, const cuda_io *io, uint64_t i)
{
    elem_ctx c;
    c.e = NULL;
    c.g = g;
    c.io = io;
    c.id = g->id + *io->run;
    c.b = g->party;
    c.i = i;
    c.opening = 0;
    return c;
}

/* The first step of one look-up of a gate. */
void launch_lookup(cuda_context *c, const cuda_gate *g, const cuda_io *io, elem_lookup l);

#endif
