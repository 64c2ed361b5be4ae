/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

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
            *m = (file_map){data, (size_t)st.st_size};
    }
    close(fd);
    return status;
}

void file_map_close(file_map *m)
{
    if (m->data)
        munmap((void *)m->data, m->size);
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

tacit_status file_writer_open(file_writer *w, const char *path, tacit_error *err)
{
    *w = (file_writer){0};
    size_t length = strlen(path);
    w->path = malloc(length + 1);
    w->temporary = malloc(length + 12);
    if (!w->path || !w->temporary) {
        file_writer_abort(w);
        return error_memory(err, "file name");
    }
    memcpy(w->path, path, length + 1);
    memcpy(w->temporary, path, length);
    memcpy(w->temporary + length, ".tmpXXXXXX", 11);
    int fd = mkostemp(w->temporary, O_CLOEXEC);
    if (fd >= 0) {
        mode_t mask = umask(0);
        umask(mask);
        (void)fchmod(fd, 0666 & ~mask);
        w->stream = fdopen(fd, "wb");
    }
    if (w->stream)
        return TACIT_OK;
    int why = errno;
    if (fd >= 0) {
        close(fd);
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

tacit_status file_writer_commit(file_writer *w, tacit_error *err)
{
    tacit_status status = TACIT_OK;
    bool flushed = fflush(w->stream) == 0 && fsync(fileno(w->stream)) == 0;
    int why = errno;
    bool closed = fclose(w->stream) == 0;
    if (flushed && !closed)
        why = errno;
    w->stream = NULL;
    bool written = flushed && closed;
    if (!written || rename(w->temporary, w->path) != 0) {
        if (written)
            why = errno;
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
        unlink(w->temporary);
    }
    free(w->path);
    free(w->temporary);
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
