/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tacit/tacit.h"

static tacit_builder *begin(void)
{
    tacit_builder *b;
    assert_int_equal(tacit_builder_create("m", NULL, &b, NULL), TACIT_OK);
    return b;
}

static void builds_what_it_prints(void **state)
{
    (void)state;
    tacit_builder *b = begin();
    int64_t dims[2] = {-1, 2};
    const char *names[2] = {"N", NULL};
    tacit_value x = tacit_builder_input(b, "x", TACIT_F32, 2, dims, names);
    tacit_value c = tacit_builder_constant(b, "c", TACIT_F32, 1, &dims[1], (float[]){1, 2});
    tacit_value y = tacit_builder_node(b, "Add", 2, (tacit_value[]){x, c}, 1, NULL);
    tacit_builder_output(b, "y", y);
    tacit_builder_output(b, "again", y);
    tacit_model *m;
    tacit_error err;
    assert_int_equal(tacit_builder_finish(b, &m, &err), TACIT_OK);
    tacit_builder_free(b);
    char *text;
    assert_int_equal(tacit_model_text(m, 1, &text, &err), TACIT_OK);
    assert_string_equal(text, "tacit 1\n"
                              "graph \"m\" {\n"
                              "  producer \"tacit\"\n"
                              "  symbol \"N\"\n"
                              "  in %x : f32[N,2]\n"
                              "  const %c : f32[2] = [1.0, 2.0]\n"
                              "  %y = Add(%x, %c) @Add\n"
                              "  %again = Identity(%y) @Identity\n"
                              "  out %y\n"
                              "  out %again\n"
                              "}\n");
    tacit_port port;
    assert_int_equal(tacit_model_input(m, 0, &port), TACIT_OK);
    assert_int_equal(port.dims[0], -1);
    assert_string_equal(port.dim_names[0], "N");
    assert_int_equal(tacit_model_input(m, 1, &port), TACIT_ERR_ARGUMENT);
    tacit_model *again;
    assert_int_equal(tacit_model_load_memory(text, strlen(text), NULL, &again, &err), TACIT_OK);
    assert_int_equal(tacit_model_output_count(again), 2);
    tacit_model_free(again);
    tacit_text_free(text);
    tacit_model_free(m);
}

static void the_first_mistake_is_reported(void **state)
{
    (void)state;
    tacit_builder *b = begin();
    assert_int_equal(tacit_builder_node(b, "NoSuchOp", 0, NULL, 1, NULL), 0);
    tacit_builder_output(b, "y", 7);
    tacit_model *m;
    tacit_error err;
    assert_int_equal(tacit_builder_finish(b, &m, &err), TACIT_ERR_UNSUPPORTED);
    assert_string_equal(err.message, "no operator is named 'NoSuchOp'");
    assert_null(m);
    tacit_builder_free(b);
    b = begin();
    int64_t huge[2] = {INT64_MAX, 4};
    assert_int_equal(tacit_builder_constant(b, "c", TACIT_F32, 2, huge, huge), 0);
    assert_int_equal(tacit_builder_finish(b, &m, &err), TACIT_ERR_ARGUMENT);
    tacit_builder_free(b);
    b = begin();
    assert_int_equal(tacit_builder_finish(b, &m, &err), TACIT_ERR_GRAPH);
    tacit_builder_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(builds_what_it_prints),
        cmocka_unit_test(the_first_mistake_is_reported),
    };
    return cmocka_run_group_tests_name("builder", tests, NULL, NULL);
}
