/* SPDX-License-Identifier: Apache-2.0
 * Sequences, optionals and maps through the public interface. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tacit/tacit.h"

static tacit_error err;

#define OK(expr)                                                                                   \
    do {                                                                                           \
        if ((expr) != TACIT_OK)                                                                    \
            fail_msg("%s: %s", #expr, err.message);                                                \
    } while (0)

/* A session on a model in text form. */
static tacit_session *open_text(const char *text)
{
    tacit_model *model = NULL;
    tacit_program *program = NULL;
    tacit_session *session = NULL;
    OK(tacit_model_load_memory(text, strlen(text), NULL, &model, &err));
    OK(tacit_compile(model, NULL, &program, &err));
    OK(tacit_session_create(program, &session, &err));
    tacit_program_free(program);
    tacit_model_free(model);
    return session;
}

static tacit_tensor line(float *data, int64_t n)
{
    return (tacit_tensor){.dtype = TACIT_F32,
                          .rank = 1,
                          .dims = {n},
                          .data = data,
                          .bytes = (size_t)n * sizeof *data};
}

static const char sequences[] = "tacit 1\n"
                                "graph \"sequences\" {\n"
                                "  opset \"\" 22\n"
                                "  in %s : seq(f32[?])\n"
                                "  const %one : i64[] = [1]\n"
                                "  %t : seq(f32[?]) = SequenceErase(%s, %one) @erase\n"
                                "  out %t\n"
                                "}\n";

static void sequences_go_in_and_out(void **state)
{
    (void)state;
    tacit_session *s = open_text(sequences);
    float a[] = {1, 2}, b[] = {3}, c[] = {4, 5, 6};
    tacit_tensor items[] = {line(a, 2), line(b, 1), line(c, 3)};
    tacit_tensor in = {.kind = TACIT_KIND_SEQUENCE, .items = items, .n_items = 3};
    for (int run = 0; run < 3; run++) {
        tacit_tensor out = {0};
        OK(tacit_run(s, &in, 1, &out, 1, &err));
        assert_int_equal(out.kind, TACIT_KIND_SEQUENCE);
        assert_int_equal(out.n_items, 2);
        assert_int_equal(out.items[1].dims[0], 3);
        assert_memory_equal(out.items[0].data, a, sizeof a);
        assert_memory_equal(out.items[1].data, c, sizeof c);
    }
    int64_t whole[] = {7};
    items[2] = (tacit_tensor){
        .dtype = TACIT_I64, .rank = 1, .dims = {1}, .data = whole, .bytes = sizeof whole};
    tacit_tensor out = {0};
    assert_int_equal(tacit_run(s, &in, 1, &out, 1, &err), TACIT_ERR_TYPE);
    assert_non_null(strstr(err.message, "item 2 is i64"));
    in.items = NULL;
    assert_int_equal(tacit_run(s, &in, 1, &out, 1, &err), TACIT_ERR_ARGUMENT);
    in = line(a, 2);
    assert_int_equal(tacit_run(s, &in, 1, &out, 1, &err), TACIT_ERR_TYPE);
    assert_non_null(strstr(err.message, "a sequence is wanted"));
    tacit_session_free(s);
}

static const char optionals[] = "tacit 1\n"
                                "graph \"optionals\" {\n"
                                "  opset \"\" 22\n"
                                "  in %x : optional(f32[?])\n"
                                "  %has : bool[] = OptionalHasElement(%x) @has\n"
                                "  %y : optional(f32[?]) = Identity(%x) @same\n"
                                "  out %has\n"
                                "  out %y\n"
                                "}\n";

static void check_optional(tacit_session *s, const tacit_tensor *in, bool there, float first)
{
    tacit_tensor out[2] = {{0}};
    OK(tacit_run(s, in, 1, out, 2, &err));
    assert_int_equal(*(const uint8_t *)out[0].data, there);
    assert_int_equal(out[1].kind, TACIT_KIND_OPTIONAL);
    assert_int_equal(out[1].n_items, there);
    if (there)
        assert_true(*(const float *)out[1].items[0].data == first);
}

static void optionals_may_be_empty(void **state)
{
    (void)state;
    tacit_session *s = open_text(optionals);
    float a[] = {1, 2};
    tacit_tensor x = line(a, 2);
    tacit_tensor none = {.kind = TACIT_KIND_OPTIONAL};
    tacit_tensor some = {.kind = TACIT_KIND_OPTIONAL, .items = &x, .n_items = 1};
    check_optional(s, &none, false, 0);
    check_optional(s, &some, true, 1);
    check_optional(s, &x, true, 1);
    some.n_items = 2;
    tacit_tensor out[2] = {{0}};
    assert_int_equal(tacit_run(s, &some, 1, out, 2, &err), TACIT_ERR_ARGUMENT);
    tacit_session_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sequences_go_in_and_out),
        cmocka_unit_test(optionals_may_be_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
