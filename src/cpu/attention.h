/* SPDX-License-Identifier: Apache-2.0
 *
 * Softmax(scale·Q·Kᵀ + mask)·V in f32 without ever forming the scores: a tile is one head and some
 * blocks of queries; it walks blocks of keys with a running maximum and sum. Blocks and register
 * tiles that causality or the window hides are skipped. Q, K, V and the output are read and written
 * with their own strides (the last axis must be dense). Query heads share key heads in groups.
 */
#ifndef CPU_ATTENTION_H
#define CPU_ATTENTION_H

#include <stdbool.h>

#include "cpu/isa.h"

enum {
    CPU_ATTENTION_QUERIES = 84, /* most queries of a block */
    CPU_ATTENTION_GROUP = 4,    /* most blocks of a tile: they share packed keys */
    CPU_ATTENTION_KEYS = 128,   /* keys of a block; half of that above CPU_ATTENTION_WIDE */
    CPU_ATTENTION_WIDE = 128,
    CPU_ATTENTION_DEPTH = 256, /* largest head size of Q and K */
    /* With paired terms: floats of a block of keys and its values; most keys of a block, most
     * queries of a tile, largest head size. */
    CPU_ATTENTION_PAIRED_RIGHT = 32768,
    CPU_ATTENTION_PAIRED_KEYS = 512,
    CPU_ATTENTION_PAIRED_ROWS = 512,
    CPU_ATTENTION_PAIRED_DEPTH = 128,
};

typedef enum cpu_mask {
    CPU_MASK_NONE,
    CPU_MASK_ADD,  /* f32, added to the scaled scores */
    CPU_MASK_BOOL, /* bytes; 0 hides the key */
} cpu_mask;

typedef struct cpu_attention_args {
    const float *q, *k, *v;
    const void *mask;
    float *out;
    int64_t batch, heads, kv_heads, queries, keys, depth, v_depth;
    /* Strides in elements: batch, head, position. */
    int64_t q_stride[3], k_stride[3], v_stride[3], out_stride[3];
    int64_t mask_stride[4]; /* batch, head, query, key; 0 broadcasts */
    cpu_mask mask_kind;
    float scale, softcap; /* softcap 0: none */
    bool causal;          /* query i sees keys ≤ i + causal_offset */
    int64_t causal_offset;
    int64_t window; /* 0: none; else only the last `window` keys up to the query's own */
    /* Not NULL: K and V are caches of `keys` positions that hold *length and, behind those, the
     * keys of these queries; `keys` and causal_offset follow from it. */
    const int64_t *length;
    const char *token;  /* with a length: scratch of what appended to the caches */
    uint32_t blocks;    /* tiles of a head */
    uint32_t group;     /* query blocks of a tile, 0 for 1 */
    int64_t block_rows; /* queries of a block */
    int64_t block_keys; /* keys of a block, with paired terms */
    cpu_terms terms;    /* how they are summed, likewise */
} cpu_attention_args;

/* The same at this moment: what follows from the length of caches is in `now`, where there is one.
 */
static inline const cpu_attention_args *cpu_attention_now(const cpu_attention_args *p,
                                                          cpu_attention_args *now)
{
    if (!p->length)
        return p;
    *now = *p;
    int64_t held = *p->length < 0 ? 0 : *p->length;
    now->keys = held < p->keys - p->queries ? held + p->queries : p->keys;
    now->causal_offset = now->keys - p->queries;
    return now;
}

/* New keys and values go behind the *length that the caches hold. Tile t: head t of all batches. */
typedef struct cpu_cache_args {
    const float *k, *v;
    float *k_cache, *v_cache; /* [batch, heads, capacity, depth], dense */
    const int64_t *length;
    cpu_fault *fault; /* a length that leaves no room is reported; nothing is written then */
    char *token;      /* scratch: makes the attention behind this wait for it */
    int64_t heads, positions, capacity, depth, v_depth;
    int64_t k_stride[3], v_stride[3]; /* batch, head, position */
} cpu_cache_args;
void cpu_cache_append(const void *args, uint32_t begin, uint32_t end);

/* Tile t: group t % blocks of query blocks of head t / blocks (heads of all batches in order). */
CPU_DECLARE(cpu_attention_f32);
/* The same with paired terms, within 2^-20 or so of a value's column (docs/kernels.md): for dense
 * queries only, without mask, window or softcap, and a positive scale; causal_offset ≥ 0. */
CPU_DECLARE(cpu_attention_paired_f32);

#endif
