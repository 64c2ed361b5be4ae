/* SPDX-License-Identifier: Apache-2.0
 * Byte operators of com.microsoft become the same between DequantizeLinear and QuantizeLinear,
 * which the passes for int8 models look for. */
#include "load/spelling.h"
#include "load/upgrade.h"

static ir_value *dequantized(spelling *s, ir_value *x, ir_value *scale, ir_value *zero)
{
    return spelling_put(s, "DequantizeLinear", 3, (ir_value *[]){x, scale, zero});
}

/* Inputs i, i + 1 and i + 2 are bytes, their scale and their zero point. */
static ir_value *triple(spelling *s, uint32_t i)
{
    return dequantized(s, spelling_in(s, i), spelling_in(s, i + 1), spelling_in(s, i + 2));
}

/* The zero point at input i, or none: zero, which tells bytes like `like`. */
static ir_value *zero_point(spelling *s, uint32_t i, ir_value *like)
{
    return spelling_in(s, i) ? spelling_in(s, i) : spelling_scalar(s, "zero", 0, like);
}

/* The node becomes bytes like `like` from `x`, by the scale at input i and the zero point behind.
 */
static tacit_status quantize(spelling *s, ir_value *x, uint32_t i, ir_value *like)
{
    ir_value *zero = zero_point(s, i + 1, like);
    return spelling_become(s, "", "QuantizeLinear", 3, (ir_value *[]){x, spelling_in(s, i), zero});
}

static tacit_status q_binary(spelling *s, const char *type)
{
    ir_value *y = spelling_put2(s, type, triple(s, 0), triple(s, 3));
    return quantize(s, y, 6, spelling_in(s, 0));
}

static tacit_status q_add(spelling *s)
{
    return q_binary(s, "Add");
}

static tacit_status q_mul(spelling *s)
{
    return q_binary(s, "Mul");
}

static tacit_status q_sigmoid(spelling *s)
{
    ir_value *x = triple(s, 0);
    return quantize(s, spelling_put(s, "Sigmoid", 1, &x), 3, spelling_in(s, 0));
}

static tacit_status q_leaky_relu(spelling *s)
{
    ir_value *x = triple(s, 0), *y = spelling_put(s, "LeakyRelu", 1, &x);
    spelling_set_like(s, y, 1, (const char *[]){"alpha"});
    return quantize(s, y, 3, spelling_in(s, 0));
}

static tacit_status q_softmax(spelling *s)
{
    ir_value *x = triple(s, 0), *y = spelling_put(s, "Softmax", 1, &x);
    spelling_set_like(s, y, 1, (const char *[]){"axis"});
    if (s->failed)
        return rewrite_no_memory(&s->u);
    TRY(load_upgrade(s->u.g, y->producer, ir_attr_int(s->u.node, "opset", 13), s->u.err));
    return quantize(s, y, 3, spelling_in(s, 0));
}

/* Images whose channels come last (`channels_last`, as layout optimisation leaves them) are turned
 * around the operator, in bytes. */
static ir_value *turned(spelling *s, ir_value *x, int64_t rank, bool first)
{
    int64_t order[TACIT_MAX_RANK] = {0};
    for (int64_t k = 1; k < rank; k++)
        order[k] = first ? (k == 1 ? rank - 1 : k - 1) : k == rank - 1 ? 1 : k + 1;
    ir_value *y = spelling_put(s, "Transpose", 1, &x);
    spelling_set_ints(s, y, "perm", (uint32_t)rank, order);
    return y;
}

/* The axes of the images: told by the window, the type, or as photographs have them. */
static int64_t image_rank(const spelling *s, const ir_value *like)
{
    enum { PHOTOGRAPHS = 4 };
    uint32_t n = 0;
    int64_t rank = PHOTOGRAPHS;
    if (ir_attr_ints(s->u.node, "kernel_shape", &n))
        rank = (int64_t)n + 2;
    else if (like->type.dtype != TACIT_DTYPE_NONE && like->type.shape.rank > 2)
        rank = like->type.shape.rank;
    return rank < TACIT_MAX_RANK ? rank : TACIT_MAX_RANK;
}

/* Bytes at input 0 with channels first. `*rank` is theirs, or 0 where they are not turned. */
static ir_value *image(spelling *s, const ir_value *like, bool last, int64_t *rank)
{
    *rank = last ? image_rank(s, like) : 0;
    return last ? turned(s, spelling_in(s, 0), *rank, true) : spelling_in(s, 0);
}

static bool channels_last(const spelling *s)
{
    return ir_attr_int(s->u.node, "channels_last", 0) != 0;
}

/* The node becomes `y`, with its channels where they were. */
static tacit_status image_done(spelling *s, ir_value *y, int64_t rank)
{
    return spelling_become_value(s, rank ? turned(s, y, rank, false) : y);
}

/* A pool of bytes at input 0, whose scale and zero point come behind, before those of the result.
 */
static tacit_status q_pool(spelling *s, const char *type, uint32_t n, const char *const *names)
{
    int64_t rank;
    ir_value *x = image(s, spelling_in(s, 0), channels_last(s), &rank);
    x = dequantized(s, x, spelling_in(s, 1), spelling_in(s, 2));
    ir_value *y = spelling_put(s, type, 1, &x);
    spelling_set_like(s, y, n, names);
    ir_value *zero = zero_point(s, 4, spelling_in(s, 0));
    y = spelling_put(s, "QuantizeLinear", 3, (ir_value *[]){y, spelling_in(s, 3), zero});
    return image_done(s, y, rank);
}

static tacit_status q_average_pool(spelling *s)
{
    static const char *const names[] = {"auto_pad",     "ceil_mode", "count_include_pad",
                                        "kernel_shape", "pads",      "strides"};
    return q_pool(s, "AveragePool", sizeof names / sizeof *names, names);
}

static tacit_status q_global_average_pool(spelling *s)
{
    return q_pool(s, "GlobalAveragePool", 0, NULL);
}

static tacit_status nhwc_max_pool(spelling *s)
{
    static const char *const names[] = {"auto_pad",     "ceil_mode", "dilations",
                                        "kernel_shape", "pads",      "strides"};
    int64_t rank;
    ir_value *x = image(s, spelling_in(s, 0), true, &rank), *y = spelling_put(s, "MaxPool", 1, &x);
    spelling_set_like(s, y, sizeof names / sizeof *names, names);
    return image_done(s, y, rank);
}

static tacit_status q_conv(spelling *s)
{
    static const char *const names[] = {"auto_pad",     "dilations", "group",
                                        "kernel_shape", "pads",      "strides"};
    int64_t rank;
    ir_value *inputs[9] = {image(s, spelling_in(s, 3), channels_last(s), &rank)};
    for (uint32_t i = 1; i < 9; i++)
        inputs[i] = spelling_in(s, i);
    ir_value *y = spelling_put(s, "QLinearConv", 9, inputs);
    spelling_set_like(s, y, sizeof names / sizeof *names, names);
    return image_done(s, y, rank);
}

static tacit_status q_where(spelling *s)
{
    ir_value *y =
        spelling_put(s, "Where", 3, (ir_value *[]){spelling_in(s, 0), triple(s, 1), triple(s, 4)});
    return quantize(s, y, 7, spelling_in(s, 1));
}

static tacit_status q_concat(spelling *s)
{
    uint32_t n = s->u.node->n_explicit, count = (n - 2) / 3;
    if (n < 5 || (n - 2) % 3 != 0)
        return error_set(s->u.err, TACIT_ERR_GRAPH,
                         "bytes, scales and zero points do not come in threes");
    ir_value **parts = ARENA_ARRAY(s->u.g->memory, count, ir_value *);
    if (!parts)
        return rewrite_no_memory(&s->u);
    for (uint32_t k = 0; k < count; k++)
        parts[k] = triple(s, 2 + 3 * k);
    ir_value *y = spelling_put(s, "Concat", count, parts);
    spelling_set_like(s, y, 1, (const char *[]){"axis"});
    return quantize(s, y, 0, spelling_in(s, 2));
}

/* The right side may have a scale for every column. */
static ir_value *columns(spelling *s, uint32_t i, ir_value *scale, ir_value *zero, int64_t axis)
{
    ir_value *b = dequantized(s, spelling_in(s, i), scale, zero);
    spelling_set_int(s, b, "axis", axis);
    return b;
}

/* The bias is in units of both scales and alpha. */
static tacit_status q_gemm(spelling *s)
{
    const ir_node *node = s->u.node;
    bool trans_b = ir_attr_int(node, "transB", 0) != 0;
    double alpha = ir_attr_float(node, "alpha", 1);
    ir_value *a = triple(s, 0),
             *b = columns(s, 3, spelling_in(s, 4), spelling_in(s, 5), trans_b ? 0 : 1);
    ir_value *bias = NULL;
    if (spelling_in(s, 6)) {
        ir_value *unit = spelling_put2(s, "Mul", spelling_in(s, 1), spelling_in(s, 4));
        ir_value *whole = spelling_put2(s, "CastLike", spelling_in(s, 6), spelling_in(s, 1));
        bias = spelling_put2(s, "Mul", whole,
                             spelling_put2(s, "Mul", unit, spelling_floats(s, "alpha", alpha)));
    }
    ir_value *y = spelling_put(s, "Gemm", 3, (ir_value *[]){a, b, bias});
    spelling_set_like(s, y, 3, (const char *[]){"transA", "transB", "alpha"});
    return spelling_in(s, 7) ? quantize(s, y, 7, spelling_in(s, 0)) : spelling_become_value(s, y);
}

/* Sums of bytes to numbers: times both scales, plus a bias. */
static tacit_status scaled(spelling *s, ir_value *sums, ir_value *a, ir_value *b, ir_value *bias)
{
    ir_value *y = spelling_put2(s, "Mul", spelling_put2(s, "CastLike", sums, a),
                                spelling_put2(s, "Mul", a, b));
    return spelling_become(s, "", bias ? "Add" : "Identity", 2, (ir_value *[]){y, bias});
}

static tacit_status integer_to_float(spelling *s)
{
    ir_value *sums = spelling_put(
        s, "MatMulInteger", 4,
        (ir_value *[]){spelling_in(s, 0), spelling_in(s, 1), spelling_in(s, 4), spelling_in(s, 5)});
    return scaled(s, sums, spelling_in(s, 2), spelling_in(s, 3), spelling_in(s, 6));
}

static tacit_status dynamic_matmul(spelling *s)
{
    ir_value *x = spelling_in(s, 0);
    ir_node *q = ir_node_new(s->u.g, "DynamicQuantizeLinear", "", s->u.node->name, 1, &x, 3, NULL);
    if (!q)
        return rewrite_no_memory(&s->u);
    op_resolve(NULL, q);
    ir_node_inherit_notes(s->u.g, q, s->u.node);
    ir_value *sums = spelling_put(
        s, "MatMulInteger", 4,
        (ir_value *[]){q->outputs[0], spelling_in(s, 1), q->outputs[2], spelling_in(s, 3)});
    return scaled(s, sums, q->outputs[1], spelling_in(s, 2), spelling_in(s, 4));
}

/* --- transformers in bytes -------------------------------------------------------------------- */

static tacit_status q_attention(spelling *s)
{
    ir_value *x = dequantized(s, spelling_in(s, 0), spelling_in(s, 3), spelling_in(s, 6));
    ir_value *w = columns(s, 1, spelling_in(s, 4), spelling_in(s, 7), 1);
    return spelling_become_other(
        s, "com.microsoft", "Attention", 5,
        (ir_value *[]){x, w, spelling_in(s, 2), spelling_in(s, 5), spelling_in(s, 8)});
}

static tacit_status q_embed(spelling *s)
{
    ir_value *inputs[8] = {spelling_in(s, 0), spelling_in(s, 1), NULL, NULL, NULL, NULL, NULL,
                           spelling_in(s, 7)};
    for (uint32_t k = 0; k < 5; k++)
        if (spelling_in(s, 2 + k))
            inputs[2 + k] = dequantized(s, spelling_in(s, 2 + k), spelling_in(s, 8 + k),
                                        spelling_in(s, 13 + k));
    return spelling_become_other(s, "com.microsoft", "EmbedLayerNormalization", 8, inputs);
}

/* --- the table -------------------------------------------------------------------------------- */

const spelling_row contrib_bytes[] = {
    {"DynamicQuantizeMatMul", dynamic_matmul, 0x7},
    {"MatMulIntegerToFloat", integer_to_float, 0xf},
    {"NhwcMaxPool", nhwc_max_pool, 0x1},
    {"QAttention", q_attention, 0x1f},
    {"QEmbedLayerNormalization", q_embed, 0x1b6d},
    {"QGemm", q_gemm, 0x1b},
    {"QLinearAdd", q_add, 0x5b},
    {"QLinearAveragePool", q_average_pool, 0xb},
    {"QLinearConcat", q_concat, 0xd},
    {"QLinearConv", q_conv, 0xff},
    {"QLinearGlobalAveragePool", q_global_average_pool, 0xb},
    {"QLinearLeakyRelu", q_leaky_relu, 0xb},
    {"QLinearMul", q_mul, 0x5b},
    {"QLinearSigmoid", q_sigmoid, 0xb},
    {"QLinearSoftmax", q_softmax, 0xb},
    {"QLinearWhere", q_where, 0xb7},
    {0},
};
