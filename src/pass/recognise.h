/* SPDX-License-Identifier: Apache-2.0
 * Composite functions spelled out by simple ops, as matchers that several passes share. */
#ifndef PASS_RECOGNISE_H
#define PASS_RECOGNISE_H

#include "pass/edit.h"

/* `y` is a softmax of *x over *axis (counted from the end, 1: the last), as one op or as max, sub,
 * exp, sum, div. Its nodes are added to `s`. */
bool pass_match_softmax(const pass_edit *e, const ir_value *y, ir_value **x, int32_t *axis,
                        pass_set *s);

/* A mask that lets query i see the keys from i + offset - window + 1 to i + offset. */
typedef struct pass_band {
    int64_t offset;
    int64_t window; /* 0: from the first key on */
    bool all_open;  /* it hides nothing at all */
} pass_band;
/* The known mask, boolean or additive, is a band over sq queries and sk keys, the same in every
 * batch and head. */
bool pass_match_band(const ir_value *mask, int64_t sq, int64_t sk, pass_band *band);

#endif
