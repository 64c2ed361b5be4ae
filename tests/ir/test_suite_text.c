/* SPDX-License-Identifier: Apache-2.0
 * The text form round-trips every conformance model that loads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ir/text.h"
#include "load/load.h"
#include "support/suite.h"

static void round_trip(void *context, const char *path)
{
    int *loaded = context;
    file_map file;
    tacit_error err = {0};
    arena a;
    arena_init(&a, NULL);
    load_files files = {0};
    ir_graph *g, *back;
    assert_int_equal(file_map_open(&file, path, &err), TACIT_OK);
    if (load_onnx(file.data, file.size, &(load_options){.name = path}, &a, &files, &g, &err) ==
        TACIT_OK) {
        ++*loaded;
        sbuf text, why;
        sbuf_init(&text, NULL);
        sbuf_init(&why, NULL);
        ir_graph_print(g, NULL, &text);
        assert_non_null(sbuf_str(&text));
        if (ir_graph_parse(text.data, text.length, &a, &back, &err) != TACIT_OK)
            fail_msg("%s: %s", path, err.message);
        if (!ir_graph_equal(g, back, &why))
            fail_msg("%s: %s differs after a round trip", path, sbuf_str(&why));
        sbuf_free(&why);
        sbuf_free(&text);
    }
    load_files_close(&files);
    arena_free(&a);
    file_map_close(&file);
}

static void every_model_that_loads_round_trips(void **state)
{
    (void)state;
    const char *folder = suite_folder();
    if (!folder)
        skip();
    int loaded = 0;
    size_t models = suite_each_model(folder, round_trip, &loaded);
    print_message("%d of %zu models load and round-trip\n", loaded, models);
    assert_true(models >= 1900);
    assert_true(loaded >= 1900);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_model_that_loads_round_trips)};
    return cmocka_run_group_tests_name("text form of the suite", tests, NULL, NULL);
}
