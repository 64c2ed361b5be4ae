/* SPDX-License-Identifier: Apache-2.0
 *
 * The op row: everything the system knows about an operator, in one place.
 *
 * A family file (src/op/NAME.c) defines `const op_def op_rows_NAME[]`, ended by an empty row, and
 * src/op/table.c lists the families. A rule that is absent (NULL) is reported by name when asked
 * for; it is never a silent no-op. Ops are the newest ONNX form: the loader upgrades older ones.
 */
#ifndef OP_OP_H
#define OP_OP_H

#include "base/log.h"
#include "ir/graph.h"

typedef struct op_def op_def;

/* --- infer: output types from input types ----------------------------------------------------
 * Called only when every present input has a static type (or is a sequence/optional), so rules
 * never meet symbols. A dim that only data can tell is set to IR_DIM_UNKNOWN. */
typedef struct op_infer {
    const ir_node *node;
    uint32_t n_in, n_out;
    const ir_type *const *in;      /* NULL entries: absent */
    const ir_tensor *const *value; /* contents where known at compile time, else NULL */
    ir_type *out;                  /* to be filled; all n_out entries */
    const ir_tensor **known;       /* may be set (from `memory`) where types alone tell: Shape */
    arena *memory;
    tacit_error *err;
} op_infer;
typedef tacit_status op_infer_fn(op_infer *c);

/* --- eval: the reference, slow and obvious ---------------------------------------------------
 * Inputs are dense. Outputs have their inferred type and their memory, unless the type had unknown
 * dims or is a sequence/optional: then data is NULL and the rule calls op_eval_alloc (or
 * op_eval_sequence) first. out[i] is NULL when nobody wants output i. */
typedef struct op_eval op_eval;
struct op_eval {
    const ir_node *node;
    uint32_t n_in, n_out;
    const ir_tensor *const *in;
    ir_tensor *const *out;
    arena *memory;  /* owns what the outputs point to (strings, sequence items) */
    arena *scratch; /* emptied after the call */
    /* Runs a subgraph: `args` are its formal inputs; results go to `results` (memory: c->memory).
     * Captured values are supplied by the runner from in[n_explicit …]. */
    tacit_status (*run_graph)(op_eval *c, const ir_graph *sub, uint32_t n_args,
                              const ir_tensor *const *args, uint32_t n_results, ir_tensor *results);
    void *runner;
    uint64_t step; /* how many times this session has run: random ops must not repeat */
    tacit_error *err;
};
typedef tacit_status op_eval_fn(op_eval *c);

/* Give output `i` this type and memory for it. */
tacit_status op_eval_alloc(op_eval *c, uint32_t i, tacit_dtype dtype, const ir_shape *shape);
/* Make output `i` a sequence of `count` empty items (fill them with copies, see below). */
tacit_status op_eval_sequence(op_eval *c, uint32_t i, tacit_dtype dtype, uint32_t count);
/* *to becomes a deep copy of `from`: in the memory it already has where that fits (an output that
 * was given its memory must keep it), else in c->memory. */
tacit_status op_eval_copy(op_eval *c, ir_tensor *to, const ir_tensor *from);
void *op_eval_scratch(op_eval *c, size_t bytes); /* NULL: out of memory (no message set) */

/* --- alias: an output that is a view of an input --------------------------------------------- */
typedef struct op_view {
    int64_t offset;               /* elements from the start of the input's view */
    int64_t strides[IR_MAX_RANK]; /* elements; 0 broadcasts */
} op_view;
/* How a value lies in memory when it is lowered. */
typedef struct op_operand {
    ir_type type;
    int64_t strides[IR_MAX_RANK]; /* elements */
    bool dense;                   /* row-major without gaps */
    const ir_tensor *constant;    /* contents where known */
    const ir_value *value;
    const ir_node *joiner; /* which finds it where it belongs in its output; NULL: none */
} op_operand;
/* Can output `out` be a view of input `in`, which lies as `source` says? Fills `view` if so.
 * Offsets and strides are relative to the source view. Called for every input in turn. */
typedef bool op_alias_fn(const ir_node *node, uint32_t in, const op_operand *source, uint32_t out,
                         op_view *view);
/* Is input `in` a part of output 0 that lies in it as it does alone, without gaps, from element
 * *offset on? Where it is made there, lowering leaves it out (op_operand.joiner). */
typedef bool op_part_fn(const ir_node *node, uint32_t in, int64_t *offset);
/* Does lowering accept input `in` lying as `view` says (not dense)? NULL rule: dense only. */
typedef bool op_accepts_fn(const ir_node *node, uint32_t in, const op_operand *view);

/* --- lower: pick a kernel and fill its arguments; see op/lower.h ------------------------------ */
typedef struct op_lower op_lower;
typedef tacit_status op_lower_fn(op_lower *c);

/* --- rules of later stages; each has its own header ------------------------------------------- */
typedef struct op_diff op_diff;     /* op/diff.h: building derivative graphs */
typedef struct op_batch op_batch;   /* op/diff.h: batching */
typedef struct op_range op_range;   /* op/range.h: interval arithmetic */
typedef struct op_secure op_secure; /* op/secure.h: gates and rounds */
typedef tacit_status op_vjp_fn(op_diff *c);
typedef tacit_status op_jvp_fn(op_diff *c);
typedef tacit_status op_batch_fn(op_batch *c);
typedef tacit_status op_range_fn(op_range *c);
typedef tacit_status op_secure_fn(op_secure *c);
/* Replaces the node by simpler ones that compute the same (an ONNX function body). */
typedef tacit_status op_decompose_fn(ir_graph *g, ir_node *node, tacit_error *err);
/* The node's outputs in terms of ops that have derivatives. For the transforms alone: where the op
 * itself is what should run, but its derivative is that of the simpler ones. Every output the node
 * has must be given. c->wanted tells which inputs depend on what is differentiated, integers too.
 * A decomposition, where there is one for the node's form, goes before; a spelling that gives
 * nothing leaves the node to its own rules. */
typedef tacit_status op_spell_fn(op_diff *c, ir_value **out);

enum {
    OP_RANDOM = 1,       /* a new result on every run: never folded, never shared by CSE */
    OP_ELEMENTWISE = 2,  /* output element i depends only on (broadcast) input elements i */
    OP_DATA_SHAPE = 4,   /* output shape depends on the data even when all shapes are known */
    OP_CONTROL = 8,      /* has subgraphs */
    OP_COMMUTATIVE = 16, /* first two inputs may be swapped */
    OP_NOT_DIFFERENTIABLE = 32, /* gradient is zero by convention (comparisons, rounding, …) */
    OP_ANY_KIND = 64, /* takes sequences, optionals or maps; other rows are given tensors only */
    OP_INPLACE_EACH = 128, /* output i may be written over input i, for every i */
    OP_LATE_WEIGHTS = 256, /* lowering takes weights that have no data yet (ir/recipe.h) */
};

struct op_def {
    const char *name;
    const char *domain;      /* NULL means "" (ai.onnx) */
    int8_t min_in, max_in;   /* -1: any number */
    int8_t min_out, max_out; /* -1: any number */
    uint32_t flags;
    op_infer_fn *infer;
    op_eval_fn *eval;
    op_alias_fn *alias;
    op_accepts_fn *accepts;
    uint32_t inplace; /* bit k: output 0 may overwrite input k when it dies here, same bytes */
    op_part_fn *part;
    op_lower_fn *lower;
    op_decompose_fn *decompose;
    op_spell_fn *spell;
    op_vjp_fn *vjp;
    op_jvp_fn *jvp;
    op_batch_fn *batch;
    op_range_fn *range;
    op_secure_fn *secure;
};
/* A row of ai.onnx with one output. */
#define OP_ROW(NAME, MIN, MAX, INFER, EVAL, ...)                                                   \
    {                                                                                              \
        .name = NAME, .min_in = MIN, .max_in = MAX, .min_out = 1, .max_out = 1, .infer = INFER,    \
        .eval = EVAL, __VA_ARGS__                                                                  \
    }

/* Custom operators of one caller, looked up before the built-in table. */
typedef struct op_registry {
    const op_def *const *rows;
    uint32_t count;
} op_registry;

/* The row, or NULL. `registry` may be NULL. */
const op_def *op_find(const op_registry *registry, const char *domain, const char *name);
/* Built-in rows in table order, OP_MOST at most; NULL past the last. */
enum { OP_MOST = 512 };
const op_def *op_at(uint32_t index);
/* Sets node->op from its type and domain (leaves NULL when unknown). */
void op_resolve(const op_registry *registry, ir_node *node);
/* The error for a missing rule: "node 'x': Softmax has no jvp rule". */
tacit_status op_no_rule(const ir_node *node, const char *rule, tacit_error *err);
/* Puts "node 'x' (Softmax)" in front of the error. */
tacit_status op_context(const ir_node *node, tacit_status status, tacit_error *err);
/* As ir_node_new, and resolves the row. For passes and transforms; one output. NULL: no memory. */
ir_node *op_node(ir_graph *g, const char *type, const char *name, uint32_t n_inputs,
                 ir_value *const *inputs);

/* --- helpers for rules ------------------------------------------------------------------------ */
/* The input's type/tensor, or NULL when absent. */
static inline const ir_type *op_in_type(const op_infer *c, uint32_t i)
{
    return i < c->n_in ? c->in[i] : NULL;
}
static inline const ir_tensor *op_in_value(const op_infer *c, uint32_t i)
{
    return i < c->n_in ? c->value[i] : NULL;
}
static inline const ir_tensor *op_in(const op_eval *c, uint32_t i)
{
    return i < c->n_in ? c->in[i] : NULL;
}
static inline ir_tensor *op_out(const op_eval *c, uint32_t i)
{
    return i < c->n_out ? c->out[i] : NULL;
}
/* Infer rules shared by many rows. */
tacit_status op_infer_same(op_infer *c); /* out 0 = type of input 0 */
tacit_status op_infer_broadcast(
    op_infer *c);                           /* all inputs broadcast; dtype of input 0, all equal */
tacit_status op_infer_compare(op_infer *c); /* broadcast, bool result */
/* Read a known i64/i32 input into an array (at most `most` entries). */
tacit_status op_read_ints(const ir_tensor *t, int64_t *out, uint32_t most, uint32_t *count,
                          tacit_error *err);
/* Error unless every present input has the dtype of input 0. */
tacit_status op_check_same_dtype(const op_infer *c);

/* --- inference over a whole graph ------------------------------------------------------------- */
typedef struct op_binding {
    const char *symbol;
    int64_t value;
} op_binding;
/* Replaces bound symbols in every value's type; error names symbols that stay unbound. */
tacit_status op_bind_symbols(ir_graph *g, uint32_t n, const op_binding *bindings, tacit_error *err);
/* Types of every value, in order; evaluates small integer values as it goes (value->constant), so
 * that shape arithmetic is known. Values behind data-dependent shapes keep non-static types. */
tacit_status op_infer_graph(ir_graph *g, tacit_error *err);
/* Number of inputs and outputs as the row has it, required inputs present. */
tacit_status op_check_arity(const ir_node *node, tacit_error *err);
/* Infers one node from its inputs' present types and known values. */
tacit_status op_infer_node(ir_graph *g, ir_node *node, tacit_error *err);
/* Runs the node's evaluator on the given inputs (types are inferred from them). Outputs and all
 * they own are allocated in `memory`. The interpreter and constant folding share this.
 * `results[i]` is filled for every output the node has (absent ones are zeroed). */
typedef struct op_exec_env {
    arena *memory;
    tacit_status (*run_graph)(op_eval *c, const ir_graph *sub, uint32_t n_args,
                              const ir_tensor *const *args, uint32_t n_results, ir_tensor *results);
    void *runner;
    uint64_t step;
} op_exec_env;
tacit_status op_execute(const ir_node *node, const ir_tensor *const *inputs, ir_tensor *results,
                        const op_exec_env *env, tacit_error *err);

#endif
