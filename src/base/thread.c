/* SPDX-License-Identifier: Apache-2.0 */
#include "base/thread.h"

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#if defined(__linux__)
#include <sys/auxv.h>
#include <sys/resource.h>
#include <unistd.h>
#endif

bool thread_start(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                  void *context)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
    sigset_t blocked, before;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&blocked, faults[i]);
    /* Blocked before it exists: a new thread takes over the mask of its maker. */
    if (pthread_sigmask(SIG_SETMASK, &blocked, &before) != 0)
        return false;
    bool started = pthread_create(thread, attributes, run, context) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

bool thread_elsewhere(pthread_attr_t *attributes, cpu_set_t *allowed)
{
    int here = sched_getcpu();
    if (here < 0 || here >= CPU_SETSIZE || sched_getaffinity(0, sizeof *allowed, allowed) != 0)
        return false;
    cpu_set_t others = *allowed;
    CPU_CLR(here, &others);
    return CPU_COUNT(&others) > 0 &&
           pthread_attr_setaffinity_np(attributes, sizeof others, &others) == 0;
}

void thread_name(const char *name)
{
    char shown[16]; /* what Linux keeps; a longer one would be refused */
    snprintf(shown, sizeof shown, "%s", name);
    pthread_setname_np(pthread_self(), shown);
}

#if defined(__linux__)
/* The first thread's stack grows up to a limit, and whatever the limit is, nothing else is mapped
 * within 128 MB of its top: there lies what the system told the process, below arguments, of which
 * there is a quarter of the limit at most. Who is further away has a stack of the program's own. */
static size_t first_stack_left(uintptr_t here)
{
    enum { KNOWN = 64 << 20 };
    uintptr_t top = (uintptr_t)getauxval(AT_RANDOM);
    struct rlimit limit;
    if (!top || here >= top || getrlimit(RLIMIT_STACK, &limit) != 0)
        return 0;
    size_t most = limit.rlim_cur < KNOWN ? (size_t)limit.rlim_cur : KNOWN;
    size_t used = top - here;
    return used < most / 2 ? most / 2 - used : 0;
}

static size_t other_stack_left(uintptr_t here)
{
    pthread_attr_t attributes;
    void *lowest = NULL;
    size_t size = 0, left = 0;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0)
        return 0;
    if (pthread_attr_getstack(&attributes, &lowest, &size) == 0 && here > (uintptr_t)lowest &&
        here - (uintptr_t)lowest < size)
        left = here - (uintptr_t)lowest;
    pthread_attr_destroy(&attributes);
    return left;
}

size_t thread_stack_left(void)
{
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    return gettid() == getpid() ? first_stack_left(here) : other_stack_left(here);
}
#else
size_t thread_stack_left(void)
{
    return 0;
}
#endif
