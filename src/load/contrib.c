/* SPDX-License-Identifier: Apache-2.0
 *
 * ONNX Runtime's quantiser and optimiser write operators of their own (com.microsoft) into files.
 * Most are short for a few operators of ONNX; they are spelled out while loading, so that every
 * pass, executor and transform knows them. The rules are in tables (load/spelling.h).
 */
#include "load/contrib.h"

#include <string.h>

#include "load/spelling.h"

static const spelling_row *const tables[] = {contrib_bytes, contrib_weights, contrib_fused};

const char *load_contrib_name(size_t index)
{
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const spelling_row *row = tables[t]; row->type; row++)
            if (index-- == 0)
                return row->type;
    return NULL;
}

static const spelling_row *row_of(const char *type)
{
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const spelling_row *row = tables[t]; row->type; row++)
            if (strcmp(row->type, type) == 0)
                return row;
    return NULL;
}

tacit_status load_contrib(ir_graph *g, ir_node *node, tacit_error *err)
{
    if (node->op || strcmp(node->domain, "com.microsoft") != 0)
        return TACIT_OK;
    const spelling_row *row = row_of(node->type);
    if (!row)
        return TACIT_OK;
    spelling s = {.u = {g, node, 1, err}};
    for (uint32_t k = 0; row->needed >> k; k++)
        if ((row->needed >> k & 1) && !spelling_in(&s, k))
            return error_set(err, TACIT_ERR_GRAPH, "input %u is missing", k);
    ir_node_note(g, node, "load", "com.microsoft.%s spelled out", row->type);
    return row->rule(&s);
}
