/* SPDX-License-Identifier: Apache-2.0
 * Headers of frames: what is read must be what it would be written as. Then the same bytes as a
 * peer's side of two exchanges: whatever comes, they end, and what is taken is what was due. */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "secure/channel.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void exchange(const uint8_t *data, size_t size)
{
    enum { DUE = 8 };
    int fds[2];
    channel c;
    uint8_t in[DUE + 8] = {0};
    if (size > 4096 || socketpair(AF_UNIX, SOCK_STREAM, 0, fds) != 0)
        return;
    if (write(fds[1], data, size) != (ssize_t)size)
        abort();
    shutdown(fds[1], SHUT_WR);
    channel_plain(&c, fds[0], 1000);
    tacit_error err;
    uint64_t frames = 0;
    while (frames < 2 && channel_exchange(&c, NULL, 0, in, DUE, &err) == TACIT_OK)
        frames++;
    if (size < frames * (FRAME_HEADER + DUE) || c.received_frames != frames)
        abort();
    for (int i = DUE; i < DUE + 8; i++)
        if (in[i])
            abort();
    channel_close(&c);
    close(fds[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    frame f;
    exchange(data, size);
    uint8_t again[FRAME_HEADER];
    if (size < FRAME_HEADER || frame_read(data, &f, NULL) != TACIT_OK)
        return 0;
    frame_write(&f, again);
    if (memcmp(again, data, FRAME_HEADER) != 0)
        abort();
    return 0;
}
