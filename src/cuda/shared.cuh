/* SPDX-License-Identifier: Apache-2.0
 * What every kernel with AES in it does first: its tables and keys into shared memory. */
#ifndef CUDA_SHARED_CUH
#define CUDA_SHARED_CUH

#include "cuda/context.cuh"
#include "cuda/elem.h"

enum { SHARED_BYTES = ELEM_TABLE_BYTES + (CUDA_KEY_WORDS * 4 + 15) / 16 * 16 };

__device__ static inline void shared_fill(const uint32_t *keys)
{
    const uint32_t *t0 = keys + CUDA_KEY_WORDS;
    uint4 *rows = (uint4 *)elem_shared; /* 16 to a row: eight of T0, eight of T2 */
    for (unsigned i = threadIdx.x; i < ELEM_TABLE_BYTES / 16; i += blockDim.x) {
        uint32_t t = t0[i / 16];
        if (i & 8)
            t = t << 16 | t >> 16;
        rows[i] = make_uint4(t, t, t, t);
    }
    uint32_t *k = (uint32_t *)(elem_shared + ELEM_TABLE_BYTES);
    for (unsigned i = threadIdx.x; i < CUDA_KEY_WORDS; i += blockDim.x)
        k[i] = keys[i];
    __syncthreads();
}

/* The role keys for a kernel's parameters. */
static inline elem_env shared_roles(const cuda_context *c)
{
    elem_env e;
    for (unsigned i = 0; i < CUDA_SEED * 44; i++)
        e.keys[i] = c->roles[i];
    return e;
}

/* Small grids use small blocks, so that they reach more processors. */
static inline unsigned shared_threads(const cuda_context *c, uint64_t n)
{
    return n >= (uint64_t)c->processors * KERNEL_THREADS   ? KERNEL_THREADS
           : n >= (uint64_t)c->processors * 64             ? 128
                                                           : 64;
}

/* Blocks for n elements with a lot of work each: few to a thread, so that processors that are ahead
 * take more of them. */
static inline unsigned shared_blocks(const cuda_context *c, uint64_t n, unsigned threads)
{
    uint64_t each = n / ((uint64_t)threads * (unsigned)c->processors * 24);
    uint64_t step = threads * (each ? each : 1);
    return (unsigned)((n + step - 1) / step);
}

template <typename kernel> static inline void shared_allow(kernel k)
{
    cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES);
}

#endif
