/* SPDX-License-Identifier: Apache-2.0
 * Scans in the C builder: the body is a model of its own. */
#include "api/internal.h"

static tacit_value refuse(tacit_builder *b, const char *what)
{
    if (b->status == TACIT_OK)
        b->status = error_set(&b->error, TACIT_ERR_ARGUMENT, "tacit_builder_scan: %s", what);
    return 0;
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
    tacit_value first = tacit_builder_node(b, "Scan", n_carries + n_xs, inputs, n_outputs, outputs);
    if (!first)
        return 0;
    tacit_builder_attr_int(b, "num_scan_inputs", (int64_t)n_xs);
    tacit_builder_attr_graph(b, "body", body, n_shared, inputs + n_carries + n_xs);
    return b->status == TACIT_OK ? first : 0;
}
