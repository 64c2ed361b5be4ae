/* SPDX-License-Identifier: Apache-2.0
 * Convolutions of bytes (tacit.IntConv, ConvInteger, QLinearConv). The images are turned so that
 * channels lie inside; then windows are rows of a product of bytes (cpu/qmm.h), or, with one input
 * channel for each output channel, are summed channel by channel. */
#include <string.h>

#include "cpu/qmm.h"
#include "cpu/qpack.h"
#include "op/conv.h"
#include "op/lowerings.h"

/* Which inputs are what; -1: none. */
typedef struct roles {
    int x, w, x_scale, x_zero, w_scale, w_zero;
    int bias; /* f32 */
    int add;  /* i32, added to the sums */
    int y_scale, y_zero;
} roles;

typedef struct byte_conv {
    roles r;
    op_conv conv;
    op_plane p;
    cpu_qcopy turn;
    cpu_qwindow w; /* of the first group */
    cpu_qgemm_args g;
    size_t images; /* scratch: turned */
    bool depth;
} byte_conv;

static bool one_of(const op_lower *c, int i, tacit_dtype dtype)
{
    return !op_lower_has(c, i) ||
           (c->in[i].type.dtype == dtype && ir_shape_size(&c->in[i].type.shape) == 1);
}

/* One for all or one for each of `m`, known. */
static bool table_of(const op_lower *c, int i, tacit_dtype dtype, int64_t m)
{
    if (!op_lower_has(c, i))
        return true;
    int64_t count = ir_shape_size(&c->in[i].type.shape);
    return op_lower_known(c, i) && c->in[i].type.dtype == dtype && (count == 1 || count == m);
}

static bool is_byte(tacit_dtype d)
{
    return d == TACIT_U8 || d == TACIT_I8;
}

/* What the output is, where its scale is known. */
static bool read_output(op_lower *c, byte_conv *b)
{
    tacit_dtype d = c->out[0].type.dtype;
    const ir_tensor *scale = op_lower_known(c, b->r.y_scale),
                    *zero = op_lower_known(c, b->r.y_zero);
    b->g.out = d == TACIT_F32   ? CPU_QOUT_F32
               : d == TACIT_I32 ? CPU_QOUT_I32
               : d == TACIT_U8  ? CPU_QOUT_U8
                                : CPU_QOUT_I8;
    if (!is_byte(d))
        return true;
    if (!scale || !zero || scale->dtype != TACIT_F32 || zero->dtype != d ||
        ir_tensor_count(scale) != 1 || ir_tensor_count(zero) != 1)
        return false;
    b->g.y_scale = *(const float *)scale->data;
    b->g.y_zero = (int32_t)ir_load_i64(d, zero->data, 0);
    cpu_act act = b->g.epilogue.act;
    return act == CPU_ACT_NONE || act == CPU_ACT_RELU || act == CPU_ACT_CLIP;
}

static bool plan(op_lower *c, byte_conv *b)
{
    const roles *r = &b->r;
    tacit_dtype x = c->in[r->x].type.dtype, w = c->in[r->w].type.dtype;
    const op_conv *conv = &b->conv;
    if (!is_byte(x) || !is_byte(w) || !op_lower_known(c, r->w) ||
        !one_of(c, r->x_scale, TACIT_F32) || !one_of(c, r->x_zero, x) ||
        !table_of(c, r->w_scale, TACIT_F32, conv->m) || !table_of(c, r->w_zero, w, conv->m) ||
        !read_output(c, b) || !op_plane_of(&conv->w, &b->p) || conv->c == 0)
        return false;
    const op_plane *p = &b->p;
    int64_t cg = conv->c / conv->group, taps = p->kernel[0] * p->kernel[1];
    b->depth =
        conv->group == conv->c && conv->m == conv->c && conv->c > 1 && taps <= CPU_QDEPTH_TAPS;
    b->turn = (cpu_qcopy){.n = conv->n,
                          .channels = conv->c,
                          .rows = p->in[0],
                          .columns = p->in[1],
                          .pitch = b->depth ? (conv->c + 31) / 32 * 32 : conv->c,
                          .top = p->pad[0],
                          .left = p->pad[1],
                          .flip = x == TACIT_U8};
    b->turn.height = (p->out[0] - 1) * p->stride[0] + (p->kernel[0] - 1) * p->dilation[0] + 1;
    b->turn.width = (p->out[1] - 1) * p->stride[1] + (p->kernel[1] - 1) * p->dilation[1] + 1;
    int64_t row = b->turn.width * b->turn.pitch;
    b->turn.tile = 65536 / row + 1;
    b->w = (cpu_qwindow){.plane = p->out[0] * p->out[1],
                         .out_width = p->out[1],
                         .image = b->turn.height * row,
                         .row = p->stride[0] * row,
                         .pixel = p->stride[1] * b->turn.pitch};
    b->g.m = conv->n * b->w.plane;
    b->g.n = conv->m / conv->group;
    b->g.k = cg * taps;
    b->g.plane = b->w.plane;
    b->g.channels = conv->m;
    b->g.q_row = cpu_qmm_row(b->g.k);
    b->g.a_flipped = b->turn.flip;
    b->g.epilogue.bias = op_lower_has(c, r->bias) ? CPU_BIAS_COLUMN : CPU_BIAS_NONE;
    /* Sums of 33 000 products fit 32 bits. */
    return b->g.m <= INT32_MAX && b->g.k <= 33000 && b->w.image <= INT32_MAX &&
           (b->depth || conv->group <= 64);
}

static tacit_status emit_turn(op_lower *c, byte_conv *b)
{
    const cpu_qcopy *t = &b->turn;
    int64_t rows = t->n * t->height;
    b->images = op_lower_reserve(c, (size_t)(rows * t->width * t->pitch));
    cpu_qturn_args *a = op_lower_thunk(c, "byte_images", CPU_QMM_PICK(&c->cpu, cpu_qturn),
                                       sizeof *a, (uint32_t)((rows + t->tile - 1) / t->tile));
    if (!a)
        return TACIT_ERR_MEMORY;
    a->copy = *t;
    TRY(op_lower_in(c, offsetof(cpu_qturn_args, x), (uint32_t)b->r.x));
    if (op_lower_has(c, b->r.x_zero))
        TRY(op_lower_in(c, offsetof(cpu_qturn_args, zero), (uint32_t)b->r.x_zero));
    TRY(op_lower_scratch(c, offsetof(cpu_qturn_args, to), b->images, true));
    op_lower_cost(c, 0, op_lower_bytes(&c->in[b->r.x]) + (uint64_t)(rows * t->width * t->pitch));
    return TACIT_OK;
}

/* Offsets of the pieces of a window: rows of taps where these are neighbours, else single taps. */
static tacit_status make_pieces(op_lower *c, byte_conv *b, int64_t channels, int64_t first)
{
    const op_plane *p = &b->p;
    bool runs = p->dilation[1] == 1 && channels == b->turn.pitch;
    int64_t across = runs ? 1 : p->kernel[1];
    b->w.pieces = p->kernel[0] * across;
    b->w.piece = runs ? p->kernel[1] * channels : channels;
    int32_t *to = op_lower_pack(c, (size_t)b->w.pieces * sizeof *to);
    b->w.offsets = to;
    for (int64_t ky = 0; to && ky < p->kernel[0]; ky++)
        for (int64_t kx = 0; kx < across; kx++)
            *to++ = (int32_t)((ky * p->dilation[0] * b->turn.width + kx * p->dilation[1]) *
                                  b->turn.pitch +
                              first);
    return b->w.offsets ? TACIT_OK : TACIT_ERR_MEMORY;
}

/* Zero points and scales of the channels from `first` on. */
static tacit_status column_tables(op_lower *c, byte_conv *b, int64_t first)
{
    const ir_tensor *zero = op_lower_known(c, b->r.w_zero),
                    *scale = op_lower_known(c, b->r.w_scale);
    int lift = !b->depth && c->in[b->r.w].type.dtype == TACIT_I8 ? 128 : 0;
    int32_t *zeros = op_lower_pack(c, (size_t)b->g.n * sizeof *zeros);
    float *scales = op_lower_pack(c, (size_t)b->g.n * sizeof *scales);
    if (!zeros || !scales)
        return TACIT_ERR_MEMORY;
    for (int64_t j = 0; j < b->g.n; j++) {
        int64_t z =
            zero ? ir_load_i64(zero->dtype, zero->data, ir_tensor_count(zero) > 1 ? first + j : 0)
                 : 0;
        zeros[j] = b->depth ? 0 : lift + (int32_t)z;
        scales[j] =
            scale ? ((const float *)scale->data)[ir_tensor_count(scale) > 1 ? first + j : 0] : 1;
    }
    b->g.col_zero = zeros;
    b->g.col_scale = scales;
    return TACIT_OK;
}

/* Binds what every kind of sum ends with; `g` is where the product's arguments lie. */
static tacit_status bind_tail(op_lower *c, const byte_conv *b, size_t g)
{
    const struct {
        size_t field;
        int input;
    } in[] = {{offsetof(cpu_qgemm_args, a_zero), b->r.x_zero},
              {offsetof(cpu_qgemm_args, a_scale), b->r.x_scale}};
    for (size_t i = 0; i < sizeof in / sizeof *in; i++)
        if (op_lower_has(c, in[i].input))
            TRY(op_lower_in(c, g + in[i].field, (uint32_t)in[i].input));
    return op_lower_out(c, g + offsetof(cpu_qgemm_args, y), 0);
}

/* Biases of the channels from `first` on: an input whose first element is not the one wanted has
 * to be known, and is then copied. */
static tacit_status take_biases(op_lower *c, byte_conv *b, int64_t first)
{
    for (int k = 0; k < 2; k++) {
        int input = k ? b->r.add : b->r.bias;
        if (!op_lower_has(c, input))
            continue;
        const ir_tensor *t = op_lower_known(c, input);
        if (!t)
            return OP_LOWER_NO_KERNEL;
        int32_t *to = op_lower_pack(c, (size_t)b->g.n * sizeof *to);
        if (!to)
            return TACIT_ERR_MEMORY;
        memcpy(to, (const int32_t *)t->data + first, (size_t)b->g.n * sizeof *to);
        if (k)
            b->g.col_add = to;
        else
            b->g.bias = (const float *)(const void *)to;
    }
    return TACIT_OK;
}

/* The weights of a group, [n][cg][taps], as a right side whose rows are (tap, channel). */
static tacit_status pack_right(op_lower *c, byte_conv *b, int64_t group)
{
    enum { PIECE = 1 << 18 }; /* bytes read by a job */
    int64_t n = b->g.n, k = b->g.k, width = cpu_qmm_width(&c->cpu);
    cpu_qgemm_pack_args a = {.packed =
                                 op_lower_pack_later(c, (size_t)cpu_qgemm_pack_bytes(k, n, width)),
                             .col_sum = op_lower_pack_later(c, (size_t)n * sizeof(int32_t)),
                             .k = k,
                             .n = n,
                             .b_row = 1,
                             .b_col = k,
                             .k_end = k,
                             .taps = b->conv.w.taps,
                             .width = width,
                             .flip = c->in[b->r.w].type.dtype == TACIT_I8 ? 0x80 : 0};
    if (!a.packed || !a.col_sum)
        return TACIT_ERR_MEMORY;
    op_job job = op_lower_job(c, (uint32_t)b->r.w, cpu_qgemm_pack, &a, sizeof a,
                              offsetof(cpu_qgemm_pack_args, b));
    job.end = (uint32_t)((n + width - 1) / width);
    job.offset = (size_t)(group * n * k);
    b->g.packed = a.packed;
    b->g.col_sum = a.col_sum;
    return op_lower_panels_later(c, &job, width, n, (size_t)k, PIECE / (width * k) + 1);
}

static void set_cost(op_lower *c, const byte_conv *b, const char *how)
{
    const cpu_qgemm_args *g = &b->g;
    op_lower_cost(c, 2.0 * (double)g->m * (double)g->n * (double)g->k,
                  (uint64_t)(g->n * g->k + g->m * g->k) + op_lower_bytes(&c->out[0]));
    op_lower_note(c, "%s_%s: %lld pixels, %lld channels, %lld products each, %u tiles", how,
                  cpu_qmm_isa(&c->cpu), (long long)g->m, (long long)g->n, (long long)g->k,
                  g->row_tiles * g->col_tiles);
}

/* Windows of a group as rows, then their product with its weights. */
static tacit_status emit_group(op_lower *c, byte_conv *b, int64_t group, size_t q, size_t sums)
{
    cpu_qgemm_args *g = &b->g;
    int64_t first = group * g->n, cg = b->conv.c / b->conv.group;
    TRY(make_pieces(c, b, cg, group * cg));
    TRY(column_tables(c, b, first));
    TRY(take_biases(c, b, first));
    TRY(pack_right(c, b, group));
    g->y_at = first * g->plane;
    int64_t tile_rows = 65536 / (g->k + 32) + 1;
    cpu_qwindow_rows_args *rows =
        op_lower_thunk(c, "byte_windows", CPU_QMM_PICK(&c->cpu, cpu_qwindow_rows), sizeof *rows,
                       (uint32_t)((g->m + tile_rows - 1) / tile_rows));
    if (!rows)
        return TACIT_ERR_MEMORY;
    *rows =
        (cpu_qwindow_rows_args){.w = b->w, .m = g->m, .q_row = g->q_row, .tile_rows = tile_rows};
    TRY(op_lower_scratch(c, offsetof(cpu_qwindow_rows_args, w.x), b->images, false));
    TRY(op_lower_scratch(c, offsetof(cpu_qwindow_rows_args, q), q, true));
    TRY(op_lower_scratch(c, offsetof(cpu_qwindow_rows_args, sum), sums, true));
    op_lower_cost(c, 0, 2 * (uint64_t)(g->m * g->k));
    op_lower_cut_qgemm(g, &c->cpu);
    cpu_qgemm_args *a = op_lower_thunk(c, "qgemm", CPU_QMM_PICK(&c->cpu, cpu_qgemm), sizeof *a,
                                       g->row_tiles * g->col_tiles);
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = *g;
    TRY(op_lower_scratch(c, offsetof(cpu_qgemm_args, q), q, false));
    TRY(op_lower_scratch(c, offsetof(cpu_qgemm_args, row_sum), sums, false));
    TRY(bind_tail(c, b, 0));
    set_cost(c, b, "qgemm");
    return TACIT_OK;
}

/* Weights without their zero points, [panel][taps][width], and their sums. */
static tacit_status pack_depth(op_lower *c, byte_conv *b, float **weights)
{
    int64_t n = b->g.n, taps = b->conv.w.taps, width = cpu_qmm_width(&c->cpu);
    const ir_tensor *w = op_lower_known(c, b->r.w), *zero = op_lower_known(c, b->r.w_zero);
    float *to = op_lower_pack(c, (size_t)((n + width - 1) / width * width * taps) * sizeof *to);
    int32_t *sums = op_lower_pack(c, (size_t)n * sizeof *sums);
    if (!to || !sums)
        return TACIT_ERR_MEMORY;
    memset(to, 0, (size_t)((n + width - 1) / width * width * taps) * sizeof *to);
    for (int64_t j = 0; j < n; j++) {
        int64_t z =
            zero ? ir_load_i64(zero->dtype, zero->data, ir_tensor_count(zero) > 1 ? j : 0) : 0;
        sums[j] = 0;
        for (int64_t t = 0; t < taps; t++) {
            int32_t v = (int32_t)(ir_load_i64(w->dtype, w->data, j * taps + t) - z);
            to[(j / width * taps + t) * width + j % width] = (float)v;
            sums[j] += v;
        }
    }
    b->g.col_sum = sums;
    *weights = to;
    return TACIT_OK;
}

static tacit_status emit_depth(op_lower *c, byte_conv *b)
{
    cpu_qgemm_args *g = &b->g;
    float *weights;
    g->n = b->conv.m; /* every group is a column */
    TRY(make_pieces(c, b, 1, 0));
    TRY(column_tables(c, b, 0));
    TRY(take_biases(c, b, 0));
    TRY(pack_depth(c, b, &weights));
    op_lower_cut_qgemm(g, &c->cpu);
    cpu_qdepth_args *a = op_lower_thunk(c, "qdepth", CPU_QMM_PICK(&c->cpu, cpu_qdepth), sizeof *a,
                                        g->row_tiles * g->col_tiles);
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = (cpu_qdepth_args){.w = b->w, .weights = weights, .g = *g};
    TRY(op_lower_scratch(c, offsetof(cpu_qdepth_args, w.x), b->images, false));
    TRY(bind_tail(c, b, offsetof(cpu_qdepth_args, g)));
    set_cost(c, b, "qdepth");
    return TACIT_OK;
}

static tacit_status lower(op_lower *c, const roles *r)
{
    byte_conv b = {.r = *r};
    TRY(op_conv_plan(c->node, &c->in[r->x].type.shape, &c->in[r->w].type.shape, &b.conv, c->err));
    TRY(op_lower_epilogue(c, &b.g.epilogue));
    if (ir_shape_size(&c->out[0].type.shape) == 0)
        return TACIT_OK;
    if (!plan(c, &b) || (op_lower_has(c, r->bias) && !op_lower_known(c, r->bias)) ||
        (op_lower_has(c, r->add) && !op_lower_known(c, r->add)))
        return OP_LOWER_NO_KERNEL;
    TRY(emit_turn(c, &b));
    if (b.depth) {
        TRY(emit_depth(c, &b));
        op_lower_packed_away(c, (uint32_t)r->w);
    } else {
        size_t q = op_lower_reserve(c, (size_t)(b.g.m * b.g.q_row));
        size_t sums = op_lower_reserve(c, (size_t)b.g.m * sizeof(int32_t));
        for (int64_t group = 0; group < b.conv.group; group++)
            TRY(emit_group(c, &b, group, q, sums));
    }
    return TACIT_OK;
}

tacit_status op_lower_int_conv(op_lower *c)
{
    if (ir_attr_int(c->node, "inside", 0))
        return op_lower_inside_conv(c);
    return lower(c, &(roles){.x = 0,
                             .w = 1,
                             .x_scale = 2,
                             .x_zero = 3,
                             .w_scale = 4,
                             .w_zero = 5,
                             .bias = 6,
                             .add = -1,
                             .y_scale = 7,
                             .y_zero = 8});
}

tacit_status op_lower_conv_integer(op_lower *c)
{
    return lower(c, &(roles){.x = 0,
                             .w = 1,
                             .x_scale = -1,
                             .x_zero = 2,
                             .w_scale = -1,
                             .w_zero = 3,
                             .bias = -1,
                             .add = -1,
                             .y_scale = -1,
                             .y_zero = -1});
}

tacit_status op_lower_qlinear_conv(op_lower *c)
{
    if (op_lower_has(c, 8) && c->in[8].type.dtype != TACIT_I32)
        return OP_LOWER_NO_KERNEL;
    return lower(c, &(roles){.x = 0,
                             .x_scale = 1,
                             .x_zero = 2,
                             .w = 3,
                             .w_scale = 4,
                             .w_zero = 5,
                             .bias = -1,
                             .add = 8,
                             .y_scale = 6,
                             .y_zero = 7});
}
