/* SPDX-License-Identifier: Apache-2.0
 * Every row of the table on inputs that nearly fit: shapes and types that follow the first input's,
 * attributes of every family, some values wild. Many of them run. What comes back is a result of
 * the inferred type or a status with a message (test_hostile_nodes.c tries what makes no sense at
 * all). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "op/op.h"

enum { ROUNDS = 60, MOST_INPUTS = 9, MOST_OUTPUTS = 5, LARGE = 1 << 20 };

static const char *const int_names[] = {"axis",
                                        "group",
                                        "num_heads",
                                        "kv_num_heads",
                                        "q_num_heads",
                                        "causal",
                                        "is_causal",
                                        "ceil_mode",
                                        "storage_order",
                                        "transA",
                                        "transB",
                                        "trans_a",
                                        "trans_b",
                                        "training_mode",
                                        "num_groups",
                                        "offset_group",
                                        "hidden_size",
                                        "layout",
                                        "block_size",
                                        "bits",
                                        "K",
                                        "N",
                                        "n",
                                        "block",
                                        "inverse",
                                        "onesided",
                                        "stage",
                                        "top_k",
                                        "head_dim",
                                        "rotated",
                                        "offset",
                                        "end_x",
                                        "end_y",
                                        "width",
                                        "height",
                                        "tile",
                                        "p",
                                        "size",
                                        "output_height",
                                        "output_width",
                                        "sampling_ratio",
                                        "window",
                                        "keepdims",
                                        "batch_dims",
                                        "detect_positive",
                                        "k",
                                        "to",
                                        "blocksize",
                                        "rotary_embedding_dim",
                                        "qk_matmul_output_mode",
                                        "linear_before_reset",
                                        "do_rotary",
                                        "count_include_pad",
                                        "align_corners",
                                        "periodic",
                                        "output_datatype",
                                        "output_dtype"};
static const char *const list_names[] = {
    "kernel_shape",    "strides", "dilations",    "pads",  "axes",  "output_shape",
    "output_padding",  "perm",    "pooled_shape", "shape", "split", "sizes",
    "qkv_hidden_sizes"};
static const struct {
    const char *name, *values[6];
} text_attrs[] = {{"auto_pad", {"SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET", "?", ""}},
                  {"mode", {"nearest", "linear", "cubic", "reflect", "constant", "?"}},
                  {"padding_mode", {"zeros", "border", "reflection", "?", "", "zeros"}},
                  {"reduction", {"none", "sum", "mean", "add", "mul", "?"}},
                  {"equation", {"ij,jk->ik", "...i->...", "ii", "i,i", "ab->ba", "->"}},
                  {"activation", {"relu", "gelu", "silu", "clip", "none", "?"}},
                  {"direction", {"forward", "reverse", "bidirectional", "LEFT", "?", ""}},
                  {"scheme", {"int8", "int4", "fp8", "nvfp4", "gguf", "?"}},
                  {"type", {"Q4_0", "Q4_K", "Q6_K", "Q8_0", "IQ4_XS", "?"}},
                  {"update_rule", {"linear", "gated", "delta", "gated_delta", "?", ""}},
                  {"coordinate_transformation_mode",
                   {"half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize",
                    "half_pixel_symmetric", "pytorch_half_pixel"}}};
static const tacit_dtype dtypes[] = {TACIT_F32, TACIT_F32,  TACIT_F32, TACIT_F32,   TACIT_F64,
                                     TACIT_F16, TACIT_I64,  TACIT_I64, TACIT_I32,   TACIT_U8,
                                     TACIT_I8,  TACIT_BOOL, TACIT_I4,  TACIT_F8E5M2};

#define COUNT(a) (sizeof(a) / sizeof *(a))

static int64_t hostile_int(rng *r)
{
    static const int64_t wild[] = {INT64_MAX, INT64_MIN, INT32_MAX, -1, 1000003};
    return rng_below(r, 40) == 0 ? wild[rng_below(r, COUNT(wild))] : (int64_t)rng_below(r, 7) - 1;
}

static ir_shape hostile_shape(rng *r, const ir_shape *like)
{
    if (like && rng_below(r, 3) == 0)
        return *like;
    static const int ranks[] = {0, 1, 1, 2, 2, 3, 3, 3, 4, 4, 4, 5, 8};
    ir_shape s = {.rank = ranks[rng_below(r, COUNT(ranks))]};
    for (int32_t i = 0; i < s.rank; i++)
        s.dims[i] = s.rank > 5 ? 1 + (int64_t)rng_below(r, 2) : (int64_t)rng_below(r, 6);
    for (int32_t i = 0; like && i < s.rank && i < like->rank; i++)
        if (rng_below(r, 2) && like->rank <= 5)
            s.dims[s.rank - 1 - i] = like->dims[like->rank - 1 - i];
    return s;
}

static ir_tensor *hostile_tensor(rng *r, arena *a, const ir_shape *like)
{
    ir_shape s = hostile_shape(r, like);
    tacit_dtype dtype = dtypes[rng_below(r, rng_below(r, 3) ? 6 : COUNT(dtypes))];
    ir_tensor *t = ir_tensor_new(a, dtype, &s);
    assert_non_null(t);
    memset(t->data, 0, t->bytes);
    for (int64_t i = 0; i < ir_tensor_count(t); i++)
        if (ir_dtype_is_float(dtype))
            ir_store_f64(dtype, t->data, i, rng_below(r, 30) ? rng_range(r, -3, 3) : 1e30);
        else
            ir_store_i64(dtype, t->data, i,
                         dtype == TACIT_BOOL ? (int64_t)rng_below(r, 2) : hostile_int(r));
    return t;
}

static void hostile_attrs(rng *r, ir_graph *g, ir_node *node)
{
    for (uint64_t n = rng_below(r, 6); n-- > 0;)
        assert_true(
            ir_attr_set_int(g, node, int_names[rng_below(r, COUNT(int_names))], hostile_int(r)));
    for (uint64_t n = rng_below(r, 4); n-- > 0;) {
        int64_t values[8];
        uint32_t count = (uint32_t)rng_below(r, 7);
        for (uint32_t i = 0; i < count; i++)
            values[i] = hostile_int(r);
        assert_true(
            ir_attr_set_ints(g, node, list_names[rng_below(r, COUNT(list_names))], count, values));
    }
    for (uint64_t n = rng_below(r, 3); n-- > 0;) {
        size_t k = rng_below(r, COUNT(text_attrs));
        assert_true(
            ir_attr_set_string(g, node, text_attrs[k].name, text_attrs[k].values[rng_below(r, 6)]));
    }
}

static bool too_large(const ir_node *node)
{
    for (uint32_t i = 0; i < node->n_outputs; i++) {
        size_t bytes;
        const ir_type *t = &node->outputs[i]->type;
        if (ir_type_is_static(t) && ir_type_bytes(t, &bytes) && bytes > LARGE)
            return true;
    }
    return false;
}

/* True when the evaluator ran to a result. */
static bool try_row(const op_def *row, rng *r)
{
    arena a;
    arena_init(&a, NULL);
    ir_graph *g = ir_graph_new(&a, "hostile");
    const ir_tensor *in[MOST_INPUTS] = {0};
    ir_value *values[MOST_INPUTS] = {0};
    tacit_error err = {0};
    uint32_t least = (uint32_t)row->min_in,
             most = row->max_in < 0 ? least + 2 : (uint32_t)row->max_in;
    most = most > MOST_INPUTS ? MOST_INPUTS : most;
    uint32_t n_in = least + (uint32_t)rng_below(r, most >= least ? most - least + 1 : 1);
    uint32_t n_out = (uint32_t)row->min_out;
    if (row->max_out > row->min_out)
        n_out += (uint32_t)rng_below(r, (uint64_t)(row->max_out - row->min_out) + 1);
    n_out = n_out > MOST_OUTPUTS ? MOST_OUTPUTS : n_out;
    n_in = n_in > MOST_INPUTS ? MOST_INPUTS : n_in;
    for (uint32_t i = 0; i < n_in; i++) {
        if (i >= least && rng_below(r, 3) == 0)
            continue;
        ir_tensor *t = hostile_tensor(r, &a, i && in[0] ? &in[0]->shape : NULL);
        if (i && in[0] && rng_below(r, 4) && t->dtype != in[0]->dtype) {
            ir_tensor *same = ir_tensor_new(&a, in[0]->dtype, &t->shape);
            assert_non_null(same);
            memset(same->data, 0, same->bytes);
            for (int64_t k = 0; k < ir_tensor_count(t); k++)
                ir_store_i64(same->dtype, same->data, k, (int64_t)rng_below(r, 2));
            t = same;
        }
        in[i] = t;
        values[i] = ir_constant_new(g, "in", t);
    }
    ir_node *node = ir_node_new(g, row->name, row->domain ? row->domain : "", "node", n_in, values,
                                n_out, NULL);
    assert_non_null(node);
    hostile_attrs(r, g, node);
    node->op = row;
    ir_tensor out[MOST_OUTPUTS] = {0};
    op_exec_env env = {.memory = &a};
    tacit_status status = op_infer_node(g, node, &err);
    bool ran = status == TACIT_OK && row->eval && !too_large(node);
    if (ran)
        status = op_execute(node, in, out, &env, &err);
    if (status != TACIT_OK)
        assert_true(err.message[0] != 0); /* every refusal says why */
    for (uint32_t i = 0; ran && status == TACIT_OK && i < n_out; i++)
        if (ir_type_is_static(&node->outputs[i]->type)) {
            ir_type have = ir_tensor_type(&out[i]);
            if (!ir_type_equal(&have, &node->outputs[i]->type))
                fail_msg("%s: output %u differs from its inferred type", row->name, i);
        }
    arena_free(&a);
    return ran && status == TACIT_OK;
}

static void every_row_survives(void **state)
{
    (void)state;
    const char *seed_text = getenv("TACIT_SEED"), *only = getenv("TACIT_ROW");
    uint64_t seed = seed_text ? strtoull(seed_text, NULL, 10) : 1;
    uint64_t ran = 0;
    for (uint32_t i = 0; op_at(i); i++) {
        const op_def *row = op_at(i);
        if (row->flags & OP_CONTROL || (only && strcmp(only, row->name)))
            continue;
        for (uint64_t round = 0; round < ROUNDS; round++) {
            rng r = rng_seed(seed * 1000003 + round * 1009 + i);
            if (getenv("TACIT_TRACE"))
                fprintf(stderr, "%s round %llu\n", row->name, (unsigned long long)round);
            ran += try_row(row, &r);
        }
    }
    print_message("seed %llu: %llu evaluations came to a result\n", (unsigned long long)seed,
                  (unsigned long long)ran);
    assert_true(only || ran > 500); /* not everything may be refused */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_row_survives)};
    return cmocka_run_group_tests_name("op nearly right", tests, NULL, NULL);
}
