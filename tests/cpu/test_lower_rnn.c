/* SPDX-License-Identifier: Apache-2.0
 * Recurrent layers through their lower rule, against the evaluator. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/lower_check.h"

static const struct {
    int64_t steps, batch, input, hidden;
} sizes[] = {{1, 1, 1, 1},  {7, 1, 3, 5},   {4, 6, 9, 17}, {3, 4, 5, 64},
             {5, 9, 4, 33}, {2, 3, 40, 80}, {6, 2, 8, 130}};
enum { SIZES = sizeof sizes / sizeof *sizes };

static void check(rng *r, const char *type, int64_t gates, int s, int variant)
{
    static const char *const ways[] = {"forward", "reverse", "bidirectional"};
    int64_t d = variant % 3 == 2 ? 2 : 1, t = sizes[s].steps, b = sizes[s].batch;
    int64_t i = sizes[s].input, h = sizes[s].hidden;
    bool by_batch = variant & 1, biased = variant % 4 != 3, started = variant % 5 > 1;
    bool lstm = gates == 4;
    op_case c;
    op_case_begin(&c, "", type);
    op_case_random(&c, r, TACIT_F32, by_batch ? SHAPE(b, t, i) : SHAPE(t, b, i), -1, 1);
    op_case_random(&c, r, TACIT_F32, SHAPE(d, gates * h, i), -0.5, 0.5);
    op_case_random(&c, r, TACIT_F32, SHAPE(d, gates * h, h), -0.5, 0.5);
    if (biased)
        op_case_random(&c, r, TACIT_F32, SHAPE(d, 2 * gates * h), -1, 1);
    else
        op_case_give(&c, NULL);
    op_case_give(&c, NULL);
    for (int k = 0; started && k < (lstm ? 2 : 1); k++)
        op_case_random(&c, r, TACIT_F32, by_batch ? SHAPE(b, d, h) : SHAPE(d, b, h), -1, 1);
    op_case_string(&c, "direction", ways[variant % 3]);
    op_case_int(&c, "hidden_size", h);
    op_case_int(&c, "layout", by_batch);
    if (gates == 3)
        op_case_int(&c, "linear_before_reset", variant >> 1 & 1);
    lower_check(&c, r, lstm ? 3 : 2, 2 | 4 | 8, 1e-5);
    op_case_end(&c);
}

static void every_cell(void **state)
{
    (void)state;
    rng r = rng_seed(91);
    for (int s = 0; s < SIZES; s++)
        for (int variant = 0; variant < 12; variant++) {
            check(&r, "RNN", 1, s, variant);
            check(&r, "GRU", 3, s, variant);
            check(&r, "LSTM", 4, s, variant);
        }
}

/* What the kernel does not know is left to the evaluator. */
static void the_rest_is_evaluated(void **state)
{
    (void)state;
    rng r = rng_seed(92);
    for (int k = 0; k < 3; k++) {
        op_case c;
        op_case_begin(&c, "", "LSTM");
        op_case_random(&c, &r, TACIT_F32, SHAPE(3, 2, 4), -1, 1);
        op_case_random(&c, &r, TACIT_F32, SHAPE(1, 20, 4), -1, 1);
        op_case_random(&c, &r, TACIT_F32, SHAPE(1, 20, 5), -1, 1);
        op_case_give(&c, NULL);
        if (k == 0)
            op_case_i64(&c, TACIT_I32, SHAPE(2), (int64_t[]){3, 1});
        op_case_int(&c, "hidden_size", 5);
        if (k == 1)
            op_case_float(&c, "clip", 0.5);
        if (k == 2)
            op_case_int(&c, "input_forget", 1);
        lower_check_none(&c, 3);
        op_case_end(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cell),
        cmocka_unit_test(the_rest_is_evaluated),
    };
    return cmocka_run_group_tests_name("lowering of recurrent layers", tests, NULL, NULL);
}
