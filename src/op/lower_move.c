/* SPDX-License-Identifier: Apache-2.0
 * Ops that only move elements: views that could not stay views, Concat, Tile, Pad, Trilu. */
#include <string.h>

#include "cpu/cast.h"
#include "cpu/move.h"
#include "op/lowerings.h"
#include "op/pad.h"

/* A copy between two views of the same shape. */
typedef struct copy_plan {
    uint32_t input, output;
    ir_shape shape;
    int64_t from_at, to_at; /* elements */
    int64_t from[IR_MAX_RANK], to[IR_MAX_RANK];
    uint32_t size;
} copy_plan;

/* The axis along which the source runs on by one, where the innermost does not. */
static int32_t transposed_axis(const cpu_nd *nd)
{
    int32_t inner = nd->rank - 1;
    int64_t columns = nd->dims[inner], rows = columns < 4 ? 16 : 4; /* that are worth it */
    if (nd->strides[0][inner] <= 1 || nd->strides[1][inner] != 1 || columns < 2)
        return -1;
    for (int32_t d = 0; d < inner; d++)
        if (nd->strides[0][d] == 1 && nd->dims[d] >= rows)
            return d;
    return -1;
}

static tacit_status bind_copy(op_lower *c, const copy_plan *p, size_t from, size_t to, uint64_t run)
{
    bool whole =
        p->to_at == 0 && ir_shape_size(&p->shape) == ir_shape_size(&c->out[p->output].type.shape);
    TRY(op_lower_in(c, from, p->input));
    return op_lower_out_tiled(c, to, p->output, whole ? run : 0, whole ? run : 0);
}

static tacit_status emit_transpose(op_lower *c, const copy_plan *p, const cpu_nd *nd, int32_t axis)
{
    int32_t inner = nd->rank - 1;
    cpu_transpose_args t = {.from_at = p->from_at,
                            .to_at = p->to_at,
                            .size = p->size,
                            .rows = nd->dims[axis],
                            .columns = nd->dims[inner],
                            .to_row = nd->strides[1][axis],
                            .from_column = nd->strides[0][inner]};
    int64_t tiles = 1;
    for (int32_t d = 0; d < inner; d++) {
        if (d == axis)
            continue;
        t.dims[t.rank] = nd->dims[d];
        t.from_stride[t.rank] = nd->strides[0][d];
        t.to_stride[t.rank++] = nd->strides[1][d];
        tiles *= nd->dims[d];
    }
    t.row_tiles = (uint32_t)((t.rows + CPU_TRANSPOSE_ROWS - 1) / CPU_TRANSPOSE_ROWS);
    tiles *= t.row_tiles;
    if (tiles > INT32_MAX)
        return OP_LOWER_NO_KERNEL;
    cpu_transpose_args *a =
        op_lower_thunk(c, CPU_PICK_NAME(c->cpu.isa, transpose), CPU_PICK(c->cpu.isa, cpu_transpose),
                       sizeof *a, (uint32_t)tiles);
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = t;
    op_lower_note(c,
                  "transpose_%s of %u-byte elements in blocks: a plain copy would touch a cache "
                  "line for each element",
                  cpu_isa_name(c->cpu.isa), p->size);
    return bind_copy(c, p, offsetof(cpu_transpose_args, from), offsetof(cpu_transpose_args, to), 0);
}

static tacit_status emit_copy(op_lower *c, const copy_plan *p)
{
    cpu_nd nd;
    cpu_nd_begin(&nd, p->shape.rank, p->shape.dims);
    cpu_nd_operand(&nd, p->from);
    cpu_nd_operand(&nd, p->to);
    uint32_t tiles = cpu_nd_ready(&nd, 262144 / p->size);
    if (tiles == 0)
        return TACIT_OK;
    uint64_t bytes = 2 * (uint64_t)ir_shape_size(&p->shape) * p->size;
    int32_t axis = transposed_axis(&nd);
    if (axis >= 0) {
        TRY(emit_transpose(c, p, &nd, axis));
        op_lower_cost(c, 0, bytes);
        return TACIT_OK;
    }
    cpu_copy_args *a = op_lower_thunk(c, "copy", cpu_copy, sizeof *a, tiles);
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = (cpu_copy_args){.from_at = p->from_at, .to_at = p->to_at, .size = p->size, .nd = nd};
    uint64_t run = cpu_nd_dense(&nd, 1) ? (uint64_t)cpu_nd_tile_elements(&nd) * p->size : 0;
    TRY(bind_copy(c, p, offsetof(cpu_copy_args, from), offsetof(cpu_copy_args, to), run));
    op_lower_cost(c, 0, bytes);
    op_lower_note(c, "copy of %u-byte elements over %d axes, runs of %lld", p->size, nd.rank,
                  (long long)nd.dims[nd.rank - 1]);
    return TACIT_OK;
}

tacit_status op_lower_copy_whole(op_lower *c, uint32_t input, uint32_t output)
{
    copy_plan p = {.input = input,
                   .output = output,
                   .shape = c->out[output].type.shape,
                   .size = op_lower_element(c->out[output].type.dtype)};
    memcpy(p.from, c->in[input].strides, sizeof p.from);
    memcpy(p.to, c->out[output].strides, sizeof p.to);
    return emit_copy(c, &p);
}

/* --- ops with an alias rule that must copy after all ------------------------------------------ */

bool op_accepts_view(const ir_node *node, uint32_t in, const op_operand *view)
{
    op_view v;
    if (in != 0 || !node->op->alias || !op_lower_element(view->type.dtype))
        return false;
    for (uint32_t i = 0; i < node->n_outputs; i++)
        if (node->outputs[i] && !node->op->alias(node, 0, view, i, &v))
            return false;
    return true;
}

tacit_status op_lower_view(op_lower *c)
{
    uint32_t size = op_lower_element(c->in[0].type.dtype);
    op_view view;
    if (!size || !c->node->op->alias)
        return OP_LOWER_NO_KERNEL;
    for (uint32_t i = 0; i < c->node->n_outputs; i++)
        if (op_lower_wants(c, i) && !c->node->op->alias(c->node, 0, &c->in[0], i, &view))
            return OP_LOWER_NO_KERNEL;
    for (uint32_t i = 0; i < c->node->n_outputs; i++) {
        if (!op_lower_wants(c, i))
            continue;
        memset(&view, 0, sizeof view);
        (void)c->node->op->alias(c->node, 0, &c->in[0], i, &view);
        copy_plan p = {
            .output = i, .shape = c->out[i].type.shape, .from_at = view.offset, .size = size};
        memcpy(p.from, view.strides, sizeof p.from);
        memcpy(p.to, c->out[i].strides, sizeof p.to);
        TRY(emit_copy(c, &p));
    }
    return TACIT_OK;
}

/* --- Concat, Tile, Pad ------------------------------------------------------------------------ */

tacit_status op_lower_concat(op_lower *c)
{
    uint32_t size = op_lower_element(c->out[0].type.dtype);
    int32_t axis;
    int64_t at = 0;
    if (!size)
        return OP_LOWER_NO_KERNEL;
    TRY(ir_axis(ir_attr_int(c->node, "axis", 0), c->out[0].type.shape.rank, &axis, c->err));
    for (uint32_t i = 0; i < c->node->n_inputs; i++) {
        copy_plan p = {.input = i,
                       .shape = c->in[i].type.shape,
                       .to_at = at * c->out[0].strides[axis],
                       .size = size};
        memcpy(p.from, c->in[i].strides, sizeof p.from);
        memcpy(p.to, c->out[0].strides, sizeof p.to);
        if (c->in[i].joiner != c->node)
            TRY(emit_copy(c, &p));
        at += c->in[i].type.shape.dims[axis];
    }
    return TACIT_OK;
}

bool op_accepts_move(const ir_node *node, uint32_t in, const op_operand *view)
{
    (void)in;
    return node->outputs[0] && op_lower_element(node->outputs[0]->type.dtype) &&
           op_lower_element(view->type.dtype);
}

/* Every repeated axis is a pair: repeats (which the source does not see) and the axis. */
tacit_status op_lower_tile(op_lower *c)
{
    const ir_shape *x = &c->in[0].type.shape, *y = &c->out[0].type.shape;
    copy_plan p = {.size = op_lower_element(c->in[0].type.dtype)};
    if (!p.size)
        return OP_LOWER_NO_KERNEL;
    for (int32_t d = 0; d < x->rank; d++) {
        int64_t repeats = x->dims[d] ? y->dims[d] / x->dims[d] : 0;
        if (p.shape.rank + (repeats > 1 ? 2 : 1) > IR_MAX_RANK)
            return OP_LOWER_NO_KERNEL;
        if (repeats != 1) {
            p.shape.dims[p.shape.rank] = repeats;
            p.from[p.shape.rank] = 0;
            p.to[p.shape.rank++] = c->out[0].strides[d] * x->dims[d];
        }
        if (p.shape.rank == IR_MAX_RANK)
            return OP_LOWER_NO_KERNEL;
        p.shape.dims[p.shape.rank] = x->dims[d];
        p.from[p.shape.rank] = c->in[0].strides[d];
        p.to[p.shape.rank++] = c->out[0].strides[d];
    }
    return emit_copy(c, &p);
}

tacit_status op_lower_fill(op_lower *c, uint32_t size, int value_input)
{
    int64_t count = ir_shape_size(&c->out[0].type.shape);
    enum { TILE = 65536 };
    if (count == 0)
        return TACIT_OK;
    if (count / TILE >= INT32_MAX)
        return OP_LOWER_NO_KERNEL;
    cpu_fill_args *a =
        op_lower_thunk(c, "fill", cpu_fill, sizeof *a, (uint32_t)((count + TILE - 1) / TILE));
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = (cpu_fill_args){.count = count, .tile = TILE, .size = size};
    if (value_input >= 0)
        TRY(op_lower_in(c, offsetof(cpu_fill_args, from), (uint32_t)value_input));
    TRY(op_lower_out_tiled(c, offsetof(cpu_fill_args, to), 0, (uint64_t)TILE * size,
                           (uint64_t)TILE * size));
    op_lower_cost(c, 0, (uint64_t)count * size);
    return TACIT_OK;
}

/* Before and after each axis; false where that is not known at compile time. */
static bool read_pads(const op_lower *c, int64_t *before, int64_t *after)
{
    int64_t pads[2 * IR_MAX_RANK], axes[IR_MAX_RANK] = {0};
    uint32_t n_pads, n_axes;
    int32_t rank = c->in[0].type.shape.rank;
    if (!c->in[1].constant ||
        op_read_ints(c->in[1].constant, pads, 2 * IR_MAX_RANK, &n_pads, NULL) != TACIT_OK)
        return false;
    n_axes = (uint32_t)rank;
    for (int32_t d = 0; d < rank; d++)
        axes[d] = d, before[d] = after[d] = 0;
    if (op_lower_has(c, 3) &&
        (!c->in[3].constant ||
         op_read_ints(c->in[3].constant, axes, IR_MAX_RANK, &n_axes, NULL) != TACIT_OK))
        return false;
    for (uint32_t i = 0; i < n_axes && n_pads == 2 * n_axes; i++) {
        int32_t axis;
        if (ir_axis(axes[i], rank, &axis, NULL) != TACIT_OK)
            return false;
        before[axis] = pads[i];
        after[axis] = pads[n_axes + i];
    }
    return n_pads == 2 * n_axes;
}

/* Where each position of the axis comes from, in bytes. */
static const int64_t *border_places(op_lower *c, op_pad_mode mode, int32_t d, int64_t before,
                                    int64_t step)
{
    int64_t n = c->in[0].type.shape.dims[d], count = c->out[0].type.shape.dims[d];
    int64_t *places = op_lower_pack(c, (size_t)count * sizeof *places);
    for (int64_t i = 0; places && i < count; i++)
        places[i] = op_pad_source(mode, i - before, n) * step;
    return places;
}

/* Modes that repeat what is there. */
static tacit_status lower_border(op_lower *c, op_pad_mode mode, const int64_t *before,
                                 const int64_t *after)
{
    enum { TILE = 131072 }; /* bytes */
    const ir_shape *x = &c->in[0].type.shape, *y = &c->out[0].type.shape;
    cpu_border_args b = {.block = op_lower_element(c->in[0].type.dtype), .rows = 1};
    int32_t inner = x->rank - 1;
    if (ir_shape_size(y) == 0)
        return TACIT_OK;
    if (x->rank == 0)
        return op_lower_copy_whole(c, 0, 0);
    for (; inner > 0 && before[inner] == 0 && after[inner] == 0; inner--)
        b.block *= x->dims[inner];
    int64_t end = before[inner] + x->dims[inner], step = b.block * x->dims[inner];
    b.blocks = y->dims[inner];
    b.first = before[inner] > 0 ? before[inner] : 0;
    b.count = (end < b.blocks ? end : b.blocks) - b.first;
    if (b.count < 0) /* all that there was is cropped */
        b.first = b.count = 0;
    b.inner = border_places(c, mode, inner, before[inner], b.block);
    bool made = b.inner != NULL;
    b.rank = inner;
    for (int32_t d = inner; d-- > 0; step *= x->dims[d]) {
        b.dims[d] = y->dims[d];
        b.rows *= b.dims[d];
        b.outer[d] = border_places(c, mode, d, before[d], step);
        made = made && b.outer[d];
    }
    if (!made)
        return TACIT_ERR_MEMORY;
    int64_t row = b.blocks * b.block;
    b.tile = TILE / row + 1;
    if (b.rows / b.tile >= INT32_MAX)
        return OP_LOWER_NO_KERNEL;
    cpu_border_args *a = op_lower_thunk(c, "border", cpu_border, sizeof *a,
                                        (uint32_t)((b.rows + b.tile - 1) / b.tile));
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = b;
    TRY(op_lower_in(c, offsetof(cpu_border_args, from), 0));
    TRY(op_lower_out_tiled(c, offsetof(cpu_border_args, to), 0, (uint64_t)(b.tile * row),
                           (uint64_t)(b.tile * row)));
    op_lower_cost(c, 0, 2 * op_lower_bytes(&c->out[0]));
    op_lower_note(c, "rows copied whole, borders of %lld-byte blocks one by one",
                  (long long)b.block);
    return TACIT_OK;
}

tacit_status op_lower_pad(op_lower *c)
{
    int64_t before[IR_MAX_RANK], after[IR_MAX_RANK];
    const ir_shape *x = &c->in[0].type.shape;
    copy_plan p = {.size = op_lower_element(c->in[0].type.dtype), .shape = *x};
    op_pad_mode mode;
    if (!p.size || op_read_pad_mode(c->node, &mode, NULL) != TACIT_OK ||
        !read_pads(c, before, after))
        return OP_LOWER_NO_KERNEL;
    if (mode != OP_PAD_CONSTANT)
        return lower_border(c, mode, before, after);
    bool grows = false;
    for (int32_t d = 0; d < x->rank; d++) { /* negative pads crop the source */
        int64_t crop = before[d] < 0 ? -before[d] : 0, tail = after[d] < 0 ? -after[d] : 0;
        p.shape.dims[d] = x->dims[d] - crop - tail;
        if (p.shape.dims[d] < 0)
            p.shape.dims[d] = 0;
        p.from[d] = c->in[0].strides[d];
        p.to[d] = c->out[0].strides[d];
        p.from_at += crop * p.from[d];
        p.to_at += (before[d] > 0 ? before[d] : 0) * p.to[d];
        grows = grows || before[d] > 0 || after[d] > 0;
    }
    if (grows)
        TRY(op_lower_fill(c, p.size, op_lower_has(c, 2) ? 2 : -1));
    return emit_copy(c, &p);
}

/* --- Trilu ------------------------------------------------------------------------------------ */

tacit_status op_lower_trilu(op_lower *c)
{
    const ir_shape *x = &c->in[0].type.shape;
    tacit_dtype dtype = c->in[0].type.dtype;
    uint32_t size = op_lower_element(dtype);
    bool has_k = op_lower_has(c, 1);
    if (!size || dtype == TACIT_F8E8M0 || /* which has no zero */
        (has_k && (c->in[1].type.dtype != TACIT_I64 || ir_shape_size(&c->in[1].type.shape) != 1)))
        return OP_LOWER_NO_KERNEL;
    cpu_trilu_args t = {.rows = x->dims[x->rank - 2],
                        .columns = x->dims[x->rank - 1],
                        .size = size,
                        .upper = ir_attr_int(c->node, "upper", 1) != 0};
    int64_t all = ir_shape_size(x), row = t.columns * size;
    if (all == 0)
        return TACIT_OK;
    t.count = all / (t.rows * t.columns);
    t.tile = 131072 / row + 1;
    int64_t tiles = (t.count * t.rows + t.tile - 1) / t.tile;
    if (tiles > INT32_MAX)
        return OP_LOWER_NO_KERNEL;
    cpu_trilu_args *a = op_lower_thunk(c, "trilu", cpu_trilu, sizeof *a, (uint32_t)tiles);
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = t;
    uint64_t run = (uint64_t)(t.tile * row);
    TRY(op_lower_in_tiled(c, offsetof(cpu_trilu_args, from), 0, run, run));
    if (has_k)
        TRY(op_lower_in(c, offsetof(cpu_trilu_args, k), 1));
    TRY(op_lower_out_tiled(c, offsetof(cpu_trilu_args, to), 0, run, run));
    op_lower_cost(c, 0, 2 * op_lower_bytes(&c->out[0]));
    op_lower_note(c, "rows cut at the diagonal: one copy and one fill each");
    return TACIT_OK;
}

/* --- Cast ------------------------------------------------------------------------------------- */

tacit_status op_lower_cast(op_lower *c)
{
    cpu_cast_args p = {.tile = 32768};
    tacit_status status = op_lower_map(c);
    if (status != OP_LOWER_NO_KERNEL)
        return status;
    if (!op_lower_number(c->in[0].type.dtype, &p.from) ||
        !op_lower_number(c->out[0].type.dtype, &p.to) || !cpu_cast_knows(p.from, p.to))
        return OP_LOWER_NO_KERNEL;
    p.count = ir_shape_size(&c->out[0].type.shape);
    if (p.count == 0)
        return TACIT_OK;
    if (p.count / p.tile >= INT32_MAX)
        return OP_LOWER_NO_KERNEL;
    cpu_cast_args *a =
        op_lower_thunk(c, "cast", cpu_cast, sizeof *a, (uint32_t)((p.count + p.tile - 1) / p.tile));
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = p;
    uint64_t in = (uint64_t)p.tile * ir_dtype_bytes(c->in[0].type.dtype, 1);
    uint64_t out = (uint64_t)p.tile * ir_dtype_bytes(c->out[0].type.dtype, 1);
    TRY(op_lower_in_tiled(c, offsetof(cpu_cast_args, x), 0, in, in));
    TRY(op_lower_out_tiled(c, offsetof(cpu_cast_args, y), 0, out, out));
    op_lower_cost(c, 0, op_lower_bytes(&c->in[0]) + op_lower_bytes(&c->out[0]));
    op_lower_note(c, "cast, element by element; the f32 strips know no integers");
    return TACIT_OK;
}
