/* SPDX-License-Identifier: Apache-2.0
 * Weights that are made late: any part of them is the same as that part of the whole. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/half.h"
#include "base/rng.h"
#include "ir/recipe.h"

enum { ROWS = 5, WIDTH = 7 };

static ir_tensor *random_tensor(arena *a, tacit_dtype dtype, int64_t rows, int64_t columns, rng *r)
{
    ir_shape shape = ir_shape_of(2, (int64_t[]){rows, columns});
    ir_tensor *t = ir_tensor_new(a, dtype, &shape);
    assert_non_null(t);
    for (int64_t i = 0; i < rows * columns; i++)
        ir_store_f64(dtype, t->data, i, rng_range(r, -2, 2));
    return t;
}

/* Parts filled apart are those of the whole, and what they come from is inside the sources. */
typedef struct seen {
    const ir_recipe *recipe;
    size_t bytes;
} seen;

static void visit(void *context, const void *data, size_t bytes)
{
    seen *s = context;
    bool inside = false;
    for (uint32_t i = 0; i < s->recipe->count; i++) {
        const char *from = s->recipe->from[i]->data, *at = data;
        inside |= at >= from && at + bytes <= from + s->recipe->from[i]->bytes;
    }
    assert_true(inside);
    s->bytes += bytes;
}

static void check_parts(const ir_tensor *late, const void *whole)
{
    char part[4 * ROWS * WIDTH * sizeof(double)];
    size_t element = tacit_dtype_bits(late->dtype) / 8;
    size_t own = tacit_dtype_bits(late->recipe->from[0]->dtype) / 8;
    size_t total = late->bytes / element * own; /* of the sources */
    for (size_t first = 0; first < late->bytes; first += element)
        for (size_t end = first + element; end <= late->bytes; end += element) {
            memset(part, 0xa5, sizeof part);
            ir_recipe_fill(late, first, end - first, part);
            assert_memory_equal(part, (const char *)whole + first, end - first);
            assert_int_equal((unsigned char)part[end - first], 0xa5);
            seen s = {.recipe = late->recipe};
            ir_recipe_sources(late, first, end - first, visit, &s);
            assert_true(s.bytes * element >= (end - first) * own && s.bytes <= total);
        }
    seen all = {.recipe = late->recipe};
    ir_recipe_sources(late, 0, late->bytes, visit, &all);
    assert_int_equal(all.bytes, total);
}

static void scaled_rows(tacit_dtype dtype, tacit_dtype source)
{
    arena a;
    arena_init(&a, NULL);
    rng r = rng_seed(3);
    const ir_tensor *from = random_tensor(&a, source, ROWS, WIDTH, &r);
    double scale[ROWS], whole[ROWS * WIDTH];
    for (int i = 0; i < ROWS; i++)
        scale[i] = (float)rng_range(&r, -3, 3);
    ir_recipe recipe = {
        .kind = IR_SCALED, .count = 1, .from = &from, .dtype = dtype, .rows = ROWS, .scale = scale};
    ir_tensor *late = ir_tensor_late(&a, &from->shape, &recipe);
    assert_non_null(late);
    assert_true(ir_tensor_is_late(late));
    for (int64_t i = 0; i < ROWS * WIDTH; i++) {
        double x = ir_load_f64(source, from->data, i) * scale[i / WIDTH];
        ir_store_f64(dtype, whole, i, x);
        float part = 0;
        if (dtype == TACIT_F32)
            ir_tensor_part(late, (size_t)i * sizeof part, sizeof part, &part);
        if (dtype == TACIT_F32)
            assert_true(part == (float)x);
    }
    check_parts(late, whole);
    memset(scale, 0, sizeof scale); /* the recipe has its own */
    assert_int_equal(ir_tensor_make(late, NULL), TACIT_OK);
    assert_false(ir_tensor_is_late(late));
    assert_memory_equal(late->data, whole, late->bytes);
    arena_free(&a);
}

static void rows_are_scaled(void **state)
{
    (void)state;
    scaled_rows(TACIT_F32, TACIT_F32);
    scaled_rows(TACIT_F64, TACIT_F64);
    scaled_rows(TACIT_F16, TACIT_F16);
    scaled_rows(TACIT_F32, TACIT_F16);
    scaled_rows(TACIT_F32, TACIT_BF16);
}

/* Every half there is. */
static void halves_are_widened(void **state)
{
    (void)state;
    static const tacit_dtype halves[2] = {TACIT_F16, TACIT_BF16};
    for (int h = 0; h < 2; h++) {
        arena a;
        arena_init(&a, NULL);
        ir_shape shape = ir_shape_of(2, (int64_t[]){256, 256});
        ir_tensor *from = ir_tensor_new(&a, halves[h], &shape);
        for (uint32_t i = 0; i < 65536; i++)
            ((uint16_t *)from->data)[i] = (uint16_t)i;
        const ir_tensor *source = from;
        ir_recipe recipe = {
            .kind = IR_JOINED, .count = 1, .from = &source, .dtype = TACIT_F32, .rows = 256};
        ir_tensor *late = ir_tensor_late(&a, &shape, &recipe);
        assert_non_null(late);
        assert_int_equal(late->bytes, 4 * 65536);
        assert_ptr_equal(ir_recipe_source(late), source);
        assert_ptr_equal(ir_recipe_source(source), source);
        assert_int_equal(ir_tensor_make(late, NULL), TACIT_OK);
        assert_ptr_equal(ir_recipe_source(late), late);
        for (uint32_t i = 0; i < 65536; i++) {
            double wanted = half_decode(h ? HALF_BF16 : HALF_F16, (uint16_t)i);
            float got = ((float *)late->data)[i];
            assert_true(isnan(wanted) ? isnan(got) : got == wanted);
            assert_true(isnan(wanted) || !signbit(got) == !signbit(wanted));
        }
        arena_free(&a);
    }
}

static void matrices_are_joined(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    rng r = rng_seed(4);
    static const int64_t widths[3] = {3, 1, 6};
    const ir_tensor *from[3];
    float whole[ROWS * 10];
    for (int i = 0, at = 0; i < 3; at += (int)widths[i++]) {
        from[i] = random_tensor(&a, TACIT_F32, ROWS, widths[i], &r);
        for (int64_t k = 0; k < ROWS * widths[i]; k++)
            whole[k / widths[i] * 10 + at + k % widths[i]] = ((float *)from[i]->data)[k];
    }
    ir_shape shape = ir_shape_of(2, (int64_t[]){ROWS, 10});
    ir_recipe recipe = {.kind = IR_JOINED, .count = 3, .from = from, .rows = ROWS};
    ir_tensor *late = ir_tensor_late(&a, &shape, &recipe);
    ir_tensor *same = ir_tensor_late(&a, &shape, &recipe);
    assert_non_null(late);
    assert_non_null(same);
    check_parts(late, whole);
    assert_true(ir_tensor_identical(late, same));
    recipe.count = 2;
    ir_tensor *other = ir_tensor_late(&a, &shape, &recipe);
    assert_false(ir_tensor_identical(late, other));
    /* One below the other: a single row of all. */
    recipe = (ir_recipe){.kind = IR_JOINED, .count = 3, .from = from, .rows = 1};
    ir_tensor *below = ir_tensor_late(&a, &shape, &recipe);
    size_t at = 0;
    char stacked[sizeof whole];
    for (int i = 0; i < 3; at += from[i++]->bytes)
        memcpy(stacked + at, from[i]->data, from[i]->bytes);
    check_parts(below, stacked);
    assert_false(ir_tensor_identical(late, below));
    arena_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_scaled),
        cmocka_unit_test(halves_are_widened),
        cmocka_unit_test(matrices_are_joined),
    };
    return cmocka_run_group_tests_name("late weights", tests, NULL, NULL);
}
