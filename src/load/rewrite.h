/* SPDX-License-Identifier: Apache-2.0
 * What rules need that rewrite a node while its graph is being loaded: nodes in front of it,
 * inputs, constants, other producers for its outputs. */
#ifndef LOAD_REWRITE_H
#define LOAD_REWRITE_H

#include "op/op.h"

typedef struct rewrite {
    ir_graph *g;
    ir_node *node;
    int64_t version; /* of the opset of its domain */
    tacit_error *err;
} rewrite;

tacit_status rewrite_no_memory(rewrite *u);
/* Explicit input `i`, or NULL where absent. */
ir_value *rewrite_input(const rewrite *u, uint32_t i);
/* Explicit input `i` becomes `v`; the list grows as needed and captures stay behind it. */
tacit_status rewrite_set_input(rewrite *u, uint32_t i, ir_value *v);
/* A new node in front of the one that is rewritten; its only output, or NULL when out of memory. */
ir_value *rewrite_add(rewrite *u, const char *type, uint32_t n, ir_value *const *inputs);
ir_value *rewrite_ints(rewrite *u, const char *name, uint32_t count, const int64_t *values);
/* A scalar of the element type of `like`. */
ir_value *rewrite_scalar(rewrite *u, const char *name, double value, ir_value *like);
/* Output `k` of the node gets a new value; the old one (which readers hold) is returned and waits
 * for a new producer. */
ir_value *rewrite_detach_output(rewrite *u, uint32_t k);
/* A node of one output that produces `old`. */
tacit_status rewrite_attach_output(rewrite *u, const char *type, uint32_t n,
                                   ir_value *const *inputs, ir_value *old);
/* The node gets another type of its domain. */
tacit_status rewrite_type(rewrite *u, const char *type);

/* Inside a rule whose rewrite is `u`. */
#define REWRITE_SET(call)                                                                          \
    do {                                                                                           \
        if (!(call))                                                                               \
            return rewrite_no_memory(u);                                                           \
    } while (0)

#endif
