/* SPDX-License-Identifier: Apache-2.0
 * Models through the whole road: compile, run in caller buffers, every executor against the
 * reference. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tacit/tacit.h"

static tacit_error err;

#define OK(expr)                                                                                   \
    do {                                                                                           \
        if ((expr) != TACIT_OK)                                                                    \
            fail_msg("%s: %s", #expr, err.message);                                                \
    } while (0)

static tacit_builder *begin(void)
{
    tacit_builder *b = NULL;
    OK(tacit_builder_create("m", NULL, &b, &err));
    return b;
}

static tacit_value input(tacit_builder *b, const char *name, int32_t rank, const int64_t *dims)
{
    return tacit_builder_input(b, name, TACIT_F32, rank, dims, NULL);
}

static tacit_value ints(tacit_builder *b, int64_t n, const int64_t *values)
{
    return tacit_builder_constant(b, NULL, TACIT_I64, 1, &n, values);
}

static tacit_value node1(tacit_builder *b, const char *op, tacit_value x)
{
    return tacit_builder_node(b, op, 1, &x, 1, NULL);
}

static tacit_value node2(tacit_builder *b, const char *op, tacit_value x, tacit_value y)
{
    return tacit_builder_node(b, op, 2, (tacit_value[]){x, y}, 1, NULL);
}

static tacit_model *finish(tacit_builder *b)
{
    tacit_model *m = NULL;
    OK(tacit_builder_finish(b, &m, &err));
    tacit_builder_free(b);
    return m;
}

static tacit_tensor f32(void *data, int32_t rank, const int64_t *dims)
{
    tacit_tensor t = {.dtype = TACIT_F32, .rank = rank, .data = data, .bytes = 4};
    for (int32_t i = 0; i < rank; i++) {
        t.dims[i] = dims[i];
        t.bytes *= (size_t)dims[i];
    }
    return t;
}

/* Compiles, runs once, checks every output (as f32) bit for bit against `expected`. */
static void run_and_check(const tacit_model *m, const tacit_compile_options *options,
                          const tacit_tensor *in, uint32_t n_in, uint32_t n_out,
                          const float *const *expected)
{
    tacit_program *p = NULL;
    tacit_session *s = NULL;
    OK(tacit_compile(m, options, &p, &err));
    OK(tacit_session_create(p, &s, &err));
    assert_int_equal(tacit_program_output_count(p), n_out);
    for (int again = 0; again < 2; again++) {
        tacit_tensor out[8] = {0};
        void *buffers[8] = {0};
        for (uint32_t i = 0; i < n_out; i++) {
            tacit_port port;
            OK(tacit_program_output(p, i, &port));
            buffers[i] = malloc(port.bytes);
            memset(buffers[i], 0x7f, port.bytes);
            out[i] = f32(buffers[i], port.rank, port.dims);
        }
        OK(tacit_run(s, in, n_in, out, n_out, &err));
        for (uint32_t i = 0; i < n_out; i++) {
            assert_ptr_equal(out[i].data, buffers[i]);
            assert_memory_equal(buffers[i], expected[i], out[i].bytes);
            free(buffers[i]);
        }
    }
    tacit_session_free(s);
    tacit_program_free(p);
}

static void every_way(const tacit_model *m, const tacit_tensor *in, uint32_t n_in, uint32_t n_out,
                      const float *const *expected)
{
    static const char *const all[] = {"all"};
    for (int executor = 0; executor < 3; executor++)
        for (int bare = 0; bare < 2; bare++)
            for (int fast = 0; fast < 2; fast++) {
                tacit_compile_options o = {.executor = (tacit_executor)executor,
                                           .threads = 2,
                                           .plan = (tacit_plan_goal)fast};
                if (bare) {
                    o.disabled_passes = all;
                    o.n_disabled_passes = 1;
                }
                run_and_check(m, &o, in, n_in, n_out, expected);
            }
}

static void views_of_inputs_and_repeated_outputs(void **state)
{
    (void)state;
    tacit_builder *b = begin();
    tacit_value x = input(b, "x", 2, (int64_t[]){2, 3});
    tacit_value flat = node2(b, "Reshape", x, ints(b, 1, (int64_t[]){6}));
    tacit_value turned = node1(b, "Transpose", x);
    tacit_value sum = node2(b, "Add", flat, flat);
    tacit_value twice = node2(b, "Reshape", sum, ints(b, 2, (int64_t[]){3, 2}));
    tacit_value more = node2(b, "Add", twice, turned);
    tacit_builder_output(b, "flat", flat);     /* a view of an input */
    tacit_builder_output(b, "turned", turned); /* a strided one */
    tacit_builder_output(b, "x_again", x);     /* the input itself */
    tacit_builder_output(b, "twice", twice);   /* a view that covers its source */
    tacit_builder_output(b, "sum", sum);       /* the source of that view */
    tacit_builder_output(b, "more", more);
    tacit_builder_output(b, "more_again", more);
    tacit_model *m = finish(b);
    float data[] = {1, 2, 3, 4, 5, 6};
    tacit_tensor in = f32(data, 2, (int64_t[]){2, 3});
    const float *expected[] = {data,
                               (float[]){1, 4, 2, 5, 3, 6},
                               data,
                               (float[]){2, 4, 6, 8, 10, 12},
                               (float[]){2, 4, 6, 8, 10, 12},
                               (float[]){3, 8, 8, 13, 13, 18},
                               (float[]){3, 8, 8, 13, 13, 18}};
    every_way(m, &in, 1, 7, expected);
    tacit_model_free(m);
}

static void constants_as_outputs_and_slices(void **state)
{
    (void)state;
    tacit_builder *b = begin();
    int64_t four = 4;
    tacit_value x = input(b, "x", 2, (int64_t[]){2, 4});
    tacit_value c = tacit_builder_constant(b, "c", TACIT_F32, 1, &four, (float[]){10, 20, 30, 40});
    tacit_value parts[2];
    (void)tacit_builder_node(b, "Split", 2, (tacit_value[]){x, ints(b, 2, (int64_t[]){1, 3})}, 2,
                             parts);
    tacit_builder_attr_int(b, "axis", 1);
    tacit_value low =
        tacit_builder_node(b, "Slice", 4,
                           (tacit_value[]){c, ints(b, 1, (int64_t[]){1}),
                                           ints(b, 1, (int64_t[]){4}), ints(b, 1, (int64_t[]){0})},
                           1, NULL);
    tacit_builder_output(b, "c_out", c);
    tacit_builder_output(b, "left", parts[0]);
    tacit_builder_output(b, "sum", node2(b, "Add", parts[1], low));
    tacit_builder_output(b, "right", node1(b, "Relu", parts[1]));
    tacit_model *m = finish(b);
    float data[] = {1, 2, 3, 4, -5, -6, -7, 8};
    tacit_tensor in = f32(data, 2, (int64_t[]){2, 4});
    const float *expected[] = {(float[]){10, 20, 30, 40}, (float[]){1, -5},
                               (float[]){22, 33, 44, 14, 23, 48}, (float[]){2, 3, 4, 0, 0, 8}};
    every_way(m, &in, 1, 4, expected);
    tacit_model_free(m);
}

static void symbols_bind_at_compile_time(void **state)
{
    (void)state;
    tacit_builder *b = begin();
    int64_t dims[] = {-1, 2};
    tacit_value x = tacit_builder_input(b, "x", TACIT_F32, 2, dims, (const char *[]){"N", NULL});
    tacit_builder_output(b, "y", node2(b, "Add", x, x));
    tacit_model *m = finish(b);
    tacit_program *p = NULL;
    assert_int_equal(tacit_compile(m, NULL, &p, &err), TACIT_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "'N'"));
    assert_null(p);
    tacit_dim dim = {"N", 3};
    tacit_compile_options o = {.dims = &dim, .n_dims = 1};
    float data[] = {1, 2, 3, 4, 5, 6};
    tacit_tensor in = f32(data, 2, (int64_t[]){3, 2});
    const float *expected[] = {(float[]){2, 4, 6, 8, 10, 12}};
    run_and_check(m, &o, &in, 1, 1, expected);
    OK(tacit_compile(m, &o, &p, &err));
    tacit_port port;
    OK(tacit_program_input(p, 0, &port));
    assert_int_equal(port.dims[0], 3);
    assert_int_equal(port.bytes, 24);
    OK(tacit_model_input(m, 0, &port));
    assert_int_equal(port.dims[0], -1);
    assert_string_equal(port.dim_names[0], "N");
    tacit_program_free(p);
    tacit_model_free(m);
}

static void shapes_that_depend_on_data_are_lent(void **state)
{
    (void)state;
    tacit_builder *b = begin();
    int64_t six = 6;
    tacit_value x = input(b, "x", 1, &six);
    tacit_value doubled = node2(b, "Add", x, x);
    tacit_value where = node1(b, "NonZero", doubled);
    tacit_builder_output(b, "where", where);
    tacit_builder_output(b, "doubled", doubled);
    tacit_builder_output(b, "picked", node2(b, "Gather", doubled, where));
    tacit_model *m = finish(b);
    tacit_program *p = NULL;
    tacit_session *s = NULL;
    OK(tacit_compile(m, NULL, &p, &err));
    tacit_model_free(m); /* in any order */
    tacit_memory_report memory;
    tacit_program_memory(p, &memory);
    assert_int_equal(memory.has_dynamic_tail, 1);
    OK(tacit_session_create(p, &s, &err));
    tacit_program_free(p);
    float data[] = {0, 1, 0, 0, 2, 3}, doubles[6];
    tacit_tensor in = f32(data, 1, &six), out[3] = {{0}, f32(doubles, 1, &six), {0}};
    OK(tacit_run(s, &in, 1, out, 3, &err));
    assert_int_equal(out[0].dtype, TACIT_I64);
    assert_int_equal(out[0].dims[1], 3);
    assert_memory_equal(out[0].data, ((int64_t[]){1, 4, 5}), 24);
    assert_memory_equal(doubles, ((float[]){0, 2, 0, 0, 4, 6}), 24);
    assert_memory_equal(out[2].data, ((float[]){2, 4, 6}), 12);
    data[0] = 7; /* what was lent is given again, where more is to be put */
    OK(tacit_run(s, &in, 1, out, 3, &err));
    assert_int_equal(out[0].dims[1], 4);
    assert_memory_equal(out[0].data, ((int64_t[]){0, 1, 4, 5}), 32);
    assert_memory_equal(out[2].data, ((float[]){14, 2, 4, 6}), 16);
    tacit_tensor one = {.name = "where"};
    OK(tacit_run(s, &in, 1, &one, 1, &err));
    assert_int_equal(one.dims[1], 4);
    int64_t room[1];
    one.data = room;
    one.bytes = sizeof room;
    assert_int_equal(tacit_run(s, &in, 1, &one, 1, &err), TACIT_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "32 bytes"));
    tacit_session_free(s);
}

/* What is compiled when its sizes are known, long after the rest was. */
static void products_behind_data_are_compiled_late(void **state)
{
    (void)state;
    enum { ROWS = 64, N = 48 };
    tacit_builder *b = begin();
    const int64_t dims[] = {ROWS, N}, square[] = {N, N}, rows = ROWS;
    static float x[ROWS * N], w[N * N];
    bool keep[ROWS];
    for (int i = 0; i < ROWS * N; i++)
        x[i] = (float)(i % 7);
    for (int i = 0; i < N * N; i++)
        w[i] = i % (N + 1) == 0 ? 2.0f : 0.0f;
    for (int i = 0; i < ROWS; i++)
        keep[i] = i % 3 != 0;
    tacit_value given = input(b, "x", 2, dims);
    tacit_value kept = tacit_builder_input(b, "keep", TACIT_BOOL, 1, &rows, NULL);
    tacit_value some = node2(b, "Compress", given, kept);
    tacit_builder_attr_int(b, "axis", 0);
    tacit_value weights = tacit_builder_constant(b, NULL, TACIT_F32, 2, square, w);
    tacit_builder_output(b, "y", node2(b, "MatMul", some, weights));
    tacit_model *m = finish(b);
    tacit_program *p = NULL;
    tacit_session *s = NULL;
    OK(tacit_compile(m, NULL, &p, &err));
    OK(tacit_session_create(p, &s, &err));
    tacit_tensor in[] = {f32(x, 2, dims), {.dtype = TACIT_BOOL, .rank = 1, .dims = {ROWS}}},
                 y = {0};
    in[1].data = keep;
    in[1].bytes = sizeof keep;
    OK(tacit_run(s, in, 2, &y, 1, &err));
    for (int64_t i = 0, at = 0; i < ROWS; i++)
        for (int64_t k = 0; keep[i] && k < N; k++, at++)
            assert_true(((const float *)y.data)[at] == 2 * x[i * N + k]);
    tacit_session_free(s);
    tacit_program_free(p);
    tacit_model_free(m);
}

static void wrong_calls_are_named(void **state)
{
    (void)state;
    tacit_builder *b = begin();
    int64_t three = 3, two = 2;
    tacit_value x = input(b, "x", 1, &three), y = input(b, "y", 1, &three);
    tacit_builder_output(b, "sum", node2(b, "Add", x, y));
    tacit_model *m = finish(b);
    tacit_program *p = NULL;
    tacit_session *s = NULL;
    OK(tacit_compile(m, NULL, &p, &err));
    OK(tacit_session_create(p, &s, &err));
    float data[3] = {1, 2, 3}, other[3] = {4, 5, 6}, sum[3] = {0};
    tacit_tensor in[2] = {f32(data, 1, &three), f32(other, 1, &three)}, out = f32(sum, 1, &three);
    assert_int_equal(tacit_run(s, in, 1, &out, 1, &err), TACIT_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "'y' is missing"));
    in[1].name = "z";
    assert_int_equal(tacit_run(s, in, 2, &out, 1, &err), TACIT_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "'z'"));
    assert_non_null(strstr(err.message, "'x', 'y'"));
    in[1].name = "x";
    assert_int_equal(tacit_run(s, in, 2, &out, 1, &err), TACIT_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "twice"));
    in[1] = f32(other, 1, &two);
    assert_int_equal(tacit_run(s, in, 2, &out, 1, &err), TACIT_ERR_SHAPE);
    assert_non_null(strstr(err.message, "[3]"));
    in[1] = f32(other, 1, &three);
    in[1].dtype = TACIT_F16;
    assert_int_equal(tacit_run(s, in, 2, &out, 1, &err), TACIT_ERR_TYPE);
    in[1] = f32(other, 1, &three);
    in[1].bytes = 8;
    assert_int_equal(tacit_run(s, in, 2, &out, 1, &err), TACIT_ERR_ARGUMENT);
    in[1] = f32(other, 1, &three);
    out.data = data + 1;
    assert_int_equal(tacit_run(s, in, 2, &out, 1, &err), TACIT_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "overlap"));
    out = f32(sum, 1, &two);
    assert_int_equal(tacit_run(s, in, 2, &out, 1, &err), TACIT_ERR_SHAPE);
    out = f32(sum, 1, &three);
    tacit_tensor swapped[2] = {in[1], in[0]};
    swapped[0].name = "y";
    swapped[1].name = "x";
    OK(tacit_run(s, swapped, 2, &out, 1, &err));
    assert_memory_equal(sum, ((float[]){5, 7, 9}), 12);
    assert_int_equal(tacit_run(NULL, in, 2, &out, 1, &err), TACIT_ERR_ARGUMENT);
    tacit_session_free(s);
    tacit_program_free(p);
    assert_int_equal(
        tacit_compile(m,
                      &(tacit_compile_options){.disabled_passes = (const char *[]){"nonsense"},
                                               .n_disabled_passes = 1},
                      &p, &err),
        TACIT_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "nonsense"));
    tacit_model_free(m);
}

/* An input given again is not looked at again; one that changed is, in whatever way it did. */
static void inputs_given_again(void **state)
{
    (void)state;
    const int64_t two = 2;
    tacit_builder *b = begin();
    tacit_value x = input(b, "x", 1, &two), y = input(b, "y", 1, &two);
    tacit_builder_output(b, "z", node2(b, "Sub", x, y));
    tacit_model *m = finish(b);
    tacit_program *p = NULL;
    tacit_session *s = NULL;
    OK(tacit_compile(m, NULL, &p, &err));
    OK(tacit_session_create(p, &s, &err));
    float a[2] = {5, 7}, c[2] = {1, 2}, z[2];
    tacit_tensor in[2] = {f32(a, 1, &two), f32(c, 1, &two)}, out = f32(z, 1, &two);
    in[0].name = "x", in[1].name = "y";
    for (int i = 0; i < 3; i++) {
        a[0] += 1; /* the bytes may change, and are read */
        OK(tacit_run(s, in, 2, &out, 1, &err));
        assert_true(z[0] == a[0] - c[0] && z[1] == a[1] - c[1]);
    }
    tacit_tensor turned[2] = {in[1], in[0]};
    OK(tacit_run(s, turned, 2, &out, 1, &err));
    assert_true(z[0] == a[0] - c[0]);
    turned[0].name = "x", turned[1].name = "y"; /* the same bytes for the other input */
    OK(tacit_run(s, turned, 2, &out, 1, &err));
    assert_true(z[0] == c[0] - a[0] && z[1] == c[1] - a[1]);
    OK(tacit_run(s, in, 2, &out, 1, &err));
    tacit_tensor wrong[2] = {in[0], in[1]};
    wrong[1].bytes = 4;
    assert_int_equal(tacit_run(s, wrong, 2, &out, 1, &err), TACIT_ERR_ARGUMENT);
    wrong[1] = in[1], wrong[1].dims[0] = 1;
    assert_int_equal(tacit_run(s, wrong, 2, &out, 1, &err), TACIT_ERR_SHAPE);
    wrong[1] = in[1], wrong[1].dtype = TACIT_I32;
    assert_int_equal(tacit_run(s, wrong, 2, &out, 1, &err), TACIT_ERR_TYPE);
    wrong[1] = in[0];
    assert_int_equal(tacit_run(s, wrong, 2, &out, 1, &err), TACIT_ERR_ARGUMENT);
    assert_int_equal(tacit_run(s, in, 1, &out, 1, &err), TACIT_ERR_ARGUMENT);
    OK(tacit_run(s, in, 2, &out, 1, &err));
    assert_true(z[0] == a[0] - c[0] && z[1] == a[1] - c[1]);
    tacit_session_free(s);
    tacit_program_free(p);
    tacit_model_free(m);
}

static void bad_indices_are_reported(void **state)
{
    (void)state;
    tacit_builder *b = begin();
    int64_t three = 3;
    tacit_value x = input(b, "x", 1, &three);
    tacit_value i = tacit_builder_input(b, "i", TACIT_I64, 1, &three, NULL);
    tacit_builder_output(b, "y", node2(b, "Gather", x, i));
    tacit_model *m = finish(b);
    for (int executor = 0; executor < 3; executor++) {
        tacit_program *p = NULL;
        tacit_session *s = NULL;
        OK(tacit_compile(m, &(tacit_compile_options){.executor = (tacit_executor)executor}, &p,
                         &err));
        OK(tacit_session_create(p, &s, &err));
        float data[3] = {1, 2, 3}, got[3];
        int64_t index[3] = {0, 7, 1};
        tacit_tensor in[2] = {f32(data, 1, &three), f32(index, 1, &three)};
        in[1].dtype = TACIT_I64;
        in[1].bytes = sizeof index;
        tacit_tensor out = f32(got, 1, &three);
        assert_int_equal(tacit_run(s, in, 2, &out, 1, &err), TACIT_ERR_VALUE);
        assert_non_null(strstr(err.message, "Gather"));
        assert_non_null(strstr(err.message, "7"));
        index[1] = -1;
        OK(tacit_run(s, in, 2, &out, 1, &err)); /* the session is still good */
        assert_memory_equal(got, ((float[]){1, 3, 2}), 12);
        tacit_session_free(s);
        tacit_program_free(p);
    }
    tacit_model_free(m);
}

typedef struct seen {
    char names[256];
    float sum;
} seen;

static void watch(void *context, const char *node, const char *op, const char *value,
                  const tacit_tensor *t)
{
    seen *s = context;
    (void)node;
    (void)value;
    strcat(s->names, op);
    strcat(s->names, " ");
    for (size_t i = 0; i < t->bytes / 4; i++)
        s->sum += (float)(i + 1) * ((const float *)t->data)[i];
}

static void watching_and_profiling(void **state)
{
    (void)state;
    tacit_builder *b = begin();
    tacit_value x = input(b, "x", 2, (int64_t[]){2, 3});
    tacit_value t = node1(b, "Transpose", x);
    tacit_builder_output(b, "y", node1(b, "Relu", node2(b, "Add", t, t)));
    tacit_model *m = finish(b);
    float data[6] = {1, -2, 3, -4, 5, -6}, y[6];
    tacit_tensor in = f32(data, 2, (int64_t[]){2, 3}), out = f32(y, 2, (int64_t[]){3, 2});
    float sums[2];
    for (int executor = 0; executor < 2; executor++) {
        static const char *const all[] = {"all"};
        tacit_program *p = NULL;
        tacit_session *s = NULL;
        seen w = {0};
        OK(tacit_compile(m,
                         &(tacit_compile_options){.executor = (tacit_executor)executor,
                                                  .disabled_passes = all,
                                                  .n_disabled_passes = 1},
                         &p, &err));
        OK(tacit_session_create(p, &s, &err));
        tacit_session_watch(s, watch, &w);
        OK(tacit_run(s, &in, 1, &out, 1, &err));
        assert_string_equal(w.names, "Transpose Add Relu ");
        sums[executor] = w.sum;
        tacit_session_watch(s, NULL, NULL);
        tacit_session_profile(s, 1);
        OK(tacit_run(s, &in, 1, &out, 1, &err));
        OK(tacit_run(s, &in, 1, &out, 1, &err));
        assert_string_equal(w.names, "Transpose Add Relu ");
        uint32_t rows = tacit_session_profile_count(s);
        assert_true(rows >= 2);
        for (uint32_t i = 0; i < rows; i++) {
            tacit_profile_row row;
            OK(tacit_session_profile_row(s, i, &row));
            assert_int_equal(row.calls, 2);
            assert_non_null(row.kernel);
        }
        tacit_session_free(s);
        tacit_program_free(p);
    }
    assert_true(sums[0] == sums[1]);
    tacit_model_free(m);
}

/* Does a view of the compiled model say so? */
static bool says(tacit_model *m, tacit_view_kind kind, const char *what)
{
    tacit_program *p = NULL;
    char *text = NULL;
    OK(tacit_compile(m, NULL, &p, &err));
    OK(tacit_program_view(p, kind, TACIT_FORMAT_TEXT, NULL, &text, &err));
    bool found = strstr(text, what) != NULL;
    tacit_text_free(text);
    tacit_program_free(p);
    return found;
}

/* [n, 1, k] has n rows for a product, whatever lies between an only row and the next: PyTorch's
 * attention puts the batch in the middle. */
static void rows_of_a_turned_batch_are_one_product(void **state)
{
    (void)state;
    static float w[40 * 33];
    tacit_builder *b = begin();
    tacit_value x = input(b, "x", 3, (int64_t[]){1, 37, 40});
    tacit_value c = tacit_builder_constant(b, "w", TACIT_F32, 2, (int64_t[]){40, 33}, w);
    tacit_value turned = node1(b, "Transpose", x);
    tacit_builder_attr_ints(b, "perm", 3, (int64_t[]){1, 0, 2});
    tacit_builder_output(b, "y", node2(b, "MatMul", turned, c));
    tacit_model *m = finish(b);
    assert_true(says(m, TACIT_VIEW_EXPLAIN, "37x33x40"));
    tacit_model_free(m);
}

/* Rows of several sequences that were turned are copied for a wide weight, so that they are one
 * product; for a narrow one they are read where they lie, as several. */
static void turned_sequences_are_copied_for_wide_weights(void **state)
{
    (void)state;
    enum { STEPS = 8, SEQUENCES = 3, DEPTH = 64, WIDE = 512, NARROW = 48 };
    static float w[DEPTH * WIDE], x[STEPS * SEQUENCES * DEPTH], y[SEQUENCES * STEPS * WIDE];
    for (int64_t wide = 0; wide < 2; wide++) {
        int64_t n = wide ? WIDE : NARROW;
        for (int64_t i = 0; i < DEPTH * n; i++)
            w[i] = (float)(i % 7) - 3;
        for (int64_t i = 0; i < STEPS * SEQUENCES * DEPTH; i++)
            x[i] = (float)(i % 5) - 2;
        tacit_builder *b = begin();
        tacit_value in = input(b, "x", 3, (int64_t[]){STEPS, SEQUENCES, DEPTH});
        tacit_value c = tacit_builder_constant(b, "w", TACIT_F32, 2, (int64_t[]){DEPTH, n}, w);
        tacit_value turned = node1(b, "Transpose", in);
        tacit_builder_attr_ints(b, "perm", 3, (int64_t[]){1, 0, 2});
        tacit_builder_output(b, "y", node2(b, "MatMul", turned, c));
        tacit_model *m = finish(b);
        assert_true(says(m, TACIT_VIEW_EXPLAIN, wide ? "24x512x64" : "8x48x64 batch 3"));
        tacit_program *p = NULL;
        tacit_session *s = NULL;
        OK(tacit_compile(m, NULL, &p, &err));
        OK(tacit_session_create(p, &s, &err));
        tacit_tensor given = {.dtype = TACIT_F32,
                              .rank = 3,
                              .dims = {STEPS, SEQUENCES, DEPTH},
                              .data = x,
                              .bytes = sizeof x};
        tacit_tensor got = {.dtype = TACIT_F32,
                            .rank = 3,
                            .dims = {SEQUENCES, STEPS, n},
                            .data = y,
                            .bytes = (size_t)(SEQUENCES * STEPS * n) * sizeof *y};
        OK(tacit_run(s, &given, 1, &got, 1, &err));
        for (int64_t i = 0; i < SEQUENCES * STEPS * n; i++) {
            const float *row = x + (i / n % STEPS * SEQUENCES + i / n / STEPS) * DEPTH;
            float sum = 0; /* of small integers: exact */
            for (int64_t k = 0; k < DEPTH; k++)
                sum += row[k] * w[k * n + i % n];
            assert_float_equal(y[i], sum, 1e-3);
        }
        tacit_session_free(s);
        tacit_program_free(p);
        tacit_model_free(m);
    }
}

/* Weights that are standardised in the graph: done once, though they are large. */
static void large_weights_are_standardised_once(void **state)
{
    (void)state;
    enum { CHANNELS = 2048, EACH = 1024 };
    static float w[CHANNELS * EACH], ones[CHANNELS], zeros[CHANNELS], x[CHANNELS * EACH];
    static float y[CHANNELS * EACH];
    int64_t shape[] = {1, CHANNELS, EACH}, channels = CHANNELS;
    for (size_t i = 0; i < CHANNELS * EACH; i++)
        w[i] = i % 2 ? 3 : 7; /* 5 ± 2 */
    for (size_t i = 0; i < CHANNELS; i++)
        ones[i] = 1;
    tacit_builder *b = begin();
    tacit_value in[] = {tacit_builder_constant(b, "w", TACIT_F32, 3, shape, w),
                        tacit_builder_constant(b, "scale", TACIT_F32, 1, &channels, ones),
                        tacit_builder_constant(b, "shift", TACIT_F32, 1, &channels, zeros),
                        tacit_builder_constant(b, "mean", TACIT_F32, 1, &channels, zeros),
                        tacit_builder_constant(b, "variance", TACIT_F32, 1, &channels, ones)};
    tacit_value out[3];
    tacit_value standard = tacit_builder_node(b, "BatchNormalization", 5, in, 3, out);
    tacit_builder_attr_int(b, "training_mode", 1);
    tacit_builder_output(b, "y", node2(b, "Add", input(b, "x", 3, shape), standard));
    tacit_model *m = finish(b);
    assert_false(says(m, TACIT_VIEW_PROGRAM, "BatchNormalization"));
    tacit_program *p = NULL;
    tacit_session *s = NULL;
    OK(tacit_compile(m, NULL, &p, &err));
    OK(tacit_session_create(p, &s, &err));
    tacit_tensor given = {
        .dtype = TACIT_F32, .rank = 3, .dims = {1, CHANNELS, EACH}, .data = x, .bytes = sizeof x};
    tacit_tensor got = given;
    got.data = y;
    OK(tacit_run(s, &given, 1, &got, 1, &err));
    for (size_t i = 0; i < CHANNELS * EACH; i++)
        assert_float_equal(y[i], (i % 2 ? -1.0f : 1.0f), 1e-5);
    tacit_session_free(s);
    tacit_program_free(p);
    tacit_model_free(m);
}

static void views_are_readable(void **state)
{
    (void)state;
    tacit_builder *b = begin();
    int64_t n = 64;
    tacit_value x = input(b, "x", 1, &n);
    tacit_builder_output(b, "y", node1(b, "Sqrt", node2(b, "Mul", x, node1(b, "Exp", x))));
    tacit_model *m = finish(b);
    tacit_program *p = NULL;
    OK(tacit_compile(m, NULL, &p, &err));
    for (int kind = TACIT_VIEW_GRAPH; kind <= TACIT_VIEW_EXPLAIN; kind++)
        for (int format = TACIT_FORMAT_TEXT; format <= TACIT_FORMAT_JSON; format++) {
            char *text = NULL;
            OK(tacit_program_view(p, (tacit_view_kind)kind, (tacit_format)format, NULL, &text,
                                  &err));
            assert_true(strlen(text) > 1);
            if (format == TACIT_FORMAT_JSON)
                assert_true(text[0] == '{' || text[0] == '[');
            tacit_text_free(text);
        }
    char *text = NULL;
    assert_int_equal(
        tacit_program_view(p, TACIT_VIEW_EXPLAIN, TACIT_FORMAT_TEXT, "nobody", &text, &err),
        TACIT_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "nobody"));
    tacit_program_free(p);
    tacit_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(views_of_inputs_and_repeated_outputs),
        cmocka_unit_test(constants_as_outputs_and_slices),
        cmocka_unit_test(symbols_bind_at_compile_time),
        cmocka_unit_test(shapes_that_depend_on_data_are_lent),
        cmocka_unit_test(products_behind_data_are_compiled_late),
        cmocka_unit_test(wrong_calls_are_named),
        cmocka_unit_test(inputs_given_again),
        cmocka_unit_test(bad_indices_are_reported),
        cmocka_unit_test(watching_and_profiling),
        cmocka_unit_test(rows_of_a_turned_batch_are_one_product),
        cmocka_unit_test(turned_sequences_are_copied_for_wide_weights),
        cmocka_unit_test(large_weights_are_standardised_once),
        cmocka_unit_test(views_are_readable),
    };
    return cmocka_run_group_tests_name("running", tests, NULL, NULL);
}
