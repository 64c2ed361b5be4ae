/* SPDX-License-Identifier: Apache-2.0 */
#include "line.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cpu.h"

enum { PIECE = 16384 };

struct line_piece {
    line_piece *next;
    uint64_t due;
    size_t size, sent;
    uint8_t data[PIECE];
};

void line_take(line_way *w, const net *line)
{
    for (;;) {
        line_piece *p = malloc(sizeof *p);
        ssize_t n = p ? read(w->from, p->data, PIECE) : -1;
        if (n <= 0) {
            w->closed |= n == 0 || (errno != EAGAIN && errno != EINTR);
            free(p);
            return;
        }
        uint64_t now = clock_ns();
        *w->busy = now > *w->busy ? now : *w->busy;
        *w->busy += line->rate > 0 ? (uint64_t)((double)n / line->rate * 1e9) : 0;
        p->due = *w->busy + (uint64_t)(line->delay * 0.5e9);
        p->size = (size_t)n;
        p->sent = 0;
        p->next = NULL;
        if (w->last)
            w->last->next = p;
        else
            w->first = p;
        w->last = p;
    }
}

uint64_t line_give(line_way *w)
{
    while (w->first && w->first->due <= clock_ns()) {
        line_piece *p = w->first;
        ssize_t n = write(w->to, p->data + p->sent, p->size - p->sent);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return clock_ns() + 20000;
        p->sent += n > 0 && !w->packets ? (size_t)n : p->size;
        if (p->sent < p->size)
            continue;
        w->first = p->next;
        if (!w->first)
            w->last = NULL;
        free(p);
    }
    return w->first ? w->first->due : UINT64_MAX;
}

bool line_wait(struct pollfd *p, int count, uint64_t next)
{
    uint64_t now = clock_ns(), wait = next == UINT64_MAX ? 100000000 : next > now ? next - now : 0;
    struct timespec t = {(time_t)(wait / 1000000000), (long)(wait % 1000000000)};
    return ppoll(p, (nfds_t)count, &t, NULL) >= 0 || errno == EINTR;
}

int line_fork(void)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        prctl(PR_SET_TIMERSLACK, 1000);
        signal(SIGPIPE, SIG_IGN);
    }
    return pid;
}

void line_end(int pid)
{
    kill(pid, SIGTERM);
    waitpid(pid, NULL, 0);
}
