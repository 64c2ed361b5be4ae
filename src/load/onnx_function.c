/* SPDX-License-Identifier: Apache-2.0
 * Model-local functions: a table of bodies, and putting a body in place of a call. */
#include <string.h>

#include "load/onnx_reader.h"

ir_value onnx_absent_marker;

tacit_status onnx_opset(onnx_reader *r, wire_span proto, onnx_opsets *list)
{
    wire w = wire_open(proto, "opset import");
    wire_field f;
    wire_span domain = {0};
    ir_opset opset = {0};
    while (wire_next(&w, &f, r->err)) {
        if (f.number == 1)
            TRY(wire_bytes(&w, &f, &domain, r->err));
        if (f.number == 2)
            TRY(wire_int(&w, &f, &opset.version, r->err));
    }
    TRY(wire_status(&w));
    TRY(onnx_text(r, domain, &opset.domain));
    opset.domain = onnx_domain(opset.domain);
    if (!*opset.domain && (opset.version < ONNX_MIN_OPSET || opset.version > ONNX_MAX_OPSET))
        return error_set(r->err, TACIT_ERR_UNSUPPORTED,
                         "opset %lld is not supported (%d to %d are)", (long long)opset.version,
                         ONNX_MIN_OPSET, ONNX_MAX_OPSET);
    return vec_push(r->scratch, list, opset) ? TACIT_OK : error_memory(r->err, "opsets");
}

typedef struct function_proto {
    wire_span name, domain, overload;
    onnx_spans inputs, outputs, nodes, defaults;
    onnx_opsets opsets;
} function_proto;

static tacit_status function_field(onnx_reader *r, const wire *w, const wire_field *f,
                                   function_proto *p)
{
    wire_span bytes = {0};
    onnx_spans *list = NULL;
    switch (f->number) {
    case 1:
        return wire_bytes(w, f, &p->name, r->err);
    case 10:
        return wire_bytes(w, f, &p->domain, r->err);
    case 13:
        return wire_bytes(w, f, &p->overload, r->err);
    case 4:
        list = &p->inputs;
        break;
    case 5:
        list = &p->outputs;
        break;
    case 7:
        list = &p->nodes;
        break;
    case 11:
        list = &p->defaults;
        break;
    case 9:
        TRY(wire_bytes(w, f, &bytes, r->err));
        return onnx_opset(r, bytes, &p->opsets);
    default:
        return TACIT_OK;
    }
    TRY(wire_bytes(w, f, &bytes, r->err));
    TRY(onnx_charge(r, 0));
    return vec_push(r->scratch, list, bytes) ? TACIT_OK : error_memory(r->err, "a function");
}

static tacit_status scan_function(onnx_reader *r, wire_span proto, function_proto *p)
{
    *p = (function_proto){0};
    wire w = wire_open(proto, "function");
    wire_field f;
    while (wire_next(&w, &f, r->err))
        TRY(function_field(r, &w, &f, p));
    return wire_status(&w);
}

static const char *function_key(const onnx_reader *r, const char *domain, const char *name,
                                const char *overload)
{
    return arena_printf(r->scratch, "%s\n%s\n%s", domain, name, overload);
}

tacit_status onnx_function_add(onnx_reader *r, wire_span proto)
{
    function_proto p;
    const char *overload;
    onnx_function *f = ARENA_NEW(r->scratch, onnx_function);
    if (!f)
        return error_memory(r->err, "a function");
    TRY(scan_function(r, proto, &p));
    TRY(onnx_text(r, p.name, &f->name));
    TRY(onnx_text(r, p.domain, &f->domain));
    TRY(onnx_text(r, p.overload, &overload));
    f->domain = onnx_domain(f->domain);
    f->body = proto;
    const char *key = function_key(r, f->domain, f->name, overload);
    if (key && map_get(&r->functions, key))
        return error_set(r->err, TACIT_ERR_GRAPH, "function '%s' is defined twice", f->name);
    if (!key || !map_put(&r->functions, key, f))
        return error_memory(r->err, "a function");
    return TACIT_OK;
}

onnx_function *onnx_function_find(const onnx_reader *r, const char *domain, const char *name,
                                  const char *overload)
{
    if (!r->functions.count)
        return NULL;
    const char *key = function_key(r, domain, name, overload);
    return key ? map_get(&r->functions, key) : NULL;
}

/* The call's attributes, then the defaults of those it leaves out. */
static tacit_status call_attributes(onnx_reader *r, onnx_scope *body, const function_proto *p,
                                    const onnx_call *call)
{
    ir_attr *attrs = ARENA_ARRAY(r->scratch, call->n_attrs + p->defaults.count + 1u, ir_attr);
    if (!attrs)
        return error_memory(r->err, "a function's attributes");
    uint32_t n = call->n_attrs;
    if (n)
        memcpy(attrs, call->attrs, n * sizeof *attrs);
    for (uint32_t i = 0; i < p->defaults.count; i++) {
        bool present, given = false;
        TRY(onnx_attribute(r, body, NULL, p->defaults.data[i], &attrs[n], &present));
        for (uint32_t k = 0; k < call->n_attrs; k++)
            given |= strcmp(attrs[k].name, attrs[n].name) == 0;
        n += present && !given;
    }
    body->call_attrs = attrs;
    body->n_call_attrs = n;
    return TACIT_OK;
}

static tacit_status bind_ports(onnx_reader *r, onnx_scope *body, const function_proto *p,
                               const onnx_call *call)
{
    if (call->n_inputs > p->inputs.count || call->n_outputs > p->outputs.count)
        return error_set(r->err, TACIT_ERR_GRAPH,
                         "%u inputs and %u outputs, but the function has %u and %u", call->n_inputs,
                         call->n_outputs, p->inputs.count, p->outputs.count);
    for (uint32_t i = 0; i < p->inputs.count; i++) {
        const char *name;
        ir_value *v = i < call->n_inputs ? call->inputs[i] : NULL;
        TRY(onnx_text(r, p->inputs.data[i], &name));
        TRY(onnx_define(r, body, name, v ? v : ONNX_ABSENT));
    }
    for (uint32_t i = 0; i < call->n_outputs; i++) {
        const char *name;
        TRY(onnx_text(r, p->outputs.data[i], &name));
        if (call->outputs[i] && !map_put(&body->promised, name, call->outputs[i]))
            return error_memory(r->err, "a function");
    }
    return TACIT_OK;
}

/* An output that no node of the body made: a parameter handed through, or nothing at all. */
static tacit_status finish_outputs(onnx_reader *r, onnx_scope *body, const function_proto *p,
                                   const onnx_call *call)
{
    for (uint32_t i = 0; i < call->n_outputs; i++) {
        const char *name;
        ir_value *want = call->outputs[i], *have = NULL;
        if (!want || want->producer || want->constant)
            continue;
        TRY(onnx_text(r, p->outputs.data[i], &name));
        TRY(onnx_lookup(r, body, name, &have));
        if (!have || have == want)
            return error_set(r->err, TACIT_ERR_GRAPH, "the function never makes its output '%s'",
                             name);
        ir_node *n = ir_node_new(body->graph, "Identity", "", NULL, 1, &have, 1,
                                 (const char *const[]){NULL});
        if (!n)
            return error_memory(r->err, "a function");
        n->outputs[0] = want;
        want->producer = n;
        want->output_index = 0;
        op_resolve(r->options->registry, n);
    }
    return TACIT_OK;
}

static tacit_status inline_body(onnx_reader *r, ir_graph *g, onnx_function *f,
                                const onnx_call *call)
{
    function_proto p;
    TRY(scan_function(r, f->body, &p));
    onnx_scope body = {
        .graph = g, .opsets = p.opsets.data, .n_opsets = p.opsets.count, .function = f->name};
    map_init(&body.names, r->scratch);
    map_init(&body.promised, r->scratch);
    TRY(call_attributes(r, &body, &p, call));
    TRY(bind_ports(r, &body, &p, call));
    TRY(onnx_nodes(r, &body, &p.nodes));
    return finish_outputs(r, &body, &p, call);
}

tacit_status onnx_inline(onnx_reader *r, ir_graph *g, onnx_function *f, const onnx_call *call)
{
    if (f->active)
        return error_set(r->err, TACIT_ERR_GRAPH, "function '%s' calls itself", f->name);
    if (r->nesting >= ONNX_MAX_NESTING)
        return error_set(r->err, TACIT_ERR_LIMIT, "function calls are nested more than %d deep",
                         ONNX_MAX_NESTING);
    f->active = true;
    r->nesting++;
    tacit_status status = inline_body(r, g, f, call);
    r->nesting--;
    f->active = false;
    return status == TACIT_OK || !onnx_may_explain(r)
               ? status
               : error_context(r->err, status, "in function '%s' called by '%s'", f->name,
                               call->name);
}
