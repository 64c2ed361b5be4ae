/* SPDX-License-Identifier: Apache-2.0 */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *tacit_status_text(tacit_status status)
{
    static const char *const texts[] = {
#define STATUS_TEXT(name, text) text,
        TACIT_STATUS_MAP(STATUS_TEXT)
#undef STATUS_TEXT
    };
    return (unsigned)status < TACIT_STATUS_COUNT ? texts[status] : "unknown status";
}

void error_record(tacit_error *err, tacit_status status, const char *format, ...)
{
    if (!err)
        return;
    err->status = status;
    va_list args;
    va_start(args, format);
    vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
}

void error_prefix(tacit_error *err, tacit_status status, const char *format, ...)
{
    if (!err)
        return;
    char old[sizeof err->message];
    memcpy(old, err->message, sizeof old);
    old[sizeof old - 1] = '\0';
    va_list args;
    va_start(args, format);
    int n = vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    if (n >= 0 && (size_t)n < sizeof err->message)
        snprintf(err->message + n, sizeof err->message - (size_t)n, ": %s", old);
    err->status = status;
}
