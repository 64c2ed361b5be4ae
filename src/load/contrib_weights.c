/* SPDX-License-Identifier: Apache-2.0
 * Operators of com.microsoft whose weights are kept in few bits. */
#include "load/spelling.h"

/* --- DynamicQuantizeLSTM -----------------------------------------------------------------------
 */

/* Weights of gates as LSTM has them: bytes [directions, inputs, gates] at input i, their scales
 * and zero points at `at`, one for a direction or for each of its gates. */
static ir_value *gate_weights(spelling *s, uint32_t i, uint32_t at)
{
    ir_value *scale = spelling_in(s, at), *zero = spelling_in(s, at + 1);
    ir_value *spread = spelling_ints(s, "spread", 3, (int64_t[]){0, 1, -1});
    ir_value *w = spelling_put2(s, "CastLike", spelling_in(s, i), scale);
    if (zero) {
        zero = spelling_put2(s, "Reshape", zero, spread);
        w = spelling_put2(s, "Sub", w, spelling_put2(s, "CastLike", zero, scale));
    }
    w = spelling_put2(s, "Mul", w, spelling_put2(s, "Reshape", scale, spread));
    w = spelling_put(s, "Transpose", 1, &w);
    spelling_set_ints(s, w, "perm", 3, (int64_t[]){0, 2, 1});
    return w;
}

/* ONNX Runtime rounds the rows to bytes, too, to multiply faster; here they stay as they are. */
static tacit_status dynamic_lstm(spelling *s)
{
    ir_value *inputs[8] = {spelling_in(s, 0), gate_weights(s, 1, 8), gate_weights(s, 2, 10)};
    for (uint32_t i = 3; i < 8; i++)
        inputs[i] = spelling_in(s, i);
    return spelling_become_other(s, "", "LSTM", 8, inputs);
}

/* --- GatherBlockQuantized ----------------------------------------------------------------------
 */

/* A constant of bytes that hold several elements of `bits` bits, the lowest first, as a constant of
 * those: the same bytes. Others are given back as they are. */
static ir_value *unpacked(spelling *s, ir_value *v, const char *name, int64_t bits)
{
    if (!v || v->type.dtype != TACIT_U8 || bits == 8 || s->failed)
        return v;
    ir_shape shape = v->constant->shape;
    shape.dims[shape.rank - 1] *= 8 / bits;
    ir_tensor *t = ARENA_NEW(s->u.g->memory, ir_tensor);
    if (t)
        *t = ir_tensor_view(bits == 4 ? TACIT_U4 : TACIT_U2, &shape, v->constant->data);
    return spelling_constant(s, name, t);
}

/* The zero point that unsigned weights have by themselves: half their range, for each block. */
static ir_value *middles(spelling *s, const ir_value *data, const ir_tensor *scales, int64_t bits)
{
    ir_tensor *t =
        s->failed ? NULL : ir_tensor_new(s->u.g->memory, data->type.dtype, &scales->shape);
    for (int64_t i = 0; t && i < ir_tensor_count(t); i++)
        ir_store_i64(t->dtype, t->data, i, 1 << (bits - 1));
    return spelling_constant(s, "zero", t);
}

static ir_value *gathered(spelling *s, ir_value *from, int64_t axis)
{
    ir_value *rows = spelling_put2(s, "Gather", from, spelling_in(s, 1));
    spelling_set_int(s, rows, "axis", axis);
    return rows;
}

/* Zero points of an odd number of blocks fill their last byte with one too many. */
static ir_value *as_wide(spelling *s, ir_value *zero, const ir_tensor *scales)
{
    const ir_shape *wide = &scales->shape;
    if (s->failed || zero->constant->shape.dims[wide->rank - 1] == wide->dims[wide->rank - 1])
        return zero;
    ir_value *end = spelling_ints(s, "end", 1, &wide->dims[wide->rank - 1]);
    return spelling_put(s, "Slice", 4,
                        (ir_value *[]){zero, spelling_ints(s, "begin", 1, (int64_t[]){0}), end,
                                       spelling_ints(s, "axis", 1, (int64_t[]){-1})});
}

static tacit_status gather_blocks(spelling *s)
{
    const ir_node *node = s->u.node;
    ir_value *data = spelling_in(s, 0), *scale = spelling_in(s, 2), *zero = spelling_in(s, 3);
    const ir_tensor *weights = ir_value_known(data), *scales = ir_value_known(scale);
    int64_t bits = ir_attr_int(node, "bits", 4), rank = weights ? weights->shape.rank : 0;
    int64_t axis = ir_attr_int(node, "gather_axis", 0);
    int64_t blocked = ir_attr_int(node, "quantize_axis", 1);
    int64_t block = ir_attr_int(node, "block_size", 128);
    if (!weights || !scales || (zero && !ir_value_known(zero)))
        return error_set(s->u.err, TACIT_ERR_UNSUPPORTED, "the quantised table is no constant");
    axis += axis < 0 ? rank : 0;
    blocked += blocked < 0 ? rank : 0;
    bool bytes = weights->dtype == TACIT_U8;
    if (axis < 0 || axis >= rank || blocked < 0 || blocked >= rank || axis == blocked ||
        scales->shape.rank != rank || (zero && zero->constant->shape.rank != rank) ||
        (bits != 2 && bits != 4 && bits != 8) || (bytes && bits < 8 && blocked != rank - 1))
        return error_set(s->u.err, TACIT_ERR_GRAPH,
                         "a table of rank %lld with axes %lld and %lld and %lld bits is none",
                         (long long)rank, (long long)axis, (long long)blocked, (long long)bits);
    data = unpacked(s, data, "table", bits);
    if (zero && bytes)
        zero = as_wide(s, unpacked(s, zero, "zeros", bits), scales);
    else if (bytes && !s->failed)
        zero = middles(s, data, scales, bits);
    ir_value *parts[3] = {gathered(s, data, axis), gathered(s, scale, axis),
                          zero ? gathered(s, zero, axis) : NULL};
    TRY(spelling_become(s, "", "DequantizeLinear", 3, parts));
    /* Indices of any rank take the place of one axis: counted from the nearer end it stays. */
    if (!ir_attr_set_int(s->u.g, s->u.node, "axis", blocked > axis ? blocked - rank : blocked) ||
        !ir_attr_set_int(s->u.g, s->u.node, "block_size", block))
        return rewrite_no_memory(&s->u);
    return TACIT_OK;
}

/* --- MatMulBnb4 --------------------------------------------------------------------------------
 */

/* What codes of four bits stand for: FP4, and the quantiles of a normal distribution (NF4). */
static const float levels[2][16] = {
    {0.0f, 5.208333333e-3f, 0.66666667f, 1.0f, 0.33333333f, 0.5f, 0.16666667f, 0.25f, -0.0f,
     -5.208333333e-3f, -0.66666667f, -1.0f, -0.33333333f, -0.5f, -0.16666667f, -0.25f},
    {-1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f,
     -0.28444138169288635f, -0.18477343022823334f, -0.09105003625154495f, 0.0f,
     0.07958029955625534f, 0.16093020141124725f, 0.24611230194568634f, 0.33791524171829224f,
     0.44070982933044434f, 0.5626170039176941f, 0.7229568362236023f, 1.0f},
};

/* The codes of all bytes, the upper one of each first. */
static ir_value *codes(spelling *s, ir_value *bytes)
{
    ir_value *last = spelling_ints(s, "last", 1, (int64_t[]){-1}), *pair[2];
    ir_value *sixteen = spelling_scalar(s, "sixteen", 16, bytes);
    pair[0] = spelling_put2(s, "Div", bytes, sixteen);
    pair[1] = spelling_put2(s, "Mod", bytes, sixteen);
    for (int i = 0; i < 2; i++)
        pair[i] = spelling_put2(s, "Unsqueeze", pair[i], last);
    ir_value *both = spelling_put(s, "Concat", 2, pair);
    spelling_set_int(s, both, "axis", -1);
    both = spelling_put(s, "Cast", 1, &both);
    spelling_set_int(s, both, "to", ir_dtype_to_onnx(TACIT_I32));
    return both;
}

static tacit_status matmul_bnb4(spelling *s)
{
    const ir_node *node = s->u.node;
    int64_t n = ir_attr_int(node, "N", 0), k = ir_attr_int(node, "K", 0);
    int64_t block = ir_attr_int(node, "block_size", 0), kind = ir_attr_int(node, "quant_type", 0);
    /* What it means without transB, its description and ONNX Runtime say differently. */
    if (n <= 0 || k <= 0 || block <= 0 || n > INT64_MAX / k || n * k % block != 0 || kind < 0 ||
        kind > 1 || ir_attr_int(node, "transB", 1) == 0)
        return error_set(s->u.err, TACIT_ERR_UNSUPPORTED,
                         "weights of %lld x %lld in blocks of %lld, of kind %lld or without transB",
                         (long long)n, (long long)k, (long long)block, (long long)kind);
    ir_tensor *t = ARENA_NEW(s->u.g->memory, ir_tensor);
    if (t)
        *t = ir_tensor_view(TACIT_F32, &(ir_shape){.rank = 1, .dims = {16}}, levels[kind]);
    ir_value *level = spelling_constant(s, "levels", t), *most = spelling_in(s, 2);
    ir_value *w = spelling_put2(s, "Gather", level, codes(s, spelling_in(s, 1)));
    w = spelling_put2(s, "Reshape", w, spelling_ints(s, "blocks", 2, (int64_t[]){-1, block}));
    w = spelling_put2(s, "CastLike", w, most);
    most = spelling_put2(s, "Reshape", most, spelling_ints(s, "column", 2, (int64_t[]){-1, 1}));
    w = spelling_put2(s, "Mul", w, most);
    w = spelling_put2(s, "Reshape", w, spelling_ints(s, "sizes", 2, (int64_t[]){n, k}));
    w = spelling_put(s, "Transpose", 1, &w);
    return spelling_become(s, "", "MatMul", 2, (ir_value *[]){spelling_in(s, 0), w});
}

/* --- the table -------------------------------------------------------------------------------- */

const spelling_row contrib_weights[] = {
    {"DynamicQuantizeLSTM", dynamic_lstm, 0x507},
    {"GatherBlockQuantized", gather_blocks, 0x7},
    {"MatMulBnb4", matmul_bnb4, 0x7},
    {0},
};
