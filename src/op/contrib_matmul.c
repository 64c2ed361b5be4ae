/* SPDX-License-Identifier: Apache-2.0
 * com.microsoft: FusedMatMul and MatMulNBits. */
#include <string.h>

#include "op/build.h"
#include "op/gemm.h"
#include "op/strip.h"
#include "op/values.h"
#include "op/vjp.h"

/* --- FusedMatMul: transBatch moves the first axis of the batch next to the last -----------------
 */

/* The operand as MatMul reads it: transBatch turns [M, b…, K] into [b…, M, K] (M stays a row axis).
 * Returns the shape; a copy is made only when the axes really move. */
static tacit_status batch_oriented(op_eval *c, const ir_tensor *x, bool move, ir_tensor *out)
{
    *out = *x;
    int32_t rank = x->shape.rank;
    if (!move || rank < 3)
        return TACIT_OK;
    int64_t strides[IR_MAX_RANK], rows = x->shape.dims[0], last = x->shape.dims[rank - 1];
    ir_shape_strides(&x->shape, strides);
    ir_shape s = x->shape;
    for (int32_t i = 0; i < rank - 2; i++)
        s.dims[i] = x->shape.dims[i + 1];
    s.dims[rank - 2] = rows;
    double *v;
    TRY(op_scratch_f64(c, ir_shape_size(&s), &v));
    int64_t batch = rows && last ? ir_shape_size(&s) / (rows * last) : 0;
    for (int64_t b = 0; b < batch; b++)
        for (int64_t r = 0; r < rows; r++)
            op_strip_load_f64(x->dtype, x->data, r * strides[0] + b * last, 1, last,
                              v + (b * rows + r) * last);
    *out = ir_tensor_view(TACIT_F64, &s, v);
    return TACIT_OK;
}

static ir_shape batch_shape(const ir_shape *x, bool move)
{
    ir_shape s = *x;
    for (int32_t i = 0; move && x->rank > 2 && i < x->rank - 2; i++)
        s.dims[i] = x->dims[i + 1];
    if (move && x->rank > 2)
        s.dims[s.rank - 2] = x->dims[0];
    return s;
}

static op_matmul fused_plan(const ir_node *node)
{
    return (op_matmul){.trans_a = ir_attr_int(node, "transA", 0) != 0,
                       .trans_b = ir_attr_int(node, "transB", 0) != 0};
}

static tacit_status fused_infer(op_infer *c)
{
    op_matmul p = fused_plan(c->node);
    ir_shape a = batch_shape(&c->in[0]->shape, ir_attr_int(c->node, "transBatchA", 0) != 0);
    ir_shape b = batch_shape(&c->in[1]->shape, ir_attr_int(c->node, "transBatchB", 0) != 0);
    TRY(op_need_float(c, 0));
    TRY(op_check_same_dtype(c));
    TRY(op_matmul_plan(&p, &a, &b, c->err));
    op_set_out(c, 0, c->in[0]->dtype, &p.y);
    return TACIT_OK;
}

static tacit_status fused_eval(op_eval *c)
{
    op_matmul p = fused_plan(c->node);
    ir_tensor a, b;
    double alpha = ir_attr_float(c->node, "alpha", 1), *y;
    TRY(batch_oriented(c, op_in(c, 0), ir_attr_int(c->node, "transBatchA", 0) != 0, &a));
    TRY(batch_oriented(c, op_in(c, 1), ir_attr_int(c->node, "transBatchB", 0) != 0, &b));
    TRY(op_matmul_plan(&p, &a.shape, &b.shape, c->err));
    int64_t count = ir_shape_size(&p.y);
    TRY(op_scratch_f64(c, count, &y));
    TRY(op_matmul_f64(c, &p, &a, &b, y));
    for (int64_t i = 0; i < count; i++)
        y[i] *= alpha;
    op_output_f64(c, 0, y);
    return TACIT_OK;
}

static ir_value *turned(ir_graph *g, ir_value *x, bool swap, bool batch)
{
    int32_t rank = x->type.shape.rank;
    int64_t perm[IR_MAX_RANK];
    if (rank < 2 || (!swap && !(batch && rank > 2)))
        return x;
    for (int32_t i = 0; i < rank; i++)
        perm[i] = i;
    for (int32_t i = 0; batch && i < rank - 2; i++)
        perm[i] = i + 1;
    if (batch && rank > 2)
        perm[rank - 2] = 0;
    if (swap) {
        int64_t t = perm[rank - 1];
        perm[rank - 1] = perm[rank - 2];
        perm[rank - 2] = t;
    }
    return op_build_transpose(g, x, rank, perm);
}

static tacit_status fused_decompose(ir_graph *g, ir_node *node, tacit_error *err)
{
    double alpha = ir_attr_float(node, "alpha", 1);
    ir_value *a = turned(g, node->inputs[0], ir_attr_int(node, "transA", 0) != 0,
                         ir_attr_int(node, "transBatchA", 0) != 0);
    ir_value *b = turned(g, node->inputs[1], ir_attr_int(node, "transB", 0) != 0,
                         ir_attr_int(node, "transBatchB", 0) != 0);
    ir_value *y = op_build2(g, "MatMul", a, b);
    if (alpha != 1)
        y = op_build2(g, "Mul", y, op_build_scalar(g, node->inputs[0]->type.dtype, alpha));
    TRY(op_build_finish(g, node, 0, y, err));
    ir_node_kill(node);
    return TACIT_OK;
}

/* --- MatMulNBits: B [N, blocks, bytes] holds packed unsigned integers, low bits first -----------
 */

typedef struct nbits {
    int64_t n, k, bits, block, blocks, bytes; /* bytes of one block */
    ir_shape y;
} nbits;

static tacit_status nbits_read(const ir_node *node, const ir_shape *a, nbits *p, tacit_error *err)
{
    p->n = ir_attr_int(node, "N", 0);
    p->k = ir_attr_int(node, "K", 0);
    p->bits = ir_attr_int(node, "bits", 4);
    p->block = ir_attr_int(node, "block_size", 0);
    if (p->n < 1 || p->k < 1 || p->block < 1 || p->block > INT32_MAX ||
        (p->bits != 2 && p->bits != 4 && p->bits != 8) || p->block * p->bits % 8)
        return error_set(err, TACIT_ERR_VALUE, "N %lld, K %lld, bits %lld, block_size %lld",
                         (long long)p->n, (long long)p->k, (long long)p->bits, (long long)p->block);
    p->blocks = (p->k + p->block - 1) / p->block;
    p->bytes = p->block * p->bits / 8;
    if (a->rank < 1 || a->dims[a->rank - 1] != p->k)
        return error_set(err, TACIT_ERR_SHAPE, "A's last axis is not K = %lld", (long long)p->k);
    p->y = *a;
    p->y.dims[a->rank - 1] = p->n;
    return TACIT_OK;
}

static tacit_status nbits_infer(op_infer *c)
{
    nbits p;
    TRY(op_need_float(c, 0));
    TRY(nbits_read(c->node, &c->in[0]->shape, &p, c->err));
    const ir_type *zero = op_in_type(c, 3);
    int64_t packed = (p.blocks * p.bits + 7) / 8;
    if (c->in[1]->dtype != TACIT_U8 || ir_shape_size(&c->in[1]->shape) != p.n * p.blocks * p.bytes)
        return error_set(c->err, TACIT_ERR_SHAPE, "B must be u8 [%lld,%lld,%lld]", (long long)p.n,
                         (long long)p.blocks, (long long)p.bytes);
    if (ir_shape_size(&c->in[2]->shape) != p.n * p.blocks)
        return error_set(c->err, TACIT_ERR_SHAPE, "scales must have %lld entries",
                         (long long)(p.n * p.blocks));
    if (zero && ir_shape_size(&zero->shape) != p.n * (zero->dtype == TACIT_U8 ? packed : p.blocks))
        return error_set(c->err, TACIT_ERR_SHAPE, "zero_points have the wrong size");
    const ir_type *groups = op_in_type(c, 4);
    if (groups && (ir_shape_size(&groups->shape) < p.k || !ir_dtype_is_int(groups->dtype)))
        return error_set(c->err, TACIT_ERR_SHAPE, "g_idx must have K integers");
    TRY(op_need_shape(c, 5, 1, &p.n));
    op_set_out(c, 0, c->in[0]->dtype, &p.y);
    return TACIT_OK;
}

/* Field `i` of a row of packed integers. */
static double packed_at(const uint8_t *row, int64_t bits, int64_t i)
{
    int64_t at = i * bits;
    return row[at / 8] >> at % 8 & ((1 << bits) - 1);
}

/* Row `r` of B as K doubles. */
static tacit_status nbits_row(op_eval *c, const nbits *p, int64_t r, double *to)
{
    const ir_tensor *b = op_in(c, 1), *scale = op_in(c, 2), *zero = op_in(c, 3), *g = op_in(c, 4);
    const uint8_t *row = (const uint8_t *)b->data + r * p->blocks * p->bytes;
    int64_t packed = (p->blocks * p->bits + 7) / 8;
    for (int64_t i = 0; i < p->k; i++) {
        int64_t group = g ? ir_load_i64(g->dtype, g->data, i) : i / p->block;
        if (group < 0 || group >= p->blocks)
            return error_set(c->err, TACIT_ERR_VALUE, "g_idx[%lld] is %lld", (long long)i,
                             (long long)group);
        double z = (double)(1 << (p->bits - 1));
        if (zero && zero->dtype == TACIT_U8)
            z = packed_at((const uint8_t *)zero->data + r * packed, p->bits, group);
        else if (zero)
            z = ir_load_f64(zero->dtype, zero->data, r * p->blocks + group);
        to[i] = (packed_at(row, p->bits, i) - z) *
                ir_load_f64(scale->dtype, scale->data, r * p->blocks + group);
    }
    return TACIT_OK;
}

static tacit_status nbits_eval(op_eval *c)
{
    nbits p;
    double *a, *bias, *row, *y;
    TRY(nbits_read(c->node, &op_in(c, 0)->shape, &p, c->err));
    TRY(op_input_f64(c, 0, &a));
    TRY(op_input_f64(c, 5, &bias));
    TRY(op_scratch_f64(c, p.k, &row));
    TRY(op_scratch_f64(c, ir_shape_size(&p.y), &y));
    int64_t rows = ir_shape_size(&p.y) / p.n;
    for (int64_t n = 0; n < p.n; n++) {
        TRY(nbits_row(c, &p, n, row));
        for (int64_t m = 0; m < rows; m++) {
            double sum = bias ? bias[n] : 0;
            for (int64_t k = 0; k < p.k; k++)
                sum += a[m * p.k + k] * row[k];
            y[m * p.n + n] = sum;
        }
    }
    op_output_f64(c, 0, y);
    return TACIT_OK;
}

const op_def op_rows_contrib_matmul[] = {
    {.name = "FusedMatMul",
     .domain = "com.microsoft",
     .min_in = 2,
     .max_in = 2,
     .min_out = 1,
     .max_out = 1,
     .infer = fused_infer,
     .eval = fused_eval,
     .decompose = fused_decompose},
    {.name = "MatMulNBits",
     .domain = "com.microsoft",
     .min_in = 3,
     .max_in = 6,
     .min_out = 1,
     .max_out = 1,
     .infer = nbits_infer,
     .eval = nbits_eval,
     .vjp = op_vjp_packed_matmul},
    {0},
};
