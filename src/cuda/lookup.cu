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
// leaves of 2^EXTRA blocks. They go to `out` from block `to` on, around its end.
template <int DEPTH, int EXTRA>
__device__ static void expand(const elem_ctx *c, const elem_tree *t, const uint8_t *row,
                              elem_block n, uint4 *out, unsigned to, unsigned wrap)
{
    elem_block later[DEPTH + 1];
    const uint8_t *const last = row + DEPTH * t->row + t->lane * 16;
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
#pragma unroll 1
        for (unsigned b = 0; b < 1u << EXTRA; b++) {
            const elem_block s = hashed(c, CUDA_ROLE_LEAF, elem_make(n.lo, n.hi ^ b),
                                        elem_load(last + b * t->lanes * 16));
            out[(to + (leaf << EXTRA) + b) & wrap] =
                make_uint4((unsigned)s.lo, (unsigned)(s.lo >> 32), (unsigned)s.hi,
                           (unsigned)(s.hi >> 32));
        }
        if (++leaf >> DEPTH)
            break;
        level = DEPTH + 1 - __ffs((int)leaf);
        n = later[level];
    }
}

// The strings are turned by the public index as far as whole blocks go. A thread makes 2^DEPTH
// blocks.
template <int DEPTH, int EXTRA>
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
        uint4 *out = (uint4 *)p.io.scratch + ((i - p.begin) << levels);
        expand<DEPTH - EXTRA, EXTRA>(&c, &t, row, node, out,
                                     (part << DEPTH) - (unsigned)(start >> 7), wrap);
        for (unsigned r = part; r < p.l.rows; r += 1u << above)
            elem_value(&c, &p.l, r, 0); // the opening's mask; the sum comes on top
    }
}

// ---- products ----

// The rest of the turn: words of a string from bit `start` of its first block on.
struct turn {
    const uint4 *blocks;
    uint32_t start, wrap; // in bits, less than 128; blocks less one
    uint4 held[2];        // a block and the next
};
__device__ static inline void turn_load(turn *t, unsigned block)
{
    t->held[0] = __ldcs(t->blocks + (block & t->wrap)); // the table is to stay in the cache
    t->held[1] = __ldcs(t->blocks + ((block + 1) & t->wrap));
}
__device__ static inline void turn_words(const turn *t, uint32_t out[4])
{
    const uint4 a = t->held[0], b = t->held[1];
    uint32_t v[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
    for (int k = 0; k < 7; k++)
        v[k] = t->start & 32 ? v[k + 1] : v[k];
#pragma unroll
    for (int k = 0; k < 5; k++)
        v[k] = t->start & 64 ? v[k + 2] : v[k];
#pragma unroll
    for (int k = 0; k < 4; k++)
        out[k] = __funnelshift_r(v[k], v[k + 1], t->start);
}

// What the four steps of one word multiply with.
template <int ROWS>
__device__ static inline void fetch(const uint2 *table, unsigned blocks, unsigned word,
                                    uint2 f[ROWS][4])
{
#pragma unroll
    for (int k = 0; k < ROWS; k++)
#pragma unroll
        for (int m = 0; m < 4; m++)
            f[k][m] = __ldg(table + ((uint64_t)k * blocks + word) * 128 + m * 32);
}

// Sixteen elements to a warp; of 128 WORDS bits a lane takes WORDS words, each in four steps:
// cuda_fragments puts the table's bytes in that order. With few rows a step's bits are left where
// they are, which makes its sum 2^step times as large: sums of their own cost less than shifts.
template <int ROWS, int WORDS>
__global__ void __launch_bounds__(128, ROWS <= 2 ? 5 : 4)
    sum_kernel(const __grid_constant__ string_args p, const uint32_t *fragments, unsigned first)
{
    constexpr int SUMS = ROWS <= 2 ? 4 : 1;
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
        t[h].start = (uint32_t)(0 - p.io.in[p.l.input][p.begin + k]) & 127;
        t[h].blocks = (const uint4 *)p.io.scratch + (k << (bits - 7));
        t[h].wrap = blocks - 1;
        turn_load(&t[h], quad * WORDS / 4);
    }
    int acc[SUMS][ROWS][4] = {};
    const uint2 *const table = (const uint2 *)fragments + (uint64_t)first * blocks * 128 + lane;
    uint2 f[ROWS][4]; // of the next word
    fetch<ROWS>(table, blocks, 0, f);
#pragma unroll 1
    for (unsigned s = 0; s < blocks; s += WORDS) {
        uint32_t x[2][4];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            turn_words(&t[h], x[h]);
            if (WORDS == 4) // of 256 entries all are there
                turn_load(&t[h], s + 4 + quad);
        }
#pragma unroll
        for (int w = 0; w < WORDS; w++) {
            const bool upper = WORDS == 2 && quad % 2; // the other half of the block
            const uint32_t x0 = upper ? x[0][(w + 2) & 3] : x[0][w];
            const uint32_t x1 = upper ? x[1][(w + 2) & 3] : x[1][w];
            const uint32_t y0 = x0 >> 4, y1 = x1 >> 4;
            uint2 now[ROWS][4];
            memcpy(now, f, sizeof now);
            fetch<ROWS>(table, blocks, (s + w + 1) & (blocks - 1), f);
#pragma unroll
            for (int m = 0; m < 4; m++) {
                const uint32_t ones = 0x01010101, mask = SUMS > 1 ? ones << m : ones;
                const int by = SUMS > 1 ? 0 : m;
                const uint32_t a0 = x0 >> by & mask, a1 = x1 >> by & mask;
                const uint32_t a2 = y0 >> by & mask, a3 = y1 >> by & mask;
#pragma unroll
                for (int k = 0; k < ROWS; k++) {
                    int *sum = acc[SUMS > 1 ? m : 0][k];
                    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32 {%0,%1,%2,%3}, "
                                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                                 : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
                                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(now[k][m].x),
                                   "r"(now[k][m].y));
                }
            }
        }
    }
    const bool apart = p.g.inner_vectors == 2;
#pragma unroll
    for (int k = 0; k < ROWS; k++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32_t low = 0, high = 0;
#pragma unroll
            for (int m = 0; m < SUMS; m++) {
                low += (uint32_t)acc[m][k][2 * h] >> m;
                high += (uint32_t)acc[m][k][2 * h + 1] >> m;
            }
            uint64_t sum = ((uint64_t)low << (16 * quad)) + ((uint64_t)high << (16 * quad + 8));
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

typedef void (*sum_fn)(const string_args, const uint32_t *, unsigned);

template <int WORDS> static sum_fn sum_of(unsigned rows)
{
    return rows == 1   ? sum_kernel<1, WORDS>
           : rows == 2 ? sum_kernel<2, WORDS>
           : rows == 3 ? sum_kernel<3, WORDS>
                       : sum_kernel<4, WORDS>;
}

// Levels of blocks that one thread makes: at least a leaf.
static unsigned string_depth(uint64_t count, unsigned levels, unsigned extra)
{
    unsigned depth = levels < 5 ? levels : 5;
    while (depth > extra && (count << (levels - depth)) < 65536 && levels - depth < 5)
        depth--;
    return depth;
}

typedef void (*string_fn)(const string_args, const elem_env, const uint32_t *);

template <int EXTRA> static string_fn string_of(unsigned depth)
{
    return depth == 5   ? string_kernel<5, EXTRA>
           : depth == 4 ? string_kernel<4, EXTRA>
                        : string_kernel<3, EXTRA>;
}

static void launch_strings(cuda_context *c, const string_args *p)
{
    unsigned extra = p->g.item[p->l.item].leaf - 7u, levels = p->l.bits - 7;
    unsigned depth = string_depth(p->count, levels, extra);
    uint64_t total = p->count << (levels - depth);
    unsigned threads = shared_threads(c, total), blocks = shared_blocks(c, total, threads);
    string_fn kernel = depth == 0   ? string_kernel<0, 0>
                       : depth == 1 ? string_kernel<1, 0>
                       : depth == 2 ? string_kernel<2, 0>
                       : extra      ? string_of<3>(depth)
                                    : string_of<0>(depth);
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
                    (l.bits - 7 - string_depth(chunk, l.bits - 7, g->item[l.item].leaf - 7u));
    if (chunk > wave)
        chunk -= chunk % wave; // no part of the device waits for the last elements
    for (uint64_t begin = 0; begin < g->count; begin += chunk) {
        string_args p = {*g, *io, l, begin, g->count - begin < chunk ? g->count - begin : chunk};
        launch_strings(c, &p);
        unsigned blocks = (unsigned)((p.count + 63) / 64);
        for (unsigned first = 0; first < l.rows; first += 4) {
            unsigned rows = l.rows - first < 4 ? l.rows - first : 4;
            sum_fn kernel = l.bits > 8 ? sum_of<4>(rows) : sum_of<2>(rows);
            kernel<<<blocks, 128, 0, c->stream>>>(p, fragments, first);
            launch_check(c);
        }
    }
}
