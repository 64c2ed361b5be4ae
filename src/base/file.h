/* SPDX-License-Identifier: Apache-2.0
 * Files: read-only maps, and writes that appear whole or not at all. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <stdio.h>

#include "base/alloc.h"
#include "base/status.h"

/* Not figures of the machine: users watch how much a process has. All pages of a small file may
 * stay in the resident set for good; of a large one parts, such as rows of a table of half that
 * size, are read instead. In bytes. */
enum { FILE_SMALL = 16 << 20, FILE_LARGE = 64 << 20 };

/* A read-only view of a whole file. An empty file has size 0 and data NULL. */
typedef struct file_map {
    const unsigned char *data;
    size_t size;
    uint64_t identity[5]; /* its number, and when it was changed: contents, then anything */
    bool settled;         /* the last change is so long ago that another would show in the times */
    bool kept;            /* the descriptor of a large file: parts are read without mapping them */
    int descriptor;
    uint64_t device;
} file_map;

/* Bytes of an open file that can be copied without becoming resident. */
typedef struct file_place {
    int descriptor;
    uint64_t device, number; /* whose it must still be */
    uint64_t offset;
} file_place;

tacit_status file_map_open(file_map *m, const char *path, tacit_error *err);
void file_map_close(file_map *m);
/* Tell the kernel that whole pages inside [data, data+size) are not needed soon: they leave the
 * resident set and come back from the file when touched. Harmless on memory not from file_map. */
void file_map_drop(const file_map *m, const void *data, size_t size);
/* Where [data, data+size) lies in the file. False: outside it, or the file is small and closed. */
bool file_map_place(const file_map *m, const void *data, size_t size, file_place *out);
/* Is the descriptor still of that file, whatever the process has closed and opened meanwhile? */
bool file_place_holds(const file_place *p);
/* Copies bytes from `at` on behind the place. False: the file could not be read. */
bool file_place_read(const file_place *p, uint64_t at, void *to, size_t size);

/* A file that appears whole by commit or not at all. Where the system allows it has no name before
 * that, so that not even SIGKILL leaves a part; elsewhere it is called PATH.tmpN. It is written in
 * pieces of huge pages: systems that keep files in pages as large as the pieces that were written
 * map such a file by huge pages, in a tenth of the time. */
typedef struct file_writer {
    FILE *stream;
    char *path, *temporary, *buffer;
    enum { FILE_WRITER_NAMELESS, FILE_WRITER_NAMED, FILE_WRITER_SPECIAL } kind;
} file_writer;

tacit_status file_writer_open(file_writer *w, const char *path, tacit_error *err);
tacit_status file_writer_write(file_writer *w, const void *data, size_t size, tacit_error *err);
/* Flush, sync, name. On failure nothing is left and `path` is untouched (a device or a pipe is
 * simply written to). */
tacit_status file_writer_commit(file_writer *w, tacit_error *err);
void file_writer_abort(file_writer *w); /* safe after commit and on a zeroed writer */

tacit_status file_write_all(const char *path, const void *data, size_t size, tacit_error *err);

#endif
