/* SPDX-License-Identifier: Apache-2.0
 * Composite functions spelled out by simple ops, as matchers that several passes share. */
#ifndef PASS_RECOGNISE_H
#define PASS_RECOGNISE_H

#include "pass/edit.h"

/* `y` is a softmax of *x over *axis (counted from the end, 1: the last), as one op or as max, sub,
 * exp, sum, div. Its nodes are added to `s`. */
bool pass_match_softmax(const pass_edit *e, const ir_value *y, ir_value **x, int32_t *axis,
                        pass_set *s);

#endif
