/* SPDX-License-Identifier: Apache-2.0
 * The random stream of a node. */
#ifndef OP_RANDOM_H
#define OP_RANDOM_H

#include "base/philox.h"
#include "op/op.h"

/* Keyed by the attribute `seed`, or by the node's name where there is none; a new stream every
 * step. */
philox op_random_stream(const op_eval *c);

/* Standard normal draw number `index`. */
double op_random_normal(const philox *p, uint64_t index);

#endif
