/* SPDX-License-Identifier: Apache-2.0
 *
 * tacit/status.h: how every Tacit function reports failure, gets memory and writes log lines.
 *
 * A fallible function returns a tacit_status and, when the caller passes a tacit_error, fills it
 * with a sentence that names what failed, where and why. Nothing here is global: the error, the
 * allocator and the log sink all belong to the caller.
 */
#ifndef TACIT_STATUS_H
#define TACIT_STATUS_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define TACIT_API __attribute__((visibility("default")))
#define TACIT_MUST_USE __attribute__((warn_unused_result))
#else
#define TACIT_API
#define TACIT_MUST_USE
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* One row per status: name, short text. Included once for the enum and once for the texts. */
#define TACIT_STATUS_MAP(ROW)                                                                      \
    ROW(OK, "ok")                                                                                  \
    ROW(ERR_ARGUMENT, "invalid argument")                                                          \
    ROW(ERR_MEMORY, "out of memory")                                                               \
    ROW(ERR_IO, "input/output error")                                                              \
    ROW(ERR_FORMAT, "malformed file")                                                              \
    ROW(ERR_GRAPH, "invalid graph")                                                                \
    ROW(ERR_SHAPE, "shape mismatch")                                                               \
    ROW(ERR_TYPE, "type mismatch")                                                                 \
    ROW(ERR_UNSUPPORTED, "unsupported")                                                            \
    ROW(ERR_LIMIT, "limit exceeded")                                                               \
    ROW(ERR_VALUE, "invalid value")                                                                \
    ROW(ERR_STATE, "wrong state")                                                                  \
    ROW(ERR_DEADLOCK, "deadlock")                                                                  \
    ROW(ERR_SECURITY, "security check failed")                                                     \
    ROW(ERR_PEER, "peer failure")                                                                  \
    ROW(ERR_INTERRUPTED, "interrupted")                                                            \
    ROW(ERR_INTERNAL, "internal error")

typedef enum tacit_status {
#define TACIT_STATUS_ENUM(name, text) TACIT_##name,
    TACIT_STATUS_MAP(TACIT_STATUS_ENUM)
#undef TACIT_STATUS_ENUM
        TACIT_STATUS_COUNT
} tacit_status;

/* Caller-owned; may live on the stack. Pass NULL where the message does not matter. */
typedef struct tacit_error {
    tacit_status status;
    char message[1020];
} tacit_error;

/* Short text of a status, never NULL. */
TACIT_API const char *tacit_status_text(tacit_status status);

/* Memory hook. `alloc` returns memory aligned to `align` (a power of two) or NULL; `release` gets
 * the size that was asked for. Both must be callable from any thread that calls Tacit. */
typedef struct tacit_allocator {
    void *(*alloc)(void *context, size_t size, size_t align);
    void (*release)(void *context, void *memory, size_t size);
    void *context;
} tacit_allocator;

typedef enum tacit_log_level {
    TACIT_LOG_ERROR,
    TACIT_LOG_WARNING,
    TACIT_LOG_INFO,
    TACIT_LOG_DEBUG
} tacit_log_level;

/* Log sink: `write` gets one line without its newline. NULL `write` means silence. */
typedef struct tacit_log {
    void (*write)(void *context, tacit_log_level level, const char *line);
    void *context;
    tacit_log_level level; /* lines above this level are not formatted at all */
} tacit_log;

#ifdef __cplusplus
}
#endif
#endif
