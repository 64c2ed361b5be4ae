/* SPDX-License-Identifier: Apache-2.0
 * Every row of the table, compiled and run serially, against the interpreter: random inputs of
 * every type, dense, constant and through views; with the passes and without. What one refuses the
 * other refuses; what both run agrees. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "ir/text.h"
#include "op/specimen.h"
#include "pass/pass.h"
#include "prog/interp.h"
#include "prog/program.h"
#include "support/odd_node.h"

enum {
    ODD = 60,     /* nonsense nodes of each row */
    SHAPES = 200, /* sensible ones that must run and agree */
    TRIES = 1500,
};

static tacit_status compile_and_run(ir_graph *graph, const ir_tensor *const *given, bool passes,
                                    arena *a, ir_tensor *out, tacit_error *err)
{
    TRY(ir_graph_sort(graph, err));
    TRY(op_infer_graph(graph, err));
    pass_report report;
    if (passes)
        TRY(pass_pipeline(graph, &(pass_options){0}, a, &report, err));
    prog_program *program = NULL;
    prog_session *session = NULL;
    TRY(prog_build(graph, &(prog_options){.executor = TACIT_EXEC_SERIAL}, &program, err));
    tacit_status status = prog_session_create(program, &session, err);
    if (status == TACIT_OK)
        status = prog_run_values(session, given, out, a, err);
    prog_session_free(session);
    prog_free(program);
    return status;
}

static double worst_eps(tacit_dtype dtype)
{
    switch (dtype) {
    case TACIT_F64:
        return 1e-6; /* some kernels compute parts in f32 tables */
    case TACIT_F32:
    case TACIT_C64:
    case TACIT_C128:
        return 2e-4;
    case TACIT_F16:
        return 4e-3;
    case TACIT_BF16:
        return 3e-2;
    default:
        return 0;
    }
}

/* `wild`: there are infinities or NaNs among the inputs, so that the order of operations decides
 * between a NaN and a number. */
static bool close_enough(tacit_dtype dtype, bool wild, double have, double want)
{
    if (have == want || (isnan(have) && isnan(want)))
        return true;
    if (wild && (isnan(have) || isnan(want)))
        return true;
    return fabs(have - want) <= worst_eps(dtype) * (1 + fabs(want));
}

static bool is_wild(const ir_graph *g, uint32_t n_given, const ir_tensor *const *given)
{
    bool wild = false;
    for (uint32_t i = 0; i < g->values.count + n_given; i++) {
        const ir_tensor *t = i < n_given ? given[i] : g->values.data[i - n_given]->constant;
        for (int64_t k = 0; t && ir_dtype_is_float(t->dtype) && k < ir_tensor_count(t); k++)
            wild |= !isfinite(ir_load_f64(t->dtype, t->data, k));
    }
    return wild;
}

/* Where they differ, or NULL. */
static const char *difference(const ir_tensor *have, const ir_tensor *want, bool wild)
{
    static char text[160];
    char a[IR_SHAPE_TEXT], b[IR_SHAPE_TEXT];
    if (have->kind != want->kind || have->dtype != want->dtype ||
        !ir_shape_equal(&have->shape, &want->shape)) {
        snprintf(text, sizeof text, "%s%.60s, not %s%.60s", tacit_dtype_text(have->dtype),
                 ir_shape_text(&have->shape, a), tacit_dtype_text(want->dtype),
                 ir_shape_text(&want->shape, b));
        return text;
    }
    if (want->kind != IR_TENSOR || want->dtype == TACIT_STRING)
        return ir_tensor_identical(have, want) ? NULL : "contents differ";
    for (int64_t i = 0, n = ir_tensor_count(want); i < n; i++) {
        double x[2], y[2];
        ir_load_complex(have->dtype, have->data, i, x);
        ir_load_complex(want->dtype, want->data, i, y);
        bool same = ir_dtype_is_int(want->dtype) ? ir_load_i64(have->dtype, have->data, i) ==
                                                       ir_load_i64(want->dtype, want->data, i)
                                                 : close_enough(want->dtype, wild, x[0], y[0]) &&
                                                       close_enough(want->dtype, wild, x[1], y[1]);
        if (!same) {
            snprintf(text, sizeof text, "%s element %lld is %.9g, not %.9g",
                     tacit_dtype_text(want->dtype), (long long)i, x[0], y[0]);
            return text;
        }
    }
    return NULL;
}

/* One graph twice: interpreted from `plain`, compiled from `compiled`. -1: disagreement, 0: both
 * refuse, 1: both agree. */
static int compare(ir_graph *plain, ir_graph *compiled, uint32_t n_given,
                   const ir_tensor *const *given, bool passes, arena *a, char *why, size_t size)
{
    ir_tensor want[ODD_VALUES] = {0}, have[ODD_VALUES] = {0};
    tacit_error err = {0}, other = {0};
    bool wild = is_wild(plain, n_given, given);
    int verdict = 1;
    tacit_status expected = ir_graph_sort(plain, &err);
    if (expected == TACIT_OK)
        expected = op_infer_graph(plain, &err);
    if (expected == TACIT_OK)
        expected = interp_run(plain, given, want, a, 0, &err);
    tacit_status status = compile_and_run(compiled, given, passes, a, have, &other);
    bool memory = expected == TACIT_ERR_MEMORY || status == TACIT_ERR_MEMORY;
    if (expected != TACIT_OK || status != TACIT_OK) {
        verdict = memory || (expected == TACIT_OK) == (status == TACIT_OK) ? 0 : -1;
        snprintf(why, size, "interpreter: %.200s; compiled: %.200s",
                 expected == TACIT_OK ? "ok" : err.message,
                 status == TACIT_OK ? "ok" : other.message);
    }
    for (uint32_t i = 0; verdict == 1 && i < plain->outputs.count; i++) {
        const char *text = difference(&have[i], &want[i], wild);
        if (text) {
            snprintf(why, size, "output %u: %s", i, text);
            verdict = -1;
        }
    }
    return verdict;
}

static int try_odd(const op_def *row, uint64_t seed, char *why, size_t size)
{
    arena a;
    arena_init(&a, NULL);
    odd_node plain, compiled;
    odd_node_make(&a, row, seed, true, &plain);
    odd_node_make(&a, row, seed, true, &compiled);
    int verdict =
        compare(plain.graph, compiled.graph, plain.n_given, plain.given, seed % 2, &a, why, size);
    arena_free(&a);
    return verdict;
}

/* --- specimens: nodes that make sense --------------------------------------------------------- */

/* What the shapes of a row have been. */
typedef struct coverage {
    uint32_t agreed, tried, scalars, high_ranks, empties, views, both_ways;
    uint32_t by_type[TACIT_DTYPE_COUNT];
} coverage;

typedef struct input_maker {
    arena *a;
    rng r;
    bool viewed;
} input_maker;

static ir_value *maybe_viewed(void *context, ir_graph *g, const ir_tensor **t)
{
    input_maker *m = context;
    if ((*t)->shape.rank > 0 && (*t)->dtype != TACIT_STRING && rng_below(&m->r, 2)) {
        m->viewed = true;
        return odd_view(m->a, g, &m->r, t);
    }
    ir_type type = ir_tensor_type(*t);
    return ir_input_new(g, NULL, &type);
}

/* Each of two inputs is longer than the other somewhere. */
static bool both_ways(const ir_node *n)
{
    bool wider[2] = {false, false};
    if (n->n_inputs < 2 || !n->inputs[0] || !n->inputs[1])
        return false;
    const ir_shape *s[2] = {&n->inputs[0]->type.shape, &n->inputs[1]->type.shape};
    for (int32_t d = 1; d <= s[0]->rank || d <= s[1]->rank; d++) {
        int64_t x = d <= s[0]->rank ? s[0]->dims[s[0]->rank - d] : 1;
        int64_t y = d <= s[1]->rank ? s[1]->dims[s[1]->rank - d] : 1;
        wider[0] |= x > y;
        wider[1] |= y > x;
    }
    return wider[0] && wider[1];
}

static void note_shapes(const op_specimen *s, bool viewed, coverage *seen)
{
    bool scalar = false, high = false, empty = false;
    for (uint32_t i = 0; i < s->node->n_inputs; i++) {
        const ir_shape *shape = s->node->inputs[i] ? &s->node->inputs[i]->type.shape : NULL;
        scalar |= shape && shape->rank == 0;
        high |= shape && shape->rank >= 8;
        for (int32_t d = 0; shape && d < shape->rank; d++)
            empty |= shape->dims[d] == 0;
    }
    seen->scalars += scalar;
    seen->high_ranks += high;
    seen->empties += empty;
    seen->views += viewed;
    seen->both_ways += both_ways(s->node);
}

static int try_specimen(const op_def *row, tacit_dtype type, uint64_t seed, coverage *seen,
                        char *why, size_t size)
{
    arena a;
    arena_init(&a, NULL);
    op_specimen plain, compiled;
    input_maker one = {&a, rng_seed(seed), false}, two = one;
    int verdict = 0;
    if (op_specimen_make(&a, row, type, seed, maybe_viewed, &one, &plain) &&
        op_specimen_make(&a, row, type, seed, maybe_viewed, &two, &compiled))
        verdict = compare(plain.graph, compiled.graph, plain.n_given, plain.given, seed % 2, &a,
                          why, size);
    if (verdict == 1)
        note_shapes(&plain, one.viewed, seen);
    arena_free(&a);
    return verdict;
}

static const char *full_name(const op_def *row)
{
    static char text[96];
    snprintf(text, sizeof text, "%s%s%s", row->domain ? row->domain : "", row->domain ? "." : "",
             row->name);
    return text;
}

static bool enough(const coverage *seen, const tacit_dtype *types, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (!seen->by_type[types[i]])
            return false;
    return seen->agreed >= SHAPES;
}

/* At least SHAPES specimens of a row run and agree, some of every type that the row takes. */
static bool check_row(const op_def *row, coverage *seen)
{
    tacit_dtype types[TACIT_DTYPE_COUNT];
    uint32_t n = 0, bad = 0;
    for (int d = 1; d < TACIT_DTYPE_COUNT; d++)
        if (op_specimen_runs(row, (tacit_dtype)d))
            types[n++] = (tacit_dtype)d;
    for (uint64_t seed = 0; n && seed < TRIES && !enough(seen, types, n); seed++, seen->tried++) {
        char why[512] = "";
        tacit_dtype type = types[seed % n];
        int verdict = try_specimen(row, type, seed, seen, why, sizeof why);
        seen->agreed += verdict == 1;
        seen->by_type[type] += verdict == 1;
        if (verdict < 0 && bad++ < 3)
            print_error("%s of %s, seed %llu: %s\n", full_name(row), tacit_dtype_text(type),
                        (unsigned long long)seed, why);
    }
    for (uint32_t i = 0; i < n; i++)
        if (!seen->by_type[types[i]] && ++bad)
            print_error("%s: no specimen of %s agreed\n", full_name(row),
                        tacit_dtype_text(types[i]));
    if (seen->agreed < SHAPES && ++bad)
        print_error("%s: only %u of %u specimens ran\n", full_name(row), seen->agreed, seen->tried);
    const char *recipe = op_specimen_recipe(row);
    bool any_shape = strncmp(recipe, "T*", 2) == 0 || strncmp(recipe, "T~", 2) == 0;
    bool broad = (!any_shape || (seen->scalars && seen->high_ranks && seen->empties)) &&
                 (!strstr(recipe, "T~ T~") || seen->both_ways) && (!any_shape || seen->views);
    if (!broad && ++bad)
        print_error("%s: scalars %u, rank 8 %u, empty %u, views %u, both ways %u\n", full_name(row),
                    seen->scalars, seen->high_ranks, seen->empties, seen->views, seen->both_ways);
    return bad == 0;
}

/* Rows that carry graphs, trees, maps or files; these tests make them. */
static const char *const made_elsewhere[] = {
    "If",
    "Loop",
    "Scan",
    "BatchedScan",
    "SequenceMap",
    "Function",
    "Gradient",
    "ImageDecoder",
    "CachedAttention",
    "TreeEnsemble",
    "DictVectorizer",
    "ZipMap",
    "CastMap",
    "LinearClassifier",
};

static void specimens_agree_with_the_interpreter(void **state)
{
    (void)state;
    const op_def *row;
    uint32_t bad = 0, rows = 0;
    uint64_t total = 0;
    for (uint32_t k = 0; (row = op_at(k)); k++) {
        coverage seen = {0};
        bool elsewhere = false;
        for (uint32_t i = 0; i < sizeof made_elsewhere / sizeof *made_elsewhere; i++)
            elsewhere |= strcmp(made_elsewhere[i], row->name) == 0;
        if (elsewhere)
            continue;
        rows++;
        if (!op_specimen_recipe(row))
            print_error("%s has no recipe in src/op/specimen_table.c\n", full_name(row));
        bad += !op_specimen_recipe(row) || !check_row(row, &seen);
        total += seen.agreed;
    }
    print_message("%llu specimens of %u rows ran and agreed\n", (unsigned long long)total, rows);
    assert_int_equal(bad, 0);
}

static void odd_nodes_agree_with_the_interpreter(void **state)
{
    (void)state;
    const op_def *row;
    uint64_t agreed = 0, tried = 0, bad = 0;
    for (uint32_t k = 0; (row = op_at(k)); k++)
        for (uint64_t seed = 0; row->eval && seed < ODD; seed++, tried++) {
            char why[512];
            int verdict = try_odd(row, seed, why, sizeof why);
            agreed += verdict == 1;
            if (verdict < 0 && bad++ < 40)
                print_error("odd %s, seed %llu: %s\n", full_name(row), (unsigned long long)seed,
                            why);
        }
    print_message("%llu of %llu odd nodes ran and agreed\n", (unsigned long long)agreed,
                  (unsigned long long)tried);
    assert_int_equal(bad, 0);
    assert_true(agreed > tried / 50);
}

static void print_graph(ir_graph *g)
{
    sbuf text;
    sbuf_init(&text, NULL);
    if (op_infer_graph(g, NULL) == TACIT_OK)
        ir_graph_print(g, &(ir_text_options){0}, &text);
    printf("%s", text.data ? text.data : "");
    sbuf_free(&text);
}

/* test_prog_every_op NAME TYPE SEED: one case again, in words; TYPE "odd": an odd node. */
static int again(const char *name, const char *type_text, const char *seed_text)
{
    const op_def *row;
    unsigned long long seed = 0;
    for (uint32_t k = 0; (row = op_at(k)); k++) {
        if (strcmp(full_name(row), name) != 0 || sscanf(seed_text, "%llu", &seed) != 1)
            continue;
        arena a;
        arena_init(&a, NULL);
        char why[512] = "";
        int verdict = 0;
        if (strcmp(type_text, "odd") == 0) {
            odd_node n;
            odd_node_make(&a, row, seed, true, &n);
            print_graph(n.graph);
            verdict = try_odd(row, seed, why, sizeof why);
        }
        for (int d = 1; d < TACIT_DTYPE_COUNT; d++) {
            op_specimen s;
            input_maker m = {&a, rng_seed(seed), false};
            coverage seen = {0};
            if (strcmp(tacit_dtype_text((tacit_dtype)d), type_text) != 0 ||
                !op_specimen_make(&a, row, (tacit_dtype)d, seed, maybe_viewed, &m, &s))
                continue;
            print_graph(s.graph);
            verdict = try_specimen(row, (tacit_dtype)d, seed, &seen, why, sizeof why);
        }
        printf("%d %s\n", verdict, why);
        arena_free(&a);
    }
    return 0;
}

/* A node that asks for absurdly much memory is to be refused it, not to take the machine down. */
static void limit_memory(void)
{
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    struct rlimit limit = {UINT64_C(4) << 30, UINT64_C(4) << 30};
    (void)setrlimit(RLIMIT_AS, &limit);
#endif
}

int main(int argc, char **argv)
{
    limit_memory();
    if (argc == 4)
        return again(argv[1], argv[2], argv[3]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(odd_nodes_agree_with_the_interpreter),
        cmocka_unit_test(specimens_agree_with_the_interpreter),
    };
    return cmocka_run_group_tests_name("every op, compiled", tests, NULL, NULL);
}
