/* SPDX-License-Identifier: Apache-2.0
 * Which values are views. A dense view is free for every reader; a strided one is taken only when
 * every reader accepts it. A graph output lies dense in its caller's buffer, so it is a view only
 * when it covers its source exactly: then the source is written into that buffer instead.
 * And which are written to where they will be joined with others, so that joining moves nothing: no
 * byte of what is joined is written twice, whatever the order of the nodes. */
#include <string.h>

#include "plan/plan.h"

typedef struct viewer {
    const ir_graph *graph;
    plan_view *views;
    bool *is_output; /* by value id */
    bool *claimed;   /* by value id of a source: some view of it is a graph output */
    uint32_t *place; /* by node id: its position and 1; 0: not planned here, its rules not asked */
    bool *updates;   /* by value id: an output that may lie over an input */
    ir_uses uses;
} viewer;

op_operand plan_operand(const plan_view *views, const ir_value *v)
{
    op_operand o = {0};
    if (!v)
        return o;
    o.type = v->type;
    o.value = v;
    o.dense = views[v->id].dense;
    o.constant = plan_is_constant(v) ? ir_value_known(v) : NULL;
    o.joiner = views[v->id].joiner;
    memcpy(o.strides, views[v->id].strides, sizeof o.strides);
    return o;
}

bool plan_joins_in_place(const plan_view *views, const ir_node *node)
{
    for (uint32_t i = 0; i < node->n_inputs; i++)
        if (!node->inputs[i] || views[node->inputs[i]->id].joiner != node)
            return false;
    return node->n_inputs > 0;
}

bool plan_is_alias_node(const plan_view *views, const ir_node *node)
{
    bool any = false;
    for (uint32_t i = 0; i < node->n_outputs; i++) {
        if (node->outputs[i] && !plan_is_view(views, node->outputs[i]))
            return plan_joins_in_place(views, node);
        any |= node->outputs[i] != NULL;
    }
    return any;
}

/* Row-major without gaps; strides of dims of size 1 do not matter. */
static bool is_dense(const ir_shape *s, const int64_t *strides)
{
    int64_t step = 1;
    for (int32_t d = s->rank; d-- > 0;) {
        if (s->dims[d] != 1 && strides[d] != step)
            return false;
        step *= s->dims[d];
    }
    return true;
}

/* Could every wanted output of `node` be a view of its input `k` lying as `o`? Then the node can
 * take that input: as a view of it or, failing that, by a strided copy. */
static bool can_view(const ir_node *node, uint32_t k, const op_operand *o)
{
    bool any = false;
    for (uint32_t i = 0; i < node->n_outputs; i++) {
        op_view ignored;
        if (!node->outputs[i])
            continue;
        if (!node->op->alias || !node->op->alias(node, k, o, i, &ignored))
            return false;
        any = true;
    }
    return any;
}

static bool readers_accept(const viewer *w, const ir_value *v, const plan_view *view)
{
    op_operand o = {.type = v->type, .value = v, .dense = false};
    memcpy(o.strides, view->strides, sizeof o.strides);
    for (uint32_t i = w->uses.start[v->id]; i < w->uses.start[v->id + 1]; i++) {
        const ir_use *use = &w->uses.all[i];
        if (!use->node || !w->place[use->node->id])
            return false; /* caller's buffer, or the interpreter: dense only */
        const op_def *op = use->node->op;
        if (!(op->accepts && op->accepts(use->node, use->index, &o)) &&
            !can_view(use->node, use->index, &o))
            return false;
    }
    return true;
}

/* Packed types may start only where a byte does. */
static bool byte_aligned(tacit_dtype dtype, int64_t offset)
{
    return (offset * (int64_t)tacit_dtype_bits(dtype)) % 8 == 0;
}

static bool acceptable(viewer *w, const ir_value *v, const plan_view *view)
{
    const ir_value *s = view->source;
    if (tacit_dtype_bits(v->type.dtype) != tacit_dtype_bits(s->type.dtype) ||
        !byte_aligned(v->type.dtype, view->offset))
        return false;
    if (!view->dense && tacit_dtype_bits(v->type.dtype) < 8)
        return false;
    if (w->updates[v->id])
        return false;
    if (w->is_output[v->id]) {
        bool covers = view->dense && view->offset == 0 &&
                      ir_shape_size(&v->type.shape) == ir_shape_size(&s->type.shape);
        if (!covers || !s->producer || plan_is_constant(s) || w->is_output[s->id] ||
            w->claimed[s->id])
            return false;
        w->claimed[s->id] = true;
        return true;
    }
    return view->dense || readers_accept(w, v, view);
}

static void decide(viewer *w, const ir_node *node, uint32_t out)
{
    ir_value *v = node->outputs[out];
    plan_view *mine = &w->views[v->id];
    for (uint32_t k = 0; k < node->n_explicit; k++) {
        const ir_value *in = node->inputs[k];
        op_view view = {0};
        if (!in || !ir_type_is_static(&in->type) || in->type.dtype == TACIT_STRING)
            continue;
        op_operand o = plan_operand(w->views, in);
        if (!node->op->alias(node, k, &o, out, &view))
            continue;
        const plan_view *base = &w->views[in->id];
        plan_view candidate = {.source = base->source ? base->source : in,
                               .offset = base->offset + view.offset};
        memcpy(candidate.strides, view.strides, sizeof candidate.strides);
        candidate.dense = is_dense(&v->type.shape, view.strides);
        if (acceptable(w, v, &candidate)) {
            *mine = candidate;
            return;
        }
    }
}

/* A node that is a view in some outputs only must be able to copy the others from the same rule;
 * otherwise all of it runs. */
static void settle_mixed(viewer *w, const ir_node *node)
{
    bool some = false, stuck = false;
    for (uint32_t i = 0; i < node->n_outputs; i++) {
        const ir_value *v = node->outputs[i];
        if (!v)
            continue;
        some |= w->views[v->id].source != NULL;
        bool viewable = false;
        for (uint32_t k = 0; k < node->n_explicit && !viewable; k++) {
            op_view ignored = {0};
            op_operand o = plan_operand(w->views, node->inputs[k]);
            viewable = node->inputs[k] && node->op->alias(node, k, &o, i, &ignored) &&
                       tacit_dtype_bits(v->type.dtype) >= 8;
        }
        stuck |= !viewable;
    }
    for (uint32_t i = 0; some && stuck && i < node->n_outputs; i++) {
        const ir_value *v = node->outputs[i];
        if (!v || !w->views[v->id].source)
            continue;
        if (w->is_output[v->id])
            w->claimed[w->views[v->id].source->id] = false;
        w->views[v->id] = (plan_view){.dense = true};
        ir_shape_strides(&v->type.shape, w->views[v->id].strides);
    }
}

/* What is joined takes its memory from the time when its first part is made. A small one that is
 * made long before the others would hold too much. */
static bool worth_waiting(const viewer *w, const ir_node *node, const ir_value *v)
{
    enum { SOON = 16, SHARE = 4 };
    return w->place[node->id] - w->place[v->producer->id] <= SOON ||
           ir_shape_size(&node->outputs[0]->type.shape) <= SHARE * ir_shape_size(&v->type.shape);
}

/* Can input `k` be made where `node` joins it? */
static bool may_join(const viewer *w, const ir_node *node, uint32_t k, int64_t *offset)
{
    const ir_value *v = node->inputs[k], *y = node->outputs[0];
    if (!v || !v->producer || !w->place[v->producer->id] || plan_is_constant(v) ||
        w->views[v->id].source || w->is_output[v->id] || w->claimed[v->id] ||
        !ir_type_is_static(&v->type) || ir_shape_size(&v->type.shape) == 0)
        return false;
    for (uint32_t i = 0; i < node->n_inputs; i++)
        if (i != k && node->inputs[i] == v)
            return false;
    int64_t bits = tacit_dtype_bits(v->type.dtype);
    return v->type.dtype != TACIT_STRING && bits >= 8 && bits == tacit_dtype_bits(y->type.dtype) &&
           node->op->part(node, k, offset) && *offset * bits / 8 % PLAN_ALIGN == 0 &&
           worth_waiting(w, node, v);
}

static void join_parts(viewer *w, const ir_node *node)
{
    const ir_value *y = node->op->part ? node->outputs[0] : NULL;
    if (!y || plan_is_view(w->views, y) || w->updates[plan_source(w->views, y)->id])
        return;
    for (uint32_t k = 0; k < node->n_inputs; k++) {
        int64_t offset = 0;
        if (!may_join(w, node, k, &offset))
            continue;
        plan_view *part = &w->views[node->inputs[k]->id];
        part->source = plan_source(w->views, y);
        part->joiner = node;
        part->offset = w->views[y->id].offset + offset;
    }
}

/* Views of parts are views of the whole. */
static void follow_parts(const viewer *w)
{
    for (uint32_t i = 0; i < w->graph->values.count; i++) {
        plan_view *v = &w->views[i];
        const plan_view *part = v->source ? &w->views[v->source->id] : NULL;
        if (part && part->source) {
            v->source = part->source;
            v->offset += part->offset;
        }
    }
}

static tacit_status viewer_open(viewer *w, ir_node *const *nodes, uint32_t n_nodes,
                                ir_value *const *updates, arena *memory, tacit_error *err)
{
    const ir_graph *g = w->graph;
    w->views = ARENA_ARRAY(memory, g->values.count + 1u, plan_view);
    w->is_output = ARENA_ARRAY(memory, g->values.count + 1u, bool);
    w->claimed = ARENA_ARRAY(memory, g->values.count + 1u, bool);
    w->place = ARENA_ARRAY(memory, g->nodes.count + 1u, uint32_t);
    w->updates = ARENA_ARRAY(memory, g->values.count + 1u, bool);
    if (!w->views || !w->is_output || !w->claimed || !w->place || !w->updates)
        return error_memory(err, "the memory plan");
    for (uint32_t i = 0; i < g->outputs.count; i++) {
        w->is_output[g->outputs.data[i]->id] = true;
        w->updates[g->outputs.data[i]->id] = updates && updates[i];
    }
    for (uint32_t i = 0; i < n_nodes; i++)
        w->place[nodes[i]->id] = i + 1;
    for (uint32_t i = 0; i < g->values.count; i++) {
        const ir_value *v = g->values.data[i];
        if (!ir_type_is_static(&v->type))
            continue;
        ir_shape_strides(&v->type.shape, w->views[i].strides);
        w->views[i].dense = true;
    }
    return ir_uses_build(g, memory, &w->uses, err);
}

tacit_status plan_views(const ir_graph *g, ir_node *const *nodes, uint32_t n_nodes,
                        ir_value *const *updates, arena *memory, const plan_view **out,
                        tacit_error *err)
{
    viewer w = {.graph = g};
    TRY(viewer_open(&w, nodes, n_nodes, updates, memory, err));
    for (uint32_t i = 0; i < n_nodes; i++) {
        if (!nodes[i]->op->alias)
            continue;
        for (uint32_t k = 0; k < nodes[i]->n_outputs; k++)
            if (nodes[i]->outputs[k])
                decide(&w, nodes[i], k);
        settle_mixed(&w, nodes[i]);
    }
    for (uint32_t i = n_nodes; i-- > 0;) /* the last first: what is joined may be a part itself */
        join_parts(&w, nodes[i]);
    follow_parts(&w);
    *out = w.views;
    return TACIT_OK;
}
