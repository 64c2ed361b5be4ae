/* SPDX-License-Identifier: Apache-2.0
 * TensorProto, SparseTensorProto, SequenceProto and OptionalProto. */
#include <string.h>

#include "load/onnx_reader.h"

enum {
    DROP_FROM = 64 * 1024, /* smaller copies are not worth a system call */
    HALVES_FROM = 2048,    /* elements: fewer cost nothing */
};

typedef struct tensor_proto {
    ir_shape shape;
    int64_t count;
    tacit_dtype dtype;
    const char *name;
    wire_span all, raw;
    onnx_external external;
    bool has_raw, is_external, is_segment, has_external;
} tensor_proto;

static tacit_status read_dims(onnx_reader *r, const wire *w, const wire_field *f, ir_shape *shape)
{
    wire_packed p;
    uint64_t n, dim;
    TRY(wire_packed_open(w, f, WIRE_VARINT, &p, r->err));
    if (!wire_packed_count(&p, &n))
        return error_set(r->err, TACIT_ERR_FORMAT, "%s: dims are cut short", w->what);
    if (n > (uint64_t)(IR_MAX_RANK - shape->rank))
        return error_set(r->err, TACIT_ERR_LIMIT, "%s: more than %d dimensions", w->what,
                         IR_MAX_RANK);
    while (wire_packed_next(&p, &dim)) {
        if (dim > INT64_MAX)
            return error_set(r->err, TACIT_ERR_SHAPE, "%s: dimension %d is negative", w->what,
                             shape->rank);
        shape->dims[shape->rank++] = (int64_t)dim;
    }
    return TACIT_OK;
}

static tacit_status tensor_field(onnx_reader *r, const wire *w, const wire_field *f,
                                 tensor_proto *t)
{
    int64_t number;
    wire_span bytes;
    switch (f->number) {
    case 1:
        return read_dims(r, w, f, &t->shape);
    case 2:
        TRY(wire_int(w, f, &number, r->err));
        t->dtype = ir_dtype_from_onnx(number);
        if (t->dtype == TACIT_DTYPE_NONE)
            return error_set(r->err, TACIT_ERR_TYPE, "%s: unknown element type %lld", w->what,
                             (long long)number);
        return TACIT_OK;
    case 3:
        t->is_segment = true;
        return TACIT_OK;
    case 8:
        TRY(wire_bytes(w, f, &bytes, r->err));
        return onnx_text(r, bytes, &t->name);
    case 9:
        t->has_raw = true;
        return wire_bytes(w, f, &t->raw, r->err);
    case 13:
        TRY(wire_bytes(w, f, &bytes, r->err));
        t->has_external = true;
        return onnx_external_entry(r, bytes, &t->external);
    case 14:
        TRY(wire_int(w, f, &number, r->err));
        t->is_external = number == 1;
        return TACIT_OK;
    default:
        return TACIT_OK;
    }
}

static tacit_status scan_tensor(onnx_reader *r, wire_span proto, tensor_proto *t)
{
    *t = (tensor_proto){.all = proto, .name = ""};
    wire w = wire_open(proto, "tensor");
    wire_field f;
    while (wire_next(&w, &f, r->err))
        TRY(tensor_field(r, &w, &f, t));
    TRY(wire_status(&w));
    ir_type type = {.kind = IR_TENSOR, .dtype = t->dtype, .shape = t->shape};
    size_t bytes;
    if (t->dtype == TACIT_DTYPE_NONE)
        return error_set(r->err, TACIT_ERR_TYPE, "the element type is missing");
    if (t->is_segment)
        return error_set(r->err, TACIT_ERR_UNSUPPORTED, "segmented tensors are not supported");
    if (!ir_shape_count(&t->shape, &t->count) || !ir_type_bytes(&type, &bytes)) {
        char text[IR_SHAPE_TEXT];
        return error_set(r->err, TACIT_ERR_LIMIT, "shape %s is too large to address",
                         ir_shape_text(&t->shape, text));
    }
    return TACIT_OK;
}

/* Which field holds a dtype's elements when they are not raw, and how many bytes each entry is. */
typedef struct typed_field {
    uint32_t number;
    wire_type element;
    size_t width;
} typed_field;

static typed_field field_of(tacit_dtype dtype)
{
    switch (dtype) {
    case TACIT_F32:
    case TACIT_C64:
        return (typed_field){4, WIRE_FIXED32, 4};
    case TACIT_F64:
    case TACIT_C128:
        return (typed_field){10, WIRE_FIXED64, 8};
    case TACIT_I64:
        return (typed_field){7, WIRE_VARINT, 8};
    case TACIT_U32:
        return (typed_field){11, WIRE_VARINT, 4};
    case TACIT_U64:
        return (typed_field){11, WIRE_VARINT, 8};
    default: /* an entry of a sub-byte type is one byte of packed elements */
        return (typed_field){5, WIRE_VARINT,
                             tacit_dtype_bits(dtype) < 8 ? 1 : tacit_dtype_bits(dtype) / 8};
    }
}

static void store_entry(unsigned char *to, size_t width, uint64_t value)
{
    uint8_t v8 = (uint8_t)value;
    uint16_t v16 = (uint16_t)value;
    uint32_t v32 = (uint32_t)value;
    switch (width) {
    case 1:
        memcpy(to, &v8, 1);
        break;
    case 2:
        memcpy(to, &v16, 2);
        break;
    case 4:
        memcpy(to, &v32, 4);
        break;
    default:
        memcpy(to, &value, 8);
        break;
    }
}

static tacit_status size_error(onnx_reader *r, const tensor_proto *t, uint64_t have, uint64_t want)
{
    char text[IR_SHAPE_TEXT];
    return error_set(r->err, TACIT_ERR_FORMAT, "%s%s needs %llu bytes of data but has %llu",
                     tacit_dtype_text(t->dtype), ir_shape_text(&t->shape, text),
                     (unsigned long long)want, (unsigned long long)have);
}

/* Bytes that the typed fields hold; a lone packed stretch of fixed width is as good as raw. */
static tacit_status measure_typed(onnx_reader *r, const tensor_proto *t, typed_field kind,
                                  uint64_t *bytes, wire_span *lone)
{
    wire w = wire_open(t->all, "tensor");
    wire_field f;
    uint32_t pieces = 0;
    *bytes = 0;
    *lone = (wire_span){0};
    while (wire_next(&w, &f, r->err)) {
        if (f.number != kind.number)
            continue;
        wire_packed p;
        uint64_t n;
        TRY(wire_packed_open(&w, &f, kind.element, &p, r->err));
        if (!wire_packed_count(&p, &n))
            return error_set(r->err, TACIT_ERR_FORMAT, "data field %u is cut short", f.number);
        *bytes += n * kind.width; /* n is bounded by the file's size */
        *lone = pieces++ == 0 && f.type == WIRE_BYTES ? f.bytes : (wire_span){0};
    }
    TRY(wire_status(&w));
    if (kind.element == WIRE_VARINT)
        *lone = (wire_span){0};
    return TACIT_OK;
}

static tacit_status fill_typed(onnx_reader *r, const tensor_proto *t, typed_field kind,
                               unsigned char *to)
{
    wire w = wire_open(t->all, "tensor");
    wire_field f;
    while (wire_next(&w, &f, r->err)) {
        if (f.number != kind.number)
            continue;
        wire_packed p;
        uint64_t value;
        TRY(wire_packed_open(&w, &f, kind.element, &p, r->err));
        while (wire_packed_next(&p, &value)) {
            store_entry(to, kind.width, value);
            to += kind.width;
        }
    }
    return wire_status(&w);
}

static tacit_status make(onnx_reader *r, const tensor_proto *t, ir_tensor *out)
{
    size_t bytes = ir_dtype_bytes(t->dtype, t->count);
    TRY(onnx_charge(r, bytes));
    ir_tensor *made = ir_tensor_new(r->memory, t->dtype, &t->shape);
    if (!made)
        return error_memory(r->err, "a tensor");
    if (t->dtype == TACIT_STRING)
        memset(made->data, 0, made->bytes);
    *out = *made;
    return TACIT_OK;
}

static tacit_status read_strings(onnx_reader *r, const tensor_proto *t, ir_tensor *out)
{
    /* The dims are not to be trusted with an allocation before the strings are counted. */
    for (int walk = 0; walk < 2; walk++) {
        wire w = wire_open(t->all, "tensor");
        wire_field f;
        int64_t n = 0;
        while (wire_next(&w, &f, r->err)) {
            if (f.number != 6)
                continue;
            wire_span bytes;
            TRY(wire_bytes(&w, &f, &bytes, r->err));
            if (walk)
                ((ir_string *)out->data)[n] = (ir_string){(const char *)bytes.data, bytes.size};
            n++;
        }
        TRY(wire_status(&w));
        if (n != t->count)
            return error_set(r->err, TACIT_ERR_FORMAT, "needs %lld strings but has %lld",
                             (long long)t->count, (long long)n);
        if (!walk)
            TRY(make(r, t, out));
    }
    return TACIT_OK;
}

static size_t alignment(tacit_dtype dtype)
{
    uint32_t bits = tacit_dtype_bits(dtype);
    return bits <= 8 ? 1 : bits >= 64 ? 8 : dtype == TACIT_C64 ? 4 : bits / 8;
}

/* A truth value other than 0 and 1 would mean different things to different kernels. */
static bool booleans_clean(wire_span raw)
{
    uint8_t seen = 0;
    for (size_t i = 0; i < raw.size; i++)
        seen |= raw.data[i];
    return seen <= 1;
}

/* Weights in half precision are widened or packed before anybody computes with them (those that are
 * not see api/settle.c), so they may lie anywhere in a file. But who knows what operators of a
 * caller do. */
static bool lies_anywhere(const onnx_reader *r, const tensor_proto *t, const file_map *whence)
{
    bool half = t->dtype == TACIT_F16 || t->dtype == TACIT_BF16;
    return half && whence && t->count >= HALVES_FROM &&
           !(r->options->registry && r->options->registry->count);
}

/* Can the bytes be used where they are? */
static bool lies_well(const onnx_reader *r, const tensor_proto *t, wire_span raw,
                      const file_map *whence)
{
    if (t->dtype == TACIT_BOOL)
        return booleans_clean(raw);
    return (uintptr_t)raw.data % alignment(t->dtype) == 0 || lies_anywhere(r, t, whence);
}

static tacit_status copy_bytes(onnx_reader *r, const tensor_proto *t, wire_span raw,
                               const file_map *whence, ir_tensor *out)
{
    TRY(make(r, t, out));
    unsigned char *bytes = out->data;
    if (raw.size)
        memcpy(bytes, raw.data, raw.size);
    for (size_t i = 0; t->dtype == TACIT_BOOL && i < raw.size; i++)
        bytes[i] = bytes[i] != 0;
    if (!whence || !raw.size)
        return TACIT_OK;
    load_moved copy = {bytes, raw.size, (size_t)(raw.data - whence->data), whence};
    if (!vec_push(r->memory, &r->files->copies, copy))
        return error_memory(r->err, "a tensor");
    if (raw.size >= DROP_FROM)
        file_map_drop(whence, raw.data, raw.size);
    return TACIT_OK;
}

static tacit_status from_bytes(onnx_reader *r, const tensor_proto *t, wire_span raw,
                               const file_map *whence, ir_tensor *out)
{
    size_t want = ir_dtype_bytes(t->dtype, t->count);
    if (raw.size != want)
        return size_error(r, t, raw.size, want);
    if (!want || !lies_well(r, t, raw, whence))
        return copy_bytes(r, t, raw, whence, out);
    *out = ir_tensor_view(t->dtype, &t->shape, raw.data);
    return TACIT_OK;
}

static tacit_status tensor_data(onnx_reader *r, tensor_proto *t, ir_tensor *out)
{
    size_t want = ir_dtype_bytes(t->dtype, t->count);
    if (t->is_external && t->dtype == TACIT_STRING)
        return error_set(r->err, TACIT_ERR_UNSUPPORTED, "strings cannot be external data");
    if (t->is_external) {
        wire_span bytes;
        const file_map *whence = NULL;
        TRY(onnx_external_bytes(r, &t->external, want, &bytes, &whence));
        return from_bytes(r, t, bytes, whence, out);
    }
    if (t->dtype == TACIT_STRING)
        return read_strings(r, t, out);
    if (t->has_raw)
        return from_bytes(r, t, t->raw, r->options->map, out);
    typed_field kind = field_of(t->dtype);
    uint64_t have;
    wire_span lone;
    TRY(measure_typed(r, t, kind, &have, &lone));
    if (have != want)
        return size_error(r, t, have, want);
    if (lone.data)
        return from_bytes(r, t, lone, r->options->map, out);
    TRY(make(r, t, out));
    TRY(fill_typed(r, t, kind, out->data));
    unsigned char *bytes = out->data;
    for (size_t i = 0; t->dtype == TACIT_BOOL && i < want; i++)
        bytes[i] = bytes[i] != 0;
    return TACIT_OK;
}

tacit_status onnx_tensor(onnx_reader *r, wire_span proto, ir_tensor *out, const char **name)
{
    tensor_proto t;
    tacit_status status = scan_tensor(r, proto, &t);
    if (status == TACIT_OK)
        status = tensor_data(r, &t, out);
    if (status != TACIT_OK)
        return error_context(r->err, status, "tensor '%s'", t.name);
    if (name)
        *name = t.name;
    return TACIT_OK;
}

typedef struct sparse_proto {
    ir_tensor values, indices;
    const char *name;
    ir_shape shape;
    bool has_values, has_indices;
} sparse_proto;

static tacit_status scan_sparse(onnx_reader *r, wire_span proto, sparse_proto *s)
{
    *s = (sparse_proto){.name = ""};
    wire w = wire_open(proto, "sparse tensor");
    wire_field f;
    while (wire_next(&w, &f, r->err)) {
        wire_span bytes;
        if (f.number == 3)
            TRY(read_dims(r, &w, &f, &s->shape));
        if (f.number != 1 && f.number != 2)
            continue;
        TRY(wire_bytes(&w, &f, &bytes, r->err));
        if (f.number == 1)
            TRY(onnx_tensor(r, bytes, &s->values, &s->name));
        else
            TRY(onnx_tensor(r, bytes, &s->indices, NULL));
        s->has_values |= f.number == 1;
        s->has_indices |= f.number == 2;
    }
    TRY(wire_status(&w));
    bool one_d = s->indices.shape.rank == 1, two_d = s->indices.shape.rank == 2;
    if (!s->has_values || !s->has_indices || s->values.shape.rank != 1 ||
        s->indices.dtype != TACIT_I64 || !(one_d || two_d) ||
        s->indices.shape.dims[0] != s->values.shape.dims[0] ||
        (two_d && s->indices.shape.dims[1] != s->shape.rank))
        return error_set(r->err, TACIT_ERR_FORMAT, "values and indices do not fit together");
    if (s->values.dtype == TACIT_STRING)
        return error_set(r->err, TACIT_ERR_UNSUPPORTED, "sparse strings are not supported");
    return TACIT_OK;
}

/* Linear position of entry `k`, or -1 when it lies outside. */
static int64_t sparse_position(const sparse_proto *s, int64_t k, int64_t count)
{
    const int64_t *indices = s->indices.data;
    if (s->indices.shape.rank == 1)
        return indices[k] >= 0 && indices[k] < count ? indices[k] : -1;
    int64_t at = 0;
    for (int32_t d = 0; d < s->shape.rank; d++) {
        int64_t i = indices[k * s->shape.rank + d];
        if (i < 0 || i >= s->shape.dims[d])
            return -1;
        at = at * s->shape.dims[d] + i;
    }
    return at;
}

static tacit_status densify(onnx_reader *r, const sparse_proto *s, ir_tensor *out)
{
    ir_type type = {.kind = IR_TENSOR, .dtype = s->values.dtype, .shape = s->shape};
    size_t bytes;
    if (!ir_type_bytes(&type, &bytes))
        return error_set(r->err, TACIT_ERR_LIMIT, "the dense form is too large");
    TRY(onnx_charge(r, bytes));
    ir_tensor *dense = ir_tensor_new(r->memory, type.dtype, &s->shape);
    if (!dense)
        return error_memory(r->err, "a dense form of a sparse tensor");
    memset(dense->data, 0, dense->bytes);
    int64_t count = ir_tensor_count(dense);
    for (int64_t k = 0; k < s->values.shape.dims[0]; k++) {
        int64_t at = sparse_position(s, k, count);
        if (at < 0)
            return error_set(r->err, TACIT_ERR_FORMAT, "index %lld lies outside", (long long)k);
        ir_copy_element(type.dtype, dense->data, at, s->values.data, k);
    }
    *out = *dense;
    return TACIT_OK;
}

tacit_status onnx_sparse_tensor(onnx_reader *r, wire_span proto, ir_tensor *out, const char **name)
{
    sparse_proto s;
    tacit_status status = scan_sparse(r, proto, &s);
    if (status == TACIT_OK)
        status = densify(r, &s, out);
    if (status != TACIT_OK)
        return error_context(r->err, status, "sparse tensor '%s'", s.name);
    if (name)
        *name = s.name;
    return TACIT_OK;
}

static tacit_status sequence_value(onnx_reader *r, wire_span proto, ir_tensor *out)
{
    VEC(ir_tensor) items = {0};
    wire w = wire_open(proto, "sequence");
    wire_field f;
    while (wire_next(&w, &f, r->err)) {
        wire_span bytes;
        ir_tensor item;
        if (f.number < 3 || f.number > 7)
            continue;
        if (f.number != 3)
            return error_set(r->err, TACIT_ERR_UNSUPPORTED,
                             "sequences of anything but tensors are not supported");
        TRY(wire_bytes(&w, &f, &bytes, r->err));
        TRY(onnx_tensor(r, bytes, &item, NULL));
        TRY(onnx_charge(r, sizeof item));
        if (!vec_push(r->memory, &items, item))
            return error_memory(r->err, "a sequence");
    }
    TRY(wire_status(&w));
    *out = (ir_tensor){.kind = IR_SEQUENCE, .shape.rank = -1, .present = true};
    out->items = items.data;
    out->count = items.count;
    out->dtype = items.count ? items.data[0].dtype : TACIT_DTYPE_NONE;
    return TACIT_OK;
}

static tacit_status optional_value(onnx_reader *r, wire_span proto, ir_kind kind, ir_tensor *out)
{
    *out = (ir_tensor){.kind = kind, .shape.rank = -1};
    wire w = wire_open(proto, "optional");
    wire_field f;
    while (wire_next(&w, &f, r->err)) {
        wire_span bytes;
        if (f.number != 3 && f.number != 5)
            continue;
        TRY(wire_bytes(&w, &f, &bytes, r->err));
        if (f.number == 3)
            TRY(onnx_tensor(r, bytes, out, NULL));
        else
            TRY(sequence_value(r, bytes, out));
        out->kind = f.number == 3 ? IR_OPTIONAL : IR_OPTIONAL_SEQUENCE;
        out->present = true;
    }
    return wire_status(&w);
}

tacit_status load_onnx_value(const void *data, size_t size, ir_kind kind, arena *memory,
                             ir_tensor *out, tacit_error *err)
{
    load_options options = {0};
    load_files files = {0};
    tacit_error own;
    onnx_reader r = {.memory = memory,
                     .scratch = memory,
                     .options = &options,
                     .files = &files,
                     .err = err ? err : &own,
                     .budget = SIZE_MAX};
    wire_span proto = {data, size};
    switch (kind) {
    case IR_TENSOR:
        return onnx_tensor(&r, proto, out, NULL);
    case IR_SEQUENCE:
        return sequence_value(&r, proto, out);
    case IR_OPTIONAL:
    case IR_OPTIONAL_SEQUENCE:
        return optional_value(&r, proto, kind, out);
    default:
        return error_set(err, TACIT_ERR_UNSUPPORTED, "map values cannot be read");
    }
}
