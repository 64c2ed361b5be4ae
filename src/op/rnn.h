/* SPDX-License-Identifier: Apache-2.0
 * What RNN, GRU and LSTM nodes say. */
#ifndef OP_RNN_H
#define OP_RNN_H

#include "op/op.h"

typedef enum op_rnn_kind { OP_RNN_PLAIN, OP_RNN_GRU, OP_RNN_LSTM } op_rnn_kind;

/* In the order of the table in rnn.c. */
typedef enum op_rnn_act_kind {
    OP_RNN_SIGMOID,
    OP_RNN_TANH,
    OP_RNN_RELU,
    OP_RNN_AFFINE,
    OP_RNN_LEAKY_RELU,
    OP_RNN_THRESHOLDED_RELU,
    OP_RNN_SCALED_TANH,
    OP_RNN_HARD_SIGMOID,
    OP_RNN_ELU,
    OP_RNN_SOFTSIGN,
    OP_RNN_SOFTPLUS,
} op_rnn_act_kind;

enum { OP_RNN_FUNCTIONS = 3 };

typedef struct op_rnn_act {
    int kind; /* op_rnn_act_kind */
    double alpha, beta;
} op_rnn_act;

typedef struct op_rnn {
    op_rnn_kind kind;
    int gates;
    int64_t steps, batch, input, hidden, directions;
    bool by_batch; /* layout 1 */
    bool reverse;  /* of a single direction */
    bool linear_before_reset, input_forget;
    double clip;
    op_rnn_act f[2][OP_RNN_FUNCTIONS];
} op_rnn;

/* From the attributes and the shapes of X and W. */
tacit_status op_rnn_read(const ir_node *node, const ir_shape *x, const ir_shape *w, op_rnn *r,
                         tacit_error *err);

#endif
