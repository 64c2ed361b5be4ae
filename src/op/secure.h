/* SPDX-License-Identifier: Apache-2.0
 * The secure rule of an operator: it extends a program for two parties by what the node computes.
 * Rules are written against secure/build.h, which defines the builder. */
#ifndef OP_SECURE_H
#define OP_SECURE_H

#include "op/op.h"

struct sec_builder;
struct op_secure {
    const ir_node *node;
    struct sec_builder *b;
};

#endif
