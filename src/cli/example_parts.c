/* SPDX-License-Identifier: Apache-2.0
 * Weights and nodes from which the example architectures are put together. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/example.h"

struct example_block {
    struct example_block *next;
    float data[];
};

float *example_floats(example *e, int64_t count)
{
    struct example_block *block = malloc(sizeof *block + (size_t)count * sizeof(float));
    if (!block) {
        e->out_of_memory = true;
        return NULL;
    }
    block->next = e->blocks;
    e->blocks = block;
    return block->data;
}

const float *example_newest(const example *e)
{
    return e->blocks ? e->blocks->data : NULL;
}

void example_free(example *e)
{
    for (struct example_block *b = e->blocks, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    e->blocks = NULL;
}

V example_weight(example *e, const char *name, int32_t rank, const int64_t *dims, double deviation)
{
    int64_t count = 1;
    for (int32_t i = 0; i < rank; i++)
        count *= dims[i];
    float *w = example_floats(e, count);
    if (!w)
        return 0;
    /* Uniform with the wanted deviation: as good as normal here and many times faster. */
    float reach = (float)(deviation * sqrt(3.0)), step = reach * 0x1p-23f;
    for (int64_t i = 0; i < count; i++)
        w[i] = (float)(int32_t)(rng_u64(&e->random) >> 40) * step - reach;
    return tacit_builder_weight(e->b, name, TACIT_F32, rank, dims, w);
}

V example_fill(example *e, const char *name, int64_t count, double center, double spread)
{
    float *w = example_floats(e, count);
    if (!w)
        return 0;
    for (int64_t i = 0; i < count; i++)
        w[i] = (float)(center + rng_range(&e->random, -spread, spread));
    return tacit_builder_weight(e->b, name, TACIT_F32, 1, &count, w);
}

V example_scalar(example *e, double value)
{
    float f = (float)value;
    return tacit_builder_constant(e->b, NULL, TACIT_F32, 0, NULL, &f);
}

V example_ints(example *e, uint32_t count, const int64_t *values)
{
    int64_t n = count;
    return tacit_builder_constant(e->b, NULL, TACIT_I64, 1, &n, values);
}

V example_int(example *e, int64_t value)
{
    return tacit_builder_constant(e->b, NULL, TACIT_I64, 0, NULL, &value);
}

V example_op1(example *e, const char *op, V a)
{
    return tacit_builder_node(e->b, op, 1, &a, 1, NULL);
}

V example_op2(example *e, const char *op, V a, V b)
{
    return tacit_builder_node(e->b, op, 2, (V[]){a, b}, 1, NULL);
}

V example_op3(example *e, const char *op, V a, V b, V c)
{
    return tacit_builder_node(e->b, op, 3, (V[]){a, b, c}, 1, NULL);
}

V example_reshape(example *e, V x, uint32_t rank, const int64_t *dims)
{
    return example_op2(e, "Reshape", x, example_ints(e, rank, dims));
}

V example_transpose(example *e, V x, const int64_t perm[4])
{
    V y = example_op1(e, "Transpose", x);
    tacit_builder_attr_ints(e->b, "perm", 4, perm);
    return y;
}

V example_softmax(example *e, V x)
{
    V y = example_op1(e, "Softmax", x);
    tacit_builder_attr_int(e->b, "axis", -1);
    return y;
}

V example_linear(example *e, const char *stem, V x, int64_t in, int64_t out, double deviation,
                 bool bias)
{
    char name[128];
    snprintf(name, sizeof name, "%s.weight", stem);
    V y = example_op2(e, "MatMul", x, example_weight(e, name, 2, (int64_t[]){in, out}, deviation));
    if (!bias)
        return y;
    snprintf(name, sizeof name, "%s.bias", stem);
    return example_op2(e, "Add", y, example_fill(e, name, out, 0, 0.02));
}

V example_layer_norm(example *e, const char *stem, V x, int64_t width, double epsilon)
{
    char name[128];
    snprintf(name, sizeof name, "%s.weight", stem);
    V scale = example_fill(e, name, width, 1, 0.1);
    snprintf(name, sizeof name, "%s.bias", stem);
    V y = example_op3(e, "LayerNormalization", x, scale, example_fill(e, name, width, 0, 0.1));
    tacit_builder_attr_int(e->b, "axis", -1);
    tacit_builder_attr_float(e->b, "epsilon", epsilon);
    return y;
}
