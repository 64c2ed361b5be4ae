/* SPDX-License-Identifier: Apache-2.0
 * tacit ops of vision and language models that ONNX lacks: Rope, AxialRope2d, LayerNorm2d,
 * BatchNormLast, Im2Col. */
#include <math.h>
#include <string.h>

#include "op/build.h"
#include "op/elementwise.h"
#include "op/rotary.h"
#include "op/values.h"
#include "op/vjp.h"
#include "op/window.h"

/* --- Rope(x [B,S,H·D] or [S,H·D], cos, sin [positions, D/2])
 * ---------------------------------------- Pairs (i, i + rotated/2); entries past `rotated` pass.
 * The row is the position plus `offset`. */

typedef struct rope {
    int64_t batch, positions, heads, d, rotated, offset;
} rope;

static tacit_status rope_read(const ir_node *node, const ir_shape *x, const ir_shape *table,
                              rope *r, tacit_error *err)
{
    char xt[IR_SHAPE_TEXT], tt[IR_SHAPE_TEXT];
    r->d = ir_attr_int(node, "head_dim", 0);
    r->rotated = ir_attr_int(node, "rotated", r->d);
    r->offset = ir_attr_int(node, "offset", 0);
    bool fits = (x->rank == 2 || x->rank == 3) && r->d > 0 && x->dims[x->rank - 1] % r->d == 0 &&
                r->rotated >= 0 && r->rotated <= r->d && r->rotated % 2 == 0 && table->rank == 2 &&
                table->dims[1] == r->d / 2 && r->offset >= 0;
    if (fits) {
        r->batch = x->rank == 3 ? x->dims[0] : 1;
        r->positions = x->dims[x->rank - 2];
        r->heads = x->dims[x->rank - 1] / r->d;
        fits = r->offset <= table->dims[0] && r->positions <= table->dims[0] - r->offset;
    }
    return fits ? TACIT_OK
                : error_set(err, TACIT_ERR_SHAPE, "x %s and tables %s do not fit heads of %lld",
                            ir_shape_text(x, xt), ir_shape_text(table, tt), (long long)r->d);
}

static tacit_status rope_infer(op_infer *c)
{
    rope r;
    TRY(op_need_float(c, 0));
    TRY(op_check_same_dtype(c));
    TRY(rope_read(c->node, &c->in[0]->shape, &c->in[1]->shape, &r, c->err));
    TRY(op_need_shape(c, 2, 2, c->in[1]->shape.dims));
    return op_infer_same(c);
}

static tacit_status rope_eval(op_eval *c)
{
    rope r;
    double *x, *cosine, *sine;
    TRY(rope_read(c->node, &op_in(c, 0)->shape, &op_in(c, 1)->shape, &r, c->err));
    TRY(op_input_f64(c, 0, &x));
    TRY(op_input_f64(c, 1, &cosine));
    TRY(op_input_f64(c, 2, &sine));
    for (int64_t at = 0; at < r.batch * r.positions * r.heads; at++) {
        int64_t row = (at / r.heads % r.positions + r.offset) * (r.d / 2);
        op_rotate(x + at * r.d, r.rotated / 2, false, cosine + row, sine + row);
    }
    op_output_f64(c, 0, x);
    return TACIT_OK;
}

/* RotaryEmbedding, which has kernels, on [B,S,H·D] with one table row per position. */
static ir_value *build_rotary(ir_graph *g, ir_value *x, ir_value *cosine, ir_value *sine,
                              int64_t batch, int64_t positions, int64_t heads, int64_t rotated,
                              bool interleaved)
{
    ir_shape shape = ir_shape_of(2, (int64_t[]){batch, positions});
    ir_tensor *ids = ir_tensor_new(g->memory, TACIT_I64, &shape);
    for (int64_t i = 0; ids && i < batch * positions; i++)
        ((int64_t *)ids->data)[i] = i % positions;
    ir_value *in[4] = {x, cosine, sine, ids ? ir_constant_new(g, "positions", ids) : NULL};
    if (!in[0] || !in[1] || !in[2] || !in[3])
        return NULL;
    ir_node *n = op_node(g, "RotaryEmbedding", NULL, 4, in);
    return n && ir_attr_set_int(g, n, "num_heads", heads) &&
                   ir_attr_set_int(g, n, "rotary_embedding_dim", rotated) &&
                   ir_attr_set_int(g, n, "interleaved", interleaved)
               ? n->outputs[0]
               : NULL;
}

/* The rows and columns of a table that are used. */
static ir_value *cut_table(ir_graph *g, ir_value *table, const rope *r)
{
    int64_t from[2] = {r->offset, 0}, to[2] = {r->offset + r->positions, r->rotated / 2};
    return op_build3(g, "Slice", table, op_build_ints(g, 2, from), op_build_ints(g, 2, to));
}

static tacit_status rope_decompose(ir_graph *g, ir_node *node, tacit_error *err)
{
    ir_value *x = node->inputs[0];
    const ir_shape s = x->type.shape;
    rope r;
    TRY(rope_read(node, &s, &node->inputs[1]->type.shape, &r, err));
    if (r.rotated == 0)
        return error_set(err, TACIT_ERR_UNSUPPORTED, "a rotation of nothing has no simpler form");
    int64_t whole[3] = {r.batch, r.positions, r.heads * r.d};
    ir_value *y = build_rotary(g, s.rank == 3 ? x : op_build_reshape(g, x, 3, whole),
                               cut_table(g, node->inputs[1], &r), cut_table(g, node->inputs[2], &r),
                               r.batch, r.positions, r.heads, r.rotated, false);
    if (s.rank != 3)
        y = op_build_reshape(g, y, s.rank, s.dims);
    TRY(op_build_finish(g, node, 0, y, err));
    ir_node_kill(node);
    return TACIT_OK;
}

/* --- AxialRope2d(x [B,S,H·D])
 * ------------------------------------------------------------------------- S = end_x·end_y·repeat;
 * position s lies at column s mod end_x, row s/end_x (mod the grid). The first half of a head's
 * interleaved pairs turns with the column, the second with the row, pair j of each half by
 * t·theta^(−4j/D). */

typedef struct axial {
    int64_t d, heads, end_x, end_y;
    double theta;
} axial;

static tacit_status axial_read(const ir_node *node, const ir_shape *x, axial *a, tacit_error *err)
{
    char text[IR_SHAPE_TEXT];
    a->d = ir_attr_int(node, "head_dim", 0);
    a->end_x = ir_attr_int(node, "end_x", 0);
    a->end_y = ir_attr_int(node, "end_y", 0);
    a->theta = ir_attr_float(node, "theta", 10000);
    if (x->rank != 3 || a->d < 4 || a->d % 4 || x->dims[2] % a->d || a->end_x < 1 ||
        a->end_x > INT32_MAX || a->end_y < 1 || a->end_y > INT32_MAX || !(a->theta > 0) ||
        x->dims[1] % (a->end_x * a->end_y))
        return error_set(err, TACIT_ERR_SHAPE, "x %s does not fit heads of %lld on %lld×%lld",
                         ir_shape_text(x, text), (long long)a->d, (long long)a->end_x,
                         (long long)a->end_y);
    a->heads = x->dims[2] / a->d;
    return TACIT_OK;
}

static tacit_status axial_infer(op_infer *c)
{
    axial a;
    TRY(op_need_float(c, 0));
    TRY(axial_read(c->node, &c->in[0]->shape, &a, c->err));
    return op_infer_same(c);
}

/* The angle of pair j at position `at`. */
static double axial_angle(const axial *a, int64_t at, int64_t j)
{
    int64_t place = at % (a->end_x * a->end_y), quarter = a->d / 4;
    int64_t t = j < quarter ? place % a->end_x : place / a->end_x;
    return (double)t * pow(a->theta, -4.0 * (double)(j % quarter) / (double)a->d);
}

static tacit_status axial_eval(op_eval *c)
{
    const ir_shape *s = &op_in(c, 0)->shape;
    axial a;
    double *x, *cosine, *sine;
    TRY(axial_read(c->node, s, &a, c->err));
    TRY(op_input_f64(c, 0, &x));
    TRY(op_scratch_f64(c, a.d / 2, &cosine));
    TRY(op_scratch_f64(c, a.d / 2, &sine));
    for (int64_t at = 0; at < s->dims[0] * s->dims[1]; at++) {
        for (int64_t j = 0; j < a.d / 2; j++) {
            double angle = axial_angle(&a, at % s->dims[1], j);
            cosine[j] = cos(angle);
            sine[j] = sin(angle);
        }
        for (int64_t h = 0; h < a.heads; h++)
            op_rotate(x + (at * a.heads + h) * a.d, a.d / 2, true, cosine, sine);
    }
    op_output_f64(c, 0, x);
    return TACIT_OK;
}

static tacit_status axial_decompose(ir_graph *g, ir_node *node, tacit_error *err)
{
    ir_value *x = node->inputs[0], *table[2];
    const ir_shape *s = &x->type.shape;
    axial a;
    TRY(axial_read(node, s, &a, err));
    ir_shape shape = ir_shape_of(2, (int64_t[]){s->dims[1], a.d / 2});
    for (int k = 0; k < 2; k++) {
        ir_tensor *t = ir_tensor_new(g->memory, x->type.dtype, &shape);
        for (int64_t i = 0; t && i < ir_tensor_count(t); i++) {
            double angle = axial_angle(&a, i / (a.d / 2), i % (a.d / 2));
            ir_store_f64(t->dtype, t->data, i, k ? sin(angle) : cos(angle));
        }
        table[k] = t ? ir_constant_new(g, k ? "sine" : "cosine", t) : NULL;
    }
    ir_value *y =
        build_rotary(g, x, table[0], table[1], s->dims[0], s->dims[1], a.heads, a.d, true);
    TRY(op_build_finish(g, node, 0, y, err));
    ir_node_kill(node);
    return TACIT_OK;
}

/* --- LayerNorm2d(x [N,C,…], scale [C], bias [C]): over the channels of each pixel
 * ---------------------- */

static tacit_status layer_norm2d_infer(op_infer *c)
{
    const ir_shape *x = &c->in[0]->shape;
    TRY(op_need_float(c, 0));
    TRY(op_check_same_dtype(c));
    if (x->rank < 2)
        return error_set(c->err, TACIT_ERR_SHAPE, "the input needs a batch and a channel axis");
    TRY(op_need_shape(c, 1, 1, &x->dims[1]));
    TRY(op_need_shape(c, 2, 1, &x->dims[1]));
    return op_infer_same(c);
}

static tacit_status layer_norm2d_eval(op_eval *c)
{
    const ir_shape *s = &op_in(c, 0)->shape;
    int64_t channels = s->dims[1], inner = 1;
    double *x, *scale, *bias, epsilon = ir_attr_float(c->node, "epsilon", 1e-5);
    for (int32_t i = 2; i < s->rank; i++)
        inner *= s->dims[i];
    TRY(op_input_f64(c, 0, &x));
    TRY(op_input_f64(c, 1, &scale));
    TRY(op_input_f64(c, 2, &bias));
    for (int64_t p = 0; p < s->dims[0] * inner; p++) {
        double *v = x + p / inner * channels * inner + p % inner, mean = 0, squares = 0;
        for (int64_t k = 0; k < channels; k++)
            mean += v[k * inner] / (double)channels;
        for (int64_t k = 0; k < channels; k++)
            squares += (v[k * inner] - mean) * (v[k * inner] - mean);
        double f = 1 / sqrt(squares / (double)channels + epsilon);
        for (int64_t k = 0; k < channels; k++)
            v[k * inner] = (v[k * inner] - mean) * f * scale[k] + bias[k];
    }
    op_output_f64(c, 0, x);
    return TACIT_OK;
}

/* LayerNormalization with the channels moved to the end and back. */
static tacit_status layer_norm2d_decompose(ir_graph *g, ir_node *node, tacit_error *err)
{
    int32_t rank = node->inputs[0]->type.shape.rank;
    int64_t last[IR_MAX_RANK], back[IR_MAX_RANK];
    for (int32_t i = 0; i < rank; i++) {
        last[i] = i == 0 ? 0 : i == rank - 1 ? 1 : i + 1;
        back[last[i]] = i;
    }
    ir_value *x = op_build_transpose(g, node->inputs[0], rank, last);
    ir_value *y = op_build3(g, "LayerNormalization", x, node->inputs[1], node->inputs[2]);
    if (y && !ir_attr_set_float(g, y->producer, "epsilon", ir_attr_float(node, "epsilon", 1e-5)))
        y = NULL;
    TRY(op_build_finish(g, node, 0, op_build_transpose(g, y, rank, back), err));
    ir_node_kill(node);
    return TACIT_OK;
}

/* --- BatchNormLast(x […,C], scale, bias, mean, variance [C]): the channel is the last axis
 * ------------- */

static tacit_status batch_last_infer(op_infer *c)
{
    const ir_shape *x = &c->in[0]->shape;
    TRY(op_need_float(c, 0));
    TRY(op_check_same_dtype(c));
    if (x->rank < 1)
        return error_set(c->err, TACIT_ERR_SHAPE, "a scalar has no channel axis");
    for (uint32_t i = 1; i < 5; i++)
        TRY(op_need_shape(c, i, 1, &x->dims[x->rank - 1]));
    return op_infer_same(c);
}

static tacit_status batch_last_eval(op_eval *c)
{
    const ir_shape *s = &op_in(c, 0)->shape;
    int64_t channels = s->dims[s->rank - 1];
    double *v[5], epsilon = ir_attr_float(c->node, "epsilon", 1e-5);
    for (uint32_t i = 0; i < 5; i++)
        TRY(op_input_f64(c, i, &v[i]));
    for (int64_t i = 0; i < ir_shape_size(s); i++) {
        int64_t k = i % channels;
        v[0][i] = (v[0][i] - v[3][k]) / sqrt(v[4][k] + epsilon) * v[1][k] + v[2][k];
    }
    op_output_f64(c, 0, v[0]);
    return TACIT_OK;
}

static tacit_status batch_last_decompose(ir_graph *g, ir_node *node, tacit_error *err)
{
    ir_value *const *in = node->inputs;
    ir_value *epsilon = op_build_scalar(g, in[0]->type.dtype, ir_attr_float(node, "epsilon", 1e-5));
    ir_value *deviation = op_build1(g, "Sqrt", op_build2(g, "Add", in[4], epsilon));
    ir_value *scale = op_build2(g, "Div", in[1], deviation);
    ir_value *y = op_build2(g, "Mul", op_build2(g, "Sub", in[0], in[3]), scale);
    TRY(op_build_finish(g, node, 0, op_build2(g, "Add", y, in[2]), err));
    ir_node_kill(node);
    return TACIT_OK;
}

/* --- Im2Col(x [N,C,…]): window attributes of Conv → [N·positions, C·taps]
 * ------------------------------ */

static tacit_status im2col_infer(op_infer *c)
{
    const ir_shape *x = &c->in[0]->shape;
    op_window w;
    TRY(op_check_class(c, 0, OP_REAL));
    TRY(op_window_read(c->node, x, NULL, &w, c->err));
    op_set_out_dims(c, 0, c->in[0]->dtype, 2,
                    (int64_t[]){x->dims[0] * w.out_size, x->dims[1] * w.taps});
    return TACIT_OK;
}

static tacit_status im2col_eval(op_eval *c)
{
    const ir_tensor *x = op_in(c, 0);
    ir_tensor *y = op_out(c, 0);
    const int64_t *d = x->shape.dims;
    op_window w;
    int64_t *offsets;
    TRY(op_window_read(c->node, &x->shape, NULL, &w, c->err));
    TRY(op_scratch_i64(c, w.taps, &offsets));
    memset(y->data, 0, y->bytes);
    for (int64_t at = 0; at < w.out_size; at++) {
        op_window_offsets(&w, at, offsets);
        for (int64_t p = 0; p < d[0] * d[1]; p++)
            for (int64_t t = 0; t < w.taps; t++)
                if (offsets[t] >= 0)
                    ir_copy_element(x->dtype, y->data,
                                    ((p / d[1] * w.out_size + at) * d[1] + p % d[1]) * w.taps + t,
                                    x->data, p * w.in_size + offsets[t]);
    }
    return TACIT_OK;
}

#define ROW(op, inputs, infer_rule, eval_rule, decompose_rule, place, ...)                         \
    {                                                                                              \
        .name = op, .domain = "tacit", .min_in = inputs, .max_in = inputs, .min_out = 1,           \
        .max_out = 1, .infer = infer_rule, .eval = eval_rule, .decompose = decompose_rule,         \
        .inplace = place, __VA_ARGS__                                                              \
    }

const op_def op_rows_vision[] = {
    ROW("Rope", 3, rope_infer, rope_eval, rope_decompose, 1),
    ROW("AxialRope2d", 1, axial_infer, axial_eval, axial_decompose, 1),
    ROW("LayerNorm2d", 3, layer_norm2d_infer, layer_norm2d_eval, layer_norm2d_decompose, 1),
    ROW("BatchNormLast", 5, batch_last_infer, batch_last_eval, batch_last_decompose, 1),
    ROW("Im2Col", 1, im2col_infer, im2col_eval, NULL, 0, .spell = op_spell_im2col),
    {0},
};
