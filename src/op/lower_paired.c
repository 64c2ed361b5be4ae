/* SPDX-License-Identifier: Apache-2.0
 * Products with a constant right side whose terms are multiplied in pairs (cpu/paired.h). */

#include "op/lowerings.h"
#include "op/product.h"

enum { SCALED = 9 }; /* panels that are worth scaling rows for */

bool op_paired_can(const op_lower *c, const op_product *p)
{
    return p->batch == 1 && p->g.m > 0 && p->g.n > 0 && p->g.k > 0 && !c->batch_invariant &&
           !c->plain_sums && op_lower_is_weight(c, 1);
}

/* Where it was measured to be faster: enough rows share what is read of B, and enough panels what
 * is made of A; with fewer columns sums must be long. */
bool op_paired_suits(const op_lower *c, const op_product *p)
{
    const cpu_gemm_args *g = &p->g;
    int64_t few = c->cpu.wide_pipes ? 4 : 5;
    bool wide = g->m >= few && g->n >= 96 && g->k >= 64;
    return c->cpu.isa == CPU_AVX512 && (wide || (g->m >= 14 && g->n >= 64 && g->k >= 64));
}

/* Rows of an even number of about equal blocks, `least` of them or a few more, whichever has fewer
 * register tiles. */
static int64_t even_rows(int64_t m, int64_t least, int64_t height)
{
    int64_t best = m, fewest = INT64_MAX;
    for (int64_t blocks = (least + 1) / 2 * 2; blocks <= least + 3; blocks += 2) {
        int64_t rows = (m + blocks - 1) / blocks;
        int64_t tiles = m / rows * cpu_paired_tiles(rows, height);
        tiles += cpu_paired_tiles(m % rows, height);
        best = tiles < fewest ? rows : best;
        fewest = tiles < fewest ? tiles : fewest;
    }
    return best;
}

/* Rows of whole register tiles, in as few blocks of at most `most` as there can be. */
static int64_t whole_rows(int64_t m, int64_t most, int64_t height)
{
    most = most < CPU_PAIRED_ROWS ? most : CPU_PAIRED_ROWS;
    int64_t blocks = (m + most / height * height - 1) / (most / height * height);
    return ((m + blocks - 1) / blocks + height - 1) / height * height;
}

/* Rows in blocks, as many in one as may be scaled at a time with K in blocks of DEPTH: few blocks
 * are an even number unless columns are, many are of whole register tiles. Then columns so that
 * there are about 48 tiles where the product is large. A tile takes TILE_NS or more. Few panels, of
 * which one thread would have one more than another, are cut in two parts. So is, for wide pipes,
 * an only block of HALF register tiles or more, whose rows two threads would scale both: then each
 * has a part, and all columns. A right side that no cache holds, for wide pipes not the core's own
 * one, is read once: its columns in blocks, all rows by each. By shape and caches alone; rows and K
 * by shape, since the order of sums hangs on them. */
static void cut(const op_lower *c, op_paired *d)
{
    enum { DEPTH = 1024, FLAT = 768, TILE_NS = 5000, TILES = 48, PANELS = 36 };
    enum { FEW_BLOCKS = 8, FEW_PANELS = 12, SMALL = 1 << 18, LARGE = 1 << 20, HALF = 6 };
    cpu_isa isa = c->cpu.isa;
    cpu_paired_args *a = &d->a;
    int64_t height = cpu_paired_height(isa), width = cpu_paired_width(isa);
    int64_t panels = (a->n + width - 1) / width;
    bool near = a->terms == CPU_TERMS_PAIRED; /* L3 is nearly as fast as L2 there */
    int64_t left = near ? CPU_PAIRED_LEFT_NEAR : CPU_PAIRED_LEFT;
    int64_t depth_most = near ? DEPTH : FLAT;
    int64_t deep = a->k < depth_most ? a->k : depth_most, most = left / cpu_paired_whole(deep);
    most = most < CPU_PAIRED_ROWS ? most : CPU_PAIRED_ROWS;
    int64_t blocks = (a->m + most - 1) / most;
    uint64_t right = (uint64_t)(a->n * a->k) * sizeof(float);
    bool wide = a->terms == CPU_TERMS_WIDE;
    /* One block is cut by columns, so its rows go to both threads; but B is read once then, which
     * wide pipes feel more unless it is small. */
    bool few_rows = d->whole ? panels >= FEW_PANELS || a->m < 4 * height : a->m < 8 * height;
    bool once = wide ? right > SMALL : !near;
    bool alone = blocks == 1 && (few_rows || once);
    int64_t rows = most / height * height;
    if (blocks < FEW_BLOCKS)
        rows = alone ? a->m : even_rows(a->m, blocks, height);
    int64_t depth = left / rows / CPU_PAIRED_RUN * CPU_PAIRED_RUN;
    int64_t parts = (a->k + depth - 1) / depth; /* of K */
    a->kc = cpu_paired_whole((a->k + parts - 1) / parts);
    bool far = near ? op_lower_exceeds_cache(c, right) : op_lower_exceeds_core(c, right);
    if (wide && blocks > 1 && blocks < FEW_BLOCKS && panels > PANELS && right > LARGE)
        rows = whole_rows(a->m, left / a->kc, height);
    a->block_rows = rows;
    blocks = (a->m + rows - 1) / rows;
    a->row_blocks = (uint32_t)blocks;
    a->columns_first = blocks > 1 && far;
    double panel_ns = (double)(a->k * width * rows) / 75.0;
    int64_t least = (int64_t)(TILE_NS / panel_ns) + 1, columns = panels / least;
    int64_t wanted = blocks >= TILES ? 1 : TILES / blocks;
    a->far_sums = wide && op_lower_exceeds_core(c, (uint64_t)(a->m * a->n) * sizeof(float));
    if (a->columns_first)
        wanted = (panels + PANELS - 1) / PANELS;
    if (wide && a->columns_first && blocks % 2 && wanted % 2 && wanted > 1)
        wanted--; /* as below, but by more columns: a last block of a few would be uneven */
    columns = columns < 1 ? 1 : columns > wanted ? wanted : columns;
    int64_t tile = (panels + columns - 1) / columns; /* panels of it */
    if (tile > 1 && blocks % 2 && (panels + tile - 1) / tile % 2)
        tile--; /* for two threads */
    a->block_cols = tile * width;
    a->col_blocks = (uint32_t)((a->n + a->block_cols - 1) / a->block_cols);
    bool few = !d->whole && !a->columns_first && a->block_cols == width &&
               blocks * panels < TILES && panel_ns > TILE_NS && a->block_rows > height;
    a->parts_last = wide && blocks == 1 && !d->whole && cpu_paired_tiles(rows, height) >= HALF;
    a->parts = few || a->parts_last ? 2 : 1;
    int64_t scaled = a->parts_last ? 2 * SCALED : SCALED; /* half as many rows */
    d->together = a->columns_first ? 1 : (uint32_t)(scaled * width / a->block_cols) * a->parts;
}

/* Columns need all rows of a block to be scaled. Of a wide B that would be much at a time, compared
 * with all there is: if there is enough else it is packed early, by columns, while little else is
 * packed; otherwise its rows are copied first. */
enum right_way { RIGHT_BLOCKS, RIGHT_COLUMNS, RIGHT_ROWS };

static enum right_way right_way_of(const op_lower *c, const op_job *job,
                                   const cpu_paired_right_args *a)
{
    enum { LITTLE = 1 << 20, MUCH = 1 << 22 }; /* floats */
    size_t share = c->constant_bytes / 32 / sizeof(float);
    size_t much = share < LITTLE ? LITTLE : share > MUCH ? MUCH : share;
    if (a->b_col != 1)
        return RIGHT_COLUMNS;
    if ((size_t)(a->kc * a->n) <= much)
        return RIGHT_BLOCKS;
    bool alone = job->bytes > c->constant_bytes / 4 || ir_tensor_is_late(job->weight);
    return alone ? RIGHT_ROWS : RIGHT_COLUMNS;
}

/* Panels of all rows at a time: rows are resident until all is packed. */
static tacit_status pack_columns(op_lower *c, const op_job *all)
{
    enum { PANELS = 32 };
    op_job job = *all;
    job.ahead = true;
    job.bytes = 0;
    for (job.begin = 0; job.begin < all->end; job.begin = job.end) {
        job.end = job.begin + PANELS < all->end ? job.begin + PANELS : all->end;
        TRY(op_lower_later(c, &job));
    }
    return TACIT_OK;
}

static tacit_status pack_rows(op_lower *c, op_job *job, cpu_paired_right_args *a, bool whole)
{
    enum { PIECE = 1 << 18, PANELS = 64, AHEAD = 4 << 20 }; /* floats; panels; bytes */
    int64_t step = whole ? a->kc : PIECE / a->n + 1;
    a->part = whole ? CPU_PAIRED_BOTH : CPU_PAIRED_COPY;
    for (int64_t k = 0; k < a->k; k = a->k_end) {
        int64_t block = k / a->kc * a->kc + a->kc, end = k + step < block ? k + step : block;
        a->k_begin = k;
        a->k_end = end < a->k ? end : a->k;
        job->first = (size_t)(k * a->n) * sizeof(float);
        job->bytes = (size_t)((a->k_end - k) * a->n) * sizeof(float);
        job->ahead = job->bytes > AHEAD;
        TRY(op_lower_later(c, job));
    }
    a->part = CPU_PAIRED_SCALE;
    a->k_begin = 0;
    op_job scale = *job;
    scale.second = true;
    scale.bytes = 0;
    for (uint32_t j = 0; !whole && j < job->end; j += PANELS) {
        scale.begin = j;
        scale.end = j + PANELS < job->end ? j + PANELS : job->end;
        TRY(op_lower_later(c, &scale));
    }
    return TACIT_OK;
}

/* After scaling: if that comes second one job after all others, otherwise one for each part, of
 * which each gives back a part of what was `read` by all. */
static tacit_status mark_columns(op_lower *c, op_job job, int64_t n, enum right_way way,
                                 size_t read)
{
    uint32_t tiles = cpu_paired_marks(n), each = way == RIGHT_COLUMNS ? 1 : tiles;
    job.fn = CPU_PICK(c->cpu.isa, cpu_paired_mark_f32);
    job.bytes = read / tiles * each;
    job.second = true;
    job.last = each == tiles;
    for (job.begin = 0; job.begin < tiles; job.begin += each) {
        job.end = job.begin + each;
        job.first = read / tiles * job.begin;
        TRY(op_lower_later(c, &job));
    }
    return TACIT_OK;
}

/* The right side is packed piece by piece, and the pages each piece came from are dropped. */
tacit_status op_paired_pack(op_lower *c, op_paired *d)
{
    const cpu_gemm_args *g = &d->product->g;
    cpu_isa isa = c->cpu.isa;
    int64_t width = cpu_paired_width(isa), panels = (g->n + width - 1) / width;
    int64_t vector = cpu_paired_vector(isa);
    d->padded = (g->n + vector - 1) / vector * vector;
    d->blocks = (g->k + d->a.kc - 1) / d->a.kc;
    float *packed =
        op_lower_pack_later(c, (size_t)(d->padded * cpu_paired_whole(g->k)) * sizeof *packed);
    float *products =
        op_lower_pack_later(c, (size_t)(2 * d->blocks * d->padded) * sizeof *products);
    if (!packed || !products)
        return TACIT_ERR_MEMORY;
    float *back = products + d->blocks * d->padded;
    cpu_paired_right_args a = {.packed = packed,
                               .products = products,
                               .back = back,
                               .n = g->n,
                               .k = g->k,
                               .b_row = g->b_row,
                               .b_col = g->b_col,
                               .kc = d->a.kc,
                               .k_end = g->k,
                               .taps = d->taps,
                               .unscaled = d->a.unscaled};
    op_job job = op_lower_job(c, 1, CPU_PICK(isa, cpu_paired_right_f32), &a, sizeof a,
                              offsetof(cpu_paired_right_args, b));
    job.end = (uint32_t)panels;
    enum right_way way = right_way_of(c, &job, &a);
    size_t read = way == RIGHT_COLUMNS && g->b_col == 1 ? job.bytes : 0;
    if (g->b_col != 1) {
        TRY(op_product_columns_later(c, &job, g, width));
    } else if (way == RIGHT_COLUMNS) {
        TRY(pack_columns(c, &job));
    } else { /* rows of B are adjacent: a block of K is one range of bytes */
        TRY(pack_rows(c, &job, &a, way == RIGHT_BLOCKS));
    }
    TRY(mark_columns(c, job, g->n, way, read));
    d->a.packed = packed;
    d->a.products = products;
    d->a.back = back;
    return TACIT_OK;
}

tacit_status op_paired_bind(op_lower *c, const op_product *p, size_t at, uint64_t a_run,
                            uint64_t c_run, size_t sums)
{
    TRY(op_lower_in_tiled(c, at + offsetof(cpu_paired_args, a), 0, a_run, a_run));
    if (p->bias >= 0)
        TRY(op_lower_in(c, at + offsetof(cpu_paired_args, bias), (uint32_t)p->bias));
    if (p->residual >= 0)
        TRY(op_lower_in_tiled(c, at + offsetof(cpu_paired_args, residual), (uint32_t)p->residual,
                              c_run, c_run));
    TRY(op_lower_out_tiled(c, at + offsetof(cpu_paired_args, y), 0, c_run, c_run));
    if (p->residual >= 0 && cpu_late_residual(&p->g.epilogue))
        return op_lower_scratch(c, at + offsetof(cpu_paired_args, c), sums, true);
    return op_lower_out_tiled(c, at + offsetof(cpu_paired_args, c), 0, c_run, c_run);
}

size_t op_paired_sums(op_lower *c, const op_product *p)
{
    const cpu_gemm_args *g = &p->g;
    bool late = p->residual >= 0 && cpu_late_residual(&g->epilogue);
    return late ? op_lower_reserve(c, (size_t)(g->m * g->c_row) * sizeof(float)) : 0;
}

static tacit_status emit_product(op_lower *c, op_paired *d)
{
    const op_product *p = d->product;
    const cpu_gemm_args *g = &p->g;
    cpu_isa isa = c->cpu.isa;
    cpu_paired_args *a =
        op_lower_thunk(c, CPU_PICK_NAME(isa, paired_f32), CPU_PICK(isa, cpu_paired_f32), sizeof *a,
                       d->a.row_blocks * d->a.col_blocks * d->a.parts);
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = d->a;
    op_lower_together(c, d->together);
    uint64_t a_run = 0, c_run = 0;
    if (d->a.col_blocks * d->a.parts == 1) { /* tiles are runs of as many rows each */
        c_run = (uint64_t)(d->a.block_rows * g->c_row) * sizeof(float);
        if (g->a_col == 1 && g->a_row >= g->k)
            a_run = (uint64_t)(d->a.block_rows * g->a_row) * sizeof(float);
    }
    return op_paired_bind(c, p, 0, a_run, c_run, op_paired_sums(c, p));
}

tacit_status op_paired_prepare(op_lower *c, op_paired *d)
{
    const cpu_gemm_args *g = &d->product->g;
    d->a.m = g->m, d->a.n = g->n, d->a.k = g->k;
    d->a.unscaled = d->a.terms == CPU_TERMS_PLAIN;
    d->a.streamed = op_lower_streams(c) || d->a.terms == CPU_TERMS_PLAIN;
    cut(c, d);
    return op_paired_pack(c, d);
}

op_paired op_paired_of(const op_lower *c, const op_product *p)
{
    const cpu_gemm_args *g = &p->g;
    return (op_paired){.product = p,
                       .a = {.bias = p->packed_bias,
                             .a_row = g->a_row,
                             .a_col = g->a_col,
                             .a_run = g->a_col * CPU_PAIRED_RUN,
                             .c_row = g->c_row,
                             .c_vector = cpu_paired_vector(c->cpu.isa),
                             .terms = cpu_terms_of(&c->cpu),
                             .residual_row = g->residual_row,
                             .epilogue = g->epilogue}};
}

const char *op_paired_sums_note(cpu_terms terms)
{
    return terms == CPU_TERMS_PLAIN
               ? "sums go term by term, from rows that are turned"
               : "two of three sums multiply once for two terms, since additions run beside "
                 "multiplications here";
}

tacit_status op_lower_paired(op_lower *c, const op_product *p)
{
    const cpu_gemm_args *g = &p->g;
    op_paired d = op_paired_of(c, p);
    TRY(op_paired_prepare(c, &d));
    TRY(emit_product(c, &d));
    op_lower_cost(c, 2.0 * (double)g->m * (double)g->n * (double)g->k, op_lower_all_bytes(c));
    op_lower_note(
        c, "paired_f32_%s %lldx%lldx%lld, B %spacked at compile time, K in %lld blocks; %s",
        cpu_isa_name(c->cpu.isa), (long long)g->m, (long long)g->n, (long long)g->k,
        d.a.unscaled ? "" : "scaled and ", (long long)d.blocks, op_paired_sums_note(d.a.terms));
    return TACIT_OK;
}
