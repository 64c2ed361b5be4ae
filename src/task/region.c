/* SPDX-License-Identifier: Apache-2.0
 * Strided boxes: bounds, and whether two of them can touch a common byte. */
#include <string.h>

#include "task/map.h"

typedef struct axis {
    uint64_t count, stride;
} axis;

/* Bytes [low, high) the view stays in, relative to the storage. False on overflow. */
static bool view_bounds(const tacit_task_view *v, uint64_t *low, uint64_t *high)
{
    __int128 lo = (__int128)v->offset, hi = (__int128)v->offset;
    const __int128 limit = (__int128)1 << 62;
    for (uint32_t d = 0; d < v->rank; d++) {
        __int128 reach = (__int128)(v->shape[d] - 1) * v->stride[d];
        if (v->shape[d] > ((uint64_t)1 << 62) || reach > limit || reach < -limit)
            return false;
        lo += reach < 0 ? reach : 0;
        hi += reach > 0 ? reach : 0;
    }
    hi += v->element;
    if (lo < 0 || hi > limit)
        return false;
    *low = (uint64_t)lo;
    *high = (uint64_t)hi;
    return true;
}

/* Axes of more than one element, strides made positive (the start has moved to `low`), outermost
 * first; neighbours that continue each other are merged, then a contiguous innermost axis becomes
 * part of the element. */
static uint32_t view_axes(const tacit_task_view *v, axis *axes, uint64_t *element)
{
    uint32_t n = 0;
    for (uint32_t d = 0; d < v->rank; d++) {
        if (v->shape[d] == 1 || v->stride[d] == 0)
            continue;
        uint64_t stride = v->stride[d] < 0 ? -(uint64_t)v->stride[d] : (uint64_t)v->stride[d];
        uint32_t at = n++;
        for (; at > 0 && axes[at - 1].stride < stride; at--)
            axes[at] = axes[at - 1];
        axes[at] = (axis){v->shape[d], stride};
    }
    for (uint32_t d = n; d-- > 1;)
        if (axes[d - 1].stride == axes[d].count * axes[d].stride) {
            axes[d - 1] = (axis){axes[d - 1].count * axes[d].count, axes[d].stride};
            memmove(&axes[d], &axes[d + 1], (n - d - 1) * sizeof *axes);
            n--;
        }
    *element = v->element;
    if (n && axes[n - 1].stride == *element)
        *element *= axes[--n].count;
    return n;
}

/* Write the box in mixed radix; false when the strides do not form a lattice without carries. */
static bool box_make(task_box *box, const axis *axes, uint32_t n, uint64_t low, uint64_t element)
{
    if (n == 0 || n > TASK_BOX_RANK)
        return false;
    uint64_t rest = low;
    for (uint32_t d = 0; d < n; d++) {
        if (d > 0 && axes[d - 1].stride % axes[d].stride != 0)
            return false;
        uint64_t first = rest / axes[d].stride, last = first + axes[d].count - 1;
        rest %= axes[d].stride;
        if (last > UINT32_MAX || (d > 0 && last >= axes[d - 1].stride / axes[d].stride))
            return false;
        box->stride[d] = axes[d].stride;
        box->first[d] = (uint32_t)first;
        box->last[d] = (uint32_t)last;
    }
    uint64_t cell = axes[n - 1].stride;
    if (rest + element > cell || cell > UINT32_MAX)
        return false;
    box->rank = n;
    box->rest = (uint32_t)rest;
    box->element = (uint32_t)element;
    return true;
}

bool task_region_view(task_region *r, const tacit_task_view *view, uint64_t bytes)
{
    r->box.rank = 0;
    r->low = r->high = view->offset;
    r->dense = true;
    if (view->rank > TACIT_TASK_MAX_RANK)
        return false;
    bool empty = view->element == 0;
    for (uint32_t d = 0; d < view->rank; d++)
        empty |= view->shape[d] == 0;
    if (empty)
        return view->offset <= bytes;
    if (!view_bounds(view, &r->low, &r->high) || r->high > bytes)
        return false;
    axis axes[TACIT_TASK_MAX_RANK];
    uint64_t element;
    uint32_t n = view_axes(view, axes, &element);
    r->dense = n == 0;
    if (!r->dense && !box_make(&r->box, axes, n, r->low, element))
        r->box.rank = 0;
    return true;
}

task_overlap task_region_meet(const task_region *q, uint64_t low, uint64_t high,
                              const task_box *box)
{
    if (q->low >= high || low >= q->high)
        return TASK_APART;
    if (q->dense)
        return q->low <= low && high <= q->high ? TASK_COVERED : TASK_PARTIAL;
    if (!box || !q->box.rank || box->rank != q->box.rank)
        return TASK_PARTIAL; /* a sparse query covers nothing it does not share a lattice with */
    const task_box *a = &q->box;
    bool covered = a->rest <= box->rest && box->rest + box->element <= a->rest + a->element;
    if (a->rest >= box->rest + box->element || box->rest >= a->rest + a->element) {
        for (uint32_t d = 0; d < a->rank; d++)
            if (a->stride[d] != box->stride[d])
                return TASK_PARTIAL;
        return TASK_APART;
    }
    bool apart = false;
    for (uint32_t d = 0; d < a->rank; d++) {
        if (a->stride[d] != box->stride[d])
            return TASK_PARTIAL;
        apart |= a->first[d] > box->last[d] || box->first[d] > a->last[d];
        covered &= a->first[d] <= box->first[d] && box->last[d] <= a->last[d];
    }
    return apart ? TASK_APART : covered ? TASK_COVERED : TASK_PARTIAL;
}
