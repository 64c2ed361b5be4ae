/* SPDX-License-Identifier: Apache-2.0
 * DeformConv and Col2Im. */
#include <math.h>
#include <string.h>

#include "op/conv.h"
#include "op/elementwise.h"
#include "op/values.h"
#include "op/vjp.h"

/* --- DeformConv: every tap has its own fractional offset -------------------------------------- */

static tacit_status deform_plan(const ir_node *node, const ir_shape *x, const ir_shape *w,
                                op_conv *p, int64_t *groups, tacit_error *err)
{
    TRY(op_conv_plan(node, x, w, p, err));
    *groups = ir_attr_int(node, "offset_group", 1);
    if (*groups < 1 || p->c % *groups)
        return error_set(err, TACIT_ERR_VALUE, "offset_group %lld does not divide %lld channels",
                         (long long)*groups, (long long)p->c);
    return TACIT_OK;
}

static tacit_status deform_infer(op_infer *c)
{
    op_conv p;
    int64_t groups, dims[IR_MAX_RANK];
    TRY(op_need_float(c, 0));
    TRY(op_check_same_dtype(c));
    TRY(deform_plan(c->node, &c->in[0]->shape, &c->in[1]->shape, &p, &groups, c->err));
    dims[0] = p.n;
    memcpy(dims + 2, p.w.out, (size_t)p.w.rank * sizeof *dims);
    dims[1] = groups * p.w.taps * p.w.rank;
    TRY(op_need_shape(c, 2, p.y.rank, dims));
    TRY(op_need_shape(c, 3, 1, &p.m));
    dims[1] = groups * p.w.taps;
    TRY(op_need_shape(c, 4, p.y.rank, dims));
    op_set_out(c, 0, c->in[0]->dtype, &p.y);
    return TACIT_OK;
}

/* N-linear interpolation; corners outside the image count as zero. */
static double sample_linear(const op_window *w, const double *plane, const double *at)
{
    double sum = 0;
    for (int32_t i = 0; i < w->rank; i++) /* also refuses NaN */
        if (!(at[i] > -1 && at[i] < (double)w->in[i]))
            return 0;
    for (uint32_t corner = 0; corner < 1u << w->rank; corner++) {
        double weight = 1;
        int64_t offset = 0;
        for (int32_t i = 0; i < w->rank && weight != 0; i++) {
            double low = floor(at[i]), part = at[i] - low;
            bool up = corner >> i & 1;
            int64_t index = (int64_t)low + up;
            weight *= index < 0 || index >= w->in[i] ? 0 : up ? part : 1 - part;
            offset = offset * w->in[i] + index;
        }
        if (weight != 0)
            sum += weight * plane[offset];
    }
    return sum;
}

/* Values under all taps of one image at output position `at`: columns[channel][tap]. */
static void deform_columns(const op_conv *p, int64_t groups, int64_t at, const double *x,
                           const double *offset, const double *mask, double *columns)
{
    const op_window *w = &p->w;
    int64_t o[IR_MAX_RANK], k[IR_MAX_RANK], size = w->out_size;
    op_window_unravel(w->rank, w->out, at, o);
    for (int64_t g = 0; g < groups; g++)
        for (int64_t t = 0; t < w->taps; t++) {
            double where[IR_MAX_RANK];
            op_window_unravel(w->rank, w->kernel, t, k);
            for (int32_t i = 0; i < w->rank; i++)
                where[i] = (double)(o[i] * w->stride[i] - w->pad_begin[i] + k[i] * w->dilation[i]) +
                           offset[((g * w->taps + t) * w->rank + i) * size + at];
            double m = mask ? mask[(g * w->taps + t) * size + at] : 1;
            for (int64_t ch = g * (p->c / groups); ch < (g + 1) * (p->c / groups); ch++)
                columns[ch * w->taps + t] = m * sample_linear(w, x + ch * w->in_size, where);
        }
}

static tacit_status deform_eval(op_eval *c)
{
    op_conv p;
    int64_t groups;
    double *x, *weight, *offset, *bias, *mask, *y, *columns;
    TRY(deform_plan(c->node, &op_in(c, 0)->shape, &op_in(c, 1)->shape, &p, &groups, c->err));
    TRY(op_input_f64(c, 0, &x));
    TRY(op_input_f64(c, 1, &weight));
    TRY(op_input_f64(c, 2, &offset));
    TRY(op_input_f64(c, 3, &bias));
    TRY(op_input_f64(c, 4, &mask));
    int64_t size = p.w.out_size, taps = p.w.taps, cg = p.c / p.group, mg = p.m / p.group;
    TRY(op_scratch_f64(c, p.n * p.m * size, &y));
    TRY(op_scratch_f64(c, p.c * taps, &columns));
    for (int64_t n = 0; n < p.n; n++)
        for (int64_t at = 0; at < size; at++) {
            deform_columns(&p, groups, at, x + n * p.c * p.w.in_size,
                           offset + n * groups * taps * p.w.rank * size,
                           mask ? mask + n * groups * taps * size : NULL, columns);
            for (int64_t m = 0; m < p.m; m++) {
                const double *from = columns + m / mg * cg * taps;
                double sum = bias ? bias[m] : 0;
                for (int64_t k = 0; k < cg * taps; k++)
                    sum += weight[m * cg * taps + k] * from[k];
                y[(n * p.m + m) * size + at] = sum;
            }
        }
    op_output_f64(c, 0, y);
    return TACIT_OK;
}

/* --- Col2Im ----------------------------------------------------------------------------------- */

tacit_status op_col2im_window(const ir_node *node, const ir_shape *x, const ir_tensor *image,
                              const ir_tensor *block, op_window *w, tacit_error *err)
{
    uint32_t n, n_block;
    memset(w, 0, sizeof *w);
    TRY(op_read_ints(image, w->in, IR_MAX_RANK - 2, &n, err));
    TRY(op_read_ints(block, w->kernel, IR_MAX_RANK - 2, &n_block, err));
    w->rank = (int32_t)n;
    if (n != n_block)
        return error_set(err, TACIT_ERR_SHAPE, "image_shape has %u axes, block_shape %u", n,
                         n_block);
    TRY(op_window_attributes(node, w, err));
    for (int32_t i = 0; i < w->rank; i++) {
        int64_t span = (w->kernel[i] - 1) * w->dilation[i] + 1;
        int64_t room = w->in[i] + w->pad_begin[i] + w->pad_end[i] - span;
        if (w->in[i] < 1 || w->kernel[i] < 1 || room < 0)
            return error_set(err, TACIT_ERR_SHAPE, "blocks do not fit axis %d of the image", i);
        w->out[i] = room / w->stride[i] + 1;
    }
    char text[IR_SHAPE_TEXT];
    if (!op_window_products(w) || x->rank != 3 || x->dims[1] % w->taps || x->dims[2] != w->out_size)
        return error_set(err, TACIT_ERR_SHAPE, "columns %s do not fit %lld blocks of %lld",
                         ir_shape_text(x, text), (long long)w->out_size, (long long)w->taps);
    return TACIT_OK;
}

static tacit_status col2im_infer(op_infer *c)
{
    const ir_tensor *image = op_in_value(c, 1), *block = op_in_value(c, 2);
    const ir_shape *x = &c->in[0]->shape;
    op_window w;
    TRY(op_check_class(c, 0, OP_REAL));
    TRY(op_need_rank(c, 0, 3));
    TRY(op_need_rank(c, 1, 1));
    int32_t rank = (int32_t)c->in[1]->shape.dims[0] + 2;
    if (rank > IR_MAX_RANK)
        return error_set(c->err, TACIT_ERR_LIMIT, "image_shape has too many axes");
    ir_shape y = {.rank = rank};
    y.dims[0] = x->dims[0];
    for (int32_t i = 1; i < rank; i++)
        y.dims[i] = IR_DIM_UNKNOWN;
    if (image && block) {
        TRY(op_col2im_window(c->node, x, image, block, &w, c->err));
        y.dims[1] = x->dims[1] / w.taps;
        memcpy(y.dims + 2, w.in, (size_t)w.rank * sizeof *y.dims);
    }
    op_set_out(c, 0, c->in[0]->dtype, &y);
    return TACIT_OK;
}

static tacit_status col2im_eval(op_eval *c)
{
    const ir_shape *s = &op_in(c, 0)->shape;
    op_window w;
    double *x, *y;
    int64_t *offsets;
    TRY(op_col2im_window(c->node, s, op_in(c, 1), op_in(c, 2), &w, c->err));
    int64_t planes = s->dims[0] * (s->dims[1] / w.taps);
    ir_shape out = {.rank = w.rank + 2, .dims = {s->dims[0], s->dims[1] / w.taps}};
    memcpy(out.dims + 2, w.in, (size_t)w.rank * sizeof *out.dims);
    if (!op_out(c, 0)->data)
        TRY(op_eval_alloc(c, 0, op_in(c, 0)->dtype, &out));
    TRY(op_input_f64(c, 0, &x));
    TRY(op_scratch_f64(c, planes * w.in_size, &y));
    TRY(op_scratch_i64(c, w.taps, &offsets));
    for (int64_t at = 0; at < w.out_size; at++) {
        op_window_offsets(&w, at, offsets);
        for (int64_t p = 0; p < planes; p++)
            for (int64_t t = 0; t < w.taps; t++)
                if (offsets[t] >= 0)
                    y[p * w.in_size + offsets[t]] += x[(p * w.taps + t) * w.out_size + at];
    }
    op_output_f64(c, 0, y);
    return TACIT_OK;
}

const op_def op_rows_conv_other[] = {
    {.name = "DeformConv",
     .min_in = 3,
     .max_in = 5,
     .min_out = 1,
     .max_out = 1,
     .infer = deform_infer,
     .eval = deform_eval,
     .lower = op_lower_deform_conv,
     .spell = op_spell_deform_conv},
    {.name = "Col2Im",
     .min_in = 3,
     .max_in = 3,
     .min_out = 1,
     .max_out = 1,
     .infer = col2im_infer,
     .eval = col2im_eval,
     .lower = op_lower_col2im,
     .spell = op_spell_col2im},
    {0},
};
