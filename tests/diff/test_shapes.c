/* SPDX-License-Identifier: Apache-2.0
 * Every row with a derivative on random shapes: its specimens (op/specimen.h) in double. Forward
 * and reverse mode must agree on each, and differences wherever the function is smooth there: where
 * two step widths and both sides say the same. */
#include "diff/harness.h"
#include "op/specimen.h"

enum { SEEDS = 12, MOST = 16 };

typedef struct tally {
    int tried, agreed, smooth, bad;
} tally;

static void bad(tally *t, const char *format, ...)
{
    char line[400];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    print_error("%s\n", line);
    t->bad++;
}

typedef struct sample {
    arena *a;
    const op_def *row;
    uint64_t seed;
    ir_graph *g;
    const ir_tensor *in[MOST];
    const char *wrt[MOST];
    uint32_t which[MOST], n_wrt, n;
    uint32_t output; /* the first one that has a derivative */
} sample;

static bool has_rule(const op_def *row)
{
    return row->vjp || row->jvp || row->spell;
}

/* A specimen that is inferred, runs, and has something to differentiate. */
static bool take(sample *s)
{
    tacit_error err = {0};
    op_specimen made;
    if (!op_specimen_make(s->a, s->row, TACIT_F64, s->seed, NULL, NULL, &made))
        return false;
    s->g = made.graph;
    s->n = made.n_given;
    if (s->n == 0 || s->n > MOST / 2 || s->g->inputs.count != s->n ||
        ir_graph_sort(s->g, &err) != TACIT_OK || op_infer_graph(s->g, &err) != TACIT_OK)
        return false;
    s->n_wrt = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        s->in[i] = made.given[i];
        if (ir_tensor_count(s->in[i]) == 0)
            return false;
        if (s->g->inputs.data[i]->type.dtype != TACIT_F64)
            continue;
        s->which[s->n_wrt] = i;
        s->wrt[s->n_wrt++] = s->g->inputs.data[i]->name;
    }
    for (s->output = 0; s->output < s->g->outputs.count; s->output++) {
        const ir_type *t = &s->g->outputs.data[s->output]->type;
        if (t->dtype == TACIT_F64 && ir_type_is_static(t) && ir_shape_size(&t->shape) > 0)
            break;
    }
    if (s->output == s->g->outputs.count || s->n_wrt == 0)
        return false;
    ir_tensor out[MOST];
    return interp_run(s->g, s->in, out, s->a, 0, &err) == TACIT_OK;
}

/* ⟨seed, f(x + h·along)⟩ */
static double value_at(const sample *s, const ir_tensor *const *along, const ir_tensor *seed,
                       double h)
{
    tacit_error err = {0};
    const ir_tensor *in[MOST];
    ir_tensor out[MOST];
    memcpy(in, s->in, sizeof in);
    for (uint32_t i = 0; i < s->n_wrt; i++) {
        const ir_tensor *from = s->in[s->which[i]];
        ir_tensor *to = ir_tensor_new(s->a, TACIT_F64, &from->shape);
        for (int64_t e = 0; e < ir_tensor_count(to); e++)
            ((double *)to->data)[e] = ((double *)from->data)[e] + h * ((double *)along[i]->data)[e];
        in[s->which[i]] = to;
    }
    return interp_run(s->g, in, out, s->a, 0, &err) == TACIT_OK ? harness_dot(&out[s->output], seed)
                                                                : NAN;
}

/* Specimens hold extreme numbers on purpose: differences see nothing beside them. */
static bool is_calm(const sample *s)
{
    for (uint32_t i = 0; i < s->n_wrt; i++)
        for (int64_t e = 0; e < ir_tensor_count(s->in[s->which[i]]); e++)
            if (!(fabs(((const double *)s->in[s->which[i]]->data)[e]) < 50))
                return false;
    return true;
}

static void check(sample *s, tally *t)
{
    tacit_error err = {0};
    rng r = rng_seed(s->seed + 1);
    ir_graph *rev = ir_graph_clone(s->g, s->a), *fwd = ir_graph_clone(s->g, s->a);
    tacit_status status =
        diff_grad(rev, s->n_wrt, s->wrt, &(diff_grad_options){.output = s->output}, &err);
    if (status == TACIT_ERR_UNSUPPORTED || status == TACIT_ERR_LIMIT)
        return; /* a form that is refused, by name */
    if (status == TACIT_OK)
        status = diff_jvp(fwd, s->n_wrt, s->wrt, &err);
    if (status == TACIT_ERR_UNSUPPORTED || status == TACIT_ERR_LIMIT)
        return;
    if (status != TACIT_OK) {
        bad(t, "%s, specimen %d: %s", s->row->name, (int)s->seed, err.message);
        return;
    }
    const ir_tensor *with_seed[MOST], *with_tangents[MOST], *along[MOST];
    memcpy(with_seed, s->in, sizeof with_seed);
    memcpy(with_tangents, s->in, sizeof with_tangents);
    const ir_tensor *seed = harness_random(s->a, &s->g->outputs.data[s->output]->type, &r, -1, 1);
    with_seed[s->n] = seed;
    for (uint32_t i = 0; i < s->n_wrt; i++) {
        ir_type type = ir_tensor_type(s->in[s->which[i]]);
        along[i] = with_tangents[s->n + i] = harness_random(s->a, &type, &r, -1, 1);
    }
    ir_tensor grads[MOST], tangents[MOST];
    if (interp_run(rev, with_seed, grads, s->a, 0, &err) != TACIT_OK ||
        interp_run(fwd, with_tangents, tangents, s->a, 0, &err) != TACIT_OK) {
        bad(t, "%s, specimen %d: %s", s->row->name, (int)s->seed, err.message);
        return;
    }
    double forward = harness_dot(&tangents[s->g->outputs.count + s->output], seed), back = 0;
    for (uint32_t i = 0; i < s->n_wrt; i++)
        back += harness_dot(&grads[i], along[i]);
    t->tried++;
    if (!isfinite(back) || !isfinite(forward))
        return; /* outside the function's domain */
    if (fabs(forward - back) > 1e-8 * (1 + fabs(back))) {
        bad(t, "%s, specimen %d: jvp says %.12g, vjp %.12g", s->row->name, (int)s->seed, forward,
            back);
        return;
    }
    t->agreed++;
    if (!is_calm(s))
        return;
    double slope[2], middle = value_at(s, along, seed, 0), side[2];
    for (int k = 0; k < 2; k++) {
        double h = k ? 1e-6 : 1e-5, up = value_at(s, along, seed, h);
        double down = value_at(s, along, seed, -h);
        slope[k] = (up - down) / (2 * h);
        side[0] = (up - middle) / h;
        side[1] = (middle - down) / h;
    }
    if (!(fabs(slope[0] - slope[1]) <= 1e-5 * (1 + fabs(slope[1]))) ||
        !(fabs(side[0] - side[1]) <= 1e-3 * (1 + fabs(slope[1]))))
        return; /* a kink */
    if (fabs(slope[1] - back) > 1e-4 * (1 + fabs(back)) && !(s->row->flags & OP_RANDOM)) {
        bad(t, "%s, specimen %d: the gradient says %.9g, differences %.9g", s->row->name,
            (int)s->seed, back, slope[1]);
        return;
    }
    t->smooth++;
}

/* Rows whose forward value is a step function but whose derivative is not, by convention. */
static bool is_straight_through(const op_def *row)
{
    return strcmp(row->name, "Round") == 0 || strcmp(row->name, "FakeQuantize") == 0;
}

static void rows_agree_on_random_shapes(void **state)
{
    (void)state;
    int rows = 0, wrong = 0;
    const op_def *row;
    for (uint32_t i = 0; (row = op_at(i)) != NULL; i++) {
        if (!has_rule(row) || !op_specimen_recipe(row) || is_straight_through(row))
            continue;
        tally t = {0};
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            arena a;
            arena_init(&a, NULL);
            sample s = {.a = &a, .row = row, .seed = seed};
            if (take(&s))
                check(&s, &t);
            arena_free(&a);
        }
        rows += t.agreed > 0;
        wrong += t.bad;
        if (getenv("TACIT_SHAPES_VERBOSE"))
            print_message("%-28s %d tried, %d agree, %d smooth\n", row->name, t.tried, t.agreed,
                          t.smooth);
    }
    assert_int_equal(wrong, 0);
    assert_true(rows > 120);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_agree_on_random_shapes)};
    return cmocka_run_group_tests_name("derivatives on random shapes", tests, NULL, NULL);
}
