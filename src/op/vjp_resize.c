/* SPDX-License-Identifier: Apache-2.0
 * Derivative of Resize: along every axis it is a product with a matrix, which the same op makes out
 * of unit vectors. */
#include <string.h>

#include "op/spell.h"
#include "op/vjp.h"

/* Place of axis d in the lists scales and sizes, -1: it is not resized. */
static int32_t place_of(const ir_node *n, int32_t d, int32_t rank)
{
    uint32_t count;
    const int64_t *axes = ir_attr_ints(n, "axes", &count);
    for (uint32_t i = 0; axes && i < count; i++)
        if (axes[i] == d || axes[i] == d - rank)
            return (int32_t)i;
    return axes ? -1 : d;
}

/* Resize of the unit vectors' last axis as the node does it to axis d: [in, out]. */
static ir_value *axis_matrix(op_diff *c, int32_t d, int32_t place)
{
    ir_node *n = c->node;
    const ir_shape *x = &n->inputs[0]->type.shape, *y = &n->outputs[0]->type.shape;
    const ir_tensor *scales = n->n_inputs > 2 ? ir_value_known(n->inputs[2]) : NULL;
    ir_value *in[4] = {op_spell_eye(c, n->inputs[0]->type.dtype, x->dims[d])};
    if (scales && ir_tensor_count(scales) > place) {
        ir_shape two = ir_shape_of(1, (int64_t[]){2});
        ir_tensor *t = ir_tensor_new(c->graph->memory, TACIT_F32, &two);
        if (t) {
            ir_store_f64(TACIT_F32, t->data, 0, 1);
            ir_store_f64(TACIT_F32, t->data, 1, ir_load_f64(scales->dtype, scales->data, place));
            in[2] = ir_constant_new(c->graph, "scales", t);
        }
    } else {
        in[3] = op_diff_ints(c, 2, (int64_t[]){x->dims[d], y->dims[d]});
    }
    const ir_tensor *roi = n->n_inputs > 1 ? ir_value_known(n->inputs[1]) : NULL;
    if (roi && ir_tensor_count(roi) > 1) { /* of the unit vectors' own axis: all of it */
        int64_t half = ir_tensor_count(roi) / 2;
        double box[4] = {0, ir_load_f64(roi->dtype, roi->data, place), 1,
                         ir_load_f64(roi->dtype, roi->data, half + place)};
        in[1] = op_spell_floats(c, roi->dtype, 1, (int64_t[]){4}, box);
    }
    if (!in[0] || (!in[2] && !in[3]))
        return NULL;
    ir_node *m = ir_node_new(c->graph, "Resize", "", NULL, in[3] ? 4 : 3, in, 1, NULL);
    if (!m || !ir_attr_copy_all(c->graph, m, n)) {
        c->status = error_memory(c->err, "a gradient graph");
        return NULL;
    }
    ir_attr_remove(m, "axes");
    ir_attr_remove(m, "extrapolation_value"); /* a constant, no part of the map */
    op_resolve(NULL, m);
    c->status = op_infer_node(c->graph, m, c->err);
    return c->status == TACIT_OK ? m->outputs[0] : NULL;
}

tacit_status op_vjp_resize(op_diff *c)
{
    const ir_node *n = c->node;
    const ir_shape *x = &n->inputs[0]->type.shape;
    const char *policy = ir_attr_string(n, "keep_aspect_ratio_policy", "stretch");
    const char *mode = ir_attr_string(n, "coordinate_transformation_mode", "half_pixel");
    if (strcmp(policy, "stretch") != 0)
        return op_diff_fail(c, TACIT_ERR_UNSUPPORTED,
                            "keeping the aspect ratio has no gradient rule: give scales");
    if (strcmp(mode, "tf_crop_and_resize") == 0 && (!n->inputs[1] || !ir_value_known(n->inputs[1])))
        return op_diff_fail(c, TACIT_ERR_UNSUPPORTED,
                            "its gradient needs a roi known when compiling");
    ir_value *g = c->out_grad[0];
    for (int32_t d = 0; d < x->rank && g; d++) {
        int32_t place = place_of(n, d, x->rank), last = x->rank - 1; /* a turn swaps d and last */
        int64_t perm[IR_MAX_RANK];
        if (place < 0)
            continue;
        ir_value *matrix = axis_matrix(c, d, place);
        for (int32_t i = 0; i <= last; i++)
            perm[i] = i == d ? last : i == last ? d : i;
        if (d != last)
            g = op_diff_transpose(c, g, perm);
        g = op_diff2(c, "MatMul", g, op_diff_swap_last(c, matrix));
        if (d != last)
            g = op_diff_transpose(c, g, perm);
    }
    c->in_grad[0] = g;
    return c->status;
}
