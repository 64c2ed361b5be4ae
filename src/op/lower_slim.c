/* SPDX-License-Identifier: Apache-2.0
 * Products of one row that wait for memory: weights in 28 bits (cpu/slim.h). */

#include "cpu/slim.h"
#include "op/lowerings.h"
#include "op/product.h"

bool op_slim_suits(const op_lower *c, const op_product *p)
{
    const cpu_gemm_args *g = &p->g;
    return g->m == 1 && g->a_col == 1 && g->k >= CPU_SLIM_ROWS && g->k % CPU_SLIM_STEPS == 0 &&
           g->streamed && !g->ordered && g->epilogue.bias != CPU_BIAS_ROW &&
           c->cpu.isa != CPU_PORTABLE;
}

tacit_status op_slim_pack(op_lower *c, op_product *p)
{
    cpu_gemm_args *g = &p->g;
    cpu_isa isa = c->cpu.isa;
    int64_t width = cpu_gemm_width(isa), panels = (g->n + width - 1) / width;
    const ir_tensor *b = c->in[1].constant;
    float *packed = op_lower_pack_later(c, cpu_slim_bytes(panels, width, g->k));
    if (!packed)
        return TACIT_ERR_MEMORY;
    cpu_slim_pack_args a = {NULL, packed, g->n, g->k, g->b_row, g->b_col, 0, g->k};
    op_job job = {.fn = CPU_PICK(isa, cpu_slim_pack_f32),
                  .args = &a,
                  .args_size = sizeof a,
                  .end = (uint32_t)panels,
                  .weight = b,
                  .field = offsetof(cpu_slim_pack_args, b),
                  .bytes = b->bytes};
    g->packed = packed;
    g->slim = true;
    g->kc = g->k;
    if (g->b_col == 1)
        return op_product_rows_later(c, &job, g, CPU_SLIM_ROWS, &a.k_begin, &a.k_end);
    return op_product_columns_later(c, &job, g, width);
}
