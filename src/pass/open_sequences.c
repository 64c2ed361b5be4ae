/* SPDX-License-Identifier: Apache-2.0
 * Sequences whose items are known one by one (exporters split and stack tensors by way of them):
 * what is taken out is read where it was made. A sequence has no type before it runs, so everything
 * behind it would be interpreted. */
#include "pass/edit.h"

enum { ITEMS = 64, STEPS = 256 }; /* most items; most nodes that a sequence is followed through */

/* A tensor, or a part of it: [begin, end) of an axis, which goes where `drop` says so. */
typedef struct item {
    ir_value *whole;
    bool part, drop;
    int64_t axis, begin, end;
} item;

typedef struct items {
    item data[ITEMS];
    uint32_t count;
} items;

static bool is_tensor(const ir_value *v)
{
    return v && v->type.kind == IR_TENSOR && v->type.dtype != TACIT_DTYPE_NONE;
}

/* A position in [-n, n); `end` allows n itself. Not given: `fallback`. */
static bool position(const ir_value *v, int64_t n, bool end, int64_t fallback, int64_t *out)
{
    uint32_t count;
    *out = fallback;
    if (v && (!pass_ints(v, out, 1, &count) || count != 1))
        return false;
    if (*out < -n || *out >= n + end)
        return false;
    *out += *out < 0 ? n : 0;
    return true;
}

static bool constructed(const ir_node *n, items *out)
{
    if (n->n_inputs > ITEMS)
        return false;
    for (uint32_t i = 0; i < n->n_inputs; i++) {
        if (!is_tensor(n->inputs[i]) || n->inputs[i]->type.dtype != n->inputs[0]->type.dtype)
            return false;
        out->data[i] = (item){.whole = n->inputs[i]};
    }
    out->count = n->n_inputs;
    return true;
}

/* Equal parts with a smaller last one, or sizes one by one. */
static bool split(const ir_node *n, items *out)
{
    ir_value *x = n->inputs[0], *sizes = n->n_inputs > 1 ? n->inputs[1] : NULL;
    if (!is_tensor(x) || x->type.shape.rank < 1)
        return false;
    int64_t axis = ir_attr_int(n, "axis", 0), rank = x->type.shape.rank, given[ITEMS] = {1};
    axis += axis < 0 ? rank : 0;
    if (axis < 0 || axis >= rank || x->type.shape.dims[axis] < 0)
        return false;
    uint32_t count = 1;
    bool listed = sizes && sizes->type.shape.rank == 1;
    if (sizes && !pass_ints(sizes, given, ITEMS, &count))
        return false;
    int64_t size = x->type.shape.dims[axis], at = 0;
    out->count = 0;
    while (listed ? out->count < count : at < size) {
        int64_t step = listed ? given[out->count] : given[0];
        if (out->count == ITEMS || step < !listed || (listed && step > size - at))
            return false;
        int64_t end = step < size - at ? at + step : size;
        out->data[out->count++] = (item){.whole = x,
                                         .part = true,
                                         .drop = !sizes && !ir_attr_int(n, "keepdims", 1),
                                         .axis = axis,
                                         .begin = at,
                                         .end = end};
        at = end;
    }
    return at == size;
}

static bool inserted(const ir_node *n, items *s)
{
    int64_t at;
    if (s->count == ITEMS || !is_tensor(n->inputs[1]) ||
        (s->count && s->data[0].whole->type.dtype != n->inputs[1]->type.dtype) ||
        !position(n->n_inputs > 2 ? n->inputs[2] : NULL, s->count, true, s->count, &at))
        return false;
    for (int64_t i = s->count++; i > at; i--)
        s->data[i] = s->data[i - 1];
    s->data[at] = (item){.whole = n->inputs[1]};
    return true;
}

static bool erased(const ir_node *n, items *s)
{
    int64_t at;
    if (!position(n->n_inputs > 1 ? n->inputs[1] : NULL, s->count, false, -1, &at))
        return false;
    s->count--;
    for (int64_t i = at; i < s->count; i++)
        s->data[i] = s->data[i + 1];
    return true;
}

/* The items of a sequence, if all of them are known. */
static bool list(const pass_edit *e, const ir_value *seq, items *out)
{
    const ir_node *changes[STEPS], *n = seq->producer;
    uint32_t steps = 0;
    for (; pass_is(e, n, PASS_SEQUENCE_INSERT) || pass_is(e, n, PASS_SEQUENCE_ERASE) ||
           pass_is(e, n, PASS_IDENTITY);
         n = n->inputs[0]->producer) {
        if (steps == STEPS || !n->inputs[0])
            return false;
        changes[steps++] = n;
    }
    out->count = 0;
    bool known = pass_is(e, n, PASS_SEQUENCE_EMPTY)       ? true
                 : pass_is(e, n, PASS_SEQUENCE_CONSTRUCT) ? constructed(n, out)
                 : pass_is(e, n, PASS_SPLIT_TO_SEQUENCE)  ? split(n, out)
                                                          : false;
    while (known && steps--)
        known = pass_is(e, changes[steps], PASS_SEQUENCE_INSERT)  ? inserted(changes[steps], out)
                : pass_is(e, changes[steps], PASS_SEQUENCE_ERASE) ? erased(changes[steps], out)
                                                                  : true;
    return known;
}

static tacit_status one(pass_edit *e, pass_op op, const ir_node *near, uint32_t n_inputs,
                        ir_value *const *inputs, uint32_t n_attrs, const ir_attr *attrs,
                        ir_value **out)
{
    tacit_status status;
    ir_node *n = pass_node(e, op, near->name, n_inputs, inputs, n_attrs, attrs, &status);
    *out = n ? n->outputs[0] : NULL;
    return status;
}

/* The item as a value. */
static tacit_status take(pass_edit *e, const ir_node *near, const item *i, ir_value **out)
{
    *out = i->whole;
    if (!i->part)
        return TACIT_OK;
    ir_value *axis = ir_constant_i64(e->g, NULL, 1, 1, &i->axis);
    ir_value *cut[] = {i->whole, ir_constant_i64(e->g, NULL, 1, 1, &i->begin),
                       ir_constant_i64(e->g, NULL, 1, 1, &i->end), axis};
    if (!cut[1] || !cut[2] || !axis)
        return error_memory(e->c->err, "an item of a sequence");
    TRY(one(e, PASS_SLICE, near, 4, cut, 0, NULL, out));
    if (!i->drop)
        return TACIT_OK;
    return one(e, PASS_SQUEEZE, near, 2, (ir_value *[]){*out, axis}, 0, NULL, out);
}

static tacit_status join(pass_edit *e, const ir_node *n, const items *s, ir_value **out)
{
    ir_value *parts[ITEMS];
    ir_attr axis = {.name = "axis", .kind = IR_ATTR_INT, .i = ir_attr_int(n, "axis", 0)};
    for (uint32_t i = 0; i < s->count; i++) {
        TRY(take(e, n, &s->data[i], &parts[i]));
        if (!ir_attr_int(n, "new_axis", 0))
            continue;
        ir_value *at = ir_constant_i64(e->g, NULL, 1, 1, &axis.i);
        if (!at)
            return error_memory(e->c->err, "a sequence");
        TRY(one(e, PASS_UNSQUEEZE, n, 2, (ir_value *[]){parts[i], at}, 0, NULL, &parts[i]));
    }
    return one(e, PASS_CONCAT, n, s->count, parts, 1, &axis, out);
}

/* What a node that reads a sequence gives, if that is known; else NULL. */
static tacit_status read_sequence(pass_edit *e, const ir_node *n, ir_value **out)
{
    items s;
    int64_t at;
    *out = NULL;
    bool length = pass_is(e, n, PASS_SEQUENCE_LENGTH),
         whole = pass_is(e, n, PASS_CONCAT_FROM_SEQUENCE);
    if ((!length && !whole && !pass_is(e, n, PASS_SEQUENCE_AT)) || !n->inputs[0] ||
        !list(e, n->inputs[0], &s))
        return TACIT_OK;
    if (whole)
        return s.count ? join(e, n, &s, out) : TACIT_OK;
    if (!length)
        return n->inputs[1] && position(n->inputs[1], s.count, false, 0, &at)
                   ? take(e, n, &s.data[at], out)
                   : TACIT_OK;
    at = s.count;
    *out = ir_constant_i64(e->g, NULL, 0, 1, &at);
    return *out ? TACIT_OK : error_memory(e->c->err, "the length of a sequence");
}

/* A graph's output keeps its name, which a value that has one cannot take over. */
static tacit_status replace(pass_edit *e, ir_node *n, ir_value *v)
{
    if (!pass_replaceable(e, n->outputs[0], v))
        TRY(one(e, PASS_IDENTITY, n, 1, &v, 0, NULL, &v));
    pass_replace(e, n->outputs[0], v);
    pass_kill(e, n);
    e->c->rewrites++;
    return TACIT_OK;
}

tacit_status pass_open_sequences(pass_context *c)
{
    pass_edit e;
    TRY(pass_edit_begin(&e, c));
    uint64_t before = c->rewrites;
    for (uint32_t i = 0, n = c->graph->nodes.count; i < n; i++) {
        ir_node *node = c->graph->nodes.data[i];
        ir_value *v;
        TRY(read_sequence(&e, node, &v));
        if (v)
            TRY(replace(&e, node, v));
    }
    if (c->rewrites == before)
        return TACIT_OK;
    TRY(ir_graph_sort(c->graph, c->err)); /* types are known now that were not */
    return op_infer_graph(c->graph, c->err);
}
