/* SPDX-License-Identifier: Apache-2.0
 * Key files: one party's one-time material for a number of runs.
 *
 * A header in the clear (what the key is for), the party's seed, then per run a stream of bytes in
 * chunks. Seed and chunks are encrypted and authenticated (AES-256-GCM, the header is part of what
 * is authenticated) under a secret of 32 bytes kept in a file of its own; a build without OpenSSL
 * writes checksums instead and says so in the header. Files are written and read front to back with
 * one chunk in memory, and appear whole or not at all. */
#ifndef SECURE_KEYFILE_H
#define SECURE_KEYFILE_H

#include "base/file.h"
#include "secure/crew.h"
#include "secure/marks.h"
#include "secure/program.h"

enum { KEY_HEADER = 160, KEY_CHUNK = 1 << 18, KEY_TAG = 16, KEY_SECRET = 32 };
/* Bits 8 to 15 of the flags: how comparisons are made. */
enum { KEY_DITHER = 1, KEY_CALIBRATED = 4, KEY_PREDICTABLE = 8, KEY_ENCRYPTED = 16 };

typedef struct key_header {
    uint8_t party, prg, tree, frac, weight_frac;
    int8_t weights;
    uint32_t flags, runs;
    uint8_t session[16], graph[32], nonce[12];
    uint64_t run_bytes; /* of this party, before encryption */
} key_header;

void key_header_write(const key_header *h, uint8_t out[KEY_HEADER]);
/* Checks everything that can be checked without the program; `size` is the file's. */
tacit_status key_header_read(const uint8_t in[KEY_HEADER], uint64_t size, key_header *h,
                             tacit_error *err);
uint64_t key_file_size(const key_header *h);
key_header key_header_for(const sec_program *p, unsigned party, uint32_t runs, bool predictable);
/* Is this key for that program and that party? */
tacit_status key_check(const key_header *h, const sec_program *p, unsigned party, tacit_error *err);

typedef struct key_writer {
    file_writer file;
    key_header header;
    uint8_t secret[KEY_SECRET], *own,
        *chunk; /* `chunk` is being filled; `own` or one of the crew's */
    size_t used;
    uint64_t chunks, bytes; /* so far */
    unsigned threads;       /* that encrypt; long runs only */
    crew *crew;
} key_writer;
tacit_status key_writer_open(key_writer *w, const char *path, const key_header *header,
                             const uint8_t secret[KEY_SECRET], const uint8_t seed[16],
                             tacit_error *err);
tacit_status key_writer_add(key_writer *w, const void *data, size_t size, tacit_error *err);
tacit_status key_writer_end_run(key_writer *w, tacit_error *err);
tacit_status key_writer_commit(key_writer *w, tacit_error *err);
void key_writer_abort(key_writer *w);

typedef struct key_reader {
    FILE *file;
    char *path;
    key_marks marks;
    key_header header;
    uint8_t raw[KEY_HEADER], secret[KEY_SECRET], seed[16], *own;
    const uint8_t *chunk; /* decrypted: `own` or one of the crew's */
    uint32_t run;
    uint64_t left, ahead; /* bytes of the run not yet decrypted; not yet given to the crew */
    size_t at, have;
    uint64_t chunks, taken; /* number of the next chunk of the file; of the crew's pieces */
    unsigned threads;       /* that decrypt; long runs only */
    crew *crew;
} key_reader;
tacit_status key_reader_open(key_reader *r, const char *path, const char *secret_path,
                             tacit_error *err);
void key_reader_close(key_reader *r);
/* First run of this file without a used mark; header.runs when there is none. */
uint32_t key_next_run(const key_reader *r);
/* Marks the run as used, durably, and positions at its bytes. Fails when it was used before. */
tacit_status key_take_run(key_reader *r, uint32_t run, tacit_error *err);
tacit_status key_reader_read(void *reader, void *data, size_t size, tacit_error *err);

/* Masks of weights last as long as the key file, so they must only ever hide one set of weights:
 * the first use binds the weights' hash to the key's session, durably; other weights are refused.
 * `tag` names them to the other party, and tells it nothing about them. */
tacit_status key_bind_weights(const key_reader *r, const uint8_t hash[32], uint8_t tag[32],
                              tacit_error *err);

/* The secret's file: PATH.secret unless said otherwise; made (mode 0600) where absent. */
tacit_status key_secret(const char *path, const char *secret_path, bool make,
                        uint8_t out[KEY_SECRET], tacit_error *err);

#endif
