/* SPDX-License-Identifier: Apache-2.0
 * A line with delay and a limited rate, on the loopback: a process between the parties that keeps
 * every byte for as long as the line would. All connections share the rate of a direction. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cpu.h"
#include "bench.h"

enum { PAIRS = 16, PIECE = 16384 };

typedef struct piece {
    struct piece *next;
    uint64_t due;
    size_t size, sent;
    uint8_t data[PIECE];
} piece;
typedef struct side {
    int in, out;
    piece *first, *last;
    bool closed;
} side;
typedef struct relay {
    double rate;
    uint64_t delay, busy[2]; /* ns: one way; until when the line is taken, by direction */
    side ends[2 * PAIRS];    /* even: towards the server */
    int count;
} relay;

static struct sockaddr_in local(int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return a;
}
static void prepare(int fd)
{
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

static void take_in(relay *r, side *s, int direction)
{
    for (;;) {
        piece *p = malloc(sizeof *p);
        ssize_t n = p ? recv(s->in, p->data, PIECE, 0) : -1;
        if (n <= 0) {
            s->closed |= n == 0 || (errno != EAGAIN && errno != EINTR);
            free(p);
            return;
        }
        uint64_t now = clock_ns(), start = now > r->busy[direction] ? now : r->busy[direction];
        r->busy[direction] = start + (r->rate > 0 ? (uint64_t)((double)n / r->rate * 1e9) : 0);
        p->due = r->busy[direction] + r->delay;
        p->size = (size_t)n;
        p->sent = 0;
        p->next = NULL;
        if (s->last)
            s->last->next = p;
        else
            s->first = p;
        s->last = p;
    }
}
/* When the next piece is due; UINT64_MAX: none. */
static uint64_t give_out(side *s)
{
    while (s->first && s->first->due <= clock_ns()) {
        piece *p = s->first;
        ssize_t n = send(s->out, p->data + p->sent, p->size - p->sent, MSG_NOSIGNAL);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return clock_ns() + 20000;
        p->sent += n > 0 ? (size_t)n : p->size;
        if (p->sent < p->size)
            continue;
        s->first = p->next;
        if (!s->first)
            s->last = NULL;
        free(p);
    }
    if (s->closed && !s->first && s->out >= 0) {
        shutdown(s->out, SHUT_WR);
        s->out = -1;
    }
    return s->first ? s->first->due : UINT64_MAX;
}

/* The server may still be starting. */
static int reach(int to)
{
    struct sockaddr_in a = local(to);
    for (int i = 0; i < 3000; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a) == 0)
            return fd;
        close(fd);
        poll(NULL, 0, 20);
    }
    return -1;
}

static void serve(relay *r, int listener, int to)
{
    for (;;) {
        struct pollfd p[2 * PAIRS + 1] = {{.fd = listener, .events = POLLIN}};
        uint64_t next = UINT64_MAX;
        for (int i = 0; i < r->count; i++) {
            uint64_t due = give_out(&r->ends[i]);
            next = due < next ? due : next;
            p[i + 1] =
                (struct pollfd){.fd = r->ends[i].closed ? -1 : r->ends[i].in, .events = POLLIN};
        }
        uint64_t now = clock_ns(), wait = next == UINT64_MAX ? 100000000
                                          : next > now       ? next - now
                                                             : 0;
        struct timespec t = {(time_t)(wait / 1000000000), (long)(wait % 1000000000)};
        if (ppoll(p, (nfds_t)r->count + 1, &t, NULL) < 0 && errno != EINTR)
            return;
        for (int i = 0; i < r->count; i++)
            if (p[i + 1].revents)
                take_in(r, &r->ends[i], i % 2);
        if ((p[0].revents & POLLIN) && r->count + 2 <= 2 * PAIRS) {
            int client = accept(listener, NULL, NULL), server = reach(to);
            if (client < 0 || server < 0)
                return;
            prepare(client);
            prepare(server);
            r->ends[r->count++] = (side){.in = client, .out = server};
            r->ends[r->count++] = (side){.in = server, .out = client};
        }
    }
}

int relay_start(int from, int to, const net *line)
{
    struct sockaddr_in a = local(from);
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&a, sizeof a) != 0 || listen(listener, 8) != 0)
        return 0;
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        prctl(PR_SET_TIMERSLACK, 1000);
        relay r = {.rate = line->rate, .delay = (uint64_t)(line->delay * 0.5e9)};
        serve(&r, listener, to);
        _exit(0);
    }
    close(listener);
    return pid;
}
void relay_stop(int pid)
{
    kill(pid, SIGTERM);
    waitpid(pid, NULL, 0);
}
