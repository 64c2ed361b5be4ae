/* SPDX-License-Identifier: Apache-2.0
 * The ONNX reader on the conformance models: all load, and their graphs are what the files say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "load/load.h"
#include "support/suite.h"

typedef struct tally {
    size_t good, bad, unknown_ops;
} tally;

static void load_one(void *context, const char *path)
{
    tally *t = context;
    file_map m;
    tacit_error err = {0};
    arena a;
    load_files files = {0};
    ir_graph *g = NULL;
    arena_init(&a, NULL);
    assert_int_equal(file_map_open(&m, path, &err), TACIT_OK);
    load_options o = {.name = path, .map = &m};
    tacit_status status = load_onnx(m.data, m.size, &o, &a, &files, &g, &err);
    if (status == TACIT_OK) {
        t->good++;
        for (uint32_t i = 0; i < g->nodes.count; i++)
            t->unknown_ops += g->nodes.data[i]->op == NULL;
    } else {
        t->bad++;
        fprintf(stderr, "%s\n", err.message);
    }
    load_files_close(&files);
    arena_free(&a);
    file_map_close(&m);
}

static void every_conformance_model_loads(void **state)
{
    (void)state;
    const char *folder = suite_folder();
    if (!folder)
        skip();
    tally t = {0};
    size_t n = suite_each_model(folder, load_one, &t);
    printf("%zu models: %zu loaded, %zu refused; %zu nodes without a row\n", n, t.good, t.bad,
           t.unknown_ops);
    assert_true(n >= 1900);
    assert_true(t.bad <= 3); /* withdrawn forms: batched Scan of opset 8 and the like */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_conformance_model_loads),
    };
    return cmocka_run_group_tests_name("load onnx", tests, NULL, NULL);
}
