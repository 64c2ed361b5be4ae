/* SPDX-License-Identifier: Apache-2.0
 * Reverse mode that keeps few values: the forward nodes between two Checkpoint marks are a segment,
 * and all segments but the last are computed again when the walk comes to them. The rules of a
 * segment's nodes then see the second computation. What a segment reads from outside it is kept, so
 * any choice of marks is right; how much memory it saves depends on how little crosses them. */
#include <string.h>

#include "diff/diff.h"

struct diff_remat {
    ir_graph *graph;
    arena *scratch;
    uint32_t n_nodes, n_values; /* of the forward part */
    uint32_t *segment;          /* by node id */
    uint32_t last;              /* segment that is not computed again */
    uint32_t current;           /* segment whose stand-ins are at hand; UINT32_MAX: none */
    ir_value **again;           /* by value id: its stand-in in the current segment */
    bool *kept;                 /* by value id: a checkpoint */
    VEC(ir_node *) made;
};

static bool is_mark(const ir_node *n)
{
    return n->type && n->op && strcmp(n->type, "Checkpoint") == 0 &&
           strcmp(n->domain, "tacit") == 0;
}

static ir_node *tacit_node(ir_graph *g, const char *type, uint32_t n, ir_value *const *in,
                           tacit_error *err)
{
    ir_node *node = ir_node_new(g, type, "tacit", NULL, n, in, 1, NULL);
    if (!node) {
        (void)error_memory(err, "a checkpoint");
        return NULL;
    }
    op_resolve(NULL, node);
    node->outputs[0]->type = in[0]->type;
    return node;
}

/* All readers of the value read it through a mark. */
static tacit_status mark_value(ir_graph *g, const char *name, tacit_error *err)
{
    ir_value *v = ir_value_find(g, name);
    if (!v || (!v->producer && !v->is_input))
        return error_set(err, TACIT_ERR_ARGUMENT,
                         "checkpoint '%s' is not a value computed by the graph", name);
    if (v->producer && is_mark(v->producer))
        return TACIT_OK;
    bool used = false;
    for (uint32_t i = 0; i < g->nodes.count && !used; i++)
        for (uint32_t k = 0; k < g->nodes.data[i]->n_inputs; k++)
            used |= g->nodes.data[i]->inputs[k] == v;
    if (!used) /* an output: nothing after it can be computed again from it */
        return TACIT_OK;
    ir_node *mark = tacit_node(g, "Checkpoint", 1, &v, err);
    if (!mark)
        return TACIT_ERR_MEMORY;
    for (uint32_t i = 0; i < g->nodes.count; i++)
        for (uint32_t k = 0; g->nodes.data[i] != mark && k < g->nodes.data[i]->n_inputs; k++)
            if (g->nodes.data[i]->inputs[k] == v)
                g->nodes.data[i]->inputs[k] = mark->outputs[0];
    return TACIT_OK;
}

tacit_status diff_remat_mark(ir_graph *g, uint32_t n, const char *const *names, tacit_error *err)
{
    for (uint32_t i = 0; i < n; i++)
        TRY(mark_value(g, names[i], err));
    return n ? ir_graph_sort(g, err) : TACIT_OK;
}

/* A segment ends with a mark; marks in a row end one. */
static void number_segments(diff_remat *r)
{
    uint32_t segment = 0;
    bool used = false; /* does the present segment compute anything? */
    for (uint32_t i = 0; i < r->n_nodes; i++) {
        ir_node *n = r->graph->nodes.data[i];
        r->segment[i] = segment;
        used |= !is_mark(n);
        if (!is_mark(n) || !used)
            continue;
        segment++;
        used = false;
    }
    r->last = segment;
}

/* Marks have served when the segments are numbered: readers get the marked value itself. */
static void drop_marks(diff_remat *r)
{
    for (uint32_t i = 0; i < r->n_nodes; i++) {
        ir_node *n = r->graph->nodes.data[i];
        if (!is_mark(n))
            continue;
        r->kept[n->inputs[0]->id] = true;
        ir_replace_uses(r->graph, n->outputs[0], n->inputs[0]);
        ir_node_kill(n);
    }
}

tacit_status diff_remat_open(ir_graph *g, arena *scratch, diff_remat **out, tacit_error *err)
{
    bool any = false;
    *out = NULL;
    for (uint32_t i = 0; i < g->nodes.count && !any; i++)
        any = is_mark(g->nodes.data[i]);
    if (!any)
        return TACIT_OK;
    diff_remat *r = ARENA_NEW(scratch, diff_remat);
    if (!r)
        return error_memory(err, "a gradient graph");
    *r = (diff_remat){.graph = g,
                      .scratch = scratch,
                      .n_nodes = g->nodes.count,
                      .n_values = g->values.count,
                      .current = UINT32_MAX};
    r->segment = ARENA_ARRAY(scratch, r->n_nodes + 1u, uint32_t);
    r->again = ARENA_ARRAY(scratch, r->n_values + 1u, ir_value *);
    r->kept = ARENA_ARRAY(scratch, r->n_values + 1u, bool);
    if (!r->segment || !r->again || !r->kept)
        return error_memory(err, "a gradient graph");
    number_segments(r);
    drop_marks(r);
    *out = r;
    return TACIT_OK;
}

/* Not worth or not right to run twice: constants, draws, loops (which have checkpoints of their
 * own). Their results are kept. */
static bool is_kept(const ir_node *n)
{
    bool known = true;
    for (uint32_t i = 0; i < n->n_outputs; i++)
        known = known && (!n->outputs[i] || ir_value_known(n->outputs[i]));
    return known || !n->type || n->op->flags & (OP_RANDOM | OP_CONTROL) || ir_node_has_subgraph(n);
}

static ir_value *later(diff_remat *r, ir_value *v, ir_value *after, tacit_error *err)
{
    ir_node *n = tacit_node(r->graph, "Later", 2, (ir_value *[]){v, after}, err);
    return n && vec_push(r->scratch, &r->made, n) ? n->outputs[0] : NULL;
}

/* The node on stand-ins. At least one input must be one: the passes would take both computations
 * for the same, and the planner could run the second one at once. */
static tacit_status compute_again(diff_remat *r, const ir_node *n, ir_value *after,
                                  tacit_error *err)
{
    ir_value **in = ARENA_ARRAY(r->scratch, n->n_inputs + 1u, ir_value *);
    if (!in)
        return error_memory(err, "a gradient graph");
    bool apart = false;
    for (uint32_t i = 0; i < n->n_inputs; i++) {
        ir_value *v = n->inputs[i];
        in[i] = v && r->again[v->id] ? r->again[v->id] : v;
        apart |= in[i] != v;
    }
    for (uint32_t i = 0; i < n->n_inputs && !apart; i++) {
        ir_value *v = n->inputs[i];
        if (!v || ir_value_known(v) || v->is_initializer)
            continue;
        in[i] = r->again[v->id] = later(r, v, after, err);
        apart = true;
        if (!in[i])
            return error_memory(err, "a gradient graph");
    }
    ir_node *copy = apart ? ir_node_new(r->graph, n->type, n->domain, n->name, n->n_inputs, in,
                                        n->n_outputs, NULL)
                          : NULL;
    if (!apart)
        return TACIT_OK; /* made of weights alone: the passes fold it */
    if (!copy || !ir_attr_copy_all(r->graph, copy, n) || !vec_push(r->scratch, &r->made, copy))
        return error_memory(err, "a gradient graph");
    copy->op = n->op;
    copy->n_explicit = n->n_explicit;
    for (uint32_t i = 0; i < n->n_outputs; i++) {
        if (!n->outputs[i])
            continue;
        copy->outputs[i]->type = n->outputs[i]->type;
        if (!r->kept[n->outputs[i]->id])
            r->again[n->outputs[i]->id] = copy->outputs[i];
    }
    ir_node_note(r->graph, copy, "grad", "computed again from a checkpoint");
    return TACIT_OK;
}

static tacit_status enter(diff_remat *r, uint32_t segment, ir_value *after, tacit_error *err)
{
    memset(r->again, 0, r->n_values * sizeof *r->again);
    r->current = segment;
    for (uint32_t i = 0; i < r->n_nodes; i++) {
        const ir_node *n = r->graph->nodes.data[i];
        if (n->type && r->segment[i] == segment && !is_kept(n))
            TRY(compute_again(r, n, after, err));
    }
    return TACIT_OK;
}

tacit_status diff_remat_node(diff_remat *r, ir_node *n, ir_value *after, ir_node *stand_in,
                             tacit_error *err)
{
    uint32_t segment = r->segment[n->id];
    *stand_in = *n;
    if (segment == r->last)
        return TACIT_OK;
    if (segment != r->current)
        TRY(enter(r, segment, after, err));
    stand_in->inputs = ARENA_ARRAY(r->graph->memory, n->n_inputs + 1u, ir_value *);
    stand_in->outputs = ARENA_ARRAY(r->graph->memory, n->n_outputs + 1u, ir_value *);
    if (!stand_in->inputs || !stand_in->outputs)
        return error_memory(err, "a gradient graph");
    for (uint32_t i = 0; i < n->n_inputs; i++) {
        ir_value *v = n->inputs[i];
        stand_in->inputs[i] = v && r->again[v->id] ? r->again[v->id] : v;
    }
    for (uint32_t i = 0; i < n->n_outputs; i++) {
        ir_value *v = n->outputs[i];
        stand_in->outputs[i] = v && r->again[v->id] ? r->again[v->id] : v;
    }
    return TACIT_OK;
}

/* Second computations that no rule asked for go. */
tacit_status diff_remat_sweep(diff_remat *r, tacit_error *err)
{
    ir_graph *g = r->graph;
    uint32_t *uses = ARENA_ARRAY(r->scratch, g->values.count + 1u, uint32_t);
    if (!uses)
        return error_memory(err, "a gradient graph");
    for (uint32_t i = 0; i < g->nodes.count; i++)
        for (uint32_t k = 0; g->nodes.data[i]->type && k < g->nodes.data[i]->n_inputs; k++)
            if (g->nodes.data[i]->inputs[k])
                uses[g->nodes.data[i]->inputs[k]->id]++;
    for (uint32_t i = 0; i < g->outputs.count; i++)
        uses[g->outputs.data[i]->id]++;
    for (uint32_t i = r->made.count; i-- > 0;) {
        ir_node *n = r->made.data[i];
        bool used = false;
        for (uint32_t k = 0; k < n->n_outputs; k++)
            used |= n->outputs[k] && uses[n->outputs[k]->id];
        for (uint32_t k = 0; !used && k < n->n_inputs; k++)
            if (n->inputs[k])
                uses[n->inputs[k]->id]--;
        if (!used)
            ir_node_kill(n);
    }
    return TACIT_OK;
}

/* --- where to cut ----------------------------------------------------------------------------- */

static uint64_t value_bytes(const ir_value *v)
{
    size_t bytes;
    return v && !ir_value_known(v) && ir_type_bytes(&v->type, &bytes) ? bytes : 0;
}

/* last[v]: position of the last reader of value v; the number of nodes for outputs. */
static void last_readers(const ir_graph *g, uint32_t *last)
{
    for (uint32_t i = 0; i < g->nodes.count; i++)
        for (uint32_t k = 0; k < g->nodes.data[i]->n_inputs; k++)
            if (g->nodes.data[i]->inputs[k])
                last[g->nodes.data[i]->inputs[k]->id] = i;
}

tacit_status diff_remat_points(const ir_graph *g, arena *memory, diff_points *out, tacit_error *err)
{
    uint32_t n = g->nodes.count, *last = ARENA_ARRAY(memory, g->values.count + 1u, uint32_t);
    uint64_t *ends = ARENA_ARRAY(memory, n + 1u, uint64_t); /* bytes read last at a position */
    out->all = ARENA_ARRAY(memory, n + 1u, diff_point);
    if (!last || !ends || !out->all)
        return error_memory(err, "choosing checkpoints");
    out->count = 0;
    last_readers(g, last);
    uint64_t crossing = 0, total = 0;
    for (uint32_t i = 0; i < n; i++) {
        const ir_node *node = g->nodes.data[i];
        const ir_value *widest = NULL;
        for (uint32_t k = 0; k < node->n_outputs; k++) {
            const ir_value *v = node->outputs[k];
            if (!v || last[v->id] <= i)
                continue;
            crossing += value_bytes(v);
            total += value_bytes(v);
            ends[last[v->id]] += value_bytes(v);
            widest = !widest || value_bytes(v) > value_bytes(widest) ? v : widest;
        }
        crossing -= ends[i];
        /* A cut here keeps one value, and little else crosses it. */
        if (widest && value_bytes(widest) && crossing <= value_bytes(widest) / 2 * 3)
            out->all[out->count++] = (diff_point){widest->name, total};
    }
    out->total = total;
    return TACIT_OK;
}
