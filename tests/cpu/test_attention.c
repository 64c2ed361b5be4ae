/* SPDX-License-Identifier: Apache-2.0
 * The attention kernels against a double oracle: layouts, groups, masks, causality, windows. */
#include "cpu/kernel_test.h"

#include "cpu/attention_test.h"

static double visible_score(const cpu_attention_args *p, int64_t b, int64_t h, int64_t i, int64_t j)
{
    int64_t own = i + p->causal_offset, kv = h / (p->heads / p->kv_heads);
    if ((p->causal && j > own) || (p->window > 0 && j <= own - p->window))
        return -INFINITY;
    const float *q = p->q + b * p->q_stride[0] + h * p->q_stride[1] + i * p->q_stride[2];
    const float *k = p->k + b * p->k_stride[0] + kv * p->k_stride[1] + j * p->k_stride[2];
    double s = 0;
    for (int64_t d = 0; d < p->depth; d++)
        s += (double)q[d] * k[d];
    s *= p->scale;
    if (p->softcap != 0)
        s = p->softcap * tanh(s / p->softcap);
    const int64_t *m = p->mask_stride;
    int64_t at = b * m[0] + h * m[1] + i * m[2] + j * m[3];
    if (p->mask_kind == CPU_MASK_ADD)
        s += ((const float *)p->mask)[at];
    if (p->mask_kind == CPU_MASK_BOOL && !((const uint8_t *)p->mask)[at])
        s = -INFINITY;
    return s;
}

static void check_query(const cpu_attention_args *p, const char *what, int64_t b, int64_t h,
                        int64_t i, double *s)
{
    double top = -INFINITY, sum = 0;
    int64_t kv = h / (p->heads / p->kv_heads);
    for (int64_t j = 0; j < p->keys; j++) {
        s[j] = visible_score(p, b, h, i, j);
        top = fmax(top, s[j]);
    }
    for (int64_t j = 0; j < p->keys; j++)
        sum += s[j] = exp(s[j] - top);
    const float *y = p->out + b * p->out_stride[0] + h * p->out_stride[1] + i * p->out_stride[2];
    for (int64_t d = 0; d < p->v_depth; d++) {
        double want = p->keys ? 0 : NAN;
        for (int64_t j = 0; j < p->keys; j++)
            want += s[j] / sum *
                    p->v[b * p->v_stride[0] + kv * p->v_stride[1] + j * p->v_stride[2] + d];
        test_close(what, i * p->v_depth + d, y[d], want, 1e-5);
    }
}

static cpu_attention_args random_problem(rng *r)
{
    cpu_attention_args p = {.batch = 1 + (int64_t)rng_below(r, 2),
                            .kv_heads = 1 + (int64_t)rng_below(r, 2),
                            .queries = 1 + (int64_t)rng_below(r, rng_below(r, 2) ? 6 : 200),
                            .keys = 1 + (int64_t)rng_below(r, rng_below(r, 2) ? 40 : 400),
                            .depth = 1 + (int64_t)rng_below(r, rng_below(r, 4) ? 80 : 256),
                            .v_depth = 1 + (int64_t)rng_below(r, 80)};
    p.heads = p.kv_heads * (1 + (int64_t)rng_below(r, 3));
    bool interleaved = rng_below(r, 2);
    set_strides(p.q_stride, interleaved, p.heads, p.queries, p.depth);
    set_strides(p.k_stride, interleaved, p.kv_heads, p.keys, p.depth);
    set_strides(p.v_stride, interleaved, p.kv_heads, p.keys, p.v_depth);
    set_strides(p.out_stride, rng_below(r, 2), p.heads, p.queries, p.v_depth);
    p.scale = (float)(1 / sqrt((double)p.depth));
    p.softcap = rng_below(r, 4) ? 0 : 5.0f;
    p.causal = rng_below(r, 2);
    p.causal_offset = p.causal && p.keys > p.queries ? p.keys - p.queries : 0;
    p.window = rng_below(r, 4) ? 0 : 1 + (int64_t)rng_below(r, 50);
    p.mask_kind = (cpu_mask)rng_below(r, 3);
    if (rng_below(r, 2)) { /* the same mask for all heads */
        p.mask_stride[0] = p.queries * p.keys;
        p.mask_stride[2] = p.keys;
        p.mask_stride[3] = 1;
    } else { /* one row for all queries */
        p.mask_stride[1] = p.keys;
        p.mask_stride[3] = 1;
    }
    p.block_rows = 1 + (int64_t)rng_below(r, CPU_ATTENTION_QUERIES);
    p.group = (uint32_t)rng_below(r, CPU_ATTENTION_GROUP + 1);
    int64_t rows = p.block_rows * (p.group ? p.group : 1);
    p.blocks = (uint32_t)((p.queries + rows - 1) / rows);
    return p;
}

static void random_problems(void **state)
{
    (void)state;
    rng r = rng_seed(8);
    for (int round = 0; round < 60; round++) {
        cpu_attention_args p = random_problem(&r);
        float *q = test_floats(&r, p.batch * p.q_stride[0], -2, 2);
        float *k = test_floats(&r, p.batch * p.k_stride[0], -2, 2);
        float *v = test_floats(&r, p.batch * p.v_stride[0], -2, 2);
        float *out = test_floats(&r, p.batch * p.out_stride[0], 777, 777);
        int64_t cells = p.batch * p.heads * p.queries * p.keys;
        float *add = test_floats(&r, cells, -3, 3);
        uint8_t *keep = malloc((size_t)cells);
        for (int64_t i = 0; i < cells; i++)
            keep[i] = rng_below(&r, 4) != 0;
        p.q = q, p.k = k, p.v = v, p.out = out;
        p.mask = p.mask_kind == CPU_MASK_ADD ? (const void *)add : keep;
        double *s = malloc((size_t)p.keys * sizeof *s);
        FOR_EACH_ISA(isa)
        {
            char what[120];
            snprintf(what, sizeof what, "round %d on %s: q%lld k%lld d%lld/%lld causal%d mask%d",
                     round, cpu_isa_name(isa), (long long)p.queries, (long long)p.keys,
                     (long long)p.depth, (long long)p.v_depth, p.causal, p.mask_kind);
            uint32_t tiles = p.blocks * (uint32_t)(p.batch * p.heads);
            for (uint32_t t = tiles; t-- > 0;)
                CPU_PICK(isa, cpu_attention_f32)(&p, t, t + 1);
            for (int64_t b = 0; b < p.batch; b++)
                for (int64_t h = 0; h < p.heads; h++)
                    for (int64_t i = 0; i < p.queries; i += 1 + i / 7)
                        check_query(&p, what, b, h, i, s);
        }
        free(q), free(k), free(v), free(out), free(add), free(keep), free(s);
    }
}

/* As many keys as a vector has elements, or fewer, and one more. */
static void few_keys(void **state)
{
    (void)state;
    enum { HEADS = 6 }; /* more than go side by side */
    rng r = rng_seed(10);
    for (int64_t keys = 1; keys <= 17; keys++) {
        cpu_attention_args p = {.batch = 2,
                                .heads = 3,
                                .kv_heads = 1,
                                .queries = 4 + (int64_t)rng_below(&r, 20),
                                .keys = keys,
                                .depth = keys % 2 ? 16 : 1 + (int64_t)rng_below(&r, 70),
                                .v_depth = 16 * (1 + (int64_t)rng_below(&r, 3)),
                                .scale = 0.3f,
                                .blocks = 1,
                                .block_rows = 24};
        set_strides(p.q_stride, keys % 3 == 0, p.heads, p.queries, p.depth);
        set_strides(p.k_stride, keys % 3 == 1, p.kv_heads, p.keys, p.depth);
        set_strides(p.v_stride, keys % 3 == 2, p.kv_heads, p.keys, p.v_depth);
        set_strides(p.out_stride, keys % 3 == 0, p.heads, p.queries, p.v_depth);
        float *q = test_floats(&r, p.batch * p.q_stride[0], -2, 2);
        float *k = test_floats(&r, p.batch * p.k_stride[0], -2, 2);
        float *v = test_floats(&r, p.batch * p.v_stride[0], -2, 2);
        float *out = test_floats(&r, p.batch * p.out_stride[0], 777, 777);
        p.q = q, p.k = k, p.v = v, p.out = out;
        double s[17];
        FOR_EACH_ISA(isa)
        {
            CPU_PICK(isa, cpu_attention_f32)(&p, 0, HEADS);
            for (int64_t i = 0; i < HEADS * p.queries; i++)
                check_query(&p, cpu_isa_name(isa), i / p.queries / 3, i / p.queries % 3,
                            i % p.queries, s);
        }
        free(q), free(k), free(v), free(out);
    }
}

/* One key is so long that rounding its scores takes more than any other score has. */
static void a_huge_key_wins(void **state)
{
    (void)state;
    enum { QUERY_ROWS = 40, KEY_ROWS = 150, WIDE = 7, HUGE_KEY = 141 };
    rng r = rng_seed(9);
    float *q = test_floats(&r, QUERY_ROWS * WIDE, 0.1f, 2),
          *v = test_floats(&r, KEY_ROWS * WIDE, -2, 2);
    float *k = test_floats(&r, KEY_ROWS * WIDE, -2, 2),
          *out = test_floats(&r, QUERY_ROWS * WIDE, 7, 7);
    for (int d = 0; d < WIDE; d++)
        k[HUGE_KEY * WIDE + d] = 1e30f;
    cpu_attention_args p = {.q = q,
                            .k = k,
                            .v = v,
                            .out = out,
                            .batch = 1,
                            .heads = 1,
                            .kv_heads = 1,
                            .queries = QUERY_ROWS,
                            .keys = KEY_ROWS,
                            .depth = WIDE,
                            .v_depth = WIDE,
                            .q_stride = {0, 0, WIDE},
                            .k_stride = {0, 0, WIDE},
                            .v_stride = {0, 0, WIDE},
                            .out_stride = {0, 0, WIDE},
                            .scale = 0.3f,
                            .blocks = 1,
                            .group = 8,
                            .block_rows = CPU_ATTENTION_QUERIES};
    FOR_EACH_ISA(isa)
    {
        for (int64_t n = QUERY_ROWS; n > 0;
             n -= 38) { /* many, and so few that K is read in place */
            p.queries = n;
            CPU_PICK(isa, cpu_attention_f32)(&p, 0, 1);
            for (int64_t i = 0; i < n * WIDE; i++)
                test_close(cpu_isa_name(isa), i, out[i], v[HUGE_KEY * WIDE + i % WIDE], 1e-6);
        }
    }
    free(q), free(k), free(v), free(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_problems),
                                       cmocka_unit_test(few_keys),
                                       cmocka_unit_test(a_huge_key_wins)};
    return cmocka_run_group_tests_name("attention", tests, NULL, NULL);
}
