/* SPDX-License-Identifier: Apache-2.0
 * Products with weights and with each other, sums, factors. */
#include <math.h>

#include "op/conv.h"
#include "secure/rules.h"

/* By the row's rule where that is of the product alone: a fused node's is of more, and a transposed
 * operand or a factor are in the weight's sizes already. */
static op_interval product_range(sec_builder *b, op_interval x, op_interval w, double k, double n)
{
    const char *type = b->node->type;
    bool own = *b->node->domain != 0,
         whole = strcmp(type, "MatMul") == 0 || strcmp(type, "Conv") == 0;
    if (own || !whole)
        return op_range_contract(x, w, k, n);
    return sb_range(b, (op_interval[4]){x, w});
}

sec_tensor rule_times_weight(sec_builder *b, const sec_tensor *x, const ir_value *w,
                             const uint32_t *layout, size_t rows, size_t k, size_t n, double factor)
{
    int wf = b->p->mode.weight_frac;
    sec_sizes size = sb_weight_sizes(b, w, k, n, layout);
    double f = fabs(factor), unit = ldexp(f, wf), half = 0.5;
    sec_wire_id weight = sb_weight(b, w, k * n, layout, factor, wf);
    sec_tensor z = *x;
    z.wire = sb_matmul(b, x->wire, weight, rows, k, n, 1, NULL, NULL, true)->out[0];
    z.frac = x->frac + wf;
    /* sizes of the rounded weights, factor included: each is off by half a unit at most */
    op_interval rounded = {.lo = -(size.max * unit + half),
                           .hi = size.max * unit + half,
                           .l1 = size.l1 * unit + half * (double)k,
                           .l2 = size.l2 * unit + half * sqrt((double)k),
                           .frobenius = size.frobenius * unit + half * sqrt((double)k * (double)n)};
    st_bounds(&z, product_range(b, st_interval(x), rounded, (double)k, (double)n));
    return z;
}

static const char *activation_of(const ir_node *node)
{
    return strcmp(node->domain, "tacit") == 0 ? ir_attr_string(node, "activation", "none") : "none";
}

static sec_tensor activate(sec_builder *b, sec_tensor z, const char *name)
{
    if (strcmp(name, "none") == 0)
        return z;
    if (strcmp(name, "relu") == 0 || strcmp(name, "clip") == 0)
        z = st_rescale(b, &z, b->p->mode.frac);
    if (strcmp(name, "clip") == 0)
        return sb_clip(b, &z, ir_attr_float(b->node, "act_min", -HUGE_VAL),
                       ir_attr_float(b->node, "act_max", HUGE_VAL));
    return sb_activation(b, &z, name);
}

sec_tensor rule_epilogue(sec_builder *b, sec_tensor z, uint32_t bias, uint32_t residual)
{
    const ir_node *node = b->node;
    if (bias < node->n_inputs && node->inputs[bias])
        z = sb_add_weight(b, &z, node->inputs[bias], 1);
    bool add = residual < node->n_inputs && node->inputs[residual];
    bool last = ir_attr_int(node, "activation_last", 0) != 0;
    if (!last)
        z = activate(b, z, activation_of(node));
    if (add) {
        const sec_tensor *r = st_in(b, residual);
        z = sb_add(b, &z, r, 1);
    }
    if (last)
        z = activate(b, z, activation_of(node));
    return z;
}

/* Layout of a weight [.., k, n] as k x n, from its transpose where asked. */
static const uint32_t *transposed(sec_builder *b, bool trans, size_t k, size_t n)
{
    uint32_t *layout = trans ? sb_alloc(b, k * n, 4) : NULL;
    for (size_t i = 0; layout && i < k; i++)
        for (size_t j = 0; j < n; j++)
            layout[i * n + j] = (uint32_t)(j * k + i);
    return layout;
}

/* The last two axes swapped. */
static sec_tensor swap_last(sec_builder *b, const sec_tensor *t)
{
    ir_shape s = t->shape;
    int64_t r = s.dims[s.rank - 2], c = s.dims[s.rank - 1];
    size_t count = (size_t)ir_shape_size(&s);
    int32_t *index = sb_alloc(b, count, 4);
    for (size_t i = 0; index && i < count; i++) {
        int64_t m = (int64_t)i / (r * c), at = (int64_t)i % (r * c);
        index[i] = (int32_t)(m * r * c + at % r * c + at / r);
    }
    s.dims[s.rank - 2] = c;
    s.dims[s.rank - 1] = r;
    return st_gathered(b, t, &s, index);
}

static size_t leading(const ir_shape *s)
{
    size_t n = 1;
    for (int32_t i = 0; i + 2 < s->rank; i++)
        n *= (size_t)s->dims[i];
    return n;
}

/* Which matrix of a tensor each batch of the (broadcast) result reads. */
static const uint32_t *batch_map(sec_builder *b, const ir_shape *from, const ir_shape *to)
{
    size_t n = leading(to);
    uint32_t *lookup = sb_alloc(b, n, 4);
    for (size_t i = 0; lookup && i < n; i++) {
        size_t rest = i, stride = 1, at = 0;
        for (int32_t d = to->rank - 3, e = from->rank - 3; d >= 0; d--, e--) {
            size_t here = rest % (size_t)to->dims[d];
            rest /= (size_t)to->dims[d];
            if (e >= 0) {
                at += from->dims[e] == 1 ? 0 : here * stride;
                stride *= (size_t)from->dims[e];
            }
        }
        lookup[i] = (uint32_t)at;
    }
    return lookup;
}

/* A finer input needs no rescaling first where the product still fits: weights whose norms are
 * below 4 are assumed here, and a wrong guess costs bits, not correctness. */
static const sec_tensor *matmul_input(sec_builder *b, const ir_shape *w)
{
    const sec_tensor *x = st_in(b, 0);
    double width = w->rank == 2 ? (double)(w->dims[0] > w->dims[1] ? w->dims[0] : w->dims[1]) : 1;
    double room = st_bound(x) * ldexp(sqrt(width) * 4, b->p->mode.weight_frac);
    int product = b->p->mode.frac + b->p->mode.weight_frac + SB_SLACK;
    return b->status == TACIT_OK && x->frac <= product && sb_bits(room) < 60 ? x
                                                                             : st_in_scaled(b, 0);
}

static tacit_status matmul_weight(sec_builder *b, bool trans_a, bool trans_b, double alpha)
{
    const ir_value *w = b->node->inputs[1];
    const ir_shape *s = &w->type.shape;
    sec_tensor x = *matmul_input(b, s);
    TRY(b->status);
    if (trans_a)
        x = swap_last(b, &x);
    if (s->rank != 2 || x.shape.rank < 2) {
        sb_fail(b, TACIT_ERR_UNSUPPORTED, "Op %s in node '%s' has no secure rule for these ranks",
                b->node->type, b->node->name);
        return b->status;
    }
    size_t k = (size_t)s->dims[trans_b ? 1 : 0], n = (size_t)s->dims[trans_b ? 0 : 1];
    size_t rows = (size_t)ir_shape_size(&x.shape) / k;
    sec_tensor z = rule_times_weight(b, &x, w, transposed(b, trans_b, k, n), rows, k, n, alpha);
    z.shape = b->node->outputs[0]->type.shape;
    st_out(b, 0, rule_epilogue(b, z, 2, 3));
    return b->status;
}

static tacit_status matmul(sec_builder *b, bool trans_a, bool trans_b, double alpha)
{
    const ir_node *node = b->node;
    if (sb_is_weight(b, node->inputs[1]))
        return matmul_weight(b, trans_a, trans_b, alpha);
    sec_tensor x = *st_in_scaled(b, 0), y = *st_in_scaled(b, 1), z = x;
    TRY(b->status);
    if (x.shape.rank < 2 || y.shape.rank < 2) {
        sb_fail(b, TACIT_ERR_UNSUPPORTED, "Op %s in node '%s' has no secure rule for vectors",
                node->type, node->name);
        return b->status;
    }
    if (trans_a)
        x = swap_last(b, &x);
    double y_norm = trans_b ? st_norm(&y) : 0;
    if (trans_b)
        y = swap_last(b, &y);
    const ir_shape *out = &node->outputs[0]->type.shape;
    size_t m = (size_t)x.shape.dims[x.shape.rank - 2], k = (size_t)x.shape.dims[x.shape.rank - 1];
    size_t n = (size_t)y.shape.dims[y.shape.rank - 1];
    z.wire = sb_matmul(b, x.wire, y.wire, m, k, n, (uint32_t)leading(out),
                       batch_map(b, &x.shape, out), batch_map(b, &y.shape, out), false)
                 ->out[0];
    z.frac = x.frac + y.frac;
    op_interval columns = st_interval(&y); /* all that is known of them is the largest entry */
    columns.l2 = y_norm;
    op_interval product = product_range(b, st_interval(&x), columns, (double)k, (double)n);
    product.norm = 0;
    st_bounds(&z, product);
    z.shape = *out;
    z = sb_times_scalar(b, &z, alpha);
    st_out(b, 0, rule_epilogue(b, z, 2, 3));
    return b->status;
}

tacit_status rule_matmul(op_secure *c)
{
    const ir_node *n = c->node;
    return matmul(c->b, ir_attr_int(n, "trans_a", 0), ir_attr_int(n, "trans_b", 0),
                  ir_attr_float(n, "alpha", 1));
}

tacit_status rule_gemm(op_secure *c)
{
    const ir_node *n = c->node;
    if (ir_attr_float(n, "beta", 1) != 1)
        return error_set(c->b->err, TACIT_ERR_UNSUPPORTED,
                         "Op Gemm in node '%s' has no secure rule for beta", n->name);
    return matmul(c->b, ir_attr_int(n, "transA", 0), ir_attr_int(n, "transB", 0),
                  ir_attr_float(n, "alpha", 1));
}

/* ---- convolution ---- */

/* Patches of one group: rows are output positions of all images, columns channels x taps. */
static sec_wire_id patches(sec_builder *b, const op_conv *p, sec_wire_id x, int64_t group)
{
    int64_t channels = p->c / p->group, columns = channels * p->w.taps;
    size_t count = (size_t)(p->n * p->w.out_size * columns);
    int32_t *index = sb_alloc(b, count, 4);
    int64_t *taps = sb_alloc(b, (size_t)p->w.taps, 8);
    for (int64_t at = 0, i = 0; index && taps && at < p->n * p->w.out_size; at++) {
        int64_t image = at / p->w.out_size;
        op_window_offsets(&p->w, at % p->w.out_size, taps);
        for (int64_t c = 0; c < channels; c++)
            for (int64_t t = 0; t < p->w.taps; t++, i++) {
                int64_t plane = image * p->c + group * channels + c;
                index[i] = taps[t] < 0 ? -1 : (int32_t)(plane * p->w.in_size + taps[t]);
            }
    }
    return sb_gather(b, 1, &x, count, index);
}

/* Weights of one group, columns x outputs. */
static const uint32_t *filter_layout(sec_builder *b, const op_conv *p, int64_t group)
{
    int64_t outputs = p->m / p->group, columns = p->c / p->group * p->w.taps;
    uint32_t *layout = sb_alloc(b, (size_t)(outputs * columns), 4);
    for (int64_t i = 0; layout && i < columns; i++)
        for (int64_t j = 0; j < outputs; j++)
            layout[i * outputs + j] = (uint32_t)((group * outputs + j) * columns + i);
    return layout;
}

tacit_status rule_conv(op_secure *c)
{
    sec_builder *b = c->b;
    const ir_node *node = c->node;
    sec_tensor x = *st_in_scaled(b, 0), z = x;
    const ir_value *w = node->inputs[1];
    op_conv p;
    TRY(b->status);
    if (!sb_is_weight(b, w))
        return error_set(b->err, TACIT_ERR_UNSUPPORTED,
                         "Op Conv in node '%s' has no secure rule for filters that are computed",
                         node->name);
    TRY(op_conv_plan(node, &x.shape, &w->type.shape, &p, b->err));
    int64_t outputs = p.m / p.group, columns = p.c / p.group * p.w.taps, rows = p.n * p.w.out_size;
    sec_wire_id *part = sb_alloc(b, (size_t)p.group, sizeof *part);
    double bound = 0;
    x.norm = 0;
    for (int64_t g = 0; part && g < p.group; g++) {
        sec_tensor patch = x;
        patch.wire = patches(b, &p, x.wire, g);
        patch.shape = ir_shape_of(2, (int64_t[]){rows, columns});
        z = rule_times_weight(b, &patch, w, filter_layout(b, &p, g), (size_t)rows, (size_t)columns,
                              (size_t)outputs, 1);
        part[g] = z.wire;
        bound = fmax(bound, z.hi);
    }
    size_t count = (size_t)(p.n * p.m * p.w.out_size);
    int32_t *index = sb_alloc(b, count, 4);
    for (size_t i = 0; index && i < count; i++) { /* [group][image, at][out] -> [image][m][at] */
        int64_t at = (int64_t)i % p.w.out_size, m = (int64_t)i / p.w.out_size % p.m;
        int64_t image = (int64_t)i / p.w.out_size / p.m;
        index[i] =
            (int32_t)((m / outputs * rows + image * p.w.out_size + at) * outputs + m % outputs);
    }
    TRY(b->status);
    z.wire = sb_gather(b, (uint32_t)p.group, part, count, index);
    z.lo = -bound;
    z.hi = bound;
    z.norm = 0;
    z.shape = p.y;
    if (node->n_inputs > 2 && node->inputs[2]) { /* bias by channel: [m, 1, ..] */
        const ir_value *v = node->inputs[2];
        ir_shape one = p.y;
        sec_sizes size = sb_weight_sizes(b, v, 1, (size_t)p.m, NULL);
        double most = ldexp(size.max, z.frac) + 1;
        for (int32_t d = 0; d < one.rank; d++)
            one.dims[d] = d == 1 ? p.m : 1;
        sec_tensor bias = {.wire = sb_weight(b, v, (size_t)p.m, NULL, 1, z.frac),
                           .shape = one,
                           .frac = z.frac,
                           .lo = -most,
                           .hi = most};
        z = sb_add(b, &z, &bias, 1);
    }
    st_out(b, 0, rule_epilogue(b, z, UINT32_MAX, 3));
    return b->status;
}

/* ---- sums and factors ---- */

static double scalar_of(const ir_value *v)
{
    return ir_load_f64(v->constant->dtype, v->constant->data, 0);
}

static sec_tensor add_scalar(sec_builder *b, const sec_tensor *x, double c, int sign)
{
    sec_tensor r = *x;
    double units = nearbyint(ldexp(c, x->frac));
    if (!(fabs(units) < 0x1p62)) {
        sb_fail(b, TACIT_ERR_LIMIT, "node '%s': adding %g is out of range", b->node->name, c);
        return r;
    }
    r.wire = sb_linear(b, 1, &x->wire, (int64_t[]){sign}, (int64_t)units);
    r.lo = (sign > 0 ? x->lo : -x->hi) + units;
    r.hi = (sign > 0 ? x->hi : -x->lo) + units;
    r.norm = 0;
    return r;
}

/* A term of a sum: very fine ones would make every other one as fine. */
static const sec_tensor *term(sec_builder *b, uint32_t i)
{
    const sec_tensor *t = st_in(b, i);
    return t->frac > b->p->mode.frac + b->p->mode.weight_frac ? st_in_scaled(b, i) : t;
}

/* x + sign y with whatever x and y are. */
static tacit_status sum(sec_builder *b, int sign)
{
    const ir_value *x = b->node->inputs[0], *y = b->node->inputs[1];
    sec_tensor r;
    if (sb_is_public(b, y))
        r = add_scalar(b, st_in(b, 0), sign * scalar_of(y), 1);
    else if (sb_is_public(b, x))
        r = add_scalar(b, st_in(b, 1), scalar_of(x), sign);
    else if (sb_is_weight(b, y))
        r = sb_add_weight(b, st_in(b, 0), y, sign);
    else if (sb_is_weight(b, x)) {
        sec_tensor t = sign > 0 ? *st_in(b, 1) : sb_times_scalar(b, st_in(b, 1), -1);
        r = sb_add_weight(b, &t, x, 1);
    } else
        r = sb_add(b, term(b, 0), term(b, 1), sign);
    st_out(b, 0, r);
    return b->status;
}
tacit_status rule_add(op_secure *c)
{
    return sum(c->b, 1);
}
tacit_status rule_sub(op_secure *c)
{
    return sum(c->b, -1);
}
tacit_status rule_neg(op_secure *c)
{
    st_out(c->b, 0, sb_times_scalar(c->b, st_in(c->b, 0), -1));
    return c->b->status;
}

/* A factor that stands for infinity makes a mask; what it is times is decided where it is used. */
static sec_tensor times_public(sec_builder *b, const sec_tensor *x, double c)
{
    sec_tensor r = *x;
    if (fabs(c) < 1e9)
        return sb_times_scalar(b, x, c);
    r.huge = c < 0 ? -1 : 1;
    return r;
}

tacit_status rule_mul(op_secure *c)
{
    sec_builder *b = c->b;
    for (uint32_t i = 0; i < 2; i++) {
        const ir_value *v = c->node->inputs[i];
        if (sb_is_public(b, v)) {
            st_out(b, 0, times_public(b, st_in(b, 1 - i), scalar_of(v)));
            return b->status;
        }
        if (!sb_is_weight(b, v))
            continue;
        const sec_tensor *x = st_in_scaled(b, 1 - i);
        const ir_shape *s = &v->type.shape;
        size_t period = (size_t)ir_shape_size(s);
        sec_sizes size = sb_weight_sizes(b, v, 1, period, NULL);
        sec_tensor t = st_broadcast(b, x, &c->node->outputs[0]->type.shape);
        bool suffix = s->rank <= t.shape.rank;
        for (int32_t d = 0; suffix && d < s->rank; d++)
            suffix = s->dims[d] == t.shape.dims[t.shape.rank - s->rank + d];
        if (!suffix)
            return error_set(b->err, TACIT_ERR_UNSUPPORTED,
                             "Op Mul in node '%s' has no secure rule for this broadcast",
                             c->node->name);
        int wf = b->p->mode.weight_frac;
        t.wire =
            sb_weight_product(b, t.wire, sb_weight(b, v, period, NULL, 1, wf), (uint32_t)period);
        double most = ldexp(size.max, wf) + 1;
        op_interval in[2];
        in[i] = op_range_of(-most, most);
        in[1 - i] = op_range_of(x->lo, x->hi);
        t.frac += wf;
        st_bounds(&t, sb_range(b, in));
        st_out(b, 0, t);
        return b->status;
    }
    const sec_tensor *x = st_in_scaled(b, 0), *y = st_in_scaled(b, 1);
    TRY(b->status);
    st_out(b, 0, sb_product(b, x, y));
    return b->status;
}

tacit_status rule_div(op_secure *c)
{
    sec_builder *b = c->b;
    const ir_value *v = c->node->inputs[1];
    if (!sb_is_public(b, v) || scalar_of(v) == 0)
        return error_set(b->err, TACIT_ERR_UNSUPPORTED,
                         "Op Div in node '%s' has no secure rule for a divisor that is not a "
                         "public number",
                         c->node->name);
    st_out(b, 0, sb_times_scalar(b, st_in(b, 0), 1 / scalar_of(v)));
    return b->status;
}
