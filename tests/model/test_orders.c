/* SPDX-License-Identifier: Apache-2.0
 * The runtime's small protocols on a weak memory machine, with the orders the runtime uses
 * (task/order.h). Each must be free of races and wrong outcomes in every execution; and weakening
 * any single order to relaxed must break at least one of them.
 *
 * The machine: a location is a list of messages, each with the view (what else its writer had
 * seen). A thread may read any message not older than it has seen of that location; an acquiring
 * read takes over the message's view, a releasing write leaves the thread's view in the message, a
 * read-modify-write takes the newest message and passes its view on. Sequentially consistent
 * reads see the newest such write to their location; fences exchange views with one global view.
 * Plain data must be accessed by a thread that has seen all earlier accesses; anything else is a
 * race. */
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

#include "task/order.h"

enum { LOCS = 8, MSGS = 10, THREADS = 3, REGS = 3, MAX_CODE = 24 };

/* ---- orders, one of which may be weakened ------------------------------------------------ */
enum order_name {
#define NAME(name, order) O_##name,
    TASK_ORDERS(NAME)
#undef NAME
        O_RELAXED,
    O_ALL
};
static const char *const order_names[] = {
#define NAME(name, order) #name,
    TASK_ORDERS(NAME)
#undef NAME
        "RELAXED"};
static int order_value[O_ALL] = {
#define NAME(name, order) memory_order_##order,
    TASK_ORDERS(NAME)
#undef NAME
        memory_order_relaxed};

static bool acquires(int order)
{
    return order == memory_order_acquire || order == memory_order_acq_rel ||
           order == memory_order_seq_cst;
}
static bool releases(int order)
{
    return order == memory_order_release || order == memory_order_acq_rel ||
           order == memory_order_seq_cst;
}

/* ---- programs ----------------------------------------------------------------------------- */
typedef enum opcode {
    END,
    RD,    /* reg = load loc, order a */
    WR,    /* store loc = value, order a */
    ADD,   /* reg = old; loc += value, order a */
    SWAP,  /* reg = old; loc = value, order a */
    CAS,   /* if loc == regs[reg2]: loc = value, regs[reg] = 1 (order a), else regs[reg2] = seen,
              regs[reg] = 0 (order b) */
    DATA,  /* plain access to loc */
    FENCE, /* order a */
    JEQ,   /* if reg == value goto target */
    JNE,
    JMP,
    HIT, /* count an outcome: outcome[loc] += 1 */
} opcode;

typedef struct instr {
    opcode op;
    int loc, a, b, reg, reg2, value, target;
} instr;

typedef struct litmus {
    const char *name;
    int threads;
    instr code[THREADS][MAX_CODE];
    int start[LOCS];                          /* first values */
    bool (*wrong)(const unsigned char *hits); /* of a finished execution */
} litmus;

/* ---- machine ------------------------------------------------------------------------------ */
typedef struct message {
    signed char value;
    unsigned char view[LOCS];
} message;

typedef struct machine {
    message msgs[LOCS][MSGS];
    unsigned char count[LOCS];
    unsigned char view[THREADS][LOCS], sc[LOCS], fenced[LOCS];
    signed char regs[THREADS][REGS];
    unsigned char pc[THREADS], hits[LOCS];
} machine;

typedef struct search {
    const litmus *l;
    machine *seen; /* open hashing */
    uint32_t capacity, used;
    const char *error;
} search;

static void join(unsigned char *to, const unsigned char *from)
{
    for (int i = 0; i < LOCS; i++)
        if (to[i] < from[i])
            to[i] = from[i];
}

/* A sequentially consistent access is ordered with those to the same location only. */
static void sc_in(machine *m, int t, int loc, int order)
{
    if (order == memory_order_seq_cst && m->view[t][loc] < m->sc[loc])
        m->view[t][loc] = m->sc[loc];
}
static void sc_out(machine *m, int t, int loc, int order)
{
    if (order == memory_order_seq_cst)
        m->sc[loc] = m->view[t][loc];
}

static void append(machine *m, int t, int loc, int value, int order, const message *before)
{
    message *n = &m->msgs[loc][m->count[loc]];
    m->view[t][loc] = m->count[loc];
    *n = (message){.value = (signed char)value};
    if (releases(order))
        memcpy(n->view, m->view[t], LOCS);
    if (before) /* the release sequence goes on */
        join(n->view, before->view);
    n->view[loc] = m->count[loc]++;
}

/* Remember `m`; false when it was known. */
static bool remember(search *s, const machine *m)
{
    const unsigned char *b = (const unsigned char *)m;
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < sizeof *m; i++)
        h = (h ^ b[i]) * 1099511628211u;
    uint32_t i = (uint32_t)(h ^ h >> 32) & (s->capacity - 1);
    for (; s->seen[i].count[0]; i = (i + 1) & (s->capacity - 1))
        if (memcmp(&s->seen[i], m, sizeof *m) == 0)
            return false;
    s->seen[i] = *m;
    if (++s->used > s->capacity / 2)
        fail_msg("%s: too many states", s->l->name);
    return true;
}

static void explore(search *s, const machine *m);

static void rmw(machine *m, int t, const instr *in)
{
    int order = order_value[in->a];
    message *last = &m->msgs[in->loc][m->count[in->loc] - 1];
    sc_in(m, t, in->loc, order);
    if (acquires(order))
        join(m->view[t], last->view);
    m->regs[t][in->reg] = last->value;
    append(m, t, in->loc, in->op == ADD ? last->value + in->value : in->value, order, last);
    sc_out(m, t, in->loc, order);
}

/* A load may return any message the thread has not outgrown: explore each. */
static void load(search *s, const machine *m, int t, const instr *in, int order, int reg)
{
    machine base = *m;
    sc_in(&base, t, in->loc, order);
    for (int i = base.view[t][in->loc]; i < base.count[in->loc]; i++) {
        machine n = base;
        n.view[t][in->loc] = (unsigned char)i;
        n.regs[t][reg] = n.msgs[in->loc][i].value;
        if (acquires(order))
            join(n.view[t], n.msgs[in->loc][i].view);
        n.pc[t]++;
        explore(s, &n);
    }
}

static void compare(search *s, const machine *m, int t, const instr *in)
{
    machine n = *m;
    message *last = &n.msgs[in->loc][n.count[in->loc] - 1];
    n.pc[t]++;
    if (last->value == n.regs[t][in->reg2]) {
        int order = order_value[in->a];
        sc_in(&n, t, in->loc, order);
        if (acquires(order))
            join(n.view[t], last->view);
        append(&n, t, in->loc, in->value, order, last);
        sc_out(&n, t, in->loc, order);
        n.regs[t][in->reg] = 1;
    } else {
        int order = order_value[in->b];
        n.view[t][in->loc] = (unsigned char)(n.count[in->loc] - 1);
        if (acquires(order))
            join(n.view[t], last->view);
        n.regs[t][in->reg2] = last->value;
        n.regs[t][in->reg] = 0;
    }
    explore(s, &n);
}

static void step(search *s, const machine *m, int t)
{
    const instr *in = &s->l->code[t][m->pc[t]];
    machine n = *m;
    switch (in->op) {
    case RD:
        load(s, m, t, in, order_value[in->a], in->reg);
        return;
    case CAS:
        compare(s, m, t, in);
        return;
    case WR:
        sc_in(&n, t, in->loc, order_value[in->a]);
        append(&n, t, in->loc, in->value, order_value[in->a], NULL);
        sc_out(&n, t, in->loc, order_value[in->a]);
        break;
    case ADD:
    case SWAP:
        rmw(&n, t, in);
        break;
    case DATA:
        if (n.view[t][in->loc] != n.count[in->loc] - 1) {
            s->error = "race";
            return;
        }
        append(&n, t, in->loc, 0, memory_order_relaxed, NULL);
        break;
    case FENCE:
        if (order_value[in->a] == memory_order_seq_cst) {
            join(n.view[t], n.fenced);
            join(n.fenced, n.view[t]);
        }
        break;
    case JEQ:
    case JNE:
        n.pc[t] =
            (unsigned char)((n.regs[t][in->reg] == in->value) == (in->op == JEQ) ? in->target
                                                                                 : n.pc[t] + 1);
        explore(s, &n);
        return;
    case JMP:
        n.pc[t] = (unsigned char)in->target;
        explore(s, &n);
        return;
    case HIT:
        n.hits[in->loc]++;
        break;
    case END:
        return;
    }
    n.pc[t]++;
    explore(s, &n);
}

static void explore(search *s, const machine *m)
{
    if (s->error || !remember(s, m))
        return;
    bool over = true;
    for (int t = 0; t < s->l->threads && !s->error; t++)
        if (s->l->code[t][m->pc[t]].op != END) {
            over = false;
            step(s, m, t);
        }
    if (over && s->l->wrong && s->l->wrong(m->hits))
        s->error = "wrong outcome";
}

static const char *check(const litmus *l, uint32_t *states)
{
    search s = {.l = l, .capacity = 1u << 18};
    s.seen = calloc(s.capacity, sizeof *s.seen);
    assert_non_null(s.seen);
    machine m = {0};
    for (int i = 0; i < LOCS; i++) {
        m.count[i] = 1;
        m.msgs[i][0].value = (signed char)l->start[i];
    }
    explore(&s, &m);
    free(s.seen);
    *states = s.used;
    return s.error;
}

/* ---- the protocols ------------------------------------------------------------------------ */

/* Locations of "link": 0 the producer's word (0 open, 1 linked, 2 sealed), 1 its output, 2 the
 * consumer's slot and node. Thread 0 submits the consumer, thread 1 completes the producer. Who
 * finds the other there runs the consumer. */
static bool not_once(const unsigned char *hits)
{
    return hits[0] != 1;
}
static const litmus link_and_seal = {
    "link and seal",
    2,
    {{{RD, .loc = 0, .a = O_SEEN, .reg = 0},
      {JEQ, .reg = 0, .value = 2, .target = 8},
      {DATA, .loc = 2},
      {RD, .loc = 0, .a = O_LINK_LOST, .reg = 0},
      {JEQ, .reg = 0, .value = 2, .target = 8},
      {CAS, .loc = 0, .a = O_LINK, .b = O_LINK_LOST, .reg = 1, .reg2 = 0, .value = 1},
      {JEQ, .reg = 1, .value = 0, .target = 4},
      {END},
      {DATA, .loc = 1},
      {HIT, .loc = 0},
      {END}},
     {{DATA, .loc = 1},
      {RD, .loc = 0, .a = O_RELAXED, .reg = 0},
      {CAS, .loc = 0, .a = O_SEAL, .b = O_RELAXED, .reg = 1, .reg2 = 0, .value = 2},
      {JEQ, .reg = 1, .value = 0, .target = 2},
      {JEQ, .reg = 0, .value = 0, .target = 8},
      {DATA, .loc = 2},
      {DATA, .loc = 1},
      {HIT, .loc = 0},
      {END}}},
    {0},
    not_once};

/* The same without the early look: a link that comes too late is all that orders the output. */
static const litmus late_link = {
    "late link",
    2,
    {{{DATA, .loc = 2},
      {RD, .loc = 0, .a = O_RELAXED, .reg = 0},
      {JEQ, .reg = 0, .value = 2, .target = 1},
      {CAS, .loc = 0, .a = O_LINK, .b = O_LINK_LOST, .reg = 1, .reg2 = 0, .value = 1},
      {JEQ, .reg = 1, .value = 1, .target = 7},
      {DATA, .loc = 1},
      {HIT, .loc = 0},
      {END}},
     {{DATA, .loc = 1},
      {RD, .loc = 0, .a = O_RELAXED, .reg = 0},
      {CAS, .loc = 0, .a = O_SEAL, .b = O_RELAXED, .reg = 1, .reg2 = 0, .value = 2},
      {JEQ, .reg = 1, .value = 0, .target = 2},
      {JEQ, .reg = 0, .value = 0, .target = 8},
      {DATA, .loc = 2},
      {DATA, .loc = 1},
      {HIT, .loc = 0},
      {END}}},
    {0},
    NULL};

/* 0: the consumer's count of producers, 1 and 2: their outputs. The last one runs the consumer. */
#define PRODUCER(own)                                                                              \
    {                                                                                              \
        {DATA, .loc = own}, {RD, .loc = 0, .a = O_LAST, .reg = 0},                                 \
            {JEQ, .reg = 0, .value = 1, .target = 5},                                              \
            {ADD, .loc = 0, .a = O_PEND, .reg = 0, .value = -1},                                   \
            {JNE, .reg = 0, .value = 1, .target = 8}, {DATA, .loc = 1}, {DATA, .loc = 2},          \
            {HIT, .loc = 0},                                                                       \
        {                                                                                          \
            END                                                                                    \
        }                                                                                          \
    }
static const litmus countdown = {"countdown", 2, {PRODUCER(1), PRODUCER(2)}, {2}, not_once};

/* 0: references, 1 and 2: what each reader touched, 3: the flag. The retire scan reuses both. */
#define READER(own)                                                                                \
    {                                                                                              \
        {DATA, .loc = own}, {ADD, .loc = 0, .a = O_DROP, .reg = 0, .value = -1},                   \
            {JNE, .reg = 0, .value = 1, .target = 4}, {WR, .loc = 3, .a = O_FLAG, .value = 1},     \
        {                                                                                          \
            END                                                                                    \
        }                                                                                          \
    }
static const litmus retire = {"retire",
                              3,
                              {READER(1),
                               READER(2),
                               {{RD, .loc = 3, .a = O_RETIRE, .reg = 0},
                                {JEQ, .reg = 0, .value = 0, .target = 4},
                                {DATA, .loc = 1},
                                {DATA, .loc = 2},
                                {END}}},
                              {2},
                              NULL};

/* 0: tail of a queue, 1: a task's slot. */
static const litmus hand_over = {
    "hand over",
    2,
    {{{DATA, .loc = 1}, {WR, .loc = 0, .a = O_PUSH, .value = 1}, {END}},
     {{RD, .loc = 0, .a = O_STEAL, .reg = 0},
      {JEQ, .reg = 0, .value = 0, .target = 3},
      {DATA, .loc = 1},
      {END}}},
    {0},
    NULL};

/* 0: an executed counter, 1: a result. */
static const litmus wait_all = {"wait_all",
                                2,
                                {{{DATA, .loc = 1}, {WR, .loc = 0, .a = O_DONE, .value = 1}, {END}},
                                 {{RD, .loc = 0, .a = O_WAIT, .reg = 0},
                                  {JEQ, .reg = 0, .value = 0, .target = 3},
                                  {DATA, .loc = 1},
                                  {END}}},
                                {0},
                                NULL};

/* 0: top, 1: bottom. A deque of two tasks; the owner pops once while a thief steals twice. hits[k]
 * counts who got task k: nobody may share one. The owner's bottom goes from 2 to 1. */
static bool taken_twice(const unsigned char *hits)
{
    return hits[0] > 1 || hits[1] > 1;
}
static const litmus deque = {
    "deque",
    2,
    {{{SWAP, .loc = 1, .a = O_CLAIM, .reg = 0, .value = 1},
      {RD, .loc = 0, .a = O_LOOK, .reg = 1},
      {JEQ, .reg = 1, .value = 2, .target = 7}, /* both stolen */
      {JEQ, .reg = 1, .value = 0, .target = 6}, /* two left: take without asking */
      {CAS, .loc = 0, .a = O_TAKE, .b = O_RELAXED, .reg = 2, .reg2 = 1, .value = 2},
      {JEQ, .reg = 2, .value = 0, .target = 7},
      {HIT, .loc = 1},
      {END}},
     {{RD, .loc = 0, .a = O_LOOK, .reg = 0},
      {RD, .loc = 1, .a = O_LOOK, .reg = 1},
      {JEQ, .reg = 1, .value = 0, .target = 15},
      {JNE, .reg = 0, .value = 0, .target = 15},
      {CAS, .loc = 0, .a = O_TAKE, .b = O_RELAXED, .reg = 2, .reg2 = 0, .value = 1},
      {JEQ, .reg = 2, .value = 0, .target = 15},
      {HIT, .loc = 0},
      {RD, .loc = 0, .a = O_LOOK, .reg = 0}, /* again */
      {RD, .loc = 1, .a = O_LOOK, .reg = 1},
      {JNE, .reg = 1, .value = 2, .target = 15}, /* top 1 needs bottom 2 */
      {JNE, .reg = 0, .value = 1, .target = 15},
      {CAS, .loc = 0, .a = O_TAKE, .b = O_RELAXED, .reg = 2, .reg2 = 0, .value = 2},
      {JEQ, .reg = 2, .value = 0, .target = 15},
      {HIT, .loc = 1},
      {END},
      {END}}},
    {0, 2},
    taken_twice};

/* 0: a queue's tail, 1: sleepers. Somebody must notice the other. hits[0]: slept, hits[1]: woke. */
static bool overslept(const unsigned char *hits)
{
    return hits[0] && !hits[1];
}
static const litmus sleep = {"sleep",
                             2,
                             {{{WR, .loc = 1, .a = O_RELAXED, .value = 1},
                               {FENCE, .a = O_FENCE},
                               {RD, .loc = 0, .a = O_RELAXED, .reg = 0},
                               {JNE, .reg = 0, .value = 0, .target = 5},
                               {HIT, .loc = 0},
                               {END}},
                              {{WR, .loc = 0, .a = O_PUSH, .value = 1},
                               {FENCE, .a = O_FENCE},
                               {RD, .loc = 1, .a = O_RELAXED, .reg = 0},
                               {JEQ, .reg = 0, .value = 0, .target = 5},
                               {HIT, .loc = 1},
                               {END}}},
                             {0},
                             overslept};

/* 0: a queue's tail, 1: sleepers, 2: the event. The sleeper has heard the call and yet sees no
 * work: it would sleep on the new value and nobody calls again. */
static bool deaf(const unsigned char *hits)
{
    return hits[0] != 0;
}
static const litmus eventcount = {"eventcount",
                                  2,
                                  {{{WR, .loc = 1, .a = O_RELAXED, .value = 1},
                                    {FENCE, .a = O_FENCE},
                                    {RD, .loc = 2, .a = O_HEAR, .reg = 0},
                                    {JEQ, .reg = 0, .value = 0, .target = 7},
                                    {RD, .loc = 0, .a = O_RELAXED, .reg = 1},
                                    {JNE, .reg = 1, .value = 0, .target = 7},
                                    {HIT, .loc = 0},
                                    {END}},
                                   {{WR, .loc = 0, .a = O_PUSH, .value = 1},
                                    {FENCE, .a = O_FENCE},
                                    {RD, .loc = 1, .a = O_RELAXED, .reg = 0},
                                    {JEQ, .reg = 0, .value = 0, .target = 5},
                                    {ADD, .loc = 2, .a = O_RING, .reg = 0, .value = 1},
                                    {END}}},
                                  {0},
                                  deaf};

/* 0: the runtime's graph, 1: "a helper is inside", 2: the graph's memory. The caller sets the graph
 * up, runs it, ends the run, and when nobody is inside it may change or destroy the graph. */
static const litmus run_of_a_graph = {"run of a graph",
                                      2,
                                      {{{DATA, .loc = 2},
                                        {WR, .loc = 0, .a = O_OPEN, .value = 1},
                                        {WR, .loc = 0, .a = O_CLOSE, .value = 0},
                                        {RD, .loc = 1, .a = O_LEFT, .reg = 0},
                                        {JNE, .reg = 0, .value = 0, .target = 6},
                                        {DATA, .loc = 2},
                                        {END}},
                                       {{WR, .loc = 1, .a = O_ANNOUNCE, .value = 1},
                                        {RD, .loc = 0, .a = O_CHECK, .reg = 0},
                                        {JEQ, .reg = 0, .value = 0, .target = 4},
                                        {DATA, .loc = 2},
                                        {WR, .loc = 1, .a = O_LEAVE, .value = 0},
                                        {END}}},
                                      {0},
                                      NULL};

/* 0: nodes left, 1 and 2: what two workers wrote. The caller goes on when none is left. */
#define FINISHER(own)                                                                              \
    {                                                                                              \
        {DATA, .loc = own}, {ADD, .loc = 0, .a = O_COUNT, .reg = 0, .value = -1},                  \
        {                                                                                          \
            END                                                                                    \
        }                                                                                          \
    }
static const litmus nodes_left = {"nodes left",
                                  3,
                                  {FINISHER(1),
                                   FINISHER(2),
                                   {{RD, .loc = 0, .a = O_OVER, .reg = 0},
                                    {JNE, .reg = 0, .value = 0, .target = 4},
                                    {DATA, .loc = 1},
                                    {DATA, .loc = 2},
                                    {END}}},
                                  {2},
                                  NULL};

/* 0: "running", 1: what a run leaves behind for the next one, on another thread. */
static const litmus one_run_at_a_time = {
    "one at a time",
    2,
    {{{DATA, .loc = 1}, {WR, .loc = 0, .a = O_EXIT, .value = 0}, {END}},
     {{SWAP, .loc = 0, .a = O_ENTER, .reg = 0, .value = 1},
      {JNE, .reg = 0, .value = 0, .target = 3},
      {DATA, .loc = 1},
      {END}}},
    {1},
    NULL};

static const litmus *const all[] = {
    &link_and_seal, &late_link, &countdown,  &retire,         &hand_over,  &wait_all,
    &deque,         &sleep,     &eventcount, &run_of_a_graph, &nodes_left, &one_run_at_a_time};
enum { LITMUS = sizeof all / sizeof all[0] };

static void protocols_hold_with_the_orders_in_use(void **state)
{
    (void)state;
    for (int i = 0; i < LITMUS; i++) {
        uint32_t states;
        const char *error = check(all[i], &states);
        printf("%-16s %6u states\n", all[i]->name, states);
        if (error)
            fail_msg("%s: %s", all[i]->name, error);
        assert_true(states > 5);
    }
}

static void weakening_any_order_is_noticed(void **state)
{
    (void)state;
    for (int o = 0; o < O_ALL; o++) {
        if (o == O_RELAXED)
            continue;
        int kept = order_value[o];
        order_value[o] = memory_order_relaxed;
        const char *by = NULL;
        for (int i = 0; i < LITMUS && !by; i++) {
            uint32_t states;
            if (check(all[i], &states))
                by = all[i]->name;
        }
        order_value[o] = kept;
        if (!by)
            fail_msg("%s could be relaxed and nobody would notice", order_names[o]);
        printf("%-10s relaxed: caught by \"%s\"\n", order_names[o], by);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(protocols_hold_with_the_orders_in_use),
        cmocka_unit_test(weakening_any_order_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
