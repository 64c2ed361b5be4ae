/* SPDX-License-Identifier: Apache-2.0
 * Ensembles of trees as TreeEnsemble, TreeEnsembleRegressor and TreeEnsembleClassifier describe
 * them, read from the attributes into one form and checked: every walk from a root ends at a leaf.
 */
#ifndef OP_FOREST_H
#define OP_FOREST_H

#include "op/scores.h"

typedef enum op_tree_mode {
    OP_TREE_LEQ, /* in the order of TreeEnsemble's codes */
    OP_TREE_LT,
    OP_TREE_GTE,
    OP_TREE_GT,
    OP_TREE_EQ,
    OP_TREE_NEQ,
    OP_TREE_MEMBER,
    OP_TREE_LEAF,
} op_tree_mode;

typedef struct op_tree_node {
    double split;
    int64_t feature;
    op_tree_mode mode;
    bool missing; /* NaN takes the true branch */
    uint32_t yes, no;
    uint32_t begin, end; /* a leaf's weights; a set's members */
    uint32_t height;     /* nodes on the longest way to a leaf; 0: a leaf, or not reached */
} op_tree_node;

typedef struct op_tree_weight {
    int64_t target;
    double value;
} op_tree_weight;

typedef enum op_tree_aggregate {
    OP_TREE_AVERAGE, /* in the order of TreeEnsemble's codes */
    OP_TREE_SUM,
    OP_TREE_MIN,
    OP_TREE_MAX,
} op_tree_aggregate;

typedef struct op_forest {
    uint32_t n_nodes, n_trees;
    op_tree_node *nodes;
    uint32_t *roots;
    op_tree_weight *weights;
    const ir_tensor *members;
    op_tree_aggregate aggregate;
    cpu_scores scores;
    op_labels labels; /* of a classifier */
} op_forest;

/* In `memory`. */
tacit_status op_read_forest(const ir_node *node, arena *memory, op_forest *out, tacit_error *err);

#endif
