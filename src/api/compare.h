/* SPDX-License-Identifier: Apache-2.0
 * Whether two values agree, and where they first part. */
#ifndef API_COMPARE_H
#define API_COMPARE_H

#include "ir/tensor.h"

typedef struct compare_tolerance {
    double relative, absolute;
} compare_tolerance;

/* 1e-3 and 1e-7, or one unit in the last place of a type that cannot hold that. */
compare_tolerance compare_default(tacit_dtype dtype);
/* Type, shape and every element; floats within the tolerance of their type, all else exactly.
 * The error tells the first difference. */
tacit_status compare_values(const ir_tensor *expected, const ir_tensor *got, tacit_error *err);

#endif
