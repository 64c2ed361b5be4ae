/* SPDX-License-Identifier: Apache-2.0
 * Reductions and global pooling (cpu/reduce.h). */
#include <string.h>

#include "cpu/reduce.h"
#include "op/lowerings.h"
#include "op/view.h"

static const struct {
    const char *name;
    cpu_reduction op;
} reductions[] = {
    {"ReduceSum", CPU_REDUCE_SUM},        {"ReduceMean", CPU_REDUCE_MEAN},
    {"ReduceMax", CPU_REDUCE_MAX},        {"ReduceMin", CPU_REDUCE_MIN},
    {"ReduceProd", CPU_REDUCE_PROD},      {"ReduceL1", CPU_REDUCE_L1},
    {"ReduceL2", CPU_REDUCE_L2},          {"ReduceSumSquare", CPU_REDUCE_SQUARES},
    {"ReduceLogSum", CPU_REDUCE_LOG_SUM}, {"GlobalAveragePool", CPU_REDUCE_MEAN},
    {"GlobalMaxPool", CPU_REDUCE_MAX},    {"ReduceLogSumExp", CPU_REDUCE_LOG_SUM_EXP},
};

static bool find_reduction(const ir_node *node, cpu_reduction *op)
{
    if (strcmp(node->type, "GlobalLpPool") == 0) {
        int64_t p = ir_attr_int(node, "p", 2);
        *op = p == 1 ? CPU_REDUCE_L1 : CPU_REDUCE_L2;
        return p == 1 || p == 2;
    }
    for (size_t i = 0; i < sizeof reductions / sizeof *reductions; i++)
        if (strcmp(node->type, reductions[i].name) == 0) {
            *op = reductions[i].op;
            return true;
        }
    return false;
}

/* Which axes go; false when only the data can tell, or when nothing is reduced. */
static bool reduced_axes(const ir_node *node, int32_t rank, uint32_t *mask)
{
    if (strncmp(node->type, "Global", 6) == 0) { /* everything behind batch and channel */
        *mask = (1u << rank) - 4;
        return rank > 2;
    }
    const ir_value *given = node->n_inputs > 1 ? node->inputs[1] : NULL;
    const ir_tensor *axes = given ? ir_value_known(given) : NULL;
    if (given && !axes)
        return false;
    op_axes list = {0};
    if (axes && op_read_axes(axes, rank, &list, NULL) != TACIT_OK)
        return false;
    *mask = list.mask;
    if (list.count == 0) {
        if (ir_attr_int(node, "noop_with_empty_axes", 0))
            return false;
        *mask = (1u << rank) - 1;
    }
    return rank > 0;
}

bool op_accepts_reduce(const ir_node *node, uint32_t in, const op_operand *view)
{
    cpu_reduction op;
    uint32_t mask;
    return in == 0 && view->type.dtype == TACIT_F32 && find_reduction(node, &op) &&
           reduced_axes(node, view->type.shape.rank, &mask);
}

/* Axes of x in (`reduced`) or outside of the mask, reduced to the fewest. `y` steps stay dense. */
static uint32_t gather_axes(const op_operand *x, uint32_t mask, bool reduced, int64_t tile,
                            cpu_nd *nd)
{
    int64_t dims[IR_MAX_RANK], from[IR_MAX_RANK], to[IR_MAX_RANK], step = 1;
    int32_t n = 0, rank = x->type.shape.rank;
    for (int32_t d = 0; d < rank; d++)
        if ((mask >> d & 1) == (uint32_t)reduced) {
            dims[n] = x->type.shape.dims[d];
            from[n++] = x->strides[d];
        }
    for (int32_t d = n; d-- > 0;) {
        to[d] = step;
        step *= dims[d];
    }
    cpu_nd_begin(nd, n, dims);
    cpu_nd_operand(nd, from);
    if (!reduced)
        cpu_nd_operand(nd, to);
    return cpu_nd_ready(nd, tile);
}

tacit_status op_lower_reduce(op_lower *c)
{
    const op_operand *x = &c->in[0];
    cpu_reduce_args p = {0};
    uint32_t mask;
    if (x->type.dtype != TACIT_F32 || !find_reduction(c->node, &p.op) ||
        !reduced_axes(c->node, x->type.shape.rank, &mask))
        return OP_LOWER_NO_KERNEL;
    cpu_nd away;
    int64_t results = ir_shape_size(&c->out[0].type.shape);
    int64_t total = ir_shape_size(&x->type.shape);
    if (total == 0)
        return OP_LOWER_NO_KERNEL; /* reductions of nothing are the evaluator's */
    p.count = total / results;
    (void)gather_axes(x, mask, true, total, &away);
    p.rank = away.rank;
    memcpy(p.dims, away.dims, sizeof p.dims);
    memcpy(p.strides, away.strides[0], sizeof p.strides);
    int64_t tile = 65536 / p.count < 1 ? 1 : 65536 / p.count;
    uint32_t tiles = gather_axes(x, mask, false, tile < 64 ? 64 : tile, &p.nd);
    int32_t inner = p.nd.rank - 1;
    p.along = p.nd.strides[0][inner] == 1 && p.strides[p.rank - 1] != 1;
    if (!p.along && p.count > 1024) /* rows are long enough to be tiles of their own */
        tiles = gather_axes(x, mask, false, tile, &p.nd);
    cpu_reduce_args *a = op_lower_thunk(c, CPU_PICK_NAME(c->cpu.isa, reduce_f32),
                                        CPU_PICK(c->cpu.isa, cpu_reduce_f32), sizeof *a, tiles);
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = p;
    uint64_t run = (uint64_t)cpu_nd_tile_elements(&p.nd) * sizeof(float);
    TRY(op_lower_in(c, offsetof(cpu_reduce_args, x), 0));
    TRY(op_lower_out_tiled(c, offsetof(cpu_reduce_args, y), 0, run, run));
    op_lower_cost(c, (double)total, op_lower_bytes(x) + op_lower_bytes(&c->out[0]));
    op_lower_note(c, "reduce_f32_%s %s: %lld elements behind each of %lld results",
                  cpu_isa_name(c->cpu.isa),
                  p.along ? "beside each other, a vector of results at a time" : "one by one",
                  (long long)p.count, (long long)results);
    return TACIT_OK;
}
