/* SPDX-License-Identifier: Apache-2.0
 * Several lines between the same two parties, each with a thread: long messages are cut into one
 * stripe per line, so that encryption and copying use several cores. Short ones take the first. */
#ifndef SECURE_LANES_H
#define SECURE_LANES_H

#include <pthread.h>

#include "secure/channel.h"

enum { LANES_MOST = 8, LANES_LONG = 1 << 16 };

typedef enum lane_state { LANE_IDLE, LANE_BUSY, LANE_QUIT } lane_state;

typedef struct lane {
    channel line;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool running;
    _Atomic lane_state state;
    const uint8_t *out;
    uint8_t *in;
    size_t out_size, in_size;
    tacit_status status;
    tacit_error err;
} lane;

typedef struct lanes {
    channel *first;
    unsigned count; /* with the first */
    lane more[LANES_MOST - 1];
    /* the message under way: stripe i is the i-th other line's, the last one the first line's */
    const uint8_t *out;
    uint8_t *in;
    size_t out_size, in_size;
    unsigned started; /* stripes */
} lanes;

/* Opens count - 1 lines beside `first`: the server accepts them from `listener`, the client
 * connects to `address`. `session` (16 bytes) says that they belong together. */
tacit_status lanes_open(lanes *l, channel *first, unsigned count, unsigned party, int listener,
                        const char *address, const char *certificates, const uint8_t session[16],
                        tacit_error *err);
tacit_status lanes_exchange(void *lanes, const void *out, size_t out_size, void *in, size_t in_size,
                            tacit_error *err);
/* As channel_begin, channel_push, channel_end: a stripe goes when all of it is final. */
tacit_status lanes_begin(void *lanes, const void *out, size_t out_size, void *in, size_t in_size,
                         tacit_error *err);
tacit_status lanes_push(void *lanes, size_t ready, tacit_error *err);
tacit_status lanes_end(void *lanes, tacit_error *err);
void lanes_close(lanes *l); /* all but the first; adds their bytes to it */

#endif
