/* SPDX-License-Identifier: Apache-2.0
 * Every derivative rule in the op table (tests/diff/rules.txt): the vjp against central differences
 * in double, the jvp against the vjp, the second derivative against differences of the first, and
 * batching against a loop. A row with a rule and no case fails; so does a row about which nothing
 * is said. */
#include <math.h>

#include "diff/harness.h"

enum { MOST = 24, DRAWS = 2, RANGES = 8 };

typedef struct rule_case {
    const char *body;
    int line;
    double low, high;        /* range of the inputs … */
    char ranged[RANGES][16]; /* … but for these */
    double low_of[RANGES], high_of[RANGES];
    int ranges;
    char wrt[128]; /* names, or empty: all floats */
    bool once;     /* has no second derivative */
    bool single;   /* a batch of it is no use: it draws random numbers */
} rule_case;

/* Rows whose derivative is a convention, not a limit, or that know no double: test_conventions.c.
 */
static const char *const by_convention[] = {"Round",
                                            "tacit.FakeQuantize",
                                            "Dropout",
                                            "tacit.Function",
                                            "tacit.Elementwise",
                                            "ai.onnx.ml.TreeEnsembleClassifier",
                                            "ai.onnx.ml.Scaler",
                                            "ai.onnx.ml.Normalizer",
                                            "ai.onnx.ml.FeatureVectorizer",
                                            "ai.onnx.ml.LinearRegressor",
                                            "ai.onnx.ml.LinearClassifier"};

/* Rows without a derivative rule whose error names the node: optimisers, values of other kinds than
 * tensors, and what has another shape every time. */
static const char *const without[] = {
    "ai.onnx.preview.training.Adagrad",
    "ai.onnx.preview.training.Momentum",
    "ai.onnx.preview.training.Adam",
    "ai.onnx.ml.SVMRegressor",
    "ai.onnx.ml.SVMClassifier",
    "ai.onnx.ml.ZipMap",
    "ai.onnx.ml.DictVectorizer",
    "ai.onnx.ml.CastMap",
    "Range",
    "Unique",
    "SequenceConstruct",
    "SequenceAt",
    "SequenceErase",
    "SequenceInsert",
    "SplitToSequence",
    "ConcatFromSequence",
    "Optional",
    "OptionalGetElement",
    "SequenceMap",
};

/* Rows that only know integers, bools or bytes, or nothing but integers to give: no cotangent ever
 * comes to them. DequantizeLinear refuses what they made of differentiated values. */
static const char *const integers[] = {
    "BitwiseAnd",    "BitwiseOr",     "BitwiseXor",   "BitwiseNot",     "BitShift",
    "Not",           "MatMulInteger", "ConvInteger",  "QuantizeLinear", "DynamicQuantizeLinear",
    "QLinearMatMul", "QLinearConv",   "ImageDecoder", "SequenceLength", "OptionalHasElement",
};

/* Replaced before any rule is asked for: test_scan.c, test_gradient_node.c. */
static const char *const walkers[] = {"Scan", "Loop", "If", "ai.onnx.preview.training.Gradient"};

#define IS_IN(name, list) is_in(name, list, sizeof(list) / sizeof *(list))

static const char *full_name(const op_def *row, char *text, size_t size)
{
    snprintf(text, size, "%s%s%s", row->domain ? row->domain : "",
             row->domain && *row->domain ? "." : "", row->name);
    return text;
}

static bool is_in(const char *name, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i], name) == 0)
            return true;
    return false;
}

/* --- reading the cases ------------------------------------------------------------------------ */

typedef struct case_list {
    rule_case all[512];
    int count;
} case_list;

static rule_case *new_case(case_list *l, int line, double low, double high, const char *body)
{
    assert_true(l->count < 512);
    rule_case *k = &l->all[l->count++];
    *k = (rule_case){.body = body, .line = line, .low = low, .high = high};
    return k;
}

static void add_short(arena *a, case_list *l, int line, const char *kind, const char *op,
                      double low, double high)
{
    static const char *const bodies[][3] = {
        {"unary", "in %%a : f64[$0,$1]\n%%y = %s(%%a) @n\nout %%y\n", NULL},
        {"binary", "in %%a : f64[$0,1,$1]\nin %%b : f64[$2,1]\n%%y = %s(%%a, %%b) @n\nout %%y\n",
         "in %%a : f64[$0]\nin %%b : f64[$1,$0]\n%%y = %s(%%a, %%b) @n\nout %%y\n"},
        {"reduce",
         "in %%a : f64[$0,$1,$2]\nconst %%x : i64[2] = [0, 2]\n%%y = %s(%%a, %%x) keepdims=0 "
         "@n\nout %%y\n",
         "in %%a : f64[$0,$1]\n%%y = %s(%%a) @n\nout %%y\n"}};
    for (size_t i = 0; i < 3; i++)
        for (int k = 1; strcmp(bodies[i][0], kind) == 0 && k < 3 && bodies[i][k]; k++) {
            char text[256];
            snprintf(text, sizeof text, bodies[i][k], op);
            new_case(l, line, low, high, arena_printf(a, "%s", text));
        }
}

/* One line of the file. */
static void read_line(arena *a, case_list *l, int number, char *line)
{
    char kind[32], op[64];
    double low, high;
    rule_case *k = l->count ? &l->all[l->count - 1] : NULL;
    if (*line == '#' || *line == '\0')
        return;
    if (sscanf(line, "case %lf %lf", &low, &high) == 2) {
        new_case(l, number, low, high, "");
    } else if (sscanf(line, "%31s %63s %lf %lf", kind, op, &low, &high) == 4 &&
               (strcmp(kind, "unary") == 0 || strcmp(kind, "binary") == 0 ||
                strcmp(kind, "reduce") == 0)) {
        add_short(a, l, number, kind, op, low, high);
    } else if (k && sscanf(line, "range %15s %lf %lf", k->ranged[k->ranges], &low, &high) == 3) {
        k->low_of[k->ranges] = low;
        k->high_of[k->ranges++] = high;
    } else if (k && strncmp(line, "wrt ", 4) == 0) {
        snprintf(k->wrt, sizeof k->wrt, "%.120s", line + 4);
    } else if (k && strcmp(line, "once") == 0) {
        k->once = true;
    } else if (k && strcmp(line, "single") == 0) {
        k->single = true;
    } else {
        assert_non_null(k);
        k->body = arena_printf(a, "%s%s\n", k->body, line);
    }
}

static void read_cases(arena *a, case_list *l)
{
    char line[2048];
    FILE *f = fopen(TACIT_SOURCE_DIR "/tests/diff/rules.txt", "r");
    assert_non_null(f);
    for (int number = 1; fgets(line, sizeof line, f); number++) {
        line[strcspn(line, "\n")] = '\0';
        read_line(a, l, number, line);
    }
    fclose(f);
    assert_true(l->count > 100);
}

/* The body with sizes drawn for $0 … $9. */
static const char *with_sizes(arena *a, const char *body, rng *r)
{
    char *text = arena_printf(a, "%s", body);
    int size[10];
    for (int i = 0; i < 10; i++)
        size[i] = 1 + (int)rng_below(r, 4);
    for (char *p = text, *to = text;; p++) {
        if (*p == '$')
            *to++ = (char)('0' + size[*++p - '0']);
        else
            *to++ = *p;
        if (!*p)
            return text;
    }
}

/* --- one case under test ---------------------------------------------------------------------- */

typedef struct trial {
    const rule_case *k;
    arena *a;
    ir_graph *g;
    rng *r;
    const ir_tensor *in[MOST];
    uint32_t n;            /* inputs */
    const char *wrt[MOST]; /* names of those that are differentiated */
    uint32_t which[MOST], n_wrt;
} trial;

static void broken(const trial *t, const char *what)
{
    fail_msg("rules.txt:%d: %s in\n%s", t->k->line, what, t->k->body);
}

static bool is_wanted(const rule_case *k, const ir_value *v)
{
    char text[160], name[64];
    snprintf(text, sizeof text, " %s ", k->wrt);
    snprintf(name, sizeof name, " %s ", v->name);
    return ir_dtype_is_float(v->type.dtype) && (!*k->wrt || strstr(text, name));
}

static ir_tensor *draw(const trial *t, const ir_value *like, const ir_type *type)
{
    double low = t->k->low, high = t->k->high;
    for (int i = 0; i < t->k->ranges; i++)
        if (strcmp(t->k->ranged[i], like->name) == 0) {
            low = t->k->low_of[i];
            high = t->k->high_of[i];
        }
    return harness_random(t->a, type, t->r, low, high);
}

static void begin(trial *t, const rule_case *k, arena *a, rng *r)
{
    *t = (trial){.k = k, .a = a, .r = r};
    t->g = harness_graph(a, with_sizes(a, k->body, r));
    t->n = t->g->inputs.count;
    if (!ir_type_is_static(&t->g->outputs.data[0]->type))
        broken(t, "the output has no static type");
    assert_true(t->n < MOST / 2);
    for (uint32_t i = 0; i < t->n; i++) {
        const ir_value *v = t->g->inputs.data[i];
        t->in[i] = draw(t, v, &v->type);
        if (is_wanted(k, v)) {
            t->which[t->n_wrt] = i;
            t->wrt[t->n_wrt++] = v->name;
        }
    }
}

static ir_graph *gradient(const trial *t, bool with_loss)
{
    tacit_error err = {0};
    ir_graph *d = ir_graph_clone(t->g, t->a);
    if (diff_grad(d, t->n_wrt, t->wrt, &(diff_grad_options){.with_loss = with_loss}, &err) !=
        TACIT_OK)
        broken(t, err.message);
    return d;
}

/* The gradient against differences of ⟨seed, f⟩. */
static void check_gradient(trial *t)
{
    ir_graph *d = gradient(t, true);
    ir_tensor *seed = harness_random(t->a, &t->g->outputs.data[0]->type, t->r, -1, 1);
    const ir_tensor *all[MOST];
    memcpy(all, t->in, sizeof all);
    all[t->n] = seed;
    ir_tensor *out = harness_run(t->a, d, all);
    ir_tensor *plain = harness_run(t->a, t->g, t->in);
    for (int64_t e = 0; e < ir_tensor_count(plain); e++) /* what it was spelled as is the same */
        if (!(fabs(ir_load_f64(plain->dtype, plain->data, e) -
                   ir_load_f64(out->dtype, out->data, e)) <= 1e-9))
            broken(t, "the gradient graph computes another value");
    const double h = 1e-6;
    for (uint32_t i = 0; i < t->n_wrt; i++) {
        double *x = t->in[t->which[i]]->data;
        for (int64_t e = 0; e < ir_tensor_count(t->in[t->which[i]]); e++) {
            double keep = x[e];
            x[e] = keep + h;
            double up = harness_dot(harness_run(t->a, t->g, t->in), seed);
            x[e] = keep - h;
            double down = harness_dot(harness_run(t->a, t->g, t->in), seed);
            x[e] = keep;
            double want = (up - down) / (2 * h), got = ((double *)out[1 + i].data)[e];
            char text[128];
            snprintf(text, sizeof text, "d%s[%d] is %.9g, differences say %.9g", t->wrt[i], (int)e,
                     got, want);
            if (!(fabs(want - got) <= 1e-6 * (1 + fabs(want))))
                broken(t, text);
        }
    }
}

/* ⟨seed, J·u⟩ = ⟨Jᵀ·seed, u⟩ */
static void check_tangent(trial *t)
{
    tacit_error err = {0};
    ir_graph *fwd = ir_graph_clone(t->g, t->a), *rev = gradient(t, false);
    if (diff_jvp(fwd, t->n_wrt, t->wrt, &err) != TACIT_OK)
        broken(t, err.message);
    const ir_tensor *all[MOST], *with_seed[MOST];
    memcpy(all, t->in, sizeof all);
    memcpy(with_seed, t->in, sizeof all);
    for (uint32_t i = 0; i < t->n_wrt; i++) {
        ir_type type = ir_tensor_type(t->in[t->which[i]]);
        all[t->n + i] = harness_random(t->a, &type, t->r, -1, 1);
    }
    ir_tensor *tangents = harness_run(t->a, fwd, all);
    ir_tensor *seed = harness_random(t->a, &t->g->outputs.data[0]->type, t->r, -1, 1);
    uint32_t outputs = t->g->outputs.count;
    double forward = harness_dot(&tangents[outputs], seed), backward = 0;
    with_seed[t->n] = seed;
    ir_tensor *grads = harness_run(t->a, rev, with_seed);
    for (uint32_t i = 0; i < t->n_wrt; i++)
        backward += harness_dot(&grads[i], all[t->n + i]);
    char text[128];
    snprintf(text, sizeof text, "jvp says %.12g, vjp %.12g", forward, backward);
    if (!(fabs(forward - backward) <= 1e-9 * (1 + fabs(backward))))
        broken(t, text);
}

/* Forward over reverse along a direction, against differences of the gradient. */
static void check_second(trial *t)
{
    tacit_error err = {0};
    if (t->k->once)
        return;
    ir_graph *d = gradient(t, false), *dd = ir_graph_clone(d, t->a);
    if (diff_jvp(dd, t->n_wrt, t->wrt, &err) != TACIT_OK)
        broken(t, err.message);
    const ir_tensor *all[MOST], *near_by[MOST];
    memcpy(all, t->in, sizeof all);
    all[t->n] = harness_random(t->a, &t->g->outputs.data[0]->type, t->r, -1, 1);
    memcpy(near_by, all, sizeof all);
    for (uint32_t i = 0; i < t->n_wrt; i++) {
        ir_type type = ir_tensor_type(t->in[t->which[i]]);
        all[t->n + 1 + i] = harness_random(t->a, &type, t->r, -1, 1);
        near_by[t->which[i]] = ir_tensor_new(t->a, type.dtype, &type.shape);
    }
    ir_tensor *got = harness_run(t->a, dd, all), *side[2];
    const double h = 1e-5;
    for (int s = 0; s < 2; s++) {
        for (uint32_t i = 0; i < t->n_wrt; i++)
            for (int64_t e = 0; e < ir_tensor_count(t->in[t->which[i]]); e++)
                ((double *)near_by[t->which[i]]->data)[e] =
                    ((const double *)t->in[t->which[i]]->data)[e] +
                    (s ? h : -h) * ((const double *)all[t->n + 1 + i]->data)[e];
        side[s] = harness_run(t->a, d, near_by);
    }
    for (uint32_t i = 0; i < t->n_wrt; i++)
        for (int64_t e = 0; e < ir_tensor_count(&got[i]); e++) {
            double want =
                (((double *)side[1][i].data)[e] - ((double *)side[0][i].data)[e]) / (2 * h);
            double have = ((double *)got[t->n_wrt + i].data)[e];
            char text[128];
            snprintf(text, sizeof text, "second derivative of %s[%d]: %.9g, differences say %.9g",
                     t->wrt[i], (int)e, have, want);
            if (!(fabs(want - have) <= 1e-4 * (1 + fabs(want))))
                broken(t, text);
        }
}

/* vmap over the first `batched` inputs against a loop. */
static void check_batch(trial *t, uint32_t batched)
{
    enum { B = 3 };
    tacit_error err = {0};
    const char *names[MOST];
    if (t->k->single)
        return;
    for (uint32_t i = 0; i < t->n; i++)
        names[i] = t->g->inputs.data[i]->name;
    ir_graph *v = ir_graph_clone(t->g, t->a);
    if (diff_vmap(v, batched, names, B, &err) != TACIT_OK)
        broken(t, err.message);
    const ir_tensor *all[MOST];
    for (uint32_t i = 0; i < t->n; i++)
        all[i] = draw(t, t->g->inputs.data[i], &v->inputs.data[i]->type);
    ir_tensor *out = harness_run(t->a, v, all);
    for (int64_t b = 0; b < B; b++) {
        const ir_tensor *one[MOST];
        for (uint32_t i = 0; i < t->n; i++) {
            const ir_type *type = &t->g->inputs.data[i]->type;
            size_t bytes = ir_dtype_bytes(type->dtype, ir_shape_size(&type->shape));
            ir_tensor *x = arena_copy(t->a, all[i], sizeof *x);
            *x = ir_tensor_view(type->dtype, &type->shape,
                                (char *)all[i]->data + (i < batched ? (size_t)b * bytes : 0));
            one[i] = x;
        }
        ir_tensor *want = harness_run(t->a, t->g, one);
        if (memcmp((char *)out[0].data + (size_t)b * want[0].bytes, want[0].data, want[0].bytes))
            broken(t, "an entry of the batch differs");
        assert_int_equal(out[0].shape.rank, want[0].shape.rank + 1);
    }
}

static void rules_agree_with_differences(void **state)
{
    const case_list *l = *state;
    for (int i = 0; i < l->count; i++)
        for (int round = 0; round < (strchr(l->all[i].body, '$') ? DRAWS : 1); round++) {
            arena a;
            arena_init(&a, NULL);
            rng r = rng_seed((uint64_t)(100 + i + 1000 * round));
            trial t;
            begin(&t, &l->all[i], &a, &r);
            check_gradient(&t);
            check_tangent(&t);
            check_second(&t);
            check_batch(&t, t.n);
            check_batch(&t, 1);
            arena_free(&a);
        }
}

/* --- which rows have cases -------------------------------------------------------------------- */

static void mark_rows(ir_graph *g, bool *seen);
static tacit_status mark_body(void *context, ir_graph *sub)
{
    mark_rows(sub, context);
    return TACIT_OK;
}
static void mark_rows(ir_graph *g, bool *seen)
{
    for (uint32_t i = 0; i < g->nodes.count; i++) {
        const ir_node *n = g->nodes.data[i];
        for (uint32_t k = 0; op_at(k); k++)
            seen[k] |= op_at(k) == n->op;
        assert_int_equal(ir_node_subgraphs(n, mark_body, seen), TACIT_OK);
    }
}

/* A rule without a case is an error, and so is a row about which nothing is said: it must have a
 * rule, or be one that stops gradients by convention, or be listed above. */
static void every_row_is_accounted_for(void **state)
{
    const case_list *l = *state;
    bool seen[1024] = {false};
    arena a;
    arena_init(&a, NULL);
    rng r = rng_seed(1);
    for (int i = 0; i < l->count; i++)
        mark_rows(harness_graph(&a, with_sizes(&a, l->all[i].body, &r)), seen);
    char name[128];
    const op_def *row;
    int bad = 0;
    for (uint32_t i = 0; (row = op_at(i)) != NULL; i++) {
        bool rule = row->vjp || row->jvp || row->spell || row->decompose || row->batch;
        full_name(row, name, sizeof name);
        if (seen[i] || IS_IN(name, by_convention))
            continue;
        bool listed = IS_IN(name, without) || IS_IN(name, integers) || IS_IN(name, walkers);
        bool stops = row->flags & OP_NOT_DIFFERENTIABLE || row->max_in == 0;
        /* Own ops without rules are made by passes, which run after the transforms; the error for
         * the others names the node. */
        stops |= row->domain && strcmp(row->domain, "tacit") == 0;
        if (!rule && (listed || stops))
            continue;
        print_error("%s has %s\n", name,
                    rule ? "a rule of the transforms but no case in rules.txt"
                         : "neither a derivative rule nor a reason to have none");
        bad++;
    }
    arena_free(&a);
    assert_int_equal(bad, 0);
}

static int load(void **state)
{
    static case_list list;
    static arena memory;
    arena_init(&memory, NULL);
    read_cases(&memory, &list);
    *state = &list;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_agree_with_differences),
        cmocka_unit_test(every_row_is_accounted_for),
    };
    return cmocka_run_group_tests_name("derivative rules", tests, load, NULL);
}
