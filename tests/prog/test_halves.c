/* SPDX-License-Identifier: Apache-2.0
 * Models in half precision: they compute what the same model in f32 does with the same weights, bit
 * for bit, and round where the model says what it returns. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "api/internal.h"
#include "base/half.h"
#include "base/rng.h"
#include "base/sbuf.h"

enum { ROWS = 6, WIDTH = 192, CHANNELS = 64, SIDE = 10, OUTPUTS = 2 };

typedef struct network {
    tacit_builder *b;
    rng r;
    tacit_dtype half; /* F32: the twin */
    tacit_dtype kind; /* of the halves, in the twin too: its weights have their values */
    uint32_t outputs;
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

/* Weights that lie at odd addresses. */
static uint32_t count_odd(const tacit_model *m)
{
    uint32_t odd = 0;
    tacit_port port;
    const void *data;
    for (uint32_t i = 0; tacit_model_weight(m, i, &port, &data) == TACIT_OK; i++)
        odd += (uintptr_t)data % 2;
    return odd;
}

/* The model from a file, with all large weights one byte off from where we put them (`odd`): a
 * field that says who made the model comes before everything else, too. */
static tacit_model *reloaded(const tacit_model *m, bool odd)
{
    static const char field[] = {0x1a, 3, 'a', 'b', 'c'};
    char path[] = "/tmp/tacit-halves-XXXXXX.onnx";
    tacit_error err = {0};
    tacit_model *back = NULL;
    sbuf bytes;
    sbuf_init(&bytes, NULL);
    assert_int_equal(load_onnx_encode(m->graph, &bytes, &err), TACIT_OK);
    FILE *f = fdopen(mkstemps(path, 5), "wb");
    assert_non_null(f);
    if (odd)
        assert_int_equal(fwrite(field, 1, sizeof field, f), sizeof field);
    assert_int_equal(fwrite(bytes.data, 1, bytes.length, f), bytes.length);
    assert_int_equal(fclose(f), 0);
    sbuf_free(&bytes);
    if (tacit_model_load(path, NULL, &back, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    unlink(path);
    assert_int_equal(count_odd(back) > 0, odd);
    return back;
}

static void check(add_fn *add, int64_t size, tacit_dtype kind)
{
    tacit_model *half = make(add, size, kind, kind), *twin = make(add, size, TACIT_F32, kind);
    tacit_model *odd = reloaded(half, true);
    results want = run(twin, TACIT_EXEC_SERIAL);
    for (int way = 0; way < 4; way++) {
        results got = run(way < 2 ? half : odd, way % 2 ? TACIT_EXEC_TASKS : TACIT_EXEC_SERIAL);
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
    tacit_model_free(odd);
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

/* --- halves that lie at odd addresses, read by all kinds of ops ---------------------------------
 */

enum { HIGH = 48, WIDE = 64 }; /* of a weight that is large enough not to be copied */

/* A branch of If: `op` of what it captures, plus a weight of its own. */
static tacit_model *branch(const char *op, tacit_dtype kind)
{
    network n = {.r = rng_seed(3), .half = kind, .kind = kind};
    tacit_model *body = NULL;
    assert_int_equal(tacit_builder_create("branch", NULL, &n.b, NULL), TACIT_OK);
    tacit_value w = tacit_builder_input(n.b, "w", kind, 2, (int64_t[]){HIGH, WIDE}, NULL);
    tacit_value own = weight(&n, 2, (int64_t[]){HIGH, WIDE}, -1, 1);
    tacit_builder_output(n.b, "y", two(&n, "Add", node(&n, op, 1, &w), own));
    assert_int_equal(tacit_builder_finish(n.b, &body, NULL), TACIT_OK);
    tacit_builder_free(n.b);
    return body;
}

static tacit_value integers(network *n, int64_t count, const int64_t *values)
{
    return tacit_builder_constant(n->b, NULL, TACIT_I64, 1, &count, values);
}

static void add_branches(network *n, tacit_value w)
{
    tacit_model *yes = branch("Neg", n->kind), *no = branch("Abs", n->kind);
    tacit_value c = tacit_builder_input(n->b, "choice", TACIT_BOOL, 0, NULL, NULL);
    tacit_value y = node(n, "If", 1, &c);
    tacit_builder_attr_graph(n->b, "then_branch", yes, 1, &w);
    tacit_builder_attr_graph(n->b, "else_branch", no, 1, &w);
    tacit_builder_output(n->b, "branched", y);
    tacit_model_free(yes);
    tacit_model_free(no);
}

static void output(network *n, tacit_value v)
{
    static const char *const names[] = {"o0",  "o1",  "o2",  "o3",  "o4",  "o5",
                                        "o6",  "o7",  "o8",  "o9",  "o10", "o11",
                                        "o12", "o13", "o14", "o15", "o16", "o17"};
    assert_true(n->outputs < sizeof names / sizeof *names);
    tacit_builder_output(n->b, names[n->outputs++], v);
}

/* Places of the weight are moved, chosen, written, compared, rounded, summed. */
static void add_readers(network *n, int64_t size)
{
    int64_t dims[2] = {HIGH, WIDE}, one[2] = {1, HIGH};
    tacit_value w = weight(n, 2, dims, -1, 1);
    tacit_value x = tacit_builder_input(n->b, "x", TACIT_F32, 2, dims, NULL);
    tacit_value row = tacit_builder_input(n->b, "row", TACIT_F32, 2, one, NULL);
    tacit_value ids = tacit_builder_input(n->b, "ids", TACIT_I64, 1, &size, NULL);
    tacit_value h = cast(n, x, n->half);
    output(n, node(n, "Identity", 1, &w));
    output(n, turned(n, w));
    output(n, node(n, "Concat", 2, (tacit_value[]){w, h}));
    tacit_builder_attr_int(n->b, "axis", 1);
    output(n, two(n, "Gather", w, ids));
    output(n, two(n, "Gather", w, ids));
    tacit_builder_attr_int(n->b, "axis", 1);
    tacit_value cut[5] = {w, integers(n, 2, (int64_t[]){1, 3}), integers(n, 2, (int64_t[]){40, 60}),
                          integers(n, 2, (int64_t[]){0, 1}), integers(n, 2, (int64_t[]){3, 2})};
    output(n, node(n, "Slice", 5, cut));
    output(n, two(n, "Pad", w, integers(n, 4, (int64_t[]){1, 2, 3, 4})));
    output(n, two(n, "Tile", w, integers(n, 2, (int64_t[]){2, 3})));
    output(n, two(n, "Less", w, h));
    output(n, node(n, "Where", 3, (tacit_value[]){two(n, "Less", w, h), w, h}));
    tacit_value rows = integers(n, 3, (int64_t[]){9, 0, 40});
    tacit_value at = two(n, "Reshape", rows, integers(n, 2, (int64_t[]){3, 1}));
    output(n, node(n, "ScatterND", 3, (tacit_value[]){w, at, two(n, "Gather", h, rows)}));
    output(n, node(n, "ScatterND", 3, (tacit_value[]){h, at, two(n, "Gather", w, rows)}));
    output(n, two(n, "Add", two(n, "Mul", h, w), w));
    output(n, node(n, "Erf", 1, &w));
    output(n, two(n, "ReduceSum", w, integers(n, 1, (int64_t[]){0})));
    output(n, two(n, "MatMul", cast(n, row, n->half), w));
    output(n, two(n, "MatMul", row, cast(n, w, TACIT_F32)));
    output(n, two(n, "MatMul", two(n, "MatMul", h, turned(n, w)), w));
    add_branches(n, w);
}
typedef struct bytes {
    unsigned char *data;
    size_t size;
} bytes;

/* All outputs, one behind the other. */
static bytes run_readers(const tacit_model *m, tacit_compile_options o, unsigned char condition)
{
    static float x[HIGH * WIDE], row[HIGH];
    static int64_t ids[] = {3, 0, 40, 7, 3};
    tacit_program *p = NULL;
    tacit_session *s = NULL;
    tacit_error err = {0};
    tacit_tensor out[20] = {{0}};
    rng r = rng_seed(5);
    for (int i = 0; i < HIGH * WIDE; i++)
        x[i] = (float)rng_normal(&r);
    memcpy(row, x + 9, sizeof row);
    tacit_tensor in[] = {
        {.name = "x", .dtype = TACIT_F32, .rank = 2, .dims = {HIGH, WIDE}, .data = x},
        {.name = "row", .dtype = TACIT_F32, .rank = 2, .dims = {1, HIGH}, .data = row},
        {.name = "ids", .dtype = TACIT_I64, .rank = 1, .dims = {5}, .data = ids},
        {.name = "choice", .dtype = TACIT_BOOL, .data = &condition},
    };
    size_t sizes[] = {sizeof x, sizeof row, sizeof ids, sizeof condition};
    for (int i = 0; i < 4; i++)
        in[i].bytes = sizes[i];
    if (tacit_compile(m, &o, &p, &err) != TACIT_OK || tacit_session_create(p, &s, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    uint32_t n = tacit_program_output_count(p);
    assert_true(n <= sizeof out / sizeof *out);
    if (tacit_run(s, in, sizeof in / sizeof *in, out, n, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    bytes all = {0};
    for (uint32_t i = 0; i < n; i++)
        all.size += out[i].bytes;
    all.data = malloc(all.size);
    assert_non_null(all.data);
    for (size_t i = 0, at = 0; i < n; at += out[i++].bytes)
        memcpy(all.data + at, out[i].data, out[i].bytes);
    tacit_session_free(s);
    tacit_program_free(p);
    return all;
}

/* Wherever the weights lie in the file, every executor makes the same of them. */
static void check_readers(tacit_dtype kind)
{
    static const char *const all[] = {"all"};
    static const tacit_compile_options ways[] = {
        {.executor = TACIT_EXEC_SERIAL, .validate = TACIT_VALIDATE_STRICT},
        {.executor = TACIT_EXEC_TASKS, .threads = 2},
        {.executor = TACIT_EXEC_SERIAL, .disabled_passes = all, .n_disabled_passes = 1},
        {.executor = TACIT_EXEC_REFERENCE},
    };
    tacit_model *made = make(add_readers, 5, kind, kind);
    tacit_model *even = reloaded(made, false), *odd = reloaded(made, true);
    for (size_t i = 0; i < 2 * sizeof ways / sizeof *ways; i++) {
        bytes want = run_readers(even, ways[i / 2], i % 2);
        bytes got = run_readers(odd, ways[i / 2], i % 2);
        assert_int_equal(got.size, want.size);
        assert_memory_equal(got.data, want.data, want.size);
        free(want.data);
        free(got.data);
    }
    tacit_model_free(even);
    tacit_model_free(odd);
    tacit_model_free(made);
}

static void odd_addresses(void **state)
{
    (void)state;
    check_readers(TACIT_F16);
    check_readers(TACIT_BF16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks),
        cmocka_unit_test(images),
        cmocka_unit_test(odd_addresses),
    };
    return cmocka_run_group_tests_name("half precision", tests, NULL, NULL);
}
