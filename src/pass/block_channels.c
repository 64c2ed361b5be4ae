/* SPDX-License-Identifier: Apache-2.0
 * The layout of images for the whole graph. Convolutions work on channels in blocks of sixteen
 * (tacit.BlockedConv); pooling, element-wise ops, concatenation over channels and normalisations
 * between them follow, so that Block and Unblock stand at the edges of such regions only. */
#include <math.h>
#include <string.h>

#include "op/blocked.h"
#include "pass/epilogue.h"
#include "pass/layout.h"

static bool is_image(const ir_value *v)
{
    return pass_static(v) && v->type.dtype == TACIT_F32 && v->type.shape.rank == 4 &&
           ir_shape_size(&v->type.shape) > 0;
}

static int64_t channels_of(const ir_value *image)
{
    return image->type.shape.dims[1];
}

/* Filling the last block costs at most this share. */
static bool fills_blocks(int64_t channels)
{
    return op_blocks(channels) * OP_BLOCK * 5 <= channels * 7;
}

/* The blocked form, made here when there is none. */
static tacit_status form_of(pass_layout *b, ir_node *reader, ir_value *v, ir_value **form)
{
    *form = pass_layout_form(b, v);
    if (*form)
        return TACIT_OK;
    TRY(pass_layout_add(b, reader, PASS_T_BLOCK, 1, &v, 0, NULL, form));
    if (v->id < b->values)
        b->forms[v->id] = *form;
    return TACIT_OK;
}

/* --- convolutions ----------------------------------------------------------------------------- */

static bool is_depthwise(const ir_node *n)
{
    int64_t group = ir_attr_int(n, "group", 1);
    return group > 1 && group == channels_of(n->inputs[0]) && group == channels_of(n->outputs[0]);
}

static bool is_conv(const pass_layout *b, const ir_node *n)
{
    if ((!pass_is(&b->e, n, PASS_CONV) && !pass_is(&b->e, n, PASS_T_CONV)) ||
        !is_image(n->inputs[0]) || !is_image(n->outputs[0]) || !ir_value_weight(n->inputs[1]))
        return false;
    int64_t pads[2 * IR_MAX_RANK];
    if (!pass_explicit_pads(n, pads))
        return false;
    for (int i = 0; i < 4; i++)
        if (pads[i] < 0)
            return false;
    int64_t c = channels_of(n->inputs[0]), m = channels_of(n->outputs[0]);
    int64_t group = ir_attr_int(n, "group", 1);
    if (!fills_blocks(m) || n->outputs[0]->type.shape.dims[3] > 1024)
        return false;
    if (is_depthwise(n))
        return true;
    if (group > 1)
        return c / group % OP_BLOCK == 0 && m / group % OP_BLOCK == 0;
    return c <= 4 || fills_blocks(c);
}

static tacit_status conv_attrs(pass_layout *b, const ir_node *n, ir_attr *attrs, uint32_t *count)
{
    static const char *const kept[] = {"dilations",  "group",   "kernel_shape", "strides",
                                       "activation", "act_min", "act_max",      "activation_last"};
    *count = 0;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        const ir_attr *a = ir_attr_find(n, kept[i]);
        if (a && (i < 4 || pass_is(&b->e, n, PASS_T_CONV)))
            attrs[(*count)++] = *a;
    }
    int64_t *pads = ARENA_ARRAY(b->e.g->memory, 2 * IR_MAX_RANK, int64_t);
    if (!pads)
        return pass_layout_no_memory(b);
    (void)pass_explicit_pads(n, pads);
    attrs[(*count)++] = (ir_attr){.name = "pads", .kind = IR_ATTR_INTS, .count = 4, .ints = pads};
    attrs[(*count)++] = pass_layout_int("channels", channels_of(n->inputs[0]));
    return TACIT_OK;
}

static tacit_status block_conv(pass_layout *b, ir_node *n)
{
    ir_attr attrs[12];
    uint32_t count;
    ir_value *in[4] = {n->inputs[0], n->inputs[1], NULL, NULL}, *form;
    /* The few channels of a photograph are read as they are. */
    bool plain =
        channels_of(n->inputs[0]) <= 4 && !pass_layout_form(b, n->inputs[0]) && !is_depthwise(n);
    if (!plain)
        TRY(form_of(b, n, n->inputs[0], &in[0]));
    if (n->n_inputs > 2)
        in[2] = n->inputs[2];
    if (n->n_inputs > 3 && n->inputs[3])
        TRY(form_of(b, n, n->inputs[3], &in[3]));
    TRY(conv_attrs(b, n, attrs, &count));
    TRY(pass_layout_add(b, n, PASS_T_BLOCKED_CONV,
                        in[3]   ? 4
                        : in[2] ? 3
                                : 2,
                        in, count, attrs, &form));
    return pass_layout_settle(b, n, form);
}

/* --- batch normalisation: a depthwise convolution of one tap ---------------------------------- */

static bool is_norm(const pass_layout *b, const ir_node *n)
{
    if (!pass_is(&b->e, n, PASS_BATCH_NORM) || !pass_layout_form(b, n->inputs[0]) ||
        ir_attr_int(n, "training_mode", 0))
        return false;
    for (uint32_t i = 1; i < 5; i++) {
        const ir_tensor *t = ir_value_known(n->inputs[i]);
        if (!t || t->dtype != TACIT_F32 || ir_tensor_count(t) != channels_of(n->inputs[0]))
            return false;
    }
    return true;
}

static tacit_status norm_weights(pass_layout *b, const ir_node *n, ir_value **in)
{
    int64_t channels = channels_of(n->inputs[0]);
    ir_shape wide = ir_shape_of(4, (int64_t[]){channels, 1, 1, 1}),
             flat = ir_shape_of(1, &channels);
    ir_tensor *scale = ir_tensor_new(b->e.g->memory, TACIT_F32, &wide);
    ir_tensor *shift = ir_tensor_new(b->e.g->memory, TACIT_F32, &flat);
    if (!scale || !shift)
        return pass_layout_no_memory(b);
    double epsilon = ir_attr_float(n, "epsilon", 1e-5);
    for (int64_t c = 0; c < channels; c++) {
        double v[4];
        for (int k = 0; k < 4; k++)
            v[k] = ((const float *)n->inputs[1 + k]->constant->data)[c];
        double s = v[0] / sqrt(v[3] + epsilon);
        ((float *)scale->data)[c] = (float)s;
        ((float *)shift->data)[c] = (float)(v[1] - v[2] * s);
    }
    in[1] = ir_constant_new(b->e.g, "scale", scale);
    in[2] = ir_constant_new(b->e.g, "shift", shift);
    return in[1] && in[2] ? TACIT_OK : pass_layout_no_memory(b);
}

static tacit_status block_norm(pass_layout *b, ir_node *n)
{
    ir_value *in[3] = {pass_layout_form(b, n->inputs[0])}, *form;
    TRY(norm_weights(b, n, in));
    ir_node *next = pass_only_user(&b->e, n->outputs[0]);
    bool relu = pass_is(&b->e, next, PASS_RELU);
    ir_attr attrs[3] = {pass_layout_int("group", channels_of(n->inputs[0])),
                        pass_layout_int("channels", channels_of(n->inputs[0])),
                        {.name = "activation", .kind = IR_ATTR_STRING, .s = {"relu", 4}}};
    TRY(pass_layout_add(b, n, PASS_T_BLOCKED_CONV, 3, in, relu ? 3 : 2, attrs, &form));
    TRY(pass_layout_settle(b, n, form));
    return relu ? pass_layout_settle(b, next, form) : TACIT_OK;
}

/* --- pooling ---------------------------------------------------------------------------------- */

static bool is_pool(const pass_layout *b, const ir_node *n)
{
    if (!pass_layout_form(b, n->n_inputs ? n->inputs[0] : NULL) || !is_image(n->outputs[0]) ||
        n->outputs[0]->type.shape.dims[3] > 1024)
        return false;
    if (pass_is(&b->e, n, PASS_AVERAGE_POOL))
        return true;
    return pass_is(&b->e, n, PASS_MAX_POOL) && (n->n_outputs < 2 || !n->outputs[1]);
}

static tacit_status block_pool(pass_layout *b, ir_node *n)
{
    static const char *const kept[] = {"auto_pad", "ceil_mode", "count_include_pad", "dilations",
                                       "pads",     "strides",   "kernel_shape"};
    ir_attr attrs[10];
    uint32_t count = 0;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        const ir_attr *a = ir_attr_find(n, kept[i]);
        if (a)
            attrs[count++] = *a;
    }
    attrs[count++] = pass_layout_int("channels", channels_of(n->inputs[0]));
    if (pass_is(&b->e, n, PASS_AVERAGE_POOL))
        attrs[count++] = pass_layout_int("average", 1);
    ir_value *x = pass_layout_form(b, n->inputs[0]), *form;
    TRY(pass_layout_add(b, n, PASS_T_BLOCKED_POOL, 1, &x, count, attrs, &form));
    return pass_layout_settle(b, n, form);
}

/* The mean of each channel, with the spatial axes kept. */
static bool is_global(const pass_layout *b, const ir_node *n)
{
    int64_t axes[4];
    uint32_t count;
    if (!pass_layout_form(b, n->n_inputs ? n->inputs[0] : NULL) || !is_image(n->outputs[0]))
        return false;
    if (pass_is(&b->e, n, PASS_GLOBAL_AVERAGE_POOL))
        return true;
    if (!pass_is(&b->e, n, PASS_REDUCE_MEAN) || !ir_attr_int(n, "keepdims", 1) || n->n_inputs < 2 ||
        !pass_ints(n->inputs[1], axes, 4, &count) || count != 2)
        return false;
    for (int i = 0; i < 2; i++)
        axes[i] += axes[i] < 0 ? 4 : 0;
    return axes[0] + axes[1] == 5 && axes[0] * axes[1] == 6;
}

static tacit_status block_global(pass_layout *b, ir_node *n)
{
    ir_value *in[2] = {pass_layout_form(b, n->inputs[0]),
                       ir_constant_i64(b->e.g, "axes", 1, 2, (int64_t[]){2, 3})},
             *form;
    if (!in[1])
        return pass_layout_no_memory(b);
    ir_attr keep = pass_layout_int("keepdims", 1);
    TRY(pass_layout_add(b, n, PASS_REDUCE_MEAN, 2, in, 1, &keep, &form));
    return pass_layout_settle(b, n, form);
}

/* --- concatenation over channels -------------------------------------------------------------- */

static bool is_concat(const pass_layout *b, const ir_node *n)
{
    int64_t axis = ir_attr_int(n, "axis", 0);
    bool any = false;
    if (!pass_is(&b->e, n, PASS_CONCAT) || !is_image(n->outputs[0]) || (axis != 1 && axis != -3) ||
        n->n_inputs > 64)
        return false;
    for (uint32_t i = 0; i < n->n_inputs; i++) {
        if (!is_image(n->inputs[i]) ||
            (i + 1 < n->n_inputs && channels_of(n->inputs[i]) % OP_BLOCK))
            return false;
        any |= pass_layout_form(b, n->inputs[i]) != NULL;
    }
    return any;
}

static tacit_status block_concat(pass_layout *b, ir_node *n)
{
    ir_value *in[64], *form;
    for (uint32_t i = 0; i < n->n_inputs; i++)
        TRY(form_of(b, n, n->inputs[i], &in[i]));
    ir_attr axis = pass_layout_int("axis", 1);
    TRY(pass_layout_add(b, n, PASS_CONCAT, n->n_inputs, in, 1, &axis, &form));
    return pass_layout_settle(b, n, form);
}

/* --- element by element ----------------------------------------------------------------------- */

static bool same_channels(const ir_value *v, const ir_value *image)
{
    const int64_t *d = v->type.shape.dims, *y = image->type.shape.dims;
    return v->type.shape.rank == 4 && d[0] == y[0] && d[1] == y[1] && d[2] == 1 && d[3] == 1;
}

/* A constant with one value per channel: [C,1,1] or [1,C,1,1]. */
static bool is_per_channel(const ir_value *v, const ir_value *image)
{
    const ir_tensor *t = ir_value_known(v);
    int32_t rank = v->type.shape.rank;
    const int64_t *d = v->type.shape.dims;
    return t && (rank == 3 || (rank == 4 && d[0] == 1)) && d[rank - 3] == channels_of(image) &&
           d[rank - 2] == 1 && d[rank - 1] == 1;
}

static bool is_elementwise(const pass_layout *b, const ir_node *n)
{
    bool any = false;
    if (!n->op || !(n->op->flags & OP_ELEMENTWISE) || n->n_outputs != 1 || n->n_inputs > 8 ||
        !is_image(n->outputs[0]))
        return false;
    for (uint32_t i = 0; i < n->n_inputs; i++) {
        const ir_value *v = n->inputs[i];
        if (!v)
            continue;
        if (!pass_static(v) || v->type.dtype != TACIT_F32)
            return false;
        bool whole = pass_layout_form(b, v) && pass_same_shape(v, n->outputs[0]);
        any |= whole;
        if (!whole && ir_shape_size(&v->type.shape) != 1 && !is_per_channel(v, n->outputs[0]) &&
            !same_channels(v, n->outputs[0]))
            return false;
    }
    return any;
}

static ir_value *per_channel(pass_layout *b, const ir_value *v)
{
    int64_t count = ir_tensor_count(v->constant), blocks = op_blocks(count);
    ir_shape shape = ir_shape_of(5, (int64_t[]){1, blocks, 1, 1, OP_BLOCK});
    ir_tensor *t = ir_tensor_new(b->e.g->memory, TACIT_F32, &shape);
    if (!t)
        return NULL;
    memset(t->data, 0, t->bytes);
    memcpy(t->data, v->constant->data, (size_t)count * sizeof(float));
    return ir_constant_new(b->e.g, v->name, t);
}

static tacit_status block_elementwise(pass_layout *b, ir_node *n)
{
    ir_value *in[8] = {0}, *form;
    for (uint32_t i = 0; i < n->n_inputs; i++) {
        ir_value *v = n->inputs[i];
        in[i] = v;
        if (!v || ir_shape_size(&v->type.shape) == 1)
            continue;
        if (is_per_channel(v, n->outputs[0]) && !pass_layout_form(b, v))
            in[i] = per_channel(b, v);
        else
            TRY(form_of(b, n, v, &in[i])); /* of factors that a network computes a few numbers */
        if (!in[i])
            return pass_layout_no_memory(b);
    }
    for (pass_op op = 0; op < PASS_OP_COUNT; op++)
        if (pass_is(&b->e, n, op)) {
            TRY(pass_layout_add(b, n, op, n->n_inputs, in, n->n_attrs, n->attrs, &form));
            return pass_layout_settle(b, n, form);
        }
    return TACIT_OK; /* an op no pattern knows stays as it is */
}

/* --- the whole graph -------------------------------------------------------------------------- */

static tacit_status visit(pass_layout *b, ir_node *n)
{
    if (!n->type || !n->n_outputs || !n->outputs[0] || pass_layout_form(b, n->outputs[0]))
        return TACIT_OK;
    if (is_conv(b, n))
        return block_conv(b, n);
    if (is_norm(b, n))
        return block_norm(b, n);
    if (is_pool(b, n))
        return block_pool(b, n);
    if (is_global(b, n))
        return block_global(b, n);
    if (is_concat(b, n))
        return block_concat(b, n);
    return is_elementwise(b, n) ? block_elementwise(b, n) : TACIT_OK;
}

/* One pixel with whole blocks lies in memory as [N, C, 1, 1] does. */
static tacit_status leave(pass_layout *b, ir_node *n, ir_value **plain)
{
    ir_value *in[2] = {pass_layout_form(b, n->outputs[0])};
    const ir_shape *s = &n->outputs[0]->type.shape;
    if (s->dims[2] == 1 && s->dims[3] == 1 && s->dims[1] % OP_BLOCK == 0) {
        in[1] = ir_constant_i64(b->e.g, "shape", 1, 4, s->dims);
        if (!in[1])
            return pass_layout_no_memory(b);
        return pass_layout_add(b, n, PASS_RESHAPE, 2, in, 0, NULL, plain);
    }
    ir_attr channels = pass_layout_int("channels", s->dims[1]);
    return pass_layout_add(b, n, PASS_T_UNBLOCK, 1, in, 1, &channels, plain);
}

tacit_status pass_block_channels(pass_context *c)
{
    return pass_layout_run(c, &(pass_layout_rules){is_conv, visit, leave});
}
