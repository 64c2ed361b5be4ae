/* SPDX-License-Identifier: Apache-2.0
 * Attention with paired terms: against a double oracle over shapes, strides and cuts; how far from
 * exact beside the plain kernel; far scores; what cannot be scaled; the same bits for any order. */
#include "cpu/kernel_test.h"

#include "cpu/attention_test.h"

typedef struct problem {
    cpu_attention_args p;
    float *q, *k, *v, *out;
    int64_t floats; /* of out */
} problem;

static float normal(rng *r)
{
    double u = rng_range(r, 1e-12, 1), v = rng_range(r, 0, 1);
    return (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
}

static float *normals(rng *r, int64_t count)
{
    float *x = test_floats(r, count, 0, 0);
    for (int64_t i = 0; i < count; i++)
        x[i] = normal(r);
    return x;
}

static problem begin(rng *r, cpu_attention_args p, bool interleaved)
{
    set_strides(p.q_stride, interleaved, p.heads, p.queries, p.depth);
    set_strides(p.k_stride, interleaved, p.kv_heads, p.keys, p.depth);
    set_strides(p.v_stride, interleaved, p.kv_heads, p.keys, p.v_depth);
    set_strides(p.out_stride, !interleaved, p.heads, p.queries, p.v_depth);
    if (p.scale == 0)
        p.scale = (float)(1 / sqrt((double)p.depth));
    p.group = 1;
    p.blocks = (uint32_t)((p.queries + p.block_rows - 1) / p.block_rows);
    problem t = {.q = normals(r, p.batch * p.q_stride[0]),
                 .k = normals(r, p.batch * p.k_stride[0]),
                 .v = normals(r, p.batch * p.v_stride[0]),
                 .out = test_floats(r, p.batch * p.out_stride[0], 777, 777),
                 .floats = p.batch * p.out_stride[0]};
    p.q = t.q, p.k = t.k, p.v = t.v, p.out = t.out;
    t.p = p;
    return t;
}

/* One head of everything. */
static problem simple(rng *r, int64_t queries, int64_t keys, int64_t depth, int64_t v_depth)
{
    int64_t most = CPU_ATTENTION_PAIRED_RIGHT / (depth + v_depth + 30) / 16 * 16;
    cpu_attention_args p = {
        .batch = 1,
        .heads = 1,
        .kv_heads = 1,
        .queries = queries,
        .keys = keys,
        .depth = depth,
        .v_depth = v_depth,
        .block_rows = queries,
        .block_keys = most < CPU_ATTENTION_PAIRED_KEYS ? most : CPU_ATTENTION_PAIRED_KEYS};
    return begin(r, p, false);
}

/* What is computed with keys as rows: one block of keys, a head size of 64. Dense: K and V may be
 * read where they lie. */
static problem turned(rng *r, int64_t queries, int64_t keys, bool dense)
{
    problem t = simple(r, queries, keys, 64, 64);
    t.p.block_keys = CPU_ATTENTION_PAIRED_RIGHT / 128;
    if (dense)
        t.p.q_stride[2] = t.p.k_stride[2] = t.p.v_stride[2] = 64;
    return t;
}

static void end(problem *t)
{
    free(t->q), free(t->k), free(t->v), free(t->out);
}

static bool unpaired; /* every test runs also where nothing is gained by pairs */

static void run_tiles(problem *t, cpu_isa isa, cpu_terms terms)
{
    t->p.terms = terms;
    for (uint32_t i = t->p.blocks * (uint32_t)(t->p.batch * t->p.heads); i-- > 0;)
        CPU_PICK(isa, cpu_attention_paired_f32)(&t->p, i, i + 1);
}

/* Both kinds of pipes give the same bits. */
static void run(problem *t, cpu_isa isa)
{
    if (unpaired) {
        run_tiles(t, isa, CPU_TERMS_PLAIN);
        return;
    }
    size_t bytes = (size_t)t->floats * sizeof *t->out;
    float *before = malloc(bytes), *narrow = malloc(bytes);
    assert_true(before && narrow);
    memcpy(before, t->out, bytes);
    run_tiles(t, isa, CPU_TERMS_PAIRED);
    memcpy(narrow, t->out, bytes);
    memcpy(t->out, before, bytes);
    run_tiles(t, isa, CPU_TERMS_WIDE);
    assert_memory_equal(t->out, narrow, bytes);
    free(before);
    free(narrow);
}

static void run_plain(problem *t, cpu_isa isa)
{
    cpu_attention_args p = t->p;
    p.block_rows = CPU_ATTENTION_QUERIES < p.queries ? CPU_ATTENTION_QUERIES : p.queries;
    p.blocks = (uint32_t)((p.queries + p.block_rows - 1) / p.block_rows);
    CPU_PICK(isa, cpu_attention_f32)(&p, 0, p.blocks * (uint32_t)(p.batch * p.heads));
}

/* The keys that a query sees. */
static int64_t seen(const cpu_attention_args *p, int64_t i)
{
    int64_t own = i + p->causal_offset + 1;
    return p->causal && own < p->keys ? own : p->keys;
}

/* The weights of one query. */
static void weights(const cpu_attention_args *p, int64_t b, int64_t h, int64_t i, double *s)
{
    int64_t kv = h / (p->heads / p->kv_heads);
    double top = -INFINITY, sum = 0;
    int64_t keys = seen(p, i);
    const float *q = p->q + b * p->q_stride[0] + h * p->q_stride[1] + i * p->q_stride[2];
    for (int64_t j = 0; j < keys; j++) {
        const float *k = p->k + b * p->k_stride[0] + kv * p->k_stride[1] + j * p->k_stride[2];
        s[j] = 0;
        for (int64_t d = 0; d < p->depth; d++)
            s[j] += (double)q[d] * k[d];
        s[j] *= p->scale;
        top = fmax(top, s[j]);
    }
    for (int64_t j = 0; j < keys; j++)
        sum += s[j] = exp(s[j] - top);
    for (int64_t j = 0; j < keys; j++)
        s[j] /= sum;
}

/* Element d of what the weights of query i make of the values; *lengths: ‖weights‖ · ‖column of the
 * values that it sees‖. */
static double weigh(const cpu_attention_args *p, int64_t b, int64_t h, int64_t i, int64_t d,
                    const double *s, double *lengths)
{
    const float *v = p->v + b * p->v_stride[0] + h / (p->heads / p->kv_heads) * p->v_stride[1] + d;
    double y = 0, ss = 0, vv = 0;
    for (int64_t j = 0; j < seen(p, i); j++, v += p->v_stride[2])
        y += s[j] * *v, ss += s[j] * s[j], vv += (double)*v * *v;
    *lengths = sqrt(ss) * sqrt(vv);
    return y;
}

static const float *row_of(const cpu_attention_args *p, int64_t b, int64_t h, int64_t i)
{
    return p->out + b * p->out_stride[0] + h * p->out_stride[1] + i * p->out_stride[2];
}

static void check(problem *t, const char *what)
{
    const cpu_attention_args *p = &t->p;
    double tolerance = p->scale == 1 ? 3e-5 : 2e-6; /* scores in the tens, or a few */
    double lengths, *s = malloc((size_t)p->keys * sizeof *s);
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->heads; h++)
            for (int64_t i = 0; i < p->queries; i++) {
                const float *y = row_of(p, b, h, i);
                weights(p, b, h, i, s);
                for (int64_t d = 0; d < p->v_depth; d++)
                    test_close(what, i * p->v_depth + d, y[d], weigh(p, b, h, i, d, s, &lengths),
                               tolerance);
                for (int64_t d = p->v_depth; d < p->v_depth + 3; d++) /* the gap */
                    assert_true(y[d] == 777);
            }
    free(s);
}

static void random_problems(void **state)
{
    (void)state;
    rng r = rng_seed(1);
    for (int round = 0; round < 80; round++) {
        cpu_attention_args p = {.batch = 1 + (int64_t)rng_below(&r, 2),
                                .kv_heads = 1 + (int64_t)rng_below(&r, 2),
                                .queries = 1 + (int64_t)rng_below(&r, 70),
                                .keys = 1 + (int64_t)rng_below(&r, rng_below(&r, 3) ? 90 : 600),
                                .depth = 1 + (int64_t)rng_below(&r, 128),
                                .v_depth = 1 + (int64_t)rng_below(&r, 128)};
        p.heads = p.kv_heads * (1 + (int64_t)rng_below(&r, 2));
        p.block_rows = 1 + (int64_t)rng_below(&r, 80);
        p.block_keys = 16 * (1 + (int64_t)rng_below(&r, 8));
        p.scale = rng_below(&r, 3) ? 0 : 1; /* without a factor scores are far from zero */
        p.causal = round % 2;
        p.causal_offset = rng_below(&r, 2) ? 0 : (int64_t)rng_below(&r, (uint64_t)p.keys + 9);
        problem t = begin(&r, p, rng_below(&r, 2));
        FOR_EACH_ISA(isa)
        {
            char what[120];
            snprintf(what, sizeof what, "round %d on %s: q%lld/%lld k%lld/%lld d%lld/%lld +%lld",
                     round, cpu_isa_name(isa), (long long)p.queries, (long long)p.block_rows,
                     (long long)p.keys, (long long)p.block_keys, (long long)p.depth,
                     (long long)p.v_depth, (long long)(p.causal ? p.causal_offset : -1));
            run(&t, isa);
            check(&t, what);
        }
        end(&t);
    }
}

/* Caches that hold some keys, none, or as many as there is room for; what lies behind those is not
 * read. */
static void caches(void **state)
{
    (void)state;
    const int64_t room = 200, queries = 40, lengths[] = {0, 1, 63, 160};
    rng r = rng_seed(14);
    FOR_EACH_ISA(isa)
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        problem t = simple(&r, queries, room, 32, 48);
        t.p.block_keys = 64;
        t.p.causal = true;
        t.p.length = &lengths[i];
        for (int64_t j = lengths[i] + queries; j < room; j++)
            t.k[j * t.p.k_stride[2]] = t.v[j * t.p.v_stride[2]] = NAN;
        run(&t, isa);
        t.p.length = NULL;
        t.p.keys = lengths[i] + queries;
        t.p.causal_offset = lengths[i];
        check(&t, "cache");
        end(&t);
    }
}

/* As many queries as fill their vectors, or nearly; keys as few as one. What lies behind the last
 * key is not read. */
static void keys_as_rows(void **state)
{
    (void)state;
    const int64_t queries[] = {31, 32, 64, 90, 96, 128},
                  keys[] = {1, 2, 13, 16, 37, 48, 64, 250, 256};
    rng r = rng_seed(9);
    for (size_t i = 0; i < sizeof queries / sizeof *queries; i++)
        for (size_t j = 0; j < sizeof keys / sizeof *keys; j++)
            for (int dense = 0; dense < 2; dense++) {
                problem t = turned(&r, queries[i], keys[j], dense);
                for (int64_t d = 0; dense && d < 3 * keys[j]; d++)
                    t.k[keys[j] * 64 + d] = t.v[keys[j] * 64 + d] = NAN;
                FOR_EACH_ISA(isa)
                {
                    char what[80];
                    snprintf(what, sizeof what, "%s: q%lld k%lld %s", cpu_isa_name(isa),
                             (long long)queries[i], (long long)keys[j], dense ? "dense" : "");
                    run(&t, isa);
                    check(&t, what);
                }
                end(&t);
            }
}

/* Where some queries are longer than others, or see far scores, the rest of the tile takes the
 * other way; so does all of it where keys are of different lengths. */
static void keys_as_rows_given_up(void **state)
{
    (void)state;
    rng r = rng_seed(10);
    for (int what = 0; what < 6; what++) {
        problem t = turned(&r, 96, 64, what % 2);
        for (int64_t d = 0; d < 64; d++) {
            if (what == 0)
                t.q[70 * t.p.q_stride[2] + d] *= 20;
            if (what == 1)
                t.q[70 * t.p.q_stride[2] + d] *= 0x1p-20f;
            if (what == 2)
                t.q[33 * t.p.q_stride[2] + d] = t.k[20 * t.p.k_stride[2] + d] *= 1.7f;
            if (what == 3)
                t.k[20 * t.p.k_stride[2] + d] *= 0x1p-12f;
            if (what == 4)
                t.v[d * t.p.v_stride[2] + 11] *= 0x1p-10f;
            if (what == 5)
                t.k[63 * t.p.k_stride[2] + d] = 0;
        }
        FOR_EACH_ISA(isa)
        {
            run(&t, isa);
            check(&t, "given up");
        }
        end(&t);
    }
}

/* --- exactness -------------------------------------------------------------------------------- */

typedef enum kind {
    NORMAL,
    PEAKED,       /* weights almost one-hot */
    FLAT,         /* weights almost equal, values positive */
    FAR,          /* scores in the hundreds: the exponential needs its maximum */
    QUERIES_AWAY, /* queries 2^-20 … 2^20 of each other, keys short */
    KEYS_AWAY,    /* keys 2^-20 … 1 of each other */
    VALUES_AWAY,  /* columns of values 2^-20 … 2^20 of each other */
    ROWS_AWAY,    /* values 2^-10 … 2^10 of each other, key by key */
    UNEVEN,       /* of some queries all scores are near 14, of others near -14 */
    SIZED,        /* queries, keys and values of other sizes than one, each kind of one size */
    LATER,        /* the second half of the keys is longer */
    KINDS
} kind;

static void fill(problem *t, kind what)
{
    const cpu_attention_args *p = &t->p;
    for (int64_t i = 0; i < p->queries; i++)
        for (int64_t d = 0; d < p->depth; d++) {
            float *x = t->q + i * p->q_stride[2] + d;
            *x *= what == PEAKED  ? 6.0f
                  : what == FAR   ? 100.0f
                  : what == FLAT  ? 1e-3f
                  : what == SIZED ? 0.01f
                                  : 1.0f;
            if (what == QUERIES_AWAY)
                *x = ldexpf(*x, (int)(i * 7 % 41) - 20);
            if (what == UNEVEN)
                *x = 0.2f * *x + (i / 3 % 2 ? -1.3f : 1.3f);
        }
    for (int64_t j = 0; j < p->keys; j++)
        for (int64_t d = 0; d < p->depth; d++) {
            float *x = t->k + j * p->k_stride[2] + d;
            *x = what == QUERIES_AWAY ? ldexpf(*x, -20)
                 : what == KEYS_AWAY  ? ldexpf(*x, -(int)(j * 7 % 21))
                 : what == UNEVEN     ? 0.2f * *x + 1.3f
                 : what == SIZED      ? 70 * *x
                 : what == LATER      ? *x * (j < p->keys / 2 ? 1.0f : 9.0f)
                                      : *x;
        }
    for (int64_t j = 0; j < p->keys; j++)
        for (int64_t d = 0; d < p->v_depth; d++) {
            float *x = t->v + j * p->v_stride[2] + d;
            *x = what == VALUES_AWAY ? ldexpf(*x, (int)(d * 7 % 41) - 20)
                 : what == ROWS_AWAY ? ldexpf(*x, (int)(j * 7 % 21) - 10)
                 : what == FLAT      ? fabsf(*x)
                 : what == SIZED     ? 300 * *x
                                     : *x;
        }
}

/* Root mean square and maximum of |error| / (‖weights‖‖values‖), in units of 2^-24. */
static void distances(const problem *t, double *rms, double *most)
{
    const cpu_attention_args *p = &t->p;
    double sum = 0, lengths, *s = malloc((size_t)p->keys * sizeof *s);
    *most = 0;
    for (int64_t i = 0; i < p->queries; i++) {
        weights(p, 0, 0, i, s);
        for (int64_t d = 0; d < p->v_depth; d++) {
            double want = weigh(p, 0, 0, i, d, s, &lengths);
            double e = fabs(row_of(p, 0, 0, i)[d] - want) / lengths * 0x1p24;
            sum += e * e;
            *most = e > *most ? e : *most;
        }
    }
    *rms = sqrt(sum / (double)(p->queries * p->v_depth));
    free(s);
}

static void is_exact(problem *t, cpu_isa isa, kind what)
{
    static const char *const names[KINDS] = {"normal",  "peaked", "flat",   "far",
                                             "queries", "keys",   "values", "rows",
                                             "uneven",  "sized",  "later"};
    fill(t, what);
    double rms, most, plain_rms, plain_most;
    run(t, isa);
    distances(t, &rms, &most);
    run_plain(t, isa);
    distances(t, &plain_rms, &plain_most);
    /* far scores: a few elements hold all of the error, that of q·k times its size */
    double limit = t->p.queries < 100 ? 20 : 40; /* the plain kernel: 30, of so many elements */
    double times = what != FAR ? 1.6 : unpaired ? 5 : 4;
    if (!(rms <= times * plain_rms && (what == FAR || most <= limit)))
        fail_msg("%s %s Q %lld K %lld: %.3f, at most %.3f; plain %.3f, at most %.3f",
                 cpu_isa_name(isa), names[what], (long long)t->p.queries, (long long)t->p.keys, rms,
                 most, plain_rms, plain_most);
    end(t);
}

/* The bounds that docs/kernels.md states. */
static void as_exact_as_stated(void **state)
{
    (void)state;
    const int64_t keys[] = {64, 256, 1000};
    rng r = rng_seed(2);
    FOR_EACH_ISA(isa)
    for (int what = 0; what < KINDS; what++)
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
            problem t = simple(&r, 42, keys[i], 64, 64);
            is_exact(&t, isa, (kind)what);
        }
}

/* … and where keys are hidden: the first queries see one, or all but 42. */
static void causal_is_as_exact(void **state)
{
    (void)state;
    const int64_t keys[] = {64, 256, 1000};
    rng r = rng_seed(12);
    FOR_EACH_ISA(isa)
    for (int what = 0; what < KINDS; what++)
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
            problem t = simple(&r, i == 1 ? 256 : 42, keys[i], 64, 64);
            t.p.block_keys = 96;
            t.p.causal = true;
            t.p.causal_offset = keys[i] - t.p.queries;
            is_exact(&t, isa, (kind)what);
        }
}

/* Keys and values that a query does not see take nothing from those that it does: neither digits
 * nor, where keys are not numbers, anything else. */
static void hidden_keys_do_not_count(void **state)
{
    (void)state;
    const float huge[] = {1e6f, 1e15f, INFINITY, NAN};
    rng r = rng_seed(13);
    FOR_EACH_ISA(isa)
    for (int what = 0; what < 8; what++) {
        problem t = simple(&r, 100, 100, 40, 50);
        t.p.block_keys = 64;
        t.p.causal = true;
        bool values = what < 2; /* a weight of zero times what is no number is none either */
        for (int64_t d = 0; d < 40; d++) {
            if (values)
                t.v[70 * t.p.v_stride[2] + d] *= huge[what];
            else
                t.k[70 * t.p.k_stride[2] + d] *= huge[what % 4];
        }
        t.p.queries = t.p.block_rows = 70; /* none of them sees it */
        t.p.blocks = 1;
        run(&t, isa);
        check(&t, "hidden keys");
        end(&t);
    }
}

/* … and of those kinds that stay with keys as rows. */
static void keys_as_rows_are_as_exact(void **state)
{
    (void)state;
    const int64_t keys[] = {64, 100, 256};
    const kind kinds[] = {NORMAL, FLAT, UNEVEN, SIZED, VALUES_AWAY, ROWS_AWAY};
    rng r = rng_seed(11);
    FOR_EACH_ISA(isa)
    for (size_t what = 0; what < sizeof kinds / sizeof *kinds; what++)
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
            problem t = turned(&r, 64, keys[i], i % 2);
            is_exact(&t, isa, kinds[what]);
        }
}

/* 30 queries, 100 keys in two blocks, or 32 queries where keys would be rows; one element of Q, K
 * or V (in turn) is x, and unless `beside` is 0 that is what any ISA pairs with it when lengths are
 * summed: their product may hide what x is. */
static problem with_odd(rng *r, int which, bool rows, float x, float beside)
{
    problem t = rows ? turned(r, 32, 100, true) : simple(r, 30, 100, 40, 50);
    if (!rows)
        t.p.block_keys = 64;
    float *const where[] = {t.q + 9 * t.p.q_stride[2], t.k + 50 * t.p.k_stride[2],
                            t.v + 70 * t.p.v_stride[2]};
    where[which % 3][7] = x;
    if (beside != 0)
        where[which % 3][7 - 4] = where[which % 3][7 + 8] = where[which % 3][7 + 16] = beside;
    return t;
}

/* What is infinite or NaN in Q, K or V gives what the plain kernel gives, and touches nothing else.
 */
static void odd_elements(void **state)
{
    (void)state;
    const float odd[] = {INFINITY, -INFINITY, NAN};
    rng r = rng_seed(3);
    FOR_EACH_ISA(isa)
    for (int all = 0; all < 18 * 3; all++) {
        int what = all % 18;
        problem t = with_odd(&r, what, what >= 9, odd[what % 9 / 3], (float)(all / 18 - 1));
        run_plain(&t, isa);
        float *plain = test_floats(&r, t.floats, 0, 0);
        memcpy(plain, t.out, (size_t)t.floats * sizeof *plain);
        memset(t.out, 0, (size_t)t.floats * sizeof *plain);
        run(&t, isa);
        for (int64_t i = 0; i < t.p.queries; i++)
            for (int64_t d = 0; d < t.p.v_depth; d++) {
                int64_t at = i * t.p.out_stride[2] + d;
                if (isfinite(plain[at]))
                    test_close("odd element", at, t.out[at], plain[at], 1e-5);
                else
                    assert_true(isnan(plain[at]) ? isnan(t.out[at]) : t.out[at] == plain[at]);
            }
        free(plain);
        end(&t);
    }
}

/* … and so does what is too large or too small to be scaled, beside the oracle. */
static void extremes(void **state)
{
    (void)state;
    const float odd[] = {1e30f, -1e25f, 1e-38f, -1e-42f, 1e20f}, beside[] = {0, 0, 0, 0, 1e20f};
    rng r = rng_seed(7);
    FOR_EACH_ISA(isa)
    for (int what = 0; what < 30; what++) {
        int which = what % 15 / 3;
        problem t = with_odd(&r, what, what >= 15, odd[which], beside[which]);
        run(&t, isa);
        check(&t, "extremes");
        end(&t);
    }
}

/* Queries or keys of zeros: all weights are equal. Values of zeros: exactly zero. */
static void zeros(void **state)
{
    (void)state;
    rng r = rng_seed(4);
    FOR_EACH_ISA(isa)
    for (int what = 0; what < 3; what++) {
        problem t = simple(&r, 20, 77, 24, 33);
        if (what == 0) /* one query among others */
            memset(t.q + 3 * t.p.q_stride[2], 0, 24 * sizeof *t.q);
        if (what == 1)
            memset(t.k, 0, (size_t)t.p.k_stride[0] * sizeof *t.k);
        for (int64_t j = 0; what == 2 && j < 77; j++)
            t.v[j * t.p.v_stride[2] + 5] = 0;
        run(&t, isa);
        check(&t, what == 0 ? "query of zeros" : what == 1 ? "keys of zeros" : "values of zeros");
        for (int64_t i = 0; what == 2 && i < 20; i++)
            assert_true(row_of(&t.p, 0, 0, i)[5] == 0);
        end(&t);
    }
}

/* All scores beyond what floats hold on one side: the next block of keys counts alone. */
static void first_block_at_minus_infinity(void **state)
{
    (void)state;
    rng r = rng_seed(5);
    FOR_EACH_ISA(isa)
    {
        problem t = simple(&r, 9, 64, 16, 16);
        t.p.block_keys = 32;
        for (int64_t i = 0; i < 9; i++)
            for (int64_t d = 0; d < 16; d++)
                t.q[i * t.p.q_stride[2] + d] = 1e19f;
        for (int64_t j = 0; j < 64; j++)
            for (int64_t d = 0; d < 16; d++)
                t.k[j * t.p.k_stride[2] + d] = j < 32 ? -3e19f : j == 40 ? 1e-18f : 0;
        run(&t, isa);
        for (int64_t i = 0; i < 9; i++)
            for (int64_t d = 0; d < 16; d++)
                test_close("one key", d, row_of(&t.p, 0, 0, i)[d], t.v[40 * t.p.v_stride[2] + d],
                           1e-5);
        end(&t);
    }
}

/* Keys that count for nothing beside the first block's add nothing, whatever their values: a
 * weight of zero is zero. */
static void later_keys_without_weight(void **state)
{
    (void)state;
    rng r = rng_seed(8);
    FOR_EACH_ISA(isa)
    {
        problem t = simple(&r, 25, 96, 16, 40);
        t.p.block_keys = 48;
        t.p.scale = 1;
        for (int64_t i = 0; i < 25; i++)
            t.q[i * t.p.q_stride[2]] = i < 13 ? 60 : 30;
        for (int64_t j = 0; j < 96; j++) {
            t.k[j * t.p.k_stride[2]] = j < 48 ? 1 : -1;
            for (int64_t d = 0; d < 40; d++)
                t.v[j * t.p.v_stride[2] + d] *= j < 48 ? 1 : 1e12f;
        }
        run(&t, isa);
        check(&t, "later keys");
        end(&t);
    }
}

/* Tiles may run in any order, in any calls. */
static void bits_do_not_depend_on_the_order(void **state)
{
    (void)state;
    rng r = rng_seed(6);
    cpu_attention_args p = {.batch = 2,
                            .heads = 3,
                            .kv_heads = 3,
                            .queries = 50,
                            .keys = 150,
                            .depth = 64,
                            .v_depth = 64};
    FOR_EACH_ISA(isa)
    for (int rows = 0; rows < 3; rows++) {
        p.block_rows = rows == 1 ? 32 : 17; /* 18 are left over and go the other way */
        p.block_keys = rows == 1 ? 160 : 64;
        p.causal = rows == 2;
        problem t = begin(&r, p, true);
        run(&t, isa);
        float *kept = test_floats(&r, t.floats, 0, 0);
        memcpy(kept, t.out, (size_t)t.floats * sizeof *kept);
        CPU_PICK(isa, cpu_attention_paired_f32)(&t.p, 0, t.p.blocks * 6);
        assert_memory_equal(kept, t.out, (size_t)t.floats * sizeof *kept);
        free(kept);
        end(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_problems),
        cmocka_unit_test(caches),
        cmocka_unit_test(keys_as_rows),
        cmocka_unit_test(keys_as_rows_given_up),
        cmocka_unit_test(as_exact_as_stated),
        cmocka_unit_test(causal_is_as_exact),
        cmocka_unit_test(hidden_keys_do_not_count),
        cmocka_unit_test(keys_as_rows_are_as_exact),
        cmocka_unit_test(odd_elements),
        cmocka_unit_test(extremes),
        cmocka_unit_test(zeros),
        cmocka_unit_test(first_block_at_minus_infinity),
        cmocka_unit_test(later_keys_without_weight),
        cmocka_unit_test(bits_do_not_depend_on_the_order),
    };
    int failed = cmocka_run_group_tests_name("attention with paired terms", tests, NULL, NULL);
    unpaired = true;
    return failed + cmocka_run_group_tests_name("the same term by term", tests, NULL, NULL);
}
