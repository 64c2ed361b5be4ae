/* SPDX-License-Identifier: Apache-2.0
 * Every row of the table, compiled and run serially, against the interpreter: random inputs of
 * every type, dense, constant and through views; with the passes and without. What one refuses the
 * other refuses; what both run agrees. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "ir/text.h"
#include "pass/pass.h"
#include "prog/interp.h"
#include "prog/program.h"
#include "support/odd_node.h"

enum { SEEDS = 200 };

static tacit_status compile_and_run(odd_node *n, bool passes, arena *a, ir_tensor *out,
                                    tacit_error *err)
{
    TRY(ir_graph_sort(n->graph, err));
    TRY(op_infer_graph(n->graph, err));
    pass_report report;
    if (passes)
        TRY(pass_pipeline(n->graph, &(pass_options){0}, a, &report, err));
    prog_program *program = NULL;
    prog_session *session = NULL;
    TRY(prog_build(n->graph, &(prog_options){.executor = TACIT_EXEC_SERIAL}, &program, err));
    tacit_status status = prog_session_create(program, &session, err);
    if (status == TACIT_OK)
        status = prog_run_values(session, n->given, out, a, err);
    prog_session_free(session);
    prog_free(program);
    return status;
}

static double worst_eps(tacit_dtype dtype)
{
    switch (dtype) {
    case TACIT_F64:
        return 1e-6; /* some kernels compute parts in f32 tables */
    case TACIT_F32:
    case TACIT_C64:
    case TACIT_C128:
        return 2e-4;
    case TACIT_F16:
        return 4e-3;
    case TACIT_BF16:
        return 3e-2;
    default:
        return 0;
    }
}

/* `wild`: there are infinities or NaNs among the inputs, so that the order of operations decides
 * between a NaN and a number. */
static bool close_enough(tacit_dtype dtype, bool wild, double have, double want)
{
    if (have == want || (isnan(have) && isnan(want)))
        return true;
    if (wild && (isnan(have) || isnan(want)))
        return true;
    return fabs(have - want) <= worst_eps(dtype) * (1 + fabs(want));
}

static bool is_wild(const odd_node *n)
{
    bool wild = false;
    for (uint32_t i = 0; i < n->graph->values.count + n->n_given; i++) {
        const ir_tensor *t =
            i < n->n_given ? n->given[i] : n->graph->values.data[i - n->n_given]->constant;
        for (int64_t k = 0; t && ir_dtype_is_float(t->dtype) && k < ir_tensor_count(t); k++)
            wild |= !isfinite(ir_load_f64(t->dtype, t->data, k));
    }
    return wild;
}

/* Where they differ, or NULL. */
static const char *difference(const ir_tensor *have, const ir_tensor *want, bool wild)
{
    static char text[160];
    char a[IR_SHAPE_TEXT], b[IR_SHAPE_TEXT];
    if (have->kind != want->kind || have->dtype != want->dtype ||
        !ir_shape_equal(&have->shape, &want->shape)) {
        snprintf(text, sizeof text, "%s%.60s, not %s%.60s", tacit_dtype_text(have->dtype),
                 ir_shape_text(&have->shape, a), tacit_dtype_text(want->dtype),
                 ir_shape_text(&want->shape, b));
        return text;
    }
    if (want->kind != IR_TENSOR || want->dtype == TACIT_STRING)
        return ir_tensor_identical(have, want) ? NULL : "contents differ";
    for (int64_t i = 0, n = ir_tensor_count(want); i < n; i++) {
        double x[2], y[2];
        ir_load_complex(have->dtype, have->data, i, x);
        ir_load_complex(want->dtype, want->data, i, y);
        bool same = ir_dtype_is_int(want->dtype) ? ir_load_i64(have->dtype, have->data, i) ==
                                                       ir_load_i64(want->dtype, want->data, i)
                                                 : close_enough(want->dtype, wild, x[0], y[0]) &&
                                                       close_enough(want->dtype, wild, x[1], y[1]);
        if (!same) {
            snprintf(text, sizeof text, "%s element %lld is %.9g, not %.9g",
                     tacit_dtype_text(want->dtype), (long long)i, x[0], y[0]);
            return text;
        }
    }
    return NULL;
}

/* Runs one seed; -1: disagreement, 0: both refuse, 1: both agree. */
static int try_row(const op_def *row, uint64_t seed, char *why, size_t size)
{
    arena a, b;
    arena_init(&a, NULL);
    arena_init(&b, NULL);
    odd_node plain, compiled;
    odd_node_make(&a, row, seed, true, &plain);
    odd_node_make(&b, row, seed, true, &compiled);
    ir_tensor want[ODD_VALUES] = {0}, have[ODD_VALUES] = {0};
    tacit_error err = {0}, other = {0};
    bool wild = is_wild(&plain);
    int verdict = 1;
    tacit_status expected = ir_graph_sort(plain.graph, &err);
    if (expected == TACIT_OK)
        expected = op_infer_graph(plain.graph, &err);
    if (expected == TACIT_OK)
        expected = interp_run(plain.graph, plain.given, want, &a, 0, &err);
    tacit_status status = compile_and_run(&compiled, seed % 2, &b, have, &other);
    bool memory = expected == TACIT_ERR_MEMORY || status == TACIT_ERR_MEMORY;
    if (expected != TACIT_OK || status != TACIT_OK) {
        verdict = memory || (expected == TACIT_OK) == (status == TACIT_OK) ? 0 : -1;
        snprintf(why, size, "interpreter: %.200s; compiled: %.200s",
                 expected == TACIT_OK ? "ok" : err.message,
                 status == TACIT_OK ? "ok" : other.message);
    }
    for (uint32_t i = 0; verdict == 1 && i < plain.n_out; i++) {
        const char *text = difference(&have[i], &want[i], wild);
        if (text) {
            snprintf(why, size, "output %u: %s", i, text);
            verdict = -1;
        }
    }
    arena_free(&a);
    arena_free(&b);
    return verdict;
}

static void compiled_nodes_agree_with_the_interpreter(void **state)
{
    (void)state;
    const op_def *row;
    uint64_t agreed = 0, tried = 0, bad = 0;
    for (uint32_t k = 0; (row = op_at(k)); k++)
        for (uint64_t seed = 0; row->eval && seed < SEEDS; seed++, tried++) {
            char why[512];
            int verdict = try_row(row, seed, why, sizeof why);
            agreed += verdict == 1;
            if (verdict < 0 && bad++ < 40)
                print_error("%s%s%s, seed %llu: %s\n", row->domain ? row->domain : "",
                            row->domain ? "." : "", row->name, (unsigned long long)seed, why);
        }
    print_message("%llu of %llu odd nodes ran and agreed\n", (unsigned long long)agreed,
                  (unsigned long long)tried);
    assert_int_equal(bad, 0);
    assert_true(agreed > tried / 50);
}

/* test_prog_every_op NAME SEED: one case again, in words. */
static int again(const char *name, const char *seed_text)
{
    const op_def *row;
    unsigned long long seed = 0;
    for (uint32_t k = 0; (row = op_at(k)); k++) {
        if (strcmp(row->name, name) != 0 || sscanf(seed_text, "%llu", &seed) != 1)
            continue;
        arena a;
        arena_init(&a, NULL);
        odd_node n;
        odd_node_make(&a, row, seed, true, &n);
        sbuf text;
        sbuf_init(&text, NULL);
        if (op_infer_graph(n.graph, NULL) == TACIT_OK)
            ir_graph_print(n.graph, &(ir_text_options){0}, &text);
        char why[512] = "";
        int verdict = try_row(row, seed, why, sizeof why);
        printf("%s%d %s\n", text.data ? text.data : "", verdict, why);
        sbuf_free(&text);
        arena_free(&a);
    }
    return 0;
}

/* A node that asks for absurdly much memory is to be refused it, not to take the machine down. */
static void limit_memory(void)
{
#ifndef __SANITIZE_ADDRESS__
    struct rlimit limit = {UINT64_C(4) << 30, UINT64_C(4) << 30};
    (void)setrlimit(RLIMIT_AS, &limit);
#endif
}

int main(int argc, char **argv)
{
    limit_memory();
    if (argc == 3)
        return again(argv[1], argv[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compiled_nodes_agree_with_the_interpreter),
    };
    return cmocka_run_group_tests_name("every op, compiled", tests, NULL, NULL);
}
