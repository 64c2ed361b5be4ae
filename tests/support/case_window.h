/* SPDX-License-Identifier: Apache-2.0
 * Windows of two axes for nodes that slide them: convolutions and poolings. */
#ifndef SUPPORT_CASE_WINDOW_H
#define SUPPORT_CASE_WINDOW_H

#include "support/op_case.h"

typedef struct case_window {
    int64_t kernel[2], stride[2], dilation[2], pads[4];
} case_window;

/* A small one whose padding it reaches over. */
case_window case_window_random(rng *r);
/* As attributes of the node; one axis: the first. */
void case_window_set(op_case *c, const case_window *w, int axes);
/* Positions along axis i of an input of `in`. */
int64_t case_window_out(const case_window *w, int i, int64_t in);

/* The attributes of a fused activation: bit 0 of `choice`: behind the residual; bits 1 and 2:
 * which. */
void case_activation(op_case *c, uint32_t choice);

#endif
