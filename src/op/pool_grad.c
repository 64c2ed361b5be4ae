/* SPDX-License-Identifier: Apache-2.0
 * The adjoints of AveragePool and MaxPool: (x, dy) → dx, with the attributes of the pooling. Of
 * equal maxima the first in the window gets all of dy. */
#include "op/lowerings.h"

#include "op/values.h"
#include "op/vjp.h"
#include "op/window.h"

static tacit_status grad_infer(op_infer *c)
{
    op_window w;
    ir_shape pooled;
    TRY(op_need_float(c, 0));
    TRY(op_check_same_dtype(c));
    TRY(op_window_pooled(c, &w, &pooled));
    if (!ir_shape_equal(&pooled, &c->in[1]->shape))
        return error_set(c->err, TACIT_ERR_SHAPE, "dy does not have the shape of the pooled x");
    op_set_out(c, 0, c->in[0]->dtype, &c->in[0]->shape);
    return TACIT_OK;
}

typedef struct pool_grad {
    op_window w;
    double *dy, *dx;
    int64_t *offsets, planes;
} pool_grad;

static tacit_status begin(op_eval *c, pool_grad *p)
{
    const ir_shape *s = &op_in(c, 0)->shape;
    TRY(op_window_read(c->node, s, NULL, &p->w, c->err));
    p->planes = s->dims[0] * s->dims[1];
    TRY(op_input_f64(c, 1, &p->dy));
    TRY(op_scratch_i64(c, p->w.taps, &p->offsets));
    TRY(op_scratch_f64(c, p->planes * p->w.in_size, &p->dx));
    return TACIT_OK;
}

static tacit_status average_eval(op_eval *c)
{
    pool_grad p;
    bool include = ir_attr_int(c->node, "count_include_pad", 0);
    TRY(begin(c, &p));
    for (int64_t at = 0; at < p.w.out_size; at++) {
        op_window_offsets(&p.w, at, p.offsets);
        int64_t inside = 0;
        for (int64_t k = 0; k < p.w.taps; k++)
            inside += p.offsets[k] >= 0;
        double share = inside ? 1.0 / (double)(include ? p.w.taps : inside) : 0;
        for (int64_t i = 0; i < p.planes; i++)
            for (int64_t k = 0; k < p.w.taps; k++)
                if (p.offsets[k] >= 0)
                    p.dx[i * p.w.in_size + p.offsets[k]] += share * p.dy[i * p.w.out_size + at];
    }
    op_output_f64(c, 0, p.dx);
    return TACIT_OK;
}

static tacit_status max_eval(op_eval *c)
{
    pool_grad p;
    double *x;
    TRY(begin(c, &p));
    TRY(op_input_f64(c, 0, &x));
    for (int64_t at = 0; at < p.w.out_size; at++) {
        op_window_offsets(&p.w, at, p.offsets);
        for (int64_t i = 0; i < p.planes; i++) {
            int64_t best = -1;
            for (int64_t k = 0; k < p.w.taps; k++) {
                int64_t j = p.offsets[k];
                if (j >= 0 && (best < 0 || x[i * p.w.in_size + j] > x[i * p.w.in_size + best]))
                    best = j;
            }
            if (best >= 0)
                p.dx[i * p.w.in_size + best] += p.dy[i * p.w.out_size + at];
        }
    }
    op_output_f64(c, 0, p.dx);
    return TACIT_OK;
}

const op_def op_rows_pool_grad[] = {
    {.name = "MaxPoolGrad",
     .domain = "tacit",
     .min_in = 2,
     .max_in = 2,
     .min_out = 1,
     .max_out = 1,
     .infer = grad_infer,
     .eval = max_eval,
     .lower = op_lower_pool_grad,
     .vjp = op_vjp_max_pool_grad},
    {.name = "AveragePoolGrad",
     .domain = "tacit",
     .min_in = 2,
     .max_in = 2,
     .min_out = 1,
     .max_out = 1,
     .infer = grad_infer,
     .eval = average_eval,
     .lower = op_lower_pool_grad,
     .vjp = op_vjp_average_pool_grad},
    {0},
};
