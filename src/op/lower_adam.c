/* SPDX-License-Identifier: Apache-2.0
 * tacit.AdamStep in f32: one pass over parameter, state and gradient. */
#include "cpu/adam.h"
#include "op/lowerings.h"

tacit_status op_lower_adam(op_lower *c)
{
    enum { TILE = 16 * 1024 };
    static const size_t in[] = {offsetof(cpu_adam_args, x), offsetof(cpu_adam_args, mean),
                                offsetof(cpu_adam_args, square), offsetof(cpu_adam_args, grad)};
    static const size_t out[] = {offsetof(cpu_adam_args, x_next),
                                 offsetof(cpu_adam_args, mean_next),
                                 offsetof(cpu_adam_args, square_next)};
    const ir_node *n = c->node;
    int64_t count = ir_shape_size(&c->in[0].type.shape);
    if (c->in[0].type.dtype != TACIT_F32)
        return OP_LOWER_NO_KERNEL;
    for (uint32_t i = 0; i < 3; i++)
        if (!op_lower_wants(c, i))
            return OP_LOWER_NO_KERNEL;
    if (count == 0)
        return TACIT_OK;
    cpu_adam_args *a =
        op_lower_thunk(c, CPU_PICK_NAME(c->cpu.isa, adam_f32), CPU_PICK(c->cpu.isa, cpu_adam_f32),
                       sizeof *a, (uint32_t)((count + TILE - 1) / TILE));
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = (cpu_adam_args){.count = count,
                         .tile = TILE,
                         .beta1 = ir_attr_float(n, "beta1", 0.9),
                         .beta2 = ir_attr_float(n, "beta2", 0.999),
                         .epsilon = ir_attr_float(n, "epsilon", 1e-8),
                         .decay = ir_attr_float(n, "weight_decay", 0),
                         .decoupled = ir_attr_int(n, "decoupled", 0) != 0};
    uint64_t run = TILE * sizeof(float);
    for (uint32_t i = 0; i < 4; i++)
        TRY(op_lower_in_tiled(c, in[i], i, run, run));
    for (uint32_t i = 0; i < 3; i++)
        TRY(op_lower_out_tiled(c, out[i], i, run, run));
    TRY(op_lower_in(c, offsetof(cpu_adam_args, rate), 4));
    TRY(op_lower_in(c, offsetof(cpu_adam_args, step), 5));
    if (op_lower_has(c, 6))
        TRY(op_lower_in(c, offsetof(cpu_adam_args, scale), 6));
    if (op_lower_has(c, 7))
        TRY(op_lower_in(c, offsetof(cpu_adam_args, enabled), 7));
    op_lower_cost(c, 14.0 * (double)count, 7 * op_lower_bytes(&c->in[0]));
    op_lower_note(c, "adam_f32_%s: one pass", cpu_isa_name(c->cpu.isa));
    return TACIT_OK;
}
