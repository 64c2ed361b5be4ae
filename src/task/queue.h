/* SPDX-License-Identifier: Apache-2.0
 * Ready queues of slot indices. All are as large as the window and a task is queued at most once,
 * so none can overflow. */
#ifndef TASK_QUEUE_H
#define TASK_QUEUE_H

#include <stdalign.h>
#include <stdbool.h>
#include <stdint.h>

#include "task/order.h"

#if defined(__x86_64__)
#define TASK_PAUSE() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define TASK_PAUSE() __asm__ volatile("yield")
#else
#define TASK_PAUSE() ((void)0)
#endif

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

/* Chase-Lev work-stealing deque: the owner pushes and pops at the bottom, thieves take the top.
 * Instead of fences, the owner's claim of the bottom and every look at the top are sequentially
 * consistent: either the thief sees the claim or the owner sees the theft. */
typedef struct task_deque {
    alignas(64) _Atomic int64_t top;
    alignas(64) _Atomic int64_t bottom;
    alignas(64) _Atomic uint32_t *items;
    uint32_t mask;
} task_deque;

static inline void task_deque_push(task_deque *d, uint32_t item)
{
    int64_t b = LOAD(&d->bottom, RELAXED);
    STORE(&d->items[b & d->mask], item, RELAXED);
    STORE(&d->bottom, b + 1, MO_PUSH);
}

static inline bool task_deque_pop(task_deque *d, uint32_t *item)
{
    int64_t b = LOAD(&d->bottom, RELAXED) - 1;
    if (LOAD(&d->top, RELAXED) > b) /* empty for sure: top only grows, bottom is ours */
        return false;
    atomic_exchange_explicit(&d->bottom, b, MO_CLAIM);
    int64_t t = LOAD(&d->top, MO_LOOK);
    if (t > b) {
        STORE(&d->bottom, b + 1, RELAXED); /* the item went to a thief; nothing new is published */
        return false;
    }
    *item = LOAD(&d->items[b & d->mask], RELAXED);
    if (t < b)
        return true;
    bool won = atomic_compare_exchange_strong_explicit(&d->top, &t, t + 1, MO_TAKE, RELAXED);
    STORE(&d->bottom, b + 1, RELAXED);
    return won;
}

static inline bool task_deque_steal(task_deque *d, uint32_t *item)
{
    int64_t t = LOAD(&d->top, MO_LOOK);
    int64_t b = LOAD(&d->bottom, MO_LOOK);
    if (t >= b)
        return false;
    /* A recycled cell is harmless: then top has moved and the exchange fails. */
    *item = LOAD(&d->items[t & d->mask], RELAXED);
    return atomic_compare_exchange_strong_explicit(&d->top, &t, t + 1, MO_TAKE, RELAXED);
}

static inline int64_t task_deque_size(const task_deque *d)
{
    return LOAD(&d->bottom, RELAXED) - LOAD(&d->top, RELAXED);
}

/* Injection ring: the orchestrator publishes batches, anybody takes several at once. */
typedef struct task_inject {
    alignas(64) _Atomic uint64_t head;
    alignas(64) _Atomic uint64_t tail;
    alignas(64) _Atomic uint32_t *items;
    uint32_t mask;
} task_inject;

static inline void task_inject_push(task_inject *q, const uint32_t *items, uint32_t count)
{
    uint64_t t = LOAD(&q->tail, RELAXED);
    for (uint32_t i = 0; i < count; i++)
        STORE(&q->items[(t + i) & q->mask], items[i], RELAXED);
    STORE(&q->tail, t + count, MO_PUSH);
}

static inline uint32_t task_inject_pop(task_inject *q, uint32_t *items, uint32_t most)
{
    uint64_t h = LOAD(&q->head, RELAXED);
    for (;;) {
        int64_t have = (int64_t)(LOAD(&q->tail, MO_STEAL) - h);
        if (have <= 0)
            return 0;
        uint32_t n = have < (int64_t)most ? (uint32_t)have : most;
        for (uint32_t i = 0; i < n; i++)
            items[i] = LOAD(&q->items[(h + i) & q->mask], RELAXED);
        /* Cells are not reused before head passes them, and only then do their tasks run, retire
         * and come again: the queue's capacity orders this, so the exchange may be relaxed. */
        if (atomic_compare_exchange_weak_explicit(&q->head, &h, h + n, RELAXED, RELAXED))
            return n;
    }
}

static inline bool task_inject_empty(const task_inject *q)
{
    return LOAD(&q->head, RELAXED) == LOAD(&q->tail, RELAXED);
}

/* One producer less. True for the last one, whose count of one nobody else can change. */
static inline bool task_count_down(_Atomic int32_t *pending)
{
    if (LOAD(pending, MO_LAST) != 1)
        return atomic_fetch_sub_explicit(pending, 1, MO_PEND) == 1;
    STORE(pending, 0, RELAXED);
    return true;
}

/* Shared queue for what cannot go to a deque of one's own: tasks of a type this worker does not
 * serve, and completions from foreign threads. Cells carry a turn number (Vyukov's scheme). */
typedef struct task_cell {
    _Atomic uint64_t turn;
    _Atomic uint32_t item;
} task_cell;

typedef struct task_shared {
    alignas(64) _Atomic uint64_t head;
    alignas(64) _Atomic uint64_t tail;
    alignas(64) task_cell *cells;
    uint32_t mask;
} task_shared;

static inline void task_shared_push(task_shared *q, uint32_t item)
{
    uint64_t t = LOAD(&q->tail, RELAXED);
    for (;;) {
        task_cell *c = &q->cells[t & q->mask];
        int64_t ahead = (int64_t)(LOAD(&c->turn, MO_STEAL) - t);
        if (ahead == 0) {
            if (atomic_compare_exchange_weak_explicit(&q->tail, &t, t + 1, RELAXED, RELAXED)) {
                STORE(&c->item, item, RELAXED);
                STORE(&c->turn, t + 1, MO_PUSH);
                return;
            }
        } else {
            t = LOAD(&q->tail, RELAXED);
        }
    }
}

static inline bool task_shared_pop(task_shared *q, uint32_t *item)
{
    uint64_t h = LOAD(&q->head, RELAXED);
    for (;;) {
        task_cell *c = &q->cells[h & q->mask];
        int64_t ahead = (int64_t)(LOAD(&c->turn, MO_STEAL) - (h + 1));
        if (ahead < 0)
            return false;
        if (ahead == 0) {
            if (atomic_compare_exchange_weak_explicit(&q->head, &h, h + 1, RELAXED, RELAXED)) {
                *item = LOAD(&c->item, RELAXED);
                STORE(&c->turn, h + q->mask + 1, MO_PUSH);
                return true;
            }
        } else {
            h = LOAD(&q->head, RELAXED);
        }
    }
}

static inline bool task_shared_empty(const task_shared *q)
{
    return LOAD(&q->head, RELAXED) == LOAD(&q->tail, RELAXED);
}

#endif
