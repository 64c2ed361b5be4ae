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

/* c' = c·x + m, y = c: the trajectory of a scan whose body reads an outer value m. */
static tacit_model *scan_body(void)
{
    tacit_builder *b = begin();
    tacit_value in[3];
    const char *const names[] = {"c", "x", "m"};
    for (int i = 0; i < 3; i++)
        in[i] = tacit_builder_input(b, names[i], TACIT_DTYPE_NONE, -1, NULL, NULL);
    tacit_value product = tacit_builder_node(b, "Mul", 2, in, 1, NULL);
    tacit_value next = tacit_builder_node(b, "Add", 2, (tacit_value[]){product, in[2]}, 1, NULL);
    tacit_builder_output(b, "next", next);
    tacit_builder_output(b, "y", in[0]);
    tacit_model *body;
    assert_int_equal(tacit_builder_finish(b, &body, NULL), TACIT_OK);
    tacit_builder_free(b);
    return body;
}

static tacit_model *scan_model(const tacit_model *body)
{
    tacit_builder *b = begin();
    int64_t two = 2, dims[2] = {4, 2};
    tacit_value in[2] = {tacit_builder_input(b, "init", TACIT_F32, 1, &two, NULL),
                         tacit_builder_input(b, "xs", TACIT_F32, 2, dims, NULL)};
    tacit_value m = tacit_builder_constant(b, "m", TACIT_F32, 1, &two, (float[]){1, 10});
    tacit_value out[2];
    tacit_builder_node(b, "Scan", 2, in, 2, out);
    tacit_builder_attr_int(b, "num_scan_inputs", 1);
    tacit_builder_attr_graph(b, "body", body, 1, &m);
    tacit_builder_output(b, "last", out[0]);
    tacit_builder_output(b, "all", out[1]);
    tacit_model *model;
    tacit_error err;
    assert_int_equal(tacit_builder_finish(b, &model, &err), TACIT_OK);
    tacit_builder_free(b);
    return model;
}

static void graphs_are_attributes(void **state)
{
    (void)state;
    tacit_model *body = scan_body(), *model = scan_model(body);
    tacit_model_free(body); /* the model keeps what it needs */
    tacit_program *program;
    tacit_session *session;
    tacit_error err;
    assert_int_equal(tacit_compile(model, NULL, &program, &err), TACIT_OK);
    assert_int_equal(tacit_session_create(program, &session, &err), TACIT_OK);
    float init[2] = {1, 2}, xs[8] = {1, 2, 3, 4, 5, 6, 7, 8}, last[2], all[8];
    tacit_tensor in[] = {{.dtype = TACIT_F32, .rank = 1, .dims = {2}, init, sizeof init},
                         {.dtype = TACIT_F32, .rank = 2, .dims = {4, 2}, xs, sizeof xs}};
    tacit_tensor out[] = {{.dtype = TACIT_F32, .rank = 1, .dims = {2}, last, sizeof last},
                          {.dtype = TACIT_F32, .rank = 2, .dims = {4, 2}, all, sizeof all}};
    assert_int_equal(tacit_run(session, in, 2, out, 2, &err), TACIT_OK);
    float c[2] = {1, 2};
    for (int t = 0; t < 4; t++)
        for (int i = 0; i < 2; i++) {
            assert_float_equal(all[2 * t + i], c[i], 0);
            c[i] = c[i] * xs[2 * t + i] + (i ? 10 : 1);
        }
    assert_memory_equal(last, c, sizeof c);
    tacit_session_free(session);
    tacit_program_free(program);
    tacit_model_free(model);
}

static void graph_attributes_are_checked(void **state)
{
    (void)state;
    tacit_model *body = scan_body(), *m;
    tacit_error err;
    for (int wrong = 0; wrong < 4; wrong++) {
        tacit_builder *b = begin();
        tacit_value x = tacit_builder_input(b, "x", TACIT_F32, 0, NULL, NULL);
        const tacit_value outer[4] = {x, wrong == 1 ? 99 : x, wrong == 2 ? 0 : x, x};
        tacit_builder_node(b, "Scan", 1, &x, 1, NULL);
        tacit_builder_attr_graph(b, "body", wrong == 0 ? NULL : body, wrong == 3 ? 4 : 3, outer);
        assert_int_equal(tacit_builder_finish(b, &m, &err), TACIT_ERR_ARGUMENT);
        tacit_builder_free(b);
    }
    tacit_model_free(body);
}

static void weights_can_be_read(void **state)
{
    (void)state;
    tacit_builder *b = begin();
    int64_t two = 2;
    tacit_value in[2] = {tacit_builder_input(b, "x", TACIT_F32, 1, &two, NULL),
                         tacit_builder_constant(b, "w", TACIT_F32, 1, &two, (float[]){3, 4})};
    tacit_builder_output(b, "y", tacit_builder_node(b, "Mul", 2, in, 1, NULL));
    tacit_model *m;
    assert_int_equal(tacit_builder_finish(b, &m, NULL), TACIT_OK);
    tacit_builder_free(b);
    tacit_port w;
    const void *data;
    assert_int_equal(tacit_model_weight_count(m), 1);
    assert_int_equal(tacit_model_weight(m, 0, &w, &data), TACIT_OK);
    assert_string_equal(w.name, "w");
    assert_int_equal(w.dtype, TACIT_F32);
    assert_int_equal(w.rank, 1);
    assert_int_equal(w.dims[0], 2);
    assert_memory_equal(data, ((float[]){3, 4}), sizeof(float[2]));
    assert_int_equal(tacit_model_weight(m, 1, &w, &data), TACIT_ERR_ARGUMENT);
    tacit_model_free(m);
}

static void what_a_file_says_can_be_read(void **state)
{
    (void)state;
    static const char text[] = "tacit 1\ngraph \"net\" {\n producer \"tool\"\n"
                               " producer_version \"2\"\n model_domain \"d\"\n model_doc \"m\"\n"
                               " model_version 9\n metadata \"k\" \"v\"\n doc \"g\"\n"
                               " in %x : f32[2]\n %y : f32[2] = Relu(%x) @r\n out %y\n}\n";
    tacit_model *m;
    tacit_about a;
    const char *key, *value;
    assert_int_equal(tacit_model_load_memory(text, strlen(text), NULL, &m, NULL), TACIT_OK);
    tacit_model_about(m, &a);
    assert_string_equal(a.graph_name, "net");
    assert_string_equal(a.graph_doc, "g");
    assert_string_equal(a.producer, "tool");
    assert_string_equal(a.producer_version, "2");
    assert_string_equal(a.domain, "d");
    assert_string_equal(a.doc, "m");
    assert_int_equal(a.version, 9);
    assert_int_equal(a.metadata_count, 1);
    assert_int_equal(tacit_model_metadata(m, 0, &key, &value), TACIT_OK);
    assert_string_equal(key, "k");
    assert_string_equal(value, "v");
    assert_int_equal(tacit_model_metadata(m, 1, &key, &value), TACIT_ERR_ARGUMENT);
    tacit_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(builds_what_it_prints), cmocka_unit_test(the_first_mistake_is_reported),
        cmocka_unit_test(graphs_are_attributes), cmocka_unit_test(graph_attributes_are_checked),
        cmocka_unit_test(weights_can_be_read),   cmocka_unit_test(what_a_file_says_can_be_read),
    };
    return cmocka_run_group_tests_name("builder", tests, NULL, NULL);
}
