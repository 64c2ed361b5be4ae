/* SPDX-License-Identifier: Apache-2.0
 * Building a secure program: what the rules of the operators call.
 *
 * Errors stick: after a failure every call returns a harmless value and `status` says what was
 * first wrong, so rules read straight through and return it at the end. */
#ifndef SECURE_BUILD_H
#define SECURE_BUILD_H

#include "op/range.h"
#include "op/secure.h"
#include "secure/program.h"

/* A tensor of the graph as a wire in row-major order. The real value is the integer (signed word)
 * times 2^-frac; [lo, hi] bounds the integer, as certified by interval arithmetic. */
typedef struct sec_tensor {
    sec_wire_id wire;
    ir_shape shape;
    int frac;
    double lo, hi;
    double norm; /* bounds the Euclidean norm of the integers along the last axis */
    double huge; /* not 0: the value is this sign times "infinity" times the integer (masks) */
    bool present;
} sec_tensor;

typedef struct sec_builder {
    sec_program *p;
    const sec_options *options;
    const ir_graph *graph;
    const ir_node *node;
    sec_tensor *values;   /* by value id: as produced */
    sec_tensor *rescaled; /* by value id: brought down to the usual scale, once */
    uint32_t fact_at;
    VEC(sec_wire_id) guards; /* counts of violations, one word each */
    uint64_t guard_groups;   /* what they can add up to */
    tacit_status status;
    tacit_error *err;
} sec_builder;

#define sb_fail(b, code, ...)                                                                      \
    do {                                                                                           \
        if ((b)->status == TACIT_OK)                                                               \
            (b)->status = error_set((b)->err, (code), __VA_ARGS__);                                \
    } while (0)

void *sb_alloc(sec_builder *b, size_t count, size_t size); /* zeroed; NULL only after a failure */
/* Bits of a signed word that holds every integer of [-bound, bound]. */
unsigned sb_bits(double bound);
/* A number that depends on weights, rounded up to a quarter of a power of two. It is part of the
 * public description, so both sides use the rounded one. */
double sb_fact(sec_builder *b, double value);

/* Wires. */
sec_wire_id sb_gather(sec_builder *b, uint32_t n, const sec_wire_id *from, size_t count,
                      const int32_t *index);
sec_wire_id sb_sum(sec_builder *b, sec_wire_id x, size_t count, const uint32_t *offset);
sec_wire_id sb_linear(sec_builder *b, uint32_t n, const sec_wire_id *x, const int64_t *coef,
                      int64_t add);
sec_wire_id sb_scale(sec_builder *b, sec_wire_id x, const int64_t *values);
sec_wire_id sb_const(sec_builder *b, size_t count, const int64_t *values);
sec_wire_id sb_weight(sec_builder *b, const ir_value *value, size_t count, const uint32_t *layout,
                      double factor, int frac);
sec_wire_id sb_input(sec_builder *b, const sec_port *port, size_t count);
/* A gate on wires of one length; `min_in`: see sec_instr. Returns output 0. */
sec_instr *sb_gate(sec_builder *b, fss_gate gate, uint32_t n_in, const sec_wire_id *in,
                   unsigned min_in);
sec_wire_id sb_truncate(sec_builder *b, sec_wire_id x, unsigned shift, double bound);
sec_wire_id sb_shift_low(sec_builder *b, sec_wire_id x, unsigned shift, unsigned bits);
sec_wire_id sb_multiply(sec_builder *b, sec_wire_id x, sec_wire_id y);
/* Batches of matrices; NULL maps: batch i uses matrix i. Owner as the weight's mode, or
 * SEC_SHARED. */
sec_instr *sb_matmul(sec_builder *b, sec_wire_id x, sec_wire_id w, size_t m, size_t k, size_t n,
                     uint32_t batch, const uint32_t *x_at, const uint32_t *w_at, bool weight);
sec_wire_id sb_weight_product(sec_builder *b, sec_wire_id x, sec_wire_id w, uint32_t period);
void sb_keep(sec_builder *b, sec_instr *in, size_t count, const int32_t *keep,
             const uint32_t *sums);
static inline sec_wire *sb_wire(sec_builder *b, sec_wire_id w)
{
    return &b->p->wires.data[w];
}

/* Tensors. */
static inline double st_bound(const sec_tensor *t)
{
    double a = t->hi > -t->lo ? t->hi : -t->lo;
    return a < 1 ? 1 : a;
}
double st_norm(const sec_tensor *t); /* along the last axis */
/* The tensor's integers as an interval, and back: all bounds follow from the rules of op/range.h,
 * plus what rounding adds. */
op_interval st_interval(const sec_tensor *t);
/* What the row's range rule says of the node's first output, given what its inputs can be. */
op_interval sb_range(sec_builder *b, const op_interval *in);
void st_bounds(sec_tensor *t, op_interval r);
/* Input `i` of the node as it is / at about the usual scale: SB_SLACK more fraction bits are not
 * worth a truncation. */
enum { SB_SLACK = 1 };
const sec_tensor *st_in(sec_builder *b, uint32_t i);
const sec_tensor *st_in_scaled(sec_builder *b, uint32_t i);
sec_tensor st_rescale(sec_builder *b, const sec_tensor *t, int frac);
sec_tensor st_lift(sec_builder *b, const sec_tensor *t, int frac); /* to a larger frac */
sec_tensor st_gathered(sec_builder *b, const sec_tensor *t, const ir_shape *shape,
                       const int32_t *index);
sec_tensor st_broadcast(sec_builder *b, const sec_tensor *t, const ir_shape *shape);
void st_out(sec_builder *b, uint32_t i, sec_tensor t);

/* A single number, known to everybody; a weight. */
bool sb_is_public(const sec_builder *b, const ir_value *v);
bool sb_is_weight(const sec_builder *b, const ir_value *v);
/* Sizes of a weight as facts: largest |w|, and the largest norms of its columns (k x n layout). */
typedef struct sec_sizes {
    double max, l1, l2, frobenius;
} sec_sizes;
sec_sizes sb_weight_sizes(sec_builder *b, const ir_value *v, size_t k, size_t n,
                          const uint32_t *layout);

/* Parts used by several rules. */
/* `width`: no two elements of a row differ by more. */
sec_wire_id sb_row_max(sec_builder *b, sec_wire_id x, size_t rows, const uint32_t *offset,
                       double width, sec_wire_id *index);
sec_tensor sb_activation(sec_builder *b, const sec_tensor *x, const char *name);
sec_tensor sb_relu(sec_builder *b, const sec_tensor *x);
sec_tensor sb_clip(sec_builder *b, const sec_tensor *x, double low, double high);
sec_tensor sb_product(sec_builder *b, const sec_tensor *x, const sec_tensor *y);
sec_tensor sb_add(sec_builder *b, const sec_tensor *x, const sec_tensor *y, int sign);
sec_tensor sb_add_weight(sec_builder *b, const sec_tensor *x, const ir_value *w, double factor);
sec_tensor sb_times_scalar(sec_builder *b, const sec_tensor *x, double c);
/* e^-(max - s) of ragged rows, their sums, as wires of fraction `frac`. */
typedef struct sec_softmax {
    sec_wire_id e, inverse; /* by element; by row */
    int frac, inverse_frac;
} sec_softmax;
sec_softmax sb_softmax(sec_builder *b, const sec_tensor *s, size_t rows, const uint32_t *offset);

/* Takes the tensor's range from samples where that is worth a check, and adds the check. */
void sb_calibrated(sec_builder *b, const ir_value *v, sec_tensor *t);
/* What all checks say, told to both; SEC_NONE where nothing is checked. */
sec_wire_id sec_verdict(sec_builder *b);

/* The rule of a node, or NULL. */
op_secure_fn *sec_rule(const ir_node *node);
tacit_status sec_finish(sec_builder *b);
/* Gates beyond the budget of a batch become several. */
void sec_split(sec_builder *b);
/* Forms of comparison and rounds of all instructions. */
void sec_schedule(sec_builder *b);

#endif
