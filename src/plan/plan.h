/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory plan: which value is a view of which, in what order the nodes run, and where every
 * value and every scratch lies. Weights and caller buffers are outside the arena.
 *
 *     plan_views    per value: its own memory, or a view of another's        (view.c)
 *     plan_make     tries every order × packing × in-place, keeps the best   (plan.c)
 *     plan_verify   re-checks a plan by replaying it; shares no code with the planner (verify.c)
 */
#ifndef PLAN_PLAN_H
#define PLAN_PLAN_H

#include "op/op.h"

enum { PLAN_ALIGN = MEM_ALIGN };
#define PLAN_NO_SLOT UINT32_MAX

/* How a value lies, by value id. */
typedef struct plan_view {
    const ir_value *source; /* the value whose memory it shares (itself not a view); NULL: none */
    /* Not NULL: it is no view of what others have written, but written by its own node, to where
     * this one joins it with other values. The source is what they become in the end. */
    const ir_node *joiner;
    int64_t offset;               /* elements from the source's start */
    int64_t strides[IR_MAX_RANK]; /* elements */
    bool dense;
} plan_view;

/* What is to be planned. */
typedef struct plan_problem {
    const ir_graph *graph;
    ir_node *const *nodes; /* the nodes to run, topologically ordered */
    uint32_t n_nodes;
    const plan_view *views; /* by value id */
    const size_t *scratch;  /* by position in `nodes`; NULL: none */
    const bool *pinned;     /* by value id: read after the last node; NULL: none */
    /* By graph output: the graph input whose buffer the caller may give it (NULL: none). Such an
     * output is not a view, and its writer comes after all other readers of the input in `nodes`.
     * NULL: none at all. */
    ir_value *const *updates;
    bool parallel; /* nodes not ordered by data may run at the same time */
} plan_problem;

typedef enum plan_place { PLAN_ARENA, PLAN_OUTPUT } plan_place;

/* One stretch of memory with its lifetime, in steps; both ends included. */
typedef struct plan_slot {
    plan_place place;
    uint32_t output; /* PLAN_OUTPUT: which graph output's buffer */
    uint64_t offset, bytes;
    uint32_t birth, death;
    const ir_value *value; /* the first that lives here; NULL for scratch */
    const ir_node *scratch_of;
} plan_slot;

typedef struct plan_trial {
    const char *order, *packing;
    bool inplace;
    uint64_t arena_bytes, live_bytes;
} plan_trial;

typedef struct plan {
    ir_node **steps; /* the nodes in the order they run */
    uint32_t n_steps;
    plan_slot *slots;
    uint32_t n_slots;
    uint32_t *slot_of;    /* by value id; PLAN_NO_SLOT: graph inputs, constants, views of them */
    uint32_t *scratch_at; /* by step: slot index or PLAN_NO_SLOT */
    uint64_t arena_bytes;
    uint64_t lower_bound; /* smallest largest-live-set of all trials */
    plan_trial best;
    VEC(plan_trial) trials;
} plan;

/* Is `v` fixed before the program runs (a weight or a folded value)? */
static inline bool plan_is_constant(const ir_value *v)
{
    return !v->is_input && (v->is_initializer || ir_value_known(v));
}
/* The value whose memory `v` uses. */
static inline const ir_value *plan_source(const plan_view *views, const ir_value *v)
{
    return views[v->id].source ? views[v->id].source : v;
}

/* Is it what another node has written, so that its own node has nothing to write? */
static inline bool plan_is_view(const plan_view *views, const ir_value *v)
{
    return views[v->id].source && !views[v->id].joiner;
}

/* Decides every view. Results in `memory`. `updates` as in plan_problem. */
tacit_status plan_views(const ir_graph *g, ir_node *const *nodes, uint32_t n_nodes,
                        ir_value *const *updates, arena *memory, const plan_view **out,
                        tacit_error *err);
/* The value as an operand of lowering. */
op_operand plan_operand(const plan_view *views, const ir_value *v);
/* Does the node move no bytes, because all its outputs are views, or all its inputs lie where it
 * joins them (plan_joins_in_place)? */
bool plan_joins_in_place(const plan_view *views, const ir_node *node);
bool plan_is_alias_node(const plan_view *views, const ir_node *node);

/* Everything in `memory`, which also holds temporaries. */
tacit_status plan_make(const plan_problem *p, arena *memory, plan *out, tacit_error *err);

/* Checks from the rules alone: every read finds what was written for it, nothing that is still
 * needed is overwritten, offsets are aligned and inside; in parallel plans also that two steps that
 * may overlap in time touch the same bytes only to read. */
tacit_status plan_verify(const plan_problem *p, const plan *made, tacit_error *err);

#endif
