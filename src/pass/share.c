/* SPDX-License-Identifier: Apache-2.0
 * Common subexpressions: nodes with the same op, inputs and attributes, and small equal constants.
 * One walk in topological order with a hash table. */
#include "pass/edit.h"

enum { CONSTANT_MOST = 4096, LOOKED_AT = 64 }; /* bytes: of a constant compared by contents */

typedef struct shared {
    uint64_t hash; /* 0: empty */
    ir_node *node;
    ir_value *constant;
} shared;

typedef struct table {
    shared *slots;
    uint32_t mask;
} table;

static uint64_t hash_pointer(uint64_t h, const void *p)
{
    return hash_mix(h, (uint64_t)(uintptr_t)p);
}

static uint64_t hash_attr(const ir_attr *a)
{
    uint64_t h = hash_bytes(a->name, strlen(a->name), (uint64_t)a->kind);
    switch (a->kind) {
    case IR_ATTR_INT:
        return hash_mix(h, (uint64_t)a->i);
    case IR_ATTR_FLOAT:
        return hash_bytes(&a->f, sizeof a->f, h);
    case IR_ATTR_STRING:
        return hash_bytes(a->s.data, a->s.length, h);
    case IR_ATTR_INTS:
        return hash_bytes(a->ints, a->count * sizeof *a->ints, h);
    case IR_ATTR_FLOATS:
        return hash_bytes(a->floats, a->count * sizeof *a->floats, h);
    default:
        return h;
    }
}

static bool same_attr(const ir_attr *a, const ir_attr *b)
{
    if (a->kind != b->kind)
        return false;
    switch (a->kind) {
    case IR_ATTR_INT:
        return a->i == b->i;
    case IR_ATTR_FLOAT:
        /* NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): -0 and 0 differ, NaN is itself */
        return memcmp(&a->f, &b->f, sizeof a->f) == 0;
    case IR_ATTR_STRING:
        return a->s.length == b->s.length && memcmp(a->s.data, b->s.data, a->s.length) == 0;
    case IR_ATTR_INTS:
        return a->count == b->count && memcmp(a->ints, b->ints, a->count * sizeof *a->ints) == 0;
    case IR_ATTR_FLOATS:
        return a->count == b->count &&
               memcmp(a->floats, b->floats, a->count * sizeof *a->floats) == 0;
    case IR_ATTR_TENSOR:
        return a->tensor == b->tensor || ir_tensor_identical(a->tensor, b->tensor);
    default:
        return false; /* rare kinds are never shared */
    }
}

static void ordered_inputs(const ir_node *n, const ir_value **first, const ir_value **second)
{
    *first = n->n_inputs > 0 ? n->inputs[0] : NULL;
    *second = n->n_inputs > 1 ? n->inputs[1] : NULL;
    if (n->op->flags & OP_COMMUTATIVE && n->n_inputs == 2 && *first > *second) {
        const ir_value *t = *first;
        *first = *second;
        *second = t;
    }
}

static uint64_t hash_node(const ir_node *n)
{
    const ir_value *a, *b;
    ordered_inputs(n, &a, &b);
    uint64_t h = hash_pointer(n->n_outputs, n->op);
    h = hash_pointer(hash_pointer(h, a), b);
    for (uint32_t k = 2; k < n->n_inputs; k++)
        h = hash_pointer(h, n->inputs[k]);
    uint64_t attrs = n->n_attrs; /* a sum: attributes have no order */
    for (uint32_t k = 0; k < n->n_attrs; k++)
        attrs += hash_attr(&n->attrs[k]);
    return hash_mix(h, attrs) | 1;
}

static bool same_node(const ir_node *x, const ir_node *y)
{
    if (x->op != y->op || x->n_inputs != y->n_inputs || x->n_outputs != y->n_outputs ||
        x->n_attrs != y->n_attrs)
        return false;
    const ir_value *a, *b, *c, *d;
    ordered_inputs(x, &a, &b);
    ordered_inputs(y, &c, &d);
    if (a != c || b != d)
        return false;
    for (uint32_t k = 2; k < x->n_inputs; k++)
        if (x->inputs[k] != y->inputs[k])
            return false;
    for (uint32_t k = 0; k < x->n_attrs; k++) {
        const ir_attr *other = ir_attr_find(y, x->attrs[k].name);
        if (!other || !same_attr(&x->attrs[k], other))
            return false;
    }
    return true;
}

static bool may_share(const ir_node *n)
{
    return n->type && n->op && !(n->op->flags & (OP_RANDOM | OP_CONTROL)) && n->n_outputs &&
           !ir_node_has_subgraph(n);
}

/* All results of `n` are those of `first`. */
static void merge(pass_edit *e, ir_node *n, ir_node *first)
{
    for (uint32_t k = 0; k < n->n_outputs; k++) {
        const ir_value *a = n->outputs[k], *b = first->outputs[k];
        if (a && pass_uses(e, a) && (!b || !pass_replaceable(e, a, b)))
            return;
    }
    for (uint32_t k = 0; k < n->n_outputs; k++)
        if (n->outputs[k] && pass_uses(e, n->outputs[k]))
            pass_replace(e, n->outputs[k], first->outputs[k]);
    ir_node_note(e->g, first, e->c->name, "also stands for %s", n->name);
    pass_kill(e, n);
    e->c->rewrites++;
}

static void share_node(pass_edit *e, table *t, ir_node *n)
{
    uint64_t h = hash_node(n);
    for (uint64_t i = h;; i++) {
        shared *s = &t->slots[i & t->mask];
        if (!s->hash) {
            *s = (shared){.hash = h, .node = n};
            return;
        }
        if (s->hash == h && s->node && same_node(s->node, n)) {
            merge(e, n, s->node);
            return;
        }
    }
}

/* Constants: the same bytes in memory, or small and equal. */
static void share_constant(pass_edit *e, table *t, ir_value *v)
{
    const ir_tensor *c = ir_value_known(v);
    if (!v->is_initializer || v->is_input || !c || c->kind != IR_TENSOR ||
        c->dtype == TACIT_STRING || !pass_uses(e, v) || pass_is_output(e, v))
        return;
    uint64_t h = hash_bytes(c->shape.dims, (size_t)c->shape.rank * sizeof *c->shape.dims,
                            (uint64_t)c->dtype);
    /* The first bytes tell most of them apart; the others are compared. */
    h = c->bytes > CONSTANT_MOST
            ? hash_pointer(h, c->data)
            : hash_bytes(c->data, c->bytes < LOOKED_AT ? c->bytes : LOOKED_AT, h);
    h |= 1;
    for (uint64_t i = h;; i++) {
        shared *s = &t->slots[i & t->mask];
        if (!s->hash) {
            *s = (shared){.hash = h, .constant = v};
            return;
        }
        if (s->hash != h || !s->constant)
            continue;
        const ir_tensor *other = s->constant->constant;
        ir_type a = ir_tensor_type(c), b = ir_tensor_type(other);
        bool same = c->data == other->data && ir_type_equal(&a, &b);
        if (same || (c->bytes <= CONSTANT_MOST && ir_tensor_identical(c, other))) {
            pass_replace(e, v, s->constant);
            e->c->rewrites++;
            return;
        }
    }
}

tacit_status pass_share(pass_context *c)
{
    pass_edit e;
    TRY(pass_edit_begin(&e, c));
    uint32_t n_values = c->graph->values.count, capacity = 64;
    while (capacity < 2 * (n_values + c->graph->nodes.count))
        capacity *= 2;
    table t = {ARENA_ARRAY(c->scratch, capacity, shared), capacity - 1};
    if (!t.slots)
        return error_memory(c->err, "sharing equal nodes");
    for (uint32_t i = 0; i < n_values; i++)
        share_constant(&e, &t, c->graph->values.data[i]);
    for (uint32_t i = 0; i < c->graph->nodes.count; i++)
        if (may_share(c->graph->nodes.data[i]))
            share_node(&e, &t, c->graph->nodes.data[i]);
    return TACIT_OK;
}
