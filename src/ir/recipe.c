/* SPDX-License-Identifier: Apache-2.0 */
#include "ir/recipe.h"

#include <string.h>

ir_tensor *ir_tensor_late(arena *a, const ir_shape *shape, const ir_recipe *recipe)
{
    ir_tensor *t = ARENA_NEW(a, ir_tensor);
    ir_recipe *r = arena_copy(a, recipe, sizeof *recipe);
    if (!t || !r)
        return NULL;
    *t = ir_tensor_view(recipe->from[0]->dtype, shape, NULL);
    t->recipe = r;
    r->memory = a;
    r->from = arena_copy(a, (const void *)recipe->from, recipe->count * sizeof *recipe->from);
    if (recipe->scale)
        r->scale = arena_copy(a, recipe->scale, (size_t)recipe->rows * sizeof *recipe->scale);
    return r->from && (r->scale || !recipe->scale) ? t : NULL;
}

tacit_status ir_tensor_make(const ir_tensor *t, tacit_error *err)
{
    if (!ir_tensor_is_late(t))
        return TACIT_OK;
    void *data = arena_alloc_aligned(t->recipe->memory, t->bytes, MEM_ALIGN);
    if (!data)
        return error_memory(err, "a derived weight");
    ir_recipe_fill(t, 0, t->bytes, data);
    ((ir_tensor *)t)->data = data; /* made by ir_tensor_late, read by one compilation */
    return TACIT_OK;
}

/* Rounded once. */
static void scale_f32(const float *x, int64_t n, double scale, float *y)
{
    typedef float floats __attribute__((vector_size(16)));
    typedef double doubles __attribute__((vector_size(32)));
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        floats v;
        memcpy(&v, x + i, sizeof v);
        v = __builtin_convertvector(__builtin_convertvector(v, doubles) * scale, floats);
        memcpy(y + i, &v, sizeof v);
    }
    for (; i < n; i++)
        y[i] = (float)(x[i] * scale);
}

/* Row `row` from its byte `from` to `to`. */
static void scale_part(const ir_tensor *t, int64_t row, size_t from, size_t to, void *out)
{
    const ir_tensor *x = t->recipe->from[0];
    size_t element = tacit_dtype_bits(t->dtype) / 8;
    size_t width = t->bytes / (size_t)t->recipe->rows;
    double scale = t->recipe->scale[row];
    const char *data = (const char *)x->data + (size_t)row * width;
    int64_t begin = (int64_t)(from / element), end = (int64_t)(to / element);
    if (t->dtype == TACIT_F32) { /* the usual case, in vectors */
        scale_f32((const float *)(const void *)data + begin, end - begin, scale, out);
        return;
    }
    for (int64_t i = begin; i < end; i++)
        ir_store_f64(t->dtype, out, i - begin, ir_load_f64(t->dtype, data, i) * scale);
}

static size_t run_of(const ir_tensor *t, uint32_t i)
{
    return t->recipe->from[i]->bytes / (size_t)t->recipe->rows;
}

static void join_part(const ir_tensor *t, int64_t row, size_t from, size_t to, void *out)
{
    size_t at = 0;
    for (uint32_t i = 0; i < t->recipe->count; i++) {
        size_t run = run_of(t, i), low = from > at ? from : at,
               high = to < at + run ? to : at + run;
        if (low < high)
            memcpy((char *)out + (low - from),
                   (const char *)t->recipe->from[i]->data + (size_t)row * run + (low - at),
                   high - low);
        at += run;
    }
}

void ir_recipe_fill(const ir_tensor *t, size_t first, size_t bytes, void *to)
{
    size_t width = t->recipe->rows ? t->bytes / (size_t)t->recipe->rows : 0, end = first + bytes;
    for (size_t at = first; at < end;) {
        size_t row = at / width, begin = at - row * width;
        size_t stop = end - row * width < width ? end - row * width : width;
        char *out = (char *)to + (at - first);
        if (t->recipe->kind == IR_SCALED)
            scale_part(t, (int64_t)row, begin, stop, out);
        else
            join_part(t, (int64_t)row, begin, stop, out);
        at += stop - begin;
    }
}

void ir_tensor_part(const ir_tensor *t, size_t first, size_t bytes, void *to)
{
    if (t->data)
        memcpy(to, (const char *)t->data + first, bytes);
    else
        ir_recipe_fill(t, first, bytes, to);
}

void ir_recipe_sources(const ir_tensor *t, size_t first, size_t bytes,
                       void (*visit)(void *context, const void *data, size_t bytes), void *context)
{
    const ir_recipe *r = t->recipe;
    size_t width = r->rows ? t->bytes / (size_t)r->rows : 0;
    if (!bytes || !width)
        return;
    size_t low = first / width, high = (first + bytes - 1) / width;
    size_t at = 0;
    for (uint32_t i = 0; i < r->count; i++) {
        size_t run = run_of(t, i), begin = low * run, end = (high + 1) * run;
        if (low == high) { /* a part of one row */
            size_t skip = first - low * width, stop = skip + bytes;
            begin += skip > at ? (skip - at < run ? skip - at : run) : 0;
            end = low * run + (stop > at ? (stop - at < run ? stop - at : run) : 0);
        }
        if (begin < end)
            visit(context, (const char *)r->from[i]->data + begin, end - begin);
        at += run;
    }
}
