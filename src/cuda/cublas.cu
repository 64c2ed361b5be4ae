// SPDX-License-Identifier: Apache-2.0
// Large ring products by cuBLASLt, which drives the tensor cores of newer chips at their full rate.
// The library is looked for at run time; without it, or without its header at build time, gemm.cu
// does everything. Limbs are laid out one after the other along k, those of the second operand
// backwards, so that all limb products of one power of 2^8 are one long product.
#include "cuda/context.cuh"

#if defined(__has_include)
#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#define HAVE_CUBLASLT 1
#endif
#endif

#ifdef HAVE_CUBLASLT
#include <dlfcn.h>
#include <stdlib.h>

enum { WORKSPACE = 32 << 20, LEAST = 1024 };

struct large {
    void *library;
    cublasLtHandle_t handle;
    decltype(&cublasLtMatmul) matmul;
    decltype(&cublasLtMatmulDescCreate) desc_create;
    decltype(&cublasLtMatmulDescDestroy) desc_destroy;
    decltype(&cublasLtMatmulDescSetAttribute) desc_set;
    decltype(&cublasLtMatrixLayoutCreate) layout_create;
    decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
    decltype(&cublasLtMatmulPreferenceCreate) preference_create;
    decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
    decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
    decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
    decltype(&cublasLtDestroy) destroy;
    void *workspace, *scratch;
    size_t bytes;
};

static large *large_open(void)
{
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"};
    large *l = (large *)calloc(1, sizeof *l);
    for (int i = 0; l && !l->library && i < 3; i++)
        l->library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!l || !l->library)
        return l;
#define FIND(field, name) *(void **)&l->field = dlsym(l->library, name)
    decltype(&cublasLtCreate) create;
    *(void **)&create = dlsym(l->library, "cublasLtCreate");
    FIND(matmul, "cublasLtMatmul");
    FIND(desc_create, "cublasLtMatmulDescCreate");
    FIND(desc_destroy, "cublasLtMatmulDescDestroy");
    FIND(desc_set, "cublasLtMatmulDescSetAttribute");
    FIND(layout_create, "cublasLtMatrixLayoutCreate");
    FIND(layout_destroy, "cublasLtMatrixLayoutDestroy");
    FIND(preference_create, "cublasLtMatmulPreferenceCreate");
    FIND(preference_destroy, "cublasLtMatmulPreferenceDestroy");
    FIND(preference_set, "cublasLtMatmulPreferenceSetAttribute");
    FIND(heuristic, "cublasLtMatmulAlgoGetHeuristic");
    FIND(destroy, "cublasLtDestroy");
    bool whole = create && l->matmul && l->desc_create && l->desc_destroy && l->desc_set &&
                 l->layout_create && l->layout_destroy && l->preference_create &&
                 l->preference_destroy && l->preference_set && l->heuristic && l->destroy;
    if (!whole || create(&l->handle) != CUBLAS_STATUS_SUCCESS)
        l->handle = NULL;
    return l;
}

extern "C" void large_free(cuda_context *c)
{
    large *l = c->large;
    if (!l)
        return;
    if (l->handle)
        l->destroy(l->handle);
    if (l->workspace)
        cudaFree(l->workspace);
    if (l->scratch)
        cudaFree(l->scratch);
    if (l->library)
        dlclose(l->library);
    free(l);
    c->large = NULL;
}

// Sixteen bytes at a time from [row][block of k][limb] to [row][limb][k].
__global__ void planes_kernel(const uint4 *from, uint4 *to, uint64_t rows, uint64_t blocks,
                              unsigned limbs, bool backwards)
{
    GRID_LOOP(i, rows * blocks * limbs * 2)
    {
        uint64_t half = i & 1, limb = i / 2 % limbs, rest = i / 2 / limbs;
        uint64_t block = rest % blocks, row = rest / blocks;
        uint64_t slot = backwards ? limbs - 1 - limb : limb;
        to[((row * limbs + slot) * blocks + block) * 2 + half] = from[i];
    }
}
__global__ void combine_kernel(const int *c, uint64_t *z, uint64_t n, unsigned limbs)
{
    GRID_LOOP(i, n)
    {
        uint64_t sum = 0;
        for (unsigned d = 0; d < limbs; d++)
            sum += (uint64_t)(int64_t)c[d * n + i] << (8 * d);
        z[i] += sum;
    }
}

// C (n x m, by columns) = B^T A over `depth` bytes; rows are `pitch` bytes apart.
static bool multiply(large *l, cudaStream_t stream, uint64_t m, uint64_t n, uint64_t depth,
                     uint64_t pitch, const int8_t *a, const int8_t *b, int *c)
{
    cublasLtMatmulDesc_t desc = NULL;
    cublasLtMatrixLayout_t la = NULL, lb = NULL, lc = NULL;
    cublasLtMatmulPreference_t preference = NULL;
    cublasLtMatmulHeuristicResult_t found;
    cublasOperation_t turned = CUBLAS_OP_T;
    size_t workspace = WORKSPACE;
    int one = 1, zero = 0, count = 0;
    const cublasStatus_t fine = CUBLAS_STATUS_SUCCESS;
    bool ok = l->desc_create(&desc, CUBLAS_COMPUTE_32I, CUDA_R_32I) == fine &&
              l->desc_set(desc, CUBLASLT_MATMUL_DESC_TRANSA, &turned, sizeof turned) == fine &&
              l->layout_create(&la, CUDA_R_8I, depth, n, (int64_t)pitch) == fine &&
              l->layout_create(&lb, CUDA_R_8I, depth, m, (int64_t)pitch) == fine &&
              l->layout_create(&lc, CUDA_R_32I, n, m, (int64_t)n) == fine &&
              l->preference_create(&preference) == fine &&
              l->preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                sizeof workspace) == fine &&
              l->heuristic(l->handle, desc, la, lb, lc, lc, preference, 1, &found, &count) == fine &&
              count == 1 &&
              l->matmul(l->handle, desc, &one, b, la, a, lb, &zero, c, lc, c, lc, &found.algo,
                        l->workspace, workspace, stream) == fine;
    if (preference)
        l->preference_destroy(preference);
    if (lc)
        l->layout_destroy(lc);
    if (lb)
        l->layout_destroy(lb);
    if (la)
        l->layout_destroy(la);
    if (desc)
        l->desc_destroy(desc);
    return ok;
}

// Memory can only be had outside of recordings; what is there already serves both.
static bool large_memory(cuda_context *c, large *l, size_t bytes)
{
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cudaStreamIsCapturing(c->stream, &status);
    if (l->bytes >= bytes)
        return true;
    if (status != cudaStreamCaptureStatusNone || c->held + bytes + WORKSPACE > c->budget)
        return false;
    cudaStreamSynchronize(c->stream);
    if (l->scratch)
        cudaFree(l->scratch);
    l->scratch = NULL;
    l->bytes = 0;
    bool ok = cudaMalloc(&l->scratch, bytes) == cudaSuccess &&
              (l->workspace || cudaMalloc(&l->workspace, WORKSPACE) == cudaSuccess);
    l->bytes = ok ? bytes : 0;
    cudaGetLastError();
    return ok;
}

extern "C" bool launch_large(cuda_context *c, const cuda_gemm *g)
{
    uint64_t blocks = (g->k + CUDA_BLOCK_K - 1) / CUDA_BLOCK_K, k = blocks * CUDA_BLOCK_K;
    if (g->m < LEAST || g->n < LEAST || g->batch != 1 || g->a_at || g->b_at || g->n % 4 ||
        k * g->limbs > 131072)
        return false;
    if (!c->large)
        c->large = large_open();
    large *l = c->large;
    size_t a_bytes = g->m * k * g->limbs, b_bytes = g->n * k * g->limbs;
    size_t c_bytes = g->m * g->n * 4 * g->limbs;
    if (!l || !l->handle || !large_memory(c, l, a_bytes + b_bytes + c_bytes))
        return false;
    int8_t *a = (int8_t *)l->scratch, *b = a + a_bytes;
    int *sums = (int *)(b + b_bytes);
    unsigned wide = (unsigned)c->processors * 16;
    planes_kernel<<<wide, 256, 0, c->stream>>>((const uint4 *)g->a, (uint4 *)a, g->m, blocks,
                                               g->limbs, false);
    planes_kernel<<<wide, 256, 0, c->stream>>>((const uint4 *)g->b, (uint4 *)b, g->n, blocks,
                                               g->limbs, true);
    for (unsigned d = 0; d < g->limbs; d++)
        if (!multiply(l, c->stream, g->m, g->n, (d + 1) * k, g->limbs * k, a,
                      b + (g->limbs - 1 - d) * k, sums + (uint64_t)d * g->m * g->n))
            return false; // nothing was added to the result yet
    combine_kernel<<<wide, 256, 0, c->stream>>>(sums, g->z, g->m * g->n, g->limbs);
    launch_check(c);
    return true;
}
#else
extern "C" bool launch_large(cuda_context *c, const cuda_gemm *g)
{
    return false;
}
extern "C" void large_free(cuda_context *c)
{
}
#endif
