/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

void log_line(const tacit_log *log, tacit_log_level level, const char *format, ...)
{
    if (!log || !log->write || level > log->level)
        return;
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    log->write(log->context, level, line);
}
