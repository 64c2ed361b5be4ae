/* SPDX-License-Identifier: Apache-2.0
 * Sessions: the caller's tensors to and from the program. */
#include <string.h>

#include "api/internal.h"

tacit_status tacit_session_create(const tacit_program *program, tacit_session **out,
                                  tacit_error *err)
{
    if (!program || !out)
        return error_set(err, TACIT_ERR_ARGUMENT,
                         "tacit_session_create: program and out must not be NULL");
    *out = NULL;
    const tacit_allocator *allocator = &program->model->allocator;
    tacit_session *s = mem_alloc_zero(allocator, sizeof *s);
    if (!s)
        return error_memory(err, "a session");
    s->program = program;
    arena_init(&s->lent, allocator);
    api_program_retain(program);
    tacit_status status = prog_session_create(program->prog, &s->run, err);
    if (status == TACIT_OK) {
        const ir_graph *g = program->graph;
        s->seen = ARENA_ARRAY(&s->run->memory, g->inputs.count + 1u, uint64_t);
        s->seen_output = ARENA_ARRAY(&s->run->memory, g->outputs.count + 1u, uint64_t);
        s->lent_data = ARENA_ARRAY(&s->run->memory, g->outputs.count + 1u, const void *);
        status =
            s->seen && s->seen_output && s->lent_data ? TACIT_OK : error_memory(err, "a session");
    }
    if (status == TACIT_OK)
        status = api_cache_create(s, err);
    if (status != TACIT_OK) {
        tacit_session_free(s);
        return status;
    }
    *out = s;
    return TACIT_OK;
}

void tacit_session_free(tacit_session *session)
{
    if (!session)
        return;
    const tacit_program *program = session->program;
    prog_session_free(session->run);
    arena_free(&session->lent);
    mem_release(&program->model->allocator, session, sizeof *session);
    api_program_release(program);
}

prog_session *api_session_run(tacit_session *session)
{
    return session->run;
}

/* --- inputs ----------------------------------------------------------------------------------- */

static tacit_status unknown_name(const tacit_session *s, const char *kind, const char *name,
                                 tacit_error *err)
{
    const ir_graph *g = s->program->graph;
    bool input = kind[0] == 'i';
    sbuf list;
    sbuf_init(&list, NULL);
    uint32_t n = input ? g->inputs.count - s->program->hidden_inputs : g->outputs.count;
    for (uint32_t i = 0; i < n && i < 16; i++)
        sbuf_printf(&list, "%s'%s'", i ? ", " : "",
                    input ? g->inputs.data[i]->name : s->program->prog->output_names[i]);
    tacit_status status =
        error_set(err, TACIT_ERR_ARGUMENT, "there is no %s named '%s'; the model has %s%s", kind,
                  name, n ? sbuf_str(&list) : "none", n > 16 ? ", …" : "");
    sbuf_free(&list);
    return status;
}

static tacit_status find_input(const tacit_session *s, const tacit_tensor *t, uint32_t position,
                               uint32_t *out, tacit_error *err)
{
    const ir_graph *g = s->program->graph;
    uint32_t n = g->inputs.count - s->program->hidden_inputs;
    if (!t->name) {
        *out = position;
        return position < n ? TACIT_OK
                            : error_set(err, TACIT_ERR_ARGUMENT, "the model has only %u inputs", n);
    }
    if (position < n && strcmp(g->inputs.data[position]->name, t->name) == 0) {
        *out = position; /* most callers keep the model's order */
        return TACIT_OK;
    }
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(g->inputs.data[i]->name, t->name) == 0) {
            *out = i;
            return TACIT_OK;
        }
    return unknown_name(s, "input", t->name, err);
}

/* Is it what input `i` was given last? Then it has been checked, and pointers to it are set. */
static bool is_as_before(const tacit_session *s, uint32_t i, const tacit_tensor *t)
{
    const ir_tensor *last = &s->run->given_inputs[i];
    return s->run->input_set[i] && last->kind == IR_TENSOR && t->kind == TACIT_KIND_TENSOR &&
           t->data && t->data == last->data && t->dtype == last->dtype && t->bytes >= last->bytes &&
           t->rank == last->shape.rank &&
           memcmp(t->dims, last->shape.dims, (size_t)t->rank * sizeof *t->dims) == 0;
}

static tacit_status set_input(tacit_session *s, const tacit_tensor *t, uint32_t position,
                              tacit_error *err)
{
    uint32_t i = 0;
    TRY(find_input(s, t, position, &i, err));
    const char *name = s->program->graph->inputs.data[i]->name;
    if (s->seen[i] == s->runs)
        return error_set(err, TACIT_ERR_ARGUMENT, "input '%s' is given twice", name);
    if (is_as_before(s, i, t)) {
        s->seen[i] = s->runs;
        return TACIT_OK;
    }
    ir_tensor tensor;
    ir_kind kind = s->program->graph->inputs.data[i]->type.kind;
    TRY(api_value_in(t, kind, name, &s->lent, &tensor, err));
    TRY(prog_check_input(s->program->prog, i, &tensor, err));
    prog_set_input(s->run, i, &tensor);
    s->seen[i] = s->runs;
    return TACIT_OK;
}

static tacit_status set_inputs(tacit_session *s, const tacit_tensor *inputs, uint32_t n,
                               tacit_error *err)
{
    const ir_graph *g = s->program->graph;
    for (uint32_t i = 0; i < n; i++)
        TRY(set_input(s, &inputs[i], i, err));
    for (uint32_t i = 0; i < g->inputs.count - s->program->hidden_inputs; i++) {
        const ir_value *v = g->inputs.data[i];
        if (s->seen[i] == s->runs)
            continue;
        if (!ir_value_data(v))
            return error_set(err, TACIT_ERR_ARGUMENT, "input '%s' is missing", v->name);
        prog_set_input(s->run, i, ir_value_data(v));
    }
    return TACIT_OK;
}

/* --- outputs ---------------------------------------------------------------------------------- */

static tacit_status find_output(const tacit_session *s, const tacit_tensor *t, uint32_t position,
                                uint32_t *out, tacit_error *err)
{
    const ir_graph *g = s->program->graph;
    for (uint32_t i = 0; t->name && i < g->outputs.count; i++)
        if (strcmp(s->program->prog->output_names[i], t->name) == 0) {
            *out = i;
            return TACIT_OK;
        }
    if (t->name)
        return unknown_name(s, "output", t->name, err);
    *out = position;
    return position < g->outputs.count
               ? TACIT_OK
               : error_set(err, TACIT_ERR_ARGUMENT, "the model has only %u outputs",
                           g->outputs.count);
}

/* May output `o` lie exactly where input `i` lies? Results of the tail are copied at the end. */
static bool may_update(const prog_program *p, uint32_t o, uint32_t i)
{
    return p->updates && p->updates[o] == p->graph->inputs.data[i];
}

/* Caller buffers the program reads must not be ones it writes. */
static tacit_status check_overlap(const tacit_session *s, uint32_t output, const void *data,
                                  size_t bytes, tacit_error *err)
{
    const ir_graph *g = s->program->graph;
    const char *name = s->program->prog->output_names[output];
    uintptr_t begin = (uintptr_t)data, end = begin + bytes;
    for (uint32_t i = 0; i < g->inputs.count; i++) {
        const ir_tensor *t = &s->run->given_inputs[i];
        uintptr_t low = (uintptr_t)t->data, high = low + t->bytes;
        bool same = low == begin && may_update(s->program->prog, output, i);
        if (t->data && low < end && begin < high && !same)
            return error_set(err, TACIT_ERR_ARGUMENT,
                             "output '%s' and input '%s' overlap in memory", name,
                             g->inputs.data[i]->name);
    }
    return TACIT_OK;
}

/* What the last run lent may be given again: it is not the caller's to be written to. */
static tacit_status set_output(tacit_session *s, tacit_tensor *t, uint32_t position,
                               tacit_error *err)
{
    uint32_t i = 0;
    TRY(find_output(s, t, position, &i, err));
    const prog_program *p = s->program->prog;
    if (t->data == s->lent_data[i])
        t->data = NULL;
    if (p->output_in_tail[i])
        return TACIT_OK;
    const ir_type *type = &p->graph->outputs.data[i]->type;
    const char *name = p->output_names[i];
    size_t bytes = 0;
    if (s->seen_output[i] == s->runs)
        return error_set(err, TACIT_ERR_ARGUMENT, "output '%s' is given twice", name);
    s->seen_output[i] = s->runs;
    (void)ir_type_bytes(type, &bytes);
    if (!t->data)
        return prog_set_output(s->run, i, NULL, err);
    ir_shape shape = {.rank = t->rank};
    if (t->rank >= 0 && t->rank <= TACIT_MAX_RANK)
        memcpy(shape.dims, t->dims, (size_t)t->rank * sizeof *t->dims);
    char want[IR_SHAPE_TEXT], got[IR_SHAPE_TEXT];
    if (t->dtype != type->dtype)
        return error_set(err, TACIT_ERR_TYPE, "output '%s' is %s, but a buffer of %s was given",
                         name, tacit_dtype_text(type->dtype), tacit_dtype_text(t->dtype));
    if (!ir_shape_equal(&shape, &type->shape))
        return error_set(err, TACIT_ERR_SHAPE,
                         "output '%s' has shape %s, but a buffer of %s was given", name,
                         ir_shape_text(&type->shape, want), ir_shape_text(&shape, got));
    if (t->bytes < bytes)
        return error_set(err, TACIT_ERR_ARGUMENT, "output '%s' needs %zu bytes, but %zu are given",
                         name, bytes, t->bytes);
    TRY(check_overlap(s, i, t->data, bytes, err));
    return prog_set_output(s->run, i, t->data, err);
}

/* Buffers of earlier runs are the caller's again: an output not named now goes to the session's. */
static tacit_status set_outputs(tacit_session *s, tacit_tensor *outputs, uint32_t n,
                                tacit_error *err)
{
    const prog_program *p = s->program->prog;
    for (uint32_t i = 0; i < n; i++)
        TRY(set_output(s, &outputs[i], i, err));
    for (uint32_t i = 0; i < p->graph->outputs.count; i++) {
        s->lent_data[i] = NULL;
        if (!p->output_in_tail[i] && s->seen_output[i] != s->runs)
            TRY(prog_set_output(s->run, i, NULL, err));
    }
    return TACIT_OK;
}

/* Tells the caller what came out; results of the tail are copied or lent. */
static tacit_status give_output(tacit_session *s, tacit_tensor *t, uint32_t position,
                                tacit_error *err)
{
    uint32_t i = 0;
    TRY(find_output(s, t, position, &i, err));
    const ir_tensor *r = &s->run->results[i];
    const char *name = s->program->prog->output_names[i];
    if (r->kind != IR_TENSOR)
        return api_value_out(r, &s->lent, t, err);
    bool tail = s->program->prog->output_in_tail[i];
    if (tail && t->data && t->bytes < r->bytes)
        return error_set(err, TACIT_ERR_ARGUMENT, "output '%s' needs %zu bytes, but %zu are given",
                         name, r->bytes, t->bytes);
    if (tail && t->data && r->bytes)
        memcpy(t->data, r->data, r->bytes);
    if (!t->data) {
        s->lent_data[i] = t->data = r->data;
        t->bytes = r->bytes;
    }
    t->dtype = r->dtype;
    t->rank = r->shape.rank;
    memcpy(t->dims, r->shape.dims, (size_t)r->shape.rank * sizeof *t->dims);
    return TACIT_OK;
}

tacit_status tacit_run(tacit_session *session, const tacit_tensor *inputs, uint32_t n_inputs,
                       tacit_tensor *outputs, uint32_t n_outputs, tacit_error *err)
{
    if (!session || (n_inputs && !inputs) || (n_outputs && !outputs))
        return error_set(err, TACIT_ERR_ARGUMENT, "tacit_run: a required argument is NULL");
    session->runs++;
    arena_free(&session->lent);
    TRY(set_inputs(session, inputs, n_inputs, err));
    TRY(set_outputs(session, outputs, n_outputs, err));
    TRY(api_cache_room(session, err));
    TRY(prog_run(session->run, err));
    session->cache_length += session->program->cache_step;
    for (uint32_t i = 0; i < n_outputs; i++)
        TRY(give_output(session, &outputs[i], i, err));
    return TACIT_OK;
}

/* --- looking on ------------------------------------------------------------------------------- */

void tacit_session_profile(tacit_session *session, int on)
{
    prog_session *s = session->run;
    size_t rows = (size_t)s->program->n_thunks + s->program->n_tail;
    if (on && !s->profile)
        s->profile = ARENA_ARRAY(&s->memory, rows + 1u, prog_profile);
    if (on && s->profile)
        memset(s->profile, 0, rows * sizeof *s->profile);
    s->profiling = on && s->profile;
}

uint32_t tacit_session_profile_count(const tacit_session *session)
{
    const prog_session *s = session->run;
    return s->profile ? s->program->n_thunks + s->program->n_tail : 0;
}

tacit_status tacit_session_profile_row(const tacit_session *session, uint32_t index,
                                       tacit_profile_row *out)
{
    const prog_session *s = session->run;
    if (index >= tacit_session_profile_count(session))
        return TACIT_ERR_ARGUMENT;
    const prog_program *p = s->program;
    bool tail = index >= p->n_thunks;
    const op_thunk *made = tail ? NULL : p->thunks[index].made;
    const ir_node *node = tail ? p->tail[index - p->n_thunks] : made->node;
    *out = (tacit_profile_row){.node = node->name,
                               .op = node->type,
                               .kernel = tail ? "interpreter" : made->kernel,
                               .calls = s->profile[index].calls,
                               .nanoseconds = s->profile[index].nanoseconds,
                               .bytes = tail ? 0 : made->bytes,
                               .flops = tail ? 0 : made->flops};
    return TACIT_OK;
}

static void forward_watch(void *context, const ir_node *node, const ir_value *value,
                          const ir_tensor *tensor)
{
    tacit_session *s = context;
    if (tensor->kind != IR_TENSOR)
        return;
    tacit_tensor t = {.name = value->name,
                      .dtype = tensor->dtype,
                      .rank = tensor->shape.rank,
                      .data = tensor->data,
                      .bytes = tensor->bytes};
    memcpy(t.dims, tensor->shape.dims, (size_t)t.rank * sizeof *t.dims);
    s->watch(s->watch_context, node->name, node->type, value->name, &t);
}

void tacit_session_watch(tacit_session *session, tacit_watch watch, void *context)
{
    session->watch = watch;
    session->watch_context = context;
    session->run->watch = watch ? forward_watch : NULL;
    session->run->watch_context = session;
}
