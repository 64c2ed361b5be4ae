// SPDX-License-Identifier: Apache-2.0
// The first step of look-ups. Small tables: a thread reads every entry and chooses by its bits.
// Larger ones in two kernels: threads expand parts of trees to bit strings; then the strings, turned
// by the public index, are multiplied with the bytes of the table on the int8 tensor cores, sixteen
// elements to a warp. No address depends on a secret.
#include "cuda/lookup.cuh"

__global__ void __launch_bounds__(KERNEL_THREADS, 3)
    small_kernel(const __grid_constant__ cuda_gate g, const __grid_constant__ cuda_io io,
                 const __grid_constant__ elem_lookup l, const uint32_t *keys)
{
    shared_fill(keys);
    GRID_LOOP(i, g.count)
    {
        elem_ctx c = context_of(&g, &io, i);
        elem_block leaf[1];
        elem_leaves(&c, &l, 0, leaf);
        for (unsigned first = 0; first < l.rows; first += ELEM_TABLES) {
            uint64_t sum[ELEM_TABLES];
            elem_sums(&c, &l, first, 0, leaf, sum);
#pragma unroll
            for (unsigned k = 0; k < ELEM_TABLES; k++)
                if (first + k < l.rows)
                    elem_value(&c, &l, first + k, sum[k]);
        }
    }
}

// ---- strings ----

template <int DEPTH>
__device__ static void expand(const elem_ctx *c, const elem_tree *t, const uint8_t *row,
                              elem_block n, uint4 *out)
{
    const bool half = c->g->tree == CUDA_HALF;
    elem_block word = elem_load(row + t->lane * 16);
    const uint64_t mask = elem_mask(n.lo);
    if (!half)
        n.lo &= ~(uint64_t)1;
    if constexpr (DEPTH == 0) {
        elem_block s = elem_xor(elem_hash(c->e, c->g->prg, CUDA_ROLE_LEAF, n), elem_and(word, mask));
        *out = make_uint4((unsigned)s.lo, (unsigned)(s.lo >> 32), (unsigned)s.hi,
                          (unsigned)(s.hi >> 32));
    } else {
        elem_block a =
            elem_xor(elem_hash(c->e, c->g->prg, CUDA_ROLE_TREE, n), elem_and(word, mask));
        elem_block b = elem_xor(a, n);
        if (!half) {
            word.lo = (word.lo & ~(uint64_t)1) |
                      (uint64_t)(row[t->lanes * 16 + t->lane / 8] >> (t->lane % 8) & 1);
            b = elem_xor(elem_hash(c->e, c->g->prg, CUDA_ROLE_RIGHT, n), elem_and(word, mask));
        }
        expand<DEPTH - 1>(c, t, row + t->row, a, out);
        expand<DEPTH - 1>(c, t, row + t->row, b, out + (1 << (DEPTH - 1)));
    }
}

struct string_args {
    cuda_gate g;
    cuda_io io;
    elem_lookup l;
    uint64_t begin, count;
};

template <int DEPTH>
__global__ void __launch_bounds__(KERNEL_THREADS, 3)
    string_kernel(const __grid_constant__ string_args p, const uint32_t *keys)
{
    shared_fill(keys);
    const unsigned levels = p.l.bits - 7, above = levels - DEPTH;
    const cuda_item *it = &p.g.item[p.l.item];
    GRID_LOOP(k, p.count << above)
    {
        const uint64_t i = p.begin + (k >> above);
        const unsigned part = (unsigned)(k & ((1u << above) - 1));
        elem_ctx c = context_of(&p.g, &p.io, i);
        elem_tree t = elem_tree_at(&p.g, p.io.key, it, it->at, i);
        elem_block node = elem_root(&c, p.l.item);
        uint64_t on = p.g.tree == CUDA_HALF ? node.lo & 1 : c.b;
        const uint8_t *row = t.words;
        for (unsigned q = 0; q < above; q++, row += t.row)
            elem_down(&c, &t, row, part >> (above - 1 - q), &node, &on);
        node.lo |= on; // a BGI seed has the bit clear
        uint4 *out = (uint4 *)p.io.scratch + ((i - p.begin) << levels) + ((uint64_t)part << DEPTH);
        expand<DEPTH>(&c, &t, row, node, out);
        for (unsigned r = part; r < p.l.rows; r += 1u << above)
            elem_value(&c, &p.l, r, 0); // the opening's mask; the sum comes on top
    }
}

// ---- products ----

__device__ static inline uint32_t spread(uint32_t nibble)
{
    return ((nibble & 15) * 0x00204081) & 0x01010101;
}

struct turn {
    const uint32_t *words;
    uint32_t at, shift, held;
};
__device__ static inline turn turn_at(const uint32_t *words, uint64_t x, unsigned bits)
{
    const uint32_t start = (uint32_t)((0 - x) & (((uint64_t)1 << bits) - 1));
    turn t = {words, start >> 5, start & 31, words[start >> 5]};
    return t;
}
__device__ static inline uint32_t turn_next(turn *t, uint32_t wrap)
{
    t->at = (t->at + 1) & wrap;
    const uint32_t next = t->words[t->at], bits = __funnelshift_r(t->held, next, t->shift);
    t->held = next;
    return bits;
}

template <int ROWS>
__global__ void __launch_bounds__(128)
    sum_kernel(const __grid_constant__ string_args p, const uint32_t *fragments, unsigned first)
{
    const unsigned lane = threadIdx.x % 32, group = lane / 4, quad = lane % 4;
    const uint64_t at = (blockIdx.x * (uint64_t)(blockDim.x / 32) + threadIdx.x / 32) * 16;
    const unsigned bits = p.l.bits, steps = 1u << (bits - 5);
    if (at >= p.count)
        return;
    turn t[2];
    uint64_t row[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        row[h] = at + group + 8 * h;
        const uint64_t k = row[h] < p.count ? row[h] : p.count - 1;
        t[h] = turn_at(p.io.scratch + (k << (bits - 5)),
                       elem_low(p.io.in[p.l.input][p.begin + k], bits), bits);
    }
    int acc[ROWS][4] = {};
    const uint2 *b = (const uint2 *)fragments + (uint64_t)first * steps * 32 + lane;
#pragma unroll 4
    for (unsigned s = 0; s < steps; s++) {
        const uint32_t w0 = turn_next(&t[0], steps - 1) >> (4 * quad);
        const uint32_t w1 = turn_next(&t[1], steps - 1) >> (4 * quad);
        const uint32_t a0 = spread(w0), a1 = spread(w1), a2 = spread(w0 >> 16), a3 = spread(w1 >> 16);
#pragma unroll
        for (int k = 0; k < ROWS; k++) {
            const uint2 f = __ldg(b + ((uint64_t)k * steps + s) * 32);
            asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32 {%0,%1,%2,%3}, "
                         "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                         : "+r"(acc[k][0]), "+r"(acc[k][1]), "+r"(acc[k][2]), "+r"(acc[k][3])
                         : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(f.x), "r"(f.y));
        }
    }
    const bool apart = p.g.inner_vectors == 2;
#pragma unroll
    for (int k = 0; k < ROWS; k++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint64_t sum = ((uint64_t)(uint32_t)acc[k][2 * h] << (16 * quad)) +
                           ((uint64_t)(uint32_t)acc[k][2 * h + 1] << (16 * quad + 8));
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            if (quad != h || row[h] >= p.count)
                continue;
            const unsigned r = p.l.row + first + k, vector = apart ? r : 0;
            uint64_t *out =
                p.io.out[vector] + (apart ? 0 : r) * p.g.count + p.begin + row[h];
            *out = elem_low(p.g.party ? *out - sum : *out + sum, p.g.inner_bits[vector]);
        }
    }
}

static void launch_strings(cuda_context *c, const string_args *p)
{
    unsigned levels = p->l.bits - 7, depth = levels < 5 ? levels : 5;
    while (depth && (p->count << (levels - depth)) < 65536 && levels - depth < 5)
        depth--;
    uint64_t total = p->count << (levels - depth);
    unsigned threads = shared_threads(c, total), blocks = launch_blocks(c, total, threads, 3);
    auto kernel = depth == 0   ? string_kernel<0>
                  : depth == 1 ? string_kernel<1>
                  : depth == 2 ? string_kernel<2>
                  : depth == 3 ? string_kernel<3>
                  : depth == 4 ? string_kernel<4>
                               : string_kernel<5>;
    shared_allow(kernel);
    kernel<<<blocks, threads, SHARED_BYTES, c->stream>>>(*p, c->keys);
    launch_check(c);
}

void launch_lookup(cuda_context *c, const cuda_gate *g, const cuda_io *io, elem_lookup l)
{
    if (l.bits <= 7) {
        unsigned threads = shared_threads(c, g->count);
        shared_allow(small_kernel);
        small_kernel<<<launch_blocks(c, g->count, threads, 3), threads, SHARED_BYTES, c->stream>>>(
            *g, *io, l, c->keys);
        launch_check(c);
        return;
    }
    const uint32_t *fragments = l.item ? g->fragments2 : g->fragments;
    uint64_t chunk = cuda_lookup_chunk(g->count, l.bits);
    for (uint64_t begin = 0; begin < g->count; begin += chunk) {
        string_args p = {*g, *io, l, begin, g->count - begin < chunk ? g->count - begin : chunk};
        launch_strings(c, &p);
        unsigned blocks = (unsigned)((p.count + 63) / 64);
        for (unsigned first = 0; first < l.rows; first += 4) {
            unsigned rows = l.rows - first < 4 ? l.rows - first : 4;
            auto kernel = rows == 1   ? sum_kernel<1>
                          : rows == 2 ? sum_kernel<2>
                          : rows == 3 ? sum_kernel<3>
                                      : sum_kernel<4>;
            kernel<<<blocks, 128, 0, c->stream>>>(p, fragments, first);
            launch_check(c);
        }
    }
}
