/* SPDX-License-Identifier: Apache-2.0
 * What has been done with a key, remembered by the key's session and not by its file's name: a key
 * dealt anew to the same path is fresh, a copy of a used one is not.
 *
 * Marks are files of their own, made exclusively and synced with their folder. They lie in two
 * places: in `.tacit-used` beside the key, so that they go where the folder goes, and in the
 * user's state folder (TACIT_STATE_HOME, else XDG_STATE_HOME/tacit, else
 * HOME/.local/state/tacit; none of them set: only beside the key), so that a copy of the key in
 * another folder finds them. */
#ifndef SECURE_MARKS_H
#define SECURE_MARKS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum { MARK_FOLDERS = 2 };
typedef struct key_marks {
    char *folder[MARK_FOLDERS]; /* NULL: not used */
    char name[40];              /* session and party */
} key_marks;

tacit_status marks_init(key_marks *m, const char *key_path, const uint8_t session[16],
                        unsigned party, tacit_error *err);
void marks_free(key_marks *m);
bool marks_used(const key_marks *m, uint32_t run);
/* Durable in every folder before it returns. TACIT_ERR_SECURITY: it was used before. */
tacit_status marks_take(const key_marks *m, uint32_t run, tacit_error *err);
/* The first value sticks, durably; *same tells whether this is it. */
tacit_status marks_bind(const key_marks *m, const uint8_t value[32], bool *same, tacit_error *err);

#endif
