/* SPDX-License-Identifier: Apache-2.0
 * Ops whose places come from data: Gather, GatherElements, GatherND read by one kernel,
 * ScatterElements, ScatterND, ScatterAdd and OneHot write by another. */
#include <string.h>

#include "cpu/index.h"
#include "op/index.h"
#include "op/lowerings.h"
#include "op/window.h"

_Static_assert((int)CPU_INDEX_DEPTH >= (int)IR_MAX_RANK, "an index for every axis");

/* Are these indices what the kernels read? */
static bool read_places(const op_operand *index, cpu_places *p)
{
    p->narrow = index->type.dtype == TACIT_I32;
    return p->narrow || index->type.dtype == TACIT_I64;
}

static void one_axis(cpu_places *p, int32_t axis, int64_t limit, int64_t step)
{
    p->depth = 1;
    p->axis = axis;
    p->limit[0] = limit;
    p->step[0] = step;
}

static tacit_status bind_places(op_lower *c, size_t where, uint32_t input, bool faults)
{
    TRY(op_lower_in(c, where + offsetof(cpu_places, index), input));
    return faults ? op_lower_fault(c, where + offsetof(cpu_places, fault)) : TACIT_OK;
}

/* --- reading ---------------------------------------------------------------------------------- */

/* Few rows of a large table are better copied from its file: a touched page of a mapped one would
 * bring two megabytes of others into the resident set, in the end the whole table. */
static bool reads_apart(const op_lower *c, int64_t run, file_place *out)
{
    enum { RUN = 512, LARGE = FILE_LARGE / 2 }; /* bytes: what is worth a system call */
    const ir_tensor *t = c->in[0].constant;
    return t && t->data && c->in[0].dense && c->place && run >= RUN && t->bytes >= LARGE &&
           op_lower_bytes(&c->out[0]) < t->bytes / 4 && c->place(c->owner, t->data, t->bytes, out);
}

static tacit_status emit_gather(op_lower *c, cpu_gather_args *g, int32_t rank, const int64_t *dims,
                                const int64_t *from, const int64_t *entries)
{
    int64_t to[IR_MAX_RANK + 1], at = 1;
    for (int32_t d = rank; d-- > 0; at *= dims[d])
        to[d] = at;
    cpu_nd_begin(&g->nd, rank, dims);
    cpu_nd_operand(&g->nd, from);
    cpu_nd_operand(&g->nd, entries);
    cpu_nd_operand(&g->nd, to);
    uint32_t tiles = g->run ? cpu_nd_ready(&g->nd, 131072 / (g->run + 4) + 1) : 0;
    if (tiles == 0)
        return TACIT_OK;
    cpu_gather_args *a = op_lower_thunk(c, "gather", cpu_gather, sizeof *a, tiles);
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = *g;
    uint64_t run = (uint64_t)(cpu_nd_tile_elements(&g->nd) * g->run);
    TRY(op_lower_in(c, offsetof(cpu_gather_args, from), 0));
    TRY(bind_places(c, offsetof(cpu_gather_args, where), 1, true));
    TRY(op_lower_out_tiled(c, offsetof(cpu_gather_args, to), 0, run, run));
    op_lower_cost(c, 0, 2 * op_lower_bytes(&c->out[0]) + op_lower_bytes(&c->in[1]));
    a->apart = reads_apart(c, g->run, &a->file);
    op_lower_note(c, "gather of runs of %lld bytes%s", (long long)g->run,
                  a->apart ? ", copied from the file: its pages do not become resident" : "");
    return TACIT_OK;
}

tacit_status op_lower_gather(op_lower *c)
{
    const ir_shape *x = &c->in[0].type.shape;
    uint32_t size = op_lower_element(c->in[0].type.dtype);
    cpu_gather_args g = {.run = size};
    op_split_axis s;
    if (!size || !read_places(&c->in[1], &g.where))
        return OP_LOWER_NO_KERNEL;
    TRY(op_split_at(x, ir_attr_int(c->node, "axis", 0), &s, c->err));
    g.run = s.inner * size;
    one_axis(&g.where, s.axis, s.size, g.run);
    return emit_gather(c, &g, 2, (int64_t[]){s.outer, ir_shape_size(&c->in[1].type.shape)},
                       (int64_t[]){s.size * g.run, 0}, (int64_t[]){0, 1});
}

bool op_accepts_gather_elements(const ir_node *node, uint32_t in, const op_operand *view)
{
    (void)node;
    return in == 0 && op_lower_element(view->type.dtype);
}

tacit_status op_lower_gather_elements(op_lower *c)
{
    const ir_shape *x = &c->in[0].type.shape, *index = &c->in[1].type.shape;
    uint32_t size = op_lower_element(c->in[0].type.dtype);
    cpu_gather_args g = {.run = size};
    int32_t axis;
    int64_t from[IR_MAX_RANK];
    if (!size || !read_places(&c->in[1], &g.where))
        return OP_LOWER_NO_KERNEL;
    TRY(ir_axis(ir_attr_int(c->node, "axis", 0), x->rank, &axis, c->err));
    for (int32_t d = 0; d < x->rank; d++)
        from[d] = d == axis ? 0 : c->in[0].strides[d] * size;
    one_axis(&g.where, axis, x->dims[axis], c->in[0].strides[axis] * size);
    return emit_gather(c, &g, index->rank, index->dims, from, c->in[1].strides);
}

tacit_status op_lower_gather_nd(op_lower *c)
{
    const ir_shape *x = &c->in[0].type.shape, *index = &c->in[1].type.shape;
    uint32_t size = op_lower_element(c->in[0].type.dtype);
    cpu_gather_args g = {.run = size};
    if (!size || !read_places(&c->in[1], &g.where))
        return OP_LOWER_NO_KERNEL;
    int64_t batch = ir_attr_int(c->node, "batch_dims", 0), batches = 1, rows = 1;
    int64_t strides[IR_MAX_RANK], depth = index->dims[index->rank - 1];
    ir_shape_strides(x, strides);
    for (int32_t d = 0; d + 1 < index->rank; d++)
        *(d < batch ? &batches : &rows) *= index->dims[d];
    for (int64_t d = batch + depth; d < x->rank; d++)
        g.run *= x->dims[d];
    g.where.depth = (uint32_t)depth;
    g.where.axis = (int32_t)batch;
    for (int64_t j = 0; j < depth; j++) {
        g.where.limit[j] = x->dims[batch + j];
        g.where.step[j] = strides[batch + j] * size;
    }
    return emit_gather(c, &g, 2, (int64_t[]){batches, rows},
                       (int64_t[]){batch ? strides[batch - 1] * size : 0, 0}, (int64_t[]){rows, 1});
}

/* --- writing ---------------------------------------------------------------------------------- */

/* The positions of a scatter that cannot meet. */
typedef struct lanes {
    int32_t rank;
    int64_t dims[IR_MAX_RANK], to[IR_MAX_RANK], entries[IR_MAX_RANK], from[IR_MAX_RANK];
} lanes;

static void add_lane(lanes *l, int64_t size, int64_t to, int64_t entries, int64_t from)
{
    l->dims[l->rank] = size;
    l->to[l->rank] = to;
    l->entries[l->rank] = entries;
    l->from[l->rank++] = from;
}

/* Inputs: which holds the indices, which the updates. */
static tacit_status emit_scatter(op_lower *c, cpu_scatter_args *s, const lanes *l, uint32_t index,
                                 uint32_t updates, bool faults)
{
    cpu_nd_begin(&s->nd, l->rank, l->dims);
    cpu_nd_operand(&s->nd, l->to);
    cpu_nd_operand(&s->nd, l->entries);
    cpu_nd_operand(&s->nd, l->from);
    /* Runs that one entry places are better long. */
    enum { RUN = 1024 }; /* bytes */
    int64_t tile = 16384 / (s->n + 1) + 1, least = RUN / s->size;
    if (l->entries[l->rank - 1] == 0 && l->to[l->rank - 1] == 1 && tile < least)
        tile = least;
    uint32_t tiles = s->n ? cpu_nd_ready(&s->nd, tile) : 0;
    if (tiles == 0)
        return TACIT_OK;
    cpu_scatter_args *a = op_lower_thunk(c, "scatter", cpu_scatter, sizeof *a, tiles);
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = *s;
    TRY(op_lower_in(c, offsetof(cpu_scatter_args, from), updates));
    TRY(bind_places(c, offsetof(cpu_scatter_args, where), index, faults));
    TRY(op_lower_out(c, offsetof(cpu_scatter_args, to), 0));
    op_lower_cost(c, 0, 3 * op_lower_bytes(&c->in[updates]) + op_lower_bytes(&c->in[index]));
    op_lower_note(c, "scatter of %lld entries at each of the places that cannot meet",
                  (long long)s->n);
    return TACIT_OK;
}

/* The loop for the node's reduction and type; NULL: none. */
static cpu_combine_fn *combination(const op_lower *c, uint32_t size)
{
    static const cpu_combine of[] = {[OP_COMBINE_SET] = CPU_COMBINE_SET,
                                     [OP_COMBINE_ADD] = CPU_COMBINE_ADD,
                                     [OP_COMBINE_MUL] = CPU_COMBINE_MUL,
                                     [OP_COMBINE_MAX] = CPU_COMBINE_MAX,
                                     [OP_COMBINE_MIN] = CPU_COMBINE_MIN};
    op_combine_kind kind;
    cpu_number number;
    if (op_read_reduction(c->node, &kind, NULL) != TACIT_OK)
        return NULL;
    if (kind == OP_COMBINE_SET)
        return cpu_combine_set(size);
    return op_lower_number(c->out[0].type.dtype, &number) ? cpu_combine_find(of[kind], number)
                                                          : NULL;
}

tacit_status op_lower_scatter_elements(op_lower *c)
{
    const ir_shape *x = &c->in[0].type.shape, *index = &c->in[1].type.shape;
    cpu_scatter_args s = {.size = op_lower_element(x->rank ? c->in[0].type.dtype : TACIT_STRING)};
    int32_t axis;
    lanes l = {0};
    s.fn = s.size ? combination(c, s.size) : NULL;
    if (!s.fn || !read_places(&c->in[1], &s.where))
        return OP_LOWER_NO_KERNEL;
    TRY(ir_axis(ir_attr_int(c->node, "axis", 0), x->rank, &axis, c->err));
    int64_t strides[IR_MAX_RANK], entries[IR_MAX_RANK];
    ir_shape_strides(x, strides);
    ir_shape_strides(index, entries);
    for (int32_t d = 0; d < x->rank; d++)
        if (d != axis)
            add_lane(&l, index->dims[d], strides[d], entries[d], entries[d]);
    s.n = index->dims[axis];
    s.entry_step = s.from_step = entries[axis];
    one_axis(&s.where, axis, x->dims[axis], strides[axis]);
    TRY(op_lower_copy_whole(c, 0, 0));
    return emit_scatter(c, &s, &l, 1, 2, true);
}

tacit_status op_lower_scatter_nd(op_lower *c)
{
    const ir_shape *x = &c->in[0].type.shape, *index = &c->in[1].type.shape;
    cpu_scatter_args s = {.size = op_lower_element(c->in[0].type.dtype)};
    lanes l = {0};
    s.fn = s.size ? combination(c, s.size) : NULL;
    if (!s.fn || !read_places(&c->in[1], &s.where))
        return OP_LOWER_NO_KERNEL;
    int64_t depth = index->dims[index->rank - 1], slice = 1, strides[IR_MAX_RANK];
    ir_shape_strides(x, strides);
    for (int64_t d = depth; d < x->rank; d++)
        slice *= x->dims[d];
    s.where.depth = (uint32_t)depth;
    for (int64_t j = 0; j < depth; j++) {
        s.where.limit[j] = x->dims[j];
        s.where.step[j] = strides[j];
    }
    s.n = ir_shape_size(index) / depth;
    s.entry_step = 1;
    s.from_step = slice;
    /* An empty slice still has its indices checked. */
    add_lane(&l, slice ? slice : 1, 1, 0, 1);
    if (!slice && s.n)
        return OP_LOWER_NO_KERNEL;
    TRY(op_lower_copy_whole(c, 0, 0));
    return emit_scatter(c, &s, &l, 1, 2, true);
}

/* Zeros, then the updates added; ids that are floats are the evaluator's. */
tacit_status op_lower_scatter_add(op_lower *c)
{
    const ir_shape *x = &c->in[0].type.shape;
    op_split_axis a;
    cpu_number number;
    cpu_scatter_args s = {.size = op_lower_element(c->in[0].type.dtype)};
    lanes l = {0};
    TRY(op_split_at(x, ir_attr_int(c->node, "axis", 0), &a, c->err));
    int64_t dim = c->out[0].type.shape.dims[a.axis];
    if (!op_lower_number(c->in[0].type.dtype, &number) || !read_places(&c->in[1], &s.where) ||
        a.outer * a.inner == 0)
        return OP_LOWER_NO_KERNEL;
    s.fn = cpu_combine_find(CPU_COMBINE_ADD, number);
    s.n = a.size;
    s.entry_step = 1;
    s.from_step = a.inner;
    one_axis(&s.where, a.axis, dim, a.inner);
    add_lane(&l, a.outer, dim * a.inner, 0, a.size * a.inner);
    add_lane(&l, a.inner, 1, 0, 1);
    TRY(op_lower_fill(c, s.size, -1));
    return emit_scatter(c, &s, &l, 1, 0, true);
}

/* All off, then one on in every column whose index is inside. */
tacit_status op_lower_one_hot(op_lower *c)
{
    const ir_shape *y = &c->out[0].type.shape;
    op_split_axis a;
    cpu_scatter_args s = {.size = op_lower_element(c->out[0].type.dtype), .n = 1, .from_at = 1};
    lanes l = {0};
    if (!s.size || !read_places(&c->in[0], &s.where))
        return OP_LOWER_NO_KERNEL;
    TRY(op_split_at(y, ir_attr_int(c->node, "axis", -1), &a, c->err));
    s.fn = cpu_combine_set(s.size);
    one_axis(&s.where, a.axis, a.size, a.inner);
    add_lane(&l, a.outer, a.size * a.inner, a.inner, 0);
    add_lane(&l, a.inner, 1, 1, 0);
    TRY(op_lower_fill(c, s.size, 2));
    return a.size ? emit_scatter(c, &s, &l, 0, 2, false) : TACIT_OK;
}

tacit_status op_lower_max_unpool(op_lower *c)
{
    ir_shape natural;
    const ir_shape *y = &c->out[0].type.shape;
    TRY(op_unpool_natural(c->node, &c->in[0].type.shape, &natural, c->err));
    if (op_lower_element(c->in[0].type.dtype) != 4 || c->in[1].type.dtype != TACIT_I64 ||
        !ir_shape_equal(&natural, y)) /* else indices count in another shape */
        return OP_LOWER_NO_KERNEL;
    if (ir_shape_size(y) == 0 && ir_shape_size(&c->in[0].type.shape) == 0)
        return TACIT_OK;
    cpu_unpool_args *a = op_lower_thunk(c, "unpool", cpu_unpool, sizeof *a, 1);
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = (cpu_unpool_args){.count = ir_shape_size(&c->in[0].type.shape), .size = ir_shape_size(y)};
    TRY(op_lower_in(c, offsetof(cpu_unpool_args, from), 0));
    TRY(op_lower_in(c, offsetof(cpu_unpool_args, index), 1));
    TRY(op_lower_out(c, offsetof(cpu_unpool_args, to), 0));
    TRY(op_lower_fault(c, offsetof(cpu_unpool_args, fault)));
    op_lower_cost(c, 0, op_lower_all_bytes(c));
    return TACIT_OK;
}
