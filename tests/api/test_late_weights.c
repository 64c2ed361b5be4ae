/* SPDX-License-Identifier: Apache-2.0
 * Weights that passes derive (batch normalisation in a convolution, three products as one) are made
 * when they are packed, or before where something else reads them: results are the oracle's. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "ir/tensor.h"
#include "tacit/tacit.h"

typedef struct net {
    tacit_builder *b;
    rng random;
    tacit_dtype dtype, stored; /* stored: of weights that are cast to f32; or 0 */
    bool merged;               /* all its products are to become one */
} net;

static tacit_value weight(net *n, const char *name, int32_t rank, const int64_t *dims, double low,
                          double high)
{
    int64_t count = 1;
    for (int32_t d = 0; d < rank; d++)
        count *= dims[d];
    double *data = calloc((size_t)count, sizeof *data);
    tacit_dtype stored = n->stored ? n->stored : n->dtype;
    assert_non_null(data);
    for (int64_t i = 0; i < count; i++)
        ir_store_f64(stored, data, i, rng_range(&n->random, low, high));
    tacit_value v = tacit_builder_constant(n->b, name, stored, rank, dims, data);
    free(data);
    if (!n->stored)
        return v;
    v = tacit_builder_node(n->b, "Cast", 1, &v, 1, NULL);
    tacit_builder_attr_int(n->b, "to", 1); /* f32 */
    return v;
}

static tacit_value norm(net *n, tacit_value x, int64_t channels, const char *tag)
{
    char name[4][32];
    static const char *const parts[4] = {"scale", "shift", "mean", "var"};
    tacit_value in[5] = {x};
    for (int i = 0; i < 4; i++) {
        snprintf(name[i], sizeof name[i], "%s%s", parts[i], tag);
        in[i + 1] = weight(n, name[i], 1, &channels, i == 3 ? 0.5 : -1, 1.5);
    }
    return tacit_builder_node(n->b, "BatchNormalization", 5, in, 1, NULL);
}

static void check_merged(const tacit_session *s, const char *what)
{
    const char *product = NULL;
    for (uint32_t i = 0; i < tacit_session_profile_count(s); i++) {
        tacit_profile_row row;
        assert_int_equal(tacit_session_profile_row(s, i, &row), TACIT_OK);
        if (!strstr(row.op, "MatMul"))
            continue;
        if (product && strcmp(product, row.node) != 0)
            fail_msg("%s: %s and %s are two products", what, product, row.node);
        product = row.node;
    }
    assert_non_null(product);
}

static void check(net *n, const char *what)
{
    tacit_error err = {TACIT_OK, ""};
    tacit_model *m = NULL;
    tacit_tensor in = {0}, got[2];
    tacit_port port;
    if (tacit_builder_finish(n->b, &m, &err) != TACIT_OK)
        fail_msg("%s: %s", what, err.message);
    tacit_builder_free(n->b);
    assert_int_equal(tacit_model_input(m, 0, &port), TACIT_OK);
    in = (tacit_tensor){.name = port.name, .dtype = port.dtype, .rank = port.rank};
    memcpy(in.dims, port.dims, sizeof in.dims);
    in.bytes = port.bytes;
    in.data = malloc(port.bytes);
    assert_non_null(in.data);
    for (size_t i = 0; i < in.bytes * 8 / tacit_dtype_bits(in.dtype); i++)
        ir_store_f64(in.dtype, in.data, (int64_t)i, rng_range(&n->random, -1, 1));
    for (int k = 0; k < 2; k++) {
        tacit_compile_options o = {.executor = k ? TACIT_EXEC_SERIAL : TACIT_EXEC_REFERENCE,
                                   .validate = TACIT_VALIDATE_STRICT};
        tacit_program *p = NULL;
        tacit_session *s = NULL;
        tacit_tensor out = {.name = "y"};
        if (tacit_compile(m, &o, &p, &err) != TACIT_OK ||
            tacit_session_create(p, &s, &err) != TACIT_OK)
            fail_msg("%s: %s", what, err.message);
        tacit_session_profile(s, 1);
        if (tacit_run(s, &in, 1, &out, 1, &err) != TACIT_OK)
            fail_msg("%s: %s", what, err.message);
        if (k && n->merged)
            check_merged(s, what);
        got[k] = out;
        got[k].data = malloc(out.bytes);
        assert_non_null(got[k].data);
        memcpy(got[k].data, out.data, out.bytes);
        tacit_session_free(s);
        tacit_program_free(p);
    }
    assert_int_equal(got[0].bytes, got[1].bytes);
    double most = 0;
    int64_t count = (int64_t)(got[0].bytes * 8 / tacit_dtype_bits(got[0].dtype));
    for (int64_t i = 0; i < count; i++)
        most = fmax(most, fabs(ir_load_f64(got[0].dtype, got[0].data, i)));
    for (int64_t i = 0; i < count; i++) {
        double x = ir_load_f64(got[0].dtype, got[0].data, i);
        double y = ir_load_f64(got[1].dtype, got[1].data, i);
        if (!(fabs(x - y) <= 1e-4 * most))
            fail_msg("%s: element %lld is %g, not %g", what, (long long)i, y, x);
    }
    for (int k = 0; k < 2; k++)
        free(got[k].data);
    free(in.data);
    tacit_model_free(m);
}

static net begin(tacit_dtype dtype, uint64_t seed)
{
    net n = {.random = rng_seed(seed), .dtype = dtype};
    tacit_error err;
    assert_int_equal(tacit_builder_create("net", NULL, &n.b, &err), TACIT_OK);
    return n;
}

typedef struct conv {
    int64_t in, out, kernel, group, size;
    tacit_dtype dtype;
    int norms;
} conv;

static void convolutions(void **state)
{
    (void)state;
    static const conv cases[] = {
        {32, 64, 3, 1, 20, TACIT_F32, 1},    /* Winograd */
        {48, 200, 1, 1, 9, TACIT_F32, 1},    /* pairs */
        {64, 64, 1, 1, 3, TACIT_F32, 1},     /* sums */
        {3, 33, 7, 1, 17, TACIT_F32, 1},     /* planes of a plain image */
        {64, 64, 3, 2, 9, TACIT_F32, 1},     /* groups */
        {512, 512, 3, 512, 5, TACIT_F32, 1}, /* each channel by itself */
        {40, 40, 3, 1, 9, TACIT_F32, 2},     /* two in a row */
        {17, 19, 3, 1, 9, TACIT_F32, 1},     /* no whole blocks */
        {20, 30, 3, 1, 6, TACIT_F64, 1},     /* no kernel */
        {640, 640, 3, 1, 8, TACIT_F32, 1},   /* many pieces */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const conv *c = &cases[i];
        char what[40];
        snprintf(what, sizeof what, "convolution %zu", i);
        net n = begin(c->dtype, i + 1);
        int64_t x_dims[4] = {1, c->in, c->size, c->size};
        int64_t w_dims[4] = {c->out, c->in / c->group, c->kernel, c->kernel};
        int64_t pad = c->kernel / 2, pads[4] = {pad, pad, pad, pad};
        tacit_value x = tacit_builder_input(n.b, "x", c->dtype, 4, x_dims, NULL);
        tacit_value in[2] = {x, weight(&n, "w", 4, w_dims, -1, 1)};
        tacit_value y = tacit_builder_node(n.b, "Conv", 2, in, 1, NULL);
        tacit_builder_attr_ints(n.b, "pads", 4, pads);
        tacit_builder_attr_int(n.b, "group", c->group);
        y = norm(&n, y, c->out, "1");
        if (c->norms > 1)
            y = norm(&n, y, c->out, "2");
        y = tacit_builder_node(n.b, "Relu", 1, &y, 1, NULL);
        tacit_builder_output(n.b, "y", y);
        check(&n, what);
    }
}

/* A convolution of an image whose size only the data can tell. */
static void in_the_tail(void **state)
{
    (void)state;
    net n = begin(TACIT_F32, 7);
    tacit_value x = tacit_builder_input(n.b, "x", TACIT_F32, 4, (int64_t[]){1, 16, 10, 10}, NULL);
    unsigned char keep[10] = {1, 1, 1, 0, 1, 1, 1, 1, 0, 1};
    /* Not a constant for the passes: a comparison with what comes in. */
    tacit_value nothing = tacit_builder_constant(n.b, "keep", TACIT_BOOL, 1, (int64_t[]){10}, keep);
    tacit_value size =
        tacit_builder_constant(n.b, "axes", TACIT_I64, 1, (int64_t[]){3}, (int64_t[]){0, 1, 3});
    tacit_value sums[2] = {x, size};
    tacit_value sum = tacit_builder_node(n.b, "ReduceSum", 2, sums, 1, NULL);
    tacit_builder_attr_int(n.b, "keepdims", 0);
    float far = -1e30f;
    tacit_value limit = tacit_builder_constant(n.b, "far", TACIT_F32, 0, NULL, &far);
    tacit_value above[2] = {sum, limit};
    tacit_value every = tacit_builder_node(n.b, "Greater", 2, above, 1, NULL);
    tacit_value both[2] = {every, nothing};
    tacit_value kept = tacit_builder_node(n.b, "And", 2, both, 1, NULL);
    tacit_value pick[2] = {x, kept};
    tacit_value cut = tacit_builder_node(n.b, "Compress", 2, pick, 1, NULL);
    tacit_builder_attr_int(n.b, "axis", 2);
    tacit_value in[2] = {cut, weight(&n, "w", 4, (int64_t[]){32, 16, 3, 3}, -1, 1)};
    tacit_value y = tacit_builder_node(n.b, "Conv", 2, in, 1, NULL);
    tacit_builder_output(n.b, "y", norm(&n, y, 32, ""));
    check(&n, "an image of open size");
}

/* `turned`: weights are [width, k]. */
static void three_products(tacit_dtype dtype, tacit_dtype stored, int64_t rows, int64_t k,
                           const int64_t *widths, bool turned, const char *what)
{
    net n = begin(dtype, (uint64_t)rows + 11);
    n.merged = true;
    n.stored = stored;
    static const char *const names[3] = {"q", "k", "v"};
    tacit_value x = tacit_builder_input(n.b, "x", dtype, 2, (int64_t[]){rows, k}, NULL), part[3];
    for (int i = 0; i < 3; i++) {
        int64_t dims[2] = {turned ? widths[i] : k, turned ? k : widths[i]};
        tacit_value in[2] = {x, weight(&n, names[i], 2, dims, -1, 1)};
        part[i] = tacit_builder_node(n.b, "Gemm", 2, in, 1, NULL);
        tacit_builder_attr_int(n.b, "transB", turned);
        part[i] = tacit_builder_node(n.b, i ? "Sin" : "Cos", 1, &part[i], 1, NULL);
    }
    tacit_value y = tacit_builder_node(n.b, "Concat", 3, part, 1, NULL);
    tacit_builder_attr_int(n.b, "axis", 1);
    tacit_builder_output(n.b, "y", y);
    check(&n, what);
}

static void products(void **state)
{
    (void)state;
    static const struct {
        tacit_dtype dtype, stored;
        int64_t rows, k, widths[3];
        const char *what;
    } cases[] = {
        {TACIT_F32, 0, 1, 96, {64, 32, 32}, "one row"},
        {TACIT_F32, 0, 24, 96, {64, 32, 32}, "pairs"},
        {TACIT_F32, 0, 24, 700, {300, 100, 301}, "blocks of K"},
        {TACIT_F32, 0, 3, 1100, {130, 130, 130}, "pieces of rows"},
        {TACIT_F64, 0, 5, 96, {64, 32, 32}, "no kernel"},
        {TACIT_F32, 0, 16, 600, {2500, 2500, 2100}, "rows first, then columns"},
        {TACIT_F32, 0, 3, 1, {700, 400, 500}, "sums of one term"},
        {TACIT_F32, TACIT_F16, 1, 1100, {500, 300, 301}, "one row, f16"},
        {TACIT_F32, TACIT_BF16, 1, 1100, {500, 300, 301}, "one row, bf16"},
        {TACIT_F32, TACIT_F16, 9, 1100, {500, 300, 301}, "rows, f16"},
        {TACIT_F32, TACIT_BF16, 1, 1, {200000, 90000, 100001}, "one row of one term, bf16"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int turned = 0; turned < 2; turned++) {
            char what[60];
            snprintf(what, sizeof what, "%s%s", cases[i].what, turned ? ", turned" : "");
            three_products(cases[i].dtype, cases[i].stored, cases[i].rows, cases[i].k,
                           cases[i].widths, turned, what);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolutions),
        cmocka_unit_test(in_the_tail),
        cmocka_unit_test(products),
    };
    return cmocka_run_group_tests_name("late weights", tests, NULL, NULL);
}
