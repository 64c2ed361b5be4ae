/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/vec_portable.h"

#include "cpu/sample.inc"
