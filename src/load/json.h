/* SPDX-License-Identifier: Apache-2.0
 * A pull reader for JSON headers of known form: the caller says what must come next. */
#ifndef LOAD_JSON_H
#define LOAD_JSON_H

#include "base/arena.h"
#include "base/status.h"

typedef struct json {
    const char *at, *end, *begin;
    arena *memory; /* of strings */
    bool first;    /* no element of the innermost list or object was read yet */
    tacit_error *err;
} json;

tacit_status json_open(json *j, char bracket);
/* Whether another element follows, or the closing bracket (which is then consumed). */
tacit_status json_more(json *j, char closing, bool *more);
tacit_status json_key(json *j, const char **out); /* a string and its colon */
tacit_status json_string(json *j, const char **out);
tacit_status json_number(json *j, uint64_t *out); /* a whole number from 0 on */
tacit_status json_end(json *j);                   /* nothing but space may follow */

#endif
