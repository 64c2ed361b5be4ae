/* SPDX-License-Identifier: Apache-2.0
 * SplatProject in element-wise ops: positions, scales, rotations, colours and the camera all get
 * their derivative. What is not seen gives none. */
#include "op/spell.h"
#include "op/vjp.h"

/* Column k of [N, n]. */
static ir_value *column(op_diff *c, ir_value *x, int64_t k)
{
    return op_spell_slice(c, x, 1, k, k + 1);
}

static ir_value *square(op_diff *c, ir_value *x)
{
    return op_spell_mul(c, x, x);
}

/* x where `test` is true, else `other`. */
static ir_value *guarded(op_diff *c, ir_value *test, ir_value *x, double other)
{
    return x ? op_diff3(c, "Where", test, x, op_diff_scalar(c, x->type.dtype, other)) : NULL;
}

static ir_value *positive(op_diff *c, ir_value *x, double than)
{
    return x ? op_diff2(c, "Greater", x, op_diff_scalar(c, x->type.dtype, than)) : NULL;
}

/* Rows scaled to length one; a zero row stays. */
static ir_value *unit_rows(op_diff *c, ir_value *x)
{
    ir_value *sum = op_spell_reduce(c, "ReduceSum", square(c, x), 1, true);
    ir_value *length = op_diff1(c, "Sqrt", guarded(c, positive(c, sum, 0), sum, 1));
    return op_spell_div(c, x, length);
}

/* a·x·y with NULL for one. */
static ir_value *term(op_diff *c, double a, ir_value *x, ir_value *y)
{
    return op_diff_scale(c, y ? op_spell_mul(c, x, y) : x, a);
}

/* Quaternions [N, 4] → rotation times scales: [N, 3, 3], columns are the axes. */
static ir_value *axes_of(op_diff *c, ir_value *rotation, ir_value *scale)
{
    ir_value *q = unit_rows(c, rotation), *w = column(c, q, 0), *x = column(c, q, 1);
    ir_value *y = column(c, q, 2), *z = column(c, q, 3);
    ir_value *xx = square(c, x), *yy = square(c, y), *zz = square(c, z);
    ir_value *xy = op_spell_mul(c, x, y), *xz = op_spell_mul(c, x, z), *yz = op_spell_mul(c, y, z);
    ir_value *wx = op_spell_mul(c, w, x), *wy = op_spell_mul(c, w, y), *wz = op_spell_mul(c, w, z);
    ir_value *r[9] = {
        op_spell_shift(c, term(c, -2, op_spell_add(c, yy, zz), NULL), 1),
        term(c, 2, op_spell_sub(c, xy, wz), NULL),
        term(c, 2, op_spell_add(c, xz, wy), NULL),
        term(c, 2, op_spell_add(c, xy, wz), NULL),
        op_spell_shift(c, term(c, -2, op_spell_add(c, xx, zz), NULL), 1),
        term(c, 2, op_spell_sub(c, yz, wx), NULL),
        term(c, 2, op_spell_sub(c, xz, wy), NULL),
        term(c, 2, op_spell_add(c, yz, wx), NULL),
        op_spell_shift(c, term(c, -2, op_spell_add(c, xx, yy), NULL), 1),
    };
    int64_t n = rotation->type.shape.dims[0];
    ir_value *m = op_spell_shaped(c, op_spell_concat(c, 9, r, 1), 3, (int64_t[]){n, 3, 3});
    return op_spell_mul(c, m, op_spell_unsqueeze(c, scale, 1));
}

/* Real spherical harmonics of directions d [N, 3]: [N, k]. */
static ir_value *harmonics(op_diff *c, ir_value *d, int64_t k)
{
    ir_value *x = column(c, d, 0), *y = column(c, d, 1), *z = column(c, d, 2), *b[16];
    ir_value *xx = square(c, x), *yy = square(c, y), *zz = square(c, z);
    b[0] = op_spell_shift(c, op_diff_scale(c, x, 0), 0.28209479177387814);
    if (k > 1) {
        b[1] = op_diff_scale(c, y, -0.4886025119029199);
        b[2] = op_diff_scale(c, z, 0.4886025119029199);
        b[3] = op_diff_scale(c, x, -0.4886025119029199);
    }
    ir_value *both = op_spell_add(c, xx, yy), *apart = op_spell_sub(c, xx, yy);
    if (k > 4) {
        b[4] = term(c, 1.0925484305920792, x, y);
        b[5] = term(c, -1.0925484305920792, y, z);
        b[6] = term(c, 0.31539156525252005, op_spell_sub(c, op_diff_scale(c, zz, 2), both), NULL);
        b[7] = term(c, -1.0925484305920792, x, z);
        b[8] = op_diff_scale(c, apart, 0.5462742152960396);
    }
    if (k > 9) {
        ir_value *four = op_spell_sub(c, op_diff_scale(c, zz, 4), both);
        ir_value *two = op_spell_sub(c, op_diff_scale(c, zz, 2), op_diff_scale(c, both, 3));
        ir_value *left = op_spell_sub(c, op_diff_scale(c, xx, 3), yy);
        ir_value *right = op_spell_sub(c, xx, op_diff_scale(c, yy, 3));
        b[9] = term(c, -0.5900435899266435, y, left);
        b[10] = term(c, 2.890611442640554, op_spell_mul(c, x, y), z);
        b[11] = term(c, -0.4570457994644658, y, four);
        b[12] = term(c, 0.3731763325901154, z, two);
        b[13] = term(c, -0.4570457994644658, x, four);
        b[14] = term(c, 1.445305721320277, z, apart);
        b[15] = term(c, -0.5900435899266435, x, right);
    }
    return op_spell_concat(c, (uint32_t)k, b, 1);
}

static ir_value *colours(op_diff *c, ir_value *position, ir_value *turn, ir_value *shift,
                         ir_value *sh)
{
    ir_value *eye = op_diff1(c, "Neg", op_spell_matmul(c, shift, turn)); /* −tᵀR: [1, 3] */
    ir_value *d = unit_rows(c, op_spell_sub(c, position, eye));
    ir_value *basis = op_spell_unsqueeze(c, harmonics(c, d, sh->type.shape.dims[1]), 2);
    ir_value *sum = op_spell_reduce(c, "ReduceSum", op_spell_mul(c, basis, sh), 1, false);
    return op_diff1(c, "Relu", op_spell_shift(c, sum, 0.5));
}

typedef struct view {
    ir_value *tx, *ty, *tz, *z, *seen; /* [N, 1]; z is tz where it is seen, else one */
    ir_value *fx, *fy;                 /* [1] */
} view;

/* The projected covariance [N, 2, 2]. */
static ir_value *covariance(op_diff *c, const view *v, ir_value *turn, ir_value *axes)
{
    ir_value *inverse = op_diff1(c, "Reciprocal", v->z), *zero = op_diff_scale(c, v->tx, 0);
    ir_value *a = op_spell_mul(c, v->fx, inverse), *b = op_spell_mul(c, v->fy, inverse);
    ir_value *j[6] = {
        a,    zero, op_diff1(c, "Neg", op_spell_mul(c, op_spell_mul(c, a, v->tx), inverse)),
        zero, b,    op_diff1(c, "Neg", op_spell_mul(c, op_spell_mul(c, b, v->ty), inverse))};
    ir_value *flat = op_spell_concat(c, 6, j, 1);
    if (!flat)
        return NULL;
    ir_value *m = op_spell_shaped(c, flat, 3, (int64_t[]){flat->type.shape.dims[0], 2, 3});
    ir_value *row = op_spell_matmul(c, m, op_spell_matmul(c, turn, axes));
    return op_spell_matmul(c, row, op_diff_swap_last(c, row));
}

static ir_value *entry(op_diff *c, ir_value *m, int64_t k, double plus)
{
    if (!m)
        return NULL;
    ir_value *flat = op_spell_shaped(c, m, 2, (int64_t[]){m->type.shape.dims[0], 4});
    ir_value *v = column(c, flat, k);
    return plus != 0 ? op_spell_shift(c, v, plus) : v;
}

tacit_status op_spell_splat_project(op_diff *c, ir_value **out)
{
    ir_value *const *in = c->node->inputs, *camera = in[4];
    int64_t n = in[0]->type.shape.dims[0];
    tacit_dtype dtype = camera->type.dtype;
    double low = ir_attr_float(c->node, "low_pass", 0.3);
    ir_value *matrix =
        op_spell_shaped(c, op_spell_slice(c, camera, 0, 0, 16), 2, (int64_t[]){4, 4});
    matrix = op_spell_slice(c, matrix, 0, 0, 3);
    ir_value *turn = op_spell_slice(c, matrix, 1, 0, 3);
    ir_value *shift = op_spell_shaped(c, op_spell_slice(c, matrix, 1, 3, 4), 2, (int64_t[]){1, 3});
    ir_value *t = op_spell_matmul(c, in[0], op_diff_swap_last(c, turn));
    t = op_spell_add(c, t, shift);
    view v = {.tx = column(c, t, 0), .ty = column(c, t, 1), .tz = column(c, t, 2)};
    v.fx = op_spell_slice(c, camera, 0, 16, 17);
    v.fy = op_spell_slice(c, camera, 0, 17, 18);
    v.seen = positive(c, v.tz, ir_attr_float(c->node, "near", 0.01));
    v.z = guarded(c, v.seen, v.tz, 1);
    ir_value *x = op_spell_div(c, op_spell_mul(c, v.fx, v.tx), v.z);
    ir_value *y = op_spell_div(c, op_spell_mul(c, v.fy, v.ty), v.z);
    x = op_spell_add(c, x, op_spell_slice(c, camera, 0, 18, 19));
    y = op_spell_add(c, y, op_spell_slice(c, camera, 0, 19, 20));
    out[0] = op_spell_concat(c, 2,
                             (ir_value *[]){guarded(c, v.seen, x, 0), guarded(c, v.seen, y, 0)}, 1);
    ir_value *cov = covariance(c, &v, turn, axes_of(c, in[2], in[1]));
    ir_value *xx = entry(c, cov, 0, low), *xy = entry(c, cov, 1, 0), *yy = entry(c, cov, 3, low);
    ir_value *det = op_spell_sub(c, op_spell_mul(c, xx, yy), square(c, xy));
    ir_value *shown = op_diff2(c, "And", v.seen, positive(c, det, 0));
    det = guarded(c, shown, det, 1);
    ir_value *conic[3] = {op_spell_div(c, yy, det), op_diff1(c, "Neg", op_spell_div(c, xy, det)),
                          op_spell_div(c, xx, det)};
    for (int i = 0; i < 3; i++)
        conic[i] = guarded(c, shown, conic[i], 0);
    out[1] = op_spell_concat(c, 3, conic, 1);
    out[2] = op_spell_shaped(c, v.tz, 1, &n);
    ir_value *half = op_diff_scale(c, op_spell_add(c, xx, yy), 0.5);
    ir_value *spread = op_spell_sub(c, square(c, half), det);
    spread = spread ? op_diff2(c, "Max", spread, op_diff_scalar(c, dtype, 0)) : NULL;
    ir_value *most = op_spell_add(c, half, op_diff1(c, "Sqrt", spread));
    ir_value *radius =
        op_diff_scale(c, op_diff1(c, "Sqrt", most), ir_attr_float(c->node, "radius", 3));
    radius = guarded(c, shown, op_diff1(c, "Ceil", radius), 0);
    out[3] = op_spell_shaped(c, radius, 1, &n);
    out[4] = colours(c, in[0], turn, shift, in[3]);
    return c->status;
}
