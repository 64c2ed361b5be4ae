/* SPDX-License-Identifier: Apache-2.0
 * From thunks and plan to flat arguments with a list of pointers to set. */
#include <string.h>

#include "prog/program.h"

static int64_t view_bytes(const prog_program *p, const ir_value *v)
{
    return p->views[v->id].offset * (int64_t)tacit_dtype_bits(v->type.dtype) / 8;
}

prog_place prog_locate(const prog_program *p, const ir_value *v)
{
    const ir_value *source = plan_source(p->views, v);
    int64_t offset = view_bytes(p, v);
    if (plan_is_constant(source))
        return (prog_place){.kind = PROG_AT_CONSTANT,
                            .constant = source->constant ? source->constant->data : NULL,
                            .offset = offset};
    for (uint32_t i = 0; source->is_input && i < p->graph->inputs.count; i++)
        if (p->graph->inputs.data[i] == source)
            return (prog_place){.kind = PROG_AT_INPUT, .port = i, .offset = offset};
    uint32_t slot = p->plan.slot_of ? p->plan.slot_of[v->id] : PLAN_NO_SLOT;
    if (slot == PLAN_NO_SLOT)
        return (prog_place){.kind = PROG_AT_NOWHERE};
    const plan_slot *s = &p->plan.slots[slot];
    if (s->place == PLAN_OUTPUT)
        return (prog_place){.kind = PROG_AT_OUTPUT, .port = s->output, .offset = offset};
    return (prog_place){.kind = PROG_AT_ARENA, .offset = (int64_t)s->offset + offset};
}

typedef struct resolver {
    prog_program *p;
    VEC(prog_patch) inputs, outputs;
    arena scratch;
    tacit_error *err;
} resolver;

static void set_pointer(unsigned char *args, uint32_t at, const void *pointer)
{
    memcpy(args + at, &pointer, sizeof pointer);
}

static tacit_status patch_value(resolver *r, const ir_node *node, const ir_value *v, uint32_t at,
                                int64_t add)
{
    prog_program *p = r->p;
    if (!v)
        return TACIT_OK; /* absent: the pointer stays NULL */
    const ir_tensor *constant = plan_source(p->views, v)->constant;
    if (ir_tensor_is_late(constant)) { /* whoever packs it must not see it change */
        prog_packing_finish(p->packing);
        TRY(ir_tensor_make(constant, r->err));
    }
    prog_place place = prog_locate(p, v);
    prog_patch patch = {.at = at, .port = place.port, .add = place.offset + add};
    if (ir_shape_size(&v->type.shape) == 0)
        patch.add = 0; /* a view of nothing: its offset may lie behind a buffer that is empty too */
    bool ok = true;
    switch (place.kind) {
    case PROG_AT_CONSTANT:
        if (!place.constant && ir_shape_size(&v->type.shape))
            return error_set(r->err, TACIT_ERR_STATE, "node '%s': weight '%s' has no data",
                             node->name, v->name);
        set_pointer(p->args, at, (const char *)place.constant + patch.add);
        return TACIT_OK;
    case PROG_AT_INPUT:
        patch.base = PROG_INPUT;
        ok = vec_push(&r->scratch, &r->inputs, patch);
        break;
    case PROG_AT_OUTPUT:
        patch.base = PROG_OUTPUT;
        ok = vec_push(&r->scratch, &r->outputs, patch);
        break;
    case PROG_AT_ARENA:
        patch.base = PROG_ARENA;
        ok = vec_push(&p->memory, &p->fixed, patch);
        break;
    case PROG_AT_NOWHERE:
        return error_set(r->err, TACIT_ERR_INTERNAL, "node '%s': value '%s' has no place",
                         node->name, v->name);
    }
    return ok ? TACIT_OK : error_memory(r->err, "a program");
}

static tacit_status patch_bind(resolver *r, const prog_thunk *t, const op_bind *b)
{
    prog_program *p = r->p;
    const ir_node *node = t->made->node;
    uint32_t at = t->args + b->field;
    if (b->kind == OP_BIND_INPUT)
        return patch_value(r, node, node->inputs[b->index], at, b->byte_offset);
    if (b->kind == OP_BIND_OUTPUT)
        return patch_value(r, node, node->outputs[b->index], at, b->byte_offset);
    prog_patch patch = {.at = at, .base = PROG_STATE};
    if (b->kind == OP_BIND_SCRATCH) {
        uint32_t slot = p->plan.scratch_at[t->step];
        if (slot == PLAN_NO_SLOT)
            return error_set(r->err, TACIT_ERR_INTERNAL, "node '%s' has no scratch", node->name);
        patch.base = PROG_ARENA;
        patch.add = (int64_t)p->plan.slots[slot].offset + b->byte_offset;
    }
    return vec_push(&p->memory, &p->fixed, patch) ? TACIT_OK : error_memory(r->err, "a program");
}

/* Counting sort of patches by port. */
static tacit_status group(resolver *r, const prog_patch *all, uint32_t n, uint32_t ports,
                          prog_patch **out, uint32_t **first)
{
    *out = ARENA_ARRAY(&r->p->memory, n + 1u, prog_patch);
    *first = ARENA_ARRAY(&r->p->memory, ports + 2u, uint32_t);
    if (!*out || !*first)
        return error_memory(r->err, "a program");
    for (uint32_t i = 0; i < n; i++)
        (*first)[all[i].port + 2]++;
    for (uint32_t i = 2; i <= ports + 1; i++)
        (*first)[i] += (*first)[i - 1];
    for (uint32_t i = 0; i < n; i++)
        (*out)[(*first)[all[i].port + 1]++] = all[i];
    return TACIT_OK;
}

static tacit_status list_thunks(prog_program *p, tacit_error *err)
{
    uint32_t *position = p->position =
        ARENA_ARRAY(&p->memory, p->graph->nodes.count + 1u, uint32_t);
    p->first_thunk = ARENA_ARRAY(&p->memory, p->plan.n_steps + 1u, uint32_t);
    if (!position || !p->first_thunk)
        return error_memory(err, "a program");
    uint32_t total = 0;
    for (uint32_t i = 0; i < p->n_nodes; i++) {
        position[p->nodes[i]->id] = i;
        total += p->lowered[i].thunks.count;
    }
    p->thunks = ARENA_ARRAY(&p->memory, total + 1u, prog_thunk);
    if (!p->thunks)
        return error_memory(err, "a program");
    for (uint32_t step = 0; step < p->plan.n_steps; step++) {
        const op_lower *c = &p->lowered[position[p->plan.steps[step]->id]];
        p->first_thunk[step] = p->n_thunks;
        for (uint32_t k = 0; k < c->thunks.count; k++) {
            const op_thunk *made = c->thunks.data[k];
            if (made->tiles == 0)
                continue; /* nothing to do: an empty tensor */
            size_t end = align_up(p->args_size, 16) + made->args_size;
            if (end > UINT32_MAX)
                return error_set(err, TACIT_ERR_LIMIT, "thunk arguments exceed 4 GiB");
            p->thunks[p->n_thunks++] = (prog_thunk){.fn = made->fn,
                                                    .args = (uint32_t)align_up(p->args_size, 16),
                                                    .tiles = made->tiles,
                                                    .made = made,
                                                    .step = step};
            p->args_size = end;
        }
    }
    p->first_thunk[p->plan.n_steps] = p->n_thunks;
    return TACIT_OK;
}

tacit_status prog_resolve(prog_program *p, tacit_error *err)
{
    TRY(list_thunks(p, err));
    p->args = arena_alloc_zero(&p->memory, p->args_size + 1);
    if (!p->args)
        return error_memory(err, "a program");
    resolver r = {.p = p, .err = err};
    arena_init(&r.scratch, p->allocator);
    tacit_status status = TACIT_OK;
    for (uint32_t i = 0; status == TACIT_OK && i < p->n_thunks; i++) {
        const prog_thunk *t = &p->thunks[i];
        memcpy(p->args + t->args, t->made->args, t->made->args_size);
        for (uint32_t k = 0; status == TACIT_OK && k < t->made->binds.count; k++)
            status = patch_bind(&r, t, &t->made->binds.data[k]);
    }
    if (status == TACIT_OK)
        status = group(&r, r.inputs.data, r.inputs.count, p->graph->inputs.count, &p->input_patches,
                       &p->input_first);
    if (status == TACIT_OK)
        status = group(&r, r.outputs.data, r.outputs.count, p->graph->outputs.count,
                       &p->output_patches, &p->output_first);
    arena_free(&r.scratch);
    return status == TACIT_OK ? prog_find_handovers(p, err) : status;
}
