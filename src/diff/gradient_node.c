/* SPDX-License-Identifier: Apache-2.0
 * ONNX's Gradient node (ai.onnx.preview.training): a gradient asked for inside a graph. */
#include <string.h>

#include "diff/diff.h"

static bool is_gradient(const ir_node *n)
{
    return n->type && strcmp(n->type, "Gradient") == 0 &&
           strcmp(n->domain, "ai.onnx.preview.training") == 0;
}

/* The names to differentiate by: the node's first inputs, which must be the values it names. */
static tacit_status read_names(const ir_node *n, arena *scratch, const char ***names,
                               uint32_t *count, tacit_error *err)
{
    const ir_string *xs = ir_attr_strings(n, "xs", count);
    *names = ARENA_ARRAY(scratch, *count + 1u, const char *);
    if (!*names)
        return error_memory(err, "a Gradient node");
    if (!xs || *count > n->n_inputs || *count != n->n_outputs)
        return error_set(err, TACIT_ERR_GRAPH, "xs, the inputs and the outputs differ in number");
    for (uint32_t i = 0; i < *count; i++) {
        const ir_value *v = n->inputs[i];
        if (!v || strlen(v->name) != xs[i].length || memcmp(v->name, xs[i].data, xs[i].length) != 0)
            return error_set(err, TACIT_ERR_UNSUPPORTED, "input %u is not the value named '%.*s'",
                             i, (int)xs[i].length, xs[i].data);
        (*names)[i] = v->name;
    }
    return TACIT_OK;
}

/* diff_grad makes the gradients the graph's outputs; the old ones come back afterwards. */
static tacit_status expand_one(ir_graph *g, ir_node *n, arena *scratch, tacit_error *err)
{
    uint32_t count, n_outputs = g->outputs.count;
    const char **names, *y = ir_attr_string(n, "y", "");
    ir_value *loss = ir_value_find(g, y);
    ir_value **kept = ARENA_ARRAY(scratch, n_outputs + 1u, ir_value *);
    TRY(read_names(n, scratch, &names, &count, err));
    ir_value **grads = ARENA_ARRAY(scratch, count + 1u, ir_value *);
    if (!kept || !grads)
        return error_memory(err, "a Gradient node");
    if (!loss)
        return error_set(err, TACIT_ERR_GRAPH, "there is no value named '%s'", y);
    memcpy(kept, g->outputs.data, n_outputs * sizeof *kept);
    g->outputs.count = 0;
    if (!ir_output_add(g, loss))
        return error_memory(err, "a Gradient node");
    TRY(diff_grad(g, count, names, &(diff_grad_options){.ones_seed = true}, err));
    memcpy(grads, g->outputs.data, count * sizeof *grads);
    g->outputs.count = 0;
    for (uint32_t i = 0; i < n_outputs; i++)
        if (!ir_output_add(g, kept[i]))
            return error_memory(err, "a Gradient node");
    for (uint32_t i = 0; i < count; i++)
        if (n->outputs[i])
            ir_replace_uses(g, n->outputs[i], grads[i]);
    ir_node_kill(n);
    TRY(ir_graph_sweep(g, err));
    TRY(ir_graph_sort(g, err));
    return op_infer_graph(g, err);
}

tacit_status diff_gradient_nodes(ir_graph *g, tacit_error *err)
{
    for (uint32_t i = 0; i < g->nodes.count; i++) {
        ir_node *n = g->nodes.data[i];
        if (!is_gradient(n))
            continue;
        arena scratch;
        arena_init(&scratch, g->memory->allocator);
        tacit_status status = expand_one(g, n, &scratch, err);
        arena_free(&scratch);
        if (status != TACIT_OK)
            return op_context(n, status, err);
        i = UINT32_MAX; /* nodes moved: look from the start */
    }
    return TACIT_OK;
}
