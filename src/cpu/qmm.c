/* SPDX-License-Identifier: Apache-2.0
 * Packing of quantised right sides; see qmm.h. */
#include "cpu/qmm.h"

#include "base/alloc.h"

size_t cpu_qdot_place(cpu_qdot_weights *w, int64_t width, int64_t panels, bool super, void *memory)
{
    int64_t data = w->groups * cpu_qdot_group_bytes(w->bits, width);
    int64_t scales = w->groups * cpu_qdot_scale_bytes(w, width);
    int64_t supers = super ? (w->groups + CPU_QSUPER - 1) / CPU_QSUPER * 2 * width * 2 : 0;
    bool apart = w->bits == 8;
    size_t scales_at = apart ? (size_t)(panels * data) : (size_t)supers;
    size_t super_at = apart ? scales_at + (size_t)(panels * scales) : 0;
    size_t data_at = apart ? 0 : align_up((size_t)(supers + scales), 64);
    w->data_step = apart ? data : (int64_t)data_at + data;
    w->scale_step = apart ? scales : w->data_step;
    w->super_step = apart ? supers : w->data_step;
    if (memory) {
        w->data = (char *)memory + data_at;
        w->scales = (char *)memory + scales_at;
        w->super = super ? (char *)memory + super_at : NULL;
    }
    return apart ? super_at + (size_t)(panels * supers) : (size_t)(panels * w->data_step);
}
