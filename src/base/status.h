/* SPDX-License-Identifier: Apache-2.0
 * Filling and forwarding errors. Every fallible function returns tacit_status. */
#ifndef BASE_STATUS_H
#define BASE_STATUS_H

#include "tacit/status.h"

#define PRINTF_LIKE(f, a) __attribute__((format(printf, f, a)))

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

/* Record `status` and a formatted message in `err` (may be NULL); returns `status`. */
tacit_status error_set(tacit_error *err, tacit_status status, const char *format, ...)
    PRINTF_LIKE(3, 4);

/* Put a formatted "context: " in front of the message already in `err`; returns err's status. */
tacit_status error_context(tacit_error *err, tacit_status status, const char *format, ...)
    PRINTF_LIKE(3, 4);

/* The out-of-memory error, with what the memory was for. */
tacit_status error_memory(tacit_error *err, const char *what);

#endif
