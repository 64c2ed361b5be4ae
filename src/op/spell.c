/* SPDX-License-Identifier: Apache-2.0 */
#include "op/spell.h"

#include <string.h>

static ir_value *out_of_memory(op_diff *c)
{
    if (c->status == TACIT_OK)
        c->status = error_memory(c->err, "a derivative graph");
    return NULL;
}

ir_value *op_spell_add(op_diff *c, ir_value *a, ir_value *b)
{
    return op_diff2(c, "Add", a, b);
}
ir_value *op_spell_sub(op_diff *c, ir_value *a, ir_value *b)
{
    return op_diff2(c, "Sub", a, b);
}
ir_value *op_spell_mul(op_diff *c, ir_value *a, ir_value *b)
{
    return op_diff2(c, "Mul", a, b);
}
ir_value *op_spell_div(op_diff *c, ir_value *a, ir_value *b)
{
    return op_diff2(c, "Div", a, b);
}
ir_value *op_spell_matmul(op_diff *c, ir_value *a, ir_value *b)
{
    return op_diff2(c, "MatMul", a, b);
}
ir_value *op_spell_shift(op_diff *c, ir_value *x, double offset)
{
    return x ? op_spell_add(c, x, op_diff_scalar(c, x->type.dtype, offset)) : NULL;
}
ir_value *op_spell_clip(op_diff *c, ir_value *x, double low, double high)
{
    return x ? op_diff3(c, "Clip", x, op_diff_scalar(c, x->type.dtype, low),
                        op_diff_scalar(c, x->type.dtype, high))
             : NULL;
}
ir_value *op_spell_where(op_diff *c, const char *type, ir_value *a, double b, tacit_dtype dtype)
{
    return a ? op_diff_cast(c, op_diff2(c, type, a, op_diff_scalar(c, a->type.dtype, b)), dtype)
             : NULL;
}

ir_value *op_spell_shaped(op_diff *c, ir_value *x, int32_t rank, const int64_t *dims)
{
    ir_shape s = ir_shape_of(rank, dims);
    return op_diff_reshape(c, x, &s);
}
ir_value *op_spell_expanded(op_diff *c, ir_value *x, int32_t rank, const int64_t *dims)
{
    ir_shape s = ir_shape_of(rank, dims);
    return op_diff_expand(c, x, &s);
}

ir_value *op_spell_slice(op_diff *c, ir_value *x, int64_t axis, int64_t from, int64_t to)
{
    ir_value *in[4] = {x, op_diff_ints(c, 1, &from), op_diff_ints(c, 1, &to),
                       op_diff_ints(c, 1, &axis)};
    return x && in[3] ? op_diff_node(c, "Slice", 4, in) : NULL;
}

ir_value *op_spell_padded(op_diff *c, ir_value *x, int64_t axis, int64_t before, int64_t after)
{
    int64_t pads[2 * IR_MAX_RANK] = {0};
    if (!x || (before == 0 && after == 0))
        return x;
    pads[axis] = before;
    pads[axis + x->type.shape.rank] = after;
    return op_diff2(c, "Pad", x, op_diff_ints(c, 2 * (uint32_t)x->type.shape.rank, pads));
}

ir_value *op_spell_concat(op_diff *c, uint32_t n, ir_value *const *parts, int64_t axis)
{
    return op_diff_attr_int(c, op_diff_open(c, "Concat", n, parts), "axis", axis);
}
ir_value *op_spell_unsqueeze(op_diff *c, ir_value *x, int64_t axis)
{
    return op_diff2(c, "Unsqueeze", x, op_diff_ints(c, 1, &axis));
}
ir_value *op_spell_gather(op_diff *c, ir_value *x, ir_value *index, int64_t axis)
{
    ir_value *in[2] = {x, index};
    return op_diff_attr_int(c, op_diff_open(c, "Gather", 2, in), "axis", axis);
}
ir_value *op_spell_gather_elements(op_diff *c, ir_value *x, ir_value *index, int64_t axis)
{
    ir_value *in[2] = {x, index};
    return op_diff_attr_int(c, op_diff_open(c, "GatherElements", 2, in), "axis", axis);
}

ir_value *op_spell_reduce(op_diff *c, const char *type, ir_value *x, int64_t axis, bool keep)
{
    ir_value *in[2] = {x, op_diff_ints(c, 1, &axis)};
    return op_diff_attr_int(c, op_diff_open(c, type, 2, in), "keepdims", keep);
}

ir_value *op_spell_attr_string(op_diff *c, ir_value *v, const char *name, const char *value)
{
    if (!v)
        return NULL;
    if (!ir_attr_set_string(c->graph, v->producer, name, value))
        return out_of_memory(c);
    c->status = op_infer_node(c->graph, v->producer, c->err);
    return c->status == TACIT_OK ? v : NULL;
}

ir_value *op_spell_floats(op_diff *c, tacit_dtype dtype, int32_t rank, const int64_t *dims,
                          const double *values)
{
    ir_shape s = ir_shape_of(rank, dims);
    ir_tensor *t = c->status == TACIT_OK ? ir_tensor_new(c->graph->memory, dtype, &s) : NULL;
    for (int64_t i = 0; t && i < ir_tensor_count(t); i++)
        ir_store_f64(dtype, t->data, i, values[i]);
    ir_value *v = t ? ir_constant_new(c->graph, "numbers", t) : NULL;
    return v ? v : out_of_memory(c);
}

ir_value *op_spell_ints(op_diff *c, int32_t rank, const int64_t *dims, const int64_t *values)
{
    ir_shape s = ir_shape_of(rank, dims);
    ir_tensor *t = c->status == TACIT_OK ? ir_tensor_new(c->graph->memory, TACIT_I64, &s) : NULL;
    if (t)
        memcpy(t->data, values, t->bytes);
    ir_value *v = t ? ir_constant_new(c->graph, "index", t) : NULL;
    return v ? v : out_of_memory(c);
}

ir_value *op_spell_eye(op_diff *c, tacit_dtype dtype, int64_t n)
{
    ir_shape s = ir_shape_of(2, (int64_t[]){n, n});
    ir_tensor *t = c->status == TACIT_OK ? ir_tensor_new(c->graph->memory, dtype, &s) : NULL;
    for (int64_t i = 0; t && i < n * n; i++)
        ir_store_f64(dtype, t->data, i, i / n == i % n);
    ir_value *v = t ? ir_constant_new(c->graph, "units", t) : NULL;
    return v ? v : out_of_memory(c);
}

ir_node *op_spell_sibling(op_diff *c, const char *type, const char *domain, uint32_t n_in,
                          ir_value *const *in, uint32_t n_out)
{
    if (c->status != TACIT_OK)
        return NULL;
    ir_node *n = ir_node_new(c->graph, type, domain, NULL, n_in, in, n_out, NULL);
    if (!n || !ir_attr_copy_all(c->graph, n, c->node)) {
        out_of_memory(c);
        return NULL;
    }
    op_resolve(NULL, n);
    c->status = op_infer_node(c->graph, n, c->err);
    return c->status == TACIT_OK ? n : NULL;
}

ir_value *op_spell_input(const op_diff *c, uint32_t i)
{
    return i < c->node->n_inputs ? c->node->inputs[i] : NULL;
}

ir_value *op_diff_output(op_diff *c, uint32_t i)
{
    if (c->status != TACIT_OK)
        return NULL;
    if (i < c->node->n_outputs && c->node->outputs[i])
        return c->node->outputs[i];
    /* c->node may be a stand-in for the node of the graph. */
    ir_node *n = c->node->outputs[0]->producer;
    uint32_t count = i < n->n_outputs ? n->n_outputs : i + 1;
    ir_value **outputs = ARENA_ARRAY(c->graph->memory, count + 1u, ir_value *);
    ir_value *v = outputs ? ir_value_new(c->graph, n->type, &n->outputs[0]->type) : NULL;
    if (!v)
        return out_of_memory(c);
    memcpy(outputs, n->outputs, n->n_outputs * sizeof *outputs);
    v->producer = n;
    v->output_index = i;
    outputs[i] = v;
    c->node->outputs = n->outputs = outputs;
    c->node->n_outputs = n->n_outputs = count;
    c->status = op_infer_node(c->graph, n, c->err);
    return c->status == TACIT_OK ? v : NULL;
}

void *op_spell_scratch(op_diff *c, size_t bytes)
{
    void *p = c->status == TACIT_OK ? arena_alloc(c->graph->memory, bytes ? bytes : 1) : NULL;
    if (!p)
        out_of_memory(c);
    return p;
}

/* --- interpolation ---------------------------------------------------------------------------- */

int op_spell_tap_parts(op_diff *c, ir_value *flat, int32_t rank, const int64_t *in,
                       const op_taps *taps, ir_value **parts)
{
    int combos = 1;
    for (int32_t i = 0; i < rank; i++)
        combos *= taps[i].count;
    if (!flat || combos > OP_TAP_COMBOS) {
        op_diff_fail(c, TACIT_ERR_LIMIT, "too many axes for its gradient");
        return 0;
    }
    for (int k = 0; k < combos; k++) {
        ir_value *index = NULL, *weight = NULL;
        int64_t step = 1;
        int rest = k;
        for (int32_t i = rank; i-- > 0; rest /= taps[i].count, step *= in[i]) {
            int tap = rest % taps[i].count;
            ir_value *at = taps[i].index[tap], *w = taps[i].weight[tap];
            at = step == 1 ? at : op_diff_scale(c, at, (double)step);
            index = index ? op_spell_add(c, index, at) : at;
            weight = weight && w ? op_spell_mul(c, weight, w) : weight ? weight : w;
        }
        if (!index)
            return 0;
        int64_t dims[3] = {flat->type.shape.dims[0], flat->type.shape.dims[1],
                           index->type.shape.dims[2]};
        index = op_spell_expanded(c, index, 3, dims);
        ir_value *v = op_spell_gather_elements(c, flat, index, 2);
        parts[k] = weight ? op_spell_mul(c, v, weight) : v;
    }
    return c->status == TACIT_OK ? combos : 0;
}

ir_value *op_spell_interpolate(op_diff *c, ir_value *flat, int32_t rank, const int64_t *in,
                               const op_taps *taps)
{
    ir_value *parts[OP_TAP_COMBOS], *sum = NULL;
    int n = op_spell_tap_parts(c, flat, rank, in, taps, parts);
    for (int i = 0; i < n; i++)
        sum = sum ? op_spell_add(c, sum, parts[i]) : parts[i];
    return sum;
}

op_taps op_spell_linear_taps(op_diff *c, ir_value *x, int64_t n)
{
    op_taps t = {.count = 2};
    ir_value *low = op_diff1(c, "Floor", x), *part = op_spell_sub(c, x, low);
    for (int k = 0; k < 2 && part; k++) {
        ir_value *at = k ? op_spell_shift(c, low, 1) : low;
        ir_value *inside =
            op_spell_mul(c, op_spell_where(c, "Greater", at, -0.5, x->type.dtype),
                         op_spell_where(c, "Less", at, (double)n - 0.5, x->type.dtype));
        ir_value *w = k ? part : op_spell_shift(c, op_diff1(c, "Neg", part), 1);
        t.weight[k] = op_spell_mul(c, w, inside);
        t.index[k] = op_diff_cast(c, op_spell_clip(c, at, 0, (double)n - 1), TACIT_I64);
    }
    return t;
}

/* --- scans ------------------------------------------------------------------------------------ */

bool op_scan_begin(op_scan_build *b, op_diff *c)
{
    *b = (op_scan_build){.outer = c};
    ir_graph *body = c->status == TACIT_OK ? ir_graph_new(c->graph->memory, "step") : NULL;
    if (!body) {
        out_of_memory(c);
        return false;
    }
    body->parent = c->graph;
    b->body = (op_diff){.graph = body, .node = c->node, .err = c->err};
    return true;
}

static ir_value *formal(op_scan_build *b, const ir_type *type)
{
    ir_value *v = ir_input_new(b->body.graph, "x", type);
    return v ? v : out_of_memory(&b->body);
}

ir_value *op_scan_carry(op_scan_build *b, ir_value *first)
{
    if (!first)
        return NULL;
    b->in[b->n_carry++] = first;
    return formal(b, &first->type);
}

ir_value *op_scan_x(op_scan_build *b, ir_value *xs)
{
    if (!xs)
        return NULL;
    ir_type type = xs->type;
    memmove(type.shape.dims, type.shape.dims + 1,
            (size_t)(type.shape.rank - 1) * sizeof *type.shape.dims);
    type.shape.rank--;
    b->in[b->n_carry + b->n_x++] = xs;
    return formal(b, &type);
}

ir_value *op_scan_outer(op_scan_build *b, ir_value *value)
{
    if (!value)
        return NULL;
    ir_graph *body = b->body.graph;
    ir_value *v = ir_value_new(body, "outer", &value->type);
    if (!v || !vec_push(body->memory, &body->captures, v))
        return out_of_memory(&b->body);
    b->outer_values[b->n_outer++] = value;
    return v;
}

ir_node *op_scan_end(op_scan_build *b)
{
    op_diff *c = b->outer;
    ir_graph *g = c->graph, *body = b->body.graph;
    if (c->status == TACIT_OK)
        c->status = b->body.status;
    if (c->status != TACIT_OK)
        return NULL;
    bool ok = true;
    for (uint32_t i = 0; ok && i < b->n_carry; i++)
        ok = b->next[i] && ir_output_add(body, b->next[i]);
    for (uint32_t i = 0; ok && i < b->n_step; i++)
        ok = b->step[i] && ir_output_add(body, b->step[i]);
    ir_node *n = ok ? ir_node_new(g, "Scan", "", NULL, b->n_carry + b->n_x, b->in,
                                  b->n_carry + b->n_step, NULL)
                    : NULL;
    ok = n && ir_attr_set_int(g, n, "num_scan_inputs", (int64_t)b->n_x) &&
         ir_attr_set(g, n, &(ir_attr){.name = "body", .kind = IR_ATTR_GRAPH, .graph = body});
    const int64_t back[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    if (ok && b->reverse)
        ok = ir_attr_set_ints(g, n, "scan_input_directions", b->n_x, back) &&
             ir_attr_set_ints(g, n, "scan_output_directions", b->n_step, back);
    for (uint32_t i = 0; ok && i < b->n_outer; i++)
        ok = ir_node_append_capture(g, n, b->outer_values[i]);
    if (!ok) {
        out_of_memory(c);
        return NULL;
    }
    op_resolve(NULL, n);
    c->status = op_infer_node(g, n, c->err);
    return c->status == TACIT_OK ? n : NULL;
}
