/* SPDX-License-Identifier: Apache-2.0
 * Products of one row that wait for their weights: weights in 28 bits (cpu/slim.h). */

#include "cpu/slim.h"
#include "op/lowerings.h"
#include "op/product.h"

/* Do weights come from a cache that is slower than unpacking? Up to two processors may hold them in
 * their own. */
static bool beyond_cores(const op_lower *c)
{
    return cpu_slim_vbmi2(&c->cpu) && op_lower_exceeds_core(c, c->constant_bytes / 2);
}

bool op_slim_suits(const op_lower *c, const op_product *p)
{
    const cpu_gemm_args *g = &p->g;
    return g->m == 1 && g->a_col == 1 && g->k >= CPU_SLIM_ROWS && g->k % CPU_SLIM_STEPS == 0 &&
           (g->streamed || beyond_cores(c)) && !g->ordered && g->epilogue.bias != CPU_BIAS_ROW &&
           c->cpu.isa != CPU_PORTABLE;
}

tacit_status op_slim_pack(op_lower *c, op_product *p)
{
    cpu_gemm_args *g = &p->g;
    cpu_isa isa = c->cpu.isa;
    int64_t width = cpu_gemm_width(isa), panels = (g->n + width - 1) / width;
    float *packed = op_lower_pack_later(c, cpu_slim_bytes(panels, width, g->k));
    if (!packed)
        return TACIT_ERR_MEMORY;
    cpu_slim_pack_args a = {NULL, packed, g->n, g->k, g->b_row, g->b_col, 0, g->k};
    op_job job = op_lower_job(c, 1, CPU_PICK(isa, cpu_slim_pack_f32), &a, sizeof a,
                              offsetof(cpu_slim_pack_args, b));
    job.end = (uint32_t)panels;
    g->packed = packed;
    g->kc = g->k;
    p->row = (op_row_kernel){.fn = cpu_slim_kernel(&c->cpu),
                             .name = cpu_slim_name(&c->cpu),
                             .stored = "in 28 bits without loss"};
    return op_product_pack_later(c, &job, g, width, CPU_SLIM_ROWS, &a.k_begin, &a.k_end);
}
