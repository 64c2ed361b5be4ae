/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels for the nodes the interpreter runs. Their types are known only when their inputs lie
 * there: then a program of the one node is built, and kept as long as its inputs keep their types.
 * So a loop's body is lowered in its first iteration, and weights are packed once.
 */
#ifndef PROG_EAGER_H
#define PROG_EAGER_H

#include "prog/program.h"

typedef struct eager_cache eager_cache; /* of one session */

enum { EAGER_WORTH = 4096 }; /* bytes of inputs below which an evaluator is as good at first */
/* With the options of the program whose tail is run; nodes that read less than `worth` bytes are
 * left to their evaluators until they have run a few times. NULL: no memory. */
eager_cache *eager_open(const prog_options *options, size_t worth);
void eager_free(eager_cache *c);
/* Runs the node by kernels where it has some and its inputs are large enough to repay the lowering;
 * *done says whether. Outputs are allocated in `memory`. `fixed`, by value id: what holds the same
 * contents in every run. */
tacit_status eager_run(eager_cache *c, const ir_node *node, const ir_tensor *const *in,
                       const bool *fixed, uint64_t step, ir_tensor *results, arena *memory,
                       bool *done, tacit_error *err);
/* How many programs were built so far. */
uint32_t eager_builds(const eager_cache *c);

#endif
