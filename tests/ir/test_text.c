/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ir/text.h"

static const char sample[] =
    "tacit 1\n"
    "graph \"main\" {\n"
    "  producer \"a \\\"tool\\\"\"\n"
    "  producer_version \"1.2\"\n"
    "  model_domain \"org.example\"\n"
    "  model_doc \"what it does\"\n"
    "  model_version -7\n"
    "  metadata \"names\" \"{0: 'cat'}\"\n"
    "  metadata \"\" \"\"\n"
    "  doc \"of the graph\"\n"
    "  opset \"\" 22\n"
    "  symbol \"N\"\n"
    "  in %x : f32[N,4]\n"
    "  in %\"odd name\" : i64[?,2]\n"
    "  const %c : bool[2] = [true, false]\n"
    "  const %e : f16[0] = []\n"
    "  const %f : f32[3] = [1.0, -0.5, inf]\n"
    "  const %n : f32[1] = b64\"AADAfw==\"\n"
    "  const %s : string[2] = [\"a\\x0ab\", \"\"]\n"
    "  const %u : u64[] = [18446744073709551615]\n"
    "  const %w : f32[100,100] = ...\n"
    "  %y : f32[N,4], _ = Split(%x, _) axis=-1 alpha=1.5 k=[1, 2] f=[1.0, 2.5] e=ints[] "
    "m=\"linear\" t=tensor i64[2] [1, 2] @split\n"
    "  %z = com.microsoft.FastGelu(%y) @gelu/0:a\n"
    "  %r : seq(f32[...]) = If(%c | %y, %z) then_branch=graph \"then\" {\n"
    "    capture %a : f32[N,4]\n"
    "    capture _\n"
    "    %q = Identity(%a) @id\n"
    "    out %q\n"
    "  } ty=type optional(i8[2]) @branch\n"
    "  out %z\n"
    "  out %x\n"
    "}\n";

static void prints_what_it_parsed(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    tacit_error err = {0};
    ir_graph *g;
    if (ir_graph_parse(sample, strlen(sample), &a, &g, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    assert_int_equal(g->nodes.count, 3);
    assert_int_equal(g->nodes.data[2]->n_explicit, 1);
    assert_true(ir_attr_float(g->nodes.data[0], "alpha", 0) == 1.5);
    sbuf text;
    sbuf_init(&text, NULL);
    ir_graph_print(g, NULL, &text);
    assert_string_equal(sbuf_str(&text), sample);
    ir_graph *again;
    assert_int_equal(ir_graph_parse(text.data, text.length, &a, &again, &err), TACIT_OK);
    sbuf why;
    sbuf_init(&why, NULL);
    if (!ir_graph_equal(g, again, &why))
        fail_msg("%s", sbuf_str(&why));
    ir_attr *k = (ir_attr *)ir_attr_find(again->nodes.data[0], "alpha");
    k->f = 2;
    assert_false(ir_graph_equal(g, again, &why));
    assert_string_equal(sbuf_str(&why), "alpha of 'split'");
    sbuf_free(&why);
    sbuf_free(&text);
    arena_free(&a);
}

static void errors_name_their_place(void **state)
{
    (void)state;
    const struct {
        const char *text, *message;
    } cases[] = {
        {"", "line 1, column 1: not a Tacit text file"},
        {"tacit 2\n", "line 1, column 7: unknown version"},
        {"tacit 1\ngraph \"g\" {\n  out %x\n}\n", "line 3, column 7: value %x is not defined"},
        {"tacit 1\ngraph \"g\" {\n", "no closing"},
        {"tacit 1\ngraph \"g\" {\n in %x : f33[2]\n}\n", "line 3, column 10: expected an element"},
        {"tacit 1\ngraph \"g\" {\n in %x : none[]\n}\n", "line 3, column 16: the elements have no"},
        {"tacit 1\ngraph \"g\" {\n in %x : seq(none[2])\n}\n", "the elements have no type"},
        {"tacit 1\ngraph \"g\" {\n const %x : f32[9999999999,9999999999] = []\n}\n", "addressable"},
        {"tacit 1\ngraph \"g\" {\n const %x : f32[1000000000] = [1.0]\n}\n", "fewer elements"},
        {"tacit 1\ngraph \"g\" {\n const %x : f32[2] = b64\"AA\"\n}\n", "another size"},
        {"tacit 1\ngraph \"g\" {\n in %x : f32[2]\n in %x : f32[2]\n}\n", "defined twice"},
        {"tacit 1\ngraph \"g\" {\n in %\"x : f32[2]\n}\n", "closing quote"},
        {"tacit 1\ngraph \"g\" {\n in %x : f32[1,1,1,1,1,1,1,1,1,1,1,1,1]\n}\n", "too many"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        arena a;
        arena_init(&a, NULL);
        tacit_error err = {0};
        ir_graph *g;
        tacit_status status = ir_graph_parse(cases[i].text, strlen(cases[i].text), &a, &g, &err);
        assert_int_equal(status, TACIT_ERR_FORMAT);
        if (!strstr(err.message, cases[i].message))
            fail_msg("case %zu: '%s' does not contain '%s'", i, err.message, cases[i].message);
        arena_free(&a);
    }
}

static void truncated_text_never_crashes(void **state)
{
    (void)state;
    for (size_t n = 0; n < strlen(sample) - 1; n++) {
        arena a;
        arena_init(&a, NULL);
        tacit_error err = {0};
        ir_graph *g;
        char *copy = arena_strndup(&a, sample, n);
        assert_int_not_equal(ir_graph_parse(copy, n, &a, &g, &err), TACIT_OK);
        arena_free(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prints_what_it_parsed),
        cmocka_unit_test(errors_name_their_place),
        cmocka_unit_test(truncated_text_never_crashes),
    };
    return cmocka_run_group_tests_name("text form", tests, NULL, NULL);
}
