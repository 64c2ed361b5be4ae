/* SPDX-License-Identifier: Apache-2.0
 * Every memory order of the core by name. tests/model replays the protocols below on a weak memory
 * machine with these very values, then weakens each to relaxed and expects a violation: an order
 * that could be weakened unnoticed would be an order nobody needs. Orders the machine cannot tell
 * apart are relaxed here, each with its argument at the place of use. */
#ifndef TASK_ORDER_H
#define TASK_ORDER_H

#include <stdatomic.h>

/*  name          order      what it carries */
#define TASK_ORDERS(ROW)                                                                           \
    ROW(SEEN, acquire)      /* submit finds a producer sealed: its data, to the consumer */        \
    ROW(LINK, acq_rel)      /* consumer's slot and node, to the producer's completer */            \
    ROW(LINK_LOST, acquire) /* as SEEN, when the link comes too late */                            \
    ROW(SEAL, acq_rel)      /* kernel writes out; linked slots and nodes in */                     \
    ROW(PEND, acq_rel)      /* each producer's writes, to whoever makes the task ready */          \
    ROW(LAST, acquire)      /* as PEND, for the last producer: a count of one is its own */        \
    ROW(DROP, acq_rel)      /* a reader's last access, to whoever drops the last reference */      \
    ROW(FLAG, release)      /* everything done to a slot, to the retire scan */                    \
    ROW(RETIRE, acquire)                                                                           \
    ROW(PUSH, release) /* deque bottom, injection tail: the task's slot, to a thief */             \
    ROW(STEAL, acquire)                                                                            \
    ROW(CLAIM, seq_cst) /* deque: the owner's claim of the bottom ... */                           \
    ROW(LOOK, seq_cst)  /* ... and both sides' looks: one sees the other */                        \
    ROW(TAKE, seq_cst)  /* deque: the exchange of the top */                                       \
    ROW(DONE, release)  /* executed counters: kernel writes, to wait_all */                        \
    ROW(WAIT, acquire)                                                                             \
    ROW(ANNOUNCE, seq_cst) /* graph runs: a helper says that it comes, ... */                      \
    ROW(CHECK, seq_cst)    /* ... then looks whether there still is a run */                       \
    ROW(CLOSE, seq_cst)    /* the caller ends the run, ... */                                      \
    ROW(LEFT, seq_cst)     /* ... then looks whether somebody is inside */                         \
    ROW(LEAVE, release)    /* a helper's last access, to the caller */                             \
    ROW(OPEN, seq_cst)     /* the run's set-up, to helpers */                                      \
    ROW(COUNT, release)    /* finished nodes' writes, ... */                                       \
    ROW(OVER, acquire)     /* ... to the caller */                                                 \
    ROW(ENTER, acquire)    /* one run after the other: what the one before left behind */          \
    ROW(EXIT, release)                                                                             \
    ROW(RING, release)  /* sleepers' event: work published before the call, ... */                 \
    ROW(HEAR, acquire)  /* ... to a sleeper's last look */                                         \
    ROW(FENCE, seq_cst) /* between announcing sleep and that look; between publishing and looking  \
                           for sleepers */

enum {
#define TASK_ORDER_NAME(name, order) MO_##name = memory_order_##order,
    TASK_ORDERS(TASK_ORDER_NAME)
#undef TASK_ORDER_NAME
};

#define LOAD(p, order) atomic_load_explicit((p), (order))
#define STORE(p, v, order) atomic_store_explicit((p), (v), (order))
#define RELAXED memory_order_relaxed

#endif
