// SPDX-License-Identifier: Apache-2.0
// Steps of gates: a thread per element. Look-ups begin in lookup.cu.
#include "cuda/elem_lookup.h"
#include "cuda/kinds.cuh"
#include "cuda/lookup.cuh"

// Comparisons by trees have registers to spare: more warps hide more.
constexpr bool step_wide(int kind)
{
    return kind == CUDA_DRELU || kind == CUDA_LESS;
}

template <int KIND, int FORM>
__global__ void __launch_bounds__(step_wide(KIND) ? 2 * KERNEL_THREADS : KERNEL_THREADS,
                                  step_wide(KIND) ? 2 : 3)
    step_kernel(const __grid_constant__ cuda_gate g, const __grid_constant__ cuda_io io,
                unsigned step, const __grid_constant__ elem_env roles, const uint32_t *keys)
{
    shared_fill(keys);
    GRID_LOOP(i, g.count)
        elem_step(&roles, &g, &io, KIND, FORM, step, i);
}

// Straight pieces that open nothing: a warp per element, a lane per threshold.
__global__ void __launch_bounds__(KERNEL_THREADS, 2)
    pieces_kernel(const __grid_constant__ cuda_gate g, const __grid_constant__ cuda_io io,
                  const uint32_t *keys)
{
    shared_fill(keys);
    const unsigned lane = threadIdx.x % 32;
    const uint64_t warps = (uint64_t)gridDim.x * blockDim.x / 32;
    for (uint64_t i = (blockIdx.x * (uint64_t)blockDim.x + threadIdx.x) / 32; i < g.count;
         i += warps) {
        elem_ctx c = context_of(&g, &io, i);
        uint64_t x = elem_in(&c, 0), half = (uint64_t)1 << (g.eff_bits - 1);
        uint64_t u = elem_low(x + half, g.eff_bits), r = g.slope ? elem_word(&c, 1, 0) : 0;
        for (unsigned first = 0; first < g.rows; first += ELEM_ROWS) {
            uint64_t sum[ELEM_ROWS] = {0}, base[3] = {0};
            for (unsigned at = 0; at <= g.thresholds; at += 32) {
                unsigned k = at + lane;
                uint64_t less[3];
                elem_piece_less(&c, k <= g.thresholds ? k : 0, u, less);
                for (unsigned w = 0; w < 3 && at == 0; w++)
                    base[w] = __shfl_sync(0xffffffffu, less[w], 0);
                if (k && k <= g.thresholds)
                    elem_add_piece(&c, k, first, x, u, r, less, base, sum);
            }
            for (unsigned o = 0; o < ELEM_ROWS; o++) {
                for (unsigned by = 16; by; by /= 2)
                    sum[o] += __shfl_xor_sync(0xffffffffu, sum[o], by);
                if (lane == o && first + o < g.rows)
                    elem_put_piece(&c, first + o, x, sum[o]);
            }
        }
    }
}

typedef void (*step_fn)(const cuda_gate, const cuda_io, unsigned, const elem_env, const uint32_t *);

static step_fn step_of(unsigned kind, unsigned form)
{
    KINDS_CHOOSE(step_kernel)
}

// Does an element walk down a tree?
static bool walks(const cuda_gate *g)
{
    for (const cuda_item &it : g->item)
        if ((it.type == CUDA_TREE && it.bits > 12) || it.type == CUDA_DCF)
            return true;
    return false;
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
    if (g->kind == CUDA_PIECES && g->form == CUDA_DIRECT && g->thresholds > 2) {
        unsigned threads = shared_threads(c, g->count * 32);
        shared_allow(pieces_kernel);
        pieces_kernel<<<launch_blocks(c, g->count * 32, threads, 3), threads, SHARED_BYTES,
                        c->stream>>>(*g, *io, c->keys);
        launch_check(c);
        return 0;
    }
    step_fn kernel = step_of(g->kind, g->form);
    if (!kernel)
        return -1;
    unsigned threads = shared_threads(c, g->count);
    if (step_wide(g->kind) && threads == KERNEL_THREADS)
        threads *= 2;
    unsigned blocks = walks(g) ? shared_blocks(c, g->count, threads)
                               : launch_blocks(c, g->count, threads, 3);
    shared_allow(kernel);
    kernel<<<blocks, threads, SHARED_BYTES, c->stream>>>(
        *g, *io, step, shared_roles(c), c->keys);
    launch_check(c);
    return 0;
}
