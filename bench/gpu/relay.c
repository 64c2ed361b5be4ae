/* SPDX-License-Identifier: Apache-2.0
 * A line with delay and a limited rate, on the loopback: a process between the parties that keeps
 * every byte for as long as the line would. All connections share the rate of a direction. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "line.h"

enum { PAIRS = 16 };

typedef struct relay {
    const net *line;
    uint64_t busy[2];
    line_way ways[2 * PAIRS]; /* even: towards the server */
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

/* What is due goes on, and the end of what came, too. */
static uint64_t pass_on(line_way *w)
{
    uint64_t next = line_give(w);
    if (w->closed && !w->first && w->to >= 0) {
        shutdown(w->to, SHUT_WR);
        w->to = -1;
    }
    return next;
}

static void serve(relay *r, int listener, int to)
{
    for (;;) {
        struct pollfd p[2 * PAIRS + 1] = {{.fd = listener, .events = POLLIN}};
        uint64_t next = UINT64_MAX;
        for (int i = 0; i < r->count; i++) {
            uint64_t due = pass_on(&r->ways[i]);
            next = due < next ? due : next;
            p[i + 1] =
                (struct pollfd){.fd = r->ways[i].closed ? -1 : r->ways[i].from, .events = POLLIN};
        }
        if (!line_wait(p, r->count + 1, next))
            return;
        for (int i = 0; i < r->count; i++)
            if (p[i + 1].revents)
                line_take(&r->ways[i], r->line);
        if ((p[0].revents & POLLIN) && r->count + 2 <= 2 * PAIRS) {
            int client = accept(listener, NULL, NULL), server = reach(to);
            if (client < 0 || server < 0)
                return;
            prepare(client);
            prepare(server);
            r->ways[r->count++] = (line_way){.from = client, .to = server, .busy = &r->busy[0]};
            r->ways[r->count++] = (line_way){.from = server, .to = client, .busy = &r->busy[1]};
        }
    }
}

int relay_start(int from, int to, const net *line)
{
    struct sockaddr_in a = local(from);
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&a, sizeof a) != 0 || listen(listener, 8) != 0) {
        close(listener);
        return 0;
    }
    int pid = line_fork();
    if (pid == 0) {
        relay r = {.line = line};
        serve(&r, listener, to);
        _exit(0);
    }
    close(listener);
    return pid > 0 ? pid : 0;
}
