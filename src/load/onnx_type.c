/* SPDX-License-Identifier: Apache-2.0
 * TypeProto, TensorShapeProto, ValueInfoProto. */
#include <stdint.h>

#include "load/onnx_reader.h"

static tacit_status symbol(onnx_reader *r, const char *name, int64_t *dim)
{
    uintptr_t known = (uintptr_t)map_get(&r->symbols, name);
    if (!known) {
        if (r->top->symbols.count >= ONNX_MAX_SYMBOLS)
            return error_set(r->err, TACIT_ERR_LIMIT, "more than %d named dimensions",
                             ONNX_MAX_SYMBOLS);
        name = arena_strdup(r->memory, name);
        if (!name || !vec_push(r->memory, &r->top->symbols, (ir_symbol){name, -1}))
            return error_memory(r->err, "a named dimension");
        known = r->top->symbols.count;
        if (!map_put(&r->symbols, name, (void *)known))
            return error_memory(r->err, "a named dimension");
    }
    *dim = IR_DIM_SYMBOL(known - 1);
    return TACIT_OK;
}

static tacit_status open_dim(onnx_reader *r, wire_span name, onnx_dims dims, const char *owner,
                             int32_t axis, int64_t *out)
{
    const char *text;
    *out = IR_DIM_UNKNOWN;
    if (dims == ONNX_DIMS_OPEN || (!name.size && dims == ONNX_DIMS_OUTPUT))
        return TACIT_OK;
    if (name.size) {
        TRY(onnx_text(r, name, &text));
        return symbol(r, text, out);
    }
    text = arena_printf(r->scratch, "%s_%d", owner, axis);
    return text ? symbol(r, text, out) : error_memory(r->err, "a named dimension");
}

static tacit_status dim(onnx_reader *r, wire_span proto, onnx_dims dims, const char *owner,
                        ir_shape *shape)
{
    wire w = wire_open(proto, "dimension");
    wire_field f;
    bool is_number = false;
    int64_t value = 0;
    wire_span name = {0};
    while (wire_next(&w, &f, r->err)) {
        if (f.number == 1) {
            TRY(wire_int(&w, &f, &value, r->err));
            is_number = true;
        } else if (f.number == 2) {
            TRY(wire_bytes(&w, &f, &name, r->err));
            is_number = false;
        }
    }
    TRY(wire_status(&w));
    if (shape->rank == IR_MAX_RANK)
        return error_set(r->err, TACIT_ERR_LIMIT, "'%s' has more than %d dimensions", owner,
                         IR_MAX_RANK);
    if (is_number && value < 0)
        return error_set(r->err, TACIT_ERR_SHAPE, "'%s': dimension %d is negative (%lld)", owner,
                         shape->rank, (long long)value);
    if (is_number)
        shape->dims[shape->rank] = value;
    else
        TRY(open_dim(r, name, dims, owner, shape->rank, &shape->dims[shape->rank]));
    shape->rank++;
    return TACIT_OK;
}

static tacit_status shape_proto(onnx_reader *r, wire_span proto, onnx_dims dims, const char *owner,
                                ir_shape *out)
{
    *out = (ir_shape){.rank = 0};
    wire w = wire_open(proto, "shape");
    wire_field f;
    while (wire_next(&w, &f, r->err)) {
        wire_span bytes;
        if (f.number != 1)
            continue;
        TRY(wire_bytes(&w, &f, &bytes, r->err));
        TRY(dim(r, bytes, dims, owner, out));
    }
    TRY(wire_status(&w));
    int64_t count;
    ir_shape known = {.rank = 0};
    for (int32_t i = 0; i < out->rank; i++)
        if (out->dims[i] >= 0)
            known.dims[known.rank++] = out->dims[i];
    if (!ir_shape_count(&known, &count) || count > INT64_MAX / 256)
        return error_set(r->err, TACIT_ERR_LIMIT, "the shape of '%s' is too large to address",
                         owner);
    return TACIT_OK;
}

/* TypeProto.Tensor: element type and, where known, the shape. */
static tacit_status tensor_type(onnx_reader *r, wire_span proto, onnx_dims dims, const char *owner,
                                ir_type *out)
{
    *out = (ir_type){.kind = IR_TENSOR, .shape.rank = -1};
    wire w = wire_open(proto, "tensor type");
    wire_field f;
    while (wire_next(&w, &f, r->err)) {
        wire_span bytes;
        int64_t code;
        if (f.number == 1) {
            TRY(wire_int(&w, &f, &code, r->err));
            out->dtype = ir_dtype_from_onnx(code);
            if (code && out->dtype == TACIT_DTYPE_NONE)
                return error_set(r->err, TACIT_ERR_TYPE, "'%s' has the unknown element type %lld",
                                 owner, (long long)code);
        } else if (f.number == 2) {
            TRY(wire_bytes(&w, &f, &bytes, r->err));
            TRY(shape_proto(r, bytes, dims, owner, &out->shape));
        }
    }
    return wire_status(&w);
}

static tacit_status type_at(onnx_reader *r, wire_span proto, onnx_dims dims, const char *owner,
                            int depth, ir_type *out);

/* The message around an element type (sequence, optional, map): its field `number`. */
static tacit_status element_type(onnx_reader *r, wire_span proto, uint32_t number, onnx_dims dims,
                                 const char *owner, int depth, ir_type *out)
{
    *out = (ir_type){.kind = IR_TENSOR, .shape.rank = -1};
    wire w = wire_open(proto, "element type");
    wire_field f;
    while (wire_next(&w, &f, r->err)) {
        wire_span bytes;
        if (f.number != number)
            continue;
        TRY(wire_bytes(&w, &f, &bytes, r->err));
        TRY(type_at(r, bytes, dims, owner, depth + 1, out));
    }
    return wire_status(&w);
}

static tacit_status type_case(onnx_reader *r, uint32_t number, wire_span bytes, onnx_dims dims,
                              const char *owner, int depth, ir_type *out)
{
    /* Elements have no symbols of their own: they only bind through graph inputs of tensors. */
    switch (number) {
    case 1:
        return tensor_type(r, bytes, dims, owner, out);
    case 4:
        TRY(element_type(r, bytes, 1, ONNX_DIMS_OPEN, owner, depth, out));
        if (out->kind != IR_TENSOR && out->kind != IR_MAP)
            break;
        out->kind = IR_SEQUENCE;
        return TACIT_OK;
    case 5:
        TRY(element_type(r, bytes, 2, ONNX_DIMS_OPEN, owner, depth, out));
        out->kind = IR_MAP;
        return TACIT_OK;
    case 9:
        TRY(element_type(r, bytes, 1, ONNX_DIMS_OPEN, owner, depth, out));
        if (out->kind != IR_TENSOR && out->kind != IR_SEQUENCE)
            break;
        out->kind = out->kind == IR_TENSOR ? IR_OPTIONAL : IR_OPTIONAL_SEQUENCE;
        return TACIT_OK;
    default:
        break;
    }
    return error_set(r->err, TACIT_ERR_UNSUPPORTED, "'%s' has a type that is not supported", owner);
}

static tacit_status type_at(onnx_reader *r, wire_span proto, onnx_dims dims, const char *owner,
                            int depth, ir_type *out)
{
    if (depth > 4)
        return error_set(r->err, TACIT_ERR_LIMIT, "the type of '%s' is nested too deeply", owner);
    *out = (ir_type){.kind = IR_TENSOR, .shape.rank = -1};
    wire w = wire_open(proto, "type");
    wire_field f;
    while (wire_next(&w, &f, r->err)) {
        wire_span bytes;
        if (f.number == 6)
            continue; /* denotation */
        TRY(wire_bytes(&w, &f, &bytes, r->err));
        TRY(type_case(r, f.number, bytes, dims, owner, depth, out));
    }
    return wire_status(&w);
}

tacit_status onnx_type(onnx_reader *r, wire_span proto, onnx_dims dims, const char *owner,
                       ir_type *out)
{
    return type_at(r, proto, dims, owner, 0, out);
}

tacit_status onnx_value_info(onnx_reader *r, wire_span proto, onnx_dims dims, const char **name,
                             ir_type *type, bool *has_type)
{
    wire w = wire_open(proto, "value info");
    wire_field f;
    wire_span text = {0}, type_proto = {0};
    *has_type = false;
    *type = (ir_type){.kind = IR_TENSOR, .shape.rank = -1};
    while (wire_next(&w, &f, r->err)) {
        if (f.number == 1)
            TRY(wire_bytes(&w, &f, &text, r->err));
        if (f.number == 2) {
            TRY(wire_bytes(&w, &f, &type_proto, r->err));
            *has_type = true;
        }
    }
    TRY(wire_status(&w));
    TRY(onnx_text(r, text, name));
    return *has_type ? onnx_type(r, type_proto, dims, *name, type) : TACIT_OK;
}
