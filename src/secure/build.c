/* SPDX-License-Identifier: Apache-2.0 */
#include "secure/build.h"

#include <math.h>

void *sb_alloc(sec_builder *b, size_t count, size_t size)
{
    void *memory =
        b->status == TACIT_OK ? arena_array(&b->p->memory, count ? count : 1, size) : NULL;
    if (!memory && b->status == TACIT_OK)
        b->status = error_memory(b->err, "the secure program");
    return memory;
}

unsigned sb_bits(double bound)
{
    unsigned bits = 1;
    while (bits < 200 && ldexp(1, (int)bits - 1) <= bound)
        bits++;
    return bits;
}

double sb_fact(sec_builder *b, double value)
{
    int32_t q;
    if (b->options->facts) {
        if (b->fact_at >= b->options->n_facts) {
            sb_fail(b, TACIT_ERR_FORMAT, "the description has too few facts about the weights");
            return 1;
        }
        q = b->options->facts[b->fact_at++];
        if (q < -800 || q > 800)
            sb_fail(b, TACIT_ERR_FORMAT, "a fact about the weights is out of range");
    } else {
        q = value > 0 ? (int32_t)ceil(4 * log2(value)) : -400;
        if (q < -400)
            q = -400;
    }
    if (b->status == TACIT_OK && !vec_push(&b->p->memory, &b->p->facts, q))
        b->status = error_memory(b->err, "the secure program");
    return exp2((double)q / 4);
}

/* ---- instructions and wires ---- */

static sec_wire_id wire_new(sec_builder *b, size_t count)
{
    if (count > INT32_MAX) {
        sb_fail(b, TACIT_ERR_LIMIT, "node '%s': a vector of %zu elements is too long",
                b->node ? b->node->name : "?", count);
        return 0;
    }
    if (b->status != TACIT_OK)
        return 0;
    sec_wire w = {.producer = b->p->instrs.count, .count = (uint32_t)count};
    if (!vec_push(&b->p->memory, &b->p->wires, w)) {
        b->status = error_memory(b->err, "the secure program");
        return 0;
    }
    return b->p->wires.count - 1;
}

/* Appends the instruction; its outputs exist already. */
static sec_instr *instr_push(sec_builder *b, sec_instr in, uint32_t n_in, const sec_wire_id *from)
{
    static sec_instr nothing;
    in.node = b->node ? b->node->id : SEC_NONE;
    in.n_in = n_in;
    in.in = sb_alloc(b, n_in, sizeof *in.in);
    if (!in.in)
        return &nothing;
    if (n_in)
        memcpy(in.in, from, n_in * sizeof *from);
    if (!vec_push(&b->p->memory, &b->p->instrs, in)) {
        b->status = error_memory(b->err, "the secure program");
        return &nothing;
    }
    return &b->p->instrs.data[b->p->instrs.count - 1];
}

static sec_wire_id local(sec_builder *b, sec_instr in, uint32_t n, const sec_wire_id *from,
                         size_t count)
{
    in.out[0] = wire_new(b, count);
    in.n_out = 1;
    instr_push(b, in, n, from);
    return in.out[0];
}

sec_wire_id sb_gather(sec_builder *b, uint32_t n, const sec_wire_id *from, size_t count,
                      const int32_t *index)
{
    return local(b, (sec_instr){.op = SEC_GATHER, .index = index}, n, from, count);
}
sec_wire_id sb_sum(sec_builder *b, sec_wire_id x, size_t count, const uint32_t *offset)
{
    return local(b, (sec_instr){.op = SEC_SUM, .offset = offset}, 1, &x, count);
}
sec_wire_id sb_linear(sec_builder *b, uint32_t n, const sec_wire_id *x, const int64_t *coef,
                      int64_t add)
{
    sec_instr in = {.op = SEC_LINEAR, .add = add};
    for (uint32_t i = 0; i < n; i++)
        in.coef[i] = coef[i];
    return b->status == TACIT_OK ? local(b, in, n, x, sb_wire(b, x[0])->count) : 0;
}
sec_wire_id sb_scale(sec_builder *b, sec_wire_id x, const int64_t *values)
{
    if (b->status != TACIT_OK)
        return 0;
    return local(b, (sec_instr){.op = SEC_SCALE, .values = values}, 1, &x, sb_wire(b, x)->count);
}
sec_wire_id sb_const(sec_builder *b, size_t count, const int64_t *values)
{
    return local(b, (sec_instr){.op = SEC_CONST, .values = values}, 0, NULL, count);
}
sec_wire_id sb_weight(sec_builder *b, const ir_value *value, size_t count, const uint32_t *layout,
                      double factor, int frac)
{
    return local(b,
                 (sec_instr){.op = SEC_WEIGHT,
                             .value = value,
                             .layout = layout,
                             .factor = factor,
                             .frac = frac,
                             .owner = b->p->mode.weights},
                 0, NULL, count);
}

sec_instr *sb_gate(sec_builder *b, fss_gate gate, uint32_t n_in, const sec_wire_id *in,
                   unsigned min_in)
{
    static sec_instr nothing;
    if (b->status != TACIT_OK)
        return &nothing;
    gate.count = sb_wire(b, in[0])->count;
    sec_instr i = {.op = SEC_GATE, .gate = gate, .min_in = (uint8_t)min_in, .n_out = 1};
    size_t rows = gate.kind == FSS_LESS                             ? gate.thresholds
                  : gate.kind == FSS_PIECES || gate.kind == FSS_LUT ? gate.rows ? gate.rows : 1
                                                                    : 1;
    i.out[0] = wire_new(b, gate.count * rows);
    if (gate.kind == FSS_MAX && gate.index_bits) {
        i.out[1] = wire_new(b, gate.count);
        i.n_out = 2;
    }
    i.keep_count = (uint32_t)(gate.count * rows);
    return instr_push(b, i, n_in, in);
}

static void check_ring(sec_builder *b, unsigned bits, double bound)
{
    if (bits > 64)
        sb_fail(b, TACIT_ERR_LIMIT,
                "node '%s' (%s): values up to 2^%.1f in fixed point need a ring of %u bits and "
                "there are 64; lower --frac, bound the inputs (--bound), or use --calibrate",
                b->node ? b->node->name : "?", b->node ? b->node->type : "?", log2(bound), bits);
}

sec_wire_id sb_truncate(sec_builder *b, sec_wire_id x, unsigned shift, double bound)
{
    if (!shift)
        return x;
    unsigned need = sb_bits(bound) + 1;
    if (need < shift + 2)
        need = shift + 2;
    check_ring(b, need, bound);
    fss_gate g = {
        .kind = FSS_GAP, .shift = (uint8_t)shift, .dither = b->p->mode.dither, .in_bits = 64};
    return sb_gate(b, g, 1, &x, need)->out[0];
}

sec_wire_id sb_shift_low(sec_builder *b, sec_wire_id x, unsigned shift, unsigned bits)
{
    if (!shift)
        return x;
    fss_gate g = {.kind = FSS_TR, .shift = (uint8_t)shift, .out_bits = (uint8_t)bits};
    return sb_gate(b, g, 1, &x, shift + bits)->out[0];
}

sec_wire_id sb_multiply(sec_builder *b, sec_wire_id x, sec_wire_id y)
{
    return sb_gate(b, (fss_gate){.kind = FSS_MUL}, 2, (sec_wire_id[]){x, y}, 0)->out[0];
}

sec_instr *sb_matmul(sec_builder *b, sec_wire_id x, sec_wire_id w, size_t m, size_t k, size_t n,
                     uint32_t batch, const uint32_t *x_at, const uint32_t *w_at, bool weight)
{
    sec_instr in = {.op = SEC_MATMUL,
                    .m = m,
                    .n = n,
                    .k = k,
                    .batch = batch,
                    .x_at = x_at,
                    .w_at = w_at,
                    .owner = weight ? b->p->mode.weights : SEC_SHARED,
                    .n_out = 1};
    in.out[0] = wire_new(b, m * n * batch);
    in.keep_count = (uint32_t)(m * n * batch);
    return instr_push(b, in, 2, (sec_wire_id[]){x, w});
}

sec_wire_id sb_weight_product(sec_builder *b, sec_wire_id x, sec_wire_id w, uint32_t period)
{
    if (b->status != TACIT_OK)
        return 0;
    size_t count = sb_wire(b, x)->count;
    if (b->p->mode.weights == SEC_SHARED) {
        int32_t *index = sb_alloc(b, count, sizeof *index);
        for (size_t i = 0; index && i < count; i++)
            index[i] = (int32_t)(i % period);
        return sb_multiply(b, x, sb_gather(b, 1, &w, count, index));
    }
    sec_instr in = {.op = SEC_PRODUCT, .period = period, .owner = b->p->mode.weights, .n_out = 1};
    in.out[0] = wire_new(b, count);
    in.keep_count = (uint32_t)count;
    return instr_push(b, in, 2, (sec_wire_id[]){x, w})->out[0];
}

void sb_keep(sec_builder *b, sec_instr *in, size_t count, const int32_t *keep, const uint32_t *sums)
{
    if (b->status != TACIT_OK)
        return;
    in->keep = keep;
    in->keep_sum = sums;
    in->keep_count = (uint32_t)count;
    sb_wire(b, in->out[0])->count = (uint32_t)count;
}

/* ---- tensors ---- */

double st_norm(const sec_tensor *t)
{
    double k = t->shape.rank ? (double)t->shape.dims[t->shape.rank - 1] : 1;
    double by_bound = st_bound(t) * sqrt(k);
    return t->norm > 0 && t->norm < by_bound ? t->norm : by_bound;
}

op_interval st_interval(const sec_tensor *t)
{
    return (op_interval){.lo = t->lo, .hi = t->hi, .norm = st_norm(t)};
}

op_interval sb_range(sec_builder *b, const op_interval *in)
{
    op_interval out[16] = {{0}};
    op_range c = {.node = b->node, .in = in, .out = out, .err = b->err};
    if (b->status == TACIT_OK && b->node->n_outputs <= 16)
        b->status = op_range_node(&c);
    return out[0];
}

void st_bounds(sec_tensor *t, op_interval r)
{
    t->lo = r.lo;
    t->hi = r.hi;
    t->norm = r.norm;
}

const sec_tensor *st_in(sec_builder *b, uint32_t i)
{
    static const sec_tensor none;
    const ir_value *v = i < b->node->n_inputs ? b->node->inputs[i] : NULL;
    if (!v)
        return NULL;
    if (b->status == TACIT_OK && !b->values[v->id].present) {
        sb_fail(b, TACIT_ERR_UNSUPPORTED,
                "node '%s' (%s): input '%s' is not a secret tensor; this form has no secure rule",
                b->node->name, b->node->type, v->name);
        return &none;
    }
    return &b->values[v->id];
}

sec_tensor st_rescale(sec_builder *b, const sec_tensor *t, int frac)
{
    sec_tensor r = *t;
    int shift = t->frac - frac;
    if (shift <= 0 || b->status != TACIT_OK)
        return r;
    unsigned need = sb_bits(st_bound(t)) + 1;
    if (need > 64) {
        sb_fail(b, TACIT_ERR_LIMIT,
                "node '%s' (%s): what it reads lies in [%.4g, %.4g] by interval arithmetic, which "
                "at 2^-%d needs a ring of %u bits and there are 64; lower --frac, bound the inputs "
                "(--bound), or take ranges from samples (--calibrate)",
                b->node->name, b->node->type, ldexp(t->lo, -t->frac), ldexp(t->hi, -t->frac),
                t->frac, need);
        return r;
    }
    r.wire = sb_truncate(b, t->wire, (unsigned)shift, st_bound(t));
    r.frac = frac;
    double unit = ldexp(1, shift);
    r.lo = floor(t->lo / unit);
    r.hi = floor(t->hi / unit) + (b->p->mode.dither ? 1 : 0);
    double k = t->shape.rank ? (double)t->shape.dims[t->shape.rank - 1] : 1;
    r.norm = t->norm > 0 ? t->norm / unit + sqrt(k) : 0;
    return r;
}

const sec_tensor *st_in_scaled(sec_builder *b, uint32_t i)
{
    const sec_tensor *t = st_in(b, i);
    if (!t || t->frac <= b->p->mode.frac + SB_SLACK || b->status != TACIT_OK)
        return t;
    sec_tensor *to = &b->rescaled[b->node->inputs[i]->id];
    if (!to->present)
        *to = st_rescale(b, t, b->p->mode.frac);
    return to;
}

sec_tensor st_lift(sec_builder *b, const sec_tensor *t, int frac)
{
    sec_tensor r = *t;
    int shift = frac - t->frac;
    if (shift <= 0)
        return r;
    if (shift > 62) {
        sb_fail(b, TACIT_ERR_LIMIT, "node '%s': scales too far apart", b->node->name);
        return r;
    }
    double unit = ldexp(1, shift);
    r.wire = sb_linear(b, 1, &t->wire, (int64_t[]){(int64_t)1 << shift}, 0);
    r.frac = frac;
    r.lo *= unit;
    r.hi *= unit;
    r.norm *= unit;
    return r;
}

sec_tensor st_gathered(sec_builder *b, const sec_tensor *t, const ir_shape *shape,
                       const int32_t *index)
{
    sec_tensor r = *t;
    r.shape = *shape;
    r.norm = 0;
    r.wire = sb_gather(b, 1, &t->wire, (size_t)ir_shape_size(shape), index);
    return r;
}

sec_tensor st_broadcast(sec_builder *b, const sec_tensor *t, const ir_shape *shape)
{
    if (ir_shape_equal(&t->shape, shape))
        return *t;
    size_t count = (size_t)ir_shape_size(shape);
    int32_t *index = sb_alloc(b, count, sizeof *index);
    if (!index)
        return *t;
    int64_t strides[IR_MAX_RANK], at[IR_MAX_RANK] = {0};
    ir_shape_strides(&t->shape, strides);
    int32_t lead = shape->rank - t->shape.rank;
    for (size_t i = 0; i < count; i++) {
        int64_t from = 0;
        for (int32_t d = lead; d < shape->rank; d++)
            if (t->shape.dims[d - lead] != 1)
                from += at[d] * strides[d - lead];
        index[i] = (int32_t)from;
        for (int32_t d = shape->rank - 1; d >= 0 && ++at[d] == shape->dims[d]; d--)
            at[d] = 0;
    }
    bool rows = t->shape.rank && t->shape.dims[t->shape.rank - 1] == shape->dims[shape->rank - 1];
    sec_tensor r = st_gathered(b, t, shape, index);
    r.norm = rows ? t->norm : 0;
    return r;
}

void st_out(sec_builder *b, uint32_t i, sec_tensor t)
{
    if (b->status != TACIT_OK || i >= b->node->n_outputs || !b->node->outputs[i])
        return;
    const ir_value *v = b->node->outputs[i];
    t.present = true;
    t.shape = v->type.shape;
    if (b->p->mode.calibrated && !t.huge)
        sb_calibrated(b, v, &t);
    b->values[v->id] = t;
    if (i == 0)
        b->p->ranges[b->node->id] = (sec_range){ldexp(t.lo, -t.frac), ldexp(t.hi, -t.frac), t.frac};
}

/* ---- weights ---- */

bool sb_is_public(const sec_builder *b, const ir_value *v)
{
    (void)b;
    const ir_tensor *t = ir_value_known(v);
    return t && t->kind == IR_TENSOR && t->data && ir_tensor_count(t) == 1;
}

bool sb_is_weight(const sec_builder *b, const ir_value *v)
{
    return v && !v->is_input && v->constant && v->constant->kind == IR_TENSOR &&
           ir_dtype_is_float(v->constant->dtype) && !b->values[v->id].present;
}

sec_sizes sb_weight_sizes(sec_builder *b, const ir_value *v, size_t k, size_t n,
                          const uint32_t *layout)
{
    sec_sizes s = {0};
    const ir_tensor *t = v->constant;
    if (!b->options->facts && !t->data)
        sb_fail(b, TACIT_ERR_STATE, "weight '%s' has no data and no facts about it", v->name);
    if (t->data && !b->options->facts && b->status == TACIT_OK) {
        for (size_t j = 0; j < n; j++) {
            double l1 = 0, l2 = 0;
            for (size_t i = 0; i < k; i++) {
                size_t at = i * n + j;
                double w = fabs(ir_load_f64(t->dtype, t->data, layout ? layout[at] : (int64_t)at));
                if (!isfinite(w)) {
                    sb_fail(b, TACIT_ERR_VALUE, "weight '%s' of node '%s' holds %s", v->name,
                            b->node->name, isnan(w) ? "NaN" : "an infinity");
                    return s;
                }
                l1 += w;
                l2 += w * w;
                s.max = fmax(s.max, w);
            }
            s.frobenius += l2;
            s.l1 = fmax(s.l1, l1);
            s.l2 = fmax(s.l2, sqrt(l2));
        }
        s.frobenius = sqrt(s.frobenius);
    }
    s.max = sb_fact(b, s.max);
    s.l1 = sb_fact(b, s.l1);
    s.l2 = sb_fact(b, s.l2);
    s.frobenius = sb_fact(b, s.frobenius);
    return s;
}
