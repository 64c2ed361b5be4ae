/* SPDX-License-Identifier: Apache-2.0
 * The caller's values as the executors hold them, and back: tensors, sequences, optionals, maps. */
#include <string.h>

#include "api/internal.h"

static tacit_status tensor_in(const tacit_tensor *t, const char *name, ir_tensor *out,
                              tacit_error *err)
{
    if (t->kind != TACIT_KIND_TENSOR)
        return error_set(err, TACIT_ERR_TYPE, "input '%s': a tensor is wanted here", name);
    if (t->rank < 0 || t->rank > TACIT_MAX_RANK)
        return error_set(err, TACIT_ERR_ARGUMENT, "input '%s' has rank %d", name, t->rank);
    ir_type type = ir_type_tensor(t->dtype, t->rank, t->dims);
    size_t bytes;
    *out = (ir_tensor){.kind = IR_TENSOR, .dtype = t->dtype, .shape = type.shape, .present = true};
    if (!ir_type_bytes(&type, &bytes))
        return error_set(err, TACIT_ERR_SHAPE, "input '%s' has an impossible shape", name);
    if (t->bytes < bytes || (bytes && !t->data))
        return error_set(err, TACIT_ERR_ARGUMENT, "input '%s' needs %zu bytes, but %zu are given",
                         name, bytes, t->data ? t->bytes : 0);
    out->data = t->data;
    out->bytes = bytes;
    return TACIT_OK;
}

/* The items of a sequence or a map. */
static tacit_status items_in(const tacit_tensor *t, const char *name, arena *memory, ir_tensor *out,
                             tacit_error *err)
{
    if (t->n_items && !t->items)
        return error_set(err, TACIT_ERR_ARGUMENT, "input '%s': its items are NULL", name);
    out->items = ARENA_ARRAY(memory, t->n_items + 1u, ir_tensor);
    if (!out->items)
        return error_memory(err, "an input");
    out->count = t->n_items;
    for (uint32_t i = 0; i < t->n_items; i++) {
        TRY(tensor_in(&t->items[i], name, &out->items[i], err));
        if (out->kind == IR_SEQUENCE && out->items[i].dtype != out->items[0].dtype)
            return error_set(
                err, TACIT_ERR_TYPE, "input '%s': item %u is %s, but the first one is %s", name, i,
                tacit_dtype_text(out->items[i].dtype), tacit_dtype_text(out->items[0].dtype));
    }
    return TACIT_OK;
}

static tacit_status sequence_in(const tacit_tensor *t, const char *name, arena *memory,
                                ir_tensor *out, tacit_error *err)
{
    if (t->kind != TACIT_KIND_SEQUENCE)
        return error_set(err, TACIT_ERR_TYPE, "input '%s': a sequence is wanted here", name);
    *out = (ir_tensor){.kind = IR_SEQUENCE, .shape.rank = -1, .present = true};
    TRY(items_in(t, name, memory, out, err));
    out->dtype = t->n_items ? out->items[0].dtype : TACIT_DTYPE_NONE;
    return TACIT_OK;
}

static tacit_status map_in(const tacit_tensor *t, const char *name, arena *memory, ir_tensor *out,
                           tacit_error *err)
{
    if (t->kind != TACIT_KIND_MAP || t->n_items != 2)
        return error_set(err, TACIT_ERR_TYPE, "input '%s': a map of keys and values is wanted here",
                         name);
    *out = (ir_tensor){.kind = IR_MAP, .shape.rank = -1, .present = true};
    TRY(items_in(t, name, memory, out, err));
    if (ir_tensor_count(&out->items[0]) != ir_tensor_count(&out->items[1]))
        return error_set(err, TACIT_ERR_SHAPE, "input '%s' has %lld keys and %lld values", name,
                         (long long)ir_tensor_count(&out->items[0]),
                         (long long)ir_tensor_count(&out->items[1]));
    out->dtype = out->items[1].dtype;
    return TACIT_OK;
}

static tacit_status optional_in(const tacit_tensor *t, ir_kind kind, const char *name,
                                arena *memory, ir_tensor *out, tacit_error *err)
{
    if (t->kind == TACIT_KIND_OPTIONAL) {
        if (t->n_items > 1 || (t->n_items && !t->items))
            return error_set(err, TACIT_ERR_ARGUMENT,
                             "input '%s': an optional has one item or none", name);
        if (!t->n_items) {
            *out = (ir_tensor){.kind = kind, .shape.rank = -1};
            return TACIT_OK;
        }
        t = &t->items[0];
    }
    TRY(kind == IR_OPTIONAL ? tensor_in(t, name, out, err)
                            : sequence_in(t, name, memory, out, err));
    out->kind = kind;
    return TACIT_OK;
}

tacit_status api_value_in(const tacit_tensor *t, ir_kind kind, const char *name, arena *memory,
                          ir_tensor *out, tacit_error *err)
{
    switch (kind) {
    case IR_SEQUENCE:
        return sequence_in(t, name, memory, out, err);
    case IR_OPTIONAL:
    case IR_OPTIONAL_SEQUENCE:
        return optional_in(t, kind, name, memory, out, err);
    case IR_MAP:
        return map_in(t, name, memory, out, err);
    default:
        return tensor_in(t, name, out, err);
    }
}

static tacit_tensor tensor_out(const ir_tensor *r)
{
    tacit_tensor t = {.dtype = r->dtype, .rank = r->shape.rank, .data = r->data, .bytes = r->bytes};
    memcpy(t.dims, r->shape.dims, (size_t)t.rank * sizeof *t.dims);
    return t;
}

static tacit_status items_out(const ir_tensor *r, arena *memory, tacit_tensor *t, tacit_error *err)
{
    t->items = ARENA_ARRAY(memory, r->count + 1u, tacit_tensor);
    if (!t->items)
        return error_memory(err, "an output");
    t->n_items = r->count;
    for (uint32_t i = 0; i < r->count; i++)
        TRY(api_value_out(&r->items[i], memory, &t->items[i], err)); /* maps in a sequence */
    return TACIT_OK;
}

tacit_status api_value_out(const ir_tensor *r, arena *memory, tacit_tensor *t, tacit_error *err)
{
    const char *name = t->name;
    *t = (tacit_tensor){.name = name, .dtype = r->dtype, .rank = -1};
    switch (r->kind) {
    case IR_SEQUENCE:
    case IR_MAP:
        t->kind = r->kind == IR_MAP ? TACIT_KIND_MAP : TACIT_KIND_SEQUENCE;
        return items_out(r, memory, t, err);
    case IR_OPTIONAL:
    case IR_OPTIONAL_SEQUENCE:
        t->kind = TACIT_KIND_OPTIONAL;
        t->items = ARENA_ARRAY(memory, 1, tacit_tensor);
        if (!t->items)
            return error_memory(err, "an output");
        t->n_items = r->present;
        if (!r->present)
            return TACIT_OK;
        if (r->kind == IR_OPTIONAL) {
            t->items[0] = tensor_out(r);
            return TACIT_OK;
        }
        t->items[0] = (tacit_tensor){.kind = TACIT_KIND_SEQUENCE, .dtype = r->dtype, .rank = -1};
        return items_out(r, memory, &t->items[0], err);
    default:
        *t = tensor_out(r);
        t->name = name;
        return TACIT_OK;
    }
}
