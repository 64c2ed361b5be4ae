/* SPDX-License-Identifier: Apache-2.0 */
#include "base/progress.h"

#include <stdio.h>
#include <unistd.h>

#include "base/cpu.h"

enum { BAR_WIDTH = 28 };

void progress_begin(progress *p, const char *label, uint64_t total)
{
    *p = (progress){.label = label, .total = total ? total : 1, .started_ns = clock_ns()};
    p->visible = isatty(STDERR_FILENO) == 1;
}

void progress_update(progress *p, uint64_t done, const char *note)
{
    uint64_t now = p->visible ? clock_ns() : 0;
    if (!p->visible || now - p->drawn_ns < 100000000u)
        return;
    p->drawn_ns = now;
    if (done > p->total)
        done = p->total;
    char bar[BAR_WIDTH + 1];
    uint64_t filled = done * BAR_WIDTH / p->total;
    for (uint64_t i = 0; i < BAR_WIDTH; i++)
        bar[i] = i < filled ? '#' : '.';
    bar[BAR_WIDTH] = '\0';
    double seconds = (double)(now - p->started_ns) * 1e-9;
    double left = done ? seconds * (double)(p->total - done) / (double)done : 0;
    fprintf(stderr, "\r\033[K%s [%s] %3u%% %.0fs left %s", p->label, bar,
            (unsigned)(done * 100 / p->total), left, note ? note : "");
    fflush(stderr);
}

void progress_end(progress *p)
{
    if (p->visible && p->drawn_ns)
        fprintf(stderr, "\r\033[K");
    p->visible = false;
}
