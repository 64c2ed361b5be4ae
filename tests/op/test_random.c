/* SPDX-License-Identifier: Apache-2.0
 * Random ops: the generator's known answers, streams that do not repeat, distributions. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/philox.h"
#include "support/op_case.h"

/* The published test vectors of Philox4x32-10. */
static void philox_known_answers(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], want[4];
    } cases[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < 3; i++) {
        uint32_t out[4];
        philox4x32(cases[i].counter, cases[i].key, out);
        assert_memory_equal(out, cases[i].want, 16);
    }
}

static void draw(op_case *c, const char *type, uint64_t step, double seed)
{
    op_case_begin(c, "", type);
    op_case_int(c, "unused", 0);
    op_case_ints(c, "shape", 2, (int64_t[]){100, 100});
    if (seed >= 0)
        op_case_float(c, "seed", seed);
    c->step = step;
    op_case_run(c, 1);
}

static void runs_do_not_repeat_and_seeds_do(void **state)
{
    (void)state;
    op_case a, b, other, next;
    draw(&a, "RandomUniform", 0, 7);
    draw(&b, "RandomUniform", 0, 7);
    draw(&other, "RandomUniform", 0, 8);
    draw(&next, "RandomUniform", 1, 7);
    assert_true(ir_tensor_identical(&a.out[0], &b.out[0]));
    const float *x = a.out[0].data, *y = other.out[0].data, *z = next.out[0].data;
    int same_other = 0, same_next = 0;
    for (int i = 0; i < 10000; i++) {
        same_other += x[i] == y[i];
        same_next += x[i] == z[i];
    }
    assert_true(same_other < 10 && same_next < 10);
    op_case_end(&a);
    op_case_end(&b);
    op_case_end(&other);
    op_case_end(&next);
}

static void moments(const char *type, double mean, double variance)
{
    op_case c;
    draw(&c, type, 3, -1);
    const float *x = c.out[0].data;
    double sum = 0, square = 0;
    for (int i = 0; i < 10000; i++) {
        sum += x[i];
        square += (double)x[i] * x[i];
    }
    sum /= 10000;
    assert_true(fabs(sum - mean) < 0.03);
    assert_true(fabs(square / 10000 - sum * sum - variance) < 0.05);
    op_case_end(&c);
}

static void distributions_have_their_moments(void **state)
{
    (void)state;
    moments("RandomUniform", 0.5, 1.0 / 12);
    moments("RandomNormal", 0, 1);
    op_case c;
    op_case_begin(&c, "", "Bernoulli");
    double p[10000];
    for (int i = 0; i < 10000; i++)
        p[i] = i < 5000 ? 0.25 : i < 7500 ? 0 : 1;
    op_case_f64(&c, TACIT_F64, SHAPE(10000), p);
    op_case_int(&c, "dtype", ir_dtype_to_onnx(TACIT_I32));
    op_case_run(&c, 1);
    const int32_t *y = c.out[0].data;
    int ones = 0;
    for (int i = 0; i < 10000; i++) {
        ones += i < 5000 ? y[i] : 0;
        if (i >= 5000)
            assert_int_equal(y[i], i >= 7500);
    }
    assert_true(abs(ones - 1250) < 150);
    op_case_end(&c);
    op_case_begin(&c, "", "Bernoulli");
    op_case_f64(&c, TACIT_F32, SHAPE(1), (double[]){1.5});
    op_case_refuses(&c, 1, TACIT_ERR_VALUE, "1.5");
    op_case_end(&c);
}

static void multinomial_follows_its_weights(void **state)
{
    (void)state;
    op_case c;
    op_case_begin(&c, "", "Multinomial");
    op_case_f64(&c, TACIT_F32, SHAPE(1, 3), (double[]){log(1), -INFINITY, log(3)});
    op_case_int(&c, "sample_size", 4000);
    op_case_run(&c, 1);
    const int32_t *y = c.out[0].data;
    int count[3] = {0};
    for (int i = 0; i < 4000; i++)
        count[y[i]]++;
    assert_int_equal(count[1], 0);
    assert_true(abs(count[0] - 1000) < 120);
    op_case_end(&c);
}

static void dropout_scales_what_stays(void **state)
{
    (void)state;
    for (int training = 0; training < 2; training++) {
        op_case c;
        rng r = rng_seed(1);
        op_case_begin(&c, "", "Dropout");
        const ir_tensor *x = op_case_random(&c, &r, TACIT_F32, SHAPE(10000), 1, 2);
        op_case_f64(&c, TACIT_F32, SCALAR, (double[]){0.75});
        op_case_i64(&c, TACIT_BOOL, SCALAR, (int64_t[]){training});
        op_case_run(&c, 2);
        const float *v = x->data, *y = c.out[0].data;
        const uint8_t *mask = c.out[1].data;
        int kept = 0;
        for (int i = 0; i < 10000; i++) {
            kept += mask[i];
            assert_true(y[i] == (mask[i] ? training ? v[i] * 4 : v[i] : 0));
        }
        assert_true(training ? abs(kept - 2500) < 200 : kept == 10000);
        op_case_end(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_known_answers),
        cmocka_unit_test(runs_do_not_repeat_and_seeds_do),
        cmocka_unit_test(distributions_have_their_moments),
        cmocka_unit_test(multinomial_follows_its_weights),
        cmocka_unit_test(dropout_scales_what_stays),
    };
    return cmocka_run_group_tests_name("random ops", tests, NULL, NULL);
}
