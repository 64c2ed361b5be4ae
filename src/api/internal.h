/* SPDX-License-Identifier: Apache-2.0
 * The objects behind the public handles, for the API's own files, the command line and tests. */
#ifndef API_INTERNAL_H
#define API_INTERNAL_H

#include <stdatomic.h>

#include "base/file.h"
#include "ir/graph.h"
#include "load/load.h"
#include "pass/pass.h"
#include "prog/program.h"
#include "tacit/tacit.h"

struct tacit_model {
    atomic_uint references; /* the caller's handle, and one per program */
    tacit_allocator allocator;
    tacit_log log;
    arena memory;
    const char *path; /* of tacit_model_load, else NULL */
    file_map file;    /* closed with the model */
    load_files external;
    op_registry registry;           /* custom operators */
    ir_graph *graph;                /* never edited once the model is made */
    const tacit_model *base;        /* of a transformed model: who owns its weights; else NULL */
    VEC(const tacit_model *) parts; /* whose graphs are attributes here */
};

tacit_model *api_model_new(const tacit_load_options *options); /* NULL: out of memory */
/* Makes rows of the caller's operators; the error names the one that is wrong. */
tacit_status api_custom_register(tacit_model *model, const tacit_load_options *options,
                                 tacit_error *err);
void api_model_retain(const tacit_model *model);
void api_model_release(const tacit_model *model);
const ir_graph *api_model_graph(const tacit_model *model);
struct op_tuning;
struct op_tuning *api_tuning(tacit_tuning *t); /* NULL for NULL */
/* op_drop_fn and op_place_fn for mapped weights of the model. */
void api_model_drop(void *model, const void *data, size_t bytes);
/* The same for all that is mapped of files which are not small: it comes back where touched. */
void api_model_drop_all(const tacit_model *m);
/* How large the mapped file is that it is part of; 0: of none. */
size_t api_model_mapped(const tacit_model *m, const void *data, size_t bytes);
bool api_model_place(void *model, const void *data, size_t bytes, file_place *out);
/* A packed_identify_fn for weights of the model. */
bool api_model_identify(void *model, const void *data, size_t bytes, sha256 *key);
/* A value of `g` as a port; strings stay owned by the graph. */
void api_port(const ir_graph *g, const ir_value *v, tacit_port *out);

struct tacit_builder {
    tacit_model *model;
    VEC(ir_value *) values; /* handle k is values[k-1] */
    ir_node *newest;
    tacit_status status; /* the first failure; every later call does nothing */
    tacit_error error;
};
/* The number of a value that already stands in the builder's graph; 0 after a failure. */
tacit_value api_builder_handle(tacit_builder *b, ir_value *v);

/* A copy of the model's graph with these sizes, sorted and inferred. */
tacit_status api_bound_graph(const tacit_model *model, const tacit_dim *dims, uint32_t n_dims,
                             arena *memory, ir_graph **out, tacit_error *err);

/* After the passes: weights that cannot stay where they lie in a file are copied (api/settle.c). */
tacit_status api_settle_weights(const tacit_model *model, ir_graph *g, tacit_error *err);

/* Outputs of which only the last position is wanted become that. */
tacit_status api_keep_last(ir_graph *g, const tacit_compile_options *o, tacit_error *err);

struct tacit_program {
    atomic_uint references; /* the caller's handle, and one per session */
    const tacit_model *model;
    tacit_log log;
    arena memory;
    slab weights;    /* what will be packed, until there is a program */
    ir_graph *graph; /* the model's graph after the passes */
    pass_report passes;
    prog_program *prog;
    /* With a cache (api/cache.c): the last inputs of the graph are the session's own. */
    uint32_t hidden_inputs;
    int64_t cache_capacity, cache_step; /* positions in all, and of one run */
};

struct tacit_session {
    const tacit_program *program;
    prog_session *run;
    uint64_t runs;
    int64_t cache_length;         /* positions held; the program reads it here */
    uint64_t *seen, *seen_output; /* by input, output: the run it was last given for */
    const void **lent_data;       /* by output: what the last run lent; NULL: nothing */
    arena lent;                   /* lists of items of the last run, in and out */
    tacit_watch watch;
    void *watch_context;
};

/* The caller's value as one of `kind`; the bytes stay his, lists go into `memory`. */
tacit_status api_value_in(const tacit_tensor *t, ir_kind kind, const char *name, arena *memory,
                          ir_tensor *out, tacit_error *err);
/* What came out, lent to the caller; t->name stays. */
tacit_status api_value_out(const ir_tensor *r, arena *memory, tacit_tensor *t, tacit_error *err);

/* Caches of keys and values: binding their symbols, rewriting after the passes, a session's memory,
 * and whether one more run fits. */
tacit_status api_cache_bind(tacit_program *p, const tacit_compile_options *o, tacit_error *err);
tacit_status api_cache_rewrite(tacit_program *p, const tacit_compile_options *o, tacit_error *err);
tacit_status api_cache_create(tacit_session *s, tacit_error *err);
tacit_status api_cache_room(const tacit_session *s, tacit_error *err);

void api_program_retain(const tacit_program *program);
void api_program_release(const tacit_program *program);
const prog_program *api_program_prog(const tacit_program *program);
prog_session *api_session_run(tacit_session *session);

/* The views, into `out`; `node` as in tacit_program_view. */
void api_view_passes(const tacit_program *p, tacit_format format, sbuf *out);
void api_view_plan(const tacit_program *p, tacit_format format, sbuf *out);
void api_view_program(const tacit_program *p, tacit_format format, sbuf *out);
tacit_status api_view_explain(const tacit_program *p, tacit_format format, const char *node,
                              sbuf *out, tacit_error *err);
/* The buffer's text as one for tacit_text_free; frees the buffer. */
tacit_status api_text(sbuf *text, char **out, tacit_error *err);

#endif
