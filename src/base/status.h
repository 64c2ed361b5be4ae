/* SPDX-License-Identifier: Apache-2.0
 * Filling and forwarding errors. Every fallible function returns tacit_status. */
#ifndef BASE_STATUS_H
#define BASE_STATUS_H

#include "tacit/status.h"

#define PRINTF_LIKE(f, a) __attribute__((format(printf, f, a)))
/* What leads to a call of such a function is put apart from the rest of the caller: a process that
 * opens a model reads all its code for the first time, and errors are a third of it. */
#define RARELY __attribute__((cold))

/* Leave the current function when `expr` is not TACIT_OK; its message is already in the error. */
#define TRY(expr)                                                                                  \
    do {                                                                                           \
        tacit_status try_status_ = (expr);                                                         \
        if (try_status_ != TACIT_OK)                                                               \
            return try_status_;                                                                    \
    } while (0)

/* As TRY, but runs the clean-up after `label:`; needs a local `tacit_status status`. */
#define TRY_GOTO(expr, label)                                                                      \
    do {                                                                                           \
        status = (expr);                                                                           \
        if (status != TACIT_OK)                                                                    \
            goto label;                                                                            \
    } while (0)

/* Record `status` and a formatted message in `err` (may be NULL); yields `status`. A macro, so that
 * readers of the code, static analysers included, see that a failing status comes back. */
#define error_set(err, status, ...)                                                                \
    ({                                                                                             \
        tacit_status error_status_ = (status);                                                     \
        error_record((err), error_status_, __VA_ARGS__);                                           \
        error_status_;                                                                             \
    })
void error_record(tacit_error *err, tacit_status status, const char *format, ...)
    PRINTF_LIKE(3, 4) RARELY;

/* Put a formatted "context: " in front of the message already in `err`; yields `status`. */
#define error_context(err, status, ...)                                                            \
    ({                                                                                             \
        tacit_status error_status_ = (status);                                                     \
        error_prefix((err), error_status_, __VA_ARGS__);                                           \
        error_status_;                                                                             \
    })
void error_prefix(tacit_error *err, tacit_status status, const char *format, ...)
    PRINTF_LIKE(3, 4) RARELY;

/* The out-of-memory error, with what the memory was for. */
static inline tacit_status error_memory(tacit_error *error, const char *what)
{
    return error_set(error, TACIT_ERR_MEMORY, "out of memory: %s", what);
}

#endif
