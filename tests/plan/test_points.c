/* SPDX-License-Identifier: Apache-2.0
 * Reference points: activation bytes of known models, and how close each plan is to its largest
 * live set. Models come from the command line tool of this build. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "tacit/tacit.h"

typedef struct point {
    const char *model;
    double most_kib; /* arena bytes; 0: only the live set counts */
} point;

static tacit_memory_report plan_of(const char *arguments, const tacit_compile_options *options)
{
    char path[64], command[600];
    tacit_error err = {0};
    snprintf(path, sizeof path, "/tmp/tacit-points-%ld.onnx", (long)getpid());
    snprintf(command, sizeof command, "'%s/tacit' example %s --out %s >/dev/null", TACIT_BINARY_DIR,
             arguments, path);
    assert_int_equal(system(command), 0);
    tacit_model *m = NULL;
    tacit_program *p = NULL;
    if (tacit_model_load(path, NULL, &m, &err) != TACIT_OK ||
        tacit_compile(m, options, &p, &err) != TACIT_OK)
        fail_msg("%s: %s", arguments, err.message);
    unlink(path);
    tacit_memory_report r;
    tacit_program_memory(p, &r);
    tacit_program_free(p);
    tacit_model_free(m);
    return r;
}

static void activation_bytes(void **state)
{
    (void)state;
    static const point points[] = {
        {"block --hidden 64 --heads 4 --ffn 256 --seq 32", 48},
        {"block --hidden 256 --heads 4 --ffn 1024 --seq 128", 768},
        {"block --hidden 512 --heads 8 --ffn 2048 --seq 256", 4096},
        {"block --hidden 768 --heads 12 --ffn 3072 --seq 512", 18 * 1024},
        /* The logits lie in the caller's buffer, so the vocabulary does not count. */
        {"gpt2 --layers 2 --vocab 1000 --seq 16", 3189},
        {"gpt2 --layers 2 --vocab 1000 --seq 64", 12.5 * 1024},
        {"gpt2 --layers 2 --vocab 1000 --seq 256", 49.8 * 1024},
        {"mlp", 0},
        {"bert --layers 2 --vocab 1000", 0},
        {"resnet50", 0},
        {"mobilenetv2", 0},
        {"llama --layers 2 --vocab 1000", 0},
    };
    for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
        tacit_memory_report r = plan_of(points[i].model, NULL);
        if (points[i].most_kib > 0 && (double)r.arena_bytes > points[i].most_kib * 1024)
            fail_msg("%s: %.1f KiB, the reference point is %.1f KiB", points[i].model,
                     (double)r.arena_bytes / 1024, points[i].most_kib);
        if ((double)r.arena_bytes > 1.05 * (double)r.lower_bound_bytes)
            fail_msg("%s: %llu bytes, the largest live set has %llu", points[i].model,
                     (unsigned long long)r.arena_bytes, (unsigned long long)r.lower_bound_bytes);
        assert_int_equal(r.has_dynamic_tail, 0);
    }
}

/* Without the passes scores are materialised and residuals stay separate: the bound holds too. */
static void activation_bytes_without_fusion(void **state)
{
    (void)state;
    static const char *const all[] = {"all"};
    tacit_compile_options o = {.disabled_passes = all, .n_disabled_passes = 1};
    static const point points[] = {
        {"block --hidden 64 --heads 4 --ffn 256 --seq 32", 0},
        {"block --hidden 256 --heads 4 --ffn 1024 --seq 128", 0},
        {"resnet50", 0},
    };
    for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
        tacit_memory_report r = plan_of(points[i].model, &o);
        assert_true((double)r.arena_bytes <= 1.05 * (double)r.lower_bound_bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(activation_bytes),
        cmocka_unit_test(activation_bytes_without_fusion),
    };
    return cmocka_run_group_tests_name("reference points", tests, NULL, NULL);
}
