/* SPDX-License-Identifier: Apache-2.0
 * Mistakes that compilers of this kind make, by the section of our notes on lowering that lists
 * them (L3_1: section 3.1) or the row of its table of weaknesses (L9_16: row 16): programs compiled
 * in every way give the right values. */
#include "api/ways.h"

/* One node on the inputs x0, x1… of these types; the attributes are part of `node`. */
static void one(const char *types, const char *node, size_t n_in, const ways_values *in,
                size_t n_out, const ways_values *want, double eps)
{
    char body[2048];
    size_t at = 0;
    int i = 0;
    for (const char *t = types; *t; t += strcspn(t, " "), t += *t == ' ')
        at += (size_t)snprintf(body + at, sizeof body - at, "in %%x%d : %.*s\n", i++,
                               (int)strcspn(t, " "), t);
    snprintf(body + at, sizeof body - at, "%%y = %s @y\nout %%y", node);
    ways_expect(body, n_in, in, n_out, want, eps);
}
#define ONE(types, node, in, want, eps) one(types, node, in, LISTS(want), eps)

/* --- 1: operators ----------------------------------------------------------------------------- */

static void L1_2_compiled_casts_convert(void **state)
{
    (void)state;
    static const char *const types[] = {"f64", "f32", "f16", "bf16", "i8",  "i16", "i32",
                                        "i64", "u8",  "u16", "u32",  "u64", "bool"};
    static const int onnx[] = {11, 1, 10, 16, 3, 5, 6, 7, 2, 4, 12, 13, 9};
    enum { N = sizeof types / sizeof *types };
    for (int i = 0; i < N; i++)
        for (int k = 0; k < N; k++) {
            char type[32], node[64];
            bool truth = i == N - 1 || k == N - 1;
            snprintf(type, sizeof type, "%s[3]", types[i]);
            snprintf(node, sizeof node, "Cast(%%x0) to=%d", onnx[k]);
            ONE(type, node, LISTS(L(0, 1, 100)), L(0, 1, truth ? 1 : 100), 0);
        }
}

static void L1_1_reshapes_move_whole_elements(void **state)
{
    (void)state;
    static const char *const types[] = {"c64", "c128", "f16", "i8", "i64", "f64", "bool"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char body[512];
        snprintf(body, sizeof body,
                 "in %%x : %s[2,3]\nconst %%s : i64[1] = [6]\n%%t = Transpose(%%x) perm=[1, 0] "
                 "@t\n%%y = Reshape(%%t, %%s) @y\nout %%y",
                 types[i]);
        if (types[i][0] == 'c')
            ways_expect(body, LISTS(L(1, -1, 2, -2, 3, -3, 4, -4, 5, -5, 6, -6)),
                        LISTS(L(1, -1, 4, -4, 2, -2, 5, -5, 3, -3, 6, -6)), 0);
        else if (types[i][0] == 'b')
            ways_expect(body, LISTS(L(1, 0, 0, 1, 1, 0)), LISTS(L(1, 1, 0, 1, 0, 0)), 0);
        else
            ways_expect(body, LISTS(L(1, 2, 3, 4, 5, 6)), LISTS(L(1, 4, 2, 5, 3, 6)), 0);
    }
}

static void L1_4_choices_and_comparisons_broadcast(void **state)
{
    (void)state;
    static const char *const types[] = {"f32", "f64", "i32", "i64", "u8", "f16"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char two[64], three[64];
        snprintf(two, sizeof two, "%s[2,1] %s[3]", types[i], types[i]);
        snprintf(three, sizeof three, "bool[2,1] %s[3] %s[1]", types[i], types[i]);
        ONE(two, "Less(%x0, %x1)", LISTS(L(2, 5), L(1, 3, 9)), L(0, 1, 1, 0, 0, 1), 0);
        ONE(two, "Equal(%x0, %x1)", LISTS(L(3, 9), L(1, 3, 9)), L(0, 1, 0, 0, 0, 1), 0);
        ONE(three, "Where(%x0, %x1, %x2)", LISTS(L(1, 0), L(1, 2, 3), L(7)), L(1, 2, 3, 7, 7, 7),
            0);
    }
}

/* Outputs that nobody wants cost no kernel. */
static void largest_without_places_and_places_alone(void **state)
{
    (void)state;
    static const char *const body = "in %%x : f32[2,4]\nconst %%k : i64[1] = [2]\n"
                                    "%%v, %%i = TopK(%%x, %%k) @top\nout %%%s";
    char text[256];
    snprintf(text, sizeof text, body, "v");
    ways_expect(text, LISTS(L(1, 4, 2, 3, 8, 5, 5, 6)), LISTS(L(4, 3, 8, 6)), 0);
    snprintf(text, sizeof text, body, "i");
    ways_expect(text, LISTS(L(1, 4, 2, 3, 8, 5, 5, 6)), LISTS(L(1, 3, 0, 3)), 0);
}

/* Activations exist in every float type, to its precision. */
static void L1_4_activations_of_doubles(void **state)
{
    (void)state;
    double x = 0.7, s = 1 / (1 + exp(-x)), c = sqrt(2 / acos(-1));
    ONE("f64[1]", "Gelu(%x0)", LISTS(L(x)), L(x * (1 + erf(x / sqrt(2))) / 2), 1e-14);
    ONE("f64[1]", "Gelu(%x0) approximate=\"tanh\"", LISTS(L(x)),
        L(x / 2 * (1 + tanh(c * (x + 0.044715 * x * x * x)))), 1e-14);
    ONE("f64[1]", "Swish(%x0)", LISTS(L(x)), L(x * s), 1e-14);
    ONE("f64[2]", "Softmax(%x0)", LISTS(L(x, 0)), L(s, 1 - s), 1e-14);
}

static void L1_5_sums_along_any_axis(void **state)
{
    (void)state;
    ONE("f32[2,3] i64[]", "CumSum(%x0, %x1)", LISTS(L(1, 2, 3, 4, 5, 6), L(0)), L(1, 2, 3, 5, 7, 9),
        0);
}

static void L1_5_top_k_gives_values_and_places(void **state)
{
    (void)state;
    ways_expect("in %x : f32[2,3]\nconst %k : i64[1] = [2]\n%v, %i = TopK(%x, %k) @y\nout %v\nout "
                "%i",
                LISTS(L(1, 3, 3, -INFINITY, 2, -INFINITY)),
                LISTS(L(3, 3, 2, -INFINITY), L(1, 2, 1, 0)), 0);
}

static void L1_6_reductions_over_any_set_of_axes(void **state)
{
    (void)state;
    const ways_values x = L(1, 2, 3, 4, 5, 6, 7, 8);
    static const char *const types[] = {"f32", "f64"};
    for (int i = 0; i < 2; i++) {
        char all[64], type[64];
        snprintf(type, sizeof type, "%s[2,2,2]", types[i]);
        snprintf(all, sizeof all, "%s[2,2,2] i64[0]", types[i]);
        ONE(all, "ReduceSum(%x0, %x1) keepdims=0", LISTS(x, NONE), L(36), 0);
        ONE(all, "ReduceSum(%x0, %x1) noop_with_empty_axes=1", LISTS(x, NONE), x, 0);
        snprintf(all, sizeof all, "%s[2,2,2] i64[2]", types[i]);
        ONE(all, "ReduceMean(%x0, %x1) keepdims=0", LISTS(x, L(0, 2)), L(3.5, 5.5), 0);
        ONE(all, "ReduceMax(%x0, %x1) keepdims=0", LISTS(x, L(2, 0)), L(6, 8), 0);
        ONE(all, "ReduceProd(%x0, %x1) keepdims=0", LISTS(x, L(-1, 0)), L(60, 672), 0);
    }
}

/* The axis of a norm is where it starts, that of a softmax the one it runs along. */
static void L1_6_norms_follow_their_axis(void **state)
{
    (void)state;
    ONE("f32[1,2,2] f32[2,2]", "LayerNormalization(%x0, %x1) axis=1 epsilon=0.0",
        LISTS(L(1, 1, 3, 3), L(1, 2, 1, 2)), L(-1, -2, 1, 2), 1e-6);
    ONE("f32[1,2,2] f32[2]", "LayerNormalization(%x0, %x1) axis=-1 epsilon=0.0",
        LISTS(L(1, 5, 3, 7), L(1, 2)), L(-1, 2, -1, 2), 1e-6);
    ONE("f32[1,2,2]", "Softmax(%x0) axis=1", LISTS(L(0, log(3), 0, 0)), L(.5, .75, .5, .25), 1e-6);
    ONE("f32[1,2,2] f32[2] f32[2] f32[2] f32[2]",
        "BatchNormalization(%x0, %x1, %x2, %x3, %x4) epsilon=0.0",
        LISTS(L(1, 2, 3, 4), L(1, 10), L(0, 1), L(1, 3), L(1, 4)), L(0, 1, 1, 6), 1e-6);
}

/* Two images of two classes at two places. */
static void L1_6_losses_of_any_rank(void **state)
{
    (void)state;
    ONE("f32[1,2,2] i64[1,2]", "SoftmaxCrossEntropyLoss(%x0, %x1) reduction=\"none\"",
        LISTS(L(0, log(3), 0, 0), L(0, 1)), L(log(2), log(4)), 1e-6);
}

static void L1_7_windows_of_one_and_three_axes(void **state)
{
    (void)state;
    ONE("f32[1,1,4] f32[1,1,2]", "Conv(%x0, %x1)", LISTS(L(1, 2, 3, 4), L(1, 10)), L(21, 32, 43),
        0);
    ONE("f32[1,1,2,2,2] f32[1,1,2,1,2]", "Conv(%x0, %x1)",
        LISTS(L(1, 2, 3, 4, 5, 6, 7, 8), L(1, 10, 100, 1000)), L(6521, 8743), 0);
    ONE("f32[1,1,2,2,2]", "MaxPool(%x0) kernel_shape=[2, 1, 2]", LISTS(L(1, 2, 3, 4, 5, 6, 7, -8)),
        L(6, 7), 0);
    ONE("f32[1,1,3]", "AveragePool(%x0) kernel_shape=[2]", LISTS(L(1, 2, 4)), L(1.5, 3), 0);
}

/* Rows that the output has only through output_padding lie behind the last tap. */
static void L9_16_output_padding_adds_what_it_says(void **state)
{
    (void)state;
    ONE("f32[1,1,2] f32[1,1,3] f32[1]",
        "ConvTranspose(%x0, %x1, %x2) strides=[2] output_padding=[1]",
        LISTS(L(1, 2), L(1, 10, 100), L(5)), L(6, 15, 107, 25, 205, 5), 0);
    ONE("f32[1,1,2] f32[1,1,3]",
        "ConvTranspose(%x0, %x1) strides=[2] pads=[1, 1] output_padding=[1]",
        LISTS(L(1, 2), L(1, 10, 100)), L(10, 102, 20, 200), 0);
}

/* --- 3: shapes -------------------------------------------------------------------------------- */

static void L3_1_products_of_any_ranks_and_types(void **state)
{
    (void)state;
    static const char *const types[] = {"f32", "f64", "f16", "i32", "i64"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char shapes[64];
#define TWO(a, b) (snprintf(shapes, sizeof shapes, "%s" a " %s" b, types[i], types[i]), shapes)
        ONE(TWO("[1,2]", "[2,2,1]"), "MatMul(%x0, %x1)", LISTS(L(1, 10), L(1, 2, 3, 4)), L(21, 43),
            0);
        ONE(TWO("[2,1,2]", "[1,2,1]"), "MatMul(%x0, %x1)", LISTS(L(1, 2, 3, 4), L(1, 10)),
            L(21, 43), 0);
        ONE(TWO("[2,1,1,2]", "[2,2,1]"), "MatMul(%x0, %x1)", LISTS(L(1, 2, 3, 4), L(1, 10, 2, 3)),
            L(21, 8, 43, 18), 0);
        ONE(TWO("[2]", "[2,2,1]"), "MatMul(%x0, %x1)", LISTS(L(1, 10), L(1, 2, 3, 4)), L(21, 43),
            0);
        ONE(TWO("[2,1,2]", "[2]"), "MatMul(%x0, %x1)", LISTS(L(1, 2, 3, 4), L(1, 10)), L(21, 43),
            0);
        ONE(TWO("[2]", "[2]"), "MatMul(%x0, %x1)", LISTS(L(1, 2), L(3, 4)), L(11), 0);
        ONE(TWO("[2,1,0]", "[2,0,2]"), "MatMul(%x0, %x1)", LISTS(NONE, NONE), L(0, 0, 0, 0), 0);
    }
}

static void L3_3_sums_broadcast_both_ways(void **state)
{
    (void)state;
    static const char *const types[] = {"f32", "f64", "f16", "i32", "i64", "i8"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char shapes[64];
        ONE(TWO("[3,1]", "[2]"), "Add(%x0, %x1)", LISTS(L(10, 20, 30), L(1, 2)),
            L(11, 12, 21, 22, 31, 32), 0);
        ONE(TWO("[2]", "[2,2]"), "Add(%x0, %x1)", LISTS(L(1, 2), L(10, 20, 30, 40)),
            L(11, 22, 31, 42), 0);
        ONE(TWO("[2,2]", "[1,2]"), "Add(%x0, %x1)", LISTS(L(10, 20, 30, 40), L(1, 2)),
            L(11, 22, 31, 42), 0);
        ONE(TWO("[3]", "[]"), "Add(%x0, %x1)", LISTS(L(1, 2, 3), L(100)), L(101, 102, 103), 0);
        ONE(TWO("[2,0]", "[1]"), "Add(%x0, %x1)", LISTS(NONE, L(1)), NONE, 0);
        ONE(TWO("[2,1]", "[0]"), "Add(%x0, %x1)", LISTS(L(1, 2), NONE), NONE, 0);
    }
}

/* A target of lower rank, or with ones, leaves the input's own extents. */
static void L3_4_expanding_broadcasts_both_ways(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        char body[256];
        snprintf(body, sizeof body,
                 "in %%x : %s[2,1]\nconst %%s : i64[1] = [3]\n%%y = Expand(%%x, %%s) @y\nout %%y",
                 i ? "f32" : "i8");
        ways_expect(body, LISTS(L(1, 2)), LISTS(L(1, 1, 1, 2, 2, 2)), 0);
    }
    tacit_error err;
    assert_int_equal(ways_refused("in %x : f32[2]\nconst %s : i64[1] = [3]\n%y = Expand(%x, %s) "
                                  "@y\nout %y",
                                  &err),
                     TACIT_ERR_SHAPE);
}

/* --- 5: bodies -------------------------------------------------------------------------------- */

/* Constants narrower than four bytes, of odd counts, and an outer value that every step reads. */
static void L5_1_constants_of_bodies_keep_all_their_bytes(void **state)
{
    (void)state;
    static const char *const types[] = {"i8", "u8", "f16", "i16", "f32", "f64", "i64"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char body[1024];
        snprintf(body, sizeof body,
                 "in %%i : %s[3]\nin %%x : %s[2]\nin %%w : %s[3]\n%%y = Scan(%%i, %%x | %%w) "
                 "body=graph \"b\" {\nin %%c : %s[3]\nin %%u : %s[]\ncapture %%v : %s[3]\nconst "
                 "%%k : %s[3] = [1, 2, 3]\n%%a = Add(%%c, %%k) @a\n%%b = Add(%%a, %%u) @b\n%%d = "
                 "Add(%%b, %%v) @d\nout %%d\n} num_scan_inputs=1 @y\nout %%y",
                 types[i], types[i], types[i], types[i], types[i], types[i], types[i]);
        ways_expect(body, LISTS(L(0, 0, 0), L(10, 20), L(5, 6, 7)), LISTS(L(42, 46, 50)), 0);
    }
}

/* --- 9: the table of weaknesses --------------------------------------------------------------- */

/* A matrix that cannot be inverted is an answer, and the session goes on. */
static void L9_10_a_singular_matrix_ends_one_run_only(void **state)
{
    (void)state;
    tacit_model *m = ways_load("in %a : f64[2,2]\nin %b : f64[2]\n%y = tacit.Solve(%a, %b) "
                               "@solve\nout %y");
    tacit_error err;
    double a[4] = {1, 2, 2, 4}, b[2] = {5, 6}, y[2];
    for (int way = 0; way < WAYS; way++) {
        tacit_program *p;
        tacit_session *s;
        if (tacit_compile(m, &ways_options[way], &p, &err) != TACIT_OK ||
            tacit_session_create(p, &s, &err) != TACIT_OK)
            fail_msg("%s", err.message);
        for (int run = 0; run < 4; run++) {
            tacit_tensor in[2] = {
                {.dtype = TACIT_F64, .rank = 2, .dims = {2, 2}, .data = a, .bytes = sizeof a},
                {.dtype = TACIT_F64, .rank = 1, .dims = {2}, .data = b, .bytes = sizeof b}};
            tacit_tensor out = {
                .dtype = TACIT_F64, .rank = 1, .dims = {2}, .data = y, .bytes = sizeof y};
            a[3] = run % 2 ? 5 : 4;
            tacit_status status = tacit_run(s, in, 2, &out, 1, &err);
            assert_int_equal(status, run % 2 ? TACIT_OK : TACIT_ERR_VALUE);
            if (run % 2)
                assert_true(fabs(y[0] - 13) < 1e-12 && fabs(y[1] + 4) < 1e-12);
            else
                assert_non_null(strstr(err.message, "solve"));
        }
        tacit_session_free(s);
        tacit_program_free(p);
    }
    tacit_model_free(m);
}

/* One query of 32 heads against 8192 keys: the scores of a tile, not a square of them. */
static void L9_17_decoding_takes_little_scratch(void **state)
{
    (void)state;
    tacit_model *m = ways_load("in %q : f32[1,32,1,64]\nin %k : f32[1,32,8192,64]\nin %v : "
                               "f32[1,32,8192,64]\n%y = tacit.Attention(%q, %k, %v) @y\nout %y");
    tacit_program *p;
    tacit_error err;
    tacit_memory_report report;
    if (tacit_compile(m, NULL, &p, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    tacit_program_memory(p, &report);
    assert_true(report.arena_bytes < 4 << 20);
    tacit_program_free(p);
    tacit_model_free(m);
}

/* 2^24 + 1 is no f32: an index of that size still finds its element. */
static void L9_22_indices_beyond_two_to_the_24(void **state)
{
    (void)state;
    enum { N = (1 << 24) + 3 };
    static const char *const types[] = {"i32", "i64"};
    uint8_t *data = calloc(1, N);
    assert_non_null(data);
    for (int i = 0; i < 3; i++)
        data[(1 << 24) + i] = (uint8_t)(7 + i);
    for (int k = 0; k < 2; k++) {
        char body[256];
        tacit_program *p;
        tacit_session *s;
        tacit_error err;
        uint8_t got[2] = {0};
        snprintf(body, sizeof body,
                 "in %%x : u8[%d]\nconst %%i : %s[2] = [16777217, -1]\n%%y = Gather(%%x, %%i) "
                 "@y\nout %%y",
                 N, types[k]);
        tacit_model *m = ways_load(body);
        tacit_tensor in = {.dtype = TACIT_U8, .rank = 1, .dims = {N}, .data = data, .bytes = N};
        tacit_tensor out = {.dtype = TACIT_U8, .rank = 1, .dims = {2}, .data = got, .bytes = 2};
        if (tacit_compile(m, NULL, &p, &err) != TACIT_OK ||
            tacit_session_create(p, &s, &err) != TACIT_OK ||
            tacit_run(s, &in, 1, &out, 1, &err) != TACIT_OK)
            fail_msg("%s", err.message);
        assert_int_equal(got[0], 8);
        assert_int_equal(got[1], 9);
        tacit_session_free(s);
        tacit_program_free(p);
        tacit_model_free(m);
    }
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(L1_1_reshapes_move_whole_elements),
        cmocka_unit_test(L1_2_compiled_casts_convert),
        cmocka_unit_test(L1_4_choices_and_comparisons_broadcast),
        cmocka_unit_test(L1_4_activations_of_doubles),
        cmocka_unit_test(L1_5_sums_along_any_axis),
        cmocka_unit_test(L1_5_top_k_gives_values_and_places),
        cmocka_unit_test(L1_6_reductions_over_any_set_of_axes),
        cmocka_unit_test(L1_6_norms_follow_their_axis),
        cmocka_unit_test(L1_6_losses_of_any_rank),
        cmocka_unit_test(L1_7_windows_of_one_and_three_axes),
        cmocka_unit_test(L9_16_output_padding_adds_what_it_says),
        cmocka_unit_test(L3_1_products_of_any_ranks_and_types),
        cmocka_unit_test(L3_3_sums_broadcast_both_ways),
        cmocka_unit_test(L3_4_expanding_broadcasts_both_ways),
        cmocka_unit_test(L5_1_constants_of_bodies_keep_all_their_bytes),
        cmocka_unit_test(largest_without_places_and_places_alone),
        cmocka_unit_test(L9_10_a_singular_matrix_ends_one_run_only),
        cmocka_unit_test(L9_17_decoding_takes_little_scratch),
        cmocka_unit_test(L9_22_indices_beyond_two_to_the_24),
    };
    return cmocka_run_group_tests_name("listed defects of lowering", tests, NULL, NULL);
}
