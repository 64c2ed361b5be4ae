/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda/device.h"

/* A lane takes 128 entries, or 64 of tables that have just 256: lane l holds byte l / 4 of those
 * that begin at so many times l % 4, 32 in four steps: in step m entries m, m + 8, m + 16, m + 24,
 * and those four further on. The bits that choose them are those of one word under a mask. */
void cuda_fragments(const uint64_t *table, unsigned rows, unsigned bits, uint32_t *out)
{
    size_t size = (size_t)1 << bits, each = bits > 8 ? 128 : 64;
    for (size_t row = 0; row < rows; row++)
        for (size_t at = 0; at < size; at += 32)
            for (unsigned lane = 0; lane < 32; lane++)
                for (unsigned half = 0; half < 2; half++) {
                    size_t steps = at % (4 * each) / 32, word = steps / 4 * 32, step = steps % 4;
                    const uint64_t *from = table + row * size + at / (4 * each) * (4 * each) +
                                           lane % 4 * each + word + step + half * 4;
                    uint32_t out_word = 0;
                    for (unsigned k = 0; k < 4; k++)
                        out_word |= (uint32_t)(from[8 * k] >> (lane / 4 * 8) & 255) << (8 * k);
                    *out++ = out_word;
                }
}
