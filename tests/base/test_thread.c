/* SPDX-License-Identifier: Apache-2.0
 * Threads of the library leave signals to those of the program, and have names; what is left of a
 * stack is known only where it is the system's. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <sys/resource.h>
#include <ucontext.h>

#include <cmocka.h>

#include "base/thread.h"

typedef struct seen {
    sigset_t mask;
    const char *wanted;
    char name[16];
    void *self;
} seen;

static void *look(void *context)
{
    seen *s = context;
    pthread_sigmask(SIG_SETMASK, NULL, &s->mask);
    thread_name(s->wanted);
    pthread_getname_np(pthread_self(), s->name, sizeof s->name);
    return context;
}

static void start(seen *s, const char *name)
{
    pthread_t thread;
    *s = (seen){.wanted = name};
    assert_true(thread_start(&thread, NULL, look, s));
    assert_int_equal(pthread_join(thread, &s->self), 0);
}

static void signals_are_the_programs(void **state)
{
    (void)state;
    static const int blocked[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGALRM, SIGCHLD, SIGPROF};
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    seen s;
    sigset_t usr2, before, after;
    sigemptyset(&usr2);
    sigaddset(&usr2, SIGUSR2);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, &usr2, &before), 0);
    start(&s, "tacit-test");
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    assert_ptr_equal(s.self, &s);
    for (size_t i = 0; i < sizeof blocked / sizeof *blocked; i++) {
        assert_int_equal(sigismember(&s.mask, blocked[i]), 1);
        assert_int_equal(sigismember(&after, blocked[i]), 0); /* the maker's mask is as it was */
    }
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        assert_int_equal(sigismember(&s.mask, own[i]), 0);
    assert_int_equal(sigismember(&after, SIGUSR2), 1);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
}

static void names_are_shown(void **state)
{
    (void)state;
    seen s;
    start(&s, "tacit-test");
    assert_string_equal(s.name, "tacit-test");
    start(&s, "tacit-with-a-long-name");
    assert_string_equal(s.name, "tacit-with-a-lo");
}

static void no_thread_is_no_thread(void **state)
{
    (void)state;
    pthread_attr_t huge;
    pthread_t thread;
    sigset_t before, after;
    seen s;
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    assert_int_equal(pthread_attr_init(&huge), 0);
    if (pthread_attr_setstacksize(&huge, (size_t)1 << 60) == 0)
        assert_false(thread_start(&thread, &huge, look, &s));
    pthread_attr_destroy(&huge);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    for (int i = 1; i < SIGRTMAX; i++)
        assert_int_equal(sigismember(&before, i), sigismember(&after, i));
}

/* What a stack has left is there to be written, and less within a frame. */
static size_t left_below(size_t frame)
{
    volatile char *room = __builtin_alloca(frame);
    for (size_t i = frame; i > 0; i -= i < 4096 ? i : 4096)
        room[i - 1] = 1;
    return thread_stack_left() + (room[0] == 2);
}

typedef struct depth {
    size_t whole, half;
} depth;

static void *measure(void *context)
{
    depth *d = context;
    d->whole = thread_stack_left();
    d->half = left_below(d->whole / 2);
    return NULL;
}

static void stacks_know_what_is_left(void **state)
{
    (void)state;
    enum { STACK = 1 << 20 };
    pthread_attr_t attributes;
    pthread_t thread;
    depth d = {0};
    assert_int_equal(pthread_attr_init(&attributes), 0);
    assert_int_equal(pthread_attr_setstacksize(&attributes, STACK), 0);
    assert_true(thread_start(&thread, &attributes, measure, &d));
    assert_int_equal(pthread_join(thread, NULL), 0);
    pthread_attr_destroy(&attributes);
    assert_in_range(d.whole, STACK / 2, STACK + 65536);
    assert_in_range(d.half, 1, d.whole / 2);
    measure(&d); /* the first thread's, if it has a limit that leaves room */
    if (d.whole)
        assert_in_range(d.half, 1, d.whole - d.whole / 2);
}

/* A stack that the program made: nobody knows, whatever the limit of the first one is. */
static ucontext_t caller, fiber;
static size_t fiber_left;

static void on_a_fiber(void)
{
    fiber_left = thread_stack_left();
}

static void own_stacks_are_unknown(void **state)
{
    (void)state;
    enum { STACK = 256 << 10 };
    struct rlimit before, any;
    assert_int_equal(getrlimit(RLIMIT_STACK, &before), 0);
    any = (struct rlimit){before.rlim_max, before.rlim_max};
    for (int limited = 0; limited < 2; limited++) {
        char *stack = malloc(STACK);
        assert_non_null(stack);
        assert_int_equal(getcontext(&fiber), 0);
        fiber.uc_stack = (stack_t){.ss_sp = stack, .ss_size = STACK};
        fiber.uc_link = &caller;
        makecontext(&fiber, on_a_fiber, 0);
        fiber_left = 1;
        assert_int_equal(setrlimit(RLIMIT_STACK, limited ? &before : &any), 0);
        assert_int_equal(swapcontext(&caller, &fiber), 0);
        assert_int_equal(setrlimit(RLIMIT_STACK, &before), 0);
        assert_int_equal(fiber_left, 0);
        free(stack);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(signals_are_the_programs), cmocka_unit_test(names_are_shown),
        cmocka_unit_test(no_thread_is_no_thread),   cmocka_unit_test(stacks_know_what_is_left),
        cmocka_unit_test(own_stacks_are_unknown),
    };
    return cmocka_run_group_tests_name("threads", tests, NULL, NULL);
}
