/* SPDX-License-Identifier: Apache-2.0
 * Converters carry the weights of a recurrent layer through its Loop, round by round the same. They
 * become constants of its body: nothing is copied from round to round, and kernels pack them once.
 */
#include <string.h>

#include "pass/edit.h"

/* The constant that the Loop carries as number k and hands on as it is, or NULL. */
static const ir_tensor *constant_carried(const pass_edit *e, const ir_node *n, const ir_graph *body,
                                         uint32_t k)
{
    const ir_tensor *t = ir_value_known(n->inputs[PASS_ROUNDS_AND_CONDITION + k]);
    bool same = pass_origin(e, body, body->outputs.data[PASS_CONDITION + k]) ==
                body->inputs.data[PASS_ROUNDS_AND_CONDITION + k];
    return t && t->kind == IR_TENSOR && same ? t : NULL;
}

static void become_constant(ir_value *v, const ir_tensor *contents)
{
    v->producer = NULL;
    v->is_input = false;
    v->is_initializer = true;
    v->constant = contents;
    v->type = ir_tensor_type(contents);
}

/* Entry `at` goes from a list of `count`. */
static void take_out(ir_value **list, uint32_t at, uint32_t count)
{
    memmove(list + at, list + at + 1, (count - at - 1) * sizeof *list);
}

/* What was carried is read as a constant, inside and behind the Loop, which is one value shorter.
 */
static void stop_carrying(pass_edit *e, ir_node *n, ir_graph *body, uint32_t k,
                          const ir_tensor *contents)
{
    become_constant(body->inputs.data[PASS_ROUNDS_AND_CONDITION + k], contents);
    take_out(body->inputs.data, PASS_ROUNDS_AND_CONDITION + k, body->inputs.count--);
    take_out(body->outputs.data, PASS_CONDITION + k, body->outputs.count--);
    take_out(n->inputs, PASS_ROUNDS_AND_CONDITION + k, n->n_inputs--);
    n->n_explicit--;
    if (k < n->n_outputs) {
        if (n->outputs[k])
            become_constant(n->outputs[k], contents);
        take_out(n->outputs, k, n->n_outputs--);
        for (uint32_t i = k; i < n->n_outputs; i++)
            if (n->outputs[i])
                n->outputs[i]->output_index = i;
    }
    ir_node_note(e->g, n, e->c->name, "value %u is the same in every round", k);
    body->version++;
    e->g->version++;
    e->c->rewrites++;
}

/* False: the Loop is as it was. */
static bool visit(pass_edit *e, ir_node *n)
{
    bool changed = false;
    ir_graph *body = pass_is(e, n, PASS_LOOP) ? ir_attr_graph(n, "body") : NULL;
    if (!body || n->n_explicit < PASS_ROUNDS_AND_CONDITION || body->inputs.count != n->n_explicit ||
        body->outputs.count < n->n_explicit - PASS_ROUNDS_AND_CONDITION + PASS_CONDITION)
        return false;
    for (uint32_t k = n->n_explicit - PASS_ROUNDS_AND_CONDITION; k-- > 0;) {
        const ir_tensor *contents = constant_carried(e, n, body, k);
        if (contents)
            stop_carrying(e, n, body, k, contents);
        changed |= contents != NULL;
    }
    return changed;
}

tacit_status pass_loop_constants(pass_context *c)
{
    pass_edit e;
    if (!pass_holds(c, PASS_LOOP))
        return TACIT_OK;
    TRY(pass_edit_begin(&e, c));
    for (uint32_t i = 0; i < c->graph->nodes.count; i++)
        if (visit(&e, c->graph->nodes.data[i]))
            TRY(pass_edit_begin(&e, c)); /* inputs have moved: who reads what is found anew */
    return TACIT_OK;
}
