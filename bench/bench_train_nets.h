/* SPDX-License-Identifier: Apache-2.0
 * The networks that bench_train trains, with their data and parameters; included once. */
#ifndef BENCH_TRAIN_NETS_H
#define BENCH_TRAIN_NETS_H

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "tacit/tacit.h"

typedef tacit_value V;

enum { BATCH = 32, TOKENS = 64, WIDTH = 256, HEADS = 4, WORDS = 64, MOST_PARAMS = 400 };

typedef struct net_def {
    tacit_builder *b;
    int layers;
    bool checkpoint; /* each layer's input is kept, the rest computed again */
    char names[MOST_PARAMS][40];
    double deviation[MOST_PARAMS];
    int n_params;
} net_def;

static V net_param(net_def *n, const char *name, int32_t rank, const int64_t *dims,
                   double deviation)
{
    if (n->n_params == MOST_PARAMS)
        return 0;
    snprintf(n->names[n->n_params], sizeof n->names[0], "%s", name);
    n->deviation[n->n_params++] = deviation;
    return tacit_builder_input(n->b, name, TACIT_F32, rank, dims, NULL);
}

static V net2(net_def *n, const char *op, V x, V y)
{
    return tacit_builder_node(n->b, op, 2, (V[]){x, y}, 1, NULL);
}

static V net1(net_def *n, const char *op, V x)
{
    return tacit_builder_node(n->b, op, 1, &x, 1, NULL);
}

static V net_reshape(net_def *n, V x, int64_t rank, const int64_t *dims)
{
    return net2(n, "Reshape", x, tacit_builder_constant(n->b, NULL, TACIT_I64, 1, &rank, dims));
}

static V net_linear(net_def *n, const char *stem, V x, int64_t in, int64_t out)
{
    char name[40];
    snprintf(name, sizeof name, "%s.weight", stem);
    V w = net_param(n, name, 2, (int64_t[]){in, out}, 1 / sqrt((double)in));
    snprintf(name, sizeof name, "%s.bias", stem);
    return net2(n, "Add", net2(n, "MatMul", x, w), net_param(n, name, 1, &out, 0));
}

static V net_norm(net_def *n, const char *stem, V x)
{
    char name[40];
    snprintf(name, sizeof name, "%s.scale", stem);
    V scale = net_param(n, name, 1, (int64_t[]){WIDTH}, -1);
    snprintf(name, sizeof name, "%s.shift", stem);
    V shift = net_param(n, name, 1, (int64_t[]){WIDTH}, 0);
    V y = tacit_builder_node(n->b, "LayerNormalization", 3, (V[]){x, scale, shift}, 1, NULL);
    tacit_builder_attr_int(n->b, "axis", -1);
    return y;
}

static V net_heads(net_def *n, V x, int keys)
{
    x = net_reshape(n, x, 4, (int64_t[]){BATCH, TOKENS, HEADS, WIDTH / HEADS});
    V y = net1(n, "Transpose", x);
    tacit_builder_attr_ints(n->b, "perm", 4,
                            keys ? (int64_t[]){0, 2, 3, 1} : (int64_t[]){0, 2, 1, 3});
    return y;
}

static V net_attention(net_def *n, int layer, V x)
{
    static const char *const parts[] = {"q", "k", "v"};
    float scale = (float)sqrt((double)HEADS / WIDTH);
    char name[40];
    V in[3];
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "layer%d.%s", layer, parts[i]);
        in[i] = net_heads(n, net_linear(n, name, x, WIDTH, WIDTH), i == 1);
    }
    V factor = tacit_builder_constant(n->b, NULL, TACIT_F32, 0, NULL, &scale);
    V weights = net1(n, "Softmax", net2(n, "Mul", net2(n, "MatMul", in[0], in[1]), factor));
    tacit_builder_attr_int(n->b, "axis", -1);
    V mixed = net1(n, "Transpose", net2(n, "MatMul", weights, in[2]));
    tacit_builder_attr_ints(n->b, "perm", 4, (int64_t[]){0, 2, 1, 3});
    mixed = net_reshape(n, mixed, 3, (int64_t[]){BATCH, TOKENS, WIDTH});
    snprintf(name, sizeof name, "layer%d.out", layer);
    return net_linear(n, name, mixed, WIDTH, WIDTH);
}

static V net_block(net_def *n, int layer, V x)
{
    char name[40];
    snprintf(name, sizeof name, "layer%d.norm1", layer);
    x = net2(n, "Add", x, net_attention(n, layer, net_norm(n, name, x)));
    snprintf(name, sizeof name, "layer%d.norm2", layer);
    V y = net_norm(n, name, x);
    snprintf(name, sizeof name, "layer%d.up", layer);
    y = net1(n, "Gelu", net_linear(n, name, y, WIDTH, 4 * WIDTH));
    snprintf(name, sizeof name, "layer%d.down", layer);
    return net2(n, "Add", x, net_linear(n, name, y, 4 * WIDTH, WIDTH));
}

static V net_transformer(net_def *n)
{
    V x = tacit_builder_input(n->b, "x", TACIT_F32, 3, (int64_t[]){BATCH, TOKENS, WIDTH}, NULL);
    x = net_linear(n, "patch", x, WIDTH, WIDTH);
    for (int i = 0; i < n->layers; i++) {
        if (n->checkpoint)
            x = net1(n, "tacit.Checkpoint", x);
        x = net_block(n, i, x);
    }
    x = net_linear(n, "head", net_norm(n, "norm", x), WIDTH, WORDS);
    return net_reshape(n, x, 2, (int64_t[]){BATCH * TOKENS, WORDS});
}

static V net_conv(net_def *n, const char *stem, V x, int64_t in, int64_t out)
{
    char name[40];
    snprintf(name, sizeof name, "%s.weight", stem);
    V w = net_param(n, name, 4, (int64_t[]){out, in, 3, 3}, 1 / sqrt((double)in * 9));
    snprintf(name, sizeof name, "%s.bias", stem);
    V bias = net_param(n, name, 1, &out, 0);
    V y = tacit_builder_node(n->b, "Conv", 3, (V[]){x, w, bias}, 1, NULL);
    tacit_builder_attr_ints(n->b, "kernel_shape", 2, (int64_t[]){3, 3});
    tacit_builder_attr_ints(n->b, "pads", 4, (int64_t[]){1, 1, 1, 1});
    y = net1(n, "MaxPool", net1(n, "Relu", y));
    tacit_builder_attr_ints(n->b, "kernel_shape", 2, (int64_t[]){2, 2});
    tacit_builder_attr_ints(n->b, "strides", 2, (int64_t[]){2, 2});
    return y;
}

static V net_convnet(net_def *n)
{
    V x = tacit_builder_input(n->b, "x", TACIT_F32, 4, (int64_t[]){BATCH, 1, 16, 16}, NULL);
    x = net_conv(n, "conv2", net_conv(n, "conv1", x, 1, 12), 12, 24);
    x = net_reshape(n, x, 2, (int64_t[]){BATCH, 384});
    x = net1(n, "Relu", net_linear(n, "hidden", x, 384, 64));
    return net_linear(n, "head", x, 64, 10);
}

/* The network up to its loss. */
static tacit_model *net_loss(net_def *n, const char *name, tacit_error *err)
{
    tacit_model *m = NULL;
    if (tacit_builder_create(name, NULL, &n->b, err) != TACIT_OK)
        return NULL;
    int conv = strcmp(name, "convnet") == 0;
    V scores = conv ? net_convnet(n) : net_transformer(n);
    V labels = tacit_builder_input(n->b, "y", TACIT_I64, 1,
                                   (int64_t[]){conv ? BATCH : BATCH * TOKENS}, NULL);
    tacit_builder_output(n->b, "loss", net2(n, "SoftmaxCrossEntropyLoss", scores, labels));
    if (tacit_builder_finish(n->b, &m, err) != TACIT_OK)
        m = NULL;
    tacit_builder_free(n->b);
    n->b = NULL;
    return m;
}

/* --- a compiled step with its buffers --------------------------------------------------------- */

typedef struct bench_step {
    net_def net;
    tacit_model *loss_model, *model;
    tacit_program *program;
    tacit_session *session;
    tacit_tensor *in, *out;
    uint32_t n_in, n_out;
    bool *shared; /* by output: its buffer is an input's */
    float count;
} bench_step;

static tacit_tensor port_tensor(const tacit_port *p)
{
    tacit_tensor t = {.name = p->name, .dtype = p->dtype, .rank = p->rank, .bytes = p->bytes};
    memcpy(t.dims, p->dims, sizeof t.dims);
    t.data = calloc(1, p->bytes ? p->bytes : 1);
    return t;
}

static void fill_input(const bench_step *s, tacit_tensor *t, rng *random)
{
    double deviation = strcmp(t->name, "x") == 0 ? 1 : 0;
    for (int i = 0; i < s->net.n_params; i++)
        if (strcmp(t->name, s->net.names[i]) == 0)
            deviation = s->net.deviation[i];
    if (strcmp(t->name, "y") == 0) {
        for (int64_t i = 0; i < t->dims[0]; i++)
            ((int64_t *)t->data)[i] = (int64_t)rng_below(random, 10);
        return;
    }
    for (size_t i = 0; i < t->bytes / sizeof(float); i++)
        ((float *)t->data)[i] =
            deviation < 0 ? 1 : (float)(deviation * rng_range(random, -1.7, 1.7));
    if (strcmp(t->name, "learning_rate") == 0)
        *(float *)t->data = 1e-3f;
}

static int bench_step_fill(bench_step *s)
{
    rng random = rng_seed(7);
    s->n_in = tacit_program_input_count(s->program);
    s->n_out = tacit_program_output_count(s->program);
    s->in = calloc(s->n_in, sizeof *s->in);
    s->out = calloc(s->n_out, sizeof *s->out);
    s->shared = calloc(s->n_out, sizeof *s->shared);
    for (uint32_t i = 0; i < s->n_in; i++) {
        tacit_port p;
        if (tacit_program_input(s->program, i, &p) != TACIT_OK)
            return 0;
        s->in[i] = port_tensor(&p);
        fill_input(s, &s->in[i], &random);
    }
    for (uint32_t i = 0; i < s->n_out; i++) {
        tacit_port p;
        if (tacit_program_output(s->program, i, &p) != TACIT_OK)
            return 0;
        s->out[i] = port_tensor(&p);
        for (uint32_t k = 0; k < s->n_in; k++) { /* NAME.next lies where NAME does */
            size_t n = strlen(s->in[k].name);
            if (strncmp(p.name, s->in[k].name, n) != 0 || strcmp(p.name + n, ".next") != 0)
                continue;
            free(s->out[i].data);
            s->out[i].data = s->in[k].data;
            s->shared[i] = true;
        }
    }
    return 1;
}

static int bench_step_open(bench_step *s, const char *net, int layers, bool checkpoint,
                           uint32_t threads, tacit_error *err)
{
    const char *names[MOST_PARAMS];
    memset(s, 0, sizeof *s);
    s->net.layers = layers;
    s->net.checkpoint = checkpoint;
    s->loss_model = net_loss(&s->net, net, err);
    if (!s->loss_model)
        return 0;
    for (int i = 0; i < s->net.n_params; i++)
        names[i] = s->net.names[i];
    tacit_train_options o = {.optimizer = TACIT_ADAMW, .weight_decay = 0.01};
    tacit_compile_options c = {.executor = threads > 1 ? TACIT_EXEC_TASKS : TACIT_EXEC_SERIAL,
                               .threads = threads,
                               .update_in_place = 1};
    const char *keep = getenv("TACIT_BENCH_KEEP");
    if (tacit_train_step(s->loss_model, (uint32_t)s->net.n_params, names, &o, &s->model, err) !=
            TACIT_OK ||
        (keep && tacit_model_save(s->model, keep, err) != TACIT_OK) ||
        tacit_compile(s->model, &c, &s->program, err) != TACIT_OK ||
        tacit_session_create(s->program, &s->session, err) != TACIT_OK)
        return 0;
    return bench_step_fill(s);
}

static int bench_step_run(bench_step *s, tacit_error *err)
{
    s->count += 1;
    for (uint32_t i = 0; i < s->n_in; i++)
        if (strcmp(s->in[i].name, "step") == 0)
            *(float *)s->in[i].data = s->count;
    return tacit_run(s->session, s->in, s->n_in, s->out, s->n_out, err) == TACIT_OK;
}

static void bench_step_close(bench_step *s)
{
    tacit_session_free(s->session);
    tacit_program_free(s->program);
    tacit_model_free(s->model);
    tacit_model_free(s->loss_model);
    for (uint32_t i = 0; i < s->n_in; i++)
        free(s->in[i].data);
    for (uint32_t i = 0; i < s->n_out; i++)
        if (!s->shared[i])
            free(s->out[i].data);
    free(s->shared);
    free(s->in);
    free(s->out);
}

#endif
