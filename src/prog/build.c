/* SPDX-License-Identifier: Apache-2.0
 * Building a program: split, views, lower, plan, check, resolve. */
#include "prog/program.h"

#include "base/log.h"
#include "prog/tasks.h"
#include "prog/validate.h"
#include "task/prepare.h"

void prog_free(prog_program *p)
{
    if (!p)
        return;
    prog_packing_free(p->packing); /* it writes what goes next */
    if (p->tasks)
        prog_tasks_free(p);
    slab_free(&p->constants);
    slab_free(&p->weights);
    packed_close(&p->packed);
    const tacit_allocator *allocator = p->allocator;
    arena_free(&p->memory);
    mem_release(allocator, p, sizeof *p);
}

static void count_weights(prog_program *p)
{
    for (uint32_t i = 0; i < p->graph->values.count; i++) {
        const ir_value *v = p->graph->values.data[i];
        size_t bytes;
        if (plan_is_constant(v) && ir_type_bytes(&v->type, &bytes))
            p->weight_bytes += bytes;
    }
}

static tacit_status plan_program(prog_program *p, tacit_error *err)
{
    p->problem = (plan_problem){.graph = p->graph,
                                .nodes = p->nodes,
                                .n_nodes = p->n_nodes,
                                .views = p->views,
                                .scratch = p->scratch,
                                .pinned = p->pinned,
                                .updates = p->updates,
                                .parallel = p->options.plan == TACIT_PLAN_MIN_TIME};
    TRY(plan_make(&p->problem, &p->memory, &p->plan, err));
    log_line(p->options.log, TACIT_LOG_INFO,
             "plan: %llu bytes (order %s, packing %s%s; live at most %llu)",
             (unsigned long long)p->plan.arena_bytes, p->plan.best.order, p->plan.best.packing,
             p->plan.best.inplace ? ", in place" : "", (unsigned long long)p->plan.lower_bound);
    return TACIT_OK;
}

static tacit_status build(prog_program *p, tacit_error *err)
{
    TRY(prog_split(p, err));
    TRY(plan_views(p->graph, p->nodes, p->n_nodes, p->updates, &p->memory, &p->views, err));
    TRY(prog_lower(p, err));
    TRY(plan_program(p, err));
    TRY(prog_validate(p, VALIDATE_PLAN, err));
    TRY(prog_resolve(p, err));
    count_weights(p);
    TRY(prog_validate(p, VALIDATE_PROGRAM, err));
    if (p->options.executor == TACIT_EXEC_TASKS)
        TRY(prog_tasks_build(p, err));
    if (!p->options.start_early) {
        prog_packing_finish(p->packing);
        prog_packing_free(p->packing);
        p->packing = NULL;
    }
    return TACIT_OK;
}

void prog_prepare(tacit_executor executor, slab *weights)
{
    if (executor == TACIT_EXEC_TASKS)
        task_prepare();
    if (executor != TACIT_EXEC_REFERENCE)
        slab_find_pages(weights);
}

tacit_status prog_build(ir_graph *g, const prog_options *options, prog_program **out,
                        tacit_error *err)
{
    const tacit_allocator *allocator = alloc_or_default(options->allocator);
    prog_program *p = mem_alloc_zero(allocator, sizeof *p);
    if (!p)
        return error_memory(err, "a program");
    p->allocator = allocator;
    p->graph = g;
    p->options = *options;
    p->cpu = cpu_detect();
    p->cpu.cache_bytes = cpu_cache_bytes();
    p->cpu.core_bytes = cpu_core_bytes();
    arena_init_in(&p->memory, g->memory);
    slab_init(&p->weights, allocator, 0);
    if (options->weights) {
        p->weights = *options->weights;
        slab_init(options->weights, allocator, 0);
        p->options.weights = NULL;
    }
    tacit_status status = build(p, err);
    if (status != TACIT_OK) {
        prog_free(p);
        return status;
    }
    *out = p;
    return TACIT_OK;
}
