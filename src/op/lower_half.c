/* SPDX-License-Identifier: Apache-2.0
 * Products of one row whose weights the model has in f16 or bf16: they are packed and read as they
 * are (cpu/half.h). */

#include "cpu/half.h"
#include "op/lowerings.h"
#include "op/product.h"

/* What the halves of a weight are that is f32 only once it is made; TACIT_DTYPE_NONE: no halves. */
static tacit_dtype halves_of(const ir_tensor *w)
{
    if (!ir_tensor_is_late(w) || w->recipe->kind != IR_JOINED)
        return TACIT_DTYPE_NONE;
    const ir_recipe *r = w->recipe;
    tacit_dtype half = r->from[0]->dtype;
    if (half != TACIT_F16 && half != TACIT_BF16)
        return TACIT_DTYPE_NONE;
    for (uint32_t i = 0; i < r->count; i++)
        if (r->from[i]->dtype != half || !r->from[i]->data)
            return TACIT_DTYPE_NONE;
    return half;
}

/* In a core's own cache f32 is as fast: widening takes as long as reading it. */
bool op_half_suits(const op_lower *c, const op_product *p)
{
    const cpu_gemm_args *g = &p->g;
    return g->m == 1 && g->a_col == 1 &&
           (g->streamed || op_lower_exceeds_core(c, c->constant_bytes)) && !g->ordered &&
           g->epilogue.bias != CPU_BIAS_ROW && c->cpu.isa != CPU_PORTABLE &&
           halves_of(c->in[1].constant);
}

/* The weight in halves: the one that it widens, or several joined as it joins them. */
static const ir_tensor *in_halves(op_lower *c, const ir_tensor *w)
{
    if (w->recipe->count == 1)
        return w->recipe->from[0];
    ir_recipe recipe = *w->recipe;
    recipe.dtype = TACIT_DTYPE_NONE;
    return ir_tensor_late(c->memory, &w->shape, &recipe);
}

tacit_status op_half_pack(op_lower *c, op_product *p)
{
    cpu_gemm_args *g = &p->g;
    cpu_isa isa = c->cpu.isa;
    int64_t width = cpu_gemm_width(isa), panels = (g->n + width - 1) / width;
    const ir_tensor *halves = in_halves(c, c->in[1].constant);
    if (!halves)
        return error_memory(c->err, "packed weights");
    uint16_t *packed = op_lower_pack_later(c, cpu_half_bytes(panels, width, g->k));
    if (!packed)
        return TACIT_ERR_MEMORY;
    bool brain = halves->dtype == TACIT_BF16;
    cpu_half_pack_args a = {NULL, packed, g->n, g->k, g->b_row, g->b_col, 0, g->k};
    op_job job = op_lower_job(
        c, 1, brain ? CPU_PICK(isa, cpu_half_pack_bf16) : CPU_PICK(isa, cpu_half_pack_f16), &a,
        sizeof a, offsetof(cpu_half_pack_args, b));
    job.weight = halves;
    job.bytes = halves->bytes;
    job.end = (uint32_t)panels;
    g->packed = (const void *)packed;
    g->kc = g->k;
    p->row = (op_row_kernel){
        .fn = brain ? CPU_PICK(isa, cpu_half_bf16) : CPU_PICK(isa, cpu_half_f16),
        .name = brain ? CPU_PICK_NAME(isa, half_bf16) : CPU_PICK_NAME(isa, half_f16),
        .stored = "in 16 bits, as the model has them"};
    return op_product_pack_later(c, &job, g, width, 1, &a.k_begin, &a.k_end);
}
