/* SPDX-License-Identifier: Apache-2.0
 * Packing of quantised right sides; see qmm.h. */
#include "cpu/qmm.h"

#include <string.h>

void cpu_qdot_store(uint8_t *group, int bits, int64_t width, int64_t column,
                    const uint8_t q[CPU_QGROUP])
{
    if (bits == 8) {
        for (int r = 0; r < 8; r++)
            memcpy(group + (r * width + column) * 4, q + 4 * r, 4);
        return;
    }
    for (int r = 0; r < 4; r++)
        for (int i = 0; i < 4; i++)
            group[(r * width + column) * 4 + i] =
                (uint8_t)((q[4 * r + i] & 15) | (q[16 + 4 * r + i] & 15) << 4);
    for (int h = 0; bits == 6 && h < 2; h++)
        for (int i = 0; i < 4; i++) {
            int byte = 0;
            for (int j = 0; j < 4; j++)
                byte |= (q[16 * h + 4 * j + i] >> 4 & 3) << 2 * j;
            group[((4 + h) * width + column) * 4 + i] = (uint8_t)byte;
        }
}

void cpu_qgemm_pack(const void *args, uint32_t begin, uint32_t end)
{
    const cpu_qgemm_pack_args *p = args;
    int64_t padded = (p->k + 3) / 4 * 4;
    uint8_t turn = p->flip ? 0x80 : 0;
    for (uint32_t t = begin; t < end; t++) {
        uint8_t *to = p->packed + t * p->width * padded;
        for (int64_t c = 0; c < p->width; c++) {
            int64_t j = t * p->width + c;
            const uint8_t *from = p->b + j * p->b_col;
            uint32_t sum = 0;
            for (int64_t k = 0; k < padded; k++) {
                uint8_t v = j < p->n && k < p->k ? from[k * p->b_row] ^ turn : 0;
                to[(k / 4 * p->width + c) * 4 + k % 4] = v;
                sum += v;
            }
            if (j < p->n)
                p->col_sum[j] = (int32_t)sum;
        }
    }
}
