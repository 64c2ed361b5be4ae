/* SPDX-License-Identifier: Apache-2.0
 * The kernels behind the table of functions; they queue, and note failures in the context. */
#ifndef CUDA_LAUNCH_H
#define CUDA_LAUNCH_H

#include "cuda/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cuda_context cuda_context;

int launch_step(cuda_context *c, const cuda_gate *g, const cuda_io *io, unsigned step);
int launch_deal(cuda_context *c, const cuda_gate *g, const cuda_io *io);
void launch_local(cuda_context *c, const cuda_local *l);
void launch_words(cuda_context *c, const cuda_words *w);
void launch_product(cuda_context *c, const cuda_product *p);
void launch_fetch(cuda_context *c, void *to, const void *from, size_t bytes);
void launch_one_hot(cuda_context *c, const cuda_one_hot *o);
void launch_result(cuda_context *c, const cuda_result *r);
void launch_pack(cuda_context *c, const cuda_string *strings, uint32_t n, uint64_t most,
                 void *message);
void launch_unpack(cuda_context *c, const cuda_string *strings, uint32_t n, uint64_t most,
                   const void *message, int add);
void launch_split(cuda_context *c, const cuda_split *s);
void launch_gemm(cuda_context *c, const cuda_gemm *g);
/* The same by cuBLASLt, for large matrices, where that library is; false: not done. */
bool launch_large(cuda_context *c, const cuda_gemm *g);
void large_free(cuda_context *c);

#ifdef __cplusplus
}
#endif
#endif
