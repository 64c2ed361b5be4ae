/* SPDX-License-Identifier: Apache-2.0
 * Convolutions: Conv, ConvInteger, ConvTranspose. DeformConv and Col2Im are in conv_other.c. */
#include "op/conv.h"

#include <string.h>

#include "op/gemm.h"
#include "op/lowerings.h"
#include "op/range.h"
#include "op/values.h"
#include "op/vjp.h"

tacit_status op_conv_plan(const ir_node *node, const ir_shape *x, const ir_shape *w, op_conv *p,
                          tacit_error *err)
{
    char xt[IR_SHAPE_TEXT], wt[IR_SHAPE_TEXT];
    if (x->rank < 3 || w->rank != x->rank)
        return error_set(err, TACIT_ERR_SHAPE, "input %s and weight %s do not fit",
                         ir_shape_text(x, xt), ir_shape_text(w, wt));
    TRY(op_window_read(node, x, w->dims + 2, &p->w, err));
    p->n = x->dims[0];
    p->c = x->dims[1];
    p->m = w->dims[0];
    p->group = ir_attr_int(node, "group", 1);
    if (p->group < 1 || p->c % p->group || p->m % p->group || w->dims[1] != p->c / p->group)
        return error_set(err, TACIT_ERR_SHAPE, "input %s, weight %s, group %lld do not fit",
                         ir_shape_text(x, xt), ir_shape_text(w, wt), (long long)p->group);
    p->y = *x;
    p->y.dims[1] = p->m;
    memcpy(p->y.dims + 2, p->w.out, (size_t)p->w.rank * sizeof *p->y.dims);
    return TACIT_OK;
}

/* The windows of one image group as the right matrix: row (channel, tap), column = position. */
typedef struct image {
    const op_window *w;
    int64_t channels;
    const void *x;
    int64_t *offsets; /* [OP_GEMM_PANEL][taps] */
} image;

#define CONV(suffix, type)                                                                         \
    static void pack_##suffix(const void *right, int64_t first, int64_t width, type *panel)        \
    {                                                                                              \
        const image *im = right;                                                                   \
        const op_window *w = im->w;                                                                \
        for (int64_t j = 0; j < width; j++)                                                        \
            op_window_offsets(w, first + j, im->offsets + j * w->taps);                            \
        for (int64_t ch = 0; ch < im->channels; ch++) {                                            \
            const type *x = (const type *)im->x + ch * w->in_size;                                 \
            type *to = panel + ch * w->taps * OP_GEMM_PANEL;                                       \
            for (int64_t j = 0; j < width; j++)                                                    \
                for (int64_t t = 0; t < w->taps; t++) {                                            \
                    int64_t at = im->offsets[j * w->taps + t];                                     \
                    to[t * OP_GEMM_PANEL + j] = at < 0 ? 0 : x[at];                                \
                }                                                                                  \
        }                                                                                          \
    }                                                                                              \
    tacit_status op_conv_##suffix(op_eval *c, const op_conv *p, const type *x, const type *weight, \
                                  type *y)                                                         \
    {                                                                                              \
        int64_t cg = p->c / p->group, mg = p->m / p->group, k = cg * p->w.taps;                    \
        int64_t *offsets;                                                                          \
        type *panel;                                                                               \
        TRY(op_scratch_i64(c, p->w.taps *OP_GEMM_PANEL, &offsets));                                \
        TRY(op_scratch_##suffix(c, k *OP_GEMM_PANEL, &panel));                                     \
        for (int64_t n = 0; n < p->n; n++)                                                         \
            for (int64_t g = 0; g < p->group; g++) {                                               \
                image im = {&p->w, cg, x + (n * p->c + g * cg) * p->w.in_size, offsets};           \
                op_gemm_##suffix(mg, p->w.out_size, k, weight + g * mg * k, pack_##suffix, &im,    \
                                 panel, y + (n * p->m + g * mg) * p->w.out_size);                  \
            }                                                                                      \
        return TACIT_OK;                                                                           \
    }
CONV(f64, double)
CONV(i64, int64_t)

static tacit_status conv_infer(op_infer *c)
{
    op_conv p;
    TRY(op_need_float(c, 0));
    TRY(op_check_same_dtype(c));
    TRY(op_conv_plan(c->node, &c->in[0]->shape, &c->in[1]->shape, &p, c->err));
    TRY(op_need_shape(c, 2, 1, &p.m));
    op_set_out(c, 0, c->in[0]->dtype, &p.y);
    return TACIT_OK;
}

static void add_bias(double *y, const double *bias, int64_t n, int64_t channels, int64_t size)
{
    for (int64_t i = 0; bias && i < n * channels; i++)
        for (int64_t k = 0; k < size; k++)
            y[i * size + k] += bias[i % channels];
}

static tacit_status conv_eval(op_eval *c)
{
    op_conv p;
    double *x, *w, *bias, *y;
    TRY(op_conv_plan(c->node, &op_in(c, 0)->shape, &op_in(c, 1)->shape, &p, c->err));
    TRY(op_input_f64(c, 0, &x));
    TRY(op_input_f64(c, 1, &w));
    TRY(op_input_f64(c, 2, &bias));
    TRY(op_scratch_f64(c, ir_shape_size(&p.y), &y));
    TRY(op_conv_f64(c, &p, x, w, y));
    add_bias(y, bias, p.n, p.m, p.w.out_size);
    op_output_f64(c, 0, y);
    return TACIT_OK;
}

/* --- ConvInteger ------------------------------------------------------------------------------ */

static tacit_status conv_integer_infer(op_infer *c)
{
    op_conv p;
    for (uint32_t i = 0; i < 2; i++)
        if (c->in[i]->dtype != TACIT_I8 && c->in[i]->dtype != TACIT_U8)
            return error_set(c->err, TACIT_ERR_TYPE, "input %u is %s, expected i8 or u8", i,
                             tacit_dtype_text(c->in[i]->dtype));
    TRY(op_conv_plan(c->node, &c->in[0]->shape, &c->in[1]->shape, &p, c->err));
    op_set_out(c, 0, TACIT_I32, &p.y);
    return TACIT_OK;
}

static tacit_status conv_integer_eval(op_eval *c)
{
    op_conv p;
    int64_t *x, *w, *xz, *wz, *y;
    TRY(op_conv_plan(c->node, &op_in(c, 0)->shape, &op_in(c, 1)->shape, &p, c->err));
    TRY(op_input_i64(c, 0, &x));
    TRY(op_input_i64(c, 1, &w));
    TRY(op_input_i64(c, 2, &xz));
    TRY(op_input_i64(c, 3, &wz));
    int64_t zeros = wz ? ir_tensor_count(op_in(c, 3)) : 1;
    if ((zeros != 1 && zeros != p.m) || (xz && ir_tensor_count(op_in(c, 2)) != 1))
        return error_set(c->err, TACIT_ERR_SHAPE, "a zero point has the wrong size");
    for (int64_t i = 0; xz && i < ir_tensor_count(op_in(c, 0)); i++)
        x[i] -= xz[0];
    int64_t per = p.m ? ir_tensor_count(op_in(c, 1)) / p.m : 0;
    for (int64_t i = 0; wz && i < p.m * per; i++)
        w[i] -= wz[zeros == 1 ? 0 : i / per];
    TRY(op_scratch_i64(c, ir_shape_size(&p.y), &y));
    TRY(op_conv_i64(c, &p, x, w, y));
    op_output_i64(c, 0, y);
    return TACIT_OK;
}

/* --- ConvTranspose: the windows lie on the output, the input gives their positions -------------
 */

tacit_status op_conv_transpose_plan(const ir_node *node, const ir_shape *x, const ir_shape *w,
                                    op_conv *p, tacit_error *err)
{
    char xt[IR_SHAPE_TEXT], wt[IR_SHAPE_TEXT];
    op_window *v = &p->w;
    memset(p, 0, sizeof *p);
    p->group = ir_attr_int(node, "group", 1);
    if (x->rank < 3 || w->rank != x->rank || w->dims[0] != x->dims[1] || p->group < 1 ||
        x->dims[1] % p->group)
        return error_set(err, TACIT_ERR_SHAPE, "input %s and weight %s do not fit",
                         ir_shape_text(x, xt), ir_shape_text(w, wt));
    p->n = x->dims[0];
    p->c = x->dims[1];
    p->m = w->dims[1] * p->group;
    v->rank = x->rank - 2;
    memcpy(v->out, x->dims + 2, (size_t)v->rank * sizeof *v->out);
    memcpy(v->kernel, w->dims + 2, (size_t)v->rank * sizeof *v->kernel);
    TRY(op_window_attributes(node, v, err));
    const char *mode = ir_attr_string(node, "auto_pad", "NOTSET");
    uint32_t n_shape, n_extra;
    const int64_t *shape = ir_attr_ints(node, "output_shape", &n_shape);
    const int64_t *extra = ir_attr_ints(node, "output_padding", &n_extra);
    if ((shape && n_shape < (uint32_t)v->rank) || (extra && n_extra != (uint32_t)v->rank))
        return error_set(err, TACIT_ERR_VALUE, "output_shape or output_padding is too short");
    if (shape) /* some exporters write the batch and channel sizes too */
        shape += n_shape - (uint32_t)v->rank;
    bool same = strncmp(mode, "SAME_", 5) == 0;
    for (int32_t i = 0; i < v->rank; i++) {
        int64_t more = extra ? extra[i] : 0;
        if (more < 0 || v->kernel[i] < 1 || v->kernel[i] > INT64_C(1) << 30 ||
            v->dilation[i] > INT64_C(1) << 30 || v->stride[i] > INT64_C(1) << 30 ||
            v->out[i] > INT64_C(1) << 30)
            return error_set(err, TACIT_ERR_VALUE, "axis %d has bad sizes", i);
        int64_t full =
            v->stride[i] * (v->out[i] - 1) + more + (v->kernel[i] - 1) * v->dilation[i] + 1;
        if (strcmp(mode, "VALID") == 0)
            v->pad_begin[i] = v->pad_end[i] = 0;
        if (shape || same) {
            int64_t want = shape ? shape[i] : v->out[i] * v->stride[i];
            int64_t total = full - want > 0 ? full - want : 0;
            bool upper = strcmp(mode, "SAME_UPPER") == 0;
            v->pad_begin[i] = upper ? total / 2 : total - total / 2;
            v->pad_end[i] = total - v->pad_begin[i];
            v->in[i] = want;
        } else {
            v->in[i] = full - v->pad_begin[i] - v->pad_end[i];
        }
        if (v->in[i] < 0)
            return error_set(err, TACIT_ERR_SHAPE, "axis %d of the result would be negative", i);
    }
    p->y = *x;
    p->y.dims[1] = p->m;
    memcpy(p->y.dims + 2, v->in, (size_t)v->rank * sizeof *v->in);
    return op_window_products(v) ? TACIT_OK
                                 : error_set(err, TACIT_ERR_LIMIT, "the windows are too many");
}

static tacit_status conv_transpose_infer(op_infer *c)
{
    op_conv p;
    TRY(op_need_float(c, 0));
    TRY(op_check_same_dtype(c));
    TRY(op_conv_transpose_plan(c->node, &c->in[0]->shape, &c->in[1]->shape, &p, c->err));
    TRY(op_need_shape(c, 2, 1, &p.m));
    op_set_out(c, 0, c->in[0]->dtype, &p.y);
    return TACIT_OK;
}

static tacit_status conv_transpose_eval(op_eval *c)
{
    op_conv p;
    double *x, *w, *bias, *y;
    int64_t *offsets;
    TRY(op_conv_transpose_plan(c->node, &op_in(c, 0)->shape, &op_in(c, 1)->shape, &p, c->err));
    TRY(op_input_f64(c, 0, &x));
    TRY(op_input_f64(c, 1, &w));
    TRY(op_input_f64(c, 2, &bias));
    TRY(op_scratch_f64(c, ir_shape_size(&p.y), &y));
    TRY(op_scratch_i64(c, p.w.taps, &offsets));
    int64_t cg = p.c / p.group, mg = p.m / p.group, taps = p.w.taps;
    for (int64_t at = 0; at < p.w.out_size; at++) {
        op_window_offsets(&p.w, at, offsets);
        for (int64_t n = 0; n < p.n; n++)
            for (int64_t ch = 0; ch < p.c; ch++) {
                double value = x[(n * p.c + ch) * p.w.out_size + at];
                for (int64_t m = 0; m < mg; m++) {
                    double *to = y + (n * p.m + ch / cg * mg + m) * p.w.in_size;
                    const double *k = w + (ch * mg + m) * taps;
                    for (int64_t t = 0; t < taps; t++)
                        if (offsets[t] >= 0)
                            to[offsets[t]] += value * k[t];
                }
            }
    }
    add_bias(y, bias, p.n, p.m, p.w.in_size);
    op_output_f64(c, 0, y);
    return TACIT_OK;
}

const op_def op_rows_conv[] = {
    {.name = "Conv",
     .min_in = 2,
     .max_in = 3,
     .min_out = 1,
     .max_out = 1,
     .infer = conv_infer,
     .eval = conv_eval,
     .lower = op_lower_conv,
     .vjp = op_vjp_conv,
     .batch = op_batch_samples,
     .range = op_bounds_conv},
    {.name = "ConvInteger",
     .min_in = 2,
     .max_in = 4,
     .min_out = 1,
     .max_out = 1,
     .infer = conv_integer_infer,
     .eval = conv_integer_eval,
     .lower = op_lower_conv_integer},
    {.name = "ConvTranspose",
     .min_in = 2,
     .max_in = 3,
     .min_out = 1,
     .max_out = 1,
     .infer = conv_transpose_infer,
     .eval = conv_transpose_eval,
     .lower = op_lower_conv_transpose,
     .vjp = op_vjp_conv_transpose,
     .batch = op_batch_samples},
    {0},
};
