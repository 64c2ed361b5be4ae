/* SPDX-License-Identifier: Apache-2.0 */
#include "load/wire.h"

#include <string.h>

wire wire_open(wire_span message, const char *what)
{
    static const uint8_t none;
    if (!message.data)
        return (wire){.at = &none, .end = &none, .what = what};
    return (wire){.at = message.data, .end = message.data + message.size, .what = what};
}

/* At most ten bytes; bits beyond 64 are refused rather than dropped. */
static bool read_varint(const uint8_t **at, const uint8_t *end, uint64_t *out)
{
    uint64_t value = 0;
    const uint8_t *p = *at;
    for (unsigned shift = 0; shift < 70; shift += 7) {
        if (p == end)
            return false;
        uint64_t bits = *p & 0x7f;
        if (shift == 63 && bits > 1)
            return false;
        value |= bits << shift;
        if (!(*p++ & 0x80)) {
            *at = p;
            *out = value;
            return true;
        }
    }
    return false;
}

static uint64_t read_fixed(const uint8_t *p, size_t bytes)
{
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++)
        value |= (uint64_t)p[i] << (8 * i);
    return value;
}

static tacit_status cut_short(const wire *w, uint32_t field, tacit_error *err)
{
    return error_set(err, TACIT_ERR_FORMAT, "%s: field %u is cut short or malformed", w->what,
                     field);
}

static bool read_payload(wire *w, wire_field *f)
{
    size_t left;
    switch (f->type) {
    case WIRE_VARINT:
        return read_varint(&w->at, w->end, &f->value);
    case WIRE_FIXED32:
    case WIRE_FIXED64:
        left = f->type == WIRE_FIXED32 ? 4 : 8;
        if ((size_t)(w->end - w->at) < left)
            return false;
        f->value = read_fixed(w->at, left);
        w->at += left;
        return true;
    case WIRE_BYTES:
        if (!read_varint(&w->at, w->end, &f->value) || f->value > (size_t)(w->end - w->at))
            return false;
        f->bytes = (wire_span){w->at, (size_t)f->value};
        w->at += f->value;
        return true;
    }
    return false;
}

static tacit_status read_field(wire *w, wire_field *f, tacit_error *err)
{
    uint64_t tag;
    if (!read_varint(&w->at, w->end, &tag) || tag > UINT32_MAX || tag >> 3 == 0)
        return error_set(err, TACIT_ERR_FORMAT, "%s: malformed field tag", w->what);
    *f = (wire_field){.number = (uint32_t)(tag >> 3), .type = (wire_type)(tag & 7)};
    if (f->type != WIRE_VARINT && f->type != WIRE_FIXED64 && f->type != WIRE_BYTES &&
        f->type != WIRE_FIXED32)
        return error_set(err, TACIT_ERR_FORMAT, "%s: field %u has wire type %u, which is not used",
                         w->what, f->number, (unsigned)(tag & 7));
    return read_payload(w, f) ? TACIT_OK : cut_short(w, f->number, err);
}

bool wire_next(wire *w, wire_field *f, tacit_error *err)
{
    if (w->status != TACIT_OK || w->at == w->end)
        return false;
    w->status = read_field(w, f, err);
    return w->status == TACIT_OK;
}

tacit_status wire_status(const wire *w)
{
    return w->status;
}

static tacit_status wrong_type(const wire *w, const wire_field *f, tacit_error *err)
{
    return error_set(err, TACIT_ERR_FORMAT, "%s: field %u has the wrong wire type %u", w->what,
                     f->number, (unsigned)f->type);
}

tacit_status wire_bytes(const wire *w, const wire_field *f, wire_span *out, tacit_error *err)
{
    if (f->type != WIRE_BYTES)
        return wrong_type(w, f, err);
    *out = f->bytes;
    return TACIT_OK;
}

tacit_status wire_int(const wire *w, const wire_field *f, int64_t *out, tacit_error *err)
{
    if (f->type != WIRE_VARINT)
        return wrong_type(w, f, err);
    *out = (int64_t)f->value;
    return TACIT_OK;
}

tacit_status wire_f32(const wire *w, const wire_field *f, float *out, tacit_error *err)
{
    if (f->type != WIRE_FIXED32)
        return wrong_type(w, f, err);
    uint32_t bits = (uint32_t)f->value;
    memcpy(out, &bits, sizeof bits);
    return TACIT_OK;
}

tacit_status wire_packed_open(const wire *w, const wire_field *f, wire_type element,
                              wire_packed *out, tacit_error *err)
{
    *out = (wire_packed){.element = element};
    if (f->type == WIRE_BYTES) {
        out->at = f->bytes.data;
        out->end = f->bytes.data + f->bytes.size;
        return TACIT_OK;
    }
    if (f->type != element)
        return wrong_type(w, f, err);
    out->single = f->value;
    out->is_single = true;
    return TACIT_OK;
}

bool wire_packed_count(const wire_packed *p, uint64_t *count)
{
    if (p->is_single) {
        *count = 1;
        return true;
    }
    size_t size = (size_t)(p->end - p->at);
    if (p->element != WIRE_VARINT) {
        size_t each = p->element == WIRE_FIXED32 ? 4 : 8;
        *count = size / each;
        return size % each == 0;
    }
    const uint8_t *at = p->at;
    uint64_t value;
    for (*count = 0; at < p->end; ++*count)
        if (!read_varint(&at, p->end, &value))
            return false;
    return true;
}

bool wire_packed_next(wire_packed *p, uint64_t *value)
{
    if (p->is_single) {
        p->is_single = false;
        p->at = p->end = NULL;
        *value = p->single;
        return true;
    }
    if (p->at == p->end)
        return false;
    if (p->element == WIRE_VARINT)
        return read_varint(&p->at, p->end, value);
    size_t each = p->element == WIRE_FIXED32 ? 4 : 8;
    *value = read_fixed(p->at, each);
    p->at += each;
    return true;
}
