/* SPDX-License-Identifier: Apache-2.0
 * Movement: values by an independent index calculation, views that read what the evaluator wrote,
 * and what must be refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "support/op_case.h"

enum { SHAPES = 200 };

static const tacit_dtype types[] = {TACIT_F32, TACIT_U8, TACIT_F64,
                                    TACIT_F16, TACIT_I4, TACIT_C128};

/* Elements numbered 0, 1, 2 … (modulo what the type holds). */
static ir_tensor *numbered(op_case *c, tacit_dtype dtype, ir_shape shape)
{
    double values[4096];
    int64_t n = ir_shape_size(&shape), wrap = dtype == TACIT_I4   ? 7
                                              : dtype == TACIT_U8 ? 251
                                                                  : 4096;
    assert_true(n <= 4096);
    for (int64_t i = 0; i < n; i++)
        values[i] = (double)(i % wrap);
    return op_case_f64(c, dtype, shape, values);
}

static ir_tensor *ints(op_case *c, int64_t n, const int64_t *values)
{
    return op_case_i64(c, TACIT_I64, SHAPE(n), values);
}

static void expect_element(op_case *c, uint64_t seed, int64_t to, const ir_tensor *x, int64_t from)
{
    const ir_tensor *y = &c->out[0];
    double have = ir_load_f64(y->dtype, y->data, to), want = ir_load_f64(x->dtype, x->data, from);
    if (have != want)
        fail_msg("%s, seed %llu: element %lld is %g, not %g", c->type, (unsigned long long)seed,
                 (long long)to, have, want);
}

/* If output 0 may be a view of input 0, reading through the view gives what eval gave. */
static void check_alias(op_case *c, uint64_t seed)
{
    const ir_tensor *x = c->in[0], *y = &c->out[0];
    op_view view = {0};
    op_operand source = {.type = ir_tensor_type(x), .dense = true};
    ir_shape_strides(&x->shape, source.strides);
    c->node->outputs[0]->type = ir_tensor_type(y);
    for (uint32_t i = 1; i < c->n_in; i++)
        c->node->inputs[i]->constant = c->in[i];
    assert_non_null(c->node->op->alias);
    if (!c->node->op->alias(c->node, 0, &source, 0, &view))
        return;
    int64_t index[IR_MAX_RANK] = {0}, k = 0;
    if (ir_tensor_count(y))
        do {
            int64_t at = view.offset;
            for (int32_t d = 0; d < y->shape.rank; d++)
                at += index[d] * view.strides[d];
            expect_element(c, seed, k++, x, at);
        } while (next_index(&y->shape, index));
}

static void transpose_permutes(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SHAPES; seed++) {
        rng r = rng_seed(seed);
        op_case c;
        op_case_begin(&c, "", "Transpose");
        ir_shape s = random_shape(&r, 8);
        ir_tensor *x = numbered(&c, types[seed % 6], s);
        int64_t perm[8], back[IR_MAX_RANK];
        for (int64_t d = 0; d < s.rank; d++) {
            int64_t k = (int64_t)rng_below(&r, (uint64_t)d + 1);
            perm[d] = perm[k];
            perm[k] = d;
        }
        if (s.rank)
            op_case_ints(&c, "perm", (uint32_t)s.rank, perm);
        op_case_run(&c, 1);
        int64_t index[IR_MAX_RANK] = {0}, k = 0;
        for (int32_t d = 0; d < s.rank; d++)
            assert_int_equal(c.out[0].shape.dims[d], s.dims[perm[d]]);
        if (ir_shape_size(&s))
            do {
                for (int32_t d = 0; d < s.rank; d++)
                    back[perm[d]] = index[d];
                expect_element(&c, seed, k++, x, broadcast_index(&s, back, &s));
            } while (next_index(&c.out[0].shape, index));
        check_alias(&c, seed);
        op_case_end(&c);
    }
}

static void slice_takes_starts_ends_and_steps(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 2 * SHAPES; seed++) {
        rng r = rng_seed(seed);
        op_case c;
        op_case_begin(&c, "", "Slice");
        ir_shape s = random_shape(&r, 6);
        ir_tensor *x = numbered(&c, types[seed % 6], s);
        int64_t start[8], end[8], step[8], axes[8], at[8][16], n[8], rank = s.rank;
        for (int64_t d = 0; d < rank; d++) {
            int64_t size = s.dims[d];
            axes[d] = rng_below(&r, 2) ? d : d - rank;
            start[d] = (int64_t)rng_below(&r, 16) - 8;
            end[d] = (int64_t)rng_below(&r, 16) - 8;
            step[d] = (int64_t)rng_below(&r, 6) - 3;
            step[d] += step[d] == 0;
            /* Python's rule, spelled out by walking. */
            int64_t lo = step[d] > 0 ? 0 : -1, hi = step[d] > 0 ? size : size - 1;
            int64_t a = start[d] < 0 ? start[d] + size : start[d];
            int64_t b = end[d] < 0 ? end[d] + size : end[d];
            a = a < lo ? lo : a > hi ? hi : a;
            b = b < lo ? lo : b > hi ? hi : b;
            for (n[d] = 0; step[d] > 0 ? a < b : a > b; a += step[d])
                at[d][n[d]++] = a;
        }
        ints(&c, rank, start);
        ints(&c, rank, end);
        ints(&c, rank, axes);
        ints(&c, rank, step);
        op_case_run(&c, 1);
        int64_t index[IR_MAX_RANK] = {0}, from[IR_MAX_RANK], k = 0;
        for (int64_t d = 0; d < rank; d++)
            assert_int_equal(c.out[0].shape.dims[d], n[d]);
        if (ir_tensor_count(&c.out[0]))
            do {
                for (int64_t d = 0; d < rank; d++)
                    from[d] = at[d][index[d]];
                expect_element(&c, seed, k++, x, broadcast_index(&s, from, &s));
            } while (next_index(&c.out[0].shape, index));
        check_alias(&c, seed);
        op_case_end(&c);
    }
}

static void slice_survives_extreme_bounds(void **state)
{
    (void)state;
    op_case c;
    op_case_begin(&c, "", "Slice");
    numbered(&c, TACIT_F32, SHAPE(5));
    ints(&c, 1, (int64_t[]){INT64_MAX});
    ints(&c, 1, (int64_t[]){INT64_MIN});
    ints(&c, 1, (int64_t[]){0});
    ints(&c, 1, (int64_t[]){INT64_MIN});
    op_case_run(&c, 1);
    op_case_expect(&c, 0, TACIT_F32, SHAPE(1), (double[]){4}, 0);
    op_case_end(&c);
    op_case_begin(&c, "", "Slice");
    numbered(&c, TACIT_F32, SHAPE(5));
    ints(&c, 1, (int64_t[]){INT64_MIN});
    ints(&c, 1, (int64_t[]){INT64_MAX});
    ints(&c, 1, (int64_t[]){0});
    ints(&c, 1, (int64_t[]){INT64_MAX});
    op_case_run(&c, 1);
    op_case_expect(&c, 0, TACIT_F32, SHAPE(1), (double[]){0}, 0);
    op_case_end(&c);
    op_case_begin(&c, "", "Slice");
    numbered(&c, TACIT_F32, SHAPE(5));
    ints(&c, 1, (int64_t[]){0});
    ints(&c, 1, (int64_t[]){5});
    ints(&c, 1, (int64_t[]){0});
    ints(&c, 1, (int64_t[]){0});
    op_case_refuses(&c, 1, TACIT_ERR_VALUE, "step");
    op_case_end(&c);
}

static void expand_and_tile_repeat(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SHAPES; seed++) {
        rng r = rng_seed(seed);
        op_case c;
        op_case_begin(&c, "", "Expand");
        ir_shape s = random_shape(&r, 8), from = random_broadcast(&r, &s), y;
        ir_tensor *x = numbered(&c, types[seed % 6], from);
        ints(&c, s.rank, s.dims);
        op_case_run(&c, 1);
        assert_int_equal(ir_shape_broadcast(&s, &from, &y, NULL), TACIT_OK);
        assert_true(ir_shape_equal(&y, &c.out[0].shape));
        int64_t index[IR_MAX_RANK] = {0}, k = 0;
        if (ir_shape_size(&y))
            do
                expect_element(&c, seed, k++, x, broadcast_index(&y, index, &from));
            while (next_index(&y, index));
        check_alias(&c, seed);
        op_case_end(&c);

        op_case_begin(&c, "", "Tile");
        s = random_shape(&r, 4);
        x = numbered(&c, types[seed % 6], s);
        int64_t repeats[4], wrapped[IR_MAX_RANK];
        for (int32_t d = 0; d < s.rank; d++)
            repeats[d] = (int64_t)rng_below(&r, 4);
        ints(&c, s.rank, repeats);
        op_case_run(&c, 1);
        memset(index, 0, sizeof index);
        k = 0;
        if (ir_tensor_count(&c.out[0]))
            do {
                for (int32_t d = 0; d < s.rank; d++)
                    wrapped[d] = index[d] % s.dims[d];
                expect_element(&c, seed, k++, x, broadcast_index(&s, wrapped, &s));
            } while (next_index(&c.out[0].shape, index));
        op_case_end(&c);
    }
}

static void split_then_concat_is_the_identity(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SHAPES; seed++) {
        rng r = rng_seed(seed);
        tacit_dtype dtype = types[seed % 6];
        op_case c, j;
        op_case_begin(&c, "", "Split");
        ir_shape s = random_shape(&r, 7);
        if (s.rank == 0)
            s = SHAPE(3);
        ir_tensor *x = numbered(&c, dtype, s);
        int64_t axis = (int64_t)rng_below(&r, (uint64_t)s.rank), left = s.dims[axis], sizes[4];
        for (int i = 0; i < 4; i++) {
            sizes[i] = i == 3 ? left : (int64_t)rng_below(&r, (uint64_t)left + 1);
            left -= sizes[i];
        }
        ints(&c, 4, sizes);
        op_case_int(&c, "axis", axis - s.rank);
        op_case_run(&c, 4);
        check_alias(&c, seed);
        op_case_begin(&j, "", "Concat");
        for (int i = 0; i < 4; i++) {
            assert_int_equal(c.out[i].shape.dims[axis], sizes[i]);
            op_case_give(&j, &c.out[i]);
        }
        op_case_int(&j, "axis", axis);
        op_case_run(&j, 1);
        assert_true(ir_shape_equal(&s, &j.out[0].shape));
        for (int64_t k = 0; k < ir_shape_size(&s); k++)
            expect_element(&j, seed, k, x, k);
        op_case_end(&c);
        op_case_end(&j);
    }
}

static void uneven_split_shrinks_the_last_part(void **state)
{
    (void)state;
    op_case c;
    op_case_begin(&c, "", "Split");
    numbered(&c, TACIT_F32, SHAPE(7));
    op_case_int(&c, "num_outputs", 4);
    op_case_run(&c, 4);
    op_case_expect(&c, 0, TACIT_F32, SHAPE(2), (double[]){0, 1}, 0);
    op_case_expect(&c, 3, TACIT_F32, SHAPE(1), (double[]){6}, 0);
    op_case_end(&c);
    op_case_begin(&c, "", "Split");
    numbered(&c, TACIT_F32, SHAPE(7));
    ints(&c, 2, (int64_t[]){3, 3});
    op_case_refuses(&c, 2, TACIT_ERR_VALUE, "unused");
    op_case_end(&c);
}

static void reshape_reads_its_target(void **state)
{
    (void)state;
    const struct {
        ir_shape from;
        int64_t n, to[4];
        ir_shape want;
        int64_t allow_zero;
    } cases[] = {
        {SHAPE(2, 3, 4), 2, {4, -1}, SHAPE(4, 6), 0},
        {SHAPE(2, 3, 4), 3, {0, -1, 2}, SHAPE(2, 6, 2), 0},
        {SHAPE(0, 3, 4), 3, {3, 4, 0}, SHAPE(3, 4, 0), 1},
        {SHAPE(1), 0, {0}, SCALAR, 0},
        {SCALAR, 2, {1, 1}, SHAPE(1, 1), 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        op_case c;
        op_case_begin(&c, "", "Reshape");
        ir_tensor *x = numbered(&c, TACIT_F32, cases[i].from);
        ints(&c, cases[i].n, cases[i].to);
        op_case_int(&c, "allowzero", cases[i].allow_zero);
        op_case_run(&c, 1);
        assert_true(ir_shape_equal(&c.out[0].shape, &cases[i].want));
        assert_memory_equal(c.out[0].data, x->data, x->bytes);
        check_alias(&c, i);
        op_case_end(&c);
    }
    const int64_t bad[][2] = {{5, -1}, {-1, -1}, {7, 7}, {-2, 3}};
    for (size_t i = 0; i < 4; i++) {
        op_case c;
        op_case_begin(&c, "", "Reshape");
        numbered(&c, TACIT_F32, SHAPE(2, 3));
        ints(&c, 2, bad[i]);
        assert_int_not_equal(op_case_try(&c, 1), TACIT_OK);
        op_case_end(&c);
    }
}

static void squeeze_undoes_unsqueeze(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SHAPES; seed++) {
        rng r = rng_seed(seed);
        op_case c, back;
        op_case_begin(&c, "", "Unsqueeze");
        ir_shape s = random_shape(&r, 5);
        ir_tensor *x = numbered(&c, types[seed % 6], s);
        int64_t a = (int64_t)rng_below(&r, (uint64_t)s.rank + 2), b = (a + 1) % (s.rank + 2);
        const ir_tensor *axes = ints(&c, 2, (int64_t[]){a, b - s.rank - 2});
        op_case_run(&c, 1);
        assert_int_equal(c.out[0].shape.dims[a], 1);
        assert_int_equal(c.out[0].shape.dims[b], 1);
        check_alias(&c, seed);
        op_case_begin(&back, "", "Squeeze");
        op_case_give(&back, &c.out[0]);
        op_case_give(&back, axes);
        op_case_run(&back, 1);
        assert_true(ir_tensor_identical(x, &back.out[0]));
        op_case_end(&back);
        op_case_end(&c);
    }
}

static void pad_modes(void **state)
{
    (void)state;
    const struct {
        const char *mode;
        double want[9];
    } cases[] = {
        {"constant", {9, 9, 9, 0, 1, 2, 9, 9, 9}},
        {"edge", {0, 0, 0, 0, 1, 2, 2, 2, 2}},
        {"reflect", {1, 2, 1, 0, 1, 2, 1, 0, 1}},
        {"wrap", {0, 1, 2, 0, 1, 2, 0, 1, 2}},
    };
    for (size_t i = 0; i < 4; i++) {
        op_case c;
        op_case_begin(&c, "", "Pad");
        numbered(&c, TACIT_F32, SHAPE(3));
        ints(&c, 2, (int64_t[]){3, 3});
        op_case_f64(&c, TACIT_F32, SCALAR, (double[]){9});
        op_case_string(&c, "mode", cases[i].mode);
        op_case_run(&c, 1);
        op_case_expect(&c, 0, TACIT_F32, SHAPE(9), cases[i].want, 0);
        op_case_end(&c);
    }
    op_case c;
    op_case_begin(&c, "", "Pad"); /* negative pads crop */
    numbered(&c, TACIT_I4, SHAPE(2, 3));
    ints(&c, 4, (int64_t[]){0, -1, 1, 0});
    op_case_run(&c, 1);
    op_case_expect(&c, 0, TACIT_I4, SHAPE(3, 2), (double[]){1, 2, 4, 5, 0, 0}, 0);
    op_case_end(&c);
    op_case_begin(&c, "", "Pad");
    numbered(&c, TACIT_F32, SHAPE(2));
    ints(&c, 2, (int64_t[]){-2, -1});
    op_case_refuses(&c, 1, TACIT_ERR_VALUE, "remove more");
    op_case_end(&c);
    op_case_begin(&c, "", "Pad");
    numbered(&c, TACIT_F32, SHAPE(0));
    ints(&c, 2, (int64_t[]){1, 0});
    op_case_string(&c, "mode", "edge");
    op_case_refuses(&c, 1, TACIT_ERR_VALUE, "empty");
    op_case_end(&c);
}

static void blocks_round_trip(void **state)
{
    (void)state;
    for (int64_t b = 1; b <= 3; b++) {
        op_case c, back;
        op_case_begin(&c, "", "SpaceToDepth");
        ir_tensor *x = numbered(&c, TACIT_F32, SHAPE(2, 3, 2 * b, 3 * b));
        op_case_int(&c, "blocksize", b);
        op_case_run(&c, 1);
        op_case_begin(&back, "", "DepthToSpace");
        op_case_give(&back, &c.out[0]);
        op_case_int(&back, "blocksize", b);
        op_case_run(&back, 1);
        assert_true(ir_tensor_identical(x, &back.out[0]));
        op_case_end(&back);
        op_case_end(&c);
    }
    op_case c;
    op_case_begin(&c, "", "DepthToSpace");
    numbered(&c, TACIT_F32, SHAPE(1, 8, 1, 1));
    op_case_int(&c, "blocksize", 2);
    op_case_string(&c, "mode", "CRD");
    op_case_run(&c, 1);
    op_case_expect(&c, 0, TACIT_F32, SHAPE(1, 2, 2, 2), (double[]){0, 1, 2, 3, 4, 5, 6, 7}, 0);
    op_case_end(&c);
}

static void reverse_and_crop(void **state)
{
    (void)state;
    op_case c;
    op_case_begin(&c, "", "ReverseSequence");
    numbered(&c, TACIT_F32, SHAPE(3, 2));
    ints(&c, 2, (int64_t[]){2, 3});
    op_case_run(&c, 1);
    op_case_expect(&c, 0, TACIT_F32, SHAPE(3, 2), (double[]){2, 5, 0, 3, 4, 1}, 0);
    op_case_end(&c);
    op_case_begin(&c, "", "ReverseSequence");
    numbered(&c, TACIT_F32, SHAPE(3, 2));
    ints(&c, 2, (int64_t[]){2, 4});
    op_case_refuses(&c, 1, TACIT_ERR_VALUE, "length 4");
    op_case_end(&c);
    op_case_begin(&c, "", "CenterCropPad");
    numbered(&c, TACIT_F32, SHAPE(2, 5));
    ints(&c, 2, (int64_t[]){3, 2});
    op_case_run(&c, 1);
    op_case_expect(&c, 0, TACIT_F32, SHAPE(3, 2), (double[]){1, 2, 6, 7, 0, 0}, 0);
    op_case_end(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(transpose_permutes),
        cmocka_unit_test(slice_takes_starts_ends_and_steps),
        cmocka_unit_test(slice_survives_extreme_bounds),
        cmocka_unit_test(expand_and_tile_repeat),
        cmocka_unit_test(split_then_concat_is_the_identity),
        cmocka_unit_test(uneven_split_shrinks_the_last_part),
        cmocka_unit_test(reshape_reads_its_target),
        cmocka_unit_test(squeeze_undoes_unsqueeze),
        cmocka_unit_test(pad_modes),
        cmocka_unit_test(blocks_round_trip),
        cmocka_unit_test(reverse_and_crop),
    };
    return cmocka_run_group_tests_name("movement", tests, NULL, NULL);
}
