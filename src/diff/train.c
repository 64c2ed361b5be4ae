/* SPDX-License-Identifier: Apache-2.0
 * One training step as a graph: loss, gradients, clipping and the optimiser's update. Parameters
 * and the optimiser's state come in under their names and go out as NAME.next. */
#include <string.h>

#include "diff/diff.h"

enum { MAX_STATES = 2 };

typedef struct training {
    op_diff build;
    const diff_train_options *o;
    uint32_t n;               /* parameters */
    ir_value **param, **grad; /* by parameter */
    ir_value **state, **next; /* by parameter · MAX_STATES, by parameter · (1 + MAX_STATES) */
    ir_value *rate, *step;
    ir_value *factor; /* f32: gradients are multiplied by it; NULL: by one */
    ir_value *finite; /* NULL unless losses are scaled */
    arena scratch;
} training;

static const char *const state_names[3][MAX_STATES + 1] = {
    [DIFF_SGD] = {"momentum", NULL},
    [DIFF_ADAM] = {"mean", "square", NULL},
    [DIFF_ADAMW] = {"mean", "square", NULL},
};

/* How many tensors of state a parameter has. */
static uint32_t n_states(const diff_train_options *o)
{
    return o->kind != DIFF_SGD ? 2 : o->momentum != 0 ? 1 : 0;
}

/* Weights become inputs: their contents are not known when the step is compiled. What inference
 * found out from them is forgotten. */
static tacit_status free_params(ir_graph *g, uint32_t n, const char *const *names, tacit_error *err)
{
    for (uint32_t i = 0; i < n; i++) {
        ir_value *v = ir_value_find(g, names[i]);
        if (!v || v->producer || (!v->is_initializer && !v->is_input))
            return error_set(err, TACIT_ERR_ARGUMENT, "'%s' is not an input or weight of the graph",
                             names[i]);
        v->is_initializer = false;
        v->constant = NULL;
        if (v->is_input)
            continue;
        v->is_input = true;
        if (!vec_push(g->memory, &g->inputs, v))
            return error_memory(err, "a training step");
    }
    for (uint32_t i = 0; i < g->values.count; i++)
        if (g->values.data[i]->producer)
            g->values.data[i]->constant = NULL;
    return op_infer_graph(g, err);
}

static void rename_value(training *t, ir_value *v, const char *name)
{
    ir_graph *g = t->build.graph;
    const char *fresh = ir_fresh_name(g, name);
    if (!v || !fresh || !map_put(&g->value_names, fresh, v)) {
        if (t->build.status == TACIT_OK)
            t->build.status = error_memory(t->build.err, "a training step");
        return;
    }
    v->name = fresh;
}

/* Σ g² over all parameters, as f32. */
static ir_value *square_norm(training *t)
{
    op_diff *c = &t->build;
    ir_value *sum = NULL;
    for (uint32_t i = 0; i < t->n; i++) {
        ir_value *wide = op_diff_cast(c, t->grad[i], TACIT_F32); /* squares overflow f16 */
        ir_value *s = op_diff_open(c, "ReduceSumSquare", 1, &wide);
        sum = op_diff_add(c, sum, op_diff_attr_int(c, s, "keepdims", 0));
    }
    return sum;
}

/* The factor that undoes the loss scale and clips; whether the gradients are finite. The norm of
 * scaled gradients is scaled as they are. */
static tacit_status condition(training *t)
{
    op_diff *c = &t->build;
    const diff_train_options *o = t->o;
    double undo = o->loss_scale != 0 ? 1 / o->loss_scale : 1;
    if (o->loss_scale == 0 && o->clip_norm == 0)
        return c->status;
    ir_value *squares = square_norm(t);
    if (o->loss_scale != 0) { /* x − x is 0 for numbers alone */
        t->finite = op_diff2(c, "Equal", op_diff2(c, "Sub", squares, squares),
                             op_diff_scalar(c, TACIT_F32, 0));
        t->factor = op_diff_scalar(c, TACIT_F32, undo);
    }
    if (o->clip_norm == 0)
        return c->status;
    ir_value *norm = op_diff_scale(c, op_diff1(c, "Sqrt", squares), undo);
    norm = op_diff2(c, "Add", norm, op_diff_scalar(c, TACIT_F32, 1e-6));
    ir_value *factor = op_diff2(c, "Div", op_diff_scalar(c, TACIT_F32, o->clip_norm), norm);
    factor = op_diff2(c, "Min", factor, op_diff_scalar(c, TACIT_F32, 1));
    t->factor = op_diff_scale(c, factor, undo);
    return c->status;
}

/* a·x + b·y */
static ir_value *blend(training *t, ir_value *x, double a, ir_value *y, double b)
{
    op_diff *c = &t->build;
    return op_diff2(c, "Add", op_diff_scale(c, x, a), b == 1 ? y : op_diff_scale(c, y, b));
}

static void sgd(training *t, uint32_t i, ir_value *grad, ir_value *rate)
{
    op_diff *c = &t->build;
    ir_value **next = t->next + i * (1 + MAX_STATES), *velocity = grad;
    if (n_states(t->o) > 0)
        next[1] = velocity = blend(t, t->state[i * MAX_STATES], t->o->momentum, grad, 1);
    next[0] = op_diff2(c, "Sub", t->param[i], op_diff2(c, "Mul", velocity, rate));
}

/* One node for Adam and AdamW: clipping and overflow are its business too. */
static tacit_status adam(training *t, uint32_t i)
{
    op_diff *c = &t->build;
    const diff_train_options *o = t->o;
    ir_graph *g = c->graph;
    ir_value **next = t->next + i * (1 + MAX_STATES), **state = t->state + i * MAX_STATES;
    ir_value *in[8] = {t->param[i], state[0], state[1],  t->grad[i],
                       t->rate,     t->step,  t->factor, t->finite};
    uint32_t n = t->finite ? 8 : t->factor ? 7 : 6;
    ir_node *node =
        c->status == TACIT_OK ? ir_node_new(g, "AdamStep", "tacit", NULL, n, in, 3, NULL) : NULL;
    if (!node || !ir_attr_set_float(g, node, "beta1", o->beta1) ||
        !ir_attr_set_float(g, node, "beta2", o->beta2) ||
        !ir_attr_set_float(g, node, "epsilon", o->epsilon) ||
        !ir_attr_set_float(g, node, "weight_decay", o->weight_decay) ||
        !ir_attr_set_int(g, node, "decoupled", o->kind == DIFF_ADAMW))
        return c->status != TACIT_OK ? c->status : error_memory(c->err, "a training step");
    op_resolve(NULL, node);
    c->status = op_infer_node(g, node, c->err);
    memcpy(next, node->outputs, 3 * sizeof *next);
    return c->status;
}

static tacit_status update(training *t, uint32_t i)
{
    op_diff *c = &t->build;
    ir_value *x = t->param[i], *grad = t->grad[i], **next = t->next + i * (1 + MAX_STATES);
    if (t->o->kind == DIFF_SGD) {
        if (t->factor)
            grad = op_diff2(c, "Mul", grad, op_diff_cast(c, t->factor, x->type.dtype));
        if (t->o->weight_decay != 0)
            grad = blend(t, x, t->o->weight_decay, grad, 1);
        sgd(t, i, grad, op_diff_cast(c, t->rate, x->type.dtype));
    } else {
        TRY(adam(t, i));
    }
    for (uint32_t k = 0; k <= n_states(t->o); k++) {
        ir_value *old = k ? t->state[i * MAX_STATES + k - 1] : x;
        if (t->finite && t->o->kind == DIFF_SGD) /* a step that overflowed changes nothing */
            next[k] = op_diff3(c, "Where", t->finite, next[k], old);
        if (next[k])
            rename_value(t, next[k], arena_printf(&t->scratch, "%s.next", old->name));
    }
    return c->status;
}

static tacit_status add_inputs(training *t)
{
    ir_graph *g = t->build.graph;
    ir_type number = ir_type_tensor(TACIT_F32, 0, NULL);
    if (ir_value_find(g, "learning_rate") || ir_value_find(g, "step"))
        return error_set(t->build.err, TACIT_ERR_ARGUMENT,
                         "the graph already has a value named learning_rate or step");
    t->rate = ir_input_new(g, "learning_rate", &number);
    t->step = t->o->kind == DIFF_SGD ? t->rate : ir_input_new(g, "step", &number);
    bool ok = t->rate && t->step;
    for (uint32_t i = 0; ok && i < t->n; i++)
        for (uint32_t k = 0; ok && k < n_states(t->o); k++) {
            const char *name =
                arena_printf(&t->scratch, "%s.%s", t->param[i]->name, state_names[t->o->kind][k]);
            ok = name &&
                 (t->state[i * MAX_STATES + k] = ir_input_new(g, name, &t->param[i]->type)) != NULL;
        }
    return ok ? TACIT_OK : error_memory(t->build.err, "a training step");
}

static tacit_status run(training *t, const char *const *names)
{
    ir_graph *g = t->build.graph;
    tacit_error *err = t->build.err;
    t->param = ARENA_ARRAY(&t->scratch, t->n + 1u, ir_value *);
    t->grad = ARENA_ARRAY(&t->scratch, t->n + 1u, ir_value *);
    t->state = ARENA_ARRAY(&t->scratch, t->n * MAX_STATES + 1u, ir_value *);
    t->next = ARENA_ARRAY(&t->scratch, t->n * (1 + MAX_STATES) + 1u, ir_value *);
    if (!t->param || !t->grad || !t->state || !t->next)
        return error_memory(err, "a training step");
    TRY(free_params(g, t->n, names, err));
    diff_grad_options grad = {.output = t->o->output,
                              .with_loss = true,
                              .ones_seed = true,
                              .seed = t->o->loss_scale,
                              .checkpoints = t->o->checkpoints,
                              .n_checkpoints = t->o->n_checkpoints,
                              .log = t->o->log};
    TRY(diff_grad(g, t->n, names, &grad, err));
    for (uint32_t i = 0; i < t->n; i++) {
        t->param[i] = ir_value_find(g, names[i]);
        t->grad[i] = g->outputs.data[1 + i];
    }
    TRY(add_inputs(t));
    TRY(condition(t));
    g->outputs.count = 1; /* the loss */
    bool ok = true;
    for (uint32_t i = 0; i < t->n; i++)
        TRY(update(t, i));
    for (uint32_t k = 0; k <= n_states(t->o); k++)
        for (uint32_t i = 0; ok && i < t->n; i++)
            ok = ir_output_add(g, t->next[i * (1 + MAX_STATES) + k]);
    if (!ok)
        return error_memory(err, "a training step");
    TRY(ir_graph_sort(g, err));
    return op_infer_graph(g, err);
}

tacit_status diff_train(ir_graph *g, uint32_t n, const char *const *params,
                        const diff_train_options *options, tacit_error *err)
{
    if (n == 0)
        return error_set(err, TACIT_ERR_ARGUMENT, "there is nothing to train: no parameters named");
    if (options->output >= g->outputs.count)
        return error_set(err, TACIT_ERR_ARGUMENT, "the graph has no output %u", options->output);
    training t = {.build = {.graph = g, .err = err}, .o = options, .n = n};
    arena_init(&t.scratch, g->memory->allocator);
    tacit_status status = run(&t, params);
    arena_free(&t.scratch);
    return status;
}
