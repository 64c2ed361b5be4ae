/* SPDX-License-Identifier: Apache-2.0
 * The independent check. It replays the plan on a map of who owns which bytes and never looks at
 * lifetimes: a read must find the contents that were written for it. Views are recomputed from the
 * op rows, dependences from the graph. */
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"

typedef struct stretch {
    uint64_t begin, end;
    uint32_t owner; /* value id; UINT32_MAX: nothing anyone may read */
} stretch;

typedef VEC(stretch) stretches;

typedef struct replay {
    const plan_problem *p;
    const plan *plan;
    arena *memory;
    stretches *spaces; /* 0: the arena; 1 + k: output k */
    stretches spare;
    uint32_t *contents; /* by value id: the value whose bytes it shows */
    int64_t *start;     /* by value id: first byte, relative to that value's */
    int64_t *inset;     /* by value id: bytes of its slot before it, where it is a part */
    uint32_t *shared;   /* by value id: 1 + the output whose buffer this input may lie in, or 0 */
    bool *ready;        /* by value id */
    tacit_error *err;
} replay;

enum { GARBAGE = UINT32_MAX };

static tacit_status wrong(replay *r, const ir_node *node, const char *what, const ir_value *v)
{
    return error_set(r->err, TACIT_ERR_INTERNAL, "memory plan: node '%s': %s%s%s%s",
                     node ? node->name : "(end)", what, v ? " '" : "", v ? v->name : "",
                     v ? "'" : "");
}

static bool keep_part(replay *r, uint64_t begin, uint64_t end, uint32_t owner)
{
    return begin >= end || vec_push(r->memory, &r->spare, (stretch){begin, end, owner});
}

/* Everything in [begin, end) of `space` now belongs to `owner`. */
static tacit_status take(replay *r, stretches *space, uint64_t begin, uint64_t end, uint32_t owner)
{
    bool ok = true;
    r->spare.count = 0;
    for (uint32_t i = 0; ok && i < space->count; i++) {
        stretch s = space->data[i];
        ok = keep_part(r, s.begin, s.end < begin ? s.end : begin, s.owner) &&
             keep_part(r, s.begin > end ? s.begin : end, s.end, s.owner);
    }
    if (!ok || !keep_part(r, begin, end, owner))
        return error_memory(r->err, "checking the plan");
    stretches old = *space;
    *space = r->spare;
    r->spare = old;
    return TACIT_OK;
}

static bool all_owned(const stretches *space, uint64_t begin, uint64_t end, uint32_t owner)
{
    uint64_t found = 0;
    for (uint32_t i = 0; i < space->count; i++) {
        const stretch *s = &space->data[i];
        uint64_t low = s->begin > begin ? s->begin : begin, high = s->end < end ? s->end : end;
        if (low < high && s->owner != owner)
            return false;
        found += low < high ? high - low : 0;
    }
    return found == end - begin;
}

typedef struct range {
    uint32_t space;
    uint64_t begin, end;
    bool outside; /* caller's input or a constant */
} range;

/* Do they share a byte? Empty ranges share none. */
static bool ranges_meet(const range *a, const range *b)
{
    uint64_t low = a->begin > b->begin ? a->begin : b->begin;
    uint64_t high = a->end < b->end ? a->end : b->end;
    return !a->outside && !b->outside && a->space == b->space && low < high;
}

/* First and last element a strided value touches, as bytes relative to its first element. */
static void extent(const ir_value *v, const int64_t *strides, int64_t *low, int64_t *high)
{
    int64_t bits = tacit_dtype_bits(v->type.dtype), min = 0, max = 0;
    *low = *high = 0;
    for (int32_t d = 0; d < v->type.shape.rank; d++) {
        if (v->type.shape.dims[d] == 0)
            return;
        int64_t reach = (v->type.shape.dims[d] - 1) * strides[d];
        min += reach < 0 ? reach : 0;
        max += reach > 0 ? reach : 0;
    }
    *low = min * bits / 8;
    *high = ((max + 1) * bits + 7) / 8;
}

static tacit_status locate(replay *r, const ir_node *node, const ir_value *v, range *out)
{
    int64_t low, high;
    extent(v, r->p->views[v->id].strides, &low, &high);
    low += r->start[v->id];
    high += r->start[v->id];
    uint32_t slot = r->plan->slot_of[v->id];
    *out = (range){.outside = slot == PLAN_NO_SLOT};
    size_t room;
    const ir_value *base = r->p->graph->values.data[r->contents[v->id]];
    if (low == high) /* no elements: wherever it stands, nothing is read */
        low = high = 0;
    if (!ir_type_bytes(&base->type, &room) || low < 0 || (uint64_t)high > room)
        return wrong(r, node, "a view reaches outside", v);
    if (r->shared[base->id]) { /* an input, under the output that updates it */
        *out = (range){.space = r->shared[base->id], .begin = (uint64_t)low, .end = (uint64_t)high};
        return TACIT_OK;
    }
    if (out->outside)
        return TACIT_OK;
    if (slot >= r->plan->n_slots)
        return wrong(r, node, "no slot for", v);
    const plan_slot *s = &r->plan->slots[slot];
    size_t limit = r->plan->arena_bytes;
    out->space = s->place == PLAN_OUTPUT ? 1 + s->output : 0;
    if (s->place == PLAN_OUTPUT &&
        !ir_type_bytes(&r->p->graph->outputs.data[s->output]->type, &limit))
        return wrong(r, node, "an output of unknown size holds", v);
    out->begin = s->offset + (uint64_t)(r->inset[base->id] + low);
    out->end = s->offset + (uint64_t)(r->inset[base->id] + high);
    if (s->offset % PLAN_ALIGN || out->end > limit)
        return wrong(r, node, "misplaced", v);
    return TACIT_OK;
}

static tacit_status check_read(replay *r, const ir_node *node, const ir_value *v)
{
    range at;
    if (!r->ready[v->id])
        return wrong(r, node, "reads what is not yet made:", v);
    TRY(locate(r, node, v, &at));
    if (!at.outside && !all_owned(&r->spaces[at.space], at.begin, at.end, r->contents[v->id]))
        return wrong(r, node, "reads overwritten", v);
    return TACIT_OK;
}

/* A view shows its source's contents at the offset and strides that the op row states. */
static tacit_status make_view(replay *r, const ir_node *node, uint32_t out)
{
    const ir_value *v = node->outputs[out];
    const plan_view *claim = &r->p->views[v->id];
    for (uint32_t k = 0; k < node->n_inputs; k++) {
        const ir_value *in = node->inputs[k];
        op_view view = {0};
        if (!in || !r->ready[in->id])
            continue;
        const ir_value *shown = r->p->graph->values.data[r->contents[in->id]];
        if (plan_source(r->p->views, shown) != claim->source)
            continue;
        op_operand o = plan_operand(r->p->views, in);
        if (!node->op->alias || !node->op->alias(node, k, &o, out, &view))
            continue;
        int64_t bits = tacit_dtype_bits(in->type.dtype);
        int64_t first = r->start[in->id] + view.offset * bits / 8;
        size_t strides = (size_t)v->type.shape.rank * sizeof *view.strides;
        if (claim->offset * bits / 8 != r->inset[shown->id] + first ||
            memcmp(view.strides, claim->strides, strides) != 0)
            continue;
        if (r->plan->slot_of[v->id] != r->plan->slot_of[in->id])
            return wrong(r, node, "a view elsewhere than its source:", v);
        r->contents[v->id] = r->contents[in->id];
        r->start[v->id] = first;
        r->ready[v->id] = true;
        return TACIT_OK;
    }
    return wrong(r, node, "not a view of any input:", v);
}

/* Packed elements of equal bytes may still be more or fewer. */
static bool same_places(const ir_value *a, const ir_value *b)
{
    bool packed = tacit_dtype_bits(a->type.dtype) < 8 || tacit_dtype_bits(b->type.dtype) < 8;
    return !packed || (a->type.dtype == b->type.dtype &&
                       ir_shape_size(&a->type.shape) == ir_shape_size(&b->type.shape));
}

/* An output may cover an input of its own node only exactly and where the row allows it. */
static tacit_status check_overlap(replay *r, const ir_node *node, uint32_t out, const range *to)
{
    for (uint32_t k = 0; k < node->n_inputs; k++) {
        range from;
        if (!node->inputs[k])
            continue;
        TRY(locate(r, node, node->inputs[k], &from));
        if (!ranges_meet(&from, to))
            continue;
        bool exact = from.begin == to->begin && from.end == to->end &&
                     r->p->views[node->inputs[k]->id].dense &&
                     same_places(node->inputs[k], node->outputs[out]);
        bool each = node->op->flags & OP_INPLACE_EACH && k == out;
        if (!exact || (!each && (out != 0 || k >= 32 || !(node->op->inplace >> k & 1))))
            return wrong(r, node, "overwrites its own input", node->inputs[k]);
    }
    return TACIT_OK;
}

/* The bytes of output 0 that input `k` becomes. */
static tacit_status piece_of(replay *r, const ir_node *node, uint32_t k, const range *to,
                             range *out)
{
    const ir_value *v = node->inputs[k];
    int64_t offset = 0;
    size_t bytes;
    if (!v || !node->op->part || !node->op->part(node, k, &offset) ||
        !ir_type_bytes(&v->type, &bytes))
        return wrong(r, node, "no part of its output:", v);
    *out = *to;
    out->begin += (uint64_t)(offset * (int64_t)tacit_dtype_bits(v->type.dtype) / 8);
    out->end = out->begin + bytes;
    return out->end <= to->end ? TACIT_OK : wrong(r, node, "a part reaches outside", v);
}

static bool joins(const replay *r, const ir_node *node)
{
    for (uint32_t k = 0; k < node->n_inputs; k++)
        if (node->inputs[k] && r->p->views[node->inputs[k]->id].joiner == node)
            return true;
    return false;
}

/* Parts are where they belong already; other inputs are copied, not over any of them. */
static tacit_status check_join(replay *r, const ir_node *node, const range *to)
{
    for (uint32_t k = 0; k < node->n_inputs; k++) {
        range piece, from;
        TRY(piece_of(r, node, k, to, &piece));
        TRY(locate(r, node, node->inputs[k], &from));
        if (r->p->views[node->inputs[k]->id].joiner == node) {
            if (from.outside || from.space != piece.space || from.begin != piece.begin)
                return wrong(r, node, "joined where it does not lie:", node->inputs[k]);
            continue;
        }
        for (uint32_t j = 0; j < node->n_inputs; j++) {
            TRY(locate(r, node, node->inputs[j], &from));
            if (ranges_meet(&from, &piece))
                return wrong(r, node, "overwrites its own input", node->inputs[j]);
        }
    }
    return TACIT_OK;
}

/* What showed a part shows that part of the whole. */
static tacit_status take_over(replay *r, const ir_node *node, const range *to)
{
    for (uint32_t k = 0; k < node->n_inputs; k++) {
        const ir_value *v = node->inputs[k];
        range piece;
        if (!v || r->p->views[v->id].joiner != node)
            continue;
        TRY(piece_of(r, node, k, to, &piece));
        for (uint32_t i = 0; i < r->p->graph->values.count; i++)
            if (r->contents[i] == v->id) {
                r->contents[i] = node->outputs[0]->id;
                r->start[i] += (int64_t)(piece.begin - to->begin);
            }
    }
    return TACIT_OK;
}

static tacit_status check_scratch(replay *r, uint32_t step)
{
    const ir_node *node = r->plan->steps[step];
    uint32_t position = 0;
    while (r->p->nodes[position] != node)
        position++;
    uint64_t need = r->p->scratch ? r->p->scratch[position] : 0;
    uint32_t slot = r->plan->scratch_at[step];
    if (!need)
        return TACIT_OK;
    if (slot >= r->plan->n_slots)
        return wrong(r, node, "no scratch", NULL);
    const plan_slot *s = &r->plan->slots[slot];
    range mine = {.begin = s->offset, .end = s->offset + need};
    if (s->place != PLAN_ARENA || s->offset % PLAN_ALIGN || mine.end > r->plan->arena_bytes)
        return wrong(r, node, "misplaced scratch", NULL);
    for (uint32_t i = 0; i < node->n_inputs + node->n_outputs; i++) {
        const ir_value *v =
            i < node->n_inputs ? node->inputs[i] : node->outputs[i - node->n_inputs];
        range at;
        if (!v)
            continue;
        TRY(locate(r, node, v, &at));
        if (ranges_meet(&at, &mine))
            return wrong(r, node, "scratch overlaps", v);
    }
    return take(r, &r->spaces[0], mine.begin, mine.end, GARBAGE);
}

static tacit_status write_outputs(replay *r, const ir_node *node)
{
    for (uint32_t k = 0; k < node->n_outputs; k++) {
        const ir_value *v = node->outputs[k];
        range at;
        if (!v || plan_is_view(r->p->views, v))
            continue;
        TRY(locate(r, node, v, &at));
        if (at.outside)
            return wrong(r, node, "no memory for", v);
        TRY(joins(r, node) ? check_join(r, node, &at) : check_overlap(r, node, k, &at));
        for (uint32_t j = 0; j < k; j++) {
            range other;
            if (!node->outputs[j] || plan_is_view(r->p->views, node->outputs[j]))
                continue;
            TRY(locate(r, node, node->outputs[j], &other));
            if (ranges_meet(&other, &at))
                return wrong(r, node, "two outputs overlap:", v);
        }
        TRY(take(r, &r->spaces[at.space], at.begin, at.end, v->id));
        TRY(take_over(r, node, &at));
        r->ready[v->id] = true;
    }
    return TACIT_OK;
}

static tacit_status replay_step(replay *r, uint32_t step)
{
    const ir_node *node = r->plan->steps[step];
    bool moves = false;
    for (uint32_t k = 0; k < node->n_outputs; k++)
        moves |= node->outputs[k] && !plan_is_view(r->p->views, node->outputs[k]);
    for (uint32_t k = 0; k < node->n_inputs; k++) {
        const ir_value *v = node->inputs[k];
        if (v && !r->ready[v->id])
            return wrong(r, node, "reads what is not yet made:", v);
        if (v && moves)
            TRY(check_read(r, node, v));
    }
    for (uint32_t k = 0; k < node->n_outputs; k++)
        if (node->outputs[k] && plan_is_view(r->p->views, node->outputs[k]))
            TRY(make_view(r, node, k));
    TRY(check_scratch(r, step));
    return write_outputs(r, node);
}

static tacit_status replay_end(replay *r)
{
    const ir_graph *g = r->p->graph;
    for (uint32_t i = 0; i < g->values.count; i++) {
        const ir_value *v = g->values.data[i];
        if (r->p->pinned && r->p->pinned[i])
            TRY(check_read(r, NULL, v));
    }
    for (uint32_t i = 0; i < g->outputs.count; i++) {
        const ir_value *v = g->outputs.data[i];
        bool planned = false;
        for (uint32_t s = 0; s < r->plan->n_steps && !planned; s++)
            planned = v->producer == r->plan->steps[s];
        range at;
        if (!planned)
            continue;
        TRY(check_read(r, NULL, v));
        TRY(locate(r, NULL, v, &at));
        if (at.outside || at.space != 1 + i || at.begin != 0)
            return wrong(r, NULL, "not in its caller's buffer:", v);
    }
    return TACIT_OK;
}

static tacit_status replay_open(replay *r)
{
    const ir_graph *g = r->p->graph;
    r->spaces = (void *)ARENA_ARRAY(r->memory, g->outputs.count + 1u, stretches);
    r->contents = ARENA_ARRAY(r->memory, g->values.count + 1u, uint32_t);
    r->start = ARENA_ARRAY(r->memory, g->values.count + 1u, int64_t);
    r->inset = ARENA_ARRAY(r->memory, g->values.count + 1u, int64_t);
    r->ready = ARENA_ARRAY(r->memory, g->values.count + 1u, bool);
    r->shared = ARENA_ARRAY(r->memory, g->values.count + 1u, uint32_t);
    if (!r->spaces || !r->contents || !r->start || !r->inset || !r->ready || !r->shared)
        return error_memory(r->err, "checking the plan");
    for (uint32_t i = 0; i < g->values.count; i++) {
        const ir_value *v = g->values.data[i];
        r->contents[i] = i;
        if (r->p->views[i].joiner)
            r->inset[i] = r->p->views[i].offset * (int64_t)tacit_dtype_bits(v->type.dtype) / 8;
        r->ready[i] = v->is_input || plan_is_constant(v);
    }
    for (uint32_t i = 0; r->p->updates && i < g->outputs.count; i++) {
        const ir_value *x = r->p->updates[i], *y = g->outputs.data[i];
        size_t bytes;
        if (!x)
            continue;
        if (!x->is_input || !ir_type_equal(&x->type, &y->type) || r->shared[x->id] ||
            !ir_type_bytes(&x->type, &bytes))
            return wrong(r, NULL, "no update of", x);
        r->shared[x->id] = 1 + i;
        TRY(take(r, &r->spaces[1 + i], 0, bytes, x->id));
    }
    return TACIT_OK;
}

/* ---- parallel plans: who may run beside whom ------------------------------------------------ */

typedef struct access {
    range at;
    uint32_t step;
    bool write;
} access;

typedef VEC(access) accesses;

static int by_place(const void *a, const void *b)
{
    const access *x = a, *y = b;
    if (x->at.space != y->at.space)
        return x->at.space < y->at.space ? -1 : 1;
    return x->at.begin < y->at.begin ? -1 : x->at.begin > y->at.begin;
}

/* Of what is joined only inputs that are no parts are written. */
static tacit_status list_pieces(replay *r, const ir_node *node, const access *whole, accesses *all)
{
    for (uint32_t k = 0; k < node->n_inputs; k++) {
        access a = *whole;
        if (r->p->views[node->inputs[k]->id].joiner == node)
            continue;
        TRY(piece_of(r, node, k, &whole->at, &a.at));
        if (!vec_push(r->memory, all, a))
            return error_memory(r->err, "checking the plan");
    }
    return TACIT_OK;
}

static tacit_status list_accesses(replay *r, uint32_t step, accesses *all)
{
    const ir_node *node = r->plan->steps[step];
    bool moves = false;
    for (uint32_t k = 0; k < node->n_outputs; k++)
        moves |= node->outputs[k] && !plan_is_view(r->p->views, node->outputs[k]);
    for (uint32_t i = 0; moves && i < node->n_inputs + node->n_outputs; i++) {
        bool write = i >= node->n_inputs;
        const ir_value *v = write ? node->outputs[i - node->n_inputs] : node->inputs[i];
        access a = {.step = step, .write = write};
        if (!v || (write && plan_is_view(r->p->views, v)))
            continue;
        TRY(locate(r, node, v, &a.at));
        if (write && joins(r, node))
            TRY(list_pieces(r, node, &a, all));
        else if (!a.at.outside && !vec_push(r->memory, all, a))
            return error_memory(r->err, "checking the plan");
    }
    uint32_t slot = r->plan->scratch_at[step];
    if (slot == PLAN_NO_SLOT)
        return TACIT_OK;
    const plan_slot *s = &r->plan->slots[slot];
    access a = {.at = {.begin = s->offset, .end = s->offset + s->bytes}, .step = step};
    a.write = true;
    return vec_push(r->memory, all, a) ? TACIT_OK : error_memory(r->err, "checking the plan");
}

static bool reads_contents(const replay *r, const ir_node *node, const ir_value *of)
{
    for (uint32_t k = 0; k < node->n_inputs; k++)
        if (node->inputs[k] && r->contents[node->inputs[k]->id] == of->id)
            return true;
    return false;
}

static void inherit(uint64_t *rows, uint32_t width, uint32_t i, uint32_t from)
{
    for (uint32_t x = 0; x < width; x++)
        rows[(size_t)i * width + x] |= rows[(size_t)from * width + x];
    rows[(size_t)i * width + from / 64] |= 1ull << (from % 64);
}

/* The executors run a step that updates an input after the steps before it that read the input. */
static void inherit_readers(const replay *r, uint64_t *rows, uint32_t width, uint32_t i)
{
    const ir_graph *g = r->p->graph;
    for (uint32_t o = 0; r->p->updates && o < g->outputs.count; o++) {
        if (!r->p->updates[o] || g->outputs.data[o]->producer != r->plan->steps[i])
            continue;
        for (uint32_t j = 0; j < i; j++)
            if (reads_contents(r, r->plan->steps[j], r->p->updates[o]))
                inherit(rows, width, i, j);
    }
}

/* Bit j of row i: step j must have finished before step i begins, by data or because i updates what
 * j reads. */
static tacit_status ancestors(replay *r, uint64_t **out, uint32_t *words)
{
    uint32_t n = r->plan->n_steps, width = n / 64 + 1;
    uint64_t *rows = ARENA_ARRAY(r->memory, (size_t)n * width + 1u, uint64_t);
    uint32_t *step_of = ARENA_ARRAY(r->memory, r->p->graph->nodes.count + 1u, uint32_t);
    if (!rows || !step_of)
        return error_memory(r->err, "checking the plan");
    for (uint32_t i = 0; i < n; i++)
        step_of[r->plan->steps[i]->id] = i + 1;
    for (uint32_t i = 0; i < n; i++) {
        const ir_node *node = r->plan->steps[i];
        for (uint32_t k = 0; k < node->n_inputs; k++) {
            const ir_value *v = node->inputs[k];
            uint32_t from = v && v->producer ? step_of[v->producer->id] : 0;
            if (from)
                inherit(rows, width, i, from - 1);
        }
        inherit_readers(r, rows, width, i);
    }
    *out = rows;
    *words = width;
    return TACIT_OK;
}

static tacit_status check_races(replay *r)
{
    accesses all = {0};
    uint64_t *rows = NULL;
    uint32_t width = 0;
    for (uint32_t i = 0; i < r->plan->n_steps; i++)
        TRY(list_accesses(r, i, &all));
    TRY(ancestors(r, &rows, &width));
    if (all.count)
        qsort(all.data, all.count, sizeof *all.data, by_place);
    for (uint32_t i = 0; i < all.count; i++)
        for (uint32_t j = i + 1; j < all.count; j++) {
            const access *a = &all.data[i], *b = &all.data[j];
            if (b->at.space != a->at.space || b->at.begin >= a->at.end)
                break;
            uint32_t early = a->step < b->step ? a->step : b->step;
            uint32_t late = a->step < b->step ? b->step : a->step;
            if (early == late || (!a->write && !b->write) || !ranges_meet(&a->at, &b->at))
                continue;
            if (!(rows[(size_t)late * width + early / 64] >> (early % 64) & 1))
                return error_set(r->err, TACIT_ERR_INTERNAL,
                                 "memory plan: nodes '%s' and '%s' may overlap and share bytes",
                                 r->plan->steps[early]->name, r->plan->steps[late]->name);
        }
    return TACIT_OK;
}

tacit_status plan_verify(const plan_problem *p, const plan *made, tacit_error *err)
{
    arena memory;
    arena_init(&memory, p->graph->memory->allocator);
    replay r = {.p = p, .plan = made, .memory = &memory, .err = err};
    tacit_status status = replay_open(&r);
    if (status == TACIT_OK && made->n_steps != p->n_nodes)
        status = wrong(&r, NULL, "not every node has a step", NULL);
    for (uint32_t i = 0; status == TACIT_OK && i < made->n_steps; i++)
        status = replay_step(&r, i);
    if (status == TACIT_OK)
        status = replay_end(&r);
    if (status == TACIT_OK && p->parallel)
        status = check_races(&r);
    arena_free(&memory);
    return status;
}
