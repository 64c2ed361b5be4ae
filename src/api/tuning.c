/* SPDX-License-Identifier: Apache-2.0
 * Measured choices: the file, and the object that holds it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/internal.h"
#include "base/file.h"
#include "op/tuning.h"

struct tacit_tuning {
    op_tuning t;
    char *path;
};

/* TACIT_TUNING, else tacit/tuning in the user's cache folder; "" when there is neither. */
static void default_path(char *to, size_t room)
{
    const char *given = getenv("TACIT_TUNING"), *cache = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    if (given)
        snprintf(to, room, "%s", given);
    else if (cache && *cache)
        snprintf(to, room, "%s/tacit/tuning", cache);
    else if (home && *home)
        snprintf(to, room, "%s/.cache/tacit/tuning", home);
    else
        *to = '\0';
}

tacit_status tacit_tuning_open(const char *path, tacit_tuning **out, tacit_error *err)
{
    char chosen[4096];
    *out = NULL;
    if (path)
        snprintf(chosen, sizeof chosen, "%s", path);
    else
        default_path(chosen, sizeof chosen);
    tacit_tuning *t = calloc(1, sizeof *t);
    if (t)
        op_tuning_init(&t->t, NULL);
    if (!t || !(t->path = strdup(chosen))) {
        tacit_tuning_free(t);
        return error_memory(err, "the tuning");
    }
    file_map m = {0};
    bool read = true;
    /* No file is an empty one: nothing has been measured yet. */
    if (*chosen && access(chosen, R_OK) == 0 && file_map_open(&m, chosen, NULL) == TACIT_OK) {
        read = op_tuning_read(&t->t, (const char *)m.data, m.size);
        file_map_close(&m);
    }
    if (!read) {
        tacit_tuning_free(t);
        return error_memory(err, "the tuning");
    }
    *out = t;
    return TACIT_OK;
}

void tacit_tuning_free(tacit_tuning *t)
{
    if (!t)
        return;
    op_tuning_free(&t->t);
    free(t->path);
    free(t);
}

op_tuning *api_tuning(tacit_tuning *t)
{
    return t ? &t->t : NULL;
}

const char *tacit_tuning_path(const tacit_tuning *t)
{
    return t->path;
}

void tacit_tuning_force(tacit_tuning *t, int way)
{
    t->t.force = way;
    t->t.record = way >= 0;
    t->t.points.count = 0;
}

uint32_t tacit_tuning_count(const tacit_tuning *t)
{
    return t->t.points.count;
}

tacit_status tacit_tuning_point_at(const tacit_tuning *t, uint32_t index, tacit_tuning_point *out)
{
    if (index >= t->t.points.count)
        return TACIT_ERR_ARGUMENT;
    const op_tuning_point *p = &t->t.points.data[index];
    *out = (tacit_tuning_point){p->node, p->key, p->ways};
    return TACIT_OK;
}

tacit_status tacit_tuning_set(tacit_tuning *t, const char *key, int way, tacit_error *err)
{
    return op_tuning_set(&t->t, key, way) ? TACIT_OK : error_memory(err, "the tuning");
}

int tacit_tuning_get(const tacit_tuning *t, const char *key)
{
    return op_tuning_find(&t->t, key);
}

/* Every folder of the path that is missing. */
static void make_folders(char *path)
{
    for (char *p = path + 1; *p; p++)
        if (*p == '/') {
            *p = '\0';
            (void)mkdir(path, 0777);
            *p = '/';
        }
}

tacit_status tacit_tuning_save(const tacit_tuning *t, tacit_error *err)
{
    if (!*t->path)
        return error_set(err, TACIT_ERR_ARGUMENT, "there is no folder to keep the tuning in");
    make_folders(t->path);
    sbuf text;
    sbuf_init(&text, NULL);
    op_tuning_write(&t->t, &text);
    tacit_status status =
        text.failed ? error_memory(err, "the tuning")
                    : file_write_all(t->path, text.data ? text.data : "", text.length, err);
    sbuf_free(&text);
    return status;
}
