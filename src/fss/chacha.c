/* SPDX-License-Identifier: Apache-2.0
 * ChaCha with eight rounds as a node hash: the node and the session tweak are its key. */
#include <string.h>

#include "fss/prg.h"

/* Lanes of independent states; the compiler turns the loops over them into vector code. */
enum { WAYS = 8 };

#define ROTATE(v, c) ((v) << (c) | (v) >> (32 - (c)))

static inline void quarter(uint32_t *a, uint32_t *b, uint32_t *c, uint32_t *d)
{
    for (int i = 0; i < WAYS; i++) {
        a[i] += b[i];
        d[i] = ROTATE(d[i] ^ a[i], 16);
        c[i] += d[i];
        b[i] = ROTATE(b[i] ^ c[i], 12);
        a[i] += b[i];
        d[i] = ROTATE(d[i] ^ a[i], 8);
        c[i] += d[i];
        b[i] = ROTATE(b[i] ^ c[i], 7);
    }
}

static void permute(uint32_t s[16][WAYS])
{
    for (int r = 0; r < 4; r++) {
        for (int k = 0; k < 4; k++)
            quarter(s[k], s[4 + k], s[8 + k], s[12 + k]);
        for (int k = 0; k < 4; k++)
            quarter(s[k], s[4 + (k + 1) % 4], s[8 + (k + 2) % 4], s[12 + (k + 3) % 4]);
    }
}

void fss_chacha8_block(uint32_t out[16], const uint32_t in[16])
{
    uint32_t s[16][WAYS];
    for (int w = 0; w < 16; w++)
        for (int i = 0; i < WAYS; i++)
            s[w][i] = in[w];
    permute(s);
    for (int w = 0; w < 16; w++)
        out[w] = s[w][0] + in[w];
}

void fss_hash_chacha8(const fss_prg *prg, unsigned role, const fss_block *in, fss_block *out,
                      size_t n)
{
    static const uint32_t constant[4] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574};
    uint32_t tweak[4];
    memcpy(tweak, prg->tweak, sizeof tweak);
    for (size_t i = 0; i < n; i += WAYS) {
        size_t m = n - i < WAYS ? n - i : WAYS;
        uint32_t s[16][WAYS], first[4][WAYS];
        for (size_t k = 0; k < WAYS; k++) {
            uint32_t node[4] = {0};
            if (k < m)
                memcpy(node, in + i + k, 16);
            for (int w = 0; w < 4; w++) {
                s[w][k] = first[w][k] = constant[w];
                s[4 + w][k] = node[w];
                s[8 + w][k] = tweak[w];
                s[12 + w][k] = w == 0 ? role : 0;
            }
        }
        permute(s);
        for (size_t k = 0; k < m; k++) {
            uint32_t word[4];
            for (int w = 0; w < 4; w++)
                word[w] = s[w][k] + first[w][k];
            memcpy(out + i + k, word, 16);
        }
    }
}
