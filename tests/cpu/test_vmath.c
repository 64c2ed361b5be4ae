/* SPDX-License-Identifier: Apache-2.0
 * The stated ulp bounds of the vector functions, against double libm, on every ISA. */
#include "cpu/kernel_test.h"

#include "cpu/strip.h"

enum { COUNT = 1 << 16 };

static double gelu(double x)
{
    return 0.5 * x * erfc(-x * 0.70710678118654752440);
}
static double gelu_tanh(double x)
{
    double u = 2 * 0.79788456080286535588 * (x + 0.044715 * x * x * x);
    return x / (1 + exp(-u));
}
static double silu(double x)
{
    return x / (1 + exp(-x));
}
static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}
static double softplus(double x)
{
    return fmax(x, 0) + log1p(exp(-fabs(x)));
}
static double elu(double x)
{
    return x < 0 ? expm1(x) : x;
}
static double sqrt_of(double x)
{
    return sqrt(x);
}

typedef struct bound {
    const char *name;
    cpu_strip_op op;
    double (*truth)(double);
    double low, high;
    double ulp;
    double floor; /* errors are measured against at least this magnitude */
} bound;

static const bound bounds[] = {
    {"exp", CPU_STRIP_EXP, exp, -110, 95, 2, 0x1p-126},
    {"log", CPU_STRIP_LOG, log, 0, 3e38, 3, 0x1p-126},
    {"log near 1", CPU_STRIP_LOG, log, 0.25, 4, 3, 0x1p-126},
    {"tanh", CPU_STRIP_TANH, tanh, -12, 12, 4, 0x1p-126},
    {"tanh near 0", CPU_STRIP_TANH, tanh, -1e-3, 1e-3, 4, 0x1p-126},
    {"sigmoid", CPU_STRIP_SIGMOID, sigmoid, -80, 80, 4, 0x1p-126},
    {"erf", CPU_STRIP_ERF, erf, -5, 5, 4, 0x1p-126},
    {"erf near 0", CPU_STRIP_ERF, erf, -1e-2, 1e-2, 4, 0x1p-126},
    {"gelu", CPU_STRIP_GELU, gelu, -14, 14, 64, 0x1p-16},
    {"gelu_tanh", CPU_STRIP_GELU_TANH, gelu_tanh, -14, 14, 64, 0x1p-16},
    {"silu", CPU_STRIP_SILU, silu, -100, 100, 64, 0x1p-16},
    {"softplus", CPU_STRIP_SOFTPLUS, softplus, -60, 60, 64, 0x1p-16},
    {"elu", CPU_STRIP_ELU, elu, -40, 40, 4, 0x1p-126},
    {"sqrt", CPU_STRIP_SQRT, sqrt_of, 0, 1e30, 1, 0x1p-126},
    {"celu", CPU_STRIP_CELU, elu, -40, 40, 4, 0x1p-126},
    {"sin", CPU_STRIP_SIN, sin, -10, 10, 2, 0x1p-126},
    {"sin far out", CPU_STRIP_SIN, sin, -3e5, 3e5, 2, 0x1p-126},
    {"cos", CPU_STRIP_COS, cos, -10, 10, 2, 0x1p-126},
    {"cos far out", CPU_STRIP_COS, cos, -3e5, 3e5, 2, 0x1p-126},
    {"tan", CPU_STRIP_TAN, tan, -10, 10, 4, 0x1p-126},
    {"tan far out", CPU_STRIP_TAN, tan, -3e5, 3e5, 4, 0x1p-126},
    {"asin", CPU_STRIP_ASIN, asin, -1, 1, 3, 0x1p-126},
    {"acos", CPU_STRIP_ACOS, acos, -1, 1, 2, 0x1p-126},
    {"atan", CPU_STRIP_ATAN, atan, -6, 6, 3, 0x1p-126},
    {"sinh", CPU_STRIP_SINH, sinh, -90, 90, 3, 0x1p-126},
    {"sinh near 0", CPU_STRIP_SINH, sinh, -2, 2, 3, 0x1p-126},
    {"cosh", CPU_STRIP_COSH, cosh, -90, 90, 3, 0x1p-126},
    {"asinh", CPU_STRIP_ASINH, asinh, -5, 5, 3, 0x1p-126},
    {"acosh", CPU_STRIP_ACOSH, acosh, 1, 5, 3, 0x1p-126},
    {"atanh", CPU_STRIP_ATANH, atanh, -1, 1, 3, 0x1p-126},
};

static void check_bound(const bound *b, cpu_isa isa, const float *x, float *y)
{
    float one = 1;
    const float *in[3] = {x, &one, &one};
    cpu_strips_for(isa)->op[b->op](y, in, 6, COUNT);
    for (int i = 0; i < COUNT; i++) {
        double want = b->truth(x[i]);
        if (fabs(want) > 3.4028234663852886e38) {
            assert_true(isinf(y[i]) || isnan(want));
            continue;
        }
        double error = fabs(y[i] - want);
        double unit = fmax(test_ulp(want), test_ulp(b->floor));
        if (error > b->ulp * unit && error > 0x1p-126)
            fail_msg("%s on %s: f(%.9g) = %.9g, expected %.9g, off by %.2f ulp", b->name,
                     cpu_isa_name(isa), x[i], y[i], want, error / unit);
    }
}

static void functions_keep_their_ulp_bounds(void **state)
{
    (void)state;
    rng r = rng_seed(1);
    float *y = malloc(COUNT * sizeof *y);
    for (size_t k = 0; k < sizeof bounds / sizeof *bounds; k++) {
        float *x = test_floats(&r, COUNT, bounds[k].low, bounds[k].high);
        FOR_EACH_ISA(isa) check_bound(&bounds[k], isa, x, y);
        free(x);
    }
    free(y);
}

/* NaN, infinities, zeros: the value of the double function. */
static void special_values_are_right(void **state)
{
    (void)state;
    const float x[8] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 1e-40f, 3e38f, -3e38f};
    const float one = 1;
    for (size_t k = 0; k < sizeof bounds / sizeof *bounds; k++)
        FOR_EACH_ISA(isa)
        {
            float y[8];
            const float *in[3] = {x, &one, &one};
            cpu_strips_for(isa)->op[bounds[k].op](y, in, 6, 8);
            for (int i = 0; i < 8; i++) {
                double want = bounds[k].truth(x[i]);
                bool gate = bounds[k].floor == 0x1p-16;
                if (gate && x[i] == -INFINITY && isnan(want))
                    want = 0; /* x·Φ(x) → 0: the limit, where the double formula has inf·0 */
                if (isnan(want) || isinf(want) || fabs(want) > 3.4e38) {
                    if (!(isnan(want) ? isnan(y[i]) : isinf(y[i]) && (y[i] > 0) == (want > 0)))
                        fail_msg("%s on %s: f(%g) = %g, expected %g", bounds[k].name,
                                 cpu_isa_name(isa), x[i], y[i], want);
                } else
                    test_close(bounds[k].name, i, y[i], want, 1e-6);
            }
        }
}

/* Those of vtrig.h, on floats of every exponent and sign: signs of zeros and what lies outside of
 * their domains, too. */
static void whole_range_of_circular_and_hyperbolic(void **state)
{
    (void)state;
    enum { STEP = 65521 }; /* a prime: the low bits change, too */
    static float x[(1ull << 32) / STEP + 1], y[sizeof x / sizeof *x];
    const int64_t n = sizeof x / sizeof *x;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)(i * STEP);
        memcpy(&x[i], &bits, sizeof bits);
    }
    const float *in[3] = {x, x, x};
    for (size_t k = 0; k < sizeof bounds / sizeof *bounds; k++)
        FOR_EACH_ISA(isa)
        {
            if (bounds[k].op < CPU_STRIP_SIN || bounds[k].op > CPU_STRIP_ATANH)
                continue;
            cpu_strips_for(isa)->op[bounds[k].op](y, in, 0, n);
            for (int64_t i = 0; i < n; i++) {
                double want = bounds[k].truth(x[i]);
                float near = (float)want;
                bool exact = isinf(near) || near == 0;
                bool right = isnan(near) ? isnan(y[i])
                             : exact     ? y[i] == near && signbit(y[i]) == signbit(near)
                                         : fabs(y[i] - want) <= bounds[k].ulp * test_ulp(want);
                if (!right)
                    fail_msg("%s on %s: f(%a) = %.9g, expected %.9g", bounds[k].name,
                             cpu_isa_name(isa), x[i], y[i], want);
            }
        }
}

/* Tails of every length give what whole vectors give, and write nothing beyond. */
static void tails_are_masked(void **state)
{
    (void)state;
    rng r = rng_seed(2);
    float *x = test_floats(&r, 64, -3, 3), *z = test_floats(&r, 64, -3, 3);
    FOR_EACH_ISA(isa)
    for (int op = 0; op < CPU_STRIP_COUNT; op++) {
        float whole[64], part[65];
        const float *in[3] = {x, z, x};
        cpu_strips_for(isa)->op[op](whole, in, 0, 64);
        for (int n = 0; n <= 64; n++) {
            for (int i = 0; i < 65; i++)
                part[i] = 777;
            cpu_strips_for(isa)->op[op](part, in, 0, n);
            assert_memory_equal(part, whole, (size_t)n * sizeof *part);
            assert_true(part[n] == 777);
        }
    }
    free(x);
    free(z);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions_keep_their_ulp_bounds),
        cmocka_unit_test(special_values_are_right),
        cmocka_unit_test(whole_range_of_circular_and_hyperbolic),
        cmocka_unit_test(tails_are_masked),
    };
    return cmocka_run_group_tests_name("vector functions", tests, NULL, NULL);
}
