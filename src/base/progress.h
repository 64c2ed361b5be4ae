/* SPDX-License-Identifier: Apache-2.0
 * A progress bar on a terminal's standard error; silent elsewhere. */
#ifndef BASE_PROGRESS_H
#define BASE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct progress {
    const char *label;
    uint64_t total, started_ns, drawn_ns;
    bool visible;
} progress;

void progress_begin(progress *p, const char *label, uint64_t total);
/* Redraws at most ten times a second; `note` (may be NULL) stands behind the bar. */
void progress_update(progress *p, uint64_t done, const char *note);
void progress_end(progress *p); /* clears the line */

#endif
