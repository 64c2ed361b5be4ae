/* SPDX-License-Identifier: Apache-2.0
 * Parsing graphs. The grammar stands in docs/text-form.md. */
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "ir/text.h"
#include "ir/text_lex.h"

enum { MAX_DEPTH = 64 }; /* nested subgraphs */

typedef struct parser {
    lexer lex;
    arena *memory;
    ir_graph *graph; /* the one being filled */
    int depth;
    tacit_error *err;
} parser;

static tacit_status parse_graph(parser *p, ir_graph *parent, ir_graph **out);

static tacit_status no_memory(const parser *p)
{
    return error_memory(p->err, "parsing text");
}

static tacit_status parse_string(parser *p, const char **text, size_t *length)
{
    if (p->lex.token.kind != LEX_STRING)
        return lex_fail(&p->lex, "expected a quoted string");
    *text = p->lex.token.text;
    if (length)
        *length = p->lex.token.length;
    return lex_next(&p->lex);
}

static tacit_status parse_dim(parser *p, int64_t *dim)
{
    lexer *l = &p->lex;
    if (lex_is_punct(l, '?')) {
        *dim = IR_DIM_UNKNOWN;
        return lex_next(l);
    }
    if (l->token.kind != LEX_STRING && lex_int(l, dim)) {
        if (*dim < 0)
            return lex_fail(l, "a dimension must not be negative");
        return lex_next(l);
    }
    if (l->token.kind != LEX_WORD && l->token.kind != LEX_STRING)
        return lex_fail(l, "expected a dimension");
    const char *name = arena_strndup(p->memory, l->token.text, l->token.length);
    int64_t symbol = name ? ir_symbol_index(p->graph, name) : -1;
    if (symbol < 0)
        return no_memory(p);
    *dim = IR_DIM_SYMBOL(symbol);
    return lex_next(l);
}

static tacit_status parse_dims(parser *p, ir_shape *s)
{
    lexer *l = &p->lex;
    *s = (ir_shape){0};
    TRY(lex_expect_punct(l, '['));
    if (l->token.kind == LEX_ELLIPSIS) {
        s->rank = -1;
        TRY(lex_next(l));
        return lex_expect_punct(l, ']');
    }
    while (!lex_is_punct(l, ']')) {
        if (s->rank)
            TRY(lex_expect_punct(l, ','));
        if (s->rank == IR_MAX_RANK)
            return lex_fail(l, "too many dimensions");
        TRY(parse_dim(p, &s->dims[s->rank++]));
    }
    return lex_next(l);
}

static tacit_status parse_type(parser *p, ir_type *t)
{
    static const struct {
        const char *word;
        ir_kind kind;
    } kinds[] = {{"seq", IR_SEQUENCE},
                 {"optional", IR_OPTIONAL},
                 {"optional_seq", IR_OPTIONAL_SEQUENCE},
                 {"map", IR_MAP}};
    lexer *l = &p->lex;
    *t = (ir_type){.kind = IR_TENSOR};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (lex_is_word(l, kinds[i].word))
            t->kind = kinds[i].kind;
    if (t->kind != IR_TENSOR) {
        TRY(lex_next(l));
        TRY(lex_expect_punct(l, '('));
    }
    if (l->token.kind == LEX_WORD)
        t->dtype = ir_dtype_from_text(l->token.text, l->token.length);
    if (t->dtype == TACIT_DTYPE_NONE && !lex_is_word(l, "none"))
        return lex_fail(l, "expected an element type (f32, i64, …)");
    TRY(lex_next(l));
    TRY(parse_dims(p, &t->shape));
    return t->kind == IR_TENSOR ? TACIT_OK : lex_expect_punct(l, ')');
}

/* Of a value or a tensor: one that nobody knows is left out, not called none. */
static tacit_status parse_known_type(parser *p, ir_type *t)
{
    TRY(parse_type(p, t));
    return t->dtype != TACIT_DTYPE_NONE ? TACIT_OK : lex_fail(&p->lex, "the elements have no type");
}

static tacit_status parse_element(parser *p, ir_tensor *t, int64_t i)
{
    lexer *l = &p->lex;
    int64_t whole;
    uint64_t unsigned_whole;
    double real;
    switch (ir_dtype_classify(t->dtype)) {
    case IR_CLASS_STRING:
        if (l->token.kind != LEX_STRING)
            return lex_fail(l, "expected a quoted string");
        ((ir_string *)t->data)[i] = (ir_string){l->token.text, l->token.length};
        break;
    case IR_CLASS_BOOLEAN:
        if (!lex_is_word(l, "true") && !lex_is_word(l, "false"))
            return lex_fail(l, "expected true or false");
        ir_store_i64(t->dtype, t->data, i, lex_is_word(l, "true"));
        break;
    case IR_CLASS_FLOAT:
        if (!lex_double(l, &real))
            return lex_fail(l, "expected a number");
        ir_store_f64_saturate(t->dtype, t->data, i, real, false);
        break;
    case IR_CLASS_UNSIGNED:
        if (!lex_u64(l, &unsigned_whole))
            return lex_fail(l, "expected a whole number");
        ir_store_i64(t->dtype, t->data, i, (int64_t)unsigned_whole);
        break;
    default:
        if (!lex_int(l, &whole))
            return lex_fail(l, "expected a whole number");
        ir_store_i64(t->dtype, t->data, i, whole);
        break;
    }
    return lex_next(l);
}

static tacit_status parse_base64(parser *p, ir_tensor *t)
{
    lexer *l = &p->lex;
    size_t size;
    unsigned char *bytes = arena_alloc_aligned(p->memory, base64_room(l->token.length), MEM_ALIGN);
    if (!bytes)
        return no_memory(p);
    if (!base64_decode(l->token.text, l->token.length, bytes, &size))
        return lex_fail(l, "invalid base64 data");
    if (size != t->bytes)
        return lex_fail(l, "the data has another size than its type");
    t->data = bytes;
    return lex_next(l);
}

/* The data of a constant of static `type`. */
static tacit_status parse_data(parser *p, const ir_type *type, const ir_tensor **out)
{
    lexer *l = &p->lex;
    size_t bytes;
    if (!ir_type_is_static(type) || !ir_type_bytes(type, &bytes))
        return lex_fail(l, "a constant needs an element type and a known, addressable shape");
    ir_tensor *t = ARENA_NEW(p->memory, ir_tensor);
    if (!t)
        return no_memory(p);
    *t = ir_tensor_view(type->dtype, &type->shape, NULL);
    *out = t;
    if (l->token.kind == LEX_ELLIPSIS)
        return lex_next(l);
    if (l->token.kind == LEX_BASE64 && type->dtype != TACIT_STRING)
        return parse_base64(p, t);
    TRY(lex_expect_punct(l, '['));
    /* Every element takes two characters of text: a short text cannot ask for much memory. */
    int64_t n = ir_tensor_count(t);
    if (n > (int64_t)(l->end - l->at) + 1)
        return lex_fail(l, "fewer elements than the type says");
    t->data = arena_alloc_aligned(p->memory, bytes ? bytes : 1, MEM_ALIGN);
    if (!t->data)
        return no_memory(p);
    memset(t->data, 0, bytes);
    for (int64_t i = 0; i < n; i++) {
        if (i)
            TRY(lex_expect_punct(l, ','));
        TRY(parse_element(p, t, i));
    }
    return lex_expect_punct(l, ']');
}

static tacit_status parse_tensor(parser *p, const ir_tensor **out)
{
    ir_type type;
    TRY(lex_next(&p->lex)); /* "tensor" */
    TRY(parse_known_type(p, &type));
    return parse_data(p, &type, out);
}

/* One scalar attribute value; lists are made of these. */
static tacit_status parse_item(parser *p, ir_attr *a)
{
    lexer *l = &p->lex;
    if (l->token.kind == LEX_STRING) {
        a->kind = IR_ATTR_STRING;
        a->s = (ir_string){l->token.text, l->token.length};
        return lex_next(l);
    }
    if (lex_is_word(l, "tensor")) {
        a->kind = IR_ATTR_TENSOR;
        return parse_tensor(p, &a->tensor);
    }
    if (lex_is_word(l, "graph")) {
        a->kind = IR_ATTR_GRAPH;
        return parse_graph(p, p->graph, &a->graph);
    }
    if (lex_int(l, &a->i)) {
        a->kind = IR_ATTR_INT;
        return lex_next(l);
    }
    if (lex_double(l, &a->f)) {
        a->kind = IR_ATTR_FLOAT;
        return lex_next(l);
    }
    return lex_fail(l, "expected an attribute value");
}

/* Items of one kind become the list attribute of that kind. */
static tacit_status pack_list(parser *p, ir_attr *a, const ir_attr *items, uint32_t count)
{
    void *list = ARENA_ARRAY(p->memory, count, ir_string); /* the largest item */
    if (!list)
        return no_memory(p);
    a->count = count;
    a->ints = list;
    for (uint32_t i = 0; i < count; i++) {
        if (items[i].kind != items[0].kind)
            return lex_fail(&p->lex, "a list must hold values of one kind");
        switch (items[i].kind) {
        case IR_ATTR_INT:
            ((int64_t *)list)[i] = items[i].i;
            break;
        case IR_ATTR_FLOAT:
            ((double *)list)[i] = items[i].f;
            break;
        case IR_ATTR_STRING:
            ((ir_string *)list)[i] = items[i].s;
            break;
        case IR_ATTR_TENSOR:
            ((const ir_tensor **)list)[i] = items[i].tensor;
            break;
        default:
            ((ir_graph **)list)[i] = items[i].graph;
            break;
        }
    }
    static const ir_attr_kind list_kind[] = {
        [IR_ATTR_INT] = IR_ATTR_INTS,       [IR_ATTR_FLOAT] = IR_ATTR_FLOATS,
        [IR_ATTR_STRING] = IR_ATTR_STRINGS, [IR_ATTR_TENSOR] = IR_ATTR_TENSORS,
        [IR_ATTR_GRAPH] = IR_ATTR_GRAPHS,
    };
    a->kind = list_kind[items[0].kind];
    return TACIT_OK;
}

static tacit_status parse_list(parser *p, ir_attr *a)
{
    VEC(ir_attr) items = {0};
    TRY(lex_next(&p->lex)); /* [ */
    while (!lex_is_punct(&p->lex, ']')) {
        if (items.count)
            TRY(lex_expect_punct(&p->lex, ','));
        ir_attr item = {0};
        TRY(parse_item(p, &item));
        if (!vec_push(p->memory, &items, item))
            return no_memory(p);
    }
    if (!items.count)
        return lex_fail(&p->lex, "an empty list is written ints[], floats[] or strings[]");
    TRY(lex_next(&p->lex));
    return pack_list(p, a, items.data, items.count);
}

static tacit_status parse_attr_value(parser *p, ir_attr *a)
{
    static const struct {
        const char *word;
        ir_attr_kind kind;
    } empties[] = {{"ints", IR_ATTR_INTS},
                   {"floats", IR_ATTR_FLOATS},
                   {"strings", IR_ATTR_STRINGS},
                   {"tensors", IR_ATTR_TENSORS},
                   {"graphs", IR_ATTR_GRAPHS}};
    lexer *l = &p->lex;
    if (lex_is_punct(l, '['))
        return parse_list(p, a);
    if (lex_is_word(l, "type")) {
        a->kind = IR_ATTR_TYPE;
        TRY(lex_next(l));
        return parse_type(p, &a->type);
    }
    for (size_t i = 0; i < sizeof empties / sizeof *empties; i++) {
        if (!lex_is_word(l, empties[i].word))
            continue;
        a->kind = empties[i].kind;
        a->ints = NULL;
        TRY(lex_next(l));
        TRY(lex_expect_punct(l, '['));
        return lex_expect_punct(l, ']');
    }
    return parse_item(p, a);
}

static tacit_status parse_attrs(parser *p, ir_node *n)
{
    lexer *l = &p->lex;
    VEC(ir_attr) attrs = {0};
    while (l->token.kind == LEX_WORD || l->token.kind == LEX_STRING) {
        ir_attr a = {0};
        a.name = arena_strndup(p->memory, l->token.text, l->token.length);
        if (!a.name)
            return no_memory(p);
        TRY(lex_next(l));
        TRY(lex_expect_punct(l, '='));
        TRY(parse_attr_value(p, &a));
        if (!vec_push(p->memory, &attrs, a))
            return no_memory(p);
    }
    n->attrs = attrs.data;
    n->n_attrs = attrs.count;
    return TACIT_OK;
}

static tacit_status parse_value_ref(parser *p, ir_value **out)
{
    lexer *l = &p->lex;
    *out = NULL;
    if (lex_is_word(l, "_"))
        return lex_next(l);
    if (l->token.kind != LEX_VALUE)
        return lex_fail(l, "expected a value (%name or _)");
    *out = ir_value_find(p->graph, l->token.text);
    if (!*out)
        return error_set(p->err, TACIT_ERR_FORMAT,
                         "line %u, column %u: value %%%s is not defined above", l->token.line,
                         l->token.column, l->token.text);
    return lex_next(l);
}

typedef struct output_list {
    VEC(const char *) names;
    VEC(ir_type) types;
} output_list;

/* %a : f32[2], _, %b = */
static tacit_status parse_outputs(parser *p, output_list *outs)
{
    lexer *l = &p->lex;
    while (!lex_is_punct(l, '=')) {
        if (outs->names.count)
            TRY(lex_expect_punct(l, ','));
        const char *name = NULL;
        ir_type type = {.shape.rank = -1};
        if (l->token.kind == LEX_VALUE) {
            name = l->token.text;
            if (ir_value_find(p->graph, name))
                return lex_fail(l, "this value is defined twice");
        } else if (!lex_is_word(l, "_")) {
            return lex_fail(l, "expected a value, a declaration or '}'");
        }
        TRY(lex_next(l));
        if (lex_is_punct(l, ':')) {
            TRY(lex_next(l));
            TRY(parse_known_type(p, &type));
        }
        if (!vec_push(p->memory, &outs->names, name) || !vec_push(p->memory, &outs->types, type))
            return no_memory(p);
    }
    return lex_next(l);
}

/* Op, com.microsoft.Op or "domain""Op". */
static tacit_status parse_op(parser *p, const char **domain, const char **type)
{
    lexer *l = &p->lex;
    if (l->token.kind == LEX_STRING) {
        TRY(parse_string(p, domain, NULL));
        return parse_string(p, type, NULL);
    }
    if (l->token.kind != LEX_WORD)
        return lex_fail(l, "expected an operator");
    char *word = arena_strndup(p->memory, l->token.text, l->token.length);
    if (!word)
        return no_memory(p);
    char *dot = strrchr(word, '.');
    *domain = dot ? word : "";
    *type = dot ? dot + 1 : word;
    if (dot)
        *dot = '\0';
    return lex_next(l);
}

static tacit_status parse_node(parser *p)
{
    lexer *l = &p->lex;
    output_list outs = {0};
    const char *domain = "", *type = "";
    VEC(ir_value *) inputs = {0};
    TRY(parse_outputs(p, &outs));
    TRY(parse_op(p, &domain, &type));
    TRY(lex_expect_punct(l, '('));
    int64_t n_explicit = -1;
    while (!lex_is_punct(l, ')')) {
        if (lex_is_punct(l, '|') && n_explicit < 0) {
            n_explicit = inputs.count;
            TRY(lex_next(l));
        } else if (inputs.count) {
            TRY(lex_expect_punct(l, ','));
        }
        ir_value *v;
        TRY(parse_value_ref(p, &v));
        if (!vec_push(p->memory, &inputs, v))
            return no_memory(p);
    }
    TRY(lex_next(l));
    ir_node attrs_holder = {0};
    TRY(parse_attrs(p, &attrs_holder));
    if (l->token.kind != LEX_NODE)
        return lex_fail(l, "expected the node's name (@name)");
    if (map_get(&p->graph->node_names, l->token.text))
        return lex_fail(l, "this node name is used twice");
    ir_node *n = ir_node_new(p->graph, type, domain, l->token.text, inputs.count, inputs.data,
                             outs.names.count, outs.names.data);
    if (!n)
        return no_memory(p);
    n->attrs = attrs_holder.attrs;
    n->n_attrs = attrs_holder.n_attrs;
    if (n_explicit >= 0)
        n->n_explicit = (uint32_t)n_explicit;
    for (uint32_t i = 0; i < n->n_outputs; i++)
        if (n->outputs[i] && outs.types.data)
            n->outputs[i]->type = outs.types.data[i];
    return lex_next(l);
}

/* in %x : f32[N] = …, const %w : … = …, capture %c : … or capture _ */
static tacit_status parse_declaration(parser *p, const char *word)
{
    lexer *l = &p->lex;
    ir_graph *g = p->graph;
    bool capture = strcmp(word, "capture") == 0;
    TRY(lex_next(l));
    if (capture && lex_is_word(l, "_")) {
        if (!vec_push(p->memory, &g->captures, NULL))
            return no_memory(p);
        return lex_next(l);
    }
    if (l->token.kind != LEX_VALUE)
        return lex_fail(l, "expected a value (%name)");
    const char *name = l->token.text;
    if (ir_value_find(g, name))
        return lex_fail(l, "this value is defined twice");
    TRY(lex_next(l));
    ir_type type = {.shape.rank = -1};
    if (lex_is_punct(l, ':')) {
        TRY(lex_next(l));
        TRY(parse_known_type(p, &type));
    }
    ir_value *v =
        strcmp(word, "in") == 0 ? ir_input_new(g, name, &type) : ir_value_new(g, name, &type);
    if (!v || (capture && !vec_push(p->memory, &g->captures, v)))
        return no_memory(p);
    if (lex_is_punct(l, '=') && !capture) {
        TRY(lex_next(l));
        TRY(parse_data(p, &type, &v->constant));
        v->is_initializer = true;
    } else if (strcmp(word, "const") == 0) {
        return lex_fail(l, "a constant needs its data (= […], b64\"…\" or ...)");
    }
    return TACIT_OK;
}

static tacit_status parse_symbol(parser *p)
{
    const char *name = "";
    int64_t value;
    TRY(lex_next(&p->lex));
    TRY(parse_string(p, &name, NULL));
    int64_t k = ir_symbol_index(p->graph, name);
    if (k < 0)
        return no_memory(p);
    if (p->lex.token.kind == LEX_NEWLINE)
        return TACIT_OK;
    if (!lex_int(&p->lex, &value) || value < 0 || p->graph->parent)
        return lex_fail(&p->lex, "expected the symbol's size");
    p->graph->symbols.data[k].value = value;
    return lex_next(&p->lex);
}

static tacit_status parse_opset(parser *p)
{
    ir_opset o;
    TRY(lex_next(&p->lex));
    TRY(parse_string(p, &o.domain, NULL));
    if (!lex_int(&p->lex, &o.version))
        return lex_fail(&p->lex, "expected the opset's version");
    if (!vec_push(p->memory, &p->graph->opsets, o))
        return no_memory(p);
    return lex_next(&p->lex);
}

static tacit_status parse_metadata(parser *p)
{
    ir_pair pair;
    TRY(lex_next(&p->lex));
    TRY(parse_string(p, &pair.key, NULL));
    TRY(parse_string(p, &pair.value, NULL));
    return vec_push(p->memory, &p->graph->about.metadata, pair) ? TACIT_OK : no_memory(p);
}

static tacit_status parse_model_version(parser *p)
{
    TRY(lex_next(&p->lex));
    if (!lex_int(&p->lex, &p->graph->about.version))
        return lex_fail(&p->lex, "expected the model's version");
    return lex_next(&p->lex);
}

/* What a line of one text is about; NULL: it is no such line. */
static const char **text_field(const parser *p)
{
    ir_graph *g = p->graph;
    const struct {
        const char *word, **text;
    } fields[] = {
        {"producer", &g->about.producer},
        {"producer_version", &g->about.producer_version},
        {"model_domain", &g->about.domain},
        {"model_doc", &g->about.doc},
        {"doc", &g->doc},
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (lex_is_word(&p->lex, fields[i].word))
            return fields[i].text;
    return NULL;
}

static tacit_status parse_line(parser *p)
{
    lexer *l = &p->lex;
    if (lex_is_word(l, "in"))
        return parse_declaration(p, "in");
    if (lex_is_word(l, "const"))
        return parse_declaration(p, "const");
    if (lex_is_word(l, "capture"))
        return parse_declaration(p, "capture");
    if (lex_is_word(l, "symbol"))
        return parse_symbol(p);
    if (lex_is_word(l, "opset"))
        return parse_opset(p);
    if (lex_is_word(l, "metadata"))
        return parse_metadata(p);
    if (lex_is_word(l, "model_version"))
        return parse_model_version(p);
    const char **text = text_field(p);
    if (text) {
        TRY(lex_next(l));
        return parse_string(p, text, NULL);
    }
    if (lex_is_word(l, "out")) {
        ir_value *v;
        TRY(lex_next(l));
        TRY(parse_value_ref(p, &v));
        if (!v)
            return lex_fail(l, "an output must name a value");
        return ir_output_add(p->graph, v) ? TACIT_OK : no_memory(p);
    }
    return parse_node(p);
}

static tacit_status parse_graph(parser *p, ir_graph *parent, ir_graph **out)
{
    lexer *l = &p->lex;
    const char *name = "";
    if (!lex_is_word(l, "graph"))
        return lex_fail(l, "expected 'graph'");
    if (++p->depth > MAX_DEPTH)
        return lex_fail(l, "subgraphs are nested too deeply");
    TRY(lex_next(l));
    TRY(parse_string(p, &name, NULL));
    TRY(lex_expect_punct(l, '{'));
    ir_graph *outer = p->graph;
    ir_graph *g = p->graph = ir_graph_new(p->memory, name);
    if (!g)
        return no_memory(p);
    g->parent = parent;
    TRY(lex_skip_newlines(l));
    while (!lex_is_punct(l, '}')) {
        if (l->token.kind == LEX_END)
            return lex_fail(l, "the graph has no closing '}'");
        TRY(parse_line(p));
        if (l->token.kind != LEX_NEWLINE && !lex_is_punct(l, '}'))
            return lex_fail(l, "unexpected text behind a complete line");
        TRY(lex_skip_newlines(l));
    }
    p->graph = outer;
    p->depth--;
    *out = g;
    return lex_next(l);
}

tacit_status ir_graph_parse(const char *text, size_t length, arena *memory, ir_graph **out,
                            tacit_error *err)
{
    parser p = {.memory = memory, .err = err};
    TRY(lex_begin(&p.lex, text, length, memory, err));
    TRY(lex_skip_newlines(&p.lex));
    if (!lex_is_word(&p.lex, "tacit"))
        return lex_fail(&p.lex, "not a Tacit text file (it starts with 'tacit 1')");
    TRY(lex_next(&p.lex));
    int64_t version;
    if (!lex_int(&p.lex, &version) || version != 1)
        return lex_fail(&p.lex, "unknown version of the text form (1 is known)");
    TRY(lex_next(&p.lex));
    TRY(lex_skip_newlines(&p.lex));
    TRY(parse_graph(&p, NULL, out));
    TRY(lex_skip_newlines(&p.lex));
    if (p.lex.token.kind != LEX_END)
        return lex_fail(&p.lex, "unexpected text after the graph");
    return TACIT_OK;
}
