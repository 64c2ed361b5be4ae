/* SPDX-License-Identifier: Apache-2.0
 * Nodes with random inputs and attributes, most of which make no sense. */
#ifndef SUPPORT_ODD_NODE_H
#define SUPPORT_ODD_NODE_H

#include "base/rng.h"
#include "op/op.h"

enum { ODD_VALUES = 8 };

typedef struct odd_node {
    ir_graph *graph; /* one node of the row, its outputs are the graph's; not yet inferred */
    uint32_t n_given, n_out;
    const ir_tensor *given[ODD_VALUES]; /* one per graph input */
} odd_node;

/* The same seed gives the same graph and values. `views`: inputs may reach the node through a
 * Transpose or a Slice. */
void odd_node_make(arena *a, const op_def *row, uint64_t seed, bool views, odd_node *out);
/* A graph input of another layout and the node (Transpose or Slice) that views it as `t`'s shape;
 * `t` is replaced. */
ir_value *odd_view(arena *a, ir_graph *g, rng *r, const ir_tensor **t);

#endif
