/* SPDX-License-Identifier: Apache-2.0
 * Pointwise convolutions of blocked channels as products with paired terms (cpu/paired.h): pixels
 * are the rows, a run of sixteen input channels is a block, and so is a vector of outputs. */
#include "cpu/blocked.h"
#include "op/blocked.h"
#include "op/lowerings.h"
#include "op/product.h"

/* What a register tile can do at its end: bounds, and a residual that is there from the start. */
static bool ends_in_registers(op_lower *c, cpu_epilogue *e)
{
    *e = (cpu_epilogue){0};
    if (op_lower_epilogue(c, e) != TACIT_OK)
        return false;
    bool bounds = e->act == CPU_ACT_NONE || e->act == CPU_ACT_RELU || e->act == CPU_ACT_CLIP;
    return bounds && e->alpha == 1.0f && !(op_lower_has(c, 3) && cpu_late_residual(e));
}

/* Measured: enough outputs share what is made of the pixels, and sums are long enough for both. */
static bool worth(const op_lower *c, const cpu_gemm_args *g)
{
    return c->cpu.adds_beside_fma && c->cpu.isa == CPU_AVX512 && g->m >= 14 && g->n >= 48 &&
           g->k >= 48 && g->n * g->k >= 9000;
}

bool op_blocked_paired_suits(op_lower *c, const op_conv *conv)
{
    const op_window *w = &conv->w;
    cpu_epilogue e;
    bool pointwise = conv->n == 1 && conv->group == 1 && w->taps == 1 && w->stride[0] == 1 &&
                     w->stride[1] == 1 && w->out_size == w->in_size &&
                     c->in[0].type.shape.rank == 5;
    op_product p = {
        .g = {.m = w->out_size, .n = conv->m, .k = conv->c, .b_row = 1, .b_col = conv->c},
        .batch = 1};
    return pointwise && op_lower_is_weight(c, 1) && worth(c, &p.g) && op_paired_can(c, &p) &&
           ends_in_registers(c, &e);
}

tacit_status op_lower_blocked_paired(op_lower *c, const op_conv *conv, const float *bias)
{
    int64_t pixels = conv->w.out_size, plane = pixels * OP_BLOCK;
    op_product p = {.g = {.m = pixels, .n = conv->m, .k = conv->c, .b_row = 1, .b_col = conv->c},
                    .batch = 1};
    op_paired d = {.product = &p,
                   .whole = true,
                   .a = {.bias = bias,
                         .a_row = OP_BLOCK,
                         .a_col = 1,
                         .a_run = plane,
                         .c_row = OP_BLOCK,
                         .c_vector = plane,
                         .residual_row = OP_BLOCK}};
    TRY(op_paired_prepare(c, &d));
    TRY(op_lower_epilogue(c, &d.a.epilogue));
    d.a.epilogue.bias = bias ? CPU_BIAS_COLUMN : CPU_BIAS_NONE;
    d.a.n = d.padded; /* whole blocks */
    cpu_paired_args *a = op_lower_thunk(c, CPU_PICK_NAME(c->cpu.isa, paired_f32),
                                        CPU_PICK(c->cpu.isa, cpu_paired_f32), sizeof *a,
                                        d.a.row_blocks * d.a.col_blocks);
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = d.a;
    op_lower_together(c, d.together);
    /* Without blocks of rows a tile is a run of blocks of channels. */
    uint64_t run = d.a.row_blocks == 1 ? (uint64_t)(d.a.block_cols * pixels) * sizeof(float) : 0;
    TRY(op_lower_in(c, offsetof(cpu_paired_args, a), 0));
    if (op_lower_has(c, 3))
        TRY(op_lower_in_tiled(c, offsetof(cpu_paired_args, residual), 3, run, run));
    TRY(op_lower_out_tiled(c, offsetof(cpu_paired_args, c), 0, run, run));
    TRY(op_lower_out_tiled(c, offsetof(cpu_paired_args, y), 0, run, run));
    op_lower_cost(c, 2.0 * (double)(conv->m * pixels) * (double)conv->c,
                  op_lower_bytes(&c->in[0]) + op_lower_bytes(&c->in[1]) +
                      op_lower_bytes(&c->out[0]));
    op_lower_note(c,
                  "paired_f32_%s: %lld channels of %lld pixels, sums of %lld; two of three sums "
                  "multiply once for two terms",
                  cpu_isa_name(c->cpu.isa), (long long)conv->m, (long long)pixels,
                  (long long)conv->c);
    return TACIT_OK;
}
