/* SPDX-License-Identifier: Apache-2.0
 * Looking at a program: passes, thunks, and where every node came from. */
#include <stdlib.h>
#include <string.h>

#include "api/internal.h"
#include "api/view_html.h"
#include "ir/text.h"

tacit_status api_text(sbuf *text, char **out, tacit_error *err)
{
    *out = sbuf_str(text) ? strdup(sbuf_str(text)) : NULL;
    sbuf_free(text);
    return *out ? TACIT_OK : error_memory(err, "a view");
}

void api_view_passes(const tacit_program *p, tacit_format format, sbuf *out)
{
    const pass_report *r = &p->passes;
    if (format == TACIT_FORMAT_JSON) {
        sbuf_printf(out, "{\"rounds\":%u,\"changes\":[", r->rounds);
        for (uint32_t i = 0; i < r->changes.count; i++) {
            const pass_change *c = &r->changes.data[i];
            sbuf_printf(out, "%s{\"round\":%u,\"pass\":", i ? "," : "", c->round);
            sbuf_json(out, c->pass);
            sbuf_printf(out, ",\"rewrites\":%u,\"nodes_before\":%u,\"nodes_after\":%u,\"ns\":%llu}",
                        c->rewrites, c->nodes_before, c->nodes_after,
                        (unsigned long long)c->nanoseconds);
        }
        sbuf_text(out, "]}\n");
        return;
    }
    sbuf_printf(out, "%u rounds of passes; what changed:\n", r->rounds);
    sbuf_printf(out, "  %5s  %-24s %8s  %15s  %9s\n", "round", "pass", "rewrites", "nodes", "ms");
    for (uint32_t i = 0; i < r->changes.count; i++) {
        const pass_change *c = &r->changes.data[i];
        sbuf_printf(out, "  %5u  %-24s %8u  %6u → %6u  %9.3f\n", c->round, c->pass, c->rewrites,
                    c->nodes_before, c->nodes_after, (double)c->nanoseconds * 1e-6);
    }
    if (!r->changes.count)
        sbuf_text(out, "  nothing\n");
}

static void program_json(const prog_program *p, sbuf *out)
{
    sbuf_printf(out, "{\"argument_bytes\":%zu,\"thunks\":[", p->args_size);
    for (uint32_t i = 0; i < p->n_thunks; i++) {
        const op_thunk *t = p->thunks[i].made;
        sbuf_printf(out, "%s{\"step\":%u,\"kernel\":", i ? "," : "", p->thunks[i].step);
        sbuf_json(out, t->kernel);
        sbuf_text(out, ",\"node\":");
        sbuf_json(out, t->node->name);
        sbuf_text(out, ",\"op\":");
        sbuf_json(out, t->node->type);
        sbuf_printf(out, ",\"tiles\":%u,\"flops\":%.0f,\"bytes\":%llu}", t->tiles, t->flops,
                    (unsigned long long)t->bytes);
    }
    sbuf_text(out, "],\"tail\":[");
    for (uint32_t i = 0; i < p->n_tail; i++) {
        sbuf_text(out, i ? ",{\"node\":" : "{\"node\":");
        sbuf_json(out, p->tail[i]->name);
        sbuf_text(out, ",\"op\":");
        sbuf_json(out, p->tail[i]->type);
        sbuf_text(out, "}");
    }
    sbuf_text(out, "]}\n");
}

void api_view_program(const tacit_program *program, tacit_format format, sbuf *out)
{
    const prog_program *p = program->prog;
    if (format == TACIT_FORMAT_JSON) {
        program_json(p, out);
        return;
    }
    sbuf_printf(out, "%u thunks, %zu bytes of arguments\n", p->n_thunks, p->args_size);
    sbuf_printf(out, "  %5s  %-28s %7s %12s %12s  %s\n", "#", "kernel", "tiles", "MFLOP", "KiB",
                "node (op)");
    for (uint32_t i = 0; i < p->n_thunks; i++) {
        const op_thunk *t = p->thunks[i].made;
        sbuf_printf(out, "  %5u  %-28s %7u %12.3f %12.1f  %s (%s)\n", i, t->kernel, t->tiles,
                    t->flops * 1e-6, (double)t->bytes / 1024, t->node->name, t->node->type);
    }
    for (uint32_t i = 0; i < p->n_tail; i++)
        sbuf_printf(out, "  %5s  %-28s %7s %12s %12s  %s (%s)\n", "tail", "interpreter", "", "", "",
                    p->tail[i]->name, p->tail[i]->type);
}

/* --- explain ---------------------------------------------------------------------------------- */

static const char *place_text(const prog_program *p, const ir_value *v, char *buffer, size_t size)
{
    prog_place at = prog_locate(p, v);
    long long offset = (long long)at.offset;
    const char *view = plan_is_view(p->views, v) ? "a view into "
                       : p->views[v->id].joiner  ? "a part of what lies in "
                                                 : "";
    switch (at.kind) {
    case PROG_AT_CONSTANT:
        snprintf(buffer, size, "%sa constant", view);
        break;
    case PROG_AT_INPUT:
        snprintf(buffer, size, "%sinput '%s' + %lld", view, p->graph->inputs.data[at.port]->name,
                 offset);
        break;
    case PROG_AT_OUTPUT:
        snprintf(buffer, size, "%soutput '%s' + %lld", view, p->output_names[at.port], offset);
        break;
    case PROG_AT_ARENA:
        snprintf(buffer, size, "%sthe arena + %lld", view, offset);
        break;
    case PROG_AT_NOWHERE:
        snprintf(buffer, size, "memory made while running");
        break;
    }
    return buffer;
}

static void notes_json(const ir_note *n, sbuf *out)
{
    if (!n)
        return;
    notes_json(n->next, out);
    sbuf_text(out, n->next ? ",{\"pass\":" : "{\"pass\":");
    sbuf_json(out, n->pass);
    sbuf_text(out, ",\"text\":");
    sbuf_json(out, n->text);
    sbuf_char(out, '}');
}

static void notes_text(const ir_note *n, sbuf *out)
{
    if (!n)
        return;
    notes_text(n->next, out);
    sbuf_printf(out, "    %-16s %s\n", n->pass, n->text);
}

static void explain_json(const prog_program *p, const ir_node *node, sbuf *out)
{
    char place[300];
    sbuf_text(out, "{\"node\":");
    sbuf_json(out, node->name);
    sbuf_text(out, ",\"op\":");
    sbuf_json(out, node->type);
    sbuf_text(out, ",\"notes\":[");
    notes_json(node->notes, out);
    sbuf_text(out, "],\"kernels\":[");
    for (uint32_t i = 0, n = 0; i < p->n_thunks; i++)
        if (p->thunks[i].made->node == node) {
            sbuf_text(out, n++ ? "," : "");
            sbuf_json(out, p->thunks[i].made->kernel);
        }
    sbuf_text(out, "],\"outputs\":[");
    for (uint32_t i = 0, n = 0; i < node->n_outputs; i++)
        if (node->outputs[i]) {
            sbuf_text(out, n++ ? ",{\"value\":" : "{\"value\":");
            sbuf_json(out, node->outputs[i]->name);
            sbuf_text(out, ",\"place\":");
            sbuf_json(out, place_text(p, node->outputs[i], place, sizeof place));
            sbuf_char(out, '}');
        }
    sbuf_text(out, "]}");
}

static void explain_text(const prog_program *p, const ir_node *node, sbuf *out)
{
    char shape[IR_SHAPE_TEXT], place[300];
    sbuf_printf(out, "%s (%s%s%s)\n", node->name, node->domain, *node->domain ? "." : "",
                node->type);
    notes_text(node->notes, out);
    for (uint32_t i = 0; i < p->n_thunks; i++)
        if (p->thunks[i].made->node == node)
            sbuf_printf(out, "    %-16s %s, %u tiles\n", "kernel", p->thunks[i].made->kernel,
                        p->thunks[i].tiles);
    for (uint32_t i = 0; i < p->n_tail; i++)
        if (p->tail[i] == node)
            sbuf_printf(out, "    %-16s interpreted after the thunks\n", "kernel");
    for (uint32_t i = 0; i < node->n_outputs; i++) {
        const ir_value *v = node->outputs[i];
        if (v)
            sbuf_printf(out, "    %-16s %s: %s%s in %s\n", "output", v->name,
                        tacit_dtype_text(v->type.dtype), ir_shape_text(&v->type.shape, shape),
                        place_text(p, v, place, sizeof place));
    }
}

tacit_status api_view_explain(const tacit_program *program, tacit_format format, const char *name,
                              sbuf *out, tacit_error *err)
{
    const prog_program *p = program->prog;
    uint32_t found = 0;
    bool json = format == TACIT_FORMAT_JSON;
    sbuf_text(out, json ? "[" : "");
    for (uint32_t i = 0; i < p->graph->nodes.count; i++) {
        const ir_node *node = p->graph->nodes.data[i];
        if (name && strcmp(name, node->name) != 0)
            continue;
        sbuf_text(out, json && found ? "," : "");
        found++;
        if (json)
            explain_json(p, node, out);
        else
            explain_text(p, node, out);
    }
    sbuf_text(out, json ? "]\n" : "");
    if (name && !found)
        return error_set(err, TACIT_ERR_ARGUMENT,
                         "no node named '%s' is left after the passes (a fusion may have taken it)",
                         name);
    return TACIT_OK;
}

tacit_status tacit_program_view(const tacit_program *program, tacit_view_kind kind,
                                tacit_format format, const char *node, char **out, tacit_error *err)
{
    if (!program || !out)
        return error_set(err, TACIT_ERR_ARGUMENT,
                         "tacit_program_view: program and out must not be NULL");
    *out = NULL;
    sbuf text, graph;
    sbuf_init(&text, NULL);
    if (format == TACIT_FORMAT_HTML) {
        api_view_html(program->prog, &program->passes, &text);
        return api_text(&text, out, err);
    }
    if (format != TACIT_FORMAT_TEXT && format != TACIT_FORMAT_JSON)
        return error_set(err, TACIT_ERR_ARGUMENT, "unknown format %d", (int)format);
    tacit_status status = TACIT_OK;
    switch (kind) {
    case TACIT_VIEW_GRAPH:
        sbuf_init(&graph, NULL);
        ir_graph_print(program->graph, &(ir_text_options){.elide_weights = true}, &graph);
        if (format == TACIT_FORMAT_JSON) {
            sbuf_text(&text, "{\"graph\":");
            sbuf_json(&text, sbuf_str(&graph) ? sbuf_str(&graph) : "");
            sbuf_text(&text, "}\n");
            text.failed |= graph.failed;
        } else if (sbuf_str(&graph))
            sbuf_text(&text, sbuf_str(&graph));
        else
            text.failed = true;
        sbuf_free(&graph);
        break;
    case TACIT_VIEW_PASSES:
        api_view_passes(program, format, &text);
        break;
    case TACIT_VIEW_PLAN:
        api_view_plan(program, format, &text);
        break;
    case TACIT_VIEW_PROGRAM:
        api_view_program(program, format, &text);
        break;
    case TACIT_VIEW_EXPLAIN:
        status = api_view_explain(program, format, node, &text, err);
        break;
    default:
        status = error_set(err, TACIT_ERR_ARGUMENT, "unknown view %d", (int)kind);
        break;
    }
    if (status != TACIT_OK) {
        sbuf_free(&text);
        return status;
    }
    return api_text(&text, out, err);
}
