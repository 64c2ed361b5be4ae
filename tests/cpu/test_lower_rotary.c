/* SPDX-License-Identifier: Apache-2.0
 * RotaryEmbedding through its kernel: both layouts, both pairings, positions given and not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "support/lower_check.h"

static void rotary(void **state)
{
    (void)state;
    rng r = rng_seed(40);
    for (int round = 0; round < 48; round++) {
        op_case c;
        int64_t batch = 1 + (int64_t)rng_below(&r, 2), heads = 1 + (int64_t)rng_below(&r, 3);
        int64_t positions = 1 + (int64_t)rng_below(&r, 5), half = 1 + (int64_t)rng_below(&r, 40);
        int64_t depth = 2 * half + (round & 8 ? 6 : 0), table = positions + 3;
        bool flat = round & 1, ids = round & 2;
        op_case_begin(&c, "", "RotaryEmbedding");
        op_case_random(&c, &r, TACIT_F32,
                       flat ? SHAPE(batch, positions, heads * depth)
                            : SHAPE(batch, heads, positions, depth),
                       -1, 1);
        for (int k = 0; k < 2; k++)
            op_case_random(&c, &r, TACIT_F32,
                           ids ? SHAPE(table, half) : SHAPE(batch, positions, half), -1, 1);
        if (ids)
            op_case_random(&c, &r, TACIT_I64, SHAPE(batch, positions), 0, (double)table);
        op_case_int(&c, "interleaved", round & 4 ? 1 : 0);
        op_case_int(&c, "rotary_embedding_dim", 2 * half);
        if (flat)
            op_case_int(&c, "num_heads", heads);
        lower_check(&c, &r, 1, 0, 1e-6);
        op_case_end(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rotary)};
    return cmocka_run_group_tests_name("lowering of rotary embeddings", tests, NULL, NULL);
}
