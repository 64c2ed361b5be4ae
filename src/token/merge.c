/* SPDX-License-Identifier: Apache-2.0 */
#include "token/merge.h"

void merge_clear(merge_work *w)
{
    w->symbols.count = w->heap.count = 0;
}

bool merge_add(merge_work *w, uint32_t begin, uint32_t length, int64_t id)
{
    uint32_t n = w->symbols.count;
    if (!vec_push(w->memory, &w->symbols,
                  (merge_symbol){begin, length, id, n ? n - 1 : MERGE_NONE, MERGE_NONE}))
        return false;
    if (n)
        w->symbols.data[n - 1].next = n;
    return true;
}

static bool before(const merge_candidate *a, const merge_candidate *b)
{
    return a->pair.order != b->pair.order ? a->pair.order < b->pair.order : a->left < b->left;
}

static bool push(merge_work *w, const merge_candidate *c)
{
    if (!vec_push(w->memory, &w->heap, *c))
        return false;
    merge_candidate *h = w->heap.data;
    uint32_t i = w->heap.count - 1;
    for (; i > 0 && before(c, &h[(i - 1) / 2]); i = (i - 1) / 2)
        h[i] = h[(i - 1) / 2];
    h[i] = *c;
    return true;
}

static merge_candidate pop(merge_work *w)
{
    merge_candidate *h = w->heap.data, top = h[0], last = h[--w->heap.count];
    uint32_t n = w->heap.count, i = 0;
    for (uint32_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && before(&h[child + 1], &h[child]))
            child++;
        if (!before(&h[child], &last))
            break;
        h[i] = h[child];
    }
    h[i] = last;
    return top;
}

/* The pair of a symbol and the one behind it, if they may become one. */
static bool consider(merge_work *w, uint32_t left, merge_find find, const void *context)
{
    uint32_t right = left == MERGE_NONE ? MERGE_NONE : w->symbols.data[left].next;
    if (right == MERGE_NONE)
        return true;
    const merge_symbol *l = &w->symbols.data[left], *r = &w->symbols.data[right];
    merge_candidate c = {{0}, left, right, l->length + r->length};
    return !find(context, l, r, &c.pair) || push(w, &c);
}

bool merge_all(merge_work *w, merge_find find, const void *context)
{
    for (uint32_t i = 0; i < w->symbols.count; i++)
        if (!consider(w, i, find, context))
            return false;
    while (w->heap.count) {
        merge_candidate c = pop(w);
        merge_symbol *l = &w->symbols.data[c.left], *r = &w->symbols.data[c.right];
        if (l->length == 0 || r->length == 0 || l->length + r->length != c.length)
            continue; /* one of them has become something else */
        l->length = c.length;
        l->id = c.pair.id;
        l->next = r->next;
        if (r->next != MERGE_NONE)
            w->symbols.data[r->next].before = c.left;
        r->length = 0;
        if (!consider(w, l->before, find, context) || !consider(w, c.left, find, context))
            return false;
    }
    return true;
}
