/* SPDX-License-Identifier: Apache-2.0
 * Large constants side by side. Read from end to end at every run, they are limited by memory; in
 * large blocks they get huge pages, with which two cores read twice as fast. */
#ifndef BASE_SLAB_H
#define BASE_SLAB_H

#include "base/alloc.h"

typedef struct slab_block slab_block;
typedef struct slab_finder slab_finder;

typedef struct slab {
    const tacit_allocator *allocator;
    slab_block *blocks;  /* newest first */
    size_t expected;     /* bytes that will probably be asked for yet */
    size_t total;        /* bytes of all blocks made so far */
    slab_finder *finder; /* NULL: none */
} slab;

typedef struct slab_mark {
    slab_block *block;
    size_t used;
} slab_mark;

void slab_init(slab *s, const tacit_allocator *allocator, size_t expected);
void slab_free(slab *s); /* releases everything */

/* For an empty slab: makes its first block, whose pages a thread has the system find, clearing
 * them, while the caller is busy with other things; else whoever writes them first would wait for
 * that. Nothing happens where it is not worth a thread. */
void slab_find_pages(slab *s);
/* The thread ends. Before anything is written; what it found and nobody asked for goes back. */
void slab_settle(slab *s);

/* Memory of the caller's, aligned to MEM_ALIGN, is used before any other. False: no memory for
 * that. */
bool slab_give(slab *s, void *memory, size_t bytes);
/* Aligned to MEM_ALIGN; NULL when out of memory. */
void *slab_alloc(slab *s, size_t bytes);

/* Gives back what was allocated since the mark was taken. */
slab_mark slab_here(const slab *s);
void slab_back(slab *s, slab_mark mark);

#endif
