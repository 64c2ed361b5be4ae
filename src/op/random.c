/* SPDX-License-Identifier: Apache-2.0
 * Ops that draw: RandomUniform/Normal (and Like), Bernoulli, Multinomial, Dropout. */
#include "op/random.h"

#include <math.h>
#include <string.h>

#include "op/elementwise.h"
#include "op/range.h"
#include "op/view.h"
#include "op/vjp.h"

philox op_random_stream(const op_eval *c)
{
    const ir_attr *seed = ir_attr_find(c->node, "seed");
    philox p = {.seed = UINT64_C(0xcbf29ce484222325), .step = c->step};
    if (seed && seed->kind == IR_ATTR_INT) {
        p.seed = (uint64_t)seed->i;
    } else if (seed && seed->kind == IR_ATTR_FLOAT) {
        memcpy(&p.seed, &seed->f, sizeof p.seed);
    } else {
        for (const char *s = c->node->name; *s; s++) /* FNV-1a */
            p.seed = (p.seed ^ (unsigned char)*s) * UINT64_C(0x100000001b3);
    }
    return p;
}

double op_random_normal(const philox *p, uint64_t index)
{
    uint64_t r[2];
    philox_u64(p, index, r);
    double u = 1.0 - (double)(r[0] >> 11) * 0x1p-53; /* in (0, 1] */
    double v = (double)(r[1] >> 11) * 0x1p-53;
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

/* --- RandomUniform, RandomNormal -------------------------------------------------------------- */

/* The attribute `dtype`, else `fallback`; a float type where `real`. */
static tacit_status read_dtype(op_infer *c, tacit_dtype fallback, bool real, tacit_dtype *out)
{
    const ir_attr *a = ir_attr_find(c->node, "dtype");
    *out = a ? ir_dtype_from_onnx(a->i) : fallback;
    ir_dtype_class k = ir_dtype_classify(*out);
    if (real ? k != IR_CLASS_FLOAT
             : k == IR_CLASS_NONE || k == IR_CLASS_STRING || k == IR_CLASS_COMPLEX)
        return error_set(c->err, TACIT_ERR_TYPE, "dtype %s does not fit", tacit_dtype_text(*out));
    return TACIT_OK;
}

static tacit_status random_infer(op_infer *c)
{
    uint32_t n;
    tacit_dtype dtype;
    const int64_t *dims = ir_attr_ints(c->node, "shape", &n);
    if (!dims || n > IR_MAX_RANK)
        return error_set(c->err, TACIT_ERR_GRAPH, "no usable shape attribute");
    for (uint32_t i = 0; i < n; i++)
        if (dims[i] < 0)
            return error_set(c->err, TACIT_ERR_VALUE, "dim %u of shape is negative", i);
    TRY(read_dtype(c, TACIT_F32, true, &dtype));
    c->out[0] = ir_type_tensor(dtype, (int32_t)n, dims);
    return TACIT_OK;
}

static tacit_status random_like_infer(op_infer *c)
{
    tacit_dtype dtype;
    TRY(op_check_class(c, 0, OP_ANY));
    TRY(read_dtype(c, c->in[0]->dtype, true, &dtype));
    c->out[0] = *c->in[0];
    c->out[0].dtype = dtype;
    return TACIT_OK;
}

static tacit_status uniform_eval(op_eval *c)
{
    ir_tensor *y = op_out(c, 0);
    philox p = op_random_stream(c);
    double low = ir_attr_float(c->node, "low", 0), high = ir_attr_float(c->node, "high", 1);
    for (int64_t i = 0, n = ir_tensor_count(y); i < n; i++)
        ir_store_f64(y->dtype, y->data, i, low + (high - low) * philox_uniform(&p, (uint64_t)i));
    return TACIT_OK;
}

static tacit_status normal_eval(op_eval *c)
{
    ir_tensor *y = op_out(c, 0);
    philox p = op_random_stream(c);
    double mean = ir_attr_float(c->node, "mean", 0), scale = ir_attr_float(c->node, "scale", 1);
    for (int64_t i = 0, n = ir_tensor_count(y); i < n; i++)
        ir_store_f64(y->dtype, y->data, i, mean + scale * op_random_normal(&p, (uint64_t)i));
    return TACIT_OK;
}

/* --- Bernoulli -------------------------------------------------------------------------------- */

static tacit_status bernoulli_infer(op_infer *c)
{
    tacit_dtype dtype;
    TRY(op_check_class(c, 0, OP_FLOAT));
    TRY(read_dtype(c, c->in[0]->dtype, false, &dtype));
    c->out[0] = *c->in[0];
    c->out[0].dtype = dtype;
    return TACIT_OK;
}

static tacit_status bernoulli_eval(op_eval *c)
{
    const ir_tensor *x = op_in(c, 0);
    ir_tensor *y = op_out(c, 0);
    philox stream = op_random_stream(c);
    for (int64_t i = 0, n = ir_tensor_count(x); i < n; i++) {
        double p = ir_load_f64(x->dtype, x->data, i);
        if (!(p >= 0 && p <= 1))
            return error_set(c->err, TACIT_ERR_VALUE, "probability %g is outside [0, 1]", p);
        ir_store_i64(y->dtype, y->data, i, philox_uniform(&stream, (uint64_t)i) < p);
    }
    return TACIT_OK;
}

/* --- Multinomial ------------------------------------------------------------------------------ */

static tacit_status multinomial_infer(op_infer *c)
{
    TRY(op_check_class(c, 0, OP_FLOAT));
    const ir_shape *x = &c->in[0]->shape;
    int64_t samples = ir_attr_int(c->node, "sample_size", 1);
    tacit_dtype dtype;
    TRY(read_dtype(c, TACIT_I32, false, &dtype));
    if (!ir_dtype_is_int(dtype))
        return error_set(c->err, TACIT_ERR_TYPE, "dtype must be an integer type");
    if (x->rank != 2 || x->dims[1] < 1 || samples < 0)
        return error_set(c->err, TACIT_ERR_SHAPE, "expected [batch, classes] and a sample size");
    c->out[0] = ir_type_tensor(dtype, 2, (int64_t[]){x->dims[0], samples});
    return TACIT_OK;
}

/* Inputs are unnormalised log-probabilities. */
static tacit_status multinomial_eval(op_eval *c)
{
    const ir_tensor *x = op_in(c, 0);
    ir_tensor *y = op_out(c, 0);
    int64_t classes = x->shape.dims[1], samples = y->shape.dims[1];
    double *sum = op_eval_scratch(c, (size_t)classes * sizeof *sum + 1);
    philox stream = op_random_stream(c);
    if (!sum)
        return error_memory(c->err, "Multinomial");
    for (int64_t b = 0; b < x->shape.dims[0]; b++) {
        double most = -INFINITY, total = 0;
        for (int64_t k = 0; k < classes; k++)
            most = fmax(most, ir_load_f64(x->dtype, x->data, b * classes + k));
        for (int64_t k = 0; k < classes; k++) {
            total += exp(ir_load_f64(x->dtype, x->data, b * classes + k) - most);
            sum[k] = total;
        }
        if (!(total > 0) || isinf(total))
            return error_set(c->err, TACIT_ERR_VALUE, "row %lld has no probabilities",
                             (long long)b);
        for (int64_t s = 0; s < samples; s++) {
            double r = total * philox_uniform(&stream, (uint64_t)(b * samples + s));
            int64_t k = 0;
            while (k + 1 < classes && sum[k] <= r)
                k++;
            ir_store_i64(y->dtype, y->data, b * samples + s, k);
        }
    }
    return TACIT_OK;
}

/* --- Dropout ---------------------------------------------------------------------------------- */

/* The ONNX reference draws a seeded mask from the Mersenne Twister; with an explicit seed ours is
 * the same, so that results can be compared across implementations. */
typedef struct twister {
    uint32_t state[624];
    uint32_t at;
} twister;

static void twister_seed(twister *t, uint32_t seed)
{
    t->state[0] = seed;
    for (uint32_t i = 1; i < 624; i++)
        t->state[i] = 1812433253u * (t->state[i - 1] ^ (t->state[i - 1] >> 30)) + i;
    t->at = 624;
}

static uint32_t twister_u32(twister *t)
{
    if (t->at == 624) {
        for (uint32_t i = 0; i < 624; i++) {
            uint32_t y = (t->state[i] & 0x80000000u) | (t->state[(i + 1) % 624] & 0x7fffffffu);
            t->state[i] = t->state[(i + 397) % 624] ^ (y >> 1) ^ (y & 1 ? 0x9908b0dfu : 0);
        }
        t->at = 0;
    }
    uint32_t y = t->state[t->at++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

static double twister_f64(twister *t)
{
    uint32_t a = twister_u32(t) >> 5, b = twister_u32(t) >> 6;
    return (a * 67108864.0 + b) / 9007199254740992.0;
}

static tacit_status dropout_infer(op_infer *c)
{
    TRY(op_check_class(c, 0, OP_FLOAT));
    if (op_in_type(c, 1))
        TRY(op_check_class(c, 1, OP_FLOAT));
    if (op_in_type(c, 2))
        TRY(op_check_class(c, 2, OP_BOOL));
    for (uint32_t i = 1; i < c->n_in; i++)
        if (c->in[i] && ir_shape_size(&c->in[i]->shape) != 1)
            return error_set(c->err, TACIT_ERR_SHAPE, "input %u must be a scalar", i);
    c->out[0] = *c->in[0];
    if (c->n_out > 1) {
        c->out[1] = *c->in[0];
        c->out[1].dtype = TACIT_BOOL;
    }
    return TACIT_OK;
}

static tacit_status dropout_eval(op_eval *c)
{
    const ir_tensor *x = op_in(c, 0), *given = op_in(c, 1), *mode = op_in(c, 2);
    ir_tensor *y = op_out(c, 0), *mask = op_out(c, 1);
    bool training = mode && *(const uint8_t *)mode->data, seeded = ir_attr_find(c->node, "seed");
    double ratio = given ? ir_load_f64(given->dtype, given->data, 0) : 0.5;
    if (!(ratio >= 0 && ratio < 1) && training)
        return error_set(c->err, TACIT_ERR_VALUE, "ratio %g is outside [0, 1)", ratio);
    bool drop = training && ratio != 0;
    philox stream = op_random_stream(c);
    twister *t = op_eval_scratch(c, sizeof *t);
    if (!t)
        return error_memory(c->err, "Dropout");
    twister_seed(t, (uint32_t)(stream.seed + c->step));
    for (int64_t i = 0, n = ir_tensor_count(x); i < n; i++) {
        bool keep =
            !drop || (seeded ? twister_f64(t) : philox_uniform(&stream, (uint64_t)i)) >= ratio;
        double v = ir_load_f64(x->dtype, x->data, i);
        if (y)
            ir_store_f64(y->dtype, y->data, i, !keep ? 0 : drop ? v / (1 - ratio) : v);
        if (mask)
            ((uint8_t *)mask->data)[i] = keep;
    }
    return TACIT_OK;
}

#define RANDOM_ROW(NAME, MIN, MAX, OUT, FLAGS, INFER, EVAL, ...)                                   \
    {                                                                                              \
        .name = NAME, .min_in = MIN, .max_in = MAX, .min_out = 1, .max_out = OUT,                  \
        .flags = OP_RANDOM | (FLAGS), .infer = INFER, .eval = EVAL, __VA_ARGS__                    \
    }

const op_def op_rows_random[] = {
    RANDOM_ROW("RandomUniform", 0, 0, 1, OP_NOT_DIFFERENTIABLE, random_infer, uniform_eval),
    RANDOM_ROW("RandomNormal", 0, 0, 1, OP_NOT_DIFFERENTIABLE, random_infer, normal_eval),
    RANDOM_ROW("RandomUniformLike", 1, 1, 1, OP_NOT_DIFFERENTIABLE, random_like_infer,
               uniform_eval),
    RANDOM_ROW("RandomNormalLike", 1, 1, 1, OP_NOT_DIFFERENTIABLE, random_like_infer, normal_eval),
    RANDOM_ROW("Bernoulli", 1, 1, 1, OP_NOT_DIFFERENTIABLE, bernoulli_infer, bernoulli_eval),
    RANDOM_ROW("Multinomial", 1, 1, 1, OP_NOT_DIFFERENTIABLE, multinomial_infer, multinomial_eval),
    RANDOM_ROW("Dropout", 1, 3, 2, 0, dropout_infer, dropout_eval, .vjp = op_vjp_dropout,
               .range = op_bounds_dropout),
    {0},
};
