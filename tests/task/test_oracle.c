/* SPDX-License-Identifier: Apache-2.0
 * The tensor map against brute force: recordings of random programs must order exactly what
 * conflicts, byte for byte, and nothing else. */
#include "base/rng.h"
#include "task/graph.h"
#include "task/util.h"

enum { TASKS = 300, PARAMS = 3, BYTES = 1024, STORAGES = 2, WORDS = (TASKS + 63) / 64 };

typedef struct access {
    int storage;
    bool reads, writes;
    unsigned char touched[BYTES];
} access_set;

static access_set set[TASKS][PARAMS];
static uint32_t set_count[TASKS];
static uint64_t wanted[TASKS][WORDS], found[TASKS][WORDS], direct[TASKS][WORDS];

static void mark(access_set *a, const tacit_task_view *v, uint64_t at, uint32_t dim)
{
    if (dim == v->rank) {
        for (uint32_t i = 0; i < v->element; i++)
            a->touched[at + i] = 1;
        return;
    }
    for (uint64_t i = 0; i < v->shape[dim]; i++)
        mark(a, v, (uint64_t)((int64_t)at + (int64_t)i * v->stride[dim]), dim + 1);
}

/* Dense pieces of several sizes, or boxes of one of three matrices laid over the storage. */
static tacit_task_view random_view(rng *r, bool lattice)
{
    tacit_task_view v = {.element = 4};
    if (!lattice || rng_below(r, 2)) {
        static const uint32_t sizes[] = {1, 3, 16, 64, 200, 512, 1024};
        v.element = sizes[rng_below(r, lattice ? 7 : 6)];
        v.offset = rng_below(r, BYTES - v.element + 1);
        if (rng_below(r, 2))
            v.offset = v.offset / v.element * v.element;
        return v;
    }
    static const int64_t widths[][2] = {{64, 4}, {128, 4}, {128, 8}};
    const int64_t *w = widths[rng_below(r, 3)];
    uint64_t columns = (uint64_t)(w[0] / w[1]), rows = BYTES / (uint64_t)w[0];
    v.rank = 2;
    v.shape[0] = 1 + rng_below(r, rows / 2);
    v.shape[1] = 1 + rng_below(r, columns / 2);
    v.stride[0] = w[0];
    v.stride[1] = w[1];
    v.offset = rng_below(r, rows - v.shape[0] + 1) * (uint64_t)w[0] +
               rng_below(r, columns - v.shape[1] + 1) * (uint64_t)w[1];
    if (rng_below(r, 3) == 0) { /* columns first, backwards */
        v.offset += (v.shape[0] - 1) * (uint64_t)w[0];
        tacit_task_view t = v;
        v.shape[0] = t.shape[1];
        v.shape[1] = t.shape[0];
        v.stride[0] = t.stride[1];
        v.stride[1] = -t.stride[0];
    }
    return v;
}

static bool conflict(const access_set *a, const access_set *b)
{
    if (a->storage != b->storage || (!a->writes && !b->writes))
        return false;
    for (int i = 0; i < BYTES; i++)
        if (a->touched[i] && b->touched[i])
            return true;
    return false;
}

static bool tasks_conflict(uint32_t a, uint32_t b)
{
    for (uint32_t i = 0; i < set_count[a]; i++)
        for (uint32_t k = 0; k < set_count[b]; k++)
            if (conflict(&set[a][i], &set[b][k]))
                return true;
    return false;
}

static void add_ancestor(uint64_t (*closure)[WORDS], uint32_t task, uint32_t ancestor)
{
    closure[task][ancestor / 64] |= (uint64_t)1 << (ancestor % 64);
    for (int w = 0; w < WORDS; w++)
        closure[task][w] |= closure[ancestor][w];
}

static tacit_task_graph *record(tacit_task_runtime *rt, rng *r, bool lattice)
{
    static char memory[STORAGES][BYTES];
    tacit_task_buffer b[STORAGES];
    for (int s = 0; s < STORAGES; s++)
        b[s] = tacit_task_memory(memory[s], BYTES);
    memset(set, 0, sizeof set);
    OK(tacit_task_record_begin(rt, &err));
    for (uint32_t t = 0; t < TASKS; t++) {
        tacit_task_param p[PARAMS];
        tacit_task_view v[PARAMS];
        set_count[t] = 1 + (uint32_t)rng_below(r, PARAMS);
        for (uint32_t i = 0; i < set_count[t]; i++) {
            static const tacit_task_access kinds[] = {TACIT_TASK_IN, TACIT_TASK_IN, TACIT_TASK_OUT,
                                                      TACIT_TASK_INOUT};
            access_set *a = &set[t][i];
            tacit_task_access kind = kinds[rng_below(r, 4)];
            a->storage = (int)rng_below(r, STORAGES);
            a->reads = kind != TACIT_TASK_OUT;
            a->writes = kind != TACIT_TASK_IN;
            v[i] = random_view(r, lattice);
            mark(a, &v[i], v[i].offset, 0);
            p[i] = tacit_task_box(kind, &b[a->storage], &v[i]);
        }
        submit(rt, &k_nop, NULL, p, set_count[t], NULL, 0);
    }
    tacit_task_graph *g;
    OK(tacit_task_record_end(rt, &g, &err));
    return g;
}

static void edges_equal_brute_force(void **state)
{
    (void)state;
    tacit_task_runtime *rt = make((tacit_task_config){.threads = 1});
    uint64_t spare = 0, edges = 0;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        rng r = rng_seed(seed);
        bool lattice = seed % 2;
        tacit_task_graph *g = record(rt, &r, lattice);
        memset(wanted, 0, sizeof wanted);
        memset(found, 0, sizeof found);
        memset(direct, 0, sizeof direct);
        for (uint32_t t = 0; t < TASKS; t++) {
            const task_node_info *info = &g->info.data[t];
            for (uint32_t k = 0; k < info->dep_count; k++) {
                uint32_t d = g->deps.data[info->first_dep + k];
                add_ancestor(found, t, d);
                direct[t][d / 64] |= (uint64_t)1 << (d % 64);
            }
            for (uint32_t d = 0; d < t; d++) {
                bool needed = tasks_conflict(t, d);
                bool linked = direct[t][d / 64] >> (d % 64) & 1;
                if (needed)
                    add_ancestor(wanted, t, d);
                edges += linked;
                spare += linked && !needed;
                /* Without lattices in the game every edge must be a conflict. */
                if (!lattice)
                    assert_false(linked && !needed);
            }
            for (int w = 0; w < WORDS; w++)
                if (wanted[t][w] & ~found[t][w])
                    fail_msg("seed %d: task %u misses a producer", (int)seed, t);
        }
        if (!lattice)
            assert_memory_equal(wanted, found, sizeof wanted);
        tacit_task_graph_destroy(g);
    }
    /* Boxes of different matrices are only compared by their bounds; that must stay rare. */
    printf("%" PRIu64 " edges, %" PRIu64 " more than needed\n", edges, spare);
    assert_true(spare * 5 < edges);
    tacit_task_destroy(rt);
}

/* Boxes of one matrix are told apart exactly. */
static void tiles_of_one_matrix_are_exact(void **state)
{
    (void)state;
    rng r = rng_seed(7);
    for (int i = 0; i < 20000; i++) {
        task_region q = {0}, p = {0};
        tacit_task_view v[2];
        access_set a[2] = {{0}};
        for (int k = 0; k < 2; k++) {
            uint64_t rows = 1 + rng_below(&r, 8), columns = 1 + rng_below(&r, 8);
            v[k] = (tacit_task_view){.rank = 2,
                                     .element = 4,
                                     .shape = {rows, columns},
                                     .stride = {64, 4},
                                     .offset = rng_below(&r, 17 - rows) * 64 +
                                               rng_below(&r, 17 - columns) * 4};
            mark(&a[k], &v[k], v[k].offset, 0);
        }
        assert_true(task_region_view(&q, &v[0], BYTES));
        assert_true(task_region_view(&p, &v[1], BYTES));
        a[0].writes = true;
        bool meets = conflict(&a[0], &a[1]), covered = true;
        for (int k = 0; k < BYTES; k++)
            covered &= a[0].touched[k] || !a[1].touched[k];
        task_overlap o = task_region_meet(&q, p.low, p.high, p.box.rank ? &p.box : NULL);
        if (q.box.rank && p.box.rank && v[0].shape[0] > 1 && v[1].shape[0] > 1)
            assert_int_equal(o != TASK_APART, meets);
        assert_true(o != TASK_APART || !meets);    /* never miss */
        assert_true(o != TASK_COVERED || covered); /* never drop too much */
    }
}

static void zero_sizes_overlap_nothing(void **state)
{
    (void)state;
    tacit_task_runtime *rt = make((tacit_task_config){.threads = 1});
    char m[64];
    tacit_task_buffer b = tacit_task_memory(m, 64);
    OK(tacit_task_record_begin(rt, &err));
    tacit_task_param w = tacit_task_out(&b), z = tacit_task_part(TACIT_TASK_INOUT, &b, 32, 0);
    submit(rt, &k_nop, NULL, &w, 1, NULL, 0);
    submit(rt, &k_nop, NULL, &z, 1, NULL, 0);
    submit(rt, &k_nop, NULL, &z, 1, NULL, 0);
    tacit_task_graph *g;
    OK(tacit_task_record_end(rt, &g, &err));
    assert_int_equal(tacit_task_graph_edges(g), 0);
    tacit_task_graph_destroy(g);
    tacit_task_destroy(rt);
}

/* Covered records go: a long chain of overwrites leaves one edge each. */
static void covered_records_are_dropped(void **state)
{
    (void)state;
    tacit_task_runtime *rt = make((tacit_task_config){.threads = 1});
    static char m[4096];
    tacit_task_buffer b = tacit_task_memory(m, 4096);
    OK(tacit_task_record_begin(rt, &err));
    for (int i = 0; i < 50; i++) { /* tiles, then a reader of all, then an overwrite of all */
        for (uint64_t k = 0; k < 16; k++) {
            tacit_task_param p = tacit_task_part(TACIT_TASK_OUT, &b, k * 256, 256);
            submit(rt, &k_nop, NULL, &p, 1, NULL, 0);
        }
        tacit_task_param in = tacit_task_in(&b), out = tacit_task_out(&b);
        submit(rt, &k_nop, NULL, &in, 1, NULL, 0);
        submit(rt, &k_nop, NULL, &out, 1, NULL, 0);
    }
    tacit_task_graph *g;
    OK(tacit_task_record_end(rt, &g, &err));
    /* reader: 16 tiles; overwrite: 16 tiles and the reader; each tile: the overwrite before, which
     * no single tile covers, so that reader and overwrite meet it once more. */
    assert_int_equal(tacit_task_graph_edges(g), 50 * (16 + 17) + 49 * 16 + 49 * 2);
    tacit_task_graph_destroy(g);
    tacit_task_destroy(rt);
}

int main(void)
{
    unused_helpers();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(edges_equal_brute_force),
        cmocka_unit_test(tiles_of_one_matrix_are_exact),
        cmocka_unit_test(zero_sizes_overlap_nothing),
        cmocka_unit_test(covered_records_are_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
