/* SPDX-License-Identifier: Apache-2.0 */
#include "pass/layout.h"

#include <string.h>

tacit_status pass_layout_no_memory(const pass_layout *l)
{
    return error_memory(l->e.c->err, "the layout of a graph");
}

ir_value *pass_layout_form(const pass_layout *l, const ir_value *v)
{
    return v && v->id < l->values ? l->forms[v->id] : NULL;
}

tacit_status pass_layout_add(pass_layout *l, ir_node *from, pass_op op, uint32_t n_inputs,
                             ir_value *const *inputs, uint32_t n_attrs, const ir_attr *attrs,
                             ir_value **out)
{
    tacit_status status;
    ir_node *n = pass_node(&l->e, op, from->name, n_inputs, inputs, n_attrs, attrs, &status);
    if (!n)
        return status;
    ir_node_inherit_notes(l->e.g, n, from);
    ir_node_note(l->e.g, n, l->e.c->name, "from %s (%s)", from->name, from->type);
    *out = n->outputs[0];
    return TACIT_OK;
}

tacit_status pass_layout_drop(pass_layout *l, ir_node *n)
{
    return vec_push(l->e.c->scratch, &l->done, n) ? TACIT_OK : pass_layout_no_memory(l);
}

tacit_status pass_layout_settle(pass_layout *l, ir_node *n, ir_value *form)
{
    l->forms[n->outputs[0]->id] = form;
    return pass_layout_drop(l, n);
}

static bool is_read_outside(const pass_layout *l, const ir_value *v, const bool *inside)
{
    for (const pass_use *u = pass_first_use(&l->e, v); u; u = pass_next_use(&l->e, u))
        if (!u->node || u->node->id >= l->nodes || !inside[u->node->id])
            return true;
    return false;
}

static tacit_status finish(pass_layout *l, const pass_layout_rules *rules)
{
    bool *inside = ARENA_ARRAY(l->e.c->scratch, l->nodes + 1u, bool);
    if (!inside)
        return pass_layout_no_memory(l);
    memset(inside, 0, l->nodes * sizeof *inside);
    for (uint32_t i = 0; i < l->done.count; i++)
        inside[l->done.data[i]->id] = true;
    for (uint32_t i = 0; i < l->done.count; i++) {
        ir_node *n = l->done.data[i];
        ir_value *v = n->outputs[0], *plain;
        if (!pass_layout_form(l, v) || !is_read_outside(l, v, inside))
            continue;
        TRY(rules->leave(l, n, &plain));
        pass_replace(&l->e, v, plain);
    }
    for (uint32_t i = 0; i < l->done.count; i++)
        pass_kill(&l->e, l->done.data[i]);
    l->e.c->rewrites += l->done.count;
    return TACIT_OK;
}

tacit_status pass_layout_run(pass_context *c, const pass_layout_rules *rules)
{
    pass_layout l = {0};
    uint32_t convs = 0;
    TRY(pass_edit_begin(&l.e, c));
    l.nodes = c->graph->nodes.count;
    l.values = c->graph->values.count;
    l.forms = ARENA_ARRAY(c->scratch, l.values + 1u, ir_value *);
    if (!l.forms)
        return pass_layout_no_memory(&l);
    memset(l.forms, 0, l.values * sizeof *l.forms);
    for (uint32_t i = 0; i < l.nodes; i++)
        convs += c->graph->nodes.data[i]->type && rules->is_conv(&l, c->graph->nodes.data[i]);
    if (convs < 2)
        return TACIT_OK;
    for (uint32_t i = 0; i < l.nodes; i++)
        TRY(rules->visit(&l, c->graph->nodes.data[i]));
    return finish(&l, rules);
}
