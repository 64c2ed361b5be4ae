/* SPDX-License-Identifier: Apache-2.0
 *
 * Ensembles of trees over rows of f32. A node asks x[feature] <= split and goes to node
 * first + (it is so): no branch to guess. A leaf leads to itself, because nothing is <= NaN, so
 * that walks of several rows, or of one row in several trees, take equally many steps side by side.
 */
#ifndef CPU_TREES_H
#define CPU_TREES_H

#include "cpu/kernel.h"
#include "cpu/scores.h"

enum {
    CPU_TREE_LANES = 8,
    CPU_TREE_SUMS = 16384,         /* rows × targets that a tile may sum up at a time */
    CPU_TREE_NAN = INT32_MIN,      /* in `feature`: a NaN counts as <= */
    CPU_TREE_FEATURES = INT32_MAX, /* the most there may be */
};

typedef struct cpu_tree_node {
    float split;
    uint32_t feature;
    uint32_t first;
    uint32_t leaf; /* the leaf's number, where it is one */
} cpu_tree_node;

typedef struct cpu_tree {
    uint32_t root;
    uint32_t steps;  /* to the deepest leaf */
    uint32_t target; /* of all its leaves, where each has one weight */
} cpu_tree;

typedef struct cpu_trees_args {
    const float *x;
    float *y;        /* NULL: scores are not wanted */
    int64_t *labels; /* NULL: nor labels */
    const cpu_tree_node *nodes;
    const cpu_tree *trees;
    int64_t n_trees;
    /* The weights of leaf i: [begin[i], begin[i + 1]), each for its target; `begin` is NULL where
     * leaf i has weight i alone, for the target of its tree. */
    const uint32_t *begin, *target;
    const float *weight;
    bool nans; /* some nodes have CPU_TREE_NAN */
    int64_t rows, features;
    int64_t tile;                /* rows, a multiple of CPU_TREE_LANES; tile·n <= CPU_TREE_SUMS */
    const int64_t *class_labels; /* NULL: the winner's index is its label */
    cpu_scores scores;
} cpu_trees_args;

void cpu_trees(const void *args, uint32_t begin, uint32_t end);

#endif
