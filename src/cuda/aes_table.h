/* SPDX-License-Identifier: Apache-2.0
 * The table of an AES round, for the device and for its twin on the host. */
#ifndef CUDA_AES_TABLE_H
#define CUDA_AES_TABLE_H

#include <stdint.h>

/* T0 from the field: 2 S(x), S(x), S(x), 3 S(x) from the lowest byte up. */
static inline void cuda_fill_table(uint32_t table[256])
{
    uint8_t p = 1, q = 1, box[256] = {0x63};
    do {
        p = (uint8_t)(p ^ p << 1 ^ (p & 0x80 ? 0x1b : 0));
        q = (uint8_t)(q ^ q << 1);
        q = (uint8_t)(q ^ q << 2);
        q = (uint8_t)(q ^ q << 4);
        q = (uint8_t)(q ^ (q & 0x80 ? 0x09 : 0));
        uint8_t x = q;
        for (int k = 1; k < 5; k++)
            x = (uint8_t)(x ^ (uint8_t)(q << k | q >> (8 - k)));
        box[p] = x ^ 0x63;
    } while (p != 1);
    for (int i = 0; i < 256; i++) {
        uint32_t s = box[i], d = (s << 1 ^ (s >> 7) * 0x11b) & 255;
        table[i] = d | s << 8 | s << 16 | (d ^ s) << 24;
    }
}

#endif
