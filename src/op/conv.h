/* SPDX-License-Identifier: Apache-2.0
 * The convolution that Conv, ConvInteger, QLinearConv and the fused Conv evaluate. */
#ifndef OP_CONV_H
#define OP_CONV_H

#include "op/window.h"

typedef struct op_conv {
    op_window w;
    int64_t n, c, m, group; /* batch, input channels, output channels */
    ir_shape y;
} op_conv;

/* Checks X [N,C,…] against W [M,C/group,k…] and the attributes. */
tacit_status op_conv_plan(const ir_node *node, const ir_shape *x, const ir_shape *w, op_conv *p,
                          tacit_error *err);
/* ConvTranspose: X [N,C,…], W [C,M/group,k…]. The windows lie on the result: w.in is its size,
 * w.out that of X. */
tacit_status op_conv_transpose_plan(const ir_node *node, const ir_shape *x, const ir_shape *w,
                                    op_conv *p, tacit_error *err);
/* Col2Im's windows over the image whose size `image` holds. */
tacit_status op_col2im_window(const ir_node *node, const ir_shape *x, const ir_tensor *image,
                              const ir_tensor *block, op_window *w, tacit_error *err);
/* x, w, y dense; padding is zero. */
tacit_status op_conv_f64(op_eval *c, const op_conv *p, const double *x, const double *w, double *y);
tacit_status op_conv_i64(op_eval *c, const op_conv *p, const int64_t *x, const int64_t *w,
                         int64_t *y);

#endif
