/* SPDX-License-Identifier: Apache-2.0 */
#include "base/thread.h"

#include <signal.h>
#include <stdio.h>

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

void thread_name(const char *name)
{
    char shown[16]; /* what Linux keeps; a longer one would be refused */
    snprintf(shown, sizeof shown, "%s", name);
    pthread_setname_np(pthread_self(), shown);
}
