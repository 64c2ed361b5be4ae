/* SPDX-License-Identifier: Apache-2.0
 * Ops whose output size only the data can tell: NonZero, Compress, Unique. */
#include <math.h>
#include <string.h>

#include "op/elementwise.h"
#include "op/index.h"
#include "op/order.h"
#include "op/strip.h"
#include "op/vjp.h"

/* --- NonZero ---------------------------------------------------------------------------------- */

static tacit_status non_zero_infer(op_infer *c)
{
    TRY(op_check_class(c, 0, OP_NUMBER | OP_BOOL));
    int64_t rank = c->in[0]->shape.rank;
    /* A scalar counts as one element of one axis. */
    c->out[0] = ir_type_tensor(TACIT_I64, 2, (int64_t[]){rank ? rank : 1, IR_DIM_UNKNOWN});
    return TACIT_OK;
}

static bool is_zero(const ir_tensor *x, int64_t i)
{
    double v[2];
    if (!ir_dtype_is_float(x->dtype) && ir_dtype_classify(x->dtype) != IR_CLASS_COMPLEX)
        return ir_load_i64(x->dtype, x->data, i) == 0;
    ir_load_complex(x->dtype, x->data, i, v);
    return v[0] == 0 && v[1] == 0;
}

/* One byte for each element that is not 0; returns how many. */
static int64_t mark_non_zero(const ir_tensor *x, uint8_t *marks)
{
    int64_t n = ir_tensor_count(x), count = 0;
    const void *data = x->data;
    if (x->dtype == TACIT_F32)
        for (int64_t i = 0; i < n; i++)
            marks[i] = ((const float *)data)[i] != 0;
    else if (x->dtype == TACIT_BOOL)
        for (int64_t i = 0; i < n; i++)
            marks[i] = ((const uint8_t *)data)[i] != 0;
    else
        for (int64_t i = 0; i < n; i++)
            marks[i] = !is_zero(x, i);
    for (int64_t i = 0; i < n; i++)
        count += marks[i];
    return count;
}

/* The marked columns of a row; `room` for them at most. Returns how many they are. */
static int64_t write_columns(const uint8_t *marks, int64_t columns, int64_t *to, int64_t room)
{
    int64_t n = 0;
    for (int64_t j = 0; j < columns && n < room; j++) { /* writes where the next one belongs */
        to[n] = j;
        n += marks[j];
    }
    return n;
}

static tacit_status non_zero_eval(op_eval *c)
{
    const ir_tensor *x = op_in(c, 0);
    int32_t rank = x->shape.rank ? x->shape.rank : 1;
    int64_t n = ir_tensor_count(x), columns = x->shape.rank ? x->shape.dims[rank - 1] : 1, at = 0;
    uint8_t *marks = op_eval_scratch(c, (size_t)n + 1);
    if (!marks)
        return error_memory(c->err, "marks");
    int64_t count = mark_non_zero(x, marks);
    ir_shape shape = ir_shape_of(2, (int64_t[]){rank, count});
    TRY(op_eval_alloc(c, 0, TACIT_I64, &shape));
    int64_t *y = op_out(c, 0)->data;
    for (int64_t row = 0; at < count; row++) {
        int64_t *last = y + (rank - 1) * count, outer = row;
        int64_t found = write_columns(marks + row * columns, columns, last + at, count - at);
        for (int32_t d = rank - 1; d-- > 0; outer /= x->shape.dims[d])
            for (int64_t k = at; k < at + found; k++)
                y[d * count + k] = outer % x->shape.dims[d];
        at += found;
    }
    return TACIT_OK;
}

/* --- Compress --------------------------------------------------------------------------------- */

/* A condition shorter than the axis drops the rest. */
static int64_t count_kept(const ir_tensor *test, int64_t size)
{
    const uint8_t *keep = test->data;
    int64_t count = 0, n = ir_tensor_count(test);
    for (int64_t i = 0; i < n && i < size; i++)
        count += keep[i] != 0;
    return count;
}

static tacit_status compress_infer(op_infer *c)
{
    TRY(op_check_class(c, 0, OP_ANY));
    TRY(op_check_class(c, 1, OP_BOOL));
    int32_t axis = 0;
    const ir_attr *given = ir_attr_find(c->node, "axis");
    c->out[0] = *c->in[0];
    if (given)
        TRY(ir_axis(given->i, c->in[0]->shape.rank, &axis, c->err));
    else
        c->out[0].shape.rank = 1;
    int64_t size = given ? c->in[0]->shape.dims[axis] : ir_shape_size(&c->in[0]->shape);
    c->out[0].shape.dims[axis] =
        op_in_value(c, 1) ? count_kept(op_in_value(c, 1), size) : IR_DIM_UNKNOWN;
    return TACIT_OK;
}

static tacit_status compress_eval(op_eval *c)
{
    const ir_tensor *x = op_in(c, 0), *test = op_in(c, 1);
    const uint8_t *keep = test->data;
    const ir_attr *given = ir_attr_find(c->node, "axis");
    op_split_axis s = {.outer = 1, .size = ir_tensor_count(x), .inner = 1};
    ir_shape shape = ir_shape_of(1, &s.size);
    if (given) {
        TRY(op_split_at(&x->shape, given->i, &s, c->err));
        shape = x->shape;
    }
    int64_t n = ir_tensor_count(test) < s.size ? ir_tensor_count(test) : s.size;
    shape.dims[s.axis] = count_kept(test, s.size);
    if (!op_out(c, 0)->data)
        TRY(op_eval_alloc(c, 0, x->dtype, &shape));
    int64_t to = 0;
    for (int64_t o = 0; o < s.outer; o++)
        for (int64_t i = 0; i < n; i++)
            if (keep[i]) {
                op_strip_copy(x->dtype, op_out(c, 0)->data, to, 1, x->data,
                              (o * s.size + i) * s.inner, 1, s.inner);
                to += s.inner;
            }
    return TACIT_OK;
}

/* --- Unique ----------------------------------------------------------------------------------- */

static tacit_status unique_infer(op_infer *c)
{
    TRY(op_check_class(c, 0, OP_ANY));
    const ir_attr *given = ir_attr_find(c->node, "axis");
    int64_t unknown = IR_DIM_UNKNOWN;
    int32_t axis = 0;
    c->out[0] = ir_type_tensor(c->in[0]->dtype, 1, &unknown);
    if (given) {
        TRY(ir_axis(given->i, c->in[0]->shape.rank, &axis, c->err));
        c->out[0] = *c->in[0];
        c->out[0].shape.dims[axis] = IR_DIM_UNKNOWN;
    }
    for (uint32_t i = 1; i < c->n_out; i++)
        c->out[i] = ir_type_tensor(TACIT_I64, 1, &unknown);
    return TACIT_OK;
}

/* Items along the axis, compared over everything that shares their index. */
typedef struct unique_items {
    const ir_tensor *x;
    op_split_axis s;
} unique_items;

static int unique_compare(const void *context, int64_t a, int64_t b)
{
    const unique_items *u = context;
    for (int64_t o = 0; o < u->s.outer; o++)
        for (int64_t i = 0; i < u->s.inner; i++) {
            int order = op_compare(u->x, (o * u->s.size + a) * u->s.inner + i,
                                   (o * u->s.size + b) * u->s.inner + i);
            if (order)
                return order;
        }
    return 0;
}

static int by_value(const void *context, int64_t a, int64_t b)
{
    return unique_compare(context, a, b);
}

static int by_index(const void *context, int64_t a, int64_t b)
{
    const int64_t *first = context;
    return (first[a] > first[b]) - (first[a] < first[b]);
}

/* group[k] = first occurrence of the k-th distinct item; which[i] = its group; count per group. */
typedef struct unique_groups {
    int64_t n, *first, *which, *count, *order, *rank;
} unique_groups;

/* Items that are one element each, and have keys. */
static tacit_status sort_elements(op_eval *c, const unique_items *u, int64_t *items)
{
    int64_t n = u->s.size;
    op_keyed *keyed = op_eval_scratch(c, (size_t)n * 2 * sizeof *keyed + 8);
    if (!keyed)
        return error_memory(c->err, "sorting");
    for (int64_t i = 0; i < n; i++)
        keyed[i] = (op_keyed){.key = op_key(u->x, i), .item = i};
    op_sort_keyed(keyed, keyed + n, n);
    for (int64_t i = 0; i < n; i++)
        items[i] = keyed[i].item;
    return TACIT_OK;
}

static tacit_status group_items(op_eval *c, const unique_items *u, bool sorted, unique_groups *g)
{
    enum { MANY = 256 }; /* worth counting their bytes */
    int64_t n = u->s.size;
    int64_t *memory = op_eval_scratch(c, (size_t)n * 7 * sizeof(int64_t) + 8);
    if (!memory)
        return error_memory(c->err, "sorting");
    int64_t *items = memory, *spare = memory + n;
    *g = (unique_groups){.first = memory + 2 * n,
                         .which = memory + 3 * n,
                         .count = memory + 4 * n,
                         .order = memory + 5 * n,
                         .rank = memory + 6 * n};
    for (int64_t i = 0; i < n; i++)
        items[i] = i;
    if (n >= MANY && u->s.outer == 1 && u->s.inner == 1 && op_has_key(u->x->dtype))
        TRY(sort_elements(c, u, items));
    else
        op_sort(items, spare, n, by_value, u);
    for (int64_t i = 0; i < n; i++) {
        if (i == 0 || unique_compare(u, items[i - 1], items[i]) != 0) {
            g->first[g->n] = items[i]; /* stable: the first of equals is the earliest */
            g->count[g->n++] = 0;
        }
        g->which[items[i]] = g->n - 1;
        g->count[g->n - 1]++;
    }
    for (int64_t k = 0; k < g->n; k++)
        g->order[k] = k;
    if (!sorted)
        op_sort(g->order, spare, g->n, by_index, g->first);
    for (int64_t k = 0; k < g->n; k++)
        g->rank[g->order[k]] = k;
    return TACIT_OK;
}

static tacit_status unique_eval(op_eval *c)
{
    const ir_tensor *x = op_in(c, 0);
    const ir_attr *given = ir_attr_find(c->node, "axis");
    unique_items u = {x, {.outer = 1, .size = ir_tensor_count(x), .inner = 1}};
    unique_groups g;
    ir_shape shape = ir_shape_of(1, &u.s.size);
    if (given) {
        TRY(op_split_at(&x->shape, given->i, &u.s, c->err));
        shape = x->shape;
    }
    TRY(group_items(c, &u, ir_attr_int(c->node, "sorted", 1) != 0, &g));
    shape.dims[u.s.axis] = g.n;
    if (op_out(c, 0)) {
        TRY(op_eval_alloc(c, 0, x->dtype, &shape));
        for (int64_t o = 0; o < u.s.outer; o++)
            for (int64_t k = 0; k < g.n; k++)
                op_strip_copy(x->dtype, op_out(c, 0)->data, (o * g.n + k) * u.s.inner, 1, x->data,
                              (o * u.s.size + g.first[g.order[k]]) * u.s.inner, 1, u.s.inner);
    }
    ir_shape groups = ir_shape_of(1, &g.n), items = ir_shape_of(1, &u.s.size);
    for (uint32_t i = 1; i < c->n_out; i++) {
        if (!op_out(c, i))
            continue;
        TRY(op_eval_alloc(c, i, TACIT_I64, i == 2 ? &items : &groups));
        int64_t *y = op_out(c, i)->data;
        for (int64_t k = 0; k < (i == 2 ? u.s.size : g.n); k++)
            y[k] = i == 1 ? g.first[g.order[k]] : i == 2 ? g.rank[g.which[k]] : g.count[g.order[k]];
    }
    return TACIT_OK;
}

#define SELECT_ROW(NAME, IN, OUT, FLAGS, INFER, EVAL, ...)                                         \
    {                                                                                              \
        .name = NAME, .min_in = IN, .max_in = IN, .min_out = 1, .max_out = OUT,                    \
        .flags = OP_DATA_SHAPE | (FLAGS), .infer = INFER, .eval = EVAL, __VA_ARGS__                \
    }

const op_def op_rows_select[] = {
    SELECT_ROW("NonZero", 1, 1, OP_NOT_DIFFERENTIABLE, non_zero_infer, non_zero_eval),
    SELECT_ROW("Compress", 2, 1, 0, compress_infer, compress_eval, .spell = op_spell_compress),
    SELECT_ROW("Unique", 1, 4, 0, unique_infer, unique_eval),
    {0},
};
