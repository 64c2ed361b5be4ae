/* SPDX-License-Identifier: Apache-2.0
 * tacit.AdamStep: kernel against evaluator, refusals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "support/lower_check.h"

static void give(op_case *c, rng *r, int64_t count, int variant)
{
    double rate = 0.01, step = 1 + variant, scale = 0.5, enabled = (variant & 8) == 0;
    op_case_random(c, r, TACIT_F32, SHAPE(count), -1, 1);
    op_case_random(c, r, TACIT_F32, SHAPE(count), -1, 1);
    op_case_random(c, r, TACIT_F32, SHAPE(count), 0, 1);
    op_case_random(c, r, TACIT_F32, SHAPE(count), -1, 1);
    op_case_f64(c, TACIT_F32, SCALAR, &rate);
    op_case_f64(c, TACIT_F32, SCALAR, &step);
    if (variant & 1)
        op_case_f64(c, TACIT_F32, SCALAR, &scale);
    else if (variant & 2)
        op_case_give(c, NULL);
    if (variant & 2)
        op_case_f64(c, TACIT_BOOL, SCALAR, &enabled);
    op_case_float(c, "beta1", 0.8);
    op_case_float(c, "weight_decay", 0.1);
    op_case_int(c, "decoupled", variant >> 2 & 1);
}

static void kernel(void **state)
{
    (void)state;
    rng r = rng_seed(90);
    static const int64_t counts[] = {1, 3, 15, 16, 17, 1000, 16 * 1024, 40001};
    for (int variant = 0; variant < 16; variant++) {
        op_case c;
        op_case_begin(&c, "tacit", "AdamStep");
        give(&c, &r, counts[variant % 8], variant);
        lower_check(&c, &r, 3, 0, 1e-5);
        op_case_end(&c);
    }
}

static void refusals(void **state)
{
    (void)state;
    rng r = rng_seed(92);
    for (int wrong = 0; wrong < 3; wrong++) {
        op_case c;
        double one = 1;
        op_case_begin(&c, "tacit", "AdamStep");
        op_case_random(&c, &r, TACIT_F32, SHAPE(3), -1, 1);
        op_case_random(&c, &r, wrong == 0 ? TACIT_F64 : TACIT_F32, SHAPE(3), -1, 1);
        op_case_random(&c, &r, TACIT_F32, wrong == 1 ? SHAPE(4) : SHAPE(3), 0, 1);
        op_case_random(&c, &r, TACIT_F32, SHAPE(3), -1, 1);
        op_case_f64(&c, wrong == 2 ? TACIT_F64 : TACIT_F32, SCALAR, &one);
        op_case_f64(&c, TACIT_F32, SCALAR, &one);
        op_case_refuses(&c, 3, wrong == 1 ? TACIT_ERR_SHAPE : TACIT_ERR_TYPE, "input");
        op_case_end(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernel),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests_name("Adam", tests, NULL, NULL);
}
