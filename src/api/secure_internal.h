/* SPDX-License-Identifier: Apache-2.0 */
#ifndef API_SECURE_INTERNAL_H
#define API_SECURE_INTERNAL_H

#include "secure/program.h"
#include "tacit/secure.h"

struct tacit_secure {
    arena memory;
    const tacit_model *model; /* NULL: loaded from a description */
    ir_graph *graph;
    sec_program *program;
    double bound;
};

/* Tensors of the caller as views, by the graph's inputs or outputs. */
tacit_status api_secure_views(const tacit_secure *s, const tacit_tensor *tensors, uint32_t n,
                              bool inputs, ir_tensor *views, ir_tensor **pointers,
                              tacit_error *err);

#endif
