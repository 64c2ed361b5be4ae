/* SPDX-License-Identifier: Apache-2.0
 * tacit AdamStep(x, mean, square, grad, rate, step, scale?, enabled?) → (x, mean, square) after one
 * step of Adam or, with decoupled = 1, AdamW. `grad` is multiplied by `scale` first; where
 * `enabled` is false everything stays as it is. rate, step and scale are f32 numbers. */
#include <math.h>

#include "op/diff.h"
#include "op/lowerings.h"
#include "op/values.h"

enum { X, MEAN, SQUARE, GRAD, RATE, STEP, SCALE, ENABLED };

static tacit_status adam_infer(op_infer *c)
{
    TRY(op_need_float(c, X));
    for (uint32_t i = 0; i < c->n_in; i++) {
        const ir_type *t = op_in_type(c, i);
        if (!t)
            continue;
        tacit_dtype want = i <= GRAD ? c->in[X]->dtype : i == ENABLED ? TACIT_BOOL : TACIT_F32;
        if (t->dtype != want)
            return error_set(c->err, TACIT_ERR_TYPE, "input %u is %s, wanted %s", i,
                             tacit_dtype_text(t->dtype), tacit_dtype_text(want));
        if (i <= GRAD ? !ir_shape_equal(&t->shape, &c->in[X]->shape)
                      : ir_shape_size(&t->shape) != 1)
            return error_set(c->err, TACIT_ERR_SHAPE, "input %u does not have the shape of %s", i,
                             i <= GRAD ? "the parameter" : "one number");
    }
    for (uint32_t i = 0; i < c->n_out; i++)
        op_set_out(c, i, c->in[X]->dtype, &c->in[X]->shape);
    return TACIT_OK;
}

static tacit_status adam_eval(op_eval *c)
{
    double *v[GRAD + 1];
    int64_t n = ir_tensor_count(op_in(c, X));
    for (uint32_t i = 0; i <= GRAD; i++)
        TRY(op_input_f64(c, i, &v[i]));
    double rate = ir_load_f64(TACIT_F32, op_in(c, RATE)->data, 0);
    double step = ir_load_f64(TACIT_F32, op_in(c, STEP)->data, 0);
    double scale = op_in(c, SCALE) ? ir_load_f64(TACIT_F32, op_in(c, SCALE)->data, 0) : 1;
    double b1 = ir_attr_float(c->node, "beta1", 0.9), b2 = ir_attr_float(c->node, "beta2", 0.999);
    double epsilon = ir_attr_float(c->node, "epsilon", 1e-8);
    double decay = ir_attr_float(c->node, "weight_decay", 0);
    bool decoupled = ir_attr_int(c->node, "decoupled", 0) != 0;
    if (op_in(c, ENABLED) && !*(const uint8_t *)op_in(c, ENABLED)->data)
        n = 0;
    for (int64_t i = 0; i < n; i++) {
        double g = v[GRAD][i] * scale + (decoupled ? 0 : decay * v[X][i]);
        double m = v[MEAN][i] = b1 * v[MEAN][i] + (1 - b1) * g;
        double s = v[SQUARE][i] = b2 * v[SQUARE][i] + (1 - b2) * g * g;
        double change = m / (1 - pow(b1, step)) / (sqrt(s / (1 - pow(b2, step))) + epsilon);
        v[X][i] = v[X][i] * (decoupled ? 1 - rate * decay : 1) - rate * change;
    }
    for (uint32_t i = 0; i < 3; i++)
        if (op_out(c, i))
            op_output_f64(c, i, v[i]);
    return TACIT_OK;
}

/* a·x + b·y */
static ir_value *blend(op_diff *c, ir_value *x, double a, ir_value *y, double b)
{
    return op_diff2(c, "Add", op_diff_scale(c, x, a), op_diff_scale(c, y, b));
}

/* x·keep − rate/(1 − β₁ᵗ) · m / (√v / √(1 − β₂ᵗ) + ε) */
static void spell(op_diff *c, const ir_node *n, ir_value **out)
{
    ir_value *x = n->inputs[X], *g = n->inputs[GRAD];
    tacit_dtype dtype = x->type.dtype;
    double b1 = ir_attr_float(n, "beta1", 0.9), b2 = ir_attr_float(n, "beta2", 0.999);
    double decay = ir_attr_float(n, "weight_decay", 0);
    bool decoupled = ir_attr_int(n, "decoupled", 0) != 0;
    ir_value *rate = op_diff_cast(c, n->inputs[RATE], dtype), *one = op_diff_scalar(c, dtype, 1);
    ir_value *step = op_diff_cast(c, n->inputs[STEP], dtype);
    if (n->n_inputs > SCALE && n->inputs[SCALE])
        g = op_diff2(c, "Mul", g, op_diff_cast(c, n->inputs[SCALE], dtype));
    if (decay != 0 && !decoupled)
        g = op_diff2(c, "Add", g, op_diff_scale(c, x, decay));
    ir_value *m = blend(c, n->inputs[MEAN], b1, g, 1 - b1);
    ir_value *v = blend(c, n->inputs[SQUARE], b2, op_diff2(c, "Mul", g, g), 1 - b2);
    ir_value *left1 =
        op_diff2(c, "Sub", one, op_diff2(c, "Pow", op_diff_scalar(c, dtype, b1), step));
    ir_value *left2 =
        op_diff2(c, "Sub", one, op_diff2(c, "Pow", op_diff_scalar(c, dtype, b2), step));
    ir_value *root = op_diff1(c, "Reciprocal", op_diff1(c, "Sqrt", left2));
    ir_value *below = op_diff2(c, "Mul", op_diff1(c, "Sqrt", v), root);
    below = op_diff2(c, "Add", below, op_diff_scalar(c, dtype, ir_attr_float(n, "epsilon", 1e-8)));
    ir_value *gain = op_diff2(c, "Div", rate, left1);
    ir_value *change = op_diff2(c, "Div", op_diff2(c, "Mul", m, gain), below);
    if (decay != 0 && decoupled)
        x = op_diff2(c, "Mul", x, op_diff2(c, "Sub", one, op_diff_scale(c, rate, decay)));
    out[X] = op_diff2(c, "Sub", x, change);
    out[MEAN] = m;
    out[SQUARE] = v;
}

static tacit_status adam_decompose(ir_graph *g, ir_node *n, tacit_error *err)
{
    op_diff c = {.graph = g, .node = n, .err = err};
    ir_value *out[3] = {NULL};
    spell(&c, n, out);
    for (uint32_t i = 0; i < 3 && i < n->n_outputs; i++) {
        if (n->n_inputs > ENABLED && n->inputs[ENABLED])
            out[i] = op_diff3(&c, "Where", n->inputs[ENABLED], out[i], n->inputs[i]);
        if (c.status == TACIT_OK && n->outputs[i])
            ir_replace_uses(g, n->outputs[i], out[i]);
    }
    if (c.status == TACIT_OK)
        ir_node_kill(n);
    return c.status;
}

const op_def op_rows_optimizer[] = {
    {.name = "AdamStep",
     .domain = "tacit",
     .min_in = 6,
     .max_in = 8,
     .min_out = 3,
     .max_out = 3,
     .flags = OP_INPLACE_EACH,
     .infer = adam_infer,
     .eval = adam_eval,
     .lower = op_lower_adam,
     .decompose = adam_decompose},
    {0},
};
