/* SPDX-License-Identifier: Apache-2.0
 * What tacit.MatMul and tacit.Conv do to their result before storing it: bias, activation,
 * residual. */
#ifndef PASS_EPILOGUE_H
#define PASS_EPILOGUE_H

#include "pass/edit.h"

typedef struct pass_epilogue {
    ir_value *bias, *residual;
    const char *activation; /* "none" or its name */
    double act_min, act_max;
    bool activation_last; /* activation after the residual is added */
} pass_epilogue;

/* A MatMul of either kind, taken apart. */
typedef struct pass_product {
    ir_value *a, *b;
    bool trans_a, trans_b;
    double alpha;
    pass_epilogue tail;
} pass_product;

void pass_epilogue_read(pass_epilogue *p, const ir_node *n, bool fused);
/* Appends bias and residual to the inputs (after the two operands) and sets the attributes. */
void pass_epilogue_write(const pass_epilogue *p, pass_fusion *f);
static inline bool pass_epilogue_is_empty(const pass_epilogue *p)
{
    return !p->bias && !p->residual && p->activation[0] == 'n';
}
/* Takes in the only reader of `*out` if it is a bias, an activation or a residual that still fits;
 * *out is then that node's result and the node is in `swallowed`. `axis` of the output is the one
 * a bias runs along. */
tacit_status pass_epilogue_grow(pass_edit *e, pass_epilogue *p, ir_value **out, int32_t axis,
                                pass_set *swallowed, bool *grew);
/* The activation a node computes on its first input, as the fused ops name it, or NULL. */
const char *pass_activation(const pass_edit *e, const ir_node *n, double *low, double *high);

/* `n` is MatMul or tacit.MatMul on floating tensors of rank 2 or more. */
bool pass_product_read(const pass_edit *e, ir_node *n, pass_product *p);
/* A fusion that yields this product; nodes and outputs are left to the caller. */
void pass_product_write(const pass_product *p, ir_node *root, pass_fusion *f);

/* The constant `v` under another shape of the same size, no bytes copied. NULL: no memory. */
ir_value *pass_constant_as(pass_edit *e, const ir_value *v, int32_t rank, const int64_t *dims);

/* The pads of a Conv with auto_pad spelled out: begins, then ends. */
bool pass_explicit_pads(const ir_node *n, int64_t *pads);
/* The attributes of Conv `n`, with those pads, for what takes its place. */
void pass_fusion_conv(pass_fusion *f, const ir_node *n, const int64_t *pads);

#endif
