/* SPDX-License-Identifier: Apache-2.0
 * Alone or together? Where others use the machine, too, or where CPUs are far from each other (a
 * host moves them as it likes), a second CPU is worth less than it seems, and the caller may be
 * faster alone. Single runs say nothing there: one loses its CPU, the next does not. So runs are
 * counted in turns, each long enough for everybody to have had the CPU a few times. The way that is
 * better on average is the rule, and now and then a turn is made the other way, to know: as long as
 * the answer is the same, four times as seldom each time, or sixteen if it is clear. A turn
 * together that takes less than undisturbed ones alone do ends all that: what was seen under
 * disturbances is forgotten. Beside neighbours turns alone are longer. When workers go to sleep or
 * wake, it takes the kernel 0.1 s to spread all that run over the CPUs anew; only then it shows
 * what the caller gets alone, and each look at how it is together costs that much again. Results
 * are the same either way. */
#ifndef TASK_PACE_H
#define TASK_PACE_H

#include <stdbool.h>
#include <stdint.h>

#define TASK_PACE_TURN 0.03 /* seconds: several of a scheduler's rounds, of 4 to 8 ms */
#define TASK_PACE_GAIN 0.95 /* of the time alone: what workers must do with to be back */
#define TASK_PACE_CLEAR 1.5 /* of the better way's time: a quarter of such a look is enough */
enum {
    TASK_PACE_LONG = 8,     /* turns one alone beside neighbours is as long as */
    TASK_PACE_FIRST = 4,    /* turns before the first look: caches are warm then */
    TASK_PACE_MOST = 256,   /* turns together between two looks… */
    TASK_PACE_ALONE = 8,    /* …of which each alone counts as so many: one look a second… */
    TASK_PACE_CROWDED = 16, /* …and beside neighbours: one in 4 s; looks cost 1 to 2 % then */
    TASK_PACE_MEMORY = 16,  /* turns an average is of… */
    TASK_PACE_KEPT = 1,     /* …and of those together that go on undisturbed */
};

/* What a run takes, on average over so many of the last turns; 0: not known. */
typedef struct task_pace_average {
    double run;
    uint32_t turns;
} task_pace_average;

typedef struct task_pace {
    task_pace_average way[2]; /* together, alone */
    task_pace_average solo;   /* alone without neighbours */
    bool alone;               /* how this turn is made… */
    bool better;              /* …and which way is the better one, true: alone */
    bool crowded;             /* this turn is made alone beside neighbours */
    bool changed;             /* the next run is the first this way: a short one does not count */
    uint32_t stay, left;      /* turns the better way until the next look; how many are left */
    uint32_t runs;
    double took; /* in this turn */
} task_pace;

/* A look that need not go on, nor be made again soon. */
static inline bool task_pace_clear(const task_pace *p)
{
    return p->alone != p->better && p->took > TASK_PACE_CLEAR * p->runs * p->way[p->better].run;
}

static inline bool task_pace_over(const task_pace *p, double turn)
{
    return p->took >= turn || (4 * p->took >= turn && task_pace_clear(p));
}

/* After each run: is the turn over? `second`: in the unit of `took`. */
static inline bool task_pace_note(task_pace *p, double took, double second)
{
    double turn = TASK_PACE_TURN * second;
    bool cold = p->changed && took < turn;
    p->changed = false;
    if (cold) /* workers or caches were asleep */
        return false;
    p->runs++;
    p->took += took;
    return task_pace_over(p, p->crowded ? TASK_PACE_LONG * turn : turn);
}

static inline void task_pace_average_add(task_pace_average *a, double run)
{
    a->turns += a->turns < TASK_PACE_MEMORY;
    a->run += (run - a->run) / a->turns;
}

static inline void task_pace_count(task_pace *p, double run)
{
    if (p->alone && !p->crowded)
        task_pace_average_add(&p->solo, run);
    if (!p->alone && run <= p->solo.run) { /* nobody disturbs, neither would they the caller */
        uint32_t kept = p->better ? 0 : TASK_PACE_KEPT;
        p->way[0].turns = p->way[0].turns < kept ? p->way[0].turns : kept;
        p->way[1] = p->solo;
    }
    task_pace_average_add(&p->way[p->alone], run);
}

/* After each turn. `room`: there are CPUs for the workers that nobody uses, as far as one can see;
 * counts after turns alone. */
static inline void task_pace_next(task_pace *p, bool room, double second)
{
    bool was = p->alone, clear = task_pace_clear(p);
    if (was && !room && !p->crowded) {
        p->crowded = true;
        if (!task_pace_over(p, TASK_PACE_LONG * TASK_PACE_TURN * second)) {
            p->took = 0; /* before all were spread anew */
            p->runs = 0;
            return;
        }
    }
    task_pace_count(p, p->took / p->runs);
    p->took = 0;
    p->runs = 0;
    uint32_t step = p->crowded ? TASK_PACE_CROWDED : was ? TASK_PACE_ALONE : 1;
    p->crowded = false;
    bool better =
        p->way[1].turns && p->way[1].run * (p->better ? TASK_PACE_GAIN : 1) < p->way[0].run;
    if (!p->stay) {
        p->left = p->stay = TASK_PACE_FIRST;
    } else if (better != p->better) {
        p->left = p->stay = 1;
    } else if (was != better) { /* a look that changed nothing */
        p->stay *= clear ? 16 : 4;
        p->left = p->stay = p->stay < TASK_PACE_MOST ? p->stay : TASK_PACE_MOST;
    } else {
        p->left -= p->left < step ? p->left : step;
    }
    p->better = better;
    p->alone = p->left ? better : !better;
    p->changed = p->alone != was;
}

#endif
