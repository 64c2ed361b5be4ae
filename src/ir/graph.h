/* SPDX-License-Identifier: Apache-2.0
 *
 * The graph: values in SSA form, nodes in topological order, any number of inputs and outputs.
 *
 * Everything a graph holds lives in its arena, except constant data, which may be mapped from a
 * file that outlives the graph. Graphs are plain data: passes edit them through the functions
 * below, which keep producers and names consistent; use lists are computed when asked for.
 */
#ifndef IR_GRAPH_H
#define IR_GRAPH_H

#include "base/map.h"
#include "base/vec.h"
#include "ir/recipe.h"

struct op_def; /* the op row, see op/op.h: the graph only carries the pointer */

typedef struct ir_graph ir_graph;
typedef struct ir_node ir_node;
typedef struct ir_value ir_value;

struct ir_value {
    const char *name; /* unique in its graph, never NULL */
    ir_type type;
    ir_node *producer;         /* NULL for graph inputs, constants and captures */
    uint32_t output_index;     /* which output of the producer */
    uint32_t id;               /* index in graph->values */
    const ir_tensor *constant; /* known contents: an initializer, or found by inference */
    bool is_initializer;       /* a weight: constant, no producer */
    bool is_input;             /* a graph input (or a subgraph's formal parameter) */
};

typedef enum ir_attr_kind {
    IR_ATTR_INT,
    IR_ATTR_FLOAT,
    IR_ATTR_STRING,
    IR_ATTR_TENSOR,
    IR_ATTR_GRAPH,
    IR_ATTR_TYPE,
    IR_ATTR_INTS,
    IR_ATTR_FLOATS,
    IR_ATTR_STRINGS,
    IR_ATTR_TENSORS,
    IR_ATTR_GRAPHS,
} ir_attr_kind;

typedef struct ir_attr {
    const char *name;
    ir_attr_kind kind;
    uint32_t count; /* of a list */
    union {
        int64_t i;
        double f;
        ir_string s;
        const ir_tensor *tensor;
        ir_graph *graph;
        ir_type type;
        const int64_t *ints;
        const double *floats;
        const ir_string *strings;
        const ir_tensor *const *tensors;
        ir_graph *const *graphs;
    };
} ir_attr;

/* Where a node came from and what was considered: shown by `tacit explain`. */
typedef struct ir_note {
    const struct ir_note *next; /* older */
    const char *pass;           /* "load", a pass's name, "lower" */
    const char *text;
} ir_note;

struct ir_node {
    const struct op_def *op; /* NULL when no row knows it: then `type` and `domain` say what */
    const char *type;        /* "Softmax" */
    const char *domain;      /* "" for ai.onnx */
    const char *name;        /* unique in its graph, never NULL */
    ir_value **inputs;       /* NULL entries: absent optional inputs */
    ir_value **outputs;      /* NULL entries: outputs nobody wants */
    uint32_t n_inputs, n_outputs;
    /* Nodes with subgraphs: inputs[n_explicit …] are the outer values that the subgraphs read;
     * the k-th of them is the subgraph's captures[k]. Equal to n_inputs for ordinary nodes. */
    uint32_t n_explicit;
    const ir_attr *attrs;
    uint32_t n_attrs;
    uint32_t id; /* index in graph->nodes */
    const ir_note *notes;
};

typedef struct ir_symbol {
    const char *name;
    int64_t value; /* -1: unbound */
} ir_symbol;

typedef struct ir_opset {
    const char *domain;
    int64_t version;
} ir_opset;

typedef struct ir_pair {
    const char *key, *value;
} ir_pair;

/* What a file says about its model and no operator reads. Texts are never NULL. */
typedef struct ir_about {
    const char *producer, *producer_version, *domain, *doc;
    int64_t version;
    VEC(ir_pair) metadata;
} ir_about;

struct ir_graph {
    arena *memory;
    const char *name, *doc;
    ir_about about; /* the top graph's */
    VEC(ir_value *) values;
    VEC(ir_node *) nodes; /* topological order once ir_graph_sort has run */
    VEC(ir_value *) inputs;
    VEC(ir_value *) outputs; /* may repeat a value, or name an input or a constant */
    VEC(ir_value *)
    captures; /* subgraphs: parallel to the owner's inputs[n_explicit …]; NULL: unused */
    VEC(ir_symbol) symbols; /* only the top graph's count */
    VEC(ir_opset) opsets;
    map value_names; /* name → ir_value * */
    map node_names;  /* name → ir_node * */
    ir_graph *parent;
    uint32_t fresh; /* counter behind ir_fresh_name */
    uint64_t
        version; /* counts edits: what was found out about the graph holds as long as it does */
};

/* Building. All return NULL when out of memory. Names are copied; a taken or NULL name is made
 * unique by a suffix. */
ir_graph *ir_graph_new(arena *memory, const char *name);
/* Room for so many in all, where that is known before; false: out of memory. */
bool ir_graph_reserve(ir_graph *g, uint32_t values, uint32_t nodes);
bool ir_metadata_add(ir_graph *g, const char *key, const char *value);
/* Forgets what `about` holds. */
void ir_about_clear(ir_graph *g);
ir_value *ir_value_new(ir_graph *g, const char *name, const ir_type *type);
ir_value *ir_input_new(ir_graph *g, const char *name, const ir_type *type);
ir_value *ir_constant_new(ir_graph *g, const char *name, const ir_tensor *data);
/* Small constants for passes and importers. */
ir_value *ir_constant_i64(ir_graph *g, const char *name, int32_t rank, int64_t count,
                          const int64_t *values);                      /* rank 0 (count 1) or 1 */
ir_value *ir_constant_f32(ir_graph *g, const char *name, float value); /* rank 0 */
bool ir_output_add(ir_graph *g, ir_value *value);
/* Appends a node whose outputs are fresh values named in `output_names` (NULL array: generated;
 * NULL entry: absent). `inputs` may hold NULL entries. Types are left for inference. */
ir_node *ir_node_new(ir_graph *g, const char *type, const char *domain, const char *name,
                     uint32_t n_inputs, ir_value *const *inputs, uint32_t n_outputs,
                     const char *const *output_names);
bool ir_node_append_capture(ir_graph *g, ir_node *node, ir_value *outer);
const char *ir_fresh_name(ir_graph *g, const char *stem);
const char *ir_fresh_node_name(ir_graph *g, const char *stem);
/* Adds to the node's provenance; out of memory only loses the note. */
void ir_node_note(ir_graph *g, ir_node *node, const char *pass, const char *format, ...)
    PRINTF_LIKE(4, 5);
/* The note list of `from` becomes older history of `to` (a fusion replaces nodes). */
void ir_node_inherit_notes(ir_graph *g, ir_node *to, const ir_node *from);
/* Index of the symbol `name`, added when new; -1 when out of memory. */
int64_t ir_symbol_index(ir_graph *g, const char *name);

/* Attributes: getters give `fallback` when the name is absent. Setting replaces. */
const ir_attr *ir_attr_find(const ir_node *node, const char *name);
int64_t ir_attr_int(const ir_node *node, const char *name, int64_t fallback);
double ir_attr_float(const ir_node *node, const char *name, double fallback);
/* NUL-terminated; the fallback may be NULL. */
const char *ir_attr_string(const ir_node *node, const char *name, const char *fallback);
/* NULL (and *count 0) when absent. */
const int64_t *ir_attr_ints(const ir_node *node, const char *name, uint32_t *count);
const double *ir_attr_floats(const ir_node *node, const char *name, uint32_t *count);
const ir_string *ir_attr_strings(const ir_node *node, const char *name, uint32_t *count);
const ir_tensor *ir_attr_tensor(const ir_node *node, const char *name);
ir_graph *ir_attr_graph(const ir_node *node, const char *name);
bool ir_attr_set(ir_graph *g, ir_node *node, const ir_attr *attr);
bool ir_attr_set_int(ir_graph *g, ir_node *node, const char *name, int64_t value);
bool ir_attr_set_float(ir_graph *g, ir_node *node, const char *name, double value);
bool ir_attr_set_string(ir_graph *g, ir_node *node, const char *name, const char *value);
bool ir_attr_set_ints(ir_graph *g, ir_node *node, const char *name, uint32_t count,
                      const int64_t *values);
bool ir_attr_copy_all(ir_graph *g, ir_node *to, const ir_node *from);
bool ir_attrs_equal(const ir_node *a, const ir_node *b); /* the same, in the same order */
void ir_attr_remove(ir_node *node, const char *name);
/* Calls `visit` for every subgraph attribute of the node; stops at the first failure. */
tacit_status ir_node_subgraphs(const ir_node *node,
                               tacit_status (*visit)(void *context, ir_graph *sub), void *context);
bool ir_node_has_subgraph(const ir_node *node);

/* Contents at hand (not elided): a weight, an input's default, or found by inference. Or NULL. */
static inline const ir_tensor *ir_value_data(const ir_value *v)
{
    return v && v->constant && (v->constant->data || v->constant->kind != IR_TENSOR) ? v->constant
                                                                                     : NULL;
}
/* The same where it is settled at compile time: an input's default may still be overridden. */
static inline const ir_tensor *ir_value_known(const ir_value *v)
{
    return v && !v->is_input ? ir_value_data(v) : NULL;
}

/* A constant of the graph whose contents are at hand or can be made (ir/recipe.h). Or NULL. */
static inline const ir_tensor *ir_value_weight(const ir_value *v)
{
    return v && !v->is_input && ir_tensor_is_late(v->constant) ? v->constant : ir_value_known(v);
}

/* Editing. */
ir_value *ir_value_find(const ir_graph *g, const char *name);
/* Exchanges two values' names, so that a graph output keeps the name its user knows. */
void ir_swap_names(ir_graph *g, ir_value *a, ir_value *b);
/* Every use of `old` (node inputs, graph outputs) becomes `replacement`. A graph output keeps its
 * public name: the names of the two values are swapped where needed. */
void ir_replace_uses(ir_graph *g, ir_value *old, ir_value *replacement);
/* Drops nodes marked by ir_node_kill and values nobody produces or uses; renumbers ids. */
void ir_node_kill(ir_node *node); /* sets type to NULL; swept by ir_graph_sweep */
tacit_status ir_graph_sweep(ir_graph *g, tacit_error *err);
/* Topological order (stable: keeps the present order where it can), or the error that names a
 * node on the cycle. Renumbers ids. */
tacit_status ir_graph_sort(ir_graph *g, tacit_error *err);
/* Structure copied into `memory`; constant tensors are shared, not copied. NULL: out of memory. */
ir_graph *ir_graph_clone(const ir_graph *g, arena *memory);

/* Who reads what: a snapshot, valid until the next edit. */
typedef struct ir_use {
    ir_node *node; /* NULL: the graph's output number `index` */
    uint32_t index;
} ir_use;
typedef struct ir_uses {
    const ir_use *all;
    const uint32_t *start; /* uses of value id v: all[start[v] … start[v+1]) */
} ir_uses;
/* Temporary storage comes from `scratch`. */
tacit_status ir_uses_build(const ir_graph *g, arena *scratch, ir_uses *out, tacit_error *err);
static inline uint32_t ir_use_count(const ir_uses *u, const ir_value *v)
{
    return u->start[v->id + 1] - u->start[v->id];
}
/* The only reader of `v` when it is a node, else NULL. */
ir_node *ir_single_user(const ir_uses *u, const ir_value *v);

#endif
