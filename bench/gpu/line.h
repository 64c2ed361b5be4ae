/* SPDX-License-Identifier: Apache-2.0
 * One direction of an emulated line: what is read from one descriptor is written to another when a
 * line with this delay and rate would have brought it. */
#ifndef TACIT_BENCH_GPU_LINE_H
#define TACIT_BENCH_GPU_LINE_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

#include "bench.h"

typedef struct line_piece line_piece;
typedef struct line_way {
    int from, to;
    uint64_t *busy; /* ns: until when the line is taken; several ways may share it */
    line_piece *first, *last;
    bool packets; /* a piece is a packet: written whole or lost */
    bool closed;  /* `from` has ended */
} line_way;

/* Reads what is there. */
void line_take(line_way *w, const net *line);
/* Writes what is due. When the next piece is; UINT64_MAX: none. */
uint64_t line_give(line_way *w);
/* Waits for input on `p` or until `next`. False: that failed. */
bool line_wait(struct pollfd *p, int count, uint64_t next);
/* A process of its own that ends with this one: 0 in it, its number outside, -1: there is none. */
int line_fork(void);
void line_end(int pid);

#endif
