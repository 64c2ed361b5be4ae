/* SPDX-License-Identifier: Apache-2.0
 * Derivatives of padding and of what writes or reads at given indices. */
#include <string.h>

#include "op/spell.h"
#include "op/view.h"
#include "op/vjp.h"

/* --- Pad ----------------------------------------------------------------------------------------
 */

/* Where element i of a padded axis comes from, as Pad says it; `n` elements. */
static int64_t source_of(const char *mode, int64_t i, int64_t n)
{
    if (strcmp(mode, "edge") == 0)
        return i < 0 ? 0 : i < n ? i : n - 1;
    int64_t period = strcmp(mode, "wrap") == 0 ? n : n > 1 ? 2 * (n - 1) : 1;
    i = (i % period + period) % period;
    return i < n ? i : period - i;
}

/* The part of g that lies over x, zeros where x was cut off. */
static ir_value *unpadded(op_diff *c, ir_value *g, int32_t axis, int64_t before, int64_t after)
{
    int64_t from = before > 0 ? before : 0, size = g ? g->type.shape.dims[axis] : 0;
    int64_t to = size - (after > 0 ? after : 0);
    if (from > 0 || to < size)
        g = op_spell_slice(c, g, axis, from, to);
    return op_spell_padded(c, g, axis, before < 0 ? -before : 0, after < 0 ? -after : 0);
}

static ir_value *added_up(op_diff *c, ir_value *g, int32_t axis, int64_t n, int64_t before,
                          const char *mode)
{
    int64_t size = g ? g->type.shape.dims[axis] : 0;
    int64_t *to = op_spell_scratch(c, (size_t)(size + 1) * sizeof *to);
    for (int64_t i = 0; to && i < size; i++)
        to[i] = source_of(mode, i - before, n);
    if (!to)
        return NULL;
    ir_value *in[2] = {g, op_spell_ints(c, 1, &size, to)};
    ir_value *d = op_diff_open(c, "tacit.ScatterAdd", 2, in);
    if (d && !ir_attr_set_int(c->graph, d->producer, "dim", n)) {
        c->status = error_memory(c->err, "a gradient graph");
        return NULL;
    }
    return op_diff_attr_int(c, d, "axis", axis);
}

tacit_status op_vjp_pad(op_diff *c)
{
    const ir_node *n = c->node;
    const ir_shape *s = &n->inputs[0]->type.shape;
    const ir_tensor *pads = ir_value_known(n->inputs[1]);
    const ir_value *axes = op_spell_input(c, 3);
    const char *mode = ir_attr_string(n, "mode", "constant");
    int64_t values[2 * IR_MAX_RANK] = {0};
    uint32_t count = 0;
    op_axes list = {.count = 0};
    if (!pads || (axes && !ir_value_known(axes)))
        return op_diff_fail(c, TACIT_ERR_UNSUPPORTED, "its sizes are not known when compiling");
    TRY(op_read_ints(pads, values, 2 * IR_MAX_RANK, &count, c->err));
    if (axes)
        TRY(op_read_axes(ir_value_known(axes), s->rank, &list, c->err));
    for (int32_t i = 0; !axes && i < s->rank; i++)
        list.list[list.count++] = i;
    ir_value *g = c->out_grad[0];
    for (uint32_t i = 0; i < list.count && g; i++) {
        int32_t axis = list.list[i];
        int64_t before = values[i], after = values[list.count + i];
        if (before == 0 && after == 0)
            continue;
        g = strcmp(mode, "constant") == 0 ? unpadded(c, g, axis, before, after)
                                          : added_up(c, g, axis, s->dims[axis], before, mode);
    }
    c->in_grad[0] = g;
    if (n->n_inputs > 2 && c->wanted[2]) { /* the filler gets what lies outside x */
        ir_value *all = op_diff_sum_to(c, c->out_grad[0], &(ir_shape){.rank = 0});
        ir_value *inner = op_diff_sum_to(c, g, &(ir_shape){.rank = 0});
        ir_value *rest = op_spell_sub(c, all, inner);
        if (strcmp(mode, "constant") != 0)
            rest = op_diff_scale(c, rest, 0);
        c->in_grad[2] = op_diff_reshape(c, rest, &n->inputs[2]->type.shape);
    }
    return c->status;
}

/* --- GatherND -----------------------------------------------------------------------------------
 */

/* Indices with batch_dims leading axes as indices without: the batch's own numbers in front. */
static ir_value *whole_index(op_diff *c, ir_value *index, int64_t batch_dims)
{
    const ir_shape *s = &index->type.shape;
    ir_shape own = *s;
    own.dims[own.rank - 1] = batch_dims;
    int64_t count = ir_shape_size(&own), strides[IR_MAX_RANK];
    int64_t *numbers = op_spell_scratch(c, (size_t)(count + 1) * sizeof *numbers);
    ir_shape_strides(&own, strides);
    for (int64_t i = 0; numbers && i < count; i++) {
        int64_t axis = i % batch_dims;
        numbers[i] = i / strides[axis] % own.dims[axis];
    }
    if (!numbers)
        return NULL;
    ir_value *both[2] = {op_spell_ints(c, own.rank, own.dims, numbers),
                         op_diff_cast(c, index, TACIT_I64)};
    return op_spell_concat(c, 2, both, own.rank - 1);
}

tacit_status op_vjp_gather_nd(op_diff *c)
{
    int64_t batch_dims = ir_attr_int(c->node, "batch_dims", 0);
    ir_value *index = c->node->inputs[1];
    if (batch_dims)
        index = whole_index(c, index, batch_dims);
    ir_value *zeros = op_diff_zeros(c, &c->node->inputs[0]->type);
    ir_value *d = op_diff3(c, "ScatterND", zeros, index, c->out_grad[0]);
    c->in_grad[0] = op_spell_attr_string(c, d, "reduction", "add");
    return c->status;
}

/* --- ScatterElements and ScatterND --------------------------------------------------------------
 */

/* Gathers and scatters at the forward node's indices. */
typedef struct places {
    op_diff *c;
    ir_value *index;
    bool elements; /* along an axis, else whole rows */
} places;

static ir_value *along(const places *p, ir_value *v)
{
    return p->elements ? op_diff_attr_int(p->c, v, "axis", ir_attr_int(p->c->node, "axis", 0)) : v;
}

static ir_value *read_at(const places *p, ir_value *x)
{
    ir_value *in[2] = {x, p->index};
    if (!p->elements)
        return op_diff2(p->c, "GatherND", x, p->index);
    return along(p, op_diff_open(p->c, "GatherElements", 2, in));
}

static ir_value *write_at(const places *p, ir_value *x, ir_value *updates, const char *reduction)
{
    ir_value *y = p->elements ? along(p, op_diff_open(p->c, "ScatterElements", 3,
                                                      (ir_value *[]){x, p->index, updates}))
                              : op_diff3(p->c, "ScatterND", x, p->index, updates);
    return reduction ? op_spell_attr_string(p->c, y, "reduction", reduction) : y;
}

/* 1 for updates that no later one wrote over, else 0. */
static ir_value *last_writers(const places *p, const ir_type *updates, const ir_type *data)
{
    op_diff *c = p->c;
    int64_t count = ir_shape_size(&updates->shape);
    int64_t *number = op_spell_scratch(c, (size_t)(count + 1) * sizeof *number);
    for (int64_t i = 0; number && i < count; i++)
        number[i] = i;
    if (!number)
        return NULL;
    ir_type places_type = *data;
    places_type.dtype = TACIT_I64;
    ir_value *numbers = op_spell_ints(c, updates->shape.rank, updates->shape.dims, number);
    ir_value *last = write_at(p, op_diff_zeros(c, &places_type), numbers, NULL);
    return op_diff_cast(c, op_diff2(c, "Equal", read_at(p, last), numbers), updates->dtype);
}

/* Where updates were written (or added), the gradient is theirs (or both's); of several for one
 * place the last one's. */
static void scatter_plain(const places *p, bool add)
{
    op_diff *c = p->c;
    ir_value *g = c->out_grad[0];
    if (c->wanted[0])
        c->in_grad[0] = add ? g : write_at(p, g, op_diff_zeros(c, &c->node->inputs[2]->type), NULL);
    if (!c->wanted[2])
        return;
    ir_value *d = read_at(p, g);
    if (!add)
        d = op_spell_mul(c, d, last_writers(p, &c->node->inputs[2]->type, &g->type));
    c->in_grad[2] = d;
}

/* All that attain the extremum share its gradient. */
static void scatter_extremum(const places *p)
{
    op_diff *c = p->c;
    ir_value *x = c->node->inputs[0], *updates = c->node->inputs[2], *y = c->node->outputs[0];
    tacit_dtype dtype = x->type.dtype;
    ir_value *old = op_diff_cast(c, op_diff2(c, "Equal", x, y), dtype);
    ir_value *fresh = op_diff_cast(c, op_diff2(c, "Equal", updates, read_at(p, y)), dtype);
    ir_value *share = op_spell_div(c, c->out_grad[0], write_at(p, old, fresh, "add"));
    c->in_grad[0] = op_spell_mul(c, old, share);
    c->in_grad[2] = op_spell_mul(c, fresh, read_at(p, share));
}

/* The product of all other factors, without dividing by zero: with one zero only its own factor has
 * a slope, with two none has. `left` is the product of what is not zero, `zeros` how many are. */
static ir_value *others(op_diff *c, ir_value *factor, ir_value *left, ir_value *zeros)
{
    tacit_dtype dtype = factor->type.dtype;
    ir_value *none = op_diff_scalar(c, dtype, 0), *one = op_diff_scalar(c, dtype, 1);
    ir_value *is_zero = op_diff2(c, "Equal", factor, none);
    ir_value *rest = op_spell_div(c, left, op_diff3(c, "Where", is_zero, one, factor));
    ir_value *allowed = op_diff2(c, "Equal", zeros, op_diff_cast(c, is_zero, dtype));
    return op_diff3(c, "Where", allowed, rest, none);
}

static ir_value *nonzero(op_diff *c, ir_value *x)
{
    ir_value *is_zero = op_diff2(c, "Equal", x, op_diff_scalar(c, x->type.dtype, 0));
    return op_diff3(c, "Where", is_zero, op_diff_scalar(c, x->type.dtype, 1), x);
}

static void scatter_product(const places *p)
{
    op_diff *c = p->c;
    ir_value *x = c->node->inputs[0], *updates = c->node->inputs[2], *g = c->out_grad[0];
    tacit_dtype dtype = x->type.dtype;
    ir_value *left = write_at(p, nonzero(c, x), nonzero(c, updates), "mul");
    ir_value *zeros = write_at(p, op_spell_where(c, "Equal", x, 0, dtype),
                               op_spell_where(c, "Equal", updates, 0, dtype), "add");
    if (!left || !zeros)
        return;
    c->in_grad[0] = op_spell_mul(c, g, others(c, x, left, zeros));
    c->in_grad[2] =
        op_spell_mul(c, read_at(p, g), others(c, updates, read_at(p, left), read_at(p, zeros)));
}

static tacit_status scatter(op_diff *c, bool elements)
{
    const char *reduction = ir_attr_string(c->node, "reduction", "none");
    places p = {.c = c, .index = c->node->inputs[1], .elements = elements};
    if (strcmp(reduction, "none") == 0 || strcmp(reduction, "add") == 0)
        scatter_plain(&p, reduction[0] == 'a');
    else if (strcmp(reduction, "mul") == 0)
        scatter_product(&p);
    else
        scatter_extremum(&p);
    return c->status;
}

tacit_status op_vjp_scatter_elements(op_diff *c)
{
    return scatter(c, true);
}

tacit_status op_vjp_scatter_nd(op_diff *c)
{
    return scatter(c, false);
}
