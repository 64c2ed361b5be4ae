/* SPDX-License-Identifier: Apache-2.0
 * Inside the CUDA room: the device object and how kernels are started. */
#ifndef CUDA_CONTEXT_CUH
#define CUDA_CONTEXT_CUH

#include <cuda_runtime.h>

#include "cuda/launch.h"

struct cuda_context {
    int ordinal, processors;
    cudaStream_t stream;
    uint32_t *keys;  /* CUDA_KEY_WORDS, then the 256 words of the AES table */
    uint32_t roles[CUDA_SEED * 44]; /* the first of them, for kernels' parameters */
    uint64_t budget, held;
    cudaError_t failed; /* first failure of a launch, told by the next call that can */
    struct large *large; /* cuBLASLt and its memory, once needed */
};

enum { KERNEL_THREADS = 256 };

/* Blocks for n items, so many to a block; grids are strided beyond `most` waves. */
static inline unsigned launch_blocks(const cuda_context *c, uint64_t n, unsigned threads,
                                     unsigned waves)
{
    uint64_t blocks = (n + threads - 1) / threads, most = (uint64_t)c->processors * waves;
    return (unsigned)(blocks < most ? (blocks ? blocks : 1) : most);
}
static inline void launch_check(cuda_context *c)
{
    cudaError_t e = cudaGetLastError();
    if (e != cudaSuccess && c->failed == cudaSuccess)
        c->failed = e;
}

#define GRID_LOOP(i, n)                                                                            \
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < (n);                    \
         i += (uint64_t)gridDim.x * blockDim.x)

#endif
