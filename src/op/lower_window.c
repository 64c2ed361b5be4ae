/* SPDX-License-Identifier: Apache-2.0
 * Convolution and pooling over one to three spatial axes. A convolution is a product of the weights
 * with the windows (cpu/gemm.h); one input channel per group, and pooling, go plane by plane
 * (cpu/window.h). */
#include <string.h>

#include "cpu/gemm.h"
#include "cpu/window.h"
#include "op/conv.h"
#include "op/lowerings.h"

/* --- plane by plane --------------------------------------------------------------------------- */

/* Output rows at a time: as many as keep the band in L1; 0 where not even one row fits. */
static int64_t band_rows(const op_plane *p, int64_t width)
{
    enum { L1 = 5000 }; /* floats */
    int64_t more = (p->kernel[0] - 1) * p->dilation[0] / p->stride[0];
    int64_t row = p->stride[0] * p->stride[1] * width;
    int64_t rows = L1 / row - more;
    if (rows < 4) /* a band of few rows loads most of them twice: rather leave L1 */
        rows = CPU_WINDOW_BUFFER / row - more;
    if (p->kernel[0] * p->kernel[1] > CPU_WINDOW_TAPS || rows < 1)
        return 0;
    return rows < p->out[0] ? rows : p->out[0];
}

/* Columns of a phase of a padded row. */
static int64_t band_width(const op_plane *p)
{
    int64_t reach = (p->out[1] - 1) * p->stride[1] + (p->kernel[1] - 1) * p->dilation[1] + 1;
    return (reach + p->stride[1] - 1) / p->stride[1];
}

/* The thunk with nothing bound. */
static tacit_status make_window(op_lower *c, const op_plane *p, cpu_window_args *plan,
                                cpu_window_args **args)
{
    plan->width = band_width(p);
    plan->band = band_rows(p, plan->width);
    if (plan->band == 0)
        return OP_LOWER_NO_KERNEL;
    plan->in_height = p->in[0], plan->in_width = p->in[1];
    plan->out_height = p->out[0], plan->out_width = p->out[1];
    memcpy(plan->kernel, p->kernel, sizeof p->kernel);
    memcpy(plan->stride, p->stride, sizeof p->stride);
    memcpy(plan->dilation, p->dilation, sizeof p->dilation);
    memcpy(plan->pad, p->pad, sizeof p->pad);
    memcpy(plan->pad_after, p->pad_after, sizeof p->pad_after);
    plan->epilogue.alpha = 1;
    int64_t work = p->out[0] * p->out[1] * (p->kernel[0] * p->kernel[1] + 4);
    plan->tile = 300000 / (work + 1) < 1 ? 1 : 300000 / (work + 1); /* about 20 µs */
    int64_t tiles = (plan->planes + plan->tile - 1) / plan->tile;
    if (tiles > INT32_MAX)
        return OP_LOWER_NO_KERNEL;
    *args = op_lower_thunk(c, CPU_PICK_NAME(c->cpu.isa, window_f32),
                           CPU_PICK(c->cpu.isa, cpu_window_f32), sizeof **args, (uint32_t)tiles);
    if (!*args)
        return TACIT_ERR_MEMORY;
    **args = *plan;
    double flops = 2.0 * (double)plan->planes * (double)(p->out[0] * p->out[1]) *
                   (double)(p->kernel[0] * p->kernel[1]);
    op_lower_cost(c, flops, op_lower_bytes(&c->in[0]) + op_lower_bytes(&c->out[0]));
    return TACIT_OK;
}

/* The input as x of the newest thunk, plane by plane. */
static tacit_status bind_planes_in(op_lower *c, const op_plane *p, const cpu_window_args *plan)
{
    uint64_t run = (uint64_t)(plan->tile * p->in[0] * p->in[1]) * sizeof(float);
    run = plan->multiplier == 1 ? run : 0;
    return op_lower_in_tiled(c, offsetof(cpu_window_args, x), 0, run, run);
}

static tacit_status bind_planes_out(op_lower *c, const op_plane *p, const cpu_window_args *plan)
{
    uint64_t run = (uint64_t)(plan->tile * p->out[0] * p->out[1]) * sizeof(float);
    return op_lower_out_tiled(c, offsetof(cpu_window_args, y), 0, run, run);
}

/* The thunk with x and y bound; the caller binds what else it has. */
static tacit_status emit_window(op_lower *c, const op_plane *p, cpu_window_args *plan,
                                cpu_window_args **args)
{
    TRY(make_window(c, p, plan, args));
    TRY(bind_planes_in(c, p, plan));
    return bind_planes_out(c, p, plan);
}

static tacit_status lower_depthwise(op_lower *c, const op_conv *conv, const op_plane *p)
{
    cpu_window_args plan = {.planes = conv->n * conv->m,
                            .channels = conv->m,
                            .multiplier = conv->m / conv->c,
                            .kind = CPU_WINDOW_WEIGHTS};
    TRY(op_lower_epilogue(c, &plan.epilogue));
    if (op_lower_has(c, 2))
        plan.epilogue.bias = CPU_BIAS_ROW;
    cpu_window_args *a;
    TRY(emit_window(c, p, &plan, &a));
    TRY(op_lower_in(c, offsetof(cpu_window_args, weights), 1));
    if (op_lower_has(c, 2))
        TRY(op_lower_in(c, offsetof(cpu_window_args, bias), 2));
    if (op_lower_has(c, 3))
        TRY(op_lower_in(c, offsetof(cpu_window_args, residual), 3));
    op_lower_note(c,
                  "window_f32_%s: one input channel per group, plane by plane; as a product each "
                  "group would have %lld rows only",
                  cpu_isa_name(c->cpu.isa), (long long)(conv->m / conv->group));
    return TACIT_OK;
}

/* Poolings of a volume are poolings of its planes, then of positions across planes: those lie below
 * each other where a plane is one row. */
static tacit_status lower_pool_volume(op_lower *c, const op_plane *p, const op_depth *z,
                                      cpu_window_args *plan)
{
    int64_t volumes = plan->planes, row = p->out[0] * p->out[1];
    const op_plane across = {.in = {z->in, row},
                             .out = {z->out, row},
                             .kernel = {z->kernel, 1},
                             .stride = {z->stride, 1},
                             .dilation = {z->dilation, 1},
                             .pad = {z->pad, 0},
                             .pad_after = {z->pad_after, 0}};
    if (band_rows(p, band_width(p)) == 0 || band_rows(&across, row) == 0)
        return OP_LOWER_NO_KERNEL;
    cpu_window_args *a;
    size_t planes = op_lower_reserve(c, (size_t)(volumes * z->in * row) * sizeof(float));
    plan->planes = volumes * z->in;
    TRY(make_window(c, p, plan, &a));
    TRY(bind_planes_in(c, p, plan));
    TRY(op_lower_scratch(c, offsetof(cpu_window_args, y), planes, true));
    plan->planes = volumes;
    TRY(make_window(c, &across, plan, &a));
    TRY(op_lower_scratch(c, offsetof(cpu_window_args, x), planes, false));
    TRY(bind_planes_out(c, &across, plan));
    op_lower_note(c, "window_f32_%s, plane by plane, then across planes", cpu_isa_name(c->cpu.isa));
    return TACIT_OK;
}

/* What both kernels below have. */
static cpu_max_where_args plan_max(const op_lower *c, const op_plane *p, const op_depth *z)
{
    const int64_t *x = c->in[0].type.shape.dims;
    cpu_max_where_args m = {.rows = x[0] * x[1] * z->out * p->out[0],
                            .volume = z->in * p->in[0] * p->in[1],
                            .in = {z->in, p->in[0], p->in[1]},
                            .out = {z->out, p->out[0], p->out[1]},
                            .kernel = {z->kernel, p->kernel[0], p->kernel[1]},
                            .stride = {z->stride, p->stride[0], p->stride[1]},
                            .dilation = {z->dilation, p->dilation[0], p->dilation[1]},
                            .pad = {z->pad, p->pad[0], p->pad[1]},
                            .by_column = ir_attr_int(c->node, "storage_order", 0) == 1};
    return m;
}

static tacit_status emit_max(op_lower *c, cpu_max_where_args *m, const char *name, cpu_kernel fn,
                             int64_t work)
{
    m->tile = 65536 / work + 1;
    int64_t tiles = (m->rows + m->tile - 1) / m->tile;
    if (tiles > INT32_MAX)
        return OP_LOWER_NO_KERNEL;
    cpu_max_where_args *a = op_lower_thunk(c, name, fn, sizeof *a, (uint32_t)tiles);
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = *m;
    uint64_t run = (uint64_t)(m->tile * m->out[2]) * sizeof(float);
    int64_t taps = m->kernel[0] * m->kernel[1] * m->kernel[2];
    TRY(op_lower_in(c, offsetof(cpu_max_where_args, x), 0));
    TRY(op_lower_out_tiled(c, offsetof(cpu_max_where_args, y), 0, run, run));
    op_lower_cost(c, (double)taps * (double)(m->rows * m->out[2]),
                  op_lower_bytes(&c->in[0]) + op_lower_bytes(&c->out[0]));
    return TACIT_OK;
}

/* MaxPool that says where. */
static tacit_status lower_max_where(op_lower *c, const op_plane *p, const op_depth *z)
{
    cpu_max_where_args m = plan_max(c, p, z);
    int64_t taps = z->kernel * p->kernel[0] * p->kernel[1];
    if (m.volume > INT32_MAX || !op_lower_wants(c, 0))
        return OP_LOWER_NO_KERNEL;
    TRY(emit_max(c, &m, CPU_PICK_NAME(c->cpu.isa, max_where_f32),
                 CPU_PICK(c->cpu.isa, cpu_max_where_f32), p->out[1] * (taps + 1)));
    uint64_t run = (uint64_t)(m.tile * p->out[1]) * sizeof(int64_t);
    TRY(op_lower_out_tiled(c, offsetof(cpu_max_where_args, where), 1, run, run));
    op_lower_note(c, "max_where_f32_%s: tap by tap, row by row", cpu_isa_name(c->cpu.isa));
    return TACIT_OK;
}

static tacit_status lower_max_volume(op_lower *c, const op_plane *p, const op_depth *z)
{
    enum { LANES = 16 }; /* of the longest vectors */
    cpu_max_where_args m = plan_max(c, p, z);
    int64_t rows = z->kernel * p->kernel[0], reach = (p->kernel[1] - 1) * p->dilation[1];
    int64_t windows = (p->out[1] + LANES) * p->stride[1] + LANES;
    if (rows > CPU_MAX_ROWS || p->pad[1] + p->in[1] + LANES > CPU_MAX_LINE ||
        windows + reach > CPU_MAX_LINE)
        return OP_LOWER_NO_KERNEL;
    TRY(emit_max(c, &m, CPU_PICK_NAME(c->cpu.isa, max_volume_f32),
                 CPU_PICK(c->cpu.isa, cpu_max_volume_f32), p->in[1] * rows / 4 + 16));
    op_lower_note(c, "max_volume_f32_%s: rows under a row of the result become one, then windows",
                  cpu_isa_name(c->cpu.isa));
    return TACIT_OK;
}

tacit_status op_lower_pool(op_lower *c)
{
    op_window w;
    op_plane p;
    op_depth z;
    if (c->in[0].type.dtype != TACIT_F32)
        return OP_LOWER_NO_KERNEL;
    TRY(op_window_read(c->node, &c->in[0].type.shape, NULL, &w, c->err));
    if (ir_shape_size(&c->out[0].type.shape) == 0)
        return TACIT_OK;
    if (!op_volume_of(&w, &p, &z))
        return OP_LOWER_NO_KERNEL;
    if (op_lower_wants(c, 1))
        return lower_max_where(c, &p, &z);
    const int64_t *x = c->in[0].type.shape.dims;
    bool all = ir_attr_int(c->node, "count_include_pad", 0) != 0;
    cpu_window_args plan = {.planes = x[0] * x[1],
                            .channels = x[1],
                            .multiplier = 1,
                            .kind = c->node->type[0] == 'M' ? CPU_WINDOW_MAX
                                    : all                   ? CPU_WINDOW_AVERAGE_ALL
                                                            : CPU_WINDOW_AVERAGE};
    if (z.kernel != 1 || z.stride != 1 || z.in != z.out) {
        tacit_status status =
            plan.kind == CPU_WINDOW_MAX ? lower_max_volume(c, &p, &z) : OP_LOWER_NO_KERNEL;
        return status == OP_LOWER_NO_KERNEL ? lower_pool_volume(c, &p, &z, &plan) : status;
    }
    plan.planes *= z.in;
    cpu_window_args *a;
    TRY(emit_window(c, &p, &plan, &a));
    op_lower_note(c, "window_f32_%s, plane by plane", cpu_isa_name(c->cpu.isa));
    return TACIT_OK;
}

tacit_status op_lower_lp_pool(op_lower *c)
{
    op_window w;
    op_plane p;
    int64_t power = ir_attr_int(c->node, "p", 2);
    if (c->in[0].type.dtype != TACIT_F32 || (power != 1 && power != 2))
        return OP_LOWER_NO_KERNEL;
    TRY(op_window_read(c->node, &c->in[0].type.shape, NULL, &w, c->err));
    if (ir_shape_size(&c->out[0].type.shape) == 0)
        return TACIT_OK;
    if (!op_plane_of(&w, &p))
        return OP_LOWER_NO_KERNEL;
    const int64_t *x = c->in[0].type.shape.dims;
    cpu_window_args *a, plan = {.planes = x[0] * x[1],
                                .channels = x[1],
                                .multiplier = 1,
                                .kind = power == 1 ? CPU_WINDOW_L1 : CPU_WINDOW_L2};
    TRY(emit_window(c, &p, &plan, &a));
    op_lower_note(c, "window_f32_%s, plane by plane", cpu_isa_name(c->cpu.isa));
    return TACIT_OK;
}

tacit_status op_lower_pool_grad(op_lower *c)
{
    op_window w;
    op_plane p;
    if (c->in[0].type.dtype != TACIT_F32)
        return OP_LOWER_NO_KERNEL;
    TRY(op_window_read(c->node, &c->in[0].type.shape, NULL, &w, c->err));
    if (ir_shape_size(&c->out[0].type.shape) == 0)
        return TACIT_OK;
    if (!op_plane_of(&w, &p))
        return OP_LOWER_NO_KERNEL;
    bool max = c->node->type[0] == 'M', all = ir_attr_int(c->node, "count_include_pad", 0) != 0;
    const int64_t *x = c->in[0].type.shape.dims, in = p.in[0] * p.in[1], out = p.out[0] * p.out[1];
    int64_t planes = x[0] * x[1], work = in + out * p.kernel[0] * p.kernel[1];
    int64_t tile = 20000 / (work + 1) + 1;
    cpu_pool_grad_args *a = op_lower_thunk(c, CPU_PICK_NAME(c->cpu.isa, pool_grad_f32),
                                           CPU_PICK(c->cpu.isa, cpu_pool_grad_f32), sizeof *a,
                                           (uint32_t)((planes + tile - 1) / tile));
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = (cpu_pool_grad_args){.planes = planes,
                              .tile = tile,
                              .in_height = p.in[0],
                              .in_width = p.in[1],
                              .out_height = p.out[0],
                              .out_width = p.out[1],
                              .kind = max   ? CPU_WINDOW_MAX
                                      : all ? CPU_WINDOW_AVERAGE_ALL
                                            : CPU_WINDOW_AVERAGE};
    memcpy(a->kernel, p.kernel, sizeof p.kernel);
    memcpy(a->stride, p.stride, sizeof p.stride);
    memcpy(a->dilation, p.dilation, sizeof p.dilation);
    memcpy(a->pad, p.pad, sizeof p.pad);
    uint64_t in_run = (uint64_t)(tile * in) * sizeof(float),
             out_run = (uint64_t)(tile * out) * sizeof(float);
    if (max)
        TRY(op_lower_in_tiled(c, offsetof(cpu_pool_grad_args, x), 0, in_run, in_run));
    TRY(op_lower_in_tiled(c, offsetof(cpu_pool_grad_args, dy), 1, out_run, out_run));
    TRY(op_lower_out_tiled(c, offsetof(cpu_pool_grad_args, dx), 0, in_run, in_run));
    op_lower_cost(c, (double)planes * (double)work,
                  2 * op_lower_bytes(&c->out[0]) + op_lower_bytes(&c->in[1]));
    op_lower_note(c, "pool_grad_f32_%s, plane by plane", cpu_isa_name(c->cpu.isa));
    return TACIT_OK;
}

/* --- products --------------------------------------------------------------------------------- */

/* The padded copy of the input that windows are read from. */
static cpu_window_pad_args plan_pad(const op_plane *p, const op_depth *z, int64_t volumes)
{
    cpu_window_pad_args a = {.in_depth = z->in,
                             .in_height = p->in[0],
                             .in_width = p->in[1],
                             .depth_step = 1,
                             .row_step = 1,
                             .column_step = 1,
                             .pad_front = z->pad,
                             .pad_top = p->pad[0],
                             .pad_left = p->pad[1]};
    /* A kernel of one tap along an axis needs only the positions it steps on. */
    bool single_plane = z->kernel == 1;
    bool single_row = p->kernel[0] == 1, single_column = p->kernel[1] == 1;
    if (single_plane)
        a.depth_step = z->stride;
    if (single_row)
        a.row_step = p->stride[0];
    if (single_column)
        a.column_step = p->stride[1];
    a.phases = single_column ? 1 : p->stride[1];
    int64_t step = single_row ? 1 : p->stride[0];
    int64_t across = (p->out[1] - 1) * a.phases + (p->kernel[1] - 1) * p->dilation[1] + 1;
    a.depth = (z->out - 1) * (single_plane ? 1 : z->stride) + (z->kernel - 1) * z->dilation + 1;
    a.planes = volumes * a.depth;
    a.height = (p->out[0] - 1) * step + (p->kernel[0] - 1) * p->dilation[0] + 1;
    a.width = (across + a.phases - 1) / a.phases;
    a.tile = 65536 / (a.height * a.phases * a.width) + 1;
    return a;
}

/* Where the taps (ky, kx) of one plane lie behind `origin`; returns the end of the list. */
static int32_t *plane_taps(int32_t *to, const op_plane *p, const cpu_window_pad_args *pad,
                           int64_t origin)
{
    int64_t pitch = pad->phases * pad->width;
    for (int64_t ky = 0; ky < p->kernel[0]; ky++)
        for (int64_t kx = 0; kx < p->kernel[1]; kx++) {
            int64_t j = kx * p->dilation[1];
            *to++ = (int32_t)(origin + ky * p->dilation[0] * pitch + j % pad->phases * pad->width +
                              j / pad->phases);
        }
    return to;
}

/* Where tap (channel, kz, ky, kx) lies behind a window's origin. */
static const int32_t *make_taps(op_lower *c, const op_plane *p, const op_depth *z,
                                const cpu_window_pad_args *pad, int64_t channels)
{
    int64_t plane = pad->height * pad->phases * pad->width;
    int64_t taps = z->kernel * p->kernel[0] * p->kernel[1];
    int32_t *first = op_lower_pack(c, (size_t)(channels * taps) * sizeof *first), *to = first;
    for (int64_t ch = 0; to && ch < channels; ch++)
        for (int64_t kz = 0; kz < z->kernel; kz++)
            to = plane_taps(to, p, pad, (ch * pad->depth + kz * z->dilation) * plane);
    return first;
}

static void set_batch(cpu_gemm_args *g, int64_t images, int64_t groups, const int64_t image[3],
                      const int64_t group[4])
{
    const int64_t counts[2] = {images, groups};
    for (int i = 0; i < 2; i++) {
        if (counts[i] == 1)
            continue;
        uint32_t d = g->batch_rank++;
        g->batch_dims[d] = counts[i];
        g->a_batch[d] = i ? group[0] : 0;
        g->b_batch[d] = i ? group[1] : image[1];
        g->c_batch[d] = g->residual_batch[d] = i ? group[2] : image[2];
        g->bias_batch[d] = i ? group[3] : 0;
    }
}

/* Constant weights whose rows would collide in the cache are copied with a gap between rows. */
static tacit_status space_rows(op_lower *c, cpu_gemm_args *g, int64_t rows)
{
    const ir_tensor *w = c->in[1].constant;
    if (!w || !w->data || op_lower_rows_in_set(g->a_row, cpu_gemm_height(c->cpu.isa)) <= 6)
        return TACIT_OK;
    int64_t gap = g->a_row + 16;
    float *to = op_lower_pack(c, (size_t)(rows * gap) * sizeof *to);
    if (!to)
        return TACIT_ERR_MEMORY;
    for (int64_t i = 0; i < rows; i++)
        memcpy(to + i * gap, (const float *)w->data + i * g->k, (size_t)g->k * sizeof *to);
    op_lower_packed_away(c, 1);
    g->a = to;
    g->a_row = gap;
    return TACIT_OK;
}

static tacit_status emit_product(op_lower *c, cpu_gemm_args *g, int64_t batch, size_t padded)
{
    bool apart = op_lower_has(c, 3) && cpu_late_residual(&g->epilogue);
    op_lower_cut(g, batch, c->cpu.isa);
    uint64_t tiles = (uint64_t)g->row_tiles * g->col_tiles * (uint64_t)batch;
    if (tiles > INT32_MAX)
        return OP_LOWER_NO_KERNEL;
    cpu_gemm_args *a =
        op_lower_thunk(c, CPU_PICK_NAME(c->cpu.isa, gemm_f32), CPU_PICK(c->cpu.isa, cpu_gemm_f32),
                       sizeof *a, (uint32_t)tiles);
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = *g;
    if (!g->a)
        TRY(op_lower_in(c, offsetof(cpu_gemm_args, a), 1));
    if (g->taps)
        TRY(op_lower_scratch(c, offsetof(cpu_gemm_args, b), padded, false));
    else
        TRY(op_lower_in(c, offsetof(cpu_gemm_args, b), 0));
    if (op_lower_has(c, 2))
        TRY(op_lower_in(c, offsetof(cpu_gemm_args, bias), 2));
    if (op_lower_has(c, 3))
        TRY(op_lower_in(c, offsetof(cpu_gemm_args, residual), 3));
    TRY(op_lower_out(c, offsetof(cpu_gemm_args, y), 0));
    if (apart)
        TRY(op_lower_scratch(c, offsetof(cpu_gemm_args, c),
                             op_lower_reserve(c, op_lower_bytes(&c->out[0])), true));
    else
        TRY(op_lower_out(c, offsetof(cpu_gemm_args, c), 0));
    op_lower_cost(c, 2.0 * (double)batch * (double)g->m * (double)g->n * (double)g->k,
                  op_lower_all_bytes(c));
    op_lower_note(c, "gemm_f32_%s %lldx%lldx%lld batch %lld, %s, %u tiles",
                  cpu_isa_name(c->cpu.isa), (long long)g->m, (long long)g->n, (long long)g->k,
                  (long long)batch,
                  g->taps ? "windows packed panel by panel" : "pointwise: the image is the matrix",
                  (uint32_t)tiles);
    return TACIT_OK;
}

static tacit_status emit_pad(op_lower *c, const cpu_window_pad_args *pad, size_t *offset)
{
    size_t floats = (size_t)(pad->planes * pad->height * pad->phases * pad->width);
    *offset = op_lower_reserve(c, (floats + CPU_GEMM_SLACK) * sizeof(float));
    uint32_t tiles = (uint32_t)((pad->planes + pad->tile - 1) / pad->tile);
    cpu_window_pad_args *a =
        op_lower_thunk(c, CPU_PICK_NAME(c->cpu.isa, window_pad_f32),
                       CPU_PICK(c->cpu.isa, cpu_window_pad_f32), sizeof *a, tiles);
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = *pad;
    uint64_t run = (uint64_t)(pad->tile * pad->in_height * pad->in_width) * sizeof(float);
    bool same = pad->depth == pad->in_depth && pad->pad_front == 0 && pad->depth_step == 1;
    if (same) /* plane by plane */
        TRY(op_lower_in_tiled(c, offsetof(cpu_window_pad_args, x), 0, run, run));
    else
        TRY(op_lower_in(c, offsetof(cpu_window_pad_args, x), 0));
    TRY(op_lower_scratch(c, offsetof(cpu_window_pad_args, to), *offset, true));
    op_lower_cost(c, 0, op_lower_bytes(&c->in[0]) + floats * sizeof(float));
    return TACIT_OK;
}

/* Weights [channels][k] packed as the panels of a k × channels matrix. */
static const float *pack_weights(op_lower *c, int64_t channels, int64_t k)
{
    int64_t width = cpu_gemm_width(c->cpu.isa), panels = (channels + width - 1) / width;
    float *packed = op_lower_pack(c, (size_t)(panels * width * k) * sizeof *packed);
    if (!packed)
        return NULL;
    cpu_gemm_pack_args a = {c->in[1].constant->data, packed, channels, k, 1, k, 0, k, 0};
    CPU_PICK(c->cpu.isa, cpu_gemm_pack_f32)(&a, 0, (uint32_t)panels);
    op_lower_packed_away(c, 1);
    return packed;
}

static tacit_status emit_pixels(op_lower *c, const cpu_gemm_args *g, int64_t images,
                                int64_t image_step, size_t padded)
{
    cpu_isa isa = c->cpu.isa;
    cpu_pixels_args p = {.taps = g->taps,
                         .out_width = g->out_width,
                         .out_height = g->out_height,
                         .pixel_row = g->pixel_row,
                         .pixel_plane = g->pixel_plane,
                         .pixels = g->n,
                         .channels = g->m,
                         .k = g->k,
                         .image_step = image_step,
                         .epilogue = g->epilogue};
    p.packed = pack_weights(c, p.channels, p.k);
    if (!p.packed)
        return TACIT_ERR_MEMORY;
    /* Windows are packed again for every tile: many channels make that cheap. */
    int64_t blocks = p.channels / 128 < 1 ? 1 : p.channels / 128, width = cpu_gemm_width(isa);
    blocks = blocks > 8 ? 8 : blocks;
    p.tile_cols = ((p.channels + blocks - 1) / blocks + width - 1) / width * width;
    p.col_tiles = (uint32_t)((p.channels + p.tile_cols - 1) / p.tile_cols);
    cpu_pixels_args *a =
        op_lower_thunk(c, CPU_PICK_NAME(isa, pixels_f32), CPU_PICK(isa, cpu_pixels_f32), sizeof *a,
                       p.col_tiles * (uint32_t)images);
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = p;
    size_t sums = (size_t)((images * p.pixels + CPU_PIXELS_SLACK) * p.channels) * sizeof(float);
    if (p.taps)
        TRY(op_lower_scratch(c, offsetof(cpu_pixels_args, x), padded, false));
    else
        TRY(op_lower_in(c, offsetof(cpu_pixels_args, x), 0));
    TRY(op_lower_scratch(c, offsetof(cpu_pixels_args, sums), op_lower_reserve(c, sums), true));
    if (op_lower_has(c, 2))
        TRY(op_lower_in(c, offsetof(cpu_pixels_args, bias), 2));
    if (op_lower_has(c, 3))
        TRY(op_lower_in(c, offsetof(cpu_pixels_args, residual), 3));
    TRY(op_lower_out(c, offsetof(cpu_pixels_args, y), 0));
    op_lower_cost(c, 2.0 * (double)(images * p.pixels) * (double)(p.channels * p.k),
                  op_lower_bytes(&c->in[0]) + op_lower_bytes(&c->in[1]) +
                      op_lower_bytes(&c->out[0]));
    op_lower_note(c,
                  "pixels_f32_%s: %lld pixels as rows, %lld channels as columns; gemm_f32 would "
                  "leave %lld of its last %lld columns unused",
                  cpu_isa_name(isa), (long long)p.pixels, (long long)p.channels,
                  (long long)((width - p.pixels % width) % width), (long long)width);
    return TACIT_OK;
}

/* Few pixels that do not fill panels, and weights that can be packed for them. */
static bool suits_pixels(const op_lower *c, const op_conv *conv, int64_t pixels)
{
    const ir_tensor *w = c->in[1].constant;
    int64_t width = cpu_gemm_width(c->cpu.isa), used = (pixels + width - 1) / width * width;
    return w && w->data && conv->group == 1 && conv->m >= 32 && pixels <= 100 &&
           used * 10 > pixels * 11;
}

static bool is_pointwise(const op_conv *conv)
{
    for (int32_t i = 0; i < conv->w.rank; i++)
        if (conv->w.stride[i] != 1)
            return false;
    return conv->w.taps == 1 && conv->w.out_size == conv->w.in_size;
}

static tacit_status lower_product(op_lower *c, const op_conv *conv, const op_plane *p,
                                  const op_depth *z)
{
    int64_t cg = conv->c / conv->group, mg = conv->m / conv->group;
    int64_t taps = conv->w.taps, pixels = conv->w.out_size;
    cpu_gemm_args g = {.m = mg,
                       .n = pixels,
                       .k = cg * taps,
                       .a_row = cg * taps,
                       .a_col = 1,
                       .b_row = pixels,
                       .b_col = 1,
                       .c_row = pixels,
                       .residual_row = pixels};
    TRY(op_lower_epilogue(c, &g.epilogue));
    if (op_lower_has(c, 2))
        g.epilogue.bias = CPU_BIAS_ROW;
    int64_t volume = pixels; /* of one channel */
    size_t offset = 0;
    bool few = suits_pixels(c, conv, pixels);
    if (!few)
        TRY(space_rows(c, &g, conv->m));
    if (!is_pointwise(conv)) {
        cpu_window_pad_args pad = plan_pad(p, z, conv->n * conv->c);
        int64_t plane = pad.height * pad.phases * pad.width;
        volume = pad.depth * plane;
        if (cg * volume > INT32_MAX || pad.planes > INT32_MAX)
            return OP_LOWER_NO_KERNEL;
        g.taps = make_taps(c, p, z, &pad, cg);
        if (!g.taps)
            return TACIT_ERR_MEMORY;
        g.out_width = p->out[1];
        g.out_height = p->out[0];
        g.pixel_row = pad.phases * pad.width * (p->kernel[0] == 1 ? 1 : p->stride[0]);
        if (z->out > 1)
            g.pixel_plane = plane * (z->kernel == 1 ? 1 : z->stride);
        TRY(emit_pad(c, &pad, &offset));
    }
    if (few)
        return emit_pixels(c, &g, conv->n, conv->c * volume, offset);
    set_batch(&g, conv->n, conv->group, (int64_t[]){0, conv->c * volume, conv->m * pixels},
              (int64_t[]){mg * g.a_row, cg * volume, mg * pixels, mg});
    return emit_product(c, &g, conv->n * conv->group, offset);
}

tacit_status op_lower_conv(op_lower *c)
{
    op_conv conv;
    op_plane p;
    op_depth z;
    if (!op_lower_all_f32(c))
        return OP_LOWER_NO_KERNEL;
    TRY(op_conv_plan(c->node, &c->in[0].type.shape, &c->in[1].type.shape, &conv, c->err));
    if (ir_shape_size(&c->out[0].type.shape) == 0)
        return TACIT_OK;
    if (!op_volume_of(&conv.w, &p, &z) || conv.c == 0)
        return OP_LOWER_NO_KERNEL;
    if (conv.group == conv.c && conv.c > 1 && conv.w.rank < 3) {
        tacit_status status = lower_depthwise(c, &conv, &p);
        if (status != OP_LOWER_NO_KERNEL)
            return status;
    }
    if (op_winograd_suits(c, &conv))
        return op_lower_winograd(c, &conv);
    return lower_product(c, &conv, &p, &z);
}
