/* SPDX-License-Identifier: Apache-2.0
 * Weights that a graph reads where they lie in a mapped file, but should not, are copied.
 *
 * Small ones of a large file: a page touched would bring two megabytes around it into the resident
 * set where the system keeps the file in huge ones. So have passes, and headers between weights:
 * all pages go once, before anything is packed; a small file may stay.
 *
 * Halves that lie across their own size: writers of ONNX files put them at any address. What is
 * made of them late (ir/recipe.h) and rows of tables are read byte by byte; all other readers want
 * whole elements. */
#include <string.h>

#include "api/internal.h"
#include "op/op.h"

enum { SMALL = 64 << 10 };

typedef struct moved {
    const ir_tensor *from, *to;
} moved;

typedef struct settling {
    const tacit_model *model;
    arena *memory; /* the graph's */
    const op_def *gather;
    VEC(moved) done; /* a large weight that several graphs read is copied once */
    tacit_error *err;
} settling;

static bool lies_across(const ir_tensor *t)
{
    return (t->dtype == TACIT_F16 || t->dtype == TACIT_BF16) && (uintptr_t)t->data % 2 != 0;
}

static bool is_small_part(const settling *s, const ir_tensor *t)
{
    return t->bytes <= SMALL && api_model_mapped(s->model, t->data, t->bytes) >= FILE_SMALL;
}

static const ir_tensor *copy_of(settling *s, const ir_tensor *t)
{
    for (uint32_t i = 0; t->bytes > SMALL && i < s->done.count; i++)
        if (s->done.data[i].from == t)
            return s->done.data[i].to;
    file_place place;
    ir_tensor *copy = arena_copy(s->memory, t, sizeof *t);
    void *data = arena_alloc_aligned(s->memory, t->bytes + 1, MEM_ALIGN);
    if (!copy || !data || (t->bytes > SMALL && !vec_push(s->memory, &s->done, (moved){t, copy})))
        return NULL;
    if (!api_model_place((void *)s->model, t->data, t->bytes, &place) ||
        !file_place_holds(&place) || !file_place_read(&place, 0, data, t->bytes))
        memcpy(data, t->data, t->bytes);
    copy->data = data;
    return copy;
}

/* By value: is it read by others than those who take bytes from any address? */
static bool *list_read(const settling *s, const ir_graph *g)
{
    bool *read = ARENA_ARRAY(s->memory, g->values.count + 1u, bool);
    for (uint32_t i = 0; read && i < g->nodes.count; i++) {
        const ir_node *n = g->nodes.data[i];
        for (uint32_t k = 0; k < n->n_inputs; k++)
            if (n->inputs[k] && !(k == 0 && n->op && n->op == s->gather))
                read[n->inputs[k]->id] = true;
    }
    for (uint32_t i = 0; read && i < g->outputs.count; i++)
        read[g->outputs.data[i]->id] = true;
    return read;
}

static tacit_status settle(settling *s, ir_graph *g);

static tacit_status settle_inside(settling *s, const ir_node *n)
{
    for (uint32_t k = 0; k < n->n_attrs; k++) {
        const ir_attr *a = &n->attrs[k];
        if (a->kind == IR_ATTR_GRAPH)
            TRY(settle(s, a->graph));
        for (uint32_t i = 0; a->kind == IR_ATTR_GRAPHS && i < a->count; i++)
            TRY(settle(s, a->graphs[i]));
    }
    return TACIT_OK;
}

static tacit_status settle(settling *s, ir_graph *g)
{
    const bool *read = list_read(s, g);
    if (!read)
        return error_memory(s->err, "a weight");
    for (uint32_t i = 0; i < g->values.count; i++) {
        ir_value *v = g->values.data[i];
        const ir_tensor *t = v->constant;
        if (!t || !t->data || !(is_small_part(s, t) || (read[i] && lies_across(t))))
            continue;
        v->constant = copy_of(s, t);
        if (!v->constant)
            return error_memory(s->err, "a weight");
    }
    for (uint32_t i = 0; i < g->nodes.count; i++)
        TRY(settle_inside(s, g->nodes.data[i]));
    return TACIT_OK;
}

tacit_status api_settle_weights(const tacit_model *model, ir_graph *g, tacit_error *err)
{
    settling s = {
        .model = model, .memory = g->memory, .gather = op_find(NULL, "", "Gather"), .err = err};
    TRY(settle(&s, g));
    api_model_drop_all(model);
    return TACIT_OK;
}
