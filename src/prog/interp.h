/* SPDX-License-Identifier: Apache-2.0
 * The reference interpreter: one evaluator per node, in order. The oracle of every test, and, with
 * kernels for large nodes (prog/eager.h), what runs the nodes whose shapes only the data can tell.
 */
#ifndef PROG_INTERP_H
#define PROG_INTERP_H

#include "op/op.h"

typedef struct interp_env {
    uint64_t step; /* how many times this session has run */
    /* Called for every value of the outermost graph after the node that made it. */
    void (*watch)(void *context, const ir_node *node, const ir_value *value,
                  const ir_tensor *tensor);
    /* Called before every node of the outermost graph. */
    void (*begin)(void *context);
    void *watch_context;
    struct eager_cache *eager; /* kernels where there are some; NULL: evaluators alone */
    const bool *fixed; /* by value id of the graph at work: the same contents in every run */
    uint64_t drawn;    /* subgraphs run so far: random ops in a loop's body must not repeat */
} interp_env;

/* Runs `g` (sorted, ops resolved) on `inputs`, one per graph input (NULL: its default, where it
 * has one). outputs[i] and all it owns is allocated in `memory`; intermediates are released after
 * their last reader. */
tacit_status interp_run(const ir_graph *g, const ir_tensor *const *inputs, ir_tensor *outputs,
                        arena *memory, uint64_t step, tacit_error *err);
tacit_status interp_run_env(const ir_graph *g, const ir_tensor *const *inputs, ir_tensor *outputs,
                            arena *memory, interp_env *env, tacit_error *err);

/* A part of a graph: `nodes` in topological order, `given` by value id (NULL: made by the nodes or
 * a known constant), and the values wanted from it. */
typedef struct interp_part {
    const ir_graph *graph;
    ir_node *const *nodes;
    uint32_t n_nodes;
    const ir_tensor *const *given;
    const bool *fixed; /* by value id: given, and the same in every run; NULL: none */
    ir_value *const *wanted;
    uint32_t n_wanted;
} interp_part;
tacit_status interp_run_part(const interp_part *part, ir_tensor *outputs, arena *memory,
                             interp_env *env, tacit_error *err);

/* For op_exec_env.run_graph; `runner` is the interp_env of the outer run (without who watches it).
 */
tacit_status interp_run_subgraph(op_eval *c, const ir_graph *sub, uint32_t n_args,
                                 const ir_tensor *const *args, uint32_t n_results,
                                 ir_tensor *results);

#endif
