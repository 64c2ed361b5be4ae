/* SPDX-License-Identifier: Apache-2.0
 * Products with a constant right side whose terms are multiplied in pairs (cpu/paired.h). */
#include "cpu/paired.h"
#include "op/lowerings.h"
#include "op/product.h"

typedef struct paired {
    const op_product *product;
    cpu_paired_args a;
    int64_t padded, blocks, tiles; /* columns, blocks of K, register tiles */
    size_t left, products, back;   /* places in the scratch */
} paired;

bool op_paired_can(const op_lower *c, const op_product *p)
{
    return p->batch == 1 && p->g.m > 0 && p->g.n > 0 && !c->batch_invariant && !c->plain_sums;
}

/* Where it was measured to be faster: a few register tiles of rows share what is made of B, and a
 * few panels what is made of A. */
bool op_paired_suits(const op_lower *c, const op_product *p)
{
    return c->cpu.adds_beside_fma && c->cpu.isa == CPU_AVX512 && p->g.m >= 14 && p->g.n >= 96 &&
           p->g.k >= 128;
}

/* Tiles of 20 µs or more, about 24 of them where the product is large. By shape alone. */
static void cut(paired *d, cpu_isa isa)
{
    enum { ROWS = 144, L2 = 100000, MOST = 4096 }; /* floats */
    cpu_paired_args *a = &d->a;
    int64_t width = cpu_paired_width(isa), panels = (a->n + width - 1) / width;
    d->tiles = cpu_paired_tiles(a->m, cpu_paired_height(isa));
    int64_t blocks = (a->m + ROWS - 1) / ROWS;
    a->block_tiles = (d->tiles + blocks - 1) / blocks;
    a->row_blocks = (uint32_t)((d->tiles + a->block_tiles - 1) / a->block_tiles);
    int64_t rows = (a->m + a->row_blocks - 1) / a->row_blocks;
    double panel_ns = (double)(a->k * width * rows) / 75.0;
    int64_t least = (int64_t)(20000 / panel_ns) + 1;
    int64_t wanted = a->row_blocks >= 24 ? 1 : 24 / a->row_blocks;
    int64_t columns = panels / least;
    columns = columns < 1 ? 1 : columns > wanted ? wanted : columns;
    a->block_cols = (panels + columns - 1) / columns * width;
    int64_t most = L2 / rows;
    most = most < CPU_GEMM_KC ? CPU_GEMM_KC : most > MOST ? MOST : most;
    d->blocks = (a->k + most - 1) / most;
    a->kc = cpu_paired_whole((a->k + d->blocks - 1) / d->blocks);
    d->blocks = (a->k + a->kc - 1) / a->kc;
    int64_t vector = cpu_paired_vector(isa);
    d->padded = (a->n + vector - 1) / vector * vector;
}

/* The right side is packed piece by piece, and the pages each piece came from are dropped. */
static tacit_status pack_right(op_lower *c, paired *d)
{
    const cpu_gemm_args *g = &d->product->g;
    cpu_isa isa = c->cpu.isa;
    int64_t width = cpu_paired_width(isa), panels = (g->n + width - 1) / width;
    const float *b = c->in[1].constant->data;
    float *packed = op_lower_pack(c, (size_t)(d->padded * cpu_paired_whole(g->k)) * sizeof *packed);
    float *products = op_lower_pack(c, (size_t)(2 * d->blocks * d->padded) * sizeof *products);
    if (!packed || !products)
        return TACIT_ERR_MEMORY;
    float *back = products + d->blocks * d->padded;
    cpu_paired_right_args a = {.b = b,
                               .packed = packed,
                               .products = products,
                               .back = back,
                               .n = g->n,
                               .k = g->k,
                               .b_row = g->b_row,
                               .b_col = g->b_col,
                               .kc = d->a.kc,
                               .k_end = g->k};
    cpu_kernel pack = CPU_PICK(isa, cpu_paired_right_f32);
    if (g->b_col == 1) { /* rows of B are adjacent: a block of K is one range of bytes */
        for (int64_t k = 0; k < g->k; k += a.kc) {
            a.k_begin = k;
            a.k_end = k + a.kc < g->k ? k + a.kc : g->k;
            TRY(op_lower_later(c, pack, &a, sizeof a, 0, (uint32_t)panels, b + k * g->b_row,
                               (size_t)((a.k_end - k) * g->b_row) * sizeof *b));
        }
    } else { /* columns are: some panels are one range of bytes */
        enum { PANELS = 24 };
        for (int64_t j = 0; j < panels; j += PANELS) {
            int64_t end = j + PANELS < panels ? j + PANELS : panels;
            int64_t columns = (end * width < g->n ? end * width : g->n) - j * width;
            TRY(op_lower_later(c, pack, &a, sizeof a, (uint32_t)j, (uint32_t)end,
                               g->b_row == 1 ? b + j * width * g->b_col : NULL,
                               (size_t)(columns * g->b_col) * sizeof *b));
        }
    }
    d->a.right = packed;
    d->a.right_products = products;
    d->a.right_back = back;
    return TACIT_OK;
}

/* The thunk that scales the rows of A. */
static tacit_status emit_left(op_lower *c, paired *d)
{
    const cpu_gemm_args *g = &d->product->g;
    cpu_isa isa = c->cpu.isa;
    size_t sums = (size_t)(d->blocks * g->m) * sizeof(float);
    size_t bytes = (size_t)(g->m * cpu_paired_whole(g->k)) * sizeof(float);
    d->left = op_lower_reserve(c, bytes);
    d->products = op_lower_reserve(c, sums);
    d->back = op_lower_reserve(c, sums);
    int64_t group = 32768 / (cpu_paired_height(isa) * g->k) + 1; /* about 5 µs */
    cpu_paired_left_args *a =
        op_lower_thunk(c, CPU_PICK_NAME(isa, paired_left_f32), CPU_PICK(isa, cpu_paired_left_f32),
                       sizeof *a, (uint32_t)((d->tiles + group - 1) / group));
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = (cpu_paired_left_args){
        .m = g->m, .k = g->k, .a_row = g->a_row, .a_col = g->a_col, .kc = d->a.kc, .group = group};
    TRY(op_lower_in(c, offsetof(cpu_paired_left_args, a), 0));
    TRY(op_lower_scratch(c, offsetof(cpu_paired_left_args, scaled), d->left, true));
    TRY(op_lower_scratch(c, offsetof(cpu_paired_left_args, products), d->products, true));
    TRY(op_lower_scratch(c, offsetof(cpu_paired_left_args, back), d->back, true));
    op_lower_cost(c, 0, 2 * bytes);
    return TACIT_OK;
}

static tacit_status emit_product(op_lower *c, paired *d)
{
    const op_product *p = d->product;
    const cpu_gemm_args *g = &p->g;
    cpu_isa isa = c->cpu.isa;
    uint32_t columns = (uint32_t)((g->n + d->a.block_cols - 1) / d->a.block_cols);
    cpu_paired_args *a =
        op_lower_thunk(c, CPU_PICK_NAME(isa, paired_f32), CPU_PICK(isa, cpu_paired_f32), sizeof *a,
                       d->a.row_blocks * columns);
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = d->a;
    TRY(op_lower_scratch(c, offsetof(cpu_paired_args, left), d->left, false));
    TRY(op_lower_scratch(c, offsetof(cpu_paired_args, left_products), d->products, false));
    TRY(op_lower_scratch(c, offsetof(cpu_paired_args, left_back), d->back, false));
    if (p->bias >= 0)
        TRY(op_lower_in(c, offsetof(cpu_paired_args, bias), (uint32_t)p->bias));
    if (p->residual >= 0)
        TRY(op_lower_in(c, offsetof(cpu_paired_args, residual), (uint32_t)p->residual));
    TRY(op_lower_out(c, offsetof(cpu_paired_args, y), 0));
    if (p->residual >= 0 && cpu_late_residual(&g->epilogue)) {
        size_t bytes = (size_t)(g->m * g->c_row) * sizeof(float);
        return op_lower_scratch(c, offsetof(cpu_paired_args, c), op_lower_reserve(c, bytes), true);
    }
    return op_lower_out(c, offsetof(cpu_paired_args, c), 0);
}

tacit_status op_lower_paired(op_lower *c, const op_product *p)
{
    const cpu_gemm_args *g = &p->g;
    paired d = {.product = p,
                .a = {.bias = p->packed_bias,
                      .m = g->m,
                      .n = g->n,
                      .k = g->k,
                      .c_row = g->c_row,
                      .residual_row = g->residual_row,
                      .epilogue = g->epilogue}};
    cut(&d, c->cpu.isa);
    TRY(pack_right(c, &d));
    TRY(emit_left(c, &d));
    TRY(emit_product(c, &d));
    uint64_t bytes = op_lower_bytes(&c->out[0]);
    for (uint32_t i = 0; i < c->node->n_inputs; i++)
        if (op_lower_has(c, i))
            bytes += op_lower_bytes(&c->in[i]);
    op_lower_cost(c, 2.0 * (double)g->m * (double)g->n * (double)g->k, bytes);
    op_lower_note(c,
                  "paired_f32_%s %lldx%lldx%lld, B scaled and packed at compile time, K in %lld "
                  "blocks; two of three columns multiply once for two terms, since additions run "
                  "beside multiplications here",
                  cpu_isa_name(c->cpu.isa), (long long)g->m, (long long)g->n, (long long)g->k,
                  (long long)d.blocks);
    return TACIT_OK;
}
