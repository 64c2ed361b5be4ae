/* SPDX-License-Identifier: Apache-2.0
 * Layers of language models and quantised tensors in simpler ops. */
#include <math.h>
#include <string.h>

#include "op/quant.h"
#include "op/spell.h"
#include "op/vjp.h"

/* The last k − 1 inputs are carried over: a convolution of past and present. */
tacit_status op_spell_causal_conv(op_diff *c, ir_value **out)
{
    const ir_node *n = c->node;
    ir_value *x = n->inputs[0], *w = n->inputs[1], *bias = op_spell_input(c, 2);
    ir_value *past = op_spell_input(c, 3);
    const int64_t *d = x->type.shape.dims;
    int64_t k = w->type.shape.dims[2];
    ir_value *line = past ? op_spell_concat(c, 2, (ir_value *[]){past, x}, 2)
                          : op_spell_padded(c, x, 2, k - 1, 0);
    ir_value *in[3] = {line, w, bias};
    ir_value *y = op_diff_attr_int(c, op_diff_open(c, "Conv", bias ? 3 : 2, in), "group", d[1]);
    if (strcmp(ir_attr_string(n, "activation", "none"), "none") != 0)
        y = op_spell_mul(c, y, op_diff1(c, "Sigmoid", y));
    out[0] = y;
    if (n->n_outputs > 1)
        out[1] = op_spell_slice(c, line, 2, d[2], d[2] + k - 1);
    return c->status;
}

/* [B, S, H·D] → [S, B, dims…] */
static ir_value *by_step(op_diff *c, ir_value *x, int32_t rank, const int64_t *dims)
{
    if (!x)
        return NULL;
    ir_shape s = {.rank = rank + 2, .dims = {x->type.shape.dims[1], x->type.shape.dims[0]}};
    memcpy(s.dims + 2, dims, (size_t)rank * sizeof *dims);
    return op_diff_reshape(c, op_diff_transpose(c, x, (int64_t[]){1, 0, 2}), &s);
}

/* S ← e^decay·S; S += k ⊗ write; y = scale·qᵀS, where the delta rule writes β(v − kᵀS) and the
 * plain one v. Query heads of a group share a state. */
tacit_status op_spell_linear_attention(op_diff *c, ir_value **out)
{
    const ir_node *n = c->node;
    ir_value *q = n->inputs[0], *v = n->inputs[2], *first = op_spell_input(c, 3);
    ir_value *decay = op_spell_input(c, 4), *beta = op_spell_input(c, 5);
    int64_t heads = ir_attr_int(n, "q_num_heads", 1), kv = ir_attr_int(n, "kv_num_heads", 1);
    int64_t batch = q->type.shape.dims[0], steps = q->type.shape.dims[1], group = heads / kv;
    int64_t dk = q->type.shape.dims[2] / heads, dv = v->type.shape.dims[2] / kv;
    double scale = ir_attr_float(n, "scale", 0);
    tacit_dtype dtype = q->type.dtype;
    ir_type state = ir_type_tensor(dtype, 4, (int64_t[]){batch, kv, dk, dv});
    op_scan_build b;
    if (!op_scan_begin(&b, c))
        return c->status;
    ir_value *s =
        op_scan_carry(&b, first ? op_diff_cast(c, first, dtype) : op_diff_zeros(c, &state));
    ir_value *qt = op_scan_x(&b, by_step(c, q, 3, (int64_t[]){kv, group, dk}));
    ir_value *kt = op_scan_x(&b, by_step(c, n->inputs[1], 3, (int64_t[]){kv, 1, dk}));
    ir_value *vt = op_scan_x(&b, by_step(c, v, 3, (int64_t[]){kv, 1, dv}));
    op_diff *in = &b.body;
    if (decay) {
        int64_t per = decay->type.shape.dims[2] / kv;
        ir_value *g = op_scan_x(&b, by_step(c, decay, 3, (int64_t[]){kv, per, 1}));
        s = op_spell_mul(in, s, op_diff1(in, "Exp", g));
    }
    if (beta) {
        int64_t last = beta->type.shape.dims[2];
        ir_value *bt = op_scan_x(&b, by_step(c, beta, 3, (int64_t[]){last, 1, 1}));
        vt = op_spell_mul(in, op_spell_sub(in, vt, op_spell_matmul(in, kt, s)), bt);
    }
    s = op_spell_add(in, s, op_spell_matmul(in, op_diff_swap_last(in, kt), vt));
    b.next[0] = s;
    b.step[b.n_step++] =
        op_diff_scale(in, op_spell_matmul(in, qt, s), scale == 0 ? 1 / sqrt((double)dk) : scale);
    ir_node *scan = op_scan_end(&b);
    if (!scan)
        return c->status;
    ir_value *y = op_spell_shaped(c, scan->outputs[1], 3, (int64_t[]){steps, batch, heads * dv});
    out[0] = op_diff_transpose(c, y, (int64_t[]){1, 0, 2});
    if (n->n_outputs > 1)
        out[1] = op_diff_cast(c, scan->outputs[0], first ? first->type.dtype : dtype);
    return c->status;
}

/* Sums of table rows, normalised. */
tacit_status op_spell_embed(op_diff *c, ir_value **out)
{
    const ir_node *n = c->node;
    ir_value *ids = n->inputs[0], *segments = op_spell_input(c, 1), *mask = op_spell_input(c, 7);
    ir_value *at = op_spell_input(c, 8);
    int64_t length = ids->type.shape.dims[1];
    int64_t *count = op_spell_scratch(c, (size_t)(length + 1) * sizeof *count);
    for (int64_t i = 0; count && i < length; i++)
        count[i] = i;
    if (!at)
        at = count ? op_spell_ints(c, 2, (int64_t[]){1, length}, count) : NULL;
    ir_value *sum = op_spell_add(c, op_spell_gather(c, n->inputs[2], ids, 0),
                                 op_spell_gather(c, n->inputs[3], at, 0));
    if (segments)
        sum = op_spell_add(c, sum, op_spell_gather(c, n->inputs[4], segments, 0));
    ir_value *norm =
        op_diff_open(c, "LayerNormalization", 3, (ir_value *[]){sum, n->inputs[5], n->inputs[6]});
    if (norm &&
        !ir_attr_set_float(c->graph, norm->producer, "epsilon", ir_attr_float(n, "epsilon", 1e-12)))
        return c->status = error_memory(c->err, "a derivative graph");
    out[0] = norm ? op_diff_attr_int(
                        c, norm, "stash_type",
                        ir_dtype_to_onnx(sum->type.dtype == TACIT_F64 ? TACIT_F64 : TACIT_F32))
                  : NULL;
    if (n->n_outputs > 1) {
        ir_type none = ir_type_tensor(TACIT_I32, 1, ids->type.shape.dims);
        ir_value *seen =
            mask ? op_diff_cast(c, op_diff_cast(c, mask, TACIT_BOOL), TACIT_I32) : NULL;
        out[1] = mask ? op_spell_reduce(c, "ReduceSum", seen, 1, false) : op_diff_zeros(c, &none);
    }
    if (n->n_outputs > 2)
        out[2] = sum;
    return c->status;
}

/* The k largest of a softmax. */
tacit_status op_spell_moe_route(op_diff *c, ir_value **out)
{
    const ir_node *n = c->node;
    int64_t k = ir_attr_int(n, "top_k", 1);
    ir_value *in[2] = {op_diff1(c, "Softmax", n->inputs[0]), op_diff_ints(c, 1, &k)};
    ir_node *top = in[0] && in[1] ? ir_node_new(c->graph, "TopK", "", NULL, 2, in, 2, NULL) : NULL;
    if (!top)
        return c->status != TACIT_OK ? c->status : error_memory(c->err, "a derivative graph");
    op_resolve(NULL, top);
    TRY(op_infer_node(c->graph, top, c->err));
    out[0] = top->outputs[1];
    ir_value *weights = top->outputs[0];
    if (ir_attr_int(n, "normalize", 1))
        weights = op_spell_div(c, weights, op_spell_reduce(c, "ReduceSum", weights, 1, true));
    if (n->n_outputs > 1)
        out[1] = weights;
    return c->status;
}

/* --- QuantizeLinear and DequantizeLinear --------------------------------------------------------
 */

/* A scale or zero point as it meets x: one for all, by axis, or by blocks of an axis. */
static ir_value *granular(op_diff *c, const ir_node *node, ir_value *v, const ir_shape *x)
{
    op_granularity g;
    if (!v || c->status != TACIT_OK)
        return NULL;
    c->status = op_granularity_read(node, x, &v->type.shape, &g, c->err);
    if (c->status != TACIT_OK)
        return NULL;
    if (ir_shape_size(&v->type.shape) == 1 && v->type.shape.rank != x->rank)
        return op_spell_shaped(c, v, 0, NULL);
    if (v->type.shape.rank != x->rank) {
        ir_shape line = {.rank = x->rank};
        for (int32_t i = 0; i < x->rank; i++)
            line.dims[i] = i == g.axis ? x->dims[i] : 1;
        return op_diff_reshape(c, v, &line);
    }
    if (g.block == 1)
        return v;
    int64_t size = x->dims[g.axis];
    int64_t *from = op_spell_scratch(c, (size_t)(size + 1) * sizeof *from);
    for (int64_t i = 0; from && i < size; i++)
        from[i] = i / g.block;
    return from ? op_spell_gather(c, v, op_spell_ints(c, 1, &size, from), g.axis) : NULL;
}

static void integer_range(tacit_dtype dtype, double *low, double *high)
{
    uint32_t bits = (uint32_t)tacit_dtype_bits(dtype);
    bool is_signed = ir_dtype_classify(dtype) == IR_CLASS_SIGNED;
    *low = is_signed ? -ldexp(1, (int)bits - 1) : 0;
    *high = ldexp(1, (int)bits - is_signed) - 1;
}

/* Right behind a QuantizeLinear rounding is straight-through: the value passes where it was not cut
 * off, and the scale gets the slope of what it scales. Otherwise integers have no derivative and
 * only the scale does. */
tacit_status op_spell_dequantize(op_diff *c, ir_value **out)
{
    const ir_node *n = c->node, *q = n->inputs[0]->producer;
    const ir_type *type = &n->inputs[0]->type;
    tacit_dtype wide = n->inputs[1]->type.dtype, result = n->outputs[0]->type.dtype;
    bool pair = q && strcmp(q->type, "QuantizeLinear") == 0 && q->domain[0] == '\0' && c->wanted[0];
    if (c->wanted[0] && (!pair || !ir_dtype_is_int(type->dtype)))
        return op_diff_fail(c, TACIT_ERR_UNSUPPORTED,
                            "no gradient passes quantised values, but for a QuantizeLinear to "
                            "integers right in front");
    ir_value *x;
    if (pair) {
        double low, high;
        integer_range(type->dtype, &low, &high);
        ir_value *scale = granular(c, q, q->inputs[1], &type->shape);
        x = op_diff_cast(c, q->inputs[0], wide);
        x = op_diff1(c, "Round", op_spell_div(c, x, op_diff_cast(c, scale, wide)));
        ir_value *zero = q->n_inputs > 2 ? q->inputs[2] : NULL;
        if (zero)
            x = op_spell_add(c, x, op_diff_cast(c, granular(c, q, zero, &type->shape), wide));
        x = op_spell_clip(c, x, low, high);
    } else {
        x = op_diff_cast(c, n->inputs[0], wide);
    }
    ir_value *zero = op_spell_input(c, 2);
    if (zero)
        x = op_spell_sub(c, x, op_diff_cast(c, granular(c, n, zero, &type->shape), wide));
    x = op_spell_mul(c, x, granular(c, n, n->inputs[1], &type->shape));
    out[0] = op_diff_cast(c, x, result);
    return c->status;
}
