/* SPDX-License-Identifier: Apache-2.0
 * Functions end to end: two parties through all gates of a block, against the real function, within
 * the error the builder stated. Steps between gates are what the scheduler would do. */
#include <math.h>

#include "fss/func.h"
#include "fss/world.h"

/* A wire: cleartext (for checking), and its masks. */
typedef struct wire {
    uint64_t *x, *r;
    size_t n;
    unsigned bits;
} wire;

static wire wire_new(world *w, size_t n, unsigned bits)
{
    return (wire){words_new(n), world_masks(w, n, bits), n, bits};
}
static void wire_free(wire *w)
{
    free(w->x);
    free(w->r);
}

/* Run a gate whose output rows become wires. */
static void apply(world *w, fss_gate g, const wire *in, unsigned inputs, wire *out)
{
    const uint64_t *x[4] = {0}, *r[4] = {0};
    trace t;
    for (unsigned k = 0; k < inputs; k++) {
        x[k] = in[k].x;
        r[k] = in[k].r;
    }
    g.count = in[0].n;
    world_run(w, &g, x, r, &t);
    for (unsigned row = 0, v = 0; v < t.info.out_vectors; v++)
        for (unsigned k = 0; k < t.info.out[v].rows; k++, row++) {
            out[row] = (wire){words_new(g.count), words_new(g.count), g.count, t.info.out[v].bits};
            memcpy(out[row].x, t.result[v] + k * g.count, g.count * 8);
            memcpy(out[row].r, t.out_mask[v] + k * g.count, g.count * 8);
        }
    trace_free(&t);
}

/* index = in >> shift, faithfully by a gate or dithered by hand. */
static wire index_of(world *w, const wire *in, unsigned shift, unsigned bits, bool dither)
{
    wire out;
    if (!dither) {
        fss_gate tr = {.kind = FSS_TR,
                       .in_bits = (uint8_t)in->bits,
                       .out_bits = (uint8_t)bits,
                       .shift = (uint8_t)shift};
        apply(w, tr, in, 1, &out);
        return out;
    }
    out = (wire){words_new(in->n), words_new(in->n), in->n, bits};
    for (size_t i = 0; i < in->n; i++) {
        uint64_t masked = fss_low(in->x[i] + in->r[i], in->bits);
        out.x[i] = fss_low(fss_dither_tr_sim(in->x[i], masked, in->bits, shift), bits);
        out.r[i] = fss_low(in->r[i] >> shift, bits);
    }
    return out;
}

static double real(uint64_t x, unsigned bits, unsigned frac)
{
    return ldexp((double)fss_signed(x, bits), -(int)frac);
}

static void activation(world *w, fss_activation_kind kind, fss_real_fn fn, unsigned segment,
                       unsigned degree, bool dither, double most_ulp)
{
    enum { N = 3000, BITS = 50, FRAC = 12 };
    unsigned out_frac = degree > 1 ? 36 : 24;
    arena memory;
    arena_init(&memory, NULL);
    fss_activation a;
    tacit_error err;
    if (fss_activation_build(kind, BITS, 30, FRAC, segment, degree, out_frac, dither, &memory, &a,
                             &err) != TACIT_OK)
        fail_msg("%s", err.message);
    if (!(a.error.max * 4096 < most_ulp))
        fail_msg("activation %d: %g ulp of 2^-12 at most, %g on average", kind, a.error.max * 4096,
                 a.error.mean * 4096);
    wire x = wire_new(w, N, BITS), clip[2], index, y;
    for (size_t i = 0; i < N; i++) {
        double v = i < 2000 ? rng_range(&w->r, -a.range, a.range) : rng_range(&w->r, -900, 900);
        x.x[i] = fss_low((uint64_t)(int64_t)floor(v * 4096), BITS);
    }
    apply(w, a.clip, &x, 1, clip);
    index = index_of(w, &clip[0], a.spline.shift, a.spline.index_bits, dither);
    apply(w, a.gate, (wire[]){clip[0], index}, 2, &y);
    for (size_t i = 0; i < N; i++) {
        uint64_t sum = y.x[i] + (clip[1].x[i] << (out_frac - FRAC));
        double got = real(sum, BITS, out_frac), v = real(x.x[i], BITS, FRAC);
        double bound = a.error.max + (fabs(v) >= a.range ? a.tail : 0) + 1e-9;
        if (fabs(got - fn(v)) > bound)
            fail_msg("activation %d at %g: %g, not %g within %g", kind, v, got, fn(v), bound);
    }
    wire *all[] = {&x, &clip[0], &clip[1], &index, &y};
    for (int k = 0; k < 5; k++)
        wire_free(all[k]);
    arena_free(&memory);
}

static void activations_within_their_stated_error(void **state)
{
    (void)state;
    world w;
    world_init(&w, FSS_PRG_AES, FSS_TREE_HALF, 1);
    activation(&w, FSS_GELU, fss_gelu, 4, 1, false, 1.0);
    activation(&w, FSS_GELU, fss_gelu, 4, 1, true, 3.5);
    activation(&w, FSS_GELU_TANH, fss_gelu_tanh, 5, 1, false, 0.5);
    activation(&w, FSS_SILU, fss_silu, 4, 1, false, 1.0);
    activation(&w, FSS_SIGMOID, fss_sigmoid, 3, 2, true, 0.5);
    activation(&w, FSS_TANH, tanh, 4, 2, false, 0.1);
}

static void exponential(world *w, bool dither)
{
    enum { N = 4000, BITS = 44, FRAC = 12 };
    arena memory;
    arena_init(&memory, NULL);
    fss_exp e;
    assert_int_equal(fss_exp_build(BITS, FRAC, 4, 36, dither, &memory, &e, NULL), TACIT_OK);
    assert_true(e.error.max < 1.0 / 8192 && e.error.mean < 1e-5);
    wire d = wire_new(w, N, BITS), hi, lo = {words_new(N), words_new(N), N, e.gate.index2_bits}, y;
    for (size_t i = 0; i < N; i++) {
        d.x[i] = i < 40 ? 65535 - i : rng_below(&w->r, 65536);
        d.r[i] = fss_low(d.r[i], BITS);
    }
    hi = index_of(w, &d, e.lo_bits, e.hi_bits, dither);
    for (size_t i = 0; i < N; i++) { /* the low bits of the masked word and of the mask */
        uint64_t masked = fss_low(d.x[i] + d.r[i], e.lo_bits);
        lo.r[i] = fss_low(d.r[i], e.lo_bits);
        lo.x[i] = fss_low(masked - lo.r[i], lo.bits);
    }
    apply(w, e.gate, (wire[]){hi, lo}, 2, &y);
    for (size_t i = 0; i < N; i++) {
        double got = real(y.x[i], BITS, e.out_frac), want = exp(-real(d.x[i], BITS, FRAC));
        assert_true(fabs(got - want) <= e.error.max + 1e-12);
    }
    wire *all[] = {&d, &hi, &lo, &y};
    for (int k = 0; k < 4; k++)
        wire_free(all[k]);
    arena_free(&memory);
}

static void exponential_within_its_stated_error(void **state)
{
    (void)state;
    world w;
    world_init(&w, FSS_PRG_AES, FSS_TREE_HALF, 2);
    exponential(&w, false);
    exponential(&w, true);
}

static void normalised(world *w, fss_real_fn fn, unsigned in_frac, unsigned g_frac)
{
    enum { N = 600, IN = 38, BITS = 64, B = 11 };
    arena memory;
    arena_init(&memory, NULL);
    fss_normal f;
    tacit_error err;
    if (fss_normal_build(fn, IN, in_frac, BITS, B, 14, g_frac, &memory, &f, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    assert_true(f.relative < 1.0 / 3000);
    wire x = wire_new(w, N, BITS), ug[2], t, m, v, y;
    for (size_t i = 0; i < N; i++) {
        unsigned e = (unsigned)rng_below(&w->r, IN);
        x.x[i] = i < 2 * IN ? ((uint64_t)1 << (i / 2)) - (i % 2 && i > 1)
                            : (uint64_t)1 << e | fss_low(rng_u64(&w->r), e);
    }
    x.x[0] = 1;
    x.x[1] = ((uint64_t)1 << IN) - 1;
    apply(w, f.scale, &x, 1, ug);
    fss_gate mul = {.kind = FSS_MUL, .in_bits = BITS};
    apply(w, mul, (wire[]){x, ug[0]}, 2, &t);
    m = index_of(w, &t, IN - 1 - B, B, false);
    apply(w, f.lut, &m, 1, &v);
    apply(w, mul, (wire[]){v, ug[1]}, 2, &y);
    for (size_t i = 0; i < N; i++) {
        double want = fn(real(x.x[i], BITS, in_frac)), got = real(y.x[i], BITS, 14 + g_frac);
        assert_true(fabs(got - want) <= want * (f.relative + 1e-9) + ldexp(1, -(int)g_frac));
    }
    wire *all[] = {&x, &ug[0], &ug[1], &t, &m, &v, &y};
    for (int k = 0; k < 7; k++)
        wire_free(all[k]);
    arena_free(&memory);
}

static void reciprocals_of_any_size(void **state)
{
    (void)state;
    world w;
    world_init(&w, FSS_PRG_AES, FSS_TREE_HALF, 3);
    normalised(&w, fss_rsqrt, 24, 20);
    normalised(&w, fss_rsqrt, 11, 30);
    normalised(&w, fss_recip, 12, 24);
}

/* A softmax denominator: sums in [1, 128) straight from one spline. */
static void reciprocal_of_a_bounded_sum(void **state)
{
    (void)state;
    uint64_t *table = words_new((size_t)3 << 11);
    fss_spline s = {.fn = fss_recip,
                    .in_frac = 12,
                    .shift = 8,
                    .index_bits = 11,
                    .degree = 2,
                    .out_frac = 40,
                    .low = 1,
                    .high = 128};
    fss_error error;
    assert_int_equal(fss_spline_build(&s, table, &error, NULL), TACIT_OK);
    assert_true(error.max < 1.0 / 32768);
    world w;
    world_init(&w, FSS_PRG_AES, FSS_TREE_HALF, 4);
    wire x = wire_new(&w, 2000, 50), index, y;
    for (size_t i = 0; i < x.n; i++)
        x.x[i] = 4096 + rng_below(&w.r, 127 * 4096);
    index = index_of(&w, &x, 8, 11, false);
    fss_gate g = {.kind = FSS_SPLINE, .in_bits = 50, .index_bits = 11, .degree = 2, .table = table};
    apply(&w, g, (wire[]){x, index}, 2, &y);
    for (size_t i = 0; i < x.n; i++)
        assert_true(fabs(real(y.x[i], 50, 40) - 4096.0 / (double)x.x[i]) <= error.max + 1e-12);
    wire_free(&x);
    wire_free(&index);
    wire_free(&y);
    free(table);
}

/* Row maxima and their indices by a tournament of FSS_MAX gates, as pooling and argmax need. */
static void tournament_finds_row_maxima(void **state)
{
    (void)state;
    world w;
    world_init(&w, FSS_PRG_AES, FSS_TREE_HALF, 5);
    enum { ROWS = 40, BITS = 20, INDEX = 6 };
    for (size_t k = 1; k <= 37; k += 9) {
        wire v = wire_new(&w, ROWS * k, BITS), id = wire_new(&w, ROWS * k, INDEX);
        int64_t best[ROWS];
        uint64_t *given = words_new(ROWS * k);
        for (size_t i = 0; i < ROWS * k; i++) { /* entry-major: entry i / ROWS of row i % ROWS */
            int64_t x = (int64_t)rng_below(&w.r, 60) - 30;
            v.x[i] = given[i] = fss_low((uint64_t)x, BITS);
            id.x[i] = i / ROWS;
            id.r[i] = 0; /* public constants have no mask */
            if (i < ROWS || x > best[i % ROWS])
                best[i % ROWS] = x;
        }
        for (size_t left = k; left > 1;) {
            size_t pairs = left / 2, n = pairs * ROWS;
            fss_gate g = {.kind = FSS_MAX, .in_bits = BITS, .index_bits = INDEX};
            wire half[4] = {{v.x, v.r, n, BITS},
                            {v.x + n, v.r + n, n, BITS},
                            {id.x, id.r, n, INDEX},
                            {id.x + n, id.r + n, n, INDEX}};
            wire won[2];
            apply(&w, g, half, 4, won);
            for (int q = 0; q < 2; q++) { /* winners first, then the odd one out */
                wire *to = q ? &id : &v;
                memcpy(to->x, won[q].x, n * 8);
                memcpy(to->r, won[q].r, n * 8);
                if (left % 2) {
                    memmove(to->x + n, to->x + 2 * n, ROWS * 8);
                    memmove(to->r + n, to->r + 2 * n, ROWS * 8);
                }
                wire_free(&won[q]);
            }
            left = pairs + left % 2;
        }
        for (size_t i = 0; i < ROWS; i++) {
            assert_int_equal(fss_signed(v.x[i], BITS), best[i]);
            assert_true(id.x[i] < k);
            assert_int_equal(fss_signed(given[id.x[i] * ROWS + i], BITS), best[i]);
        }
        free(given);
        wire_free(&v);
        wire_free(&id);
    }
}

static void bad_requests_are_refused(void **state)
{
    (void)state;
    arena memory;
    arena_init(&memory, NULL);
    uint64_t table[64];
    fss_error error;
    fss_spline s = {.fn = fss_recip,
                    .in_frac = 4,
                    .shift = 2,
                    .index_bits = 4,
                    .degree = 1,
                    .out_frac = 8,
                    .low = 0,
                    .high = 4};
    assert_int_equal(fss_spline_build(&s, table, &error, NULL), TACIT_ERR_VALUE);
    s.low = 1;
    assert_int_equal(fss_spline_build(&s, table, &error, NULL), TACIT_OK);
    s.high = 5;
    assert_int_equal(fss_spline_build(&s, table, &error, NULL), TACIT_ERR_ARGUMENT);
    s.high = 4;
    s.out_frac = 3;
    assert_int_equal(fss_spline_build(&s, table, &error, NULL), TACIT_ERR_ARGUMENT);
    fss_activation a;
    assert_int_equal(fss_activation_build(FSS_GELU, 20, 20, 12, 4, 1, 24, false, &memory, &a, NULL),
                     TACIT_ERR_ARGUMENT);
    fss_normal f;
    assert_int_equal(fss_normal_build(fss_recip, 38, 30, 64, 11, 14, 24, &memory, &f, NULL),
                     TACIT_ERR_LIMIT);
    fss_exp e;
    assert_int_equal(fss_exp_build(30, 12, 4, 36, false, &memory, &e, NULL), TACIT_ERR_ARGUMENT);
    arena_free(&memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(activations_within_their_stated_error),
        cmocka_unit_test(exponential_within_its_stated_error),
        cmocka_unit_test(reciprocals_of_any_size),
        cmocka_unit_test(reciprocal_of_a_bounded_sum),
        cmocka_unit_test(tournament_finds_row_maxima),
        cmocka_unit_test(bad_requests_are_refused),
    };
    return cmocka_run_group_tests_name("fss.func", tests, NULL, NULL);
}
