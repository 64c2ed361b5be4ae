/* SPDX-License-Identifier: Apache-2.0
 * Conv with what follows it: batch normalisation goes into the weights, then bias, activation and
 * residual into the epilogue. */
#include <math.h>

#include "op/strip.h"
#include "pass/epilogue.h"

/* --- batch normalisation into the weights ------------------------------------------------------
 */

/* BatchNormalization is y·scale + shift, per channel: the scale, for the weights, and the new bias,
 * which is what becomes of the convolution's and the shift. NULL: they are not known, or no memory.
 */
static double *affine_of(pass_edit *e, const ir_node *bn, const ir_tensor *bias, int64_t channels,
                         ir_tensor *new_bias)
{
    enum { STRIP = 64 };
    const ir_tensor *t[4];
    for (uint32_t k = 0; k < 4; k++) {
        t[k] = ir_value_known(bn->inputs[1 + k]);
        if (!t[k] || ir_tensor_count(t[k]) != channels)
            return NULL;
    }
    double *scale = arena_alloc(e->c->scratch, (size_t)channels * sizeof *scale);
    double epsilon = ir_attr_float(bn, "epsilon", 1e-5);
    for (int64_t at = 0; scale && at < channels; at += STRIP) {
        int64_t n = channels - at < STRIP ? channels - at : STRIP;
        double v[4][STRIP], b[STRIP] = {0};
        for (int k = 0; k < 4; k++)
            op_strip_load_f64(t[k]->dtype, t[k]->data, at, 1, n, v[k]);
        if (bias)
            op_strip_load_f64(bias->dtype, bias->data, at, 1, n, b);
        for (int64_t c = 0; c < n; c++) {
            double s = scale[at + c] = v[0][c] / sqrt(v[3][c] + epsilon);
            b[c] = b[c] * s + (v[1][c] - v[2][c] * s);
        }
        op_strip_store_f64(new_bias->dtype, new_bias->data, at, n, b);
    }
    return scale;
}

static bool may_fold(pass_edit *e, ir_node *conv, ir_node *bn)
{
    const ir_tensor *w = ir_value_weight(conv->inputs[1]);
    bool has_bias = conv->n_inputs > 2 && conv->inputs[2];
    if (!w || (has_bias && !ir_value_known(conv->inputs[2])) || !pass_float(conv->inputs[1]) ||
        ir_attr_int(bn, "training_mode", 0))
        return false;
    if (!pass_late(e, w->bytes) && w->bytes > *e->c->fold_left) {
        pass_near_miss(e, conv, "%s not folded into the weights: %zu bytes are over the budget",
                       bn->name, w->bytes);
        return false;
    }
    return true;
}

static tacit_status fold_norm(pass_edit *e, ir_node *conv)
{
    ir_node *bn = pass_is(e, conv, PASS_CONV) ? pass_only_user(e, conv->outputs[0]) : NULL;
    if (!pass_is(e, bn, PASS_BATCH_NORM) || bn->inputs[0] != conv->outputs[0] ||
        !may_fold(e, conv, bn))
        return TACIT_OK;
    ir_value *w = conv->inputs[1];
    int64_t channels = w->type.shape.dims[0];
    const ir_tensor *bias = conv->n_inputs > 2 ? ir_value_known(conv->inputs[2]) : NULL;
    ir_shape one = ir_shape_of(1, &channels);
    ir_tensor *new_bias = ir_tensor_new(e->g->memory, w->type.dtype, &one);
    double *scale = new_bias ? affine_of(e, bn, bias, channels, new_bias) : NULL;
    if (!scale)
        return TACIT_OK;
    const ir_tensor *from = ir_recipe_source(w->constant);
    TRY(ir_tensor_make(from, e->c->err)); /* a second factor, of what is late already */
    ir_recipe recipe = {.kind = IR_SCALED,
                        .count = 1,
                        .from = &from,
                        .dtype = w->type.dtype,
                        .rows = channels,
                        .scale = scale};
    ir_tensor *scaled;
    TRY(pass_derive(e, &w->type.shape, &recipe, &scaled));
    pass_fusion f = {.op = PASS_CONV, .root = conv, .n_inputs = 3, .n_outputs = 1};
    f.inputs[0] = conv->inputs[0];
    f.inputs[1] = ir_constant_new(e->g, w->name, scaled);
    f.inputs[2] = ir_constant_new(e->g, "bias", new_bias);
    if (!f.inputs[1] || !f.inputs[2])
        return error_memory(e->c->err, "folded weights");
    f.outputs[0] = bn->outputs[0];
    pass_set_add(&f.nodes, conv);
    pass_set_add(&f.nodes, bn);
    pass_fusion_attrs(&f, conv);
    TRY(pass_fuse(e, &f));
    if (f.made && scaled->data)
        *e->c->fold_left -= scaled->bytes;
    return TACIT_OK;
}

tacit_status pass_fold_batch_norm(pass_context *c)
{
    pass_edit e;
    TRY(pass_edit_begin(&e, c));
    for (uint32_t i = 0, n = c->graph->nodes.count; i < n; i++)
        TRY(fold_norm(&e, c->graph->nodes.data[i]));
    return TACIT_OK;
}

/* --- epilogue --------------------------------------------------------------------------------- */

bool pass_explicit_pads(const ir_node *n, int64_t *pads)
{
    const ir_shape *x = &n->inputs[0]->type.shape, *w = &n->inputs[1]->type.shape;
    const ir_shape *y = &n->outputs[0]->type.shape;
    int32_t spatial = x->rank - 2;
    uint32_t count, n_strides, n_dilations;
    const int64_t *given = ir_attr_ints(n, "pads", &count);
    const int64_t *strides = ir_attr_ints(n, "strides", &n_strides);
    const int64_t *dilations = ir_attr_ints(n, "dilations", &n_dilations);
    const char *mode = ir_attr_string(n, "auto_pad", "NOTSET");
    bool same = strncmp(mode, "SAME", 4) == 0, upper = strcmp(mode, "SAME_UPPER") == 0;
    if ((given && count != 2u * (uint32_t)spatial) || x->rank != w->rank || spatial < 1)
        return false;
    for (int32_t d = 0; d < spatial; d++) {
        int64_t stride = strides ? strides[d] : 1, dilation = dilations ? dilations[d] : 1;
        int64_t reach = (w->dims[2 + d] - 1) * dilation + 1;
        int64_t total = (y->dims[2 + d] - 1) * stride + reach - x->dims[2 + d];
        if (total < 0)
            total = 0;
        int64_t odd_first = upper ? total / 2 : total - total / 2;
        bool keep = strcmp(mode, "NOTSET") == 0 && given;
        pads[d] = same ? odd_first : keep ? given[d] : 0;
        pads[spatial + d] = same ? total - odd_first : keep ? given[spatial + d] : 0;
    }
    return true;
}

void pass_fusion_conv(pass_fusion *f, const ir_node *n, const int64_t *pads)
{
    static const char *const kept[] = {"dilations", "group", "kernel_shape", "strides"};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        const ir_attr *a = ir_attr_find(n, kept[i]);
        if (a && f->n_attrs < sizeof f->attrs / sizeof *f->attrs)
            f->attrs[f->n_attrs++] = *a;
    }
    pass_fusion_ints(f, "pads", 2u * (uint32_t)(n->inputs[0]->type.shape.rank - 2), pads);
}

static tacit_status fuse(pass_edit *e, ir_node *n)
{
    bool fused = pass_is(e, n, PASS_T_CONV);
    int64_t pads[2 * IR_MAX_RANK];
    if ((!fused && !pass_is(e, n, PASS_CONV)) || !pass_float(n->inputs[0]) ||
        !pass_float(n->inputs[1]) || !pass_static(n->outputs[0]) || !pass_explicit_pads(n, pads))
        return TACIT_OK;
    pass_epilogue tail;
    pass_epilogue_read(&tail, n, fused);
    pass_set swallowed = {.nodes = {n}, .count = 1};
    ir_value *y = n->outputs[0];
    bool grew = true;
    while (grew)
        TRY(pass_epilogue_grow(e, &tail, &y, 1, &swallowed, &grew));
    if (swallowed.count == 1)
        return TACIT_OK;
    pass_fusion f = {.op = PASS_T_CONV, .root = n, .n_outputs = 1};
    f.inputs[0] = n->inputs[0];
    f.inputs[1] = n->inputs[1];
    pass_fusion_conv(&f, n, pads);
    pass_epilogue_write(&tail, &f);
    f.nodes = swallowed;
    f.outputs[0] = y;
    return pass_fuse(e, &f);
}

tacit_status pass_fuse_conv(pass_context *c)
{
    return pass_each(c, PASS_T_CONV, fuse);
}
