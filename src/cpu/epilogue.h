/* SPDX-License-Identifier: Apache-2.0
 * What happens to a finished tile of a GEMM or convolution while it is still in cache. */
#ifndef CPU_EPILOGUE_H
#define CPU_EPILOGUE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum cpu_act {
    CPU_ACT_NONE,
    CPU_ACT_RELU,
    CPU_ACT_GELU,
    CPU_ACT_GELU_TANH,
    CPU_ACT_SILU,
    CPU_ACT_SIGMOID,
    CPU_ACT_TANH,
    CPU_ACT_CLIP,
} cpu_act;

typedef enum cpu_bias {
    CPU_BIAS_NONE,
    CPU_BIAS_COLUMN, /* bias[j] */
    CPU_BIAS_ROW,    /* bias[i] */
} cpu_bias;

/* y = act(alpha·x + bias) + residual, or act(alpha·x + bias + residual) when act_last. */
typedef struct cpu_epilogue {
    float alpha;
    float act_min, act_max; /* CPU_ACT_CLIP */
    cpu_act act;
    cpu_bias bias;
    bool act_last;
} cpu_epilogue;

/* Is the residual wanted only when the sum is complete? Otherwise sums start from it. */
static inline bool cpu_late_residual(const cpu_epilogue *e)
{
    return e->alpha != 1.0f || (e->act != CPU_ACT_NONE && !e->act_last);
}

#endif
