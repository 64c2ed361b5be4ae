/* SPDX-License-Identifier: Apache-2.0
 * The layout of images of bytes for the whole graph. Convolutions of bytes work on images whose
 * channels lie inside; sums, poolings and means between them follow, so that a Transpose stands
 * only where such a region ends. The convolution at its begin reads the images as they are. */
#include <string.h>

#include "op/int_images.h"
#include "pass/epilogue.h"
#include "pass/layout.h"

static bool is_image(const ir_value *v)
{
    return pass_static(v) && (v->type.dtype == TACIT_U8 || v->type.dtype == TACIT_I8) &&
           v->type.shape.rank == 4 && ir_shape_size(&v->type.shape) > 0;
}

/* --- convolutions ----------------------------------------------------------------------------- */

static bool is_conv(const pass_layout *b, const ir_node *n)
{
    double number;
    if (!pass_is(&b->e, n, PASS_T_INT_CONV) || n->n_inputs < 9 || !n->inputs[7] ||
        ir_attr_int(n, "inside", 0) || !is_image(n->inputs[0]) || !is_image(n->outputs[0]) ||
        !ir_value_known(n->inputs[1]) || (n->inputs[5] && !ir_value_known(n->inputs[5])) ||
        !op_is_centred(n->inputs[1]->type.dtype, ir_value_known(n->inputs[5])) ||
        !pass_scalar(n->inputs[2], &number) || (n->inputs[3] && !ir_value_known(n->inputs[3])) ||
        !ir_value_known(n->inputs[4]) || (n->inputs[6] && !ir_value_known(n->inputs[6])) ||
        !pass_scalar(n->inputs[7], &number) || number < 1e-30 || !ir_value_known(n->inputs[8]))
        return false;
    const int64_t *x = n->inputs[0]->type.shape.dims, *w = n->inputs[1]->type.shape.dims;
    int64_t group = ir_attr_int(n, "group", 1);
    return group == 1 || (group == x[1] && w[0] == x[1] && w[2] * w[3] <= 64);
}

static tacit_status turn_conv(pass_layout *b, ir_node *n)
{
    ir_attr attrs[24];
    ir_value *in[9], *form, *x = pass_layout_form(b, n->inputs[0]);
    if (n->n_attrs + 1 > sizeof attrs / sizeof *attrs)
        return TACIT_OK;
    memcpy(in, n->inputs, sizeof in);
    memcpy(attrs, n->attrs, n->n_attrs * sizeof *attrs);
    attrs[n->n_attrs] = pass_layout_int("inside", x ? OP_INSIDE_X | OP_INSIDE_Y : OP_INSIDE_Y);
    if (x)
        in[0] = x;
    TRY(pass_layout_add(b, n, PASS_T_INT_CONV, 9, in, n->n_attrs + 1, attrs, &form));
    return pass_layout_settle(b, n, form);
}

/* --- sums, means, poolings -------------------------------------------------------------------- */

static tacit_status turn_add(pass_layout *b, ir_node *n)
{
    ir_value *in[8], *form;
    memcpy(in, n->inputs, sizeof in);
    in[0] = pass_layout_form(b, n->inputs[0]);
    in[1] = pass_layout_form(b, n->inputs[1]);
    TRY(pass_layout_add(b, n, PASS_T_INT_ADD, 8, in, n->n_attrs, n->attrs, &form));
    return pass_layout_settle(b, n, form);
}

/* The mean is one pixel, which lies in memory as [N, C, 1, 1] does: no Transpose behind it. */
static tacit_status turn_mean(pass_layout *b, ir_node *n)
{
    ir_value *in[5], *plain;
    ir_attr inside = pass_layout_int("inside", OP_INSIDE_X);
    memcpy(in, n->inputs, sizeof in);
    in[0] = pass_layout_form(b, n->inputs[0]);
    TRY(pass_layout_add(b, n, PASS_T_INT_MEAN, 5, in, 1, &inside, &plain));
    pass_replace(&b->e, n->outputs[0], plain);
    return pass_layout_drop(b, n);
}

static bool same_constant(const ir_value *a, const ir_value *b)
{
    const ir_tensor *s = a ? ir_value_known(a) : NULL, *t = b ? ir_value_known(b) : NULL;
    if (a == b)
        return true;
    return s && t && s->dtype == t->dtype && ir_tensor_count(s) == 1 && ir_tensor_count(t) == 1 &&
           s->bytes == t->bytes && memcmp(s->data, t->data, s->bytes) == 0;
}

/* QuantizeLinear(MaxPool(DequantizeLinear(x))) with the same scale and zero point is a MaxPool of
 * bytes. The chain, last first; false: it is something else. */
static bool is_pool(const pass_layout *b, ir_node *q, ir_node *chain[3])
{
    ir_node *pool = pass_is(&b->e, q, PASS_QUANTIZE) && is_image(q->outputs[0])
                        ? pass_from(&b->e, q->inputs[0], PASS_MAX_POOL)
                        : NULL;
    ir_node *d = pool ? pass_from(&b->e, pool->inputs[0], PASS_DEQUANTIZE) : NULL;
    double scale;
    chain[0] = q;
    chain[1] = pool;
    chain[2] = d;
    return d && pass_layout_form(b, d->inputs[0]) &&
           q->outputs[0]->type.dtype == d->inputs[0]->type.dtype &&
           (pool->n_outputs < 2 || !pool->outputs[1]) && pass_scalar(d->inputs[1], &scale) &&
           scale > 0 && q->inputs[1]->type.dtype == TACIT_F32 &&
           same_constant(q->inputs[1], d->inputs[1]) &&
           same_constant(q->n_inputs > 2 ? q->inputs[2] : NULL,
                         d->n_inputs > 2 ? d->inputs[2] : NULL);
}

static tacit_status turn_pool(pass_layout *b, ir_node *const chain[3])
{
    static const char *const kept[] = {"auto_pad", "ceil_mode", "dilations",
                                       "pads",     "strides",   "kernel_shape"};
    ir_attr attrs[8];
    uint32_t count = 0;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        const ir_attr *a = ir_attr_find(chain[1], kept[i]);
        if (a)
            attrs[count++] = *a;
    }
    ir_value *x = pass_layout_form(b, chain[2]->inputs[0]), *form;
    TRY(pass_layout_add(b, chain[0], PASS_T_INT_MAX_POOL, 1, &x, count, attrs, &form));
    TRY(pass_layout_settle(b, chain[0], form));
    /* What nobody else reads goes too. */
    for (int i = 1; i < 3 && pass_only_user(&b->e, chain[i]->outputs[0]) == chain[i - 1]; i++)
        TRY(pass_layout_drop(b, chain[i]));
    return TACIT_OK;
}

/* --- the whole graph -------------------------------------------------------------------------- */

static tacit_status visit(pass_layout *b, ir_node *n)
{
    ir_node *chain[3];
    if (!n->type || !n->n_outputs || !n->outputs[0] || n->outputs[0]->id >= b->values)
        return TACIT_OK;
    if (is_conv(b, n))
        return turn_conv(b, n);
    if (pass_is(&b->e, n, PASS_T_INT_ADD) && pass_layout_form(b, n->inputs[0]) &&
        pass_layout_form(b, n->inputs[1]))
        return turn_add(b, n);
    if (pass_is(&b->e, n, PASS_T_INT_MEAN) && pass_layout_form(b, n->inputs[0]))
        return turn_mean(b, n);
    return is_pool(b, n, chain) ? turn_pool(b, chain) : TACIT_OK;
}

static tacit_status leave(pass_layout *b, ir_node *n, ir_value **plain)
{
    static const int64_t order[4] = {0, 3, 1, 2};
    int64_t *perm = ARENA_ARRAY(b->e.g->memory, 4, int64_t);
    ir_value *in = pass_layout_form(b, n->outputs[0]);
    if (!perm)
        return pass_layout_no_memory(b);
    memcpy(perm, order, sizeof order);
    ir_attr attr = {.name = "perm", .kind = IR_ATTR_INTS, .count = 4, .ints = perm};
    return pass_layout_add(b, n, PASS_TRANSPOSE, 1, &in, 1, &attr, plain);
}

tacit_status pass_channels_inside(pass_context *c)
{
    return pass_layout_run(c, &(pass_layout_rules){is_conv, visit, leave});
}
