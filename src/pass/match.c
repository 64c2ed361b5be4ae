/* SPDX-License-Identifier: Apache-2.0
 * Looking at the graph: constants, permutations, closed sets of nodes. */
#include <math.h>

#include "pass/edit.h"

ir_node *pass_only_user(const pass_edit *e, const ir_value *v)
{
    return pass_uses(e, v) == 1 ? pass_first_use(e, v)->node : NULL;
}

bool pass_is_output(const pass_edit *e, const ir_value *v)
{
    for (const pass_use *u = pass_first_use(e, v); u; u = pass_next_use(e, u))
        if (!u->node)
            return true;
    return false;
}

const ir_value *pass_origin(const pass_edit *e, const ir_graph *g, const ir_value *v)
{
    for (uint32_t i = 0;
         i < g->nodes.count && pass_is(e, v->producer, PASS_IDENTITY) && v->producer->inputs[0];
         i++)
        v = v->producer->inputs[0];
    return v;
}

bool pass_scalar(const ir_value *v, double *out)
{
    const ir_tensor *t = ir_value_known(v);
    if (!t || t->kind != IR_TENSOR || ir_tensor_count(t) != 1)
        return false;
    ir_dtype_class cls = ir_dtype_classify(t->dtype);
    if (cls == IR_CLASS_STRING || cls == IR_CLASS_COMPLEX || cls == IR_CLASS_NONE)
        return false;
    *out = ir_load_f64(t->dtype, t->data, 0);
    return true;
}

bool pass_scalar_is(const ir_value *v, double expected)
{
    double x;
    if (!pass_scalar(v, &x))
        return false;
    /* Models print constants with few digits: 0.7978845608 or 0.797884560802865. */
    return fabs(x - expected) <= 1e-6 * fabs(expected);
}

bool pass_ints(const ir_value *v, int64_t *out, uint32_t most, uint32_t *count)
{
    const ir_tensor *t = ir_value_known(v);
    tacit_error unused;
    return t && op_read_ints(t, out, most, count, &unused) == TACIT_OK;
}

bool pass_with_scalar(const pass_edit *e, const ir_node *n, pass_op op, ir_value **x, double *c)
{
    if (!pass_is(e, n, op) || n->n_inputs != 2)
        return false;
    bool ordered = op == PASS_SUB || op == PASS_DIV || op == PASS_POW;
    for (uint32_t k = 2; k-- > (ordered ? 1u : 0u);) {
        ir_value *rest = n->inputs[1 - k];
        if (pass_static(rest) && pass_scalar(n->inputs[k], c) &&
            pass_same_shape(rest, n->outputs[0])) {
            *x = rest;
            return true;
        }
    }
    return false;
}

ir_value *pass_other(const ir_node *n, const ir_value *v)
{
    if (n->n_inputs != 2)
        return NULL;
    return n->inputs[0] == v ? n->inputs[1] : n->inputs[1] == v ? n->inputs[0] : NULL;
}

bool pass_same_shape(const ir_value *a, const ir_value *b)
{
    return pass_static(a) && pass_static(b) && ir_shape_equal(&a->type.shape, &b->type.shape);
}

bool pass_permutation(const ir_node *n, int64_t *perm)
{
    if (!pass_static(n->inputs[0]))
        return false;
    int32_t rank = n->inputs[0]->type.shape.rank;
    uint32_t count;
    const int64_t *given = ir_attr_ints(n, "perm", &count);
    if (given && (int32_t)count != rank)
        return false;
    for (int32_t i = 0; i < rank; i++)
        perm[i] = given ? given[i] : rank - 1 - i;
    for (int32_t i = 0; i < rank; i++)
        if (perm[i] < 0)
            perm[i] += rank;
    return true;
}

bool pass_swaps_last_two(const int64_t *perm, int32_t rank)
{
    if (rank < 2)
        return false;
    for (int32_t i = 0; i < rank - 2; i++)
        if (perm[i] != i)
            return false;
    return perm[rank - 2] == rank - 1 && perm[rank - 1] == rank - 2;
}

int32_t pass_reduced_axis(const ir_node *n)
{
    int64_t axes[2];
    uint32_t count;
    if (!pass_static(n->inputs[0]) || ir_attr_int(n, "keepdims", 1) != 1 || n->n_inputs < 2 ||
        !pass_ints(n->inputs[1], axes, 2, &count) || count != 1)
        return 0;
    int32_t rank = n->inputs[0]->type.shape.rank;
    return (int32_t)(axes[0] < 0 ? -axes[0] : rank - axes[0]);
}

bool pass_set_has(const pass_set *s, const ir_node *n)
{
    for (uint32_t i = 0; i < s->count; i++)
        if (s->nodes[i] == n)
            return true;
    return false;
}

void pass_set_add(pass_set *s, ir_node *n)
{
    if (pass_set_has(s, n))
        return;
    if (s->count == PASS_SET_MOST)
        s->overflow = true;
    else
        s->nodes[s->count++] = n;
}

static bool is_kept(const ir_value *v, uint32_t n, ir_value *const *kept)
{
    for (uint32_t i = 0; i < n; i++)
        if (kept[i] == v)
            return true;
    return false;
}

bool pass_set_closed(pass_edit *e, const pass_set *s, ir_node *root, uint32_t n_kept,
                     ir_value *const *kept)
{
    for (uint32_t i = 0; i < s->count; i++)
        for (uint32_t k = 0; k < s->nodes[i]->n_outputs; k++) {
            const ir_value *v = s->nodes[i]->outputs[k];
            if (!v || is_kept(v, n_kept, kept))
                continue;
            for (const pass_use *u = pass_first_use(e, v); u; u = pass_next_use(e, u)) {
                if (u->node && pass_set_has(s, u->node))
                    continue;
                if (u->node)
                    pass_near_miss(e, root, "not fused: value '%s' has another use by '%s' (%s)",
                                   v->name, u->node->name, u->node->type);
                else
                    pass_near_miss(e, root, "not fused: value '%s' is a graph output", v->name);
                return false;
            }
        }
    return true;
}
