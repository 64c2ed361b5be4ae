/* SPDX-License-Identifier: Apache-2.0
 * Derivatives of Gaussian splatting. Rasterising has a backward and a tangent op of its own, each
 * one walk over the pixels; projecting is spelled out in element-wise ops.
 *
 * SplatRasterizeGrad(means, conics, depths, radii, colours, opacities, background?, d_image?,
 * d_transmittance?) → d_means, d_conics, d_colours, d_opacities, d_background
 * SplatRasterizeTangent(those seven, t_means, t_conics, t_colours, t_opacities, t_background) →
 * t_image, t_transmittance */
#include <string.h>

#include "op/spell.h"
#include "op/splat.h"
#include "op/values.h"
#include "op/vjp.h"

enum { SPLAT_INPUTS = 7, GRADS = 5 };
/* Which input of the rasteriser the k-th gradient belongs to. */
static const uint32_t source[GRADS] = {0, 1, 4, 5, 6};

static tacit_status read_splats(op_eval *c, op_splats *p)
{
    p->n = ir_tensor_count(op_in(c, 2));
    TRY(op_input_f64(c, 0, &p->mean));
    TRY(op_input_f64(c, 1, &p->conic));
    TRY(op_input_f64(c, 2, &p->depth));
    TRY(op_input_f64(c, 3, &p->radius));
    TRY(op_input_f64(c, 4, &p->colour));
    TRY(op_input_f64(c, 5, &p->opacity));
    return op_input_f64(c, 6, &p->background);
}

static tacit_status check_splats(op_infer *c, int64_t *n)
{
    TRY(op_need_float(c, 0));
    TRY(op_check_same_dtype(c));
    TRY(op_need_rank(c, 2, 1));
    *n = c->in[2]->shape.dims[0];
    for (uint32_t k = 0; k < GRADS; k++)
        if (c->in[source[k]])
            TRY(op_need_shape(c, source[k], k < 3 ? 2 : 1,
                              (int64_t[]){k == 4 ? 3 : *n, k == 0 ? 2 : 3}));
    return op_need_shape(c, 3, 1, n);
}

/* --- backward -----------------------------------------------------------------------------------
 */

typedef struct backward {
    const op_splats *p;
    const double *d_image, *d_through; /* either may be NULL */
    double *mean, *conic, *colour, *opacity, *background;
} backward;

/* What alpha's cotangent does to a Gaussian. */
static void pull_alpha(backward *b, const op_cover *v, double d)
{
    const double *q = b->p->conic + 3 * v->id;
    if (v->cut)
        return;
    b->opacity[v->id] += d * v->weight;
    d *= v->alpha; /* of the exponent */
    b->conic[3 * v->id] -= 0.5 * d * v->dx * v->dx;
    b->conic[3 * v->id + 1] -= d * v->dx * v->dy;
    b->conic[3 * v->id + 2] -= 0.5 * d * v->dy * v->dy;
    b->mean[2 * v->id] += d * (q[0] * v->dx + q[1] * v->dy);
    b->mean[2 * v->id + 1] += d * (q[2] * v->dy + q[1] * v->dx);
}

/* Back to front: `rest` is the cotangent of what passes the Gaussian at hand. */
static void pull_pixel(void *context, int64_t pixel, const op_cover *covers, int64_t count,
                       double left)
{
    backward *b = context;
    const double none[3] = {0}, *g = b->d_image ? b->d_image + 3 * pixel : none;
    double rest = b->d_through ? b->d_through[pixel] : 0;
    for (int k = 0; k < 3; k++) {
        b->background[k] += g[k] * left;
        rest += b->p->background ? g[k] * b->p->background[k] : 0;
    }
    for (int64_t i = count; i-- > 0;) {
        const op_cover *v = &covers[i];
        double shade = 0;
        for (int k = 0; k < 3; k++) {
            shade += g[k] * b->p->colour[3 * v->id + k];
            b->colour[3 * v->id + k] += g[k] * v->alpha * v->through;
        }
        pull_alpha(b, v, (shade - rest) * v->through);
        rest = shade * v->alpha + rest * (1 - v->alpha);
    }
}

static tacit_status grad_infer(op_infer *c)
{
    int64_t n;
    op_canvas v;
    TRY(check_splats(c, &n));
    TRY(op_canvas_read(c->node, &v, c->err));
    TRY(op_need_shape(c, 7, 3, (int64_t[]){v.height, v.width, 3}));
    TRY(op_need_shape(c, 8, 2, (int64_t[]){v.height, v.width}));
    tacit_dtype d = c->in[0]->dtype;
    op_set_out_dims(c, 0, d, 2, (int64_t[]){n, 2});
    op_set_out_dims(c, 1, d, 2, (int64_t[]){n, 3});
    op_set_out_dims(c, 2, d, 2, (int64_t[]){n, 3});
    op_set_out_dims(c, 3, d, 1, &n);
    op_set_out_dims(c, 4, d, 1, (int64_t[]){3});
    return TACIT_OK;
}

static tacit_status grad_eval(op_eval *c)
{
    op_canvas v;
    op_splats p;
    double *d_image, *d_through;
    TRY(op_canvas_read(c->node, &v, c->err));
    TRY(read_splats(c, &p));
    TRY(op_input_f64(c, 7, &d_image));
    TRY(op_input_f64(c, 8, &d_through));
    backward b = {.p = &p, .d_image = d_image, .d_through = d_through};
    TRY(op_scratch_f64(c, 2 * p.n, &b.mean));
    TRY(op_scratch_f64(c, 3 * p.n, &b.conic));
    TRY(op_scratch_f64(c, 3 * p.n, &b.colour));
    TRY(op_scratch_f64(c, p.n, &b.opacity));
    TRY(op_scratch_f64(c, 3, &b.background));
    TRY(op_splat_pixels(c, &v, &p, pull_pixel, &b));
    op_output_f64(c, 0, b.mean);
    op_output_f64(c, 1, b.conic);
    op_output_f64(c, 2, b.colour);
    op_output_f64(c, 3, b.opacity);
    op_output_f64(c, 4, b.background);
    return TACIT_OK;
}

/* --- tangents -----------------------------------------------------------------------------------
 */

typedef struct tangent {
    const op_splats *p;
    const double *mean, *conic, *colour, *opacity, *background;
    double *image, *through;
} tangent;

static void push_pixel(void *context, int64_t pixel, const op_cover *covers, int64_t count,
                       double left)
{
    tangent *t = context;
    double *rgb = t->image + 3 * pixel, d_through = 0;
    for (int64_t i = 0; i < count; i++) {
        const op_cover *v = &covers[i];
        const double *q = t->p->conic + 3 * v->id, *tq = t->conic + 3 * v->id;
        double power = -0.5 * (tq[0] * v->dx * v->dx + tq[2] * v->dy * v->dy) -
                       tq[1] * v->dx * v->dy + (q[0] * v->dx + q[1] * v->dy) * t->mean[2 * v->id] +
                       (q[2] * v->dy + q[1] * v->dx) * t->mean[2 * v->id + 1];
        double alpha = v->cut ? 0 : t->opacity[v->id] * v->weight + v->alpha * power;
        for (int k = 0; k < 3; k++)
            rgb[k] += t->colour[3 * v->id + k] * v->alpha * v->through +
                      t->p->colour[3 * v->id + k] * (alpha * v->through + v->alpha * d_through);
        d_through = d_through * (1 - v->alpha) - v->through * alpha;
    }
    t->through[pixel] = d_through;
    for (int k = 0; k < 3; k++)
        rgb[k] +=
            left * t->background[k] + (t->p->background ? d_through * t->p->background[k] : 0);
}

static tacit_status tangent_infer(op_infer *c)
{
    int64_t n;
    op_canvas v;
    TRY(check_splats(c, &n));
    TRY(op_canvas_read(c->node, &v, c->err));
    for (uint32_t k = 0; k < GRADS; k++)
        TRY(op_need_shape(c, SPLAT_INPUTS + k, k < 3 ? 2 : 1,
                          (int64_t[]){k == 4 ? 3 : n, k == 0 ? 2 : 3}));
    op_set_out_dims(c, 0, c->in[0]->dtype, 3, (int64_t[]){v.height, v.width, 3});
    op_set_out_dims(c, 1, c->in[0]->dtype, 2, (int64_t[]){v.height, v.width});
    return TACIT_OK;
}

static tacit_status tangent_eval(op_eval *c)
{
    op_canvas v;
    op_splats p;
    double *in[GRADS];
    TRY(op_canvas_read(c->node, &v, c->err));
    TRY(read_splats(c, &p));
    for (uint32_t k = 0; k < GRADS; k++)
        TRY(op_input_f64(c, SPLAT_INPUTS + k, &in[k]));
    tangent t = {.p = &p,
                 .mean = in[0],
                 .conic = in[1],
                 .colour = in[2],
                 .opacity = in[3],
                 .background = in[4]};
    TRY(op_scratch_f64(c, v.width * v.height * 3, &t.image));
    TRY(op_scratch_f64(c, v.width * v.height, &t.through));
    TRY(op_splat_pixels(c, &v, &p, push_pixel, &t));
    op_output_f64(c, 0, t.image);
    op_output_f64(c, 1, t.through);
    return TACIT_OK;
}

/* --- rules --------------------------------------------------------------------------------------
 */

/* The backward node for cotangents of image and transmittance. */
static ir_node *grad_node(op_diff *c, ir_value *const *splats, ir_value *image, ir_value *through)
{
    ir_value *in[SPLAT_INPUTS + 2];
    memcpy(in, splats, SPLAT_INPUTS * sizeof *in);
    in[7] = image;
    in[8] = through;
    return op_spell_sibling(c, "SplatRasterizeGrad", "tacit", SPLAT_INPUTS + 2, in, GRADS);
}

tacit_status op_vjp_splat_rasterize(op_diff *c)
{
    ir_value *in[SPLAT_INPUTS] = {NULL};
    memcpy(in, c->node->inputs, c->node->n_inputs * sizeof *in);
    ir_node *n = grad_node(c, in, c->out_grad[0], c->node->n_outputs > 1 ? c->out_grad[1] : NULL);
    for (uint32_t k = 0; n && k < GRADS; k++)
        if (source[k] < c->node->n_inputs)
            c->in_grad[source[k]] = n->outputs[k];
    return c->status; /* depths order and radii cull: no slope */
}

static tacit_status once_only(op_diff *c)
{
    for (uint32_t i = 0; i < SPLAT_INPUTS; i++)
        if (c->wanted[i] && i != 2 && i != 3)
            return op_diff_fail(c, TACIT_ERR_UNSUPPORTED,
                                "rasterising has no second derivative in the Gaussians");
    return c->status;
}

/* The backward op is linear in its cotangents: its own cotangents are a tangent. */
static tacit_status grad_vjp(op_diff *c)
{
    TRY(once_only(c));
    ir_value *in[SPLAT_INPUTS + GRADS];
    memcpy(in, c->node->inputs, SPLAT_INPUTS * sizeof *in);
    for (uint32_t k = 0; k < GRADS; k++) {
        ir_value *g = k < c->node->n_outputs ? c->out_grad[k] : NULL;
        ir_type type = ir_type_tensor(in[0]->type.dtype, 1, (int64_t[]){3});
        if (!g && k < GRADS - 1)
            type = in[source[k]]->type;
        in[SPLAT_INPUTS + k] = g ? g : op_diff_zeros(c, &type);
    }
    ir_node *n = op_spell_sibling(c, "SplatRasterizeTangent", "tacit", SPLAT_INPUTS + GRADS, in, 2);
    if (n) {
        c->in_grad[7] = n->outputs[0];
        c->in_grad[8] = n->outputs[1];
    }
    return c->status;
}

static tacit_status tangent_vjp(op_diff *c)
{
    TRY(once_only(c));
    ir_node *n = grad_node(c, c->node->inputs, c->out_grad[0],
                           c->node->n_outputs > 1 ? c->out_grad[1] : NULL);
    for (uint32_t k = 0; n && k < GRADS; k++)
        c->in_grad[SPLAT_INPUTS + k] = n->outputs[k];
    return c->status;
}

tacit_status op_spell_gaussian_splat(op_diff *c, ir_value **out)
{
    ir_value *const *in = c->node->inputs;
    ir_value *gaussians[5] = {in[0], in[1], in[2], in[4], in[5]};
    ir_node *p = op_spell_sibling(c, "SplatProject", "tacit", 5, gaussians, 5);
    if (!p)
        return c->status;
    ir_value *seen[SPLAT_INPUTS] = {p->outputs[0],       p->outputs[1], p->outputs[2],
                                    p->outputs[3],       p->outputs[4], in[3],
                                    op_spell_input(c, 6)};
    ir_node *r =
        op_spell_sibling(c, "SplatRasterize", "tacit", seen[6] ? 7 : 6, seen, c->node->n_outputs);
    for (uint32_t i = 0; r && i < c->node->n_outputs; i++)
        out[i] = r->outputs[i];
    return c->status;
}

const op_def op_rows_splat_grad[] = {
    {.name = "SplatRasterizeGrad",
     .domain = "tacit",
     .min_in = 6,
     .max_in = SPLAT_INPUTS + 2,
     .min_out = GRADS,
     .max_out = GRADS,
     .infer = grad_infer,
     .eval = grad_eval,
     .vjp = grad_vjp},
    {.name = "SplatRasterizeTangent",
     .domain = "tacit",
     .min_in = 6,
     .max_in = SPLAT_INPUTS + GRADS,
     .min_out = 1,
     .max_out = 2,
     .infer = tangent_infer,
     .eval = tangent_eval,
     .vjp = tangent_vjp},
    {0},
};
