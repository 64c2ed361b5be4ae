/* SPDX-License-Identifier: Apache-2.0
 * Control flow: If, Loop, Scan. Their results' types may change from run to run, so the rows have
 * no infer rule: the program interprets them, their bodies run through op_eval.run_graph. */
#include <string.h>

#include "op/index.h"
#include "op/join.h"
#include "op/strip.h"
#include "op/view.h"

/* --- If --------------------------------------------------------------------------------------- */

static tacit_status read_condition(op_eval *c, const ir_tensor *t, bool *out)
{
    if (!t || t->kind != IR_TENSOR || t->dtype != TACIT_BOOL || ir_tensor_count(t) != 1)
        return error_set(c->err, TACIT_ERR_TYPE, "the condition must be one bool");
    *out = *(const uint8_t *)t->data != 0;
    return TACIT_OK;
}

static tacit_status if_eval(op_eval *c)
{
    bool condition = false;
    TRY(read_condition(c, op_in(c, 0), &condition));
    const char *name = condition ? "then_branch" : "else_branch";
    const ir_graph *branch = ir_attr_graph(c->node, name);
    if (!branch)
        return error_set(c->err, TACIT_ERR_GRAPH, "no %s", name);
    ir_tensor *results = op_eval_scratch(c, (c->n_out + 1u) * sizeof *results);
    if (!results)
        return error_memory(c->err, "If");
    TRY(c->run_graph(c, branch, 0, NULL, c->n_out, results));
    for (uint32_t i = 0; i < c->n_out; i++)
        if (op_out(c, i))
            *op_out(c, i) = results[i];
    return TACIT_OK;
}

/* --- the walk of Loop and Scan ---------------------------------------------------------------- */

typedef VEC(const ir_tensor *) tensor_list;

/* States go round, every iteration's scan outputs are kept until they are joined. Iterations use
 * two memories in turn, so that a long loop holds two iterations and not all of them. */
typedef struct loop_walk {
    op_eval *c;
    const ir_graph *body;
    uint32_t n_state, n_scan;
    uint32_t fixed; /* results before the states: Loop's condition */
    arena memory[2];
    const ir_tensor **args; /* all formal inputs of the body */
    uint32_t n_args, first_state;
    ir_tensor *results[2];
    tensor_list *kept; /* n_scan lists, in c->scratch */
} loop_walk;

static tacit_status walk_begin(loop_walk *w)
{
    op_eval *c = w->c;
    uint32_t n_results = w->fixed + w->n_state + w->n_scan;
    arena_init(&w->memory[0], c->memory->allocator);
    arena_init(&w->memory[1], c->memory->allocator);
    w->args = op_eval_scratch(c, (w->n_args + 1u) * sizeof *w->args);
    w->kept = op_eval_scratch(c, (w->n_scan + 1u) * sizeof *w->kept);
    for (int i = 0; i < 2; i++)
        w->results[i] = op_eval_scratch(c, (n_results + 1u) * sizeof **w->results);
    if (!w->args || !w->kept || !w->results[0] || !w->results[1])
        return error_memory(c->err, "a loop");
    memset(w->args, 0, (w->n_args + 1u) * sizeof *w->args);
    memset(w->kept, 0, (w->n_scan + 1u) * sizeof *w->kept);
    if (w->body->inputs.count != w->n_args || w->body->outputs.count != n_results)
        return error_set(c->err, TACIT_ERR_GRAPH,
                         "the body takes %u values and gives %u, but %u and %u are expected",
                         w->body->inputs.count, w->body->outputs.count, w->n_args, n_results);
    return TACIT_OK;
}

static void walk_end(loop_walk *w)
{
    arena_free(&w->memory[0]);
    arena_free(&w->memory[1]);
}

/* A step number of its own for each iteration, so that random ops in a body do not repeat. */
static uint64_t mix_step(uint64_t step, uint64_t iteration)
{
    uint64_t z = step + (iteration + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    return z ^ (z >> 27);
}

/* One iteration: args are set but for the states, which are taken from the one before. */
static tacit_status walk_step(loop_walk *w, int64_t iteration)
{
    op_eval *c = w->c, inner = *w->c;
    int half = (int)(iteration & 1);
    uint32_t n_results = w->fixed + w->n_state + w->n_scan;
    arena_free(&w->memory[half]);
    inner.memory = &w->memory[half];
    inner.step = mix_step(c->step, (uint64_t)iteration);
    ir_tensor *results = w->results[half];
    TRY(c->run_graph(&inner, w->body, w->n_args, w->args, n_results, results));
    for (uint32_t i = 0; i < w->n_state; i++)
        w->args[w->first_state + i] = &results[w->fixed + i];
    for (uint32_t i = 0; i < w->n_scan; i++) {
        const ir_tensor *t = &results[w->fixed + w->n_state + i];
        if (t->kind != IR_TENSOR)
            return error_set(c->err, TACIT_ERR_TYPE, "scan output %u is not a tensor", i);
        if (!op_out(c, w->n_state + i))
            continue;
        const ir_tensor *copy = ir_tensor_copy(c->scratch, t);
        if (!copy || !vec_push(c->scratch, &w->kept[i], copy))
            return error_memory(c->err, "scan outputs");
    }
    return TACIT_OK;
}

/* Final states and joined scan outputs become the node's outputs. */
static tacit_status walk_finish(loop_walk *w, const op_join *joins)
{
    op_eval *c = w->c;
    for (uint32_t i = 0; i < w->n_state; i++) {
        if (!op_out(c, i))
            continue;
        op_out(c, i)->data = NULL;
        TRY(op_eval_copy(c, op_out(c, i), w->args[w->first_state + i]));
    }
    for (uint32_t i = 0; i < w->n_scan; i++) {
        if (!op_out(c, w->n_state + i))
            continue;
        const ir_value *v = w->body->outputs.data[w->fixed + w->n_state + i];
        TRY(op_join_items(c, w->n_state + i, w->kept[i].count, w->kept[i].data, &joins[i],
                          &v->type));
    }
    return TACIT_OK;
}

/* --- Loop ------------------------------------------------------------------------------------- */

static tacit_status loop_run(loop_walk *w)
{
    op_eval *c = w->c;
    int64_t most = INT64_MAX;
    bool going = true;
    ir_shape scalar = {.rank = 0};
    if (op_in(c, 0))
        TRY(op_read_int(op_in(c, 0), &most, c->err));
    if (op_in(c, 1))
        TRY(read_condition(c, op_in(c, 1), &going));
    TRY(walk_begin(w));
    for (uint32_t i = 0; i < w->n_state; i++)
        w->args[2 + i] = op_in(c, 2 + i);
    for (int64_t iteration = 0; iteration < most && going; iteration++) {
        uint8_t condition = going;
        ir_tensor count = ir_tensor_view(TACIT_I64, &scalar, &iteration);
        ir_tensor again = ir_tensor_view(TACIT_BOOL, &scalar, &condition);
        w->args[0] = &count;
        w->args[1] = &again;
        TRY(walk_step(w, iteration));
        /* With a trip count alone it is a plain for loop: the body's condition is ignored. */
        if (op_in(c, 1) || !op_in(c, 0))
            TRY(read_condition(c, &w->results[iteration & 1][0], &going));
    }
    op_join *joins = op_eval_scratch(c, (w->n_scan + 1u) * sizeof *joins);
    if (!joins)
        return error_memory(c->err, "a loop");
    for (uint32_t i = 0; i < w->n_scan; i++)
        joins[i] = (op_join){.new_axis = true};
    return walk_finish(w, joins);
}

static tacit_status loop_eval(op_eval *c)
{
    loop_walk w = {.c = c, .body = ir_attr_graph(c->node, "body"), .fixed = 1, .first_state = 2};
    if (!w.body)
        return error_set(c->err, TACIT_ERR_GRAPH, "no body");
    w.n_state = c->node->n_explicit > 2 ? c->node->n_explicit - 2 : 0;
    if (c->n_out < w.n_state)
        return error_set(c->err, TACIT_ERR_GRAPH, "%u outputs for %u states", c->n_out, w.n_state);
    w.n_scan = c->n_out - w.n_state;
    w.n_args = 2 + w.n_state;
    tacit_status status = loop_run(&w);
    walk_end(&w);
    return status;
}

/* --- Scan ------------------------------------------------------------------------------------- */

/* Entry i of an optional integer list. */
static int64_t list_at(const ir_node *node, const char *name, uint32_t i, int64_t fallback)
{
    uint32_t n;
    const int64_t *values = ir_attr_ints(node, name, &n);
    return values && i < n ? values[i] : fallback;
}

typedef struct scan_input {
    const ir_tensor *x;
    op_split_axis s;
    bool reverse;
    ir_tensor *slice; /* x without the scanned axis, refilled every iteration */
} scan_input;

static tacit_status scan_open(op_eval *c, uint32_t i, const ir_tensor *x, scan_input *out)
{
    if (x->kind != IR_TENSOR)
        return error_set(c->err, TACIT_ERR_TYPE, "scan input %u must be a tensor", i);
    out->x = x;
    out->reverse = list_at(c->node, "scan_input_directions", i, 0) != 0;
    TRY(op_split_at(&x->shape, list_at(c->node, "scan_input_axes", i, 0), &out->s, c->err));
    ir_shape shape = {.rank = 0};
    for (int32_t d = 0; d < x->shape.rank; d++)
        if (d != out->s.axis)
            shape.dims[shape.rank++] = x->shape.dims[d];
    out->slice = ir_tensor_new(c->scratch, x->dtype, &shape);
    return out->slice ? TACIT_OK : error_memory(c->err, "Scan");
}

static void scan_slice(const scan_input *in, int64_t t)
{
    int64_t k = in->reverse ? in->s.size - 1 - t : t;
    for (int64_t o = 0; o < in->s.outer; o++)
        op_strip_copy(in->x->dtype, in->slice->data, o * in->s.inner, 1, in->x->data,
                      (o * in->s.size + k) * in->s.inner, 1, in->s.inner);
}

static tacit_status scan_run(loop_walk *w, uint32_t n_inputs)
{
    op_eval *c = w->c;
    TRY(walk_begin(w));
    scan_input *inputs = op_eval_scratch(c, (n_inputs + 1u) * sizeof *inputs);
    op_join *joins = op_eval_scratch(c, (w->n_scan + 1u) * sizeof *joins);
    if (!inputs || !joins)
        return error_memory(c->err, "Scan");
    for (uint32_t i = 0; i < w->n_state; i++)
        w->args[i] = op_in(c, i);
    for (uint32_t i = 0; i < n_inputs; i++) {
        TRY(scan_open(c, i, op_in(c, w->n_state + i), &inputs[i]));
        w->args[w->n_state + i] = inputs[i].slice;
        if (inputs[i].s.size != inputs[0].s.size)
            return error_set(c->err, TACIT_ERR_SHAPE, "scan input %u has %lld steps, input 0 %lld",
                             i, (long long)inputs[i].s.size, (long long)inputs[0].s.size);
    }
    for (int64_t t = 0; t < inputs[0].s.size; t++) {
        for (uint32_t i = 0; i < n_inputs; i++)
            scan_slice(&inputs[i], t);
        TRY(walk_step(w, t));
    }
    for (uint32_t i = 0; i < w->n_scan; i++)
        joins[i] = (op_join){.axis = list_at(c->node, "scan_output_axes", i, 0),
                             .new_axis = true,
                             .reverse = list_at(c->node, "scan_output_directions", i, 0) != 0};
    return walk_finish(w, joins);
}

static tacit_status scan_eval(op_eval *c)
{
    loop_walk w = {.c = c, .body = ir_attr_graph(c->node, "body")};
    int64_t n_inputs = ir_attr_int(c->node, "num_scan_inputs", 0);
    if (!w.body || n_inputs < 1 || n_inputs > c->node->n_explicit)
        return error_set(c->err, TACIT_ERR_GRAPH, "no body, or a bad num_scan_inputs %lld",
                         (long long)n_inputs);
    w.n_state = c->node->n_explicit - (uint32_t)n_inputs;
    if (c->n_out < w.n_state)
        return error_set(c->err, TACIT_ERR_GRAPH, "%u outputs for %u states", c->n_out, w.n_state);
    w.n_scan = c->n_out - w.n_state;
    w.n_args = c->node->n_explicit;
    tacit_status status = scan_run(&w, (uint32_t)n_inputs);
    walk_end(&w);
    return status;
}

#define CONTROL_ROW(NAME, MIN, MAX, EVAL)                                                          \
    {                                                                                              \
        .name = NAME, .min_in = MIN, .max_in = MAX, .min_out = 0, .max_out = -1,                   \
        .flags = OP_CONTROL | OP_ANY_KIND, .eval = EVAL                                            \
    }

const op_def op_rows_control[] = {
    CONTROL_ROW("If", 1, 1, if_eval),
    CONTROL_ROW("Loop", 0, -1, loop_eval),
    CONTROL_ROW("Scan", 1, -1, scan_eval),
    {0},
};
