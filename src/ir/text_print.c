/* SPDX-License-Identifier: Apache-2.0
 * Printing graphs. The grammar stands in docs/text-form.md. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base64.h"
#include "ir/text.h"

enum { INLINE_ELEMENTS = 16 };

typedef struct printer {
    sbuf *out;
    const ir_text_options *options;
    const ir_graph *top; /* holds the symbols */
    int depth;
} printer;

static void print_graph(printer *p, const ir_graph *g);

static void indent(printer *p)
{
    for (int i = 0; i < p->depth; i++)
        sbuf_text(p->out, "  ");
}

static bool is_plain(const char *name)
{
    if (!*name)
        return false;
    for (const char *c = name; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("_./:-", *c))
            return false;
    return true;
}

static void print_quoted(sbuf *out, const char *data, size_t length)
{
    sbuf_char(out, '"');
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)data[i];
        if (c == '"' || c == '\\')
            sbuf_printf(out, "\\%c", c);
        else if (c < 0x20 || c >= 0x7f)
            sbuf_printf(out, "\\x%02x", c);
        else
            sbuf_char(out, (char)c);
    }
    sbuf_char(out, '"');
}

static void print_name(sbuf *out, char sigil, const char *name)
{
    sbuf_char(out, sigil);
    if (is_plain(name))
        sbuf_text(out, name);
    else
        print_quoted(out, name, strlen(name));
}

static void print_value_ref(printer *p, const ir_value *v)
{
    if (v)
        print_name(p->out, '%', v->name);
    else
        sbuf_char(p->out, '_');
}

static void print_dims(printer *p, const ir_shape *s)
{
    if (s->rank < 0) {
        sbuf_text(p->out, "[...]");
        return;
    }
    sbuf_char(p->out, '[');
    for (int32_t i = 0; i < s->rank; i++) {
        int64_t d = s->dims[i];
        if (i)
            sbuf_char(p->out, ',');
        if (d >= 0)
            sbuf_printf(p->out, "%lld", (long long)d);
        else if (d == IR_DIM_UNKNOWN)
            sbuf_char(p->out, '?');
        else {
            const char *name = p->top->symbols.data[-1 - d].name;
            if (is_plain(name) && !isdigit((unsigned char)*name) && *name != '.')
                sbuf_text(p->out, name);
            else
                print_quoted(p->out, name, strlen(name));
        }
    }
    sbuf_char(p->out, ']');
}

static const char *const kind_words[] = {
    [IR_SEQUENCE] = "seq",
    [IR_OPTIONAL] = "optional",
    [IR_OPTIONAL_SEQUENCE] = "optional_seq",
    [IR_MAP] = "map",
};

static void print_type(printer *p, const ir_type *t)
{
    if (t->kind != IR_TENSOR)
        sbuf_printf(p->out, "%s(", kind_words[t->kind]);
    sbuf_text(p->out, tacit_dtype_text(t->dtype));
    print_dims(p, &t->shape);
    if (t->kind != IR_TENSOR)
        sbuf_char(p->out, ')');
}

/* Shortest of two forms that reads back exactly, always recognisable as a float. */
static void print_float(sbuf *out, double v, bool single)
{
    char text[40];
    snprintf(text, sizeof text, single ? "%.9g" : "%.17g", v);
    sbuf_text(out, text);
    if (!strpbrk(text, ".eni"))
        sbuf_text(out, ".0");
}

static bool has_nan(const ir_tensor *t)
{
    for (int64_t i = 0, n = ir_tensor_count(t); i < n; i++)
        if (isnan(ir_load_f64(t->dtype, t->data, i)))
            return true;
    return false;
}

static void print_element(sbuf *out, const ir_tensor *t, int64_t i)
{
    switch (ir_dtype_classify(t->dtype)) {
    case IR_CLASS_FLOAT:
        print_float(out, ir_load_f64(t->dtype, t->data, i), t->dtype != TACIT_F64);
        break;
    case IR_CLASS_STRING: {
        const ir_string *s = (const ir_string *)t->data + i;
        print_quoted(out, s->data, s->length);
        break;
    }
    case IR_CLASS_BOOLEAN:
        sbuf_text(out, ir_load_i64(t->dtype, t->data, i) ? "true" : "false");
        break;
    case IR_CLASS_UNSIGNED:
        sbuf_printf(out, "%llu", (unsigned long long)ir_load_i64(t->dtype, t->data, i));
        break;
    default:
        sbuf_printf(out, "%lld", (long long)ir_load_i64(t->dtype, t->data, i));
        break;
    }
}

static void print_data(printer *p, const ir_tensor *t)
{
    int64_t n = ir_tensor_count(t);
    bool list = n <= INLINE_ELEMENTS || t->dtype == TACIT_STRING;
    if (!t->data || (!list && p->options->elide_weights)) {
        sbuf_text(p->out, "...");
        return;
    }
    ir_dtype_class class = ir_dtype_classify(t->dtype);
    if (class == IR_CLASS_COMPLEX || (class == IR_CLASS_FLOAT && list && has_nan(t)))
        list = false;
    if (!list) {
        sbuf_text(p->out, "b64\"");
        base64_encode(p->out, t->data, t->bytes);
        sbuf_char(p->out, '"');
        return;
    }
    sbuf_char(p->out, '[');
    for (int64_t i = 0; i < n; i++) {
        if (i)
            sbuf_text(p->out, ", ");
        print_element(p->out, t, i);
    }
    sbuf_char(p->out, ']');
}

static void print_tensor(printer *p, const ir_tensor *t)
{
    ir_type type = ir_tensor_type(t);
    sbuf_text(p->out, "tensor ");
    print_type(p, &type);
    sbuf_char(p->out, ' ');
    print_data(p, t);
}

static void print_list_item(printer *p, const ir_attr *a, uint32_t i)
{
    switch (a->kind) {
    case IR_ATTR_INTS:
        sbuf_printf(p->out, "%lld", (long long)a->ints[i]);
        break;
    case IR_ATTR_FLOATS:
        print_float(p->out, a->floats[i], false);
        break;
    case IR_ATTR_STRINGS:
        print_quoted(p->out, a->strings[i].data, a->strings[i].length);
        break;
    case IR_ATTR_TENSORS:
        print_tensor(p, a->tensors[i]);
        break;
    default:
        print_graph(p, a->graphs[i]);
        break;
    }
}

static void print_attr_list(printer *p, const ir_attr *a)
{
    static const char *const empty[] = {
        [IR_ATTR_INTS] = "ints[]",       [IR_ATTR_FLOATS] = "floats[]",
        [IR_ATTR_STRINGS] = "strings[]", [IR_ATTR_TENSORS] = "tensors[]",
        [IR_ATTR_GRAPHS] = "graphs[]",
    };
    if (!a->count) {
        sbuf_text(p->out, empty[a->kind]);
        return;
    }
    sbuf_char(p->out, '[');
    for (uint32_t i = 0; i < a->count; i++) {
        if (i)
            sbuf_text(p->out, ", ");
        print_list_item(p, a, i);
    }
    sbuf_char(p->out, ']');
}

static void print_attr(printer *p, const ir_attr *a)
{
    sbuf_char(p->out, ' ');
    if (is_plain(a->name))
        sbuf_text(p->out, a->name);
    else
        print_quoted(p->out, a->name, strlen(a->name));
    sbuf_char(p->out, '=');
    switch (a->kind) {
    case IR_ATTR_INT:
        sbuf_printf(p->out, "%lld", (long long)a->i);
        break;
    case IR_ATTR_FLOAT:
        print_float(p->out, a->f, false);
        break;
    case IR_ATTR_STRING:
        print_quoted(p->out, a->s.data, a->s.length);
        break;
    case IR_ATTR_TENSOR:
        print_tensor(p, a->tensor);
        break;
    case IR_ATTR_GRAPH:
        print_graph(p, a->graph);
        break;
    case IR_ATTR_TYPE:
        sbuf_text(p->out, "type ");
        print_type(p, &a->type);
        break;
    default:
        print_attr_list(p, a);
        break;
    }
}

static void print_op(printer *p, const ir_node *n)
{
    bool plain = is_plain(n->type) && !strchr(n->type, '.') && (!*n->domain || is_plain(n->domain));
    if (plain) {
        sbuf_printf(p->out, "%s%s%s", n->domain, *n->domain ? "." : "", n->type);
        return;
    }
    print_quoted(p->out, n->domain, strlen(n->domain));
    print_quoted(p->out, n->type, strlen(n->type));
}

static void print_node(printer *p, const ir_node *n)
{
    for (const ir_note *note = p->options->notes ? n->notes : NULL; note; note = note->next) {
        indent(p);
        sbuf_printf(p->out, "# %s: %s\n", note->pass, note->text);
    }
    indent(p);
    for (uint32_t i = 0; i < n->n_outputs; i++) {
        if (i)
            sbuf_text(p->out, ", ");
        print_value_ref(p, n->outputs[i]);
        if (n->outputs[i] && n->outputs[i]->type.dtype != TACIT_DTYPE_NONE) {
            sbuf_text(p->out, " : ");
            print_type(p, &n->outputs[i]->type);
        }
    }
    sbuf_text(p->out, n->n_outputs ? " = " : "= ");
    print_op(p, n);
    sbuf_char(p->out, '(');
    for (uint32_t i = 0; i < n->n_inputs; i++) {
        if (i == n->n_explicit)
            sbuf_text(p->out, i ? " | " : "| ");
        else if (i)
            sbuf_text(p->out, ", ");
        print_value_ref(p, n->inputs[i]);
    }
    sbuf_char(p->out, ')');
    for (uint32_t i = 0; i < n->n_attrs; i++)
        print_attr(p, &n->attrs[i]);
    sbuf_char(p->out, ' ');
    print_name(p->out, '@', n->name);
    sbuf_char(p->out, '\n');
}

static void print_declaration(printer *p, const char *word, const ir_value *v)
{
    indent(p);
    sbuf_printf(p->out, "%s ", word);
    print_value_ref(p, v);
    if (v && v->type.dtype != TACIT_DTYPE_NONE) {
        sbuf_text(p->out, " : ");
        print_type(p, &v->type);
    }
    if (v && v->is_initializer && v->constant) {
        sbuf_text(p->out, " = ");
        print_data(p, v->constant);
    }
    sbuf_char(p->out, '\n');
}

static void print_text_line(printer *p, const char *word, const char *text)
{
    if (!*text)
        return;
    indent(p);
    sbuf_printf(p->out, "%s ", word);
    print_quoted(p->out, text, strlen(text));
    sbuf_char(p->out, '\n');
}

static void print_about(printer *p, const ir_about *about)
{
    print_text_line(p, "producer", about->producer);
    print_text_line(p, "producer_version", about->producer_version);
    print_text_line(p, "model_domain", about->domain);
    print_text_line(p, "model_doc", about->doc);
    if (about->version) {
        indent(p);
        sbuf_printf(p->out, "model_version %lld\n", (long long)about->version);
    }
    for (uint32_t i = 0; i < about->metadata.count; i++) {
        const ir_pair *pair = &about->metadata.data[i];
        indent(p);
        sbuf_text(p->out, "metadata ");
        print_quoted(p->out, pair->key, strlen(pair->key));
        sbuf_char(p->out, ' ');
        print_quoted(p->out, pair->value, strlen(pair->value));
        sbuf_char(p->out, '\n');
    }
}

static void print_body(printer *p, const ir_graph *g)
{
    print_about(p, &g->about);
    print_text_line(p, "doc", g->doc);
    for (uint32_t i = 0; i < g->opsets.count; i++) {
        indent(p);
        sbuf_text(p->out, "opset ");
        print_quoted(p->out, g->opsets.data[i].domain, strlen(g->opsets.data[i].domain));
        sbuf_printf(p->out, " %lld\n", (long long)g->opsets.data[i].version);
    }
    for (uint32_t i = 0; i < g->symbols.count && !g->parent; i++) {
        const ir_symbol *symbol = &g->symbols.data[i];
        indent(p);
        sbuf_text(p->out, "symbol ");
        print_quoted(p->out, symbol->name, strlen(symbol->name));
        if (symbol->value >= 0)
            sbuf_printf(p->out, " %lld", (long long)symbol->value);
        sbuf_char(p->out, '\n');
    }
    for (uint32_t i = 0; i < g->inputs.count; i++)
        print_declaration(p, "in", g->inputs.data[i]);
    for (uint32_t i = 0; i < g->captures.count; i++)
        print_declaration(p, "capture", g->captures.data[i]);
    for (uint32_t i = 0; i < g->values.count; i++)
        if (g->values.data[i]->is_initializer && !g->values.data[i]->is_input)
            print_declaration(p, "const", g->values.data[i]);
    for (uint32_t i = 0; i < g->nodes.count; i++)
        if (g->nodes.data[i]->type)
            print_node(p, g->nodes.data[i]);
    for (uint32_t i = 0; i < g->outputs.count; i++) {
        indent(p);
        sbuf_text(p->out, "out ");
        print_value_ref(p, g->outputs.data[i]);
        sbuf_char(p->out, '\n');
    }
}

static void print_graph(printer *p, const ir_graph *g)
{
    sbuf_text(p->out, "graph ");
    print_quoted(p->out, g->name, strlen(g->name));
    sbuf_text(p->out, " {\n");
    p->depth++;
    print_body(p, g);
    p->depth--;
    indent(p);
    sbuf_char(p->out, '}');
}

void ir_graph_print(const ir_graph *g, const ir_text_options *options, sbuf *out)
{
    static const ir_text_options plain = {0};
    printer p = {.out = out, .options = options ? options : &plain, .top = g};
    while (p.top->parent)
        p.top = p.top->parent;
    sbuf_text(out, "tacit 1\n");
    print_graph(&p, g);
    sbuf_char(out, '\n');
}
