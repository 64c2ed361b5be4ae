/* SPDX-License-Identifier: Apache-2.0 */
#include "token/choose.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

static int64_t likeliest(const float *logits, uint32_t n)
{
    int64_t best = -1;
    for (uint32_t i = 0; i < n; i++)
        if (!isnan(logits[i]) && (best < 0 || logits[i] > logits[best]))
            best = i;
    return best;
}

/* The heaviest first; of equals the smaller id. */
static int compare(const void *a, const void *b)
{
    const token_weight *x = a, *y = b;
    if (x->weight != y->weight)
        return x->weight > y->weight ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Moves the element at `i` of a heap with its last place on top down to its place. */
static void sift(token_weight *heap, uint32_t n, uint32_t i)
{
    token_weight moved = heap[i];
    for (uint32_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && compare(&heap[child], &heap[child + 1]) < 0)
            child++;
        if (compare(&moved, &heap[child]) >= 0)
            break;
        heap[i] = heap[child];
    }
    heap[i] = moved;
}

/* The k first of n > k by `compare`, in any order, at the beginning. */
static void keep_first(token_weight *w, uint32_t n, uint32_t k)
{
    for (uint32_t i = k / 2; i-- > 0;)
        sift(w, k, i);
    for (uint32_t i = k; i < n; i++)
        if (compare(&w[i], &w[0]) < 0) {
            w[0] = w[i];
            sift(w, k, 0);
        }
}

static double total(const token_weight *w, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += w[i].weight;
    return sum;
}

/* Those that have `share` of the weight together. What weighs less than an equal part of the rest
 * cannot be among them, and is not sorted. */
static uint32_t keep_share(token_weight *w, uint32_t n, double share)
{
    double whole = total(w, n), least = whole * (1 - share) / n, sum = 0;
    uint32_t kept = 0, count = 0;
    for (uint32_t i = 0; i < n; i++)
        if (w[i].weight >= least)
            w[kept++] = w[i];
    qsort(w, kept, sizeof *w, compare);
    while (count < kept && (count == 0 || sum < share * whole))
        sum += w[count++].weight;
    return count;
}

int64_t token_choose(const float *logits, uint32_t n, const token_choice *how, rng *random,
                     token_weight *work)
{
    int64_t best = likeliest(logits, n);
    if (best < 0 || how->temperature <= 0 || how->top_k == 1 || isinf(logits[best]))
        return best;
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++)
        if (!isnan(logits[i]))
            work[count++] = (token_weight){
                exp(((double)logits[i] - (double)logits[best]) / how->temperature), i};
    if (how->top_k > 0 && how->top_k < count) {
        keep_first(work, count, (uint32_t)how->top_k);
        count = (uint32_t)how->top_k;
    }
    if (how->top_p < 1)
        count = keep_share(work, count, how->top_p);
    double at = rng_f64(random) * total(work, count);
    for (uint32_t i = 0; i + 1 < count; i++) {
        at -= work[i].weight;
        if (at < 0)
            return work[i].id;
    }
    return work[count - 1].id;
}
