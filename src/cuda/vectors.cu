// SPDX-License-Identifier: Apache-2.0
// Vectors of ring words: linear maps, pseudo-random words, products, messages.
#include "cuda/shared.cuh"

__device__ static uint64_t gathered(const cuda_local &l, int64_t at)
{
    if (at < 0)
        return 0;
    if (l.n_in == 1)
        return l.in[0][at];
    const cuda_part *p = l.parts;
    while ((uint64_t)at >= p->count)
        at -= (int64_t)p++->count;
    return p->words[at];
}

template <int OP> __global__ void local_kernel(const __grid_constant__ cuda_local l)
{
    GRID_LOOP(i, l.count)
    {
        uint64_t v = l.add;
        if (OP == CUDA_GATHER) {
            v = gathered(l, l.index[i]);
        } else if (OP == CUDA_SUM) {
            for (uint32_t j = l.offset[i]; j < l.offset[i + 1]; j++)
                v += l.in[0][j];
        } else if (OP == CUDA_LINEAR) {
#pragma unroll
            for (unsigned k = 0; k < CUDA_MAX_IN; k++)
                if (k < l.n_in)
                    v += l.coef[k] * l.in[k][i];
        } else {
            v = OP == CUDA_SCALE ? l.in[0][i] * l.values[i] : l.in[0][i];
        }
        l.out[i] = v & l.mask;
    }
}

// Long sums: a warp each.
__global__ void sum_kernel(const __grid_constant__ cuda_local l)
{
    uint64_t warps = (uint64_t)gridDim.x * blockDim.x / 32;
    for (uint64_t i = (blockIdx.x * (uint64_t)blockDim.x + threadIdx.x) / 32; i < l.count;
         i += warps) {
        uint64_t v = 0;
        for (uint32_t j = l.offset[i] + threadIdx.x % 32; j < l.offset[i + 1]; j += 32)
            v += l.in[0][j];
        for (unsigned o = 16; o; o /= 2)
            v += __shfl_down_sync(0xffffffffu, v, o);
        if (threadIdx.x % 32 == 0)
            l.out[i] = (v + l.add) & l.mask;
    }
}

extern "C" void launch_local(cuda_context *c, const cuda_local *l)
{
    if (!l->count)
        return;
    unsigned blocks = launch_blocks(c, l->count, KERNEL_THREADS, 16);
    switch (l->op) {
    case CUDA_GATHER:
        local_kernel<CUDA_GATHER><<<blocks, KERNEL_THREADS, 0, c->stream>>>(*l);
        break;
    case CUDA_SUM:
        blocks = launch_blocks(c, l->count * 32, KERNEL_THREADS, 16);
        sum_kernel<<<blocks, KERNEL_THREADS, 0, c->stream>>>(*l);
        break;
    case CUDA_LINEAR:
        local_kernel<CUDA_LINEAR><<<blocks, KERNEL_THREADS, 0, c->stream>>>(*l);
        break;
    case CUDA_SCALE:
        local_kernel<CUDA_SCALE><<<blocks, KERNEL_THREADS, 0, c->stream>>>(*l);
        break;
    default:
        local_kernel<CUDA_COPY><<<blocks, KERNEL_THREADS, 0, c->stream>>>(*l);
        break;
    }
    launch_check(c);
}

// A thread makes the two words of a block; rows begin at whole blocks.
__global__ void __launch_bounds__(KERNEL_THREADS, 3)
    words_kernel(const __grid_constant__ cuda_words w, const uint32_t *keys)
{
    shared_fill(keys);
    uint64_t pairs = (w.width + 1) / 2, id = w.id + *w.run;
    GRID_LOOP(t, w.rows * pairs)
    {
        uint64_t row = t / pairs, j = t % pairs * 2;
        elem_block b = elem_prf_block(NULL, w.seed, id, w.slot, (row * w.stride + j) / 2);
        uint64_t *to = w.out + row * w.width + j;
        to[0] = elem_low(b.lo, w.bits) + (w.add ? to[0] : 0);
        if (j + 1 < w.width)
            to[1] = elem_low(b.hi, w.bits) + (w.add ? to[1] : 0);
    }
}
__global__ void __launch_bounds__(KERNEL_THREADS, 3)
    bits_kernel(const __grid_constant__ cuda_words w, const uint32_t *keys)
{
    shared_fill(keys);
    GRID_LOOP(t, w.rows * w.width)
    {
        uint64_t at = t / w.width * w.stride + t % w.width;
        w.out[t] = elem_prf_word(NULL, w.seed, w.id + *w.run, w.slot, at, 1) +
                   (w.add ? w.out[t] : 0);
    }
}

extern "C" void launch_words(cuda_context *c, const cuda_words *w)
{
    uint64_t n = w->bits == 1 ? w->rows * w->width : w->rows * ((w->width + 1) / 2);
    if (!n)
        return;
    unsigned threads = shared_threads(c, n);
    auto kernel = w->bits == 1 ? bits_kernel : words_kernel;
    shared_allow(kernel);
    kernel<<<launch_blocks(c, n, threads, 3), threads, SHARED_BYTES, c->stream>>>(*w, c->keys);
    launch_check(c);
}

__global__ void product_kernel(const __grid_constant__ cuda_product p)
{
    GRID_LOOP(i, p.count)
    {
        uint64_t f = p.cx * p.x[i] + (p.r ? p.cr * p.r[i] : 0);
        p.out[i] = elem_low(p.out[i] + f * p.w[i % p.period], p.bits);
    }
}
extern "C" void launch_product(cuda_context *c, const cuda_product *p)
{
    if (!p->count)
        return;
    product_kernel<<<launch_blocks(c, p->count, KERNEL_THREADS, 16), KERNEL_THREADS, 0,
                     c->stream>>>(*p);
    launch_check(c);
}

// Whole words: buffers end at a multiple.
__global__ void fetch_kernel(uint64_t *to, const uint64_t *from, uint64_t n)
{
    GRID_LOOP(i, n)
        to[i] = from[i];
}
extern "C" void launch_fetch(cuda_context *c, void *to, const void *from, size_t bytes)
{
    uint64_t n = (bytes + 7) / 8;
    fetch_kernel<<<launch_blocks(c, n, KERNEL_THREADS, 2), KERNEL_THREADS, 0, c->stream>>>(
        (uint64_t *)to, (const uint64_t *)from, n);
    launch_check(c);
}

// ---- the client's ends ----

__global__ void one_hot_kernel(const __grid_constant__ cuda_one_hot o)
{
    GRID_LOOP(i, o.rows * o.width)
        o.out[i] = o.index[i / o.width] == i % o.width;
}
extern "C" void launch_one_hot(cuda_context *c, const cuda_one_hot *o)
{
    if (!o->rows || !o->width)
        return;
    one_hot_kernel<<<launch_blocks(c, o->rows * o->width, KERNEL_THREADS, 16), KERNEL_THREADS, 0,
                     c->stream>>>(*o);
    launch_check(c);
}

__global__ void result_kernel(const __grid_constant__ cuda_result r)
{
    GRID_LOOP(i, r.count)
    {
        uint64_t x = elem_low(r.words[i] - elem_read(r.mask, i * r.bits, r.bits), r.bits);
        if (r.plain)
            r.plain[i] = elem_number(x, r.bits, r.unit);
        else
            r.out[i] = x;
    }
}
extern "C" void launch_result(cuda_context *c, const cuda_result *r)
{
    if (!r->count)
        return;
    result_kernel<<<launch_blocks(c, r->count, KERNEL_THREADS, 16), KERNEL_THREADS, 0,
                    c->stream>>>(*r);
    launch_check(c);
}

// ---- messages ----

// Single bits: a warp collects 32 and four lanes write the bytes.
__device__ static void pack_bits(const cuda_string &s, uint8_t *to)
{
    uint64_t rounds = (s.count + 31) / 32, bytes = (s.count + 7) / 8;
    uint64_t warps = (uint64_t)gridDim.x * blockDim.x / 32;
    unsigned lane = threadIdx.x % 32;
    for (uint64_t r = (blockIdx.x * (uint64_t)blockDim.x + threadIdx.x) / 32; r < rounds;
         r += warps) {
        uint64_t i = r * 32 + lane;
        unsigned word = __ballot_sync(0xffffffffu, i < s.count && (s.words[i] & 1));
        if (lane < 4 && r * 4 + lane < bytes)
            to[r * 4 + lane] = (uint8_t)(word >> (8 * lane));
    }
}

// 64 bits of the string from bit `at`, which may lie before its start.
__device__ static uint64_t string_bits(const cuda_string &s, int64_t at)
{
    uint64_t value = 0;
    int64_t end = at + 64, i = at < 0 ? 0 : at / s.bits;
    for (; i < (int64_t)s.count && i * s.bits < end; i++) {
        int64_t shift = i * s.bits - at;
        uint64_t word = elem_low(s.words[i], s.bits);
        value |= shift >= 0 ? word << shift : word >> -shift;
    }
    return value;
}

// Aligned words of the message; the ones shared with a neighbour byte by byte.
__global__ void pack_kernel(const cuda_string *strings, uint8_t *message)
{
    const cuda_string s = strings[blockIdx.y];
    if (s.bits == 1) {
        pack_bits(s, message + s.at);
        return;
    }
    uint64_t bytes = elem_pack_bytes(s.bits, s.count), end = s.at + bytes;
    if (!bytes)
        return;
    uint64_t first = s.at / 8, words = (end + 7) / 8 - first;
    GRID_LOOP(w, words)
    {
        uint64_t at = (first + w) * 8;
        uint64_t value = string_bits(s, ((int64_t)at - (int64_t)s.at) * 8);
        if (at >= s.at && at + 8 <= end) {
            *(uint64_t *)(message + at) = value;
            continue;
        }
        for (unsigned k = 0; k < 8; k++)
            if (at + k >= s.at && at + k < end)
                message[at + k] = (uint8_t)(value >> (8 * k));
    }
}
__global__ void unpack_kernel(const cuda_string *strings, const uint8_t *message, int add)
{
    const cuda_string s = strings[blockIdx.y];
    GRID_LOOP(i, s.count)
    {
        uint64_t v = elem_read(message + s.at, i * s.bits, s.bits);
        s.words[i] = elem_low(v + (add ? s.words[i] : 0), s.bits);
    }
}

extern "C" void launch_pack(cuda_context *c, const cuda_string *strings, uint32_t n, uint64_t most,
                            void *message)
{
    if (!n)
        return;
    dim3 grid(launch_blocks(c, most, KERNEL_THREADS, 8), n);
    pack_kernel<<<grid, KERNEL_THREADS, 0, c->stream>>>(strings, (uint8_t *)message);
    launch_check(c);
}
extern "C" void launch_unpack(cuda_context *c, const cuda_string *strings, uint32_t n,
                              uint64_t most, const void *message, int add)
{
    if (!n)
        return;
    dim3 grid(launch_blocks(c, most, KERNEL_THREADS, 8), n);
    unpack_kernel<<<grid, KERNEL_THREADS, 0, c->stream>>>(strings, (const uint8_t *)message, add);
    launch_check(c);
}
