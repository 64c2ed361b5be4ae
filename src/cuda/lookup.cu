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

struct string_args {
    cuda_gate g;
    cuda_io io;
    elem_lookup l;
    uint64_t begin, count;
};

// One child or leaf of node n, whose control bit rides in the lowest bit.
__device__ static inline elem_block hashed(const elem_ctx *c, unsigned role, elem_block n,
                                           elem_block word)
{
    const uint64_t mask = elem_mask(n.lo);
    if (c->g->tree != CUDA_HALF)
        n.lo &= ~(uint64_t)1;
    return elem_xor(elem_hash_inline(c->e, c->g->prg, role, n), elem_and(word, mask));
}
__device__ static inline elem_block other_child(const elem_ctx *c, const elem_tree *t,
                                                const uint8_t *row, elem_block n, elem_block word,
                                                elem_block left)
{
    if (c->g->tree == CUDA_HALF)
        return elem_xor(left, n);
    const uint64_t mask = elem_mask(n.lo);
    n.lo &= ~(uint64_t)1;
    word.lo = (word.lo & ~(uint64_t)1) |
              (uint64_t)(row[t->lanes * 16 + t->lane / 8] >> (t->lane % 8) & 1);
    return elem_xor(elem_hash(NULL, c->g->prg, CUDA_ROLE_RIGHT, n), elem_and(word, mask));
}

// Leaves of a subtree in order, without recursion: one copy of the generator for nodes, one for
// leaves. They go to `out` from block `to` on, around its end.
template <int DEPTH>
__device__ static void expand(const elem_ctx *c, const elem_tree *t, const uint8_t *row,
                              elem_block n, uint4 *out, unsigned to, unsigned wrap)
{
    elem_block later[DEPTH + 1];
    const elem_block last = elem_load(row + DEPTH * t->row + t->lane * 16);
    int level = 0;
#pragma unroll 1
    for (unsigned leaf = 0;;) {
#pragma unroll 1
        for (; level < DEPTH; level++) {
            const uint8_t *here = row + level * t->row;
            const elem_block word = elem_load(here + t->lane * 16);
            const elem_block left = hashed(c, CUDA_ROLE_TREE, n, word);
            later[level + 1] = other_child(c, t, here, n, word, left);
            n = left;
        }
        const elem_block s = hashed(c, CUDA_ROLE_LEAF, n, last);
        out[(to + leaf) & wrap] = make_uint4((unsigned)s.lo, (unsigned)(s.lo >> 32),
                                             (unsigned)s.hi, (unsigned)(s.hi >> 32));
        if (++leaf >> DEPTH)
            break;
        level = DEPTH + 1 - __ffs((int)leaf);
        n = later[level];
    }
}

// The strings are turned by the public index as far as whole blocks go.
template <int DEPTH>
__global__ void __launch_bounds__(KERNEL_THREADS, 3)
    string_kernel(const __grid_constant__ string_args p, const __grid_constant__ elem_env roles,
                  const uint32_t *keys)
{
    shared_fill(keys);
    const unsigned levels = p.l.bits - 7, above = levels - DEPTH, wrap = (1u << levels) - 1;
    const cuda_item *it = &p.g.item[p.l.item];
    GRID_LOOP(k, p.count << above)
    {
        const uint64_t i = p.begin + (k >> above);
        const unsigned part = (unsigned)(k & ((1u << above) - 1));
        elem_ctx c = context_of(&p.g, &p.io, i);
        c.e = &roles;
        elem_tree t = elem_tree_at(&p.g, p.io.key, it, it->at, i);
        elem_block node = elem_root(&c, p.l.item);
        uint64_t on = p.g.tree == CUDA_HALF ? node.lo & 1 : c.b;
        const uint8_t *row = t.words;
#pragma unroll 1
        for (unsigned q = 0; q < above; q++, row += t.row)
            elem_down(&c, &t, row, part >> (above - 1 - q), &node, &on);
        node.lo |= on; // a BGI seed has the bit clear
        const uint64_t start = 0 - p.io.in[p.l.input][i];
        expand<DEPTH>(&c, &t, row, node, (uint4 *)p.io.scratch + ((i - p.begin) << levels),
                      (part << DEPTH) - (unsigned)(start >> 7), wrap);
        for (unsigned r = part; r < p.l.rows; r += 1u << above)
            elem_value(&c, &p.l, r, 0); // the opening's mask; the sum comes on top
    }
}

// ---- products ----

// The rest of the turn: 128 bits of a string from a bit of its first block on.
struct turn {
    const uint4 *blocks;
    uint32_t words, bits; // to skip
    uint4 held;
};
__device__ static inline void turn_next(turn *t, unsigned next, uint32_t out[4])
{
    const uint4 q = t->blocks[next];
    uint32_t v[8] = {t->held.x, t->held.y, t->held.z, t->held.w, q.x, q.y, q.z, q.w};
    t->held = q;
#pragma unroll
    for (int k = 0; k < 7; k++)
        v[k] = t->words & 1 ? v[k + 1] : v[k];
#pragma unroll
    for (int k = 0; k < 5; k++)
        v[k] = t->words & 2 ? v[k + 2] : v[k];
#pragma unroll
    for (int k = 0; k < 4; k++)
        out[k] = __funnelshift_r(v[k], v[k + 1], t->bits);
}

// Sixteen elements to a warp. Of 32 bits, a lane takes those that are its number in its group of
// four, and four more, modulo eight: cuda_fragments puts the table's bytes in that order.
template <int ROWS>
__global__ void __launch_bounds__(128)
    sum_kernel(const __grid_constant__ string_args p, const uint32_t *fragments, unsigned first)
{
    const unsigned lane = threadIdx.x % 32, group = lane / 4, quad = lane % 4;
    const uint64_t at = (blockIdx.x * (uint64_t)(blockDim.x / 32) + threadIdx.x / 32) * 16;
    const unsigned bits = p.l.bits, blocks = 1u << (bits - 7);
    if (at >= p.count)
        return;
    turn t[2];
    uint64_t row[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        row[h] = at + group + 8 * h;
        const uint64_t k = row[h] < p.count ? row[h] : p.count - 1;
        const uint32_t start = (uint32_t)(0 - p.io.in[p.l.input][p.begin + k]) & 127;
        t[h].blocks = (const uint4 *)p.io.scratch + (k << (bits - 7));
        t[h].words = start >> 5;
        t[h].bits = start & 31;
        t[h].held = t[h].blocks[0];
    }
    int acc[ROWS][4] = {};
    const uint2 *b = (const uint2 *)fragments + (uint64_t)first * blocks * 128 + lane;
#pragma unroll 2
    for (unsigned s = 0; s < blocks; s++) {
        uint32_t w0[4], w1[4];
        turn_next(&t[0], (s + 1) & (blocks - 1), w0);
        turn_next(&t[1], (s + 1) & (blocks - 1), w1);
#pragma unroll
        for (int q = 0; q < 4; q++) {
            const uint32_t x0 = w0[q] >> quad, x1 = w1[q] >> quad;
            const uint32_t a0 = x0 & 0x01010101, a1 = x1 & 0x01010101;
            const uint32_t a2 = x0 >> 4 & 0x01010101, a3 = x1 >> 4 & 0x01010101;
#pragma unroll
            for (int k = 0; k < ROWS; k++) {
                const uint2 f = __ldg(b + (((uint64_t)k * blocks + s) * 4 + q) * 32);
                asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32 {%0,%1,%2,%3}, "
                             "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                             : "+r"(acc[k][0]), "+r"(acc[k][1]), "+r"(acc[k][2]), "+r"(acc[k][3])
                             : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(f.x), "r"(f.y));
            }
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

// Levels of a tree that one thread expands.
static unsigned string_depth(uint64_t count, unsigned levels)
{
    unsigned depth = levels < 5 ? levels : 5;
    while (depth && (count << (levels - depth)) < 65536 && levels - depth < 5)
        depth--;
    return depth;
}

static void launch_strings(cuda_context *c, const string_args *p)
{
    unsigned levels = p->l.bits - 7, depth = string_depth(p->count, levels);
    uint64_t total = p->count << (levels - depth);
    unsigned threads = shared_threads(c, total), blocks = shared_blocks(c, total, threads);
    auto kernel = depth == 0   ? string_kernel<0>
                  : depth == 1 ? string_kernel<1>
                  : depth == 2 ? string_kernel<2>
                  : depth == 3 ? string_kernel<3>
                  : depth == 4 ? string_kernel<4>
                               : string_kernel<5>;
    shared_allow(kernel);
    kernel<<<blocks, threads, SHARED_BYTES, c->stream>>>(*p, shared_roles(c), c->keys);
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
    uint64_t wave = (uint64_t)c->processors * 3 * KERNEL_THREADS >>
                    (l.bits - 7 - string_depth(chunk, l.bits - 7));
    if (chunk > wave)
        chunk -= chunk % wave; // no part of the device waits for the last elements
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
