/* SPDX-License-Identifier: Apache-2.0
 * Log lines to the caller's sink. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include "base/status.h"

/* Formats and writes one line if `log` has a sink and its level admits `level`. */
void log_line(const tacit_log *log, tacit_log_level level, const char *format, ...)
    PRINTF_LIKE(3, 4);

#endif
