/* SPDX-License-Identifier: Apache-2.0 */
#include "prog/eager.h"

#include <string.h>

enum {
    PATIENCE = 32,        /* builds for one node whose inputs change all the time… */
    INSISTENCE = 1 << 20, /* …after which only so many bytes are worth another */
    OFTEN = 3,            /* runs of a node (the body of a loop) after which… */
    FEWER = 16,           /* …so many times fewer bytes are worth it, */
    LITTLE_PATIENCE = 4,  /* so often */
    SMALL = 64,           /* elements of an input that may say a shape */
    NO_PORT = UINT32_MAX,
};

/* A program of one node. Nodes that are alike share it: a recursion has its body many times. */
typedef struct entry {
    const ir_node *node; /* the first of them */
    uint64_t hash;
    uint32_t users; /* nodes that last ran by it */
    arena memory;
    prog_program *program; /* NULL: no kernel takes these types */
    prog_session *session;
    ir_type *types;             /* by input */
    const ir_tensor **contents; /* by input: what it was built for; NULL: anything */
    uint32_t *port;             /* by input: its place among the program's inputs */
} entry;

typedef struct place {
    const ir_node *node; /* NULL: free */
    entry *last;
    uint32_t builds;
    uint32_t seen; /* with few bytes; up to OFTEN */
} place;

struct eager_cache {
    const tacit_allocator *allocator;
    size_t worth;
    prog_options options;
    arena memory;
    VEC(entry *) entries; /* NULL: free */
    place *places;        /* open addressing by node */
    uint32_t count, capacity, builds;
};

eager_cache *eager_open(const prog_options *options, size_t worth)
{
    const tacit_allocator *allocator = alloc_or_default(options->allocator);
    eager_cache *c = mem_alloc_zero(allocator, sizeof *c);
    if (!c)
        return NULL;
    c->allocator = allocator;
    c->worth = worth;
    arena_init(&c->memory, allocator);
    /* Without the tuning: it is not there any more when sizes are met. */
    c->options = (prog_options){.executor = TACIT_EXEC_SERIAL,
                                .validate = options->validate,
                                .allocator = allocator,
                                .batch_invariant = options->batch_invariant,
                                .plain_sums = options->plain_sums};
    return c;
}

static void entry_free(eager_cache *c, entry *e)
{
    prog_session_free(e->session);
    prog_free(e->program);
    arena_free(&e->memory);
    mem_release(c->allocator, e, sizeof *e);
}

void eager_free(eager_cache *c)
{
    if (!c)
        return;
    for (uint32_t i = 0; i < c->entries.count; i++)
        if (c->entries.data[i])
            entry_free(c, c->entries.data[i]);
    mem_release(c->allocator, c->places, c->capacity * sizeof *c->places);
    arena_free(&c->memory);
    mem_release(c->allocator, c, sizeof *c);
}

uint32_t eager_builds(const eager_cache *c)
{
    return c->builds;
}

/* --- which entry serves a node ----------------------------------------------------------------
 */

static place *place_in(place *places, uint32_t capacity, const ir_node *node)
{
    uint32_t i = (uint32_t)hash_mix(0, (uintptr_t)node) & (capacity - 1);
    while (places[i].node && places[i].node != node)
        i = (i + 1) & (capacity - 1);
    return &places[i];
}

static bool grow(eager_cache *c)
{
    uint32_t capacity = c->capacity ? 2 * c->capacity : 16;
    place *places = mem_alloc_zero(c->allocator, capacity * sizeof *places);
    if (!places)
        return false;
    for (uint32_t i = 0; i < c->capacity; i++)
        if (c->places[i].node)
            *place_in(places, capacity, c->places[i].node) = c->places[i];
    mem_release(c->allocator, c->places, c->capacity * sizeof *c->places);
    c->places = places;
    c->capacity = capacity;
    return true;
}

/* NULL: no memory. */
static place *place_of(eager_cache *c, const ir_node *node)
{
    if (4 * c->count >= 3 * c->capacity && !grow(c))
        return NULL;
    place *p = place_in(c->places, c->capacity, node);
    c->count += !p->node;
    p->node = node;
    return p;
}

static uint64_t hash_of(const ir_node *node, const ir_tensor *const *in)
{
    uint64_t h = hash_mix(0, (uintptr_t)node->op);
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        h = hash_mix(h, in[i] ? (uint64_t)in[i]->dtype : 0);
        for (int32_t d = 0; in[i] && d < in[i]->shape.rank; d++)
            h = hash_mix(h, (uint64_t)in[i]->shape.dims[d]);
    }
    return h;
}

/* Inputs of the types and, where they count, the contents it was built for? */
static bool takes(const entry *e, const ir_node *node, const ir_tensor *const *in,
                  const bool *fixed)
{
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        if (!in[i])
            continue;
        ir_type type = ir_tensor_type(in[i]);
        const ir_tensor *was = e->contents[i];
        if (!ir_type_equal(&type, &e->types[i]))
            return false;
        if (was && was->data != in[i]->data &&
            (fixed[node->inputs[i]->id] || memcmp(was->data, in[i]->data, was->bytes) != 0))
            return false;
    }
    return true;
}

static bool alike(const ir_node *a, const ir_node *b)
{
    if (a->op != b->op || a->n_inputs != b->n_inputs || a->n_outputs != b->n_outputs)
        return false;
    for (uint32_t i = 0; i < a->n_inputs; i++)
        if (!a->inputs[i] != !b->inputs[i])
            return false;
    for (uint32_t i = 0; i < a->n_outputs; i++)
        if (!a->outputs[i] != !b->outputs[i])
            return false;
    return ir_attrs_equal(a, b);
}

static entry *find(const eager_cache *c, const ir_node *node, const ir_tensor *const *in,
                   const bool *fixed, uint64_t hash)
{
    for (uint32_t i = 0; i < c->entries.count; i++) {
        entry *e = c->entries.data[i];
        if (e && e->hash == hash && alike(e->node, node) && takes(e, node, in, fixed))
            return e;
    }
    return NULL;
}

static void forget(eager_cache *c, entry *e)
{
    for (uint32_t i = 0; i < c->entries.count; i++)
        if (c->entries.data[i] == e)
            c->entries.data[i] = NULL;
    entry_free(c, e);
}

/* From now on the node runs by `e`; what nobody runs by any more is released. */
static void move_to(eager_cache *c, place *p, entry *e)
{
    entry *before = p->last;
    p->last = e;
    e->users++;
    if (!before || --before->users)
        return;
    forget(c, before);
}

/* --- building --------------------------------------------------------------------------------- */

static bool may_say_shape(const ir_tensor *t)
{
    return ir_dtype_is_int(t->dtype) && ir_tensor_count(t) <= SMALL;
}

/* The input as a constant of the one-node graph, or as an input of it. */
static ir_value *make_input(entry *e, ir_graph *g, uint32_t i, const ir_tensor *t, bool constant)
{
    e->types[i] = ir_tensor_type(t);
    e->port[i] = NO_PORT;
    if (!constant) {
        e->port[i] = g->inputs.count;
        return ir_input_new(g, NULL, &e->types[i]);
    }
    e->contents[i] = t;
    return ir_constant_new(g, NULL, t);
}

/* A graph of the node alone. With `values`, small integers count as known. */
static ir_graph *one_node(entry *e, const ir_tensor *const *in, const bool *fixed, bool values)
{
    const ir_node *node = e->node;
    ir_graph *g = ir_graph_new(&e->memory, node->name);
    ir_value **inputs = ARENA_ARRAY(&e->memory, node->n_inputs + 1u, ir_value *);
    const char **names = ARENA_ARRAY(&e->memory, node->n_outputs + 1u, const char *);
    e->types = ARENA_ARRAY(&e->memory, node->n_inputs + 1u, ir_type);
    e->contents = ARENA_ARRAY(&e->memory, node->n_inputs + 1u, const ir_tensor *);
    e->port = ARENA_ARRAY(&e->memory, node->n_inputs + 1u, uint32_t);
    if (!g || !inputs || !names || !e->types || !e->contents || !e->port)
        return NULL;
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        if (!in[i])
            continue;
        bool lasts = fixed[node->inputs[i]->id], known = lasts || (values && may_say_shape(in[i]));
        const ir_tensor *t = lasts   ? arena_copy(&e->memory, in[i], sizeof *in[i])
                             : known ? ir_tensor_copy(&e->memory, in[i])
                                     : in[i];
        inputs[i] = t ? make_input(e, g, i, t, known) : NULL;
        if (!inputs[i])
            return NULL;
    }
    for (uint32_t i = 0; i < node->n_outputs; i++)
        names[i] = node->outputs[i] ? node->outputs[i]->name : NULL;
    ir_node *n = ir_node_new(g, node->type, node->domain, node->name, node->n_inputs, inputs,
                             node->n_outputs, names);
    if (!n || !ir_attr_copy_all(g, n, node))
        return NULL;
    n->op = node->op;
    for (uint32_t i = 0; i < n->n_outputs; i++)
        if (n->outputs[i] && !ir_output_add(g, n->outputs[i]))
            return NULL;
    return g;
}

static bool all_outputs_static(const ir_graph *g)
{
    for (uint32_t i = 0; i < g->outputs.count; i++)
        if (!ir_type_is_static(&g->outputs.data[i]->type) ||
            g->outputs.data[i]->type.kind != IR_TENSOR)
            return false;
    return true;
}

static bool has_kernel(const prog_program *p)
{
    if (p->n_tail || p->n_tail_wanted)
        return false;
    for (uint32_t i = 0; i < p->n_thunks; i++)
        if (strcmp(p->thunks[i].made->kernel, "eval") == 0)
            return false;
    return true;
}

/* What cannot be built is left without a program: the evaluator runs it, and says what is wrong
 * where something is. */
static void build_program(eager_cache *c, entry *e, ir_graph *g)
{
    tacit_error ignored;
    if (!all_outputs_static(g) || prog_build(g, &c->options, &e->program, &ignored) != TACIT_OK)
        return;
    if (!has_kernel(e->program) ||
        prog_session_create(e->program, &e->session, &ignored) != TACIT_OK) {
        prog_free(e->program);
        e->program = NULL;
    }
}

/* An entry in a free place of the list. NULL: no memory. */
static entry *entry_new(eager_cache *c, const ir_node *node, uint64_t hash)
{
    uint32_t at = 0;
    while (at < c->entries.count && c->entries.data[at])
        at++;
    if (at == c->entries.count && !vec_push(&c->memory, &c->entries, (entry *)NULL))
        return NULL;
    entry *e = mem_alloc_zero(c->allocator, sizeof *e);
    if (!e)
        return NULL;
    *e = (entry){.node = node, .hash = hash};
    arena_init(&e->memory, c->allocator);
    c->entries.data[at] = e;
    return e;
}

static entry *build(eager_cache *c, const ir_node *node, const ir_tensor *const *in,
                    const bool *fixed, uint64_t hash)
{
    tacit_error ignored;
    ir_graph *g = NULL;
    entry *e = entry_new(c, node, hash);
    for (int values = 0; e && values < 2; values++) {
        arena_free(&e->memory);
        g = one_node(e, in, fixed, values);
        if (!g || (op_infer_graph(g, &ignored) == TACIT_OK && all_outputs_static(g)))
            break;
    }
    if (g) {
        build_program(c, e, g);
        c->builds++;
    }
    if (e && !g)
        forget(c, e);
    return g ? e : NULL;
}

/* --- running ---------------------------------------------------------------------------------- */

/* 0: not for kernels. */
static size_t input_bytes(const ir_node *node, const ir_tensor *const *in)
{
    size_t bytes = 0;
    if (!node->op || !node->op->lower || !node->op->infer || node->op->flags & OP_CONTROL)
        return 0;
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        if (!in[i])
            continue;
        if (in[i]->kind != IR_TENSOR || in[i]->dtype == TACIT_STRING)
            return 0;
        bytes += in[i]->bytes;
    }
    return bytes;
}

static tacit_status run(entry *e, const ir_tensor *const *in, uint64_t step, ir_tensor *results,
                        arena *memory, bool *done, tacit_error *err)
{
    const ir_node *node = e->node;
    prog_session *s = e->session;
    tacit_error ignored;
    for (uint32_t i = 0; i < node->n_inputs; i++)
        if (in[i] && e->port[i] != NO_PORT)
            prog_set_input(s, e->port[i], in[i]);
    for (uint32_t i = 0, k = 0; i < node->n_outputs; i++) {
        results[i] = (ir_tensor){0};
        if (!node->outputs[i])
            continue;
        const ir_type *type = &e->program->graph->outputs.data[k]->type;
        ir_tensor *t = ir_tensor_new(memory, type->dtype, &type->shape);
        if (!t)
            return error_memory(err, "an output tensor");
        results[i] = *t;
        TRY(prog_set_output(s, k++, t->data, err));
    }
    s->state.step = step;
    /* A fault would name the first of the nodes that share the kernel; the evaluator names this. */
    *done = prog_run(s, &ignored) == TACIT_OK;
    return TACIT_OK;
}

tacit_status eager_run(eager_cache *c, const ir_node *node, const ir_tensor *const *in,
                       const bool *fixed, uint64_t step, ir_tensor *results, arena *memory,
                       bool *done, tacit_error *err)
{
    size_t bytes = input_bytes(node, in);
    *done = false;
    if (!bytes || bytes < c->worth / FEWER)
        return TACIT_OK;
    place *p = place_of(c, node);
    if (!p)
        return error_memory(err, "the interpreter");
    if (bytes < c->worth && p->seen < OFTEN) {
        p->seen++;
        return TACIT_OK;
    }
    if (!p->last || !takes(p->last, node, in, fixed)) {
        uint64_t hash = hash_of(node, in);
        entry *e = find(c, node, in, fixed, hash);
        uint32_t most = bytes < c->worth ? LITTLE_PATIENCE : PATIENCE;
        if (!e && p->builds >= most && bytes < INSISTENCE)
            return TACIT_OK;
        p->builds += !e;
        if (!e && !(e = build(c, node, in, fixed, hash)))
            return error_memory(err, "the interpreter");
        move_to(c, p, e);
    }
    return p->last->program ? run(p->last, in, step, results, memory, done, err) : TACIT_OK;
}
