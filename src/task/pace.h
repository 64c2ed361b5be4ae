/* SPDX-License-Identifier: Apache-2.0
 * Alone or together? Where others use the machine, too, a worker may lose its CPU in the middle of
 * a node, and then everybody waits for it: a run with workers can take longer than one without. So
 * a graph remembers how long its runs take either way. While nobody takes CPUs from the process
 * nothing happens; otherwise some runs are made alone, to know, and again now and then unless those
 * together are clearly faster. (What all nodes take one after another is no measure: beside one
 * another they share the memory's bandwidth.)
 * Once runs together are on average slower, some are made alone, then a few together to see whether
 * the neighbours have gone, and so on, ever less often.
 * The workers have gone to sleep meanwhile: the run that wakes them does not count, and no single
 * run decides.
 * Results are the same either way. */
#ifndef TASK_PACE_H
#define TASK_PACE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    TASK_PACE_LEAST = 64, /* runs alone before the next try, at the longest: about two seconds… */
    TASK_PACE_MOST = 1024, /* …but between so many */
    TASK_PACE_TRIES = 3,   /* runs of a try… */
    TASK_PACE_RUNS = 8,    /* …and those that decide where all was well before */
    TASK_PACE_LOOK = 64,   /* runs together after which what a run alone takes may have changed */
    TASK_PACE_LOOKS = 8,   /* runs alone, to know that */
};
#define TASK_PACE_CLEARLY 0.8 /* of the time alone */
#define TASK_PACE_ENOUGH 0.97 /* the same: below that workers stay; both times are estimates */

typedef struct task_pace {
    double together, alone; /* what a run takes, on average; 0: not known */
    uint32_t left, backoff; /* runs alone to come; how many the next time */
    uint32_t tries;         /* runs that `together` is of… */
    uint32_t alone_runs;    /* …and `alone` */
    uint32_t since;         /* runs together since one alone */
    bool disturbed;         /* others took CPUs from the process */
    bool waking;            /* the next run together finds the workers asleep */
} task_pace;

static inline bool task_pace_alone(const task_pace *p)
{
    return p->left > 0;
}

/* Of the last `most` runs, about, or of all of them so far. */
static inline double task_pace_mean(double old, double took, uint32_t *runs, uint32_t most)
{
    *runs += *runs < most;
    return old + (took - old) / *runs;
}

static inline uint32_t task_pace_longest(double alone, double second)
{
    double runs = 2 * second / alone;
    return runs < TASK_PACE_LEAST  ? TASK_PACE_LEAST
           : runs > TASK_PACE_MOST ? TASK_PACE_MOST
                                   : (uint32_t)runs;
}

/* Is it worth some runs to know what one alone takes? */
static inline bool task_pace_curious(const task_pace *p)
{
    if (p->alone > 0)
        return p->since >= TASK_PACE_LOOK && p->together > TASK_PACE_CLEARLY * p->alone;
    return p->disturbed;
}

/* Shall the caller say now whether the process has lost CPUs since he was asked last? */
static inline bool task_pace_asks(const task_pace *p)
{
    return !(p->alone > 0) && p->since % TASK_PACE_RUNS == 0;
}

/* After each run; `second`: in the unit of `took`. */
static inline void task_pace_note(task_pace *p, bool alone, double took, double second)
{
    if (alone) {
        p->alone = task_pace_mean(p->alone, took, &p->alone_runs, 4 * TASK_PACE_LOOKS);
        p->waking = --p->left == 0;
        p->since = 0;
        return;
    }
    p->since++;
    if (p->waking) {
        p->waking = false;
        return;
    }
    p->together = task_pace_mean(p->together, took, &p->tries, TASK_PACE_RUNS);
    if (p->tries < (p->backoff > 1 ? TASK_PACE_TRIES : TASK_PACE_RUNS))
        return;
    if (task_pace_curious(p)) {
        p->left = TASK_PACE_LOOKS;
        return;
    }
    if (!(p->alone > 0) || p->together <= TASK_PACE_ENOUGH * p->alone) {
        p->backoff = 1;
        return;
    }
    uint32_t longest = task_pace_longest(p->alone, second);
    p->left = p->backoff ? p->backoff : 1;
    p->backoff = 4 * p->left < longest ? 4 * p->left : longest;
    p->together = 0; /* the next try counts afresh */
    p->tries = 0;
}

#endif
