/* SPDX-License-Identifier: Apache-2.0
 * Mistakes that runtimes of this kind make, by the number under which our notes list them (D: the
 * catalogue, E: the executor, S23: its list of panics), and bad input: each a test that we do
 * better. Others of these lists stand with their families: D4, D7, D9, D10, D12, E13 and E16 in
 * test_vision and test_families, NaN logits in test_acceptance_basic, custom operators in
 * api/test_custom; with compiled programs in api/test_defects and api/test_defects_lowering (D2, E2
 * to E4, E11, E17, E21 to E27), fusions in pass/test_defects, derivatives in diff/test_defects
 * (E12, E18, E28) and scans in diff/test_scan (E5). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "support/op_case.h"

#define V(...) ((double[]){__VA_ARGS__})

/* --- the table -------------------------------------------------------------------------------- */

static void D1_D8_no_row_is_a_silent_nothing(void **state)
{
    (void)state;
    const op_def *row;
    for (uint32_t i = 0; (row = op_at(i)); i++)
        if (!row->eval && !row->decompose &&
            !(row->domain && strcmp(row->domain, "ai.onnx.preview.training") == 0))
            fail_msg("%s can neither be run nor be spelled out", row->name);
}

static void D8_reductions_over_axes_apart(void **state)
{
    (void)state;
    op_case c;
    op_case_begin(&c, "", "ReduceSum");
    op_case_f64(&c, TACIT_F32, SHAPE(2, 2, 2), V(1, 2, 3, 4, 5, 6, 7, 8));
    op_case_i64(&c, TACIT_I64, SHAPE(2), (int64_t[]){0, 2});
    op_case_int(&c, "keepdims", 0);
    op_case_run(&c, 1);
    op_case_expect(&c, 0, TACIT_F32, SHAPE(2), V(14, 22), 0);
    op_case_end(&c);
    op_case_begin(&c, "", "Transpose");
    op_case_f64(&c, TACIT_F32, SHAPE(1, 2), V(1, 2));
    op_case_ints(&c, "perm", 2, (int64_t[]){0, 2});
    op_case_refuses(&c, 1, TACIT_ERR_VALUE, "axis 2");
    op_case_end(&c);
}

/* Shapes beyond 4 Gi elements are inferred; what no machine addresses is an error. */
static void D11_counts_have_64_bits(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    for (int huge = 0; huge < 2; huge++) {
        ir_graph *g = ir_graph_new(&a, "g");
        int64_t dims[3] = {1 << 20, 1 << 20, huge ? INT64_C(1) << 40 : 3};
        ir_type type = ir_type_tensor(TACIT_F32, 3, dims);
        ir_value *x = ir_input_new(g, "x", &type);
        ir_node *n = op_node(g, "Relu", "n", 1, &x);
        tacit_error err = {0};
        assert_int_equal(op_infer_node(g, n, &err), huge ? TACIT_ERR_LIMIT : TACIT_OK);
        if (!huge)
            assert_true(ir_shape_size(&n->outputs[0]->type.shape) == INT64_C(3) << 40);
    }
    arena_free(&a);
}

/* --- widths of elements ----------------------------------------------------------------------- */

static void D5_E6_casts_convert_values(void **state)
{
    (void)state;
    static const tacit_dtype types[] = {TACIT_F64, TACIT_F32, TACIT_F16, TACIT_BF16, TACIT_I8,
                                        TACIT_I16, TACIT_I32, TACIT_I64, TACIT_U8,   TACIT_U16,
                                        TACIT_U32, TACIT_U64, TACIT_BOOL};
    enum { N = sizeof types / sizeof *types };
    for (uint32_t i = 0; i < N; i++)
        for (uint32_t k = 0; k < N; k++) {
            op_case c;
            bool truth = types[i] == TACIT_BOOL || types[k] == TACIT_BOOL;
            op_case_begin(&c, "", "Cast");
            op_case_f64(&c, types[i], SHAPE(3), V(0, 1, 100));
            op_case_int(&c, "to", ir_dtype_to_onnx(types[k]));
            op_case_run(&c, 1);
            op_case_expect(&c, 0, types[k], SHAPE(3), V(0, 1, truth ? 1 : 100), 0);
            op_case_end(&c);
        }
}

static void D5_E9_any_width_moves_and_computes(void **state)
{
    (void)state;
    static const tacit_dtype types[] = {TACIT_I8,  TACIT_U8,  TACIT_I16, TACIT_F16, TACIT_I32,
                                        TACIT_U32, TACIT_I64, TACIT_F64, TACIT_U64};
    for (uint32_t i = 0; i < sizeof types / sizeof *types; i++) {
        op_case c;
        op_case_begin(&c, "", "Concat");
        op_case_f64(&c, types[i], SHAPE(1, 2), V(1, 2));
        op_case_f64(&c, types[i], SHAPE(1, 2), V(3, 4));
        op_case_int(&c, "axis", 0);
        op_case_run(&c, 1);
        op_case_expect(&c, 0, types[i], SHAPE(2, 2), V(1, 2, 3, 4), 0);
        op_case_end(&c);
        op_case_begin(&c, "", "Transpose");
        op_case_f64(&c, types[i], SHAPE(2, 3), V(1, 2, 3, 4, 5, 6));
        op_case_run(&c, 1);
        op_case_expect(&c, 0, types[i], SHAPE(3, 2), V(1, 4, 2, 5, 3, 6), 0);
        op_case_end(&c);
        op_case_begin(&c, "", "Add");
        op_case_f64(&c, types[i], SHAPE(2, 1), V(10, 20));
        op_case_f64(&c, types[i], SHAPE(1, 2), V(1, 2));
        op_case_run(&c, 1);
        op_case_expect(&c, 0, types[i], SHAPE(2, 2), V(11, 12, 21, 22), 0);
        op_case_end(&c);
        op_case_begin(&c, "", "Less");
        op_case_f64(&c, types[i], SHAPE(2), V(3, 7));
        op_case_f64(&c, types[i], SHAPE(2), V(7, 3));
        op_case_run(&c, 1);
        op_case_expect(&c, 0, TACIT_BOOL, SHAPE(2), V(1, 0), 0);
        op_case_end(&c);
        op_case_begin(&c, "", "Where");
        op_case_f64(&c, TACIT_BOOL, SHAPE(2), V(1, 0));
        op_case_f64(&c, types[i], SHAPE(2), V(3, 7));
        op_case_f64(&c, types[i], SHAPE(1), V(9));
        op_case_run(&c, 1);
        op_case_expect(&c, 0, types[i], SHAPE(2), V(3, 9), 0);
        op_case_end(&c);
    }
}

/* A sum that f32 would lose: f64 goes through as f64. */
static void E7_E10_f64_stays_f64(void **state)
{
    (void)state;
    const double tiny = 0x1p-40;
    static const char *const reductions[] = {"ReduceMax", "ReduceMin", "ReduceMean", "ReduceProd"};
    const double want[] = {1 + tiny, 1, 1 + tiny / 2, 1 + tiny};
    for (int i = 0; i < 4; i++) {
        op_case c;
        op_case_begin(&c, "", reductions[i]);
        op_case_f64(&c, TACIT_F64, SHAPE(2), V(1 + tiny, 1));
        op_case_int(&c, "keepdims", 0);
        op_case_run(&c, 1);
        op_case_expect(&c, 0, TACIT_F64, SCALAR, &want[i], 1e-15);
        op_case_end(&c);
    }
    op_case c;
    op_case_begin(&c, "", "CumSum");
    op_case_f64(&c, TACIT_F64, SHAPE(2), V(1, tiny));
    op_case_i64(&c, TACIT_I64, SCALAR, (int64_t[]){0});
    op_case_run(&c, 1);
    op_case_expect(&c, 0, TACIT_F64, SHAPE(2), V(1, 1 + tiny), 1e-16);
    op_case_end(&c);
    op_case_begin(&c, "", "Conv");
    op_case_f64(&c, TACIT_F64, SHAPE(1, 1, 2), V(1, tiny));
    op_case_f64(&c, TACIT_F64, SHAPE(1, 1, 2), V(1, 1));
    op_case_run(&c, 1);
    op_case_expect(&c, 0, TACIT_F64, SHAPE(1, 1, 1), V(1 + tiny), 1e-16);
    op_case_end(&c);
}

/* --- attention -------------------------------------------------------------------------------- */

static void D3_E1_masks_of_every_kind_count(void **state)
{
    (void)state;
    /* Scores are all zero, so each query gets the mean of the values it may see. */
    static const struct {
        const char *attr;
        int64_t value;
        double want[3];
    } kinds[] = {
        {"causal", 0, {4, 4, 4}}, {"causal", 1, {1, 2.5, 4}}, {"window", 2, {1, 2.5, 5.5}}};
    for (int k = 0; k < 3; k++) {
        op_case c;
        op_case_begin(&c, "tacit", "Attention");
        op_case_f64(&c, TACIT_F32, SHAPE(1, 1, 3, 1), V(0, 0, 0));
        op_case_f64(&c, TACIT_F32, SHAPE(1, 1, 3, 1), V(1, 2, 3));
        op_case_f64(&c, TACIT_F32, SHAPE(1, 1, 3, 1), V(1, 4, 7));
        op_case_int(&c, kinds[k].attr, kinds[k].value);
        if (k == 2)
            op_case_int(&c, "causal", 1);
        op_case_run(&c, 1);
        op_case_expect(&c, 0, TACIT_F32, SHAPE(1, 1, 3, 1), kinds[k].want, 1e-6);
        op_case_end(&c);
    }
}

/* A mask of zeros is a mask, an absent one is none; a state of zeros is where absence starts. */
static void D6_E15_absent_is_not_zero(void **state)
{
    (void)state;
    for (int masked = 0; masked < 2; masked++) {
        op_case c;
        op_case_begin(&c, "tacit", "Attention");
        op_case_f64(&c, TACIT_F32, SHAPE(1, 1, 1, 1), V(0));
        op_case_f64(&c, TACIT_F32, SHAPE(1, 1, 2, 1), V(0, 0));
        op_case_f64(&c, TACIT_F32, SHAPE(1, 1, 2, 1), V(2, 6));
        if (masked)
            op_case_f64(&c, TACIT_BOOL, SHAPE(1, 1, 1, 2), V(0, 1));
        op_case_run(&c, 1);
        op_case_expect(&c, 0, TACIT_F32, SHAPE(1, 1, 1, 1), V(masked ? 6 : 4), 1e-6);
        op_case_end(&c);
    }
}

/* --- rotary embeddings ------------------------------------------------------------------------ */

static void D12_E20_rope_tables_and_widths_are_checked(void **state)
{
    (void)state;
    op_case c;
    op_case_begin(&c, "tacit", "Rope"); /* two positions, a table of one */
    op_case_f64(&c, TACIT_F32, SHAPE(1, 2, 2), V(1, 2, 3, 4));
    op_case_f64(&c, TACIT_F32, SHAPE(1, 1), V(1));
    op_case_f64(&c, TACIT_F32, SHAPE(1, 1), V(0));
    op_case_int(&c, "head_dim", 2);
    assert_int_not_equal(op_case_try(&c, 1), TACIT_OK);
    op_case_end(&c);
    op_case_begin(&c, "tacit", "Rope"); /* an odd number of turned elements */
    op_case_f64(&c, TACIT_F32, SHAPE(1, 1, 4), V(1, 2, 3, 4));
    op_case_f64(&c, TACIT_F32, SHAPE(1, 2), V(1, 1));
    op_case_f64(&c, TACIT_F32, SHAPE(1, 2), V(0, 0));
    op_case_int(&c, "head_dim", 4);
    op_case_int(&c, "rotated", 3);
    assert_int_not_equal(op_case_try(&c, 1), TACIT_OK);
    op_case_end(&c);
}

static void E29_rank_four_turns_as_rank_three(void **state)
{
    (void)state;
    op_case c;
    op_case_begin(&c, "", "RotaryEmbedding"); /* [B,H,S,D]: two heads of two at one position */
    op_case_f64(&c, TACIT_F32, SHAPE(1, 2, 1, 2), V(1, 2, 3, 4));
    op_case_f64(&c, TACIT_F32, SHAPE(1, 1, 1), V(0));
    op_case_f64(&c, TACIT_F32, SHAPE(1, 1, 1), V(1));
    op_case_run(&c, 1);
    op_case_expect(&c, 0, TACIT_F32, SHAPE(1, 2, 1, 2), V(-2, 1, -4, 3), 1e-6);
    op_case_end(&c);
}

/* --- rounding, quantising, indexing ----------------------------------------------------------- */

static void D12_E28_rounding_ties_to_even_in_every_width(void **state)
{
    (void)state;
    static const tacit_dtype types[] = {TACIT_F32, TACIT_F64, TACIT_F16, TACIT_BF16};
    for (int i = 0; i < 4; i++) {
        op_case c;
        op_case_begin(&c, "", "Round");
        op_case_f64(&c, types[i], SHAPE(4), V(0.5, 1.5, -2.5, -0.5));
        op_case_run(&c, 1);
        op_case_expect(&c, 0, types[i], SHAPE(4), V(0, 2, -2, 0), 0);
        op_case_end(&c);
    }
}

static void E14_requantising_saturates(void **state)
{
    (void)state;
    for (int sign = -1; sign <= 1; sign += 2) {
        op_case c;
        op_case_begin(&c, "tacit", "QMatMul");
        op_case_i64(&c, TACIT_I8, SHAPE(1, 1), (int64_t[]){100});
        op_case_i64(&c, TACIT_I8, SHAPE(1, 1), (int64_t[]){100 * sign});
        op_case_float(&c, "multiplier", 1e30);
        op_case_int(&c, "y_zero", 10);
        op_case_run(&c, 1);
        op_case_expect(&c, 0, TACIT_I8, SHAPE(1, 1), V(sign > 0 ? 127 : -128), 0);
        op_case_end(&c);
    }
}

static void E8_indices_of_i32_and_from_the_end(void **state)
{
    (void)state;
    op_case c;
    op_case_begin(&c, "", "Gather");
    op_case_f64(&c, TACIT_F32, SHAPE(3), V(10, 20, 30));
    op_case_i64(&c, TACIT_I32, SHAPE(2), (int64_t[]){2, -3});
    op_case_run(&c, 1);
    op_case_expect(&c, 0, TACIT_F32, SHAPE(2), V(30, 10), 0);
    op_case_end(&c);
}

static void E19_products_over_nothing_are_zero(void **state)
{
    (void)state;
    op_case c;
    op_case_begin(&c, "", "MatMul");
    op_case_f64(&c, TACIT_F32, SHAPE(2, 1, 0), NULL);
    op_case_f64(&c, TACIT_F32, SHAPE(2, 0, 2), NULL);
    op_case_run(&c, 1);
    op_case_expect(&c, 0, TACIT_F32, SHAPE(2, 1, 2), V(0, 0, 0, 0), 0);
    op_case_end(&c);
}

/* --- bad input -------------------------------------------------------------------------------- */

static void bad_input_indices_outside(void **state)
{
    (void)state;
    static const char *const ops[] = {"Gather", "GatherElements", "GatherND"};
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 2; k++) {
            op_case c;
            op_case_begin(&c, "", ops[i]);
            op_case_f64(&c, TACIT_F32, SHAPE(3), V(1, 2, 3));
            op_case_i64(&c, TACIT_I64, SHAPE(1), (int64_t[]){k ? 3 : -4});
            assert_int_equal(op_case_try(&c, 1), TACIT_ERR_VALUE);
            op_case_end(&c);
        }
}

static void bad_input_nan_as_an_index(void **state)
{
    (void)state;
    op_case c;
    op_case_begin(&c, "tacit", "ScatterAdd");
    op_case_f64(&c, TACIT_F32, SHAPE(1, 1), V(1));
    op_case_f64(&c, TACIT_F32, SHAPE(1), V(NAN));
    op_case_int(&c, "dim", 2);
    assert_int_equal(op_case_try(&c, 1), TACIT_ERR_VALUE);
    op_case_end(&c);
    op_case_begin(&c, "tacit", "GroupedMatMul");
    op_case_f64(&c, TACIT_F32, SHAPE(1, 1), V(1));
    op_case_f64(&c, TACIT_F32, SHAPE(2, 1, 1), V(1, 2));
    op_case_f64(&c, TACIT_F32, SHAPE(1), V(NAN));
    assert_int_not_equal(op_case_try(&c, 1), TACIT_OK);
    op_case_end(&c);
}

static void bad_input_empty_reductions(void **state)
{
    (void)state;
    static const char *const ops[] = {"ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin"};
    const double want[] = {0, 1, -INFINITY, INFINITY};
    for (int i = 0; i < 4; i++) {
        op_case c;
        op_case_begin(&c, "", ops[i]);
        op_case_f64(&c, TACIT_F32, SHAPE(2, 0), NULL);
        op_case_i64(&c, TACIT_I64, SHAPE(1), (int64_t[]){1});
        op_case_run(&c, 1);
        op_case_expect(&c, 0, TACIT_F32, SHAPE(2, 1), V(want[i], want[i]), 0);
        op_case_end(&c);
    }
}

static void bad_input_integer_division_by_zero(void **state)
{
    (void)state;
    static const char *const ops[] = {"Div", "Mod"};
    for (int i = 0; i < 2; i++) {
        op_case c;
        op_case_begin(&c, "", ops[i]);
        op_case_i64(&c, TACIT_I32, SHAPE(2), (int64_t[]){4, INT32_MIN});
        op_case_i64(&c, TACIT_I32, SHAPE(2), (int64_t[]){0, -1});
        op_case_refuses(&c, 1, TACIT_ERR_VALUE, "zero");
        op_case_end(&c);
    }
}

static void bad_input_windows(void **state)
{
    (void)state;
    static const char *const lists[] = {"strides", "dilations", "kernel_shape"};
    for (int i = 0; i < 3; i++)
        for (int64_t value = -1; value <= 0; value++) {
            op_case c;
            op_case_begin(&c, "", "MaxPool");
            op_case_f64(&c, TACIT_F32, SHAPE(1, 1, 4), V(1, 2, 3, 4));
            op_case_ints(&c, "kernel_shape", 1, (int64_t[]){2});
            op_case_ints(&c, lists[i], 1, &value);
            assert_int_equal(op_case_try(&c, 1), TACIT_ERR_VALUE);
            op_case_end(&c);
        }
    op_case c;
    op_case_begin(&c, "", "Conv");
    op_case_f64(&c, TACIT_F32, SHAPE(1, 1, 4), V(1, 2, 3, 4));
    op_case_f64(&c, TACIT_F32, SHAPE(1, 1, 2), V(1, 1));
    op_case_ints(&c, "pads", 2, (int64_t[]){-1, 0});
    assert_int_equal(op_case_try(&c, 1), TACIT_ERR_VALUE);
    op_case_end(&c);
    op_case_begin(&c, "", "Pad"); /* negative pads crop; no further than there is something */
    op_case_f64(&c, TACIT_F32, SHAPE(3), V(1, 2, 3));
    op_case_i64(&c, TACIT_I64, SHAPE(2), (int64_t[]){-1, 1});
    op_case_run(&c, 1);
    op_case_expect(&c, 0, TACIT_F32, SHAPE(3), V(2, 3, 0), 0);
    op_case_end(&c);
    op_case_begin(&c, "", "Pad");
    op_case_f64(&c, TACIT_F32, SHAPE(3), V(1, 2, 3));
    op_case_i64(&c, TACIT_I64, SHAPE(2), (int64_t[]){-2, -2});
    assert_int_not_equal(op_case_try(&c, 1), TACIT_OK);
    op_case_end(&c);
}

static void E30_bad_input_labels(void **state)
{
    (void)state;
    static const char *const ops[] = {"SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"};
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 2; k++) {
            op_case c;
            op_case_begin(&c, "", ops[i]);
            op_case_f64(&c, TACIT_F32, SHAPE(1, 3), V(1, 2, 3));
            op_case_i64(&c, TACIT_I64, SHAPE(1), (int64_t[]){k ? 3 : -1});
            assert_int_equal(op_case_try(&c, 1), TACIT_ERR_VALUE);
            op_case_end(&c);
        }
}

static void bad_input_solves(void **state)
{
    (void)state;
    op_case c;
    op_case_begin(&c, "tacit", "Solve");
    op_case_f64(&c, TACIT_F64, SHAPE(2, 3), V(1, 0, 0, 0, 1, 0));
    op_case_f64(&c, TACIT_F64, SHAPE(2), V(1, 2));
    assert_int_equal(op_case_try(&c, 1), TACIT_ERR_SHAPE);
    op_case_end(&c);
    op_case_begin(&c, "tacit", "Solve");
    op_case_f64(&c, TACIT_F64, SHAPE(2, 2, 2), V(1, 0, 0, 1, 1, 2, 2, 4));
    op_case_f64(&c, TACIT_F64, SHAPE(2, 2), V(1, 2, 3, 4));
    op_case_refuses(&c, 1, TACIT_ERR_VALUE, "singular");
    op_case_end(&c);
}

/* --- section 23: what ends other processes ---------------------------------------------------- */

/* The last stage runs; the one behind it, which would reach past the state, is named. */
static void S23_butterfly_stages_stay_inside(void **state)
{
    (void)state;
    for (int64_t stage = 1; stage <= 2; stage++) {
        op_case c;
        op_case_begin(&c, "tacit", "FftButterflyStage");
        op_case_f64(&c, TACIT_F32, SHAPE(1, 4, 2), V(1, 0, 2, 0, 3, 0, 4, 0));
        op_case_f64(&c, TACIT_F32, SHAPE(2), V(1, 1));
        op_case_f64(&c, TACIT_F32, SHAPE(2), V(0, 0));
        op_case_f64(&c, TACIT_F32, SHAPE(2), V(1, 0));
        op_case_f64(&c, TACIT_F32, SHAPE(2), V(0, -1));
        op_case_int(&c, "stage", stage);
        if (stage == 2) {
            op_case_refuses(&c, 1, TACIT_ERR_SHAPE, "stage 2 of a state of 4 points");
        } else {
            op_case_run(&c, 1);
            op_case_expect(&c, 0, TACIT_F32, SHAPE(1, 4, 2), V(4, 0, 2, -4, -2, 0, 2, 4), 0);
        }
        op_case_end(&c);
    }
}

static void S23_blocks_of_nothing_are_refused(void **state)
{
    (void)state;
    static const char *const schemes[] = {"int8", "int4"};
    for (int i = 0; i < 2; i++)
        for (int64_t block = -1; block <= 0; block++) {
            op_case c;
            op_case_begin(&c, "tacit", "DequantMatMul");
            op_case_f64(&c, TACIT_F32, SHAPE(1, 4), V(1, 2, 3, 4));
            op_case_f64(&c, i ? TACIT_U8 : TACIT_I8, SHAPE(i ? 2 : 4), V(1, 1, 1, 1));
            op_case_f64(&c, TACIT_F32, SHAPE(1), V(1));
            op_case_string(&c, "scheme", schemes[i]);
            op_case_int(&c, "n", 1);
            op_case_int(&c, "block", block);
            op_case_refuses(&c, 1, TACIT_ERR_VALUE, block ? "block -1" : "block 0");
            op_case_end(&c);
        }
}

/* States of no width and of a width above any fixed table: S = k·vᵀ, y = (q·k)·v/√n. */
static void S23_delta_nets_of_any_width(void **state)
{
    (void)state;
    enum { WIDE = 300 };
    static double q[WIDE], k[WIDE], v[WIDE], want[WIDE];
    for (int i = 0; i < WIDE; i++) {
        q[i] = k[i] = i == 7 || i == WIDE - 1 ? 0.5 : 0;
        v[i] = i - 100;
        want[i] = 0.5 * v[i] / sqrt(WIDE);
    }
    for (int64_t n = 0; n <= WIDE; n += WIDE) {
        op_case c;
        op_case_begin(&c, "tacit", "GatedDeltaNet");
        op_case_f64(&c, TACIT_F64, SHAPE(1, 1, 1, n), q);
        op_case_f64(&c, TACIT_F64, SHAPE(1, 1, 1, n), k);
        op_case_f64(&c, TACIT_F64, SHAPE(1, 1, 1, n), v);
        op_case_f64(&c, TACIT_F64, SHAPE(1, 1, 1), V(0));
        op_case_f64(&c, TACIT_F64, SHAPE(1, 1, 1), V(1));
        op_case_run(&c, 2);
        op_case_expect(&c, 0, TACIT_F64, SHAPE(1, 1, 1, n), want, 1e-12);
        ir_shape square = SHAPE(1, 1, n, n);
        assert_true(ir_shape_equal(&c.out[1].shape, &square));
        if (n) /* row 7 of the state is half of v */
            assert_true(ir_load_f64(TACIT_F64, c.out[1].data, 7 * WIDE + 3) == 0.5 * v[3]);
        op_case_end(&c);
    }
}

static void S23_gates_of_no_width_are_empty(void **state)
{
    (void)state;
    for (int64_t half = 0; half < 2; half++) {
        op_case c;
        op_case_begin(&c, "tacit", "Gated");
        op_case_f64(&c, TACIT_F32, SHAPE(2, half), V(0, 1));
        op_case_f64(&c, TACIT_F32, SHAPE(2, half), V(5, 2));
        op_case_string(&c, "activation", "silu");
        op_case_run(&c, 1);
        op_case_expect(&c, 0, TACIT_F32, SHAPE(2, half), V(0, 1.4621171573), 1e-6);
        op_case_end(&c);
    }
}

/* The one quotient that does not fit wraps, as the other integer operations do. */
static void S23_the_least_integer_by_minus_one_wraps(void **state)
{
    (void)state;
    static const struct {
        tacit_dtype dtype;
        int64_t least;
    } types[] = {{TACIT_I8, INT8_MIN},
                 {TACIT_I16, INT16_MIN},
                 {TACIT_I32, INT32_MIN},
                 {TACIT_I64, INT64_MIN}};
    for (int i = 0; i < 4; i++) {
        op_case c;
        op_case_begin(&c, "", "Div");
        op_case_i64(&c, types[i].dtype, SHAPE(1), &types[i].least);
        op_case_i64(&c, types[i].dtype, SHAPE(1), (int64_t[]){-1});
        op_case_run(&c, 1);
        assert_true(ir_load_i64(types[i].dtype, c.out[0].data, 0) == types[i].least);
        op_case_end(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(D1_D8_no_row_is_a_silent_nothing),
        cmocka_unit_test(D8_reductions_over_axes_apart),
        cmocka_unit_test(D11_counts_have_64_bits),
        cmocka_unit_test(D5_E6_casts_convert_values),
        cmocka_unit_test(D5_E9_any_width_moves_and_computes),
        cmocka_unit_test(E7_E10_f64_stays_f64),
        cmocka_unit_test(D3_E1_masks_of_every_kind_count),
        cmocka_unit_test(D6_E15_absent_is_not_zero),
        cmocka_unit_test(D12_E20_rope_tables_and_widths_are_checked),
        cmocka_unit_test(E29_rank_four_turns_as_rank_three),
        cmocka_unit_test(D12_E28_rounding_ties_to_even_in_every_width),
        cmocka_unit_test(E14_requantising_saturates),
        cmocka_unit_test(E8_indices_of_i32_and_from_the_end),
        cmocka_unit_test(E19_products_over_nothing_are_zero),
        cmocka_unit_test(bad_input_indices_outside),
        cmocka_unit_test(bad_input_nan_as_an_index),
        cmocka_unit_test(bad_input_empty_reductions),
        cmocka_unit_test(bad_input_integer_division_by_zero),
        cmocka_unit_test(bad_input_windows),
        cmocka_unit_test(E30_bad_input_labels),
        cmocka_unit_test(bad_input_solves),
        cmocka_unit_test(S23_butterfly_stages_stay_inside),
        cmocka_unit_test(S23_blocks_of_nothing_are_refused),
        cmocka_unit_test(S23_delta_nets_of_any_width),
        cmocka_unit_test(S23_gates_of_no_width_are_empty),
        cmocka_unit_test(S23_the_least_integer_by_minus_one_wraps),
    };
    return cmocka_run_group_tests_name("listed defects", tests, NULL, NULL);
}
