/* SPDX-License-Identifier: Apache-2.0
 * Products of few rows take over what makes their left side (cpu/paired.h). */
#include "op/handover.h"

#include <stddef.h>

#include "cpu/paired.h"
#include "cpu/rows.h"

const void *op_handover_args(arena *memory, const void *own, op_handover what, const void *before,
                             bool leaves)
{
    cpu_paired_handed_args a = {.product = own,
                                .norm = what == OP_HANDS_ROWS ? before : NULL,
                                .before = what == OP_HANDS_ACTIVATION ? before : NULL,
                                .leaves = leaves};
    return arena_copy(memory, &a, sizeof a);
}

#if defined(__x86_64__)
/* Rows that are scaled whole, in one tall register tile. */
static bool scales_whole_rows(const cpu_paired_args *p)
{
    return p->terms != CPU_TERMS_PLAIN && cpu_paired_is_tall(p->m, p->n, p->k) && p->kc == p->k &&
           p->row_blocks == 1 && p->a_col == 1 && p->a_row == p->k && p->a_run == CPU_PAIRED_RUN;
}

static bool hands_rows(const cpu_norm_args *n, const cpu_paired_args *p)
{
    return n->rows == p->m && n->tile_rows == n->rows && n->length == p->k &&
           p->k % (2 * CPU_PAIRED_RUN) == 0;
}

static bool has_residual(const op_thunk *t)
{
    for (uint32_t i = 0; i < t->binds.count; i++)
        if (t->binds.data[i].field == offsetof(cpu_paired_args, residual))
            return true;
    return false;
}

/* GELU with tanh and nothing else behind the sum. */
static bool hands_activation(const cpu_paired_args *first, const cpu_paired_args *p)
{
    const cpu_epilogue *e = &first->epilogue;
    return e->act == CPU_ACT_GELU_TANH && e->alpha == 1.0f && e->bias != CPU_BIAS_ROW &&
           first->m == p->m && first->n == p->k && first->c_row == p->a_row &&
           p->k % (4 * CPU_PAIRED_RUN) == 0;
}

op_handover op_handover_find(const op_thunk *first, const op_thunk *second)
{
    if (second->fn != cpu_paired_f32_avx512 || !scales_whole_rows(second->args))
        return OP_HANDS_NOTHING;
    if (first->fn == cpu_norm_f32_avx512 && hands_rows(first->args, second->args))
        return OP_HANDS_ROWS;
    if (first->fn == cpu_paired_f32_avx512 && !has_residual(first) &&
        hands_activation(first->args, second->args))
        return OP_HANDS_ACTIVATION;
    return OP_HANDS_NOTHING;
}

cpu_kernel op_handover_kernel(void)
{
    return cpu_paired_handed_f32_avx512;
}
#else
op_handover op_handover_find(const op_thunk *first, const op_thunk *second)
{
    (void)first;
    (void)second;
    return OP_HANDS_NOTHING;
}

cpu_kernel op_handover_kernel(void)
{
    return NULL;
}
#endif
