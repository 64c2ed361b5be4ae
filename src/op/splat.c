/* SPDX-License-Identifier: Apache-2.0
 * Gaussian splatting, forward: tacit SplatProject, SplatRasterize, and GaussianSplat = both.
 *
 * A Gaussian has a position [3], standard deviations [3], a quaternion (w, x, y, z), an opacity and
 * spherical-harmonics coefficients [K, 3], K = 1, 4, 9 or 16. The camera is 20 numbers: the 4×4
 * world-to-camera matrix by rows (looking along +z), then fx, fy, cx, cy. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "op/splat.h"
#include "op/values.h"
#include "op/vjp.h"

enum { CAMERA = 20 };

/* --- SplatProject(positions [N,3], scales [N,3], rotations [N,4], sh [N,K,3], camera [20])
 *     → means [N,2], conics [N,3], depths [N], radii [N], colours [N,3]
 * ----------------------------- */

static tacit_status check_gaussians(const op_infer *c, uint32_t sh, int64_t *n)
{
    const ir_shape *p = &c->in[0]->shape, *h = &c->in[sh]->shape;
    TRY(op_need_float(c, 0));
    TRY(op_need_rank(c, 0, 2));
    *n = p->dims[0];
    TRY(op_need_shape(c, 0, 2, (int64_t[]){*n, 3}));
    TRY(op_need_shape(c, 1, 2, (int64_t[]){*n, 3}));
    TRY(op_need_shape(c, 2, 2, (int64_t[]){*n, 4}));
    TRY(op_need_rank(c, sh, 3));
    int64_t k = h->dims[1];
    if (h->dims[0] != *n || h->dims[2] != 3 || (k != 1 && k != 4 && k != 9 && k != 16))
        return error_set(c->err, TACIT_ERR_SHAPE, "sh must be [%lld, 1|4|9|16, 3]", (long long)*n);
    return op_need_shape(c, sh + 1, 1, (int64_t[]){CAMERA});
}

static tacit_status project_infer(op_infer *c)
{
    int64_t n;
    TRY(op_check_same_dtype(c));
    TRY(check_gaussians(c, 3, &n));
    tacit_dtype d = c->in[0]->dtype;
    op_set_out_dims(c, 0, d, 2, (int64_t[]){n, 2});
    op_set_out_dims(c, 1, d, 2, (int64_t[]){n, 3});
    op_set_out_dims(c, 2, d, 1, &n);
    op_set_out_dims(c, 3, d, 1, &n);
    op_set_out_dims(c, 4, d, 2, (int64_t[]){n, 3});
    return TACIT_OK;
}

/* Real spherical harmonics up to degree 3 in direction (x, y, z). */
static void harmonics(double x, double y, double z, double b[16])
{
    double xx = x * x, yy = y * y, zz = z * z;
    b[0] = 0.28209479177387814;
    b[1] = -0.4886025119029199 * y;
    b[2] = 0.4886025119029199 * z;
    b[3] = -0.4886025119029199 * x;
    b[4] = 1.0925484305920792 * x * y;
    b[5] = -1.0925484305920792 * y * z;
    b[6] = 0.31539156525252005 * (2 * zz - xx - yy);
    b[7] = -1.0925484305920792 * x * z;
    b[8] = 0.5462742152960396 * (xx - yy);
    b[9] = -0.5900435899266435 * y * (3 * xx - yy);
    b[10] = 2.890611442640554 * x * y * z;
    b[11] = -0.4570457994644658 * y * (4 * zz - xx - yy);
    b[12] = 0.3731763325901154 * z * (2 * zz - 3 * xx - 3 * yy);
    b[13] = -0.4570457994644658 * x * (4 * zz - xx - yy);
    b[14] = 1.445305721320277 * z * (xx - yy);
    b[15] = -0.5900435899266435 * x * (xx - 3 * yy);
}

/* Colour seen from the camera at `eye`: 0.5 + Σ coefficient·basis, not below 0. */
static void colour_of(const double *position, const double *eye, const double *sh, int64_t k,
                      double out[3])
{
    double d[3], b[16], length = 0;
    for (int i = 0; i < 3; i++) {
        d[i] = position[i] - eye[i];
        length += d[i] * d[i];
    }
    length = length > 0 ? sqrt(length) : 1;
    harmonics(d[0] / length, d[1] / length, d[2] / length, b);
    for (int i = 0; i < 3; i++) {
        out[i] = 0.5;
        for (int64_t j = 0; j < k; j++)
            out[i] += b[j] * sh[j * 3 + i];
        out[i] = out[i] > 0 ? out[i] : 0;
    }
}

/* R·diag(s): the columns are the ellipsoid's axes in the world. */
static void axes_of(const double *q, const double *s, double m[9])
{
    double n = sqrt(q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3]);
    double w = n > 0 ? q[0] / n : 1, x = n > 0 ? q[1] / n : 0, y = n > 0 ? q[2] / n : 0;
    double z = n > 0 ? q[3] / n : 0;
    double r[9] = {1 - 2 * (y * y + z * z), 2 * (x * y - w * z),     2 * (x * z + w * y),
                   2 * (x * y + w * z),     1 - 2 * (x * x + z * z), 2 * (y * z - w * x),
                   2 * (x * z - w * y),     2 * (y * z + w * x),     1 - 2 * (x * x + y * y)};
    for (int i = 0; i < 9; i++)
        m[i] = r[i] * s[i % 3];
}

typedef struct lens {
    double near, low_pass, reach;
} lens;

static lens lens_read(const ir_node *node)
{
    return (lens){ir_attr_float(node, "near", 0.01), ir_attr_float(node, "low_pass", 0.3),
                  ir_attr_float(node, "radius", 3)};
}

/* One Gaussian; a radius of 0 means it is not seen. */
static void project_one(const lens *l, const double *camera, const double *position,
                        const double *scale, const double *rotation, double mean[2],
                        double conic[3], double *depth, double *radius)
{
    double t[3], m[9], row[2][3] = {{0}}, fx = camera[16], fy = camera[17];
    mean[0] = mean[1] = conic[0] = conic[1] = conic[2] = *radius = 0;
    for (int i = 0; i < 3; i++)
        t[i] = camera[i * 4] * position[0] + camera[i * 4 + 1] * position[1] +
               camera[i * 4 + 2] * position[2] + camera[i * 4 + 3];
    *depth = t[2];
    if (!(t[2] > l->near))
        return;
    mean[0] = fx * t[0] / t[2] + camera[18];
    mean[1] = fy * t[1] / t[2] + camera[19];
    axes_of(rotation, scale, m);
    /* The Jacobian of the projection times the view's rotation times the axes: covariance =
     * row·rowᵀ */
    double j[2][3] = {{fx / t[2], 0, -fx * t[0] / (t[2] * t[2])},
                      {0, fy / t[2], -fy * t[1] / (t[2] * t[2])}};
    for (int r = 0; r < 2; r++)
        for (int a = 0; a < 3; a++)
            for (int k = 0; k < 3; k++)
                for (int i = 0; i < 3; i++)
                    row[r][a] += j[r][k] * camera[k * 4 + i] * m[i * 3 + a];
    double xx = l->low_pass, xy = 0, yy = l->low_pass;
    for (int a = 0; a < 3; a++) {
        xx += row[0][a] * row[0][a];
        xy += row[0][a] * row[1][a];
        yy += row[1][a] * row[1][a];
    }
    double det = xx * yy - xy * xy, half = (xx + yy) / 2;
    if (!(det > 0) || !isfinite(det))
        return;
    conic[0] = yy / det;
    conic[1] = -xy / det;
    conic[2] = xx / det;
    double most = half + sqrt(fmax(half * half - det, 0));
    *radius = ceil(l->reach * sqrt(most));
}

static tacit_status project_all(op_eval *c, uint32_t sh_input, op_splats *out)
{
    const ir_shape *sh_shape = &op_in(c, sh_input)->shape;
    int64_t n = sh_shape->dims[0], k = sh_shape->dims[1];
    double *position, *scale, *rotation, *sh, *camera, eye[3];
    lens l = lens_read(c->node);
    TRY(op_input_f64(c, 0, &position));
    TRY(op_input_f64(c, 1, &scale));
    TRY(op_input_f64(c, 2, &rotation));
    TRY(op_input_f64(c, sh_input, &sh));
    TRY(op_input_f64(c, sh_input + 1, &camera));
    TRY(op_scratch_f64(c, n * 2, &out->mean));
    TRY(op_scratch_f64(c, n * 3, &out->conic));
    TRY(op_scratch_f64(c, n, &out->depth));
    TRY(op_scratch_f64(c, n, &out->radius));
    TRY(op_scratch_f64(c, n * 3, &out->colour));
    for (int i = 0; i < 3; i++) /* −Rᵀ·t */
        eye[i] = -(camera[i] * camera[3] + camera[4 + i] * camera[7] + camera[8 + i] * camera[11]);
    for (int64_t i = 0; i < n; i++) {
        project_one(&l, camera, position + 3 * i, scale + 3 * i, rotation + 4 * i,
                    out->mean + 2 * i, out->conic + 3 * i, out->depth + i, out->radius + i);
        colour_of(position + 3 * i, eye, sh + i * k * 3, k, out->colour + 3 * i);
    }
    return TACIT_OK;
}

static tacit_status project_eval(op_eval *c)
{
    op_splats p = {.n = 0};
    TRY(project_all(c, 3, &p));
    op_output_f64(c, 0, p.mean);
    op_output_f64(c, 1, p.conic);
    op_output_f64(c, 2, p.depth);
    op_output_f64(c, 3, p.radius);
    op_output_f64(c, 4, p.colour);
    return TACIT_OK;
}

/* --- SplatRasterize(means, conics, depths, radii, colours, opacities [N], background? [3])
 *     → image [H,W,3], transmittance [H,W]
 * ----------------------------------------------------------- */

tacit_status op_canvas_read(const ir_node *node, op_canvas *v, tacit_error *err)
{
    *v = (op_canvas){ir_attr_int(node, "width", 0), ir_attr_int(node, "height", 0),
                     ir_attr_int(node, "tile", 16), ir_attr_float(node, "alpha_min", 1. / 255),
                     ir_attr_float(node, "transmittance", 1e-4)};
    if (v->width < 1 || v->height < 1 || v->width > 1 << 16 || v->height > 1 << 16 || v->tile < 1 ||
        v->tile > 1 << 16)
        return error_set(err, TACIT_ERR_VALUE, "an image of %lld×%lld in tiles of %lld",
                         (long long)v->width, (long long)v->height, (long long)v->tile);
    return TACIT_OK;
}

static tacit_status set_image(op_infer *c, uint32_t background)
{
    op_canvas v;
    TRY(op_canvas_read(c->node, &v, c->err));
    TRY(op_need_shape(c, background, 1, (int64_t[]){3}));
    op_set_out_dims(c, 0, c->in[0]->dtype, 3, (int64_t[]){v.height, v.width, 3});
    op_set_out_dims(c, 1, c->in[0]->dtype, 2, (int64_t[]){v.height, v.width});
    return TACIT_OK;
}

static tacit_status rasterize_infer(op_infer *c)
{
    TRY(op_need_float(c, 0));
    TRY(op_check_same_dtype(c));
    TRY(op_need_rank(c, 2, 1));
    int64_t n = c->in[2]->shape.dims[0];
    TRY(op_need_shape(c, 0, 2, (int64_t[]){n, 2}));
    TRY(op_need_shape(c, 1, 2, (int64_t[]){n, 3}));
    TRY(op_need_shape(c, 3, 1, &n));
    TRY(op_need_shape(c, 4, 2, (int64_t[]){n, 3}));
    TRY(op_need_shape(c, 5, 1, &n));
    return set_image(c, 6);
}

typedef struct by_depth {
    double depth;
    int64_t id;
} by_depth;

/* Front to back; equal depths keep their order. */
static int nearer(const void *a, const void *b)
{
    const by_depth *x = a, *y = b;
    if (x->depth != y->depth)
        return x->depth < y->depth ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

int64_t op_splat_covers(const op_canvas *v, const op_splats *p, const int64_t *ids, int64_t count,
                        double x, double y, op_cover *out, double *left)
{
    int64_t n = 0;
    *left = 1;
    for (int64_t i = 0; i < count; i++) {
        int64_t id = ids[i];
        double dx = x - p->mean[2 * id], dy = y - p->mean[2 * id + 1];
        const double *q = p->conic + 3 * id;
        double power = -0.5 * (q[0] * dx * dx + q[2] * dy * dy) - q[1] * dx * dy;
        double weight = exp(power), full = p->opacity[id] * weight, alpha = fmin(0.99, full);
        if (power > 0 || !(alpha >= v->alpha_min))
            continue;
        if (*left * (1 - alpha) < v->stop)
            break;
        out[n++] = (op_cover){id, dx, dy, alpha, weight, *left, full > 0.99};
        *left *= 1 - alpha;
    }
    return n;
}

static bool touches(const op_splats *p, int64_t id, double x0, double y0, double x1, double y1)
{
    double x = p->mean[2 * id], y = p->mean[2 * id + 1], r = p->radius[id];
    return r > 0 && x + r >= x0 && x - r < x1 && y + r >= y0 && y - r < y1;
}

tacit_status op_splat_pixels(op_eval *c, const op_canvas *v, const op_splats *p,
                             op_splat_paint *paint, void *context)
{
    by_depth *order = op_eval_scratch(c, (size_t)(p->n + 1) * sizeof *order);
    int64_t *list = op_eval_scratch(c, (size_t)(p->n + 1) * sizeof *list), seen = 0;
    op_cover *covers = op_eval_scratch(c, (size_t)(p->n + 1) * sizeof *covers);
    if (!order || !list || !covers)
        return error_memory(c->err, "sorting Gaussians");
    for (int64_t i = 0; i < p->n; i++)
        if (p->radius[i] > 0 && p->depth[i] == p->depth[i])
            order[seen++] = (by_depth){p->depth[i], i};
    qsort(order, (size_t)seen, sizeof *order, nearer);
    for (int64_t ty = 0; ty < v->height; ty += v->tile)
        for (int64_t tx = 0; tx < v->width; tx += v->tile) {
            int64_t y1 = ty + v->tile < v->height ? ty + v->tile : v->height, count = 0;
            int64_t x1 = tx + v->tile < v->width ? tx + v->tile : v->width;
            for (int64_t i = 0; i < seen; i++)
                if (touches(p, order[i].id, (double)tx, (double)ty, (double)x1, (double)y1))
                    list[count++] = order[i].id;
            for (int64_t y = ty; y < y1; y++)
                for (int64_t x = tx; x < x1; x++) {
                    double left;
                    int64_t n = op_splat_covers(v, p, list, count, (double)x + 0.5, (double)y + 0.5,
                                                covers, &left);
                    paint(context, y * v->width + x, covers, n, left);
                }
        }
    return TACIT_OK;
}

typedef struct picture {
    const op_splats *p;
    double *image, *through;
} picture;

/* Blends front to back. */
static void blend(void *context, int64_t pixel, const op_cover *covers, int64_t count, double left)
{
    picture *t = context;
    double *rgb = t->image + pixel * 3;
    for (int64_t i = 0; i < count; i++)
        for (int k = 0; k < 3; k++)
            rgb[k] += t->p->colour[3 * covers[i].id + k] * covers[i].alpha * covers[i].through;
    t->through[pixel] = left;
    for (int k = 0; t->p->background && k < 3; k++)
        rgb[k] += left * t->p->background[k];
}

static tacit_status rasterize(op_eval *c, const op_splats *p)
{
    op_canvas v;
    picture t = {.p = p};
    TRY(op_canvas_read(c->node, &v, c->err));
    TRY(op_scratch_f64(c, v.width * v.height * 3, &t.image));
    TRY(op_scratch_f64(c, v.width * v.height, &t.through));
    TRY(op_splat_pixels(c, &v, p, blend, &t));
    op_output_f64(c, 0, t.image);
    op_output_f64(c, 1, t.through);
    return TACIT_OK;
}

static tacit_status rasterize_eval(op_eval *c)
{
    op_splats p = {.n = ir_tensor_count(op_in(c, 2))};
    TRY(op_input_f64(c, 0, &p.mean));
    TRY(op_input_f64(c, 1, &p.conic));
    TRY(op_input_f64(c, 2, &p.depth));
    TRY(op_input_f64(c, 3, &p.radius));
    TRY(op_input_f64(c, 4, &p.colour));
    TRY(op_input_f64(c, 5, &p.opacity));
    TRY(op_input_f64(c, 6, &p.background));
    return rasterize(c, &p);
}

/* --- GaussianSplat(positions, scales, rotations, opacities, sh, camera, background?)
 * ----------------- */

static tacit_status splat_infer(op_infer *c)
{
    int64_t n;
    TRY(op_check_same_dtype(c));
    TRY(check_gaussians(c, 4, &n));
    TRY(op_need_shape(c, 3, 1, &n));
    return set_image(c, 6);
}

static tacit_status splat_eval(op_eval *c)
{
    op_splats p = {.n = ir_tensor_count(op_in(c, 3))};
    TRY(project_all(c, 4, &p));
    TRY(op_input_f64(c, 3, &p.opacity));
    TRY(op_input_f64(c, 6, &p.background));
    return rasterize(c, &p);
}

const op_def op_rows_splat[] = {
    {.name = "SplatProject",
     .domain = "tacit",
     .min_in = 5,
     .max_in = 5,
     .min_out = 5,
     .max_out = 5,
     .infer = project_infer,
     .eval = project_eval,
     .spell = op_spell_splat_project},
    {.name = "SplatRasterize",
     .domain = "tacit",
     .min_in = 6,
     .max_in = 7,
     .min_out = 1,
     .max_out = 2,
     .infer = rasterize_infer,
     .eval = rasterize_eval,
     .vjp = op_vjp_splat_rasterize},
    {.name = "GaussianSplat",
     .domain = "tacit",
     .min_in = 6,
     .max_in = 7,
     .min_out = 1,
     .max_out = 2,
     .infer = splat_infer,
     .eval = splat_eval,
     .spell = op_spell_gaussian_splat},
    {0},
};
