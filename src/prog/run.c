/* SPDX-License-Identifier: Apache-2.0
 * The serial executor and the tail. */
#include <string.h>

#include "op/index.h"
#include "op/loop.h"
#include "prog/eager.h"
#include "prog/program.h"
#include "prog/tasks.h"

static tacit_status report_fault(prog_session *s, uint32_t thunk, tacit_error *err)
{
    const ir_node *node = s->program->thunks[thunk].made->node;
    cpu_fault fault = s->state.fault;
    long long detail = (long long)fault.detail;
    tacit_status status = TACIT_ERR_VALUE;
    switch ((cpu_fault_code)fault.code) {
    case CPU_FAULT_EVAL:
        status = s->state.error.status;
        (void)error_set(err, status, "%s", s->state.error.message);
        break;
    case CPU_FAULT_INDEX:
        (void)op_index_refused(fault.detail, fault.entry, fault.limit, fault.axis, err);
        break;
    case CPU_FAULT_DIVIDE:
        (void)error_set(err, status, "integer division by zero");
        break;
    case CPU_FAULT_PLACE:
        (void)error_set(err, status, "index %lld is outside 0…%lld", detail,
                        (long long)fault.limit - 1);
        break;
    case CPU_FAULT_REGION:
        (void)error_set(err, status, "roi %lld is not usable", detail);
        break;
    default:
        (void)error_set(err, status, "invalid value %lld", detail);
        break;
    }
    return op_context(node, status, err);
}

static tacit_status run_plain(prog_session *s, tacit_error *err)
{
    const prog_call *calls = s->whole;
    for (uint32_t i = 0, n = s->n_whole; i < n; i++) {
        calls[i].fn(calls[i].args, 0, calls[i].tiles);
        if (__builtin_expect(s->state.fault.code != CPU_FAULT_NONE, 0))
            return report_fault(s, calls[i].thunk, err);
    }
    return TACIT_OK;
}

/* While weights are still being packed: each step waits for its own. */
static tacit_status run_beside_packing(prog_session *s, tacit_error *err)
{
    const prog_program *p = s->program;
    for (uint32_t step = 0; step < p->plan.n_steps; step++) {
        prog_packing_need(p->packing, p->position[p->plan.steps[step]->id]);
        for (uint32_t i = p->first_thunk[step]; i < p->first_thunk[step + 1]; i++) {
            s->calls[i].fn(s->calls[i].args, 0, s->calls[i].tiles);
            if (s->state.fault.code != CPU_FAULT_NONE)
                return report_fault(s, i, err);
        }
    }
    prog_packing_finish(p->packing);
    return TACIT_OK;
}

/* Which of several faults was first depends on timing; running again in order says it surely. */
static tacit_status run_tasks(prog_session *s, tacit_error *err)
{
    TRY(prog_tasks_run(s, err));
    if (s->state.fault.code == CPU_FAULT_NONE)
        return TACIT_OK;
    s->state.fault.code = CPU_FAULT_NONE;
    return run_plain(s, err);
}

static void *place_pointer(const prog_session *s, const ir_value *v)
{
    prog_place at = prog_locate(s->program, v);
    const void *base = at.kind == PROG_AT_CONSTANT ? at.constant
                       : at.kind == PROG_AT_INPUT  ? s->inputs[at.port]
                       : at.kind == PROG_AT_OUTPUT ? s->outputs[at.port]
                       : at.kind == PROG_AT_ARENA  ? s->arena
                                                   : NULL;
    return base ? (char *)base + at.offset : NULL;
}

/* Shows every output of a step's node; strided views as dense copies. */
static tacit_status show(prog_session *s, const ir_node *node, tacit_error *err)
{
    for (uint32_t i = 0; i < node->n_outputs; i++) {
        const ir_value *v = node->outputs[i];
        if (!v || plan_is_constant(v))
            continue;
        const plan_view *view = &s->program->views[v->id];
        ir_tensor t = ir_tensor_view(v->type.dtype, &v->type.shape, place_pointer(s, v));
        arena copies;
        arena_init(&copies, s->program->allocator);
        if (!view->dense) {
            ir_tensor *dense = ir_tensor_new(&copies, t.dtype, &t.shape);
            if (!dense)
                return error_memory(err, "watching a value");
            op_loop l;
            op_loop_begin(&l, &t.shape);
            op_loop_strided(&l, view->strides, 0);
            for (; !op_loop_done(&l); op_loop_next(&l))
                ir_copy_element(t.dtype, dense->data, l.linear, t.data, l.at[0]);
            t = *dense;
        }
        s->watch(s->watch_context, node, v, &t);
        arena_free(&copies);
    }
    return TACIT_OK;
}

/* The slow loop: times thunks, shows values. */
static tacit_status run_observed(prog_session *s, tacit_error *err)
{
    const prog_program *p = s->program;
    for (uint32_t step = 0; step < p->plan.n_steps; step++) {
        for (uint32_t i = p->first_thunk[step]; i < p->first_thunk[step + 1]; i++) {
            uint64_t start = s->profiling ? clock_ns() : 0;
            s->calls[i].fn(s->calls[i].args, 0, s->calls[i].tiles);
            if (s->profiling) {
                s->profile[i].nanoseconds += clock_ns() - start;
                s->profile[i].calls++;
            }
            if (s->state.fault.code != CPU_FAULT_NONE)
                return report_fault(s, i, err);
        }
        if (s->watch)
            TRY(show(s, p->plan.steps[step], err));
    }
    return TACIT_OK;
}

typedef struct tail_watch {
    prog_session *s;
    uint32_t next; /* tail node whose turn it is */
    uint64_t start;
} tail_watch;

static void watch_tail(void *context, const ir_node *node, const ir_value *value,
                       const ir_tensor *tensor)
{
    tail_watch *w = context;
    if (w->s->watch)
        w->s->watch(w->s->watch_context, node, value, tensor);
}

/* Before every node: the moment to take the time of the one before. */
static void time_tail(void *context)
{
    tail_watch *w = context;
    uint64_t now = clock_ns();
    if (w->next) {
        prog_profile *row = &w->s->profile[w->s->program->n_thunks + w->next - 1];
        row->nanoseconds += now - w->start;
        row->calls++;
    }
    w->next++;
    w->start = now;
}

static const ir_tensor **gather_tail(prog_session *s)
{
    const prog_program *p = s->program;
    const ir_tensor **given =
        ARENA_ARRAY(&s->tail_memory, p->graph->values.count + 1u, const ir_tensor *);
    for (uint32_t i = 0; given && i < p->n_tail_given; i++) {
        const ir_value *v = p->tail_given[i];
        ir_tensor *t = &s->tail_given[i];
        if (!v->is_input) {
            *t = ir_tensor_view(v->type.dtype, &v->type.shape, place_pointer(s, v));
            given[v->id] = t;
        }
        for (uint32_t k = 0; v->is_input && k < p->graph->inputs.count; k++)
            if (p->graph->inputs.data[k] == v && s->input_set[k])
                given[v->id] = &s->given_inputs[k];
    }
    return given;
}

static tacit_status run_tail(prog_session *s, tacit_error *err)
{
    const prog_program *p = s->program;
    const ir_tensor **given = gather_tail(s);
    ir_tensor *results = ARENA_ARRAY(&s->tail_memory, p->n_tail_wanted + 1u, ir_tensor);
    if (!given || !results)
        return error_memory(err, "the program's tail");
    if (!s->eager && p->options.executor != TACIT_EXEC_REFERENCE)
        s->eager = eager_open(&p->options, EAGER_WORTH);
    tail_watch w = {.s = s};
    interp_env env = {
        .step = s->state.step, .watch = watch_tail, .watch_context = &w, .eager = s->eager};
    if (s->profiling)
        env.begin = time_tail;
    interp_part part = {.graph = p->graph,
                        .nodes = p->tail,
                        .n_nodes = p->n_tail,
                        .given = given,
                        .wanted = p->tail_wanted,
                        .n_wanted = p->n_tail_wanted};
    TRY(interp_run_part(&part, results, &s->tail_memory, &env, err));
    if (s->profiling && p->n_tail)
        time_tail(&w);
    for (uint32_t i = 0, k = 0; i < p->graph->outputs.count; i++)
        if (p->output_in_tail[i])
            s->results[i] = results[k++];
    return TACIT_OK;
}

tacit_status prog_run(prog_session *s, tacit_error *err)
{
    const prog_program *p = s->program;
    s->state.fault.code = CPU_FAULT_NONE;
    bool has_tail = p->n_tail || p->n_tail_wanted;
    if (has_tail)
        arena_free(&s->tail_memory);
    bool observed = s->profiling || s->watch, packing = prog_packing_goes_on(p->packing);
    if (packing && (observed || s->task_run))
        prog_packing_finish(p->packing);
    tacit_status status = observed      ? run_observed(s, err)
                          : s->task_run ? run_tasks(s, err)
                          : packing     ? run_beside_packing(s, err)
                                        : run_plain(s, err);
    if (status == TACIT_OK && has_tail)
        status = run_tail(s, err);
    s->state.step++;
    return status;
}

tacit_status prog_run_values(prog_session *s, const ir_tensor *const *inputs, ir_tensor *outputs,
                             arena *memory, tacit_error *err)
{
    const prog_program *p = s->program;
    for (uint32_t i = 0; i < p->graph->inputs.count; i++) {
        const ir_value *v = p->graph->inputs.data[i];
        const ir_tensor *t = inputs[i] ? inputs[i] : ir_value_data(v);
        if (!t)
            return error_set(err, TACIT_ERR_ARGUMENT, "input '%s' is missing", v->name);
        TRY(prog_check_input(p, i, t, err));
        prog_set_input(s, i, t);
    }
    for (uint32_t i = 0; i < p->graph->outputs.count; i++)
        if (!p->output_in_tail[i])
            TRY(prog_set_output(s, i, NULL, err));
    TRY(prog_run(s, err));
    for (uint32_t i = 0; i < p->graph->outputs.count; i++) {
        const ir_tensor *copy = ir_tensor_copy(memory, &s->results[i]);
        if (!copy)
            return error_memory(err, "an output");
        outputs[i] = *copy;
    }
    return TACIT_OK;
}
