// SPDX-License-Identifier: Apache-2.0
// The dealer's side of gates: a thread per element writes both keys.
#include "cuda/elem_deal.h"
#include "cuda/kinds.cuh"
#include "cuda/shared.cuh"

template <int KIND, int FORM>
__global__ void __launch_bounds__(KERNEL_THREADS, 2)
    deal_kernel(const __grid_constant__ cuda_gate g, const __grid_constant__ cuda_io io,
                const uint32_t *keys)
{
    shared_fill(keys);
    GRID_LOOP(i, g.count)
        elem_deal(NULL, &g, &io, KIND, FORM, i);
}

typedef void (*deal_fn)(const cuda_gate, const cuda_io, const uint32_t *);

static deal_fn deal_of(unsigned kind, unsigned form)
{
    KINDS_CHOOSE(deal_kernel)
}

extern "C" int launch_deal(cuda_context *c, const cuda_gate *g, const cuda_io *io)
{
    if (!g->count)
        return 0;
    deal_fn kernel = deal_of(g->kind, g->form);
    if (!kernel)
        return -1;
    unsigned threads = shared_threads(c, g->count);
    shared_allow(kernel);
    kernel<<<launch_blocks(c, g->count, threads, 3), threads, SHARED_BYTES, c->stream>>>(*g, *io,
                                                                                         c->keys);
    launch_check(c);
    return 0;
}
