/* SPDX-License-Identifier: Apache-2.0 */
#include "op/narrow.h"

#include <math.h>
#include <string.h>

#include "base/half.h"

static int index_of(const char *const *names, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return -1;
}

tacit_status op_narrow_read(const ir_node *node, int64_t k, op_narrow *s, tacit_error *err)
{
    static const char *const kinds[] = {"int8", "int4",  "fp8",    "nvfp4",
                                        "gguf", "nbits", "linear", "float"};
    static const char *const formats[] = {"e4m3fn", "e4m3_ieee", "e5m2"};
    const char *name = ir_attr_string(node, "scheme", "");
    int kind = index_of(kinds, 8, name);
    if (kind < 0)
        return error_set(err, TACIT_ERR_VALUE, "unknown scheme '%s'", name);
    *s = (op_narrow){.kind = (op_narrow_kind)kind, .k = k, .n = ir_attr_int(node, "n", 0)};
    s->block = kind == OP_NARROW_NVFP4 ? 16 : ir_attr_int(node, "block", k);
    s->bits = ir_attr_int(node, "bits", 4);
    s->format = index_of(formats, 3, ir_attr_string(node, "format", "e4m3fn"));
    s->gguf = op_gguf_by_name(ir_attr_string(node, "type", NULL));
    s->trans = ir_attr_int(node, "trans_b", 0) != 0;
    s->int8_rows = ir_attr_int(node, "int8_activations", 0) != 0;
    if (k < 1 || k > INT32_MAX || s->n < 1 || s->n > INT32_MAX || s->block < 1 ||
        s->block > INT32_MAX || s->format < 0)
        return error_set(err, TACIT_ERR_VALUE, "k %lld, n %lld, block %lld or format", (long long)k,
                         (long long)s->n, (long long)s->block);
    s->blocks = (k + s->block - 1) / s->block;
    if (kind == OP_NARROW_GGUF && (!s->gguf || k % s->gguf->elements))
        return error_set(err, TACIT_ERR_VALUE, "type '%s' does not divide rows of %lld",
                         ir_attr_string(node, "type", ""), (long long)k);
    if (kind == OP_NARROW_NBITS &&
        ((s->bits != 2 && s->bits != 4 && s->bits != 8) || s->block * s->bits % 8))
        return error_set(err, TACIT_ERR_VALUE, "%lld bits in blocks of %lld", (long long)s->bits,
                         (long long)s->block);
    return TACIT_OK;
}

int64_t op_narrow_size(const op_narrow *s)
{
    switch (s->kind) {
    case OP_NARROW_INT4:
    case OP_NARROW_NVFP4:
        return (s->k * s->n + 1) / 2;
    case OP_NARROW_GGUF:
        return s->k / s->gguf->elements * s->gguf->bytes * s->n;
    case OP_NARROW_NBITS:
        return s->n * s->blocks * (s->block * s->bits / 8);
    default:
        return s->k * s->n;
    }
}

static bool dtype_fits(const op_narrow *s, tacit_dtype d)
{
    switch (s->kind) {
    case OP_NARROW_INT8:
        return d == TACIT_U8 || d == TACIT_I8;
    case OP_NARROW_LINEAR:
        return d == TACIT_U8 || d == TACIT_I8 || d == TACIT_U4 || d == TACIT_I4;
    case OP_NARROW_FLOAT:
        return d == TACIT_F16 || d == TACIT_BF16;
    default:
        return d == TACIT_U8;
    }
}

static int64_t size_of(const ir_type *t)
{
    return t ? ir_shape_size(&t->shape) : 0;
}

tacit_status op_narrow_check(const op_infer *c, const op_narrow *s)
{
    const ir_type *w = c->in[1], *scale = op_in_type(c, 2), *third = op_in_type(c, 3);
    if (!dtype_fits(s, w->dtype) || size_of(w) != op_narrow_size(s))
        return error_set(c->err, TACIT_ERR_SHAPE, "the weight must be %lld bytes, not %s of %lld",
                         (long long)op_narrow_size(s), tacit_dtype_text(w->dtype),
                         (long long)size_of(w));
    int64_t grid = s->blocks * s->n, scales = size_of(scale), thirds = size_of(third);
    int64_t packed = (s->blocks * s->bits + 7) / 8 * s->n;
    bool fits = true;
    switch (s->kind) {
    case OP_NARROW_GGUF:
    case OP_NARROW_FLOAT:
        fits = !scale && !third;
        break;
    case OP_NARROW_FP8:
        fits = !third && (!scale || scales == 1 || scales == s->n);
        break;
    case OP_NARROW_NVFP4:
        fits = scales == grid && (!third || thirds == 1);
        break;
    case OP_NARROW_NBITS:
        fits = scales == grid && (!third || thirds == (third->dtype == TACIT_U8 ? packed : grid));
        break;
    case OP_NARROW_LINEAR:
        fits = (scales == 1 || scales == grid) &&
               (!third || (thirds == scales && third->dtype == w->dtype));
        break;
    default:
        fits = scales == grid && (!third || thirds == grid);
        break;
    }
    return fits ? TACIT_OK
                : error_set(c->err, TACIT_ERR_SHAPE, "scales or zero points do not fit %lld×%lld",
                            (long long)s->blocks, (long long)s->n);
}

/* E4M3 as an IEEE format would read it: the largest exponent means infinity or NaN. */
static double e4m3_ieee(uint8_t b)
{
    int e = b >> 3 & 15, m = b & 7;
    double v = e == 15 ? (m ? NAN : INFINITY) : e ? ldexp(8 + m, e - 10) : ldexp(m, -9);
    return b & 128 ? -v : v;
}

static double fp8(int format, uint8_t b)
{
    return format == 1   ? e4m3_ieee(b)
           : format == 2 ? half_decode(HALF_E5M2, b)
                         : half_decode(HALF_E4M3FN, b);
}

/* Field `i` of packed integers. */
static int field(const uint8_t *row, int64_t bits, int64_t i)
{
    int64_t at = i * bits;
    return row[at / 8] >> at % 8 & ((1 << bits) - 1);
}

/* The stored integer of element (p, j), as an unsigned field where the scheme has those. */
static int integer_at(const op_narrow *s, const op_narrow_data *d, int64_t p, int64_t j)
{
    switch (s->kind) {
    case OP_NARROW_INT8:
        return d->w->dtype == TACIT_I8 ? (int8_t)d->bytes[p * s->n + j] : d->bytes[p * s->n + j];
    case OP_NARROW_INT4:
    case OP_NARROW_NVFP4:
        return field(d->bytes, 4, p * s->n + j);
    case OP_NARROW_NBITS:
        return field(d->bytes + j * s->blocks * (s->block * s->bits / 8), s->bits, p);
    case OP_NARROW_LINEAR:
        return (int)ir_load_i64(d->w->dtype, d->bytes, s->trans ? j * s->k + p : p * s->n + j);
    default:
        return d->bytes[p * s->n + j];
    }
}

/* Where the scale of element (p, j) is. */
static int64_t scale_index(const op_narrow *s, const op_narrow_data *d, int64_t p, int64_t j)
{
    int64_t b = p / s->block;
    if (s->kind == OP_NARROW_LINEAR && ir_tensor_count(d->scale) == 1)
        return 0;
    bool by_column = s->kind == OP_NARROW_NBITS || (s->kind == OP_NARROW_LINEAR && s->trans);
    return by_column ? j * s->blocks + b : b * s->n + j;
}

static double zero_at(const op_narrow *s, const op_narrow_data *d, int64_t p, int64_t j)
{
    if (!d->zero)
        return s->kind == OP_NARROW_INT4 ? 8 : s->kind == OP_NARROW_NBITS ? 1 << (s->bits - 1) : 0;
    if (s->kind == OP_NARROW_NBITS && d->zero->dtype == TACIT_U8)
        return field((const uint8_t *)d->zero->data + j * ((s->blocks * s->bits + 7) / 8), s->bits,
                     p / s->block);
    return ir_load_f64(d->zero->dtype, d->zero->data, scale_index(s, d, p, j));
}

static double value_at(const op_narrow *s, const op_narrow_data *d, int64_t p, int64_t j)
{
    if (s->kind == OP_NARROW_FLOAT)
        return ir_load_f64(d->w->dtype, d->bytes, s->trans ? j * s->k + p : p * s->n + j);
    if (s->kind == OP_NARROW_FP8) {
        bool one = !d->scale || ir_tensor_count(d->scale) == 1;
        return fp8(s->format, d->bytes[p * s->n + j]) *
               (d->scale ? ir_load_f64(d->scale->dtype, d->scale->data, one ? 0 : j) : 1);
    }
    int64_t at = scale_index(s, d, p, j);
    if (s->kind == OP_NARROW_NVFP4) {
        double f = d->scale->dtype == TACIT_U8 ? fp8(0, ((const uint8_t *)d->scale->data)[at])
                                               : ir_load_f64(d->scale->dtype, d->scale->data, at);
        double global = d->zero ? ir_load_f64(d->zero->dtype, d->zero->data, 0) : 1;
        return half_decode(HALF_E2M1, (uint16_t)integer_at(s, d, p, j)) * f * global;
    }
    return (integer_at(s, d, p, j) - zero_at(s, d, p, j)) *
           ir_load_f64(d->scale->dtype, d->scale->data, at);
}

void op_narrow_column(const op_narrow *s, const op_narrow_data *d, int64_t j, double *out)
{
    if (s->kind != OP_NARROW_GGUF) {
        for (int64_t p = 0; p < s->k; p++)
            out[p] = value_at(s, d, p, j);
        return;
    }
    int64_t blocks = s->k / s->gguf->elements;
    const uint8_t *bytes = d->bytes + j * blocks * s->gguf->bytes;
    for (int64_t b = 0; b < blocks; b++, bytes += s->gguf->bytes)
        s->gguf->decode(bytes, out + b * s->gguf->elements);
}

void op_narrow_decode(const op_narrow *s, const op_narrow_data *d, double *row, double *out)
{
    for (int64_t j = 0; j < s->n; j++) {
        op_narrow_column(s, d, j, row);
        for (int64_t p = 0; p < s->k; p++)
            out[p * s->n + j] = row[p];
    }
}

/* --- groups of 32 ------------------------------------------------------------------------------
 */

/* What is added to a stored integer to make it an unsigned byte. */
static int lift(const op_narrow *s, const op_narrow_data *d)
{
    if (s->kind == OP_NARROW_INT8 || s->kind == OP_NARROW_LINEAR)
        return d->w->dtype == TACIT_I8 ? 128 : d->w->dtype == TACIT_I4 ? 8 : 0;
    return 0;
}

static bool f16_exact(float x)
{
    return isfinite(x) && half_to_f32(half_encode(HALF_F16, x, false)) == x;
}

static uint32_t scale_bits(cpu_qscale kind, float x)
{
    uint32_t bits;
    if (kind == CPU_QSCALE_F16)
        return half_encode(HALF_F16, x, false);
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

bool op_narrow_layout(const op_narrow *s, const op_narrow_data *d, cpu_qdot_weights *w, bool *super)
{
    *w = (cpu_qdot_weights){.groups = (s->k + CPU_QGROUP - 1) / CPU_QGROUP};
    *super = false;
    if (s->kind == OP_NARROW_GGUF)
        return op_gguf_layout(s->gguf, w, super);
    if (s->kind == OP_NARROW_FP8 || s->kind == OP_NARROW_NVFP4 || s->kind == OP_NARROW_FLOAT)
        return false;
    bool whole = s->block % CPU_QGROUP == 0 || s->block >= s->k;
    if (!whole && s->block != CPU_QGROUP / 2)
        return false;
    bool small = s->kind == OP_NARROW_INT4 || (s->kind == OP_NARROW_NBITS && s->bits <= 4) ||
                 d->w->dtype == TACIT_I4 || d->w->dtype == TACIT_U4;
    w->bits = small ? 4 : 8;
    w->subs = whole ? 1 : 2;
    double zero = zero_at(s, d, 0, 0);
    w->scale_kind = CPU_QSCALE_F16;
    for (int64_t j = 0; j < s->n; j++)
        for (int64_t b = 0; b < s->blocks; b++) {
            int64_t p = b * s->block, at = scale_index(s, d, p, j);
            float scale = (float)ir_load_f64(d->scale->dtype, d->scale->data, at);
            double z = d->zero ? zero_at(s, d, p, j) : zero;
            if (z != zero || zero != floor(zero))
                w->offsets = true;
            if (w->scale_kind == CPU_QSCALE_F16 && !f16_exact(scale))
                w->scale_kind = CPU_QSCALE_F32;
        }
    if (w->offsets) /* their product with the scale has more bits than an f16 */
        w->scale_kind = CPU_QSCALE_F32;
    else
        w->zero = (int32_t)zero + lift(s, d);
    return true;
}

void op_narrow_group(const op_narrow *s, const op_narrow_data *d, const cpu_qdot_weights *w,
                     int64_t j, int64_t g, op_qgroup *out)
{
    if (s->kind == OP_NARROW_GGUF) {
        int per = s->gguf->elements / CPU_QGROUP;
        const uint8_t *row = d->bytes + j * (s->k / s->gguf->elements) * s->gguf->bytes;
        op_gguf_group(s->gguf, row + g / per * s->gguf->bytes, (int)(g % per), out);
        return;
    }
    int64_t first = g * CPU_QGROUP, n = s->k - first < CPU_QGROUP ? s->k - first : CPU_QGROUP;
    int up = lift(s, d);
    const uint8_t *packed = d->bytes + j * s->blocks * (s->block * s->bits / 8);
    memset(out->q, 0, sizeof out->q);
    if (s->kind == OP_NARROW_NBITS && s->bits == 8) {
        memcpy(out->q, packed + first, (size_t)n);
    } else if (s->kind == OP_NARROW_NBITS && s->bits == 4) {
        for (int64_t i = 0; i < n; i++)
            out->q[i] = packed[(first + i) / 2] >> i % 2 * 4 & 15;
    } else {
        for (int64_t i = 0; i < n; i++)
            out->q[i] = (uint8_t)(integer_at(s, d, first + i, j) + up);
    }
    for (int h = 0; h < w->subs; h++) {
        int64_t p = first + h * CPU_QGROUP / 2;
        float scale = 0, zero = 0;
        if (p < s->k) {
            int64_t at = scale_index(s, d, p, j);
            scale = (float)ir_load_f64(d->scale->dtype, d->scale->data, at);
            zero = w->offsets ? (float)zero_at(s, d, p, j) + (float)up : 0;
        }
        out->scale[h] = scale_bits(w->scale_kind, scale);
        out->offset[h] = scale_bits(w->scale_kind, scale * zero);
    }
}
