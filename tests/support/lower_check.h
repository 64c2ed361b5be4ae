/* SPDX-License-Identifier: Apache-2.0
 * One node through its lower rule: every ISA (AVX-512 as each kind of processor sums its terms),
 * dense and strided inputs, known and unknown constants, in place; each run tile by tile in reverse
 * and compared with the evaluator. */
#ifndef SUPPORT_LOWER_CHECK_H
#define SUPPORT_LOWER_CHECK_H

#include "support/op_case.h"

/* `constants`: bit i says that input i is known at compile time. Fails the test on a difference
 * larger than eps·(1 + |want|), on a write outside of what a tile declared, and when the rule has
 * no kernel. */
void lower_check(op_case *c, rng *r, uint32_t n_out, uint32_t constants, double eps);
/* The results are the same numbers whatever the sizes of the caches; with those that the system
 * would not tell they are as near to the evaluator's as said. */
void lower_check_caches(op_case *c, rng *r, uint32_t n_out, uint32_t constants, double eps);
/* The rule finds no kernel here (and sets no thunk): the evaluator would run. */
void lower_check_none(op_case *c, uint32_t n_out);

#endif
