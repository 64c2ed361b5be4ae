/* SPDX-License-Identifier: Apache-2.0 */
#include "secure/lanes.h"

#include <string.h>
#include <sys/socket.h>

#include "base/cpu.h"
#include "base/thread.h"

/* Waits until the state is not `old`: awake for a while, then asleep. */
static lane_state lane_wait(lane *l, lane_state old)
{
    uint64_t until = l->line.spin_ns ? clock_ns() + l->line.spin_ns : 0;
    while (until && l->state == old && clock_ns() < until)
        ;
    if (l->state == old) {
        pthread_mutex_lock(&l->lock);
        while (l->state == old)
            pthread_cond_wait(&l->changed, &l->lock);
        pthread_mutex_unlock(&l->lock);
    }
    return l->state;
}

static void lane_tell(lane *l, lane_state state)
{
    pthread_mutex_lock(&l->lock);
    l->state = state;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
}

static void *lane_run(void *context)
{
    lane *l = context;
    thread_name("tacit-lane");
    while (lane_wait(l, LANE_IDLE) != LANE_QUIT) {
        l->status = channel_exchange(&l->line, l->out, l->out_size, l->in, l->in_size, &l->err);
        lane_tell(l, LANE_IDLE);
    }
    return NULL;
}

/* A line of its own, which says whose it is before anything else. */
static tacit_status lane_open(lanes *all, lane *l, unsigned number, unsigned party, int listener,
                              const char *address, const char *certificates,
                              const uint8_t session[16], tacit_error *err)
{
    int fd = -1, limit = all->first->timeout_ms;
    uint8_t mine[32] = {0}, other[32];
    if (party == SEC_SERVER)
        TRY(channel_accept(listener, limit, &fd, err));
    else
        TRY(channel_connect(address, limit, &fd, err));
    channel_plain(&l->line, fd, limit);
    TRY(channel_secure(&l->line, party, certificates, err));
    memcpy(mine, session, 16);
    mine[16] = (uint8_t)number;
    l->line.kind = FRAME_HELLO;
    TRY(channel_exchange(&l->line, mine, sizeof mine, other, sizeof other, err));
    l->line.kind = FRAME_DATA;
    l->line.spin_ns = all->first->spin_ns;
    if (memcmp(mine, other, sizeof mine) != 0)
        return error_set(err, TACIT_ERR_SECURITY, "a second line belongs to another session");
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->changed, NULL);
    l->running = thread_start(&l->thread, NULL, lane_run, l);
    return l->running ? TACIT_OK : error_set(err, TACIT_ERR_MEMORY, "no thread for a second line");
}

tacit_status lanes_open(lanes *l, channel *first, unsigned count, unsigned party, int listener,
                        const char *address, const char *certificates, const uint8_t session[16],
                        tacit_error *err)
{
    *l = (lanes){.first = first, .count = 1};
    for (unsigned i = 0; i + 1 < LANES_MOST; i++)
        l->more[i].line.fd = -1;
    for (; l->count < count && l->count < LANES_MOST; l->count++) {
        tacit_status status = lane_open(l, &l->more[l->count - 1], l->count, party, listener,
                                        address, certificates, session, err);
        if (status != TACIT_OK) {
            l->count++; /* the broken one is closed with the rest */
            return status;
        }
    }
    return TACIT_OK;
}

static bool lanes_whole(const lanes *l)
{
    size_t longest = l->out_size > l->in_size ? l->out_size : l->in_size;
    return l->count == 1 || longest < LANES_LONG;
}
static size_t stripe_end(size_t size, unsigned i, unsigned count)
{
    return i + 1 == count ? size : size / count * (i + 1);
}

tacit_status lanes_begin(void *context, const void *out, size_t out_size, void *in, size_t in_size,
                         tacit_error *err)
{
    lanes *l = context;
    l->out = out;
    l->in = in;
    l->out_size = out_size;
    l->in_size = in_size;
    l->started = 0;
    return lanes_whole(l) ? channel_begin(l->first, out, out_size, in, in_size, err) : TACIT_OK;
}

tacit_status lanes_push(void *context, size_t ready, tacit_error *err)
{
    lanes *l = context;
    if (lanes_whole(l))
        return channel_push(l->first, ready, err);
    for (; l->started + 1 < l->count && stripe_end(l->out_size, l->started, l->count) <= ready;
         l->started++) {
        lane *m = &l->more[l->started];
        size_t out_at = l->out_size / l->count * l->started;
        size_t in_at = l->in_size / l->count * l->started;
        m->out = l->out ? l->out + out_at : NULL;
        m->in = l->in ? l->in + in_at : NULL;
        m->out_size = stripe_end(l->out_size, l->started, l->count) - out_at;
        m->in_size = stripe_end(l->in_size, l->started, l->count) - in_at;
        lane_tell(m, LANE_BUSY);
    }
    return TACIT_OK;
}

tacit_status lanes_end(void *context, tacit_error *err)
{
    lanes *l = context;
    if (lanes_whole(l))
        return channel_end(l->first, err);
    TRY(lanes_push(l, l->out_size, err));
    size_t out_at = l->out_size / l->count * l->started;
    size_t in_at = l->in_size / l->count * l->started;
    tacit_status status =
        channel_exchange(l->first, l->out ? l->out + out_at : NULL, l->out_size - out_at,
                         l->in ? l->in + in_at : NULL, l->in_size - in_at, err);
    for (unsigned i = 0; i < l->started; i++) {
        lane *m = &l->more[i];
        lane_wait(m, LANE_BUSY);
        if (status == TACIT_OK && m->status != TACIT_OK)
            status = error_set(err, m->status, "%s", m->err.message);
    }
    return status;
}

tacit_status lanes_exchange(void *context, const void *out, size_t out_size, void *in,
                            size_t in_size, tacit_error *err)
{
    TRY(lanes_begin(context, out, out_size, in, in_size, err));
    return lanes_end(context, err);
}

void lanes_close(lanes *l)
{
    for (unsigned i = 0; i + 1 < l->count; i++) {
        lane *m = &l->more[i];
        if (m->running) {
            if (m->state == LANE_BUSY) { /* the run failed in the middle of a message */
                shutdown(m->line.fd, SHUT_RDWR);
                lane_wait(m, LANE_BUSY);
            }
            lane_tell(m, LANE_QUIT);
            pthread_join(m->thread, NULL);
            pthread_cond_destroy(&m->changed);
            pthread_mutex_destroy(&m->lock);
        }
        l->first->sent += m->line.sent;
        l->first->received += m->line.received;
        channel_close(&m->line);
    }
    l->count = 0;
}
