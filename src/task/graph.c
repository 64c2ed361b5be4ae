/* SPDX-License-Identifier: Apache-2.0
 * Building and sealing graphs. */
#include "task/graph.h"

#include <stdlib.h>
#include <string.h>

tacit_status tacit_task_graph_create(tacit_task_runtime *rt, tacit_task_graph **out,
                                     tacit_error *err)
{
    tacit_task_graph *g = mem_alloc_zero(rt->allocator, sizeof *g);
    *out = g;
    if (!g)
        return error_memory(err, "a task graph");
    g->rt = rt;
    arena_init(&g->memory, rt->allocator);
    STORE(&g->first_failure, UINT64_MAX, RELAXED);
    return TACIT_OK;
}

void tacit_task_graph_destroy(tacit_task_graph *g)
{
    if (!g)
        return;
    const tacit_allocator *a = g->memory.allocator;
    arena_free(&g->memory);
    mem_release(a, g, sizeof *g);
}

tacit_status tacit_task_graph_add(tacit_task_graph *g, const tacit_task_node *node, uint32_t *index,
                                  tacit_error *err)
{
    uint32_t here = g->info.count;
    if (g->sealed)
        return error_set(err, TACIT_ERR_STATE, "node %u: the graph is sealed", here);
    if (here == (1u << 28))
        return error_set(err, TACIT_ERR_LIMIT, "a graph holds at most 2^28 nodes");
    for (uint32_t i = 0; i < node->dep_count; i++)
        if (node->deps[i] >= here)
            return error_set(
                err, TACIT_ERR_ARGUMENT,
                "node %u (%s) cannot wait for node %u: only earlier nodes can be named", here,
                node->name ? node->name : "unnamed", node->deps[i]);
    if (node->begin > node->end)
        return error_set(err, TACIT_ERR_ARGUMENT, "node %u: units [%u, %u)", here, node->begin,
                         node->end);
    task_node_info info = {.tile = node->tile,
                           .args = node->args,
                           .begin = node->begin,
                           .end = node->end,
                           .flags = (uint8_t)((node->predicate ? TASK_NODE_PREDICATED : 0) |
                                              (node->tile ? 0 : TASK_NODE_JOIN)),
                           .predicate = node->predicate,
                           .name = node->name,
                           .first_dep = g->deps.count,
                           .dep_count = node->dep_count,
                           .cost_ns = node->cost_ns,
                           .home = node->home,
                           .near = node->near <= 15 ? node->near : 0};
    arena *a = &g->memory;
    if (!vec_reserve(a, &g->info, 1) || !vec_reserve(a, &g->deps, node->dep_count))
        return error_memory(err, "a task graph's nodes");
    g->info.data[g->info.count++] = info;
    if (node->dep_count)
        memcpy(g->deps.data + g->deps.count, node->deps, node->dep_count * sizeof(uint32_t));
    g->deps.count += node->dep_count;
    if (index)
        *index = here;
    return TACIT_OK;
}

/* ---- seal --------------------------------------------------------------------------------- */

/* Sort every node's dependences and drop repetitions. */
static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static void unique_deps(tacit_task_graph *g)
{
    for (uint32_t i = 0; i < g->info.count; i++) {
        task_node_info *info = &g->info.data[i];
        uint32_t *d = g->deps.data + info->first_dep, kept = 0;
        if (info->dep_count > 1)
            qsort(d, info->dep_count, sizeof *d, by_number);
        for (uint32_t k = 0; k < info->dep_count; k++)
            if (k == 0 || d[k] != d[k - 1])
                d[kept++] = d[k];
        info->dep_count = kept;
        g->edges += kept;
    }
}

static void find_priorities(tacit_task_graph *g)
{
    g->total_cost = 0;
    g->costs_known = true;
    for (uint32_t i = 0; i < g->count; i++)
        g->info.data[i].priority = 0;
    for (uint32_t i = g->count; i-- > 0;) {
        task_node_info *info = &g->info.data[i];
        g->costs_known &= info->cost_ns != 0 || (g->nodes[i].flags & TASK_NODE_JOIN);
        g->total_cost += info->cost_ns;
        info->priority += info->cost_ns ? info->cost_ns : 1;
        for (uint32_t k = 0; k < info->dep_count; k++) {
            task_node_info *p = &g->info.data[g->deps.data[info->first_dep + k]];
            if (p->priority < info->priority)
                p->priority = info->priority;
        }
    }
}

/* Whether entry `a` shall run before `b`: longer path first, then the earlier node. */
static bool before(const tacit_task_graph *g, uint32_t a, uint32_t b)
{
    a = TASK_SUCCESSOR(a);
    b = TASK_SUCCESSOR(b);
    uint64_t p = g->info.data[a].priority, q = g->info.data[b].priority;
    return p != q ? p > q : a < b;
}

static void sift(const tacit_task_graph *g, uint32_t *list, uint32_t at, uint32_t count)
{
    uint32_t node = list[at];
    for (uint32_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && before(g, list[child + 1], list[child]))
            child++;
        if (!before(g, list[child], node))
            break;
        list[at] = list[child];
    }
    list[at] = node;
}

/* In place, because a graph that has learnt sorts between two runs: what runs last comes first. The
 * last successor made ready is the one run next. */
static void sort_rising(const tacit_task_graph *g, uint32_t *list, uint32_t count)
{
    for (uint32_t i = count / 2; i-- > 0;)
        sift(g, list, i, count);
    for (uint32_t end = count; end-- > 1;) {
        uint32_t node = list[0];
        list[0] = list[end];
        list[end] = node;
        sift(g, list, 0, end);
    }
}

/* Roots are taken from the front. */
static void sort_falling(const tacit_task_graph *g, uint32_t *list, uint32_t count)
{
    sort_rising(g, list, count);
    for (uint32_t i = 0; i < count / 2; i++) {
        uint32_t node = list[i];
        list[i] = list[count - 1 - i];
        list[count - 1 - i] = node;
    }
}

void task_graph_order(tacit_task_graph *g)
{
    find_priorities(g);
    for (uint32_t i = 0; i < g->count; i++) {
        task_node *n = &g->nodes[i];
        uint32_t *list = n->successor_count <= TASK_INLINE_SUCCESSORS
                             ? n->successors
                             : g->adjacent + n->successors[0];
        sort_rising(g, list, n->successor_count);
    }
    for (uint32_t w = 0, begin = 0; w <= g->rt->threads; begin = g->root_ends[w++])
        sort_falling(g, g->roots + begin, g->root_ends[w] - begin);
}

static void fill_successors(tacit_task_graph *g, const uint32_t *list, const uint32_t *first)
{
    for (uint32_t i = 0; i < g->count; i++) {
        task_node *n = &g->nodes[i];
        n->successor_count = first[i + 1] - first[i];
        if (n->successor_count <= TASK_INLINE_SUCCESSORS)
            memcpy(n->successors, list + first[i], n->successor_count * sizeof *list);
        else
            n->successors[0] = first[i];
    }
}

/* The list of roots that a node belongs into: its worker's, or the last, of those near to nobody.
 */
static uint32_t root_list(const tacit_task_graph *g, uint32_t node)
{
    uint32_t near = g->info.data[node].near;
    return near && near <= g->rt->threads ? near - 1 : g->rt->threads;
}

static void fill_roots(tacit_task_graph *g)
{
    uint32_t *end = g->root_ends;
    for (uint32_t i = 0; i < g->count; i++)
        if (g->nodes[i].indegree == 0)
            end[root_list(g, i) + 1]++;
    for (uint32_t w = 0; w <= g->rt->threads; w++)
        end[w + 1] += end[w];
    for (uint32_t i = 0; i < g->count; i++)
        if (g->nodes[i].indegree == 0)
            g->roots[end[root_list(g, i)]++] = i;
}

static bool build(tacit_task_graph *g)
{
    arena *a = &g->memory;
    size_t n = g->count;
    uint32_t *first = ARENA_ARRAY(a, n + 2, uint32_t);
    g->nodes = arena_alloc_aligned(a, (n + 1) * sizeof *g->nodes, 64);
    g->adjacent = ARENA_ARRAY(a, g->edges + 1, uint32_t);
    g->roots = ARENA_ARRAY(a, n + 1, uint32_t);
    g->root_ends = ARENA_ARRAY(a, g->rt->threads + 2, uint32_t);
    g->items = ARENA_ARRAY(a, g->rt->threads, _Atomic uint32_t *);
    uint32_t slots = 2;
    while (slots < n)
        slots *= 2;
    g->deque_mask = slots - 1;
    if (!first || !g->nodes || !g->adjacent || !g->roots || !g->root_ends || !g->items)
        return false;
    for (uint32_t w = 0; w < g->rt->threads; w++)
        if (!(g->items[w] = arena_alloc_zero(a, slots * sizeof(uint32_t))))
            return false;
    for (uint32_t i = 0; i < n; i++) {
        const task_node_info *info = &g->info.data[i];
        g->nodes[i] = (task_node){.tile = info->tile,
                                  .args = info->args,
                                  .begin = info->begin,
                                  .end = info->end,
                                  .indegree = (int32_t)info->dep_count,
                                  .flags = info->flags,
                                  .kernel = TASK_KERNELS - 1};
        STORE(&g->nodes[i].pending, (int32_t)info->dep_count, RELAXED);
        for (uint32_t k = 0; k < info->dep_count; k++)
            first[g->deps.data[info->first_dep + k] + 2]++;
    }
    for (uint32_t i = 0; i < n; i++)
        first[i + 2] += first[i + 1];
    for (uint32_t i = 0; i < n; i++) {
        const task_node_info *info = &g->info.data[i];
        for (uint32_t k = 0; k < info->dep_count; k++)
            g->adjacent[first[g->deps.data[info->first_dep + k] + 1]++] = i | info->near << 28;
        g->has_near |= info->near != 0;
    }
    fill_successors(g, g->adjacent, first);
    fill_roots(g);
    task_graph_order(g);
    return true;
}

tacit_status tacit_task_graph_seal(tacit_task_graph *g, tacit_error *err)
{
    if (g->sealed)
        return error_set(err, TACIT_ERR_STATE, "the graph is sealed already");
    g->count = g->info.count;
    unique_deps(g);
    if (!build(g) || !task_calendar_build(g) || !task_ahead_build(g))
        return error_memory(err, "a task graph");
    uint32_t chunk = g->root_ends[g->rt->threads] / (8 * g->rt->threads);
    g->root_chunk = chunk < 1 ? 1 : chunk > 64 ? 64 : chunk;
    g->sealed = true;
    return TACIT_OK;
}

/* ---- patches ------------------------------------------------------------------------------ */

static tacit_status check_node(const tacit_task_graph *g, uint32_t node, tacit_error *err)
{
    if (!g->sealed || node >= g->count)
        return error_set(err, TACIT_ERR_ARGUMENT, "patch of node %u of %u%s", node, g->count,
                         g->sealed ? "" : ": the graph is not sealed");
    return TACIT_OK;
}

tacit_status tacit_task_graph_patch_args(tacit_task_graph *g, uint32_t node, const void *args,
                                         tacit_error *err)
{
    TRY(check_node(g, node, err));
    if (g->nodes[node].flags & TASK_NODE_CALL)
        return error_set(err, TACIT_ERR_ARGUMENT,
                         "node %u was recorded by submit: patch its buffers or scalars", node);
    g->nodes[node].args = args;
    return TACIT_OK;
}

tacit_status tacit_task_graph_patch_cost(tacit_task_graph *g, uint32_t node, uint32_t cost_ns,
                                         tacit_error *err)
{
    TRY(check_node(g, node, err));
    g->total_cost += (uint64_t)cost_ns - g->info.data[node].cost_ns;
    g->info.data[node].cost_ns = cost_ns;
    return TACIT_OK;
}

tacit_status tacit_task_graph_prioritise(tacit_task_graph *g, tacit_error *err)
{
    if (!g->sealed)
        return error_set(err, TACIT_ERR_STATE, "the graph is not sealed");
    task_graph_order(g);
    return TACIT_OK;
}

uint32_t tacit_task_graph_cost(const tacit_task_graph *g, uint32_t node)
{
    return node < g->info.count ? g->info.data[node].cost_ns : 0;
}

tacit_status tacit_task_graph_patch_scalar(tacit_task_graph *g, uint32_t node, uint32_t param,
                                           tacit_task_value value, tacit_error *err)
{
    TRY(check_node(g, node, err));
    if (!(g->nodes[node].flags & TASK_NODE_CALL))
        return error_set(err, TACIT_ERR_ARGUMENT, "node %u has no recorded parameters", node);
    const task_recorded *r = g->nodes[node].args;
    if (param >= r->count)
        return error_set(err, TACIT_ERR_ARGUMENT, "node %u has %u parameters, not %u", node,
                         r->count, param + 1);
    r->values[param] = value;
    return TACIT_OK;
}

tacit_status tacit_task_graph_patch_buffer(tacit_task_graph *g, const void *old_data,
                                           void *new_data, uint64_t bytes, tacit_error *err)
{
    uint32_t low = 0, high = g->patches.count;
    while (low < high) { /* patches are sorted by storage */
        uint32_t middle = low + (high - low) / 2;
        if ((uintptr_t)g->patches.data[middle].data < (uintptr_t)old_data)
            low = middle + 1;
        else
            high = middle;
    }
    uint32_t end = low;
    uint64_t most = 0;
    for (; end < g->patches.count && g->patches.data[end].data == old_data; end++)
        most = g->patches.data[end].high > most ? g->patches.data[end].high : most;
    if (most > bytes)
        return error_set(err, TACIT_ERR_ARGUMENT,
                         "the graph uses %llu bytes of this buffer, the new one has %llu",
                         (unsigned long long)most, (unsigned long long)bytes);
    if (end == low)
        return error_set(err, TACIT_ERR_ARGUMENT, "the graph does not use this buffer");
    for (uint32_t i = low; i < end; i++)
        g->patches.data[i].value->data = (char *)new_data + g->patches.data[i].offset;
    return TACIT_OK;
}

uint32_t tacit_task_graph_nodes(const tacit_task_graph *g)
{
    return g->info.count;
}

uint64_t tacit_task_graph_edges(const tacit_task_graph *g)
{
    return g->edges;
}
