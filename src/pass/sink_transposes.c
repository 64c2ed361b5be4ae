/* SPDX-License-Identifier: Apache-2.0
 * Converters from frameworks whose images have channels last put every convolution between two
 * Transposes, and leave what lies between convolutions in their own layout. Here such a region of
 * ops that work in any layout (element-wise ops, paddings, means, joins) is turned into the layout
 * from which the Transposes in front of it come, where that moves fewer elements than before: those
 * behind it are undone, too, and convolutions get their activations. */
#include <string.h>

#include "pass/edit.h"

typedef struct sinking {
    pass_edit e;
    uint32_t nodes, values; /* that there were */
    int32_t rank;
    int64_t perm[IR_MAX_RANK], inverse[IR_MAX_RANK]; /* from the layout in front, and back */
    uint32_t *turned, *member; /* by value, by node: the region it was last found in */
    uint32_t region;           /* the present one */
    VEC(ir_value *) found;     /* its values: outputs of its nodes and of Transposes in front */
    VEC(ir_node *) within;     /* its nodes */
    ir_value **forms;          /* by value: as it lies in the layout in front */
} sinking;

/* --- which nodes ------------------------------------------------------------------------------ */

static bool permutes(const sinking *s, const ir_node *n, const int64_t *perm)
{
    int64_t own[IR_MAX_RANK];
    return pass_is(&s->e, n, PASS_TRANSPOSE) && pass_static(n->inputs[0]) &&
           n->inputs[0]->type.shape.rank == s->rank && pass_permutation(n, own) &&
           memcmp(own, perm, (size_t)s->rank * sizeof *own) == 0;
}

static bool is_exit(const sinking *s, const ir_node *n)
{
    return permutes(s, n, s->inverse) && !pass_is_output(&s->e, n->outputs[0]);
}

static bool has_rank(const sinking *s, const ir_value *v)
{
    return pass_static(v) && v->type.shape.rank == s->rank;
}

/* Which of the ops that patterns know; PASS_OP_COUNT: none. */
static pass_op op_of(const sinking *s, const ir_node *n)
{
    uint32_t k = 0;
    while (k < PASS_OP_COUNT && (!n->op || s->e.c->ops[k] != n->op))
        k++;
    return (pass_op)k;
}

/* What an element-wise op reads: another image, one element, or a constant that is spread. */
static bool spreads(const sinking *s, const ir_value *v)
{
    return !v || has_rank(s, v) ||
           (pass_static(v) && v->type.shape.rank < s->rank &&
            (ir_value_known(v) || ir_shape_size(&v->type.shape) == 1));
}

static bool is_reduction(const sinking *s, const ir_node *n)
{
    return pass_is(&s->e, n, PASS_REDUCE_MEAN) || pass_is(&s->e, n, PASS_REDUCE_SUM) ||
           pass_is(&s->e, n, PASS_REDUCE_MAX) || pass_is(&s->e, n, PASS_REDUCE_SUM_SQUARE);
}

/* The axes of a reduction, or what a Pad adds; false: something else, or not known. */
static bool read_ints(const sinking *s, const ir_node *n, int64_t *out, uint32_t *count)
{
    if (n->n_inputs < 2 || !has_rank(s, n->inputs[0]) ||
        !pass_ints(n->inputs[1], out, 2 * IR_MAX_RANK, count))
        return false;
    if (pass_is(&s->e, n, PASS_PAD))
        return *count == 2 * (uint32_t)s->rank && (n->n_inputs < 4 || !n->inputs[3]);
    return is_reduction(s, n) && *count > 0 && *count <= (uint32_t)s->rank &&
           ir_attr_int(n, "keepdims", 1) != 0;
}

/* Can the node work in the layout in front as well? */
static bool follows(const sinking *s, const ir_node *n)
{
    int64_t ints[2 * IR_MAX_RANK];
    uint32_t count;
    if (!n->type || !n->op || n->n_outputs != 1 || !has_rank(s, n->outputs[0]) || n->id >= s->nodes)
        return false;
    if (pass_is(&s->e, n, PASS_CONCAT) || n->op->flags & OP_ELEMENTWISE) {
        bool joins = pass_is(&s->e, n, PASS_CONCAT);
        for (uint32_t k = 0; k < n->n_inputs; k++)
            if (joins ? !has_rank(s, n->inputs[k]) : !spreads(s, n->inputs[k]))
                return false;
        return op_of(s, n) != PASS_OP_COUNT;
    }
    return read_ints(s, n, ints, &count); /* of ops that are known by name */
}

/* --- the region ------------------------------------------------------------------------------- */

static bool is_turned(const sinking *s, const ir_value *v)
{
    return v->id < s->values && s->turned[v->id] == s->region;
}

static bool is_member(const sinking *s, const ir_node *n)
{
    return n && n->id < s->nodes && s->member[n->id] == s->region;
}

static tacit_status turn(sinking *s, ir_value *v)
{
    if (is_turned(s, v) || v->id >= s->values) /* what was made here waits for the next round */
        return TACIT_OK;
    s->turned[v->id] = s->region;
    return vec_push(s->e.c->scratch, &s->found, v) ? TACIT_OK
                                                   : error_memory(s->e.c->err, "a region");
}

static tacit_status join(sinking *s, ir_node *n)
{
    if (is_member(s, n) || !follows(s, n))
        return TACIT_OK;
    s->member[n->id] = s->region;
    if (!vec_push(s->e.c->scratch, &s->within, n))
        return error_memory(s->e.c->err, "a region");
    for (uint32_t k = 0; k < n->n_inputs; k++)
        if (n->inputs[k] && permutes(s, n->inputs[k]->producer, s->perm))
            TRY(turn(s, n->inputs[k]));
    return turn(s, n->outputs[0]);
}

/* All that can be reached from behind the Transpose. */
static tacit_status explore(sinking *s, ir_node *first)
{
    s->region++;
    s->found.count = s->within.count = 0;
    TRY(turn(s, first->outputs[0]));
    for (uint32_t i = 0; i < s->found.count; i++)
        for (const pass_use *u = pass_first_use(&s->e, s->found.data[i]); u;
             u = pass_next_use(&s->e, u))
            if (u->node)
                TRY(join(s, u->node));
    return TACIT_OK;
}

/* Elements that a Transpose of `v` moves: none where it only relabels axes. */
static double moved(const ir_value *v)
{
    const ir_shape *shape = &v->type.shape;
    int axes = 0;
    for (int32_t d = 0; d < shape->rank; d++)
        axes += shape->dims[d] != 1;
    return axes > 1 ? (double)ir_shape_size(shape) : 0;
}

static bool is_read_outside(const sinking *s, const ir_value *v, double *undone)
{
    bool outside = false;
    *undone = 0;
    for (const pass_use *u = pass_first_use(&s->e, v); u; u = pass_next_use(&s->e, u))
        if (u->node && is_exit(s, u->node))
            *undone += moved(v);
        else if (!is_member(s, u->node))
            outside = true;
    return outside;
}

/* Does turning the region save more than it costs? */
static bool pays(const sinking *s)
{
    double gain = 0, undone;
    for (uint32_t i = 0; i < s->found.count; i++) {
        const ir_value *v = s->found.data[i];
        bool outside = is_read_outside(s, v, &undone);
        gain += undone;
        if (is_member(s, v->producer))
            gain -= outside ? moved(v) : 0;
        else
            gain += outside ? 0 : moved(v);
    }
    for (uint32_t i = 0; i < s->within.count; i++)
        for (uint32_t k = 0; k < s->within.data[i]->n_inputs; k++) {
            const ir_value *v = s->within.data[i]->inputs[k];
            if (v && has_rank(s, v) && !is_turned(s, v) && !ir_value_known(v))
                gain -= moved(v);
        }
    return gain > 0;
}

/* --- turning it ------------------------------------------------------------------------------- */

static tacit_status no_memory(const sinking *s)
{
    return error_memory(s->e.c->err, "a region of another layout");
}

static tacit_status transposed(sinking *s, const ir_node *from, ir_value *x, const int64_t *perm,
                               ir_value **out)
{
    int64_t *order = ARENA_ARRAY(s->e.g->memory, (size_t)s->rank, int64_t);
    if (!order)
        return no_memory(s);
    memcpy(order, perm, (size_t)s->rank * sizeof *order);
    ir_attr attr = {
        .name = "perm", .kind = IR_ATTR_INTS, .count = (uint32_t)s->rank, .ints = order};
    tacit_status status;
    ir_node *n = pass_node(&s->e, PASS_TRANSPOSE, from->name, 1, &x, 1, &attr, &status);
    if (!n)
        return status;
    ir_node_inherit_notes(s->e.g, n, from);
    *out = n->outputs[0];
    return TACIT_OK;
}

/* A constant that is spread over images, as it lies in the layout in front. */
static tacit_status turned_constant(sinking *s, const ir_value *v, ir_value **out)
{
    const ir_tensor *t = ir_value_known(v);
    int32_t missing = s->rank - t->shape.rank;
    ir_shape shape = {.rank = s->rank};
    int64_t strides[IR_MAX_RANK], step = 1;
    for (int32_t d = s->rank; d-- > 0;) { /* of the constant, by its axes */
        int64_t size = d < missing ? 1 : t->shape.dims[d - missing];
        shape.dims[s->perm[d]] = size;
        strides[s->perm[d]] = step;
        step *= size;
    }
    ir_tensor *to = ir_tensor_new(s->e.g->memory, t->dtype, &shape);
    if (!to)
        return no_memory(s);
    for (int64_t i = 0, n = ir_shape_size(&shape); i < n; i++) {
        int64_t rest = i, at = 0;
        for (int32_t d = s->rank; d-- > 0; rest /= shape.dims[d])
            at += rest % shape.dims[d] * strides[d];
        ir_copy_element(t->dtype, to->data, i, t->data, at);
    }
    *out = ir_constant_new(s->e.g, v->name, to);
    return *out ? TACIT_OK : no_memory(s);
}

static tacit_status turned_input(sinking *s, const ir_node *n, ir_value *v, ir_value **out)
{
    *out = v;
    if (v && is_turned(s, v)) {
        *out = is_member(s, v->producer) ? s->forms[v->id] : v->producer->inputs[0];
        return TACIT_OK;
    }
    if (!v || ir_shape_size(&v->type.shape) == 1)
        return TACIT_OK;
    return ir_value_known(v) ? turned_constant(s, v, out) : transposed(s, n, v, s->inverse, out);
}

/* What a Pad adds, or which axes are reduced, in the layout in front. */
static tacit_status turned_ints(sinking *s, const ir_node *n, ir_value **out)
{
    int64_t ints[2 * IR_MAX_RANK], to[2 * IR_MAX_RANK];
    uint32_t count = 0, rank = (uint32_t)s->rank;
    if (!read_ints(s, n, ints, &count))
        return TACIT_OK;
    for (uint32_t i = 0; i < count; i++)
        if (pass_is(&s->e, n, PASS_PAD))
            to[i / rank * rank + (uint32_t)s->perm[i % rank]] = ints[i];
        else
            to[i] = s->perm[ints[i] < 0 ? ints[i] + s->rank : ints[i]];
    *out = ir_constant_i64(s->e.g, NULL, 1, count, to);
    return *out ? TACIT_OK : no_memory(s);
}

static tacit_status rebuild(sinking *s, ir_node *n)
{
    bool images = pass_is(&s->e, n, PASS_CONCAT) || n->op->flags & OP_ELEMENTWISE;
    ir_value **in = ARENA_ARRAY(s->e.c->scratch, n->n_inputs + 1u, ir_value *);
    ir_attr *attrs = ARENA_ARRAY(s->e.c->scratch, n->n_attrs + 1u, ir_attr);
    if (!in || !attrs)
        return no_memory(s);
    for (uint32_t k = 0; k < n->n_inputs; k++)
        in[k] = n->inputs[k];
    for (uint32_t k = 0; k < (images ? n->n_inputs : 1); k++)
        TRY(turned_input(s, n, n->inputs[k], &in[k]));
    if (!images)
        TRY(turned_ints(s, n, &in[1]));
    for (uint32_t k = 0; k < n->n_attrs; k++) {
        attrs[k] = n->attrs[k];
        if (pass_is(&s->e, n, PASS_CONCAT) && strcmp(attrs[k].name, "axis") == 0)
            attrs[k].i = s->perm[attrs[k].i < 0 ? attrs[k].i + s->rank : attrs[k].i];
    }
    tacit_status status;
    ir_node *made =
        pass_node(&s->e, op_of(s, n), n->name, n->n_inputs, in, n->n_attrs, attrs, &status);
    if (!made)
        return status;
    ir_node_inherit_notes(s->e.g, made, n);
    ir_node_note(s->e.g, made, s->e.c->name, "in the layout in front of %s", n->name);
    s->forms[n->outputs[0]->id] = made->outputs[0];
    return TACIT_OK;
}

/* Transposes behind the region get what they would make, other readers the layout they know. */
static tacit_status reconnect(sinking *s, ir_node *n)
{
    ir_value *v = n->outputs[0], *form = s->forms[v->id], *plain;
    double undone;
    bool outside = is_read_outside(s, v, &undone);
    for (const pass_use *u = pass_first_use(&s->e, v), *next; u; u = next) {
        next = pass_next_use(&s->e, u);
        if (!u->node || !is_exit(s, u->node))
            continue;
        ir_node *undo = u->node;
        pass_replace(&s->e, undo->outputs[0], form);
        pass_kill(&s->e, undo);
    }
    if (!outside)
        return TACIT_OK;
    TRY(transposed(s, n, form, s->perm, &plain));
    pass_replace(&s->e, v, plain);
    return TACIT_OK;
}

static tacit_status turn_region(sinking *s)
{
    for (uint32_t i = 0; i < s->nodes; i++) /* in the order of the graph */
        if (is_member(s, s->e.g->nodes.data[i]))
            TRY(rebuild(s, s->e.g->nodes.data[i]));
    for (uint32_t i = 0; i < s->within.count; i++)
        TRY(reconnect(s, s->within.data[i]));
    for (uint32_t i = 0; i < s->within.count; i++)
        pass_kill(&s->e, s->within.data[i]);
    s->e.c->rewrites += s->within.count;
    return TACIT_OK;
}

static tacit_status begin(sinking *s, pass_context *c)
{
    TRY(pass_edit_begin(&s->e, c));
    s->nodes = c->graph->nodes.count;
    s->values = c->graph->values.count;
    s->turned = ARENA_ARRAY(c->scratch, s->values + 1u, uint32_t);
    s->member = ARENA_ARRAY(c->scratch, s->nodes + 1u, uint32_t);
    s->forms = ARENA_ARRAY(c->scratch, s->values + 1u, ir_value *);
    if (!s->turned || !s->member || !s->forms)
        return no_memory(s);
    memset(s->turned, 0, s->values * sizeof *s->turned);
    memset(s->member, 0, s->nodes * sizeof *s->member);
    return TACIT_OK;
}

tacit_status pass_sink_transposes(pass_context *c)
{
    sinking s = {0};
    if (!pass_holds(c, PASS_TRANSPOSE))
        return TACIT_OK;
    TRY(begin(&s, c));
    for (uint32_t i = 0; i < s.nodes; i++) {
        ir_node *n = c->graph->nodes.data[i];
        if (!pass_is(&s.e, n, PASS_TRANSPOSE) || !pass_static(n->inputs[0]) ||
            !pass_permutation(n, s.perm))
            continue;
        s.rank = n->inputs[0]->type.shape.rank;
        for (int32_t d = 0; d < s.rank; d++)
            s.inverse[s.perm[d]] = d;
        TRY(explore(&s, n));
        if (s.within.count && pays(&s))
            TRY(turn_region(&s));
    }
    return TACIT_OK;
}
