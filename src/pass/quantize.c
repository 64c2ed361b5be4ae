/* SPDX-License-Identifier: Apache-2.0 */
#include "pass/quantize.h"

#include <math.h>
#include <string.h>

#include "base/half.h"
#include "op/build.h"

typedef struct quantizer {
    ir_graph *g;
    const pass_quantize_options *o;
    pass_quantize_report *report;
    double error, power; /* Σ(w − w')², Σw² */
    tacit_error *err;
} quantizer;

/* A layer: y = a·W (+ c), W [k,n] or [n,k]. */
typedef struct layer {
    ir_node *node;
    ir_value *a, *w, *c;
    int64_t k, n;
    bool trans;
} layer;

static bool layer_read(ir_node *n, layer *l)
{
    bool gemm = n->type && strcmp(n->type, "Gemm") == 0;
    if (!n->type || *n->domain || (!gemm && strcmp(n->type, "MatMul") != 0) || n->n_inputs < 2)
        return false;
    *l = (layer){.node = n, .a = n->inputs[0], .w = n->inputs[1]};
    const ir_tensor *w = ir_value_known(l->w);
    if (!w || w->dtype != TACIT_F32 || w->shape.rank != 2 || !l->a)
        return false;
    if (gemm) {
        l->c = n->n_inputs > 2 ? n->inputs[2] : NULL;
        l->trans = ir_attr_int(n, "transB", 0) != 0;
        if (ir_attr_int(n, "transA", 0) || ir_attr_float(n, "alpha", 1) != 1 ||
            (l->c && ir_attr_float(n, "beta", 1) != 1))
            return false;
    }
    l->k = w->shape.dims[l->trans];
    l->n = w->shape.dims[!l->trans];
    return l->k >= 32 && l->n >= 16;
}

static float weight_at(const layer *l, int64_t k, int64_t j)
{
    const float *w = l->w->constant->data;
    return l->trans ? w[j * l->k + k] : w[k * l->n + j];
}

static float to_f16(float x)
{
    return half_to_f32(half_encode(HALF_F16, x, false));
}

/* Σ(x − round(x/scale)·scale)², integers within [low, high]. */
static double squared_error(const float *x, int64_t count, float scale, float low, float high)
{
    double sum = 0;
    float inverse = scale != 0 ? 1 / scale : 0;
    for (int64_t i = 0; i < count; i++) {
        float q = rintf(x[i] * inverse);
        q = q < low ? low : q > high ? high : q;
        float d = x[i] - q * scale;
        sum += (double)(d * d);
    }
    return sum;
}

/* A scale that an f16 can say, for integers [-half, half - 1]: the one with the least error of a
 * few around what the largest magnitude asks for. */
static float choose_scale(const float *x, int64_t count, int bits)
{
    float top = 0, half = (float)(1 << (bits - 1)), best = 0;
    for (int64_t i = 0; i < count; i++)
        top = fabsf(x[i]) > fabsf(top) ? x[i] : top;
    if (bits == 8)
        return to_f16(fabsf(top) / 127);
    double least = INFINITY;
    for (int t = 0; t < 8; t++) {
        /* The largest value at the end that has one step more, then clipped more and more. */
        float s = to_f16(t < 7 ? -top / half * (1 - 0.04f * (float)t) : fabsf(top) / (half - 1));
        double e = squared_error(x, count, s, -half, half - 1);
        if (e < least) {
            least = e;
            best = s;
        }
    }
    return best;
}

/* One block of one column to `bits`-wide fields at `to`. */
static void quantize_block(quantizer *z, const float *x, int64_t count, int64_t block, int bits,
                           uint8_t *to, float *scale)
{
    float half = (float)(1 << (bits - 1)), s = choose_scale(x, count, bits);
    float inverse = s != 0 ? 1 / s : 0;
    *scale = s;
    for (int64_t i = 0; i < block; i++) {
        float v = i < count ? x[i] : 0, q = rintf(v * inverse);
        q = q < -half ? -half : q > half - 1 ? half - 1 : q;
        double d = (double)v - (double)q * s;
        z->error += d * d;
        z->power += (double)v * v;
        int f = (int)(q + half);
        to[i * bits / 8] |= (uint8_t)(f << i * bits % 8);
    }
}

static ir_value *constant(quantizer *z, const ir_value *like, const char *suffix, tacit_dtype dtype,
                          const ir_shape *shape, void **data)
{
    ir_tensor *t = ir_tensor_new(z->g->memory, dtype, shape);
    sbuf name;
    sbuf_init(&name, NULL);
    sbuf_printf(&name, "%s%s", like->name, suffix);
    ir_value *v = t && sbuf_str(&name) ? ir_constant_new(z->g, sbuf_str(&name), t) : NULL;
    sbuf_free(&name);
    if (v) {
        memset(t->data, 0, t->bytes);
        z->report->bytes_after += t->bytes;
        *data = t->data;
    }
    return v;
}

/* The layer's result is now `y` (plus its addend); the old node goes. */
static tacit_status replace(quantizer *z, const layer *l, ir_value *y)
{
    if (y && l->c)
        y = op_build2(z->g, "Add", y, l->c);
    TRY(op_build_finish(z->g, l->node, 0, y, z->err));
    z->report->layers++;
    z->report->bytes_before += l->w->constant->bytes;
    ir_node_kill(l->node);
    return TACIT_OK;
}

static ir_node *nbits_node(quantizer *z, const layer *l, ir_value *b, ir_value *scale, int bits)
{
    ir_value *in[] = {l->a, b, scale};
    ir_graph *g = z->g;
    ir_node *n = ir_node_new(g, "MatMulNBits", "com.microsoft", l->node->name, 3, in, 1, NULL);
    if (!n || !ir_attr_set_int(g, n, "K", l->k) || !ir_attr_set_int(g, n, "N", l->n) ||
        !ir_attr_set_int(g, n, "bits", bits) || !ir_attr_set_int(g, n, "block_size", z->o->block) ||
        !ir_attr_set_int(g, n, "accuracy_level", 4))
        return NULL;
    op_resolve(NULL, n);
    return n;
}

static tacit_status to_nbits(quantizer *z, const layer *l, int bits)
{
    int64_t block = z->o->block, blocks = (l->k + block - 1) / block, bytes = block * bits / 8;
    ir_shape shape = ir_shape_of(3, (int64_t[]){l->n, blocks, bytes});
    ir_shape grid = ir_shape_of(1, (int64_t[]){l->n * blocks});
    void *data, *scales;
    ir_value *b = constant(z, l->w, bits == 8 ? ".q8" : ".q4", TACIT_U8, &shape, &data);
    ir_value *s = constant(z, l->w, ".scale", TACIT_F32, &grid, &scales);
    if (!b || !s)
        return error_memory(z->err, "quantised weights");
    enum { COLUMNS = 16 };
    float x[COLUMNS][256]; /* a block of a few columns: W is read by rows */
    for (int64_t first = 0; first < l->n; first += COLUMNS) {
        int64_t cols = l->n - first < COLUMNS ? l->n - first : COLUMNS;
        for (int64_t i = 0; i < blocks; i++) {
            int64_t k0 = i * block, count = l->k - k0 < block ? l->k - k0 : block;
            for (int64_t k = 0; k < count; k++)
                for (int64_t c = 0; c < cols; c++)
                    x[c][k] = weight_at(l, k0 + k, first + c);
            for (int64_t c = 0; c < cols; c++) {
                int64_t at = (first + c) * blocks + i;
                quantize_block(z, x[c], count, block, bits, (uint8_t *)data + at * bytes,
                               (float *)scales + at);
            }
        }
    }
    ir_node *n = nbits_node(z, l, b, s, bits);
    return replace(z, l, n ? n->outputs[0] : NULL);
}

static tacit_status to_half(quantizer *z, const layer *l, tacit_dtype dtype)
{
    void *data;
    const ir_tensor *w = l->w->constant;
    ir_value *h =
        constant(z, l->w, dtype == TACIT_BF16 ? ".bf16" : ".f16", dtype, &w->shape, &data);
    if (!h)
        return error_memory(z->err, "quantised weights");
    for (int64_t i = 0, n = l->k * l->n; i < n; i++) {
        float x = ((const float *)w->data)[i];
        uint16_t bits = dtype == TACIT_BF16 ? f32_to_bf16(x) : half_encode(HALF_F16, x, false);
        double d = x - (dtype == TACIT_BF16 ? bf16_to_f32(bits) : half_to_f32(bits));
        ((uint16_t *)data)[i] = bits;
        z->error += d * d;
        z->power += (double)x * x;
    }
    ir_value *wide = op_build_cast(z->g, h, TACIT_F32);
    if (!wide)
        return error_memory(z->err, "quantised weights");
    z->report->layers++;
    z->report->bytes_before += w->bytes;
    l->node->inputs[1] = wide;
    return TACIT_OK;
}

/* --- bytes on both sides ---------------------------------------------------------------------- */

static const pass_value_range *range_of(const quantizer *z, const ir_value *v)
{
    for (uint32_t i = 0; i < z->o->n_ranges; i++)
        if (strcmp(z->o->ranges[i].value, v->name) == 0)
            return &z->o->ranges[i];
    return NULL;
}

/* a → u8 → a', with the range it was seen in; zero is always exact. */
static ir_value *round_left(quantizer *z, ir_value *a, const pass_value_range *r)
{
    double low = fmin(r->low, 0), high = fmax(r->high, 0);
    float scale = (float)((high - low) / 255);
    scale = scale > 0 ? scale : 1;
    ir_value *s = op_build_scalar(z->g, TACIT_F32, scale);
    ir_value *zero = op_build_scalar(z->g, TACIT_U8, rint(fmin(255, fmax(0, -low / scale))));
    return op_build3(z->g, "DequantizeLinear", op_build3(z->g, "QuantizeLinear", a, s, zero), s,
                     zero);
}

static tacit_status to_bytes(quantizer *z, const layer *l, const pass_value_range *r)
{
    ir_shape columns = ir_shape_of(1, &l->n);
    void *data, *scales;
    const ir_tensor *w = l->w->constant;
    ir_value *q = constant(z, l->w, ".i8", TACIT_I8, &w->shape, &data);
    ir_value *s = constant(z, l->w, ".scale", TACIT_F32, &columns, &scales);
    if (!q || !s)
        return error_memory(z->err, "quantised weights");
    for (int64_t j = 0; j < l->n; j++) {
        float top = 0;
        for (int64_t k = 0; k < l->k; k++)
            top = fmaxf(top, fabsf(weight_at(l, k, j)));
        float scale = top > 0 ? top / 127 : 1;
        ((float *)scales)[j] = scale;
        for (int64_t k = 0; k < l->k; k++) {
            float x = weight_at(l, k, j), v = rintf(x / scale);
            v = v < -127 ? -127 : v > 127 ? 127 : v;
            ((int8_t *)data)[l->trans ? j * l->k + k : k * l->n + j] = (int8_t)v;
            z->error += ((double)x - (double)v * scale) * ((double)x - (double)v * scale);
            z->power += (double)x * x;
        }
    }
    ir_value *wide = op_build2(z->g, "DequantizeLinear", q, s);
    ir_value *a = round_left(z, l->a, r);
    if (!wide || !a || !ir_attr_set_int(z->g, wide->producer, "axis", l->trans ? 0 : 1))
        return error_memory(z->err, "quantised weights");
    z->report->layers++;
    z->report->bytes_before += w->bytes;
    l->node->inputs[0] = a;
    l->node->inputs[1] = wide;
    return TACIT_OK;
}

static tacit_status quantize_layer(quantizer *z, const layer *l)
{
    if (z->o->ranges) {
        const pass_value_range *r = range_of(z, l->a);
        return r ? to_bytes(z, l, r) : TACIT_OK;
    }
    switch (z->o->storage) {
    case PASS_STORE_INT8:
        return to_nbits(z, l, 8);
    case PASS_STORE_INT4:
        return to_nbits(z, l, 4);
    case PASS_STORE_BF16:
        return to_half(z, l, TACIT_BF16);
    default:
        return to_half(z, l, TACIT_F16);
    }
}

static tacit_status check(const pass_quantize_options *o, tacit_error *err)
{
    bool blocked = o->storage <= PASS_STORE_INT4 && !o->ranges;
    if (blocked && (o->block < 16 || o->block > 256 || (o->block & (o->block - 1))))
        return error_set(err, TACIT_ERR_ARGUMENT, "block %lld is not 16, 32, 64, 128 or 256",
                         (long long)o->block);
    if (o->ranges && o->storage != PASS_STORE_INT8)
        return error_set(err, TACIT_ERR_ARGUMENT, "static quantisation stores weights as int8");
    return TACIT_OK;
}

tacit_status pass_quantize(ir_graph *g, const pass_quantize_options *options,
                           pass_quantize_report *report, tacit_error *err)
{
    *report = (pass_quantize_report){0};
    TRY(check(options, err));
    quantizer z = {.g = g, .o = options, .report = report, .err = err};
    for (uint32_t i = 0, n = g->nodes.count; i < n; i++) {
        layer l;
        if (layer_read(g->nodes.data[i], &l))
            TRY(quantize_layer(&z, &l));
    }
    report->error = z.power > 0 ? sqrt(z.error / z.power) : 0;
    TRY(ir_graph_sweep(g, err));
    return ir_graph_sort(g, err);
}
