/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/trees.h"

#include <string.h>

/* Where a lane of a walk stands, and its row. */
typedef struct lanes {
    uint32_t at[CPU_TREE_LANES];
    const float *x[CPU_TREE_LANES];
} lanes;

static inline uint32_t step(const cpu_tree_node *nodes, uint32_t at, const float *x)
{
    const cpu_tree_node *n = &nodes[at];
    return n->first + (x[n->feature] <= n->split);
}

static inline uint32_t step_nan(const cpu_tree_node *nodes, uint32_t at, const float *x)
{
    const cpu_tree_node *n = &nodes[at];
    float v = x[n->feature & CPU_TREE_FEATURES];
    uint32_t missing = (v != v) & (n->feature >> 31);
    return n->first + ((v <= n->split) | missing);
}

/* All lanes together, so that their loads overlap. */
static void walk(const cpu_tree_node *nodes, lanes *l, uint32_t steps, bool nans)
{
    for (uint32_t s = 0; !nans && s < steps; s++)
        for (int k = 0; k < CPU_TREE_LANES; k++)
            l->at[k] = step(nodes, l->at[k], l->x[k]);
    for (uint32_t s = 0; nans && s < steps; s++)
        for (int k = 0; k < CPU_TREE_LANES; k++)
            l->at[k] = step_nan(nodes, l->at[k], l->x[k]);
}

/* Adds a leaf's weights to the sums of a row. */
static inline void add_leaf(const cpu_trees_args *a, const cpu_tree *t, uint32_t leaf, double *sum,
                            uint8_t *reached)
{
    if (!a->begin) {
        sum[t->target] += (double)a->weight[leaf];
        reached[t->target] = 1;
        return;
    }
    for (uint32_t i = a->begin[leaf]; i < a->begin[leaf + 1]; i++) {
        sum[a->target[i]] += (double)a->weight[i];
        reached[a->target[i]] = 1;
    }
}

/* Eight rows, tree by tree. */
static void walk_rows(const cpu_trees_args *a, const cpu_tree *t, const float *x, double *sum,
                      uint8_t *reached)
{
    lanes l;
    for (int k = 0; k < CPU_TREE_LANES; k++) {
        l.at[k] = t->root;
        l.x[k] = x + k * a->features;
    }
    walk(a->nodes, &l, t->steps, a->nans);
    for (int k = 0; k < CPU_TREE_LANES; k++)
        add_leaf(a, t, a->nodes[l.at[k]].leaf, sum + k * a->scores.n, reached + k * a->scores.n);
}

/* One row, eight trees at a time; sums are made in the same order. */
static void walk_trees(const cpu_trees_args *a, const float *x, double *sum, uint8_t *reached)
{
    for (int64_t t = 0; t < a->n_trees; t += CPU_TREE_LANES) {
        int64_t n = a->n_trees - t < CPU_TREE_LANES ? a->n_trees - t : CPU_TREE_LANES;
        uint32_t steps = 0;
        lanes l;
        for (int k = 0; k < CPU_TREE_LANES; k++) {
            const cpu_tree *tree = &a->trees[t + (k < n ? k : 0)];
            l.at[k] = tree->root;
            l.x[k] = x;
            steps = tree->steps > steps ? tree->steps : steps;
        }
        walk(a->nodes, &l, steps, a->nans);
        for (int k = 0; k < n; k++)
            add_leaf(a, &a->trees[t + k], a->nodes[l.at[k]].leaf, sum, reached);
    }
}

static void finish_row(const cpu_trees_args *a, int64_t row, double *sum, const uint8_t *reached)
{
    int64_t best = cpu_scores_finish(&a->scores, sum, reached);
    if (a->labels)
        a->labels[row] = a->class_labels ? a->class_labels[best] : best;
    for (int64_t k = 0; a->y && k < a->scores.n; k++)
        a->y[row * a->scores.n + k] = (float)sum[k];
}

static void run_rows(const cpu_trees_args *a, int64_t from, int64_t to)
{
    double sum[CPU_TREE_SUMS];
    uint8_t reached[CPU_TREE_SUMS];
    int64_t n = a->scores.n, whole = from + (to - from) / CPU_TREE_LANES * CPU_TREE_LANES;
    memset(sum, 0, (size_t)((to - from) * n) * sizeof *sum);
    memset(reached, 0, (size_t)((to - from) * n));
    for (int64_t t = 0; t < a->n_trees; t++)
        for (int64_t r = from; r < whole; r += CPU_TREE_LANES)
            walk_rows(a, &a->trees[t], a->x + r * a->features, sum + (r - from) * n,
                      reached + (r - from) * n);
    for (int64_t r = whole; r < to; r++)
        walk_trees(a, a->x + r * a->features, sum + (r - from) * n, reached + (r - from) * n);
    for (int64_t r = from; r < to; r++)
        finish_row(a, r, sum + (r - from) * n, reached + (r - from) * n);
}

void cpu_trees(const void *args, uint32_t begin, uint32_t end)
{
    const cpu_trees_args *a = args;
    for (uint32_t t = begin; t < end; t++) {
        int64_t from = t * a->tile, to = from + a->tile;
        run_rows(a, from, to < a->rows ? to : a->rows);
    }
}
