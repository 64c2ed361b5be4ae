/* SPDX-License-Identifier: Apache-2.0
 * Alone or together? Where others use the machine, too, a second CPU is worth less than it seems,
 * and the caller may be faster alone. Single runs say nothing there: one loses its CPU, the next
 * does not. So runs are counted in turns, each long enough for everybody to have had the CPU a few
 * times. While nobody takes CPUs from the process all turns are together. Otherwise the better way
 * so far is the rule, and now and then a turn is made the other way, to know: at first every other
 * one, then, as long as the answer is the same, half as often each time. Hence a disturbance costs
 * hardly longer than it lasts; and once a turn together passes undisturbed all of this is
 * forgotten.
 * CPUs may also be far from each other (a host moves them as it likes), and then nobody waits but
 * everything takes longer. So one of the first runs is made alone, to know what that takes: turns
 * together that are slower count as disturbed. Results are the same either way. */
#ifndef TASK_PACE_H
#define TASK_PACE_H

#include <stdbool.h>
#include <stdint.h>

#define TASK_PACE_TURN 0.03  /* seconds: several of a scheduler's rounds, of 4 to 8 ms */
#define TASK_PACE_GAIN 0.95  /* of the time alone: what workers must do with to be back */
#define TASK_PACE_SHARED 0.3 /* of a CPU: a neighbour takes half of one, a machine at rest 0.1 */
#define TASK_PACE_FIRST 0.1  /* seconds of runs before the one that is made alone */
enum {
    TASK_PACE_EARLY = 3,   /* …and runs */
    TASK_PACE_MOST = 32,   /* turns between two looks, which cost 1 to 2 % then */
    TASK_PACE_MEMORY = 16, /* turns an average is of */
};

typedef struct task_pace {
    struct {
        double run;      /* what one takes, on average… */
        uint32_t turns;  /* …over so many of the last turns; 0: not known */
    } way[2];            /* together, alone */
    bool alone;          /* how this turn is made… */
    bool better;         /* …and which way is the better one, true: alone */
    bool waking;         /* the next run finds the workers asleep: a short one does not count */
    uint32_t stay, left; /* turns the better way until the next look; how many are left */
    uint32_t runs;
    double took;       /* in this turn */
    double solo;       /* what a run alone took last; 0: not known */
    double early_took; /* until then: all runs… */
    uint32_t early;    /* …and how many there were */
    bool probing;      /* the next run is the one to know it */
} task_pace;

/* How the next run shall be made. */
static inline bool task_pace_alone(const task_pace *p)
{
    return p->alone || p->probing;
}

/* Is it time for the run that is made alone? That one itself does not count. */
static inline bool task_pace_probe(task_pace *p, double took, double second)
{
    if (p->probing) {
        p->solo = took;
        p->probing = false;
        p->waking = true;
        return true;
    }
    p->early_took += took;
    p->early += p->early < TASK_PACE_EARLY;
    p->probing = p->early == TASK_PACE_EARLY && p->early_took >= TASK_PACE_FIRST * second;
    return false;
}

static inline bool task_pace_begins(const task_pace *p)
{
    return p->runs == 0;
}

/* After each run: is the turn over? `second`: in the unit of `took`. */
static inline bool task_pace_note(task_pace *p, double took, double second)
{
    if (!(p->solo > 0) && !p->alone && task_pace_probe(p, took, second))
        return false;
    bool waking = p->waking, whole = took >= TASK_PACE_TURN * second;
    p->waking = false;
    if (waking && !whole)
        return false;
    p->runs++;
    p->took += took;
    return p->took >= TASK_PACE_TURN * second;
}

/* After each turn. `waited`: for CPUs that others had, all threads together. */
static inline void task_pace_next(task_pace *p, double waited)
{
    bool was = p->alone, known = p->way[!was].turns > 0;
    double run = p->took / p->runs;
    bool slower = p->solo > 0 && run > p->solo;
    if (!was && !slower && waited < TASK_PACE_SHARED * p->took) {
        *p = (task_pace){
            .solo = p->solo, .early_took = p->early_took, .early = p->early, .probing = p->probing};
        return;
    }
    if (was)
        p->solo = run;
    p->way[was].turns += p->way[was].turns < TASK_PACE_MEMORY;
    p->way[was].run += (run - p->way[was].run) / p->way[was].turns;
    p->took = 0;
    p->runs = 0;
    bool better = known && p->way[1].run * (p->better ? TASK_PACE_GAIN : 1) < p->way[0].run;
    if (better != p->better) {
        p->better = better;
        p->left = p->stay = 1;
    } else if (was != better) { /* a look that changed nothing */
        p->stay = p->stay ? 2 * p->stay : 1;
        p->left = p->stay = p->stay < TASK_PACE_MOST ? p->stay : TASK_PACE_MOST;
    }
    p->alone = p->left ? better : !better;
    p->left -= p->left > 0;
    p->waking = was && !p->alone;
}

#endif
