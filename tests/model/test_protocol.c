/* SPDX-License-Identifier: Apache-2.0
 * Explicit-state model of submit, complete, retire and scopes: every interleaving of one
 * orchestrator and two workers over small programs. Each atomic step of the runtime is one step
 * here. Checked: a task runs once, after its producers; references and counts never go below zero;
 * a slot is not reused before its task is consumed; retained memory outlives its readers; failure
 * reaches exactly the consumers; nothing gets stuck, except where the pin rule says so, and
 * there always. Seeded bugs must be found. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* after the above */
#include <cmocka.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

enum { MAX_TASKS = 6, MAX_OPS = 16, MAX_WINDOW = 4, WORKERS = 2, NONE = 0xff };

typedef enum bug {
    NO_BUG,
    NO_RECHECK,  /* a link that came too late does not count down */
    PEND_LATE,   /* the count of producers is set after linking */
    RANGE_WALK,  /* scope end drops a reference of every task in its range */
    EARLY_FLAG,  /* consumed at completion, whatever the references */
    DROP_FIRST,  /* retained producers are let go before the kernel runs */
    POISON_LATE, /* consumers are counted down before they are poisoned */
    BUGS
} bug;

typedef enum op_kind { BEGIN, FINISH, TASK } op_kind;
typedef struct op {
    op_kind kind;
    uint8_t deps, retains; /* sets of tasks */
    bool fails;
} op;

typedef struct program {
    op ops[MAX_OPS];
    int count, tasks;
    op *task[MAX_TASKS];
} program;

typedef struct slot {
    uint8_t id, sealed, successors, refs, pend, consumed, failed, poison;
} slot;

typedef enum phase { IDLE, RUN, SEAL, FLAG, WALK, COUNT, RETAINS, DROP_FLAG } phase;
typedef struct worker {
    uint8_t phase, task, list, retains, flag, failed, current;
} worker;

typedef struct state {
    slot slots[MAX_WINDOW];
    worker workers[WORKERS];
    uint8_t pc, sub, sub_task, sub_deps, sub_ready, sub_flag; /* the orchestrator */
    uint8_t next, tail, depth, tokens;
    uint8_t begins[4];
    uint8_t queue, ran, done, failed;
} state;

enum sub { NOTHING, LINKING, ENDING, END_FLAG };

typedef struct search {
    const program *p;
    int window;
    bug bug;
    state *seen;
    uint32_t capacity, used;
    const char *error;
    bool deadlock;
} search;

static bool in(uint8_t set, int i)
{
    return set >> i & 1;
}

static void wrong(search *s, const char *what)
{
    if (!s->error)
        s->error = what;
}

/* Which tasks fail or are poisoned, whatever the schedule. */
static uint8_t expected_failures(const program *p)
{
    uint8_t f = 0;
    for (int i = 0; i < p->tasks; i++)
        if (p->task[i]->fails || (p->task[i]->deps & f))
            f |= (uint8_t)(1 << i);
    return f;
}

static void visit(search *s, const state *x);

static slot *slot_of(search *s, state *x, int id)
{
    return &x->slots[id % s->window];
}

/* ---- orchestrator ------------------------------------------------------------------------- */

static void start_submit(search *s, const state *old)
{
    state x = *old;
    const op *o = &s->p->ops[x.pc];
    slot *t = slot_of(s, &x, x.next);
    if (t->id != NONE && t->consumed != t->id)
        wrong(s, "slot reused before its task was consumed");
    uint8_t deps = 0, poison = 0, pend = 0;
    for (int d = 0; d < x.next; d++) {
        if (!in(o->deps, d))
            continue;
        slot *p = slot_of(s, &x, d);
        if (d < x.tail || p->sealed) {
            poison |= in(x.failed, d); /* remembered by slot or by the list of failures */
            continue;
        }
        deps |= (uint8_t)(1 << d);
        pend++;
    }
    for (int r = 0; r < x.next; r++)
        if (in(o->retains, r)) {
            if (!in(x.tokens, r) || slot_of(s, &x, r)->id != r)
                wrong(s, "retained a task outside its scope");
            slot_of(s, &x, r)->refs++;
        }
    *t = (slot){.id = x.next,
                .refs = (uint8_t)(1 + (x.depth > 0)),
                .pend = s->bug == PEND_LATE ? 0 : pend,
                .consumed = t->consumed,
                .poison = poison};
    if (x.depth)
        x.tokens |= (uint8_t)(1 << x.next);
    x.sub = LINKING;
    x.sub_deps = deps;
    x.sub_ready = pend == 0;
    visit(s, &x);
}

static void link_one(search *s, const state *old)
{
    state x = *old;
    slot *t = slot_of(s, &x, x.next);
    if (!x.sub_deps) {
        if (x.sub_ready)
            x.queue |= (uint8_t)(1 << x.next);
        x.sub = NOTHING;
        x.next++;
        x.pc++;
        visit(s, &x);
        return;
    }
    int d = __builtin_ctz(x.sub_deps);
    slot *p = slot_of(s, &x, d);
    x.sub_deps &= (uint8_t) ~(1 << d);
    if (s->bug == PEND_LATE)
        t->pend++;
    if (p->sealed) {
        t->poison |= p->failed;
        if (s->bug != NO_RECHECK)
            x.sub_ready |= --t->pend == 0;
    } else {
        p->successors |= (uint8_t)(1 << x.next);
    }
    visit(s, &x);
}

static void end_one(search *s, const state *old)
{
    state x = *old;
    if (x.sub == END_FLAG) {
        slot_of(s, &x, x.sub_flag)->consumed = x.sub_flag;
        x.sub = ENDING;
        visit(s, &x);
        return;
    }
    if (x.sub_task == x.next) {
        x.sub = NOTHING;
        x.depth--;
        x.pc++;
        visit(s, &x);
        return;
    }
    int id = x.sub_task++;
    bool drop = s->bug == RANGE_WALK ? id >= x.tail : in(x.tokens, id);
    x.tokens &= (uint8_t) ~(1 << id);
    if (drop) {
        slot *t = slot_of(s, &x, id);
        if (t->id != id || t->refs == 0)
            wrong(s, "reference count below zero");
        if (--t->refs == 0) {
            x.sub = END_FLAG;
            x.sub_flag = (uint8_t)id;
        }
    }
    visit(s, &x);
}

static bool retire_one(search *s, const state *old)
{
    if (old->tail == old->next || old->slots[old->tail % s->window].consumed != old->tail)
        return false;
    state x = *old;
    x.tail++;
    visit(s, &x);
    return true;
}

static bool orchestrate(search *s, const state *old)
{
    if (old->sub == LINKING) {
        link_one(s, old);
        return true;
    }
    if (old->sub == ENDING || old->sub == END_FLAG) {
        end_one(s, old);
        return true;
    }
    if (old->pc == s->p->count)
        return retire_one(s, old);
    state x = *old;
    switch (s->p->ops[x.pc].kind) {
    case BEGIN:
        x.begins[x.depth++] = x.next;
        x.pc++;
        visit(s, &x);
        return true;
    case FINISH:
        x.sub = ENDING;
        x.sub_task = x.begins[x.depth - 1];
        visit(s, &x);
        return true;
    case TASK:
        if (x.next - x.tail < s->window) {
            start_submit(s, old);
            return true;
        }
        return retire_one(s, old);
    }
    return false;
}

/* ---- workers ------------------------------------------------------------------------------ */

static void kernel(search *s, state *x, worker *w)
{
    int t = w->task;
    const op *o = s->p->task[t];
    slot *own = slot_of(s, x, t);
    if (own->id != t)
        wrong(s, "ran in a recycled slot");
    if (in(x->ran, t))
        wrong(s, "ran twice");
    if (o->deps & ~x->done)
        wrong(s, "ran before a producer");
    for (int r = 0; r < MAX_TASKS; r++)
        if (in(o->retains, r) && slot_of(s, x, r)->id == r && slot_of(s, x, r)->consumed == r)
            wrong(s, "read memory that was given back");
        else if (in(o->retains, r) && slot_of(s, x, r)->id != r)
            wrong(s, "read memory that was reused");
    x->ran |= (uint8_t)(1 << t);
    x->done |= (uint8_t)(1 << t);
    w->failed = own->poison || o->fails;
    if (w->failed)
        x->failed |= (uint8_t)(1 << t);
    w->phase = SEAL;
}

static void seal(search *s, state *x, worker *w)
{
    slot *t = slot_of(s, x, w->task);
    w->list = t->successors;
    t->successors = 0;
    t->sealed = 1;
    t->failed = w->failed;
    if (t->refs == 0)
        wrong(s, "reference count below zero");
    t->refs--;
    w->phase = t->refs == 0 || s->bug == EARLY_FLAG ? FLAG : WALK;
}

static void poison(search *s, state *x, worker *w, int c)
{
    slot *t = slot_of(s, x, c);
    if (t->id == c && w->failed)
        t->poison = 1;
}

static void count_down(search *s, state *x, int c)
{
    slot *t = slot_of(s, x, c);
    if (t->id != c) {
        wrong(s, "counted down a recycled slot");
        return;
    }
    if (t->pend == 0)
        wrong(s, "producer count below zero");
    if (--t->pend == 0)
        x->queue |= (uint8_t)(1 << c);
}

static void drop_retained(search *s, state *x, worker *w)
{
    int r = __builtin_ctz(w->retains);
    slot *t = slot_of(s, x, r);
    w->retains &= (uint8_t) ~(1 << r);
    if (t->id != r || t->refs == 0) {
        wrong(s, "reference count below zero");
        return;
    }
    if (--t->refs == 0) {
        w->flag = (uint8_t)r;
        w->phase = DROP_FLAG;
    }
}

/* An idle worker takes any task of the queue. */
static bool take(search *s, const state *old, int i)
{
    for (int t = 0; t < MAX_TASKS; t++) {
        if (!in(old->queue, t))
            continue;
        state x = *old;
        x.queue &= (uint8_t) ~(1 << t);
        uint8_t retains = s->p->task[t]->retains;
        x.workers[i] = (worker){.phase = RUN, .task = (uint8_t)t, .retains = retains};
        if (s->bug == DROP_FIRST && retains) {
            x.workers[i].phase = RETAINS;
            x.workers[i].current = 1;
        }
        visit(s, &x);
    }
    return old->queue != 0;
}

/* One step of worker `i`; false when it has none. */
static bool work(search *s, const state *old, int i)
{
    if (old->workers[i].phase == IDLE)
        return take(s, old, i);
    state x = *old;
    worker *w = &x.workers[i];
    switch (w->phase) {
    case RUN:
        kernel(s, &x, w);
        break;
    case SEAL:
        seal(s, &x, w);
        break;
    case FLAG:
        slot_of(s, &x, w->task)->consumed = w->task;
        w->phase = WALK;
        break;
    case WALK:
        if (!w->list) {
            w->phase = RETAINS;
            break;
        }
        w->flag = (uint8_t)__builtin_ctz(w->list);
        w->list &= (uint8_t) ~(1 << w->flag);
        if (s->bug == POISON_LATE)
            count_down(s, &x, w->flag);
        else
            poison(s, &x, w, w->flag);
        w->phase = COUNT;
        break;
    case COUNT:
        if (s->bug == POISON_LATE)
            poison(s, &x, w, w->flag);
        else
            count_down(s, &x, w->flag);
        w->phase = WALK;
        break;
    case RETAINS:
        if (w->retains)
            drop_retained(s, &x, w);
        else if (w->current) { /* DROP_FIRST: now the kernel */
            w->current = 0;
            w->phase = RUN;
        } else {
            *w = (worker){.phase = IDLE};
        }
        break;
    case DROP_FLAG:
        slot_of(s, &x, w->flag)->consumed = w->flag;
        w->phase = RETAINS;
        break;
    default:
        break;
    }
    visit(s, &x);
    return true;
}

/* ---- search ------------------------------------------------------------------------------- */

static bool remember(search *s, const state *x)
{
    const unsigned char *b = (const unsigned char *)x;
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < sizeof *x; i++)
        h = (h ^ b[i]) * 1099511628211u;
    uint32_t i = (uint32_t)(h ^ h >> 29) & (s->capacity - 1);
    for (; s->seen[i].begins[3]; i = (i + 1) & (s->capacity - 1))
        if (memcmp(&s->seen[i], x, sizeof *x) == 0)
            return false;
    s->seen[i] = *x;
    if (++s->used > s->capacity / 2)
        fail_msg("too many states");
    return true;
}

static void finished(search *s, const state *x)
{
    const program *p = s->p;
    if (x->pc == p->count && x->tail == x->next) {
        if (x->ran != (1 << p->tasks) - 1)
            wrong(s, "a task never ran");
        if (x->failed != expected_failures(p))
            wrong(s, "the wrong tasks failed");
        return;
    }
    /* Nobody can move: allowed only where an open scope pins the head of a full window. */
    int pin = x->tokens ? __builtin_ctz(x->tokens) : x->next;
    if (x->pc < p->count && p->ops[x->pc].kind == TASK && x->tail == pin &&
        x->next - pin >= s->window)
        s->deadlock = true;
    else
        wrong(s, "stuck");
}

static void visit(search *s, const state *x)
{
    if (s->error || !remember(s, x))
        return;
    bool moved = orchestrate(s, x);
    for (int i = 0; i < WORKERS && !s->error; i++)
        moved |= work(s, x, i);
    if (!moved && !s->error)
        finished(s, x);
}

static const char *check(const program *p, int window, bug b, bool *deadlock, uint32_t *states)
{
    static state *table;
    enum { CAPACITY = 1 << 20 };
    if (!table)
        table = malloc(CAPACITY * sizeof *table);
    assert_non_null(table);
    memset(table, 0, CAPACITY * sizeof *table);
    search s = {.p = p, .window = window, .bug = b, .seen = table, .capacity = CAPACITY};
    state x = {0};
    x.begins[3] = 1; /* marks a used entry; scopes nest at most three deep */
    for (int i = 0; i < MAX_WINDOW; i++)
        x.slots[i] = (slot){.id = NONE, .sealed = 1, .consumed = NONE};
    visit(&s, &x);
    *deadlock = s.deadlock;
    *states += s.used;
    return s.error;
}

/* ---- programs ----------------------------------------------------------------------------- */

static program random_program(rng *r)
{
    program p = {0};
    int target = 3 + (int)rng_below(r, 2), depth = 0;
    uint8_t tokens = 0, begins[3];
    while (p.tasks < target) {
        uint64_t pick = rng_below(r, 100);
        op *o = &p.ops[p.count++];
        if (pick < 25 && depth < 2 && p.count < 10) {
            *o = (op){.kind = BEGIN};
            begins[depth++] = (uint8_t)p.tasks;
        } else if (pick < 40 && depth) {
            *o = (op){.kind = FINISH};
            tokens &= (uint8_t)((1 << begins[--depth]) - 1);
        } else {
            *o = (op){.kind = TASK, .fails = rng_below(r, 6) == 0};
            for (int d = 0; d < p.tasks; d++) {
                if (rng_below(r, 100) < 40)
                    o->deps |= (uint8_t)(1 << d);
                if (in(tokens, d) && rng_below(r, 3) == 0) { /* reads what d allocated */
                    o->retains |= (uint8_t)(1 << d);
                    o->deps |= (uint8_t)(1 << d);
                }
            }
            if (depth)
                tokens |= (uint8_t)(1 << p.tasks);
            p.tasks++;
        }
    }
    while (depth--)
        p.ops[p.count++] = (op){.kind = FINISH};
    return p;
}

static void index_tasks(program *p)
{
    int n = 0;
    for (int i = 0; i < p->count; i++)
        if (p->ops[i].kind == TASK)
            p->task[n++] = &p->ops[i];
}

/* The pin rule: some submit finds the window full from the oldest pinned task on. */
static bool predicted_deadlock(const program *p, int window)
{
    int next = 0, depth = 0, begins[4];
    uint8_t tokens = 0;
    for (int i = 0; i < p->count; i++)
        switch (p->ops[i].kind) {
        case BEGIN:
            begins[depth++] = next;
            break;
        case FINISH:
            tokens &= (uint8_t)((1 << begins[--depth]) - 1);
            break;
        case TASK:
            if (tokens && next - __builtin_ctz(tokens) >= window)
                return true;
            if (depth)
                tokens |= (uint8_t)(1 << next);
            next++;
        }
    return false;
}

static void random_programs_hold_and_the_pin_rule_is_exact(void **unused)
{
    (void)unused;
    rng r = rng_seed(2026);
    uint32_t states = 0, deadlocks = 0;
    const int programs = 250;
    for (int k = 0; k < programs; k++) {
        program p = random_program(&r);
        index_tasks(&p);
        int window = 2 + (int)rng_below(&r, 3);
        bool deadlock;
        const char *error = check(&p, window, NO_BUG, &deadlock, &states);
        if (error)
            fail_msg("program %d: %s", k, error);
        assert_int_equal(deadlock, predicted_deadlock(&p, window));
        deadlocks += deadlock;
    }
    printf("%d programs, %u states, %u deadlocks, all predicted\n", programs, states, deadlocks);
    assert_true(deadlocks > 10 && deadlocks < 200);
}

static void seeded_bugs_are_found(void **unused)
{
    (void)unused;
    static const char *const names[] = {"none",       "no recheck", "pend late",  "range walk",
                                        "early flag", "drop first", "poison late"};
    for (int b = NO_BUG + 1; b < BUGS; b++) {
        rng r = rng_seed(99);
        const char *error = NULL;
        uint32_t states = 0;
        for (int k = 0; k < 200 && !error; k++) {
            program p = random_program(&r);
            index_tasks(&p);
            bool deadlock;
            error = check(&p, 2 + (int)rng_below(&r, 3), (bug)b, &deadlock, &states);
        }
        if (!error)
            fail_msg("the model does not notice: %s", names[b]);
        printf("%-12s found: %s\n", names[b], error);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_programs_hold_and_the_pin_rule_is_exact),
        cmocka_unit_test(seeded_bugs_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
