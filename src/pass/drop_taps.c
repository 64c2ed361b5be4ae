/* SPDX-License-Identifier: Apache-2.0
 * Taps of a convolution that read nothing but padding, whatever the pixel: on images smaller than
 * they reach, dilated windows (the pyramids of segmentation networks) have only their middle left.
 */
#include <string.h>

#include "pass/epilogue.h"

/* The taps along one axis. */
typedef struct tap_range {
    int64_t first, count;
    int64_t pad[2]; /* before, behind, for these alone */
} tap_range;

static tap_range live_taps(int64_t in, int64_t out, int64_t kernel, int64_t stride,
                           int64_t dilation, int64_t before, int64_t behind)
{
    int64_t first = 0, last = kernel - 1;
    while (first < last && (out - 1) * stride + first * dilation < before &&
           before >= (first + 1) * dilation)
        first++;
    while (last > first && last * dilation - before >= in && behind >= (kernel - last) * dilation)
        last--;
    return (tap_range){.first = first,
                       .count = last - first + 1,
                       .pad = {before - first * dilation, behind - (kernel - 1 - last) * dilation}};
}

/* The taps in range of weights [outputs][inputs][taps…]. NULL: no memory. */
static ir_tensor *cut_weights(pass_edit *e, const ir_tensor *w, const tap_range *range)
{
    ir_shape shape = w->shape;
    int32_t spatial = shape.rank - 2;
    for (int32_t d = 0; d < spatial; d++)
        shape.dims[2 + d] = range[d].count;
    ir_tensor *cut = ir_tensor_new(e->g->memory, w->dtype, &shape);
    if (!cut)
        return NULL;
    int64_t strides[IR_MAX_RANK], index[IR_MAX_RANK] = {0};
    ir_shape_strides(&w->shape, strides);
    int32_t last = spatial - 1; /* the last axis that is cut: what lies behind it goes together */
    while (last > 0 && range[last].count == w->shape.dims[2 + last])
        last--;
    int64_t run = range[last].count * strides[2 + last], windows = shape.dims[0] * shape.dims[1];
    int64_t runs = ir_tensor_count(cut) / windows / run;
    size_t size = ir_dtype_bytes(w->dtype, 1);
    char *to = cut->data;
    for (int64_t i = 0; i < windows * runs; i++, to += (size_t)run * size) {
        int64_t from = i / runs * strides[1];
        for (int32_t d = 0; d <= last; d++)
            from += (range[d].first + index[d]) * strides[2 + d];
        memcpy(to, (const char *)w->data + (size_t)from * size, (size_t)run * size);
        for (int32_t d = last; d-- > 0 && ++index[d] == range[d].count;)
            index[d] = 0;
    }
    return cut;
}

static tacit_status drop(pass_edit *e, ir_node *n)
{
    int64_t pads[2 * IR_MAX_RANK], kernel[IR_MAX_RANK];
    tap_range range[IR_MAX_RANK];
    if (!pass_is(e, n, PASS_CONV) || !pass_float(n->inputs[0]) || !pass_static(n->outputs[0]) ||
        !pass_static(n->inputs[0]) || !ir_value_known(n->inputs[1]) || !pass_explicit_pads(n, pads))
        return TACIT_OK;
    const ir_tensor *w = ir_value_known(n->inputs[1]);
    const ir_shape *x = &n->inputs[0]->type.shape, *y = &n->outputs[0]->type.shape;
    uint32_t count, spatial = (uint32_t)x->rank - 2;
    const int64_t *strides = ir_attr_ints(n, "strides", &count);
    const int64_t *dilations = ir_attr_ints(n, "dilations", &count);
    bool any = false;
    for (uint32_t d = 0; d < spatial; d++) {
        range[d] = live_taps(x->dims[2 + d], y->dims[2 + d], w->shape.dims[2 + d],
                             strides ? strides[d] : 1, dilations ? dilations[d] : 1, pads[d],
                             pads[spatial + d]);
        any |= range[d].count < w->shape.dims[2 + d];
        kernel[d] = range[d].count;
        pads[d] = range[d].pad[0];
        pads[spatial + d] = range[d].pad[1];
    }
    if (!any || ir_shape_size(y) == 0 || ir_tensor_count(w) == 0 || w->bytes > *e->c->fold_left)
        return TACIT_OK;
    ir_tensor *cut = cut_weights(e, w, range);
    ir_value *weights = cut ? ir_constant_new(e->g, n->inputs[1]->name, cut) : NULL;
    if (!weights)
        return error_memory(e->c->err, "weights without dead taps");
    pass_fusion f = {.op = PASS_CONV, .root = n, .n_inputs = n->n_inputs, .n_outputs = 1};
    f.inputs[0] = n->inputs[0];
    f.inputs[1] = weights;
    f.inputs[2] = n->n_inputs > 2 ? n->inputs[2] : NULL;
    f.outputs[0] = n->outputs[0];
    pass_set_add(&f.nodes, n);
    pass_fusion_int(&f, "group", ir_attr_int(n, "group", 1));
    pass_fusion_ints(&f, "kernel_shape", spatial, kernel);
    pass_fusion_ints(&f, "pads", 2 * spatial, pads);
    if (strides)
        pass_fusion_ints(&f, "strides", spatial, strides);
    if (dilations)
        pass_fusion_ints(&f, "dilations", spatial, dilations);
    TRY(pass_fuse(e, &f));
    if (f.made)
        *e->c->fold_left -= cut->bytes;
    return TACIT_OK;
}

tacit_status pass_drop_taps(pass_context *c)
{
    return pass_each(c, PASS_CONV, drop);
}
