/* SPDX-License-Identifier: Apache-2.0
 * Use lists that follow edits, and the primitives that change the graph. */
#include "pass/edit.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void pass_ops_find(const op_def **rows)
{
    static const char *const names[PASS_OP_COUNT][2] = {
#define PASS_OP_NAME(id, domain, name) {domain, name},
        PASS_OPS(PASS_OP_NAME)
#undef PASS_OP_NAME
    };
    for (uint32_t i = 0; i < PASS_OP_COUNT; i++)
        rows[i] = op_find(NULL, names[i][0], names[i][1]);
}

/* Lists have an entry for every value and node made so far. */
static bool catch_up(pass_edit *e)
{
    arena *a = e->c->lists;
    while (e->head.count < e->g->values.count)
        if (!vec_push(a, &e->head, PASS_NONE) || !vec_push(a, &e->count, 0))
            return false;
    while (e->first.count < e->g->nodes.count)
        if (!vec_push(a, &e->first, PASS_NONE))
            return false;
    return true;
}

static void link_use(pass_edit *e, uint32_t i, const ir_value *v)
{
    pass_use *u = &e->uses.data[i];
    uint32_t old = e->head.data[v->id];
    u->previous = PASS_NONE;
    u->next = old;
    if (old != PASS_NONE)
        e->uses.data[old].previous = i;
    e->head.data[v->id] = i;
    e->count.data[v->id]++;
}

static void unlink_use(pass_edit *e, uint32_t i, const ir_value *v)
{
    pass_use *u = &e->uses.data[i];
    if (u->previous != PASS_NONE)
        e->uses.data[u->previous].next = u->next;
    else
        e->head.data[v->id] = u->next;
    if (u->next != PASS_NONE)
        e->uses.data[u->next].previous = u->previous;
    e->count.data[v->id]--;
}

static bool link_node(pass_edit *e, ir_node *n)
{
    if (!catch_up(e))
        return false;
    e->first.data[n->id] = e->uses.count;
    for (uint32_t k = 0; k < n->n_inputs; k++) {
        if (!vec_push(e->c->lists, &e->uses, (pass_use){n, k, PASS_NONE, PASS_NONE}))
            return false;
        if (n->inputs[k])
            link_use(e, e->uses.count - 1, n->inputs[k]);
    }
    return true;
}

/* Room for the graph as it is and some more. */
static bool make_room(pass_edit *e)
{
    arena *a = e->c->lists;
    uint32_t values = e->g->values.count, nodes = e->g->nodes.count, uses = e->g->outputs.count;
    for (uint32_t i = 0; i < nodes; i++)
        uses += e->g->nodes.data[i]->n_inputs;
    return vec_reserve(a, &e->head, values + values / 4) &&
           vec_reserve(a, &e->count, values + values / 4) &&
           vec_reserve(a, &e->first, nodes + nodes / 4) &&
           vec_reserve(a, &e->uses, uses + uses / 4);
}

tacit_status pass_edit_begin(pass_edit *e, pass_context *c)
{
    if (c->kept->g && c->kept->version == c->graph->version) {
        *e = *c->kept;
        return TACIT_OK;
    }
    *e = (pass_edit){.c = c, .g = c->graph, .version = c->graph->version};
    bool ok = make_room(e) && catch_up(e);
    for (uint32_t i = 0; ok && i < e->g->nodes.count; i++)
        if (e->g->nodes.data[i]->type)
            ok = link_node(e, e->g->nodes.data[i]);
    e->outputs = e->uses.count;
    for (uint32_t i = 0; ok && i < e->g->outputs.count; i++) {
        ok = vec_push(c->lists, &e->uses, (pass_use){NULL, i, PASS_NONE, PASS_NONE});
        if (ok)
            link_use(e, e->uses.count - 1, e->g->outputs.data[i]);
    }
    if (!ok)
        return error_memory(c->err, "use lists of a pass");
    *c->kept = *e;
    return TACIT_OK;
}

void pass_set_input(pass_edit *e, ir_node *n, uint32_t k, ir_value *v)
{
    uint32_t i = e->first.data[n->id] + k;
    e->g->version++;
    if (n->inputs[k])
        unlink_use(e, i, n->inputs[k]);
    n->inputs[k] = v;
    if (v)
        link_use(e, i, v);
}

void pass_kill(pass_edit *e, ir_node *n)
{
    for (uint32_t k = 0; k < n->n_inputs; k++)
        pass_set_input(e, n, k, NULL);
    /* The name is free at once, so that what replaces the node can have it. */
    (void)map_put(&e->g->node_names, n->name, NULL);
    n->name = "";
    ir_node_kill(n);
    e->g->version++;
}

void pass_become_constants(pass_edit *e, ir_node *n)
{
    for (uint32_t k = 0; k < n->n_outputs; k++) {
        ir_value *v = n->outputs[k];
        n->outputs[k] = NULL;
        if (!v)
            continue;
        v->producer = NULL;
        v->is_initializer = true;
    }
    pass_kill(e, n);
}

tacit_status pass_each(pass_context *c, pass_op made, pass_visit_fn *visit)
{
    pass_edit e;
    TRY(pass_edit_begin(&e, c));
    if (!pass_has(&e, made))
        return TACIT_OK;
    for (uint32_t i = 0, n = c->graph->nodes.count; i < n; i++)
        TRY(visit(&e, c->graph->nodes.data[i]));
    return TACIT_OK;
}

tacit_status pass_derive(pass_edit *e, const ir_shape *shape, const ir_recipe *recipe,
                         ir_tensor **out)
{
    *out = ir_tensor_late(e->g->memory, shape, recipe);
    if (!*out)
        return error_memory(e->c->err, "a derived weight");
    return pass_late(e, (*out)->bytes) ? TACIT_OK : ir_tensor_make(*out, e->c->err);
}

bool pass_replaceable(const pass_edit *e, const ir_value *old, const ir_value *replacement)
{
    if (old == replacement)
        return false;
    return !pass_is_output(e, old) ||
           (replacement->producer && !replacement->is_input && !pass_is_output(e, replacement));
}

void pass_replace(pass_edit *e, ir_value *old, ir_value *replacement)
{
    bool was_output = false;
    e->g->version++;
    uint32_t i = e->head.data[old->id];
    while (i != PASS_NONE) {
        pass_use *u = &e->uses.data[i];
        uint32_t next = u->next;
        if (u->node)
            u->node->inputs[u->index] = replacement;
        else
            e->g->outputs.data[u->index] = replacement;
        was_output |= !u->node;
        link_use(e, i, replacement);
        i = next;
    }
    e->head.data[old->id] = PASS_NONE;
    e->count.data[old->id] = 0;
    if (was_output)
        ir_swap_names(e->g, old, replacement);
}

static void keep_copies(ir_graph *g, ir_attr *a)
{
    /* Lists and strings of a fusion live on the caller's stack until here. */
    if (a->kind == IR_ATTR_INTS)
        a->ints = arena_copy(g->memory, a->ints, a->count * sizeof *a->ints);
    if (a->kind == IR_ATTR_FLOATS)
        a->floats = arena_copy(g->memory, a->floats, a->count * sizeof *a->floats);
    if (a->kind == IR_ATTR_STRING)
        a->s.data = arena_strndup(g->memory, a->s.data, a->s.length);
}

static bool set_attrs(ir_graph *g, ir_node *n, uint32_t count, const ir_attr *attrs)
{
    for (uint32_t i = 0; i < count; i++) {
        ir_attr a = attrs[i];
        keep_copies(g, &a);
        if ((a.kind == IR_ATTR_INTS && !a.ints) || (a.kind == IR_ATTR_FLOATS && !a.floats) ||
            (a.kind == IR_ATTR_STRING && !a.s.data) || !ir_attr_set(g, n, &a))
            return false;
    }
    return true;
}

/* A node whose outputs are fresh values (`wanted[i]` false: absent), not yet inferred or linked. */
static ir_node *raw_node(pass_edit *e, pass_op op, const char *name, uint32_t n_inputs,
                         ir_value *const *inputs, uint32_t n_outputs)
{
    const op_def *row = e->c->ops[op];
    ir_node *n = ir_node_new(e->g, row->name, row->domain, name, n_inputs, inputs, n_outputs, NULL);
    if (n)
        n->op = row;
    return n;
}

ir_node *pass_node(pass_edit *e, pass_op op, const char *name, uint32_t n_inputs,
                   ir_value *const *inputs, uint32_t n_attrs, const ir_attr *attrs,
                   tacit_status *status)
{
    ir_node *n = raw_node(e, op, name, n_inputs, inputs, 1);
    *status = n && set_attrs(e->g, n, n_attrs, attrs) && link_node(e, n)
                  ? TACIT_OK
                  : error_memory(e->c->err, "a node of a pass");
    if (*status == TACIT_OK)
        *status = op_infer_node(e->g, n, e->c->err);
    return *status == TACIT_OK ? n : NULL;
}

void pass_near_miss(pass_edit *e, ir_node *n, const char *format, ...)
{
    char text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (const ir_note *note = n->notes; note; note = note->next)
        if (strcmp(note->pass, e->c->name) == 0 && strcmp(note->text, text) == 0)
            return;
    ir_node_note(e->g, n, e->c->name, "%s", text);
}

/* --- fusions ---------------------------------------------------------------------------------- */
static void add_attr(pass_fusion *f, ir_attr a)
{
    if (f->n_attrs < sizeof f->attrs / sizeof *f->attrs)
        f->attrs[f->n_attrs++] = a;
    else
        f->nodes.overflow = true;
}

void pass_fusion_int(pass_fusion *f, const char *name, int64_t value)
{
    add_attr(f, (ir_attr){.name = name, .kind = IR_ATTR_INT, .i = value});
}

void pass_fusion_float(pass_fusion *f, const char *name, double value)
{
    add_attr(f, (ir_attr){.name = name, .kind = IR_ATTR_FLOAT, .f = value});
}

void pass_fusion_string(pass_fusion *f, const char *name, const char *value)
{
    add_attr(
        f, (ir_attr){.name = name, .kind = IR_ATTR_STRING, .s = {value, (uint64_t)strlen(value)}});
}

void pass_fusion_ints(pass_fusion *f, const char *name, uint32_t count, const int64_t *values)
{
    add_attr(f, (ir_attr){.name = name, .kind = IR_ATTR_INTS, .count = count, .ints = values});
}

void pass_fusion_floats(pass_fusion *f, const char *name, uint32_t count, const double *values)
{
    add_attr(f, (ir_attr){.name = name, .kind = IR_ATTR_FLOATS, .count = count, .floats = values});
}

void pass_fusion_attrs(pass_fusion *f, const ir_node *from)
{
    for (uint32_t i = 0; i < from->n_attrs; i++)
        add_attr(f, from->attrs[i]);
}

/* Gives the new node the values that the swallowed ones produced. */
static void take_outputs(pass_edit *e, const pass_fusion *f, ir_node *made)
{
    for (uint32_t i = 0; i < f->n_outputs; i++) {
        ir_value *v = f->outputs[i];
        if (!v)
            continue;
        v->producer->outputs[v->output_index] = NULL;
        v->producer = made;
        v->output_index = i;
        made->outputs[i] = v; /* the fresh value is swept: nobody produces or reads it */
    }
    (void)e;
}

static void describe(pass_edit *e, const pass_fusion *f, ir_node *made)
{
    char text[400];
    size_t used = 0;
    for (uint32_t i = 0; i < f->nodes.count && used < sizeof text; i++) {
        const ir_node *n = f->nodes.nodes[i];
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s (%s)", i ? ", " : "",
                                 n->name, n->type);
        ir_node_inherit_notes(e->g, made, n);
    }
    ir_node_note(e->g, made, e->c->name, "from nodes %s", text);
}

static bool types_agree(const pass_fusion *f, const ir_node *made)
{
    for (uint32_t i = 0; i < f->n_outputs; i++)
        if (f->outputs[i] && !ir_type_equal(&f->outputs[i]->type, &made->outputs[i]->type))
            return false;
    return true;
}

/* Undo an attempt: the new node and its values are swept. */
static tacit_status refuse(pass_edit *e, pass_fusion *f, ir_node *made, const char *why)
{
    (void)map_put(&e->g->node_names, made->name, NULL);
    made->name = "";
    ir_node_kill(made);
    pass_near_miss(e, f->root, "%s", why);
    return TACIT_OK;
}

/* Would it read what it swallows? relu(x)² is no gated activation: its gate is inside. */
static bool reads_itself(const pass_fusion *f)
{
    for (uint32_t i = 0; i < f->n_inputs; i++)
        if (f->inputs[i] && f->inputs[i]->producer &&
            pass_set_has(&f->nodes, f->inputs[i]->producer))
            return true;
    return false;
}

tacit_status pass_fuse(pass_edit *e, pass_fusion *f)
{
    f->made = NULL;
    if (f->nodes.overflow || !pass_has(e, f->op) || reads_itself(f) ||
        !pass_set_closed(e, &f->nodes, f->root, f->n_outputs, f->outputs))
        return TACIT_OK;
    ir_node *made = raw_node(e, f->op, f->root->name, f->n_inputs, f->inputs, f->n_outputs);
    if (!made || !set_attrs(e->g, made, f->n_attrs, f->attrs))
        return error_memory(e->c->err, "a fused node");
    for (uint32_t i = 0; i < f->n_outputs; i++)
        if (!f->outputs[i])
            made->outputs[i] = NULL;
    tacit_error why = {0};
    tacit_status status = op_infer_node(e->g, made, &why);
    if (status == TACIT_ERR_MEMORY)
        return error_memory(e->c->err, "a fused node");
    if (status != TACIT_OK)
        return refuse(e, f, made, why.message);
    if (!types_agree(f, made))
        return refuse(e, f, made, "the fused op would change the result's type");
    describe(e, f, made);
    take_outputs(e, f, made);
    const char *name = f->root->name;
    for (uint32_t i = 0; i < f->nodes.count; i++)
        pass_kill(e, f->nodes.nodes[i]);
    (void)map_put(&e->g->node_names, made->name, NULL);
    made->name = name;
    if (!map_put(&e->g->node_names, name, made) || !link_node(e, made))
        return error_memory(e->c->err, "a fused node");
    f->made = made;
    e->c->rewrites++;
    return TACIT_OK;
}
