// SPDX-License-Identifier: Apache-2.0
// Steps of gates: a thread per element, look-ups a thread per element or part of a tree.
#include "cuda/elem_lookup.h"
#include "cuda/shared.cuh"

template <int KIND, int FORM>
__global__ void __launch_bounds__(KERNEL_THREADS, 3)
    step_kernel(const __grid_constant__ cuda_gate g, const __grid_constant__ cuda_io io,
                unsigned step, const uint32_t *keys)
{
    shared_fill(keys);
    GRID_LOOP(i, g.count)
        elem_step(NULL, &g, &io, KIND, FORM, step, i);
}

template <int TREE>
__global__ void __launch_bounds__(KERNEL_THREADS, 3)
    lookup_kernel(const __grid_constant__ cuda_gate g, const __grid_constant__ cuda_io io,
                  const __grid_constant__ elem_lookup l, const uint32_t *keys)
{
    shared_fill(keys);
    elem_block leaf[TREE ? ELEM_LEAVES : 1];
    unsigned parts = TREE ? elem_parts(&l) : 1;
    uint64_t total = g.count * parts;
    for (uint64_t base = blockIdx.x * (uint64_t)blockDim.x; base < total;
         base += (uint64_t)gridDim.x * blockDim.x) {
        uint64_t t = base + threadIdx.x;
        unsigned part = (unsigned)(t % parts);
        elem_ctx c;
        c.e = NULL;
        c.g = &g;
        c.io = &io;
        c.id = g.id + *io.run;
        c.b = g.party;
        c.i = t < total ? t / parts : g.count - 1;
        c.opening = 0;
        elem_leaves(&c, &l, part, leaf);
        for (unsigned first = 0; first < l.rows; first += ELEM_TABLES) {
            uint64_t sum[ELEM_TABLES];
            elem_sums(&c, &l, first, part, leaf, sum);
            for (unsigned k = 0; k < ELEM_TABLES; k++) {
                for (unsigned o = parts / 2; o; o /= 2)
                    sum[k] += __shfl_down_sync(0xffffffffu, sum[k], o, parts);
                if (part == 0 && t < total && first + k < l.rows)
                    elem_value(&c, &l, first + k, sum[k]);
            }
        }
    }
}

typedef void (*step_fn)(const cuda_gate, const cuda_io, unsigned, const uint32_t *);

static step_fn step_of(const cuda_gate *g)
{
#define PLAIN(kind)                                                                                \
    case CUDA_##kind:                                                                              \
        return step_kernel<CUDA_##kind, 0>;
#define BOTH(kind)                                                                                 \
    case CUDA_##kind:                                                                              \
        return g->form == CUDA_DIRECT ? step_kernel<CUDA_##kind, CUDA_DIRECT>                      \
                                      : step_kernel<CUDA_##kind, CUDA_PLAIN>;
#define ALL(kind)                                                                                  \
    case CUDA_##kind:                                                                              \
        return g->form == CUDA_DIRECT ? step_kernel<CUDA_##kind, CUDA_DIRECT>                      \
               : g->form == CUDA_WIDE ? step_kernel<CUDA_##kind, CUDA_WIDE>                        \
                                      : step_kernel<CUDA_##kind, CUDA_PLAIN>;
    switch (g->kind) {
        PLAIN(SHARE)
        PLAIN(BIT)
        PLAIN(DRELU)
        PLAIN(LESS)
        PLAIN(SELECT)
        BOTH(RELU)
        BOTH(PIECES)
        BOTH(MAX)
        ALL(TR)
        PLAIN(ARS)
        ALL(GAP)
        PLAIN(LUT)
        PLAIN(SPLINE)
        PLAIN(LUT2)
        PLAIN(MUL)
        PLAIN(SQUARE)
        PLAIN(CURVE)
    }
    return NULL;
}

static void launch_lookup(cuda_context *c, const cuda_gate *g, const cuda_io *io, elem_lookup l)
{
    unsigned levels = l.bits > 7 ? l.bits - 7 : 0;
    while (l.depth && levels - l.depth < 5 && (g->count << (levels - l.depth)) < 65536)
        l.depth--;
    uint64_t total = g->count << (levels - l.depth);
    unsigned threads = shared_threads(c, total);
    auto kernel = l.bits > 7 ? lookup_kernel<1> : lookup_kernel<0>;
    shared_allow(kernel);
    kernel<<<launch_blocks(c, total, threads, 3), threads, SHARED_BYTES, c->stream>>>(*g, *io, l,
                                                                                      c->keys);
    launch_check(c);
}

extern "C" int launch_step(cuda_context *c, const cuda_gate *g, const cuda_io *io, unsigned step)
{
    if (!g->count)
        return 0;
    if (step == 0 && cuda_looks_up(g)) {
        elem_lookup l[2];
        for (unsigned k = 0, n = elem_lookups(g, l); k < n; k++)
            launch_lookup(c, g, io, l[k]);
        return 0;
    }
    step_fn kernel = step_of(g);
    if (!kernel)
        return -1;
    unsigned threads = shared_threads(c, g->count);
    shared_allow(kernel);
    kernel<<<launch_blocks(c, g->count, threads, 3), threads, SHARED_BYTES, c->stream>>>(
        *g, *io, step, c->keys);
    launch_check(c);
    return 0;
}
