/* SPDX-License-Identifier: Apache-2.0
 * What thunks hand over to one another changes no bit: runs that are watched do without it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "api/internal.h"
#include "base/cpu.h"
#include "base/rng.h"

enum { ROWS = 16 };

typedef enum opening { AS_IT_IS, NORM, RMS, NORM_OF_SUM } opening;

typedef struct network {
    opening opening;
    int64_t width, hidden, last;
    bool read_twice; /* what could be handed over has another reader */
} network;

static tacit_value constant(tacit_builder *b, rng *r, int32_t rank, int64_t rows, int64_t columns,
                            double size)
{
    int64_t dims[] = {rows, columns};
    float *data = malloc((size_t)(rows * columns) * sizeof *data);
    for (int64_t i = 0; i < rows * columns; i++)
        data[i] = (float)(size * rng_normal(r));
    tacit_value v =
        tacit_builder_constant(b, NULL, TACIT_F32, rank, rank == 1 ? dims + 1 : dims, data);
    free(data);
    return v;
}

static tacit_value node(tacit_builder *b, const char *op, uint32_t n, const tacit_value *inputs)
{
    return tacit_builder_node(b, op, n, inputs, 1, NULL);
}

static tacit_value product(tacit_builder *b, rng *r, tacit_value x, int64_t k, int64_t n)
{
    tacit_value w = constant(b, r, 2, k, n, 1 / sqrt((double)k));
    tacit_value sum = node(b, "MatMul", 2, (tacit_value[]){x, w});
    return node(b, "Add", 2, (tacit_value[]){sum, constant(b, r, 1, 1, n, 0.1)});
}

static tacit_value open_with(tacit_builder *b, rng *r, const network *n, tacit_value x)
{
    tacit_value scale = constant(b, r, 1, 1, n->width, 1);
    if (n->opening == AS_IT_IS)
        return x;
    if (n->opening == RMS)
        return node(b, "RMSNormalization", 2, (tacit_value[]){x, scale});
    if (n->opening == NORM_OF_SUM)
        x = node(b, "Add", 2, (tacit_value[]){x, node(b, "Abs", 1, &x)});
    tacit_value bias = constant(b, r, 1, 1, n->width, 1);
    return node(b, "LayerNormalization", 3, (tacit_value[]){x, scale, bias});
}

/* A norm, a product with GELU and a product. */
static tacit_model *make(const network *n, uint64_t seed)
{
    rng r = rng_seed(seed);
    tacit_error err = {0};
    tacit_builder *b = NULL;
    tacit_model *model = NULL;
    int64_t dims[] = {ROWS, n->width};
    assert_int_equal(tacit_builder_create("handover", NULL, &b, &err), TACIT_OK);
    tacit_value x = tacit_builder_input(b, "x", TACIT_F32, 2, dims, NULL);
    tacit_value start = open_with(b, &r, n, x);
    tacit_value wide = product(b, &r, start, n->width, n->hidden);
    tacit_value active = node(b, "Gelu", 1, &wide);
    tacit_builder_attr_string(b, "approximate", "tanh");
    tacit_builder_output(b, "y", product(b, &r, active, n->hidden, n->last));
    if (n->read_twice)
        tacit_builder_output(b, "active", node(b, "Neg", 1, &active));
    if (tacit_builder_finish(b, &model, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    tacit_builder_free(b);
    return model;
}

static void look(void *context, const char *name, const char *op, const char *value,
                 const tacit_tensor *tensor)
{
    (void)name, (void)op, (void)value, (void)tensor;
    ++*(int *)context;
}

static tacit_tensor rows_of(const char *name, int64_t width, float *data)
{
    return (tacit_tensor){.name = name,
                          .dtype = TACIT_F32,
                          .rank = 2,
                          .dims = {ROWS, width},
                          .data = data,
                          .bytes = (size_t)(ROWS * width) * sizeof *data};
}

static void run(tacit_session *s, float *x, int64_t width, float *y, int64_t last)
{
    tacit_error err = {0};
    tacit_tensor in = rows_of("x", width, x), out = rows_of("y", last, y);
    if (tacit_run(s, &in, 1, &out, 1, &err) != TACIT_OK)
        fail_msg("%s", err.message);
}

/* Rows alike, of different sizes, and rows that cannot be scaled. */
enum { KINDS = 8 };
static void fill(float *x, int64_t width, int kind, rng *r)
{
    double size = kind == 1 ? 0.01 : kind == 2 ? 40 : kind == 3 ? 1e-30 : 1;
    for (int64_t i = 0; i < ROWS * width; i++) {
        double row = kind == 4 ? ldexp(1, (int)(i / width) * 3 - 24) : 1;
        x[i] = (float)(size * row * rng_normal(r));
    }
    int64_t row = (int64_t)rng_below(r, ROWS);
    for (int64_t i = 0; kind == 5 && i < width; i++)
        x[row * width + i] = 0;
    if (kind == 6)
        x[row * width] = INFINITY;
    if (kind == 7)
        x[row * width + 1] = NAN;
}

/* Gives how many thunks hand something over. */
static uint32_t check(const network *n, uint64_t seed)
{
    tacit_error err = {0};
    tacit_model *model = make(n, seed);
    tacit_program *program = NULL;
    tacit_session *session = NULL;
    if (tacit_compile(model, NULL, &program, &err) != TACIT_OK ||
        tacit_session_create(program, &session, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    rng r = rng_seed(seed + 1);
    size_t bytes = (size_t)(ROWS * n->last) * sizeof(float);
    float *x = malloc((size_t)(ROWS * n->width) * sizeof *x), *y = malloc(bytes),
          *z = malloc(bytes);
    for (int kind = 0; kind < KINDS; kind++) {
        int seen = 0;
        fill(x, n->width, kind, &r);
        memset(y, 0xff, bytes);
        run(session, x, n->width, y, n->last);
        tacit_session_watch(session, look, &seen);
        run(session, x, n->width, z, n->last);
        tacit_session_watch(session, NULL, NULL);
        assert_true(seen > 0);
        assert_memory_equal(y, z, bytes);
    }
    const prog_program *p = api_program_prog(program);
    uint32_t handed = 0;
    for (uint32_t i = 0; p->handed && i < p->n_thunks; i++)
        handed += p->handed[i] != OP_HANDS_NOTHING;
    free(x), free(y), free(z);
    tacit_session_free(session);
    tacit_program_free(program);
    tacit_model_free(model);
    return handed;
}

/* Are there kernels that hand over on this machine? */
static bool is_able(void)
{
    cpu_features cpu = cpu_detect();
    return cpu.isa == CPU_AVX512 && cpu.adds_beside_fma;
}

static void the_same_bits(void **state)
{
    (void)state;
    bool able = is_able();
    const int64_t widths[] = {64, 96, 128, 100}, hidden[] = {256, 192, 128, 100, 320};
    for (opening o = AS_IT_IS; o <= NORM_OF_SUM; o++)
        for (uint64_t i = 0; i < 4; i++)
            for (uint64_t k = 0; k < 5; k++) {
                network n = {o, widths[i], hidden[k], k % 2 ? 64 : 100, false};
                uint32_t handed = check(&n, 20 * i + k);
                bool rows = able && o != AS_IT_IS && n.width % 32 == 0;
                bool activated = able && n.hidden % 64 == 0 && n.hidden <= 256;
                assert_int_equal(handed, rows + activated);
            }
}

static void other_readers(void **state)
{
    (void)state;
    network n = {NORM, 64, 256, 64, true};
    assert_int_equal(check(&n, 1), is_able()); /* the norm alone */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_bits),
        cmocka_unit_test(other_readers),
    };
    return cmocka_run_group_tests_name("handover", tests, NULL, NULL);
}
