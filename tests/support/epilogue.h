/* SPDX-License-Identifier: Apache-2.0
 * The oracle of what products and convolutions do with their sums. */
#ifndef SUPPORT_EPILOGUE_H
#define SUPPORT_EPILOGUE_H

#include "cpu/epilogue.h"

/* What the epilogue makes of a sum, in double; `bias` and `residual` are 0 where there are none. */
double test_epilogue(const cpu_epilogue *e, double sum, double bias, double residual);

#endif
