/* SPDX-License-Identifier: Apache-2.0
 * Images with their channels in blocks of sixteen, [N, blocks, H, W, 16]; see cpu/blocked.h for the
 * layout. What the rows of blocked.c and their lower rules share. */
#ifndef OP_BLOCKED_H
#define OP_BLOCKED_H

#include "cpu/blocked.h"
#include "op/conv.h"
#include "op/lower.h"

enum { OP_BLOCK = 16 };

static inline int64_t op_blocks(int64_t channels)
{
    return (channels + OP_BLOCK - 1) / OP_BLOCK;
}
/* [N, C, H, W] of a blocked shape, whose channels the attribute `channels` counts; a shape of rank
 * 4 is taken as it is. */
tacit_status op_blocked_plain(const ir_node *node, const ir_shape *x, ir_shape *plain,
                              tacit_error *err);
/* And back. */
ir_shape op_blocked_shape(const ir_shape *plain);
/* The convolution of a BlockedConv over its plain shapes. */
tacit_status op_blocked_conv_plan(const ir_node *node, const ir_shape *x, const ir_shape *w,
                                  op_conv *p, tacit_error *err);

/* Packs the weights of input 1, [a->channels][k] from channel `first` on, in pieces of some panels.
 */
tacit_status op_lower_pack_panels(op_lower *c, cpu_kernel fn, cpu_blocked_pack_args *a, int64_t k,
                                  int64_t first);

#endif
