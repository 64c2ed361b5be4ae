/* SPDX-License-Identifier: Apache-2.0
 * Alone or together? Where others use the machine, too, a worker may lose its CPU in the middle of
 * a node, and then everybody waits for it: a run with workers can take longer than one without. So
 * a graph remembers how long its runs take either way. While runs together are the faster ones
 * nothing happens; once they are on average slower than alone, some runs are made
 * alone, then a few together to see whether the neighbours have gone, and so on, ever less often.
 * The workers have gone to sleep meanwhile: the run that wakes them does not count, and no single
 * run decides.
 * Results are the same either way. */
#ifndef TASK_PACE_H
#define TASK_PACE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    TASK_PACE_LONGEST = 128, /* runs alone before the next try */
    TASK_PACE_TRIES = 3,     /* runs of a try */
};

typedef struct task_pace {
    double together, alone; /* what a run takes, on average; 0: not known */
    double best;            /* the fastest together */
    uint32_t left, backoff; /* runs alone to come; how many the next time */
    uint32_t tries;         /* runs together that count, up to TASK_PACE_TRIES */
    bool waking;            /* the next run together finds the workers asleep */
} task_pace;

static inline bool task_pace_alone(const task_pace *p)
{
    return p->left > 0;
}

static inline double task_pace_mean(double old, double took)
{
    return old > 0 ? old + (took - old) / 4 : took;
}

/* After each run; `work`: what all nodes take together as far as known, 0: unknown. */
static inline void task_pace_note(task_pace *p, bool alone, double took, double work)
{
    if (alone) {
        p->alone = task_pace_mean(p->alone, took);
        p->waking = --p->left == 0;
        return;
    }
    if (p->waking) {
        p->waking = false;
        return;
    }
    p->best = p->best > 0 && p->best < took ? p->best : took;
    p->together = task_pace_mean(p->together, took);
    if (p->tries < TASK_PACE_TRIES && ++p->tries < TASK_PACE_TRIES)
        return;
    double alone_takes = p->alone > 0 ? p->alone : work;
    if (alone_takes > 0 ? p->together <= alone_takes : took < 1.5 * p->best) {
        p->backoff = 1;
        return;
    }
    p->left = p->backoff ? p->backoff : 1;
    if (!(alone_takes > 0)) {
        p->left = 1; /* to know */
        return;
    }
    p->alone = alone_takes;
    p->backoff = 4 * p->left < TASK_PACE_LONGEST ? 4 * p->left : TASK_PACE_LONGEST;
    p->together = 0; /* the next try counts afresh */
    p->tries = 0;
}

#endif
