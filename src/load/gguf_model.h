/* SPDX-License-Identifier: Apache-2.0
 *
 * What a GGUF file says about its language model. Architectures differ in a few choices: a row of
 * a table holds those that go with the name, the file's metadata the numbers, and which tensors it
 * has the rest (biases, norms of queries and keys, joined weights).
 */
#ifndef LOAD_GGUF_MODEL_H
#define LOAD_GGUF_MODEL_H

#include "load/gguf.h"

typedef enum load_gguf_rotary {
    LOAD_GGUF_LEARNED,    /* positions have rows of their own, added to the tokens' */
    LOAD_GGUF_NEIGHBOURS, /* pairs that are turned are (2i, 2i + 1), … */
    LOAD_GGUF_HALVES,     /* … or (i, i + n/2) */
} load_gguf_rotary;

typedef enum load_gguf_activation {
    LOAD_GGUF_SILU,
    LOAD_GGUF_GELU, /* with tanh */
    LOAD_GGUF_RELU_SQUARED,
} load_gguf_activation;

typedef enum load_gguf_order {
    LOAD_GGUF_PRE,      /* x + attend(norm x), then x + feed(norm x) */
    LOAD_GGUF_POST,     /* x + norm(attend x), then x + norm(feed x) */
    LOAD_GGUF_BOTH,     /* x + norm(attend(norm x)), then so again */
    LOAD_GGUF_PARALLEL, /* x + attend(norm x) + feed(norm x) */
} load_gguf_order;

typedef struct load_gguf_architecture {
    const char *name;
    load_gguf_rotary rotary;
    load_gguf_activation activation;
    load_gguf_order order;
    bool layer_norm;  /* norms take the mean away; else they are of the root mean square */
    bool root_width;  /* embeddings are multiplied by √width */
    bool joined_gate; /* ffn_up holds gates, then what they let through */
    /* Layers n-1, 2n-1, … see every key, the others a window (n = 1: no layer sees all); 0: there
     * is no window. */
    int64_t window_period;
    int64_t window;       /* where the file does not say */
    double local_base;    /* of rotary angles in layers with a window, unscaled; 0: as elsewhere */
    int64_t still_period; /* layers n-1, 2n-1, … do not turn; 0: all do */
    double softcap, final_softcap; /* where the file does not say */
    int64_t wide_scores; /* with so many layers scores are divided by √(width / heads) */
    bool divides_logits; /* by logit_scale, which multiplies them elsewhere */
} load_gguf_architecture;

typedef struct load_gguf_shape {
    const load_gguf_architecture *is;
    load_gguf_order order; /* the architecture's, or what the file says instead */
    int64_t layers, width, heads, kv_heads, depth, value_depth, rotated, context, window;
    double epsilon, base, softcap, final_softcap;
    double scores, embedding, residual, logits; /* factors */
} load_gguf_shape;

tacit_status load_gguf_read_shape(const load_gguf_file *f, load_gguf_shape *out, tacit_error *err);
/* A number of the architecture's metadata, or `fallback`. */
double load_gguf_of(const load_gguf_file *f, const load_gguf_shape *m, const char *key,
                    double fallback);

/* How fast each of rotated / 2 pairs turns, by position, and by what all are multiplied; `local`:
 * of layers with a window. `factors`: the file's own divisors, or NULL. */
tacit_status load_gguf_angles(const load_gguf_file *f, const load_gguf_shape *m, bool local,
                              const float *factors, double *speeds, double *magnitude,
                              tacit_error *err);

#endif
