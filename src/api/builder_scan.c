/* SPDX-License-Identifier: Apache-2.0
 * Scans in the C builder: the body is a model of its own. */
#include "api/internal.h"

static tacit_value refuse(tacit_builder *b, const char *what)
{
    if (b->status == TACIT_OK)
        b->status = error_set(&b->error, TACIT_ERR_ARGUMENT, "tacit_builder_scan: %s", what);
    return 0;
}

/* A copy of the body's graph that owns its constants; formals behind `n_explicit` become captures:
 * they are the same in every step. */
static ir_graph *copy_body(tacit_builder *b, const tacit_model *body, uint32_t n_explicit)
{
    ir_graph *outer = b->model->graph, *g = ir_graph_clone(body->graph, outer->memory);
    bool ok = g != NULL;
    for (uint32_t i = 0; ok && i < g->values.count; i++) {
        ir_value *v = g->values.data[i];
        if (v->constant)
            ok = (v->constant = ir_tensor_copy(outer->memory, v->constant)) != NULL;
    }
    for (uint32_t i = n_explicit; ok && i < g->inputs.count; i++) {
        g->inputs.data[i]->is_input = false;
        ok = vec_push(outer->memory, &g->captures, g->inputs.data[i]);
    }
    if (!ok) {
        b->status = error_memory(&b->error, "a scan");
        return NULL;
    }
    g->inputs.count = n_explicit;
    g->parent = outer;
    return g;
}

tacit_value tacit_builder_scan(tacit_builder *b, const tacit_model *body, uint32_t n_carries,
                               uint32_t n_xs, uint32_t n_shared, const tacit_value *inputs,
                               uint32_t n_outputs, tacit_value *outputs)
{
    for (uint32_t i = 0; outputs && i < n_outputs; i++)
        outputs[i] = 0;
    if (b->status != TACIT_OK)
        return 0;
    uint32_t n = n_carries + n_xs + n_shared;
    if (!body || !inputs || n_xs == 0)
        return refuse(b, "a body, its inputs and something to scan over are needed");
    if (body->graph->inputs.count != n || body->graph->outputs.count != n_outputs ||
        n_outputs < n_carries)
        return refuse(b, "the body takes carries, slices and shared values, and gives the carries "
                         "and what is stacked");
    if (body->graph->symbols.count)
        return refuse(b, "the body has symbolic dimensions");
    ir_graph *g = copy_body(b, body, n_carries + n_xs);
    if (!g)
        return 0;
    tacit_value first = tacit_builder_node(b, "Scan", n_carries + n_xs, inputs, n_outputs, outputs);
    if (!first)
        return 0;
    ir_graph *outer = b->model->graph;
    ir_attr attr = {.name = "body", .kind = IR_ATTR_GRAPH, .graph = g};
    bool ok = ir_attr_set(outer, b->newest, &attr) &&
              ir_attr_set_int(outer, b->newest, "num_scan_inputs", (int64_t)n_xs);
    for (uint32_t i = n_carries + n_xs; ok && i < n; i++) {
        if (inputs[i] == 0 || inputs[i] > b->values.count)
            return refuse(b, "a shared value is not of this builder");
        ok = ir_node_append_capture(outer, b->newest, b->values.data[inputs[i] - 1]);
    }
    if (!ok) {
        b->status = error_memory(&b->error, "a scan");
        return 0;
    }
    return first;
}
