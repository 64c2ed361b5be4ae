/* SPDX-License-Identifier: Apache-2.0 */
#include "secure/marks.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_SIZE = 4400 };

/* "folder/tail", or NULL: out of memory. */
static char *joined(const char *folder, const char *tail)
{
    size_t size = strlen(folder) + strlen(tail) + 2;
    char *path = malloc(size);
    if (path)
        snprintf(path, size, "%s/%s", folder, tail);
    return path;
}

static char *beside(const char *key_path)
{
    const char *slash = strrchr(key_path, '/');
    char *folder =
        slash ? strndup(key_path, slash == key_path ? 1 : (size_t)(slash - key_path)) : strdup(".");
    char *path = folder ? joined(folder, ".tacit-used") : NULL;
    free(folder);
    return path;
}

/* The user's folder in *out, which stays NULL where the environment names none. */
static bool of_user(char **out)
{
    static const char *const places[][2] = {{"TACIT_STATE_HOME", "keys"},
                                            {"XDG_STATE_HOME", "tacit/keys"},
                                            {"HOME", ".local/state/tacit/keys"}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const char *folder = getenv(places[i][0]);
        if (folder && folder[0] == '/')
            return (*out = joined(folder, places[i][1])) != NULL;
    }
    return true;
}

tacit_status marks_init(key_marks *m, const char *key_path, const uint8_t session[16],
                        unsigned party, tacit_error *err)
{
    *m = (key_marks){0};
    for (int i = 0; i < 16; i++)
        snprintf(m->name + 2 * i, 3, "%02x", session[i]);
    snprintf(m->name + 32, sizeof m->name - 32, "-%c", party ? 'c' : 's');
    m->folder[0] = beside(key_path);
    if (!m->folder[0] || !of_user(&m->folder[1])) {
        marks_free(m);
        return error_memory(err, "marks of a key");
    }
    return TACIT_OK;
}

void marks_free(key_marks *m)
{
    for (int i = 0; i < MARK_FOLDERS; i++)
        free(m->folder[i]);
    *m = (key_marks){0};
}

static void run_name(const key_marks *m, int i, uint32_t run, char out[PATH_SIZE])
{
    snprintf(out, PATH_SIZE, "%s/%s-%u", m->folder[i], m->name, run);
}

bool marks_used(const key_marks *m, uint32_t run)
{
    char name[PATH_SIZE];
    bool used = false;
    for (int i = 0; i < MARK_FOLDERS && !used; i++) {
        if (!m->folder[i])
            continue;
        run_name(m, i, run, name);
        used = access(name, F_OK) == 0;
    }
    return used;
}

/* ---- things that survive a power cut ---- */

/* The entry of `path` in its folder. */
static bool sync_folder(const char *path)
{
    char *folder = strdup(path), *slash = folder ? strrchr(folder, '/') : NULL;
    if (slash)
        slash[slash == folder] = 0;
    int fd = folder ? open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    bool ok = fd >= 0 && fsync(fd) == 0;
    if (fd >= 0)
        close(fd);
    free(folder);
    return ok;
}

/* The folder with all above it that is missing, for its owner only. */
static bool make_folder(const char *path)
{
    if (access(path, F_OK) == 0)
        return true;
    char *above = strdup(path), *slash = above ? strrchr(above, '/') : NULL;
    bool ok = above != NULL;
    if (slash && slash != above) {
        *slash = 0;
        ok = make_folder(above);
    }
    free(above);
    return ok && (mkdir(path, 0700) == 0 || errno == EEXIST) && sync_folder(path);
}

/* 1: made, 0: there was one before, -1: errno says why not. */
static int make_file(const char *path, const void *data, size_t size)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return errno == EEXIST ? 0 : -1;
    bool ok = write(fd, data, size) == (ssize_t)size && fsync(fd) == 0;
    close(fd);
    return ok && sync_folder(path) ? 1 : -1;
}

static tacit_status cannot(const key_marks *m, int i, tacit_error *err)
{
    return error_set(err, TACIT_ERR_IO, "cannot mark a key as used in '%s': %s%s", m->folder[i],
                     strerror(errno), i ? " (TACIT_STATE_HOME names another folder)" : "");
}

tacit_status marks_take(const key_marks *m, uint32_t run, tacit_error *err)
{
    char name[PATH_SIZE];
    for (int i = MARK_FOLDERS; i-- > 0;) {
        if (!m->folder[i])
            continue;
        run_name(m, i, run, name);
        int made = make_folder(m->folder[i]) ? make_file(name, "", 0) : -1;
        if (made < 0)
            return cannot(m, i, err);
        if (!made)
            return error_set(err, TACIT_ERR_SECURITY, "run %u of this key was used before", run);
    }
    return TACIT_OK;
}

tacit_status marks_bind(const key_marks *m, const uint8_t value[32], bool *same, tacit_error *err)
{
    char name[PATH_SIZE];
    uint8_t bound[32];
    *same = true;
    for (int i = MARK_FOLDERS; i-- > 0 && *same;) {
        if (!m->folder[i])
            continue;
        snprintf(name, sizeof name, "%s/%s.weights", m->folder[i], m->name);
        int made = make_folder(m->folder[i]) ? make_file(name, value, 32) : -1;
        if (made < 0)
            return cannot(m, i, err);
        if (made)
            continue;
        /* a file cut short by a crash holds nothing that could be compared: refused */
        int fd = open(name, O_RDONLY | O_CLOEXEC);
        *same = fd >= 0 && read(fd, bound, 32) == 32 && memcmp(bound, value, 32) == 0;
        if (fd >= 0)
            close(fd);
    }
    return TACIT_OK;
}
