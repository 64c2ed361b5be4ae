/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/vec_portable.h"

#include "cpu/half.inc"
#include "cpu/half_pack.inc"
