/* SPDX-License-Identifier: Apache-2.0
 * The two architectures of `tacit train digits`. One description serves for the first values of the
 * parameters and for the graph. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/digits.h"
#include "cli/train.h"

typedef tacit_value V;

typedef struct net_build {
    train_net *net; /* when filling */
    const train_net *from;
    rng random;
    tacit_builder *b; /* NULL when filling */
    train_form form;
    uint32_t next; /* parameter */
} net_build;

const char *const train_names[] = {"convnet", "transformer", NULL};

/* Values: uniform with the given deviation around `center`. */
static void fill(net_build *n, const char *name, int32_t rank, const int64_t *dims, double center,
                 double deviation)
{
    train_net *net = n->net;
    if (net->n_params == TRAIN_MAX_PARAMS) {
        net->failed = true;
        return;
    }
    train_param *p = &net->params[net->n_params++];
    snprintf(p->name, sizeof p->name, "%s", name);
    p->rank = rank;
    p->count = 1;
    for (int32_t i = 0; i < rank; i++)
        p->count *= p->dims[i] = dims[i];
    for (int i = 0; i <= TRAIN_STATES; i++) {
        p->now[i] = calloc((size_t)p->count, sizeof(float));
        net->failed |= !p->now[i];
    }
    double reach = deviation * sqrt(3.0);
    for (int64_t i = 0; !net->failed && i < p->count; i++)
        p->now[0][i] = (float)(center + rng_range(&n->random, -reach, reach));
}

static V param(net_build *n, const char *stem, const char *part, int32_t rank, const int64_t *dims,
               double center, double deviation)
{
    char name[48];
    snprintf(name, sizeof name, "%s.%s", stem, part);
    if (!n->b) {
        fill(n, name, rank, dims, center, deviation);
        return 0;
    }
    const train_param *p = &n->from->params[n->next++];
    return n->form == TRAIN_EXPORT
               ? tacit_builder_weight(n->b, name, TACIT_F32, rank, dims, p->now[0])
               : tacit_builder_input(n->b, name, TACIT_F32, rank, dims, NULL);
}

static V op(net_build *n, const char *type, uint32_t count, const V *in)
{
    return n->b ? tacit_builder_node(n->b, type, count, in, 1, NULL) : 0;
}

static V op1(net_build *n, const char *type, V x)
{
    return op(n, type, 1, &x);
}

static V op2(net_build *n, const char *type, V x, V y)
{
    return op(n, type, 2, (V[]){x, y});
}

static V ints(net_build *n, int64_t count, const int64_t *values)
{
    return n->b ? tacit_builder_constant(n->b, NULL, TACIT_I64, 1, &count, values) : 0;
}

static void attr_ints(net_build *n, const char *name, uint32_t count, const int64_t *values)
{
    if (n->b)
        tacit_builder_attr_ints(n->b, name, count, values);
}

static V reshape(net_build *n, V x, int64_t rank, const int64_t *dims)
{
    return op2(n, "Reshape", x, ints(n, rank, dims));
}

static V transpose(net_build *n, V x, uint32_t rank, const int64_t *perm)
{
    V y = op1(n, "Transpose", x);
    attr_ints(n, "perm", rank, perm);
    return y;
}

/* x·W + b over the last axis */
static V linear(net_build *n, const char *stem, V x, int64_t in, int64_t out, double gain)
{
    V w = param(n, stem, "weight", 2, (int64_t[]){in, out}, 0, sqrt(gain / (double)in));
    V b = param(n, stem, "bias", 1, &out, 0, 0);
    return op2(n, "Add", op2(n, "MatMul", x, w), b);
}

/* 3×3 convolution, ReLU, the maximum of 2×2 */
static V conv_stage(net_build *n, const char *stem, V x, int64_t in, int64_t out)
{
    V w = param(n, stem, "weight", 4, (int64_t[]){out, in, 3, 3}, 0, sqrt(2.0 / (double)(in * 9)));
    V b = param(n, stem, "bias", 1, &out, 0, 0);
    V y = op(n, "Conv", 3, (V[]){x, w, b});
    attr_ints(n, "kernel_shape", 2, (int64_t[]){3, 3});
    attr_ints(n, "pads", 4, (int64_t[]){1, 1, 1, 1});
    y = op1(n, "MaxPool", op1(n, "Relu", y));
    attr_ints(n, "kernel_shape", 2, (int64_t[]){2, 2});
    attr_ints(n, "strides", 2, (int64_t[]){2, 2});
    return y;
}

static V convnet(net_build *n, V image)
{
    enum { FIRST = 12, SECOND = 24, HIDDEN = 64, REST = SECOND * DIGITS_PIXELS / 16 };
    V x = conv_stage(n, "conv1", image, 1, FIRST);
    x = conv_stage(n, "conv2", x, FIRST, SECOND);
    x = reshape(n, x, 2, (int64_t[]){-1, REST});
    x = op1(n, "Relu", linear(n, "hidden", x, REST, HIDDEN, 2));
    return linear(n, "head", x, HIDDEN, DIGITS_CLASSES, 1);
}

enum { PATCH = 4, TOKENS = DIGITS_PIXELS / PATCH / PATCH, WIDTH = 48, HEADS = 4, LAYERS = 2 };

static V norm(net_build *n, const char *stem, V x)
{
    V scale = param(n, stem, "scale", 1, (int64_t[]){WIDTH}, 1, 0);
    V shift = param(n, stem, "shift", 1, (int64_t[]){WIDTH}, 0, 0);
    V y = op(n, "LayerNormalization", 3, (V[]){x, scale, shift});
    if (n->b)
        tacit_builder_attr_int(n->b, "axis", -1);
    return y;
}

/* [batch, TOKENS, WIDTH] as [batch, HEADS, TOKENS, WIDTH/HEADS], or keys turned over. */
static V heads(net_build *n, V x, bool keys)
{
    x = reshape(n, x, 4, (int64_t[]){-1, TOKENS, HEADS, WIDTH / HEADS});
    return transpose(n, x, 4, keys ? (int64_t[]){0, 2, 3, 1} : (int64_t[]){0, 2, 1, 3});
}

static V attention(net_build *n, const char *stem, V x)
{
    static const char *const parts[] = {"q", "k", "v"};
    float scale = (float)sqrt((double)HEADS / WIDTH);
    V in[3];
    for (int i = 0; i < 3; i++) {
        char name[40];
        snprintf(name, sizeof name, "%s.%s", stem, parts[i]);
        in[i] = heads(n, linear(n, name, x, WIDTH, WIDTH, 1), i == 1);
    }
    V factor = n->b ? tacit_builder_constant(n->b, NULL, TACIT_F32, 0, NULL, &scale) : 0;
    V weights = op1(n, "Softmax", op2(n, "MatMul", op2(n, "Mul", in[0], factor), in[1]));
    if (n->b)
        tacit_builder_attr_int(n->b, "axis", -1);
    V mixed = transpose(n, op2(n, "MatMul", weights, in[2]), 4, (int64_t[]){0, 2, 1, 3});
    char name[40];
    snprintf(name, sizeof name, "%s.out", stem);
    return linear(n, name, reshape(n, mixed, 3, (int64_t[]){-1, TOKENS, WIDTH}), WIDTH, WIDTH, 0.5);
}

static V block(net_build *n, int layer, V x)
{
    char stem[32];
    snprintf(stem, sizeof stem, "layer%d.norm1", layer);
    V y = norm(n, stem, x);
    snprintf(stem, sizeof stem, "layer%d", layer);
    x = op2(n, "Add", x, attention(n, stem, y));
    snprintf(stem, sizeof stem, "layer%d.norm2", layer);
    y = norm(n, stem, x);
    snprintf(stem, sizeof stem, "layer%d.up", layer);
    y = op1(n, "Relu", linear(n, stem, y, WIDTH, 2 * WIDTH, 2));
    snprintf(stem, sizeof stem, "layer%d.down", layer);
    return op2(n, "Add", x, linear(n, stem, y, 2 * WIDTH, WIDTH, 0.5));
}

static V transformer(net_build *n, V image)
{
    enum { ACROSS = DIGITS_SIDE / PATCH };
    V x = reshape(n, image, 5, (int64_t[]){-1, ACROSS, PATCH, ACROSS, PATCH});
    x = transpose(n, x, 5, (int64_t[]){0, 1, 3, 2, 4});
    x = reshape(n, x, 3, (int64_t[]){-1, TOKENS, PATCH * PATCH});
    x = linear(n, "patch", x, PATCH * PATCH, WIDTH, 2);
    x = op2(n, "Add", x, param(n, "place", "weight", 2, (int64_t[]){TOKENS, WIDTH}, 0, 0.3));
    for (int i = 0; i < LAYERS; i++)
        x = block(n, i, x);
    x = reshape(n, norm(n, "last", x), 2, (int64_t[]){-1, TOKENS * WIDTH});
    return linear(n, "head", x, TOKENS * WIDTH, DIGITS_CLASSES, 0.5);
}

static V network(net_build *n, const char *name, V image)
{
    return strcmp(name, "convnet") == 0 ? convnet(n, image) : transformer(n, image);
}

bool train_init(train_net *net, const char *name, uint64_t seed)
{
    *net = (train_net){.name = NULL};
    for (uint32_t i = 0; train_names[i]; i++)
        if (strcmp(name, train_names[i]) == 0)
            net->name = train_names[i];
    if (!net->name)
        return false;
    net_build n = {.net = net, .random = rng_seed(seed ^ 0x7261696e)};
    network(&n, name, 0);
    return !net->failed;
}

void train_free(train_net *net)
{
    for (uint32_t i = 0; i < net->n_params; i++)
        for (int k = 0; k <= TRAIN_STATES; k++)
            free(net->params[i].now[k]);
    net->n_params = 0;
}

tacit_status train_build(const train_net *net, train_form form, tacit_model **out, tacit_error *err)
{
    net_build n = {.from = net, .form = form};
    tacit_status status = tacit_builder_create(net->name, NULL, &n.b, err);
    if (status != TACIT_OK)
        return status;
    const char *batch[4] = {"batch"};
    V image = tacit_builder_input(n.b, "image", TACIT_F32, 4,
                                  (int64_t[]){-1, 1, DIGITS_SIDE, DIGITS_SIDE}, batch);
    V label = form == TRAIN_LOSS
                  ? tacit_builder_input(n.b, "label", TACIT_I64, 1, (int64_t[]){-1}, batch)
                  : 0;
    V scores = network(&n, net->name, image);
    if (form == TRAIN_LOSS)
        tacit_builder_output(n.b, "loss", op2(&n, "SoftmaxCrossEntropyLoss", scores, label));
    else
        tacit_builder_output(n.b, "scores", scores);
    status = tacit_builder_finish(n.b, out, err);
    tacit_builder_free(n.b);
    return status;
}
