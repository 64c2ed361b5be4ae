/* SPDX-License-Identifier: Apache-2.0
 * Each node's results live in an arena of their own, released when the last reader has run: a long
 * chain holds only what is still needed. Nodes that make a wanted value write straight into the
 * caller's memory. */
#include "prog/interp.h"

#include <string.h>

#include "prog/eager.h"

typedef struct maker {
    arena memory;
    ir_tensor *results;
    uint32_t readers; /* reads of any output still to come */
} maker;

typedef struct frame {
    const interp_part *part;
    interp_env *env;
    arena scratch;          /* everything below */
    const ir_tensor **slot; /* by value id */
    const ir_tensor **in;   /* of the node at work */
    maker *makers;          /* by position in part->nodes */
    uint32_t *maker_of;     /* by value id: position + 1; 0 when not made here */
    bool *wanted;           /* by value id */
    bool *fixed;            /* by value id */
    tacit_error *err;
} frame;

/* Known contents of a value nobody has to make. Inside a subgraph only weights count: what
 * inference knows there may hold for one iteration only. */
static const ir_tensor *known(const ir_graph *g, const ir_value *v)
{
    return v->is_initializer || !g->parent ? ir_value_data(v) : NULL;
}

static tacit_status frame_open(frame *f)
{
    const interp_part *p = f->part;
    uint32_t n = p->graph->values.count;
    uint32_t widest = 0;
    for (uint32_t i = 0; i < p->n_nodes; i++)
        widest = p->nodes[i]->n_inputs > widest ? p->nodes[i]->n_inputs : widest;
    f->slot = ARENA_ARRAY(&f->scratch, n + 1u, const ir_tensor *);
    f->in = ARENA_ARRAY(&f->scratch, widest + 1u, const ir_tensor *);
    f->makers = ARENA_ARRAY(&f->scratch, p->n_nodes + 1u, maker);
    f->maker_of = ARENA_ARRAY(&f->scratch, n + 1u, uint32_t);
    f->wanted = ARENA_ARRAY(&f->scratch, n + 1u, bool);
    f->fixed = ARENA_ARRAY(&f->scratch, n + 1u, bool);
    if (!f->slot || !f->in || !f->makers || !f->maker_of || !f->wanted || !f->fixed)
        return error_memory(f->err, "the interpreter");
    for (uint32_t i = 0; i < n; i++) {
        f->slot[i] = p->given[i] ? p->given[i] : known(p->graph, p->graph->values.data[i]);
        f->fixed[i] = p->given[i] ? p->fixed && p->fixed[i] : f->slot[i] != NULL;
    }
    f->env->fixed = f->fixed;
    for (uint32_t i = 0; i < p->n_wanted; i++)
        f->wanted[p->wanted[i]->id] = true;
    for (uint32_t i = 0; i < p->n_nodes; i++) {
        const ir_node *node = p->nodes[i];
        arena_init(&f->makers[i].memory, f->scratch.allocator);
        for (uint32_t k = 0; k < node->n_outputs; k++)
            if (node->outputs[k])
                f->maker_of[node->outputs[k]->id] = i + 1;
        for (uint32_t k = 0; k < node->n_inputs; k++)
            if (node->inputs[k] && f->maker_of[node->inputs[k]->id])
                f->makers[f->maker_of[node->inputs[k]->id] - 1].readers++;
    }
    return TACIT_OK;
}

static void frame_close(frame *f)
{
    for (uint32_t i = 0; f->makers && i < f->part->n_nodes; i++)
        if (f->makers[i].memory.allocator)
            arena_free(&f->makers[i].memory);
    arena_free(&f->scratch);
}

/* Nothing to do: every output is known already (folded) and the values are at hand. */
static bool is_settled(const frame *f, const ir_node *node)
{
    for (uint32_t i = 0; i < node->n_outputs; i++)
        if (node->outputs[i] && !f->slot[node->outputs[i]->id])
            return false;
    return true;
}

static tacit_status gather_inputs(frame *f, const ir_node *node)
{
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        const ir_value *v = node->inputs[i];
        f->in[i] = v ? f->slot[v->id] : NULL;
        if (!v || f->in[i])
            continue;
        if (v->is_initializer)
            return error_set(f->err, TACIT_ERR_STATE, "node '%s': weight '%s' has no data",
                             node->name, v->name);
        return error_set(f->err, TACIT_ERR_GRAPH,
                         "node '%s': input '%s' has no value (missing input or unsorted graph)",
                         node->name, v->name);
    }
    return TACIT_OK;
}

static void release_inputs(frame *f, const ir_node *node)
{
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        uint32_t m = node->inputs[i] ? f->maker_of[node->inputs[i]->id] : 0;
        if (m && --f->makers[m - 1].readers == 0)
            arena_free(&f->makers[m - 1].memory);
    }
}

static bool makes_wanted(const frame *f, const ir_node *node)
{
    for (uint32_t i = 0; i < node->n_outputs; i++)
        if (node->outputs[i] && f->wanted[node->outputs[i]->id])
            return true;
    return false;
}

static tacit_status execute(frame *f, const ir_node *node, ir_tensor *results, arena *memory)
{
    interp_env *env = f->env;
    if (env->eager) {
        bool done;
        TRY(eager_run(env->eager, node, f->in, f->fixed, env->step, results, memory, &done,
                      f->err));
        if (done)
            return TACIT_OK;
    }
    op_exec_env how = {
        .memory = memory, .run_graph = interp_run_subgraph, .runner = env, .step = env->step};
    return op_execute(node, f->in, results, &how, f->err);
}

static tacit_status run_node(frame *f, uint32_t at, arena *memory)
{
    const ir_node *node = f->part->nodes[at];
    maker *m = &f->makers[at];
    TRY(gather_inputs(f, node));
    m->results = ARENA_ARRAY(&f->scratch, node->n_outputs + 1u, ir_tensor);
    if (!m->results)
        return error_memory(f->err, "the interpreter");
    TRY(execute(f, node, m->results, makes_wanted(f, node) ? memory : &m->memory));
    for (uint32_t i = 0; i < node->n_outputs; i++)
        if (node->outputs[i]) {
            f->slot[node->outputs[i]->id] = &m->results[i];
            if (f->env->watch)
                f->env->watch(f->env->watch_context, node, node->outputs[i], &m->results[i]);
        }
    return TACIT_OK;
}

static tacit_status run_nodes(frame *f, arena *memory)
{
    for (uint32_t i = 0; i < f->part->n_nodes; i++) {
        const ir_node *node = f->part->nodes[i];
        if (f->env->begin)
            f->env->begin(f->env->watch_context);
        if (!is_settled(f, node))
            TRY(run_node(f, i, memory));
        release_inputs(f, node);
        if (f->makers[i].readers == 0)
            arena_free(&f->makers[i].memory);
    }
    return TACIT_OK;
}

/* Wanted values made here already lie in `memory`; others are copied there. */
static tacit_status give_outputs(frame *f, ir_tensor *outputs, arena *memory)
{
    for (uint32_t i = 0; i < f->part->n_wanted; i++) {
        const ir_value *v = f->part->wanted[i];
        const ir_tensor *t = f->slot[v->id];
        if (!t)
            return error_set(f->err, TACIT_ERR_GRAPH, "output '%s' has no value", v->name);
        bool ours = f->maker_of[v->id] && f->makers[f->maker_of[v->id] - 1].results;
        if (!ours)
            t = ir_tensor_copy(memory, t);
        if (!t)
            return error_memory(f->err, "an output tensor");
        outputs[i] = *t;
    }
    return TACIT_OK;
}

tacit_status interp_run_part(const interp_part *part, ir_tensor *outputs, arena *memory,
                             interp_env *env, tacit_error *err)
{
    frame f = {.part = part, .env = env, .err = err};
    arena_init(&f.scratch, memory->allocator);
    tacit_status status = frame_open(&f);
    if (status == TACIT_OK)
        status = run_nodes(&f, memory);
    if (status == TACIT_OK)
        status = give_outputs(&f, outputs, memory);
    frame_close(&f);
    return status;
}

/* Runs a whole graph whose `given` array (by value id) already holds inputs and captures. */
static tacit_status run_whole(const ir_graph *g, const ir_tensor *const *given, const bool *fixed,
                              ir_tensor *outputs, arena *memory, interp_env *env, tacit_error *err)
{
    interp_part part = {.graph = g,
                        .nodes = g->nodes.data,
                        .n_nodes = g->nodes.count,
                        .given = given,
                        .fixed = fixed,
                        .wanted = g->outputs.data,
                        .n_wanted = g->outputs.count};
    return interp_run_part(&part, outputs, memory, env, err);
}

tacit_status interp_run_env(const ir_graph *g, const ir_tensor *const *inputs, ir_tensor *outputs,
                            arena *memory, interp_env *env, tacit_error *err)
{
    arena scratch;
    arena_init(&scratch, memory->allocator);
    const ir_tensor **given = ARENA_ARRAY(&scratch, g->values.count + 1u, const ir_tensor *);
    tacit_status status = given ? TACIT_OK : error_memory(err, "the interpreter");
    for (uint32_t i = 0; given && i < g->inputs.count; i++) {
        const ir_value *v = g->inputs.data[i];
        given[v->id] = inputs[i];
        if (status == TACIT_OK && !inputs[i] && !ir_value_data(v))
            status = error_set(err, TACIT_ERR_ARGUMENT, "input '%s' is missing", v->name);
    }
    if (status == TACIT_OK)
        status = run_whole(g, given, NULL, outputs, memory, env, err);
    arena_free(&scratch);
    return status;
}

tacit_status interp_run(const ir_graph *g, const ir_tensor *const *inputs, ir_tensor *outputs,
                        arena *memory, uint64_t step, tacit_error *err)
{
    return interp_run_env(g, inputs, outputs, memory, &(interp_env){.step = step}, err);
}

static tacit_status give_subgraph(const op_eval *c, const ir_graph *sub, uint32_t n_args,
                                  const ir_tensor *const *args, const ir_tensor **given,
                                  bool *fixed)
{
    const interp_env *outer = c->runner;
    for (uint32_t i = 0; i < n_args; i++)
        given[sub->inputs.data[i]->id] = args[i];
    for (uint32_t k = 0; k < sub->captures.count; k++) {
        uint32_t at = c->node->n_explicit + k;
        if (!sub->captures.data[k])
            continue;
        if (at >= c->n_in)
            return error_set(c->err, TACIT_ERR_GRAPH, "subgraph '%s': capture '%s' has no source",
                             sub->name, sub->captures.data[k]->name);
        given[sub->captures.data[k]->id] = c->in[at];
        fixed[sub->captures.data[k]->id] = outer->fixed[c->node->inputs[at]->id];
    }
    return TACIT_OK;
}

tacit_status interp_run_subgraph(op_eval *c, const ir_graph *sub, uint32_t n_args,
                                 const ir_tensor *const *args, uint32_t n_results,
                                 ir_tensor *results)
{
    if (n_args != sub->inputs.count || n_results != sub->outputs.count)
        return error_set(c->err, TACIT_ERR_GRAPH,
                         "subgraph '%s' takes %u values and gives %u, but %u and %u are expected",
                         sub->name, sub->inputs.count, sub->outputs.count, n_args, n_results);
    interp_env *outer = c->runner;
    interp_env env = {.step = hash_mix(c->step, ++outer->drawn), .eager = outer->eager};
    arena scratch;
    arena_init(&scratch, c->memory->allocator);
    const ir_tensor **given = ARENA_ARRAY(&scratch, sub->values.count + 1u, const ir_tensor *);
    bool *fixed = ARENA_ARRAY(&scratch, sub->values.count + 1u, bool);
    tacit_status status = given && fixed ? give_subgraph(c, sub, n_args, args, given, fixed)
                                         : error_memory(c->err, "the interpreter");
    if (status == TACIT_OK)
        status = run_whole(sub, given, fixed, results, c->memory, &env, c->err);
    arena_free(&scratch);
    return status;
}
