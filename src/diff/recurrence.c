/* SPDX-License-Identifier: Apache-2.0
 * Recurrences that have an evaluator of their own, as scans: so that the scan's gradient is theirs.
 */
#include <math.h>
#include <string.h>

#include "diff/diff.h"
#include "ir/text.h"

/* How one step of a recurrence looks. The node has five inputs [batch, time, …] and then, perhaps,
 * its first state. */
typedef struct recurrence {
    const char *type;
    bool outer; /* input 2 is the same for all steps */
    /* Body text for the sizes of the node; NULL: no memory. */
    const char *(*body)(const ir_node *n, arena *a);
    ir_shape (*state)(const ir_node *n);
} recurrence;

static ir_shape selective_state(const ir_node *n)
{
    const int64_t *x = n->inputs[0]->type.shape.dims;
    return ir_shape_of(3, (int64_t[]){x[0], x[2], n->inputs[2]->type.shape.dims[1]});
}

/* h ← exp(δA)·h + δ·B·x; y = Σ C·h */
static const char *selective_body(const ir_node *n, arena *a)
{
    ir_shape s = selective_state(n);
    const char *t = tacit_dtype_text(n->inputs[0]->type.dtype);
    long long b = s.dims[0], c = s.dims[1], k = s.dims[2];
    return arena_printf(
        a,
        "tacit 1\ngraph \"step\" {\nin %%h : %s[%lld,%lld,%lld]\nin %%x : %s[%lld,%lld]\nin %%d : "
        "%s[%lld,%lld]\nin %%b : %s[%lld,%lld]\nin %%c : %s[%lld,%lld]\ncapture %%A : "
        "%s[%lld,%lld]\nconst %%one : i64[1] = [1]\nconst %%two : i64[1] = [2]\n"
        "%%d3 = Unsqueeze(%%d, %%two) @d3\n%%e = Mul(%%d3, %%A) @e\n%%a = Exp(%%e) @a\n"
        "%%kept = Mul(%%a, %%h) @kept\n%%dx = Mul(%%d, %%x) @dx\n%%dx3 = Unsqueeze(%%dx, %%two) "
        "@dx3\n%%b3 = Unsqueeze(%%b, %%one) @b3\n%%new = Mul(%%dx3, %%b3) @new\n%%n = Add(%%kept, "
        "%%new) @n\n%%c3 = Unsqueeze(%%c, %%one) @c3\n%%p = Mul(%%n, %%c3) @p\n%%y = "
        "ReduceSum(%%p, %%two) keepdims=0 @y\nout %%n\nout %%y\n}\n",
        t, b, c, k, t, b, c, t, b, c, t, b, k, t, b, k, t, c, k);
}

static ir_shape delta_state(const ir_node *n)
{
    const int64_t *q = n->inputs[0]->type.shape.dims;
    return ir_shape_of(4, (int64_t[]){q[0], q[2], q[3], q[3]});
}

/* S ← e^g·S; S += k ⊗ β(v − kᵀS); o = qᵀS/√n */
static const char *delta_body(const ir_node *n, arena *a)
{
    ir_shape s = delta_state(n);
    const char *t = tacit_dtype_text(n->inputs[0]->type.dtype);
    long long b = s.dims[0], h = s.dims[1], k = s.dims[2];
    return arena_printf(
        a,
        "tacit 1\ngraph \"step\" {\nin %%s : %s[%lld,%lld,%lld,%lld]\nin %%q : "
        "%s[%lld,%lld,%lld]\nin %%k : %s[%lld,%lld,%lld]\nin %%v : %s[%lld,%lld,%lld]\nin %%g : "
        "%s[%lld,%lld]\nin %%beta : %s[%lld,%lld]\nconst %%two : i64[1] = [2]\nconst %%three : "
        "i64[1] = [3]\nconst %%last : i64[2] = [2, 3]\nconst %%scale : %s[] = [%.17g]\n"
        "%%e = Exp(%%g) @e\n%%e4 = Unsqueeze(%%e, %%last) @e4\n%%s1 = Mul(%%s, %%e4) @s1\n"
        "%%row = Unsqueeze(%%k, %%two) @row\n%%col = Unsqueeze(%%k, %%three) @col\n"
        "%%p = MatMul(%%row, %%s1) @p\n%%v4 = Unsqueeze(%%v, %%two) @v4\n%%miss = Sub(%%v4, %%p) "
        "@miss\n%%b4 = Unsqueeze(%%beta, %%last) @b4\n%%d = Mul(%%miss, %%b4) @d\n%%o = "
        "MatMul(%%col, %%d) @o\n%%n = Add(%%s1, %%o) @n\n%%q4 = Unsqueeze(%%q, %%two) @q4\n"
        "%%r = MatMul(%%q4, %%n) @r\n%%r3 = Squeeze(%%r, %%two) @r3\n%%y = Mul(%%r3, %%scale) "
        "@y\nout %%n\nout %%y\n}\n",
        t, b, h, k, k, t, b, h, k, t, b, h, k, t, b, h, k, t, b, h, t, b, h, t,
        1 / sqrt((double)k));
}

static const recurrence recurrences[] = {
    {"SelectiveScan", true, selective_body, selective_state},
    {"GatedDeltaNet", false, delta_body, delta_state},
};

static const recurrence *find(const ir_node *n)
{
    for (size_t i = 0; n->type && n->op && strcmp(n->domain, "tacit") == 0 &&
                       i < sizeof recurrences / sizeof *recurrences;
         i++)
        if (strcmp(n->type, recurrences[i].type) == 0)
            return &recurrences[i];
    return NULL;
}

/* Batch and time change places. */
static ir_value *swap_first(op_diff *c, ir_value *x)
{
    int64_t perm[IR_MAX_RANK];
    for (int32_t i = 0; i < IR_MAX_RANK; i++)
        perm[i] = i < 2 ? 1 - i : i;
    return op_diff_transpose(c, x, perm);
}

static tacit_status spell_out(ir_graph *g, ir_node *n, const recurrence *r, tacit_error *err)
{
    op_diff c = {.graph = g, .node = n, .err = err};
    ir_type state = n->inputs[0]->type;
    state.shape = r->state(n);
    const char *text = r->body(n, g->memory);
    ir_graph *body;
    if (!text)
        return error_memory(err, "a scan");
    TRY(ir_graph_parse(text, strlen(text), g->memory, &body, err));
    for (uint32_t i = 0; i < body->nodes.count; i++)
        op_resolve(NULL, body->nodes.data[i]);
    ir_value *in[8] = {n->n_inputs > 5 ? n->inputs[5] : NULL}, *outer = NULL;
    uint32_t n_in = 1;
    if (!in[0])
        in[0] = op_diff_zeros(&c, &state);
    for (uint32_t i = 0; i < 5; i++) {
        if (r->outer && i == 2)
            outer = n->inputs[i];
        else
            in[n_in++] = swap_first(&c, n->inputs[i]);
    }
    if (c.status != TACIT_OK)
        return c.status;
    ir_node *s = ir_node_new(g, "Scan", "", n->name, n_in, in, 2, NULL);
    body->parent = g;
    if (!s || (outer && !ir_node_append_capture(g, s, outer)) ||
        !ir_attr_set(g, s, &(ir_attr){.name = "body", .kind = IR_ATTR_GRAPH, .graph = body}) ||
        !ir_attr_set_int(g, s, "num_scan_inputs", (int64_t)n_in - 1))
        return error_memory(err, "a scan");
    op_resolve(NULL, s);
    TRY(op_infer_node(g, s, err));
    ir_value *y = swap_first(&c, s->outputs[1]);
    if (!y)
        return c.status;
    ir_replace_uses(g, n->outputs[0], y);
    if (n->n_outputs > 1 && n->outputs[1])
        ir_replace_uses(g, n->outputs[1], s->outputs[0]);
    ir_node_kill(n);
    return TACIT_OK;
}

tacit_status diff_spell_recurrences(ir_graph *g, tacit_error *err)
{
    bool any = false;
    for (uint32_t i = 0, count = g->nodes.count; i < count; i++) {
        const recurrence *r = find(g->nodes.data[i]);
        if (!r)
            continue;
        TRY(spell_out(g, g->nodes.data[i], r, err));
        any = true;
    }
    if (!any)
        return TACIT_OK;
    TRY(ir_graph_sort(g, err));
    return op_infer_graph(g, err);
}
