/* SPDX-License-Identifier: Apache-2.0
 *
 * A compiled program and its sessions.
 *
 * The program is a flat array of thunks whose arguments are plain data; a session holds a copy of
 * the arguments with its own pointers in them. Arena and weight pointers are set once, pointers to
 * the caller's buffers only when a buffer has moved since the last run. Nodes whose shapes only the
 * data can tell are the program's tail: the interpreter runs them after the thunks.
 */
#ifndef PROG_PROGRAM_H
#define PROG_PROGRAM_H

#include "op/handover.h"
#include "plan/plan.h"
#include "prog/interp.h"
#include "prog/packed.h"
#include "prog/packing.h"
#include "tacit/tacit.h"

typedef struct prog_options {
    tacit_executor executor;
    tacit_plan_goal plan;
    tacit_validate validate;
    bool update_in_place; /* outputs NAME.next may lie where inputs NAME lie */
    uint32_t threads;
    struct tacit_task_runtime *workers; /* NULL: the program makes its own */
    const tacit_allocator *allocator;
    slab *weights; /* empty, and emptied: for those packed; NULL: the program makes its own */
    const tacit_log *log;
    op_drop_fn *drop; /* of the owner of weights; may be NULL, as the next */
    op_place_fn *place;
    void *owner;
    bool batch_invariant, plain_sums;
    bool start_early;         /* while weights are being packed */
    struct op_tuning *tuning; /* may be NULL */
    const char *packed_file;  /* where packed weights are kept; NULL: nowhere */
    packed_identify_fn *identify;
    void *identify_context;
} prog_options;

typedef enum prog_base { PROG_ARENA, PROG_STATE, PROG_INPUT, PROG_OUTPUT } prog_base;

/* A pointer in the arguments: where it is, what it is relative to. */
typedef struct prog_patch {
    uint32_t at;
    prog_base base;
    uint32_t port; /* PROG_INPUT, PROG_OUTPUT */
    int64_t add;
} prog_patch;

typedef struct prog_thunk {
    cpu_kernel fn;
    uint32_t args; /* offset in the arguments */
    uint32_t tiles;
    const op_thunk *made; /* kernel name, node, cost, binds */
    uint32_t step;
} prog_thunk;

/* Where a value lies when the program runs. */
typedef struct prog_place {
    enum { PROG_AT_NOWHERE, PROG_AT_CONSTANT, PROG_AT_INPUT, PROG_AT_OUTPUT, PROG_AT_ARENA } kind;
    uint32_t port;
    int64_t offset;       /* bytes */
    const void *constant; /* first byte of the constant; offset not yet added */
} prog_place;

typedef struct prog_program {
    const tacit_allocator *allocator;
    arena memory;
    ir_graph *graph;
    prog_options options;
    cpu_features cpu;
    /* The graph cut in two; each in topological order. */
    ir_node **nodes, **tail;
    uint32_t n_nodes, n_tail;
    const char **output_names; /* as the model names them: outputs may have become copies */
    bool *output_in_tail;      /* by output */
    ir_value **tail_given;     /* what the tail reads from inputs and thunks */
    uint32_t n_tail_given;
    ir_value **tail_wanted;
    uint32_t n_tail_wanted;
    /* The plan. */
    ir_value **updates; /* by output: the input whose buffer it may be given; NULL: see options */
    bool *pinned;
    size_t *scratch; /* by position in nodes */
    const plan_view *views;
    plan_problem problem;
    plan plan;
    /* The thunks. */
    op_lower *lowered; /* by position in nodes */
    prog_thunk *thunks;
    uint32_t n_thunks;
    uint32_t *first_thunk; /* by step, n_steps + 1 entries */
    uint32_t *position;    /* in nodes, by a node's id */
    op_handover *handed;   /* by thunk: to the next one, where they run whole; NULL: nothing */
    unsigned char *args;
    size_t args_size;
    VEC(prog_patch) fixed;     /* arena and state */
    prog_patch *input_patches; /* grouped by port */
    uint32_t *input_first;     /* n_inputs + 1 entries */
    prog_patch *output_patches;
    uint32_t *output_first;
    struct prog_tasks *tasks; /* TACIT_EXEC_TASKS: see prog/tasks.h */
    slab constants;           /* packed by the kernels' lowering */
    slab weights;             /* the same by jobs, or mapped: */
    packed_store packed;
    prog_packing *packing; /* NULL: there was little to pack, or it has been */
    uint64_t weight_bytes, packed_bytes, mapped_bytes, largest_scratch;
} prog_program;

/* What is better begun before there is a graph to be built: what the executor asks the system for,
 * and finding memory for the weights that a slab, to be given in the options, expects. */
void prog_prepare(tacit_executor executor, slab *weights);
/* Builds a program from a sorted, inferred graph, which it may edit (copies for outputs) and which
 * must outlive it: it lies in the graph's arena. */
tacit_status prog_build(ir_graph *g, const prog_options *options, prog_program **out,
                        tacit_error *err);
void prog_free(prog_program *program);
prog_place prog_locate(const prog_program *program, const ir_value *v);

/* Parts of building, in this order. */
tacit_status prog_split(prog_program *p, tacit_error *err);
tacit_status prog_order_updates(prog_program *p, tacit_error *err); /* of prog_split */
tacit_status prog_lower(prog_program *p, tacit_error *err);
tacit_status prog_resolve(prog_program *p, tacit_error *err);
tacit_status prog_find_handovers(prog_program *p, tacit_error *err); /* of prog_resolve */

/* Thunks every op can have. */
tacit_status prog_lower_eval(op_lower *c);
/* Every output that is not a view in `views` is copied from the input it could be a view of;
 * OP_LOWER_NO_KERNEL when the row does not say which. */
tacit_status prog_lower_copy(op_lower *c, const plan_view *views);

/* --- sessions --------------------------------------------------------------------------------- */

/* What thunks may reach at run time beside their arguments. The fault comes first: OP_BIND_FAULT
 * fields point here. */
typedef struct prog_state {
    cpu_fault fault;
    const tacit_allocator *allocator;
    uint64_t step;
    tacit_error error; /* of CPU_FAULT_EVAL */
} prog_state;

typedef struct prog_call {
    cpu_kernel fn;
    const void *args;
    uint32_t tiles;
    uint32_t thunk; /* it runs, the last one if there are several */
} prog_call;

typedef struct prog_profile {
    uint64_t calls, nanoseconds;
} prog_profile;

typedef void prog_watch_fn(void *context, const ir_node *node, const ir_value *value,
                           const ir_tensor *tensor);

typedef struct prog_session {
    const prog_program *program;
    prog_state state;
    unsigned char *arena, *args;
    prog_call *calls; /* by thunk */
    prog_call *whole; /* thunks one behind the other, with what they hand over */
    uint32_t n_whole;
    void **inputs, **outputs; /* pointers now patched in; NULL: not yet */
    ir_tensor *given_inputs;  /* what the caller passed, by input */
    bool *input_set;
    void **own_outputs;        /* lent buffers for outputs the caller gave none for */
    ir_tensor *results;        /* by output, filled by every run */
    ir_tensor *tail_given;     /* views of what the tail reads */
    arena memory;              /* the tables above */
    arena tail_memory;         /* lent results of the tail; emptied by the next run */
    struct eager_cache *eager; /* kernels of the tail; NULL: none yet */
    prog_profile *profile;     /* NULL: off; thunks, then tail nodes */
    bool profiling;
    prog_watch_fn *watch;
    void *watch_context;
    struct prog_task_run *task_run;
} prog_session;

/* Of prog_session_create: makes `whole`. */
tacit_status prog_hand_over(prog_session *s, tacit_error *err);
tacit_status prog_session_create(const prog_program *program, prog_session **out, tacit_error *err);
void prog_session_free(prog_session *s);
/* Is `t` what input `i` takes? The error names input, wanted and given type. */
tacit_status prog_check_input(const prog_program *program, uint32_t i, const ir_tensor *t,
                              tacit_error *err);
/* Input `i` is read from this (checked) tensor; its data must stay valid while running. */
void prog_set_input(prog_session *s, uint32_t i, const ir_tensor *t);
/* Output `i`, of static type, is written there. NULL: into memory of the session. */
tacit_status prog_set_output(prog_session *s, uint32_t i, void *data, tacit_error *err);
/* Runs once. Results, also those written into caller buffers, are in s->results. */
tacit_status prog_run(prog_session *s, tacit_error *err);
/* The same for whole values, sequences, optionals and strings included: results are copied into
 * `memory`. inputs[i] NULL: the input's default. */
tacit_status prog_run_values(prog_session *s, const ir_tensor *const *inputs, ir_tensor *outputs,
                             arena *memory, tacit_error *err);

#endif
