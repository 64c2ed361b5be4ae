/* SPDX-License-Identifier: Apache-2.0
 * DFT, STFT, windows and the mel matrix. */
#include <math.h>
#include <string.h>

#include "op/fft.h"
#include "op/values.h"
#include "op/vjp.h"

static bool scalar_int(const ir_tensor *t, int64_t *out)
{
    if (!t || ir_tensor_count(t) != 1)
        return false;
    *out = ir_load_i64(t->dtype, t->data, 0);
    return true;
}

/* --- DFT -------------------------------------------------------------------------------------- */

typedef struct dft {
    int32_t axis;
    int64_t length, bins_in, bins_out; /* transform length; the axis before and after */
    bool inverse, onesided;
    int parts_in, parts_out; /* 1 real, 2 complex */
} dft;

static tacit_status dft_read(const ir_node *node, const ir_shape *x, const ir_tensor *length,
                             const ir_tensor *axis, dft *d, tacit_error *err)
{
    int64_t wanted_axis = -2;
    char text[IR_SHAPE_TEXT];
    scalar_int(axis, &wanted_axis);
    if (x->rank < 2 || (x->dims[x->rank - 1] != 1 && x->dims[x->rank - 1] != 2))
        return error_set(err, TACIT_ERR_SHAPE, "input %s must end in 1 (real) or 2 (complex)",
                         ir_shape_text(x, text));
    TRY(ir_axis(wanted_axis, x->rank, &d->axis, err));
    if (d->axis == x->rank - 1)
        return error_set(err, TACIT_ERR_VALUE, "the last axis holds the complex parts");
    d->inverse = ir_attr_int(node, "inverse", 0) != 0;
    d->onesided = ir_attr_int(node, "onesided", 0) != 0;
    d->bins_in = x->dims[d->axis];
    d->length = d->inverse && d->onesided ? 2 * (d->bins_in - 1) : d->bins_in;
    scalar_int(length, &d->length);
    if (d->length < 1)
        return error_set(err, TACIT_ERR_VALUE, "dft_length is %lld", (long long)d->length);
    d->bins_out = d->onesided && !d->inverse ? d->length / 2 + 1 : d->length;
    d->parts_in = (int)x->dims[x->rank - 1];
    d->parts_out = d->onesided && d->inverse ? 1 : 2;
    if (d->onesided && !d->inverse && d->parts_in != 1)
        return error_set(err, TACIT_ERR_SHAPE, "a one-sided transform needs real input");
    return TACIT_OK;
}

static tacit_status dft_infer(op_infer *c)
{
    dft d;
    const ir_tensor *length = op_in_value(c, 1), *axis = op_in_value(c, 2);
    ir_shape y = c->in[0]->shape;
    TRY(op_need_float(c, 0));
    if (y.rank < 2)
        return error_set(c->err, TACIT_ERR_SHAPE, "the input must have rank 2 or more");
    if ((op_in_type(c, 1) && !length) || (op_in_type(c, 2) && !axis)) {
        for (int32_t i = 0; i < y.rank - 1; i++)
            y.dims[i] = IR_DIM_UNKNOWN;
        y.dims[y.rank - 1] =
            ir_attr_int(c->node, "onesided", 0) && ir_attr_int(c->node, "inverse", 0) ? 1 : 2;
    } else {
        TRY(dft_read(c->node, &y, length, axis, &d, c->err));
        y.dims[d.axis] = d.bins_out;
        y.dims[y.rank - 1] = d.parts_out;
    }
    op_set_out(c, 0, c->in[0]->dtype, &y);
    return TACIT_OK;
}

/* The spectrum of real data is its own mirrored conjugate; rounding must not spoil that. */
static void make_hermitian(double *line, int64_t n)
{
    line[1] = 0;
    for (int64_t i = 1; i <= n / 2; i++) {
        line[2 * (n - i)] = line[2 * i];
        line[2 * (n - i) + 1] = 2 * i == n ? 0 : -line[2 * i + 1];
    }
}

/* One line: `from` and `to` step over complex (or real) elements. */
static void dft_line(const op_fft *plan, const dft *d, const double *from, int64_t from_step,
                     double *to, int64_t to_step, double *line)
{
    memset(line, 0, (size_t)d->length * 2 * sizeof *line);
    int64_t used = d->inverse && d->onesided ? d->length / 2 + 1 : d->length;
    used = used < d->bins_in ? used : d->bins_in;
    for (int64_t i = 0; i < used; i++) {
        line[2 * i] = from[i * from_step];
        line[2 * i + 1] = d->parts_in == 2 ? from[i * from_step + 1] : 0;
    }
    if (d->inverse && d->onesided) /* the other half is the conjugate */
        for (int64_t i = d->length / 2 + 1; i < d->length; i++) {
            line[2 * i] = line[2 * (d->length - i)];
            line[2 * i + 1] = -line[2 * (d->length - i) + 1];
        }
    op_fft_run(plan, line, d->inverse);
    if (d->parts_in == 1)
        make_hermitian(line, d->length);
    double f = d->inverse ? 1 / (double)d->length : 1;
    for (int64_t i = 0; i < d->bins_out; i++)
        for (int k = 0; k < d->parts_out; k++)
            to[i * to_step + k] = line[2 * i + k] * f;
}

static tacit_status dft_eval(op_eval *c)
{
    const ir_tensor *t = op_in(c, 0);
    dft d;
    op_fft plan;
    double *x, *y, *line;
    TRY(dft_read(c->node, &t->shape, op_in(c, 1), op_in(c, 2), &d, c->err));
    ir_shape shape = t->shape;
    shape.dims[d.axis] = d.bins_out;
    shape.dims[shape.rank - 1] = d.parts_out;
    if (!op_out(c, 0)->data)
        TRY(op_eval_alloc(c, 0, t->dtype, &shape));
    int64_t outer = 1, inner = 1;
    for (int32_t i = 0; i < d.axis; i++)
        outer *= shape.dims[i];
    for (int32_t i = d.axis + 1; i < shape.rank - 1; i++)
        inner *= shape.dims[i];
    TRY(op_input_f64(c, 0, &x));
    TRY(op_scratch_f64(c, ir_shape_size(&shape), &y));
    TRY(op_scratch_f64(c, 2 * d.length, &line));
    TRY(op_fft_plan(c, d.length, t->dtype, &plan));
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < inner; i++)
            dft_line(&plan, &d, x + (o * d.bins_in * inner + i) * d.parts_in, inner * d.parts_in,
                     y + (o * d.bins_out * inner + i) * d.parts_out, inner * d.parts_out, line);
    op_output_f64(c, 0, y);
    return TACIT_OK;
}

/* --- STFT ------------------------------------------------------------------------------------- */

typedef struct stft {
    int64_t batch, samples, step, length, frames, bins;
    int parts;
} stft;

static tacit_status stft_read(const ir_node *node, const ir_shape *x, const ir_tensor *step,
                              const ir_shape *window, const ir_tensor *length, stft *s,
                              tacit_error *err)
{
    if (x->rank != 3 || (x->dims[2] != 1 && x->dims[2] != 2))
        return error_set(err, TACIT_ERR_SHAPE, "the signal must be [batch, samples, 1 or 2]");
    bool onesided = ir_attr_int(node, "onesided", 1) != 0;
    *s = (stft){.batch = x->dims[0], .samples = x->dims[1], .parts = (int)x->dims[2]};
    s->length = window ? window->dims[0] : s->samples;
    scalar_int(length, &s->length);
    if (!scalar_int(step, &s->step) || s->step < 1 || s->length < 1 || s->length > s->samples ||
        (window && window->dims[0] > s->length))
        return error_set(err, TACIT_ERR_VALUE, "frames of %lld every %lld in %lld samples",
                         (long long)s->length, (long long)s->step, (long long)s->samples);
    if (onesided && s->parts == 2)
        return error_set(err, TACIT_ERR_VALUE, "a complex signal has no one-sided transform");
    s->frames = 1 + (s->samples - s->length) / s->step;
    s->bins = onesided ? s->length / 2 + 1 : s->length;
    return TACIT_OK;
}

static tacit_status stft_infer(op_infer *c)
{
    const ir_type *window = op_in_type(c, 2);
    const ir_tensor *step = op_in_value(c, 1), *length = op_in_value(c, 3);
    int64_t y[4] = {c->in[0]->shape.dims[0], IR_DIM_UNKNOWN, IR_DIM_UNKNOWN, 2};
    stft s;
    TRY(op_need_float(c, 0));
    TRY(op_need_rank(c, 0, 3));
    TRY(op_need_rank(c, 2, 1));
    if (step && (!op_in_type(c, 3) || length)) {
        TRY(stft_read(c->node, &c->in[0]->shape, step, window ? &window->shape : NULL, length, &s,
                      c->err));
        y[1] = s.frames;
        y[2] = s.bins;
    }
    op_set_out_dims(c, 0, c->in[0]->dtype, 4, y);
    return TACIT_OK;
}

static tacit_status stft_eval(op_eval *c)
{
    const ir_tensor *window = op_in(c, 2);
    stft s;
    op_fft plan;
    double *x, *w, *y, *line;
    TRY(stft_read(c->node, &op_in(c, 0)->shape, op_in(c, 1), window ? &window->shape : NULL,
                  op_in(c, 3), &s, c->err));
    ir_shape shape = ir_shape_of(4, (int64_t[]){s.batch, s.frames, s.bins, 2});
    if (!op_out(c, 0)->data)
        TRY(op_eval_alloc(c, 0, op_in(c, 0)->dtype, &shape));
    TRY(op_input_f64(c, 0, &x));
    TRY(op_input_f64(c, 2, &w));
    TRY(op_scratch_f64(c, ir_shape_size(&shape), &y));
    TRY(op_scratch_f64(c, 2 * s.length, &line));
    TRY(op_fft_plan(c, s.length, op_in(c, 0)->dtype, &plan));
    int64_t taps = w ? window->shape.dims[0] : s.length;
    for (int64_t f = 0; f < s.batch * s.frames; f++) {
        const double *from = x + (f / s.frames * s.samples + f % s.frames * s.step) * s.parts;
        memset(line, 0, (size_t)s.length * 2 * sizeof *line);
        for (int64_t i = 0; i < taps; i++)
            for (int k = 0; k < s.parts; k++)
                line[2 * i + k] = from[i * s.parts + k] * (w ? w[i] : 1);
        op_fft_run(&plan, line, false);
        if (s.parts == 1)
            make_hermitian(line, s.length);
        memcpy(y + f * s.bins * 2, line, (size_t)s.bins * 2 * sizeof *y);
    }
    op_output_f64(c, 0, y);
    return TACIT_OK;
}

/* --- windows ---------------------------------------------------------------------------------- */

static tacit_dtype output_datatype(const ir_node *node)
{
    return ir_dtype_from_onnx(ir_attr_int(node, "output_datatype", 1));
}

static tacit_status check_datatype(op_infer *c)
{
    tacit_dtype d = output_datatype(c->node);
    if (!ir_dtype_is_float(d) && !ir_dtype_is_int(d))
        return error_set(c->err, TACIT_ERR_TYPE, "output_datatype must be a number type");
    return TACIT_OK;
}

static tacit_status window_infer(op_infer *c)
{
    int64_t n = IR_DIM_UNKNOWN;
    if (ir_shape_size(&c->in[0]->shape) != 1 || !ir_dtype_is_int(c->in[0]->dtype))
        return error_set(c->err, TACIT_ERR_SHAPE, "size must be one integer");
    if (op_in_value(c, 0) && scalar_int(op_in_value(c, 0), &n) && n < 0)
        return error_set(c->err, TACIT_ERR_VALUE, "size is %lld", (long long)n);
    TRY(check_datatype(c));
    op_set_out_dims(c, 0, output_datatype(c->node), 1, &n);
    return TACIT_OK;
}

/* a0 − a1·cos(2πi/N) + a2·cos(4πi/N) */
static tacit_status cosine_window(op_eval *c, double a0, double a1, double a2)
{
    int64_t n = ir_load_i64(op_in(c, 0)->dtype, op_in(c, 0)->data, 0);
    bool periodic = ir_attr_int(c->node, "periodic", 1) != 0;
    double *y, period = (double)(periodic ? n : n - 1);
    if (n < 0)
        return error_set(c->err, TACIT_ERR_VALUE, "size is %lld", (long long)n);
    if (!op_out(c, 0)->data) {
        ir_shape shape = ir_shape_of(1, &n);
        TRY(op_eval_alloc(c, 0, output_datatype(c->node), &shape));
    }
    TRY(op_scratch_f64(c, n, &y));
    for (int64_t i = 0; i < n; i++) {
        double t = period > 0 ? 2 * M_PI * (double)i / period : M_PI; /* one point: the peak */
        y[i] = a0 - a1 * cos(t) + a2 * cos(2 * t);
    }
    op_output_f64(c, 0, y);
    return TACIT_OK;
}

static tacit_status hann_eval(op_eval *c)
{
    return cosine_window(c, 0.5, 0.5, 0);
}
static tacit_status hamming_eval(op_eval *c)
{
    return cosine_window(c, 25. / 46, 21. / 46, 0);
}
static tacit_status blackman_eval(op_eval *c)
{
    return cosine_window(c, 0.42, 0.5, 0.08);
}

/* --- MelWeightMatrix -------------------------------------------------------------------------- */

static tacit_status mel_infer(op_infer *c)
{
    int64_t bands = IR_DIM_UNKNOWN, length, bins = IR_DIM_UNKNOWN;
    for (uint32_t i = 0; i < 5; i++)
        if (ir_shape_size(&c->in[i]->shape) != 1)
            return error_set(c->err, TACIT_ERR_SHAPE, "input %u must have one element", i);
    if (op_in_value(c, 0))
        scalar_int(op_in_value(c, 0), &bands);
    if (op_in_value(c, 1) && scalar_int(op_in_value(c, 1), &length))
        bins = length / 2 + 1;
    if ((bands < 0 && bands != IR_DIM_UNKNOWN) || (bins < 1 && bins != IR_DIM_UNKNOWN))
        return error_set(c->err, TACIT_ERR_VALUE, "num_mel_bins or dft_length is negative");
    TRY(check_datatype(c));
    op_set_out_dims(c, 0, output_datatype(c->node), 2, (int64_t[]){bins, bands});
    return TACIT_OK;
}

static double to_mel(double hertz)
{
    return 2595 * log10(1 + hertz / 700);
}

static tacit_status mel_eval(op_eval *c)
{
    double v[5];
    for (uint32_t i = 0; i < 5; i++)
        v[i] = ir_load_f64(op_in(c, i)->dtype, op_in(c, i)->data, 0);
    int64_t bands = (int64_t)v[0], length = (int64_t)v[1], bins = length / 2 + 1, *edge;
    double low = to_mel(v[3]), step = (to_mel(v[4]) - low) / (double)(bands + 2), *y;
    if (bands < 0 || length < 0 || !(v[2] > 0) || !(v[3] >= 0) || !(v[4] >= v[3]))
        return error_set(c->err, TACIT_ERR_VALUE, "sizes or frequencies are not usable");
    if (!op_out(c, 0)->data) {
        ir_shape shape = ir_shape_of(2, (int64_t[]){bins, bands});
        TRY(op_eval_alloc(c, 0, output_datatype(c->node), &shape));
    }
    TRY(op_scratch_f64(c, bins * bands, &y));
    TRY(op_scratch_i64(c, bands + 2, &edge));
    for (int64_t i = 0; i < bands + 2; i++) {
        double hertz = 700 * (pow(10, (low + (double)i * step) / 2595) - 1);
        edge[i] = (int64_t)floor((double)(length + 1) * hertz / v[2]);
        if (i < bands + 1 && edge[i] >= bins)
            return error_set(c->err, TACIT_ERR_VALUE, "band %lld lies above half the sample rate",
                             (long long)i);
    }
    for (int64_t b = 0; b < bands; b++) {
        int64_t left = edge[b], centre = edge[b + 1], right = edge[b + 2];
        for (int64_t k = left; k <= centre; k++)
            y[k * bands + b] = centre == left ? 1 : (double)(k - left) / (double)(centre - left);
        for (int64_t k = centre; k < right && k < bins; k++)
            y[k * bands + b] = (double)(right - k) / (double)(right - centre);
    }
    op_output_f64(c, 0, y);
    return TACIT_OK;
}

const op_def op_rows_signal[] = {
    OP_ROW("DFT", 1, 3, dft_infer, dft_eval, .spell = op_spell_dft),
    OP_ROW("STFT", 2, 4, stft_infer, stft_eval, .spell = op_spell_stft),
    OP_ROW("HannWindow", 1, 1, window_infer, hann_eval, .flags = OP_NOT_DIFFERENTIABLE),
    OP_ROW("HammingWindow", 1, 1, window_infer, hamming_eval, .flags = OP_NOT_DIFFERENTIABLE),
    OP_ROW("BlackmanWindow", 1, 1, window_infer, blackman_eval, .flags = OP_NOT_DIFFERENTIABLE),
    OP_ROW("MelWeightMatrix", 5, 5, mel_infer, mel_eval, .flags = OP_NOT_DIFFERENTIABLE),
    {0},
};
