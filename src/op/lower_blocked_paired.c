/* SPDX-License-Identifier: Apache-2.0
 * Convolutions of blocked channels as products with paired terms (cpu/paired.h): pixels are the
 * rows, a run of sixteen input channels is a block (under a tap, if there are several), and so is a
 * vector of outputs. */
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
    return c->cpu.isa == CPU_AVX512 && g->m >= 14 && g->n >= 48 && g->k >= 48 &&
           g->n * g->k >= 9000;
}

/* Of the rows of taps, over all rows of the output, so many in ten lie on the image: sums in place
 * leave out the others. */
static int64_t tenths_on_image(const op_window *w)
{
    int64_t on = 0;
    for (int64_t r = 0; r < w->out[0]; r++)
        for (int64_t k = 0; k < w->kernel[0]; k++) {
            int64_t row = r * w->stride[0] + k * w->dilation[0] - w->pad_begin[0];
            on += row >= 0 && row < w->in[0];
        }
    return 10 * on / (w->out[0] * w->kernel[0]);
}

/* … also what lies under several taps, or some of the pixels, which is copied first. It should not
 * come back from memory, nor be the most of what a small model needs. */
static bool worth_copying(const op_conv *conv, const cpu_gemm_args *g)
{
    enum { MOST = 8 << 20 };
    return conv->c % OP_BLOCK == 0 && conv->w.taps <= CPU_PAIRED_TAPS && g->n >= 96 &&
           g->k >= 128 && (size_t)(g->m * g->k) <= MOST / sizeof(float) &&
           tenths_on_image(&conv->w) >= 8;
}

/* Is every pixel of the input one of the output? */
static bool is_pointwise(const op_window *w)
{
    return w->taps == 1 && w->stride[0] == 1 && w->stride[1] == 1 && w->out_size == w->in_size;
}

static op_product product_of(const op_conv *conv)
{
    int64_t k = conv->c * conv->w.taps;
    return (op_product){.g = {.m = conv->w.out_size, .n = conv->m, .k = k, .b_row = 1, .b_col = k},
                        .batch = 1};
}

bool op_blocked_paired_suits(op_lower *c, const op_conv *conv)
{
    cpu_epilogue e;
    op_product p = product_of(conv);
    bool fits = conv->n == 1 && conv->group == 1 && c->in[0].type.shape.rank == 5;
    return fits && (is_pointwise(&conv->w) || worth_copying(conv, &p.g)) &&
           op_lower_is_weight(c, 1) && worth(c, &p.g) && op_paired_can(c, &p) &&
           ends_in_registers(c, &e);
}

/* What lies under each tap, as an image with so many times the channels. */
static tacit_status emit_taps(op_lower *c, const op_conv *conv, size_t scratch)
{
    const op_window *w = &conv->w;
    uint64_t images = (uint64_t)(op_blocks(conv->c) * w->taps);
    cpu_blocked_taps_args *a =
        op_lower_thunk(c, "blocked_taps", cpu_blocked_taps, sizeof *a, (uint32_t)images);
    if (!a)
        return TACIT_ERR_MEMORY;
    for (int i = 0; i < 2; i++) {
        a->in[i] = w->in[i], a->out[i] = w->out[i];
        a->kernel[i] = w->kernel[i], a->stride[i] = w->stride[i];
        a->dilation[i] = w->dilation[i], a->pad[i] = w->pad_begin[i];
    }
    TRY(op_lower_in(c, offsetof(cpu_blocked_taps_args, x), 0));
    TRY(op_lower_scratch(c, offsetof(cpu_blocked_taps_args, y), scratch, true));
    op_lower_cost(c, 0, 2 * images * (uint64_t)(w->out_size * OP_BLOCK) * sizeof(float));
    return TACIT_OK;
}

tacit_status op_lower_blocked_paired(op_lower *c, const op_conv *conv, const float *bias)
{
    int64_t pixels = conv->w.out_size, plane = pixels * OP_BLOCK;
    bool copied = !is_pointwise(&conv->w);
    op_product p = product_of(conv);
    op_paired d = {.product = &p,
                   .whole = true,
                   .taps = conv->w.taps,
                   .a = {.bias = bias,
                         .a_row = OP_BLOCK,
                         .a_col = 1,
                         .a_run = plane,
                         .c_row = OP_BLOCK,
                         .c_vector = plane,
                         .terms = cpu_terms_of(&c->cpu),
                         .residual_row = OP_BLOCK}};
    size_t taps = 0;
    if (copied) {
        taps = op_lower_reserve(c, (size_t)(p.g.k * pixels) * sizeof(float));
        TRY(emit_taps(c, conv, taps));
    }
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
    if (copied)
        TRY(op_lower_scratch(c, offsetof(cpu_paired_args, a), taps, false));
    else
        TRY(op_lower_in(c, offsetof(cpu_paired_args, a), 0));
    if (op_lower_has(c, 3))
        TRY(op_lower_in_tiled(c, offsetof(cpu_paired_args, residual), 3, run, run));
    TRY(op_lower_out_tiled(c, offsetof(cpu_paired_args, c), 0, run, run));
    TRY(op_lower_out_tiled(c, offsetof(cpu_paired_args, y), 0, run, run));
    op_lower_cost(c, 2.0 * (double)(conv->m * pixels) * (double)p.g.k,
                  op_lower_bytes(&c->in[0]) + op_lower_bytes(&c->in[1]) +
                      op_lower_bytes(&c->out[0]));
    op_lower_note(c, "paired_f32_%s: %lld channels of %lld pixels, sums of %lld%s; %s",
                  cpu_isa_name(c->cpu.isa), (long long)conv->m, (long long)pixels, (long long)p.g.k,
                  copied ? ", what lies under each tap copied" : "",
                  op_paired_sums_note(d.a.terms));
    return TACIT_OK;
}
