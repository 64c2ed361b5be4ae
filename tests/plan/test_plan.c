/* SPDX-License-Identifier: Apache-2.0
 * The memory plan on random graphs: the independent validator agrees, running through the planned
 * bytes gives what running without a plan gives, and broken plans are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "plan/plan.h"

/* --- ops that exist for planning only: u32 vectors ------------------------------------------- */

static bool view_alias(const ir_node *node, uint32_t in, const op_operand *source, uint32_t out,
                       op_view *view)
{
    if (in != 0 || out != 0)
        return false;
    int64_t step = ir_attr_int(node, "step", 1);
    *view = (op_view){.offset = ir_attr_int(node, "offset", 0) * source->strides[0]};
    view->strides[0] = step * source->strides[0];
    return true;
}
static bool accepts_all(const ir_node *node, uint32_t in, const op_operand *view)
{
    (void)node;
    (void)in;
    (void)view;
    return true;
}
/* out[e] = 3·in0[e] + in1[e] + seed */
static const op_def each_row = {.name = "Each", .inplace = 3, .accepts = accepts_all};
/* out_k[e] = seed + k + e·Σ all inputs; dense inputs only */
static const op_def mix_row = {.name = "Mix"};
static const op_def view_row = {.name = "View", .alias = view_alias};
/* one input behind the other */
static bool join_part(const ir_node *node, uint32_t in, int64_t *offset)
{
    *offset = 0;
    for (uint32_t k = 0; k < in; k++)
        *offset += node->inputs[k]->type.shape.dims[0];
    return true;
}
static const op_def join_row = {.name = "Join", .part = join_part, .accepts = accepts_all};

typedef struct world {
    arena memory;
    rng r;
    ir_graph *g;
    plan_problem p;
    plan plan;
    tacit_error err;
} world;

static int64_t length(const ir_value *v)
{
    return v->type.shape.dims[0];
}

static ir_value *pick(world *w)
{
    return w->g->values.data[rng_below(&w->r, w->g->values.count)];
}

static ir_node *add_node(world *w, const op_def *op, uint32_t n_in, ir_value **in, uint32_t n_out,
                         int64_t n)
{
    ir_node *node = ir_node_new(w->g, op->name, "", NULL, n_in, in, n_out, NULL);
    node->op = op;
    assert_true(ir_attr_set_int(w->g, node, "seed", (int64_t)rng_below(&w->r, 1000)));
    for (uint32_t i = 0; i < n_out; i++)
        node->outputs[i]->type = ir_type_tensor(TACIT_U32, 1, &n);
    return node;
}

static void add_view(world *w)
{
    ir_value *in = pick(w);
    bool whole = rng_below(&w->r, 2);
    int64_t n = length(in), offset = whole ? 0 : (int64_t)rng_below(&w->r, (uint64_t)n);
    int64_t step = whole ? 1 : 1 + (int64_t)rng_below(&w->r, 3);
    ir_node *node = add_node(w, &view_row, 1, &in, 1, (n - offset + step - 1) / step);
    assert_true(ir_attr_set_int(w->g, node, "offset", offset));
    assert_true(ir_attr_set_int(w->g, node, "step", step));
}

static void add_each(world *w)
{
    ir_value *a = pick(w), *b = pick(w);
    for (int i = 0; i < 8 && length(b) != length(a); i++)
        b = pick(w);
    ir_value *in[] = {a, length(b) == length(a) ? b : a};
    add_node(w, &each_row, 2, in, 1, length(a));
}

static void add_mix(world *w)
{
    ir_value *in[] = {pick(w), pick(w)};
    int64_t n = rng_below(&w->r, 3) ? length(in[0]) : 1 + (int64_t)rng_below(&w->r, 200);
    if (rng_below(&w->r, 2)) /* as parts want it */
        n = (int64_t)align_up((size_t)n, PLAN_ALIGN / sizeof(uint32_t));
    add_node(w, &mix_row, 1 + (uint32_t)rng_below(&w->r, 2), in, 1 + (uint32_t)rng_below(&w->r, 2),
             n);
}

static void add_join(world *w)
{
    ir_value *in[3];
    uint32_t n_in = 1 + (uint32_t)rng_below(&w->r, 3);
    int64_t n = 0;
    for (uint32_t k = 0; k < n_in; k++) {
        in[k] = rng_below(&w->r, 2) ? pick(w) : w->g->values.data[w->g->values.count - 1];
        n += length(in[k]);
    }
    if (n > 2000) /* of joins of joins */
        add_mix(w);
    else
        add_node(w, &join_row, n_in, in, 1, n);
}

static void build(world *w, uint32_t n_nodes)
{
    w->g = ir_graph_new(&w->memory, "random");
    for (uint64_t i = 0, n = 1 + rng_below(&w->r, 2); i < n; i++) {
        int64_t size = 1 + (int64_t)rng_below(&w->r, 100);
        ir_type type = ir_type_tensor(TACIT_U32, 1, &size);
        assert_non_null(ir_input_new(w->g, NULL, &type));
    }
    for (uint32_t i = 0; i < n_nodes; i++) {
        uint64_t kind = rng_below(&w->r, 12);
        if (kind < 3)
            add_view(w);
        else if (kind < 7)
            add_each(w);
        else if (kind < 10)
            add_mix(w);
        else
            add_join(w);
    }
    bool *pinned = ARENA_ARRAY(&w->memory, w->g->values.count, bool);
    size_t *scratch = ARENA_ARRAY(&w->memory, n_nodes, size_t);
    for (uint32_t i = 0; i < w->g->values.count; i++) {
        ir_value *v = w->g->values.data[i];
        if (v->producer && (rng_below(&w->r, 8) == 0 || i + 1 == w->g->values.count))
            assert_true(ir_output_add(w->g, v));
        pinned[i] = rng_below(&w->r, 20) == 0;
    }
    for (uint32_t i = 0; i < n_nodes; i++)
        if (w->g->nodes.data[i]->op != &view_row && rng_below(&w->r, 4) == 0)
            scratch[i] = 1 + rng_below(&w->r, 500);
    w->p = (plan_problem){.graph = w->g,
                          .nodes = w->g->nodes.data,
                          .n_nodes = n_nodes,
                          .scratch = scratch,
                          .pinned = pinned};
    assert_int_equal(
        plan_views(w->g, w->p.nodes, n_nodes, w->p.updates, &w->memory, &w->p.views, &w->err),
        TACIT_OK);
}

/* --- running through the plan ----------------------------------------------------------------- */

/* Where a value's elements lie: dense scratch of its own, or the planned place. */
typedef struct lie {
    uint32_t *data;
    int64_t stride;
} lie;

typedef struct machine {
    world *w;
    unsigned char *arena;
    uint32_t **outputs, **outside; /* by output number; by value id for inputs */
} machine;

static lie planned(const machine *m, const ir_value *v)
{
    const plan_view *view = &m->w->p.views[v->id];
    uint32_t slot = m->w->plan.slot_of[v->id];
    const plan_slot *s = slot == PLAN_NO_SLOT ? NULL : &m->w->plan.slots[slot];
    uint32_t *base = !s                        ? m->outside[plan_source(m->w->p.views, v)->id]
                     : s->place == PLAN_OUTPUT ? m->outputs[s->output]
                                               : (uint32_t *)(m->arena + s->offset);
    return (lie){base + view->offset, view->strides[0]};
}

/* Inputs without an address are there already. */
static void join(const ir_node *node, const lie *in, const lie *out)
{
    for (uint32_t k = 0; k < node->n_inputs; k++) {
        int64_t offset;
        (void)join_part(node, k, &offset);
        for (int64_t e = 0; in[k].data && e < length(node->inputs[k]); e++)
            out->data[(offset + e) * out->stride] = in[k].data[e * in[k].stride];
    }
}

static void compute(const ir_node *node, const lie *in, const lie *out)
{
    uint32_t seed = (uint32_t)ir_attr_int(node, "seed", 0), sum = 0;
    if (node->op == &view_row) {
        int64_t offset = ir_attr_int(node, "offset", 0), step = ir_attr_int(node, "step", 1);
        for (int64_t e = 0; e < length(node->outputs[0]); e++)
            out[0].data[e * out[0].stride] = in[0].data[(offset + e * step) * in[0].stride];
        return;
    }
    if (node->op == &join_row) {
        join(node, in, out);
        return;
    }
    for (uint32_t k = 0; k < node->n_inputs; k++)
        for (int64_t e = 0; node->op == &mix_row && e < length(node->inputs[k]); e++)
            sum += (uint32_t)(e + 1) * in[k].data[e * in[k].stride];
    for (uint32_t k = 0; k < node->n_outputs; k++)
        for (int64_t e = 0; e < length(node->outputs[k]); e++)
            out[k].data[e * out[k].stride] =
                node->op == &mix_row
                    ? seed + k + (uint32_t)e * sum
                    : 3 * in[0].data[e * in[0].stride] + in[1].data[e * in[1].stride] + seed;
}

static void run_node(const machine *m, const ir_node *node, uint32_t **plain)
{
    lie in[3], out[2];
    for (uint32_t k = 0; k < node->n_inputs; k++) {
        in[k] = plain ? (lie){plain[node->inputs[k]->id], 1} : planned(m, node->inputs[k]);
        if (!plain && m->w->p.views[node->inputs[k]->id].joiner == node)
            in[k].data = NULL;
    }
    for (uint32_t k = 0; k < node->n_outputs; k++)
        out[k] = plain ? (lie){plain[node->outputs[k]->id], 1} : planned(m, node->outputs[k]);
    compute(node, in, out);
}

static bool results_agree(world *w)
{
    const ir_graph *g = w->g;
    machine m = {.w = w, .arena = arena_alloc_zero(&w->memory, w->plan.arena_bytes + 1)};
    uint32_t **plain = ARENA_ARRAY(&w->memory, g->values.count, uint32_t *);
    m.outside = ARENA_ARRAY(&w->memory, g->values.count, uint32_t *);
    m.outputs = ARENA_ARRAY(&w->memory, g->outputs.count, uint32_t *);
    for (uint32_t i = 0; i < g->values.count; i++) {
        int64_t n = length(g->values.data[i]);
        plain[i] = ARENA_ARRAY(&w->memory, (size_t)n, uint32_t);
        for (int64_t e = 0; e < n && g->values.data[i]->is_input; e++)
            plain[i][e] = (uint32_t)rng_u64(&w->r);
        m.outside[i] = g->values.data[i]->is_input ? plain[i] : NULL;
    }
    for (uint32_t i = 0; i < g->outputs.count; i++)
        m.outputs[i] = ARENA_ARRAY(&w->memory, (size_t)length(g->outputs.data[i]), uint32_t);
    for (uint32_t i = 0; i < g->nodes.count; i++)
        run_node(&m, g->nodes.data[i], plain);
    for (uint32_t i = 0; i < w->plan.n_steps; i++) {
        uint32_t slot = w->plan.scratch_at[i];
        if (slot != PLAN_NO_SLOT)
            memset(m.arena + w->plan.slots[slot].offset, 0xAB, w->p.scratch[w->plan.steps[i]->id]);
        if (!plan_is_alias_node(w->p.views, w->plan.steps[i]))
            run_node(&m, w->plan.steps[i], NULL);
    }
    bool same = true;
    for (uint32_t i = 0; i < g->outputs.count; i++)
        same &= memcmp(m.outputs[i], plain[g->outputs.data[i]->id],
                       (size_t)length(g->outputs.data[i]) * 4) == 0;
    for (uint32_t i = 0; i < g->values.count; i++)
        for (int64_t e = 0; w->p.pinned[i] && e < length(g->values.data[i]); e++) {
            lie l = planned(&m, g->values.data[i]);
            same &= l.data[e * l.stride] == plain[i][e];
        }
    return same;
}

static void plan_or_fail(world *w, uint64_t seed)
{
    if (plan_make(&w->p, &w->memory, &w->plan, &w->err) != TACIT_OK ||
        plan_verify(&w->p, &w->plan, &w->err) != TACIT_OK)
        fail_msg("seed %llu: %s", (unsigned long long)seed, w->err.message);
}

static void ten_thousand_random_graphs(void **state)
{
    (void)state;
    uint64_t bound = 0, total = 0, joined = 0;
    for (uint64_t seed = 0; seed < 10000; seed++) {
        world w = {.r = rng_seed(seed)};
        arena_init(&w.memory, NULL);
        build(&w, 1 + (uint32_t)rng_below(&w.r, 24));
        plan_or_fail(&w, seed);
        assert_true(results_agree(&w));
        assert_true(w.plan.arena_bytes >= w.plan.lower_bound);
        for (uint32_t i = 0; i < w.g->values.count; i++)
            joined += w.p.views[i].joiner != NULL;
        bound += w.plan.lower_bound;
        total += w.plan.arena_bytes;
        uint64_t serial = w.plan.arena_bytes;
        w.p.parallel = true;
        plan_or_fail(&w, seed);
        assert_true(results_agree(&w));
        assert_true(w.plan.arena_bytes >= serial || w.plan.lower_bound <= serial);
        arena_free(&w.memory);
    }
    /* Over all graphs the arenas stay within 2 % of the largest live sets. */
    assert_true(total * 100 <= bound * 102);
    assert_true(joined > 2000);
}

static void large_graphs(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 10; seed++) {
        world w = {.r = rng_seed(77 + seed)};
        arena_init(&w.memory, NULL);
        build(&w, 400);
        w.p.parallel = seed & 1;
        plan_or_fail(&w, seed);
        assert_true(results_agree(&w));
        arena_free(&w.memory);
    }
}

/* Moves one slot onto another that is alive with it. Nearly always the validator objects; where it
 * does not (the readers left look at other bytes), running must still give the right results. */
static void broken_plans_are_refused(void **state)
{
    (void)state;
    uint32_t broken = 0, refused = 0;
    for (uint64_t seed = 0; seed < 300; seed++) {
        world w = {.r = rng_seed(9000 + seed)};
        arena_init(&w.memory, NULL);
        build(&w, 12);
        plan_or_fail(&w, seed);
        for (uint32_t i = 0; i < w.plan.n_slots * w.plan.n_slots; i++) {
            plan_slot *x = &w.plan.slots[i / w.plan.n_slots];
            const plan_slot *y = &w.plan.slots[i % w.plan.n_slots];
            if (x == y || x->place != PLAN_ARENA || y->place != PLAN_ARENA || x->birth > y->death ||
                y->birth > x->death || y->offset + x->bytes > w.plan.arena_bytes)
                continue;
            uint64_t old = x->offset;
            x->offset = y->offset;
            broken++;
            if (plan_verify(&w.p, &w.plan, &w.err) != TACIT_OK)
                refused++;
            else
                assert_true(results_agree(&w));
            x->offset = old;
        }
        arena_free(&w.memory);
    }
    assert_true(broken > 1000);
    assert_true(refused * 10 > broken * 9);
}

static void racing_plans_are_refused(void **state)
{
    (void)state;
    /* Two independent chains: a serial plan lets them share bytes, which tasks may not. */
    uint32_t refused = 0;
    for (uint64_t seed = 0; seed < 200; seed++) {
        world w = {.r = rng_seed(500 + seed)};
        arena_init(&w.memory, NULL);
        build(&w, 16);
        plan_or_fail(&w, seed);
        w.p.parallel = true;
        refused += plan_verify(&w.p, &w.plan, &w.err) == TACIT_ERR_INTERNAL;
        arena_free(&w.memory);
    }
    assert_true(refused > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ten_thousand_random_graphs),
        cmocka_unit_test(large_graphs),
        cmocka_unit_test(broken_plans_are_refused),
        cmocka_unit_test(racing_plans_are_refused),
    };
    return cmocka_run_group_tests_name("memory plan", tests, NULL, NULL);
}
