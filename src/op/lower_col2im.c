/* SPDX-License-Identifier: Apache-2.0
 * Windows that lie on the result: ConvTranspose is a product that makes columns, which are then
 * added where their windows lie; Col2Im is the second half alone. */
#include <string.h>

#include "cpu/gemm.h"
#include "cpu/window.h"
#include "op/conv.h"
#include "op/lowerings.h"

/* The thunk without its columns and bias. */
static tacit_status emit_col2im(op_lower *c, const op_plane *p, const op_depth *z, int64_t planes,
                                int64_t channels)
{
    cpu_col2im_args plan = {.planes = planes,
                            .channels = channels,
                            .depth = {z->in, z->out, z->kernel, z->stride, z->dilation, z->pad},
                            .height = p->in[0],
                            .width = p->in[1],
                            .across = {p->out[0], p->out[1]},
                            .phase = (p->in[1] + p->stride[1] - 1) / p->stride[1]};
    memcpy(plan.kernel, p->kernel, sizeof plan.kernel);
    memcpy(plan.stride, p->stride, sizeof plan.stride);
    memcpy(plan.dilation, p->dilation, sizeof plan.dilation);
    memcpy(plan.pad, p->pad, sizeof plan.pad);
    int64_t taps = z->kernel * p->kernel[0] * p->kernel[1];
    int64_t positions = z->out * p->out[0] * p->out[1];
    int64_t over = taps / (z->stride * p->stride[0] * p->stride[1]); /* windows on an element */
    plan.tile = 40000 / (plan.width * (1 + over)) + 1;
    int64_t tiles = (planes * z->in * plan.height + plan.tile - 1) / plan.tile;
    if (tiles > INT32_MAX)
        return OP_LOWER_NO_KERNEL;
    cpu_col2im_args *a =
        op_lower_thunk(c, CPU_PICK_NAME(c->cpu.isa, col2im_f32),
                       CPU_PICK(c->cpu.isa, cpu_col2im_f32), sizeof *a, (uint32_t)tiles);
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = plan;
    uint64_t run = (uint64_t)(plan.tile * plan.width) * sizeof(float);
    op_lower_cost(c, (double)(planes * taps) * (double)positions,
                  (uint64_t)(planes * taps * positions) * sizeof(float) +
                      op_lower_bytes(&c->out[0]));
    return op_lower_out_tiled(c, offsetof(cpu_col2im_args, y), 0, run, run);
}

/* Does a row of the image fit the kernel's buffer? Not so wide a stride that its phases do not. */
static bool fits(const op_plane *p)
{
    return p->in[1] + 2 * p->stride[1] <= CPU_COL2IM_BUFFER;
}

/* Constant weights [C][M·taps] as the rows [group][M·taps][C] of the product's left side. */
static tacit_status turn_weights(op_lower *c, const op_conv *conv, cpu_gemm_args *g)
{
    const ir_tensor *w = c->in[1].constant;
    if (!w || !w->data)
        return TACIT_OK;
    float *to = op_lower_pack(c, (size_t)(conv->c * g->m) * sizeof *to);
    if (!to)
        return TACIT_ERR_MEMORY;
    const float *from = w->data;
    for (int64_t ch = 0; ch < conv->c; ch++)
        for (int64_t i = 0; i < g->m; i++)
            to[(ch / g->k * g->m + i) * g->k + ch % g->k] = from[ch * g->m + i];
    op_lower_packed_away(c, 1);
    g->a = to;
    g->a_row = g->k;
    g->a_col = 1;
    return TACIT_OK;
}

static tacit_status emit_columns(op_lower *c, const op_conv *conv, size_t *columns)
{
    int64_t cg = conv->c / conv->group, mg = conv->m / conv->group, taps = conv->w.taps;
    int64_t pixels = conv->w.out_size, batch = conv->n * conv->group;
    cpu_gemm_args g = {.m = mg * taps,
                       .n = pixels,
                       .k = cg,
                       .a_row = 1,
                       .a_col = mg * taps,
                       .b_row = pixels,
                       .b_col = 1,
                       .c_row = pixels,
                       .batch_rank = 2,
                       .batch_dims = {conv->n, conv->group},
                       .a_batch = {0, cg * mg * taps},
                       .b_batch = {conv->c * pixels, cg * pixels},
                       .c_batch = {conv->m * taps * pixels, mg * taps * pixels}};
    g.epilogue.alpha = 1;
    TRY(turn_weights(c, conv, &g));
    op_lower_cut(&g, batch, c->cpu.isa);
    uint64_t tiles = (uint64_t)g.row_tiles * g.col_tiles * (uint64_t)batch;
    if (tiles > INT32_MAX)
        return OP_LOWER_NO_KERNEL;
    uint64_t bytes = (uint64_t)(conv->n * conv->m * taps * pixels) * sizeof(float);
    *columns = op_lower_reserve(c, bytes);
    cpu_gemm_args *a =
        op_lower_thunk(c, CPU_PICK_NAME(c->cpu.isa, gemm_f32), CPU_PICK(c->cpu.isa, cpu_gemm_f32),
                       sizeof *a, (uint32_t)tiles);
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = g;
    if (!g.a)
        TRY(op_lower_in(c, offsetof(cpu_gemm_args, a), 1));
    TRY(op_lower_in(c, offsetof(cpu_gemm_args, b), 0));
    TRY(op_lower_scratch(c, offsetof(cpu_gemm_args, c), *columns, true));
    TRY(op_lower_scratch(c, offsetof(cpu_gemm_args, y), *columns, true));
    op_lower_cost(c, 2.0 * (double)batch * (double)g.m * (double)g.n * (double)g.k,
                  op_lower_bytes(&c->in[0]) + op_lower_bytes(&c->in[1]) + bytes);
    op_lower_note(c, "gemm_f32_%s %lldx%lldx%lld batch %lld makes columns, col2im_f32 adds them up",
                  cpu_isa_name(c->cpu.isa), (long long)g.m, (long long)g.n, (long long)g.k,
                  (long long)batch);
    return TACIT_OK;
}

tacit_status op_lower_conv_transpose(op_lower *c)
{
    op_conv conv;
    op_plane p;
    op_depth z;
    size_t columns;
    if (!op_lower_all_f32(c))
        return OP_LOWER_NO_KERNEL;
    TRY(op_conv_transpose_plan(c->node, &c->in[0].type.shape, &c->in[1].type.shape, &conv, c->err));
    if (ir_shape_size(&c->out[0].type.shape) == 0)
        return TACIT_OK;
    if (!op_volume_of(&conv.w, &p, &z) || !fits(&p) || conv.c == 0 || conv.w.out_size == 0)
        return OP_LOWER_NO_KERNEL;
    TRY(emit_columns(c, &conv, &columns));
    TRY(emit_col2im(c, &p, &z, conv.n * conv.m, conv.m));
    if (op_lower_has(c, 2))
        TRY(op_lower_in(c, offsetof(cpu_col2im_args, bias), 2));
    return op_lower_scratch(c, offsetof(cpu_col2im_args, columns), columns, false);
}

tacit_status op_lower_col2im(op_lower *c)
{
    const ir_tensor *image = c->in[1].constant, *block = c->in[2].constant;
    const ir_shape *x = &c->in[0].type.shape;
    op_window w;
    op_plane p;
    op_depth z;
    if (c->in[0].type.dtype != TACIT_F32 || !image || !image->data || !block || !block->data)
        return OP_LOWER_NO_KERNEL;
    TRY(op_col2im_window(c->node, x, image, block, &w, c->err));
    if (ir_shape_size(&c->out[0].type.shape) == 0)
        return TACIT_OK;
    if (!op_volume_of(&w, &p, &z) || !fits(&p))
        return OP_LOWER_NO_KERNEL;
    TRY(emit_col2im(c, &p, &z, x->dims[0] * (x->dims[1] / w.taps), 1));
    op_lower_note(c, "col2im_f32_%s: rows of the image, tap by tap", cpu_isa_name(c->cpu.isa));
    return op_lower_in(c, offsetof(cpu_col2im_args, columns), 0);
}
