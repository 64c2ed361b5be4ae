/* SPDX-License-Identifier: Apache-2.0
 * Kernels for blocked channels (cpu/blocked.h). Weights are packed when they are known, else by a
 * thunk of their own at each run. */
#include <string.h>

#include "cpu/blocked.h"
#include "cpu/gemm.h"
#include "cpu/window.h"
#include "op/blocked.h"
#include "op/lowerings.h"
#include "op/product.h"

/* An operand in the form a kernel wants: made now, or by a thunk into scratch. */
typedef struct prepared {
    const float *now;
    size_t scratch;
} prepared;

static tacit_status bind_prepared(op_lower *c, size_t field, const prepared *p)
{
    return p->now ? TACIT_OK : op_lower_scratch(c, field, p->scratch, false);
}

/* --- into the layout and out of it ------------------------------------------------------------ */

static cpu_blocked_move_args plan_move(int64_t images, int64_t channels, int64_t pixels)
{
    cpu_blocked_move_args a = {.images = images, .channels = channels, .pixels = pixels};
    a.tile = pixels < 4096 ? pixels : 4096;
    a.runs = (uint32_t)((pixels + a.tile - 1) / a.tile);
    return a;
}

static uint32_t move_tiles(const cpu_blocked_move_args *a)
{
    return a->runs * (uint32_t)(a->images * op_blocks(a->channels));
}

static tacit_status lower_move(op_lower *c, const ir_shape *plain, bool in)
{
    cpu_isa isa = c->cpu.isa;
    if (c->in[0].type.dtype != TACIT_F32)
        return OP_LOWER_NO_KERNEL;
    if (ir_shape_size(plain) == 0)
        return TACIT_OK;
    cpu_blocked_move_args plan =
        plan_move(plain->dims[0], plain->dims[1], plain->dims[2] * plain->dims[3]);
    cpu_blocked_move_args *a = op_lower_thunk(
        c, in ? CPU_PICK_NAME(isa, blocked_enter_f32) : CPU_PICK_NAME(isa, blocked_leave_f32),
        in ? CPU_PICK(isa, cpu_blocked_enter_f32) : CPU_PICK(isa, cpu_blocked_leave_f32), sizeof *a,
        move_tiles(&plan));
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = plan;
    TRY(op_lower_in(c, offsetof(cpu_blocked_move_args, from), 0));
    TRY(op_lower_out(c, offsetof(cpu_blocked_move_args, to), 0));
    op_lower_cost(c, 0, op_lower_bytes(&c->in[0]) + op_lower_bytes(&c->out[0]));
    return TACIT_OK;
}

tacit_status op_lower_block(op_lower *c)
{
    return lower_move(c, &c->in[0].type.shape, true);
}

tacit_status op_lower_unblock(op_lower *c)
{
    return lower_move(c, &c->out[0].type.shape, false);
}

/* Input `input`, [channels][pixels], as [blocks][pixels][16]. */
static tacit_status prepare_blocks(op_lower *c, uint32_t input, int64_t channels, int64_t pixels,
                                   prepared *to)
{
    cpu_isa isa = c->cpu.isa;
    cpu_blocked_move_args plan = plan_move(1, channels, pixels);
    const ir_tensor *known = c->in[input].constant;
    TRY(ir_tensor_make(known, c->err)); /* a few taps a channel: not worth being late */
    size_t bytes = (size_t)(op_blocks(channels) * OP_BLOCK * pixels) * sizeof(float);
    if (known && known->data) {
        float *packed = op_lower_pack(c, bytes);
        if (!packed)
            return TACIT_ERR_MEMORY;
        plan.from = known->data;
        plan.to = packed;
        CPU_PICK(isa, cpu_blocked_enter_f32)(&plan, 0, move_tiles(&plan));
        op_lower_packed_away(c, input);
        to->now = packed;
        return TACIT_OK;
    }
    to->scratch = op_lower_reserve(c, bytes);
    cpu_blocked_move_args *a =
        op_lower_thunk(c, CPU_PICK_NAME(isa, blocked_enter_f32),
                       CPU_PICK(isa, cpu_blocked_enter_f32), sizeof *a, move_tiles(&plan));
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = plan;
    TRY(op_lower_in(c, offsetof(cpu_blocked_move_args, from), input));
    TRY(op_lower_scratch(c, offsetof(cpu_blocked_move_args, to), to->scratch, true));
    op_lower_cost(c, 0, 2 * op_lower_bytes(&c->in[input]));
    return TACIT_OK;
}

/* --- each block by itself --------------------------------------------------------------------- */

static bool window_fits(const op_window *w)
{
    return w->rank == 2 && w->pad_begin[0] >= 0 && w->pad_begin[1] >= 0 &&
           w->out[1] <= CPU_BLOCKED_WIDTH;
}

/* Planes of a tile, at most `most`: an even number of equal tiles if there is one that is not much
 * smaller, so that two threads have the same work. */
static int64_t even_tile(int64_t planes, int64_t most)
{
    for (int64_t tile = most; 2 * tile >= most && tile > 0; tile--)
        if (planes % (2 * tile) == 0)
            return tile;
    return most;
}

static tacit_status emit_window(op_lower *c, const op_window *w, cpu_blocked_window_args *plan,
                                cpu_blocked_window_args **args)
{
    for (int i = 0; i < 2; i++) {
        plan->in[i] = w->in[i], plan->out[i] = w->out[i];
        plan->kernel[i] = w->kernel[i], plan->stride[i] = w->stride[i];
        plan->dilation[i] = w->dilation[i], plan->pad[i] = w->pad_begin[i];
        plan->pad_after[i] = w->pad_end[i];
    }
    enum { TILE = 10000 }; /* sums of vectors: about 5 µs */
    int64_t row = w->out[1] * (w->taps + 3), plane = w->out[0] * row;
    plan->band = plane > 2 * TILE ? TILE / row + 1 : w->out[0];
    plan->bands = (uint32_t)((w->out[0] + plan->band - 1) / plan->band);
    plan->tile = plan->bands > 1 ? 1 : even_tile(plan->planes, TILE / (plane + 1) + 1);
    uint64_t tiles = (uint64_t)((plan->planes + plan->tile - 1) / plan->tile) * plan->bands;
    if (tiles > INT32_MAX)
        return OP_LOWER_NO_KERNEL;
    *args = op_lower_thunk(c, CPU_PICK_NAME(c->cpu.isa, blocked_window_f32),
                           CPU_PICK(c->cpu.isa, cpu_blocked_window_f32), sizeof **args,
                           (uint32_t)tiles);
    if (!*args)
        return TACIT_ERR_MEMORY;
    **args = *plan;
    uint64_t in_run = 0, out_run = 0;
    if (plan->bands == 1) {
        in_run = (uint64_t)(plan->tile * w->in_size * OP_BLOCK) * sizeof(float);
        out_run = (uint64_t)(plan->tile * w->out_size * OP_BLOCK) * sizeof(float);
    }
    TRY(op_lower_in_tiled(c, offsetof(cpu_blocked_window_args, x), 0, in_run, in_run));
    TRY(op_lower_out_tiled(c, offsetof(cpu_blocked_window_args, y), 0, out_run, out_run));
    if (op_lower_has(c, 3))
        TRY(op_lower_in_tiled(c, offsetof(cpu_blocked_window_args, residual), 3, out_run, out_run));
    op_lower_cost(c, 2.0 * (double)(plan->planes * w->out_size * OP_BLOCK) * (double)w->taps,
                  op_lower_bytes(&c->in[0]) + op_lower_bytes(&c->out[0]));
    return TACIT_OK;
}

tacit_status op_lower_blocked_pool(op_lower *c)
{
    op_window w;
    ir_shape plain;
    if (c->in[0].type.dtype != TACIT_F32)
        return OP_LOWER_NO_KERNEL;
    TRY(op_blocked_plain(c->node, &c->in[0].type.shape, &plain, c->err));
    TRY(op_window_read(c->node, &plain, NULL, &w, c->err));
    if (ir_shape_size(&c->out[0].type.shape) == 0)
        return TACIT_OK;
    if (!window_fits(&w))
        return OP_LOWER_NO_KERNEL;
    bool average = ir_attr_int(c->node, "average", 0) != 0;
    bool all = ir_attr_int(c->node, "count_include_pad", 0) != 0;
    cpu_blocked_window_args plan = {.planes = plain.dims[0] * op_blocks(plain.dims[1]),
                                    .blocks = op_blocks(plain.dims[1]),
                                    .kind = !average ? CPU_BLOCKED_MAX
                                            : all    ? CPU_BLOCKED_AVERAGE_ALL
                                                     : CPU_BLOCKED_AVERAGE,
                                    .epilogue = {.alpha = 1}};
    cpu_blocked_window_args *a;
    TRY(emit_window(c, &w, &plan, &a));
    op_lower_note(c, "blocked_window_f32_%s: sixteen channels a pixel", cpu_isa_name(c->cpu.isa));
    return TACIT_OK;
}

/* Two rows of windows at a time, by Winograd's F(2, 3): as for other 3×3 convolutions from some
 * pixels on. */
static bool pairs_rows(const op_lower *c, const op_window *w)
{
    enum { PIXELS = 128 };
    return c->cpu.adds_beside_fma && c->cpu.isa == CPU_AVX512 && !c->plain_sums &&
           w->stride[0] == 1 && w->stride[1] == 1 && w->out_size >= PIXELS;
}

static tacit_status lower_depthwise(op_lower *c, const op_conv *conv)
{
    cpu_blocked_window_args plan = {.planes = conv->n * op_blocks(conv->c),
                                    .blocks = op_blocks(conv->c),
                                    .kind = CPU_BLOCKED_WEIGHTS};
    plan.paired_rows = pairs_rows(c, &conv->w);
    prepared weights = {0}, bias = {0};
    TRY(op_lower_epilogue(c, &plan.epilogue));
    TRY(prepare_blocks(c, 1, conv->c, conv->w.taps, &weights));
    if (op_lower_has(c, 2))
        TRY(prepare_blocks(c, 2, conv->c, 1, &bias));
    plan.weights = weights.now;
    plan.bias = bias.now;
    cpu_blocked_window_args *a;
    TRY(emit_window(c, &conv->w, &plan, &a));
    TRY(bind_prepared(c, offsetof(cpu_blocked_window_args, weights), &weights));
    if (op_lower_has(c, 2))
        TRY(bind_prepared(c, offsetof(cpu_blocked_window_args, bias), &bias));
    op_lower_note(c, "blocked_window_f32_%s: depthwise, sixteen channels a pixel%s",
                  cpu_isa_name(c->cpu.isa),
                  plan.paired_rows ? ", two rows at a time by Winograd's F(2, 3)" : "");
    return TACIT_OK;
}

/* --- sums over taps --------------------------------------------------------------------------- */

static int64_t panel_floats(int64_t channels, int64_t k)
{
    return op_blocks(channels) * OP_BLOCK * k;
}

tacit_status op_lower_pack_panels(op_lower *c, cpu_kernel fn, cpu_blocked_pack_args *a, int64_t k,
                                  int64_t first)
{
    enum { PIECE = 1 << 18 }; /* floats read by a job */
    int64_t width = cpu_gemm_width(c->cpu.isa);
    int64_t panels = (op_blocks(a->channels) * OP_BLOCK + width - 1) / width;
    op_job job = op_lower_job(c, 1, fn, a, sizeof *a, offsetof(cpu_blocked_pack_args, from));
    job.offset = (size_t)(first * k) * sizeof(float);
    job.end = (uint32_t)panels;
    return op_lower_panels_later(c, &job, width, a->channels, (size_t)k * sizeof(float),
                                 PIECE / (width * k) + 1);
}

static tacit_status prepare_weights(op_lower *c, const op_conv *conv, int64_t depth, prepared *to)
{
    cpu_isa isa = c->cpu.isa;
    int64_t width = cpu_gemm_width(isa), channels = conv->m / conv->group;
    int64_t inputs = conv->c / conv->group, k = inputs * conv->w.taps;
    int64_t set = panel_floats(channels, k);
    uint32_t panels = (uint32_t)((op_blocks(channels) * OP_BLOCK + width - 1) / width);
    size_t bytes = (size_t)(set * conv->group) * sizeof(float);
    cpu_blocked_pack_args plan = {
        .channels = channels, .inputs = inputs, .taps = conv->w.taps, .depth = depth};
    if (op_lower_is_weight(c, 1)) {
        float *packed = op_lower_pack_later(c, bytes);
        if (!packed)
            return TACIT_ERR_MEMORY;
        for (int64_t g = 0; g < conv->group; g++) {
            plan.to = packed + g * set;
            TRY(op_lower_pack_panels(c, CPU_PICK(isa, cpu_blocked_pack_f32), &plan, k,
                                     g * channels));
        }
        to->now = packed;
        return TACIT_OK;
    }
    if (conv->group > 1)
        return OP_LOWER_NO_KERNEL;
    to->scratch = op_lower_reserve(c, bytes);
    cpu_blocked_pack_args *a =
        op_lower_thunk(c, CPU_PICK_NAME(isa, blocked_pack_f32), CPU_PICK(isa, cpu_blocked_pack_f32),
                       sizeof *a, panels);
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = plan;
    TRY(op_lower_in(c, offsetof(cpu_blocked_pack_args, from), 1));
    TRY(op_lower_scratch(c, offsetof(cpu_blocked_pack_args, to), to->scratch, true));
    op_lower_cost(c, 0, 2 * op_lower_bytes(&c->in[1]));
    return TACIT_OK;
}

/* Where windows are read from: the image itself, or a copy with a border. */
typedef struct source {
    bool copied, planes; /* planes: a plain image, one channel a plane */
    size_t scratch;
    int64_t height, width; /* with the border */
    int64_t unit;          /* floats of the channels of one group */
} source;

/* The image with its border. */
static tacit_status copy_image(op_lower *c, const op_conv *conv, const source *s)
{
    cpu_isa isa = c->cpu.isa;
    cpu_window_pad_args *a;
    int64_t planes = conv->n * (s->planes ? conv->c : op_blocks(conv->c));
    int64_t tile = (s->planes ? 65536 : 4096) / (s->height * s->width) + 1;
    a = op_lower_thunk(
        c, s->planes ? CPU_PICK_NAME(isa, window_pad_f32) : CPU_PICK_NAME(isa, blocked_pad_f32),
        s->planes ? CPU_PICK(isa, cpu_window_pad_f32) : CPU_PICK(isa, cpu_blocked_pad_f32),
        sizeof *a, (uint32_t)((planes + tile - 1) / tile));
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = (cpu_window_pad_args){.planes = planes,
                               .in_depth = 1,
                               .in_height = conv->w.in[0],
                               .in_width = conv->w.in[1],
                               .depth = 1,
                               .height = s->height,
                               .width = s->width,
                               .phases = 1,
                               .depth_step = 1,
                               .row_step = 1,
                               .column_step = 1,
                               .pad_top = conv->w.pad_begin[0],
                               .pad_left = conv->w.pad_begin[1],
                               .tile = tile};
    TRY(op_lower_in(c, offsetof(cpu_window_pad_args, x), 0));
    return op_lower_scratch(c, offsetof(cpu_window_pad_args, to), s->scratch, true);
}

static tacit_status prepare_source(op_lower *c, const op_conv *conv, source *s)
{
    const op_window *w = &conv->w;
    *s = (source){.planes = c->in[0].type.shape.rank == 4};
    int64_t reach[2];
    for (int i = 0; i < 2; i++)
        reach[i] = (w->out[i] - 1) * w->stride[i] + (w->kernel[i] - 1) * w->dilation[i] + 1;
    s->height = w->in[0];
    s->width = w->in[1];
    s->copied =
        w->pad_begin[0] > 0 || w->pad_begin[1] > 0 || reach[0] > w->in[0] || reach[1] > w->in[1];
    if (s->copied) {
        s->height = reach[0];
        s->width = reach[1];
    }
    int64_t planes =
        s->planes ? conv->c / conv->group : op_blocks(conv->c / conv->group) * OP_BLOCK;
    s->unit = planes * s->height * s->width;
    if (s->unit > INT32_MAX)
        return OP_LOWER_NO_KERNEL;
    if (!s->copied)
        return TACIT_OK;
    size_t bytes = (size_t)(s->unit * conv->group * conv->n) * sizeof(float);
    s->scratch = op_lower_reserve(c, bytes);
    TRY(copy_image(c, conv, s));
    op_lower_cost(c, 0, 2 * bytes);
    return TACIT_OK;
}

/* Where tap (block or plane, ky, kx) lies behind a window's origin. */
static const int32_t *make_taps(op_lower *c, const op_conv *conv, const source *s)
{
    const op_window *w = &conv->w;
    int64_t inputs = conv->c / conv->group, pixel = s->planes ? 1 : OP_BLOCK;
    int64_t planes = s->planes ? inputs : op_blocks(inputs);
    int32_t *to = op_lower_pack(c, (size_t)(planes * w->taps) * sizeof *to), *first = to;
    for (int64_t i = 0; to && i < planes; i++)
        for (int64_t ky = 0; ky < w->kernel[0]; ky++)
            for (int64_t kx = 0; kx < w->kernel[1]; kx++) {
                int64_t row = i * s->height + ky * w->dilation[0];
                *to++ = (int32_t)((row * s->width + kx * w->dilation[1]) * pixel);
            }
    return first;
}

/* A pointwise convolution reads pixels one after another: rows are as long as suits, whole register
 * tiles; a row is a band. */
static void cut_rows(cpu_blocked_conv_args *a, int64_t bands, int64_t tile)
{
    int64_t tiles = (a->pixels + tile - 1) / tile;
    bands = bands < tiles / 2 ? bands : tiles / 2;
    bands = bands < 1 ? 1 : bands;
    a->width = (tiles + bands - 1) / bands * tile;
    a->width = a->width < a->pixels ? a->width : a->pixels;
    a->height = (a->pixels + a->width - 1) / a->width;
    a->row_step = a->width * a->step;
    a->band = 1;
    a->bands = (uint32_t)a->height;
}

static void cut_bands(cpu_blocked_conv_args *a, int64_t bands)
{
    int64_t most = a->height > 1 ? a->height / 2 : 1;
    bands = bands < most ? bands : most;
    a->band = (a->height + bands - 1) / bands;
    if (a->width == 7 && a->band % 2 && a->band < a->height)
        a->band++; /* two rows of seven fill a register tile */
    a->bands = (uint32_t)((a->height + a->band - 1) / a->band);
}

/* Tiles of 6 µs or more, up to about 48. A band of the input stays in L2 while the panels of
 * weights pass, or a panel of many weights while the bands pass. Some panels are enough of tiles,
 * since what reads one block of channels can then begin early. Shapes alone decide. */
static void cut(cpu_blocked_conv_args *a, int64_t units, bool pointwise, cpu_isa isa)
{
    enum { L2 = 100000, SOME = 8 }; /* L2: floats */
    int64_t width = cpu_gemm_width(isa), panels = (a->channels + width - 1) / width;
    double us = 2.0 * (double)(units * a->channels * a->pixels) * (double)a->k / 1e5;
    int64_t wanted = (int64_t)(us / 6) + 1, bands = a->x_step / L2 + 1;
    wanted = wanted > 48 ? 48 : wanted;
    int64_t parts = (wanted + units * panels - 1) / (units * panels);
    if (units * panels < SOME && parts > bands)
        bands = parts;
    if (pointwise)
        cut_rows(a, bands, cpu_gemm_height(isa));
    else
        cut_bands(a, bands);
    int64_t rest = (wanted + a->bands * units - 1) / (a->bands * units);
    rest = rest < panels ? rest : panels;
    a->panels = (panels + rest - 1) / rest;
    a->panel_tiles = (uint32_t)((panels + a->panels - 1) / a->panels);
    a->bands_fastest = a->k * a->channels > a->x_step;
}

static tacit_status emit_sums(op_lower *c, const op_conv *conv, cpu_blocked_conv_args *plan,
                              const source *s, const prepared *weights, const prepared *bias)
{
    int64_t units = conv->n * conv->group;
    const op_window *w = &conv->w;
    bool pointwise = w->taps == 1 && !s->copied && w->stride[0] == 1 && w->stride[1] == 1;
    cut(plan, units, pointwise, c->cpu.isa);
    uint64_t tiles = (uint64_t)units * plan->bands * plan->panel_tiles;
    if (tiles > INT32_MAX)
        return OP_LOWER_NO_KERNEL;
    cpu_blocked_conv_args *a =
        op_lower_thunk(c, CPU_PICK_NAME(c->cpu.isa, blocked_conv_f32),
                       CPU_PICK(c->cpu.isa, cpu_blocked_conv_f32), sizeof *a, (uint32_t)tiles);
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = *plan;
    if (s->copied)
        TRY(op_lower_scratch(c, offsetof(cpu_blocked_conv_args, x), s->scratch, false));
    else
        TRY(op_lower_in(c, offsetof(cpu_blocked_conv_args, x), 0));
    TRY(bind_prepared(c, offsetof(cpu_blocked_conv_args, weights), weights));
    if (op_lower_has(c, 2))
        TRY(bind_prepared(c, offsetof(cpu_blocked_conv_args, bias), bias));
    uint64_t run = 0;
    int64_t block = cpu_gemm_width(c->cpu.isa) * plan->panels;
    if (plan->bands == 1 && (units == 1 || plan->channels % block == 0) && block % OP_BLOCK == 0)
        run = (uint64_t)(block * w->out_size) * sizeof(float);
    if (op_lower_has(c, 3))
        TRY(op_lower_in_tiled(c, offsetof(cpu_blocked_conv_args, residual), 3, run, run));
    TRY(op_lower_out_tiled(c, offsetof(cpu_blocked_conv_args, y), 0, run, run));
    uint64_t bytes =
        op_lower_bytes(&c->in[0]) + op_lower_bytes(&c->in[1]) + op_lower_bytes(&c->out[0]);
    op_lower_cost(c, 2.0 * (double)(conv->n * conv->m * w->out_size) * (double)plan->k, bytes);
    op_lower_note(c,
                  "blocked_conv_f32_%s: %lld channels of %lldx%lld pixels, sums of %lld, %s; %u "
                  "bands by %u of panels",
                  cpu_isa_name(c->cpu.isa), (long long)conv->m, (long long)w->out[0],
                  (long long)w->out[1], (long long)plan->k,
                  s->copied ? "from a copy with a border" : "read in place", plan->bands,
                  plan->panel_tiles);
    return TACIT_OK;
}

static tacit_status lower_sums(op_lower *c, const op_conv *conv)
{
    source s;
    prepared weights = {0}, bias = {0};
    const op_window *w = &conv->w;
    int64_t inputs = conv->c / conv->group, channels = conv->m / conv->group;
    bool planes = c->in[0].type.shape.rank == 4;
    int64_t depth = planes ? 1 : OP_BLOCK;
    TRY(prepare_weights(c, conv, depth, &weights));
    if (op_lower_has(c, 2))
        TRY(prepare_blocks(c, 2, conv->m, 1, &bias));
    TRY(prepare_source(c, conv, &s));
    int64_t pixel = planes ? 1 : OP_BLOCK, last = inputs % depth;
    cpu_blocked_conv_args plan = {.weights = weights.now,
                                  .bias = bias.now,
                                  .taps = make_taps(c, conv, &s),
                                  .n_taps = (inputs + depth - 1) / depth * w->taps,
                                  .full = inputs / depth * w->taps,
                                  .depth = depth,
                                  .last_depth = last,
                                  .x_step = s.unit,
                                  .step = w->stride[1] * pixel,
                                  .row_step = w->stride[0] * s.width * pixel,
                                  .width = w->out[1],
                                  .height = w->out[0],
                                  .pixels = w->out_size,
                                  .channels = op_blocks(channels) * OP_BLOCK,
                                  .k = inputs * w->taps,
                                  .half = channels % OP_BLOCK > 0 &&
                                          channels % OP_BLOCK <= OP_BLOCK / 2,
                                  .weight_sets = conv->group,
                                  .weight_step = panel_floats(channels, inputs * w->taps)};
    if (!plan.taps)
        return TACIT_ERR_MEMORY;
    if (s.copied) {
        plan.tap_rows = w->kernel[0];
        plan.tap_columns = w->kernel[1];
        plan.tap_stride = w->stride[0];
        plan.tap_dilation = w->dilation[0];
        plan.tap_pad = w->pad_begin[0];
        plan.image_rows = w->in[0];
    }
    TRY(op_lower_epilogue(c, &plan.epilogue));
    return emit_sums(c, conv, &plan, &s, &weights, &bias);
}

/* Groups whose channels fill whole blocks, so that a group is a run of blocks. */
static bool sums_fit(const op_lower *c, const op_conv *conv)
{
    if (conv->w.pad_begin[0] < 0 || conv->w.pad_begin[1] < 0)
        return false;
    return conv->group == 1 ||
           (conv->c / conv->group % OP_BLOCK == 0 && conv->m / conv->group % OP_BLOCK == 0 &&
            c->in[0].type.shape.rank == 5);
}

tacit_status op_lower_blocked_conv(op_lower *c)
{
    op_conv conv;
    if (!op_lower_all_f32(c))
        return OP_LOWER_NO_KERNEL;
    TRY(op_blocked_conv_plan(c->node, &c->in[0].type.shape, &c->in[1].type.shape, &conv, c->err));
    if (ir_shape_size(&c->out[0].type.shape) == 0)
        return TACIT_OK;
    bool blocked = c->in[0].type.shape.rank == 5;
    if (blocked && conv.group == conv.c && conv.m == conv.c && window_fits(&conv.w))
        return lower_depthwise(c, &conv);
    if (!sums_fit(c, &conv) || conv.c == 0)
        return OP_LOWER_NO_KERNEL;
    if (op_blocked_winograd_suits(c, &conv))
        return op_lower_blocked_winograd(c, &conv);
    if (op_blocked_paired_suits(c, &conv)) {
        prepared bias = {0};
        if (op_lower_known(c, 2))
            TRY(prepare_blocks(c, 2, conv.m, 1, &bias));
        if (bias.now || !op_lower_has(c, 2))
            return op_lower_blocked_paired(c, &conv, bias.now);
    }
    return lower_sums(c, &conv);
}
