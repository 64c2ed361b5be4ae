/* SPDX-License-Identifier: Apache-2.0 */
#include "ir/recipe.h"

#include <math.h>
#include <string.h>

ir_tensor ir_tensor_view(tacit_dtype dtype, const ir_shape *shape, const void *data)
{
    ir_tensor t = {.kind = IR_TENSOR, .dtype = dtype, .shape = *shape, .present = true};
    t.data = (void *)data;
    t.bytes = ir_dtype_bytes(dtype, ir_shape_size(shape));
    return t;
}

ir_tensor *ir_tensor_new(arena *a, tacit_dtype dtype, const ir_shape *shape)
{
    ir_type type = {.kind = IR_TENSOR, .dtype = dtype, .shape = *shape};
    size_t bytes;
    if (!ir_type_bytes(&type, &bytes))
        return NULL;
    ir_tensor *t = ARENA_NEW(a, ir_tensor);
    void *data = arena_alloc_aligned(a, bytes ? bytes : 1, MEM_ALIGN);
    if (!t || !data)
        return NULL;
    if (tacit_dtype_bits(dtype) < 8)
        memset(data, 0, bytes); /* the last byte may have bits that no element owns */
    *t = ir_tensor_view(dtype, shape, data);
    return t;
}

static bool copy_strings(arena *a, ir_tensor *t)
{
    ir_string *s = t->data;
    for (int64_t i = 0, n = ir_tensor_count(t); i < n; i++) {
        s[i].data = arena_strndup(a, s[i].data ? s[i].data : "", s[i].length);
        if (!s[i].data)
            return false;
    }
    return true;
}

static bool copy_into(arena *a, ir_tensor *to, const ir_tensor *t)
{
    *to = *t;
    if (t->data) {
        to->data = arena_alloc_aligned(a, t->bytes ? t->bytes : 1, MEM_ALIGN);
        if (!to->data)
            return false;
        memcpy(to->data, t->data, t->bytes);
        if (t->dtype == TACIT_STRING && !copy_strings(a, to))
            return false;
    }
    if (t->count) {
        to->items = ARENA_ARRAY(a, t->count, ir_tensor);
        if (!to->items)
            return false;
        for (uint32_t i = 0; i < t->count; i++)
            if (!copy_into(a, &to->items[i], &t->items[i]))
                return false;
    }
    return true;
}

ir_tensor *ir_tensor_copy(arena *a, const ir_tensor *t)
{
    ir_tensor *to = ARENA_NEW(a, ir_tensor);
    return to && copy_into(a, to, t) ? to : NULL;
}

ir_type ir_tensor_type(const ir_tensor *t)
{
    return (ir_type){.kind = t->kind, .dtype = t->dtype, .shape = t->shape};
}

int64_t ir_tensor_count(const ir_tensor *t)
{
    return ir_shape_size(&t->shape);
}

static bool same_recipe(const ir_tensor *a, const ir_tensor *b)
{
    const ir_recipe *x = a->recipe, *y = b->recipe;
    if (x->kind != y->kind || x->count != y->count || x->rows != y->rows || !x->scale != !y->scale)
        return false;
    for (uint32_t i = 0; i < x->count; i++)
        if (!ir_tensor_identical(x->from[i], y->from[i]))
            return false;
    return !x->scale || memcmp(x->scale, y->scale, (size_t)x->rows * sizeof *x->scale) == 0;
}

bool ir_tensor_identical(const ir_tensor *a, const ir_tensor *b)
{
    ir_type ta = ir_tensor_type(a), tb = ir_tensor_type(b);
    if (!ir_type_equal(&ta, &tb) || a->count != b->count || !a->data != !b->data)
        return false;
    for (uint32_t i = 0; i < a->count; i++)
        if (!ir_tensor_identical(&a->items[i], &b->items[i]))
            return false;
    if (!a->data)
        return a->recipe == b->recipe || (a->recipe && b->recipe && same_recipe(a, b));
    if (a->data == b->data)
        return true;
    if (a->dtype != TACIT_STRING)
        return memcmp(a->data, b->data, a->bytes) == 0;
    const ir_string *x = a->data, *y = b->data;
    for (int64_t i = 0, n = ir_tensor_count(a); i < n; i++)
        if (x[i].length != y[i].length || memcmp(x[i].data, y[i].data, x[i].length) != 0)
            return false;
    return true;
}
