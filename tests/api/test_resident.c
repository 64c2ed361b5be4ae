/* SPDX-License-Identifier: Apache-2.0
 * What is said before anything is allocated is what is used: resident memory of an open, running
 * model stays within the report. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "tacit/tacit.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SHADOWED 1 /* a sanitizer's own memory would be counted */
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SHADOWED 1
#endif
#endif

enum { SLACK = 6 << 20 }; /* graph, names, libc's own */

static uint64_t resident(void)
{
    unsigned long long pages = 0, all = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%llu %llu", &all, &pages), 2);
    fclose(f);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static uint64_t size_of(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return (uint64_t)st.st_size;
}

static void fill(tacit_tensor *t, const tacit_port *port)
{
    *t = (tacit_tensor){.dtype = port->dtype, .rank = port->rank, .bytes = port->bytes};
    memcpy(t->dims, port->dims, sizeof t->dims);
    t->data = calloc(1, port->bytes);
}

/* Compiles the model once, so that the next one finds its packed weights. */
static void keep(const char *path, const tacit_compile_options *o)
{
    tacit_error err = {0};
    tacit_model *m = NULL;
    tacit_program *p = NULL;
    struct timespec settled = {.tv_nsec = 40000000}; /* until another change would be seen */
    nanosleep(&settled, NULL);
    if (tacit_model_load(path, NULL, &m, &err) != TACIT_OK ||
        tacit_compile(m, o, &p, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    tacit_program_free(p);
    tacit_model_free(m);
}

/* `apart`: bytes of a table of which some rows are read, from all over it, but never mapped.
 * `kept`: the packed weights come from a file. */
static void check(const char *arguments, int64_t rows, uint64_t apart, bool kept)
{
    char path[64], packed[80], command[600];
    tacit_compile_options o = {.packed_file = kept ? packed : NULL};
    tacit_error err = {0};
    tacit_model *m = NULL;
    tacit_program *p = NULL;
    tacit_session *s = NULL;
    snprintf(path, sizeof path, "/tmp/tacit-resident-%ld.onnx", (long)getpid());
    snprintf(command, sizeof command, "'%s/tacit' example %s --out %s >/dev/null", TACIT_BINARY_DIR,
             arguments, path);
    assert_int_equal(system(command), 0);
    snprintf(packed, sizeof packed, "%s.kept", path);
    if (kept)
        keep(path, &o);
    uint64_t file = size_of(path), before = resident();
    if (tacit_model_load(path, NULL, &m, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    /* Loading maps: the weights are not read yet. */
    assert_true(resident() - before < file / 4 + SLACK);
    if (tacit_compile(m, &o, &p, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    unlink(path);
    unlink(packed);
    tacit_memory_report r;
    tacit_program_memory(p, &r);
    assert_int_equal(r.mapped_bytes > 0, kept);
    tacit_port port;
    tacit_tensor in[2], out[2];
    uint64_t caller = 0;
    assert_int_equal(tacit_program_input_count(p), 1);
    assert_int_equal(tacit_program_output_count(p), 1);
    assert_int_equal(tacit_program_input(p, 0, &port), TACIT_OK);
    fill(&in[0], &port);
    caller += port.bytes;
    for (size_t i = 0; rows && i < port.bytes / sizeof(int64_t); i++)
        ((int64_t *)in[0].data)[i] = (int64_t)i * 7919 % rows;
    assert_int_equal(tacit_program_output(p, 0, &port), TACIT_OK);
    fill(&out[0], &port);
    caller += port.bytes;
    if (tacit_session_create(p, &s, &err) != TACIT_OK ||
        tacit_run(s, in, 1, out, 1, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    r.weight_bytes -= apart;
    file -= apart;
    uint64_t used = resident() - before,
             told = r.weight_bytes + r.packed_bytes + r.arena_bytes + r.argument_bytes + caller;
    if (used > told + SLACK)
        fail_msg("%s: %llu bytes resident, %llu were announced", arguments,
                 (unsigned long long)used, (unsigned long long)told);
    /* Packed weights leave their originals on disk. */
    if (used > file + file * 15 / 100 + r.arena_bytes + caller + SLACK)
        fail_msg("%s: %llu bytes resident, the file has %llu", arguments, (unsigned long long)used,
                 (unsigned long long)file);
    tacit_session_free(s);
    tacit_program_free(p);
    tacit_model_free(m);
    free(in[0].data);
    free(out[0].data);
}

static void resident_memory_is_what_was_announced(void **state)
{
    (void)state;
#ifdef SHADOWED
    skip();
#endif
    check("mlp --width 2048", 0, 0, false);
    check("gpt2 --layers 3 --vocab 5000 --seq 32", 5000, 0, false);
    check("gpt2 --layers 1 --vocab 25000 --seq 128", 25000, UINT64_C(25000) * 768 * 4, false);
    check("llama --layers 3 --vocab 12000 --seq 32", 12000, 0, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resident_memory_is_what_was_announced),
    };
    return cmocka_run_group_tests_name("resident memory", tests, NULL, NULL);
}
