/* SPDX-License-Identifier: Apache-2.0
 * Products with a constant right side as seven products of halves (cpu/halved.h). */
#include "op/lowerings.h"
#include "op/product.h"

bool op_halved_can(const op_lower *c, const op_product *p)
{
    const cpu_gemm_args *g = &p->g;
    return op_paired_can(c, p) && g->a_col == 1 && g->k % CPU_HALVED_WHOLE == 0 &&
           g->m >= cpu_halved_group(c->cpu.isa) && g->n >= 2 * cpu_paired_width(c->cpu.isa);
}

/* Of a block of K; blocks are about equal. */
static int64_t depth(int64_t k)
{
    int64_t blocks = (k + CPU_HALVED_DEPTH - 1) / CPU_HALVED_DEPTH, whole = CPU_HALVED_WHOLE;
    return ((k + blocks - 1) / blocks + whole - 1) / whole * whole;
}

static size_t left_bytes(cpu_isa isa, const cpu_gemm_args *g)
{
    int64_t groups = g->m / cpu_halved_group(isa);
    return (size_t)(groups * cpu_halved_left(isa, depth(g->k))) * sizeof(float);
}

/* Where it was measured to be faster: enough rows share the pieces that are made of B (fewer do
 * where B comes from memory and its kernels wait for it), enough columns those of A, and sums are
 * long beside what is added to C. And where the pieces of A are little, or little beside the
 * weights: else they would be the most of a small model's memory. Wide pipes wait for the pieces of
 * A longer than they save. */
bool op_halved_suits(const op_lower *c, const op_product *p)
{
    enum { ROWS = 240, FEW_ROWS = 120, COLUMNS = 256, DEPTH = 256, SHARE = 32, LITTLE = 2 << 20 };
    const cpu_gemm_args *g = &p->g;
    /* by no cache's own size: products by halves round differently */
    bool far = (uint64_t)(g->n * g->k) * sizeof(float) > CPU_CACHE_DEFAULT / 2;
    size_t most = c->constant_bytes / SHARE > LITTLE ? c->constant_bytes / SHARE : LITTLE;
    return cpu_terms_of(&c->cpu) == CPU_TERMS_PAIRED && op_halved_can(c, p) &&
           op_paired_suits(c, p) && g->m >= (far ? FEW_ROWS : ROWS) && g->n >= COLUMNS &&
           g->k >= DEPTH && left_bytes(c->cpu.isa, g) <= most;
}

/* Two panels are a tile, with all rows or, if there are few, with half of them: what is made of B
 * is made once or twice. By shape alone. */
static void cut(cpu_isa isa, const cpu_gemm_args *g, op_paired *d, cpu_halved_args *h)
{
    enum { TILES = 12, GROUPS = 8 };
    cpu_paired_args *a = &d->a;
    int64_t pair = 2 * cpu_paired_width(isa), groups = g->m / cpu_halved_group(isa);
    a->m = g->m, a->n = g->n, a->k = g->k;
    a->kc = depth(g->k);
    a->block_cols = pair;
    a->col_blocks = (uint32_t)((g->n + pair - 1) / pair);
    a->row_blocks = a->col_blocks < TILES && groups >= GROUPS ? 2 : 1;
    int64_t most = CPU_PAIRED_LEFT_NEAR / a->kc, group = cpu_halved_group(isa);
    a->block_rows = (most < CPU_PAIRED_ROWS ? most : CPU_PAIRED_ROWS) / group * group;
    h->block_groups = groups / a->row_blocks;
}

/* The share that the present block of K has of `bytes`. */
static uint64_t share_now(const cpu_halved_args *h, uint64_t bytes)
{
    return (uint64_t)((double)bytes * (double)cpu_halved_columns(h) / (double)h->p.k);
}

/* What the two kernels of one block of K share. */
typedef struct scratch {
    size_t left, rows, sums;
} scratch;

static tacit_status emit_left(op_lower *c, const cpu_halved_args *h, const scratch *s)
{
    cpu_isa isa = c->cpu.isa;
    uint32_t groups = (uint32_t)(h->p.m / cpu_halved_group(isa));
    cpu_halved_args *a = op_lower_thunk(c, CPU_PICK_NAME(isa, halved_left_f32),
                                        CPU_PICK(isa, cpu_halved_left_f32), sizeof *a, groups);
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = *h;
    TRY(op_lower_in(c, offsetof(cpu_halved_args, p.a), 0));
    TRY(op_lower_scratch(c, offsetof(cpu_halved_args, left), s->left, true));
    TRY(op_lower_scratch(c, offsetof(cpu_halved_args, rows), s->rows, true));
    op_lower_cost(c, 9.0 * (double)(h->p.m * cpu_halved_columns(h)),
                  share_now(h, op_lower_bytes(&c->in[0])));
    return TACIT_OK;
}

static tacit_status emit_product(op_lower *c, const op_product *p, const cpu_halved_args *h,
                                 const scratch *s)
{
    cpu_isa isa = c->cpu.isa;
    cpu_halved_args *a =
        op_lower_thunk(c, CPU_PICK_NAME(isa, halved_f32), CPU_PICK(isa, cpu_halved_f32), sizeof *a,
                       h->p.row_blocks * h->p.col_blocks);
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = *h;
    TRY(op_paired_bind(c, p, offsetof(cpu_halved_args, p), 0, 0, s->sums));
    TRY(op_lower_scratch(c, offsetof(cpu_halved_args, left), s->left, false));
    TRY(op_lower_scratch(c, offsetof(cpu_halved_args, rows), s->rows, false));
    op_lower_cost(c, 2.0 * (double)p->g.m * (double)p->g.n * (double)cpu_halved_columns(h),
                  share_now(h, op_lower_all_bytes(c)));
    return TACIT_OK;
}

tacit_status op_lower_halved(op_lower *c, const op_product *p)
{
    cpu_isa isa = c->cpu.isa;
    const cpu_gemm_args *g = &p->g;
    op_paired d = op_paired_of(c, p);
    cpu_halved_args h = {0};
    cut(isa, g, &d, &h);
    TRY(op_paired_pack(c, &d));
    h.p = d.a;
    size_t groups = (size_t)(g->m / cpu_halved_group(isa));
    scratch s = {.left = op_lower_reserve(c, left_bytes(isa, g)),
                 .rows = op_lower_reserve(c, groups * sizeof *h.rows),
                 .sums = op_paired_sums(c, p)};
    for (h.k0 = 0; h.k0 < g->k; h.k0 += d.a.kc) {
        TRY(emit_left(c, &h, &s));
        TRY(emit_product(c, p, &h, &s));
    }
    op_lower_note(c,
                  "halved_f32_%s %lldx%lldx%lld, B scaled and packed at compile time, K in %lld "
                  "blocks; seven products of halves instead of eight, and %s",
                  cpu_isa_name(isa), (long long)g->m, (long long)g->n, (long long)g->k,
                  (long long)d.blocks, op_paired_sums_note(d.a.terms));
    return TACIT_OK;
}
