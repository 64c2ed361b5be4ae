/* SPDX-License-Identifier: Apache-2.0
 * Every row of the table with inputs and attributes that mostly make no sense: whatever comes back
 * is a status with a message or a well-formed result, never a touch outside a buffer (the
 * sanitised run of this test sees those). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "prog/interp.h"
#include "support/op_case.h"

enum { SEEDS = 300 };

static int64_t odd_int(rng *r)
{
    static const int64_t extremes[] = {INT64_MIN, INT64_MAX, INT64_MAX / 2, INT32_MIN, -1, 0};
    if (rng_below(r, 12) == 0)
        return extremes[rng_below(r, 6)];
    return (int64_t)rng_below(r, 9) - 3;
}

static double odd_float(rng *r)
{
    static const double extremes[] = {NAN, INFINITY, -INFINITY, 0, -0.0, 1e300, -1e-300};
    if (rng_below(r, 10) == 0)
        return extremes[rng_below(r, 7)];
    return rng_range(r, -3, 3);
}

static ir_tensor *odd_tensor(arena *a, rng *r, tacit_dtype dtype)
{
    static const char *const words[] = {"", "a", "bc", "1.5", "\xff\xfe", "two words"};
    ir_shape s = {.rank = (int32_t)rng_below(r, 5)};
    for (int32_t d = 0; d < s.rank; d++)
        s.dims[d] = (int64_t)rng_below(r, 5);
    ir_tensor *t = ir_tensor_new(a, dtype, &s);
    assert_non_null(t);
    memset(t->data, 0, t->bytes);
    for (int64_t i = 0, n = ir_tensor_count(t); i < n; i++) {
        const char *word = words[rng_below(r, 6)];
        if (dtype == TACIT_STRING)
            ((ir_string *)t->data)[i] = (ir_string){word, strlen(word)};
        else if (ir_dtype_is_int(dtype))
            ir_store_i64(dtype, t->data, i, odd_int(r));
        else
            ir_store_f64(dtype, t->data, i, odd_float(r));
    }
    return t;
}

static void odd_attributes(ir_graph *g, ir_node *node, rng *r)
{
    static const char *const ints[] = {
        "axis",         "keepdims",    "to",      "dtype",       "batch_dims",  "k",
        "upper",        "blocksize",   "group",   "num_outputs", "new_axis",    "start",
        "end",          "exclusive",   "reverse", "largest",     "hidden_size", "num_heads",
        "kv_num_heads", "q_num_heads", "bits",    "block_size",  "K",           "N",
        "ceil_mode",    "num_groups",  "dim",     "sample_size", "time_axis",   "batch_axis",
        "maxsplit",     "onesided",    "inverse"};
    static const char *const lists[] = {"axes",         "perm",           "pads",
                                        "strides",      "dilations",      "kernel_shape",
                                        "output_shape", "output_padding", "shape"};
    static const char *const floats[] = {"alpha", "beta", "epsilon",     "scale",
                                         "ratio", "low",  "temperature", "top_p"};
    static const char *const strings[][2] = {{"mode", "reflect"},
                                             {"mode", "linear"},
                                             {"auto_pad", "SAME_UPPER"},
                                             {"reduction", "add"},
                                             {"direction", "RIGHT"},
                                             {"equation", "ij,jk->ik"},
                                             {"pattern", "(a|b)*"},
                                             {"delimiter", "a"},
                                             {"direction", "bidirectional"},
                                             {"reduction", "sum"},
                                             {"activation", "relu"},
                                             {"coordinate_transformation_mode", "asymmetric"}};
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++)
        if (rng_below(r, 3) == 0)
            assert_true(ir_attr_set_int(g, node, ints[i], odd_int(r)));
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        int64_t values[8];
        uint32_t n = (uint32_t)rng_below(r, 6);
        for (uint32_t k = 0; k < n; k++)
            values[k] = odd_int(r);
        if (rng_below(r, 3) == 0)
            assert_true(ir_attr_set_ints(g, node, lists[i], n, values));
    }
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
        if (rng_below(r, 3) == 0)
            assert_true(ir_attr_set_float(g, node, floats[i], odd_float(r)));
    for (size_t i = 0; i < sizeof strings / sizeof *strings; i++)
        if (rng_below(r, 4) == 0)
            assert_true(ir_attr_set_string(g, node, strings[i][0], strings[i][1]));
}

/* A result says what it is and holds that much. */
static void check_result(const ir_tensor *t)
{
    if (t->kind != IR_TENSOR || !t->data)
        return;
    assert_true(ir_shape_is_static(&t->shape));
    assert_true(tacit_dtype_bits(t->dtype) > 0);
    volatile unsigned char sum = 0;
    for (size_t i = 0; i < t->bytes; i++)
        sum = (unsigned char)(sum + ((const unsigned char *)t->data)[i]);
}

static bool try_row(const op_def *row, uint64_t seed)
{
    static const tacit_dtype common[] = {TACIT_F32, TACIT_F32, TACIT_I64, TACIT_F64,
                                         TACIT_U8,  TACIT_I8,  TACIT_I32, TACIT_BOOL};
    rng r = rng_seed(seed);
    arena a;
    arena_init(&a, NULL);
    ir_graph *g = ir_graph_new(&a, "g");
    ir_value *values[8] = {0};
    const ir_tensor *given[8] = {0};
    uint32_t n_given = 0;
    uint32_t most = row->max_in < 0 ? (uint32_t)row->min_in + 3 : (uint32_t)row->max_in;
    most = most > 8 ? 8 : most;
    uint32_t least = row->min_in > 8 ? 8 : (uint32_t)row->min_in;
    uint32_t n = least + (uint32_t)rng_below(&r, most - least + 1);
    tacit_dtype shared = common[rng_below(&r, 8)];
    for (uint32_t i = 0; i < n; i++) {
        tacit_dtype dtype = rng_below(&r, 3) ? shared : common[rng_below(&r, 8)];
        if (rng_below(&r, 10) == 0)
            dtype = (tacit_dtype)(1 + rng_below(&r, TACIT_DTYPE_COUNT - 1));
        if (i >= least && rng_below(&r, 4) == 0)
            continue;
        const ir_tensor *t = odd_tensor(&a, &r, dtype);
        ir_type type = ir_tensor_type(t);
        if (rng_below(&r, 2)) {
            values[i] = ir_constant_new(g, NULL, t);
        } else {
            values[i] = ir_input_new(g, NULL, &type);
            given[n_given++] = t;
        }
        assert_non_null(values[i]);
    }
    uint32_t n_out = row->min_out > 0 ? (uint32_t)row->min_out : 1;
    if (row->max_out > (int)n_out)
        n_out += (uint32_t)rng_below(&r, (uint64_t)row->max_out - n_out + 1);
    else if (row->max_out < 0)
        n_out += (uint32_t)rng_below(&r, 3);
    ir_node *node =
        ir_node_new(g, row->name, row->domain ? row->domain : "", "n", n, values, n_out, NULL);
    assert_non_null(node);
    op_resolve(NULL, node);
    odd_attributes(g, node, &r);
    ir_tensor out[8] = {0};
    for (uint32_t i = 0; i < n_out && i < 8; i++)
        assert_true(ir_output_add(g, node->outputs[i]));
    tacit_error err = {0};
    tacit_status status = op_infer_graph(g, &err);
    if (status == TACIT_OK && n_out <= 8)
        status = interp_run(g, given, out, &a, 0, &err);
    if (status != TACIT_OK && !err.message[0])
        fail_msg("%s, seed %llu: status %d without a message", row->name, (unsigned long long)seed,
                 (int)status);
    for (uint32_t i = 0; status == TACIT_OK && i < n_out && i < 8; i++)
        check_result(&out[i]);
    arena_free(&a);
    return status == TACIT_OK;
}

static void no_row_can_be_led_outside_its_buffers(void **state)
{
    (void)state;
    const op_def *row;
    uint64_t ran = 0, tried = 0;
    for (uint32_t k = 0; (row = op_at(k)); k++) {
        if (!row->eval)
            continue;
        for (uint64_t seed = 0; seed < SEEDS; seed++, tried++)
            ran += try_row(row, seed * 1000 + k);
    }
    print_message("%llu of %llu odd nodes ran\n", (unsigned long long)ran,
                  (unsigned long long)tried);
    assert_true(ran > tried / 50);
}

/* test_op_hostile_nodes NAME [SEED]: one row again, perhaps one seed of it. */
static int again(const char *name, const char *seed_text)
{
    const op_def *row;
    unsigned long long only = 0;
    bool one = seed_text && sscanf(seed_text, "%llu", &only) == 1;
    for (uint32_t k = 0; (row = op_at(k)); k++)
        for (uint64_t seed = one ? only : 0; seed < (one ? only + 1 : SEEDS); seed++)
            if (strcmp(row->name, name) == 0 && row->eval) {
                fprintf(stderr, "%s %llu\n", name, (unsigned long long)seed);
                try_row(row, seed * 1000 + k);
            }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return again(argv[1], argc > 2 ? argv[2] : NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_row_can_be_led_outside_its_buffers),
    };
    return cmocka_run_group_tests_name("hostile nodes", tests, NULL, NULL);
}
