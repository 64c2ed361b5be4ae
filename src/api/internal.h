/* SPDX-License-Identifier: Apache-2.0
 * The objects behind the public handles, for the API's own files, the command line and tests. */
#ifndef API_INTERNAL_H
#define API_INTERNAL_H

#include <stdatomic.h>

#include "base/file.h"
#include "ir/graph.h"
#include "load/load.h"
#include "tacit/tacit.h"

struct tacit_model {
    atomic_uint references; /* the caller's handle, and one per program */
    tacit_allocator allocator;
    tacit_log log;
    arena memory;
    file_map file; /* of tacit_model_load; closed with the model */
    load_files external;
    ir_graph *graph; /* never edited once the model is made */
};

tacit_model *api_model_new(const tacit_load_options *options); /* NULL: out of memory */
void api_model_retain(const tacit_model *model);
void api_model_release(const tacit_model *model);
const ir_graph *api_model_graph(const tacit_model *model);
/* Forget resident pages of a mapped weight that has been packed (see op_lower_packed_away). */
void api_model_drop_pages(void *model, const void *data, size_t bytes);
/* A value of `g` as a port; strings stay owned by the graph. */
void api_port(const ir_graph *g, const ir_value *v, tacit_port *out);

#endif
