/* SPDX-License-Identifier: Apache-2.0
 * One node at a time: build it, run its evaluator, look at the outputs. */
#ifndef SUPPORT_OP_CASE_H
#define SUPPORT_OP_CASE_H

#include "base/rng.h"
#include "op/op.h"

enum { OP_CASE_INPUTS = 10, OP_CASE_OUTPUTS = 8 };

typedef struct op_case {
    arena memory;
    ir_graph *graph;
    ir_node *node;
    const char *type, *domain;
    uint32_t n_in;
    const ir_tensor *in[OP_CASE_INPUTS];   /* NULL: absent */
    const ir_tensor *late[OP_CASE_INPUTS]; /* the same, as a rule that knows it gets it; or NULL */
    ir_tensor out[OP_CASE_OUTPUTS];
    tacit_error err;
    uint64_t step;
} op_case;

#define SHAPE(...)                                                                                 \
    ir_shape_of(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[]){__VA_ARGS__})
#define SCALAR ((ir_shape){.rank = 0})

void op_case_begin(op_case *c, const char *domain, const char *type);
void op_case_end(op_case *c);
/* Inputs in order; values converted to `dtype`. */
ir_tensor *op_case_f64(op_case *c, tacit_dtype dtype, ir_shape shape, const double *values);
ir_tensor *op_case_i64(op_case *c, tacit_dtype dtype, ir_shape shape, const int64_t *values);
ir_tensor *op_case_strings(op_case *c, ir_shape shape, const char *const *values);
/* Values in [low, high), whole numbers for integer types. */
ir_tensor *op_case_random(op_case *c, rng *r, tacit_dtype dtype, ir_shape shape, double low,
                          double high);
void op_case_give(op_case *c, const ir_tensor *t); /* NULL: an absent optional input */
/* Attributes: after every input, before the run. */
void op_case_int(op_case *c, const char *name, int64_t value);
void op_case_float(op_case *c, const char *name, double value);
void op_case_string(op_case *c, const char *name, const char *value);
void op_case_ints(op_case *c, const char *name, uint32_t n, const int64_t *values);
void op_case_strings_attr(op_case *c, const char *name, uint32_t n, const char *const *values);
/* One axis of n elements. */
void op_case_tensor_attr(op_case *c, const char *name, tacit_dtype dtype, int64_t n,
                         const double *values);
/* Runs with `n_out` outputs wanted. */
tacit_status op_case_try(op_case *c, uint32_t n_out);
/* As above; the test fails when the run does. */
void op_case_run(op_case *c, uint32_t n_out);
/* Output `i` has exactly this type and these values (NaN equals NaN; absolute + relative eps). */
void op_case_expect(op_case *c, uint32_t i, tacit_dtype dtype, ir_shape shape, const double *values,
                    double eps);
/* The run fails with this status and the message holds `text`. */
void op_case_refuses(op_case *c, uint32_t n_out, tacit_status status, const char *text);

/* A shape of rank 0…8 with small dims, about one in ten of them with a zero dim. */
ir_shape random_shape(rng *r, int32_t most_rank);
/* A shape that broadcasts to `s`: leading axes dropped, some axes 1. */
ir_shape random_broadcast(rng *r, const ir_shape *s);
/* Linear index, in a dense tensor of `from`, of the element that `index` (in `s`) broadcasts. */
int64_t broadcast_index(const ir_shape *s, const int64_t *index, const ir_shape *from);
/* Advances `index` through `s` in row-major order; false past the last. */
bool next_index(const ir_shape *s, int64_t *index);

#endif
