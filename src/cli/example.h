/* SPDX-License-Identifier: Apache-2.0
 * Well-known architectures at their real sizes, with seeded weights, spelled as exporters do. */
#ifndef CLI_EXAMPLE_H
#define CLI_EXAMPLE_H

#include "base/rng.h"
#include "cli/cli.h"

/* Sizes; 0 means the architecture's own. */
typedef struct example_sizes {
    int64_t batch, seq, layers, hidden, heads, kv_heads, ffn, vocab, width, classes, image;
    bool dynamic; /* batch and sequence stay symbolic */
    bool decode;  /* gpt2: past keys and values come in, grown ones go out */
} example_sizes;

typedef struct example {
    tacit_builder *b;
    rng random;
    example_sizes size;
    struct example_block *blocks; /* weight memory, released by example_free */
    bool out_of_memory;
} example;

typedef tacit_value V;

/* Weight memory that lives until example_free. */
float *example_floats(example *e, int64_t count);
/* The memory of the newest weight, or NULL. */
const float *example_newest(const example *e);
void example_free(example *e);

/* Weights: normal-like with the given deviation, or one value. */
V example_weight(example *e, const char *name, int32_t rank, const int64_t *dims, double deviation);
V example_fill(example *e, const char *name, int64_t count, double center, double spread);
V example_scalar(example *e, double value);
V example_ints(example *e, uint32_t count, const int64_t *values); /* rank 1 */
V example_int(example *e, int64_t value);                          /* rank 0 */

/* Nodes. */
V example_op1(example *e, const char *op, V a);
V example_op2(example *e, const char *op, V a, V b);
V example_op3(example *e, const char *op, V a, V b, V c);
V example_reshape(example *e, V x, uint32_t rank, const int64_t *dims);
V example_transpose(example *e, V x, const int64_t perm[4]);
V example_softmax(example *e, V x);
/* x·W[in,out] (+ bias); `stem` names the weights. */
V example_linear(example *e, const char *stem, V x, int64_t in, int64_t out, double deviation,
                 bool bias);
V example_layer_norm(example *e, const char *stem, V x, int64_t width, double epsilon);

/* Architectures: each adds its inputs, nodes and outputs. */
void example_mlp(example *e);
void example_block(example *e);
void example_attention(example *e);
void example_attention_causal(example *e);
void example_gpt2(example *e);
void example_bert(example *e);
void example_llama(example *e);
void example_resnet50(example *e);
void example_mobilenetv2(example *e);
void example_squeezenet(example *e);
void example_densenet121(example *e);

#endif
