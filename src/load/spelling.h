/* SPDX-License-Identifier: Apache-2.0
 * What rules need that spell a node of com.microsoft out in operators of ONNX (load/contrib.h). */
#ifndef LOAD_SPELLING_H
#define LOAD_SPELLING_H

#include "load/rewrite.h"

/* A rule builds on and on; the first failure makes everything behind it nothing. */
typedef struct spelling {
    rewrite u;
    bool failed;
} spelling;

/* A row of a table of rules: the operator, and which inputs it needs, as bits. */
typedef struct spelling_row {
    const char *type;
    tacit_status (*rule)(spelling *s);
    uint64_t needed;
} spelling_row;

/* Explicit input i, or NULL. */
ir_value *spelling_in(const spelling *s, uint32_t i);
/* The value of a new node of ONNX; inputs that are NULL at the end are left out. */
ir_value *spelling_put(spelling *s, const char *type, uint32_t n, ir_value *const *inputs);
ir_value *spelling_put2(spelling *s, const char *type, ir_value *a, ir_value *b);
/* Attributes of what produces `v`. */
void spelling_set_int(spelling *s, const ir_value *v, const char *name, int64_t value);
void spelling_set_float(spelling *s, const ir_value *v, const char *name, double value);
void spelling_set_ints(spelling *s, const ir_value *v, const char *name, uint32_t count,
                       const int64_t *values);
/* … those of the node by these names. */
void spelling_set_like(spelling *s, const ir_value *v, uint32_t n, const char *const *names);
/* Constants. A scalar is of the element type of `like`. */
ir_value *spelling_scalar(spelling *s, const char *name, double value, ir_value *like);
ir_value *spelling_floats(spelling *s, const char *name, double value);
ir_value *spelling_ints(spelling *s, const char *name, uint32_t count, const int64_t *values);
ir_value *spelling_constant(spelling *s, const char *name, const ir_tensor *data);

/* The node becomes this one, without attributes, and gives its results. */
tacit_status spelling_become(spelling *s, const char *domain, const char *type, uint32_t n,
                             ir_value *const *inputs);
/* … with the attributes it has. */
tacit_status spelling_become_other(spelling *s, const char *domain, const char *type, uint32_t n,
                                   ir_value *const *inputs);
tacit_status spelling_become_value(spelling *s, ir_value *v);

/* Tables end with a row of no type. */
extern const spelling_row contrib_bytes[];   /* operators on bytes */
extern const spelling_row contrib_weights[]; /* … on weights in few bits */
extern const spelling_row contrib_fused[];   /* what the optimiser fuses, and the rest */

#endif
