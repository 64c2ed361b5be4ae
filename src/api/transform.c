/* SPDX-License-Identifier: Apache-2.0
 * Transforms: a model in, a new model out, which shares the old one's weights. */
#include "api/internal.h"
#include "diff/diff.h"

/* A fresh model whose graph is a bound, inferred copy of `from`'s. It keeps `from` alive: the
 * constants point into it. */
static tacit_status begin(const tacit_model *from, const tacit_dim *dims, uint32_t n_dims,
                          tacit_model **out, tacit_error *err)
{
    tacit_load_options options = {.allocator = &from->allocator, .log = &from->log};
    tacit_model *m = api_model_new(&options);
    if (!m)
        return error_memory(err, "a model");
    m->base = from;
    api_model_retain(from);
    *out = m;
    m->graph = ir_graph_clone(from->graph, &m->memory);
    op_binding *bindings = ARENA_ARRAY(&m->memory, n_dims + 1u, op_binding);
    if (!m->graph || !bindings)
        return error_memory(err, "a model");
    for (uint32_t i = 0; i < n_dims; i++)
        bindings[i] = (op_binding){dims[i].name, dims[i].value};
    TRY(op_bind_symbols(m->graph, n_dims, bindings, err));
    return op_infer_graph(m->graph, err);
}

static tacit_status finish(tacit_model *m, tacit_status status, tacit_model **out)
{
    if (status != TACIT_OK) {
        api_model_release(m);
        return status;
    }
    *out = m;
    return TACIT_OK;
}

/* --- reverse mode ----------------------------------------------------------------------------- */

/* What tacit_grad or tacit_train_step was asked for. */
typedef struct reverse_call {
    const tacit_model *model;
    const tacit_dim *dims;
    uint32_t n_dims;
    uint32_t n;
    const char *const *names;
    const tacit_grad_options *grad; /* one of the two */
    const tacit_train_options *train;
} reverse_call;

static tacit_status make_grad(const reverse_call *c, tacit_model *m, const tacit_remat *remat,
                              tacit_error *err)
{
    const tacit_grad_options *o = c->grad;
    diff_grad_options grad = {.output = o->output,
                              .with_loss = o->with_loss,
                              .ones_seed = o->seed_ones,
                              .checkpoints = remat->checkpoints,
                              .n_checkpoints = remat->n_checkpoints,
                              .log = o->log ? o->log : &c->model->log};
    return diff_grad(m->graph, c->n, c->names, &grad, err);
}

static tacit_status make_train(const reverse_call *c, tacit_model *m, const tacit_remat *remat,
                               tacit_error *err)
{
    const tacit_train_options *o = c->train;
    diff_train_options train = {.output = o->output,
                                .kind = (diff_optimizer)o->optimizer,
                                .momentum = o->momentum,
                                .beta1 = o->beta1 != 0 ? o->beta1 : 0.9,
                                .beta2 = o->beta2 != 0 ? o->beta2 : 0.999,
                                .epsilon = o->epsilon != 0 ? o->epsilon : 1e-8,
                                .weight_decay = o->weight_decay,
                                .clip_norm = o->clip_norm,
                                .loss_scale = o->loss_scale,
                                .checkpoints = remat->checkpoints,
                                .n_checkpoints = remat->n_checkpoints,
                                .log = o->log ? o->log : &c->model->log};
    return diff_train(m->graph, c->n, c->names, &train, err);
}

static tacit_status reverse_once(const reverse_call *c, const tacit_remat *remat, tacit_model **out,
                                 tacit_error *err)
{
    tacit_model *m = NULL;
    *out = NULL;
    tacit_status status = begin(c->model, c->dims, c->n_dims, &m, err);
    if (status == TACIT_OK)
        status = c->grad ? make_grad(c, m, remat, err) : make_train(c, m, remat, err);
    return finish(m, status, out);
}

/* Bytes of activations and gradients when compiled for little memory. */
static tacit_status arena_of(const tacit_model *m, uint64_t *bytes, tacit_error *err)
{
    tacit_compile_options o = {.validate = TACIT_VALIDATE_NONE};
    tacit_program *p;
    TRY(tacit_compile(m, &o, &p, err));
    tacit_memory_report r;
    tacit_program_memory(p, &r);
    tacit_program_free(p);
    if (r.has_dynamic_tail)
        return error_set(err, TACIT_ERR_UNSUPPORTED,
                         "a memory budget needs a model whose memory is planned: some of its nodes "
                         "are interpreted");
    *bytes = r.arena_bytes;
    return TACIT_OK;
}

/* Of the points, those that cut the values made into `pieces` parts of about the same size. */
static uint32_t spread(const diff_points *points, uint32_t pieces, const char **names)
{
    uint32_t count = 0, at = 0;
    for (uint32_t k = 1; k < pieces; k++) {
        uint64_t target = points->total / pieces * k;
        uint32_t from = at;
        while (at < points->count && points->all[at].bytes < target)
            at++;
        bool before = at > from && (at == points->count || target - points->all[at - 1].bytes <
                                                               points->all[at].bytes - target);
        at -= before;
        if (at >= points->count)
            break;
        names[count++] = points->all[at++].value;
    }
    return count;
}

/* The fewest checkpoints that meet the budget; the planner is the judge. */
static tacit_status reverse_within(const reverse_call *c, uint64_t budget, const tacit_model *bound,
                                   tacit_model **out, tacit_error *err)
{
    diff_points points;
    arena *memory = (arena *)&bound->memory;
    TRY(diff_remat_points(bound->graph, memory, &points, err));
    const char **names = ARENA_ARRAY(memory, points.count + 1u, const char *);
    if (!names)
        return error_memory(err, "choosing checkpoints");
    uint64_t least = UINT64_MAX;
    for (uint32_t pieces = 1, before = UINT32_MAX; pieces <= points.count + 1;
         pieces += pieces < 4 ? 1 : pieces / 2) {
        tacit_remat remat = {.checkpoints = names};
        remat.n_checkpoints = spread(&points, pieces, names);
        if (remat.n_checkpoints == before)
            continue;
        before = remat.n_checkpoints;
        uint64_t bytes = 0;
        TRY(reverse_once(c, &remat, out, err));
        tacit_status status = arena_of(*out, &bytes, err);
        if (status == TACIT_OK && bytes <= budget)
            return TACIT_OK;
        tacit_model_free(*out);
        *out = NULL;
        TRY(status);
        least = bytes < least ? bytes : least;
    }
    return error_set(err, TACIT_ERR_LIMIT,
                     "the memory budget of %llu bytes cannot be met: the best choice of "
                     "checkpoints needs %llu",
                     (unsigned long long)budget, (unsigned long long)least);
}

static tacit_status reverse(const reverse_call *c, const tacit_remat *remat, tacit_model **out,
                            tacit_error *err)
{
    if (remat->n_checkpoints && !remat->checkpoints)
        return error_set(err, TACIT_ERR_ARGUMENT, "checkpoints: a NULL list");
    if (!remat->memory_budget)
        return reverse_once(c, remat, out, err);
    if (remat->n_checkpoints)
        return error_set(err, TACIT_ERR_ARGUMENT,
                         "give checkpoints or a memory budget that chooses them, not both");
    tacit_model *bound = NULL;
    tacit_status status = begin(c->model, c->dims, c->n_dims, &bound, err);
    if (status == TACIT_OK)
        status = reverse_within(c, remat->memory_budget, bound, out, err);
    if (bound)
        api_model_release(bound);
    return status;
}

tacit_status tacit_grad(const tacit_model *model, uint32_t n, const char *const *wrt,
                        const tacit_grad_options *options, tacit_model **out, tacit_error *err)
{
    static const tacit_grad_options defaults = {0};
    const tacit_grad_options *o = options ? options : &defaults;
    if (!model || !out || (n && !wrt))
        return error_set(err, TACIT_ERR_ARGUMENT, "tacit_grad: a NULL argument");
    *out = NULL;
    reverse_call c = {model, o->dims, o->n_dims, n, wrt, o, NULL};
    return reverse(&c, &o->remat, out, err);
}

tacit_status tacit_train_step(const tacit_model *model, uint32_t n, const char *const *params,
                              const tacit_train_options *options, tacit_model **out,
                              tacit_error *err)
{
    static const tacit_train_options defaults = {0};
    const tacit_train_options *o = options ? options : &defaults;
    if (!model || !out || (n && !params))
        return error_set(err, TACIT_ERR_ARGUMENT, "tacit_train_step: a NULL argument");
    *out = NULL;
    if ((unsigned)o->optimizer > TACIT_ADAMW)
        return error_set(err, TACIT_ERR_ARGUMENT, "tacit_train_step: unknown optimizer %d",
                         (int)o->optimizer);
    reverse_call c = {model, o->dims, o->n_dims, n, params, NULL, o};
    return reverse(&c, &o->remat, out, err);
}

/* --- forward mode and batching ---------------------------------------------------------------- */

tacit_status tacit_jvp(const tacit_model *model, uint32_t n, const char *const *wrt,
                       const tacit_dim *dims, uint32_t n_dims, tacit_model **out, tacit_error *err)
{
    if (!model || !out || (n && !wrt))
        return error_set(err, TACIT_ERR_ARGUMENT, "tacit_jvp: a NULL argument");
    *out = NULL;
    tacit_model *m = NULL;
    tacit_status status = begin(model, dims, n_dims, &m, err);
    if (status == TACIT_OK)
        status = diff_jvp(m->graph, n, wrt, err);
    return finish(m, status, out);
}

tacit_status tacit_vmap(const tacit_model *model, uint32_t n, const char *const *inputs,
                        int64_t size, const tacit_dim *dims, uint32_t n_dims, tacit_model **out,
                        tacit_error *err)
{
    if (!model || !out || (n && !inputs))
        return error_set(err, TACIT_ERR_ARGUMENT, "tacit_vmap: a NULL argument");
    *out = NULL;
    tacit_model *m = NULL;
    tacit_status status = begin(model, dims, n_dims, &m, err);
    if (status == TACIT_OK)
        status = diff_vmap(m->graph, n, inputs, size, err);
    return finish(m, status, out);
}
