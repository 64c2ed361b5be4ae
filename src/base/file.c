/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Who the file is, without reading it. Times come in ticks of the kernel's clock, on some file
 * systems in seconds: a file that changed a moment ago may change again within the same one. */
static void identify(file_map *m, const struct stat *st)
{
    struct timespec now = {0}, changed = st->st_ctim;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t age = ((int64_t)now.tv_sec - changed.tv_sec) * 1000 +
                  ((int64_t)now.tv_nsec - changed.tv_nsec) / 1000000;
    m->device = (uint64_t)st->st_dev;
    m->identity[0] = (uint64_t)st->st_ino;
    m->identity[1] = (uint64_t)st->st_mtim.tv_sec;
    m->identity[2] = (uint64_t)st->st_mtim.tv_nsec;
    m->identity[3] = (uint64_t)changed.tv_sec;
    m->identity[4] = (uint64_t)changed.tv_nsec;
    m->settled = age > (changed.tv_nsec ? 20 : 2000);
}

tacit_status file_map_open(file_map *m, const char *path, tacit_error *err)
{
    *m = (file_map){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return error_set(err, TACIT_ERR_IO, "cannot open '%s': %s", path, strerror(errno));
    struct stat st;
    tacit_status status = TACIT_OK;
    if (fstat(fd, &st) != 0)
        status = error_set(err, TACIT_ERR_IO, "cannot stat '%s': %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        status = error_set(err, TACIT_ERR_IO, "'%s' is not a regular file", path);
    else if (st.st_size > 0) {
        void *data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED)
            status = error_set(err, TACIT_ERR_IO, "cannot map '%s': %s", path, strerror(errno));
        else
            *m = (file_map){.data = data, .size = (size_t)st.st_size};
        identify(m, &st);
    }
    m->kept = m->size >= FILE_LARGE;
    if (m->kept)
        m->descriptor = fd;
    else
        close(fd);
    return status;
}

void file_map_close(file_map *m)
{
    if (m->data)
        munmap((void *)m->data, m->size);
    if (m->kept)
        close(m->descriptor);
    *m = (file_map){0};
}

void file_map_drop(const file_map *m, const void *data, size_t size)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = (uintptr_t)data, end = begin + size;
    uintptr_t low = (uintptr_t)m->data, high = low + m->size;
    if (!m->data || begin < low || end > high)
        return;
    begin = align_up(begin, page);
    end &= ~(page - 1);
    if (begin < end)
        (void)madvise((void *)begin, end - begin, MADV_DONTNEED);
}

bool file_map_place(const file_map *m, const void *data, size_t size, file_place *out)
{
    uintptr_t begin = (uintptr_t)data, low = (uintptr_t)m->data;
    if (!m->kept || begin < low || begin + size > low + m->size)
        return false;
    *out = (file_place){m->descriptor, m->device, m->identity[0], begin - low};
    return true;
}

bool file_place_holds(const file_place *p)
{
    struct stat st;
    return fstat(p->descriptor, &st) == 0 && (uint64_t)st.st_dev == p->device &&
           (uint64_t)st.st_ino == p->number;
}

bool file_place_read(const file_place *p, uint64_t at, void *to, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t got =
            pread(p->descriptor, (char *)to + done, size - done, (off_t)(p->offset + at + done));
        if (got <= 0 && !(got < 0 && errno == EINTR))
            return false;
        done += got > 0 ? (size_t)got : 0;
    }
    return true;
}

/* A descriptor of a file that has no name yet: whatever ends the process, even SIGKILL, nothing is
 * left behind. -1 where the file system or a missing /proc does not allow it. */
static int open_nameless(const char *path)
{
    char *folder = strdup(path);
    if (!folder)
        return -1;
    char *slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = '\0';
    int fd = access("/proc/self/fd", X_OK) == 0
                 ? open(slash ? folder : ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666)
                 : -1;
    free(folder);
    return fd;
}

/* "PATH.tmpN" under which no file exists; the file is made when `fd` is -1, else `fd` gets it. */
static int give_temporary_name(file_writer *w, int fd)
{
    size_t room = strlen(w->path) + 24;
    for (uint32_t i = 0; i < 1000; i++) {
        snprintf(w->temporary, room, "%s.tmp%u-%u", w->path, (unsigned)getpid(), i);
        int got = -1;
        if (fd < 0) {
            got = open(w->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        } else {
            char link[40];
            snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
            got = linkat(AT_FDCWD, link, AT_FDCWD, w->temporary, AT_SYMLINK_FOLLOW) == 0 ? fd : -1;
        }
        if (got >= 0 || errno != EEXIST)
            return got;
    }
    return -1;
}

/* Devices and pipes are written to, never replaced by a file. */
static bool is_special(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
}

static int open_for_writing(file_writer *w)
{
    if (is_special(w->path)) {
        w->kind = FILE_WRITER_SPECIAL;
        return open(w->path, O_WRONLY | O_CLOEXEC);
    }
    w->kind = FILE_WRITER_NAMELESS;
    int fd = open_nameless(w->path);
    if (fd >= 0)
        return fd;
    w->kind = FILE_WRITER_NAMED;
    return give_temporary_name(w, -1);
}

/* A full buffer is written whole, and of what is larger as many whole ones as there are. */
static void write_in_pieces(file_writer *w)
{
    w->buffer = w->kind == FILE_WRITER_SPECIAL ? NULL : malloc(MEM_HUGE_PAGE);
    if (w->buffer)
        (void)setvbuf(w->stream, w->buffer, _IOFBF, MEM_HUGE_PAGE);
}

tacit_status file_writer_open(file_writer *w, const char *path, tacit_error *err)
{
    *w = (file_writer){0};
    w->path = realpath(path, NULL); /* a symbolic link stays one, its target is replaced */
    if (!w->path)
        w->path = strdup(path);
    w->temporary = w->path ? malloc(strlen(w->path) + 24) : NULL;
    if (!w->temporary) {
        file_writer_abort(w);
        return error_memory(err, "file name");
    }
    int fd = open_for_writing(w);
    w->stream = fd >= 0 ? fdopen(fd, "wb") : NULL;
    if (w->stream) {
        write_in_pieces(w);
        return TACIT_OK;
    }
    int why = errno;
    if (fd >= 0) {
        close(fd);
        if (w->kind == FILE_WRITER_NAMED)
            unlink(w->temporary);
    }
    file_writer_abort(w);
    return error_set(err, TACIT_ERR_IO, "cannot create '%s': %s", path, strerror(why));
}

tacit_status file_writer_write(file_writer *w, const void *data, size_t size, tacit_error *err)
{
    if (size == 0 || fwrite(data, 1, size, w->stream) == size)
        return TACIT_OK;
    return error_set(err, TACIT_ERR_IO, "cannot write '%s': %s", w->path, strerror(errno));
}

/* 0, or the errno of the step that failed. */
static int finish_stream(file_writer *w)
{
    if (fflush(w->stream) != 0)
        return errno;
    int fd = fileno(w->stream);
    if (w->kind != FILE_WRITER_SPECIAL && fsync(fd) != 0)
        return errno;
    if (w->kind == FILE_WRITER_NAMELESS) {
        if (give_temporary_name(w, fd) < 0)
            return errno;
        w->kind = FILE_WRITER_NAMED;
    }
    int closed = fclose(w->stream);
    w->stream = NULL;
    if (closed != 0)
        return errno;
    return w->kind == FILE_WRITER_NAMED && rename(w->temporary, w->path) != 0 ? errno : 0;
}

tacit_status file_writer_commit(file_writer *w, tacit_error *err)
{
    int why = finish_stream(w);
    tacit_status status = TACIT_OK;
    if (why) {
        if (w->kind == FILE_WRITER_NAMED)
            unlink(w->temporary);
        status = error_set(err, TACIT_ERR_IO, "cannot write '%s': %s", w->path, strerror(why));
    }
    file_writer_abort(w);
    return status;
}

void file_writer_abort(file_writer *w)
{
    if (w->stream) {
        fclose(w->stream);
        if (w->kind == FILE_WRITER_NAMED)
            unlink(w->temporary);
    }
    free(w->path);
    free(w->temporary);
    free(w->buffer);
    *w = (file_writer){0};
}

tacit_status file_write_all(const char *path, const void *data, size_t size, tacit_error *err)
{
    file_writer w;
    TRY(file_writer_open(&w, path, err));
    tacit_status status = file_writer_write(&w, data, size, err);
    if (status != TACIT_OK) {
        file_writer_abort(&w);
        return status;
    }
    return file_writer_commit(&w, err);
}
