/* SPDX-License-Identifier: Apache-2.0
 * Scan under the transforms. Its gradient is one Scan backwards in time: states are the cotangents
 * of the carries and the sums of those of outer values; per step it reads the carry that entered
 * the forward step, the x of that step and the cotangents of what the step gave out.
 *
 * With attribute checkpoints = K the scan is cut into K pieces; only the carries between them are
 * kept, and each piece is run again, with its carries recorded, when the gradient comes to it. With
 * recursive = 1 a piece is halved until four steps are left: one carry per level, some steps more.
 */
#include <string.h>

#include "diff/diff.h"

enum { PORTS = 64, LEAF = 4 }; /* LEAF: steps that a recursive gradient records at once */

typedef struct scan {
    ir_node *node;
    ir_graph *body;
    uint32_t states, xs, ys, captures;
    int64_t length;
} scan;

static int64_t list_at(const ir_node *node, const char *name, uint32_t i)
{
    uint32_t n;
    const int64_t *values = ir_attr_ints(node, name, &n);
    return values && i < n ? values[i] : 0;
}

bool diff_is_scan(const ir_node *n)
{
    return n->type && n->op && strcmp(n->type, "Scan") == 0 && n->domain[0] == '\0';
}

/* A carry keeps its type from step to step. */
static tacit_status check_carries(const ir_node *n, const scan *s, tacit_error *err)
{
    for (uint32_t k = 0; k < s->states; k++) {
        const ir_type *in = &s->body->inputs.data[k]->type, *out = &s->body->outputs.data[k]->type;
        char a[IR_SHAPE_TEXT], b[IR_SHAPE_TEXT];
        if (ir_type_is_static(in) && ir_type_is_static(out) &&
            (in->dtype != out->dtype || !ir_shape_equal(&in->shape, &out->shape)))
            return error_set(err, TACIT_ERR_SHAPE,
                             "node '%s' (Scan): carry %u enters a step as %s%s and leaves it as "
                             "%s%s",
                             n->name, k, tacit_dtype_text(in->dtype), ir_shape_text(&in->shape, a),
                             tacit_dtype_text(out->dtype), ir_shape_text(&out->shape, b));
    }
    return TACIT_OK;
}

static tacit_status read_scan(ir_node *n, scan *s, tacit_error *err)
{
    int64_t xs = ir_attr_int(n, "num_scan_inputs", 0);
    *s = (scan){.node = n, .body = ir_attr_graph(n, "body")};
    if (!s->body || xs < 1 || xs > (int64_t)n->n_explicit)
        return error_set(err, TACIT_ERR_GRAPH, "node '%s' (Scan): no body or no scan inputs",
                         n->name);
    s->xs = (uint32_t)xs;
    s->states = n->n_explicit - s->xs;
    s->captures = n->n_inputs - n->n_explicit;
    if (s->body->outputs.count < s->states || s->body->inputs.count != n->n_explicit ||
        s->body->captures.count != s->captures)
        return error_set(err, TACIT_ERR_GRAPH, "node '%s' (Scan): the body does not fit", n->name);
    s->ys = s->body->outputs.count - s->states;
    TRY(check_carries(n, s, err));
    for (uint32_t i = 0; i < s->xs || i < s->ys; i++)
        if (list_at(n, "scan_input_axes", i) != 0 || list_at(n, "scan_output_axes", i) != 0)
            return error_set(err, TACIT_ERR_UNSUPPORTED,
                             "node '%s' (Scan): transforms need scans over axis 0", n->name);
    for (uint32_t i = 0; i < n->n_outputs; i++)
        if (n->outputs[i] && !ir_type_is_static(&n->outputs[i]->type))
            return error_set(err, TACIT_ERR_SHAPE,
                             "node '%s' (Scan): its shapes are not known when compiling", n->name);
    s->length = n->inputs[s->states]->type.shape.dims[0];
    return TACIT_OK;
}

static bool set_body(ir_graph *g, ir_node *n, ir_graph *body)
{
    body->parent = g;
    return ir_attr_set(g, n, &(ir_attr){.name = "body", .kind = IR_ATTR_GRAPH, .graph = body});
}

/* A Scan with `body` on these inputs and the captures of `like`; not inferred yet. */
static ir_node *scan_node(op_diff *c, const scan *like, ir_graph *body, uint32_t n_in,
                          ir_value *const *in, uint32_t n_out, uint32_t xs)
{
    ir_node *n = ir_node_new(c->graph, "Scan", "", NULL, n_in, in, n_out, NULL);
    bool ok = n && set_body(c->graph, n, body) &&
              ir_attr_set_int(c->graph, n, "num_scan_inputs", (int64_t)xs);
    for (uint32_t i = 0; ok && i < like->captures; i++)
        ok = ir_node_append_capture(c->graph, n, like->node->inputs[like->node->n_explicit + i]);
    if (!ok) {
        c->status = error_memory(c->err, "a scan");
        return NULL;
    }
    op_resolve(NULL, n);
    return n;
}

static tacit_status set_directions(op_diff *c, ir_node *n, const char *name, uint32_t count,
                                   const int64_t *values)
{
    if (!ir_attr_set_ints(c->graph, n, name, count, values))
        c->status = error_memory(c->err, "a scan");
    return c->status;
}

/* --- recording the carries -------------------------------------------------------------------- */

/* Adds the entering carries to what the body gives out per step. */
static tacit_status record(op_diff *c, scan *s, ir_node *n, ir_graph *body)
{
    uint32_t old = n->n_outputs, total = s->states + s->ys + s->states;
    ir_value **outputs = ARENA_ARRAY(c->graph->memory, total + 1u, ir_value *);
    int64_t *directions = ARENA_ARRAY(c->graph->memory, s->ys + s->states + 1u, int64_t);
    if (!outputs || !directions)
        return c->status = error_memory(c->err, "a scan");
    memcpy(outputs, n->outputs, old * sizeof *outputs);
    for (uint32_t i = 0; i < s->ys; i++)
        directions[i] = list_at(n, "scan_output_directions", i);
    for (uint32_t k = 0; k < s->states; k++) {
        uint32_t at = s->states + s->ys + k;
        ir_value *v = ir_value_new(c->graph, "carries", &body->inputs.data[k]->type);
        if (!v || !ir_output_add(body, body->inputs.data[k]))
            return c->status = error_memory(c->err, "a scan");
        v->producer = n;
        v->output_index = at;
        outputs[at] = v;
    }
    n->outputs = outputs;
    n->n_outputs = total;
    TRY(set_directions(c, n, "scan_output_directions", s->ys + s->states, directions));
    return c->status = op_infer_node(c->graph, n, c->err);
}

static ir_value *piece(op_diff *c, ir_value *x, int64_t from, int64_t to);

/* A scan like `s` over steps [from, to), from `carry` on. */
static ir_node *part(op_diff *c, const scan *s, ir_value *const *carry, int64_t from, int64_t to)
{
    ir_value *in[2 * PORTS];
    memcpy(in, carry, s->states * sizeof *in);
    for (uint32_t i = 0; i < s->xs; i++)
        in[s->states + i] = piece(c, s->node->inputs[s->states + i], from, to);
    ir_graph *body = c->status == TACIT_OK ? ir_graph_clone(s->body, c->graph->memory) : NULL;
    if (!body && c->status == TACIT_OK)
        c->status = error_memory(c->err, "a scan");
    ir_node *n =
        body ? scan_node(c, s, body, s->states + s->xs, in, s->states + s->ys, s->xs) : NULL;
    if (n)
        c->status = op_infer_node(c->graph, n, c->err);
    return c->status == TACIT_OK ? n : NULL;
}

/* Runs all steps but the last again, recording. Nothing to run for a single step. */
static tacit_status recompute(op_diff *c, scan *s, ir_value **kept)
{
    ir_value *const *last = s->node->inputs;
    ir_node *again = NULL;
    if (s->length > 1) {
        again = part(c, s, s->node->inputs, 0, s->length - 1);
        if (!again || record(c, s, again, ir_attr_graph(again, "body")) != TACIT_OK)
            return c->status;
        last = again->outputs;
    }
    for (uint32_t k = 0; k < s->states; k++) {
        ir_value *row = op_diff2(c, "Unsqueeze", last[k], op_diff_ints(c, 1, (int64_t[]){0}));
        kept[k] = row;
        if (!again)
            continue;
        ir_value *both[2] = {again->outputs[s->states + s->ys + k], row};
        kept[k] = op_diff_attr_int(c, op_diff_open(c, "Concat", 2, both), "axis", 0);
    }
    return c->status;
}

/* Where the carry entering each step can be read: kept[k] is [length, …] of state k. The forward
 * scan gives them out too, or a second run of it does where it is to be run again. */
static tacit_status carries(op_diff *c, scan *s, ir_value **kept)
{
    if (ir_attr_int(s->node, "recompute", 0))
        return recompute(c, s, kept);
    /* s->node may be a stand-in for the node of the graph, which has to give the carries out. */
    ir_node *forward = s->node;
    for (uint32_t i = 0; i < s->node->n_outputs; i++)
        if (s->node->outputs[i])
            forward = s->node->outputs[i]->producer;
    TRY(record(c, s, forward, s->body));
    memcpy(kept, forward->outputs + s->states + s->ys, s->states * sizeof *kept);
    return c->status;
}

/* --- the gradient ----------------------------------------------------------------------------- */

/* The backward scan while it is put together: `body` and node inputs grow side by side. */
typedef struct backward {
    op_diff *c;
    op_diff inner; /* builds in the body */
    scan s;
    ir_graph *body;
    ir_value *in[3 * PORTS];     /* node inputs */
    ir_value *formal[3 * PORTS]; /* the body's, in the same order */
    int64_t in_direction[3 * PORTS], out_direction[PORTS];
    uint32_t n_in, n_states;
    ir_value *seeded[2 * PORTS], *seed[2 * PORTS]; /* body outputs and their cotangents */
    uint32_t n_seeds;
    ir_value *wrt[2 * PORTS], *grad[2 * PORTS]; /* carries, then captures, then xs */
    uint32_t target[2 * PORTS];                 /* node input that each belongs to */
    uint32_t n_wrt, n_summed;                   /* n_summed: carries and captures */
} backward;

static void port(backward *b, ir_value *outer, ir_value *formal, int64_t reversed)
{
    b->in[b->n_in] = outer;
    b->in_direction[b->n_in] = reversed;
    b->formal[b->n_in++] = formal;
}

static ir_value *fresh_input(backward *b, const char *name, const ir_type *type)
{
    ir_value *v = ir_input_new(b->body, name, type);
    if (!v && b->c->status == TACIT_OK)
        b->c->status = error_memory(b->c->err, "a scan");
    return v;
}

/* States: cotangents of carries, sums for outer values. */
static void add_states(backward *b, ir_value **sums)
{
    op_diff *c = b->c;
    scan *s = &b->s;
    for (uint32_t k = 0; k < s->states; k++) {
        ir_value *formal = b->body->inputs.data[k];
        if (!diff_is_smooth(formal->type.dtype))
            continue;
        ir_value *from = c->out_grad[k] ? c->out_grad[k] : op_diff_zeros(c, &formal->type);
        ir_value *seed = fresh_input(b, "d_carry", &formal->type);
        port(b, from, seed, 0);
        b->seeded[b->n_seeds] = b->body->outputs.data[k];
        b->seed[b->n_seeds++] = seed;
        b->target[b->n_wrt] = k;
        b->wrt[b->n_wrt++] = formal;
    }
    for (uint32_t k = 0; k < s->captures; k++) {
        ir_value *formal = b->body->captures.data[k];
        uint32_t at = s->node->n_explicit + k;
        if (!formal || !c->wanted[at])
            continue;
        sums[b->n_wrt] = fresh_input(b, "sum", &formal->type);
        port(b, op_diff_zeros(c, &formal->type), sums[b->n_wrt], 0);
        b->target[b->n_wrt] = at;
        b->wrt[b->n_wrt++] = formal;
    }
    b->n_states = b->n_in;
    b->n_summed = b->n_wrt;
}

/* Per step: entering carries, xs, cotangents of what the step gave out. */
static void add_xs(backward *b, ir_value *const *kept)
{
    op_diff *c = b->c;
    scan *s = &b->s;
    for (uint32_t k = 0; k < s->states; k++)
        /* NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): one is kept for every state */
        port(b, kept[k], b->body->inputs.data[k], 1);
    for (uint32_t i = 0; i < s->xs; i++) {
        ir_value *formal = b->body->inputs.data[s->states + i];
        int64_t direction = list_at(s->node, "scan_input_directions", i);
        port(b, s->node->inputs[s->states + i], formal, !direction);
        if (!c->wanted[s->states + i])
            continue;
        b->out_direction[b->n_wrt - b->n_summed] = !direction;
        b->target[b->n_wrt] = s->states + i;
        b->wrt[b->n_wrt++] = formal;
    }
    for (uint32_t i = 0; i < s->ys; i++) {
        ir_value *g = c->out_grad[s->states + i], *out = b->body->outputs.data[s->states + i];
        if (!g)
            continue;
        ir_value *seed = fresh_input(b, "d_step", &out->type);
        port(b, g, seed, !list_at(s->node, "scan_output_directions", i));
        b->seeded[b->n_seeds] = out;
        b->seed[b->n_seeds++] = seed;
    }
}

static tacit_status finish_body(backward *b, ir_value *const *sums)
{
    ir_graph *body = b->body;
    TRY(diff_reverse(body, b->n_seeds, b->seeded, b->seed, b->n_wrt, b->wrt, b->grad, b->c->err));
    b->inner = (op_diff){.graph = body, .node = b->s.node, .err = b->c->err};
    body->outputs.count = 0;
    for (uint32_t i = 0; i < b->n_wrt; i++) {
        ir_value *d = b->grad[i] ? b->grad[i] : op_diff_zeros(&b->inner, &b->wrt[i]->type);
        if (i < b->n_summed && sums[i])
            d = op_diff_add(&b->inner, sums[i], d);
        if (b->inner.status != TACIT_OK)
            return b->inner.status;
        if (!d || !ir_output_add(body, d))
            return error_memory(b->c->err, "a scan");
    }
    body->inputs.count = 0;
    for (uint32_t i = 0; i < b->n_in; i++)
        if (!b->formal[i] || !vec_push(body->memory, &body->inputs, b->formal[i]))
            return error_memory(b->c->err, "a scan");
    TRY(ir_graph_sort(body, b->c->err));
    return op_infer_graph(body, b->c->err);
}

/* The gradient of one half of a scan: steps [from, to) from `carry` on. `states` holds the
 * cotangents of its last carries. The half itself is not run: its rule needs its inputs alone. */
static tacit_status half(op_diff *c, const scan *s, ir_value *const *carry, int64_t from,
                         int64_t to, ir_value *const *states, ir_value **grads)
{
    ir_value *cotangents[2 * PORTS];
    memcpy(cotangents, states, s->states * sizeof *cotangents);
    for (uint32_t i = 0; i < s->ys; i++) {
        ir_value *g = c->out_grad[s->states + i];
        cotangents[s->states + i] = g ? piece(c, g, from, to) : NULL;
    }
    ir_node *n = part(c, s, carry, from, to);
    if (!n)
        return c->status;
    if (!ir_attr_set_int(c->graph, n, "recompute", 2))
        return c->status = error_memory(c->err, "a scan");
    op_diff inner = {.graph = c->graph,
                     .node = n,
                     .out_grad = cotangents,
                     .in_grad = grads,
                     .wanted = c->wanted,
                     .err = c->err};
    TRY(diff_scan_vjp(&inner));
    ir_node_kill(n);
    return c->status = inner.status;
}

/* Recursive: the later half first, from the carry in the middle, then the earlier one. Only one
 * carry per level is alive. */
static tacit_status halves(op_diff *c, const scan *s)
{
    int64_t middle = s->length / 2;
    ir_value *late[2 * PORTS] = {NULL}, *early[2 * PORTS] = {NULL};
    ir_node *first = part(c, s, s->node->inputs, 0, middle);
    if (!first)
        return c->status;
    TRY(half(c, s, first->outputs, middle, s->length, c->out_grad, late));
    TRY(half(c, s, s->node->inputs, 0, middle, late, early));
    for (uint32_t i = 0; i < s->node->n_inputs; i++) {
        bool x = i >= s->states && i < s->node->n_explicit;
        if (i < s->states)
            c->in_grad[i] = early[i];
        else if (!x)
            c->in_grad[i] = op_diff_add(c, early[i], late[i]);
        else if (early[i] && late[i])
            c->in_grad[i] = op_diff_attr_int(
                c, op_diff_open(c, "Concat", 2, (ir_value *[]){early[i], late[i]}), "axis", 0);
    }
    return c->status;
}

/* The body's inputs and outer values that can have a derivative. */
static uint32_t smooth_values(const ir_graph *body, ir_value **out)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < body->inputs.count; i++)
        if (diff_is_smooth(body->inputs.data[i]->type.dtype))
            out[n++] = body->inputs.data[i];
    for (uint32_t i = 0; i < body->captures.count; i++)
        if (body->captures.data[i] && diff_is_smooth(body->captures.data[i]->type.dtype))
            out[n++] = body->captures.data[i];
    return n;
}

tacit_status diff_scan_vjp(op_diff *c)
{
    backward b = {.c = c};
    ir_value *sums[2 * PORTS] = {NULL}, *kept[PORTS];
    TRY(read_scan(c->node, &b.s, c->err));
    scan *s = &b.s;
    if (s->states + s->captures >= PORTS || s->xs + s->ys >= PORTS)
        return op_diff_fail(c, TACIT_ERR_LIMIT, "too many inputs or outputs to differentiate");
    if (ir_attr_int(c->node, "recompute", 0) == 2 && s->length > LEAF)
        return halves(c, s);
    b.body = ir_graph_clone(s->body, c->graph->memory);
    if (!b.body)
        return error_memory(c->err, "a scan");
    TRY(carries(c, s, kept));
    uint32_t n_smooth = smooth_values(b.body, b.wrt);
    TRY(diff_prepare(b.body, n_smooth, b.wrt, c->err));
    add_states(&b, sums);
    add_xs(&b, kept);
    if (c->status != TACIT_OK)
        return c->status;
    TRY(finish_body(&b, sums));
    uint32_t xs = b.n_in - b.n_states;
    ir_node *n = scan_node(c, s, b.body, b.n_in, b.in, b.n_wrt, xs);
    if (!n)
        return c->status;
    TRY(set_directions(c, n, "scan_input_directions", xs, b.in_direction + b.n_states));
    TRY(set_directions(c, n, "scan_output_directions", b.n_wrt - b.n_summed, b.out_direction));
    c->status = op_infer_node(c->graph, n, c->err);
    for (uint32_t i = 0; i < b.n_wrt && c->status == TACIT_OK; i++)
        c->in_grad[b.target[i]] = n->outputs[i];
    return c->status;
}

/* --- checkpoints ------------------------------------------------------------------------------ */

/* Steps [from, to) of x. */
static ir_value *piece(op_diff *c, ir_value *x, int64_t from, int64_t to)
{
    ir_value *in[4] = {x, op_diff_ints(c, 1, &from), op_diff_ints(c, 1, &to),
                       op_diff_ints(c, 1, (int64_t[]){0})};
    return x && in[3] ? op_diff_node(c, "Slice", 4, in) : NULL;
}

/* One of the K scans; `carry` goes in and comes out. Parts of scan outputs go to parts[i · K]. */
static tacit_status cut_piece(op_diff *c, const scan *s, ir_value **carry, int64_t from, int64_t to,
                              ir_value **parts, int64_t stride)
{
    bool recursive = ir_attr_int(s->node, "recursive", 0) != 0;
    ir_node *n = part(c, s, carry, from, to);
    if (!n)
        return c->status;
    if (!ir_attr_set_int(c->graph, n, "recompute", recursive ? 2 : 1))
        return c->status = error_memory(c->err, "a scan");
    memcpy(carry, n->outputs, s->states * sizeof *carry);
    for (uint32_t i = 0; i < s->ys; i++)
        parts[i * stride] = n->outputs[s->states + i];
    return c->status;
}

/* Piece k ends after step ceil((k+1)·L/K) − 1. */
static tacit_status cut_scan(ir_graph *g, ir_node *n, int64_t pieces, tacit_error *err)
{
    scan s;
    TRY(read_scan(n, &s, err));
    op_diff c = {.graph = g, .node = n, .err = err};
    if (pieces < 1 || pieces > s.length)
        return error_set(err, TACIT_ERR_ARGUMENT,
                         "node '%s' (Scan): %lld checkpoints for %lld steps", n->name,
                         (long long)pieces, (long long)s.length);
    for (uint32_t i = 0; i < s.xs || i < s.ys; i++)
        if (list_at(n, "scan_input_directions", i) || list_at(n, "scan_output_directions", i))
            return op_diff_fail(&c, TACIT_ERR_UNSUPPORTED,
                                "checkpoints need a scan forwards in time");
    if (s.states >= PORTS || s.xs >= PORTS)
        return op_diff_fail(&c, TACIT_ERR_LIMIT, "too many inputs to cut");
    ir_value *carry[PORTS];
    ir_value **parts = ARENA_ARRAY(g->memory, (size_t)s.ys * (size_t)pieces + 1, ir_value *);
    if (!parts)
        return error_memory(err, "a scan");
    memcpy(carry, n->inputs, s.states * sizeof *carry);
    for (int64_t k = 0, from = 0; k < pieces; k++) {
        int64_t to = ((k + 1) * s.length + pieces - 1) / pieces;
        TRY(cut_piece(&c, &s, carry, from, to, parts + k, pieces));
        from = to;
    }
    for (uint32_t i = 0; i < n->n_outputs; i++) {
        if (!n->outputs[i])
            continue;
        ir_value *v = i < s.states ? carry[i] : NULL;
        if (!v) {
            v = op_diff_open(&c, "Concat", (uint32_t)pieces, parts + (i - s.states) * pieces);
            v = op_diff_attr_int(&c, v, "axis", 0);
        }
        if (!v)
            return c.status;
        ir_replace_uses(g, n->outputs[i], v);
    }
    ir_node_kill(n);
    return TACIT_OK;
}

tacit_status diff_cut_scans(ir_graph *g, tacit_error *err)
{
    bool any = false;
    for (uint32_t i = 0, count = g->nodes.count; i < count; i++) {
        ir_node *n = g->nodes.data[i];
        const ir_attr *k = diff_is_scan(n) ? ir_attr_find(n, "checkpoints") : NULL;
        if (!k || k->kind != IR_ATTR_INT || k->i == 0)
            continue;
        any = true;
        TRY(cut_scan(g, n, k->i, err));
    }
    if (!any)
        return TACIT_OK;
    TRY(ir_graph_sort(g, err));
    return op_infer_graph(g, err);
}
