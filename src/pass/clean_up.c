/* SPDX-License-Identifier: Apache-2.0
 * Algebra that costs nothing to know: neutral elements, Identity, Dropout at inference, casts. */
#include <math.h>

#include "pass/edit.h"

enum { UNIFORM_MOST = 4096 }; /* elements looked at to find that all are equal */

/* Every element of the known `v` equals `wanted`. */
static bool all_equal(const ir_value *v, double wanted)
{
    const ir_tensor *t = ir_value_known(v);
    if (!t || t->kind != IR_TENSOR || !(ir_dtype_is_float(t->dtype) || ir_dtype_is_int(t->dtype)))
        return false;
    int64_t count = ir_tensor_count(t);
    if (count < 1 || count > UNIFORM_MOST)
        return false;
    for (int64_t i = 0; i < count; i++)
        if (ir_load_f64(t->dtype, t->data, i) != wanted)
            return false;
    return true;
}

/* `n` computes nothing: its readers read `x`. */
static void bypass(pass_edit *e, ir_node *n, ir_value *x)
{
    ir_value *y = n->outputs[0];
    if (!y || !x || !pass_replaceable(e, y, x))
        return;
    if (pass_static(x) && pass_static(y) && !ir_type_equal(&x->type, &y->type))
        return;
    if (x->producer)
        ir_node_note(e->g, x->producer, e->c->name, "%s (%s) after it did nothing", n->name,
                     n->type);
    pass_replace(e, y, x);
    pass_kill(e, n);
    e->c->rewrites++;
}

/* The operand that passes through when the other is the op's neutral element, which must not
 * broadcast it to a larger shape. */
static ir_value *neutral(const pass_edit *e, const ir_node *n)
{
    static const struct {
        pass_op op;
        double element;
        bool second_only;
    } rows[] = {{PASS_ADD, 0, false},
                {PASS_SUB, 0, true},
                {PASS_MUL, 1, false},
                {PASS_DIV, 1, true},
                {PASS_POW, 1, true}};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        if (!pass_is(e, n, rows[r].op))
            continue;
        for (uint32_t k = 0; k < (rows[r].second_only ? 1u : 2u); k++)
            if (all_equal(n->inputs[1 - k], rows[r].element) &&
                pass_same_shape(n->inputs[k], n->outputs[0]))
                return n->inputs[k];
    }
    return NULL;
}

/* Bits of precision and exponent range decide whether every value of `from` is one of `to`. */
static bool holds(tacit_dtype to, tacit_dtype from)
{
    if (to == from)
        return true;
    ir_dtype_class ct = ir_dtype_classify(to), cf = ir_dtype_classify(from);
    uint32_t bt = tacit_dtype_bits(to), bf = tacit_dtype_bits(from);
    if (cf == IR_CLASS_BOOLEAN)
        return ct == IR_CLASS_SIGNED || ct == IR_CLASS_UNSIGNED || to == TACIT_F64 ||
               to == TACIT_F32 || to == TACIT_F16 || to == TACIT_BF16;
    if (cf == IR_CLASS_FLOAT)
        return (to == TACIT_F64 || to == TACIT_F32) && bt > bf;
    if (cf == IR_CLASS_SIGNED && ct == IR_CLASS_SIGNED)
        return bt > bf;
    if (cf == IR_CLASS_UNSIGNED)
        return (ct == IR_CLASS_SIGNED || ct == IR_CLASS_UNSIGNED) && bt > bf;
    return false;
}

static tacit_status clean_cast(pass_edit *e, ir_node *n)
{
    ir_value *x = n->inputs[0], *y = n->outputs[0];
    if (!pass_static(x) || !pass_static(y))
        return TACIT_OK;
    if (x->type.dtype == y->type.dtype) {
        bypass(e, n, x);
        return TACIT_OK;
    }
    ir_node *inner = pass_from(e, x, PASS_CAST);
    if (!inner || !pass_static(inner->inputs[0]) || inner->inputs[0]->type.dtype == TACIT_STRING ||
        y->type.dtype == TACIT_STRING || !holds(x->type.dtype, inner->inputs[0]->type.dtype))
        return TACIT_OK;
    if (inner->inputs[0]->type.dtype == y->type.dtype) {
        bypass(e, n, inner->inputs[0]);
        return TACIT_OK;
    }
    pass_fusion f = {.op = PASS_CAST, .root = n, .n_inputs = 1, .n_outputs = 1};
    f.inputs[0] = inner->inputs[0];
    f.outputs[0] = y;
    pass_set_add(&f.nodes, n);
    pass_fusion_attrs(&f, n);
    return pass_fuse(e, &f);
}

static bool dropout_is_identity(const ir_node *n)
{
    double training = 0;
    if (n->n_outputs > 1 && n->outputs[1])
        return false;
    return n->n_inputs < 3 || !n->inputs[2] || (pass_scalar(n->inputs[2], &training) && !training);
}

static bool all_ints_are(const ir_value *v, int64_t wanted)
{
    int64_t values[2 * IR_MAX_RANK];
    uint32_t count;
    if (!pass_ints(v, values, 2 * IR_MAX_RANK, &count))
        return false;
    for (uint32_t i = 0; i < count; i++)
        if (values[i] != wanted)
            return false;
    return true;
}

/* The input that node `n` hands on unchanged, or NULL. */
static ir_value *passes_through(const pass_edit *e, const ir_node *n)
{
    if (pass_is(e, n, PASS_IDENTITY))
        return n->inputs[0];
    if (pass_is(e, n, PASS_DROPOUT))
        return dropout_is_identity(n) ? n->inputs[0] : NULL;
    if (pass_is(e, n, PASS_SUM) || pass_is(e, n, PASS_MAX) || pass_is(e, n, PASS_MIN) ||
        pass_is(e, n, PASS_CONCAT))
        return n->n_inputs == 1 ? n->inputs[0] : NULL;
    if (pass_is(e, n, PASS_CLIP))
        return (n->n_inputs < 2 || !n->inputs[1]) && (n->n_inputs < 3 || !n->inputs[2])
                   ? n->inputs[0]
                   : NULL;
    if (pass_is(e, n, PASS_PAD))
        return n->n_inputs > 1 && all_ints_are(n->inputs[1], 0) ? n->inputs[0] : NULL;
    if (pass_is(e, n, PASS_EXPAND) || pass_is(e, n, PASS_SLICE)) {
        /* A slice as large as its input is the input, unless a step turns it round. */
        bool plain = pass_is(e, n, PASS_EXPAND) || n->n_inputs < 5 || !n->inputs[4] ||
                     all_ints_are(n->inputs[4], 1);
        return plain && pass_same_shape(n->inputs[0], n->outputs[0]) ? n->inputs[0] : NULL;
    }
    static const pass_op twice[] = {PASS_NEG, PASS_NOT};
    for (size_t i = 0; i < 2; i++)
        if (pass_is(e, n, twice[i])) {
            const ir_node *inner = pass_from(e, n->inputs[0], twice[i]);
            return inner ? inner->inputs[0] : NULL;
        }
    return neutral(e, n);
}

/* Sum of two is Add, which is what patterns look for. */
static tacit_status clean_sum(pass_edit *e, ir_node *n)
{
    pass_fusion f = {.op = PASS_ADD, .root = n, .n_inputs = 2, .n_outputs = 1};
    memcpy(f.inputs, n->inputs, 2 * sizeof *f.inputs);
    f.outputs[0] = n->outputs[0];
    pass_set_add(&f.nodes, n);
    return pass_fuse(e, &f);
}

tacit_status pass_clean_up(pass_context *c)
{
    pass_edit e;
    TRY(pass_edit_begin(&e, c));
    for (uint32_t i = 0; i < c->graph->nodes.count; i++) {
        ir_node *n = c->graph->nodes.data[i];
        if (!n->type || !n->op || n->n_outputs == 0)
            continue;
        if (pass_is(&e, n, PASS_CAST)) {
            TRY(clean_cast(&e, n));
            continue;
        }
        if (pass_is(&e, n, PASS_SUM) && n->n_inputs == 2 && pass_static(n->outputs[0])) {
            TRY(clean_sum(&e, n));
            continue;
        }
        ir_value *x = passes_through(&e, n);
        if (x)
            bypass(&e, n, x);
    }
    return TACIT_OK;
}
