/* SPDX-License-Identifier: Apache-2.0
 * Only the last position of an output: what the whole output has there, and less work for it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/example.h"

typedef struct result {
    int64_t dims[TACIT_MAX_RANK];
    int32_t rank;
    float *data;
    size_t count;
    uint64_t arena;
} result;

static result run(const tacit_model *m, tacit_compile_options o)
{
    tacit_error err = {0};
    tacit_program *p = NULL;
    tacit_session *s = NULL;
    tacit_port port;
    tacit_tensor in[4] = {0}, out = {0};
    if (tacit_compile(m, &o, &p, &err) != TACIT_OK || tacit_session_create(p, &s, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    uint32_t n = tacit_program_input_count(p);
    assert_true(n <= 4);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(tacit_program_input(p, i, &port), TACIT_OK);
        in[i] = (tacit_tensor){
            .name = port.name, .dtype = port.dtype, .rank = port.rank, .bytes = port.bytes};
        memcpy(in[i].dims, port.dims, sizeof port.dims);
        in[i].data = calloc(1, port.bytes);
        assert_non_null(in[i].data);
        for (size_t k = 0; k < port.bytes / 8 && port.dtype == TACIT_I64; k++)
            ((int64_t *)in[i].data)[k] = (int64_t)(k * 7 % 50);
        for (size_t k = 0; k < port.bytes / 4 && port.dtype == TACIT_F32; k++)
            ((float *)in[i].data)[k] = (float)((int)(k * 37 % 19) - 9) / 8;
    }
    assert_int_equal(tacit_program_output(p, 0, &port), TACIT_OK);
    if (tacit_run(s, in, n, &out, 1, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    tacit_memory_report r;
    tacit_program_memory(p, &r);
    result x = {.rank = out.rank, .count = out.bytes / 4, .arena = r.arena_bytes};
    memcpy(x.dims, out.dims, sizeof x.dims);
    memcpy(port.dims, out.dims, sizeof port.dims);
    x.data = malloc(out.bytes);
    assert_non_null(x.data);
    memcpy(x.data, out.data, out.bytes);
    for (uint32_t i = 0; i < n; i++)
        free(in[i].data);
    tacit_session_free(s);
    tacit_program_free(p);
    return x;
}

/* `part` has the last entry of `whole` along the axis before the last. */
static void expect_last(const result *whole, const result *part, double tolerance)
{
    int32_t rank = whole->rank;
    assert_int_equal(part->rank, rank);
    int64_t rows = whole->dims[rank - 2], width = whole->dims[rank - 1];
    assert_int_equal(part->dims[rank - 2], 1);
    assert_int_equal(part->dims[rank - 1], width);
    assert_int_equal((int64_t)whole->count, (int64_t)part->count * rows);
    double most = 0;
    for (size_t i = 0; i < part->count; i++)
        most = fmax(most, fabs(part->data[i]));
    assert_true(most > 0);
    for (size_t i = 0; i < part->count; i++) {
        size_t batch = i / (size_t)width;
        float w = whole->data[(batch * (size_t)rows + (size_t)rows - 1) * (size_t)width +
                              i % (size_t)width];
        if (!(fabs(w - part->data[i]) <= tolerance * most))
            fail_msg("element %zu is %g, not %g", i, part->data[i], w);
    }
}

static void compare(const char *arguments, const char *output)
{
    tacit_model *m = example_model(arguments);
    static const char *const none[] = {"push-slice"};
    const char *const last[] = {output};
    result whole = run(m, (tacit_compile_options){0}), x;
    tacit_compile_options ways[] = {
        {.validate = TACIT_VALIDATE_STRICT},
        {.executor = TACIT_EXEC_TASKS, .threads = 2},
        {.disabled_passes = none, .n_disabled_passes = 1},
        {.executor = TACIT_EXEC_REFERENCE},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        ways[i].last_only = last;
        ways[i].n_last_only = 1;
        x = run(m, ways[i]);
        expect_last(&whole, &x, 2e-5);
        free(x.data);
    }
    free(whole.data);
    tacit_model_free(m);
}

static void decoders(void **state)
{
    (void)state;
    compare("gpt2 --layers 2 --hidden 64 --heads 4 --ffn 128 --vocab 300 --seq 12", "logits");
    compare("gpt2 --layers 1 --hidden 64 --heads 4 --ffn 128 --vocab 300 --seq 9 --batch 3",
            "logits");
    compare("llama --layers 2 --hidden 64 --heads 4 --kv-heads 2 --ffn 128 --vocab 300 --seq 12",
            "logits");
}

/* The product with the vocabulary is one row: no arena for the others, a fraction of the work. */
static void less_is_computed(void **state)
{
    (void)state;
    tacit_error err = {0};
    tacit_model *m =
        example_model("gpt2 --layers 1 --hidden 64 --heads 4 --ffn 128 --vocab 5000 --seq 64");
    const char *const last[] = {"logits"};
    tacit_compile_options o = {.last_only = last, .n_last_only = 1};
    tacit_program *p = NULL;
    char *text = NULL;
    assert_int_equal(tacit_compile(m, &o, &p, &err), TACIT_OK);
    assert_int_equal(tacit_program_view(p, TACIT_VIEW_GRAPH, TACIT_FORMAT_TEXT, NULL, &text, &err),
                     TACIT_OK);
    assert_non_null(strstr(text, "%logits : f32[1,1,5000]"));
    assert_null(strstr(text, "f32[1,64,5000]"));
    assert_null(strstr(text, "f32[1,64,128]")); /* the feed-forward layer is one row, too */
    assert_non_null(strstr(text, "causal_offset=63"));
    tacit_text_free(text);
    tacit_program_free(p);
    tacit_model_free(m);
}

/* With a cache: a prompt of five, of which the last logits are wanted, then one at a time. */
static void with_a_cache(void **state)
{
    (void)state;
    tacit_error err = {0};
    tacit_model *m =
        example_model("gpt2 --decode --dynamic --layers 2 --hidden 64 --heads 4 --ffn 128 "
                      "--vocab 300");
    const char *const last[] = {"logits"};
    tacit_port port;
    assert_int_equal(tacit_model_input(m, 0, &port), TACIT_OK);
    float got[2][300];
    for (int k = 0; k < 2; k++) {
        tacit_dim dims[] = {{"batch", 1}, {"seq", 5}};
        tacit_compile_options o = {
            .dims = dims, .n_dims = 2, .cache_capacity = 16, .last_only = last};
        o.n_last_only = (uint32_t)k;
        tacit_program *p = NULL;
        tacit_session *s = NULL;
        if (tacit_compile(m, &o, &p, &err) != TACIT_OK ||
            tacit_session_create(p, &s, &err) != TACIT_OK)
            fail_msg("%s", err.message);
        uint32_t n = tacit_program_input_count(p);
        assert_true(n <= 2);
        int64_t ids[5] = {3, 1, 4, 1, 5}, places[5] = {0, 1, 2, 3, 4};
        tacit_tensor in[2] = {{0}}, out = {0};
        for (uint32_t i = 0; i < n; i++) {
            assert_int_equal(tacit_program_input(p, i, &port), TACIT_OK);
            in[i] = (tacit_tensor){.name = port.name,
                                   .dtype = port.dtype,
                                   .rank = port.rank,
                                   .data = strstr(port.name, "pos") ? places : ids,
                                   .bytes = port.bytes};
            memcpy(in[i].dims, port.dims, sizeof port.dims);
        }
        for (int step = 0; step < 2; step++)
            if (tacit_run(s, in, n, &out, 1, &err) != TACIT_OK)
                fail_msg("%s", err.message);
        assert_int_equal(out.bytes, (k ? 1 : 5) * sizeof got[0]);
        memcpy(got[k], (const char *)out.data + out.bytes - sizeof got[0], sizeof got[0]);
        tacit_session_free(s);
        tacit_program_free(p);
    }
    for (int i = 0; i < 300; i++)
        if (!(fabsf(got[0][i] - got[1][i]) <= 1e-4f))
            fail_msg("logit %d is %g, not %g", i, got[1][i], got[0][i]);
    tacit_model_free(m);
}

/* Sizes that change: each has its own last position. */
static void by_a_runner(void **state)
{
    (void)state;
    tacit_error err = {0};
    tacit_model *m =
        example_model("gpt2 --dynamic --layers 1 --hidden 64 --heads 4 --ffn 128 --vocab 300");
    char name[] = "logits"; /* gone when the runner runs */
    const char *last[] = {name};
    tacit_runner_options o = {.compile = {.last_only = last, .n_last_only = 1}};
    tacit_runner *whole = NULL, *part = NULL;
    assert_int_equal(tacit_runner_create(m, NULL, &whole, &err), TACIT_OK);
    assert_int_equal(tacit_runner_create(m, &o, &part, &err), TACIT_OK);
    memset(name, 'x', sizeof name - 1);
    tacit_port port;
    assert_int_equal(tacit_model_input(m, 0, &port), TACIT_OK);
    for (int64_t seq = 3; seq < 9; seq += 2) {
        int64_t ids[9] = {3, 1, 4, 1, 5, 9, 2, 6, 5};
        tacit_tensor in = {.name = port.name,
                           .dtype = TACIT_I64,
                           .rank = 2,
                           .dims = {1, seq},
                           .data = ids,
                           .bytes = (size_t)seq * 8};
        tacit_tensor x = {0}, y = {0};
        if (tacit_runner_run(whole, &in, 1, &x, 1, &err) != TACIT_OK ||
            tacit_runner_run(part, &in, 1, &y, 1, &err) != TACIT_OK)
            fail_msg("%s", err.message);
        result a = {.rank = x.rank, .data = x.data, .count = x.bytes / 4};
        result b = {.rank = y.rank, .data = y.data, .count = y.bytes / 4};
        memcpy(a.dims, x.dims, sizeof a.dims);
        memcpy(b.dims, y.dims, sizeof b.dims);
        expect_last(&a, &b, 2e-5);
    }
    tacit_runner_free(whole);
    tacit_runner_free(part);
    /* A padded sequence has another last position. */
    memcpy(name, "logits", sizeof name);
    tacit_bucket bucket = {"seq", 4};
    o.buckets = &bucket;
    o.n_buckets = 1;
    assert_int_equal(tacit_runner_create(m, &o, &part, &err), TACIT_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "padding"));
    tacit_model_free(m);
}

static void refusals(void **state)
{
    (void)state;
    static const char text[] = "tacit 1\n"
                               "graph \"main\" {\n"
                               "  in %x : f32[4]\n"
                               "  %y : f32[4] = Neg(%x) @n\n"
                               "  out %y\n"
                               "}\n";
    tacit_error err = {0};
    tacit_model *m = NULL;
    tacit_program *p = NULL;
    assert_int_equal(tacit_model_load_memory(text, sizeof text - 1, NULL, &m, &err), TACIT_OK);
    const char *const names[] = {"y", "nothing", NULL};
    for (int i = 0; i < 3; i++) {
        tacit_compile_options o = {.last_only = names + i, .n_last_only = 1};
        assert_int_equal(tacit_compile(m, &o, &p, &err), TACIT_ERR_ARGUMENT);
        assert_non_null(strstr(err.message, i == 0   ? "'y' has no positions"
                                            : i == 1 ? "'nothing'"
                                                     : "(null)"));
    }
    tacit_compile_options o = {.n_last_only = 1};
    assert_int_equal(tacit_compile(m, &o, &p, &err), TACIT_ERR_ARGUMENT);
    tacit_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decoders),     cmocka_unit_test(less_is_computed),
        cmocka_unit_test(with_a_cache), cmocka_unit_test(by_a_runner),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests_name("only the last position", tests, NULL, NULL);
}
