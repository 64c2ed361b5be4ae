/* SPDX-License-Identifier: Apache-2.0
 * Models in half precision: they compute what the same model in f32 does with the same weights, bit
 * for bit, and round where the model says what it returns. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "api/internal.h"
#include "base/half.h"
#include "base/rng.h"

enum { ROWS = 6, WIDTH = 192, CHANNELS = 64, SIDE = 10, OUTPUTS = 2 };

typedef struct network {
    tacit_builder *b;
    rng r;
    tacit_dtype half; /* F32: the twin */
    tacit_dtype kind; /* of the halves, in the twin too: its weights have their values */
} network;

static uint16_t encode(tacit_dtype kind, double x)
{
    return half_encode(kind == TACIT_F16 ? HALF_F16 : HALF_BF16, x, false);
}

static double decode(tacit_dtype kind, uint16_t h)
{
    return half_decode(kind == TACIT_F16 ? HALF_F16 : HALF_BF16, h);
}

/* Random numbers that a half holds, stored as one or as f32. */
static tacit_value weight(network *n, int32_t rank, const int64_t *dims, double low, double high)
{
    int64_t count = 1;
    for (int32_t d = 0; d < rank; d++)
        count *= dims[d];
    uint16_t *halves = malloc((size_t)count * sizeof *halves);
    float *singles = malloc((size_t)count * sizeof *singles);
    assert_true(halves && singles);
    for (int64_t i = 0; i < count; i++) {
        halves[i] = encode(n->kind, rng_range(&n->r, low, high));
        singles[i] = (float)decode(n->kind, halves[i]);
    }
    tacit_value v = tacit_builder_constant(n->b, NULL, n->half, rank, dims,
                                           n->half == TACIT_F32 ? (void *)singles : (void *)halves);
    free(halves);
    free(singles);
    return v;
}

static tacit_value vector(network *n, int64_t size, double low, double high)
{
    return weight(n, 1, &size, low, high);
}

static tacit_value node(network *n, const char *op, uint32_t n_in, const tacit_value *in)
{
    return tacit_builder_node(n->b, op, n_in, in, 1, NULL);
}

static tacit_value two(network *n, const char *op, tacit_value x, tacit_value y)
{
    return node(n, op, 2, (tacit_value[]){x, y});
}

static tacit_value linear(network *n, tacit_value x, int64_t in, int64_t out)
{
    tacit_value w = weight(n, 2, (int64_t[]){in, out}, -0.1, 0.1);
    return two(n, "Add", two(n, "MatMul", x, w), vector(n, out, -1, 1));
}

/* The twin has no casts. */
static tacit_value cast(network *n, tacit_value x, tacit_dtype to)
{
    if (n->half == TACIT_F32)
        return x;
    tacit_value y = node(n, "Cast", 1, &x);
    tacit_builder_attr_int(n->b, "to", ir_dtype_to_onnx(to));
    return y;
}

static tacit_value turned(network *n, tacit_value x)
{
    tacit_value y = node(n, "Transpose", 1, &x);
    tacit_builder_attr_ints(n->b, "perm", 2, (int64_t[]){1, 0});
    return y;
}

/* Embedding, norm, three products of one input, attention, GELU, a residual. */
static void add_block(network *n, int64_t rows)
{
    tacit_value x = tacit_builder_input(n->b, "x", TACIT_F32, 2, (int64_t[]){rows, WIDTH}, NULL);
    tacit_value ids = tacit_builder_input(n->b, "ids", TACIT_I64, 1, &rows, NULL);
    tacit_value table = weight(n, 2, (int64_t[]){20, WIDTH}, -1, 1);
    tacit_value h = two(n, "Add", two(n, "Gather", table, ids), cast(n, x, n->half));
    tacit_value norm =
        node(n, "LayerNormalization", 3,
             (tacit_value[]){h, vector(n, WIDTH, 0.5, 1.5), vector(n, WIDTH, -1, 1)});
    tacit_value q = linear(n, norm, WIDTH, WIDTH), k = linear(n, norm, WIDTH, WIDTH);
    tacit_value v = linear(n, norm, WIDTH, WIDTH);
    tacit_value s = two(n, "Mul", two(n, "MatMul", q, turned(n, k)), vector(n, 1, 0.1, 0.1));
    tacit_value a = two(n, "MatMul", node(n, "Softmax", 1, &s), v);
    h = two(n, "Add", h, linear(n, a, WIDTH, WIDTH));
    tacit_value wide = linear(n, h, WIDTH, 4 * WIDTH), act = node(n, "Gelu", 1, &wide);
    tacit_value y = two(n, "Add", linear(n, act, 4 * WIDTH, WIDTH), h);
    tacit_builder_output(n->b, "single", cast(n, y, TACIT_F32));
    tacit_builder_output(n->b, "half", node(n, "Neg", 1, &y));
}

static tacit_value conv(network *n, tacit_value x, int64_t in, int64_t out, int64_t side)
{
    tacit_value w = weight(n, 4, (int64_t[]){out, in, side, side}, -0.1, 0.1);
    tacit_value y = two(n, "Conv", x, w);
    tacit_builder_attr_ints(n->b, "pads", 4, (int64_t[]){side / 2, side / 2, side / 2, side / 2});
    return y;
}

/* Convolutions with batch norms to be folded into them. */
static void add_images(network *n, int64_t batch)
{
    tacit_value x = tacit_builder_input(n->b, "x", TACIT_F32, 4,
                                        (int64_t[]){batch, CHANNELS, SIDE, SIDE}, NULL);
    tacit_value h = cast(n, x, n->half);
    for (int i = 0; i < 3; i++) {
        h = conv(n, h, CHANNELS, CHANNELS, i == 1 ? 1 : 3);
        tacit_value in[5] = {h, vector(n, CHANNELS, 0.5, 1.5), vector(n, CHANNELS, -1, 1),
                             vector(n, CHANNELS, -1, 1), vector(n, CHANNELS, 0.5, 1.5)};
        h = node(n, "BatchNormalization", 5, in);
        h = node(n, "Relu", 1, &h);
    }
    tacit_value pooled = node(n, "GlobalAveragePool", 1, &h);
    tacit_builder_output(n->b, "single", cast(n, pooled, TACIT_F32));
    tacit_builder_output(n->b, "half", h);
}

typedef void add_fn(network *n, int64_t size);

static tacit_model *make(add_fn *add, int64_t size, tacit_dtype half, tacit_dtype kind)
{
    tacit_error err = {0};
    tacit_model *model = NULL;
    network n = {.r = rng_seed(7), .half = half, .kind = kind};
    if (tacit_builder_create("halves", NULL, &n.b, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    add(&n, size);
    if (tacit_builder_finish(n.b, &model, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    tacit_builder_free(n.b);
    return model;
}

typedef struct results {
    tacit_tensor out[OUTPUTS];
    uint32_t evaluated; /* thunks that have no kernel */
} results;

static uint32_t count_evaluated(const prog_program *p)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < p->n_thunks; i++)
        count += strcmp(p->thunks[i].made->kernel, "eval") == 0;
    return count;
}

static results run(const tacit_model *model, tacit_executor executor)
{
    static const char *const names[OUTPUTS] = {"single", "half"};
    tacit_error err = {0};
    tacit_program *program = NULL;
    tacit_session *session = NULL;
    tacit_compile_options o = {
        .executor = executor, .threads = 2, .validate = TACIT_VALIDATE_STRICT};
    results r = {0};
    tacit_tensor in[2] = {{0}};
    if (tacit_compile(model, &o, &program, &err) != TACIT_OK ||
        tacit_session_create(program, &session, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    uint32_t n_in = tacit_program_input_count(program);
    rng g = rng_seed(9);
    for (uint32_t i = 0; i < n_in; i++) {
        tacit_port port;
        assert_int_equal(tacit_program_input(program, i, &port), TACIT_OK);
        in[i] = (tacit_tensor){.name = port.name,
                               .dtype = port.dtype,
                               .rank = port.rank,
                               .data = malloc(port.bytes),
                               .bytes = port.bytes};
        memcpy(in[i].dims, port.dims, sizeof in[i].dims);
        for (size_t k = 0; port.dtype == TACIT_F32 && k < port.bytes / sizeof(float); k++)
            ((float *)in[i].data)[k] = (float)rng_normal(&g);
        for (size_t k = 0; port.dtype == TACIT_I64 && k < port.bytes / sizeof(int64_t); k++)
            ((int64_t *)in[i].data)[k] = (int64_t)rng_below(&g, 20);
    }
    for (int i = 0; i < OUTPUTS; i++)
        r.out[i].name = names[i];
    if (tacit_run(session, in, n_in, r.out, OUTPUTS, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    for (int i = 0; i < OUTPUTS; i++) {
        void *copy = malloc(r.out[i].bytes);
        memcpy(copy, r.out[i].data, r.out[i].bytes);
        r.out[i].data = copy;
    }
    r.evaluated = count_evaluated(api_program_prog(program));
    for (uint32_t i = 0; i < n_in; i++)
        free(in[i].data);
    tacit_session_free(session);
    tacit_program_free(program);
    return r;
}

static void forget(results *r)
{
    for (int i = 0; i < OUTPUTS; i++)
        free(r->out[i].data);
}

static void check(add_fn *add, int64_t size, tacit_dtype kind)
{
    tacit_model *half = make(add, size, kind, kind), *twin = make(add, size, TACIT_F32, kind);
    results want = run(twin, TACIT_EXEC_SERIAL);
    for (int way = 0; way < 2; way++) {
        results got = run(half, way ? TACIT_EXEC_TASKS : TACIT_EXEC_SERIAL);
        assert_int_equal(got.evaluated, want.evaluated);
        assert_int_equal(got.out[0].dtype, TACIT_F32);
        assert_int_equal(got.out[0].bytes, want.out[0].bytes);
        assert_memory_equal(got.out[0].data, want.out[0].data, want.out[0].bytes);
        assert_int_equal(got.out[1].dtype, kind);
        assert_int_equal(got.out[1].bytes * 2, want.out[1].bytes);
        const uint16_t *have = got.out[1].data;
        const float *exact = want.out[1].data;
        for (size_t i = 0; i < want.out[1].bytes / sizeof *exact; i++)
            assert_int_equal(have[i], encode(kind, (double)exact[i]));
        forget(&got);
    }
    forget(&want);
    tacit_model_free(half);
    tacit_model_free(twin);
}

static void blocks(void **state)
{
    (void)state;
    check(add_block, ROWS, TACIT_F16);
    check(add_block, ROWS, TACIT_BF16);
    check(add_block, 1, TACIT_F16); /* products of one row */
    check(add_block, 1, TACIT_BF16);
    check(add_block, 130, TACIT_F16); /* those of many */
}

static void images(void **state)
{
    (void)state;
    check(add_images, 1, TACIT_F16);
    check(add_images, 1, TACIT_BF16);
    check(add_images, 3, TACIT_F16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks),
        cmocka_unit_test(images),
    };
    return cmocka_run_group_tests_name("half precision", tests, NULL, NULL);
}
