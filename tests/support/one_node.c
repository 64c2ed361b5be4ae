/* SPDX-License-Identifier: Apache-2.0 */
#include "support/one_node.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

void one_node_begin(one_node *t, const char *domain, const char *type)
{
    memset(t, 0, sizeof *t);
    arena_init(&t->memory, NULL);
    t->domain = domain;
    t->type = type;
}

void one_node_end(one_node *t)
{
    arena_free(&t->memory);
}

void one_node_in(one_node *t, tacit_dtype dtype, int32_t rank, const int64_t *dims,
                 const double *values)
{
    assert_true(t->n_in < ONE_NODE_INPUTS);
    if (!values) {
        t->in[t->n_in++] = NULL;
        return;
    }
    ir_shape s = ir_shape_of(rank, dims);
    ir_tensor *x = ir_tensor_new(&t->memory, dtype, &s);
    assert_non_null(x);
    memset(x->data, 0, x->bytes);
    for (int64_t i = 0; i < ir_tensor_count(x); i++)
        ir_store_f64(dtype, x->data, i, values[i]);
    t->in[t->n_in++] = x;
}

static ir_attr *attribute(one_node *t, const char *name, ir_attr_kind kind)
{
    assert_true(t->n_attrs < 16);
    ir_attr *a = &t->attrs[t->n_attrs++];
    a->name = name;
    a->kind = kind;
    return a;
}

void one_node_int(one_node *t, const char *name, int64_t value)
{
    attribute(t, name, IR_ATTR_INT)->i = value;
}

void one_node_float(one_node *t, const char *name, double value)
{
    attribute(t, name, IR_ATTR_FLOAT)->f = value;
}

void one_node_string(one_node *t, const char *name, const char *value)
{
    attribute(t, name, IR_ATTR_STRING)->s = (ir_string){value, strlen(value)};
}

void one_node_ints(one_node *t, const char *name, uint32_t count, const int64_t *values)
{
    ir_attr *a = attribute(t, name, IR_ATTR_INTS);
    a->count = count;
    a->ints = arena_copy(&t->memory, values, count * sizeof *values);
}

static void build(one_node *t, uint32_t n_out)
{
    ir_value *in[ONE_NODE_INPUTS] = {0};
    t->graph = ir_graph_new(&t->memory, "one node");
    assert_non_null(t->graph);
    for (uint32_t i = 0; i < t->n_in; i++)
        if (t->in[i])
            in[i] = ir_constant_new(t->graph, "in", t->in[i]);
    t->node = ir_node_new(t->graph, t->type, t->domain, t->type, t->n_in, in, n_out, NULL);
    assert_non_null(t->node);
    for (uint32_t i = 0; i < t->n_attrs; i++)
        assert_true(ir_attr_set(t->graph, t->node, &t->attrs[i]));
    op_resolve(NULL, t->node);
    for (uint32_t i = 0; i < n_out; i++)
        assert_true(ir_output_add(t->graph, t->node->outputs[i]));
}

tacit_status one_node_run(one_node *t, uint32_t n_out)
{
    build(t, n_out);
    op_exec_env env = {.memory = &t->memory};
    tacit_status status = op_infer_node(t->graph, t->node, &t->err);
    return status == TACIT_OK ? op_execute(t->node, t->in, t->out, &env, &t->err) : status;
}

static bool close_enough(double a, double b, double tolerance)
{
    return (a != a && b != b) || a == b || fabs(a - b) <= tolerance * (1 + fabs(b));
}

void one_node_expect_same_decomposed(one_node *t, double tolerance)
{
    assert_non_null(t->node->op->decompose);
    assert_int_equal(t->node->op->decompose(t->graph, t->node, &t->err), TACIT_OK);
    assert_int_equal(ir_graph_sweep(t->graph, &t->err), TACIT_OK);
    assert_int_equal(ir_graph_sort(t->graph, &t->err), TACIT_OK);
    if (op_infer_graph(t->graph, &t->err) != TACIT_OK)
        fail_msg("%s", t->err.message);
    for (uint32_t i = 0; i < t->graph->outputs.count; i++) {
        const ir_tensor *y = ir_value_known(t->graph->outputs.data[i]);
        assert_non_null(y);
        assert_true(ir_shape_equal(&y->shape, &t->out[i].shape));
        assert_int_equal(y->dtype, t->out[i].dtype);
        for (int64_t k = 0; k < ir_tensor_count(y); k++) {
            double have = ir_load_f64(y->dtype, y->data, k), want = one_node_at(t, i, k);
            if (!close_enough(have, want, tolerance))
                fail_msg("%s decomposed: output %u[%lld] is %g, expected %g", t->type, i,
                         (long long)k, have, want);
        }
    }
}

double one_node_at(const one_node *t, uint32_t output, int64_t index)
{
    return ir_load_f64(t->out[output].dtype, t->out[output].data, index);
}

void one_node_expect(one_node *t, uint32_t i, int32_t rank, const int64_t *dims,
                     const double *values, double tolerance)
{
    ir_shape want = ir_shape_of(rank, dims);
    char have_text[IR_SHAPE_TEXT], want_text[IR_SHAPE_TEXT];
    const ir_tensor *y = &t->out[i];
    if (!ir_shape_equal(&y->shape, &want))
        fail_msg("%s: output %u is %s, expected %s", t->type, i,
                 ir_shape_text(&y->shape, have_text), ir_shape_text(&want, want_text));
    for (int64_t k = 0; k < ir_tensor_count(y); k++)
        if (!close_enough(one_node_at(t, i, k), values[k], tolerance))
            fail_msg("%s: output %u[%lld] is %.9g, expected %.9g", t->type, i, (long long)k,
                     one_node_at(t, i, k), values[k]);
}

void one_node_expect_error(one_node *t, uint32_t n_out, tacit_status status, const char *text)
{
    assert_int_equal(one_node_run(t, n_out), status);
    if (!strstr(t->err.message, text))
        fail_msg("message '%s' lacks '%s'", t->err.message, text);
}
