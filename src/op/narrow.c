/* SPDX-License-Identifier: Apache-2.0 */
#include "op/narrow.h"

#include <math.h>
#include <string.h>

#include "base/half.h"
#include "cpu/qpack.h"

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

/* --- codes -------------------------------------------------------------------------------------
 */

bool op_narrow_by_rows(const op_narrow *s)
{
    bool can_be_turned = s->kind == OP_NARROW_LINEAR || s->kind == OP_NARROW_FLOAT;
    return s->kind != OP_NARROW_GGUF && s->kind != OP_NARROW_NBITS && !(can_be_turned && s->trans);
}

op_narrow_line op_narrow_line_at(const op_narrow *s, const op_narrow_data *d, int64_t line)
{
    tacit_dtype t = d->w->dtype;
    bool half =
        s->kind == OP_NARROW_INT4 || s->kind == OP_NARROW_NVFP4 || t == TACIT_I4 || t == TACIT_U4;
    int64_t length = op_narrow_by_rows(s) ? s->n : s->k;
    if (s->kind == OP_NARROW_NBITS)
        return (op_narrow_line){d->bytes + line * s->blocks * (s->block * s->bits / 8), 0,
                                (int)s->bits};
    return half ? (op_narrow_line){d->bytes, line * length, 4}
                : (op_narrow_line){d->bytes + line * length, 0, 8};
}

/* Field `i` of packed integers. */
static int field(const uint8_t *row, int64_t bits, int64_t i)
{
    int64_t at = i * bits;
    return row[at / 8] >> at % 8 & ((1 << bits) - 1);
}

void op_narrow_codes(const op_narrow_line *l, int64_t at, int64_t n, uint8_t *out)
{
    int64_t i = 0, first = l->first + at;
    if (l->bits == 8) {
        memcpy(out, l->from + first, (size_t)n);
        return;
    }
    if (l->bits == 4) {
        for (; i < n && (first + i) % 2; i++)
            out[i] = l->from[(first + i) / 2] >> 4;
        cpu_qpack_spread(l->from + (first + i) / 2, (n - i) / 2, out + i);
        i += (n - i) / 2 * 2;
    }
    for (; i < n; i++)
        out[i] = (uint8_t)field(l->from, l->bits, first + i);
}

double op_narrow_code(const op_narrow *s, const op_narrow_data *d, uint8_t code)
{
    if (s->kind == OP_NARROW_FP8)
        return fp8(s->format, code);
    if (s->kind == OP_NARROW_NVFP4)
        return half_decode(HALF_E2M1, code);
    return d->w->dtype == TACIT_I8 ? (int8_t)code : d->w->dtype == TACIT_I4 ? (code ^ 8) - 8 : code;
}

int64_t op_narrow_scale_index(const op_narrow *s, const op_narrow_data *d, int64_t b, int64_t j)
{
    if ((s->kind == OP_NARROW_LINEAR || s->kind == OP_NARROW_FP8) && ir_tensor_count(d->scale) == 1)
        return 0;
    bool by_column = s->kind == OP_NARROW_NBITS || (s->kind == OP_NARROW_LINEAR && s->trans);
    return by_column ? j * s->blocks + b : b * s->n + j;
}

double op_narrow_scale(const op_narrow *s, const op_narrow_data *d, int64_t b, int64_t j)
{
    if (!d->scale)
        return 1;
    int64_t at = op_narrow_scale_index(s, d, b, j);
    if (s->kind != OP_NARROW_NVFP4)
        return ir_load_f64(d->scale->dtype, d->scale->data, at);
    double f = d->scale->dtype == TACIT_U8 ? fp8(0, ((const uint8_t *)d->scale->data)[at])
                                           : ir_load_f64(d->scale->dtype, d->scale->data, at);
    return f * (d->zero ? ir_load_f64(d->zero->dtype, d->zero->data, 0) : 1);
}

double op_narrow_zero(const op_narrow *s, const op_narrow_data *d, int64_t b, int64_t j)
{
    if (s->kind == OP_NARROW_FP8 || s->kind == OP_NARROW_NVFP4)
        return 0;
    if (!d->zero)
        return s->kind == OP_NARROW_INT4 ? 8 : s->kind == OP_NARROW_NBITS ? 1 << (s->bits - 1) : 0;
    if (s->kind == OP_NARROW_NBITS && d->zero->dtype == TACIT_U8)
        return field((const uint8_t *)d->zero->data + j * ((s->blocks * s->bits + 7) / 8), s->bits,
                     b);
    return ir_load_f64(d->zero->dtype, d->zero->data, op_narrow_scale_index(s, d, b, j));
}

double op_narrow_value(const op_narrow *s, const op_narrow_data *d, int64_t p, int64_t j)
{
    if (s->kind == OP_NARROW_FLOAT)
        return ir_load_f64(d->w->dtype, d->bytes, s->trans ? j * s->k + p : p * s->n + j);
    bool by_rows = op_narrow_by_rows(s);
    op_narrow_line line = op_narrow_line_at(s, d, by_rows ? p : j);
    uint8_t code;
    op_narrow_codes(&line, by_rows ? j : p, 1, &code);
    int64_t b = p / s->block;
    return (op_narrow_code(s, d, code) - op_narrow_zero(s, d, b, j)) * op_narrow_scale(s, d, b, j);
}

void op_narrow_column(const op_narrow *s, const op_narrow_data *d, int64_t j, double *out)
{
    if (s->kind != OP_NARROW_GGUF) {
        for (int64_t p = 0; p < s->k; p++)
            out[p] = op_narrow_value(s, d, p, j);
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

int op_narrow_lift(const op_narrow *s, const op_narrow_data *d)
{
    if (s->kind == OP_NARROW_INT8 || s->kind == OP_NARROW_LINEAR)
        return d->w->dtype == TACIT_I8 ? 128 : d->w->dtype == TACIT_I4 ? 8 : 0;
    return 0;
}

/* Are RUN numbers all zeros or such that an f16 has with all its bits? */
enum { RUN = 256 };
static bool plain_halves(const float *x)
{
    typedef uint32_t words __attribute__((vector_size(16)));
    words others = {0}, v;
    for (int i = 0; i < RUN; i += 4) {
        memcpy(&v, x + i, sizeof v);
        v &= 0x7fffffffu;
        words small = (words)(v - 0x38800000u < 0x0f000000u) & (words)((v & 0x1fffu) == 0);
        others |= ~(small | (words)(v == 0));
    }
    return !(others[0] | others[1] | others[2] | others[3]);
}

/* Are all scales f16 numbers? As a rule all of them are, or already the first is none. */
static bool scales_are_halves(const ir_tensor *t)
{
    int64_t count = ir_tensor_count(t), i = 0;
    const float *x = t->dtype == TACIT_F32 ? t->data : NULL;
    for (; x && i + RUN <= count && plain_halves(x + i); i += RUN)
        ;
    for (; i < count; i++)
        if (!f32_is_f16((float)ir_load_f64(t->dtype, t->data, i)))
            return false;
    return true;
}

/* Do all blocks have the zero point of the first? */
static bool one_zero(const op_narrow *s, const op_narrow_data *d)
{
    const ir_tensor *t = d->zero;
    if (!t)
        return true;
    const uint8_t *bytes = t->data;
    double zero = op_narrow_zero(s, d, 0, 0);
    bool packed = s->kind == OP_NARROW_NBITS && t->dtype == TACIT_U8;
    uint32_t bits = packed ? (uint32_t)s->bits : tacit_dtype_bits(t->dtype);
    size_t size = bits < 8 ? 1 : bits / 8;
    bool same = memcmp(bytes, bytes + size, t->bytes - size) == 0;
    if (same && (bits >= 8 || *bytes == (bits == 4 ? (*bytes & 15) * 0x11 : (*bytes & 3) * 0x55)))
        return true;
    for (int64_t j = 0; j < s->n; j++)
        for (int64_t b = 0; b < s->blocks; b++)
            if (op_narrow_zero(s, d, b, j) != zero)
                return false;
    return true;
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
    double zero = op_narrow_zero(s, d, 0, 0);
    w->offsets = zero != floor(zero) || !one_zero(s, d);
    /* The product of an offset with its scale has more bits than an f16. */
    w->scale_kind = !w->offsets && scales_are_halves(d->scale) ? CPU_QSCALE_F16 : CPU_QSCALE_F32;
    if (!w->offsets)
        w->zero = (int32_t)zero + op_narrow_lift(s, d);
    return true;
}
