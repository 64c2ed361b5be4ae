/* SPDX-License-Identifier: Apache-2.0
 * Reading, growing and writing the epilogues of fused contractions. */
#include "pass/epilogue.h"

#include <math.h>

ir_value *pass_constant_as(pass_edit *e, const ir_value *v, int32_t rank, const int64_t *dims)
{
    ir_tensor *t = ARENA_NEW(e->g->memory, ir_tensor);
    ir_shape shape = ir_shape_of(rank, dims);
    if (!t)
        return NULL;
    *t = ir_tensor_view(v->type.dtype, &shape, v->constant->data);
    return ir_constant_new(e->g, v->name, t);
}

void pass_epilogue_read(pass_epilogue *p, const ir_node *n, bool fused)
{
    *p = (pass_epilogue){.activation = "none"};
    p->bias = n->n_inputs > 2 ? n->inputs[2] : NULL;
    if (!fused)
        return;
    p->residual = n->n_inputs > 3 ? n->inputs[3] : NULL;
    p->activation = ir_attr_string(n, "activation", "none");
    p->act_min = ir_attr_float(n, "act_min", 0);
    p->act_max = ir_attr_float(n, "act_max", 0);
    p->activation_last = ir_attr_int(n, "activation_last", 0) != 0;
}

void pass_epilogue_write(const pass_epilogue *p, pass_fusion *f)
{
    f->inputs[2] = p->bias;
    f->inputs[3] = p->residual;
    f->n_inputs = p->residual ? 4 : p->bias ? 3 : 2;
    if (p->activation[0] == 'n')
        return;
    pass_fusion_string(f, "activation", p->activation);
    if (p->activation[0] == 'c') {
        pass_fusion_float(f, "act_min", p->act_min);
        pass_fusion_float(f, "act_max", p->act_max);
    }
    if (p->residual && p->activation_last)
        pass_fusion_int(f, "activation_last", 1);
}

const char *pass_activation(const pass_edit *e, const ir_node *n, double *low, double *high)
{
    static const struct {
        pass_op op;
        const char *name;
    } plain[] = {{PASS_RELU, "relu"}, {PASS_SIGMOID, "sigmoid"}, {PASS_TANH, "tanh"}};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (pass_is(e, n, plain[i].op))
            return plain[i].name;
    if (pass_is(e, n, PASS_GELU))
        return strcmp(ir_attr_string(n, "approximate", "none"), "tanh") == 0 ? "gelu_tanh" : "gelu";
    if (pass_is(e, n, PASS_SWISH))
        return ir_attr_float(n, "alpha", 1) == 1 ? "silu" : NULL;
    if (!pass_is(e, n, PASS_CLIP))
        return NULL;
    *low = -INFINITY;
    *high = INFINITY;
    bool low_ok = n->n_inputs < 2 || !n->inputs[1] || pass_scalar(n->inputs[1], low);
    bool high_ok = n->n_inputs < 3 || !n->inputs[2] || pass_scalar(n->inputs[2], high);
    return low_ok && high_ok ? "clip" : NULL;
}

/* `b` broadcasts over every axis of `out` but `axis`, along which it is full. */
static bool runs_along(const ir_value *b, const ir_value *out, int32_t axis)
{
    const ir_shape *sb = &b->type.shape, *so = &out->type.shape;
    int32_t shift = so->rank - sb->rank;
    if (shift < 0 || axis < shift)
        return false;
    for (int32_t d = 0; d < sb->rank; d++)
        if (sb->dims[d] != (d + shift == axis ? so->dims[axis] : 1))
            return false;
    return true;
}

/* `b` as a vector, or NULL when that would take a copy. */
static tacit_status as_bias(pass_edit *e, ir_value *b, const ir_value *out, int32_t axis,
                            ir_value **bias)
{
    *bias = NULL;
    if (!pass_static(b) || b->type.dtype != out->type.dtype || !runs_along(b, out, axis))
        return TACIT_OK;
    if (b->type.shape.rank == 1) {
        *bias = b;
        return TACIT_OK;
    }
    if (!ir_value_known(b))
        return TACIT_OK;
    *bias = pass_constant_as(e, b, 1, &out->type.shape.dims[axis]);
    return *bias ? TACIT_OK : error_memory(e->c->err, "a bias");
}

static tacit_status grow_add(pass_edit *e, pass_epilogue *p, const ir_node *add,
                             const ir_value *out, int32_t axis, bool *grew)
{
    ir_value *other = pass_other(add, out);
    if (!other || other == out || !pass_same_shape(out, add->outputs[0]))
        return TACIT_OK;
    if (!p->bias && !p->residual && p->activation[0] == 'n') {
        ir_value *bias;
        TRY(as_bias(e, other, out, axis, &bias));
        if (bias) {
            p->bias = bias;
            *grew = true;
            return TACIT_OK;
        }
    }
    if (p->residual || !pass_same_shape(other, out) || other->type.dtype != out->type.dtype)
        return TACIT_OK;
    p->residual = other;
    p->activation_last = false;
    *grew = true;
    return TACIT_OK;
}

tacit_status pass_epilogue_grow(pass_edit *e, pass_epilogue *p, ir_value **out, int32_t axis,
                                pass_set *swallowed, bool *grew)
{
    *grew = false;
    ir_node *next = pass_only_user(e, *out);
    if (!next || next->n_outputs != 1 || !pass_static(next->outputs[0]))
        return TACIT_OK;
    if (pass_is(e, next, PASS_ADD)) {
        TRY(grow_add(e, p, next, *out, axis, grew));
    } else if (p->activation[0] == 'n' && next->inputs[0] == *out) {
        double low = 0, high = 0;
        const char *name = pass_activation(e, next, &low, &high);
        if (name) {
            p->activation = name;
            p->act_min = low;
            p->act_max = high;
            p->activation_last = p->residual != NULL;
            *grew = true;
        }
    }
    if (*grew) {
        pass_set_add(swallowed, next);
        *out = next->outputs[0];
    }
    return TACIT_OK;
}

bool pass_product_read(const pass_edit *e, ir_node *n, pass_product *p)
{
    bool fused = pass_is(e, n, PASS_T_MATMUL);
    if (!fused && !pass_is(e, n, PASS_MATMUL))
        return false;
    *p = (pass_product){.a = n->inputs[0], .b = n->inputs[1], .alpha = 1};
    if (!pass_float(p->a) || !pass_float(p->b) || !pass_static(n->outputs[0]) ||
        p->a->type.shape.rank < 2 || p->b->type.shape.rank < 2)
        return false;
    pass_epilogue_read(&p->tail, n, fused);
    if (fused) {
        p->trans_a = ir_attr_int(n, "trans_a", 0) != 0;
        p->trans_b = ir_attr_int(n, "trans_b", 0) != 0;
        p->alpha = ir_attr_float(n, "alpha", 1);
    }
    return true;
}

void pass_product_write(const pass_product *p, ir_node *root, pass_fusion *f)
{
    *f = (pass_fusion){.op = PASS_T_MATMUL, .root = root, .n_outputs = 1};
    f->inputs[0] = p->a;
    f->inputs[1] = p->b;
    if (p->trans_a)
        pass_fusion_int(f, "trans_a", 1);
    if (p->trans_b)
        pass_fusion_int(f, "trans_b", 1);
    if (p->alpha != 1)
        pass_fusion_float(f, "alpha", p->alpha);
    pass_epilogue_write(&p->tail, f);
}
