/* SPDX-License-Identifier: Apache-2.0
 * safetensors: a length, a JSON header, the tensors one after another. */
#include <stdlib.h>
#include <string.h>

#include "load/json.h"
#include "load/load.h"

static const uint64_t header_limit = 100 << 20; /* as the format's definition has it */

typedef struct dtype_name {
    const char *name;
    tacit_dtype dtype;
} dtype_name;

static const dtype_name dtype_names[] = {
    {"F64", TACIT_F64},
    {"F32", TACIT_F32},
    {"F16", TACIT_F16},
    {"BF16", TACIT_BF16},
    {"I64", TACIT_I64},
    {"I32", TACIT_I32},
    {"I16", TACIT_I16},
    {"I8", TACIT_I8},
    {"U64", TACIT_U64},
    {"U32", TACIT_U32},
    {"U16", TACIT_U16},
    {"U8", TACIT_U8},
    {"BOOL", TACIT_BOOL},
    {"C64", TACIT_C64},
    {"F8_E4M3", TACIT_F8E4M3FN},
    {"F8_E5M2", TACIT_F8E5M2},
    {"F8_E8M0", TACIT_F8E8M0},
    {"F8_E4M3FNUZ", TACIT_F8E4M3FNUZ},
    {"F8_E5M2FNUZ", TACIT_F8E5M2FNUZ},
    {"F4", TACIT_F4E2M1},
};

typedef struct entry {
    load_named item;
    uint64_t begin, end;
    bool has_dtype, has_shape, has_offsets;
} entry;
typedef VEC(entry) entry_list;

static tacit_status read_dtype(json *j, entry *e)
{
    const char *text;
    TRY(json_string(j, &text));
    for (size_t i = 0; i < sizeof dtype_names / sizeof *dtype_names; i++)
        if (strcmp(dtype_names[i].name, text) == 0) {
            e->item.tensor.dtype = dtype_names[i].dtype;
            e->has_dtype = true;
            return TACIT_OK;
        }
    return error_set(j->err, TACIT_ERR_UNSUPPORTED, "unknown element type '%s'", text);
}

static tacit_status read_shape(json *j, entry *e)
{
    ir_shape *s = &e->item.tensor.shape;
    bool more;
    *s = (ir_shape){.rank = 0};
    TRY(json_open(j, '['));
    for (;;) {
        uint64_t dim;
        TRY(json_more(j, ']', &more));
        if (!more)
            break;
        TRY(json_number(j, &dim));
        if (s->rank == IR_MAX_RANK || dim > INT64_MAX)
            return error_set(j->err, TACIT_ERR_LIMIT, "the shape is too large");
        s->dims[s->rank++] = (int64_t)dim;
    }
    e->has_shape = true;
    return TACIT_OK;
}

static tacit_status read_offsets(json *j, entry *e)
{
    bool more;
    uint64_t *const both[2] = {&e->begin, &e->end};
    TRY(json_open(j, '['));
    for (int k = 0;; k++) {
        TRY(json_more(j, ']', &more));
        if (more != (k < 2))
            return error_set(j->err, TACIT_ERR_FORMAT, "data_offsets is not a pair");
        if (!more)
            break;
        TRY(json_number(j, both[k]));
    }
    e->has_offsets = true;
    return TACIT_OK;
}

static tacit_status read_entry(json *j, entry *e)
{
    bool more;
    TRY(json_open(j, '{'));
    for (;;) {
        const char *key;
        TRY(json_more(j, '}', &more));
        if (!more)
            break;
        TRY(json_key(j, &key));
        if (strcmp(key, "dtype") == 0)
            TRY(read_dtype(j, e));
        else if (strcmp(key, "shape") == 0)
            TRY(read_shape(j, e));
        else if (strcmp(key, "data_offsets") == 0)
            TRY(read_offsets(j, e));
        else
            return error_set(j->err, TACIT_ERR_FORMAT, "unknown entry '%s'", key);
    }
    if (!e->has_dtype || !e->has_shape || !e->has_offsets)
        return error_set(j->err, TACIT_ERR_FORMAT, "dtype, shape or data_offsets is missing");
    return TACIT_OK;
}

static tacit_status read_metadata(json *j, arena *memory, load_tensors *out)
{
    bool more;
    TRY(json_open(j, '{'));
    for (;;) {
        load_pair pair;
        TRY(json_more(j, '}', &more));
        if (!more)
            return TACIT_OK;
        TRY(json_key(j, &pair.key));
        TRY(json_string(j, &pair.value));
        if (!vec_push(memory, &out->metadata, pair))
            return error_memory(j->err, "metadata");
    }
}

static tacit_status read_header(json *j, entry_list *list, load_tensors *out)
{
    map names;
    bool more;
    map_init(&names, j->memory);
    TRY(json_open(j, '{'));
    for (;;) {
        entry e = {0};
        TRY(json_more(j, '}', &more));
        if (!more)
            break;
        TRY(json_key(j, &e.item.name));
        if (map_get(&names, e.item.name))
            return error_set(j->err, TACIT_ERR_FORMAT, "two tensors are named '%s'", e.item.name);
        if (!map_put(&names, e.item.name, &names))
            return error_memory(j->err, "a header");
        if (strcmp(e.item.name, "__metadata__") == 0) {
            TRY(read_metadata(j, j->memory, out));
            continue;
        }
        tacit_status status = read_entry(j, &e);
        if (status != TACIT_OK)
            return error_context(j->err, status, "tensor '%s'", e.item.name);
        if (!vec_push(j->memory, list, e))
            return error_memory(j->err, "a header");
    }
    return json_end(j);
}

static int by_offset(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    return x->begin != y->begin ? (x->begin < y->begin ? -1 : 1)
           : x->end < y->end    ? -1
                                : x->end > y->end;
}

/* Neither holes nor overlaps: together the tensors are the whole data section. */
static tacit_status place(entry_list *list, const unsigned char *data, uint64_t size, arena *memory,
                          load_tensors *out, tacit_error *err)
{
    uint64_t at = 0;
    if (list->count)
        qsort(list->data, list->count, sizeof *list->data, by_offset);
    for (uint32_t i = 0; i < list->count; i++) {
        entry *e = &list->data[i];
        ir_type type = {
            .kind = IR_TENSOR, .dtype = e->item.tensor.dtype, .shape = e->item.tensor.shape};
        size_t bytes, align = tacit_dtype_bits(type.dtype) >= 64  ? 8
                              : tacit_dtype_bits(type.dtype) >= 8 ? tacit_dtype_bits(type.dtype) / 8
                                                                  : 1;
        if (!ir_type_bytes(&type, &bytes) || e->begin != at || e->end < e->begin || e->end > size ||
            e->end - e->begin != bytes)
            return error_set(err, TACIT_ERR_FORMAT,
                             "tensor '%s': its place in the file does not fit its shape or its "
                             "neighbours",
                             e->item.name);
        at = e->end;
        const unsigned char *from = data + e->begin;
        if (bytes && (uintptr_t)from % align == 0 && type.dtype != TACIT_BOOL)
            e->item.tensor = ir_tensor_view(type.dtype, &type.shape, from);
        else {
            ir_tensor *t = ir_tensor_new(memory, type.dtype, &type.shape);
            if (!t)
                return error_memory(err, "a tensor");
            unsigned char *to = t->data;
            if (bytes)
                memcpy(to, from, bytes);
            for (size_t k = 0; type.dtype == TACIT_BOOL && k < bytes; k++)
                to[k] = to[k] != 0;
            e->item.tensor = *t;
        }
        if (!vec_push(memory, &out->items, e->item))
            return error_memory(err, "a tensor");
    }
    return at == size
               ? TACIT_OK
               : error_set(err, TACIT_ERR_FORMAT, "%llu bytes at the end belong to no tensor",
                           (unsigned long long)(size - at));
}

static uint64_t header_size(const unsigned char *p)
{
    uint64_t n = 0;
    for (int i = 0; i < 8; i++)
        n |= (uint64_t)p[i] << (8 * i);
    return n;
}

bool load_safetensors_probe(const void *data, size_t size)
{
    const unsigned char *p = data;
    return size > 9 && header_size(p) <= size - 8 && header_size(p) >= 2 && p[8] == '{';
}

tacit_status load_safetensors(const void *data, size_t size, arena *memory, load_tensors *out,
                              tacit_error *err)
{
    const unsigned char *p = data;
    *out = (load_tensors){0};
    if (size < 8)
        return error_set(err, TACIT_ERR_FORMAT, "not a safetensors file");
    uint64_t n = header_size(p);
    if (n > size - 8 || n > header_limit)
        return error_set(err, TACIT_ERR_FORMAT,
                         "safetensors: a header of %llu bytes does not fit the file",
                         (unsigned long long)n);
    tacit_error own;
    json j = {.at = (const char *)p + 8,
              .begin = (const char *)p + 8,
              .end = (const char *)p + 8 + n,
              .memory = memory,
              .err = err ? err : &own};
    entry_list list = {0};
    tacit_status status = read_header(&j, &list, out);
    if (status == TACIT_OK)
        status = place(&list, p + 8 + n, size - 8 - n, memory, out, err);
    return status == TACIT_OK ? status : error_context(err, status, "safetensors");
}

/* --- writing ---------------------------------------------------------------------------------- */

static const char *name_of(tacit_dtype dtype)
{
    for (size_t i = 0; i < sizeof dtype_names / sizeof *dtype_names; i++)
        if (dtype_names[i].dtype == dtype)
            return dtype_names[i].name;
    return NULL;
}

bool load_safetensors_holds(tacit_dtype dtype)
{
    return name_of(dtype) != NULL;
}

static tacit_status put_entry(sbuf *b, const load_named *item, uint64_t *at, tacit_error *err)
{
    const ir_tensor *t = &item->tensor;
    const char *dtype = name_of(t->dtype);
    if (t->kind != IR_TENSOR || !dtype || !t->data)
        return error_set(err, TACIT_ERR_UNSUPPORTED, "tensor '%s': safetensors cannot hold %s",
                         item->name, t->data ? tacit_dtype_text(t->dtype) : "what has no data");
    sbuf_json(b, item->name);
    sbuf_printf(b, ":{\"dtype\":\"%s\",\"shape\":[", dtype);
    for (int32_t i = 0; i < t->shape.rank; i++)
        sbuf_printf(b, "%s%lld", i ? "," : "", (long long)t->shape.dims[i]);
    sbuf_printf(b, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)*at,
                (unsigned long long)*at + t->bytes);
    *at += t->bytes;
    return TACIT_OK;
}

/* Tensors of wide elements first: then each is aligned to its own elements without gaps. */
static int by_width(const void *a, const void *b)
{
    const load_named *x = *(const load_named *const *)a, *y = *(const load_named *const *)b;
    uint32_t wx = tacit_dtype_bits(x->tensor.dtype), wy = tacit_dtype_bits(y->tensor.dtype);
    return wx != wy ? (wx > wy ? -1 : 1) : x < y ? -1 : x > y;
}

static tacit_status put_header(const load_tensors *t, const load_named **order, sbuf *b,
                               tacit_error *err)
{
    uint64_t at = 0;
    sbuf_char(b, '{');
    if (t->metadata.count) {
        sbuf_text(b, "\"__metadata__\":{");
        for (uint32_t i = 0; i < t->metadata.count; i++) {
            sbuf_text(b, i ? "," : "");
            sbuf_json(b, t->metadata.data[i].key);
            sbuf_char(b, ':');
            sbuf_json(b, t->metadata.data[i].value);
        }
        sbuf_text(b, t->items.count ? "}," : "}");
    }
    for (uint32_t i = 0; i < t->items.count; i++) {
        sbuf_text(b, i ? "," : "");
        TRY(put_entry(b, order[i], &at, err));
    }
    sbuf_char(b, '}');
    while ((b->length + 8) % 64)
        sbuf_char(b, ' ');
    return b->failed ? error_memory(err, "a header") : TACIT_OK;
}

static tacit_status write_all(const load_tensors *t, const load_named **order, file_writer *w,
                              sbuf *b, tacit_error *err)
{
    TRY(put_header(t, order, b, err));
    unsigned char size[8];
    for (int i = 0; i < 8; i++)
        size[i] = (unsigned char)((uint64_t)b->length >> (8 * i));
    TRY(file_writer_write(w, size, sizeof size, err));
    TRY(file_writer_write(w, b->data, b->length, err));
    for (uint32_t i = 0; i < t->items.count; i++)
        TRY(file_writer_write(w, order[i]->tensor.data, order[i]->tensor.bytes, err));
    return TACIT_OK;
}

tacit_status load_safetensors_write(const load_tensors *t, const char *path, tacit_error *err)
{
    const load_named **order = calloc(t->items.count + 1u, sizeof *order);
    file_writer w = {0};
    sbuf b;
    sbuf_init(&b, NULL);
    tacit_status status = order ? file_writer_open(&w, path, err) : error_memory(err, "a header");
    for (uint32_t i = 0; order && i < t->items.count; i++)
        order[i] = &t->items.data[i];
    if (status == TACIT_OK) {
        qsort(order, t->items.count, sizeof *order, by_width);
        status = write_all(t, order, &w, &b, err);
    }
    if (status == TACIT_OK)
        status = file_writer_commit(&w, err);
    else
        file_writer_abort(&w);
    sbuf_free(&b);
    free(order);
    return status == TACIT_OK ? status : error_context(err, status, "writing '%s'", path);
}
