/* SPDX-License-Identifier: Apache-2.0
 * Structural equality of graphs, with the first difference in words. */
#include <string.h>

#include "ir/text.h"

static bool differ(sbuf *why, const char *what, const char *name)
{
    if (why && !why->length)
        sbuf_printf(why, "%s of '%s'", what, name);
    return false;
}

static bool same_text(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

static bool same_ref(const ir_value *a, const ir_value *b)
{
    return a && b ? same_text(a->name, b->name) : a == b;
}

static bool same_constant(const ir_tensor *a, const ir_tensor *b)
{
    return a && b ? ir_tensor_identical(a, b) : a == b;
}

static bool same_value(const ir_value *a, const ir_value *b, sbuf *why)
{
    if (!same_ref(a, b))
        return differ(why, "name", a ? a->name : "_");
    if (!a)
        return true;
    if (!ir_type_equal(&a->type, &b->type))
        return differ(why, "type", a->name);
    if (a->is_initializer != b->is_initializer || a->is_input != b->is_input)
        return differ(why, "role", a->name);
    if (a->is_initializer && !same_constant(a->constant, b->constant))
        return differ(why, "data", a->name);
    return true;
}

static bool same_double(double a, double b)
{
    /* By bits, so that -0 differs from 0; NaNs are one. */
    /* NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): -0 and 0 are not the same constant */
    return memcmp(&a, &b, sizeof a) == 0 || (a != a && b != b);
}

static bool same_string(const ir_string *a, const ir_string *b)
{
    return a->length == b->length && memcmp(a->data, b->data, a->length) == 0;
}

static bool same_item(const ir_attr *a, const ir_attr *b, uint32_t i, sbuf *why)
{
    switch (a->kind) {
    case IR_ATTR_INTS:
        return a->ints[i] == b->ints[i];
    case IR_ATTR_FLOATS:
        return same_double(a->floats[i], b->floats[i]);
    case IR_ATTR_STRINGS:
        return same_string(&a->strings[i], &b->strings[i]);
    case IR_ATTR_TENSORS:
        return ir_tensor_identical(a->tensors[i], b->tensors[i]);
    default:
        return ir_graph_equal(a->graphs[i], b->graphs[i], why);
    }
}

static bool same_attr(const ir_attr *a, const ir_attr *b, sbuf *why)
{
    if (a->kind != b->kind || !same_text(a->name, b->name))
        return false;
    switch (a->kind) {
    case IR_ATTR_INT:
        return a->i == b->i;
    case IR_ATTR_FLOAT:
        return same_double(a->f, b->f);
    case IR_ATTR_STRING:
        return same_string(&a->s, &b->s);
    case IR_ATTR_TENSOR:
        return ir_tensor_identical(a->tensor, b->tensor);
    case IR_ATTR_GRAPH:
        return ir_graph_equal(a->graph, b->graph, why);
    case IR_ATTR_TYPE:
        return ir_type_equal(&a->type, &b->type);
    default:
        break;
    }
    if (a->count != b->count)
        return false;
    for (uint32_t i = 0; i < a->count; i++)
        if (!same_item(a, b, i, why))
            return false;
    return true;
}

static bool same_node(const ir_node *a, const ir_node *b, sbuf *why)
{
    if (!same_text(a->type, b->type) || !same_text(a->domain, b->domain) ||
        !same_text(a->name, b->name))
        return differ(why, "op or name", a->name);
    if (a->n_inputs != b->n_inputs || a->n_outputs != b->n_outputs ||
        a->n_explicit != b->n_explicit || a->n_attrs != b->n_attrs)
        return differ(why, "number of inputs, outputs or attributes", a->name);
    for (uint32_t i = 0; i < a->n_inputs; i++)
        if (!same_ref(a->inputs[i], b->inputs[i]))
            return differ(why, "inputs", a->name);
    for (uint32_t i = 0; i < a->n_outputs; i++)
        if (!same_value(a->outputs[i], b->outputs[i], why))
            return false;
    for (uint32_t i = 0; i < a->n_attrs; i++)
        if (!same_attr(&a->attrs[i], &b->attrs[i], why))
            return differ(why, a->attrs[i].name, a->name);
    return true;
}

bool ir_attrs_equal(const ir_node *a, const ir_node *b)
{
    if (a->n_attrs != b->n_attrs)
        return false;
    for (uint32_t i = 0; i < a->n_attrs; i++)
        if (!same_attr(&a->attrs[i], &b->attrs[i], NULL))
            return false;
    return true;
}

/* Every initializer of `a` is in `b` with the same contents. */
static bool same_initializers(const ir_graph *a, const ir_graph *b, sbuf *why)
{
    for (uint32_t i = 0; i < a->values.count; i++) {
        const ir_value *v = a->values.data[i];
        if (!v->is_initializer)
            continue;
        const ir_value *w = ir_value_find(b, v->name);
        if (!w)
            return differ(why, "presence", v->name);
        if (!same_value(v, w, why))
            return false;
    }
    return true;
}

static bool same_about(const ir_about *a, const ir_about *b)
{
    if (!same_text(a->producer, b->producer) ||
        !same_text(a->producer_version, b->producer_version) || !same_text(a->domain, b->domain) ||
        !same_text(a->doc, b->doc) || a->version != b->version ||
        a->metadata.count != b->metadata.count)
        return false;
    for (uint32_t i = 0; i < a->metadata.count; i++)
        if (!same_text(a->metadata.data[i].key, b->metadata.data[i].key) ||
            !same_text(a->metadata.data[i].value, b->metadata.data[i].value))
            return false;
    return true;
}

bool ir_graph_equal(const ir_graph *a, const ir_graph *b, sbuf *why)
{
    if (!same_text(a->name, b->name) || a->nodes.count != b->nodes.count ||
        a->inputs.count != b->inputs.count || a->outputs.count != b->outputs.count ||
        a->captures.count != b->captures.count || a->opsets.count != b->opsets.count)
        return differ(why, "name or size", a->name);
    if (!same_text(a->doc, b->doc) || !same_about(&a->about, &b->about))
        return differ(why, "what is said about it", a->name);
    for (uint32_t i = 0; i < a->opsets.count; i++)
        if (!same_text(a->opsets.data[i].domain, b->opsets.data[i].domain) ||
            a->opsets.data[i].version != b->opsets.data[i].version)
            return differ(why, "opsets", a->name);
    for (uint32_t i = 0; i < a->inputs.count; i++)
        if (!same_value(a->inputs.data[i], b->inputs.data[i], why))
            return false;
    for (uint32_t i = 0; i < a->captures.count; i++)
        if (!same_value(a->captures.data[i], b->captures.data[i], why))
            return false;
    for (uint32_t i = 0; i < a->outputs.count; i++)
        if (!same_ref(a->outputs.data[i], b->outputs.data[i]))
            return differ(why, "outputs", a->name);
    if (!same_initializers(a, b, why) || !same_initializers(b, a, why))
        return false;
    for (uint32_t i = 0; i < a->nodes.count; i++)
        if (!same_node(a->nodes.data[i], b->nodes.data[i], why))
            return false;
    return true;
}
