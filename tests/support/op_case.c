/* SPDX-License-Identifier: Apache-2.0 */
#include "support/op_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "prog/interp.h"

void op_case_begin(op_case *c, const char *domain, const char *type)
{
    *c = (op_case){.type = type, .domain = domain};
    arena_init(&c->memory, NULL);
    c->graph = ir_graph_new(&c->memory, "case");
    assert_non_null(c->graph);
}

void op_case_end(op_case *c)
{
    arena_free(&c->memory);
}

void op_case_give(op_case *c, const ir_tensor *t)
{
    assert_true(c->n_in < OP_CASE_INPUTS);
    c->in[c->n_in++] = t;
}

static ir_tensor *new_tensor(op_case *c, tacit_dtype dtype, const ir_shape *shape)
{
    ir_tensor *t = ir_tensor_new(&c->memory, dtype, shape);
    assert_non_null(t);
    memset(t->data, 0, t->bytes);
    op_case_give(c, t);
    return t;
}

ir_tensor *op_case_f64(op_case *c, tacit_dtype dtype, ir_shape shape, const double *values)
{
    ir_tensor *t = new_tensor(c, dtype, &shape);
    for (int64_t i = 0, n = ir_tensor_count(t); i < n; i++)
        ir_store_f64(dtype, t->data, i, values[i]);
    return t;
}

ir_tensor *op_case_i64(op_case *c, tacit_dtype dtype, ir_shape shape, const int64_t *values)
{
    ir_tensor *t = new_tensor(c, dtype, &shape);
    for (int64_t i = 0, n = ir_tensor_count(t); i < n; i++)
        ir_store_i64(dtype, t->data, i, values[i]);
    return t;
}

ir_tensor *op_case_strings(op_case *c, ir_shape shape, const char *const *values)
{
    ir_tensor *t = new_tensor(c, TACIT_STRING, &shape);
    for (int64_t i = 0, n = ir_tensor_count(t); i < n; i++)
        ((ir_string *)t->data)[i] = (ir_string){values[i], strlen(values[i])};
    return t;
}

ir_tensor *op_case_random(op_case *c, rng *r, tacit_dtype dtype, ir_shape shape, double low,
                          double high)
{
    ir_tensor *t = new_tensor(c, dtype, &shape);
    for (int64_t i = 0, n = ir_tensor_count(t); i < n; i++) {
        double v = rng_range(r, low, high);
        ir_store_f64(dtype, t->data, i, ir_dtype_is_float(dtype) ? v : floor(v));
    }
    return t;
}

static ir_node *node_of(op_case *c)
{
    if (c->node)
        return c->node;
    ir_value *values[OP_CASE_INPUTS] = {0};
    for (uint32_t i = 0; i < c->n_in; i++) {
        if (!c->in[i])
            continue;
        ir_type type = ir_tensor_type(c->in[i]);
        values[i] = ir_input_new(c->graph, NULL, &type);
        assert_non_null(values[i]);
    }
    c->node =
        ir_node_new(c->graph, c->type, c->domain, "n", c->n_in, values, OP_CASE_OUTPUTS, NULL);
    assert_non_null(c->node);
    op_resolve(NULL, c->node);
    return c->node;
}

void op_case_int(op_case *c, const char *name, int64_t value)
{
    assert_true(ir_attr_set_int(c->graph, node_of(c), name, value));
}
void op_case_float(op_case *c, const char *name, double value)
{
    assert_true(ir_attr_set_float(c->graph, node_of(c), name, value));
}
void op_case_string(op_case *c, const char *name, const char *value)
{
    assert_true(ir_attr_set_string(c->graph, node_of(c), name, value));
}
void op_case_ints(op_case *c, const char *name, uint32_t n, const int64_t *values)
{
    assert_true(ir_attr_set_ints(c->graph, node_of(c), name, n, values));
}

void op_case_strings_attr(op_case *c, const char *name, uint32_t n, const char *const *values)
{
    ir_string *list = ARENA_ARRAY(&c->memory, n, ir_string);
    assert_non_null(list);
    for (uint32_t i = 0; i < n; i++)
        list[i] = (ir_string){values[i], strlen(values[i])};
    ir_attr a = {.name = name, .kind = IR_ATTR_STRINGS, .count = n, .strings = list};
    assert_true(ir_attr_set(c->graph, node_of(c), &a));
}

void op_case_tensor_attr(op_case *c, const char *name, tacit_dtype dtype, int64_t n,
                         const double *values)
{
    ir_shape shape = ir_shape_of(1, &n);
    ir_tensor *t = ir_tensor_new(&c->memory, dtype, &shape);
    assert_non_null(t);
    for (int64_t i = 0; i < n; i++)
        ir_store_f64(dtype, t->data, i, values[i]);
    ir_attr a = {.name = name, .kind = IR_ATTR_TENSOR, .tensor = t};
    assert_true(ir_attr_set(c->graph, node_of(c), &a));
}

tacit_status op_case_try(op_case *c, uint32_t n_out)
{
    ir_node *node = node_of(c);
    node->n_outputs = n_out;
    interp_env interp = {.step = c->step};
    op_exec_env env = {
        .memory = &c->memory, .run_graph = interp_run_subgraph, .runner = &interp, .step = c->step};
    return op_execute(node, c->in, c->out, &env, &c->err);
}

void op_case_run(op_case *c, uint32_t n_out)
{
    if (op_case_try(c, n_out) != TACIT_OK)
        fail_msg("%s: %s", c->type, c->err.message);
}

void op_case_expect(op_case *c, uint32_t i, tacit_dtype dtype, ir_shape shape, const double *values,
                    double eps)
{
    const ir_tensor *t = &c->out[i];
    char have[IR_SHAPE_TEXT], want[IR_SHAPE_TEXT];
    assert_int_equal(t->kind, IR_TENSOR);
    assert_string_equal(tacit_dtype_text(t->dtype), tacit_dtype_text(dtype));
    assert_string_equal(ir_shape_text(&t->shape, have), ir_shape_text(&shape, want));
    for (int64_t k = 0, n = ir_tensor_count(t); k < n; k++) {
        double v = ir_load_f64(dtype, t->data, k), w = values[k];
        bool same = v == w || (isnan(v) && isnan(w)) || fabs(v - w) <= eps * (1 + fabs(w));
        if (!same)
            fail_msg("%s output %u element %lld is %.17g, not %.17g", c->type, i, (long long)k, v,
                     w);
    }
}

void op_case_refuses(op_case *c, uint32_t n_out, tacit_status status, const char *text)
{
    assert_int_equal(op_case_try(c, n_out), status);
    if (!strstr(c->err.message, text))
        fail_msg("'%s' does not say '%s'", c->err.message, text);
}

ir_shape random_shape(rng *r, int32_t most_rank)
{
    ir_shape s = {.rank = (int32_t)rng_below(r, (uint64_t)most_rank + 1)};
    for (int32_t d = 0; d < s.rank; d++)
        s.dims[d] = 1 + (int64_t)rng_below(r, s.rank > 4 ? 2 : 5);
    if (s.rank && rng_below(r, 10) == 0)
        s.dims[rng_below(r, (uint64_t)s.rank)] = 0;
    return s;
}

ir_shape random_broadcast(rng *r, const ir_shape *s)
{
    int32_t drop = rng_below(r, 3) ? 0 : (int32_t)rng_below(r, (uint64_t)s->rank + 1);
    ir_shape b = ir_shape_of(s->rank - drop, s->dims + drop);
    for (int32_t d = 0; d < b.rank; d++)
        if (rng_below(r, 3) == 0)
            b.dims[d] = 1;
    return b;
}

int64_t broadcast_index(const ir_shape *s, const int64_t *index, const ir_shape *from)
{
    int64_t at = 0;
    for (int32_t d = 0; d < from->rank; d++)
        at = at * from->dims[d] + (from->dims[d] == 1 ? 0 : index[d + s->rank - from->rank]);
    return at;
}

bool next_index(const ir_shape *s, int64_t *index)
{
    for (int32_t d = s->rank; d-- > 0; index[d] = 0)
        if (++index[d] < s->dims[d])
            return true;
    return false;
}
