/* SPDX-License-Identifier: Apache-2.0
 * Reading a recipe: sizes are drawn when first named, so a recipe is also the shape rule. */
#include "op/specimen.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

typedef struct maker {
    arena *memory;
    rng r;
    tacit_dtype type;
    ir_graph *graph;
    op_specimen *out;
    op_specimen_input *input;
    void *context;
    ir_shape shared;
    int64_t sizes[128]; /* by letter; -1: not drawn yet */
    bool wild;          /* infinities and NaNs among the values */
    const char *at;
} maker;

/* --- sizes ------------------------------------------------------------------------------------ */

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static int64_t letter(maker *m, char c)
{
    int64_t *size = &m->sizes[(unsigned char)c];
    if (*size < 0) {
        bool may_be_zero = c >= 'a' && c <= 'z';
        *size = 1 + (int64_t)rng_below(&m->r, 4);
        if (may_be_zero && rng_below(&m->r, 24) == 0)
            *size = 0;
    }
    return *size;
}

/* product [+|- number]; m->at stands behind it. */
static int64_t size_here(maker *m)
{
    int64_t product = 1;
    char *end;
    if (*m->at == '-') {
        product = -1;
        m->at++;
    }
    for (;;)
        if (*m->at >= '0' && *m->at <= '9') {
            product *= strtoll(m->at, &end, 10);
            m->at = end;
        } else if (is_letter(*m->at)) {
            product *= letter(m, *m->at++);
        } else {
            break;
        }
    if (*m->at == '+' || *m->at == '-') {
        product += strtoll(m->at, &end, 10);
        m->at = end;
    }
    return product;
}

static void draw_shared(maker *m, const char *recipe)
{
    bool some = strpbrk(recipe, "@") || strstr(recipe, "T+");
    m->shared.rank = (int32_t)rng_below(&m->r, 5);
    if (rng_below(&m->r, 8) == 0)
        m->shared.rank = 5 + (int32_t)rng_below(&m->r, 4);
    if (some && m->shared.rank == 0)
        m->shared.rank = 1;
    for (int32_t d = 0; d < m->shared.rank; d++) {
        m->shared.dims[d] = 1 + (int64_t)rng_below(&m->r, m->shared.rank > 4 ? 2 : 4);
        if (rng_below(&m->r, 30) == 0)
            m->shared.dims[d] = 0;
    }
}

/* A shape that broadcasts with the shared one: axes dropped in front, others made 1. */
static ir_shape partner(maker *m)
{
    ir_shape s = {0};
    int32_t drop = rng_below(&m->r, 2) ? 0 : (int32_t)rng_below(&m->r, m->shared.rank + 1u);
    for (int32_t d = drop; d < m->shared.rank; d++)
        s.dims[s.rank++] = rng_below(&m->r, 4) ? m->shared.dims[d] : 1;
    return s;
}

static ir_shape shape_here(maker *m)
{
    ir_shape s = {0};
    if (*m->at == '*' || *m->at == '+') {
        m->at++;
        return m->shared;
    }
    if (*m->at == '~') {
        m->at++;
        return partner(m);
    }
    for (m->at++; *m->at && *m->at != ']'; m->at += *m->at == ',')
        if (*m->at == '*' || *m->at == '~') {
            ir_shape lead = *m->at == '*' ? m->shared : partner(m);
            m->at++;
            for (int32_t d = 0; d < lead.rank; d++)
                s.dims[s.rank++] = lead.dims[d];
        } else {
            s.dims[s.rank++] = size_here(m);
        }
    m->at += *m->at == ']';
    return s;
}

/* --- values ----------------------------------------------------------------------------------- */

static tacit_dtype type_named(const char *text, size_t length)
{
    for (int d = 1; d < TACIT_DTYPE_COUNT; d++) {
        const char *name = tacit_dtype_text((tacit_dtype)d);
        if (strlen(name) == length && memcmp(name, text, length) == 0)
            return (tacit_dtype)d;
    }
    return TACIT_DTYPE_NONE;
}

/* One of the names up to the shape. *seq: a sequence of it. */
static tacit_dtype type_here(maker *m, bool *seq)
{
    size_t length = strcspn(m->at, "[*+~ !");
    const char *text = m->at;
    m->at += length;
    uint32_t choices = 1;
    for (size_t i = 0; i < length; i++)
        choices += text[i] == '|';
    uint64_t chosen = rng_below(&m->r, choices);
    for (; chosen; chosen--) {
        const char *next = strchr(text, '|') + 1;
        length -= (size_t)(next - text);
        text = next;
    }
    size_t own = 0;
    while (own < length && text[own] != '|')
        own++;
    *seq = own == 3 && memcmp(text, "seq", 3) == 0;
    if (*seq || (own == 1 && *text == 'T'))
        return m->type;
    if (own == 1 && *text == '%')
        return (tacit_dtype)(TACIT_F64 + rng_below(&m->r, TACIT_BOOL - TACIT_F64 + 1));
    return type_named(text, own);
}

typedef struct value_rule {
    enum { ANY, BELOW, AROUND, LISTED, POSITIVE, AXIS } kind;
    int64_t bound;
    double list[8];
    uint32_t n;
} value_rule;

static void list_entry(maker *m, value_rule *rule)
{
    const char *p = m->at + (*m->at == '-');
    bool number = strspn(p, "0123456789.") == strcspn(p, ",) ") && *p;
    char *end = NULL;
    double v = number ? strtod(m->at, &end) : (double)size_here(m);
    if (number)
        m->at = end;
    if (rule->n < 8)
        rule->list[rule->n++] = v;
}

static value_rule values_here(maker *m)
{
    value_rule rule = {ANY};
    char c = *m->at;
    if (c == '<' || c == '%') {
        m->at++;
        rule.kind = c == '<' ? BELOW : AROUND;
        rule.bound = size_here(m);
    } else if (c == '=') {
        rule.kind = LISTED;
        m->at++;
        bool many = *m->at == '(';
        m->at += many;
        do
            list_entry(m, &rule);
        while (many && *m->at == ',' && m->at++);
        m->at += many && *m->at == ')';
    } else if (c == '>') {
        rule.kind = POSITIVE;
        m->at++;
    } else if (c == '@') {
        rule.kind = AXIS;
        m->at++;
    }
    return rule;
}

static double wild_value(maker *m)
{
    static const double odd[] = {NAN, INFINITY, -INFINITY, -0.0, 1e12, -1e-12};
    return odd[rng_below(&m->r, 6)];
}

static bool is_unsigned(tacit_dtype d)
{
    return tacit_dtype_text(d)[0] == 'u';
}

static void fill(maker *m, ir_tensor *t, const value_rule *v)
{
    static const char *const words[] = {"", "a", "bc", "1.5", "ab", "two words"};
    bool whole = !ir_dtype_is_float(t->dtype) && t->dtype != TACIT_C64 && t->dtype != TACIT_C128;
    for (int64_t i = 0, n = ir_tensor_count(t); i < n; i++) {
        double x = whole ? (double)rng_below(&m->r, 9) - 3 : rng_range(&m->r, -3, 3);
        if (whole && is_unsigned(t->dtype))
            x = (double)rng_below(&m->r, tacit_dtype_bits(t->dtype) < 4 ? 4 : 10);
        if (v->kind == ANY && m->wild && !whole && rng_below(&m->r, 6) == 0)
            x = wild_value(m);
        if (v->kind == BELOW || v->kind == AROUND)
            x = v->bound <= 0
                    ? 0
                    : (double)rng_below(&m->r, (uint64_t)v->bound * (v->kind == AROUND ? 2 : 1)) -
                          (double)(v->kind == AROUND ? v->bound : 0);
        else if (v->kind == LISTED)
            x = v->list[i < v->n ? i : v->n - 1];
        else if (v->kind == POSITIVE)
            x = whole ? 1 + (double)rng_below(&m->r, 3) : rng_range(&m->r, 0.1, 2);
        else if (v->kind == AXIS)
            x = (double)rng_below(&m->r, 2 * (uint64_t)m->shared.rank) - m->shared.rank;
        if (t->dtype == TACIT_STRING) {
            const char *word = words[rng_below(&m->r, 6)];
            ((ir_string *)t->data)[i] = (ir_string){word, strlen(word)};
        } else if (t->dtype == TACIT_C64 || t->dtype == TACIT_C128) {
            ir_store_complex(t->dtype, t->data, i, (double[]){x, rng_range(&m->r, -3, 3)});
        } else if (ir_dtype_is_int(t->dtype)) {
            ir_store_i64(t->dtype, t->data, i, (int64_t)x);
        } else {
            ir_store_f64(t->dtype, t->data, i, x);
        }
    }
}

/* --- inputs ----------------------------------------------------------------------------------- */

static ir_value *given(maker *m, const ir_tensor *t, bool constant)
{
    if (constant)
        return ir_constant_new(m->graph, NULL, t);
    if (m->out->n_given == OP_SPECIMEN_INPUTS)
        return NULL;
    ir_type type = ir_tensor_type(t);
    ir_value *v =
        m->input ? m->input(m->context, m->graph, &t) : ir_input_new(m->graph, NULL, &type);
    m->out->given[m->out->n_given++] = t;
    return v;
}

static ir_value *tensor_input(maker *m, tacit_dtype dtype, const ir_shape *s, const value_rule *v,
                              bool constant)
{
    int64_t count;
    if (dtype == TACIT_DTYPE_NONE || s->rank > IR_MAX_RANK || !ir_shape_count(s, &count) ||
        count > 1 << 16)
        return NULL;
    for (int32_t d = 0; d < s->rank; d++)
        if (s->dims[d] < 0)
            return NULL;
    ir_tensor *t = ir_tensor_new(m->memory, dtype, s);
    if (!t)
        return NULL;
    memset(t->data, 0, t->bytes);
    fill(m, t, v);
    return given(m, t, constant);
}

/* The token at m->at; *value stays NULL for an absent input. */
static bool input_here(maker *m, ir_value **value)
{
    *value = NULL;
    if (*m->at == '-') {
        m->at++;
        return true;
    }
    bool optional = *m->at == '?', seq;
    m->at += optional;
    tacit_dtype dtype = type_here(m, &seq);
    ir_shape s = shape_here(m);
    bool known = *m->at == '!';
    m->at += known;
    value_rule rule = values_here(m);
    bool constant = known || (dtype != TACIT_STRING && rng_below(&m->r, 6) == 0);
    if (optional && rng_below(&m->r, 3) == 0)
        return true;
    if (!seq) {
        *value = tensor_input(m, dtype, &s, &rule, constant);
        return *value;
    }
    ir_value *items[2] = {tensor_input(m, dtype, &s, &rule, false),
                          tensor_input(m, dtype, &s, &rule, false)};
    ir_node *n =
        items[0] && items[1] ? op_node(m->graph, "SequenceConstruct", NULL, 2, items) : NULL;
    *value = n ? n->outputs[0] : NULL;
    return n;
}

/* --- attributes ------------------------------------------------------------------------------- */

/* (0.5,-1.0) */
static bool attr_floats(maker *m, ir_node *node, const char *name)
{
    double *values = ARENA_ARRAY(m->memory, 16, double);
    uint32_t n = 0;
    char *end;
    for (m->at++; values && *m->at && *m->at != ')'; m->at += *m->at == ',') {
        if (n == 16)
            return false;
        values[n++] = strtod(m->at, &end);
        m->at = end;
    }
    ir_attr a = {.name = name, .kind = IR_ATTR_FLOATS, .count = n, .floats = values};
    return values && ir_attr_set(m->graph, node, &a);
}

static bool attr_list(maker *m, ir_node *node, const char *name)
{
    int64_t values[16];
    if (memchr(m->at, '.', strcspn(m->at, ")")))
        return attr_floats(m, node, name);
    uint32_t n = 0;
    for (m->at++; *m->at && *m->at != ')'; m->at += *m->at == ',')
        if (n < 16)
            values[n++] = size_here(m);
        else
            return false;
    return ir_attr_set_ints(m->graph, node, name, n, values);
}

static bool attr_permutation(maker *m, ir_node *node, const char *name)
{
    int64_t perm[IR_MAX_RANK];
    for (int32_t d = 0; d < m->shared.rank; d++) {
        uint64_t k = rng_below(&m->r, (uint64_t)d + 1);
        perm[d] = perm[k];
        perm[k] = d;
    }
    return ir_attr_set_ints(m->graph, node, name, (uint32_t)m->shared.rank, perm);
}

/* [a,bc] */
static bool attr_strings(maker *m, ir_node *node, const char *name)
{
    ir_string *words = ARENA_ARRAY(m->memory, 16, ir_string);
    uint32_t n = 0;
    for (m->at++; words && *m->at && *m->at != ']'; m->at += *m->at == ',') {
        size_t length = strcspn(m->at, ",]");
        if (n == 16)
            return false;
        words[n++] = (ir_string){m->at, length};
        m->at += length;
    }
    return words &&
           ir_attr_set(
               m->graph, node,
               &(ir_attr){.name = name, .kind = IR_ATTR_STRINGS, .count = n, .strings = words});
}

/* `m->at` stands at one alternative of `length`. */
static bool attr_value(maker *m, ir_node *node, const char *name, size_t length)
{
    const char *text = m->at;
    if (*text == '(')
        return attr_list(m, node, name);
    if (*text == '[' && strncmp(name, "pattern", 7) != 0)
        return attr_strings(m, node, name);
    if (*text == '{') {
        m->at++;
        return ir_attr_set_int(m->graph, node, name, size_here(m));
    }
    if (*text == '@')
        return ir_attr_set_int(m->graph, node, name,
                               (int64_t)rng_below(&m->r, 2 * (uint64_t)m->shared.rank) -
                                   m->shared.rank);
    if (strncmp(text, "%perm", 5) == 0)
        return attr_permutation(m, node, name);
    if (strncmp(text, "%tensor", 7) == 0) {
        ir_tensor *t = ir_tensor_new(m->memory, m->type, &(ir_shape){1, {1}});
        if (!t)
            return false;
        memset(t->data, 0, t->bytes);
        fill(m, t, &(value_rule){ANY});
        return ir_attr_set(m->graph, node,
                           &(ir_attr){.name = name, .kind = IR_ATTR_TENSOR, .tensor = t});
    }
    if (strncmp(text, "%T", 2) == 0)
        return ir_attr_set_int(m->graph, node, name, ir_dtype_to_onnx(m->type));
    if (strncmp(text, "%type", 5) == 0) {
        tacit_dtype d = (tacit_dtype)(1 + rng_below(&m->r, TACIT_DTYPE_COUNT - 1));
        return ir_attr_set_int(m->graph, node, name, ir_dtype_to_onnx(d));
    }
    size_t digits = strspn(text, "-0123456789");
    if (digits == length)
        return ir_attr_set_int(m->graph, node, name, strtoll(text, NULL, 10));
    if (strspn(text, "-.0123456789e") == length)
        return ir_attr_set_float(m->graph, node, name, strtod(text, NULL));
    const char *copy = arena_strndup(m->memory, text, length);
    return copy && ir_attr_set_string(m->graph, node, name, copy);
}

/* .name=a|b or .?name=a */
static bool attr_here(maker *m, ir_node *node)
{
    m->at++;
    bool absent = *m->at == '?' && rng_below(&m->r, 2);
    m->at += *m->at == '?';
    size_t length = strcspn(m->at, "=");
    const char *name = arena_strndup(m->memory, m->at, length), *end;
    m->at += length + 1;
    end = m->at + strcspn(m->at, " ");
    uint32_t choices = 1;
    for (const char *p = m->at; p < end; p++)
        choices += *p == '|';
    for (uint64_t k = rng_below(&m->r, choices); k; k--)
        m->at = strchr(m->at, '|') + 1;
    size_t own = strcspn(m->at, "| ");
    bool ok = name && (absent || attr_value(m, node, name, own));
    m->at = end;
    return ok;
}

/* --- the node --------------------------------------------------------------------------------- */

static uint32_t outputs_of(maker *m, const op_def *row, const char *recipe, const char *end)
{
    for (const char *p = recipe; p < end; p++)
        if (p[0] == '#')
            return (uint32_t)strtoul(p + 1, NULL, 10);
    uint32_t least = row->min_out > 0 ? (uint32_t)row->min_out : 1;
    uint32_t most = row->max_out > (int)least ? (uint32_t)row->max_out : least;
    return least + (uint32_t)rng_below(&m->r, most - least + 1);
}

static void next_token(maker *m, const char *end)
{
    while (m->at < end && *m->at != ' ')
        m->at++;
    while (m->at < end && *m->at == ' ')
        m->at++;
}

static bool build(maker *m, const op_def *row, const char *recipe, const char *end)
{
    ir_value *values[OP_SPECIMEN_INPUTS] = {0};
    uint32_t n = 0;
    for (m->at = recipe; m->at < end && *m->at != '.' && *m->at != '#'; next_token(m, end))
        if (n == OP_SPECIMEN_INPUTS || !input_here(m, &values[n++]))
            return false;
    while (n > 0 && !values[n - 1])
        n--;
    uint32_t n_out = outputs_of(m, row, recipe, end);
    m->out->node = ir_node_new(m->graph, row->name, row->domain ? row->domain : "", "n", n, values,
                               n_out, NULL);
    if (!m->out->node)
        return false;
    op_resolve(NULL, m->out->node);
    for (; m->at < end; next_token(m, end))
        if (*m->at == '.' && !attr_here(m, m->out->node))
            return false;
    for (uint32_t i = 0; i < n_out; i++)
        if (!ir_output_add(m->graph, m->out->node->outputs[i]))
            return false;
    return true;
}

bool op_specimen_make(arena *memory, const op_def *row, tacit_dtype type, uint64_t seed,
                      op_specimen_input *input, void *context, op_specimen *out)
{
    const char *recipe = op_specimen_recipe(row), *bar;
    uint64_t name = 0; /* rows get their own cases, whatever their place in the table */
    for (const char *p = row->name; *p; p++)
        name = name * 131 + (unsigned char)*p;
    *out = (op_specimen){.graph = ir_graph_new(memory, "specimen")};
    if (!recipe || !out->graph)
        return false;
    maker m = {.memory = memory,
               .r = rng_seed(seed * 1000003 + name),
               .type = type,
               .graph = out->graph,
               .out = out,
               .input = input,
               .context = context};
    memset(m.sizes, -1, sizeof m.sizes);
    m.wild = rng_below(&m.r, 8) == 0;
    uint32_t choices = 1;
    for (const char *p = recipe; (p = strstr(p, "||")); p += 2)
        choices++;
    for (uint64_t k = rng_below(&m.r, choices); k; k--)
        recipe = strstr(recipe, "||") + 3;
    bar = strstr(recipe, " ||");
    draw_shared(&m, recipe);
    return build(&m, row, recipe, bar ? bar : recipe + strlen(recipe));
}

static bool has_type(const op_specimen *s, const ir_value *v, tacit_dtype type)
{
    const ir_tensor *t = v->constant;
    for (uint32_t i = 0; i < s->graph->inputs.count; i++)
        if (s->graph->inputs.data[i] == v)
            t = s->given[i];
    return t && t->dtype == type && ir_tensor_count(t) > 0;
}

/* Does an element of this type take part? A recipe without T speaks of its first input. */
static bool takes_part(const op_specimen *s, tacit_dtype type)
{
    const ir_graph *g = s->graph;
    const char *recipe = op_specimen_recipe(s->node->op);
    bool open = strstr(recipe, "T") || strstr(recipe, "seq") || strstr(recipe, "%tensor");
    if (!open && s->node->n_inputs > 0)
        return s->node->inputs[0] && has_type(s, s->node->inputs[0], type);
    for (uint32_t i = 0; i < g->values.count; i++)
        if (has_type(s, g->values.data[i], type))
            return true;
    if (!strstr(recipe, "%T") && !strstr(recipe, "%tensor"))
        return false;
    return !s->node->op->infer || s->node->outputs[0]->type.dtype == type;
}

/* Runs the graph's nodes in the order they were made, without passes or kernels. */
static bool evaluate(arena *a, const op_specimen *s)
{
    const ir_graph *g = s->graph;
    const ir_tensor **of = ARENA_ARRAY(a, g->values.count + 1u, const ir_tensor *);
    for (uint32_t i = 0; of && i < g->values.count; i++)
        of[i] = g->values.data[i]->constant;
    for (uint32_t i = 0; of && i < g->inputs.count; i++)
        of[g->inputs.data[i]->id] = s->given[i];
    op_exec_env env = {.memory = a};
    for (uint32_t k = 0; k < g->nodes.count; k++) {
        const ir_node *n = g->nodes.data[k];
        const ir_tensor **in = ARENA_ARRAY(a, n->n_inputs + 1u, const ir_tensor *);
        ir_tensor *results = ARENA_ARRAY(a, n->n_outputs + 1u, ir_tensor);
        for (uint32_t i = 0; of && in && i < n->n_inputs; i++)
            in[i] = n->inputs[i] ? of[n->inputs[i]->id] : NULL;
        if (!of || !in || !results || op_execute(n, in, results, &env, NULL) != TACIT_OK)
            return false;
        for (uint32_t i = 0; i < n->n_outputs; i++)
            of[n->outputs[i]->id] = &results[i];
    }
    return true;
}

bool op_specimen_runs(const op_def *row, tacit_dtype type)
{
    bool ran = false;
    for (uint64_t seed = 0; seed < 40 && !ran && row->eval; seed++) {
        arena a;
        arena_init(&a, NULL);
        op_specimen s;
        ran = op_specimen_make(&a, row, type, seed, NULL, NULL, &s) &&
              op_infer_graph(s.graph, NULL) == TACIT_OK && takes_part(&s, type) && evaluate(&a, &s);
        arena_free(&a);
    }
    return ran;
}
