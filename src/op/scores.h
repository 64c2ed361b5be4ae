/* SPDX-License-Identifier: Apache-2.0
 * What the classical models of ai.onnx.ml share: rows of features, transforms behind the scores and
 * the labels of classes. */
#ifndef OP_SCORES_H
#define OP_SCORES_H

#include "cpu/scores.h"
#include "op/op.h"

/* X is [F], one row, or [N,F]. */
tacit_status op_rows_of(const ir_shape *x, int64_t *rows, int64_t *features, tacit_error *err);
/* The attribute post_transform, by name. */
tacit_status op_read_post(const ir_node *node, cpu_post *out, tacit_error *err);
/* A list of numbers: attribute `name`, or a tensor `name`_as_tensor. None: *count is 0. */
tacit_status op_read_reals(const ir_node *node, const char *name, arena *memory, const double **out,
                           uint32_t *count, tacit_error *err);

/* Labels of classes: strings or integers, one of them. */
typedef struct op_labels {
    uint32_t count;
    const ir_string *strings; /* NULL: integers */
    const int64_t *ints;
} op_labels;
/* From the attributes of these names; the error says that there are none. */
tacit_status op_read_labels(const ir_node *node, const char *strings, const char *ints,
                            op_labels *out, tacit_error *err);
tacit_dtype op_labels_dtype(const op_labels *l);
/* `count` of them from `first` on, as a constant of rank 0 or 1. NULL: no memory. */
ir_value *op_labels_constant(ir_graph *g, const op_labels *l, uint32_t first, uint32_t count,
                             int32_t rank);
/* Element `i` of a tensor of labels becomes the label of class `best`. Of a single class: it wins
 * or not, which is 1 or 0, or the label or nothing. */
void op_store_label(const op_labels *l, int64_t best, ir_tensor *to, int64_t i);

#endif
