/* SPDX-License-Identifier: Apache-2.0
 * Einsum in full: any number of operands, ellipsis, repeated letters, implicit output. */
#include <ctype.h>
#include <string.h>

#include "op/build.h"
#include "op/elementwise.h"
#include "op/values.h"
#include "op/vjp.h"

/* Label ids: letters 0…51, ellipsis axes after them, aligned from the right. */
enum { ELLIPSIS = 52, LABELS = ELLIPSIS + IR_MAX_RANK, TERMS = 32 };

typedef struct einsum_term {
    int32_t rank;
    int8_t label[IR_MAX_RANK];
} einsum_term;

typedef struct einsum {
    einsum_term in[TERMS], out;
    uint32_t n;
    int64_t size[LABELS]; /* −1: not used */
    int32_t ellipsis;     /* most axes that an ellipsis stands for */
} einsum;

static int letter_id(char ch)
{
    return ch >= 'a' && ch <= 'z' ? ch - 'a' : ch >= 'A' && ch <= 'Z' ? ch - 'A' + 26 : -1;
}

/* Reads one operand's letters; `rank` < 0 for the output, whose ellipsis has all the axes. */
static tacit_status read_term(einsum *e, const char **text, int32_t rank, einsum_term *t,
                              tacit_error *err)
{
    int letters[IR_MAX_RANK], n = 0, dots_at = -1;
    const char *p = *text;
    for (; *p && *p != ',' && !(p[0] == '-' && p[1] == '>'); p++) {
        if (isspace((unsigned char)*p))
            continue;
        if (strncmp(p, "...", 3) == 0 && dots_at < 0) {
            dots_at = n;
            p += 2;
            continue;
        }
        if (letter_id(*p) < 0 || n == IR_MAX_RANK)
            return error_set(err, TACIT_ERR_VALUE, "bad equation near '%s'", p);
        letters[n++] = letter_id(*p);
    }
    *text = p;
    int dots = dots_at < 0 ? 0 : rank < 0 ? e->ellipsis : rank - n;
    if (dots < 0 || n + dots > IR_MAX_RANK || (rank >= 0 && n + dots != rank))
        return error_set(err, TACIT_ERR_SHAPE, "a term of the equation does not fit rank %d", rank);
    if (rank >= 0 && dots > e->ellipsis)
        e->ellipsis = dots;
    *t = (einsum_term){.rank = n + dots};
    for (int i = 0, k = 0; i < t->rank; i++) {
        bool dot = dots_at >= 0 && i >= dots_at && i < dots_at + dots;
        t->label[i] = (int8_t)(dot ? ELLIPSIS + IR_MAX_RANK - dots + (i - dots_at) : letters[k++]);
    }
    return TACIT_OK;
}

static tacit_status note_sizes(einsum *e, const einsum_term *t, const ir_shape *s, tacit_error *err)
{
    for (int32_t i = 0; i < t->rank; i++) {
        int64_t *size = &e->size[t->label[i]], d = s->dims[i];
        if (*size < 0 || *size == 1)
            *size = d;
        else if (*size != d && d != 1)
            return error_set(err, TACIT_ERR_SHAPE, "one letter stands for %lld and for %lld",
                             (long long)*size, (long long)d);
    }
    return TACIT_OK;
}

/* Without "->": the ellipsis axes, then letters that occur once, in alphabetical order. */
static tacit_status implicit_output(einsum *e, tacit_error *err)
{
    int seen[LABELS] = {0};
    for (uint32_t k = 0; k < e->n; k++)
        for (int32_t i = 0; i < e->in[k].rank; i++)
            seen[e->in[k].label[i]]++;
    for (int i = IR_MAX_RANK - e->ellipsis; i < IR_MAX_RANK; i++)
        e->out.label[e->out.rank++] = (int8_t)(ELLIPSIS + i);
    for (int k = 0; k < ELLIPSIS; k++) {
        /* ids are a…z, A…Z; alphabetical order puts capitals first */
        int id = k < 26 ? k + 26 : k - 26;
        if (seen[id] != 1)
            continue;
        if (e->out.rank == IR_MAX_RANK)
            return error_set(err, TACIT_ERR_LIMIT, "the result has too many axes");
        e->out.label[e->out.rank++] = (int8_t)id;
    }
    return TACIT_OK;
}

static tacit_status einsum_parse(einsum *e, const char *text, uint32_t n, const ir_shape *const *in,
                                 tacit_error *err)
{
    memset(e, 0, sizeof *e);
    memset(e->size, -1, sizeof e->size);
    e->n = n;
    if (!text || n > TERMS)
        return error_set(err, TACIT_ERR_VALUE, text ? "too many operands" : "no equation");
    for (uint32_t k = 0; k < n; k++) {
        TRY(read_term(e, &text, in[k]->rank, &e->in[k], err));
        TRY(note_sizes(e, &e->in[k], in[k], err));
        if (k + 1 < n && *text++ != ',')
            return error_set(err, TACIT_ERR_VALUE, "the equation has fewer terms than inputs");
    }
    if (*text == ',')
        return error_set(err, TACIT_ERR_VALUE, "the equation has more terms than inputs");
    if (!*text)
        return implicit_output(e, err);
    text += 2;
    TRY(read_term(e, &text, -1, &e->out, err));
    for (int32_t i = 0; i < e->out.rank; i++) {
        if (e->size[e->out.label[i]] < 0)
            return error_set(err, TACIT_ERR_VALUE, "the result names a letter no input has");
        for (int32_t k = 0; k < i; k++)
            if (e->out.label[k] == e->out.label[i])
                return error_set(err, TACIT_ERR_VALUE, "the result repeats a letter");
    }
    return *text ? error_set(err, TACIT_ERR_VALUE, "bad equation near '%s'", text) : TACIT_OK;
}

static tacit_status einsum_infer(op_infer *c)
{
    einsum e;
    const ir_shape *shapes[TERMS];
    TRY(op_check_class(c, 0, OP_REAL));
    TRY(op_check_same_dtype(c));
    for (uint32_t i = 0; i < c->n_in && i < TERMS; i++) {
        if (!c->in[i])
            return error_set(c->err, TACIT_ERR_GRAPH, "input %u is missing", i);
        shapes[i] = &c->in[i]->shape;
    }
    TRY(einsum_parse(&e, ir_attr_string(c->node, "equation", NULL), c->n_in, shapes, c->err));
    ir_shape y = {.rank = e.out.rank};
    for (int32_t i = 0; i < y.rank; i++)
        y.dims[i] = e.size[e.out.label[i]];
    op_set_out(c, 0, c->in[0]->dtype, &y);
    return TACIT_OK;
}

/* Steps of every operand (and of the output, last) along every label. */
static void label_strides(const einsum *e, const einsum_term *t, const ir_shape *s, int64_t *step)
{
    int64_t dense[IR_MAX_RANK];
    ir_shape_strides(s, dense);
    memset(step, 0, LABELS * sizeof *step);
    for (int32_t i = 0; i < t->rank; i++)
        if (s->dims[i] != 1 || e->size[t->label[i]] == 1)
            step[t->label[i]] += dense[i]; /* a repeated letter walks the diagonal */
}

#define EINSUM_SUM(type, sum)                                                                      \
    do {                                                                                           \
        const type *const *x = (const type *const *)values;                                        \
        type *to = values[e->n];                                                                   \
        int64_t at[TERMS + 1] = {0}, index[LABELS] = {0};                                          \
        for (int64_t left = total; left > 0; left--) {                                             \
            sum product = (sum)x[0][at[0]];                                                        \
            for (uint32_t k = 1; k < e->n; k++)                                                    \
                product *= (sum)x[k][at[k]];                                                       \
            to[at[e->n]] = (type)((sum)to[at[e->n]] + product);                                    \
            for (int l = LABELS; l-- > 0;) {                                                       \
                if (e->size[l] < 0)                                                                \
                    continue;                                                                      \
                for (uint32_t k = 0; k <= e->n; k++)                                               \
                    at[k] += step[k][l];                                                           \
                if (++index[l] < e->size[l])                                                       \
                    break;                                                                         \
                for (uint32_t k = 0; k <= e->n; k++)                                               \
                    at[k] -= step[k][l] * e->size[l];                                              \
                index[l] = 0;                                                                      \
            }                                                                                      \
        }                                                                                          \
    } while (0)

static tacit_status einsum_eval(op_eval *c)
{
    einsum *e = op_eval_scratch(c, sizeof *e);
    int64_t(*step)[LABELS] = op_eval_scratch(c, (TERMS + 1) * sizeof *step);
    const ir_shape *shapes[TERMS] = {NULL};
    void *values[TERMS + 1] = {NULL};
    ir_tensor *y = op_out(c, 0);
    bool real = ir_dtype_is_float(y->dtype);
    if (!e || !step)
        return error_memory(c->err, "Einsum");
    for (uint32_t i = 0; i < c->n_in; i++)
        shapes[i] = &op_in(c, i)->shape;
    TRY(einsum_parse(e, ir_attr_string(c->node, "equation", NULL), c->n_in, shapes, c->err));
    for (uint32_t i = 0; i < c->n_in; i++) {
        label_strides(e, &e->in[i], shapes[i], step[i]);
        if (real)
            TRY(op_input_f64(c, i, (double **)&values[i]));
        else
            TRY(op_input_i64(c, i, (int64_t **)&values[i]));
    }
    label_strides(e, &e->out, &y->shape, step[c->n_in]);
    TRY(op_scratch_i64(c, ir_tensor_count(y), (int64_t **)&values[c->n_in]));
    int64_t total = 1;
    for (int l = 0; l < LABELS; l++)
        if (e->size[l] >= 0 && __builtin_mul_overflow(total, e->size[l], &total))
            return error_set(c->err, TACIT_ERR_LIMIT, "the index space is too large");
    if (real) {
        EINSUM_SUM(double, double);
        op_output_f64(c, 0, values[c->n_in]);
    } else {
        EINSUM_SUM(int64_t, uint64_t);
        op_output_i64(c, 0, values[c->n_in]);
    }
    return TACIT_OK;
}

/* --- as a product, where it is one --------------------------------------------------------------
 */

typedef struct label_list {
    int32_t n;
    int8_t label[IR_MAX_RANK];
} label_list;

static int32_t place_of(const einsum_term *t, int8_t label)
{
    for (int32_t i = 0; i < t->rank; i++)
        if (t->label[i] == label)
            return i;
    return -1;
}

/* Every letter once, and as long as everywhere else. */
static bool plain_term(const einsum *e, const einsum_term *t, const ir_shape *s)
{
    for (int32_t i = 0; i < t->rank; i++)
        if (place_of(t, t->label[i]) != i || s->dims[i] != e->size[t->label[i]] || s->dims[i] == 0)
            return false;
    return true;
}

/* Those letters of `from` which the other terms have (1), have not (0), or may have (-1). */
static label_list letters_of(const einsum_term *from, const einsum_term *a, int in_a,
                             const einsum_term *b, int in_b)
{
    label_list l = {0};
    for (int32_t i = 0; i < from->rank; i++)
        if ((in_a < 0 || (place_of(a, from->label[i]) >= 0) == in_a) &&
            (in_b < 0 || (place_of(b, from->label[i]) >= 0) == in_b))
            l.label[l.n++] = from->label[i];
    return l;
}

/* x with its axes in the order of the lists; all but the first list become one axis each. */
static ir_value *arranged(ir_graph *g, const einsum *e, ir_value *x, const einsum_term *t,
                          const label_list *const lists[3])
{
    int64_t perm[IR_MAX_RANK], dims[IR_MAX_RANK + 2];
    int32_t rank = 0, n = 0;
    bool moves = false;
    for (int k = 0; k < 3; k++) {
        int64_t size = 1;
        for (int32_t i = 0; i < lists[k]->n; i++) {
            perm[rank] = place_of(t, lists[k]->label[i]);
            moves |= perm[rank] != rank;
            rank++;
            size *= e->size[lists[k]->label[i]];
            if (k == 0)
                dims[n++] = size, size = 1;
        }
        if (k > 0)
            dims[n++] = size;
    }
    if (moves)
        x = op_build_transpose(g, x, rank, perm);
    return lists[1]->n == 1 && lists[2]->n == 1 ? x : op_build_reshape(g, x, n, dims);
}

/* [batch…, M, N] back to the letters of the result. */
static ir_value *returned(ir_graph *g, const einsum *e, ir_value *y,
                          const label_list *const lists[3])
{
    einsum_term now = {0};
    int64_t dims[IR_MAX_RANK], perm[IR_MAX_RANK];
    bool moves = false;
    for (int k = 0; k < 3; k++)
        for (int32_t i = 0; i < lists[k]->n; i++) {
            dims[now.rank] = e->size[lists[k]->label[i]];
            now.label[now.rank++] = lists[k]->label[i];
        }
    if (lists[1]->n != 1 || lists[2]->n != 1)
        y = op_build_reshape(g, y, now.rank, dims);
    for (int32_t i = 0; i < e->out.rank; i++) {
        perm[i] = place_of(&now, e->out.label[i]);
        moves |= perm[i] != i;
    }
    return moves ? op_build_transpose(g, y, e->out.rank, perm) : y;
}

/* Two operands whose letters are batch, rows, columns or summed over: a MatMul between
 * transpositions. Letters that only one operand has and the result has not, diagonals and
 * broadcasting are left to the evaluator. */
static tacit_status einsum_decompose(ir_graph *g, ir_node *node, tacit_error *err)
{
    einsum e;
    const ir_shape *shapes[2];
    if (node->n_inputs != 2)
        return TACIT_ERR_UNSUPPORTED;
    for (uint32_t i = 0; i < 2; i++) {
        if (!node->inputs[i] || !ir_type_is_static(&node->inputs[i]->type))
            return TACIT_ERR_UNSUPPORTED;
        shapes[i] = &node->inputs[i]->type.shape;
    }
    TRY(einsum_parse(&e, ir_attr_string(node, "equation", NULL), 2, shapes, err));
    const einsum_term *a = &e.in[0], *b = &e.in[1], *out = &e.out;
    if (!plain_term(&e, a, shapes[0]) || !plain_term(&e, b, shapes[1]))
        return TACIT_ERR_UNSUPPORTED;
    label_list batch = letters_of(out, a, 1, b, 1), rows = letters_of(out, a, 1, b, 0);
    label_list columns = letters_of(out, a, 0, b, 1), summed = letters_of(a, b, 1, out, 0);
    if (batch.n + rows.n + summed.n != a->rank || batch.n + columns.n + summed.n != b->rank ||
        batch.n + 2 > IR_MAX_RANK)
        return TACIT_ERR_UNSUPPORTED;
    ir_value *left =
        arranged(g, &e, node->inputs[0], a, (const label_list *[]){&batch, &rows, &summed});
    ir_value *right =
        arranged(g, &e, node->inputs[1], b, (const label_list *[]){&batch, &summed, &columns});
    ir_value *y = op_build2(g, "MatMul", left, right);
    if (y)
        y = returned(g, &e, y, (const label_list *[]){&batch, &rows, &columns});
    return op_build_finish(g, node, 0, y, err);
}

const op_def op_rows_einsum[] = {
    {.name = "Einsum",
     .min_in = 1,
     .max_in = -1,
     .min_out = 1,
     .max_out = 1,
     .infer = einsum_infer,
     .eval = einsum_eval,
     .decompose = einsum_decompose,
     .vjp = op_vjp_einsum},
    {0},
};
