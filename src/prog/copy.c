/* SPDX-License-Identifier: Apache-2.0
 * A strided copy: runs any op whose output could have been a view but had to be dense. Elements are
 * moved by their size, whatever their type. */
#include <string.h>

#include "cpu/nd.h"
#include "prog/program.h"

enum { TO, FROM, TILE_ELEMENTS = 16 * 1024 };

typedef struct copy_args {
    unsigned char *to;
    const unsigned char *from;
    cpu_nd nd;
    int64_t to_stride, from_stride; /* of the innermost axis, elements */
    uint32_t size;                  /* bytes of an element */
} copy_args;

/* One run of `n` elements; a constant size lets the compiler turn memcpy into moves. */
static inline __attribute__((always_inline)) void copy_run(const copy_args *a, unsigned char *to,
                                                           const unsigned char *from, int64_t n,
                                                           size_t size)
{
    int64_t to_step = a->to_stride * (int64_t)size, from_step = a->from_stride * (int64_t)size;
    for (int64_t i = 0; i < n; i++)
        memcpy(to + i * to_step, from + i * from_step, size);
}

static void copy_strided(const void *args, uint32_t begin, uint32_t end)
{
    const copy_args *a = args;
    cpu_nd_walk w;
    for (cpu_nd_start(&a->nd, &w, begin, end); cpu_nd_more(&w); cpu_nd_next(&a->nd, &w)) {
        unsigned char *to = a->to + w.at[TO] * a->size;
        const unsigned char *from = a->from + w.at[FROM] * a->size;
        if (a->to_stride == 1 && a->from_stride == 1)
            memcpy(to, from, (size_t)w.count * a->size);
        else if (a->size == 1)
            copy_run(a, to, from, w.count, 1);
        else if (a->size == 2)
            copy_run(a, to, from, w.count, 2);
        else if (a->size == 4)
            copy_run(a, to, from, w.count, 4);
        else if (a->size == 8)
            copy_run(a, to, from, w.count, 8);
        else
            copy_run(a, to, from, w.count, a->size);
    }
}

/* The input that output `out` could be a view of, and how. */
static bool find_view(const op_lower *c, uint32_t out, uint32_t *in, op_view *view)
{
    if (!c->node->op->alias)
        return false;
    for (uint32_t k = 0; k < c->node->n_explicit; k++) {
        *view = (op_view){0};
        if (c->in[k].value && c->node->op->alias(c->node, k, &c->in[k], out, view)) {
            *in = k;
            return tacit_dtype_bits(c->in[k].type.dtype) ==
                       tacit_dtype_bits(c->out[out].type.dtype) &&
                   tacit_dtype_bits(c->out[out].type.dtype) >= 8;
        }
    }
    return false;
}

static tacit_status copy_output(op_lower *c, uint32_t out, uint32_t in, const op_view *view)
{
    const ir_shape *shape = &c->out[out].type.shape;
    uint32_t size = tacit_dtype_bits(c->out[out].type.dtype) / 8;
    int64_t dense[IR_MAX_RANK];
    copy_args filled = {.size = size};
    ir_shape_strides(shape, dense);
    cpu_nd_begin(&filled.nd, shape->rank, shape->dims);
    cpu_nd_operand(&filled.nd, dense);
    cpu_nd_operand(&filled.nd, view->strides);
    uint32_t tiles = cpu_nd_ready(&filled.nd, TILE_ELEMENTS);
    filled.to_stride = filled.nd.strides[TO][filled.nd.rank - 1];
    filled.from_stride = filled.nd.strides[FROM][filled.nd.rank - 1];
    copy_args *a = op_lower_thunk(c, "copy", copy_strided, sizeof *a, tiles);
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = filled;
    uint64_t piece = (uint64_t)cpu_nd_tile_elements(&a->nd) * size;
    bool to_tiled = piece && cpu_nd_dense(&a->nd, TO);
    bool from_tiled = piece && cpu_nd_dense(&a->nd, FROM);
    TRY(op_lower_out_tiled(c, offsetof(copy_args, to), out, to_tiled ? piece : 0,
                           to_tiled ? piece : 0));
    TRY(op_lower_in_tiled(c, offsetof(copy_args, from), in, from_tiled ? piece : 0,
                          from_tiled ? piece : 0));
    op_thunk *t = c->thunks.data[c->thunks.count - 1];
    t->binds.data[t->binds.count - 1].byte_offset = view->offset * size;
    op_lower_cost(c, 0, 2u * (uint64_t)ir_shape_size(shape) * size);
    return TACIT_OK;
}

tacit_status prog_lower_copy(op_lower *c, const plan_view *views)
{
    for (uint32_t i = 0; i < c->node->n_outputs; i++) {
        const ir_value *v = c->node->outputs[i];
        uint32_t in = 0;
        op_view view;
        if (!v || plan_is_view(views, v))
            continue;
        if (!find_view(c, i, &in, &view))
            return OP_LOWER_NO_KERNEL;
        TRY(copy_output(c, i, in, &view));
    }
    return TACIT_OK;
}
