/* SPDX-License-Identifier: Apache-2.0 */
#include "support/epilogue.h"

#include <math.h>

static double activation(const cpu_epilogue *e, double x)
{
    switch (e->act) {
    case CPU_ACT_RELU:
        return fmax(x, 0);
    case CPU_ACT_GELU:
        return 0.5 * x * erfc(-x * 0.70710678118654752440);
    case CPU_ACT_GELU_TANH:
        return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
    case CPU_ACT_SILU:
        return x / (1 + exp(-x));
    case CPU_ACT_SIGMOID:
        return 1 / (1 + exp(-x));
    case CPU_ACT_TANH:
        return tanh(x);
    case CPU_ACT_CLIP:
        return fmin(e->act_max, fmax(e->act_min, x));
    default:
        return x;
    }
}

double test_epilogue(const cpu_epilogue *e, double sum, double bias, double residual)
{
    double y = e->alpha * sum + bias;
    return e->act_last ? activation(e, y + residual) : activation(e, y) + residual;
}
