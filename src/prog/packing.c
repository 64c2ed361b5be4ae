/* SPDX-License-Identifier: Apache-2.0 */
#include "prog/packing.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/thread.h"
#include "ir/recipe.h"

enum { MOST = 8, WORTH = 1 << 20 }; /* threads; bytes below which one is not worth starting */
enum { CALLS = 64 << 10 };          /* bytes of the stack that lead to a kernel, at most */
enum { STACK = CPU_STACK_SCRATCH + CALLS };

typedef struct worker {
    prog_packing *packing;
    op_room room; /* for what a job makes to be packed */
    pthread_t thread;
} worker;

/* Memory whose pages the threads see to, from its beginning on. */
typedef struct ahead {
    char *at;
    size_t left;
    int advice;
} ahead;

typedef struct progress_of {
    uint32_t end;         /* behind its last job, in the order they are run in */
    uint32_t left, early; /* jobs that are not done; those of them that `second` ones wait for */
    uint32_t before;      /* its jobs come before those of this node: as a rule the next one */
} progress_of;

typedef struct turn {
    uint32_t node, job;
} turn;

struct prog_packing {
    const op_lower *c;
    const op_job *jobs;
    turn *turns;
    uint32_t count;
    progress_of *nodes;
    uint32_t *queue; /* nodes in the order of their jobs */
    uint32_t n_nodes;
    size_t room;
    atomic_bool over; /* all is packed, the threads have ended */
    /* Under the lock: */
    pthread_mutex_t lock;
    pthread_cond_t moved; /* the last job of a node, or its last early one, is done */
    uint32_t next, left;
    bool stop, guest_busy, settled;
    ahead stack, touch; /* what will be written… */
    ahead fetch;        /* …and what will be read from a file: a thread starts when the former is
                           known, since the caller asks for memory until then, and would wait */
    uint32_t touching;  /* pieces of them that threads are at */
    worker all[MOST];   /* the first one is for callers */
    uint32_t threads;   /* beside the caller */
    cpu_set_t allowed;  /* processors for them, once they run */
    bool placed;
};

/* Called and left with the lock held. */
static void run_job(prog_packing *k, progress_of *node, const op_job *job, op_room *room)
{
    pthread_mutex_unlock(&k->lock);
    op_job_run(k->c, job, room);
    pthread_mutex_lock(&k->lock);
    node->left--;
    node->early -= !job->second;
    k->left--;
}

/* Runs the next job, and if all others of its node are done, the last; likewise. */
static void run_next(prog_packing *k, op_room *room)
{
    turn now = k->turns[k->next++];
    const op_job *job = &k->jobs[now.job];
    progress_of *node = &k->nodes[now.node];
    if (job->last)
        return;                        /* whoever ends the one before runs it */
    while (job->second && node->early) /* others have taken these: they will be done */
        pthread_cond_wait(&k->moved, &k->lock);
    run_job(k, node, job, room);
    job = &k->jobs[k->turns[node->end - 1].job];
    if (node->left == 1 && job->last)
        run_job(k, node, job, room);
    if (!node->left || !node->early)
        pthread_cond_broadcast(&k->moved);
}

/* Lets the system find the pages of the next piece, which it does when they are first used. */
static void touch_next(prog_packing *k, ahead *a)
{
    char *at = a->at;
    int advice = a->advice;
    size_t bytes = a->left < MEM_HUGE_PAGE ? a->left : MEM_HUGE_PAGE;
    a->at += bytes;
    a->left -= bytes;
    k->touching++;
    pthread_mutex_unlock(&k->lock);
    (void)madvise(at, bytes, advice); /* else the first run does */
    pthread_mutex_lock(&k->lock);
    if (--k->touching == 0)
        pthread_cond_broadcast(&k->moved);
}

void prog_packing_forget(prog_packing *k)
{
    pthread_mutex_lock(&k->lock);
    k->stack.left = k->touch.left = 0;
    while (k->touching)
        pthread_cond_wait(&k->moved, &k->lock);
    pthread_mutex_unlock(&k->lock);
}

static void *work(void *context)
{
    worker *self = context;
    prog_packing *k = self->packing;
    thread_name("tacit-pack");
    if (k->placed)
        (void)!sched_setaffinity(0, sizeof k->allowed, &k->allowed);
    pthread_mutex_lock(&k->lock);
    while (!k->stop)
        if (k->stack.left)
            touch_next(k, &k->stack);
        else if (k->touch.left)
            touch_next(k, &k->touch);
        else if (k->fetch.left)
            touch_next(k, &k->fetch);
        else if (k->next < k->count)
            run_next(k, &self->room);
        else
            break;
    pthread_mutex_unlock(&k->lock);
    op_room_close(k->c, &self->room);
    return NULL;
}

bool prog_packing_goes_on(const prog_packing *k)
{
    return k && !atomic_load_explicit(&k->over, memory_order_acquire);
}

/* Of several callers at a time one helps: there is room for one. */
static void help_until(prog_packing *k, uint32_t end, const uint32_t *left)
{
    pthread_mutex_lock(&k->lock);
    bool helps = !k->guest_busy;
    k->guest_busy |= helps;
    while (*left)
        if (helps && k->next < end)
            run_next(k, &k->all[0].room);
        else
            pthread_cond_wait(&k->moved, &k->lock);
    if (helps)
        k->guest_busy = false;
    pthread_mutex_unlock(&k->lock);
}

void prog_packing_need(prog_packing *k, uint32_t node)
{
    help_until(k, k->nodes[node].end, &k->nodes[node].left);
}

static void join(prog_packing *k)
{
    for (uint32_t i = 1; i <= k->threads; i++)
        pthread_join(k->all[i].thread, NULL);
    for (uint32_t i = 0; i < MOST; i++)
        mem_release(k->c->allocator, k->all[i].room.memory, k->room);
    memset(k->all, 0, sizeof k->all);
    k->threads = 0;
}

void prog_packing_finish(prog_packing *k)
{
    if (!k)
        return;
    help_until(k, k->count, &k->left);
    pthread_mutex_lock(&k->lock);
    bool mine = !k->settled && !k->guest_busy; /* else it is done when the program is freed */
    k->settled |= mine;
    k->stop |= mine;
    pthread_mutex_unlock(&k->lock);
    if (mine) {
        op_room_close(k->c, &k->all[0].room);
        join(k);
        atomic_store_explicit(&k->over, true, memory_order_release);
    }
}

void prog_packing_free(prog_packing *k)
{
    if (!k)
        return;
    pthread_mutex_lock(&k->lock);
    k->stop = true;
    pthread_cond_broadcast(&k->moved);
    pthread_mutex_unlock(&k->lock);
    join(k);
    pthread_cond_destroy(&k->moved);
    pthread_mutex_destroy(&k->lock);
    mem_release(k->c->allocator, k->nodes, (k->n_nodes + 1u) * sizeof *k->nodes);
    mem_release(k->c->allocator, k->queue, (k->n_nodes + 1u) * sizeof *k->queue);
    mem_release(k->c->allocator, k->turns, (k->count + 1u) * sizeof *k->turns);
    mem_release(k->c->allocator, k, sizeof *k);
}

/* A thread that cannot be had is done without. */
static void start_threads(prog_packing *k, uint32_t wanted)
{
    pthread_attr_t attributes;
    if (!wanted || pthread_attr_init(&attributes) != 0)
        return;
    k->placed = thread_elsewhere(&attributes, &k->allowed);
    while (k->threads < wanted) {
        worker *w = &k->all[k->threads + 1];
        w->packing = k;
        w->room.memory = k->room ? mem_alloc(k->c->allocator, k->room) : NULL;
        if ((k->room && !w->room.memory) || !thread_start(&w->thread, &attributes, work, w))
            break;
        k->threads++;
    }
    pthread_attr_destroy(&attributes);
}

#if defined(MADV_POPULATE_WRITE)
/* The whole pages of it. */
static ahead to_write(void *memory, size_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)memory;
    uintptr_t begin = align_up(from, page), end = (from + bytes) & ~(page - 1);
    return (ahead){(char *)memory + (begin - from), begin < end ? end - begin : 0,
                   MADV_POPULATE_WRITE};
}

/* A stack has grown for good when the end of a frame has been written. */
static __attribute__((noinline)) void grow_stack(void)
{
    volatile char frame[STACK];
    frame[0] = 0;
    (void)frame[0];
}

/* What a run by the caller will use of its stack. */
static ahead stack_to_write(void)
{
    if (thread_stack_left() < 2 * (size_t)STACK)
        return (ahead){0};
    grow_stack();
    return to_write((char *)__builtin_frame_address(0) - STACK, STACK);
}
#endif

void prog_packing_touch(prog_packing *k, void *memory, size_t bytes)
{
#if defined(MADV_POPULATE_WRITE)
    ahead stack = stack_to_write(), touch = to_write(memory, bytes);
#endif
    pthread_mutex_lock(&k->lock);
#if defined(MADV_POPULATE_WRITE)
    if (!k->touch.left) {
        k->stack = stack;
        k->touch = touch;
    }
#endif
    if (k->fetch.left && !k->threads && !k->settled)
        start_threads(k, 1);
    pthread_mutex_unlock(&k->lock);
}

static size_t bytes_of(const prog_packing *k, const uint32_t *first_job, uint32_t node)
{
    size_t bytes = 0;
    for (uint32_t j = first_job[node]; j < first_job[node + 1]; j++)
        bytes += k->jobs[j].bytes;
    return bytes;
}

/* Jobs that are to come early go before the last node behind which others have as much to pack, and
 * as much again, up to a limit, for what else is resident then. */
static void move_ahead(prog_packing *k, const uint32_t *first_job, uint32_t node)
{
    enum { AGAIN = 32 << 20 };
    size_t own = bytes_of(k, first_job, node), others = 0;
    uint32_t at = k->n_nodes;
    own += own < AGAIN ? own : AGAIN;
    for (; at > 0 && others < own; at--)
        if (at - 1 != node && k->nodes[at - 1].before == at)
            others += bytes_of(k, first_job, at - 1);
    if (at < node)
        k->nodes[node].before = at;
}

/* Behind those that come before the same node: an insertion, since few are out of order. */
static void queue_up(prog_packing *k, uint32_t node)
{
    uint32_t at = node;
    for (; at > 0 && k->nodes[k->queue[at - 1]].before > k->nodes[node].before; at--)
        k->queue[at] = k->queue[at - 1];
    k->queue[at] = node;
}

/* The turns of one node's jobs, from `next` on; returns what comes behind them. */
static uint32_t take_turns(prog_packing *k, const uint32_t *first_job, uint32_t node, uint32_t next)
{
    progress_of *p = &k->nodes[node];
    for (uint32_t j = first_job[node]; j < first_job[node + 1]; j++) {
        k->turns[next++] = (turn){node, j};
        p->early += !k->jobs[j].second;
    }
    p->left = first_job[node + 1] - first_job[node];
    p->end = next;
    return next;
}

/* How much there is to do, in which order, and by which node. */
static size_t take_stock(prog_packing *k, const uint32_t *first_job)
{
    size_t bytes = 0;
    uint32_t next = 0;
    for (uint32_t i = 0; i < k->n_nodes; i++)
        k->nodes[i].before = i + 1;
    for (uint32_t i = k->n_nodes; i-- > 0;)
        if (first_job[i] < first_job[i + 1] && k->jobs[first_job[i]].ahead)
            move_ahead(k, first_job, i);
    for (uint32_t i = 0; i < k->n_nodes; i++)
        queue_up(k, i);
    for (uint32_t i = 0; i < k->n_nodes; i++)
        next = take_turns(k, first_job, k->queue[i], next);
    for (uint32_t j = 0; j < k->count; j++) {
        const op_job *job = &k->jobs[j];
        bytes += job->bytes;
        if (ir_tensor_is_late(job->weight) && job->bytes > k->room)
            k->room = job->bytes;
    }
    return bytes;
}

/* NULL: no memory. */
static prog_packing *make(const op_lower *c, uint32_t n_jobs, uint32_t n_nodes)
{
    prog_packing *k = mem_alloc_zero(c->allocator, sizeof *k);
    if (!k)
        return NULL;
    k->c = c;
    k->n_nodes = n_nodes;
    k->nodes = mem_alloc_zero(c->allocator, (n_nodes + 1u) * sizeof *k->nodes);
    k->queue = mem_alloc_zero(c->allocator, (n_nodes + 1u) * sizeof *k->queue);
    k->turns = mem_alloc_zero(c->allocator, (n_jobs + 1u) * sizeof *k->turns);
    k->count = k->left = n_jobs;
    atomic_init(&k->over, false);
    pthread_mutex_init(&k->lock, NULL);
    pthread_cond_init(&k->moved, NULL);
    if (k->nodes && k->queue && k->turns)
        return k;
    prog_packing_free(k);
    return NULL;
}

static uint32_t threads_beside(size_t bytes)
{
    uint32_t processors = bytes >= WORTH ? cpu_count() : 1;
    return (processors < MOST ? processors : MOST) - 1;
}

tacit_status prog_packing_start(const op_lower *c, const op_jobs *jobs, const uint32_t *first_job,
                                uint32_t n_nodes, bool wait, prog_packing **out, tacit_error *err)
{
    *out = NULL;
    if (!jobs->count)
        return TACIT_OK;
    prog_packing *k = make(c, jobs->count, n_nodes);
    if (!k)
        return error_memory(err, "packed weights");
    k->jobs = jobs->data;
    size_t bytes = take_stock(k, first_job);
    k->all[0].room.memory = k->room ? mem_alloc(c->allocator, k->room) : NULL;
    if (k->room && !k->all[0].room.memory) {
        prog_packing_free(k);
        return error_memory(err, "packed weights");
    }
    start_threads(k, threads_beside(bytes));
    if (wait || !k->threads) {
        prog_packing_finish(k);
        prog_packing_free(k);
        return TACIT_OK;
    }
    *out = k;
    return TACIT_OK;
}

tacit_status prog_packing_fetch(const op_lower *c, void *memory, size_t bytes, uint32_t n_nodes,
                                prog_packing **out, tacit_error *err)
{
    *out = NULL;
#if defined(MADV_POPULATE_READ)
    if (!threads_beside(bytes))
        return TACIT_OK;
    prog_packing *k = make(c, 0, n_nodes);
    if (!k)
        return error_memory(err, "mapped weights");
    k->fetch = (ahead){memory, bytes, MADV_POPULATE_READ};
    *out = k;
#else
    (void)c, (void)memory, (void)bytes, (void)n_nodes, (void)err;
#endif
    return TACIT_OK;
}
