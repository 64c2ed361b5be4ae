/* SPDX-License-Identifier: Apache-2.0
 * ResNet-50, MobileNetV2, SqueezeNet 1.1 and DenseNet-121. */
#include <math.h>
#include <stdio.h>

#include "cli/example.h"

typedef struct conv_shape {
    int64_t in, out, kernel, stride, groups;
} conv_shape;

/* A convolution, weights named after `stem`, with a bias where asked. */
static V conv(example *e, const char *stem, V x, conv_shape s, bool bias)
{
    char name[128];
    int64_t pad = s.kernel / 2, dims[4] = {s.out, s.in / s.groups, s.kernel, s.kernel};
    double fan = (double)(dims[1] * s.kernel * s.kernel);
    snprintf(name, sizeof name, "%s.weight", stem);
    V in[3] = {x, example_weight(e, name, 4, dims, sqrt(2.0 / fan))};
    snprintf(name, sizeof name, "%s.bias", stem);
    if (bias)
        in[2] = example_fill(e, name, s.out, 0, 0.1);
    V y = tacit_builder_node(e->b, "Conv", bias ? 3 : 2, in, 1, NULL);
    tacit_builder_attr_ints(e->b, "kernel_shape", 2, (int64_t[]){s.kernel, s.kernel});
    tacit_builder_attr_ints(e->b, "strides", 2, (int64_t[]){s.stride, s.stride});
    tacit_builder_attr_ints(e->b, "pads", 4, (int64_t[]){pad, pad, pad, pad});
    tacit_builder_attr_int(e->b, "group", s.groups);
    return y;
}

/* Batch normalisation, its parameters named after `stem`; `gain` scales it. */
static V norm(example *e, const char *stem, V x, int64_t channels, double gain)
{
    char name[128];
    V in[5] = {x};
    static const char *const parts[] = {"scale", "shift", "mean", "var"};
    const double centers[] = {gain, 0, 0, 1}, spreads[] = {gain * 0.1, 0.1, 0.1, 0.1};
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "%s.bn.%s", stem, parts[i]);
        in[i + 1] = example_fill(e, name, channels, centers[i], spreads[i]);
    }
    V y = tacit_builder_node(e->b, "BatchNormalization", 5, in, 1, NULL);
    tacit_builder_attr_float(e->b, "epsilon", 1e-5);
    return y;
}

static V conv_norm(example *e, const char *stem, V x, conv_shape s, double gain)
{
    return norm(e, stem, conv(e, stem, x, s, false), s.out, gain);
}

static V pool(example *e, const char *op, V x, int64_t kernel, int64_t stride, int64_t pad)
{
    V y = example_op1(e, op, x);
    tacit_builder_attr_ints(e->b, "kernel_shape", 2, (int64_t[]){kernel, kernel});
    tacit_builder_attr_ints(e->b, "strides", 2, (int64_t[]){stride, stride});
    tacit_builder_attr_ints(e->b, "pads", 4, (int64_t[]){pad, pad, pad, pad});
    return y;
}

static V image_input(example *e)
{
    int64_t side = e->size.image > 0 ? e->size.image : 224;
    int64_t batch = e->size.dynamic ? -1 : e->size.batch > 0 ? e->size.batch : 1;
    const char *names[4] = {e->size.dynamic ? "batch" : NULL, NULL, NULL, NULL};
    return tacit_builder_input(e->b, "input", TACIT_F32, 4, (int64_t[]){batch, 3, side, side},
                               names);
}

static void classifier(example *e, V x, int64_t width)
{
    int64_t classes = e->size.classes > 0 ? e->size.classes : 1000;
    x = example_op1(e, "GlobalAveragePool", x);
    x = example_op1(e, "Flatten", x);
    tacit_builder_attr_int(e->b, "axis", 1);
    V in[3] = {x, example_weight(e, "fc.weight", 2, (int64_t[]){classes, width}, 0.02),
               example_fill(e, "fc.bias", classes, 0, 0.02)};
    V y = tacit_builder_node(e->b, "Gemm", 3, in, 1, NULL);
    tacit_builder_attr_int(e->b, "transB", 1);
    tacit_builder_output(e->b, "logits", y);
}

static V bottleneck(example *e, V x, const char *stem, int64_t in, int64_t middle, int64_t stride)
{
    char name[64];
    int64_t out = middle * 4;
    snprintf(name, sizeof name, "%s.conv1", stem);
    V y = example_op1(e, "Relu", conv_norm(e, name, x, (conv_shape){in, middle, 1, 1, 1}, 1));
    snprintf(name, sizeof name, "%s.conv2", stem);
    y = example_op1(e, "Relu",
                    conv_norm(e, name, y, (conv_shape){middle, middle, 3, stride, 1}, 1));
    snprintf(name, sizeof name, "%s.conv3", stem);
    /* A small gain keeps sixteen residual sums of random layers in range. */
    y = conv_norm(e, name, y, (conv_shape){middle, out, 1, 1, 1}, 0.25);
    if (in != out) {
        snprintf(name, sizeof name, "%s.downsample", stem);
        x = conv_norm(e, name, x, (conv_shape){in, out, 1, stride, 1}, 1);
    }
    return example_op1(e, "Relu", example_op2(e, "Add", y, x));
}

void example_resnet50(example *e)
{
    static const int64_t depths[4] = {3, 4, 6, 3};
    V x = image_input(e);
    x = example_op1(e, "Relu", conv_norm(e, "conv1", x, (conv_shape){3, 64, 7, 2, 1}, 1));
    x = pool(e, "MaxPool", x, 3, 2, 1);
    int64_t in = 64;
    for (int stage = 0; stage < 4; stage++)
        for (int64_t i = 0; i < depths[stage]; i++) {
            char stem[32];
            int64_t middle = (int64_t)64 << stage;
            snprintf(stem, sizeof stem, "layer%d.%d", stage + 1, (int)i);
            x = bottleneck(e, x, stem, in, middle, stage > 0 && i == 0 ? 2 : 1);
            in = middle * 4;
        }
    classifier(e, x, in);
}

static V relu6(example *e, V x)
{
    return example_op3(e, "Clip", x, example_scalar(e, 0), example_scalar(e, 6));
}

static V inverted_residual(example *e, V x, int index, int64_t in, int64_t out, int64_t stride,
                           int64_t expand)
{
    char name[64];
    int64_t wide = in * expand;
    V y = x;
    if (expand != 1) {
        snprintf(name, sizeof name, "features.%d.expand", index);
        y = relu6(e, conv_norm(e, name, y, (conv_shape){in, wide, 1, 1, 1}, 1));
    }
    snprintf(name, sizeof name, "features.%d.depthwise", index);
    y = relu6(e, conv_norm(e, name, y, (conv_shape){wide, wide, 3, stride, wide}, 1));
    snprintf(name, sizeof name, "features.%d.project", index);
    y = conv_norm(e, name, y, (conv_shape){wide, out, 1, 1, 1}, 0.7);
    return stride == 1 && in == out ? example_op2(e, "Add", x, y) : y;
}

void example_mobilenetv2(example *e)
{
    /* expansion, channels, repeats, first stride */
    static const int64_t rows[7][4] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                                       {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
    V x = relu6(e, conv_norm(e, "features.0", image_input(e), (conv_shape){3, 32, 3, 2, 1}, 1));
    int64_t in = 32;
    int index = 1;
    for (int r = 0; r < 7; r++)
        for (int64_t i = 0; i < rows[r][2]; i++, index++) {
            x = inverted_residual(e, x, index, in, rows[r][1], i ? 1 : rows[r][3], rows[r][0]);
            in = rows[r][1];
        }
    x = relu6(e, conv_norm(e, "features.18", x, (conv_shape){in, 1280, 1, 1, 1}, 1));
    classifier(e, x, 1280);
}

static V concat(example *e, V a, V b)
{
    V y = example_op2(e, "Concat", a, b);
    tacit_builder_attr_int(e->b, "axis", 1);
    return y;
}

/* Squeeze by 1×1, expand by 1×1 and 3×3 side by side. */
static V fire(example *e, int index, V x, int64_t in, int64_t squeeze, int64_t expand)
{
    char name[64];
    snprintf(name, sizeof name, "fire%d.squeeze", index);
    x = example_op1(e, "Relu", conv(e, name, x, (conv_shape){in, squeeze, 1, 1, 1}, true));
    snprintf(name, sizeof name, "fire%d.expand1", index);
    V a = example_op1(e, "Relu", conv(e, name, x, (conv_shape){squeeze, expand, 1, 1, 1}, true));
    snprintf(name, sizeof name, "fire%d.expand3", index);
    V b = example_op1(e, "Relu", conv(e, name, x, (conv_shape){squeeze, expand, 3, 1, 1}, true));
    return concat(e, a, b);
}

void example_squeezenet(example *e)
{
    static const int64_t rows[8][2] = {{16, 64},  {16, 64},  {32, 128}, {32, 128},
                                       {48, 192}, {48, 192}, {64, 256}, {64, 256}};
    int64_t classes = e->size.classes > 0 ? e->size.classes : 1000, in = 64;
    V x = conv(e, "conv1", image_input(e), (conv_shape){3, 64, 3, 2, 1}, true);
    x = pool(e, "MaxPool", example_op1(e, "Relu", x), 3, 2, 0);
    for (int i = 0; i < 8; i++) {
        x = fire(e, i + 2, x, in, rows[i][0], rows[i][1]);
        in = 2 * rows[i][1];
        if (i == 1 || i == 3)
            x = pool(e, "MaxPool", x, 3, 2, 0);
    }
    x = example_op1(e, "Relu", conv(e, "conv10", x, (conv_shape){in, classes, 1, 1, 1}, true));
    x = example_op1(e, "GlobalAveragePool", x);
    x = example_op1(e, "Flatten", x);
    tacit_builder_attr_int(e->b, "axis", 1);
    tacit_builder_output(e->b, "logits", x);
}

/* Norm and ReLU, then the convolution: the norm has nothing before it to go into. */
static V norm_conv(example *e, const char *stem, V x, conv_shape s, double gain)
{
    return conv(e, stem, example_op1(e, "Relu", norm(e, stem, x, s.in, gain)), s, false);
}

static V dense_layer(example *e, const char *stem, V x, int64_t in)
{
    enum { GROWTH = 32 };
    char name[64];
    snprintf(name, sizeof name, "%s.conv1", stem);
    V y = norm_conv(e, name, x, (conv_shape){in, 4 * GROWTH, 1, 1, 1}, 1);
    snprintf(name, sizeof name, "%s.conv2", stem);
    y = norm_conv(e, name, y, (conv_shape){4 * GROWTH, GROWTH, 3, 1, 1}, 1);
    return concat(e, x, y);
}

void example_densenet121(example *e)
{
    static const int64_t depths[4] = {6, 12, 24, 16};
    char stem[48];
    int64_t in = 64;
    V x = image_input(e);
    x = example_op1(e, "Relu", conv_norm(e, "conv0", x, (conv_shape){3, 64, 7, 2, 1}, 1));
    x = pool(e, "MaxPool", x, 3, 2, 1);
    for (int stage = 0; stage < 4; stage++) {
        for (int64_t i = 0; i < depths[stage]; i++, in += 32) {
            snprintf(stem, sizeof stem, "block%d.layer%d", stage + 1, (int)i + 1);
            x = dense_layer(e, stem, x, in);
        }
        if (stage == 3)
            break;
        snprintf(stem, sizeof stem, "transition%d", stage + 1);
        x = norm_conv(e, stem, x, (conv_shape){in, in / 2, 1, 1, 1}, 0.7);
        x = pool(e, "AveragePool", x, 2, 2, 0);
        in /= 2;
    }
    classifier(e, example_op1(e, "Relu", norm(e, "last", x, in, 1)), in);
}
