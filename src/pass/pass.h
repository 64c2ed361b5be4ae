/* SPDX-License-Identifier: Apache-2.0
 * Passes: graph in, better graph out. Each is a row {name, run}; the pipeline is a table repeated
 * until nothing changes. Fusions are legal by use counts alone, never by memory. */
#ifndef PASS_PASS_H
#define PASS_PASS_H

#include "op/op.h"

typedef struct pass_context {
    ir_graph *graph;
    const char *name;         /* of the running pass */
    const op_def *const *ops; /* rows the patterns know, by pass_op (pass/edit.h) */
    arena *scratch;           /* emptied after each pass */
    arena *lists;             /* for use lists, which last as long as the graph stays as it is… */
    struct pass_edit *kept;   /* …which are these; its graph is NULL: there are none */
    uint64_t *fold_left;      /* bytes constant folding may still add */
    bool late_weights;        /* weights that are derived may be made when they are packed */
    uint32_t rewrites;        /* the pass counts what it did */
    const tacit_log *log;
    tacit_error *err;
} pass_context;

typedef struct pass_def {
    const char *name;
    const char *what; /* one line for --help and `tacit show --passes` */
    tacit_status (*run)(pass_context *c);
    /* Passes of stage s join once everything before them has settled: what a later stage swallows
     * is out of reach of the patterns of an earlier one. */
    uint8_t stage;
    bool required; /* cannot be switched off (it makes the graph runnable, not faster) */
} pass_def;

/* Passes in pipeline order; NULL past the last. */
const pass_def *pass_at(uint32_t index);

typedef struct pass_options {
    const char *const *disabled; /* names; "all" disables every pass that is not required */
    uint32_t n_disabled;
    const char *only;     /* not NULL: this pass (and the required ones) alone */
    uint64_t fold_budget; /* bytes; 0: the default */
    bool late_weights;    /* the graph will be lowered: derived weights may be late (ir/recipe.h) */
    const tacit_log *log;
} pass_options;

/* What one pass did in one round. */
typedef struct pass_change {
    const char *pass;
    uint32_t round, rewrites, nodes_before, nodes_after;
    uint64_t nanoseconds;
} pass_change;

typedef struct pass_report {
    VEC(pass_change) changes; /* only entries with rewrites > 0 */
    uint32_t rounds;
} pass_report;

/* Runs the pipeline on an inferred graph; types stay inferred after it. The report's storage comes
 * from `memory`. */
tacit_status pass_pipeline(ir_graph *g, const pass_options *options, arena *memory,
                           pass_report *report, tacit_error *err);

#endif
