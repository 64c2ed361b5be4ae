/* SPDX-License-Identifier: Apache-2.0
 * The line between the parties: frames over TCP, inside TLS 1.3 with certificates of both sides.
 *
 * Every frame has a kind, a number and a length; both sides know beforehand which one comes next
 * and how long it is, and anything else ends the session. All waiting has a limit. */
#ifndef SECURE_CHANNEL_H
#define SECURE_CHANNEL_H

#include "secure/program.h"

enum { FRAME_HEADER = 24 };
typedef enum frame_kind { FRAME_HELLO = 1, FRAME_DATA, FRAME_ABORT, FRAME_KINDS } frame_kind;
typedef struct frame {
    frame_kind kind;
    uint32_t number;
    uint64_t length;
} frame;
void frame_write(const frame *f, uint8_t out[FRAME_HEADER]);
tacit_status frame_read(const uint8_t in[FRAME_HEADER], frame *f, tacit_error *err);

/* A message under way in both directions. */
typedef struct transfer {
    uint8_t out_header[FRAME_HEADER], in_header[FRAME_HEADER];
    const uint8_t *out;
    uint8_t *in;
    size_t out_at, out_ready, out_end, in_at, in_end; /* headers included */
    bool checked;                                     /* the incoming header */
} transfer;

typedef struct channel {
    int fd;
    void *tls;     /* SSL *, or NULL on a plain line (tests) */
    void *context; /* SSL_CTX * */
    void *method;  /* BIO_METHOD * */
    int timeout_ms;
    uint32_t sent_frames, received_frames;
    uint64_t sent, received;
    frame_kind kind;  /* of the frames exchanged now */
    uint64_t spin_ns; /* look again for so long before sleeping; for parties with cores to spare */
    transfer now;
} channel;

/* A plain line over a connected socket. */
void channel_plain(channel *c, int fd, int timeout_ms);
/* Certificates from a folder made by channel_make_certificates: ca.pem, and server.pem/.key or
 * client.pem/.key. */
tacit_status channel_secure(channel *c, unsigned party, const char *folder, tacit_error *err);
void channel_close(channel *c);
/* Sends out (when not NULL) and receives in_size bytes (when not 0), both at once. */
tacit_status channel_exchange(void *channel, const void *out, size_t out_size, void *in,
                              size_t in_size, tacit_error *err);
/* The same in parts, so that sending overlaps with the making of what is sent: begin; push as often
 * as more of `out` is final (sends and receives what goes without waiting); end waits for the
 * rest. */
tacit_status channel_begin(void *channel, const void *out, size_t out_size, void *in,
                           size_t in_size, tacit_error *err);
tacit_status channel_push(void *channel, size_t ready, tacit_error *err);
tacit_status channel_end(void *channel, tacit_error *err);
/* Tells the peer that this side gives up; best effort. */
void channel_abort(channel *c, tacit_status why);

/* "HOST:PORT" */
tacit_status channel_listen(const char *address, int *fd, tacit_error *err);
tacit_status channel_accept(int listener, int timeout_ms, int *fd, tacit_error *err);
tacit_status channel_connect(const char *address, int timeout_ms, int *fd, tacit_error *err);

/* A certificate authority of its own and certificates for both parties, valid for some days. */
tacit_status channel_make_certificates(const char *folder, int days, tacit_error *err);

#endif
