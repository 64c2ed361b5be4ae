/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda/device.h"

/* For 32 entries at a time, lane l holds byte l / 4 of entries l % 4, + 8, + 16, + 24, and of those
 * four further on: the bits that choose them are a shift and a mask away. */
void cuda_fragments(const uint64_t *table, unsigned rows, unsigned bits, uint32_t *out)
{
    size_t size = (size_t)1 << bits;
    for (size_t row = 0; row < rows; row++)
        for (size_t at = 0; at < size; at += 32)
            for (unsigned lane = 0; lane < 32; lane++)
                for (unsigned half = 0; half < 2; half++) {
                    const uint64_t *from = table + row * size + at + lane % 4 + half * 4;
                    uint32_t word = 0;
                    for (unsigned k = 0; k < 4; k++)
                        word |= (uint32_t)(from[8 * k] >> (lane / 4 * 8) & 255) << (8 * k);
                    *out++ = word;
                }
}
