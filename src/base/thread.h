/* SPDX-License-Identifier: Apache-2.0
 * Threads of the library: signals are left to those of the program. */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>

/* Starts a thread in which every signal is blocked, so that handlers run where the program expects
 * them and interrupt nobody's work; only faults of the thread itself (SIGSEGV and the like) come to
 * it. `attributes` may be NULL. False: there is no thread to be had. */
bool thread_start(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                  void *context);
/* Left alone Linux starts a thread on the processor of its maker and moves one of them away after a
 * tick or two, 4 ms: as long as all that a short-lived one has to do. So those with these
 * attributes start elsewhere; `allowed` is where they may go on. False: there is no other
 * processor. */
bool thread_elsewhere(pthread_attr_t *attributes, cpu_set_t *allowed);
/* What ps and debuggers call the calling thread; 15 bytes count. (Naming another thread takes the
 * system as long as starting it.) */
void thread_name(const char *name);
/* Bytes that the caller's stack surely has below its frame; 0 where nobody knows. */
size_t thread_stack_left(void);

#endif
