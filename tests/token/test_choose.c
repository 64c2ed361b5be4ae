/* SPDX-License-Identifier: Apache-2.0
 * Which token comes next: the likeliest, and draws that are as likely as they should be. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "token/choose.h"

enum { MOST = 64, DRAWS = 40000 };
static token_weight work[MOST];

static int64_t choose(const float *logits, uint32_t n, token_choice how, uint64_t seed)
{
    rng r = rng_seed(seed);
    return token_choose(logits, n, &how, &r, work);
}

static void the_likeliest(void **state)
{
    (void)state;
    const float logits[] = {1, 3, -2, 3, 2};
    token_choice greedy = {.top_k = 40, .top_p = 0.95};
    token_choice one = {.temperature = 5, .top_k = 1, .top_p = 1};
    token_choice few = {.temperature = 5, .top_p = 1e-9};
    for (uint64_t seed = 0; seed < 20; seed++) {
        assert_int_equal(choose(logits, 5, greedy, seed), 1); /* of equals the first */
        assert_int_equal(choose(logits, 5, one, seed), 1);
        assert_int_equal(choose(logits, 5, few, seed), 1);
    }
    assert_int_equal(choose(logits + 2, 1, (token_choice){1, 0, 1}, 1), 0);
}

/* How often each of n is drawn. */
static void draw(const float *logits, uint32_t n, token_choice how, uint32_t *counts)
{
    rng r = rng_seed(11);
    memset(counts, 0, n * sizeof *counts);
    for (int i = 0; i < DRAWS; i++) {
        int64_t id = token_choose(logits, n, &how, &r, work);
        assert_in_range(id, 0, n - 1);
        counts[id]++;
    }
}

/* Counts against probabilities: within five standard deviations, and never what has none. */
static void expect(const uint32_t *counts, const double *p, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        double mean = p[i] * DRAWS, sd = sqrt(mean * (1 - p[i]));
        if (p[i] == 0)
            assert_int_equal(counts[i], 0);
        else if (fabs(counts[i] - mean) > 5 * sd + 1e-9)
            fail_msg("%u was drawn %u times, expected %g +- %g", i, counts[i], mean, sd);
    }
}

static void as_likely_as_the_model_says(void **state)
{
    (void)state;
    const double p[] = {0.1, 0.4, 0.05, 0.25, 0.2};
    float logits[5];
    uint32_t counts[5];
    for (int i = 0; i < 5; i++)
        logits[i] = (float)log(p[i]) + 7;
    draw(logits, 5, (token_choice){1, 0, 1}, counts);
    expect(counts, p, 5);
    draw(logits, 5, (token_choice){1, 5, 1}, counts); /* five of five */
    expect(counts, p, 5);
    draw(logits, 5, (token_choice){1, INT64_MAX, 1}, counts);
    expect(counts, p, 5);
    /* the three likeliest of them */
    draw(logits, 5, (token_choice){1, 3, 1}, counts);
    expect(counts, (double[]){0, 0.4 / 0.85, 0, 0.25 / 0.85, 0.2 / 0.85}, 5);
    /* 0.4 + 0.25 are less than 0.7, with 0.2 it is enough */
    draw(logits, 5, (token_choice){1, 0, 0.7}, counts);
    expect(counts, (double[]){0, 0.4 / 0.85, 0, 0.25 / 0.85, 0.2 / 0.85}, 5);
    /* of the three likeliest these two have 0.76 */
    draw(logits, 5, (token_choice){1, 3, 0.7}, counts);
    expect(counts, (double[]){0, 0.4 / 0.65, 0, 0.25 / 0.65, 0}, 5);
    /* half the temperature: squares of the probabilities */
    draw(logits, 5, (token_choice){0.5, 0, 1}, counts);
    double squares = 0.01 + 0.16 + 0.0025 + 0.0625 + 0.04;
    expect(counts,
           (double[]){0.01 / squares, 0.16 / squares, 0.0025 / squares, 0.0625 / squares,
                      0.04 / squares},
           5);
}

/* Top-k and top-p by sorting everything, on random logits with equal ones among them. */
static void as_by_sorting(void **state)
{
    (void)state;
    rng r = rng_seed(3);
    for (int round = 0; round < 300; round++) {
        uint32_t n = 1 + (uint32_t)rng_below(&r, MOST), order[MOST], kept = 0, k;
        float logits[MOST];
        double weights[MOST], whole = 0, sum = 0, share = rng_range(&r, 0.01, 0.999);
        bool allowed[MOST] = {0};
        for (uint32_t i = 0; i < n; i++) {
            logits[i] = (float)rng_below(&r, 12) / 2;
            for (k = i; k > 0 && logits[order[k - 1]] < logits[i]; k--)
                order[k] = order[k - 1];
            order[k] = i;
        }
        k = 1 + (uint32_t)rng_below(&r, n);
        for (uint32_t i = 0; i < k; i++)
            whole += weights[i] = exp((double)logits[order[i]] - (double)logits[order[0]]);
        while (kept < k && (kept == 0 || sum < share * whole)) {
            sum += weights[kept];
            allowed[order[kept++]] = true;
        }
        for (uint64_t seed = 0; seed < 40; seed++) {
            int64_t id = choose(logits, n, (token_choice){1, k, share}, seed);
            assert_in_range(id, 0, n - 1);
            if (!allowed[id] && fabs(sum - share * whole) > 1e-9)
                fail_msg("round %d: %d was drawn", round, (int)id);
        }
    }
}

static void seeds(void **state)
{
    (void)state;
    float logits[MOST] = {0};
    uint32_t differ = 0;
    for (uint64_t seed = 0; seed < 100; seed++) {
        int64_t id = choose(logits, MOST, (token_choice){1, 0, 1}, seed);
        assert_int_equal(id, choose(logits, MOST, (token_choice){1, 0, 1}, seed));
        differ += id != choose(logits, MOST, (token_choice){1, 0, 1}, seed + 1);
    }
    assert_true(differ > 80);
}

static void what_is_no_number(void **state)
{
    (void)state;
    const token_choice greedy = {.top_p = 1}, drawn = {1, 0, 1}, share = {1, 2, 0.9};
    const float none[] = {NAN, NAN}, some[] = {NAN, 1, NAN, 0}, up[] = {0, INFINITY, 9};
    const float down[] = {-INFINITY, 2, -INFINITY}, all_down[] = {-INFINITY, -INFINITY};
    const token_choice *const ways[] = {&greedy, &drawn, &share};
    for (int w = 0; w < 3; w++)
        for (uint64_t seed = 0; seed < 50; seed++) {
            assert_int_equal(choose(none, 2, *ways[w], seed), -1);
            assert_int_equal(choose(up, 3, *ways[w], seed), 1);
            assert_int_equal(choose(down, 3, *ways[w], seed), 1);
            assert_int_equal(choose(all_down, 2, *ways[w], seed), 0);
            int64_t id = choose(some, 4, *ways[w], seed);
            assert_true(id == 1 || (id == 3 && w > 0));
        }
    assert_int_equal(choose(none, 0, greedy, 1), -1);
    /* hardly any temperature, and so much that all are alike */
    const float near[] = {3, 3.0001f, 2};
    assert_int_equal(choose(near, 3, (token_choice){1e-300, 0, 1}, 1), 1);
    uint32_t counts[3];
    draw(near, 3, (token_choice){1e6, 0, 1}, counts);
    expect(counts, (double[]){1 / 3.0, 1 / 3.0, 1 / 3.0}, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_likeliest),     cmocka_unit_test(as_likely_as_the_model_says),
        cmocka_unit_test(as_by_sorting),     cmocka_unit_test(seeds),
        cmocka_unit_test(what_is_no_number),
    };
    return cmocka_run_group_tests_name("choosing", tests, NULL, NULL);
}
