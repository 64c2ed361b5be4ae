/* SPDX-License-Identifier: Apache-2.0 */
#include "secure/channel.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cpu.h"
#include "secure/tls.h"

/* ---- frames ---- */

static const uint8_t frame_magic[4] = "TSF1";
enum { SHORT_MESSAGE = 16000 };

void frame_write(const frame *f, uint8_t out[FRAME_HEADER])
{
    memset(out, 0, FRAME_HEADER);
    memcpy(out, frame_magic, 4);
    out[4] = (uint8_t)f->kind;
    for (int i = 0; i < 4; i++)
        out[8 + i] = (uint8_t)(f->number >> (8 * i));
    for (int i = 0; i < 8; i++)
        out[16 + i] = (uint8_t)(f->length >> (8 * i));
}

tacit_status frame_read(const uint8_t in[FRAME_HEADER], frame *f, tacit_error *err)
{
    static const uint8_t zero[4];
    if (memcmp(in, frame_magic, 4) != 0 || in[4] < FRAME_HELLO || in[4] >= FRAME_KINDS ||
        memcmp(in + 5, zero, 3) != 0 || memcmp(in + 12, zero, 4) != 0)
        return error_set(err, TACIT_ERR_SECURITY, "the peer sent something that is not a frame");
    *f = (frame){.kind = (frame_kind)in[4]};
    for (int i = 0; i < 4; i++)
        f->number |= (uint32_t)in[8 + i] << (8 * i);
    for (int i = 0; i < 8; i++)
        f->length |= (uint64_t)in[16 + i] << (8 * i);
    return TACIT_OK;
}

/* ---- one exchange ---- */

/* Bytes moved, 0: would block, -1: the peer is gone. */
static ssize_t move(channel *c, bool sending, void *data, size_t size)
{
    if (c->tls)
        return tls_move(c, sending, data, size);
    ssize_t n = sending ? send(c->fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT)
                        : recv(c->fd, data, size, MSG_DONTWAIT);
    if (n > 0)
        return n;
    return n < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
}

/* Header and body of a short message as one record. A retry finds the same bytes. */
static ssize_t push_short(channel *c, transfer *t)
{
    uint8_t joined[FRAME_HEADER + SHORT_MESSAGE];
    memcpy(joined, t->out_header, FRAME_HEADER);
    memcpy(joined + FRAME_HEADER, t->out, t->out_end - FRAME_HEADER);
    ssize_t n = move(c, true, joined, t->out_end);
    if (n > 0)
        t->out_at += (size_t)n;
    return n;
}

static ssize_t push(channel *c, transfer *t)
{
    if (t->out_at == 0 && t->out_ready == t->out_end && t->out_end > FRAME_HEADER &&
        t->out_end <= FRAME_HEADER + SHORT_MESSAGE)
        return push_short(c, t);
    bool header = t->out_at < FRAME_HEADER;
    const uint8_t *from = header ? t->out_header + t->out_at : t->out + t->out_at - FRAME_HEADER;
    size_t size = (header ? FRAME_HEADER : t->out_ready) - t->out_at;
    ssize_t n = move(c, true, (void *)from, size);
    if (n > 0)
        t->out_at += (size_t)n;
    return n;
}

static ssize_t pull(channel *c, transfer *t)
{
    bool header = t->in_at < FRAME_HEADER;
    uint8_t *to = header ? t->in_header + t->in_at : t->in + t->in_at - FRAME_HEADER;
    size_t size = (header ? FRAME_HEADER : t->in_end) - t->in_at;
    ssize_t n = move(c, false, to, size);
    if (n > 0)
        t->in_at += (size_t)n;
    return n;
}

static tacit_status check_header(channel *c, const transfer *t, tacit_error *err)
{
    frame f;
    TRY(frame_read(t->in_header, &f, err));
    if (f.kind == FRAME_ABORT)
        return error_set(err, TACIT_ERR_PEER, "the other party gave up: %s",
                         tacit_status_text(f.number < TACIT_STATUS_COUNT ? (tacit_status)f.number
                                                                         : TACIT_ERR_PEER));
    if (f.kind != c->kind || f.number != c->received_frames || f.length != t->in_end - FRAME_HEADER)
        return error_set(err, TACIT_ERR_SECURITY,
                         "the peer sent frame %u of %llu bytes where frame %u of %zu is due",
                         f.number, (unsigned long long)f.length, c->received_frames,
                         t->in_end - FRAME_HEADER);
    return TACIT_OK;
}

static tacit_status wait_ready(const channel *c, const transfer *t, uint64_t deadline,
                               tacit_error *err)
{
    uint64_t now = clock_ns();
    if (now >= deadline)
        return error_set(err, TACIT_ERR_PEER, "the other party was silent for %d ms",
                         c->timeout_ms);
    struct pollfd p = {.fd = c->fd};
    p.events =
        (short)((t->in_at < t->in_end ? POLLIN : 0) | (t->out_at < t->out_end ? POLLOUT : 0));
    if (c->tls)
        p.events |= POLLIN;
    int ms = (int)((deadline - now) / 1000000) + 1;
    if (poll(&p, 1, ms) < 0 && errno != EINTR)
        return error_set(err, TACIT_ERR_IO, "waiting for the other party: %s", strerror(errno));
    return TACIT_OK;
}

static tacit_status gone(tacit_error *err)
{
    return error_set(err, TACIT_ERR_PEER, "the other party is gone");
}

static tacit_status check_once(channel *c, transfer *t, tacit_error *err)
{
    if (t->checked || t->in_at < FRAME_HEADER)
        return TACIT_OK;
    TRY(check_header(c, t, err));
    t->checked = true;
    return TACIT_OK;
}

/* Moves what can be moved now; *moved tells whether anything was. */
static tacit_status move_some(channel *c, transfer *t, bool *moved, tacit_error *err)
{
    ssize_t sent = 0, got = 0;
    if (t->in_at < t->in_end && (got = pull(c, t)) < 0)
        return gone(err);
    TRY(check_once(c, t, err));
    if (t->out_at < t->out_ready && (sent = push(c, t)) < 0) {
        /* what the peer said before it went away is the better message */
        while (!t->checked && pull(c, t) > 0)
            TRY(check_once(c, t, err));
        return gone(err);
    }
    *moved = sent > 0 || got > 0;
    return TACIT_OK;
}

static tacit_status run_transfer(channel *c, transfer *t, tacit_error *err)
{
    uint64_t limit = (uint64_t)c->timeout_ms * 1000000, deadline = clock_ns() + limit;
    t->out_ready = t->out_end;
    while (t->out_at < t->out_end || t->in_at < t->in_end) {
        bool moved;
        TRY(move_some(c, t, &moved, err));
        uint64_t now = moved || c->spin_ns ? clock_ns() : 0;
        if (moved)
            deadline = now + limit;
        else if (!c->spin_ns || now + limit > deadline + c->spin_ns)
            TRY(wait_ready(c, t, deadline, err));
    }
    return TACIT_OK;
}

tacit_status channel_begin(void *context, const void *out, size_t out_size, void *in,
                           size_t in_size, tacit_error *err)
{
    channel *c = context;
    transfer *t = &c->now;
    (void)err;
    *t = (transfer){.out = out, .in = in, .checked = in_size == 0};
    if (out) {
        frame_write(&(frame){c->kind, c->sent_frames++, out_size}, t->out_header);
        t->out_end = FRAME_HEADER + out_size;
    }
    if (in_size)
        t->in_end = FRAME_HEADER + in_size;
    return TACIT_OK;
}

tacit_status channel_push(void *context, size_t ready, tacit_error *err)
{
    channel *c = context;
    transfer *t = &c->now;
    bool moved = true;
    t->out_ready = t->out_end && ready ? FRAME_HEADER + ready : 0;
    while (moved && (t->out_at < t->out_ready || t->in_at < t->in_end))
        TRY(move_some(c, t, &moved, err));
    return TACIT_OK;
}

tacit_status channel_end(void *context, tacit_error *err)
{
    channel *c = context;
    transfer *t = &c->now;
    TRY(run_transfer(c, t, err));
    c->received_frames += t->in_end > 0;
    c->sent += t->out_end;
    c->received += t->in_end;
    return TACIT_OK;
}

tacit_status channel_exchange(void *context, const void *out, size_t out_size, void *in,
                              size_t in_size, tacit_error *err)
{
    TRY(channel_begin(context, out, out_size, in, in_size, err));
    return channel_end(context, err);
}

void channel_abort(channel *c, tacit_status why)
{
    transfer t = {.out = t.out_header, .checked = true};
    if (c->fd < 0 || (c->now.out_at > 0 && c->now.out_at < c->now.out_end))
        return; /* inside a frame it would be read as data: the closed line says enough */
    frame_write(&(frame){FRAME_ABORT, (uint32_t)why, 0}, t.out_header);
    t.out_end = FRAME_HEADER;
    c->timeout_ms = c->timeout_ms < 1000 ? c->timeout_ms : 1000;
    tacit_error ignored;
    if (run_transfer(c, &t, &ignored) == TACIT_OK && c->tls)
        tls_bye(c);
}

void channel_plain(channel *c, int fd, int timeout_ms)
{
    *c = (channel){.fd = fd, .timeout_ms = timeout_ms, .kind = FRAME_DATA};
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
}

tacit_status channel_secure(channel *c, unsigned party, const char *folder, tacit_error *err)
{
    return tls_start(c, party, folder, err);
}

void channel_close(channel *c)
{
    tls_end(c);
    if (c->fd >= 0)
        close(c->fd);
    *c = (channel){.fd = -1};
}

/* ---- addresses ---- */

static tacit_status resolve(const char *address, bool passive, struct addrinfo **out,
                            tacit_error *err)
{
    char host[256];
    const char *colon = strrchr(address, ':');
    if (!colon || colon == address || !colon[1] || (size_t)(colon - address) >= sizeof host)
        return error_set(err, TACIT_ERR_ARGUMENT, "'%s' is not HOST:PORT", address);
    memcpy(host, address, (size_t)(colon - address));
    host[colon - address] = 0;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = passive ? AI_PASSIVE : 0};
    int code = getaddrinfo(host, colon + 1, &hints, out);
    return code == 0 ? TACIT_OK
                     : error_set(err, TACIT_ERR_IO, "'%s': %s", address, gai_strerror(code));
}

tacit_status channel_listen(const char *address, int *fd, tacit_error *err)
{
    struct addrinfo *a = NULL;
    TRY(resolve(address, true, &a, err));
    *fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int one = 1;
    bool ok = *fd >= 0 && setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0 &&
              bind(*fd, a->ai_addr, a->ai_addrlen) == 0 && listen(*fd, 4) == 0;
    freeaddrinfo(a);
    if (ok)
        return TACIT_OK;
    tacit_status status =
        error_set(err, TACIT_ERR_IO, "cannot listen on %s: %s", address, strerror(errno));
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    return status;
}

tacit_status channel_accept(int listener, int timeout_ms, int *fd, tacit_error *err)
{
    struct pollfd p = {.fd = listener, .events = POLLIN};
    int ready = poll(&p, 1, timeout_ms);
    if (ready < 0 && errno == EINTR)
        return error_set(err, TACIT_ERR_INTERRUPTED, "interrupted");
    if (ready <= 0)
        return error_set(err, TACIT_ERR_PEER, "nobody connected within %d ms", timeout_ms);
    *fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    return *fd >= 0 ? TACIT_OK
                    : error_set(err, TACIT_ERR_IO, "accepting a connection: %s", strerror(errno));
}

/* A port of the range that connections come from, on this machine, where nobody listens yet: a
 * socket may be given that very port and reach itself. */
static bool is_own_end(int fd)
{
    struct sockaddr_storage here, there;
    socklen_t n = sizeof here, m = sizeof there;
    memset(&here, 0, sizeof here);
    memset(&there, 0, sizeof there);
    return getsockname(fd, (struct sockaddr *)&here, &n) == 0 &&
           getpeername(fd, (struct sockaddr *)&there, &m) == 0 && n == m &&
           memcmp(&here, &there, n) == 0;
}

tacit_status channel_connect(const char *address, int timeout_ms, int *fd, tacit_error *err)
{
    struct addrinfo *a = NULL;
    TRY(resolve(address, false, &a, err));
    uint64_t deadline = clock_ns() + (uint64_t)timeout_ms * 1000000;
    tacit_status status = TACIT_ERR_IO;
    for (*fd = -1; status != TACIT_OK;) {
        *fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        bool connected = *fd >= 0 && connect(*fd, a->ai_addr, a->ai_addrlen) == 0;
        if (connected && !is_own_end(*fd)) {
            status = TACIT_OK;
            break;
        }
        int why = connected ? ECONNREFUSED : errno;
        if (*fd >= 0)
            close(*fd);
        *fd = -1;
        if (clock_ns() >= deadline || (why != ECONNREFUSED && why != EINTR)) {
            error_record(err, TACIT_ERR_PEER, "cannot connect to %s: %s", address, strerror(why));
            status = TACIT_ERR_PEER;
            break;
        }
        poll(NULL, 0, 20); /* the server may still be starting */
    }
    freeaddrinfo(a);
    return status;
}
