/* SPDX-License-Identifier: Apache-2.0
 * What the parts of the ONNX reader share. Field numbers are those of onnx.proto (IR version 13).
 */
#ifndef LOAD_ONNX_READER_H
#define LOAD_ONNX_READER_H

#include "load/load.h"
#include "load/wire.h"

enum {
    ONNX_MAX_NESTING = 64,      /* subgraphs in subgraphs, functions in functions */
    ONNX_MAX_NODES = 1 << 20,   /* after inlining: a function that doubles can be written in 1 KB */
    ONNX_MAX_SYMBOLS = 1 << 16, /* named dimensions */
    ONNX_MAX_CONTEXTS = 6,
    ONNX_MIN_OPSET = 1,
    ONNX_MAX_OPSET = 27,
    ONNX_MIN_IR = 3,
    ONNX_MAX_IR = 13,
};

typedef struct onnx_function {
    wire_span body;
    const char *domain, *name;
    bool active; /* being inlined right now: meeting it again is recursion */
} onnx_function;

typedef struct onnx_reader {
    arena *memory;  /* the graph's */
    arena *scratch; /* the reader's own: names, maps, lists */
    const load_options *options;
    load_files *files;
    ir_graph *top;
    map symbols;   /* name → index + 1 in top->symbols, as a pointer-sized number */
    map functions; /* "domain\nname\noverload" → onnx_function */
    size_t budget; /* what memory->total may grow to */
    uint32_t nodes, nesting;
    uint32_t contexts; /* "node 'x': " already in front of the error */
    tacit_error *err;
} onnx_reader;

/* Refuses when `bytes` more would pass the budget: small files must not make huge graphs. */
tacit_status onnx_charge(onnx_reader *r, size_t bytes);
/* A NUL-terminated copy in the scratch arena; a NUL inside is an error. */
tacit_status onnx_text(onnx_reader *r, wire_span text, const char **out);
/* Whether the error may get one more context: the innermost few tell most. */
bool onnx_may_explain(onnx_reader *r);
/* "" for "ai.onnx". */
const char *onnx_domain(const char *domain);

/* --- tensors (onnx_tensor.c) ------------------------------------------------------------------ */
tacit_status onnx_tensor(onnx_reader *r, wire_span proto, ir_tensor *out, const char **name);
/* Made dense. */
tacit_status onnx_sparse_tensor(onnx_reader *r, wire_span proto, ir_tensor *out, const char **name);

/* --- external data (onnx_external.c) ---------------------------------------------------------- */
/* The bytes that a tensor's external_data entries name. `expected` is the tensor's size. */
typedef struct onnx_external {
    wire_span location;
    uint64_t offset, length;
    bool has_length;
} onnx_external;
tacit_status onnx_external_entry(onnx_reader *r, wire_span entry, onnx_external *out);
tacit_status onnx_external_bytes(onnx_reader *r, const onnx_external *x, size_t expected,
                                 wire_span *out, const file_map **whence);
/* All tensors have been read. */
void onnx_sort_copies(load_files *files);

/* --- types (onnx_type.c) ---------------------------------------------------------------------- */
/* How dims that are not numbers are read. */
typedef enum onnx_dims {
    ONNX_DIMS_INPUT,  /* names are symbols; a nameless dim gets a symbol of its own */
    ONNX_DIMS_OUTPUT, /* names are symbols; nameless: unknown */
    ONNX_DIMS_OPEN,   /* all unknown (inside subgraphs nothing binds symbols) */
} onnx_dims;
tacit_status onnx_type(onnx_reader *r, wire_span proto, onnx_dims dims, const char *owner,
                       ir_type *out);
/* A ValueInfoProto: name and type; *has_type false when the file gives none. */
tacit_status onnx_value_info(onnx_reader *r, wire_span proto, onnx_dims dims, const char **name,
                             ir_type *type, bool *has_type);

/* --- graphs (onnx_graph.c) -------------------------------------------------------------------- */
/* Where names are looked up while nodes are read: a graph, a subgraph or a function's body. */
typedef struct onnx_scope onnx_scope;
struct onnx_scope {
    ir_graph *graph;
    map names;          /* the file's name → ir_value, or ONNX_ABSENT */
    map promised;       /* function bodies: output name → the caller's value to be produced */
    onnx_scope *parent; /* of a subgraph: what it may capture from */
    ir_node *owner;     /* of a subgraph: the node that gets the captures */
    const ir_opset *opsets;
    uint32_t n_opsets;
    const ir_attr *call_attrs; /* inside a function: what ref_attr_name refers to */
    uint32_t n_call_attrs;
    const char *function; /* the function being inlined, or NULL */
};
/* A function's parameter that the call leaves out. */
extern ir_value onnx_absent_marker;
#define ONNX_ABSENT (&onnx_absent_marker)

typedef VEC(wire_span) onnx_spans;
/* Reads a GraphProto into scope->graph and sorts it. */
tacit_status onnx_graph(onnx_reader *r, wire_span proto, onnx_scope *scope, onnx_dims inputs);
/* Reads NodeProtos whose names live in `scope`, in any order. */
tacit_status onnx_nodes(onnx_reader *r, onnx_scope *scope, const onnx_spans *nodes);
/* The value of that name, captured from outer graphs where needed; NULL in *out: absent. */
tacit_status onnx_lookup(onnx_reader *r, onnx_scope *scope, const char *name, ir_value **out);
/* Gives `value` the name in the scope; an error when the name is taken. */
tacit_status onnx_define(onnx_reader *r, onnx_scope *scope, const char *name, ir_value *value);

/* --- attributes (onnx_attr.c) ----------------------------------------------------------------- */
/* Reads one AttributeProto. *present is false for a reference to what the call leaves out. Graphs
 * inside are read with `owner` as the node that captures. */
tacit_status onnx_attribute(onnx_reader *r, onnx_scope *scope, ir_node *owner, wire_span proto,
                            ir_attr *out, bool *present);

/* --- functions (onnx_function.c) -------------------------------------------------------------- */
typedef struct onnx_call {
    const char *name; /* the calling node's */
    uint32_t n_inputs, n_outputs;
    ir_value *const *inputs, *const *outputs; /* NULL: absent */
    const ir_attr *attrs;
    uint32_t n_attrs;
} onnx_call;
/* Adds a FunctionProto to the reader's table. */
tacit_status onnx_function_add(onnx_reader *r, wire_span proto);
onnx_function *onnx_function_find(const onnx_reader *r, const char *domain, const char *name,
                                  const char *overload);
/* Puts the body in place of the call: its nodes produce the call's outputs. */
tacit_status onnx_inline(onnx_reader *r, ir_graph *g, onnx_function *f, const onnx_call *call);
/* One OperatorSetIdProto appended to *list. */
typedef VEC(ir_opset) onnx_opsets;
tacit_status onnx_opset(onnx_reader *r, wire_span proto, onnx_opsets *list);

#endif
