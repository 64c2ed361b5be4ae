/* SPDX-License-Identifier: Apache-2.0
 * MatMul, Gemm and tacit.MatMul become one GEMM thunk (cpu/gemm.h). A constant right side is packed
 * here, block by block, and its mapped pages are given back as they are packed. */
#include <string.h>

#include "op/gemm.h"
#include "op/lowerings.h"
#include "op/product.h"

/* Strides of a matrix operand: rows, columns, and the batch axes aligned to `batch`. */
static void matrix_strides(const op_operand *o, const ir_shape *batch, bool left, bool swap,
                           int64_t *row, int64_t *column, int64_t *steps)
{
    int32_t rank = o->type.shape.rank;
    const int64_t *s = o->strides;
    if (rank == 1) { /* a unit axis stands before (left) or behind (right) the vector */
        *row = left ? 0 : s[0];
        *column = left ? s[0] : 0;
    } else {
        *row = s[rank - (swap ? 1 : 2)];
        *column = s[rank - (swap ? 2 : 1)];
    }
    for (int32_t d = 0; d < batch->rank; d++) {
        int32_t own = d - (batch->rank - (rank - 2));
        steps[d] = own < 0 || o->type.shape.dims[own] == 1 ? 0 : s[own];
    }
}

/* Axes of one product are dropped; rows of several products with the same right side become rows
 * of one (how far it is from an only row to the next says nothing: a transposed [n, 1, k] may have
 * anything there); axes that all operands walk evenly become one. */
static bool fold_batch(op_product *p, int32_t rank, const int64_t *dims,
                       int64_t steps[3][IR_MAX_RANK])
{
    cpu_gemm_args *g = &p->g;
    int32_t n = 0;
    int64_t kept[IR_MAX_RANK], s[3][IR_MAX_RANK];
    for (int32_t d = rank; d-- > 0;) {
        if (dims[d] == 1)
            continue;
        if (n == 0 && g->m == 1 && steps[0][d] > 0)
            g->a_row = steps[0][d];
        bool rows = n == 0 && steps[1][d] == 0 && steps[0][d] == g->m * g->a_row &&
                    steps[2][d] == g->m * g->c_row;
        if (rows) {
            g->m *= dims[d];
            continue;
        }
        bool even = n > 0;
        for (int k = 0; k < 3 && even; k++)
            even = steps[k][d] == s[k][n - 1] * kept[n - 1];
        if (even) {
            kept[n - 1] *= dims[d];
            continue;
        }
        kept[n] = dims[d];
        for (int k = 0; k < 3; k++)
            s[k][n] = steps[k][d];
        n++;
    }
    if (n > CPU_GEMM_BATCH_RANK)
        return false;
    g->batch_rank = (uint32_t)n;
    for (int32_t d = 0; d < n; d++) { /* kept from the innermost out */
        g->batch_dims[d] = kept[n - 1 - d];
        g->a_batch[d] = s[0][n - 1 - d];
        g->b_batch[d] = s[1][n - 1 - d];
        g->c_batch[d] = g->residual_batch[d] = s[2][n - 1 - d];
        p->batch *= g->batch_dims[d];
    }
    return true;
}

int op_lower_rows_in_set(int64_t a_row, int64_t height)
{
    enum { SETS = 64, LINE = 16 }; /* 32 KiB in 8 ways; floats of a line */
    uint8_t used[SETS] = {0};
    int most = 0;
    for (int64_t r = 0; r < height; r++) {
        int count = ++used[r * a_row / LINE % SETS];
        most = count > most ? count : most;
    }
    return most;
}

void op_lower_cut(cpu_gemm_args *g, int64_t batch, cpu_isa isa)
{
    enum { TILE_NS = 5000, SOME = 16 };
    int64_t height = cpu_gemm_height(isa), width = cpu_gemm_width(isa);
    int64_t passes = (g->m + height - 1) / height;
    int64_t together = passes ? (g->m + passes - 1) / passes : 1; /* rows of a register tile */
    g->copy_a = g->m >= height && g->n >= 128 &&
                (g->a_col != 1 || op_lower_rows_in_set(g->a_row, together) > 4);
    int64_t most = g->copy_a ? CPU_GEMM_ROWS_COPIED
                   : g->taps ? CPU_GEMM_ROWS_WINDOW
                             : CPU_GEMM_ROWS;
    int64_t blocks = (g->m + most - 1) / most;
    g->tile_rows = (g->m + blocks - 1) / blocks;
    g->row_tiles = (uint32_t)((g->m + g->tile_rows - 1) / g->tile_rows);
    int64_t panels = (g->n + width - 1) / width;
    int64_t rows = g->m < g->tile_rows ? g->m : g->tile_rows;
    /* ns of a panel: 100 flops a ns, or 16 bytes of B a ns when few rows use them. */
    double panel_ns = (double)(g->k * width) * (rows < 13 ? 0.25 : (double)rows / 50.0);
    int64_t least = panel_ns > TILE_NS ? 1 : (int64_t)(TILE_NS / (panel_ns + 1)) + 1;
    int64_t others = (int64_t)g->row_tiles * batch;
    int64_t wanted = others >= 48 ? 1 : 48 / others;
    if (g->copy_a) { /* columns should be many enough to be worth a copy of A's rows */
        int64_t worth = panels / SOME < 256 / width ? panels / SOME : 256 / width;
        worth = worth > 64 / width ? worth : 64 / width;
        least = least > worth ? least : worth;
    }
    int64_t tiles = panels / least;
    tiles = tiles < 1 ? 1 : tiles > wanted ? wanted : tiles;
    g->tile_cols = (panels + tiles - 1) / tiles * width;
    g->col_tiles = (uint32_t)((g->n + g->tile_cols - 1) / g->tile_cols);
}

/* Blocks of K for a packed B: the tile's part of A stays in L2, and sums are rarely put away. */
static int64_t block_depth(const cpu_gemm_args *g)
{
    enum { L2 = 100000, MOST = 4096 }; /* floats */
    if (g->copy_a || g->k == 0)
        return 0;
    int64_t rows = g->m < g->tile_rows ? g->m : g->tile_rows;
    int64_t most = rows ? L2 / rows : MOST;
    most = most < CPU_GEMM_KC ? CPU_GEMM_KC : most > MOST ? MOST : most;
    int64_t blocks = (g->k + most - 1) / most;
    return ((g->k + blocks - 1) / blocks + 15) / 16 * 16;
}

/* Ways to compute a product with a constant right side, beside the rule's own. Those before PAIRED
 * never change the order of a sum. */
enum { WAY_OWN, WAY_COPIED, WAY_DEEP, WAY_SHORT, WAY_PAIRED, WAY_HALVED };

static int choose_way(op_lower *c, const op_product *p)
{
    const cpu_gemm_args *g = &p->g;
    bool can = op_paired_can(c, p);
    int most = op_halved_can(c, p) ? WAY_HALVED : can ? WAY_PAIRED : WAY_SHORT;
    int way = op_lower_choice(c, most, "gemm %lld %lld %lld", (long long)g->m, (long long)g->n,
                              (long long)g->k);
    if (way == WAY_OWN && op_halved_suits(c, p))
        return WAY_HALVED;
    return way == WAY_OWN && can && op_paired_suits(c, p) ? WAY_PAIRED : way;
}

/* Rows of A in place or copied, K in deep blocks or in short ones: measured, or as op_lower_cut has
 * it. */
static void take_way(cpu_gemm_args *g, int way)
{
    if (way == WAY_COPIED && !g->copy_a && g->tile_rows > CPU_GEMM_ROWS_COPIED)
        return; /* the cut is too tall for a copy on the stack */
    if (way != WAY_OWN)
        g->copy_a = way == WAY_COPIED;
    g->kc = way == WAY_SHORT ? 0 : block_depth(g);
}

tacit_status op_product_columns_later(op_lower *c, op_job *job, const cpu_gemm_args *g,
                                      int64_t width)
{
    enum { COLUMNS = 1024 }; /* of a job, or a few fewer */
    size_t column = ir_dtype_bytes(job->weight->dtype, g->k);
    return op_lower_panels_later(c, job, width, g->n, column, COLUMNS / width);
}

tacit_status op_product_pack_later(op_lower *c, op_job *job, const cpu_gemm_args *g, int64_t width,
                                   int64_t whole, int64_t *begin, int64_t *end)
{
    enum { PIECE = 1 << 18 }; /* elements */
    if (g->b_col != 1)
        return op_product_columns_later(c, job, g, width);
    int64_t step = (PIECE / g->n / whole + 1) * whole;
    size_t row = ir_dtype_bytes(job->weight->dtype, g->n);
    for (int64_t k = 0; k < g->k; k += step) {
        *begin = k;
        *end = k + step < g->k ? k + step : g->k;
        job->first = (size_t)k * row;
        job->bytes = (size_t)(*end - k) * row;
        TRY(op_lower_later(c, job));
    }
    return TACIT_OK;
}

/* Packs the right side piece by piece, dropping the pages each piece came from. */
static tacit_status pack_right(op_lower *c, op_product *p, uint32_t input, int way)
{
    cpu_gemm_args *g = &p->g;
    cpu_isa isa = c->cpu.isa;
    int64_t width = cpu_gemm_width(isa), panels = (g->n + width - 1) / width;
    float *packed = op_lower_pack_later(c, (size_t)(panels * width * g->k) * sizeof *packed);
    if (!packed)
        return TACIT_ERR_MEMORY;
    take_way(g, way);
    cpu_gemm_pack_args a = {NULL, packed, g->n, g->k, g->b_row, g->b_col, 0, g->k, g->kc};
    op_job job = op_lower_job(c, input, CPU_PICK(isa, cpu_gemm_pack_f32), &a, sizeof a,
                              offsetof(cpu_gemm_pack_args, b));
    job.end = (uint32_t)panels;
    g->packed = packed;
    return op_product_pack_later(c, &job, g, width, 1, &a.k_begin, &a.k_end);
}

/* A B that changes from run to run and is read by many row tiles is packed by a thunk of its own;
 * otherwise every tile would pack what it reads again. */
static bool packs_first(const op_product *p)
{
    for (uint32_t d = 0; d < p->g.batch_rank; d++)
        if (p->g.b_batch[d] != 0)
            return false;
    return p->g.row_tiles > 2 && p->g.k > 0 && p->g.n >= 64;
}

static tacit_status pack_before(op_lower *c, const op_product *p, size_t *offset)
{
    const cpu_gemm_args *g = &p->g;
    cpu_isa isa = c->cpu.isa;
    int64_t width = cpu_gemm_width(isa), panels = (g->n + width - 1) / width;
    size_t bytes = (size_t)(panels * width * g->k) * sizeof(float);
    *offset = op_lower_reserve(c, bytes);
    cpu_gemm_pack_args *a =
        op_lower_thunk(c, CPU_PICK_NAME(isa, gemm_pack_f32), CPU_PICK(isa, cpu_gemm_pack_f32),
                       sizeof *a, (uint32_t)panels);
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = (cpu_gemm_pack_args){
        .n = g->n, .k = g->k, .b_row = g->b_row, .b_col = g->b_col, .k_end = g->k};
    TRY(op_lower_in(c, offsetof(cpu_gemm_pack_args, b), 1));
    TRY(op_lower_scratch(c, offsetof(cpu_gemm_pack_args, packed), *offset, true));
    op_lower_cost(c, 0, 2 * bytes);
    return TACIT_OK;
}

static bool is_packable(const op_lower *c, const op_product *p, uint32_t input)
{
    const op_operand *b = &c->in[input];
    if (!op_lower_is_weight(c, input) || !b->dense || p->g.k == 0)
        return false;
    for (uint32_t d = 0; d < p->g.batch_rank; d++)
        if (p->g.b_batch[d] != 0)
            return false;
    return true;
}

/* Which bytes of A and C tile t touches, where tiles are runs of rows or whole products. */
static tacit_status bind_operands(op_lower *c, const op_product *p, bool apart,
                                  const size_t *packed)
{
    const cpu_gemm_args *g = &p->g;
    uint64_t a_run = 0, c_run = 0;
    if (g->col_tiles == 1 && p->batch == 1) {
        c_run = (uint64_t)(g->tile_rows * g->c_row) * sizeof(float);
        if (g->a_col == 1 && g->a_row >= g->k)
            a_run = (uint64_t)(g->tile_rows * g->a_row) * sizeof(float);
    } else if (g->col_tiles == 1 && g->row_tiles == 1 && g->batch_rank == 1 &&
               g->c_batch[0] == g->m * g->c_row) {
        c_run = (uint64_t)g->c_batch[0] * sizeof(float);
        if (g->a_col == 1 && g->a_row >= g->k && g->a_batch[0] >= g->m * g->a_row)
            a_run = (uint64_t)g->a_batch[0] * sizeof(float);
    }
    TRY(op_lower_in_tiled(c, offsetof(cpu_gemm_args, a), 0, a_run, a_run));
    if (packed)
        TRY(op_lower_scratch(c, offsetof(cpu_gemm_args, packed), *packed, false));
    else if (!g->packed)
        TRY(op_lower_in(c, offsetof(cpu_gemm_args, b), 1));
    if (p->bias >= 0)
        TRY(op_lower_in(c, offsetof(cpu_gemm_args, bias), (uint32_t)p->bias));
    if (p->residual >= 0)
        TRY(op_lower_in_tiled(c, offsetof(cpu_gemm_args, residual), (uint32_t)p->residual, c_run,
                              c_run));
    TRY(op_lower_out_tiled(c, offsetof(cpu_gemm_args, y), 0, c_run, c_run));
    if (!apart)
        return op_lower_out_tiled(c, offsetof(cpu_gemm_args, c), 0, c_run, c_run);
    size_t bytes = (size_t)(p->batch * g->m * g->c_row) * sizeof(float);
    return op_lower_scratch(c, offsetof(cpu_gemm_args, c), op_lower_reserve(c, bytes), true);
}

static const char *kernel_name(const op_lower *c, const op_product *p)
{
    return p->row.fn ? p->row.name : CPU_PICK_NAME(c->cpu.isa, gemm_f32);
}

static void explain(op_lower *c, const op_product *p, bool first)
{
    const cpu_gemm_args *g = &p->g;
    op_lower_note(
        c, "%s %lldx%lldx%lld batch %lld, %s%s%s%s, %u tiles of %lldx%lld; %s", kernel_name(c, p),
        (long long)g->m, (long long)g->n, (long long)g->k, (long long)p->batch,
        g->packed ? "B packed at compile time"
        : first   ? "B packed first"
                  : "B packed block by block",
        p->row.fn ? " " : "", p->row.fn ? p->row.stored : "", g->copy_a ? ", A compacted" : "",
        g->row_tiles * g->col_tiles * (uint32_t)p->batch, (long long)g->tile_rows,
        (long long)g->tile_cols,
        p->row.fn   ? "one row waits for its weights, so fewer bytes are faster"
        : g->packed ? "packing per run would read B twice"
                    : "B is not a constant matrix, so it cannot be packed once");
}

static tacit_status emit(op_lower *c, op_product *p)
{
    cpu_gemm_args *g = &p->g;
    if (g->m == 0 || g->n == 0 || p->batch == 0)
        return TACIT_OK;
    op_lower_cut(g, p->batch, c->cpu.isa);
    g->ordered = c->batch_invariant;
    g->streamed = op_lower_streams(c);
    g->wide = c->cpu.wide_pipes;
    if (is_packable(c, p, 1)) {
        int way = choose_way(c, p);
        if (way == WAY_HALVED)
            return op_lower_halved(c, p);
        if (way == WAY_PAIRED)
            return op_lower_paired(c, p);
        if (way == WAY_OWN && op_half_suits(c, p))
            TRY(op_half_pack(c, p));
        else if (way == WAY_OWN && op_slim_suits(c, p))
            TRY(op_slim_pack(c, p));
        else
            TRY(pack_right(c, p, 1, way));
    }
    uint64_t tiles = (uint64_t)g->row_tiles * g->col_tiles * (uint64_t)p->batch;
    if (tiles > INT32_MAX)
        return OP_LOWER_NO_KERNEL;
    size_t packed = 0;
    bool first = !g->packed && packs_first(p);
    if (first)
        TRY(pack_before(c, p, &packed));
    cpu_gemm_args *args = op_lower_thunk(c, kernel_name(c, p),
                                         p->row.fn ? p->row.fn : CPU_PICK(c->cpu.isa, cpu_gemm_f32),
                                         sizeof *args, (uint32_t)tiles);
    if (!args)
        return TACIT_ERR_MEMORY;
    *args = *g;
    args->bias = p->packed_bias;
    TRY(bind_operands(c, p, p->residual >= 0 && cpu_late_residual(&g->epilogue),
                      first ? &packed : NULL));
    op_lower_cost(c, 2.0 * (double)p->batch * (double)g->m * (double)g->n * (double)g->k,
                  op_lower_all_bytes(c));
    explain(c, p, first);
    return TACIT_OK;
}

static tacit_status plan_operands(op_lower *c, op_product *p, bool trans_a, bool trans_b,
                                  bool *fits)
{
    op_matmul plan = {.trans_a = trans_a, .trans_b = trans_b};
    TRY(op_matmul_plan(&plan, &c->in[0].type.shape, &c->in[1].type.shape, c->err));
    cpu_gemm_args *g = &p->g;
    int64_t steps[3][IR_MAX_RANK];
    g->m = plan.m, g->n = plan.n, g->k = plan.k;
    matrix_strides(&c->in[0], &plan.batch, true, trans_a, &g->a_row, &g->a_col, steps[0]);
    matrix_strides(&c->in[1], &plan.batch, false, trans_b, &g->b_row, &g->b_col, steps[1]);
    g->c_row = g->residual_row = plan.n;
    int64_t step = plan.m * plan.n;
    for (int32_t d = plan.batch.rank; d-- > 0;) {
        steps[2][d] = step;
        step *= plan.batch.dims[d];
    }
    p->batch = 1;
    for (int32_t d = 0; d < plan.batch.rank; d++)
        if (plan.batch.dims[d] == 0)
            p->batch = 0;
    p->bias = p->residual = -1;
    *fits = p->batch == 0 || fold_batch(p, plan.batch.rank, plan.batch.dims, steps);
    return TACIT_OK;
}

tacit_status op_lower_matmul(op_lower *c)
{
    op_product p = {0};
    bool fits;
    if (!op_lower_all_f32(c))
        return OP_LOWER_NO_KERNEL;
    TRY(plan_operands(c, &p, ir_attr_int(c->node, "trans_a", 0) != 0,
                      ir_attr_int(c->node, "trans_b", 0) != 0, &fits));
    if (!fits)
        return OP_LOWER_NO_KERNEL;
    TRY(op_lower_epilogue(c, &p.g.epilogue));
    if (op_lower_has(c, 2)) {
        p.bias = 2;
        p.g.epilogue.bias = CPU_BIAS_COLUMN;
    }
    if (op_lower_has(c, 3))
        p.residual = 3;
    return emit(c, &p);
}

/* Gemm's C: broadcast to [M, N] and scaled by beta. */
static tacit_status plan_addend(op_lower *c, op_product *p)
{
    const op_operand *o = &c->in[2];
    float beta = (float)ir_attr_float(c->node, "beta", 1);
    int32_t rank = o->type.shape.rank;
    int64_t rows = rank > 1 ? o->type.shape.dims[rank - 2] : 1;
    int64_t columns = rank > 0 ? o->type.shape.dims[rank - 1] : 1;
    cpu_epilogue *e = &p->g.epilogue;
    if (rows == p->g.m && columns == p->g.n && rows > 1 && columns > 1) {
        p->residual = 2;
        return beta == 1.0f ? TACIT_OK : OP_LOWER_NO_KERNEL;
    }
    bool by_row = rows == p->g.m && rows > 1 && columns == 1;
    e->bias = by_row ? CPU_BIAS_ROW : CPU_BIAS_COLUMN;
    int64_t count = by_row ? p->g.m : p->g.n;
    bool spread = rows * columns == 1 && count > 1;
    if (beta == 1.0f && !spread) {
        p->bias = 2;
        return TACIT_OK;
    }
    if (!o->constant || !o->constant->data)
        return OP_LOWER_NO_KERNEL;
    float *bias = op_lower_pack(c, (size_t)count * sizeof *bias);
    if (!bias)
        return TACIT_ERR_MEMORY;
    for (int64_t i = 0; i < count; i++)
        bias[i] = beta * ((const float *)o->constant->data)[spread ? 0 : i];
    p->packed_bias = bias;
    return TACIT_OK;
}

tacit_status op_lower_gemm(op_lower *c)
{
    op_product p = {0};
    bool fits;
    if (!op_lower_all_f32(c))
        return OP_LOWER_NO_KERNEL;
    TRY(plan_operands(c, &p, ir_attr_int(c->node, "transA", 0) != 0,
                      ir_attr_int(c->node, "transB", 0) != 0, &fits));
    p.g.epilogue.alpha = (float)ir_attr_float(c->node, "alpha", 1);
    if (op_lower_has(c, 2) && ir_attr_float(c->node, "beta", 1) != 0)
        TRY(plan_addend(c, &p));
    return fits ? emit(c, &p) : OP_LOWER_NO_KERNEL;
}

/* Are the rows of all products, which lie one behind the other when dense, evenly apart? */
static bool rows_even(const op_operand *o)
{
    int32_t rank = o->type.shape.rank;
    int64_t next = 0; /* from the end of the axes looked at */
    for (int32_t d = rank - 1; d-- > 0;) {
        int64_t size = o->type.shape.dims[d];
        if (size == 1)
            continue;
        if (next && o->strides[d] != next)
            return false;
        next = o->strides[d] * size;
    }
    return true;
}

/* Any view will do, but rows that are not evenly apart are those of several products. Against a
 * wide weight it is faster to copy them: one product can pair its terms, and has no short tiles. */
bool op_accepts_matmul(const ir_node *node, uint32_t in, const op_operand *view)
{
    enum { WIDE = 512, DEEP = 64 };
    for (uint32_t i = 0; i < node->n_inputs; i++)
        if (node->inputs[i] && node->inputs[i]->type.dtype != TACIT_F32)
            return false;
    const ir_value *b = node->inputs[1];
    const ir_shape *s = &b->type.shape;
    bool swapped = ir_attr_int(node, "trans_b", ir_attr_int(node, "transB", 0)) != 0;
    if (in == 0 && s->rank == 2 && ir_value_known(b) && s->dims[swapped ? 0 : 1] >= WIDE &&
        s->dims[swapped ? 1 : 0] >= DEEP && !ir_attr_int(node, "trans_a", 0) && !rows_even(view))
        return false;
    return in < 2;
}
