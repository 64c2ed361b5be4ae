/* SPDX-License-Identifier: Apache-2.0
 * Regular expressions in RE2's syntax, matched in time linear in the text (all states at once, no
 * backtracking), so that no pattern can make it run away. */
#ifndef BASE_REGEX_H
#define BASE_REGEX_H

#include "base/arena.h"

typedef struct regex regex;

/* Compiled into `memory`. The error names the place in the pattern. */
tacit_status regex_compile(const char *pattern, size_t length, arena *memory, regex **out,
                           tacit_error *err);
/* Room for one match at a time; NULL when out of memory. */
uint32_t *regex_workspace(const regex *re, arena *memory);
/* Does the whole text match? */
bool regex_full_match(const regex *re, const char *text, size_t length, uint32_t *workspace);

#endif
