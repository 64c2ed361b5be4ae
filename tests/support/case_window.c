/* SPDX-License-Identifier: Apache-2.0 */
#include "support/case_window.h"

case_window case_window_random(rng *r)
{
    case_window w;
    for (int i = 0; i < 2; i++) {
        w.kernel[i] = 1 + (int64_t)rng_below(r, 4);
        w.stride[i] = 1 + (int64_t)rng_below(r, 3);
        w.dilation[i] = 1 + (int64_t)rng_below(r, 2);
        int64_t reach = (w.kernel[i] - 1) * w.dilation[i];
        w.pads[i] = (int64_t)rng_below(r, (uint64_t)reach + 1);
        w.pads[i + 2] = (int64_t)rng_below(r, (uint64_t)reach + 1);
    }
    return w;
}

void case_window_set(op_case *c, const case_window *w, int axes)
{
    op_case_ints(c, "kernel_shape", (uint32_t)axes, w->kernel);
    op_case_ints(c, "strides", (uint32_t)axes, w->stride);
    op_case_ints(c, "dilations", (uint32_t)axes, w->dilation);
    int64_t one[2] = {w->pads[0], w->pads[2]};
    op_case_ints(c, "pads", 2 * (uint32_t)axes, axes == 1 ? one : w->pads);
}

int64_t case_window_out(const case_window *w, int i, int64_t in)
{
    return (in + w->pads[i] + w->pads[i + 2] - (w->kernel[i] - 1) * w->dilation[i] - 1) /
               w->stride[i] +
           1;
}

void case_activation(op_case *c, uint32_t choice)
{
    static const char *const acts[] = {"none", "relu", "clip", "silu"};
    op_case_string(c, "activation", acts[choice >> 1 & 3]);
    op_case_float(c, "act_min", 0);
    op_case_float(c, "act_max", 6);
    op_case_int(c, "activation_last", choice & 1);
}
