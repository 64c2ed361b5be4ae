/* SPDX-License-Identifier: Apache-2.0
 * What the tests of both attention kernels share. */
#ifndef TESTS_CPU_ATTENTION_TEST_H
#define TESTS_CPU_ATTENTION_TEST_H

#include <stdbool.h>

#include "cpu/attention.h"

/* Heads either one after another or interleaved by position, with a gap. */
static inline void set_strides(int64_t stride[3], bool interleaved, int64_t heads,
                               int64_t positions, int64_t depth)
{
    int64_t row = depth + 3;
    stride[0] = heads * positions * row;
    stride[1] = interleaved ? row : positions * row;
    stride[2] = interleaved ? heads * row : row;
}

#endif
