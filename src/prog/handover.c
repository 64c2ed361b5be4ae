/* SPDX-License-Identifier: Apache-2.0
 * Thunks that run whole, one behind the other on one thread, and what one of them hands over to the
 * next (op/handover.h). Watched and timed runs, and tasks, run every thunk as it is. */
#include "prog/program.h"

/* Thunk i and the next are all there is of their nodes' work on a value between them. */
static bool is_between(const prog_program *p, uint32_t i, const ir_value **between)
{
    const prog_thunk *first = &p->thunks[i], *second = first + 1;
    const ir_node *a = first->made->node, *b = second->made->node;
    if (first->step == second->step || p->first_thunk[second->step] != i + 1)
        return false;
    *between = a->outputs[0];
    return a->n_outputs > 0 && b->n_inputs > 0 && *between && b->inputs[0] == *between;
}

tacit_status prog_find_handovers(prog_program *p, tacit_error *err)
{
    ir_uses uses = {0};
    arena scratch;
    arena_init(&scratch, p->allocator);
    tacit_status status = TACIT_OK;
    for (uint32_t i = 0; status == TACIT_OK && i + 1 < p->n_thunks; i++) {
        const ir_value *between;
        op_handover what = op_handover_find(p->thunks[i].made, p->thunks[i + 1].made);
        if (what == OP_HANDS_NOTHING || !is_between(p, i, &between))
            continue;
        if (!uses.all)
            status = ir_uses_build(p->graph, &scratch, &uses, err);
        if (status == TACIT_OK && !p->handed) {
            p->handed = ARENA_ARRAY(&p->memory, p->n_thunks, op_handover);
            status = p->handed ? TACIT_OK : error_memory(err, "a program");
        }
        if (status == TACIT_OK && ir_use_count(&uses, between) == 1)
            p->handed[i] = what;
    }
    arena_free(&scratch);
    return status;
}

static op_handover handed(const prog_program *p, uint32_t thunk)
{
    return p->handed ? p->handed[thunk] : OP_HANDS_NOTHING;
}

/* The call of a thunk to which the one before hands something over, or that does so itself, to
 * *call. */
static tacit_status call_handed(prog_session *s, uint32_t i, prog_call *call, tacit_error *err)
{
    op_handover before = i ? handed(s->program, i - 1) : OP_HANDS_NOTHING;
    bool leaves = handed(s->program, i) == OP_HANDS_ACTIVATION;
    *call = s->calls[i];
    if (before == OP_HANDS_NOTHING && !leaves)
        return TACIT_OK;
    call->fn = op_handover_kernel();
    call->args = op_handover_args(&s->memory, call->args, before,
                                  before == OP_HANDS_NOTHING ? NULL : s->calls[i - 1].args, leaves);
    return call->args ? TACIT_OK : error_memory(err, "a session");
}

tacit_status prog_hand_over(prog_session *s, tacit_error *err)
{
    const prog_program *p = s->program;
    s->whole = s->calls;
    s->n_whole = p->n_thunks;
    if (!p->handed)
        return TACIT_OK;
    s->whole = ARENA_ARRAY(&s->memory, p->n_thunks, prog_call);
    if (!s->whole)
        return error_memory(err, "a session");
    s->n_whole = 0;
    for (uint32_t i = 0; i < p->n_thunks; i++)
        if (handed(p, i) != OP_HANDS_ROWS)
            TRY(call_handed(s, i, &s->whole[s->n_whole++], err));
    return TACIT_OK;
}
