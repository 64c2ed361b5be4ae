/* SPDX-License-Identifier: Apache-2.0
 * Images of bytes whose channels lie inside: convolutions (tacit.IntConv with `inside`), sums,
 * means and poolings, from bytes to bytes. Everything about scales is known here. */
#include <math.h>
#include <string.h>

#include "cpu/qimage.h"
#include "cpu/qpack.h"
#include "op/activation.h"
#include "op/conv.h"
#include "op/int_images.h"
#include "op/lowerings.h"
#include "op/quant.h"

typedef struct inside_conv {
    op_conv conv;
    op_plane p;
    bool x_inside, depth, signed_x;
    int32_t x_zero; /* of unsigned bytes */
    double x_scale;
    cpu_qround round;
    cpu_qconv_args g;
    int64_t pitch;         /* bytes of a pixel as the kernel reads it */
    int64_t height, width; /* of what it reads */
    bool copied;           /* it reads a copy… */
    size_t images;         /* …in this scratch */
} inside_conv;

/* The one number that a known input holds. */
static bool number(const op_lower *c, uint32_t i, double *out)
{
    const ir_tensor *t = op_lower_known(c, i);
    if (!t || ir_tensor_count(t) != 1)
        return false;
    *out = ir_load_f64(t->dtype, t->data, 0);
    return true;
}

/* A scale and the zero point behind it; without one it is 0. */
static bool scale_and_zero(const op_lower *c, uint32_t i, double *scale, double *zero)
{
    *zero = 0;
    return number(c, i, scale) && isfinite(*scale) &&
           (!op_lower_has(c, i + 1) || number(c, i + 1, zero));
}

/* What results become, but for the tables. Rounding does not change an order, so an activation that
 * cuts is a narrower range of bytes. */
static bool read_round(op_lower *c, uint32_t scale, cpu_qround *r)
{
    tacit_dtype d = c->out[0].type.dtype;
    op_activation act;
    tacit_error unused;
    double zero;
    if (!scale_and_zero(c, scale, &r->y_scale, &zero) || r->y_scale < 1e-30 ||
        op_activation_read(c->node, &act, &unused) != TACIT_OK ||
        (act.kind != OP_ACT_NONE && act.kind != OP_ACT_RELU && act.kind != OP_ACT_CLIP))
        return false;
    r->least = act.kind == OP_ACT_RELU ? 0 : act.kind == OP_ACT_CLIP ? act.low : -INFINITY;
    r->most = act.kind == OP_ACT_CLIP ? act.high : INFINITY;
    if (!(r->least <= r->most))
        return false;
    r->zero = (int32_t)zero;
    r->low = (int32_t)op_quantize(d, r->least / r->y_scale, zero, true);
    r->high = (int32_t)op_quantize(d, r->most / r->y_scale, zero, true);
    return true;
}

/* What f32 is off by in cpu_qround, in units of its fixed point: half a last place for every
 * rounding of a number that has been lifted, and so much for those of products and factors, where
 * the terms, in bytes, are so large. */
static double error_of(int lifted, int products, double terms)
{
    return 0.5 * lifted + products * (256 + terms) * CPU_QROUND_ONE * 0x1p-24;
}

/* Ends what bytes are cut to, where so much is added to them; returns it with their zero point. */
static double make_limits(const op_lower *c, cpu_qround *r, double more)
{
    bool is_signed = c->out[0].type.dtype == TACIT_I8;
    int32_t lift = is_signed ? 128 : 0;
    more += CPU_QROUND_LIFT;
    r->flip = is_signed ? 0x80 : 0;
    r->least_fixed = (float)((r->low + lift) * CPU_QROUND_ONE + more);
    r->most_fixed = (float)((r->high + lift) * CPU_QROUND_ONE + more);
    return (r->zero + lift) * CPU_QROUND_ONE + more;
}

/* Returns what the zero point, the half and the error add. */
static double make_fixed(const op_lower *c, cpu_qround *r, double error)
{
    error = fmin(error, CPU_QROUND_ONE / 2);
    r->unsure = (int32_t)(4 * error) + 1;
    return make_limits(c, r, CPU_QROUND_ONE / 2 + error);
}

/* --- convolutions ----------------------------------------------------------------------------- */

static bool is_known_row(const op_lower *c, uint32_t i, int64_t m)
{
    const ir_tensor *t = op_lower_known(c, i);
    return t && (ir_tensor_count(t) == 1 || ir_tensor_count(t) == m);
}

/* What a known input says of the channels that `channel` names (NULL: one after the other), whether
 * it is one number for all or none; 0 beyond the m that there are. */
static void read_row(const op_lower *c, uint32_t i, int64_t m, const int64_t *channel,
                     int64_t count, float *to)
{
    const ir_tensor *t = op_lower_known(c, i);
    const float *from = t ? t->data : NULL;
    int64_t step = t && ir_tensor_count(t) > 1;
    for (int64_t k = 0; k < count; k++) {
        int64_t at = channel ? channel[k] : k;
        to[k] = t && at < m ? from[at * step] : 0;
    }
}

static bool plan(op_lower *c, inside_conv *b)
{
    const op_conv *conv = &b->conv;
    op_plane *p = &b->p;
    double zero;
    if (!op_lower_has(c, 7) || !op_lower_known(c, 1) || !scale_and_zero(c, 2, &b->x_scale, &zero) ||
        !is_known_row(c, 4, conv->m) || (op_lower_has(c, 5) && !is_known_row(c, 5, conv->m)) ||
        !op_is_centred(c->in[1].type.dtype, op_lower_known(c, 5)) ||
        (op_lower_has(c, 6) && !op_lower_known(c, 6)) || !read_round(c, 7, &b->round) ||
        !op_plane_of(&conv->w, p) || conv->c == 0)
        return false;
    b->signed_x = c->in[0].type.dtype == TACIT_I8;
    b->x_zero = (int32_t)zero + (b->signed_x ? 128 : 0);
    b->depth = conv->group > 1;
    if (b->depth &&
        (conv->group != conv->c || conv->m != conv->c || conv->w.taps > CPU_QCHANNEL_TAPS))
        return false;
    b->copied = b->signed_x || !b->x_inside;
    b->pitch = conv->c;
    b->height = p->in[0];
    b->width = p->in[1];
    if (!b->depth && (b->copied || conv->c % 4 || p->pad[0] || p->pad[1] || p->pad_after[0] ||
                      p->pad_after[1])) {
        b->copied = true;
        /* Neighbouring taps are one piece, which is filled up to four bytes; else each is. */
        b->pitch = p->dilation[1] == 1 ? conv->c : (conv->c + 3) / 4 * 4;
        b->height = (p->out[0] - 1) * p->stride[0] + (p->kernel[0] - 1) * p->dilation[0] + 1;
        b->width = (p->out[1] - 1) * p->stride[1] + (p->kernel[1] - 1) * p->dilation[1] + 1;
    }
    return conv->n * b->height * b->width * b->pitch <= INT32_MAX &&
           conv->n * p->out[0] * p->out[1] <= INT32_MAX && conv->c * conv->w.taps <= 33000;
}

/* The images as the kernels read them. */
static tacit_status emit_copy(op_lower *c, inside_conv *b)
{
    const op_plane *p = &b->p;
    int64_t rows = b->conv.n * b->height, bytes = rows * b->width * b->pitch;
    int64_t tile = 32768 / (b->width * b->pitch) + 1;
    uint32_t tiles = (uint32_t)((rows + tile - 1) / tile);
    cpu_qcopy copy = {.n = b->conv.n,
                      .channels = b->conv.c,
                      .rows = p->in[0],
                      .columns = p->in[1],
                      .height = b->height,
                      .width = b->width,
                      .pitch = b->pitch,
                      .top = b->depth ? 0 : p->pad[0],
                      .left = b->depth ? 0 : p->pad[1],
                      .tile = tile,
                      .flip = b->signed_x};
    b->images = op_lower_reserve(c, (size_t)bytes + 4); /* the last piece may be filled up */
    if (b->x_inside) {
        cpu_qborder_args *a = op_lower_thunk(c, "byte_border", cpu_qborder, sizeof *a, tiles);
        if (!a)
            return TACIT_ERR_MEMORY;
        *a = (cpu_qborder_args){.copy = copy, .zero = (uint8_t)b->x_zero};
        TRY(op_lower_in(c, offsetof(cpu_qborder_args, x), 0));
        TRY(op_lower_scratch(c, offsetof(cpu_qborder_args, to), b->images, true));
    } else {
        cpu_qturn_args *a =
            op_lower_thunk(c, "byte_images", CPU_QMM_PICK(&c->cpu, cpu_qturn), sizeof *a, tiles);
        if (!a)
            return TACIT_ERR_MEMORY;
        a->copy = copy;
        TRY(op_lower_in(c, offsetof(cpu_qturn_args, x), 0));
        if (op_lower_has(c, 3))
            TRY(op_lower_in(c, offsetof(cpu_qturn_args, zero), 3));
        TRY(op_lower_scratch(c, offsetof(cpu_qturn_args, to), b->images, true));
    }
    op_lower_cost(c, 0, op_lower_bytes(&c->in[0]) + (uint64_t)bytes);
    return TACIT_OK;
}

/* The tables of `count` places, where place i is channel[i] (NULL: i); what lies beyond the
 * channels is nothing. */
static tacit_status make_tables(op_lower *c, inside_conv *b, int64_t count, const int64_t *channel)
{
    cpu_qround *r = &b->round;
    size_t bytes = (size_t)count * sizeof(float);
    float *factor = op_lower_pack(c, bytes), *add = op_lower_pack(c, bytes);
    float *scale = op_lower_pack(c, bytes), *bias = op_lower_pack(c, bytes), most = 0;
    if (!factor || !add || !scale || !bias)
        return TACIT_ERR_MEMORY;
    read_row(c, 4, b->conv.m, channel, count, scale);
    read_row(c, 6, b->conv.m, channel, count, bias);
    for (int64_t i = 0; i < count; i++)
        most = fabsf(bias[i]) > most ? fabsf(bias[i]) : most;
    /* The factor, what is added, sums that f32 may not hold, and products where they are not one
     * with the sum. */
    int64_t largest = 255 * 128 * (b->conv.c / b->conv.group) * b->conv.w.taps;
    int products = 2 + (largest > 1 << 24) + (c->cpu.isa < CPU_AVX2);
    double one = CPU_QROUND_ONE / r->y_scale;
    double more = make_fixed(c, r, error_of(2, products, most / r->y_scale));
    for (int64_t i = 0; i < count; i++) {
        factor[i] = (float)(b->x_scale * scale[i] * one);
        add[i] = (float)(bias[i] * one + more);
        if (!isfinite(factor[i]) || !isfinite(add[i]))
            return OP_LOWER_NO_KERNEL;
    }
    r->x_scale = b->x_scale;
    r->factor = factor;
    r->add = add;
    r->scale = scale;
    r->bias = bias;
    return TACIT_OK;
}

/* Offsets of the pieces of a window: rows of taps where these are neighbours, else single taps. */
static tacit_status make_pieces(op_lower *c, inside_conv *b)
{
    const op_plane *p = &b->p;
    cpu_qwindow *w = &b->g.w;
    bool runs = p->dilation[1] == 1;
    int64_t across = runs ? 1 : p->kernel[1], row = b->width * b->pitch;
    w->pieces = p->kernel[0] * across;
    w->piece = ((runs ? p->kernel[1] : 1) * b->pitch + 3) / 4 * 4;
    w->plane = p->out[0] * p->out[1];
    w->out_width = p->out[1];
    w->image = b->height * row;
    w->row = p->stride[0] * row;
    w->pixel = p->stride[1] * b->pitch;
    int32_t *to = op_lower_pack(c, (size_t)w->pieces * sizeof *to);
    w->offsets = to;
    for (int64_t ky = 0; to && ky < p->kernel[0]; ky++)
        for (int64_t kx = 0; kx < across; kx++)
            *to++ = (int32_t)(ky * p->dilation[0] * row + kx * p->dilation[1] * b->pitch);
    return w->offsets ? TACIT_OK : TACIT_ERR_MEMORY;
}

static tacit_status pack_weights(op_lower *c, inside_conv *b)
{
    enum { PIECE = 1 << 18 }; /* bytes read by a job */
    int64_t n = b->conv.m, taps = b->conv.w.taps, width = cpu_qconv_width(&c->cpu);
    int64_t vector = cpu_qconv_vector(&c->cpu), panels = (n + width - 1) / width;
    const cpu_qwindow *w = &b->g.w;
    int64_t bytes = (n + vector - 1) / vector * vector * w->pieces * w->piece;
    cpu_qconv_pack_args a = {.packed = op_lower_pack_later(c, (size_t)bytes),
                             .begin =
                                 op_lower_pack_later(c, (size_t)(panels * width) * sizeof(int32_t)),
                             .n = n,
                             .channels = b->conv.c,
                             .taps = taps,
                             .run = taps / w->pieces,
                             .piece = w->piece,
                             .pitch = b->pitch,
                             .width = width,
                             .vector = vector,
                             .zero = b->x_zero,
                             .flip = c->in[1].type.dtype == TACIT_U8 ? 0x80 : 0};
    if (!a.packed || !a.begin)
        return TACIT_ERR_MEMORY;
    int64_t row = b->conv.c * taps;
    op_job job = op_lower_job(c, 1, cpu_qconv_pack, &a, sizeof a, offsetof(cpu_qconv_pack_args, w));
    job.end = (uint32_t)panels;
    b->g.weights = a.packed;
    b->round.begin = a.begin;
    return op_lower_panels_later(c, &job, width, n, (size_t)row, PIECE / (width * row) + 1);
}

static void cut(cpu_qconv_args *g, int64_t width, int64_t k)
{
    op_byte_cut cut = op_lower_cut_bytes(g->m, g->n, k, width, 6, 200);
    g->tile_rows = cut.tile_rows, g->tile_panels = cut.tile_panels;
    g->row_tiles = cut.row_tiles, g->col_tiles = cut.col_tiles;
}

static void set_cost(op_lower *c, const inside_conv *b, const char *how)
{
    const op_conv *conv = &b->conv;
    int64_t m = conv->n * conv->w.out_size, k = conv->c / conv->group * conv->w.taps;
    op_lower_cost(c, 2.0 * (double)m * (double)conv->m * (double)k,
                  op_lower_bytes(&c->in[0]) + op_lower_bytes(&c->out[0]) + (uint64_t)(conv->m * k));
    op_lower_note(c, "%s_%s: %lld pixels, %lld channels inside, %lld products each%s", how,
                  cpu_qmm_isa(&c->cpu), (long long)m, (long long)conv->m, (long long)k,
                  b->copied ? ", of a copy" : "");
}

static tacit_status emit_conv(op_lower *c, inside_conv *b)
{
    cpu_qconv_args *g = &b->g;
    int64_t width = cpu_qconv_width(&c->cpu), n = b->conv.m;
    TRY(make_tables(c, b, (n + width - 1) / width * width, NULL));
    TRY(make_pieces(c, b));
    TRY(pack_weights(c, b));
    g->m = b->conv.n * b->conv.w.out_size;
    g->n = n;
    g->round = b->round;
    cut(g, width, g->w.pieces * g->w.piece);
    cpu_qconv_args *a = op_lower_thunk(c, "qconv", CPU_QMM_PICK(&c->cpu, cpu_qconv), sizeof *a,
                                       g->row_tiles * g->col_tiles);
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = *g;
    if (b->copied)
        TRY(op_lower_scratch(c, offsetof(cpu_qconv_args, w.x), b->images, false));
    else
        TRY(op_lower_in(c, offsetof(cpu_qconv_args, w.x), 0));
    TRY(op_lower_out(c, offsetof(cpu_qconv_args, y), 0));
    set_cost(c, b, "qconv");
    return TACIT_OK;
}

/* Weights in the order of cpu_qchannel, and what their sums begin with. */
static tacit_status pack_channels(op_lower *c, inside_conv *b, const int64_t *channel,
                                  int64_t count, const int8_t **packed)
{
    int64_t taps = b->conv.w.taps, groups = (taps + 3) / 4, vector = cpu_qconv_vector(&c->cpu);
    const ir_tensor *t = op_lower_known(c, 1);
    const uint8_t *weights = t->data, flip = t->dtype == TACIT_U8 ? 0x80 : 0;
    int8_t *to = op_lower_pack(c, (size_t)(count * groups * 4));
    int32_t *begin = op_lower_pack(c, (size_t)count * sizeof *begin);
    if (!to || !begin)
        return TACIT_ERR_MEMORY;
    memset(to, 0, (size_t)(count * groups * 4));
    for (int64_t i = 0; i < count; i++) {
        int64_t block = i / (4 * vector), in_block = i % (4 * vector);
        int8_t *place = to + block * groups * 16 * vector + in_block * 4;
        int32_t sum = 0;
        for (int64_t k = 0; channel[i] < b->conv.c && k < taps; k++) {
            int8_t v = (int8_t)(weights[channel[i] * taps + k] ^ flip);
            place[k / 4 * 16 * vector + k % 4] = v;
            sum += v;
        }
        begin[i] = -b->x_zero * sum;
    }
    b->round.begin = begin;
    *packed = to;
    return TACIT_OK;
}

/* Pixels side by side whose channels fill blocks. */
static int64_t pixels_together(const op_plane *p, int64_t channels, int64_t block)
{
    enum { MOST = 8 };
    int64_t pixels = 1;
    while (pixels * channels % block != 0 && pixels <= MOST)
        pixels++;
    return p->stride[1] == 1 && pixels <= MOST && pixels < p->out[1] ? pixels : 1;
}

static tacit_status emit_channels(op_lower *c, inside_conv *b)
{
    const op_plane *p = &b->p;
    int64_t vector = cpu_qconv_vector(&c->cpu), block = 4 * vector, channels = b->conv.c;
    int64_t together = pixels_together(p, channels, block);
    int64_t count = (together * channels + block - 1) / block * block;
    int64_t *channel = ARENA_ARRAY(c->memory, (size_t)count, int64_t);
    uint8_t *beside = op_lower_pack(c, (size_t)count);
    const int8_t *weights;
    if (!channel || !beside)
        return TACIT_ERR_MEMORY;
    memset(beside, b->x_zero, (size_t)count);
    for (int64_t i = 0; i < count; i++) {
        channel[i] = i / block * block + cpu_qchannel_of(i % block / vector, i % vector);
        if (together > 1)
            channel[i] %= channels;
    }
    TRY(make_tables(c, b, count, channel));
    TRY(pack_channels(c, b, channel, count, &weights));
    int64_t pixels = b->conv.n * b->conv.w.out_size, tile = 32768 / channels + 1;
    cpu_qchannel_args *a = op_lower_thunk(c, "qchannel", CPU_QMM_PICK(&c->cpu, cpu_qchannel),
                                          sizeof *a, (uint32_t)((pixels + tile - 1) / tile));
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = (cpu_qchannel_args){.beside = beside,
                             .weights = weights,
                             .n = b->conv.n,
                             .channels = channels,
                             .rows = p->in[0],
                             .columns = p->in[1],
                             .out_rows = p->out[0],
                             .out_columns = p->out[1],
                             .tile = tile,
                             .together = together,
                             .round = b->round};
    for (int i = 0; i < 2; i++) {
        a->kernel[i] = p->kernel[i];
        a->stride[i] = p->stride[i];
        a->dilation[i] = p->dilation[i];
        a->pad[i] = p->pad[i];
    }
    if (b->copied)
        TRY(op_lower_scratch(c, offsetof(cpu_qchannel_args, x), b->images, false));
    else
        TRY(op_lower_in(c, offsetof(cpu_qchannel_args, x), 0));
    TRY(op_lower_out(c, offsetof(cpu_qchannel_args, y), 0));
    set_cost(c, b, "qchannel");
    return TACIT_OK;
}

tacit_status op_lower_inside_conv(op_lower *c)
{
    int64_t inside = ir_attr_int(c->node, "inside", 0);
    inside_conv b = {.x_inside = inside & OP_INSIDE_X};
    ir_shape x = b.x_inside ? op_outside(&c->in[0].type.shape) : c->in[0].type.shape;
    TRY(op_conv_plan(c->node, &x, &c->in[1].type.shape, &b.conv, c->err));
    if (ir_shape_size(&c->out[0].type.shape) == 0)
        return TACIT_OK;
    if (!(inside & OP_INSIDE_Y) || !plan(c, &b))
        return OP_LOWER_NO_KERNEL;
    if (b.copied)
        TRY(emit_copy(c, &b));
    TRY(b.depth ? emit_channels(c, &b) : emit_conv(c, &b));
    if (b.depth)
        op_lower_packed_away(c, 1);
    return TACIT_OK;
}

/* --- sums, means, poolings -------------------------------------------------------------------- */

/* Does f32 hold every sum in fixed point, as f64 does? Multiples of 2⁻¹⁰ that are not large. */
static bool is_short(double factor)
{
    return fabs(factor) <= 8 && factor * 1024 == floor(factor * 1024);
}

tacit_status op_lower_int_add(op_lower *c)
{
    double za, zb;
    int64_t count = ir_shape_size(&c->out[0].type.shape), tile = 32768;
    cpu_qadd_args q = {.count = count, .tile = tile};
    if (count == 0)
        return TACIT_OK;
    if (!scale_and_zero(c, 2, &q.a_scale, &za) || !scale_and_zero(c, 4, &q.b_scale, &zb) ||
        !read_round(c, 6, &q.round))
        return OP_LOWER_NO_KERNEL;
    q.a_flip = c->in[0].type.dtype == TACIT_I8;
    q.b_flip = c->in[1].type.dtype == TACIT_I8;
    q.a_zero = (int32_t)za + (q.a_flip ? 128 : 0);
    q.b_zero = (int32_t)zb + (q.b_flip ? 128 : 0);
    double a = q.a_scale / q.round.y_scale, b = q.b_scale / q.round.y_scale;
    q.exact = is_short(a) && is_short(b) && a * q.round.y_scale == q.a_scale &&
              b * q.round.y_scale == q.b_scale;
    /* The factors, what is added, one sum, and products where they are not one with the sums. */
    double error = error_of(3, 3 + (c->cpu.isa < CPU_AVX2), 256 * (fabs(a) + fabs(b)));
    double add = q.exact ? make_limits(c, &q.round, 0) : make_fixed(c, &q.round, error);
    q.a_factor = (float)(a * CPU_QROUND_ONE);
    q.b_factor = (float)(b * CPU_QROUND_ONE);
    q.add = (float)(add - (q.a_zero * a + q.b_zero * b) * CPU_QROUND_ONE);
    if (!isfinite(q.a_factor) || !isfinite(q.b_factor) || !isfinite(q.add))
        return OP_LOWER_NO_KERNEL;
    cpu_qadd_args *p = op_lower_thunk(c, "qadd", CPU_QMM_PICK(&c->cpu, cpu_qadd), sizeof *p,
                                      (uint32_t)((count + tile - 1) / tile));
    if (!p)
        return TACIT_ERR_MEMORY;
    *p = q;
    TRY(op_lower_in_tiled(c, offsetof(cpu_qadd_args, a), 0, (uint64_t)tile, (uint64_t)tile));
    TRY(op_lower_in_tiled(c, offsetof(cpu_qadd_args, b), 1, (uint64_t)tile, (uint64_t)tile));
    TRY(op_lower_out_tiled(c, offsetof(cpu_qadd_args, y), 0, (uint64_t)tile, (uint64_t)tile));
    op_lower_cost(c, 2.0 * (double)count, 3 * (uint64_t)count);
    op_lower_note(c, "qadd_%s: %lld bytes", cpu_qmm_isa(&c->cpu), (long long)count);
    return TACIT_OK;
}

static tacit_status emit_mul(op_lower *c, const cpu_qmul_args *q, uint32_t tiles)
{
    cpu_qmul_args *p = op_lower_thunk(c, "qmul", CPU_QMM_PICK(&c->cpu, cpu_qmul), sizeof *p, tiles);
    if (!p)
        return TACIT_ERR_MEMORY;
    *p = *q;
    uint64_t run = (uint64_t)cpu_nd_tile_elements(&q->nd), count = op_lower_bytes(&c->out[0]);
    for (uint32_t i = 0; i < 2; i++) {
        uint64_t own = cpu_nd_dense(&q->nd, i) ? run : 0;
        TRY(op_lower_in_tiled(c, i ? offsetof(cpu_qmul_args, b) : offsetof(cpu_qmul_args, a), i,
                              own, own));
    }
    TRY(op_lower_out_tiled(c, offsetof(cpu_qmul_args, y), 0, run, run));
    op_lower_cost(c, 4.0 * (double)count, op_lower_all_bytes(c));
    op_lower_note(c, "qmul_%s: %llu bytes", cpu_qmm_isa(&c->cpu), (unsigned long long)count);
    return TACIT_OK;
}

tacit_status op_lower_int_mul(op_lower *c)
{
    const ir_shape *y = &c->out[0].type.shape;
    double scale[3], zero[3];
    bool is_signed[3] = {c->in[0].type.dtype == TACIT_I8, c->in[1].type.dtype == TACIT_I8,
                         c->out[0].type.dtype == TACIT_I8};
    cpu_qmul_args q = {.a_flip = is_signed[0], .b_flip = is_signed[1], .y_flip = is_signed[2]};
    cpu_nd_begin(&q.nd, y->rank, y->dims);
    for (uint32_t i = 0; i < 3; i++) {
        int64_t strides[IR_MAX_RANK];
        op_lower_strides(i < 2 ? &c->in[i] : &c->out[0], y, strides);
        cpu_nd_operand(&q.nd, strides);
        if (!scale_and_zero(c, 2 + 2 * i, &scale[i], &zero[i]) || fabs(scale[i]) > 1e30)
            return OP_LOWER_NO_KERNEL;
        zero[i] += is_signed[i] ? 128 : 0;
    }
    if (fabs(scale[2]) < 1e-30)
        return OP_LOWER_NO_KERNEL;
    q.a_zero = (int32_t)zero[0], q.b_zero = (int32_t)zero[1], q.lift = (int32_t)zero[2];
    q.a_scale = (float)scale[0], q.b_scale = (float)scale[1], q.y_scale = (float)scale[2];
    uint32_t tiles = cpu_nd_ready(&q.nd, 32768);
    return tiles ? emit_mul(c, &q, tiles) : TACIT_OK;
}

tacit_status op_lower_int_mean(op_lower *c)
{
    bool inside = ir_attr_int(c->node, "inside", 0) != 0;
    ir_shape x = inside ? op_outside(&c->in[0].type.shape) : c->in[0].type.shape;
    double zero;
    cpu_qround r = {0};
    cpu_qmean_args q = {.channels = x.dims[1],
                        .plane = x.dims[2] * x.dims[3],
                        .is_signed = c->in[0].type.dtype == TACIT_I8};
    if (ir_shape_size(&c->out[0].type.shape) == 0)
        return TACIT_OK;
    if (!scale_and_zero(c, 1, &q.x_scale, &zero) || !read_round(c, 3, &r) || q.plane == 0 ||
        q.plane > 1 << 22)
        return OP_LOWER_NO_KERNEL;
    q.x_channel = inside ? 1 : q.plane;
    q.x_pixel = inside ? q.channels : 1;
    q.x_zero = (int32_t)zero + (q.is_signed ? 128 : 0);
    q.y_scale = r.y_scale;
    q.zero = r.zero;
    q.low = r.low;
    q.high = r.high;
    cpu_qmean_args *p = op_lower_thunk(c, "qmean", CPU_QMM_PICK(&c->cpu, cpu_qmean), sizeof *p,
                                       (uint32_t)x.dims[0]);
    if (!p)
        return TACIT_ERR_MEMORY;
    *p = q;
    TRY(op_lower_in(c, offsetof(cpu_qmean_args, x), 0));
    TRY(op_lower_out(c, offsetof(cpu_qmean_args, y), 0));
    op_lower_cost(c, (double)ir_shape_size(&x), op_lower_bytes(&c->in[0]));
    op_lower_note(c, "qmean_%s: %lld channels of %lld pixels", cpu_qmm_isa(&c->cpu),
                  (long long)q.channels, (long long)q.plane);
    return TACIT_OK;
}

tacit_status op_lower_int_max_pool(op_lower *c)
{
    ir_shape x = op_outside(&c->in[0].type.shape);
    op_window w;
    op_plane p;
    TRY(op_window_read(c->node, &x, NULL, &w, c->err));
    if (ir_shape_size(&c->out[0].type.shape) == 0)
        return TACIT_OK;
    if (!op_plane_of(&w, &p))
        return OP_LOWER_NO_KERNEL;
    int64_t pixels = x.dims[0] * w.out_size, tile = 32768 / x.dims[1] + 1;
    cpu_qmax_args *a = op_lower_thunk(c, "qmax", CPU_QMM_PICK(&c->cpu, cpu_qmax), sizeof *a,
                                      (uint32_t)((pixels + tile - 1) / tile));
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = (cpu_qmax_args){.n = x.dims[0],
                         .channels = x.dims[1],
                         .rows = p.in[0],
                         .columns = p.in[1],
                         .out_rows = p.out[0],
                         .out_columns = p.out[1],
                         .tile = tile,
                         .is_signed = c->in[0].type.dtype == TACIT_I8};
    for (int i = 0; i < 2; i++) {
        a->kernel[i] = p.kernel[i];
        a->stride[i] = p.stride[i];
        a->dilation[i] = p.dilation[i];
        a->pad[i] = p.pad[i];
    }
    TRY(op_lower_in(c, offsetof(cpu_qmax_args, x), 0));
    TRY(op_lower_out(c, offsetof(cpu_qmax_args, y), 0));
    op_lower_cost(c, (double)(pixels * x.dims[1] * w.taps),
                  op_lower_bytes(&c->in[0]) + op_lower_bytes(&c->out[0]));
    op_lower_note(c, "qmax_%s: %lld pixels of %lld channels", cpu_qmm_isa(&c->cpu),
                  (long long)pixels, (long long)x.dims[1]);
    return TACIT_OK;
}
