/* SPDX-License-Identifier: Apache-2.0 */
#include "load/gguf.h"

#include <string.h>

#include "base/map.h"
#include "op/gguf.h"

enum {
    MOST_NESTING = 4,
    MOST_ALIGNMENT = 1 << 20,
};

/* Bounds-checked, little-endian. */
typedef struct cursor {
    const uint8_t *data;
    size_t size, at;
    arena *memory;
    tacit_error *err;
} cursor;

static tacit_status take(cursor *c, size_t bytes, const uint8_t **out)
{
    if (bytes > c->size - c->at)
        return error_set(c->err, TACIT_ERR_FORMAT, "the file ends at byte %zu, in the middle",
                         c->size);
    *out = c->data + c->at;
    c->at += bytes;
    return TACIT_OK;
}

static uint64_t integer(const uint8_t *p, int bytes)
{
    uint64_t v = 0;
    for (int i = 0; i < bytes; i++)
        v |= (uint64_t)p[i] << 8 * i;
    return v;
}

static tacit_status take_integer(cursor *c, int bytes, uint64_t *out)
{
    const uint8_t *p;
    TRY(take(c, (size_t)bytes, &p));
    *out = integer(p, bytes);
    return TACIT_OK;
}

static tacit_status take_string(cursor *c, const char **out)
{
    uint64_t length;
    const uint8_t *p;
    TRY(take_integer(c, 8, &length));
    if (length > c->size - c->at)
        return error_set(c->err, TACIT_ERR_FORMAT, "a string of %llu bytes does not fit the file",
                         (unsigned long long)length);
    TRY(take(c, (size_t)length, &p));
    if (memchr(p, 0, (size_t)length))
        return error_set(c->err, TACIT_ERR_FORMAT, "a string holds a zero byte");
    *out = arena_strndup(c->memory, (const char *)p, (size_t)length);
    return *out ? TACIT_OK : error_memory(c->err, "GGUF metadata");
}

/* --- metadata ----------------------------------------------------------------------------------
 */

enum { STRING = 8, ARRAY = 9 };

static int scalar_bytes(uint64_t type)
{
    static const int8_t bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return type < sizeof bytes ? bytes[type] : 0;
}

static double scalar_value(uint64_t type, uint64_t bits)
{
    union {
        uint32_t u;
        float f;
    } single = {(uint32_t)bits};
    union {
        uint64_t u;
        double f;
    } wide = {bits};
    switch (type) {
    case 1:
        return (int8_t)bits;
    case 3:
        return (int16_t)bits;
    case 5:
        return (int32_t)bits;
    case 6:
        return (double)single.f;
    case 11:
        return (double)(int64_t)bits;
    case 12:
        return wide.f;
    default:
        return (double)bits;
    }
}

static tacit_status take_value(cursor *c, uint64_t type, int depth, load_gguf_pair *out);

/* Elements are walked to find the end; they stay in the file. */
static tacit_status take_array(cursor *c, int depth, load_gguf_pair *out)
{
    uint64_t type;
    TRY(take_integer(c, 4, &type));
    TRY(take_integer(c, 8, &out->count));
    out->kind = LOAD_GGUF_ARRAY;
    out->element = (uint32_t)type;
    out->items = c->data + c->at;
    int bytes = scalar_bytes(type);
    if (bytes) {
        const uint8_t *p;
        if (out->count > (c->size - c->at) / (size_t)bytes)
            return error_set(c->err, TACIT_ERR_FORMAT, "an array of %llu does not fit the file",
                             (unsigned long long)out->count);
        TRY(take(c, (size_t)out->count * (size_t)bytes, &p));
        out->number = out->count ? load_gguf_number(out, 0) : 0;
        return TACIT_OK;
    }
    if (depth >= MOST_NESTING)
        return error_set(c->err, TACIT_ERR_LIMIT, "arrays are nested too deeply");
    for (uint64_t i = 0; i < out->count; i++) { /* each takes bytes, so the file bounds this */
        uint64_t length;
        const uint8_t *p;
        load_gguf_pair inner = {0};
        if (type == STRING) {
            TRY(take_integer(c, 8, &length));
            if (length > c->size - c->at)
                return error_set(c->err, TACIT_ERR_FORMAT, "a string does not fit the file");
            TRY(take(c, (size_t)length, &p));
        } else {
            TRY(take_value(c, type, depth + 1, &inner));
        }
    }
    return TACIT_OK;
}

static tacit_status take_value(cursor *c, uint64_t type, int depth, load_gguf_pair *out)
{
    if (type == ARRAY)
        return take_array(c, depth, out);
    if (type == STRING) {
        out->kind = LOAD_GGUF_STRING;
        return take_string(c, &out->text);
    }
    uint64_t bits;
    if (!scalar_bytes(type))
        return error_set(c->err, TACIT_ERR_FORMAT, "unknown type %llu of a metadata value",
                         (unsigned long long)type);
    TRY(take_integer(c, scalar_bytes(type), &bits));
    out->number = scalar_value(type, bits);
    return TACIT_OK;
}

static tacit_status take_pairs(cursor *c, uint64_t count, load_gguf_file *out)
{
    map seen;
    map_init(&seen, c->memory);
    for (uint64_t i = 0; i < count; i++) {
        load_gguf_pair pair = {0};
        uint64_t type;
        TRY(take_string(c, &pair.key));
        TRY(take_integer(c, 4, &type));
        tacit_status status = take_value(c, type, 0, &pair);
        if (status != TACIT_OK)
            return error_context(c->err, status, "metadata '%s'", pair.key);
        if (map_get(&seen, pair.key))
            return error_set(c->err, TACIT_ERR_FORMAT, "metadata '%s' is there twice", pair.key);
        if (!map_put(&seen, pair.key, (void *)(uintptr_t)1) ||
            !vec_push(c->memory, &out->pairs, pair))
            return error_memory(c->err, "GGUF metadata");
    }
    return TACIT_OK;
}

/* --- tensors -----------------------------------------------------------------------------------
 */

static const struct {
    uint32_t code;
    const char *name;
    tacit_dtype dtype;
} plain[] = {{0, "F32", TACIT_F32},  {1, "F16", TACIT_F16},   {24, "I8", TACIT_I8},
             {25, "I16", TACIT_I16}, {26, "I32", TACIT_I32},  {27, "I64", TACIT_I64},
             {28, "F64", TACIT_F64}, {30, "BF16", TACIT_BF16}};

/* Type, element type and bytes from the code and the shape. */
static tacit_status tensor_type(cursor *c, load_gguf_tensor *t)
{
    int64_t count;
    if (!ir_shape_count(&t->shape, &count))
        return error_set(c->err, TACIT_ERR_LIMIT, "tensor '%s' is too large", t->name);
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (plain[i].code == t->code) {
            t->type = plain[i].name;
            t->dtype = plain[i].dtype;
            ir_type type = ir_type_tensor(t->dtype, t->shape.rank, t->shape.dims);
            return ir_type_bytes(&type, &t->bytes)
                       ? TACIT_OK
                       : error_set(c->err, TACIT_ERR_LIMIT, "tensor '%s' is too large", t->name);
        }
    const op_gguf_type *block = op_gguf_by_code(t->code);
    if (!block)
        return error_set(c->err, TACIT_ERR_UNSUPPORTED, "tensor '%s' has the unknown type %u",
                         t->name, t->code);
    if (t->shape.rank < 1 || t->shape.dims[t->shape.rank - 1] % block->elements)
        return error_set(c->err, TACIT_ERR_FORMAT, "tensor '%s': rows are not whole blocks of %s",
                         t->name, block->name);
    t->type = block->name;
    t->dtype = TACIT_U8;
    t->bytes = (size_t)(count / block->elements) * (size_t)block->bytes;
    return TACIT_OK;
}

static tacit_status take_tensor(cursor *c, load_gguf_tensor *t, uint64_t *offset)
{
    uint64_t rank, dim, code;
    TRY(take_string(c, &t->name));
    TRY(take_integer(c, 4, &rank));
    if (rank > IR_MAX_RANK)
        return error_set(c->err, TACIT_ERR_LIMIT, "tensor '%s' has %llu axes", t->name,
                         (unsigned long long)rank);
    t->shape.rank = (int32_t)rank;
    for (uint64_t i = 0; i < rank; i++) {
        TRY(take_integer(c, 8, &dim));
        if (dim > INT64_MAX / 1024)
            return error_set(c->err, TACIT_ERR_LIMIT, "tensor '%s' is too large", t->name);
        t->shape.dims[rank - 1 - i] = (int64_t)dim;
    }
    TRY(take_integer(c, 4, &code));
    TRY(take_integer(c, 8, offset));
    t->code = (uint32_t)code;
    return tensor_type(c, t);
}

static tacit_status take_tensors(cursor *c, uint64_t count, load_gguf_file *out)
{
    VEC(uint64_t) offsets = {0};
    map seen;
    map_init(&seen, c->memory);
    for (uint64_t i = 0; i < count; i++) {
        load_gguf_tensor t = {0};
        uint64_t offset;
        TRY(take_tensor(c, &t, &offset));
        if (map_get(&seen, t.name))
            return error_set(c->err, TACIT_ERR_FORMAT, "tensor '%s' is there twice", t.name);
        if (!map_put(&seen, t.name, (void *)(uintptr_t)1) ||
            !vec_push(c->memory, &out->tensors, t) || !vec_push(c->memory, &offsets, offset))
            return error_memory(c->err, "GGUF tensors");
    }
    const load_gguf_pair *a = load_gguf_find(out, "general.alignment");
    double asked = a && a->kind == LOAD_GGUF_NUMBER ? a->number : 32;
    if (!(asked >= 1) || asked > MOST_ALIGNMENT)
        return error_set(c->err, TACIT_ERR_FORMAT, "general.alignment is %g", asked);
    size_t alignment = (size_t)asked, start = (c->at + alignment - 1) / alignment * alignment;
    for (uint32_t i = 0; i < out->tensors.count; i++) {
        load_gguf_tensor *t = &out->tensors.data[i];
        uint64_t at = offsets.data[i];
        if (start > c->size || at > c->size - start || t->bytes > c->size - start - at)
            return error_set(c->err, TACIT_ERR_FORMAT,
                             "tensor '%s' lies outside of the file: %zu bytes from %llu", t->name,
                             t->bytes, (unsigned long long)at);
        t->data = c->data + start + at;
    }
    return TACIT_OK;
}

bool load_gguf_probe(const void *data, size_t size)
{
    return size >= 4 && memcmp(data, "GGUF", 4) == 0;
}

tacit_status load_gguf(const void *data, size_t size, arena *memory, load_gguf_file *out,
                       tacit_error *err)
{
    cursor c = {.data = data, .size = size, .at = 4, .memory = memory, .err = err};
    uint64_t version, tensors, pairs;
    *out = (load_gguf_file){0};
    if (!load_gguf_probe(data, size))
        return error_set(err, TACIT_ERR_FORMAT, "not a GGUF file");
    TRY(take_integer(&c, 4, &version));
    if (version < 2 || version > 3)
        return error_set(err, TACIT_ERR_UNSUPPORTED, "GGUF version %llu; 2 and 3 are read",
                         (unsigned long long)version);
    out->version = (uint32_t)version;
    TRY(take_integer(&c, 8, &tensors));
    TRY(take_integer(&c, 8, &pairs));
    if (pairs > size / 12 || tensors > size / 24) /* the least that each takes */
        return error_set(err, TACIT_ERR_FORMAT, "%llu tensors and %llu entries do not fit the file",
                         (unsigned long long)tensors, (unsigned long long)pairs);
    TRY(take_pairs(&c, pairs, out));
    return take_tensors(&c, tensors, out);
}

const load_gguf_pair *load_gguf_find(const load_gguf_file *f, const char *key)
{
    for (uint32_t i = 0; i < f->pairs.count; i++)
        if (strcmp(f->pairs.data[i].key, key) == 0)
            return &f->pairs.data[i];
    return NULL;
}

bool load_gguf_numbers(const load_gguf_pair *p)
{
    return p && p->kind == LOAD_GGUF_ARRAY && scalar_bytes(p->element);
}

bool load_gguf_strings(const load_gguf_pair *p)
{
    return p && p->kind == LOAD_GGUF_ARRAY && p->element == STRING;
}

double load_gguf_number(const load_gguf_pair *p, uint64_t i)
{
    int bytes = scalar_bytes(p->element);
    return scalar_value(p->element, integer(p->items + i * (uint64_t)bytes, bytes));
}

const char *load_gguf_next(const uint8_t **at, size_t *length)
{
    *length = (size_t)integer(*at, 8);
    const char *text = (const char *)*at + 8;
    *at += 8 + *length;
    return text;
}

const load_gguf_tensor *load_gguf_tensor_find(const load_gguf_file *f, const char *name)
{
    for (uint32_t i = 0; i < f->tensors.count; i++)
        if (strcmp(f->tensors.data[i].name, name) == 0)
            return &f->tensors.data[i];
    return NULL;
}
