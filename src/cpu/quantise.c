/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/quantise.h"

#include <math.h>

void cpu_dynamic_scale(const void *args, uint32_t begin, uint32_t end)
{
    const cpu_dynamic_args *p = args;
    if (begin >= end)
        return;
    float low = 0, high = 0;
    for (int64_t t = 0; t < p->tiles; t++) {
        low = p->low[t] < low ? p->low[t] : low;
        high = p->high[t] > high ? p->high[t] : high;
    }
    float scale = (high - low) / 255, zero = 0;
    if (scale > 0) {
        zero = (0 - low) / scale;
        zero = zero > 0 ? rintf(zero < 255 ? zero : 255) : 0; /* an infinite range: NaN, so 0 */
    }
    *p->scale = scale;
    *p->zero = (uint8_t)zero;
}
