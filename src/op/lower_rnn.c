/* SPDX-License-Identifier: Apache-2.0
 * RNN, GRU and LSTM with constant weights: one product makes the inputs' share of every gate at
 * every step, then sequences are carried through time (cpu/rnn.h). */
#include <math.h>
#include <string.h>

#include "base/cpu.h"
#include "cpu/gemm.h"
#include "cpu/rnn.h"
#include "op/lowerings.h"
#include "op/product.h"
#include "op/rnn.h"

static const float *known(const op_lower *c, uint32_t i)
{
    const ir_tensor *t = op_lower_known(c, i);
    return t ? t->data : NULL;
}

static bool map_acts(const op_rnn *r, cpu_act act[2][OP_RNN_FUNCTIONS])
{
    int per = r->kind == OP_RNN_PLAIN ? 1 : r->kind == OP_RNN_GRU ? 2 : 3;
    for (int64_t d = 0; d < r->directions; d++)
        for (int k = 0; k < per; k++)
            switch (r->f[d][k].kind) {
            case OP_RNN_SIGMOID:
                act[d][k] = CPU_ACT_SIGMOID;
                break;
            case OP_RNN_TANH:
                act[d][k] = CPU_ACT_TANH;
                break;
            case OP_RNN_RELU:
                act[d][k] = CPU_ACT_RELU;
                break;
            default:
                return false;
            }
    return true;
}

static bool suits(const op_lower *c, const op_rnn *r)
{
    for (uint32_t i = 0; i < c->node->n_inputs; i++)
        if (op_lower_has(c, i) && i != 4 && c->in[i].type.dtype != TACIT_F32)
            return false;
    return known(c, 1) && known(c, 2) && (!op_lower_has(c, 3) || known(c, 3)) &&
           !op_lower_has(c, 4) && !op_lower_has(c, 7) && !r->input_forget && isinf(r->clip) &&
           r->clip > 0 && r->steps > 0 && r->batch > 0 && r->hidden > 0 && r->input > 0;
}

/* The biases that are added once and for all, of all directions; a GRU that is linear before the
 * reset keeps the state's share of its last gate for later. */
static const float *sum_biases(op_lower *c, const op_rnn *r, float *late)
{
    const float *b = known(c, 3);
    int64_t g = r->gates * r->hidden;
    float *to = op_lower_pack(c, (size_t)(r->directions * g) * sizeof *to);
    for (int64_t i = 0; to && i < r->directions * g; i++) {
        int64_t d = i / g, gate = i % g;
        float own = b ? b[d * 2 * g + gate] : 0, state = b ? b[d * 2 * g + g + gate] : 0;
        bool held = late && gate >= 2 * r->hidden;
        to[i] = held ? own : own + state;
        if (held)
            late[d * r->hidden + gate - 2 * r->hidden] = state;
    }
    return to;
}

/* With paired terms (cpu/paired.h); jobs pack the weights. */
static tacit_status emit_paired(op_lower *c, const op_product *p, size_t offset)
{
    cpu_isa isa = c->cpu.isa;
    op_paired d = op_paired_of(c, p);
    TRY(op_paired_prepare(c, &d));
    cpu_paired_args *a =
        op_lower_thunk(c, CPU_PICK_NAME(isa, paired_f32), CPU_PICK(isa, cpu_paired_f32), sizeof *a,
                       d.a.row_blocks * d.a.col_blocks * d.a.parts);
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = d.a;
    op_lower_together(c, d.together);
    TRY(op_lower_in(c, offsetof(cpu_paired_args, a), 0));
    TRY(op_lower_scratch(c, offsetof(cpu_paired_args, c), offset, true));
    return op_lower_scratch(c, offsetof(cpu_paired_args, y), offset, true);
}

static tacit_status emit_plain(op_lower *c, op_product *p, size_t offset)
{
    cpu_isa isa = c->cpu.isa;
    cpu_gemm_args *g = &p->g;
    int64_t width = cpu_gemm_width(isa), panels = (g->n + width - 1) / width;
    float *packed = op_lower_pack(c, (size_t)(panels * width * g->k) * sizeof *packed);
    if (!packed)
        return TACIT_ERR_MEMORY;
    cpu_gemm_pack_args pack = {.b = known(c, 1),
                               .packed = packed,
                               .n = g->n,
                               .k = g->k,
                               .b_row = g->b_row,
                               .b_col = g->b_col,
                               .k_end = g->k};
    CPU_PICK(isa, cpu_gemm_pack_f32)(&pack, 0, (uint32_t)panels);
    op_lower_packed_away(c, 1);
    g->packed = packed;
    g->bias = p->packed_bias;
    op_lower_cut(g, 1, isa);
    cpu_gemm_args *a = op_lower_thunk(c, CPU_PICK_NAME(isa, gemm_f32), CPU_PICK(isa, cpu_gemm_f32),
                                      sizeof *a, g->row_tiles * g->col_tiles);
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = *g;
    TRY(op_lower_in(c, offsetof(cpu_gemm_args, a), 0));
    TRY(op_lower_scratch(c, offsetof(cpu_gemm_args, c), offset, true));
    return op_lower_scratch(c, offsetof(cpu_gemm_args, y), offset, true);
}

/* What the inputs give to the gates of all directions, which lie side by side in a row. */
static tacit_status emit_inputs(op_lower *c, const op_rnn *r, size_t offset, float *late)
{
    int64_t n = r->directions * r->gates * r->hidden, k = r->input;
    op_product p = {.g = {.m = r->steps * r->batch,
                          .n = n,
                          .k = k,
                          .a_row = k,
                          .a_col = 1,
                          .b_row = 1,
                          .b_col = k,
                          .c_row = n,
                          .epilogue = {.alpha = 1, .bias = CPU_BIAS_COLUMN}},
                    .batch = 1,
                    .bias = -1,
                    .residual = -1,
                    .packed_bias = sum_biases(c, r, late)};
    if (!p.packed_bias)
        return TACIT_ERR_MEMORY;
    bool pairs = op_paired_can(c, &p) && op_paired_suits(c, &p);
    TRY(pairs ? emit_paired(c, &p, offset) : emit_plain(c, &p, offset));
    op_lower_cost(c, 2.0 * (double)p.g.m * (double)n * (double)k,
                  op_lower_bytes(&c->in[0]) + (uint64_t)((p.g.m + k) * n) * sizeof(float));
    return TACIT_OK;
}

/* R [directions][gates·hidden][hidden] in panels of columns, zero-padded. */
static const float *pack_recurrent(op_lower *c, const op_rnn *r)
{
    int64_t n = r->hidden, width = cpu_rnn_width(c->cpu.isa);
    int64_t padded = cpu_rnn_padded(c->cpu.isa, n), blocks = r->directions * r->gates;
    size_t bytes = (size_t)(blocks * padded * n) * sizeof(float);
    float *to = op_lower_pack(c, bytes);
    const float *from = known(c, 2);
    if (!to)
        return NULL;
    memset(to, 0, bytes);
    for (int64_t b = 0; b < blocks; b++)
        for (int64_t j = 0; j < n; j++)
            for (int64_t k = 0; k < n; k++)
                to[b * padded * n + (j / width * n + k) * width + j % width] =
                    from[(b * n + j) * n + k];
    return to;
}

/* The inputs' share of the gates. */
static size_t inputs_bytes(const op_rnn *r)
{
    return (size_t)(r->steps * r->batch * r->directions * r->gates * r->hidden) * sizeof(float);
}

static cpu_rnn_args plan(const op_lower *c, const op_rnn *r)
{
    int64_t n = r->hidden, g = r->gates * n, d = r->directions, row = d * g;
    cpu_rnn_args a = {.steps = r->steps,
                      .batch = r->batch,
                      .hidden = n,
                      .work_tile = cpu_rnn_work(c->cpu.isa, n),
                      .x_direction = g,
                      .row_tiles = (uint32_t)((r->batch + CPU_RNN_ROWS - 1) / CPU_RNN_ROWS),
                      .cell = r->kind == OP_RNN_PLAIN ? CPU_RNN_PLAIN
                              : r->kind == OP_RNN_GRU ? CPU_RNN_GRU
                                                      : CPU_RNN_LSTM,
                      .backward = {r->reverse, true}};
    a.x_step = r->by_batch ? row : r->batch * row;
    a.x_row = r->by_batch ? r->steps * row : row;
    a.y_step = r->by_batch ? d * n : d * r->batch * n;
    a.y_direction = r->by_batch ? n : r->batch * n;
    a.y_row = r->by_batch ? r->steps * d * n : n;
    a.state_direction = r->by_batch ? n : r->batch * n;
    a.state_row = r->by_batch ? d * n : n;
    return a;
}

/* The arguments of the newest thunk are cpu_rnn_args, or begin with them. */
static tacit_status bind(op_lower *c, size_t inputs, size_t work)
{
    static const size_t states[2] = {offsetof(cpu_rnn_args, h0), offsetof(cpu_rnn_args, c0)};
    static const size_t results[3] = {offsetof(cpu_rnn_args, y), offsetof(cpu_rnn_args, h),
                                      offsetof(cpu_rnn_args, c)};
    TRY(op_lower_scratch(c, offsetof(cpu_rnn_args, x), inputs, false));
    TRY(op_lower_scratch(c, offsetof(cpu_rnn_args, work), work, true));
    for (uint32_t i = 0; i < 2; i++)
        if (op_lower_has(c, 5 + i))
            TRY(op_lower_in(c, states[i], 5 + i));
    for (uint32_t i = 0; i < 3; i++)
        if (op_lower_wants(c, i))
            TRY(op_lower_out(c, results[i], i));
    return TACIT_OK;
}

/* Where sequences are fewer than processors, and a step is long enough to be shared. */
static bool shares_steps(const op_lower *c, const op_rnn *r, uint32_t tiles)
{
    enum { LEAST = 512 << 10, MOST = 4096 }; /* bytes of weights, steps */
    bool two_products = r->kind == OP_RNN_GRU && !r->linear_before_reset;
    return !c->serial && tiles < cpu_count() && !two_products && r->steps <= MOST &&
           r->gates * r->hidden * r->hidden * (int64_t)sizeof(float) >= LEAST;
}

static tacit_status emit_steps(op_lower *c, const op_rnn *r, const cpu_rnn_args *p, uint32_t tiles,
                               size_t inputs, size_t work)
{
    enum { PARTS = 4 };
    cpu_isa isa = c->cpu.isa;
    int64_t panels = cpu_rnn_padded(isa, r->hidden) / cpu_rnn_width(isa);
    uint32_t parts = panels < PARTS ? (uint32_t)panels : PARTS;
    cpu_rnn_args *first = op_lower_thunk(c, CPU_PICK_NAME(isa, rnn_begin_f32),
                                         CPU_PICK(isa, cpu_rnn_begin_f32), sizeof *first, tiles);
    if (!first)
        return TACIT_ERR_MEMORY;
    *first = *p;
    TRY(bind(c, inputs, work));
    for (int64_t s = 0; s < r->steps; s++) {
        cpu_rnn_step_args *a =
            op_lower_thunk(c, CPU_PICK_NAME(isa, rnn_step_f32), CPU_PICK(isa, cpu_rnn_step_f32),
                           sizeof *a, tiles * parts);
        if (!a)
            return TACIT_ERR_MEMORY;
        *a = (cpu_rnn_step_args){.all = *p, .step = s, .parts = parts};
        TRY(bind(c, inputs, work));
        double products = (double)(r->batch * r->directions * r->gates) * (double)r->hidden;
        op_lower_cost(c, 2.0 * products * (double)r->hidden,
                      (uint64_t)(r->directions * r->gates * r->hidden * r->hidden) * sizeof(float));
    }
    op_lower_note(c,
                  "rnn_step_f32_%s: %lld steps, each in %u parts, since there are fewer sequences "
                  "than processors",
                  cpu_isa_name(isa), (long long)r->steps, parts);
    return TACIT_OK;
}

static tacit_status emit_whole(op_lower *c, const op_rnn *r, const cpu_rnn_args *p, uint32_t tiles,
                               size_t inputs, size_t work)
{
    cpu_rnn_args *a = op_lower_thunk(c, CPU_PICK_NAME(c->cpu.isa, rnn_f32),
                                     CPU_PICK(c->cpu.isa, cpu_rnn_f32), sizeof *a, tiles);
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = *p;
    TRY(bind(c, inputs, work));
    double products = (double)(r->steps * r->batch * r->directions * r->gates) * (double)r->hidden;
    op_lower_cost(c, 2.0 * products * (double)r->hidden,
                  inputs_bytes(r) + op_lower_bytes(&c->out[0]));
    op_lower_note(c,
                  "rnn_f32_%s: %lld steps of %lld sequences, %u at a time, after one product for "
                  "all inputs",
                  cpu_isa_name(c->cpu.isa), (long long)r->steps, (long long)r->batch,
                  (unsigned)CPU_RNN_ROWS);
    return TACIT_OK;
}

tacit_status op_lower_rnn(op_lower *c)
{
    op_rnn r;
    TRY(op_rnn_read(c->node, &c->in[0].type.shape, &c->in[1].type.shape, &r, c->err));
    cpu_rnn_args p = plan(c, &r);
    if (!suits(c, &r) || !map_acts(&r, p.act))
        return OP_LOWER_NO_KERNEL;
    float *late = NULL;
    if (r.kind == OP_RNN_GRU && r.linear_before_reset) {
        late = op_lower_pack(c, (size_t)(r.directions * r.hidden) * sizeof *late);
        if (!late)
            return TACIT_ERR_MEMORY;
    }
    size_t inputs = op_lower_reserve(c, inputs_bytes(&r));
    TRY(emit_inputs(c, &r, inputs, late));
    p.late = late;
    p.packed = pack_recurrent(c, &r);
    if (!p.packed)
        return TACIT_ERR_MEMORY;
    uint32_t tiles = p.row_tiles * (uint32_t)r.directions;
    size_t work = op_lower_reserve(c, (size_t)p.work_tile * tiles * sizeof(float));
    TRY(shares_steps(c, &r, tiles) ? emit_steps(c, &r, &p, tiles, inputs, work)
                                   : emit_whole(c, &r, &p, tiles, inputs, work));
    op_lower_packed_away(c, 2);
    return TACIT_OK;
}
