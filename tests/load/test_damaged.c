/* SPDX-License-Identifier: Apache-2.0
 * Damaged models that still load: compiling and running them ends, by a result or an error. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/rng.h"
#include "support/suite.h"
#include "tacit/tacit.h"

enum { FLIPS = 12, SECONDS = 8, MAX_INPUTS = 16, MAX_BYTES = 1 << 24 };

typedef struct tally {
    size_t seen, every, models, bad;
    rng random;
} tally;

static const void *zeros(void)
{
    static void *memory;
    if (!memory)
        memory = calloc(1, MAX_BYTES);
    return memory;
}

/* A flipped bit can ask a Loop for 2^40 turns or an Expand for gigabytes: running long is no fault
 * once the program runs, but loading and compiling must end. */
static volatile sig_atomic_t running;

static void on_alarm(int number)
{
    (void)number;
    _exit(running ? 0 : 99);
}

/* Runs on zeros, the session lending its own buffers for the outputs. */
static void run(const tacit_program *p)
{
    tacit_session *s;
    tacit_tensor inputs[MAX_INPUTS];
    uint32_t n = tacit_program_input_count(p);
    tacit_error err;
    if (n > MAX_INPUTS || tacit_session_create(p, &s, &err) != TACIT_OK)
        return;
    for (uint32_t i = 0; i < n; i++) {
        tacit_port port;
        if (tacit_program_input(p, i, &port) != TACIT_OK || port.bytes > MAX_BYTES ||
            port.rank < 0 || port.dtype == TACIT_STRING) {
            tacit_session_free(s);
            return;
        }
        inputs[i] = (tacit_tensor){.dtype = port.dtype, .rank = port.rank, .bytes = port.bytes};
        memcpy(inputs[i].dims, port.dims, sizeof port.dims);
        inputs[i].data = (void *)zeros();
    }
    tacit_tensor output = {0};
    running = 1;
    (void)!tacit_run(s, inputs, n, &output, tacit_program_output_count(p) ? 1 : 0, &err);
    running = 0;
    tacit_session_free(s);
}

static void compile_and_run(const void *data, size_t size)
{
    tacit_model *m;
    tacit_program *p;
    tacit_error err;
    tacit_dim dims[TACIT_MAX_RANK * MAX_INPUTS];
    tacit_compile_options o = {.dims = dims};
    if (tacit_model_load_memory(data, size, NULL, &m, &err) != TACIT_OK)
        return;
    for (uint32_t i = 0; i < tacit_model_input_count(m) && i < MAX_INPUTS; i++) {
        tacit_port port;
        if (tacit_model_input(m, i, &port) != TACIT_OK)
            continue;
        for (int32_t k = 0; k < port.rank; k++) {
            bool known = port.dims[k] >= 0 || !port.dim_names[k];
            for (uint32_t d = 0; d < o.n_dims && !known; d++)
                known = strcmp(dims[d].name, port.dim_names[k]) == 0;
            if (!known)
                dims[o.n_dims++] = (tacit_dim){port.dim_names[k], 2};
        }
    }
    if (tacit_compile(m, &o, &p, &err) == TACIT_OK) {
        run(p);
        tacit_program_free(p);
    }
    tacit_model_free(m);
}

static void damage(tally *t, const char *path)
{
    file_map m;
    if (file_map_open(&m, path, NULL) != TACIT_OK || m.size > 1 << 16)
        exit(0);
    unsigned char *copy = malloc(m.size);
    for (int i = 0; copy && i < FLIPS; i++) {
        memcpy(copy, m.data, m.size);
        copy[rng_below(&t->random, m.size)] ^= (unsigned char)(1u << rng_below(&t->random, 8));
        compile_and_run(copy, m.size);
    }
    free(copy);
    file_map_close(&m);
    exit(0);
}

/* Each model in a process of its own: the next ones still get their turn after a crash. */
static void one_model(void *context, const char *path)
{
    tally *t = context;
    uint64_t seed = rng_u64(&t->random);
    if (t->seen++ % t->every)
        return;
    t->models++;
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct rlimit no_core = {0, 0};
        setrlimit(RLIMIT_CORE, &no_core);
        signal(SIGALRM, on_alarm);
        alarm(SECONDS);
        t->random = rng_seed(seed);
        damage(t, path);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        t->bad++;
        fprintf(stderr, "%s (seed %llu): %s\n", path, (unsigned long long)seed,
                WIFSIGNALED(status)         ? strsignal(WTERMSIG(status))
                : WEXITSTATUS(status) == 99 ? "compiling does not end"
                                            : "crash or sanitizer report");
    }
}

static void damaged_models_compile_and_run_to_an_end(void **state)
{
    (void)state;
    const char *folder = suite_folder();
    if (!folder)
        skip();
    const char *every = getenv("TACIT_DAMAGE_EVERY"), *seed = getenv("TACIT_DAMAGE_SEED");
    tally t = {.every = every && atoi(every) > 0 ? (size_t)atoi(every) : 8,
               .random = rng_seed(seed ? strtoull(seed, NULL, 10) : 11)};
    suite_each_model(folder, one_model, &t);
    printf("%zu models, %d damaged copies of each, %zu ended badly\n", t.models, FLIPS, t.bad);
    assert_int_equal(t.bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damaged_models_compile_and_run_to_an_end),
    };
    return cmocka_run_group_tests_name("load damaged", tests, NULL, NULL);
}
