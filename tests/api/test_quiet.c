/* SPDX-License-Identifier: Apache-2.0
 * tacit_run of a compiled f32 model allocates nothing, locks nothing and makes no system call:
 * malloc and mutexes are counted, and a filter kills the process at the first system call. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dlfcn.h>
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tacit/tacit.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define INTERPOSE 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define INTERPOSE 0
#endif
#endif
#ifndef INTERPOSE
#define INTERPOSE 1
#endif

static volatile uint64_t allocations;

#if INTERPOSE
/* The C library's own entry points, below the names that are replaced here. */
#pragma GCC visibility push(default)
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);
void *__libc_memalign(size_t align, size_t size);
void __libc_free(void *memory);

void *malloc(size_t size)
{
    allocations++;
    return __libc_malloc(size);
}
void *calloc(size_t count, size_t size)
{
    allocations++;
    return __libc_calloc(count, size);
}
void *realloc(void *memory, size_t size)
{
    allocations++;
    return __libc_realloc(memory, size);
}
void *aligned_alloc(size_t align, size_t size)
{
    allocations++;
    return __libc_memalign(align, size);
}
int posix_memalign(void **out, size_t align, size_t size)
{
    allocations++;
    *out = __libc_memalign(align, size);
    return *out ? 0 : ENOMEM;
}
void free(void *memory)
{
    allocations += memory != NULL;
    __libc_free(memory);
}
#pragma GCC visibility pop
#endif

static volatile uint64_t locks;

#if INTERPOSE
static int (*real_lock)(pthread_mutex_t *);

__attribute__((visibility("default"))) int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    locks++;
    if (!real_lock)
        real_lock = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_lock");
    return real_lock(mutex);
}
#endif

static uint64_t hook_calls;

static void *hook_alloc(void *context, size_t size, size_t align)
{
    (void)context;
    hook_calls++;
    return aligned_alloc(align, (size + align - 1) / align * align);
}

static void hook_release(void *context, void *memory, size_t size)
{
    (void)context;
    (void)size;
    hook_calls++;
    free(memory);
}

/* From here on every system call but exit ends the process. Not where a sanitizer's own thread
 * makes some. */
static bool forbid_system_calls(void)
{
#if defined(__SANITIZE_THREAD__)
    return false;
#endif
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

enum { QUIET = 0, NO_FILTER = 40, ALLOCATED, LOCKED, FAILED };

typedef struct ready {
    tacit_session *session;
    tacit_tensor in[4], out[4];
    uint32_t n_in, n_out;
} ready;

static tacit_tensor make_tensor(const tacit_port *port)
{
    tacit_tensor t = {.dtype = port->dtype, .rank = port->rank, .bytes = port->bytes};
    memcpy(t.dims, port->dims, sizeof t.dims);
    t.data = calloc(1, port->bytes);
    return t;
}

static void prepare(const char *arguments, const tacit_compile_options *options, ready *r)
{
    static const tacit_allocator hook = {hook_alloc, hook_release, NULL};
    char path[64], command[600];
    tacit_error err = {0};
    tacit_model *m = NULL;
    tacit_program *p = NULL;
    snprintf(path, sizeof path, "/tmp/tacit-quiet-%ld.onnx", (long)getpid());
    snprintf(command, sizeof command, "'%s/tacit' example %s --out %s >/dev/null", TACIT_BINARY_DIR,
             arguments, path);
    assert_int_equal(system(command), 0);
    if (tacit_model_load(path, &(tacit_load_options){.allocator = &hook}, &m, &err) != TACIT_OK ||
        tacit_compile(m, options, &p, &err) != TACIT_OK ||
        tacit_session_create(p, &r->session, &err) != TACIT_OK)
        fail_msg("%s: %s", arguments, err.message);
    unlink(path);
    r->n_in = tacit_program_input_count(p);
    r->n_out = tacit_program_output_count(p);
    assert_true(r->n_in <= 4 && r->n_out <= 4);
    tacit_port port;
    for (uint32_t i = 0; i < r->n_in; i++) {
        assert_int_equal(tacit_program_input(p, i, &port), TACIT_OK);
        r->in[i] = make_tensor(&port);
    }
    for (uint32_t i = 0; i < r->n_out; i++) {
        assert_int_equal(tacit_program_output(p, i, &port), TACIT_OK);
        r->out[i] = make_tensor(&port);
    }
    tacit_program_free(p);
    tacit_model_free(m);
}

static int run_quietly(ready *r)
{
    uint64_t before = allocations, hooked = hook_calls, locked = locks;
    for (int i = 0; i < 3; i++)
        if (tacit_run(r->session, r->in, r->n_in, r->out, r->n_out, NULL) != TACIT_OK)
            return FAILED;
    if (locks != locked)
        return LOCKED;
    return allocations != before || hook_calls != hooked ? ALLOCATED : QUIET;
}

/* Even the first run is quiet. */
static void check(const char *arguments, const tacit_compile_options *options)
{
    ready r = {0};
    prepare(arguments, options, &r);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int code = forbid_system_calls() ? run_quietly(&r) : NO_FILTER;
        syscall(SYS_exit_group, code);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status))
        fail_msg("%s: a system call while running (signal %d)", arguments, WTERMSIG(status));
    if (WEXITSTATUS(status) == NO_FILTER) /* where filters are forbidden, counting remains */
        assert_int_equal(run_quietly(&r), QUIET);
    else
        assert_int_equal(WEXITSTATUS(status), QUIET);
    assert_int_equal(run_quietly(&r), QUIET);
    tacit_session_free(r.session);
    for (uint32_t i = 0; i < r.n_in; i++)
        free(r.in[i].data);
    for (uint32_t i = 0; i < r.n_out; i++)
        free(r.out[i].data);
}

static void compiled_models_run_quietly(void **state)
{
    (void)state;
    static const char *const all[] = {"all"};
    check("mlp", NULL);
    check("block --hidden 64 --heads 4 --ffn 256 --seq 32", NULL);
    check("gpt2 --layers 2 --hidden 64 --heads 4 --vocab 500 --seq 16", NULL);
    check("mlp", &(tacit_compile_options){.disabled_passes = all, .n_disabled_passes = 1});
}

/* The net must be able to catch something. */
static void the_filter_catches_a_call(void **state)
{
    (void)state;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (!forbid_system_calls())
            syscall(SYS_exit_group, NO_FILTER);
        syscall(SYS_getpid);
        syscall(SYS_exit_group, 0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == NO_FILTER);
#if INTERPOSE
    uint64_t before = allocations;
    char *volatile copy = strdup("counted");
    free(copy);
    uint64_t held = locks;
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
    assert_true(locks == held + 1);
    assert_true(allocations >= before + 2);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_filter_catches_a_call),
        cmocka_unit_test(compiled_models_run_quietly),
    };
    return cmocka_run_group_tests_name("quiet runs", tests, NULL, NULL);
}
