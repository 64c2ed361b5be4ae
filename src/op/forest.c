/* SPDX-License-Identifier: Apache-2.0
 * Reading ensembles of trees. */
#include "op/forest.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- what both forms share -------------------------------------------------------------------- */

static tacit_status ints_of(const ir_node *node, const char *name, uint32_t n, const int64_t **out,
                            tacit_error *err)
{
    uint32_t count;
    *out = ir_attr_ints(node, name, &count);
    count = *out ? count : 0;
    if (count != n)
        return error_set(err, TACIT_ERR_GRAPH, "%s has %u entries for %u", name, count, n);
    return TACIT_OK;
}

enum { NEW, OPEN, DONE };

static void push_branch(uint32_t i, const uint8_t *state, uint32_t *stack, uint32_t *depth)
{
    if (state[i] == NEW)
        stack[(*depth)++] = i;
}

static uint32_t height_over(const op_forest *f, const op_tree_node *n)
{
    uint32_t yes = f->nodes[n->yes].height, no = f->nodes[n->no].height;
    return 1 + (yes > no ? yes : no);
}

/* Every walk ends: no node is met again below itself. Depth first, without recursion. */
static tacit_status check_cycles(op_forest *f, arena *memory, tacit_error *err)
{
    uint8_t *state = ARENA_ARRAY(memory, f->n_nodes + (size_t)1, uint8_t);
    uint32_t *stack = ARENA_ARRAY(memory, 2 * (size_t)f->n_nodes + 2, uint32_t), depth = 0;
    if (!state || !stack)
        return error_memory(err, "a tree ensemble");
    memset(state, NEW, f->n_nodes);
    for (uint32_t t = 0; t < f->n_trees; t++) {
        stack[depth++] = f->roots[t];
        while (depth) {
            uint32_t i = stack[depth - 1];
            op_tree_node *n = &f->nodes[i];
            if (state[i] != NEW || n->mode == OP_TREE_LEAF) {
                if (state[i] == OPEN)
                    n->height = height_over(f, n);
                state[i] = DONE;
                depth--;
                continue;
            }
            state[i] = OPEN;
            if (state[n->yes] == OPEN || state[n->no] == OPEN)
                return error_set(err, TACIT_ERR_VALUE, "tree %u has a cycle at its node %u", t, i);
            push_branch(n->yes, state, stack, &depth);
            push_branch(n->no, state, stack, &depth);
        }
    }
    return TACIT_OK;
}

static tacit_status check_targets(const op_forest *f, uint32_t n_weights, tacit_error *err)
{
    for (uint32_t i = 0; i < n_weights; i++)
        if (f->weights[i].target < 0 || f->weights[i].target >= f->scores.n)
            return error_set(err, TACIT_ERR_VALUE, "weight %u is for target %lld of %lld", i,
                             (long long)f->weights[i].target, (long long)f->scores.n);
    for (uint32_t i = 0; i < f->n_nodes; i++)
        if (f->nodes[i].mode != OP_TREE_LEAF &&
            (f->nodes[i].feature < 0 || f->nodes[i].feature > INT32_MAX))
            return error_set(err, TACIT_ERR_VALUE, "tree node %u reads feature %lld", i,
                             (long long)f->nodes[i].feature);
    return TACIT_OK;
}

/* --- TreeEnsemble: nodes and leaves apart, by their places ------------------------------------ */

/* Sets of members are delimited by NaN, one for each membership node in order. */
static void find_members(op_forest *f)
{
    int64_t at = 0, n = f->members ? ir_tensor_count(f->members) : 0;
    for (uint32_t i = 0; i < f->n_nodes; i++) {
        if (f->nodes[i].mode != OP_TREE_MEMBER)
            continue;
        f->nodes[i].begin = (uint32_t)at;
        while (at < n && !isnan(ir_load_f64(f->members->dtype, f->members->data, at)))
            at++;
        f->nodes[i].end = (uint32_t)at;
        at += at < n;
    }
}

/* A branch leads to node `id`, or to leaf `id`, which stand behind the `n` nodes. */
static bool find_branch(int64_t id, int64_t is_leaf, uint32_t n, uint32_t leaves, uint32_t *out)
{
    if (id < 0 || id >= (is_leaf ? leaves : n))
        return false;
    *out = (is_leaf ? n : 0) + (uint32_t)id;
    return true;
}

static tacit_status read_places(const ir_node *node, arena *memory, op_forest *f, tacit_error *err)
{
    const int64_t *feature, *yes, *no, *yes_leaf, *no_leaf, *missing, *roots, *target;
    const ir_tensor *mode = ir_attr_tensor(node, "nodes_modes");
    const ir_tensor *split = ir_attr_tensor(node, "nodes_splits");
    const ir_tensor *weight = ir_attr_tensor(node, "leaf_weights");
    uint32_t n, leaves, n_missing;
    f->members = ir_attr_tensor(node, "membership_values");
    roots = ir_attr_ints(node, "tree_roots", &f->n_trees);
    feature = ir_attr_ints(node, "nodes_featureids", &n);
    target = ir_attr_ints(node, "leaf_targetids", &leaves);
    missing = ir_attr_ints(node, "nodes_missing_value_tracks_true", &n_missing);
    n = feature ? n : 0;
    leaves = target ? leaves : 0;
    TRY(ints_of(node, "nodes_truenodeids", n, &yes, err));
    TRY(ints_of(node, "nodes_falsenodeids", n, &no, err));
    TRY(ints_of(node, "nodes_trueleafs", n, &yes_leaf, err));
    TRY(ints_of(node, "nodes_falseleafs", n, &no_leaf, err));
    if (!roots || !mode || !split || !weight || ir_tensor_count(mode) != n ||
        ir_tensor_count(split) != n || ir_tensor_count(weight) != leaves ||
        (missing && n_missing && n_missing != n) || !ir_dtype_is_int(mode->dtype) ||
        n > UINT32_MAX / 4 || leaves > UINT32_MAX / 4)
        return error_set(err, TACIT_ERR_GRAPH, "the tree's attributes do not fit each other");
    f->n_nodes = n + leaves;
    f->nodes = ARENA_ARRAY(memory, f->n_nodes + (size_t)1, op_tree_node);
    f->weights = ARENA_ARRAY(memory, leaves + (size_t)1, op_tree_weight);
    f->roots = ARENA_ARRAY(memory, f->n_trees + (size_t)1, uint32_t);
    if (!f->nodes || !f->weights || !f->roots)
        return error_memory(err, "a tree ensemble");
    for (uint32_t i = 0; i < n; i++) {
        int64_t code = ir_load_i64(mode->dtype, mode->data, i);
        op_tree_node *to = &f->nodes[i];
        *to = (op_tree_node){.split = ir_load_f64(split->dtype, split->data, i),
                             .feature = feature[i],
                             .mode = (op_tree_mode)code,
                             .missing = missing && n_missing && missing[i]};
        if (code < 0 || code > OP_TREE_MEMBER || feature[i] < 0 ||
            !find_branch(yes[i], yes_leaf[i], n, leaves, &to->yes) ||
            !find_branch(no[i], no_leaf[i], n, leaves, &to->no))
            return error_set(err, TACIT_ERR_VALUE, "tree node %u is malformed", i);
    }
    for (uint32_t i = 0; i < leaves; i++) {
        f->nodes[n + i] = (op_tree_node){.mode = OP_TREE_LEAF, .begin = i, .end = i + 1};
        f->weights[i] = (op_tree_weight){target[i], ir_load_f64(weight->dtype, weight->data, i)};
    }
    for (uint32_t t = 0; t < f->n_trees; t++) {
        if (roots[t] < 0 || roots[t] >= n)
            return error_set(err, TACIT_ERR_VALUE, "root %u is no node", t);
        f->roots[t] = (uint32_t)roots[t];
    }
    find_members(f);
    return check_targets(f, leaves, err);
}

static tacit_status read_ensemble(const ir_node *node, arena *memory, op_forest *f,
                                  tacit_error *err)
{
    int64_t aggregate = ir_attr_int(node, "aggregate_function", OP_TREE_SUM);
    int64_t post = ir_attr_int(node, "post_transform", CPU_POST_NONE);
    f->scores = (cpu_scores){.n = ir_attr_int(node, "n_targets", 1), .divisor = 1};
    if (f->scores.n < 1 || aggregate < 0 || aggregate > OP_TREE_MAX || post < 0 ||
        post > CPU_POST_PROBIT)
        return error_set(err, TACIT_ERR_VALUE,
                         "bad n_targets, aggregate_function or post_transform");
    f->aggregate = (op_tree_aggregate)aggregate;
    f->scores.post = (cpu_post)post;
    return read_places(node, memory, f, err);
}

/* --- TreeEnsembleRegressor and -Classifier: nodes by the ids of their tree and their own -------
 */

typedef struct node_id {
    int64_t tree, node;
    uint32_t place;
} node_id;

static int compare_ids(const void *a, const void *b)
{
    const node_id *x = a, *y = b;
    if (x->tree != y->tree)
        return x->tree < y->tree ? -1 : 1;
    return (x->node > y->node) - (x->node < y->node);
}

static const node_id *find_id(const node_id *ids, uint32_t n, int64_t tree, int64_t node)
{
    node_id key = {tree, node, 0};
    return bsearch(&key, ids, n, sizeof *ids, compare_ids);
}

/* Nodes in the order of their ids; none is there twice. */
static tacit_status sort_ids(const ir_node *node, uint32_t n, arena *memory, node_id **out,
                             tacit_error *err)
{
    const int64_t *trees, *nodes;
    bool sorted = true;
    TRY(ints_of(node, "nodes_treeids", n, &trees, err));
    TRY(ints_of(node, "nodes_nodeids", n, &nodes, err));
    node_id *ids = ARENA_ARRAY(memory, n + (size_t)1, node_id);
    if (!ids)
        return error_memory(err, "a tree ensemble");
    for (uint32_t i = 0; i < n; i++) {
        ids[i] = (node_id){trees[i], nodes[i], i};
        sorted &= i == 0 || compare_ids(&ids[i - 1], &ids[i]) < 0;
    }
    if (!sorted)
        qsort(ids, n, sizeof *ids, compare_ids);
    for (uint32_t i = 1; i < n; i++)
        if (compare_ids(&ids[i - 1], &ids[i]) == 0)
            return error_set(err, TACIT_ERR_VALUE, "node %lld of tree %lld is there twice",
                             (long long)ids[i].node, (long long)ids[i].tree);
    *out = ids;
    return TACIT_OK;
}

/* A tree begins with the first of its nodes; trees stand in the order of their beginnings. */
static tacit_status find_roots(op_forest *f, const node_id *ids, arena *memory, tacit_error *err)
{
    uint8_t *begins = ARENA_ARRAY(memory, f->n_nodes + (size_t)1, uint8_t);
    f->roots = ARENA_ARRAY(memory, f->n_nodes + (size_t)1, uint32_t);
    if (!begins || !f->roots)
        return error_memory(err, "a tree ensemble");
    memset(begins, 0, f->n_nodes);
    for (uint32_t i = 0, first = 0; i < f->n_nodes; i++) {
        bool last = i + 1 == f->n_nodes || ids[i + 1].tree != ids[i].tree;
        if (ids[i].place < ids[first].place)
            first = i;
        if (last) {
            begins[ids[first].place] = 1;
            first = i + 1;
        }
    }
    for (uint32_t i = 0; i < f->n_nodes; i++)
        if (begins[i])
            f->roots[f->n_trees++] = i;
    return TACIT_OK;
}

static bool read_mode(const ir_string *text, op_tree_mode *out)
{
    static const char *const names[] = {
        [OP_TREE_LEQ] = "BRANCH_LEQ", [OP_TREE_LT] = "BRANCH_LT", [OP_TREE_GTE] = "BRANCH_GTE",
        [OP_TREE_GT] = "BRANCH_GT",   [OP_TREE_EQ] = "BRANCH_EQ", [OP_TREE_NEQ] = "BRANCH_NEQ",
        [OP_TREE_MEMBER] = NULL,      [OP_TREE_LEAF] = "LEAF",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i] && strlen(names[i]) == text->length &&
            memcmp(names[i], text->data, text->length) == 0) {
            *out = (op_tree_mode)i;
            return true;
        }
    return false;
}

static tacit_status read_nodes(const ir_node *node, const node_id *ids, op_forest *f, arena *memory,
                               tacit_error *err)
{
    const int64_t *trees, *own, *feature, *yes, *no, *missing;
    const double *split;
    uint32_t n_modes, n_splits, n_missing, n = f->n_nodes;
    const ir_string *modes = ir_attr_strings(node, "nodes_modes", &n_modes);
    missing = ir_attr_ints(node, "nodes_missing_value_tracks_true", &n_missing);
    n_missing = missing ? n_missing : 0;
    TRY(ints_of(node, "nodes_treeids", n, &trees, err));
    TRY(ints_of(node, "nodes_nodeids", n, &own, err));
    TRY(ints_of(node, "nodes_featureids", n, &feature, err));
    TRY(ints_of(node, "nodes_truenodeids", n, &yes, err));
    TRY(ints_of(node, "nodes_falsenodeids", n, &no, err));
    TRY(op_read_reals(node, "nodes_values", memory, &split, &n_splits, err));
    if (n_splits != n || !modes || n_modes != n || (n_missing && n_missing != n))
        return error_set(err, TACIT_ERR_GRAPH,
                         "nodes_modes, nodes_values and nodes_missing_value_tracks_true must have "
                         "%u entries",
                         n);
    for (uint32_t i = 0; i < n; i++) {
        op_tree_node *to = &f->nodes[i];
        *to = (op_tree_node){
            .split = split[i], .feature = feature[i], .missing = n_missing && missing[i]};
        if (!read_mode(&modes[i], &to->mode))
            return error_set(err, TACIT_ERR_VALUE, "node %u has the mode '%.*s'", i,
                             (int)(modes[i].length < 40 ? modes[i].length : 40), modes[i].data);
        if (to->mode == OP_TREE_LEAF)
            continue;
        const node_id *t = find_id(ids, n, trees[i], yes[i]), *e = find_id(ids, n, trees[i], no[i]);
        if (!t || !e)
            return error_set(err, TACIT_ERR_VALUE,
                             "node %lld of tree %lld leads to node %lld, which is not there",
                             (long long)own[i], (long long)trees[i], (long long)(t ? no : yes)[i]);
        to->yes = t->place;
        to->no = e->place;
    }
    return TACIT_OK;
}

/* Weights side by side by their nodes, else in their order. The names: trees, nodes, targets and
 * the weights themselves. */
static tacit_status read_weights(const ir_node *node, const char *const names[4],
                                 const node_id *ids, op_forest *f, arena *memory, tacit_error *err)
{
    const int64_t *trees, *nodes, *targets;
    const double *values;
    uint32_t n;
    TRY(op_read_reals(node, names[3], memory, &values, &n, err));
    TRY(ints_of(node, names[0], n, &trees, err));
    TRY(ints_of(node, names[1], n, &nodes, err));
    TRY(ints_of(node, names[2], n, &targets, err));
    uint32_t *place = ARENA_ARRAY(memory, n + (size_t)1, uint32_t), at = 0;
    f->weights = ARENA_ARRAY(memory, n + (size_t)1, op_tree_weight);
    if (!place || !f->weights)
        return error_memory(err, "a tree ensemble");
    for (uint32_t i = 0; i < n; i++) {
        const node_id *to = find_id(ids, f->n_nodes, trees[i], nodes[i]);
        if (!to)
            return error_set(err, TACIT_ERR_VALUE,
                             "weight %u is for node %lld of tree %lld, which is not there", i,
                             (long long)nodes[i], (long long)trees[i]);
        place[i] = to->place;
        f->nodes[to->place].end++;
    }
    for (uint32_t i = 0; i < f->n_nodes; i++) {
        uint32_t own = f->nodes[i].end;
        f->nodes[i].begin = f->nodes[i].end = at;
        at += own;
    }
    for (uint32_t i = 0; i < n; i++)
        f->weights[f->nodes[place[i]].end++] = (op_tree_weight){targets[i], values[i]};
    f->scores.positive = true;
    for (uint32_t i = 0; i < n; i++)
        f->scores.positive &= values[i] >= 0;
    return check_targets(f, n, err);
}

static tacit_status read_base(const ir_node *node, op_forest *f, arena *memory, tacit_error *err)
{
    uint32_t n;
    TRY(op_read_reals(node, "base_values", memory, &f->scores.base, &n, err));
    f->scores.n_base = n;
    bool of_two = f->scores.classify && f->scores.n == 2 && n == 1;
    if (n && n != f->scores.n && !of_two)
        return error_set(err, TACIT_ERR_GRAPH, "base_values has %u entries for %lld", n,
                         (long long)f->scores.n);
    return TACIT_OK;
}

static tacit_status read_by_ids(const ir_node *node, const char *const names[4], arena *memory,
                                op_forest *f, tacit_error *err)
{
    node_id *ids;
    TRY(op_read_post(node, &f->scores.post, err));
    if (!ir_attr_ints(node, "nodes_nodeids", &f->n_nodes) || f->n_nodes > UINT32_MAX / 4)
        return error_set(err, TACIT_ERR_GRAPH, "there are no tree nodes");
    f->nodes = ARENA_ARRAY(memory, f->n_nodes + (size_t)1, op_tree_node);
    if (!f->nodes)
        return error_memory(err, "a tree ensemble");
    TRY(sort_ids(node, f->n_nodes, memory, &ids, err));
    TRY(find_roots(f, ids, memory, err));
    TRY(read_nodes(node, ids, f, memory, err));
    TRY(read_weights(node, names, ids, f, memory, err));
    return read_base(node, f, memory, err);
}

static tacit_status read_regressor(const ir_node *node, arena *memory, op_forest *f,
                                   tacit_error *err)
{
    static const char *const names[4] = {"target_treeids", "target_nodeids", "target_ids",
                                         "target_weights"};
    static const char *const aggregates[] = {"AVERAGE", "SUM", "MIN", "MAX"};
    const char *text = ir_attr_string(node, "aggregate_function", "SUM");
    size_t a = 0;
    while (a < 4 && strcmp(text, aggregates[a]) != 0)
        a++;
    f->scores =
        (cpu_scores){.n = ir_attr_int(node, "n_targets", 1), .divisor = 1, .alone_plain = true};
    f->aggregate = (op_tree_aggregate)a;
    if (a == 4 || f->scores.n < 1 || f->scores.n > INT32_MAX)
        return error_set(err, TACIT_ERR_VALUE, "aggregate_function is '%s', n_targets %lld", text,
                         (long long)f->scores.n);
    return read_by_ids(node, names, memory, f, err);
}

static tacit_status read_classifier(const ir_node *node, arena *memory, op_forest *f,
                                    tacit_error *err)
{
    static const char *const names[4] = {"class_treeids", "class_nodeids", "class_ids",
                                         "class_weights"};
    uint32_t n = 0;
    TRY(op_read_labels(node, "classlabels_strings", "classlabels_int64s", &f->labels, err));
    f->aggregate = OP_TREE_SUM;
    f->scores =
        (cpu_scores){.classify = true, .alone_plain = true, .n = f->labels.count, .divisor = 1};
    TRY(read_by_ids(node, names, memory, f, err));
    const int64_t *targets = ir_attr_ints(node, "class_ids", &n);
    f->scores.binary = f->scores.n == 2 && targets && n;
    f->scores.named = f->scores.binary ? targets[0] : 0;
    for (uint32_t i = 1; f->scores.binary && i < n; i++)
        f->scores.binary &= targets[i] == targets[0];
    if (f->scores.binary && f->scores.named == 1 && f->scores.n_base == 1)
        f->scores.n_base = 0; /* the one base value is the other's */
    return TACIT_OK;
}

tacit_status op_read_forest(const ir_node *node, arena *memory, op_forest *out, tacit_error *err)
{
    *out = (op_forest){0};
    if (strcmp(node->type, "TreeEnsemble") == 0)
        TRY(read_ensemble(node, memory, out, err));
    else if (strcmp(node->type, "TreeEnsembleRegressor") == 0)
        TRY(read_regressor(node, memory, out, err));
    else
        TRY(read_classifier(node, memory, out, err));
    if (out->aggregate == OP_TREE_AVERAGE && out->n_trees)
        out->scores.divisor = out->n_trees;
    return check_cycles(out, memory, err);
}
