/* SPDX-License-Identifier: Apache-2.0
 * tacit.DequantMatMul: with int8 activations the rows are quantised and the byte kernels run on
 * panels of the weights as they are stored. Otherwise the weights are widened into f32 panels. */
#include "cpu/gemm.h"
#include "cpu/qmm.h"
#include "op/lowerings.h"
#include "op/narrow_pack.h"

enum { BIAS = 4, RESIDUAL = 5 };

typedef struct narrow {
    op_narrow s;
    op_narrow_data d;
    int64_t m;
    cpu_epilogue epilogue;
} narrow;

/* Everything about the weight must be known: it is packed here. */
static bool weights_known(const op_lower *c)
{
    for (uint32_t i = 1; i <= 3; i++)
        if (op_lower_has(c, i) && !op_lower_known(c, i))
            return false;
    return true;
}

enum { PIECE = 1 << 19 }; /* bytes read by a job, about */

/* A job that reads the weight beside its scales and zero points, and knows the rest by `key_size`
 * bytes of its arguments. */
static op_job job_of(const op_lower *c, const narrow *p, cpu_kernel fn, void *args,
                     size_t args_size, size_t key_size)
{
    op_job job = op_lower_job(c, 1, fn, args, args_size, 0);
    job.key_size = key_size;
    job.beside[0] = p->d.scale;
    job.beside[1] = p->d.zero;
    return job;
}

/* By rows, a multiple of `whole` of them at a time; `begin` and `end` are where the job's arguments
 * say which, in units of `whole`. */
static tacit_status rows_later(op_lower *c, const narrow *p, op_job *job, int64_t whole,
                               int64_t *begin, int64_t *end)
{
    int64_t row = (int64_t)op_narrow_row_bytes(&p->s, &p->d), all = (p->s.k + whole - 1) / whole;
    int64_t step = PIECE / (row * whole + 1) + 1;
    for (*begin = 0; *begin < all; *begin = *end) {
        *end = *begin + step < all ? *begin + step : all;
        int64_t last = *end * whole < p->s.k ? *end * whole : p->s.k;
        job->first = (size_t)(*begin * whole * row);
        job->bytes = (size_t)(last * row) - job->first;
        TRY(op_lower_later(c, job));
    }
    return TACIT_OK;
}

static tacit_status columns_later(op_lower *c, const narrow *p, const op_job *job, int64_t width)
{
    size_t column = op_narrow_row_bytes(&p->s, &p->d);
    return op_lower_panels_later(c, job, width, p->s.n, column,
                                 PIECE / (width * (int64_t)column + 1) + 1);
}

static tacit_status pack(op_lower *c, const narrow *p, bool has_super, cpu_qdot_weights *w)
{
    int64_t width = cpu_qmm_width(&c->cpu), panels = (p->s.n + width - 1) / width;
    char *memory = op_lower_pack_later(c, cpu_qdot_place(w, width, panels, has_super, NULL));
    if (!memory)
        return TACIT_ERR_MEMORY;
    (void)cpu_qdot_place(w, width, panels, has_super, memory);
    op_narrow_pack_args a = {.memory = memory, .width = width, .s = p->s, .d = p->d, .w = *w};
    op_narrow_facts(&p->s, a.facts);
    a.g_end = w->groups;
    op_job job = job_of(c, p, op_narrow_pack, &a, sizeof a, offsetof(op_narrow_pack_args, s));
    job.end = (uint32_t)panels;
    return op_narrow_by_rows(&p->s) ? rows_later(c, p, &job, CPU_QGROUP, &a.g_begin, &a.g_end)
                                    : columns_later(c, p, &job, width);
}

/* Rows to bytes; returns where in the scratch the pieces are. */
typedef struct rows_at {
    size_t q, scale, halves;
} rows_at;

static tacit_status emit_rows(op_lower *c, const narrow *p, int64_t groups, rows_at *at)
{
    int64_t row = cpu_qmm_row(groups * CPU_QGROUP);
    at->q = op_lower_reserve(c, (size_t)(p->m * row));
    at->scale = op_lower_reserve(c, (size_t)(p->m * groups) * sizeof(float));
    at->halves = op_lower_reserve(c, (size_t)(p->m * groups) * 2 * sizeof(int32_t));
    int64_t tile_rows = 1 + 65536 / (p->s.k + 1);
    uint32_t tiles = (uint32_t)((p->m + tile_rows - 1) / tile_rows);
    cpu_qdot_rows_args *a =
        op_lower_thunk(c, "quantise_rows", CPU_QMM_PICK(&c->cpu, cpu_qdot_rows), sizeof *a, tiles);
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = (cpu_qdot_rows_args){.m = p->m,
                              .k = p->s.k,
                              .x_row = p->s.k,
                              .q_row = row,
                              .groups = groups,
                              .tile_rows = tile_rows};
    uint64_t run = (uint64_t)(tile_rows * p->s.k) * sizeof(float);
    TRY(op_lower_in_tiled(c, offsetof(cpu_qdot_rows_args, x), 0, run, run));
    TRY(op_lower_scratch(c, offsetof(cpu_qdot_rows_args, q), at->q, true));
    TRY(op_lower_scratch(c, offsetof(cpu_qdot_rows_args, scale), at->scale, true));
    TRY(op_lower_scratch(c, offsetof(cpu_qdot_rows_args, halves), at->halves, true));
    op_lower_cost(c, 4.0 * (double)(p->m * p->s.k), (uint64_t)(p->m * p->s.k) * 5);
    return TACIT_OK;
}

/* Tiles of about 10 µs: 40 bytes a ns where few rows use a panel, 200 products a ns else; an even
 * number of them, so that two threads have the same work. Of up to FEW_ROWS, limited by memory,
 * half as long ones, of which SHARE are better run in one call: while one thread waits the other
 * reads so much faster that cutting for balance costs more (two threads, a token of GPT-2: 1.11
 * to 1.08 ms). */
enum { FEW_ROWS = 4, SHARE = 4 };
static void cut(cpu_qdot_args *a, int64_t width)
{
    int64_t blocks = (a->m + CPU_QDOT_ROWS - 1) / CPU_QDOT_ROWS;
    a->tile_rows = ((a->m + blocks - 1) / blocks + 3) / 4 * 4;
    a->row_tiles = (uint32_t)((a->m + a->tile_rows - 1) / a->tile_rows);
    int64_t panels = (a->n + width - 1) / width, rows = a->m < a->tile_rows ? a->m : a->tile_rows;
    double weights = (double)(a->w.groups * CPU_QGROUP * width);
    double read = weights * a->w.bits / 8 / 40, multiply = weights * (double)rows / 200;
    double panel_ns = read > multiply ? read : multiply;
    double tile_ns = a->m <= FEW_ROWS ? 5000 : 10000;
    a->tile_panels = panel_ns > tile_ns ? 1 : (int64_t)(tile_ns / (panel_ns + 1)) + 1;
    int64_t most = 96 / a->row_tiles > 1 ? 96 / a->row_tiles : 1;
    int64_t tiles = (panels + a->tile_panels - 1) / a->tile_panels;
    tiles = tiles > most ? most : a->row_tiles == 1 && panels > 1 ? (tiles + 1) / 2 * 2 : tiles;
    a->tile_panels = (panels + tiles - 1) / tiles;
    a->col_tiles = (uint32_t)((panels + a->tile_panels - 1) / a->tile_panels);
}

static uint64_t packed_bytes(const op_lower *c)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < c->packed.count; i++)
        bytes += c->packed.data[i].bytes;
    return bytes;
}

static tacit_status emit_bytes(op_lower *c, narrow *p, const cpu_qdot_weights *w)
{
    rows_at at;
    TRY(emit_rows(c, p, w->groups, &at));
    cpu_qdot_args plan = {.m = p->m,
                          .n = p->s.n,
                          .q_row = cpu_qmm_row(w->groups * CPU_QGROUP),
                          .w = *w,
                          .epilogue = p->epilogue};
    cut(&plan, cpu_qmm_width(&c->cpu));
    cpu_qdot_args *a =
        op_lower_thunk(c,
                       w->bits == 8   ? "qdot_8"
                       : w->bits == 6 ? "qdot_6"
                                      : "qdot_4",
                       CPU_QMM_PICK(&c->cpu, cpu_qdot), sizeof *a, plan.row_tiles * plan.col_tiles);
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = plan;
    if (p->m <= FEW_ROWS) {
        op_lower_stream(c, w->data, (size_t)(plan.tile_panels * w->data_step));
        op_lower_together(c, SHARE);
    }
    TRY(op_lower_scratch(c, offsetof(cpu_qdot_args, q), at.q, false));
    TRY(op_lower_scratch(c, offsetof(cpu_qdot_args, row_scale), at.scale, false));
    TRY(op_lower_scratch(c, offsetof(cpu_qdot_args, halves), at.halves, false));
    if (op_lower_has(c, BIAS))
        TRY(op_lower_in(c, offsetof(cpu_qdot_args, bias), BIAS));
    if (op_lower_has(c, RESIDUAL))
        TRY(op_lower_in(c, offsetof(cpu_qdot_args, residual), RESIDUAL));
    TRY(op_lower_out(c, offsetof(cpu_qdot_args, y), 0));
    op_lower_cost(c, 2.0 * (double)p->m * (double)p->s.n * (double)p->s.k,
                  packed_bytes(c) + op_lower_bytes(&c->out[0]));
    op_lower_note(c,
                  "qdot_%d_%s %lldx%lldx%lld: weights stay in %d bits, rows become bytes; %u "
                  "tiles",
                  w->bits, cpu_qmm_isa(&c->cpu), (long long)p->m, (long long)p->s.n,
                  (long long)p->s.k, w->bits, plan.row_tiles * plan.col_tiles);
    return TACIT_OK;
}

/* --- f32 rows ----------------------------------------------------------------------------------
 */

/* f32 panels of a weight that the byte kernels cannot serve. */
static tacit_status widen(op_lower *c, const narrow *p, cpu_gemm_args *g)
{
    cpu_isa isa = c->cpu.isa;
    int64_t width = cpu_gemm_width(isa), panels = (g->n + width - 1) / width;
    float *packed = op_lower_pack_later(c, (size_t)(panels * width * g->k) * sizeof *packed);
    if (!packed)
        return TACIT_ERR_MEMORY;
    op_narrow_widen_args a = {.packed = packed,
                              .width = width,
                              .pack = CPU_PICK(isa, cpu_gemm_pack_f32),
                              .s = p->s,
                              .d = p->d};
    op_narrow_facts(&p->s, a.facts);
    op_job job = job_of(c, p, op_narrow_widen, &a, sizeof a, offsetof(op_narrow_widen_args, pack));
    job.end = (uint32_t)panels;
    g->packed = packed;
    return op_narrow_by_rows(&p->s) ? rows_later(c, p, &job, 1, &a.k_begin, &a.k_end)
                                    : columns_later(c, p, &job, width);
}

static tacit_status emit_wide(op_lower *c, narrow *p)
{
    cpu_gemm_args g = {.m = p->m,
                       .n = p->s.n,
                       .k = p->s.k,
                       .a_row = p->s.k,
                       .a_col = 1,
                       .c_row = p->s.n,
                       .residual_row = p->s.n,
                       .epilogue = p->epilogue};
    op_lower_cut(&g, 1, c->cpu.isa);
    TRY(widen(c, p, &g));
    cpu_gemm_args *a =
        op_lower_thunk(c, CPU_PICK_NAME(c->cpu.isa, gemm_f32), CPU_PICK(c->cpu.isa, cpu_gemm_f32),
                       sizeof *a, g.row_tiles * g.col_tiles);
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = g;
    TRY(op_lower_in(c, offsetof(cpu_gemm_args, a), 0));
    if (op_lower_has(c, BIAS))
        TRY(op_lower_in(c, offsetof(cpu_gemm_args, bias), BIAS));
    if (op_lower_has(c, RESIDUAL))
        TRY(op_lower_in(c, offsetof(cpu_gemm_args, residual), RESIDUAL));
    TRY(op_lower_out(c, offsetof(cpu_gemm_args, y), 0));
    if (op_lower_has(c, RESIDUAL) && cpu_late_residual(&g.epilogue))
        TRY(op_lower_scratch(c, offsetof(cpu_gemm_args, c),
                             op_lower_reserve(c, (size_t)(g.m * g.n) * sizeof(float)), true));
    else
        TRY(op_lower_out(c, offsetof(cpu_gemm_args, c), 0));
    op_lower_cost(c, 2.0 * (double)g.m * (double)g.n * (double)g.k,
                  packed_bytes(c) + op_lower_bytes(&c->out[0]));
    op_lower_note(c, "gemm_f32_%s %lldx%lldx%lld: weights widened at compile time",
                  cpu_isa_name(c->cpu.isa), (long long)g.m, (long long)g.n, (long long)g.k);
    return TACIT_OK;
}

tacit_status op_lower_narrow(op_lower *c)
{
    const ir_shape *x = &c->in[0].type.shape;
    narrow p = {0};
    if (c->in[0].type.dtype != TACIT_F32 || !weights_known(c))
        return OP_LOWER_NO_KERNEL;
    TRY(op_narrow_read(c->node, x->dims[x->rank - 1], &p.s, c->err));
    p.d = (op_narrow_data){op_lower_known(c, 1), op_lower_known(c, 2), op_lower_known(c, 3),
                           c->in[1].constant->data};
    p.m = ir_shape_size(x) / p.s.k;
    TRY(op_lower_epilogue(c, &p.epilogue));
    if (op_lower_has(c, BIAS))
        p.epilogue.bias = CPU_BIAS_COLUMN;
    if (p.m == 0)
        return TACIT_OK;
    if (p.m > INT32_MAX)
        return OP_LOWER_NO_KERNEL;
    cpu_qdot_weights w;
    bool super;
    if (!p.s.int8_rows || !op_narrow_layout(&p.s, &p.d, &w, &super))
        return emit_wide(c, &p);
    TRY(pack(c, &p, super, &w));
    return emit_bytes(c, &p, &w);
}
