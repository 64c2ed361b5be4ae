/* SPDX-License-Identifier: Apache-2.0
 * AES-128 without tables: eight blocks at a time, bit-sliced, so that neither time nor addresses
 * depend on data. Plane k holds bit k of every byte; a lane is one block, its bit p is byte p. */
#include <string.h>

#include "fss/prg.h"

typedef uint16_t lanes __attribute__((vector_size(16)));
typedef struct planes {
    lanes p[8];
} planes;

enum { SLICE = 8 };

/* Transpose an 8x8 bit matrix held in a word: byte i becomes bit i of every byte. */
static uint64_t transpose8(uint64_t x)
{
    uint64_t t = (x ^ (x >> 7)) & 0x00aa00aa00aa00aau;
    x ^= t ^ (t << 7);
    t = (x ^ (x >> 14)) & 0x0000cccc0000ccccu;
    x ^= t ^ (t << 14);
    t = (x ^ (x >> 28)) & 0x00000000f0f0f0f0u;
    return x ^ t ^ (t << 28);
}

static void slice(planes *s, const fss_block *in, size_t n)
{
    for (size_t b = 0; b < SLICE; b++) {
        uint64_t lo = b < n ? transpose8(in[b].lo) : 0, hi = b < n ? transpose8(in[b].hi) : 0;
        for (int k = 0; k < 8; k++)
            s->p[k][b] = (uint16_t)((lo >> (8 * k) & 255) | (hi >> (8 * k) & 255) << 8);
    }
}

static void unslice(const planes *s, fss_block *out, size_t n)
{
    for (size_t b = 0; b < n; b++) {
        uint64_t lo = 0, hi = 0;
        for (int k = 0; k < 8; k++) {
            lo |= (uint64_t)(s->p[k][b] & 255) << (8 * k);
            hi |= (uint64_t)(s->p[k][b] >> 8) << (8 * k);
        }
        out[b] = (fss_block){transpose8(lo), transpose8(hi)};
    }
}

/* Reduce a polynomial of degree 14 modulo x^8 + x^4 + x^3 + x + 1. */
static void reduce(lanes c[15], planes *out)
{
    for (int k = 14; k >= 8; k--) {
        c[k - 4] ^= c[k];
        c[k - 5] ^= c[k];
        c[k - 7] ^= c[k];
        c[k - 8] ^= c[k];
    }
    memcpy(out->p, c, sizeof out->p);
}

static planes field_mul(const planes *a, const planes *b)
{
    lanes c[15];
    memset(c, 0, sizeof c);
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 8; j++)
            c[i + j] ^= a->p[i] & b->p[j];
    planes out;
    reduce(c, &out);
    return out;
}

static planes field_square(const planes *a)
{
    lanes c[15];
    memset(c, 0, sizeof c);
    for (int i = 0; i < 8; i++)
        c[2 * i] = a->p[i];
    planes out;
    reduce(c, &out);
    return out;
}

/* The S-box: x^254 in the field, then the affine map. */
static void sub_bytes(planes *s)
{
    planes x2 = field_square(s), x3 = field_mul(&x2, s);
    planes x12 = field_square(&x3);
    x12 = field_square(&x12);
    planes x15 = field_mul(&x12, &x3), x240 = x15;
    for (int i = 0; i < 4; i++)
        x240 = field_square(&x240);
    planes x252 = field_mul(&x240, &x12), v = field_mul(&x252, &x2);
    for (int k = 0; k < 8; k++) {
        s->p[k] =
            v.p[k] ^ v.p[(k + 4) & 7] ^ v.p[(k + 5) & 7] ^ v.p[(k + 6) & 7] ^ v.p[(k + 7) & 7];
        if (0x63 >> k & 1)
            s->p[k] = ~s->p[k];
    }
}

/* Byte p is row p % 4 of column p / 4; row r moves r columns to the left. */
static void shift_rows(planes *s)
{
    for (int k = 0; k < 8; k++) {
        lanes x = s->p[k];
        s->p[k] = (x & 0x1111) | (((x >> 4) | (x << 12)) & 0x2222) |
                  (((x >> 8) | (x << 8)) & 0x4444) | (((x >> 12) | (x << 4)) & 0x8888);
    }
}

static lanes next_row(lanes x)
{
    return ((x >> 1) & 0x7777) | ((x << 3) & 0x8888);
}

static void mix_columns(planes *s)
{
    lanes r1[8], pair[8], out[8];
    for (int k = 0; k < 8; k++) {
        r1[k] = next_row(s->p[k]);
        pair[k] = s->p[k] ^ r1[k];
    }
    for (int k = 0; k < 8; k++) {
        lanes doubled = pair[(k + 7) & 7];
        if (k == 1 || k == 3 || k == 4)
            doubled ^= pair[7];
        out[k] = doubled ^ r1[k] ^ next_row(next_row(pair[k]));
    }
    memcpy(s->p, out, sizeof out);
}

static void add_key(planes *s, const planes *key)
{
    for (int k = 0; k < 8; k++)
        s->p[k] ^= key->p[k];
}

static void slice_keys(planes out[11], const fss_aes_key *key)
{
    for (int r = 0; r < 11; r++) {
        fss_block same[SLICE];
        for (int b = 0; b < SLICE; b++)
            same[b] = key->round[r];
        slice(&out[r], same, SLICE);
    }
}

static void encrypt_slice(planes *s, const planes keys[11])
{
    add_key(s, &keys[0]);
    for (int r = 1; r <= 10; r++) {
        sub_bytes(s);
        shift_rows(s);
        if (r < 10)
            mix_columns(s);
        add_key(s, &keys[r]);
    }
}

void fss_aes_portable(const fss_aes_key *key, const fss_block *in, fss_block *out, size_t n)
{
    planes keys[11], s;
    slice_keys(keys, key);
    for (size_t i = 0; i < n; i += SLICE) {
        size_t m = n - i < SLICE ? n - i : SLICE;
        slice(&s, in + i, m);
        encrypt_slice(&s, keys);
        unslice(&s, out + i, m);
    }
}

void fss_hash_portable(const fss_prg *prg, unsigned role, const fss_block *in, fss_block *out,
                       size_t n)
{
    planes keys[11], s;
    slice_keys(keys, &prg->role[role]);
    for (size_t i = 0; i < n; i += SLICE) {
        size_t m = n - i < SLICE ? n - i : SLICE;
        fss_block mixed[SLICE], cipher[SLICE];
        for (size_t b = 0; b < m; b++)
            mixed[b] = fss_sigma(in[i + b]);
        slice(&s, mixed, m);
        encrypt_slice(&s, keys);
        unslice(&s, cipher, m);
        for (size_t b = 0; b < m; b++)
            out[i + b] = fss_block_xor(cipher[b], mixed[b]);
    }
}

void fss_aes_expand(fss_aes_key *key, const uint8_t bytes[16])
{
    uint32_t w[44], constant = 1;
    memcpy(w, bytes, 16);
    for (int i = 4; i < 44; i++) {
        uint32_t t = w[i - 1];
        if (i % 4 == 0) {
            fss_block word = {t >> 8 | t << 24, 0};
            planes s;
            slice(&s, &word, 1);
            sub_bytes(&s);
            unslice(&s, &word, 1);
            t = (uint32_t)word.lo ^ constant;
            constant = (constant << 1) ^ (constant >> 7) * 0x11b;
        }
        w[i] = w[i - 4] ^ t;
    }
    memcpy(key->round, w, sizeof key->round);
}
