/* SPDX-License-Identifier: Apache-2.0
 * Products of bytes (tacit.IntMatMul, MatMulInteger, QLinearMatMul) and the conversions around
 * them. Right sides that are known are packed at compile time, others by a thunk of their own. */
#include <string.h>

#include "cpu/qmm.h"
#include "cpu/qpack.h"
#include "cpu/quantise.h"
#include "op/gemm.h"
#include "op/lowerings.h"
#include "op/quant.h"

/* Which inputs are what; -1: none. */
typedef struct roles {
    int a, b, a_scale, a_zero, b_scale, b_zero, bias, residual, y_scale, y_zero;
    bool trans_b;
    cpu_qout out;
} roles;

typedef struct bytes {
    roles r;
    cpu_qgemm_args g;
    size_t q, sums;          /* scratch: rows */
    size_t packed, col_sums; /* scratch: a right side that changes */
    bool constant;
} bytes;

static int64_t count_of(const op_lower *c, int i)
{
    return ir_shape_size(&c->in[i].type.shape);
}

static bool is_byte(const op_operand *o)
{
    return o->type.dtype == TACIT_U8 || o->type.dtype == TACIT_I8;
}

/* Zero points and scales of columns as the kernel wants them. */
static tacit_status column_tables(op_lower *c, bytes *p)
{
    int64_t n = p->g.n;
    int lift = c->in[p->r.b].type.dtype == TACIT_I8 ? 128 : 0;
    const ir_tensor *zero = op_lower_known(c, p->r.b_zero),
                    *scale = op_lower_known(c, p->r.b_scale);
    int32_t *zeros = op_lower_pack(c, (size_t)n * sizeof *zeros);
    float *scales = op_lower_pack(c, (size_t)n * sizeof *scales);
    if (!zeros || !scales)
        return TACIT_ERR_MEMORY;
    for (int64_t j = 0; j < n; j++) {
        int64_t at = zero && ir_tensor_count(zero) > 1 ? j : 0;
        zeros[j] = lift + (zero ? (int32_t)ir_load_i64(zero->dtype, zero->data, at) : 0);
        at = scale && ir_tensor_count(scale) > 1 ? j : 0;
        scales[j] = scale ? ((const float *)scale->data)[at] : 1;
    }
    p->g.col_zero = zeros;
    p->g.col_scale = scales;
    return TACIT_OK;
}

/* Rows piece by piece, and then the sums of all pieces: few, since each has its own. */
static tacit_status pack_rows(op_lower *c, const bytes *p, op_job *job, cpu_qgemm_pack_args *a)
{
    enum { PIECE = 1 << 20, MOST = 8 }; /* bytes, unless that would be more pieces than so many */
    int64_t k = p->g.k, n = p->g.n, step = PIECE / n > k / MOST ? PIECE / n : k / MOST;
    step = step / 4 * 4 + 4;
    int64_t pieces = (k + step - 1) / step;
    cpu_qgemm_sum_args sum = {.parts = a->col_sum, .col_sum = a->col_sum, .pieces = pieces, .n = n};
    if (pieces > 1) {
        sum.parts = a->col_sum = op_lower_pack_later(c, (size_t)(pieces * n) * sizeof(int32_t));
        if (!sum.parts)
            return TACIT_ERR_MEMORY;
    }
    for (; a->k_begin < k; a->k_begin = a->k_end, a->col_sum += n) {
        a->k_end = a->k_begin + step < k ? a->k_begin + step : k;
        job->first = (size_t)(a->k_begin * n);
        job->bytes = (size_t)((a->k_end - a->k_begin) * n);
        TRY(op_lower_later(c, job));
    }
    if (pieces == 1)
        return TACIT_OK;
    op_job last = op_lower_job(c, (uint32_t)p->r.b, cpu_qgemm_sum, &sum, sizeof sum,
                               offsetof(cpu_qgemm_sum_args, b));
    last.bytes = 0;
    last.end = 1;
    last.second = last.last = true;
    return op_lower_later(c, &last);
}

static tacit_status pack_later(op_lower *c, bytes *p, cpu_qgemm_pack_args *a, size_t size)
{
    enum { PIECE = 1 << 19 }; /* bytes */
    int64_t width = a->width, k = p->g.k, n = p->g.n;
    a->packed = op_lower_pack_later(c, size);
    a->col_sum = op_lower_pack_later(c, (size_t)n * sizeof(int32_t));
    if (!a->packed || !a->col_sum)
        return TACIT_ERR_MEMORY;
    p->g.packed = a->packed;
    p->g.col_sum = a->col_sum;
    op_job job = op_lower_job(c, (uint32_t)p->r.b, cpu_qgemm_pack, a, sizeof *a,
                              offsetof(cpu_qgemm_pack_args, b));
    job.end = (uint32_t)((n + width - 1) / width);
    return a->b_col == 1
               ? pack_rows(c, p, &job, a)
               : op_lower_panels_later(c, &job, width, n, (size_t)k, PIECE / (width * k) + 1);
}

static tacit_status pack_right(op_lower *c, bytes *p)
{
    const op_operand *b = &c->in[p->r.b];
    int64_t width = cpu_qmm_width(&c->cpu), panels = (p->g.n + width - 1) / width;
    size_t size = (size_t)cpu_qgemm_pack_bytes(p->g.k, p->g.n, width);
    cpu_qgemm_pack_args plan = {.k = p->g.k,
                                .n = p->g.n,
                                .b_row = p->r.trans_b ? 1 : p->g.n,
                                .b_col = p->r.trans_b ? p->g.k : 1,
                                .k_end = p->g.k,
                                .taps = 1,
                                .width = width,
                                .flip = b->type.dtype == TACIT_I8 ? 0x80 : 0};
    p->constant = op_lower_known(c, p->r.b) != NULL;
    if (p->constant)
        return pack_later(c, p, &plan, size);
    p->packed = op_lower_reserve(c, size);
    p->col_sums = op_lower_reserve(c, (size_t)p->g.n * sizeof(int32_t));
    cpu_qgemm_pack_args *a =
        op_lower_thunk(c, "pack_bytes", cpu_qgemm_pack, sizeof *a, (uint32_t)panels);
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = plan;
    TRY(op_lower_in(c, offsetof(cpu_qgemm_pack_args, b), (uint32_t)p->r.b));
    TRY(op_lower_scratch(c, offsetof(cpu_qgemm_pack_args, packed), p->packed, true));
    TRY(op_lower_scratch(c, offsetof(cpu_qgemm_pack_args, col_sum), p->col_sums, true));
    op_lower_cost(c, 0, 2 * (uint64_t)size);
    return TACIT_OK;
}

static tacit_status emit_rows(op_lower *c, bytes *p)
{
    cpu_qgemm_args *g = &p->g;
    p->q = op_lower_reserve(c, (size_t)(g->m * g->q_row));
    p->sums = op_lower_reserve(c, (size_t)g->m * sizeof(int32_t));
    int64_t tile_rows = 1 + 262144 / (g->k + 1);
    cpu_qgemm_rows_args *a =
        op_lower_thunk(c, "byte_rows", CPU_QMM_PICK(&c->cpu, cpu_qgemm_rows), sizeof *a,
                       (uint32_t)((g->m + tile_rows - 1) / tile_rows));
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = (cpu_qgemm_rows_args){.m = g->m,
                               .k = g->k,
                               .x_row = g->k,
                               .q_row = g->q_row,
                               .tile_rows = tile_rows,
                               .flip = g->a_flipped};
    uint64_t run = (uint64_t)(tile_rows * g->k);
    TRY(op_lower_in_tiled(c, offsetof(cpu_qgemm_rows_args, x), (uint32_t)p->r.a, run, run));
    TRY(op_lower_scratch(c, offsetof(cpu_qgemm_rows_args, q), p->q, true));
    TRY(op_lower_scratch(c, offsetof(cpu_qgemm_rows_args, sum), p->sums, true));
    op_lower_cost(c, 0, 2 * (uint64_t)(g->m * g->k));
    return TACIT_OK;
}

op_byte_cut op_lower_cut_bytes(int64_t m, int64_t n, int64_t k, int64_t width, int64_t height,
                               double rate)
{
    op_byte_cut c;
    int64_t blocks = (m + 191) / 192, panels = (n + width - 1) / width;
    c.tile_rows = ((m + blocks - 1) / blocks + height - 1) / height * height;
    c.row_tiles = (uint32_t)((m + c.tile_rows - 1) / c.tile_rows);
    int64_t rows = m < c.tile_rows ? m : c.tile_rows;
    double panel_ns = (double)(rows * width) * (double)(k + 64) / rate;
    c.tile_panels = panel_ns > 15000 ? 1 : (int64_t)(15000 / (panel_ns + 1)) + 1;
    int64_t most = 48 / c.row_tiles > 1 ? 48 / c.row_tiles : 1;
    int64_t tiles = (panels + c.tile_panels - 1) / c.tile_panels;
    tiles = tiles > most ? most : tiles;
    c.tile_panels = (panels + tiles - 1) / tiles;
    c.col_tiles = (uint32_t)((panels + c.tile_panels - 1) / c.tile_panels);
    return c;
}

void op_lower_cut_qgemm(cpu_qgemm_args *g, const cpu_features *cpu)
{
    op_byte_cut cut =
        op_lower_cut_bytes(g->m, g->n, g->k, cpu_qmm_width(cpu), cpu_qmm_height(cpu), 150);
    g->tile_rows = cut.tile_rows, g->tile_panels = cut.tile_panels;
    g->row_tiles = cut.row_tiles, g->col_tiles = cut.col_tiles;
}

static tacit_status bind(op_lower *c, const bytes *p)
{
    const roles *r = &p->r;
    TRY(op_lower_scratch(c, offsetof(cpu_qgemm_args, q), p->q, false));
    TRY(op_lower_scratch(c, offsetof(cpu_qgemm_args, row_sum), p->sums, false));
    if (!p->constant) {
        TRY(op_lower_scratch(c, offsetof(cpu_qgemm_args, packed), p->packed, false));
        TRY(op_lower_scratch(c, offsetof(cpu_qgemm_args, col_sum), p->col_sums, false));
    }
    const struct {
        size_t field;
        int input;
    } in[] = {{offsetof(cpu_qgemm_args, a_zero), r->a_zero},
              {offsetof(cpu_qgemm_args, a_scale), r->a_scale},
              {offsetof(cpu_qgemm_args, bias), r->bias},
              {offsetof(cpu_qgemm_args, residual), r->residual}};
    for (size_t i = 0; i < sizeof in / sizeof *in; i++)
        if (op_lower_has(c, in[i].input))
            TRY(op_lower_in(c, in[i].field, (uint32_t)in[i].input));
    return op_lower_out(c, offsetof(cpu_qgemm_args, y), 0);
}

static tacit_status emit(op_lower *c, bytes *p)
{
    cpu_qgemm_args *g = &p->g;
    TRY(column_tables(c, p));
    TRY(pack_right(c, p));
    TRY(emit_rows(c, p));
    op_lower_cut_qgemm(g, &c->cpu);
    cpu_qgemm_args *a = op_lower_thunk(c, "qgemm", CPU_QMM_PICK(&c->cpu, cpu_qgemm), sizeof *a,
                                       g->row_tiles * g->col_tiles);
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = *g;
    TRY(bind(c, p));
    op_lower_cost(c, 2.0 * (double)g->m * (double)g->n * (double)g->k,
                  (uint64_t)(g->n * g->k + g->m * g->k) + op_lower_bytes(&c->out[0]));
    op_lower_note(c, "qgemm_%s %lldx%lldx%lld, %s, %u tiles; sums in 32 bits", cpu_qmm_isa(&c->cpu),
                  (long long)g->m, (long long)g->n, (long long)g->k,
                  p->constant ? "weights packed at compile time" : "right side packed per run",
                  g->row_tiles * g->col_tiles);
    return TACIT_OK;
}

/* Shapes and parameters; false where no kernel fits. */
static bool plan(op_lower *c, bytes *p)
{
    const roles *r = &p->r;
    op_matmul m = {.trans_b = r->trans_b};
    tacit_error unused;
    const ir_shape *a = &c->in[r->a].type.shape, *b = &c->in[r->b].type.shape;
    if (!is_byte(&c->in[r->a]) || !is_byte(&c->in[r->b]) || a->rank < 2 || b->rank != 2 ||
        op_matmul_plan(&m, a, b, &unused) != TACIT_OK)
        return false;
    for (int i = 0; i < 2; i++) { /* of rows: one for all; of columns: known */
        int row = i ? r->a_zero : r->a_scale, column = i ? r->b_zero : r->b_scale;
        if (op_lower_has(c, row) && count_of(c, row) != 1)
            return false;
        if (op_lower_has(c, column) && (!op_lower_known(c, column) ||
                                        (count_of(c, column) != 1 && count_of(c, column) != m.n)))
            return false;
    }
    if (op_lower_has(c, r->b_scale) && c->in[r->b_scale].type.dtype != TACIT_F32)
        return false;
    p->g.n = m.n;
    p->g.k = m.k;
    p->g.m = ir_shape_size(&m.y) / (m.n ? m.n : 1);
    p->g.y_row = m.n;
    p->g.q_row = cpu_qmm_row(m.k);
    p->g.a_flipped = c->in[r->a].type.dtype == TACIT_U8;
    p->g.out = r->out;
    p->g.epilogue.alpha = 1;
    return m.n > 0 && m.k > 0 && p->g.m <= INT32_MAX && m.k <= 1 << 16;
}

tacit_status op_lower_int_matmul(op_lower *c)
{
    bytes p = {.r = {.a = 0,
                     .b = 1,
                     .a_scale = 2,
                     .a_zero = 3,
                     .b_scale = 4,
                     .b_zero = 5,
                     .bias = 6,
                     .residual = 7,
                     .y_scale = -1,
                     .y_zero = -1,
                     .trans_b = ir_attr_int(c->node, "trans_b", 0) != 0,
                     .out = CPU_QOUT_F32}};
    if (!plan(c, &p))
        return OP_LOWER_NO_KERNEL;
    TRY(op_lower_epilogue(c, &p.g.epilogue));
    if (op_lower_has(c, 6))
        p.g.epilogue.bias = CPU_BIAS_COLUMN;
    return p.g.m ? emit(c, &p) : TACIT_OK;
}

tacit_status op_lower_matmul_integer(op_lower *c)
{
    bytes p = {.r = {.a = 0,
                     .b = 1,
                     .a_scale = -1,
                     .a_zero = 2,
                     .b_scale = -1,
                     .b_zero = 3,
                     .bias = -1,
                     .residual = -1,
                     .y_scale = -1,
                     .y_zero = -1,
                     .out = CPU_QOUT_I32}};
    if (!plan(c, &p))
        return OP_LOWER_NO_KERNEL;
    return p.g.m ? emit(c, &p) : TACIT_OK;
}

tacit_status op_lower_qlinear_matmul(op_lower *c)
{
    bytes p = {.r = {.a = 0,
                     .a_scale = 1,
                     .a_zero = 2,
                     .b = 3,
                     .b_scale = 4,
                     .b_zero = 5,
                     .bias = -1,
                     .residual = -1,
                     .y_scale = 6,
                     .y_zero = 7}};
    const ir_tensor *scale = op_lower_known(c, 6), *zero = op_lower_known(c, 7);
    tacit_dtype d = c->out[0].type.dtype;
    if (!scale || !zero || ir_tensor_count(scale) != 1 || ir_tensor_count(zero) != 1 ||
        scale->dtype != TACIT_F32 || c->in[1].type.dtype != TACIT_F32 ||
        (d != TACIT_U8 && d != TACIT_I8))
        return OP_LOWER_NO_KERNEL;
    p.r.out = d == TACIT_U8 ? CPU_QOUT_U8 : CPU_QOUT_I8;
    if (!plan(c, &p))
        return OP_LOWER_NO_KERNEL;
    p.g.y_scale = *(const float *)scale->data;
    p.g.y_zero = (int32_t)ir_load_i64(zero->dtype, zero->data, 0);
    return p.g.m ? emit(c, &p) : TACIT_OK;
}

/* --- conversions -------------------------------------------------------------------------------
 */

static uint32_t tiles_of(int64_t count)
{
    return (uint32_t)((count + CPU_QUANTISE_TILE - 1) / CPU_QUANTISE_TILE);
}

/* x and y beside their scale: every axis, the one with blocks cut in two. False: blocks that do not
 * fill their axis. */
static bool spread_scale(const op_lower *c, cpu_nd *nd)
{
    const ir_shape *x = &c->in[0].type.shape;
    int64_t dense[IR_MAX_RANK], dims[IR_MAX_RANK + 1], own[IR_MAX_RANK + 1];
    int64_t scale[IR_MAX_RANK + 1];
    op_granularity g;
    int32_t rank = 0;
    if (op_granularity_read(c->node, x, &c->in[1].type.shape, &g, NULL) != TACIT_OK)
        return false;
    ir_shape_strides(x, dense);
    for (int32_t d = 0; d < x->rank; d++) {
        int64_t block = d == g.axis ? g.block : 1;
        if (x->dims[d] % block)
            return false;
        dims[rank] = x->dims[d] / block;
        own[rank] = dense[d] * block;
        scale[rank++] = g.strides[d];
        if (block > 1) {
            dims[rank] = block;
            own[rank] = dense[d];
            scale[rank++] = 0;
        }
    }
    cpu_nd_begin(nd, rank, dims);
    cpu_nd_operand(nd, own);
    cpu_nd_operand(nd, scale);
    return true;
}

static tacit_status emit_quantise(op_lower *c, bool is_signed, cpu_nd *nd)
{
    uint32_t tiles = cpu_nd_ready(nd, CPU_QUANTISE_TILE);
    cpu_quantise_args *a = op_lower_thunk(c, CPU_PICK_NAME(c->cpu.isa, quantise_f32),
                                          CPU_PICK(c->cpu.isa, cpu_quantise_f32), sizeof *a, tiles);
    if (!a)
        return TACIT_ERR_MEMORY;
    a->nd = *nd;
    a->is_signed = is_signed;
    uint64_t run = (uint64_t)cpu_nd_tile_elements(nd), count = (uint64_t)count_of(c, 0);
    TRY(op_lower_in_tiled(c, offsetof(cpu_quantise_args, x), 0, 4 * run, 4 * run));
    op_lower_cost(c, 4.0 * (double)count, 5 * count);
    return op_lower_out_tiled(c, offsetof(cpu_quantise_args, y), 0, run, run);
}

tacit_status op_lower_dynamic_quantize(op_lower *c)
{
    int64_t count = count_of(c, 0), tiles = tiles_of(count);
    if (!op_lower_wants(c, 0) || !op_lower_wants(c, 1) || !op_lower_wants(c, 2) || count == 0)
        return OP_LOWER_NO_KERNEL;
    size_t low = op_lower_reserve(c, (size_t)tiles * sizeof(float));
    size_t high = op_lower_reserve(c, (size_t)tiles * sizeof(float));
    cpu_extent_args *e =
        op_lower_thunk(c, CPU_PICK_NAME(c->cpu.isa, extent_f32),
                       CPU_PICK(c->cpu.isa, cpu_extent_f32), sizeof *e, (uint32_t)tiles);
    if (!e)
        return TACIT_ERR_MEMORY;
    e->count = count;
    TRY(op_lower_in(c, offsetof(cpu_extent_args, x), 0));
    TRY(op_lower_scratch(c, offsetof(cpu_extent_args, low), low, true));
    TRY(op_lower_scratch(c, offsetof(cpu_extent_args, high), high, true));
    op_lower_cost(c, 2.0 * (double)count, 4 * (uint64_t)count);
    cpu_dynamic_args *d = op_lower_thunk(c, "dynamic_scale", cpu_dynamic_scale, sizeof *d, 1);
    if (!d)
        return TACIT_ERR_MEMORY;
    d->tiles = tiles;
    TRY(op_lower_scratch(c, offsetof(cpu_dynamic_args, low), low, false));
    TRY(op_lower_scratch(c, offsetof(cpu_dynamic_args, high), high, false));
    TRY(op_lower_out(c, offsetof(cpu_dynamic_args, scale), 1));
    TRY(op_lower_out(c, offsetof(cpu_dynamic_args, zero), 2));
    cpu_nd nd;
    cpu_nd_begin(&nd, 1, &count);
    cpu_nd_operand(&nd, (int64_t[]){1});
    cpu_nd_operand(&nd, (int64_t[]){0});
    TRY(emit_quantise(c, false, &nd));
    TRY(op_lower_out(c, offsetof(cpu_quantise_args, scale), 1));
    return op_lower_out(c, offsetof(cpu_quantise_args, zero), 2);
}

tacit_status op_lower_quantize(op_lower *c)
{
    tacit_dtype d = c->out[0].type.dtype;
    cpu_nd nd;
    if (c->in[0].type.dtype != TACIT_F32 || c->in[1].type.dtype != TACIT_F32 ||
        (d != TACIT_U8 && d != TACIT_I8) || ir_attr_int(c->node, "precision", 0) ||
        !spread_scale(c, &nd))
        return OP_LOWER_NO_KERNEL;
    if (count_of(c, 0) == 0)
        return TACIT_OK;
    TRY(emit_quantise(c, d == TACIT_I8, &nd));
    TRY(op_lower_in(c, offsetof(cpu_quantise_args, scale), 1));
    return op_lower_has(c, 2) ? op_lower_in(c, offsetof(cpu_quantise_args, zero), 2) : TACIT_OK;
}

tacit_status op_lower_dequantize(op_lower *c)
{
    tacit_dtype d = c->in[0].type.dtype;
    uint64_t count = (uint64_t)count_of(c, 0);
    cpu_nd nd;
    if (c->out[0].type.dtype != TACIT_F32 || c->in[1].type.dtype != TACIT_F32 ||
        (d != TACIT_U8 && d != TACIT_I8) || !spread_scale(c, &nd))
        return OP_LOWER_NO_KERNEL;
    uint32_t tiles = cpu_nd_ready(&nd, CPU_QUANTISE_TILE);
    if (tiles == 0)
        return TACIT_OK;
    cpu_dequantise_args *a =
        op_lower_thunk(c, CPU_PICK_NAME(c->cpu.isa, dequantise_f32),
                       CPU_PICK(c->cpu.isa, cpu_dequantise_f32), sizeof *a, tiles);
    if (!a)
        return TACIT_ERR_MEMORY;
    a->nd = nd;
    a->is_signed = d == TACIT_I8;
    uint64_t run = (uint64_t)cpu_nd_tile_elements(&nd);
    TRY(op_lower_in_tiled(c, offsetof(cpu_dequantise_args, x), 0, run, run));
    TRY(op_lower_in(c, offsetof(cpu_dequantise_args, scale), 1));
    if (op_lower_has(c, 2))
        TRY(op_lower_in(c, offsetof(cpu_dequantise_args, zero), 2));
    op_lower_cost(c, 2.0 * (double)count, 5 * count);
    return op_lower_out_tiled(c, offsetof(cpu_dequantise_args, y), 0, 4 * run, 4 * run);
}
