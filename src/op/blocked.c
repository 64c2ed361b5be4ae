/* SPDX-License-Identifier: Apache-2.0
 * Convolution and pooling on blocked channels, and the way into that layout and out of it. Made by
 * the pass block-channels. Lanes beyond the last channel are zero when they enter; afterwards they
 * hold whatever the ops made of them, and are dropped when they leave. */
#include "op/blocked.h"

#include <math.h>

#include "op/activation.h"
#include "op/build.h"
#include "op/lowerings.h"
#include "op/values.h"

tacit_status op_blocked_plain(const ir_node *node, const ir_shape *x, ir_shape *plain,
                              tacit_error *err)
{
    char text[IR_SHAPE_TEXT];
    if (x->rank == 4) {
        *plain = *x;
        return TACIT_OK;
    }
    int64_t channels = ir_attr_int(node, "channels", -1);
    if (x->rank != 5 || x->dims[4] != OP_BLOCK || channels < 1 || op_blocks(channels) != x->dims[1])
        return error_set(err, TACIT_ERR_SHAPE, "%s is not %lld channels in blocks of %d",
                         ir_shape_text(x, text), (long long)channels, OP_BLOCK);
    *plain = ir_shape_of(4, (int64_t[]){x->dims[0], channels, x->dims[2], x->dims[3]});
    return TACIT_OK;
}

ir_shape op_blocked_shape(const ir_shape *plain)
{
    const int64_t *d = plain->dims;
    return ir_shape_of(5, (int64_t[]){d[0], op_blocks(d[1]), d[2], d[3], OP_BLOCK});
}

tacit_status op_blocked_conv_plan(const ir_node *node, const ir_shape *x, const ir_shape *w,
                                  op_conv *p, tacit_error *err)
{
    ir_shape plain;
    TRY(op_blocked_plain(node, x, &plain, err));
    return op_conv_plan(node, &plain, w, p, err);
}

/* --- the reference ---------------------------------------------------------------------------- */

static void enter(const double *plain, const ir_shape *s, double *blocked)
{
    int64_t pixels = s->dims[2] * s->dims[3], blocks = op_blocks(s->dims[1]);
    for (int64_t n = 0; n < s->dims[0]; n++)
        for (int64_t c = 0; c < s->dims[1]; c++)
            for (int64_t i = 0; i < pixels; i++)
                blocked[((n * blocks + c / OP_BLOCK) * pixels + i) * OP_BLOCK + c % OP_BLOCK] =
                    plain[(n * s->dims[1] + c) * pixels + i];
}

static void leave(const double *blocked, const ir_shape *s, double *plain)
{
    int64_t pixels = s->dims[2] * s->dims[3], blocks = op_blocks(s->dims[1]);
    for (int64_t n = 0; n < s->dims[0]; n++)
        for (int64_t c = 0; c < s->dims[1]; c++)
            for (int64_t i = 0; i < pixels; i++)
                plain[(n * s->dims[1] + c) * pixels + i] =
                    blocked[((n * blocks + c / OP_BLOCK) * pixels + i) * OP_BLOCK + c % OP_BLOCK];
}

static tacit_status plain_input(op_eval *c, const ir_shape *plain, double **x)
{
    TRY(op_input_f64(c, 0, x));
    if (op_in(c, 0)->shape.rank == 4)
        return TACIT_OK;
    double *to;
    TRY(op_scratch_f64(c, ir_shape_size(plain), &to));
    leave(*x, plain, to);
    *x = to;
    return TACIT_OK;
}

/* --- Block, Unblock --------------------------------------------------------------------------- */

static tacit_status block_infer(op_infer *c)
{
    TRY(op_need_float(c, 0));
    TRY(op_need_rank(c, 0, 4));
    ir_shape y = op_blocked_shape(&c->in[0]->shape);
    op_set_out(c, 0, c->in[0]->dtype, &y);
    return TACIT_OK;
}

static tacit_status block_eval(op_eval *c)
{
    double *x, *y;
    ir_shape to = op_blocked_shape(&op_in(c, 0)->shape);
    TRY(op_input_f64(c, 0, &x));
    TRY(op_scratch_f64(c, ir_shape_size(&to), &y));
    enter(x, &op_in(c, 0)->shape, y);
    op_output_f64(c, 0, y);
    return TACIT_OK;
}

static ir_value *build_block(ir_graph *g, ir_value *x, const ir_shape *plain)
{
    const int64_t *d = plain->dims;
    int64_t blocks = op_blocks(d[1]), missing = blocks * OP_BLOCK - d[1];
    if (missing)
        x = op_build2(g, "Pad", x, op_build_ints(g, 8, (int64_t[]){0, 0, 0, 0, 0, missing, 0, 0}));
    x = op_build_reshape(g, x, 5, (int64_t[]){d[0], blocks, OP_BLOCK, d[2], d[3]});
    return op_build_transpose(g, x, 5, (int64_t[]){0, 1, 3, 4, 2});
}

static ir_value *build_unblock(ir_graph *g, ir_value *x, const ir_shape *plain)
{
    const int64_t *d = plain->dims;
    int64_t blocks = op_blocks(d[1]);
    x = op_build_transpose(g, x, 5, (int64_t[]){0, 1, 4, 2, 3});
    x = op_build_reshape(g, x, 4, (int64_t[]){d[0], blocks * OP_BLOCK, d[2], d[3]});
    if (!x || blocks * OP_BLOCK == d[1])
        return x;
    ir_value *in[4] = {x, op_build_ints(g, 1, (int64_t[]){0}),
                       op_build_ints(g, 1, (int64_t[]){d[1]}), op_build_ints(g, 1, (int64_t[]){1})};
    ir_node *slice = in[1] && in[2] && in[3] ? op_node(g, "Slice", NULL, 4, in) : NULL;
    return slice ? slice->outputs[0] : NULL;
}

static tacit_status finish_decompose(ir_graph *g, ir_node *node, ir_value *y, tacit_error *err)
{
    TRY(op_build_finish(g, node, 0, y, err));
    ir_node_kill(node);
    return TACIT_OK;
}

static tacit_status block_decompose(ir_graph *g, ir_node *node, tacit_error *err)
{
    ir_value *x = node->inputs[0];
    return finish_decompose(g, node, build_block(g, x, &x->type.shape), err);
}

static tacit_status unblock_infer(op_infer *c)
{
    ir_shape y;
    TRY(op_need_float(c, 0));
    TRY(op_need_rank(c, 0, 5));
    TRY(op_blocked_plain(c->node, &c->in[0]->shape, &y, c->err));
    op_set_out(c, 0, c->in[0]->dtype, &y);
    return TACIT_OK;
}

static tacit_status unblock_eval(op_eval *c)
{
    ir_shape plain;
    double *x;
    TRY(op_blocked_plain(c->node, &op_in(c, 0)->shape, &plain, c->err));
    TRY(plain_input(c, &plain, &x));
    op_output_f64(c, 0, x);
    return TACIT_OK;
}

static tacit_status unblock_decompose(ir_graph *g, ir_node *node, tacit_error *err)
{
    ir_shape plain;
    ir_value *x = node->inputs[0];
    TRY(op_blocked_plain(node, &x->type.shape, &plain, err));
    return finish_decompose(g, node, build_unblock(g, x, &plain), err);
}

/* --- BlockedConv ------------------------------------------------------------------------------ */

static tacit_status conv_infer(op_infer *c)
{
    op_conv p;
    op_activation act;
    TRY(op_need_float(c, 0));
    TRY(op_check_same_dtype(c));
    TRY(op_blocked_conv_plan(c->node, &c->in[0]->shape, &c->in[1]->shape, &p, c->err));
    if (p.w.rank != 2)
        return error_set(c->err, TACIT_ERR_SHAPE, "two spatial axes are expected");
    ir_shape y = op_blocked_shape(&p.y);
    TRY(op_need_shape(c, 2, 1, &p.m));
    TRY(op_need_shape(c, 3, y.rank, y.dims));
    TRY(op_activation_read(c->node, &act, c->err));
    op_set_out(c, 0, c->in[0]->dtype, &y);
    return TACIT_OK;
}

static tacit_status conv_eval(op_eval *c)
{
    op_conv p;
    ir_shape plain;
    op_activation act;
    double *x, *w, *bias, *residual, *y, *to;
    bool last = ir_attr_int(c->node, "activation_last", 0) != 0;
    TRY(op_activation_read(c->node, &act, c->err));
    TRY(op_blocked_conv_plan(c->node, &op_in(c, 0)->shape, &op_in(c, 1)->shape, &p, c->err));
    TRY(op_blocked_plain(c->node, &op_in(c, 0)->shape, &plain, c->err));
    TRY(plain_input(c, &plain, &x));
    TRY(op_input_f64(c, 1, &w));
    TRY(op_input_f64(c, 2, &bias));
    TRY(op_input_f64(c, 3, &residual));
    ir_shape shape = op_blocked_shape(&p.y);
    int64_t count = ir_shape_size(&shape);
    TRY(op_scratch_f64(c, ir_shape_size(&p.y), &y));
    TRY(op_scratch_f64(c, count, &to));
    TRY(op_conv_f64(c, &p, x, w, y));
    for (int64_t i = 0; bias && i < ir_shape_size(&p.y); i++)
        y[i] += bias[i / p.w.out_size % p.m];
    enter(y, &p.y, to);
    for (int64_t i = 0; i < count; i++) {
        double r = residual ? residual[i] : 0;
        to[i] = last ? op_activation_apply(&act, to[i] + r) : op_activation_apply(&act, to[i]) + r;
    }
    op_output_f64(c, 0, to);
    return TACIT_OK;
}

/* A plain Conv between the two moves. */
static tacit_status conv_decompose(ir_graph *g, ir_node *node, tacit_error *err)
{
    static const char *const kept[] = {"kernel_shape", "strides", "dilations", "pads", "group"};
    op_conv p;
    ir_shape plain;
    op_activation act;
    ir_value *x = node->inputs[0];
    TRY(op_blocked_conv_plan(node, &x->type.shape, &node->inputs[1]->type.shape, &p, err));
    TRY(op_blocked_plain(node, &x->type.shape, &plain, err));
    TRY(op_activation_read(node, &act, err));
    bool bias = node->n_inputs > 2 && node->inputs[2];
    ir_value *residual = node->n_inputs > 3 ? node->inputs[3] : NULL;
    ir_value *in[3] = {x->type.shape.rank == 4 ? x : build_unblock(g, x, &plain), node->inputs[1],
                       bias ? node->inputs[2] : NULL};
    ir_node *conv = in[0] ? op_node(g, "Conv", NULL, bias ? 3 : 2, in) : NULL;
    for (size_t i = 0; conv && i < sizeof kept / sizeof *kept; i++) {
        const ir_attr *a = ir_attr_find(node, kept[i]);
        if (a && !ir_attr_set(g, conv, a))
            conv = NULL;
    }
    bool last = ir_attr_int(node, "activation_last", 0) != 0;
    ir_value *y = conv ? build_block(g, conv->outputs[0], &p.y) : NULL;
    if (residual && last)
        y = op_build2(g, "Add", y, residual);
    if (y)
        y = op_activation_build(g, &act, y, x->type.dtype);
    if (residual && !last)
        y = op_build2(g, "Add", y, residual);
    return finish_decompose(g, node, y, err);
}

/* --- BlockedPool ------------------------------------------------------------------------------ */

static bool is_average(const ir_node *node)
{
    return ir_attr_int(node, "average", 0) != 0;
}

static tacit_status pool_infer(op_infer *c)
{
    op_window w;
    ir_shape plain;
    TRY(op_need_float(c, 0));
    TRY(op_need_rank(c, 0, 5));
    TRY(op_blocked_plain(c->node, &c->in[0]->shape, &plain, c->err));
    TRY(op_window_read(c->node, &plain, NULL, &w, c->err));
    plain.dims[2] = w.out[0];
    plain.dims[3] = w.out[1];
    ir_shape y = op_blocked_shape(&plain);
    op_set_out(c, 0, c->in[0]->dtype, &y);
    return TACIT_OK;
}

static ir_node *plain_pool(ir_graph *g, const ir_node *node, ir_value *x)
{
    static const char *const kept[] = {"kernel_shape", "strides",   "dilations",        "pads",
                                       "auto_pad",     "ceil_mode", "count_include_pad"};
    size_t count = sizeof kept / sizeof *kept - !is_average(node);
    ir_node *pool = op_node(g, is_average(node) ? "AveragePool" : "MaxPool", NULL, 1, &x);
    for (size_t i = 0; pool && i < count; i++) {
        const ir_attr *a = ir_attr_find(node, kept[i]);
        if (a && !ir_attr_set(g, pool, a))
            pool = NULL;
    }
    return pool;
}

/* Counts as padding what the window reaches but declares; a ceil_mode window may reach further. */
static int64_t window_count(const op_window *w, int64_t at, int64_t inside, bool include_pad)
{
    int64_t o[IR_MAX_RANK], count = 1;
    if (!include_pad)
        return inside;
    op_window_unravel(w->rank, w->out, at, o);
    for (int32_t i = 0; i < w->rank; i++) {
        int64_t reached = 0;
        for (int64_t k = 0; k < w->kernel[i]; k++)
            reached += o[i] * w->stride[i] - w->pad_begin[i] + k * w->dilation[i] <
                       w->in[i] + w->pad_end[i];
        count *= reached;
    }
    return count;
}

static tacit_status pool_eval(op_eval *c)
{
    op_window w;
    ir_shape plain;
    double *x, *y;
    int64_t *offsets;
    bool average = is_average(c->node);
    bool all = ir_attr_int(c->node, "count_include_pad", 0) != 0;
    TRY(op_blocked_plain(c->node, &op_in(c, 0)->shape, &plain, c->err));
    TRY(op_window_read(c->node, &plain, NULL, &w, c->err));
    int64_t planes = plain.dims[0] * op_blocks(plain.dims[1]);
    TRY(op_input_f64(c, 0, &x));
    TRY(op_scratch_i64(c, w.taps, &offsets));
    TRY(op_scratch_f64(c, planes * w.out_size * OP_BLOCK, &y));
    for (int64_t at = 0; at < w.out_size; at++) {
        op_window_offsets(&w, at, offsets);
        int64_t inside = 0;
        for (int64_t k = 0; k < w.taps; k++)
            inside += offsets[k] >= 0;
        int64_t count = window_count(&w, at, inside, all);
        for (int64_t i = 0; i < planes * OP_BLOCK; i++) {
            double sum = 0, top = -INFINITY;
            for (int64_t k = 0; k < w.taps; k++) {
                if (offsets[k] < 0)
                    continue;
                int64_t pixel = i / OP_BLOCK * w.in_size + offsets[k];
                double v = x[pixel * OP_BLOCK + i % OP_BLOCK];
                sum += v;
                top = v > top || v != v ? v : top;
            }
            y[(i / OP_BLOCK * w.out_size + at) * OP_BLOCK + i % OP_BLOCK] =
                average ? sum / (double)count : top;
        }
    }
    op_output_f64(c, 0, y);
    return TACIT_OK;
}

static tacit_status pool_decompose(ir_graph *g, ir_node *node, tacit_error *err)
{
    ir_shape plain, y;
    ir_value *x = node->inputs[0];
    TRY(op_blocked_plain(node, &x->type.shape, &plain, err));
    ir_value *from = build_unblock(g, x, &plain);
    ir_node *pool = from ? plain_pool(g, node, from) : NULL;
    y = plain;
    y.dims[2] = node->outputs[0]->type.shape.dims[2];
    y.dims[3] = node->outputs[0]->type.shape.dims[3];
    return finish_decompose(g, node, pool ? build_block(g, pool->outputs[0], &y) : NULL, err);
}

#define ROW(op, least, most, infer_rule, eval_rule, decompose_rule, lower_rule, ...)               \
    {                                                                                              \
        .name = op, .domain = "tacit", .min_in = least, .max_in = most, .min_out = 1,              \
        .max_out = 1, .infer = infer_rule, .eval = eval_rule, .decompose = decompose_rule,         \
        .lower = lower_rule, __VA_ARGS__                                                           \
    }

const op_def op_rows_blocked[] = {
    ROW("Block", 1, 1, block_infer, block_eval, block_decompose, op_lower_block),
    ROW("Unblock", 1, 1, unblock_infer, unblock_eval, unblock_decompose, op_lower_unblock),
    ROW("BlockedConv", 2, 4, conv_infer, conv_eval, conv_decompose, op_lower_blocked_conv,
        .inplace = 8, .flags = OP_LATE_WEIGHTS),
    ROW("BlockedPool", 1, 1, pool_infer, pool_eval, pool_decompose, op_lower_blocked_pool),
    {0},
};
