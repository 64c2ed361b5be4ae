/* SPDX-License-Identifier: Apache-2.0
 * Operators that only move elements: their own evaluator, run on element numbers, says where each
 * one comes from. Also look-ups in tables of weights, and pooling. */
#include <math.h>

#include "op/window.h"
#include "secure/rules.h"

tacit_status rule_same(op_secure *c)
{
    sec_tensor t = *st_in(c->b, 0);
    if (c->b->status == TACIT_OK && strcmp(c->node->type, "Cast") == 0) {
        tacit_dtype to = c->node->outputs[0]->type.dtype;
        if (!ir_dtype_is_float(to) && t.frac > 0)
            return error_set(c->b->err, TACIT_ERR_UNSUPPORTED,
                             "Op Cast in node '%s' has no secure rule for rounding to %s",
                             c->node->name, tacit_dtype_text(to));
    }
    st_out(c->b, 0, t);
    return c->b->status;
}

/* Numbers of the elements of a secret input as an i64 tensor. */
static ir_tensor *numbers(sec_builder *b, arena *memory, const ir_shape *shape, int64_t first)
{
    ir_tensor *t = ir_tensor_new(memory, TACIT_I64, shape);
    if (!t) {
        sb_fail(b, TACIT_ERR_MEMORY, "out of memory: moving elements");
        return NULL;
    }
    for (int64_t i = 0; i < ir_tensor_count(t); i++)
        ((int64_t *)t->data)[i] = first + i;
    return t;
}

static tacit_status execute_on_numbers(sec_builder *b, arena *memory, ir_tensor *results,
                                       sec_tensor *merged, sec_wire_id *wires, uint32_t *n_wires)
{
    const ir_node *node = b->node;
    const ir_tensor **in = ARENA_ARRAY(memory, node->n_inputs + 1u, const ir_tensor *);
    int64_t first = 0;
    int frac = 0;
    if (!in)
        return error_memory(b->err, "moving elements");
    for (uint32_t i = 0; i < node->n_inputs; i++)
        if (node->inputs[i] && b->values[node->inputs[i]->id].present &&
            b->values[node->inputs[i]->id].frac > frac)
            frac = b->values[node->inputs[i]->id].frac;
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        const ir_value *v = node->inputs[i];
        if (!v)
            continue;
        if (!b->values[v->id].present) {
            in[i] = ir_value_known(v);
            if (!in[i] || ir_dtype_is_float(v->type.dtype))
                st_in(b, i); /* says what is wrong */
            continue;
        }
        sec_tensor t = st_lift(b, st_in(b, i), frac);
        if (*n_wires == 0)
            *merged = t;
        merged->lo = fmin(merged->lo, t.lo);
        merged->hi = fmax(merged->hi, t.hi);
        wires[(*n_wires)++] = t.wire;
        in[i] = numbers(b, memory, &t.shape, first);
        first += ir_shape_size(&t.shape);
    }
    TRY(b->status);
    op_exec_env env = {.memory = memory};
    return op_execute(node, in, results, &env, b->err);
}

/* Does every row of the output lie within a row of the input? Then norms still hold. */
static bool keeps_rows(const ir_shape *from, const ir_shape *to, const int64_t *index)
{
    int64_t k = to->rank ? to->dims[to->rank - 1] : 1, n = ir_shape_size(to);
    int64_t in = from->rank ? from->dims[from->rank - 1] : 1;
    for (int64_t i = 0; i < n; i += k)
        for (int64_t j = 0; j < k; j++)
            if (index[i + j] / in != index[i] / in || (j && index[i + j] == index[i]))
                return false;
    return true;
}

tacit_status rule_move(op_secure *c)
{
    sec_builder *b = c->b;
    const ir_node *node = c->node;
    arena memory;
    arena_init(&memory, b->p->memory.allocator);
    ir_tensor *results = ARENA_ARRAY(&memory, node->n_outputs + 1u, ir_tensor);
    sec_wire_id *wires = ARENA_ARRAY(&memory, node->n_inputs + 1u, sec_wire_id);
    uint32_t n = 0;
    sec_tensor t = {0};
    if (!results || !wires)
        sb_fail(b, TACIT_ERR_MEMORY, "out of memory: moving elements");
    else if (b->status == TACIT_OK)
        b->status = execute_on_numbers(b, &memory, results, &t, wires, &n);
    for (uint32_t o = 0; o < node->n_outputs && b->status == TACIT_OK; o++) {
        if (!node->outputs[o])
            continue;
        const int64_t *from = results[o].data;
        size_t count = (size_t)ir_tensor_count(&results[o]);
        int32_t *index = sb_alloc(b, count, 4);
        for (size_t i = 0; index && i < count; i++)
            index[i] = (int32_t)from[i];
        sec_tensor r = t;
        r.shape = results[o].shape;
        r.wire = sb_gather(b, n, wires, count, index);
        if (n != 1 || !keeps_rows(&t.shape, &r.shape, from))
            r.norm = 0;
        else
            r.norm = st_norm(&t);
        st_out(b, o, r);
    }
    arena_free(&memory);
    return b->status;
}

/* Rows of a weight chosen by the client's indices: the client sends each as a row of the unit
 * matrix, masked; where the table is public it looks up itself. */
static tacit_status embed(sec_builder *b)
{
    const ir_node *node = b->node;
    const ir_value *table = node->inputs[0], *ids = node->inputs[1];
    const ir_shape *s = &table->type.shape;
    if (s->rank != 2 || ir_attr_int(node, "axis", 0) != 0)
        return error_set(b->err, TACIT_ERR_UNSUPPORTED,
                         "Op Gather in node '%s' has no secure rule for this table", node->name);
    size_t rows = (size_t)s->dims[0], width = (size_t)s->dims[1];
    size_t count = (size_t)ir_shape_size(&ids->type.shape);
    sec_sizes size = sb_weight_sizes(b, table, width, rows, NULL);
    /* what is looked up is small and normalised next: it needs more fraction bits than products */
    int frac = b->p->mode.weight_frac + 6;
    sec_port port = {.name = ids->name,
                     .dtype = ids->type.dtype,
                     .shape = ids->type.shape,
                     .frac = 0,
                     .bound = 1,
                     .one_hot = (uint32_t)rows};
    bool known = b->p->mode.weights == SEC_PUBLIC;
    port.table = known ? table : NULL;
    port.frac = known ? frac : 0;
    sec_wire_id x = sb_input(b, &port, known ? count * width : count * rows);
    sec_tensor t = {.wire = x, .shape = node->outputs[0]->type.shape, .frac = frac};
    if (!known) {
        sec_wire_id w = sb_weight(b, table, rows * width, NULL, 1, frac);
        t.wire = sb_matmul(b, x, w, count, rows, width, 1, NULL, NULL, true)->out[0];
    }
    double most = ldexp(size.max, frac) + 1;
    t.lo = -most;
    t.hi = most;
    st_out(b, 0, t);
    return b->status;
}

tacit_status rule_gather(op_secure *c)
{
    sec_builder *b = c->b;
    const ir_node *node = c->node;
    bool secret = b->values[node->inputs[0]->id].present;
    if (!secret && sb_is_weight(b, node->inputs[0]) && node->inputs[1]->is_input)
        return embed(b);
    if (secret && ir_value_known(node->inputs[1]))
        return rule_move(c);
    return error_set(b->err, TACIT_ERR_UNSUPPORTED,
                     "Op Gather in node '%s' has no secure rule for indices that are computed",
                     node->name);
}

/* ---- pooling ---- */

typedef struct pool {
    sec_tensor x;
    op_window w;
    size_t rows;      /* windows of all planes */
    uint32_t *offset; /* where each begins in… */
    sec_wire_id all;  /* …the elements under them, padding left out */
} pool;

static tacit_status read_pool(const op_secure *c, pool *p)
{
    sec_builder *b = c->b;
    op_window *w = &p->w;
    p->x = *st_in_scaled(b, 0);
    TRY(b->status);
    TRY(op_window_read(c->node, &p->x.shape, NULL, w, b->err));
    size_t out = (size_t)w->out_size, at = 0;
    p->rows = (size_t)(p->x.shape.dims[0] * p->x.shape.dims[1]) * out;
    int32_t *index = sb_alloc(b, p->rows * (size_t)w->taps, 4);
    int64_t *taps = sb_alloc(b, (size_t)w->taps, 8);
    p->offset = sb_alloc(b, p->rows + 1, 4);
    TRY(b->status);
    for (size_t i = 0; i < p->rows; i++) {
        op_window_offsets(w, (int64_t)(i % out), taps);
        p->offset[i] = (uint32_t)at;
        for (int64_t t = 0; t < w->taps; t++)
            if (taps[t] >= 0)
                index[at++] = (int32_t)(i / out * (size_t)w->in_size + (size_t)taps[t]);
    }
    p->offset[p->rows] = (uint32_t)at;
    p->all = sb_gather(b, 1, &p->x.wire, at, index);
    return b->status;
}

tacit_status rule_max_pool(op_secure *c)
{
    sec_builder *b = c->b;
    if (c->node->n_outputs > 1 && c->node->outputs[1])
        return error_set(b->err, TACIT_ERR_UNSUPPORTED,
                         "Op MaxPool in node '%s' has no secure rule for its indices",
                         c->node->name);
    pool p;
    TRY(read_pool(c, &p));
    sec_tensor y = p.x;
    y.wire = sb_row_max(b, p.all, p.rows, p.offset, y.hi - y.lo, NULL);
    y.norm = 0;
    st_out(b, 0, y);
    return b->status;
}

/* Sums times 1 / length, which is rounded to weight_frac digits. */
static sec_tensor means(sec_builder *b, const sec_tensor *x, sec_wire_id sums, size_t rows,
                        const double *length)
{
    sec_tensor r = *x;
    int64_t *factor = sb_alloc(b, rows, 8);
    int wf = b->p->mode.weight_frac;
    double most = 1;
    for (size_t i = 0; i < rows; i++)
        most = fmax(most, length[i]);
    int digits = wf + ilogb(most);
    for (size_t i = 0; factor && i < rows; i++)
        factor[i] = (int64_t)llrint(ldexp(1 / length[i], digits));
    r.wire = sb_scale(b, sums, factor);
    r.frac += digits;
    op_interval in[2] = {st_interval(x)};
    op_interval exact = op_range_scale(sb_range(b, in), ldexp(1, digits));
    double off = ldexp(op_magnitude(exact), -wf) + 1;
    r.lo = exact.lo - off;
    r.hi = exact.hi + off;
    r.norm = 0;
    return r;
}

tacit_status rule_average_pool(op_secure *c)
{
    sec_builder *b = c->b;
    pool p;
    TRY(read_pool(c, &p));
    double *length = sb_alloc(b, p.rows, sizeof *length);
    TRY(b->status);
    bool whole = ir_attr_int(c->node, "count_include_pad", 0) != 0;
    for (size_t i = 0; i < p.rows; i++)
        length[i] = whole ? (double)p.w.taps : (double)(p.offset[i + 1] - p.offset[i]);
    st_out(b, 0, means(b, &p.x, sb_sum(b, p.all, p.rows, p.offset), p.rows, length));
    return b->status;
}

/* Sums over runs of `k` consecutive elements. */
static sec_wire_id row_sums(sec_builder *b, sec_wire_id x, size_t rows, size_t k)
{
    uint32_t *offset = sb_alloc(b, rows + 1, 4);
    for (size_t i = 0; offset && i <= rows; i++)
        offset[i] = (uint32_t)(i * k);
    return sb_sum(b, x, rows, offset);
}

static tacit_status mean_of_runs(sec_builder *b, const sec_tensor *x, size_t k, bool divide)
{
    size_t rows = (size_t)ir_shape_size(&x->shape) / k;
    sec_wire_id sums = row_sums(b, x->wire, rows, k);
    double *length = sb_alloc(b, rows, sizeof *length);
    TRY(b->status);
    for (size_t i = 0; i < rows; i++)
        length[i] = (double)k;
    sec_tensor r = *x;
    r.wire = sums;
    op_interval in[2] = {st_interval(x)};
    st_bounds(&r, sb_range(b, in));
    st_out(b, 0, divide ? means(b, x, sums, rows, length) : r);
    return b->status;
}

tacit_status rule_global_average(op_secure *c)
{
    const sec_tensor *x = st_in_scaled(c->b, 0);
    TRY(c->b->status);
    size_t k = 1;
    for (int32_t d = 2; d < x->shape.rank; d++)
        k *= (size_t)x->shape.dims[d];
    return mean_of_runs(c->b, x, k, true);
}

tacit_status rule_reduce_mean(op_secure *c)
{
    sec_builder *b = c->b;
    const ir_node *node = c->node;
    sec_tensor x = *st_in_scaled(b, 0);
    TRY(b->status);
    int32_t rank = x.shape.rank;
    bool reduced[IR_MAX_RANK] = {0};
    int64_t axes[IR_MAX_RANK];
    uint32_t n = 0;
    const ir_tensor *given = node->n_inputs > 1 ? ir_value_known(node->inputs[1]) : NULL;
    if (given)
        TRY(op_read_ints(given, axes, IR_MAX_RANK, &n, b->err));
    for (uint32_t i = 0; i < n; i++) {
        int32_t axis;
        TRY(ir_axis(axes[i], rank, &axis, b->err));
        reduced[axis] = true;
    }
    for (int32_t d = 0; d < rank; d++)
        reduced[d] |= n == 0;
    /* reduced axes to the end */
    ir_shape order = {.rank = rank};
    int64_t strides[IR_MAX_RANK], moved[IR_MAX_RANK], at[IR_MAX_RANK] = {0};
    ir_shape_strides(&x.shape, strides);
    size_t k = 1;
    int32_t to = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int32_t d = 0; d < rank; d++)
            if (reduced[d] == (pass == 1)) {
                order.dims[to] = x.shape.dims[d];
                moved[to++] = strides[d];
                k *= pass ? (size_t)x.shape.dims[d] : 1;
            }
    size_t count = (size_t)ir_shape_size(&order);
    int32_t *index = sb_alloc(b, count, 4);
    for (size_t i = 0; index && i < count; i++) {
        int64_t from = 0;
        for (int32_t d = 0; d < rank; d++)
            from += at[d] * moved[d];
        index[i] = (int32_t)from;
        for (int32_t d = rank - 1; d >= 0 && ++at[d] == order.dims[d]; d--)
            at[d] = 0;
    }
    x = st_gathered(b, &x, &order, index);
    return mean_of_runs(b, &x, k ? k : 1, strcmp(node->type, "ReduceMean") == 0);
}

tacit_status rule_arg_max(op_secure *c)
{
    sec_builder *b = c->b;
    const sec_tensor *x = st_in_scaled(b, 0);
    TRY(b->status);
    int32_t axis;
    TRY(ir_axis(ir_attr_int(c->node, "axis", 0), x->shape.rank, &axis, b->err));
    if (ir_attr_int(c->node, "select_last_index", 0))
        return error_set(b->err, TACIT_ERR_UNSUPPORTED,
                         "Op ArgMax in node '%s' has no secure rule for select_last_index",
                         c->node->name);
    size_t inner = 1, k = (size_t)x->shape.dims[axis], count = (size_t)ir_shape_size(&x->shape);
    for (int32_t d = axis + 1; d < x->shape.rank; d++)
        inner *= (size_t)x->shape.dims[d];
    int32_t *index = sb_alloc(b, count, 4);
    uint32_t *offset = sb_alloc(b, count / k + 1, 4);
    for (size_t i = 0; offset && i < count; i++) {
        size_t row = i / k;
        index[i] = (int32_t)((row / inner * k + i % k) * inner + row % inner);
    }
    for (size_t i = 0; offset && i <= count / k; i++)
        offset[i] = (uint32_t)(i * k);
    TRY(b->status);
    sec_tensor r = *x;
    sec_wire_id rows = sb_gather(b, 1, &x->wire, count, index);
    sb_row_max(b, rows, count / k, offset, x->hi - x->lo, &r.wire);
    r.frac = 0;
    r.lo = 0;
    r.hi = (double)k - 1;
    r.norm = 0;
    st_out(b, 0, r);
    return b->status;
}
