/* SPDX-License-Identifier: Apache-2.0 */
#include "prog/validate.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "ir/validate.h"

void validate_find(validate_run *r, validate_severity severity, const char *format, ...)
{
    static const tacit_log_level levels[] = {TACIT_LOG_ERROR, TACIT_LOG_WARNING, TACIT_LOG_INFO};
    char text[700];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    log_line(r->log, levels[severity], "%s: %s", r->check, text);
    bool fails = severity == VALIDATE_ERROR ||
                 (severity == VALIDATE_WARNING && r->mode == TACIT_VALIDATE_STRICT);
    if (!fails || r->status != TACIT_OK)
        return;
    r->status = severity == VALIDATE_WARNING ? TACIT_ERR_UNSUPPORTED : TACIT_ERR_INTERNAL;
    (void)error_set(r->err, r->status, "check '%s': %s", r->check, text);
}

/* A check that could not be made fails the run, whatever the mode. */
static void no_memory(validate_run *r)
{
    if (r->status == TACIT_OK)
        r->status = error_set(r->err, TACIT_ERR_MEMORY, "out of memory: check '%s'", r->check);
}

/* --- checks ----------------------------------------------------------------------------------- */

static void check_structure(validate_run *r)
{
    tacit_error found = {0};
    if (ir_validate(r->graph, &found) != TACIT_OK)
        validate_find(r, VALIDATE_ERROR, "%s", found.message);
}

/* Infers a copy of the graph again from its inputs alone; every type must come out the same. */
static void check_types(validate_run *r)
{
    arena memory;
    arena_init(&memory, r->graph->memory->allocator);
    tacit_error found = {0};
    ir_graph *copy = ir_graph_clone(r->graph, &memory);
    for (uint32_t i = 0; copy && i < copy->values.count; i++)
        if (copy->values.data[i]->producer) {
            copy->values.data[i]->type = (ir_type){.shape.rank = -1};
            copy->values.data[i]->constant = NULL;
        }
    tacit_status status = copy ? op_infer_graph(copy, &found) : TACIT_ERR_MEMORY;
    if (status == TACIT_ERR_MEMORY)
        no_memory(r);
    else if (status != TACIT_OK)
        validate_find(r, VALIDATE_ERROR, "types cannot be inferred again: %s", found.message);
    for (uint32_t i = 0; status == TACIT_OK && i < copy->values.count; i++) {
        const ir_value *was = r->graph->values.data[i], *is = copy->values.data[i];
        char a[IR_SHAPE_TEXT], b[IR_SHAPE_TEXT];
        if (ir_type_is_static(&is->type) && !ir_type_equal(&was->type, &is->type))
            validate_find(r, VALIDATE_ERROR, "value '%s' is %s%s but is inferred as %s%s",
                          was->name, tacit_dtype_text(was->type.dtype),
                          ir_shape_text(&was->type.shape, a), tacit_dtype_text(is->type.dtype),
                          ir_shape_text(&is->type.shape, b));
    }
    arena_free(&memory);
}

static void check_plan(validate_run *r)
{
    tacit_error found = {0};
    tacit_status status = plan_verify(&r->program->problem, &r->program->plan, &found);
    if (status == TACIT_ERR_MEMORY)
        no_memory(r);
    else if (status != TACIT_OK)
        validate_find(r, VALIDATE_ERROR, "%s", found.message);
}

static void check_kernels(validate_run *r)
{
    const prog_program *p = r->program;
    for (uint32_t i = 0; i < p->n_thunks; i++) {
        const op_thunk *t = p->thunks[i].made;
        const ir_value *v = t->node->n_outputs ? t->node->outputs[0] : NULL;
        if (strcmp(t->kernel, "eval") != 0)
            continue;
        validate_find(r, v && v->type.dtype == TACIT_F32 ? VALIDATE_WARNING : VALIDATE_INFO,
                      "node '%s' (%s) has no kernel for %s: its evaluator runs", t->node->name,
                      t->node->type, v ? tacit_dtype_text(v->type.dtype) : "nothing");
    }
    for (uint32_t i = 0; i < p->n_tail; i++)
        validate_find(r, VALIDATE_INFO, "node '%s' (%s) is interpreted: its shapes depend on data",
                      p->tail[i]->name, p->tail[i]->type);
}

/* Bytes behind a patch's base. */
static uint64_t room_of(const prog_program *p, const prog_patch *f)
{
    size_t bytes = 0;
    if (f->base == PROG_ARENA)
        return p->plan.arena_bytes;
    if (f->base == PROG_INPUT)
        (void)ir_type_bytes(&p->graph->inputs.data[f->port]->type, &bytes);
    if (f->base == PROG_OUTPUT)
        (void)ir_type_bytes(&p->graph->outputs.data[f->port]->type, &bytes);
    return bytes;
}

static void check_patches(validate_run *r, const prog_patch *all, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const prog_patch *f = &all[i];
        bool inside = f->add >= 0 && (uint64_t)f->add <= room_of(r->program, f);
        if (f->at + sizeof(void *) > r->program->args_size || !inside)
            validate_find(r, VALIDATE_ERROR, "argument at byte %u points outside its buffer",
                          f->at);
    }
}

static void check_pointers(validate_run *r)
{
    const prog_program *p = r->program;
    check_patches(r, p->fixed.data, p->fixed.count);
    check_patches(r, p->input_patches, p->input_first[p->graph->inputs.count]);
    check_patches(r, p->output_patches, p->output_first[p->graph->outputs.count]);
    for (uint32_t i = 0; i < p->n_thunks; i++)
        for (uint32_t k = 0; k < p->thunks[i].made->binds.count; k++)
            if (p->thunks[i].made->binds.data[k].field + sizeof(void *) >
                p->thunks[i].made->args_size)
                validate_find(r, VALIDATE_ERROR,
                              "thunk %u (%s): a pointer lies outside its "
                              "arguments",
                              i, p->thunks[i].made->kernel);
}

#define AT(phase) (1u << VALIDATE_##phase)
static const validate_def rows[] = {
    {AT(LOADED) | AT(PASSED), "structure", check_structure},
    {AT(PASSED), "types", check_types},
    {AT(PLAN), "memory plan", check_plan},
    {AT(PROGRAM), "kernels", check_kernels},
    {AT(PROGRAM), "arguments", check_pointers},
};

const validate_def *validate_at(uint32_t index)
{
    return index < sizeof rows / sizeof *rows ? &rows[index] : NULL;
}

static tacit_status run_rows(validate_run *r)
{
    const validate_def *row;
    for (uint32_t i = 0; r->mode != TACIT_VALIDATE_NONE && (row = validate_at(i)); i++) {
        if (!(row->phases >> r->phase & 1) || r->status != TACIT_OK)
            continue;
        r->check = row->name;
        row->check(r);
    }
    return r->status;
}

tacit_status validate_graph(const ir_graph *g, validate_phase phase, tacit_validate mode,
                            const tacit_log *log, tacit_error *err)
{
    return run_rows(
        &(validate_run){.graph = g, .phase = phase, .mode = mode, .log = log, .err = err});
}

tacit_status prog_validate(const prog_program *p, validate_phase phase, tacit_error *err)
{
    return run_rows(&(validate_run){.graph = p->graph,
                                    .program = p,
                                    .phase = phase,
                                    .mode = p->options.validate,
                                    .log = p->options.log,
                                    .err = err});
}
