/* SPDX-License-Identifier: Apache-2.0
 *
 * The transforms: graph in, graph out. Each walker edits an inferred graph in place (the caller
 * clones first); the rules it calls live in the op rows (op/diff.h).
 */
#ifndef DIFF_DIFF_H
#define DIFF_DIFF_H

#include "op/diff.h"

typedef struct diff_grad_options {
    uint32_t output;                /* which graph output is the loss */
    bool with_loss;                 /* outputs: [loss, gradients…] instead of [gradients…] */
    bool ones_seed;                 /* seed the loss with ones instead of an input named d_output */
    double seed;                    /* with ones_seed: this number instead of one; 0 means one */
    const char *const *checkpoints; /* values to keep; what lies between is computed again */
    uint32_t n_checkpoints;
    const tacit_log *log;
} diff_grad_options;

/* Reverse mode. Outputs become (loss,) gradients of the values named in `wrt` (inputs or weights).
 * A value that does not reach the loss gets zeros, with a warning. */
tacit_status diff_grad(ir_graph *g, uint32_t n, const char *const *wrt,
                       const diff_grad_options *options, tacit_error *err);

typedef enum diff_optimizer { DIFF_SGD, DIFF_ADAM, DIFF_ADAMW } diff_optimizer;
typedef struct diff_train_options {
    uint32_t output; /* which graph output is the loss: one number */
    diff_optimizer kind;
    double momentum;              /* SGD; 0: no state */
    double beta1, beta2, epsilon; /* Adam, AdamW */
    double weight_decay;          /* AdamW: decoupled; otherwise added to gradients */
    double clip_norm;             /* of all gradients together; 0: not clipped */
    double loss_scale; /* 0: none; steps whose scaled gradients overflow change nothing */
    const char *const *checkpoints; /* as for diff_grad */
    uint32_t n_checkpoints;
    const tacit_log *log;
} diff_train_options;

/* One training step. The values named in `params` (inputs or weights) become inputs; inputs
 * learning_rate, step (Adam: counts from 1) and the optimiser's state (NAME.momentum, or NAME.mean
 * and NAME.square) are added. Outputs: loss, NAME.next…, then the state's in the same order. */
tacit_status diff_train(ir_graph *g, uint32_t n, const char *const *params,
                        const diff_train_options *options, tacit_error *err);

/* Forward mode. Outputs become [primal outputs…, tangent outputs…]; every name in `wrt` gets an
 * input tangent_<name>. */
tacit_status diff_jvp(ir_graph *g, uint32_t n, const char *const *wrt, tacit_error *err);

/* Batching. The inputs in `names` gain a leading axis of `size`, and so does all that depends on
 * them; outputs that do not are expanded. */
tacit_status diff_vmap(ir_graph *g, uint32_t n, const char *const *names, int64_t size,
                       tacit_error *err);

/* Replaces every Gradient node of ai.onnx.preview.training in an inferred graph by the nodes that
 * compute it; types are inferred anew. */
tacit_status diff_gradient_nodes(ir_graph *g, tacit_error *err);

/* --- shared by the walkers -------------------------------------------------------------------- */
/* reach[value id]: does the value depend on a marked one? In: the marks. Arrays have
 * g->values.count entries at the time of the call. */
void diff_reach(const ir_graph *g, bool *reach);
/* Nodes that depend on a value of `wrt` (NULL: all nodes), whose row has no rule of the wanted kind
 * but a spelling or a decomposition, are replaced by it; `has_rule` asks the row. Types stay
 * inferred. */
tacit_status diff_decompose(ir_graph *g, bool (*has_rule)(const op_def *op), uint32_t n,
                            ir_value *const *wrt, tacit_error *err);
/* What reverse mode needs of a graph: scans with checkpoints are cut, nodes without a vjp replaced
 * by simpler ones where they depend on `wrt` (NULL: everywhere). */
tacit_status diff_prepare(ir_graph *g, uint32_t n, ir_value *const *wrt, tacit_error *err);
/* The one reverse walk, over nodes [first, last) of the graph: grad[v] gathers the cotangents of
 * the values that `reach` marks. Both arrays go by value id and have `values` entries; younger
 * values belong to the derivative. */
typedef struct diff_sweep {
    ir_graph *graph;
    arena *scratch;
    const bool *reach;
    ir_value **grad; /* NULL: zero */
    uint32_t values;
    struct diff_remat *remat; /* NULL: nothing is computed again */
    tacit_error *err;
} diff_sweep;
tacit_status diff_sweep_back(const diff_sweep *s, uint32_t first, uint32_t last);
/* Values of the named inputs and weights, all of which can have a derivative. */
tacit_status diff_find_wrt(const ir_graph *g, uint32_t n, const char *const *names, ir_value **out,
                           tacit_error *err);
/* Do values of this dtype have derivatives? */
bool diff_is_smooth(tacit_dtype dtype);
/* Reverse mode inside a prepared graph: from seeds[i], the cotangent of outputs[i], to grads[i] of
 * wrt[i] (NULL: zero). */
tacit_status diff_reverse(ir_graph *g, uint32_t n_seeds, ir_value *const *outputs,
                          ir_value *const *seeds, uint32_t n_wrt, ir_value *const *wrt,
                          ir_value **grads, tacit_error *err);
/* Inlines tacit Functions without rule `rule` (NULL: all), nor `other`, of their own. */
tacit_status diff_inline_functions(ir_graph *g, const char *rule, const char *other,
                                   tacit_error *err);
bool diff_is_function(const ir_node *n);
/* remat.c: gradients from few kept values. Marks go into the graph by hand (tacit Checkpoint nodes)
 * or by name; diff_remat_open takes them out again (*out NULL: there are none). */
typedef struct diff_remat diff_remat;
tacit_status diff_remat_mark(ir_graph *g, uint32_t n, const char *const *names, tacit_error *err);
tacit_status diff_remat_open(ir_graph *g, arena *scratch, diff_remat **out, tacit_error *err);
/* `stand_in` becomes the node `n` as its rule shall see it: on values computed again, if need be,
 * once `after` is there. */
tacit_status diff_remat_node(diff_remat *r, ir_node *n, ir_value *after, ir_node *stand_in,
                             tacit_error *err);
tacit_status diff_remat_sweep(diff_remat *r, tacit_error *err);
/* Values of an inferred graph that little but themselves passes by, in order, with the bytes of all
 * values made up to there. */
typedef struct diff_point {
    const char *value;
    uint64_t bytes;
} diff_point;
typedef struct diff_points {
    diff_point *all;
    uint32_t count;
    uint64_t total;
} diff_points;
tacit_status diff_remat_points(const ir_graph *g, arena *memory, diff_points *out,
                               tacit_error *err);
/* recurrence.c: SelectiveScan and GatedDeltaNet become scans. */
tacit_status diff_spell_recurrences(ir_graph *g, tacit_error *err);
/* control.c: Loops of a known number of steps become scans, Ifs of a known condition their branch;
 * other Ifs get types where their branches agree. */
tacit_status diff_spell_control(ir_graph *g, tacit_error *err);
bool diff_is_if(const ir_node *n);
tacit_status diff_if_vjp(op_diff *c);
/* scan.c */
bool diff_is_scan(const ir_node *n);
tacit_status diff_scan_vjp(op_diff *c);
tacit_status diff_cut_scans(ir_graph *g, tacit_error *err);
/* Cotangents of `node`'s inputs by its vjp rule; `context` is filled by the caller. */
tacit_status diff_vjp_node(op_diff *context);

#endif
