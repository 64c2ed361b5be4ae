/* SPDX-License-Identifier: Apache-2.0
 * Ensembles of trees (cpu/trees.h). Every test becomes x <= split: x < s is x <= the number before
 * s, the opposite tests change their branches, and equality takes two nodes. */
#include <math.h>
#include <string.h>

#include "cpu/trees.h"
#include "op/forest.h"
#include "op/lowerings.h"

enum {
    TILE_STEPS = 24576,
    STEP_FLOPS = 48, /* what a processor could multiply and add in the time of a step, about */
    NOWHERE = UINT32_MAX
};

/* Nodes in the order in which they are laid out: children side by side, level by level. */
typedef struct layout {
    const op_forest *forest;
    cpu_tree_node *nodes;
    uint32_t n_nodes;
    uint32_t *place; /* by the forest's node; NOWHERE: not yet */
    uint32_t *queue; /* of the forest's nodes that have a place but no contents */
    uint32_t tail;
    uint32_t *begin, *target;
    float *weight;
    uint32_t n_leaves, n_weights;
    bool nans;
    bool detours; /* some nodes only lead to others, which makes ways longer */
} layout;

static bool is_f32(double v)
{
    return isnan(v) || (double)(float)v == v;
}

static bool is_equality(op_tree_mode mode)
{
    return mode == OP_TREE_EQ || mode == OP_TREE_NEQ;
}

static bool suits(const op_lower *c, const op_forest *f)
{
    const ir_shape *x = &c->in[0].type.shape;
    if (c->in[0].type.dtype != TACIT_F32 || f->labels.strings || f->aggregate > OP_TREE_SUM ||
        f->scores.n > CPU_TREE_SUMS / CPU_TREE_LANES || f->n_nodes > INT32_MAX / 8 ||
        x->dims[x->rank - 1] >= CPU_TREE_FEATURES)
        return false;
    for (uint32_t i = 0; i < f->n_nodes; i++) {
        const op_tree_node *n = &f->nodes[i];
        if (n->mode == OP_TREE_MEMBER || !is_f32(n->split))
            return false;
        for (uint32_t k = n->begin; k < n->end; k++)
            if (!is_f32(f->weights[k].value))
                return false;
    }
    return true;
}

/* x <= the number before s is x < s; nothing is below −∞. */
static float before(float s)
{
    return s == -INFINITY ? NAN : nextafterf(s, -INFINITY);
}

static void put_forward(layout *l, uint32_t at, uint32_t to)
{
    l->nodes[at] = (cpu_tree_node){.split = NAN, .first = to};
    l->detours = true;
}

/* Place `at` is for the node `i`: it comes later, or it is elsewhere already. */
static void put_branch(layout *l, uint32_t at, uint32_t i)
{
    if (l->place[i] != NOWHERE) {
        put_forward(l, at, l->place[i]);
        return;
    }
    l->place[i] = at;
    l->queue[l->tail++] = i;
}

/* Returns the place of the first of its two children; the second is where x <= split. */
static uint32_t put_test(layout *l, uint32_t at, const op_tree_node *n, float split, bool nan_below)
{
    uint32_t first = l->n_nodes;
    l->n_nodes += 2;
    l->nodes[at] =
        (cpu_tree_node){.split = split,
                        .feature = (uint32_t)n->feature | (nan_below ? (uint32_t)CPU_TREE_NAN : 0),
                        .first = first};
    l->nans |= nan_below;
    return first;
}

/* x <= s and not x <= the number before it. A NaN takes the true branch if it is missing. */
static void put_equality(layout *l, uint32_t at, const op_tree_node *n)
{
    bool equal = n->mode == OP_TREE_EQ;
    /* NaN is unequal to all: it takes the branch of unequal numbers unless told otherwise. */
    bool nan_equal = n->missing && equal;
    uint32_t same = equal ? n->yes : n->no, other = equal ? n->no : n->yes;
    float s = (float)n->split;
    uint32_t first = put_test(l, at, n, s, nan_equal);
    put_branch(l, first, other);
    uint32_t second = put_test(l, first + 1, n, before(s), false);
    put_branch(l, second, same);
    put_branch(l, second + 1, other);
}

static void put_order(layout *l, uint32_t at, const op_tree_node *n)
{
    float s = (float)n->split;
    bool above = (n->mode == OP_TREE_GTE || n->mode == OP_TREE_GT) && !isnan(s);
    bool strict = n->mode == OP_TREE_LT || n->mode == OP_TREE_GTE;
    uint32_t below = above ? n->no : n->yes;
    /* A NaN takes the false branch unless it is missing. */
    uint32_t first = put_test(l, at, n, strict ? before(s) : s, above != n->missing);
    put_branch(l, first, above ? n->yes : n->no);
    put_branch(l, first + 1, below);
}

static void put_leaf(layout *l, uint32_t at, const op_tree_node *n)
{
    l->nodes[at] = (cpu_tree_node){.split = NAN, .first = at, .leaf = l->n_leaves};
    l->begin[l->n_leaves++] = l->n_weights;
    for (uint32_t k = n->begin; k < n->end; k++) {
        l->target[l->n_weights] = (uint32_t)l->forest->weights[k].target;
        l->weight[l->n_weights++] = (float)l->forest->weights[k].value;
    }
    l->begin[l->n_leaves] = l->n_weights;
}

static void put_tree(layout *l, uint32_t root, cpu_tree *tree)
{
    uint32_t head = l->tail;
    if (l->place[root] == NOWHERE)
        put_branch(l, l->n_nodes++, root);
    tree->root = l->place[root];
    for (; head < l->tail; head++) {
        uint32_t i = l->queue[head];
        const op_tree_node *n = &l->forest->nodes[i];
        if (n->mode == OP_TREE_LEAF)
            put_leaf(l, l->place[i], n);
        else if (is_equality(n->mode) && !isnan(n->split))
            put_equality(l, l->place[i], n);
        else if (n->mode == OP_TREE_NEQ) { /* everything differs from NaN */
            uint32_t first = put_test(l, l->place[i], n, NAN, false);
            put_branch(l, first, n->yes);
            put_branch(l, first + 1, n->no);
        } else
            put_order(l, l->place[i], n);
    }
}

/* Has every leaf one weight, for a target that its tree has alone? Then that target is noted. */
static bool one_weight_each(const layout *l, uint32_t first_leaf, cpu_tree *tree)
{
    tree->target = first_leaf < l->n_leaves ? l->target[l->begin[first_leaf]] : 0;
    for (uint32_t i = first_leaf; i < l->n_leaves; i++)
        if (l->begin[i + 1] - l->begin[i] != 1 || l->target[l->begin[i]] != tree->target)
            return false;
    return true;
}

static tacit_status begin_layout(op_lower *c, const op_forest *f, layout *l)
{
    size_t nodes = f->n_trees, n = f->n_nodes + (size_t)1, weights = 1;
    for (uint32_t i = 0; i < f->n_nodes; i++) {
        const op_tree_node *node = &f->nodes[i];
        if (node->mode == OP_TREE_LEAF)
            weights += node->end - node->begin;
        else
            nodes += is_equality(node->mode) ? 4 : 2;
    }
    *l = (layout){.forest = f,
                  .nodes = op_lower_pack(c, (nodes + 1) * sizeof(cpu_tree_node)),
                  .begin = op_lower_pack(c, (n + 1) * sizeof(uint32_t)),
                  .target = op_lower_pack(c, weights * sizeof(uint32_t)),
                  .weight = op_lower_pack(c, weights * sizeof(float)),
                  .place = ARENA_ARRAY(c->memory, n, uint32_t),
                  .queue = ARENA_ARRAY(c->memory, n, uint32_t)};
    if (!l->nodes || !l->begin || !l->target || !l->weight || !l->place || !l->queue)
        return TACIT_ERR_MEMORY;
    memset(l->place, 0xff, n * sizeof *l->place);
    l->begin[0] = 0;
    return TACIT_OK;
}

/* What attributes hold goes where the program keeps it. */
static tacit_status keep(op_lower *c, const void *from, size_t bytes, const void **to)
{
    void *copy = op_lower_pack(c, bytes ? bytes : 1);
    if (!copy)
        return TACIT_ERR_MEMORY;
    if (bytes)
        memcpy(copy, from, bytes);
    *to = copy;
    return TACIT_OK;
}

static tacit_status lay_out(op_lower *c, const op_forest *f, cpu_trees_args *p, uint64_t *steps)
{
    layout l;
    TRY(begin_layout(c, f, &l));
    cpu_tree *trees = op_lower_pack(c, (f->n_trees + (size_t)1) * sizeof *trees);
    bool plain = true;
    if (!trees)
        return TACIT_ERR_MEMORY;
    for (uint32_t t = 0; t < f->n_trees; t++) {
        uint32_t first_leaf = l.n_leaves;
        plain &= l.place[f->roots[t]] == NOWHERE; /* else the leaves are another's */
        put_tree(&l, f->roots[t], &trees[t]);
        plain &= one_weight_each(&l, first_leaf, &trees[t]);
    }
    for (uint32_t t = 0; t < f->n_trees; t++) {
        /* At worst each node is a test on equality, with a detour behind it. */
        trees[t].steps = f->nodes[f->roots[t]].height * (l.detours ? 3 : 1);
        *steps += trees[t].steps + 1;
    }
    p->nodes = l.nodes;
    p->trees = trees;
    p->n_trees = f->n_trees;
    p->begin = plain ? NULL : l.begin;
    p->target = l.target;
    p->weight = l.weight;
    p->nans = l.nans;
    p->scores = f->scores;
    TRY(keep(c, f->scores.base, (size_t)f->scores.n_base * sizeof(double),
             (const void **)&p->scores.base));
    if (f->labels.count > 1)
        TRY(keep(c, f->labels.ints, f->labels.count * sizeof(int64_t),
                 (const void **)&p->class_labels));
    return TACIT_OK;
}

static tacit_status bind_outputs(op_lower *c, const cpu_trees_args *a)
{
    uint64_t labels = (uint64_t)a->tile * sizeof(int64_t);
    uint64_t scores = (uint64_t)(a->tile * a->scores.n) * sizeof(float);
    uint32_t at = a->scores.classify ? 1 : 0;
    if (a->scores.classify && op_lower_wants(c, 0))
        TRY(op_lower_out_tiled(c, offsetof(cpu_trees_args, labels), 0, labels, labels));
    if (op_lower_wants(c, at))
        TRY(op_lower_out_tiled(c, offsetof(cpu_trees_args, y), at, scores, scores));
    return TACIT_OK;
}

tacit_status op_lower_trees(op_lower *c)
{
    op_forest f;
    cpu_trees_args p = {0};
    uint64_t steps = 1;
    TRY(op_read_forest(c->node, c->memory, &f, c->err));
    TRY(op_rows_of(&c->in[0].type.shape, &p.rows, &p.features, c->err));
    if (!suits(c, &f))
        return OP_LOWER_NO_KERNEL;
    if (p.rows == 0)
        return TACIT_OK;
    TRY(lay_out(c, &f, &p, &steps));
    int64_t most = CPU_TREE_SUMS / p.scores.n, tile = (int64_t)(TILE_STEPS / steps) + 1;
    tile = tile < most ? tile : most;
    p.tile = (tile + CPU_TREE_LANES - 1) / CPU_TREE_LANES * CPU_TREE_LANES;
    p.tile = p.tile > most ? most / CPU_TREE_LANES * CPU_TREE_LANES : p.tile;
    int64_t tiles = (p.rows + p.tile - 1) / p.tile;
    if (tiles > INT32_MAX)
        return OP_LOWER_NO_KERNEL;
    cpu_trees_args *a = op_lower_thunk(c, "trees", cpu_trees, sizeof *a, (uint32_t)tiles);
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = p;
    uint64_t bytes = (uint64_t)(p.tile * p.features) * sizeof(float);
    TRY(op_lower_in_tiled(c, offsetof(cpu_trees_args, x), 0, bytes, bytes));
    TRY(bind_outputs(c, a));
    op_lower_cost(c, STEP_FLOPS * (double)steps * (double)p.rows, op_lower_all_bytes(c));
    op_lower_note(c,
                  "%u trees, at most %llu steps a row, %d walks side by side; tiles of %lld rows",
                  f.n_trees, (unsigned long long)steps, CPU_TREE_LANES, (long long)p.tile);
    return TACIT_OK;
}
