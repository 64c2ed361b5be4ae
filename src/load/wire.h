/* SPDX-License-Identifier: Apache-2.0
 *
 * A bounded reader of the protobuf wire format. It walks one message's fields in place, copies
 * nothing and allocates nothing; a length that leaves the message is an error, never a read.
 */
#ifndef LOAD_WIRE_H
#define LOAD_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef enum wire_type {
    WIRE_VARINT = 0,
    WIRE_FIXED64 = 1,
    WIRE_BYTES = 2,
    WIRE_FIXED32 = 5
} wire_type;

/* A message or a bytes field: a stretch of the file. */
typedef struct wire_span {
    const uint8_t *data;
    size_t size;
} wire_span;

typedef struct wire_field {
    uint32_t number;
    wire_type type;
    uint64_t value;  /* varint and fixed types */
    wire_span bytes; /* WIRE_BYTES */
} wire_field;

typedef struct wire {
    const uint8_t *at, *end;
    const char *what; /* the message's name, for errors */
    tacit_status status;
} wire;

wire wire_open(wire_span message, const char *what);
/* The next field into *f; false at the end of the message or at a malformed field. Which of the two
 * it was, wire_status says after the loop. */
bool wire_next(wire *w, wire_field *f, tacit_error *err);
tacit_status wire_status(const wire *w);

/* The field as one of these, or the error that names message and field. */
tacit_status wire_bytes(const wire *w, const wire_field *f, wire_span *out, tacit_error *err);
tacit_status wire_int(const wire *w, const wire_field *f, int64_t *out, tacit_error *err);
tacit_status wire_f32(const wire *w, const wire_field *f, float *out, tacit_error *err);

/* A repeated number field comes packed (WIRE_BYTES) or one by one: a cursor over either. Its
 * elements are varints, fixed32 or fixed64 as `element` says. */
typedef struct wire_packed {
    const uint8_t *at, *end;
    wire_type element;
    uint64_t single;
    bool is_single;
} wire_packed;
tacit_status wire_packed_open(const wire *w, const wire_field *f, wire_type element,
                              wire_packed *out, tacit_error *err);
/* How many elements are left; false when the last one is cut short. */
bool wire_packed_count(const wire_packed *p, uint64_t *count);
/* Only after wire_packed_count said the elements are whole; false at the end. */
bool wire_packed_next(wire_packed *p, uint64_t *value);

#endif
