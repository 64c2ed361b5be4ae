/* SPDX-License-Identifier: Apache-2.0
 * tacit transform: gradients, tangents, batches and training steps of a model, as a model. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

typedef struct transform {
    const char *what, *path, *out, *optimizer;
    cli_list names, checkpoints, dims;
    tacit_dim *bound;
    const char **made_names; /* `names` where none were given */
    int64_t output, size, memory;
    double momentum, decay, clip, scale;
    bool loss, ones;
    tacit_model *model, *made;
    tacit_error err;
} transform;

static tacit_remat remat_of(const transform *t)
{
    return (tacit_remat){.checkpoints = t->checkpoints.items,
                         .n_checkpoints = t->checkpoints.count,
                         .memory_budget = (uint64_t)t->memory};
}

static tacit_status make_grad(transform *t)
{
    tacit_grad_options o = {.dims = t->bound,
                            .n_dims = t->dims.count,
                            .output = (uint32_t)t->output,
                            .with_loss = t->loss,
                            .seed_ones = t->ones,
                            .remat = remat_of(t)};
    return tacit_grad(t->model, t->names.count, t->names.items, &o, &t->made, &t->err);
}

static tacit_status make_step(transform *t)
{
    tacit_train_options o = {.dims = t->bound,
                             .n_dims = t->dims.count,
                             .output = (uint32_t)t->output,
                             .optimizer = strcmp(t->optimizer, "sgd") == 0    ? TACIT_SGD
                                          : strcmp(t->optimizer, "adam") == 0 ? TACIT_ADAM
                                                                              : TACIT_ADAMW,
                             .momentum = t->momentum,
                             .weight_decay = t->decay,
                             .clip_norm = t->clip,
                             .loss_scale = t->scale,
                             .remat = remat_of(t)};
    return tacit_train_step(t->model, t->names.count, t->names.items, &o, &t->made, &t->err);
}

static tacit_status make(transform *t)
{
    if (strcmp(t->what, "grad") == 0)
        return make_grad(t);
    if (strcmp(t->what, "train") == 0)
        return make_step(t);
    if (strcmp(t->what, "jvp") == 0)
        return tacit_jvp(t->model, t->names.count, t->names.items, t->bound, t->dims.count,
                         &t->made, &t->err);
    return tacit_vmap(t->model, t->names.count, t->names.items, t->size, t->bound, t->dims.count,
                      &t->made, &t->err);
}

/* Every floating-point weight of the model, where nothing was named. */
static int all_weights(transform *t)
{
    uint32_t n = tacit_model_weight_count(t->model);
    const char **names = calloc(n + 1u, sizeof *names);
    if (!names)
        return cli_fail("transform", "out of memory");
    t->names.items = t->made_names = names;
    for (uint32_t i = 0; i < n; i++) {
        tacit_port p;
        if (tacit_model_weight(t->model, i, &p, NULL) == TACIT_OK && p.rank > 0 &&
            (p.dtype == TACIT_F32 || p.dtype == TACIT_F16 || p.dtype == TACIT_F64 ||
             p.dtype == TACIT_BF16))
            names[t->names.count++] = p.name;
    }
    return -1;
}

static int check(const transform *t)
{
    static const char *const kinds[] = {"grad", "jvp", "vmap", "train"};
    bool known = false;
    for (uint32_t i = 0; i < CLI_COUNT(kinds); i++)
        known |= strcmp(t->what, kinds[i]) == 0;
    if (!known)
        return cli_usage_error("transform", "unknown transform '%s': grad, jvp, vmap or train",
                               t->what);
    if (!t->out)
        return cli_usage_error("transform", "--out FILE is required");
    if (strcmp(t->what, "vmap") == 0 && t->size < 1)
        return cli_usage_error("transform", "vmap needs --size N, at least 1");
    if (t->output < 0 || t->memory < 0)
        return cli_usage_error("transform", "--output and --memory are not negative");
    if (strcmp(t->optimizer, "sgd") != 0 && strcmp(t->optimizer, "adam") != 0 &&
        strcmp(t->optimizer, "adamw") != 0)
        return cli_usage_error("transform", "unknown optimizer '%s': sgd, adam or adamw",
                               t->optimizer);
    return -1;
}

static int run(transform *t)
{
    int code = check(t);
    if (code >= 0)
        return code;
    t->bound = calloc(t->dims.count + 1u, sizeof *t->bound);
    if (!t->bound)
        return cli_fail("transform", "out of memory");
    code = cli_dims("transform", &t->dims, t->bound);
    if (code >= 0)
        return code;
    if (tacit_model_load(t->path, NULL, &t->model, &t->err) != TACIT_OK)
        return cli_fail("transform", "%s", t->err.message);
    if (t->names.count == 0 && strcmp(t->what, "vmap") != 0 && (code = all_weights(t)) >= 0)
        return code;
    if (make(t) != TACIT_OK || tacit_model_save(t->made, t->out, &t->err) != TACIT_OK)
        return cli_fail("transform", "%s", t->err.message);
    printf("%u inputs, %u outputs; wrote %s\n", tacit_model_input_count(t->made),
           tacit_model_output_count(t->made), t->out);
    return CLI_OK;
}

int cmd_transform(int argc, char **argv)
{
    transform t = {.optimizer = "adamw"};
    const char *positional[2];
    const cli_option options[] = {
        {"--out", CLI_STRING, &t.out, "FILE", ".tacit, .onnx or .safetensors; required"},
        {"--wrt", CLI_LIST, &t.names, "NAME",
         "input or weight to differentiate, batch or train; repeatable (default: all weights)"},
        {"--output", CLI_INT, &t.output, "N", "which output is the loss (default 0)"},
        {"--with-loss", CLI_FLAG, &t.loss, NULL, "grad: the loss comes first"},
        {"--seed-ones", CLI_FLAG, &t.ones, NULL, "grad: seed with 1 instead of an input d_output"},
        {"--size", CLI_INT, &t.size, "N", "vmap: entries of the batch"},
        {"--optimizer", CLI_STRING, &t.optimizer, "NAME", "train: sgd, adam or adamw (default)"},
        {"--momentum", CLI_FLOAT, &t.momentum, "X", "train with sgd (default 0)"},
        {"--weight-decay", CLI_FLOAT, &t.decay, "X", "train (default 0)"},
        {"--clip", CLI_FLOAT, &t.clip, "X", "train: longest gradient, all parameters together"},
        {"--loss-scale", CLI_FLOAT, &t.scale, "X", "train: for f16"},
        {"--checkpoint", CLI_LIST, &t.checkpoints, "VALUE",
         "grad, train: keep this value, compute what lies between again; repeatable"},
        {"--memory", CLI_INT, &t.memory, "BYTES",
         "grad, train: choose checkpoints so that activations fit"},
        {"--dim", CLI_LIST, &t.dims, "NAME=SIZE", "size of a symbolic dimension; repeatable"},
    };
    const cli_usage usage = {
        "transform",
        "grad|jvp|vmap|train MODEL --out FILE [options]",
        "Makes the gradient, the tangents, a batch or a training step of a "
        "model: a model that can be\nshown, run, profiled or transformed again.",
        options,
        CLI_COUNT(options),
        2,
        2};
    int code = cli_parse(&usage, argc, argv, positional, NULL);
    if (code >= 0)
        return code;
    t.what = positional[0];
    t.path = positional[1];
    code = run(&t);
    tacit_model_free(t.made);
    tacit_model_free(t.model);
    free(t.bound);
    free((void *)t.made_names);
    return code;
}
