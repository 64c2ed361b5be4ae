/* SPDX-License-Identifier: Apache-2.0
 * NonMaxSuppression. */
#include <math.h>
#include <stdlib.h>

#include "op/values.h"

static tacit_status nms_infer(op_infer *c)
{
    const ir_shape *boxes = &c->in[0]->shape, *scores = &c->in[1]->shape;
    if (boxes->rank != 3 || scores->rank != 3 || boxes->dims[2] != 4 ||
        boxes->dims[0] != scores->dims[0] || boxes->dims[1] != scores->dims[2])
        return error_set(c->err, TACIT_ERR_SHAPE, "boxes must be [B,N,4], scores [B,C,N]");
    for (uint32_t i = 2; i < c->n_in; i++)
        if (c->in[i] && ir_shape_size(&c->in[i]->shape) != 1)
            return error_set(c->err, TACIT_ERR_SHAPE, "input %u must have one element", i);
    op_set_out_dims(c, 0, TACIT_I64, 2, (int64_t[]){IR_DIM_UNKNOWN, 3});
    return TACIT_OK;
}

typedef struct candidate {
    double score;
    int64_t box;
} candidate;

/* Best score first; equal scores keep the order of the boxes. */
static int by_score(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return x->box < y->box ? -1 : 1;
}

/* Corners in order, from either box form. */
static void normalise(const double *box, bool centre, double out[4])
{
    double a = box[0], b = box[1], p = box[2], q = box[3];
    if (centre) {
        out[0] = a - p / 2;
        out[1] = b - q / 2;
        out[2] = a + p / 2;
        out[3] = b + q / 2;
        return;
    }
    out[0] = fmin(a, p);
    out[1] = fmin(b, q);
    out[2] = fmax(a, p);
    out[3] = fmax(b, q);
}

static double overlap(const double *a, const double *b)
{
    double h = fmin(a[2], b[2]) - fmax(a[0], b[0]), w = fmin(a[3], b[3]) - fmax(a[1], b[1]);
    double both = h > 0 && w > 0 ? h * w : 0;
    double either = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both;
    return either > 0 ? both / either : 0;
}

static double scalar(const op_eval *c, uint32_t i, double fallback)
{
    const ir_tensor *t = op_in(c, i);
    return t ? ir_load_f64(t->dtype, t->data, 0) : fallback;
}

static tacit_status nms_eval(op_eval *c)
{
    const int64_t *d = op_in(c, 1)->shape.dims;
    int64_t batches = d[0], classes = d[1], n = d[2], found = 0, *picked;
    double most = scalar(c, 2, 0), limit = scalar(c, 3, 0), least = scalar(c, 4, -INFINITY);
    bool centre = ir_attr_int(c->node, "center_point_box", 0) != 0;
    double *boxes, *scores, *corners;
    TRY(op_input_f64(c, 0, &boxes));
    TRY(op_input_f64(c, 1, &scores));
    TRY(op_scratch_f64(c, n * 4, &corners));
    TRY(op_scratch_i64(c, batches * classes * n * 3, &picked));
    candidate *list = op_eval_scratch(c, (size_t)(n + 1) * sizeof *list);
    if (!list)
        return error_memory(c->err, "candidate boxes");
    for (int64_t g = 0; g < batches * classes; g++) {
        int64_t b = g / classes, first = found, count = 0;
        for (int64_t i = 0; i < n; i++) {
            normalise(boxes + (b * n + i) * 4, centre, corners + i * 4);
            double s = scores[g * n + i];
            if (s == s && (!op_in(c, 4) || s > least))
                list[count++] = (candidate){s, i};
        }
        qsort(list, (size_t)count, sizeof *list, by_score);
        for (int64_t i = 0; i < count && (double)(found - first) < most; i++) {
            bool keep = true;
            for (int64_t k = first; keep && k < found; k++)
                keep = overlap(corners + list[i].box * 4, corners + picked[k * 3 + 2] * 4) <= limit;
            if (keep) {
                picked[found * 3] = b;
                picked[found * 3 + 1] = g % classes;
                picked[found++ * 3 + 2] = list[i].box;
            }
        }
    }
    ir_shape y = ir_shape_of(2, (int64_t[]){found, 3});
    TRY(op_eval_alloc(c, 0, TACIT_I64, &y));
    op_output_i64(c, 0, picked);
    return TACIT_OK;
}

const op_def op_rows_nms[] = {
    {.name = "NonMaxSuppression",
     .min_in = 2,
     .max_in = 5,
     .min_out = 1,
     .max_out = 1,
     .flags = OP_DATA_SHAPE | OP_NOT_DIFFERENTIABLE,
     .infer = nms_infer,
     .eval = nms_eval},
    {0},
};
