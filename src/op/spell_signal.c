/* SPDX-License-Identifier: Apache-2.0
 * Fourier transforms of ONNX in terms of tacit.Fft, whose rows are [real parts, imaginary parts].
 */
#include <math.h>
#include <string.h>

#include "op/spell.h"
#include "op/vjp.h"

static int64_t known_int(const ir_value *v, int64_t fallback)
{
    const ir_tensor *t = ir_value_known(v);
    return t && ir_tensor_count(t) == 1 ? ir_load_i64(t->dtype, t->data, 0) : fallback;
}

/* The first `n` entries along an axis, zeros after the last one. */
static ir_value *sized(op_diff *c, ir_value *x, int64_t axis, int64_t n)
{
    int64_t have = x ? x->type.shape.dims[axis] : 0;
    return have > n ? op_spell_slice(c, x, axis, 0, n) : op_spell_padded(c, x, axis, 0, n - have);
}

/* Bins [0, n/2] of a real signal's spectrum → all n: the others are conjugates. */
static ir_value *both_sides(op_diff *c, ir_value *x, int64_t axis, int64_t n)
{
    int64_t most = n - n / 2 - 1;
    int64_t *back = op_spell_scratch(c, (size_t)(most + 1) * sizeof *back);
    for (int64_t i = 0; back && i < most; i++)
        back[i] = most - i;
    if (!back || most == 0)
        return x;
    const double sign[2] = {1, -1};
    ir_value *rest = op_spell_gather(c, x, op_spell_ints(c, 1, &most, back), axis);
    rest = rest ? op_spell_mul(c, rest, op_spell_floats(c, x->type.dtype, 1, (int64_t[]){2}, sign))
                : NULL;
    return op_spell_concat(c, 2, (ir_value *[]){x, rest}, axis);
}

/* x [..., n, 2] along the last but one axis. */
static ir_value *transform(op_diff *c, ir_value *x, bool inverse)
{
    if (!x)
        return NULL;
    ir_shape pairs = x->type.shape, rows;
    int64_t n = pairs.dims[pairs.rank - 2];
    pairs.dims[pairs.rank - 2] = 2;
    pairs.dims[pairs.rank - 1] = n;
    rows = pairs;
    rows.dims[--rows.rank - 1] = 2 * n;
    x = op_diff_reshape(c, op_diff_swap_last(c, x), &rows);
    ir_value *y = op_diff_open(c, "tacit.Fft", 1, &x);
    if (y && !ir_attr_set_string(c->graph, y->producer, "norm", "backward")) {
        c->status = error_memory(c->err, "a derivative graph");
        return NULL;
    }
    y = op_diff_attr_int(c, y, "inverse", inverse);
    return op_diff_swap_last(c, op_diff_reshape(c, y, &pairs));
}

tacit_status op_spell_dft(op_diff *c, ir_value **out)
{
    const ir_node *n = c->node;
    ir_value *x = n->inputs[0];
    int32_t rank = x->type.shape.rank, axis;
    bool inverse = ir_attr_int(n, "inverse", 0) != 0, one = ir_attr_int(n, "onesided", 0) != 0;
    if (!ir_shape_is_static(&n->outputs[0]->type.shape))
        return op_diff_fail(c, TACIT_ERR_UNSUPPORTED, "its sizes are not known when compiling");
    TRY(ir_axis(known_int(op_spell_input(c, 2), -2), rank, &axis, c->err));
    int64_t bins = x->type.shape.dims[axis], perm[IR_MAX_RANK];
    int64_t length = known_int(op_spell_input(c, 1), inverse && one ? 2 * (bins - 1) : bins);
    for (int32_t i = 0; i < rank; i++)
        perm[i] = i == axis ? rank - 2 : i == rank - 2 ? axis : i;
    if (axis != rank - 2)
        x = op_diff_transpose(c, x, perm);
    if (x && x->type.shape.dims[rank - 1] == 1)
        x = op_spell_padded(c, x, rank - 1, 0, 1);
    if (inverse && one)
        x = both_sides(c, sized(c, x, rank - 2, length / 2 + 1), rank - 2, length);
    else
        x = sized(c, x, rank - 2, length);
    x = transform(c, x, inverse);
    if (one && !inverse)
        x = op_spell_slice(c, x, rank - 2, 0, length / 2 + 1);
    if (one && inverse)
        x = op_spell_slice(c, x, rank - 1, 0, 1);
    out[0] = axis != rank - 2 ? op_diff_transpose(c, x, perm) : x;
    return c->status;
}

/* Frames are gathered, windowed and transformed. */
tacit_status op_spell_stft(op_diff *c, ir_value **out)
{
    const ir_node *n = c->node;
    ir_value *x = n->inputs[0], *window = op_spell_input(c, 2);
    const ir_shape *y = &n->outputs[0]->type.shape;
    if (!ir_shape_is_static(y))
        return op_diff_fail(c, TACIT_ERR_UNSUPPORTED, "its sizes are not known when compiling");
    int64_t step = known_int(n->inputs[1], 1), samples = x->type.shape.dims[1];
    int64_t length = known_int(op_spell_input(c, 3), window ? window->type.shape.dims[0] : samples);
    int64_t count = y->dims[1] * length;
    int64_t *at = op_spell_scratch(c, (size_t)(count + 1) * sizeof *at);
    for (int64_t i = 0; at && i < count; i++)
        at[i] = i / length * step + i % length;
    if (!at)
        return c->status;
    ir_value *frames =
        op_spell_gather(c, x, op_spell_ints(c, 2, (int64_t[]){y->dims[1], length}, at), 1);
    if (window) {
        window = op_diff_cast(c, sized(c, window, 0, length), x->type.dtype);
        frames = op_spell_mul(c, frames, op_spell_shaped(c, window, 2, (int64_t[]){length, 1}));
    }
    if (frames && frames->type.shape.dims[3] == 1)
        frames = op_spell_padded(c, frames, 3, 0, 1);
    out[0] = op_spell_slice(c, transform(c, frames, false), 2, 0, y->dims[2]);
    return c->status;
}

/* One butterfly: rows i0 and i1 of the state; gate 0 leaves the pair, reverse swaps it. */
tacit_status op_spell_butterfly(op_diff *c, ir_value **out)
{
    ir_value *x = c->node->inputs[0], *const *in = c->node->inputs;
    const int64_t *d = x->type.shape.dims;
    int64_t n = d[1], half = n / 2, stride = INT64_C(1) << ir_attr_int(c->node, "stage", 0);
    tacit_dtype dtype = x->type.dtype;
    int64_t *first = op_spell_scratch(c, (size_t)(2 * n) * sizeof *first);
    if (!first)
        return c->status;
    int64_t *place = first + n;
    for (int64_t k = 0; k < half; k++) {
        first[k] = k / stride * 2 * stride + k % stride;
        first[half + k] = first[k] + stride;
        place[first[k]] = k; /* where the row lies among [tops, bottoms] */
        place[first[k] + stride] = half + k;
    }
    ir_value *a = op_spell_gather(c, x, op_spell_ints(c, 1, &half, first), 1);
    ir_value *b = op_spell_gather(c, x, op_spell_ints(c, 1, &half, first + half), 1);
    ir_value *re = op_spell_unsqueeze(c, in[3], 1), *im = op_spell_unsqueeze(c, in[4], 1);
    ir_value *br = op_spell_slice(c, b, 2, 0, 1), *bi = op_spell_slice(c, b, 2, 1, 2);
    ir_value *tr = op_spell_sub(c, op_spell_mul(c, br, re), op_spell_mul(c, bi, im));
    ir_value *ti = op_spell_add(c, op_spell_mul(c, br, im), op_spell_mul(c, bi, re));
    ir_value *t = op_spell_concat(c, 2, (ir_value *[]){tr, ti}, 2);
    ir_value *up = op_spell_add(c, a, t), *down = op_spell_sub(c, a, t);
    ir_value *swap = op_diff2(c, "GreaterOrEqual", op_spell_unsqueeze(c, in[2], 1),
                              op_diff_scalar(c, dtype, 0.5));
    ir_value *off =
        op_diff2(c, "Equal", op_spell_unsqueeze(c, in[1], 1), op_diff_scalar(c, dtype, 0));
    ir_value *top = op_diff3(c, "Where", swap, down, up);
    ir_value *bottom = op_diff3(c, "Where", swap, up, down);
    top = op_diff3(c, "Where", off, a, top);
    bottom = op_diff3(c, "Where", off, b, bottom);
    ir_value *both = op_spell_concat(c, 2, (ir_value *[]){top, bottom}, 1);
    out[0] = op_spell_gather(c, both, op_spell_ints(c, 1, &n, place), 1);
    return c->status;
}
