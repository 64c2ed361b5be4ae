/* SPDX-License-Identifier: Apache-2.0 */
#include "ir/recipe.h"

#include <string.h>

#include "base/half.h"

ir_tensor *ir_tensor_late(arena *a, const ir_shape *shape, const ir_recipe *recipe)
{
    ir_tensor *t = ARENA_NEW(a, ir_tensor);
    ir_recipe *r = arena_copy(a, recipe, sizeof *recipe);
    if (!t || !r)
        return NULL;
    tacit_dtype dtype = recipe->dtype ? recipe->dtype : recipe->from[0]->dtype;
    *t = ir_tensor_view(dtype, shape, NULL);
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

const ir_tensor *ir_recipe_source(const ir_tensor *t)
{
    bool widens = ir_tensor_is_late(t) && t->recipe->kind == IR_JOINED && t->recipe->count == 1;
    return widens ? t->recipe->from[0] : t;
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

static size_t element_of(tacit_dtype t)
{
    return tacit_dtype_bits(t) / 8;
}

/* Elements [begin, begin + n) of a source as those of the tensor that is made. */
static void read_source(const ir_tensor *t, const ir_tensor *from, int64_t begin, int64_t n,
                        void *out)
{
    size_t element = element_of(from->dtype);
    const char *at = (const char *)from->data + (size_t)begin * element;
    if (from->dtype == t->dtype)
        memcpy(out, at, (size_t)n * element);
    else
        half_widen(from->dtype == TACIT_F16 ? HALF_F16 : HALF_BF16, at, n, out);
}

/* Row `row` from its element `begin` to `end`. */
static void scale_part(const ir_tensor *t, int64_t row, int64_t begin, int64_t end, void *out)
{
    const ir_tensor *x = t->recipe->from[0];
    double scale = t->recipe->scale[row];
    int64_t first = row * (ir_tensor_count(t) / t->recipe->rows);
    read_source(t, x, first + begin, end - begin, out);
    if (t->dtype == TACIT_F32) { /* the usual case, in vectors */
        scale_f32(out, end - begin, scale, out);
        return;
    }
    for (int64_t i = 0; i < end - begin; i++)
        ir_store_f64(t->dtype, out, i, ir_load_f64(t->dtype, out, i) * scale);
}

/* Elements of a row that come from source i. */
static int64_t run_of(const ir_tensor *t, uint32_t i)
{
    return ir_tensor_count(t->recipe->from[i]) / t->recipe->rows;
}

static void join_part(const ir_tensor *t, int64_t row, int64_t begin, int64_t end, void *out)
{
    int64_t at = 0;
    for (uint32_t i = 0; i < t->recipe->count; i++) {
        int64_t run = run_of(t, i), low = begin > at ? begin : at,
                high = end < at + run ? end : at + run;
        if (low < high)
            read_source(t, t->recipe->from[i], row * run + (low - at), high - low,
                        (char *)out + (size_t)(low - begin) * element_of(t->dtype));
        at += run;
    }
}

void ir_recipe_fill(const ir_tensor *t, size_t first, size_t bytes, void *to)
{
    int64_t width = t->recipe->rows ? ir_tensor_count(t) / t->recipe->rows : 0;
    size_t element = element_of(t->dtype);
    int64_t begin = (int64_t)(first / element), end = begin + (int64_t)(bytes / element);
    for (int64_t at = begin, stop; at < end; at = stop) {
        int64_t row = at / width;
        stop = (row + 1) * width < end ? (row + 1) * width : end;
        char *out = (char *)to + (size_t)(at - begin) * element;
        if (t->recipe->kind == IR_SCALED)
            scale_part(t, row, at - row * width, stop - row * width, out);
        else
            join_part(t, row, at - row * width, stop - row * width, out);
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
    size_t element = element_of(t->dtype);
    int64_t width = r->rows ? ir_tensor_count(t) / r->rows : 0;
    if (!bytes || !width)
        return;
    int64_t from = (int64_t)(first / element), to = from + (int64_t)(bytes / element);
    int64_t low = from / width, high = (to - 1) / width, at = 0;
    for (uint32_t i = 0; i < r->count; i++) {
        int64_t run = run_of(t, i), begin = low * run, end = (high + 1) * run;
        if (low == high) { /* a part of one row */
            int64_t skip = from - low * width, stop = to - low * width;
            begin += skip > at ? (skip - at < run ? skip - at : run) : 0;
            end = low * run + (stop > at ? (stop - at < run ? stop - at : run) : 0);
        }
        size_t own = element_of(r->from[i]->dtype);
        if (begin < end)
            visit(context, (const char *)r->from[i]->data + (size_t)begin * own,
                  (size_t)(end - begin) * own);
        at += run;
    }
}
