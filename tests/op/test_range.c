/* SPDX-License-Identifier: Apache-2.0
 * Range rules against evaluation: whatever inputs an interval allows, the result lies in the
 * interval that the rule gives; and the rule is not idle, its bounds are met closely somewhere. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "base/rng.h"
#include "ir/text.h"
#include "op/range.h"
#include "op/specimen.h"

typedef struct range_case {
    const char *text; /* the node; inputs are %x, %z f32[3,8], %w f32[8,4], %g f32[8] */
    bool tight;       /* results come near the bounds */
} range_case;

static const range_case cases[] = {
    {"%y : f32[3,8] = Add(%x, %z)", true},
    {"%y : f32[3,8] = Sub(%x, %z)", true},
    {"%y : f32[3,8] = Mul(%x, %z)", true},
    {"%y : f32[3,8] = Div(%x, %three)", true},
    {"%y : f32[3,8] = Neg(%x)", true},
    {"%y : f32[3,8] = Abs(%x)", true},
    {"%y : f32[3,8] = Relu(%x)", true},
    {"%y : f32[3,8] = LeakyRelu(%x) alpha=0.3", true},
    {"%y : f32[3,8] = LeakyRelu(%x) alpha=-0.5", true},
    {"%y : f32[3,8] = Clip(%x, %low, %three)", true},
    {"%y : f32[3,8] = Gelu(%x)", true},
    {"%y : f32[3,8] = Gelu(%x) approximate=\"tanh\"", true},
    {"%y : f32[3,8] = Swish(%x)", true},
    {"%y : f32[3,8] = Sigmoid(%x)", true},
    {"%y : f32[3,8] = Tanh(%x)", true},
    {"%y : f32[3,8] = Softmax(%x) axis=-1", false},
    {"%y : f32[3,8] = LayerNormalization(%x, %g) axis=-1 epsilon=1e-5", false},
    {"%y : f32[3,8] = RMSNormalization(%x, %g) axis=-1 epsilon=1e-5", false},
    {"%y : f32[3,4] = MatMul(%x, %w)", false},
    {"%y : f32[3,4] = Gemm(%x, %w) alpha=-0.5", false},
    {"%y : f32[3,3] = Gemm(%x, %z) transB=1", false},
    {"%y : f32[8,3] = Transpose(%x) perm=[1,0]", true},
    {"%y : f32[6,8] = Concat(%x, %z) axis=0", true},
    {"%y : f32[3,8] = Max(%x, %z)", false},
    {"%y : f32[3,8] = Min(%x, %z)", false},
    {"%y : f32[3] = ReduceMean(%x, %last) keepdims=0", false},
    {"%y : f32[3] = ReduceSum(%x, %last) keepdims=0", false},
    {"%y : f32[3] = ReduceMax(%x, %last) keepdims=0", false},
    {"%y : i64[3,8] = Cast(%x) to=7", false},
};

static ir_node *parse(const range_case *c, arena *memory, ir_graph **g)
{
    char text[1200];
    tacit_error err = {0};
    snprintf(text, sizeof text,
             "tacit 1\ngraph \"r\" {\n opset \"\" 24\n in %%x : f32[3,8]\n in %%z : f32[3,8]\n"
             " in %%w : f32[8,4]\n in %%g : f32[8]\n const %%three : f32[] = [3.0]\n"
             " const %%low : f32[] = [-0.7]\n const %%last : i64[1] = [-1]\n %s @n\n out %%y\n}\n",
             c->text);
    if (ir_graph_parse(text, strlen(text), memory, g, &err) != TACIT_OK)
        fail_msg("%s: %s", c->text, err.message);
    ir_node *n = (*g)->nodes.data[0];
    op_resolve(NULL, n);
    if (op_infer_graph(*g, &err) != TACIT_OK)
        fail_msg("%s: %s", c->text, err.message);
    return n;
}

/* A tensor within an interval, its edges included, and what is known of it. */
static ir_tensor *fill(rng *r, arena *memory, const ir_value *v, op_interval *known)
{
    if (v->constant) {
        double most = -HUGE_VAL, least = HUGE_VAL;
        for (int64_t i = 0; i < ir_tensor_count(v->constant); i++) {
            double x = ir_load_f64(v->constant->dtype, v->constant->data, i);
            most = fmax(most, x);
            least = fmin(least, x);
        }
        *known = op_range_of(least, most);
        return (ir_tensor *)v->constant;
    }
    double a = rng_range(r, -4, 4), b = rng_range(r, -4, 4), lo = fmin(a, b), hi = fmax(a, b);
    ir_tensor *t = ir_tensor_new(memory, TACIT_F32, &v->type.shape);
    int64_t n = ir_tensor_count(t), columns = t->shape.dims[t->shape.rank - 1];
    *known = op_range_of((float)lo, (float)hi);
    double l1 = 0, l2 = 0, all = 0;
    for (int64_t i = 0; i < n; i++) {
        double x = i == 0 ? lo : i == 1 ? hi : rng_range(r, lo, hi);
        x = fmin(fmax((float)x, (float)lo), (float)hi);
        ir_store_f64(TACIT_F32, t->data, i, x);
        all += x * x;
    }
    for (int64_t j = 0; j < columns; j++) {
        double one = 0, two = 0;
        for (int64_t i = j; i < n; i += columns) {
            double x = ir_load_f64(TACIT_F32, t->data, i);
            one += fabs(x);
            two += x * x;
        }
        l1 = fmax(l1, one);
        l2 = fmax(l2, sqrt(two));
    }
    for (int64_t i = 0; i < n; i += columns) {
        double row = 0;
        for (int64_t j = 0; j < columns; j++)
            row += pow(ir_load_f64(TACIT_F32, t->data, i + j), 2);
        known->norm = fmax(known->norm, sqrt(row));
    }
    known->l1 = l1;
    known->l2 = l2;
    known->frobenius = sqrt(all);
    return t;
}

static double row_norm(const ir_tensor *t)
{
    int64_t n = ir_tensor_count(t), k = t->shape.rank ? t->shape.dims[t->shape.rank - 1] : 1;
    double most = 0;
    for (int64_t i = 0; i < n; i += k) {
        double sum = 0;
        for (int64_t j = 0; j < k; j++)
            sum += pow(ir_load_f64(t->dtype, t->data, i + j), 2);
        most = fmax(most, sqrt(sum));
    }
    return most;
}

static void results_lie_in_their_ranges(void **state)
{
    (void)state;
    rng r = rng_seed(5);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double nearest = HUGE_VAL;
        for (int trial = 0; trial < 60; trial++) {
            arena memory;
            arena_init(&memory, NULL);
            ir_graph *g;
            ir_node *n = parse(&cases[i], &memory, &g);
            op_interval known[4] = {{0}}, out[2] = {{0}};
            const ir_tensor *in[4] = {0};
            ir_tensor y[2] = {{0}};
            tacit_error err = {0};
            for (uint32_t k = 0; k < n->n_inputs; k++)
                in[k] = fill(&r, &memory, n->inputs[k], &known[k]);
            op_range c = {.node = n, .in = known, .out = out, .err = &err};
            op_exec_env env = {.memory = &memory};
            if (op_range_node(&c) != TACIT_OK || op_execute(n, in, y, &env, &err) != TACIT_OK)
                fail_msg("%s: %s", cases[i].text, err.message);
            double width = fmax(out[0].hi - out[0].lo, 1e-3), slack = 1e-5 * (1 + width);
            for (int64_t e = 0; e < ir_tensor_count(y); e++) {
                double v = ir_load_f64(y->dtype, y->data, e);
                if (!(v >= out[0].lo - slack && v <= out[0].hi + slack))
                    fail_msg("%s: %g is not in [%g, %g]", cases[i].text, v, out[0].lo, out[0].hi);
                nearest = fmin(nearest, fmin(v - out[0].lo, out[0].hi - v) / width);
            }
            if (out[0].norm > 0 && !(row_norm(y) <= out[0].norm * (1 + 1e-5) + 1e-6))
                fail_msg("%s: norm %g is above %g", cases[i].text, row_norm(y), out[0].norm);
            arena_free(&memory);
        }
        if (cases[i].tight && !(nearest < 0.02))
            fail_msg("%s: no result came near its bounds", cases[i].text);
    }
}

/* ---- every row that has a rule ---- */

/* What is known of a tensor: its interval, norms of rows and, where it is a second operand, sizes
 * of its columns or of its filters. */
static op_interval known_of(const ir_tensor *t, bool filters)
{
    int64_t n = ir_tensor_count(t), k = t->shape.rank ? t->shape.dims[t->shape.rank - 1] : 1;
    op_interval r = op_range_of(HUGE_VAL, -HUGE_VAL);
    double all = 0;
    for (int64_t i = 0; i < n; i++) {
        double x = ir_load_f64(t->dtype, t->data, i);
        r.lo = fmin(r.lo, x);
        r.hi = fmax(r.hi, x);
        all += x * x;
    }
    r.norm = k ? row_norm(t) : 0;
    r.frobenius = sqrt(all);
    int64_t out = t->shape.rank ? t->shape.dims[0] : 1;
    int64_t groups = filters ? out : k, step = filters ? 1 : k, size = groups ? n / groups : 0;
    for (int64_t j = 0; j < groups; j++) {
        double one = 0, two = 0;
        for (int64_t i = 0; i < size; i++) {
            double x = ir_load_f64(t->dtype, t->data, filters ? j * size + i : j + i * step);
            one += fabs(x);
            two += x * x;
        }
        r.l1 = fmax(r.l1, one);
        r.l2 = fmax(r.l2, sqrt(two));
    }
    return r;
}

/* One random node of the row: 1 if its results were checked. */
static int check_specimen(const op_def *row, uint64_t seed)
{
    arena memory;
    arena_init(&memory, NULL);
    op_specimen s;
    tacit_error err = {0};
    int checked = 0;
    if (op_specimen_make(&memory, row, TACIT_F32, seed, NULL, NULL, &s) &&
        ir_graph_sort(s.graph, &err) == TACIT_OK && op_infer_graph(s.graph, &err) == TACIT_OK) {
        const ir_node *n = s.node;
        const ir_tensor *in[24] = {0};
        op_interval known[24] = {{0}}, out[8] = {{0}};
        ir_tensor y[8] = {{0}};
        bool empty = false;
        for (uint32_t k = 0; k < n->n_inputs; k++) {
            const ir_value *v = n->inputs[k];
            for (uint32_t i = 0; v && i < s.graph->inputs.count; i++)
                if (s.graph->inputs.data[i] == v)
                    in[k] = s.given[i];
            in[k] = v && v->constant ? v->constant : in[k];
            empty |= in[k] && ir_tensor_count(in[k]) == 0;
            if (in[k])
                known[k] = known_of(in[k], strstr(row->name, "Conv") != NULL);
            empty |= !isfinite(known[k].frobenius); /* infinities are nobody's interval */
        }
        op_range c = {.node = n, .in = known, .out = out, .err = &err};
        op_exec_env env = {.memory = &memory};
        if (!empty && n->n_outputs <= 8 && op_range_node(&c) == TACIT_OK &&
            op_execute(n, in, y, &env, &err) == TACIT_OK) {
            checked = 1;
            for (uint32_t o = 0; o < n->n_outputs; o++) {
                double slack = 1e-4 * (1 + op_magnitude(out[o]));
                for (int64_t e = 0; n->outputs[o] && y[o].data && e < ir_tensor_count(&y[o]); e++) {
                    double v = ir_load_f64(y[o].dtype, y[o].data, e);
                    if (!(v >= out[o].lo - slack && v <= out[o].hi + slack) && !isnan(v))
                        fail_msg("%s.%s, specimen %llu, output %u: %g is not in [%g, %g]",
                                 row->domain ? row->domain : "", row->name,
                                 (unsigned long long)seed, o, v, out[o].lo, out[o].hi);
                }
                if (n->outputs[o] && out[o].norm > 0 && y[o].data &&
                    !(row_norm(&y[o]) <= out[o].norm * 1.0001 + 1e-4))
                    fail_msg("%s.%s, specimen %llu: norm %g is above %g",
                             row->domain ? row->domain : "", row->name, (unsigned long long)seed,
                             row_norm(&y[o]), out[o].norm);
            }
        }
    }
    arena_free(&memory);
    return checked;
}

static void every_rule_is_sound(void **state)
{
    (void)state;
    uint32_t rows = 0;
    for (uint32_t i = 0; op_at(i); i++) {
        const op_def *row = op_at(i);
        if (!row->range)
            continue;
        int checked = 0;
        for (uint64_t seed = 1; seed <= 150; seed++)
            checked += check_specimen(row, seed);
        if (checked < 20)
            fail_msg("%s: only %d specimens could be checked", row->name, checked);
        rows++;
    }
    assert_true(rows >= 50);
}

static void what_has_no_rule_is_said(void **state)
{
    (void)state;
    static const range_case erf = {"%y : f32[3,8] = Erf(%x)", false};
    arena memory;
    arena_init(&memory, NULL);
    ir_graph *g;
    ir_node *n = parse(&erf, &memory, &g);
    op_interval in = op_range_of(-1, 1), out;
    tacit_error err = {0};
    op_range c = {.node = n, .in = &in, .out = &out, .err = &err};
    assert_int_equal(op_range_node(&c), TACIT_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "range"));
    static const range_case div = {"%y : f32[3,8] = Div(%x, %z)", false};
    n = parse(&div, &memory, &g);
    op_interval two[2] = {op_range_of(-1, 1), op_range_of(-1, 1)};
    c = (op_range){.node = n, .in = two, .out = &out, .err = &err};
    assert_int_equal(op_range_node(&c), TACIT_ERR_LIMIT);
    arena_free(&memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_lie_in_their_ranges),
        cmocka_unit_test(every_rule_is_sound),
        cmocka_unit_test(what_has_no_rule_is_said),
    };
    return cmocka_run_group_tests_name("op.range", tests, NULL, NULL);
}
