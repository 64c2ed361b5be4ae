/* SPDX-License-Identifier: Apache-2.0
 * One element of a gate, as device code: the pseudo-random functions, key material and trees that
 * src/fss handles in batches, here for the element of one thread. The same text is compiled by nvcc
 * for the device and by the C compiler for the tests, which hold it to src/fss bit for bit.
 *
 * AES on the device looks up shared memory, but every lane of a warp has a copy of the table in a
 * bank of its own: each access is one bank cycle whatever the index, there is no cache behind it
 * and no other kernel runs on that memory, so time does not depend on data. ChaCha8 uses no table.
 * Public words may steer (which child to descend to), secrets never do. */
#ifndef CUDA_ELEM_H
#define CUDA_ELEM_H

#include "cuda/gate.h"

#ifdef __CUDACC__
#define ELEM static __device__ __forceinline__
#define ELEM_CALL static __device__ __noinline__
#define ELEM_LOOP _Pragma("unroll")
#define ELEM_NO_UNROLL _Pragma("unroll 1")
#define ELEM_SHARED(e) ((const elem_env *)NULL)
#else
#include <string.h>
#define ELEM static inline
#define ELEM_CALL static inline
#define ELEM_LOOP
#define ELEM_NO_UNROLL
#define ELEM_SHARED(e) (e)
#endif

typedef struct elem_block {
    uint64_t lo, hi;
} elem_block;

#ifdef __CUDACC__
/* Round keys of the roles, by value among a kernel's parameters: reading them there costs nothing
 * where the role is known at compile time. All keys, and the table, are in shared memory; whoever
 * passes NULL reads those. */
typedef struct elem_env {
    uint32_t keys[CUDA_SEED * 44];
} elem_env;
#else
typedef struct elem_env {
    uint32_t table[256];
    uint32_t keys[CUDA_KEY_WORDS];
} elem_env;
#endif

enum { ELEM_TABLE_BYTES = 65536 }; /* 256 rows of two tables of 32 lanes */

ELEM elem_block elem_make(uint64_t lo, uint64_t hi)
{
    elem_block b;
    b.lo = lo;
    b.hi = hi;
    return b;
}
ELEM elem_block elem_xor(elem_block a, elem_block b)
{
    return elem_make(a.lo ^ b.lo, a.hi ^ b.hi);
}
ELEM elem_block elem_and(elem_block a, uint64_t mask)
{
    return elem_make(a.lo & mask, a.hi & mask);
}
ELEM uint64_t elem_mask(uint64_t bit)
{
    return (uint64_t)0 - (bit & 1);
}
ELEM uint64_t elem_low(uint64_t x, unsigned bits)
{
    return bits >= 64 ? x : x & (((uint64_t)1 << bits) - 1);
}
ELEM uint64_t elem_parity(uint64_t x)
{
#ifdef __CUDA_ARCH__
    return (uint64_t)(__popcll(x) & 1);
#else
    x ^= x >> 32;
    x ^= x >> 16;
    x ^= x >> 8;
    x ^= x >> 4;
    return 0x6996u >> (x & 15) & 1;
#endif
}
ELEM uint64_t elem_pack_bytes(unsigned bits, uint64_t count)
{
    return count / 8 * bits + (count % 8 * bits + 7) / 8;
}

/* ---- AES-128 ---- */

#ifdef __CUDACC__
extern __shared__ __align__(16) unsigned char elem_shared[];

/* Row of byte k of w, column of this lane: one byte permutation makes the address. */
ELEM uint32_t elem_entry(uint32_t w, int k)
{
    return __byte_perm(w, (threadIdx.x & 31) * 4, 0x5504 | k << 4);
}
ELEM uint32_t elem_t0(const elem_env *e, uint32_t w, int k)
{
    return *(const uint32_t *)(elem_shared + elem_entry(w, k));
}
ELEM uint32_t elem_t2(const elem_env *e, uint32_t w, int k)
{
    return *(const uint32_t *)(elem_shared + 128 + elem_entry(w, k));
}
ELEM const uint32_t *elem_keys(const elem_env *e)
{
    return e ? e->keys : (const uint32_t *)(elem_shared + ELEM_TABLE_BYTES);
}
ELEM uint32_t elem_join(uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    return __byte_perm(__byte_perm(a, b, 0x0050), __byte_perm(c, d, 0x7200), 0x7610);
}
/* x ^ y turned left by eight bits; the product leaves the pipe of the logic to the rest */
ELEM uint32_t elem_xor_turned(uint32_t x, uint32_t y)
{
    uint64_t p;
    asm("mul.wide.u32 %0, %1, 256;" : "=l"(p) : "r"(y));
    return x ^ (uint32_t)p ^ (uint32_t)(p >> 32);
}
#else
ELEM const uint32_t *elem_keys(const elem_env *e)
{
    return e->keys;
}
ELEM uint32_t elem_t0(const elem_env *e, uint32_t w, int k)
{
    return e->table[w >> (8 * k) & 255];
}
ELEM uint32_t elem_t2(const elem_env *e, uint32_t w, int k)
{
    uint32_t t = elem_t0(e, w, k);
    return t << 16 | t >> 16;
}
/* byte 0 of a, 1 of b, 2 of c, 3 of d */
ELEM uint32_t elem_join(uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    return (a & 0xff) | (b & 0xff00) | (c & 0xff0000) | (d & 0xff000000u);
}
ELEM uint32_t elem_xor_turned(uint32_t x, uint32_t y)
{
    return x ^ (y << 8 | y >> 24);
}
#endif

ELEM uint32_t elem_column(const elem_env *e, uint32_t a, uint32_t b, uint32_t c, uint32_t d,
                          uint32_t key)
{
    return elem_xor_turned(elem_t0(e, a, 0) ^ elem_t2(e, c, 2) ^ key,
                           elem_t0(e, b, 1) ^ elem_t2(e, d, 3));
}
ELEM uint32_t elem_last(const elem_env *e, uint32_t a, uint32_t b, uint32_t c, uint32_t d,
                        uint32_t key)
{
    return key ^ elem_join(elem_t2(e, a, 0), elem_t0(e, b, 1), elem_t0(e, c, 2), elem_t2(e, d, 3));
}

ELEM elem_block elem_aes_inline(const elem_env *e, unsigned which, elem_block in)
{
    const uint32_t *k = elem_keys(e) + which * 44;
    uint32_t a = (uint32_t)in.lo ^ k[0], b = (uint32_t)(in.lo >> 32) ^ k[1];
    uint32_t c = (uint32_t)in.hi ^ k[2], d = (uint32_t)(in.hi >> 32) ^ k[3];
    ELEM_LOOP
    for (int r = 1; r < 10; r++) {
        uint32_t w = elem_column(e, a, b, c, d, k[4 * r]);
        uint32_t x = elem_column(e, b, c, d, a, k[4 * r + 1]);
        uint32_t y = elem_column(e, c, d, a, b, k[4 * r + 2]);
        uint32_t z = elem_column(e, d, a, b, c, k[4 * r + 3]);
        a = w;
        b = x;
        c = y;
        d = z;
    }
    uint32_t w = elem_last(e, a, b, c, d, k[40]), x = elem_last(e, b, c, d, a, k[41]);
    uint32_t y = elem_last(e, c, d, a, b, k[42]), z = elem_last(e, d, a, b, c, k[43]);
    return elem_make((uint64_t)x << 32 | w, (uint64_t)z << 32 | y);
}
ELEM_CALL elem_block elem_aes(const elem_env *e, unsigned which, elem_block in)
{
    return elem_aes_inline(ELEM_SHARED(e), which, in);
}

/* ---- ChaCha8 ---- */

ELEM uint32_t elem_rotate(uint32_t x, int by)
{
    return x << by | x >> (32 - by);
}
#define ELEM_QUARTER(a, b, c, d)                                                                   \
    do {                                                                                           \
        a += b;                                                                                    \
        d = elem_rotate(d ^ a, 16);                                                                \
        c += d;                                                                                    \
        b = elem_rotate(b ^ c, 12);                                                                \
        a += b;                                                                                    \
        d = elem_rotate(d ^ a, 8);                                                                 \
        c += d;                                                                                    \
        b = elem_rotate(b ^ c, 7);                                                                 \
    } while (0)

ELEM elem_block elem_chacha_inline(const elem_env *e, unsigned role, elem_block in)
{
    const uint32_t *tweak = elem_keys(ELEM_SHARED(e)) + CUDA_TWEAK;
    uint32_t s0 = 0x61707865, s1 = 0x3320646e, s2 = 0x79622d32, s3 = 0x6b206574;
    uint32_t s4 = (uint32_t)in.lo, s5 = (uint32_t)(in.lo >> 32);
    uint32_t s6 = (uint32_t)in.hi, s7 = (uint32_t)(in.hi >> 32);
    uint32_t s8 = tweak[0], s9 = tweak[1], s10 = tweak[2], s11 = tweak[3];
    uint32_t s12 = role, s13 = 0, s14 = 0, s15 = 0;
    ELEM_LOOP
    for (int r = 0; r < 4; r++) {
        ELEM_QUARTER(s0, s4, s8, s12);
        ELEM_QUARTER(s1, s5, s9, s13);
        ELEM_QUARTER(s2, s6, s10, s14);
        ELEM_QUARTER(s3, s7, s11, s15);
        ELEM_QUARTER(s0, s5, s10, s15);
        ELEM_QUARTER(s1, s6, s11, s12);
        ELEM_QUARTER(s2, s7, s8, s13);
        ELEM_QUARTER(s3, s4, s9, s14);
    }
    return elem_make((uint64_t)(s1 + 0x3320646e) << 32 | (s0 + 0x61707865),
                     (uint64_t)(s3 + 0x6b206574) << 32 | (s2 + 0x79622d32));
}
ELEM_CALL elem_block elem_chacha(const elem_env *e, unsigned role, elem_block in)
{
    return elem_chacha_inline(ELEM_SHARED(e), role, in);
}

/* ---- node hash and keyed function ---- */

ELEM elem_block elem_sigma(elem_block x)
{
    return elem_make(x.hi, x.hi ^ x.lo);
}
ELEM elem_block elem_hash(const elem_env *e, unsigned prg, unsigned role, elem_block x)
{
    if (prg == CUDA_CHACHA8)
        return elem_chacha(e, role, x);
    elem_block s = elem_sigma(x);
    return elem_xor(elem_aes(e, role, s), s);
}
ELEM elem_block elem_hash_inline(const elem_env *e, unsigned prg, unsigned role, elem_block x)
{
    if (prg == CUDA_CHACHA8)
        return elem_chacha_inline(e, role, x);
    elem_block s = elem_sigma(x);
    return elem_xor(elem_aes_inline(e, role, s), s);
}
/* Two at once, so that one's look-ups hide the other's. */
ELEM void elem_aes2(const elem_env *e, unsigned which0, unsigned which1, elem_block *x,
                    elem_block *y)
{
    const uint32_t *k = elem_keys(ELEM_SHARED(e)) + which0 * 44;
    const uint32_t *l = elem_keys(ELEM_SHARED(e)) + which1 * 44;
    uint32_t a = (uint32_t)x->lo ^ k[0], b = (uint32_t)(x->lo >> 32) ^ k[1];
    uint32_t c = (uint32_t)x->hi ^ k[2], d = (uint32_t)(x->hi >> 32) ^ k[3];
    uint32_t p = (uint32_t)y->lo ^ l[0], q = (uint32_t)(y->lo >> 32) ^ l[1];
    uint32_t r = (uint32_t)y->hi ^ l[2], s = (uint32_t)(y->hi >> 32) ^ l[3];
    ELEM_LOOP
    for (int i = 4; i < 40; i += 4) {
        uint32_t w = elem_column(e, a, b, c, d, k[i]), t = elem_column(e, p, q, r, s, l[i]);
        uint32_t u = elem_column(e, b, c, d, a, k[i + 1]);
        uint32_t f = elem_column(e, q, r, s, p, l[i + 1]);
        uint32_t v = elem_column(e, c, d, a, b, k[i + 2]);
        uint32_t g = elem_column(e, r, s, p, q, l[i + 2]);
        d = elem_column(e, d, a, b, c, k[i + 3]);
        s = elem_column(e, s, p, q, r, l[i + 3]);
        a = w;
        b = u;
        c = v;
        p = t;
        q = f;
        r = g;
    }
    x->lo = (uint64_t)elem_last(e, b, c, d, a, k[41]) << 32 | elem_last(e, a, b, c, d, k[40]);
    x->hi = (uint64_t)elem_last(e, d, a, b, c, k[43]) << 32 | elem_last(e, c, d, a, b, k[42]);
    y->lo = (uint64_t)elem_last(e, q, r, s, p, l[41]) << 32 | elem_last(e, p, q, r, s, l[40]);
    y->hi = (uint64_t)elem_last(e, s, p, q, r, l[43]) << 32 | elem_last(e, r, s, p, q, l[42]);
}
ELEM void elem_hash2(const elem_env *e, unsigned prg, unsigned role0, elem_block *x, unsigned role1,
                     elem_block *y)
{
    if (prg == CUDA_CHACHA8) {
        *x = elem_chacha_inline(e, role0, *x);
        *y = elem_chacha_inline(e, role1, *y);
        return;
    }
    elem_block s = elem_sigma(*x), t = elem_sigma(*y);
    *x = s;
    *y = t;
    elem_aes2(e, role0, role1, x, y);
    *x = elem_xor(*x, s);
    *y = elem_xor(*y, t);
}
ELEM elem_block elem_prf_block(const elem_env *e, unsigned seed, uint64_t id, uint32_t slot,
                               uint64_t i)
{
    return elem_aes(e, seed, elem_make((uint64_t)slot << 48 | i, id));
}
/* Element i of the stream of words of `bits`. */
ELEM uint64_t elem_prf_word(const elem_env *e, unsigned seed, uint64_t id, uint32_t slot,
                            uint64_t i, unsigned bits)
{
    elem_block b = elem_prf_block(e, seed, id, slot, bits == 1 ? i >> 7 : i >> 1);
    if (bits == 1)
        return ((i & 64) ? b.hi : b.lo) >> (i & 63) & 1;
    return elem_low((i & 1) ? b.hi : b.lo, bits);
}

/* ---- packed words ---- */

/* `bits` bits from bit `bit` of `base`; eight bytes behind the string may be read. */
ELEM uint64_t elem_read(const uint8_t *base, uint64_t bit, unsigned bits)
{
    if (bits == 0)
        return 0;
#ifdef __CUDA_ARCH__
    uint64_t address = (uint64_t)(base + (bit >> 3)), shift = (address & 7) * 8 + (bit & 7);
    const uint64_t *p = (const uint64_t *)(address & ~(uint64_t)7);
    uint64_t low = p[0] >> shift;
    if (shift + bits > 64)
        low |= p[1] << (64 - shift);
#else
    const uint8_t *p = base + (bit >> 3);
    unsigned shift = bit & 7;
    uint64_t low = 0;
    memcpy(&low, p, (shift + bits + 7) / 8 < 8 ? (shift + bits + 7) / 8 : 8);
    low >>= shift;
    if (shift + bits > 64)
        low |= (uint64_t)p[8] << (64 - shift);
#endif
    return elem_low(low, bits);
}

/* A word of the ring as a number. */
ELEM float elem_number(uint64_t x, unsigned bits, double unit)
{
    uint64_t sign = (uint64_t)1 << (bits - 1);
    return (float)((double)(int64_t)((x ^ sign) - sign) * unit);
}

/* Sets bits of a string that is all zero; neighbours may write the same words. */
ELEM void elem_write(uint8_t *base, uint64_t bit, unsigned bits, uint64_t value)
{
    if (bits == 0)
        return;
    value = elem_low(value, bits);
#ifdef __CUDA_ARCH__
    uint64_t address = (uint64_t)(base + (bit >> 3)), shift = (address & 3) * 8 + (bit & 7);
    unsigned *p = (unsigned *)(address & ~(uint64_t)3);
    atomicOr(p, (unsigned)(value << shift));
    if (shift + bits > 32)
        atomicOr(p + 1, (unsigned)(value >> (32 - shift)));
    if (shift + bits > 64)
        atomicOr(p + 2, (unsigned)(value >> (64 - shift)));
#else
    for (unsigned at = 0; at < bits;) {
        uint64_t here = bit + at;
        unsigned skip = here & 7, n = 8 - skip < bits - at ? 8 - skip : bits - at;
        base[here >> 3] |= (uint8_t)(elem_low(value >> at, n) << skip);
        at += n;
    }
#endif
}

ELEM uint64_t elem_twice(uint32_t mask)
{
    return (uint64_t)mask << 32 | mask;
}

/* A block at a multiple of 16, or at any address. */
ELEM elem_block elem_load_aligned(const uint8_t *p)
{
#ifdef __CUDA_ARCH__
    uint4 v = *(const uint4 *)p;
    return elem_make((uint64_t)v.y << 32 | v.x, (uint64_t)v.w << 32 | v.z);
#else
    elem_block b;
    memcpy(&b, p, 16);
    return b;
#endif
}
ELEM elem_block elem_load(const uint8_t *p)
{
    elem_block b;
#ifdef __CUDA_ARCH__
    unsigned off = (unsigned)((uint64_t)p & 3);
    if (((uint64_t)p & 15) == 0)
        return elem_load_aligned(p);
    const uint32_t *q = (const uint32_t *)(p - off);
    uint32_t w0 = q[0], w1 = q[1], w2 = q[2], w3 = q[3];
    if (off) {
        uint32_t w4 = q[4];
        w0 = __funnelshift_r(w0, w1, 8 * off);
        w1 = __funnelshift_r(w1, w2, 8 * off);
        w2 = __funnelshift_r(w2, w3, 8 * off);
        w3 = __funnelshift_r(w3, w4, 8 * off);
    }
    b = elem_make((uint64_t)w1 << 32 | w0, (uint64_t)w3 << 32 | w2);
#else
    memcpy(&b, p, 16);
#endif
    return b;
}
ELEM void elem_store(uint8_t *p, elem_block b)
{
#ifdef __CUDA_ARCH__
    if (((uint64_t)p & 15) == 0) {
        *(uint4 *)p = make_uint4((unsigned)b.lo, (unsigned)(b.lo >> 32), (unsigned)b.hi,
                                 (unsigned)(b.hi >> 32));
        return;
    }
    if (((uint64_t)p & 3) == 0) {
        unsigned *q = (unsigned *)p;
        q[0] = (unsigned)b.lo;
        q[1] = (unsigned)(b.lo >> 32);
        q[2] = (unsigned)b.hi;
        q[3] = (unsigned)(b.hi >> 32);
        return;
    }
    elem_write(p, 0, 64, b.lo);
    elem_write(p, 64, 64, b.hi);
#else
    memcpy(p, &b, 16);
#endif
}

/* ---- tables of at most 128 points ---- */

ELEM elem_block elem_point(uint64_t alpha)
{
    uint64_t bit = (uint64_t)1 << (alpha & 63), high = elem_mask(alpha >> 6);
    return elem_make(bit & ~high, bit & high);
}
ELEM uint64_t elem_table_bit(elem_block t, uint64_t x)
{
    uint64_t high = elem_mask(x >> 6);
    return (((t.lo & ~high) | (t.hi & high)) >> (x & 63)) & 1;
}
ELEM uint64_t elem_table_less(elem_block t, uint64_t x)
{
    uint64_t above = ~(uint64_t)0 << (x & 63) << 1, high = elem_mask(x >> 6);
    return elem_parity((t.lo & above & ~high) ^ (t.hi & (~high | above)));
}
ELEM elem_block elem_cut(elem_block s, unsigned width)
{
    return elem_make(elem_low(s.lo, width), width > 64 ? elem_low(s.hi, width - 64) : 0);
}

#endif
