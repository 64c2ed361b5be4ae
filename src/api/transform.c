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

tacit_status tacit_grad(const tacit_model *model, uint32_t n, const char *const *wrt,
                        const tacit_grad_options *options, tacit_model **out, tacit_error *err)
{
    static const tacit_grad_options defaults = {0};
    const tacit_grad_options *o = options ? options : &defaults;
    if (!model || !out || (n && !wrt))
        return error_set(err, TACIT_ERR_ARGUMENT, "tacit_grad: a NULL argument");
    *out = NULL;
    tacit_model *m = NULL;
    tacit_status status = begin(model, o->dims, o->n_dims, &m, err);
    diff_grad_options grad = {.output = o->output,
                              .with_loss = o->with_loss,
                              .ones_seed = o->seed_ones,
                              .log = o->log ? o->log : &model->log};
    if (status == TACIT_OK)
        status = diff_grad(m->graph, n, wrt, &grad, err);
    return finish(m, status, out);
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
    tacit_model *m = NULL;
    tacit_status status = begin(model, o->dims, o->n_dims, &m, err);
    diff_train_options train = {.output = o->output,
                                .kind = (diff_optimizer)o->optimizer,
                                .momentum = o->momentum,
                                .beta1 = o->beta1 != 0 ? o->beta1 : 0.9,
                                .beta2 = o->beta2 != 0 ? o->beta2 : 0.999,
                                .epsilon = o->epsilon != 0 ? o->epsilon : 1e-8,
                                .weight_decay = o->weight_decay,
                                .clip_norm = o->clip_norm,
                                .loss_scale = o->loss_scale,
                                .log = o->log ? o->log : &model->log};
    if (status == TACIT_OK)
        status = diff_train(m->graph, n, params, &train, err);
    return finish(m, status, out);
}

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
