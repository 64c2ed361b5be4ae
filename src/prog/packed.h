/* SPDX-License-Identifier: Apache-2.0
 *
 * Packed weights kept in a file: a later compilation maps them instead of packing again, and
 * processes that do so share the pages.
 *
 * Everything that packing depends on goes into a key: each job's kernel, arguments and place, what
 * its weight and other constants that it reads are, and which build made the kernels. So the file
 * needs no description of its contents: nodes are lowered in any case, and if the key of what they
 * ask for is that of the file, the file has exactly that, in that order. Whoever can write the file
 * decides what the weights are; one that others than its owner may write is not taken.
 */
#ifndef PROG_PACKED_H
#define PROG_PACKED_H

#include "base/sha256.h"
#include "op/lower.h"

/* Puts into the key what the bytes of a weight are: a place in a file that is known by its times,
 * or the bytes themselves. False: the file is so new that a change might not be seen by them. */
typedef bool packed_identify_fn(void *context, const void *data, size_t bytes, sha256 *key);

enum {
    PACKED_HEAD = 4096, /* bytes of the file before the weights: a page */
    PACKED_KEY = 32,
};

typedef struct packed_head {
    uint8_t key[PACKED_KEY];
    uint64_t bytes; /* of the weights */
} packed_head;

/* Reads the head of a file of `file_size` bytes. */
tacit_status packed_head_read(const unsigned char data[PACKED_HEAD], uint64_t file_size,
                              packed_head *out, tacit_error *err);
void packed_head_write(const packed_head *head, unsigned char out[PACKED_HEAD]);

/* The weights of one program, and the file they are in or go to. */
typedef struct packed_store {
    const char *path;
    packed_identify_fn *identify;
    void *identify_context;
    const tacit_log *log;
    int file; /* which may have them; -1: none */
    packed_head head;
    char *reserved; /* addresses, as many as that file has bytes, and a huge page more */
    size_t reserved_bytes;
    char *region; /* of the weights: behind a head at the beginning of a huge page */
    sha256 key;   /* of what has been asked for so far… */
    size_t bytes; /* …and its size */
    VEC(op_packed) parts;
    const ir_tensor *read[3]; /* the last constants that went into the key */
    bool mapped, too_new;
} packed_store;

/* Opens the file, if there is one that can be trusted; `weights` then hands out addresses where it
 * will be mapped. */
tacit_status packed_open(packed_store *s, slab *weights, size_t expected, tacit_error *err);
/* A node has been lowered; its jobs are those from `first` on. */
tacit_status packed_note(packed_store *s, const op_lower *c, uint32_t first);
/* All nodes have been lowered. Afterwards the weights are there (s->mapped), or can be written. */
tacit_status packed_map(packed_store *s, tacit_error *err);
/* Everything was packed: makes the file. A file that cannot be made is worth a warning, no more. */
void packed_save(packed_store *s);
void packed_close(packed_store *s);

#endif
