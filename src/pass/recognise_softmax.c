/* SPDX-License-Identifier: Apache-2.0
 * Softmax spelled out: exp(x - max) / sum, a DAG in which the exponentials are read twice. */
#include "pass/recognise.h"

/* e / sum(e), or e · (1 / sum(e)). */
static bool match_quotient(const pass_edit *e, ir_node *n, ir_value **numerator, ir_node **sum,
                           pass_set *s)
{
    if (pass_is(e, n, PASS_DIV)) {
        *numerator = n->inputs[0];
        *sum = pass_from(e, n->inputs[1], PASS_REDUCE_SUM);
    } else if (pass_is(e, n, PASS_MUL)) {
        *sum = NULL;
        for (uint32_t k = 0; k < 2 && !*sum; k++) {
            ir_node *inverse = pass_from(e, n->inputs[k], PASS_RECIPROCAL);
            if (!inverse)
                continue;
            *sum = pass_from(e, inverse->inputs[0], PASS_REDUCE_SUM);
            *numerator = n->inputs[1 - k];
            pass_set_add(s, inverse);
        }
    } else {
        return false;
    }
    return *sum && (*sum)->inputs[0] == *numerator;
}

bool pass_match_softmax(const pass_edit *e, const ir_value *y, ir_value **x, int32_t *axis,
                        pass_set *s)
{
    ir_node *n = y->producer;
    if (pass_is(e, n, PASS_SOFTMAX)) {
        if (!pass_float(n->inputs[0]))
            return false;
        int64_t a = ir_attr_int(n, "axis", -1);
        *axis = (int32_t)(a < 0 ? -a : n->inputs[0]->type.shape.rank - a);
        *x = n->inputs[0];
        pass_set_add(s, n);
        return true;
    }
    pass_set mine = *s;
    ir_value *numerator = NULL;
    ir_node *sum = NULL;
    if (!n || !pass_float(y) || !match_quotient(e, n, &numerator, &sum, &mine))
        return false;
    ir_node *exponential = pass_from(e, numerator, PASS_EXP);
    *axis = pass_reduced_axis(sum);
    if (!exponential || *axis < 1)
        return false;
    pass_set_add(&mine, n);
    pass_set_add(&mine, sum);
    pass_set_add(&mine, exponential);
    *x = exponential->inputs[0];
    /* Without the maximum the result is the same wherever it is finite. */
    ir_node *sub = pass_from(e, *x, PASS_SUB);
    ir_node *max = sub ? pass_from(e, sub->inputs[1], PASS_REDUCE_MAX) : NULL;
    if (max && max->inputs[0] == sub->inputs[0] && pass_reduced_axis(max) == *axis) {
        pass_set_add(&mine, sub);
        pass_set_add(&mine, max);
        *x = sub->inputs[0];
    }
    *s = mine;
    return true;
}

static tacit_status recognise(pass_edit *e, ir_node *n)
{
    ir_value *x;
    int32_t axis;
    pass_fusion f = {.op = PASS_SOFTMAX, .root = n, .n_inputs = 1, .n_outputs = 1};
    if (!(pass_is(e, n, PASS_DIV) || pass_is(e, n, PASS_MUL)) ||
        !pass_match_softmax(e, n->outputs[0], &x, &axis, &f.nodes))
        return TACIT_OK;
    f.inputs[0] = x;
    f.outputs[0] = n->outputs[0];
    pass_fusion_int(&f, "axis", -axis);
    return pass_fuse(e, &f);
}

tacit_status pass_recognise_softmax(pass_context *c)
{
    pass_edit e;
    TRY(pass_edit_begin(&e, c));
    for (uint32_t i = 0, n = c->graph->nodes.count; i < n; i++)
        TRY(recognise(&e, c->graph->nodes.data[i]));
    return TACIT_OK;
}
