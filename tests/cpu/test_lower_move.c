/* SPDX-License-Identifier: Apache-2.0
 * Lower rules that move or reduce elements, against their evaluators. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "support/lower_check.h"

/* One of every element size. */
static const tacit_dtype sizes[] = {TACIT_U8, TACIT_F16, TACIT_F32, TACIT_I64, TACIT_C128};
enum { SIZES = sizeof sizes / sizeof *sizes };

static ir_tensor *values(op_case *c, rng *r, tacit_dtype dtype, ir_shape s)
{
    return op_case_random(c, r, dtype == TACIT_C128 ? TACIT_C128 : dtype, s, 0, 200);
}

static void transpose_every_permutation(void **state)
{
    (void)state;
    rng r = rng_seed(40);
    for (int round = 0; round < 60; round++) {
        op_case c;
        op_case_begin(&c, "", "Transpose");
        ir_shape s = {.rank = 1 + (int32_t)rng_below(&r, 4)};
        int64_t perm[4];
        for (int32_t d = 0; d < s.rank; d++) {
            s.dims[d] = 1 + (int64_t)rng_below(&r, 37);
            perm[d] = d;
        }
        for (int32_t d = s.rank; d-- > 1;) {
            int32_t o = (int32_t)rng_below(&r, (uint64_t)d + 1);
            int64_t t = perm[d];
            perm[d] = perm[o];
            perm[o] = t;
        }
        values(&c, &r, sizes[round % SIZES], s);
        op_case_ints(&c, "perm", (uint32_t)s.rank, perm);
        lower_check(&c, &r, 1, 0, 0);
        op_case_end(&c);
    }
    op_case c;
    op_case_begin(&c, "", "Transpose");
    values(&c, &r, TACIT_F32, SHAPE(2, 600, 70));
    op_case_ints(&c, "perm", 3, (int64_t[]){0, 2, 1});
    lower_check(&c, &r, 1, 0, 0);
    op_case_end(&c);
}

/* Two or three planes between each other's elements, as DepthToSpace puts them. */
static void transpose_of_few_columns(void **state)
{
    (void)state;
    rng r = rng_seed(46);
    for (int k = 0; k < 4 * SIZES; k++) {
        op_case c;
        op_case_begin(&c, "", "Transpose");
        values(&c, &r, sizes[k % SIZES], SHAPE(2 + k / SIZES % 2, 3, 16 + k / (2 * SIZES) * 53));
        op_case_ints(&c, "perm", 3, (int64_t[]){1, 2, 0});
        lower_check(&c, &r, 1, 0, 0);
        op_case_end(&c);
    }
}

static void slices_splits_and_expansions(void **state)
{
    (void)state;
    rng r = rng_seed(41);
    for (int k = 0; k < SIZES; k++) {
        op_case c;
        op_case_begin(&c, "", "Slice");
        values(&c, &r, sizes[k], SHAPE(6, 9, 20));
        op_case_i64(&c, TACIT_I64, SHAPE(2), (int64_t[]){1, -15});
        op_case_i64(&c, TACIT_I64, SHAPE(2), (int64_t[]){5, 99});
        op_case_i64(&c, TACIT_I64, SHAPE(2), (int64_t[]){0, 2});
        op_case_i64(&c, TACIT_I64, SHAPE(2), (int64_t[]){2, 3});
        lower_check(&c, &r, 1, 30, 0);
        op_case_end(&c);

        op_case_begin(&c, "", "Split");
        values(&c, &r, sizes[k], SHAPE(4, 30, 5));
        op_case_int(&c, "axis", 1);
        op_case_int(&c, "num_outputs", 3);
        lower_check(&c, &r, 3, 0, 0);
        op_case_end(&c);

        op_case_begin(&c, "", "Expand");
        values(&c, &r, sizes[k], SHAPE(4, 1, 5));
        op_case_i64(&c, TACIT_I64, SHAPE(4), (int64_t[]){2, 4, 7, 5});
        lower_check(&c, &r, 1, 2, 0);
        op_case_end(&c);

        op_case_begin(&c, "", "Reshape");
        values(&c, &r, sizes[k], SHAPE(4, 6, 5));
        op_case_i64(&c, TACIT_I64, SHAPE(2), (int64_t[]){8, 15});
        lower_check(&c, &r, 1, 2, 0);
        op_case_end(&c);
    }
}

static void concat_tile_and_pad(void **state)
{
    (void)state;
    rng r = rng_seed(42);
    for (int k = 0; k < SIZES; k++)
        for (int64_t axis = 0; axis < 3; axis++) {
            op_case c;
            op_case_begin(&c, "", "Concat");
            for (int i = 0; i < 3; i++) {
                ir_shape s = SHAPE(3, 4, 5);
                s.dims[axis] = i == 1 ? 0 : 2 + i;
                values(&c, &r, sizes[k], s);
            }
            op_case_int(&c, "axis", axis);
            lower_check(&c, &r, 1, 0, 0);
            op_case_end(&c);

            op_case_begin(&c, "", "Tile");
            values(&c, &r, sizes[k], SHAPE(3, 4, 5));
            int64_t repeats[3] = {1, 2, 1};
            repeats[axis] = 3;
            op_case_i64(&c, TACIT_I64, SHAPE(3), repeats);
            lower_check(&c, &r, 1, 2, 0);
            op_case_end(&c);

            op_case_begin(&c, "", "Pad");
            values(&c, &r, sizes[k], SHAPE(3, 4, 5));
            op_case_i64(&c, TACIT_I64, SHAPE(4), (int64_t[]){2, axis - 1, 1, 3});
            values(&c, &r, sizes[k], (ir_shape){.rank = 0});
            op_case_i64(&c, TACIT_I64, SHAPE(2), (int64_t[]){1, 2});
            lower_check(&c, &r, 1, 10, 0);
            op_case_end(&c);
        }
}

static void pads_that_repeat(void **state)
{
    (void)state;
    static const char *const modes[] = {"reflect", "edge", "wrap"};
    rng r = rng_seed(47);
    for (int t = 0; t < 240; t++) {
        ir_shape s = {.rank = 1 + t / 3 % 4};
        int64_t pads[8];
        for (int32_t d = 0; d < s.rank; d++) {
            s.dims[d] = 1 + (int64_t)rng_below(&r, t % 2 ? 5 : 40);
            for (int side = 0; side < 2; side++)
                pads[side * s.rank + d] = (int64_t)rng_below(&r, 3) ? (int64_t)rng_below(&r, 9) : 0;
            if (t % 7 == 0 && s.dims[d] > 4) /* crops, too */
                pads[s.rank + d] = -3;
        }
        op_case c;
        op_case_begin(&c, "", "Pad");
        values(&c, &r, sizes[t % SIZES], s);
        op_case_i64(&c, TACIT_I64, SHAPE(2 * s.rank), pads);
        op_case_string(&c, "mode", modes[t % 3]);
        lower_check(&c, &r, 1, 2, 0);
        op_case_end(&c);
    }
}

static void gather_rows(void **state)
{
    (void)state;
    rng r = rng_seed(43);
    for (int k = 0; k < SIZES; k++)
        for (int64_t axis = 0; axis < 3; axis++) {
            op_case c;
            op_case_begin(&c, "", "Gather");
            values(&c, &r, sizes[k], SHAPE(7, 8, 9));
            op_case_i64(&c, axis == 1 ? TACIT_I32 : TACIT_I64, SHAPE(2, 3),
                        (int64_t[]){0, -1, 6, 2, -7, 3});
            op_case_int(&c, "axis", axis);
            lower_check(&c, &r, 1, 0, 0);
            op_case_end(&c);
        }
}

static void reductions_over_any_axes(void **state)
{
    (void)state;
    static const char *const ops[] = {
        "ReduceSum", "ReduceMean", "ReduceMax",       "ReduceMin",    "ReduceProd",
        "ReduceL1",  "ReduceL2",   "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp"};
    rng r = rng_seed(44);
    /* The last: some of results that lie side by side; 4 to 32 of them are whole vectors. */
    static const int64_t last[] = {37, 4, 8, 16, 32};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        for (uint32_t mask = 1; mask < 5 * 16; mask++) {
            if (mask % 16 == 0)
                continue;
            op_case c;
            op_case_begin(&c, "", ops[i]);
            ir_tensor *x =
                op_case_random(&c, &r, TACIT_F32, SHAPE(3, 5, 7, last[mask / 16]), 0.9, 1.1);
            if (mask % 16 == 5 && i < 4)
                ((float *)x->data)[333] = NAN;
            int64_t axes[4], n = 0;
            for (int64_t d = 0; d < 4; d++)
                if (mask >> d & 1)
                    axes[n++] = d - (d & 1 ? 4 : 0);
            op_case_i64(&c, TACIT_I64, SHAPE(n), axes);
            op_case_int(&c, "keepdims", mask & 1);

            lower_check(&c, &r, 1, 2, 3e-5);
            op_case_end(&c);
        }
}

/* Large and small arguments, infinities, NaN: rows one by one and beside each other. */
static void log_sum_exp_of_odd_values(void **state)
{
    (void)state;
    static const float odd[] = {-INFINITY, INFINITY, NAN, -300, 300};
    rng r = rng_seed(48);
    for (int i = 0; i < 2 * 6 * 2; i++) {
        op_case c;
        op_case_begin(&c, "", "ReduceLogSumExp");
        ir_tensor *x = op_case_random(&c, &r, TACIT_F32, SHAPE(9, 37, 33), -90, 90);
        int kind = i / 2 % 6; /* 5: all elements of some results are -inf */
        for (int64_t j = 0; kind && j < ir_tensor_count(x); j++) {
            int64_t result = i & 1 ? j / 33 : j % 33;
            if (kind == 5 ? result % 2 : rng_below(&r, 50) == 0)
                ((float *)x->data)[j] = odd[kind == 5 ? 0 : rng_below(&r, (uint64_t)kind + 1)];
        }
        int64_t axis = i & 1 ? 2 : i < 12;
        op_case_i64(&c, TACIT_I64, SHAPE(1), &axis);
        lower_check(&c, &r, 1, 2, 1e-6);
        op_case_end(&c);
    }
}

static void global_pools_and_argmax(void **state)
{
    (void)state;
    static const char *const pools[] = {"GlobalAveragePool", "GlobalMaxPool"};
    rng r = rng_seed(45);
    for (int i = 0; i < 2; i++) {
        op_case c;
        op_case_begin(&c, "", pools[i]);
        op_case_random(&c, &r, TACIT_F32, SHAPE(2, 9, 7, 7), -2, 2);
        lower_check(&c, &r, 1, 0, 1e-6);
        op_case_end(&c);
    }
    for (int variant = 0; variant < 12; variant++) {
        op_case c;
        op_case_begin(&c, "", variant & 1 ? "ArgMin" : "ArgMax");
        ir_tensor *x = op_case_random(&c, &r, TACIT_F32, SHAPE(4, 50, 6), 0, 9);
        for (int64_t i = 0; i < ir_tensor_count(x); i++) /* ties, and a NaN */
            ((float *)x->data)[i] = i == 77 ? NAN : floorf(((float *)x->data)[i]);
        op_case_int(&c, "axis", variant / 4);
        op_case_int(&c, "select_last_index", variant >> 1 & 1);
        lower_check(&c, &r, 1, 0, 0);
        op_case_end(&c);
    }
}

/* Ties, NaNs, infinities and zeros of both signs anywhere, in rows of every length and beside. */
static void extremes_of_odd_values(void **state)
{
    (void)state;
    static const float odd[] = {NAN, -0.0f, 0.0f, INFINITY, -INFINITY, -NAN};
    static const int64_t shapes[][3] = {{9, 1, 1},  {5, 3, 1},   {7, 64, 1},  {40, 333, 1},
                                        {3, 7, 40}, {2, 9, 300}, {1, 21, 64}, {2, 5, 3}};
    static const char *const ops[] = {"ArgMax", "ArgMin", "Hardmax"};
    rng r = rng_seed(47);
    for (int i = 0; i < 8 * 24; i++) {
        const int64_t *s = shapes[i % 8];
        int variant = i / 8, op = variant % 3, kind = variant / 3 % 4;
        op_case c;
        op_case_begin(&c, "", ops[op]);
        ir_tensor *x = op_case_random(&c, &r, TACIT_F32, SHAPE(s[0], s[1], s[2]), -9, 9);
        for (int64_t j = 0; j < ir_tensor_count(x); j++) {
            float *v = (float *)x->data + j;
            bool rare = kind > 0 && rng_below(&r, 60) == 0;
            *v = !rare       ? floorf(*v)
                 : kind == 3 ? odd[rng_below(&r, 6)]
                             : odd[1 + rng_below(&r, 4)]; /* NaNs would hide the others */
        }
        op_case_int(&c, "axis", 1);
        if (op < 2)
            op_case_int(&c, "select_last_index", variant & 1);
        lower_check(&c, &r, 1, 0, 0);
        op_case_end(&c);
    }
}

static void casts_of_integers(void **state)
{
    (void)state;
    static const tacit_dtype from[] = {TACIT_I8, TACIT_U8, TACIT_I32, TACIT_I64, TACIT_BOOL};
    static const int64_t to[] = {1, 2, 3, 6, 7, 9, 11}; /* f32 u8 i8 i32 i64 bool f64 */
    rng r = rng_seed(46);
    for (int i = 0; i < 5; i++)
        for (int k = 0; k < 7; k++) {
            op_case c;
            op_case_begin(&c, "", "Cast");
            double low = from[i] == TACIT_U8 || from[i] == TACIT_BOOL ? 0 : -120;
            op_case_random(&c, &r, from[i], SHAPE(3, 301), low, from[i] == TACIT_BOOL ? 2 : 120);
            op_case_int(&c, "to", to[k]);
            lower_check(&c, &r, 1, 0, 0);
            op_case_end(&c);
        }
    op_case c;
    op_case_begin(&c, "", "Cast");
    op_case_random(&c, &r, TACIT_F32, SHAPE(30), -9, 9);
    op_case_int(&c, "to", 7);
    lower_check_none(&c, 1);
    op_case_end(&c);
}

static void rotary_embeddings(void **state)
{
    (void)state;
    rng r = rng_seed(47);
    for (int variant = 0; variant < 16; variant++) {
        bool ids = variant & 1, pairs = variant & 2, flat = variant & 4, part = variant & 8;
        int64_t half = part ? 9 : 20;
        op_case c;
        op_case_begin(&c, "", "RotaryEmbedding");
        op_case_random(&c, &r, TACIT_F32, flat ? SHAPE(2, 7, 3 * 40) : SHAPE(2, 3, 7, 40), -1, 1);
        for (int i = 0; i < 2; i++)
            op_case_random(&c, &r, TACIT_F32, ids ? SHAPE(30, half) : SHAPE(2, 7, half), -1, 1);
        if (ids)
            op_case_random(&c, &r, TACIT_I64, SHAPE(2, 7), 0, 30);
        op_case_int(&c, "interleaved", pairs);
        op_case_int(&c, "num_heads", flat ? 3 : 0);
        op_case_int(&c, "rotary_embedding_dim", part ? 18 : 0);
        lower_check(&c, &r, 1, 0, 1e-6);
        op_case_end(&c);
    }
}

/* Every filter and way to place it, up and down, on one axis and on three. */
static void resizes(void **state)
{
    (void)state;
    static const char *const modes[] = {"nearest", "linear", "cubic"};
    static const char *const places[] = {"half_pixel", "asymmetric", "align_corners",
                                         "pytorch_half_pixel", "half_pixel_symmetric"};
    static const int64_t sizes_to[][4] = {
        {2, 3, 26, 34}, {2, 3, 7, 50}, {2, 3, 13, 9}, {2, 5, 20, 17}, {2, 3, 13, 17}};
    rng r = rng_seed(45);
    for (int t = 0; t < 3 * 5 * 5; t++)
        for (int variant = 0; variant < 3; variant++) {
            op_case c;
            op_case_begin(&c, "", "Resize");
            values(&c, &r, TACIT_F32, SHAPE(2, 3, 13, 17));
            op_case_give(&c, NULL);
            op_case_give(&c, NULL);
            op_case_i64(&c, TACIT_I64, SHAPE(4), sizes_to[t / 15]);
            op_case_string(&c, "mode", modes[t % 3]);
            op_case_string(&c, "coordinate_transformation_mode", places[t / 3 % 5]);
            if (t % 3 && variant)
                op_case_int(&c, variant == 1 ? "antialias" : "exclude_outside", 1);
            lower_check(&c, &r, 1, 8, 1e-5);
            op_case_end(&c);
        }
}

/* Between two entries lies a mean of both, on an entry that entry alone: one that is infinite does
 * not reach it. */
static void resizing_beside_infinity(void **state)
{
    (void)state;
    static const double x[] = {1, INFINITY, 3, 4};
    rng r = rng_seed(46);
    for (int t = 0; t < 4; t++) {
        op_case c;
        op_case_begin(&c, "", "Resize");
        op_case_f64(&c, TACIT_F32, t & 1 ? SHAPE(1, 1, 4, 1) : SHAPE(1, 1, 1, 4), x);
        op_case_give(&c, NULL);
        op_case_give(&c, NULL);
        op_case_i64(&c, TACIT_I64, SHAPE(4),
                    t & 1 ? (int64_t[]){1, 1, 8, 1} : (int64_t[]){1, 1, 1, 8});
        op_case_string(&c, "mode", t & 2 ? "cubic" : "linear");
        op_case_string(&c, "coordinate_transformation_mode", "asymmetric");
        lower_check(&c, &r, 1, 8, 1e-6);
        op_case_end(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(transpose_every_permutation),
        cmocka_unit_test(transpose_of_few_columns),
        cmocka_unit_test(slices_splits_and_expansions),
        cmocka_unit_test(concat_tile_and_pad),
        cmocka_unit_test(pads_that_repeat),
        cmocka_unit_test(gather_rows),
        cmocka_unit_test(reductions_over_any_axes),
        cmocka_unit_test(log_sum_exp_of_odd_values),
        cmocka_unit_test(global_pools_and_argmax),
        cmocka_unit_test(extremes_of_odd_values),
        cmocka_unit_test(casts_of_integers),
        cmocka_unit_test(rotary_embeddings),
        cmocka_unit_test(resizes),
        cmocka_unit_test(resizing_beside_infinity),
    };
    return cmocka_run_group_tests_name("lowering of movers", tests, NULL, NULL);
}
