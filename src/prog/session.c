/* SPDX-License-Identifier: Apache-2.0
 * Sessions: one caller's copy of the arguments, its arena, and what is patched between runs. */
#include <string.h>

#include "prog/eager.h"
#include "prog/program.h"
#include "prog/tasks.h"

static void set_pointer(unsigned char *args, uint32_t at, void *pointer)
{
    memcpy(args + at, &pointer, sizeof pointer);
}

static tacit_status make_tables(prog_session *s, tacit_error *err)
{
    const prog_program *p = s->program;
    uint32_t n_in = p->graph->inputs.count, n_out = p->graph->outputs.count;
    s->args = arena_alloc_aligned(&s->memory, p->args_size + 1, MEM_ALIGN);
    s->calls = ARENA_ARRAY(&s->memory, p->n_thunks + 1u, prog_call);
    s->inputs = ARENA_ARRAY(&s->memory, n_in + 1u, void *);
    s->outputs = ARENA_ARRAY(&s->memory, n_out + 1u, void *);
    s->given_inputs = ARENA_ARRAY(&s->memory, n_in + 1u, ir_tensor);
    s->input_set = ARENA_ARRAY(&s->memory, n_in + 1u, bool);
    s->own_outputs = ARENA_ARRAY(&s->memory, n_out + 1u, void *);
    s->results = ARENA_ARRAY(&s->memory, n_out + 1u, ir_tensor);
    s->tail_given = ARENA_ARRAY(&s->memory, p->n_tail_given + 1u, ir_tensor);
    if (!s->args || !s->calls || !s->inputs || !s->outputs || !s->given_inputs || !s->input_set ||
        !s->own_outputs || !s->results || !s->tail_given)
        return error_memory(err, "a session");
    memcpy(s->args, p->args, p->args_size);
    for (uint32_t i = 0; i < p->n_thunks; i++)
        s->calls[i] =
            (prog_call){p->thunks[i].fn, s->args + p->thunks[i].args, p->thunks[i].tiles, i};
    for (uint32_t i = 0; i < n_out; i++) {
        const ir_type *type = &p->graph->outputs.data[i]->type;
        if (!p->output_in_tail[i])
            s->results[i] = ir_tensor_view(type->dtype, &type->shape, NULL);
    }
    return prog_hand_over(s, err);
}

static tacit_status place_arena(prog_session *s, tacit_error *err)
{
    const prog_program *p = s->program;
    s->arena = mem_alloc(p->allocator, p->plan.arena_bytes);
    if (!s->arena)
        return error_set(err, TACIT_ERR_MEMORY, "out of memory: an arena of %llu bytes",
                         (unsigned long long)p->plan.arena_bytes);
    if (!p->tasks && prog_packing_goes_on(p->packing)) /* tasks run when all is packed */
        prog_packing_touch(p->packing, s->arena, p->plan.arena_bytes);
    for (uint32_t i = 0; i < p->fixed.count; i++) {
        const prog_patch *f = &p->fixed.data[i];
        set_pointer(s->args, f->at,
                    f->base == PROG_ARENA ? (void *)(s->arena + f->add) : (void *)&s->state);
    }
    return TACIT_OK;
}

tacit_status prog_session_create(const prog_program *program, prog_session **out, tacit_error *err)
{
    prog_session *s = mem_alloc_zero(program->allocator, sizeof *s);
    if (!s)
        return error_memory(err, "a session");
    s->program = program;
    s->state.allocator = program->allocator;
    arena_init(&s->memory, program->allocator);
    arena_init(&s->tail_memory, program->allocator);
    tacit_status status = make_tables(s, err);
    if (status == TACIT_OK)
        status = place_arena(s, err);
    if (status == TACIT_OK && program->tasks)
        status = prog_tasks_open(s, err);
    if (status != TACIT_OK) {
        prog_session_free(s);
        return status;
    }
    *out = s;
    return TACIT_OK;
}

void prog_session_free(prog_session *s)
{
    if (!s)
        return;
    const prog_program *p = s->program;
    if (s->task_run)
        prog_tasks_close(s);
    for (uint32_t i = 0; s->own_outputs && i < p->graph->outputs.count; i++)
        mem_release(p->allocator, s->own_outputs[i], s->results[i].bytes);
    if (prog_packing_goes_on(p->packing))
        prog_packing_forget(p->packing);
    mem_release(p->allocator, s->arena, p->plan.arena_bytes);
    eager_free(s->eager);
    arena_free(&s->tail_memory);
    arena_free(&s->memory);
    mem_release(p->allocator, s, sizeof *s);
}

tacit_status prog_check_input(const prog_program *p, uint32_t i, const ir_tensor *t,
                              tacit_error *err)
{
    const ir_value *v = p->graph->inputs.data[i];
    char want[IR_SHAPE_TEXT], got[IR_SHAPE_TEXT];
    if (t->kind != v->type.kind && v->type.dtype != TACIT_DTYPE_NONE)
        return error_set(err, TACIT_ERR_TYPE, "input '%s': a value of another kind was given",
                         v->name);
    /* An empty sequence or optional need not know of what. */
    bool untyped = t->kind != IR_TENSOR && t->dtype == TACIT_DTYPE_NONE && !t->count && !t->data;
    if (v->type.dtype != TACIT_DTYPE_NONE && t->dtype != v->type.dtype && !untyped)
        return error_set(err, TACIT_ERR_TYPE, "input '%s' is %s, but %s was given", v->name,
                         tacit_dtype_text(v->type.dtype), tacit_dtype_text(t->dtype));
    if (t->kind != IR_TENSOR || v->type.shape.rank < 0)
        return TACIT_OK;
    bool fits = t->shape.rank == v->type.shape.rank;
    for (int32_t d = 0; fits && d < t->shape.rank; d++)
        fits = v->type.shape.dims[d] < 0 || v->type.shape.dims[d] == t->shape.dims[d];
    if (!fits)
        return error_set(err, TACIT_ERR_SHAPE, "input '%s' has shape %s, but %s was given", v->name,
                         ir_shape_text(&v->type.shape, want), ir_shape_text(&t->shape, got));
    return TACIT_OK;
}

void prog_set_input(prog_session *s, uint32_t i, const ir_tensor *t)
{
    const prog_program *p = s->program;
    s->given_inputs[i] = *t;
    s->input_set[i] = true;
    if (s->inputs[i] == t->data)
        return;
    s->inputs[i] = t->data;
    for (uint32_t k = p->input_first[i]; k < p->input_first[i + 1]; k++)
        set_pointer(s->args, p->input_patches[k].at, (char *)t->data + p->input_patches[k].add);
}

tacit_status prog_set_output(prog_session *s, uint32_t i, void *data, tacit_error *err)
{
    const prog_program *p = s->program;
    if (!data && !s->own_outputs[i])
        s->own_outputs[i] = mem_alloc(p->allocator, s->results[i].bytes);
    if (!data)
        data = s->own_outputs[i];
    if (!data)
        return error_memory(err, "an output");
    if (s->outputs[i] == data)
        return TACIT_OK;
    s->outputs[i] = data;
    s->results[i].data = data;
    for (uint32_t k = p->output_first[i]; k < p->output_first[i + 1]; k++)
        set_pointer(s->args, p->output_patches[k].at, (char *)data + p->output_patches[k].add);
    return TACIT_OK;
}
