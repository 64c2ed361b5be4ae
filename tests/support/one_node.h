/* SPDX-License-Identifier: Apache-2.0
 * Tests of one node: give it inputs and attributes, run its evaluator, compare. */
#ifndef SUPPORT_ONE_NODE_H
#define SUPPORT_ONE_NODE_H

#include "op/op.h"

enum { ONE_NODE_INPUTS = 24, ONE_NODE_OUTPUTS = 12 };

typedef struct one_node {
    arena memory;
    ir_graph *graph;
    ir_node *node; /* after one_node_run */
    const char *domain, *type;
    const ir_tensor *in[ONE_NODE_INPUTS];
    uint32_t n_in;
    ir_attr attrs[16];
    uint32_t n_attrs;
    ir_tensor out[ONE_NODE_OUTPUTS];
    tacit_error err;
} one_node;

#define DIMS(...)                                                                                  \
    (int32_t)(sizeof((int64_t[]){__VA_ARGS__}) / 8), (int64_t[])                                   \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define SCALAR 0, NULL
#define INTS(...)                                                                                  \
    (uint32_t)(sizeof((int64_t[]){__VA_ARGS__}) / 8), (int64_t[])                                  \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define V(...) ((double[]){__VA_ARGS__})

void one_node_begin(one_node *t, const char *domain, const char *type);
void one_node_end(one_node *t);
/* Append an input of `dtype`, its values converted from doubles; NULL values: absent input. */
void one_node_in(one_node *t, tacit_dtype dtype, int32_t rank, const int64_t *dims,
                 const double *values);
void one_node_int(one_node *t, const char *name, int64_t value);
void one_node_float(one_node *t, const char *name, double value);
void one_node_string(one_node *t, const char *name, const char *value);
void one_node_ints(one_node *t, const char *name, uint32_t count, const int64_t *values);
/* Runs the evaluator directly. */
tacit_status one_node_run(one_node *t, uint32_t n_out);
/* Replaces the node by what its decompose rule builds, evaluates that, and asserts that every
 * output agrees with what one_node_run found. */
void one_node_expect_same_decomposed(one_node *t, double tolerance);
/* Asserts shape and values of output i (absolute + relative tolerance). */
void one_node_expect(one_node *t, uint32_t i, int32_t rank, const int64_t *dims,
                     const double *values, double tolerance);
double one_node_at(const one_node *t, uint32_t output, int64_t index);
/* Asserts that the run fails with `status` and that the message contains `text`. */
void one_node_expect_error(one_node *t, uint32_t n_out, tacit_status status, const char *text);

#endif
