/* SPDX-License-Identifier: Apache-2.0 */
#include "prog/packed.h"

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/map.h"

enum { CHECKED = 64, FORMAT = 1 };
static const char magic[8] = "TACITPW";

/* --- the head: magic, format, size of the head, key, bytes, SHA-256 of all that ----------------
 */

static void put_u64(unsigned char *to, uint64_t x)
{
    for (int i = 0; i < 8; i++)
        to[i] = (unsigned char)(x >> 8 * i);
}

static uint64_t get_u64(const unsigned char *from)
{
    uint64_t x = 0;
    for (int i = 8; i-- > 0;)
        x = x << 8 | from[i];
    return x;
}

static void digest(const void *data, size_t size, uint8_t out[PACKED_KEY])
{
    sha256 s;
    sha256_init(&s);
    sha256_add(&s, data, size);
    sha256_end(&s, out);
}

void packed_head_write(const packed_head *head, unsigned char out[PACKED_HEAD])
{
    memset(out, 0, PACKED_HEAD);
    memcpy(out, magic, sizeof magic);
    put_u64(out + 8, FORMAT);
    put_u64(out + 16, PACKED_HEAD);
    memcpy(out + 24, head->key, PACKED_KEY);
    put_u64(out + 56, head->bytes);
    digest(out, CHECKED, out + CHECKED);
}

tacit_status packed_head_read(const unsigned char data[PACKED_HEAD], uint64_t file_size,
                              packed_head *out, tacit_error *err)
{
    uint8_t sum[PACKED_KEY];
    if (file_size < PACKED_HEAD || memcmp(data, magic, sizeof magic) != 0)
        return error_set(err, TACIT_ERR_FORMAT, "it is no file of packed weights");
    if (get_u64(data + 8) != FORMAT || get_u64(data + 16) != PACKED_HEAD)
        return error_set(err, TACIT_ERR_FORMAT, "its format is %llu, not %d",
                         (unsigned long long)get_u64(data + 8), FORMAT);
    digest(data, CHECKED, sum);
    if (memcmp(sum, data + CHECKED, sizeof sum) != 0)
        return error_set(err, TACIT_ERR_FORMAT, "its head is damaged");
    memcpy(out->key, data + 24, PACKED_KEY);
    out->bytes = get_u64(data + 56);
    if (out->bytes != file_size - PACKED_HEAD)
        return error_set(err, TACIT_ERR_FORMAT, "it has %llu bytes of weights, not %llu",
                         (unsigned long long)(file_size - PACKED_HEAD),
                         (unsigned long long)out->bytes);
    return TACIT_OK;
}

/* --- which build this is ----------------------------------------------------------------------
 */

typedef struct build {
    uintptr_t inside; /* an address of the module looked for */
    const unsigned char *id;
    size_t size;
} build;

static void find_note(build *b, const char *notes, size_t size)
{
    for (size_t at = 0; at + sizeof(ElfW(Nhdr)) <= size;) {
        ElfW(Nhdr) n;
        memcpy(&n, notes + at, sizeof n);
        size_t name = at + sizeof n, data = name + align_up(n.n_namesz, 4);
        if (data + n.n_descsz > size)
            return;
        if (n.n_type == NT_GNU_BUILD_ID && n.n_namesz == 4 && memcmp(notes + name, "GNU", 4) == 0) {
            b->id = (const unsigned char *)notes + data;
            b->size = n.n_descsz;
            return;
        }
        at = data + align_up(n.n_descsz, 4);
    }
}

static int look_into(struct dl_phdr_info *info, size_t size, void *context)
{
    (void)size;
    build *b = context;
    bool here = false;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        uintptr_t begin = info->dlpi_addr + p->p_vaddr;
        here |= p->p_type == PT_LOAD && b->inside >= begin && b->inside < begin + p->p_memsz;
    }
    for (int i = 0; here && !b->id && i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type == PT_NOTE)
            find_note(b, (const char *)(info->dlpi_addr + p->p_vaddr), p->p_memsz);
    }
    return here;
}

/* The linker's name of the module that the kernels are in: another build of them has another. */
static bool add_build(sha256 *key)
{
    build b = {.inside = (uintptr_t)packed_open};
    dl_iterate_phdr(look_into, &b);
    if (b.id)
        sha256_add(key, b.id, b.size);
    return b.id != NULL;
}

/* --- the key ----------------------------------------------------------------------------------
 */

static void add_number(sha256 *key, uint64_t x)
{
    unsigned char bytes[8];
    put_u64(bytes, x);
    sha256_add(key, bytes, sizeof bytes);
}

static void add_weight(packed_store *s, const ir_tensor *w)
{
    add_number(&s->key, (uint64_t)w->dtype);
    add_number(&s->key, w->bytes);
    if (!ir_tensor_is_late(w)) {
        s->too_new |= !s->identify(s->identify_context, w->data, w->bytes, &s->key);
        return;
    }
    const ir_recipe *r = w->recipe;
    add_number(&s->key, (uint64_t)r->kind + 1);
    add_number(&s->key, (uint64_t)r->rows);
    add_number(&s->key, r->count);
    /* The scale follows from the model, whose identity is in the key: a quick hash tells models
     * from options that scale differently. */
    for (uint64_t seed = 1; r->scale && seed < 3; seed++)
        add_number(&s->key, hash_bytes(r->scale, (size_t)r->rows * sizeof *r->scale, seed));
    for (uint32_t i = 0; i < r->count; i++) {
        add_number(&s->key, (uint64_t)r->from[i]->dtype);
        add_number(&s->key, r->from[i]->bytes);
        s->too_new |=
            !s->identify(s->identify_context, r->from[i]->data, r->from[i]->bytes, &s->key);
    }
}

/* Arguments as they are, but addresses in the weights as places: those of this node are its last
 * parts. The weight's own address is not there yet. */
static void add_arguments(packed_store *s, const op_job *job, uint32_t parts)
{
    size_t size = job->key_size ? job->key_size : job->args_size;
    for (size_t at = 0; at < size; at += sizeof(uint64_t)) {
        uint64_t word = 0;
        size_t left = size - at;
        memcpy(&word, (const char *)job->args + at, left < sizeof word ? left : sizeof word);
        size_t place = s->bytes;
        for (uint32_t i = s->parts.count; i-- > s->parts.count - parts;) {
            const op_packed *p = &s->parts.data[i];
            place -= align_up(p->bytes ? p->bytes : 1, MEM_ALIGN);
            if (word - (uintptr_t)p->data < p->bytes) {
                add_number(&s->key, UINT64_MAX);
                word = place + (word - (uintptr_t)p->data);
                break;
            }
        }
        add_number(&s->key, word);
    }
}

/* The constants a job reads, unless they are those of the job before. */
static void add_constants(packed_store *s, const op_job *job)
{
    const ir_tensor *read[] = {job->weight, job->beside[0], job->beside[1]};
    if (memcmp(read, s->read, sizeof read) == 0)
        return;
    memcpy(s->read, read, sizeof read);
    for (size_t i = 0; i < sizeof read / sizeof *read; i++) {
        add_number(&s->key, read[i] != NULL);
        if (read[i])
            add_weight(s, read[i]);
    }
}

static void add_job(packed_store *s, const op_job *job, uint32_t parts)
{
    add_constants(s, job);
    add_number(&s->key, (uintptr_t)job->fn - (uintptr_t)packed_open); /* the build is in the key */
    add_number(&s->key, (uint64_t)job->begin << 32 | job->end);
    add_number(&s->key, job->field);
    add_number(&s->key, job->offset);
    add_number(&s->key, job->first);
    add_number(&s->key, job->bytes);
    add_number(&s->key, (uint64_t)job->args_size << 2 | job->last << 1 | job->second);
    add_arguments(s, job, parts);
}

tacit_status packed_note(packed_store *s, const op_lower *c, uint32_t first)
{
    uint32_t parts = 0;
    for (uint32_t i = 0; i < c->packed.count; i++) {
        const op_packed *p = &c->packed.data[i];
        if (!p->later)
            continue;
        if (!vec_push(c->memory, &s->parts, *p))
            return error_memory(c->err, "packed weights");
        s->bytes += align_up(p->bytes ? p->bytes : 1, MEM_ALIGN);
        add_number(&s->key, p->bytes);
        parts++;
    }
    for (uint32_t i = first; i < c->jobs->count; i++)
        add_job(s, &c->jobs->data[i], parts);
    return TACIT_OK;
}

/* --- reading ----------------------------------------------------------------------------------
 */

static tacit_status read_head(packed_store *s, tacit_error *err)
{
    unsigned char head[PACKED_HEAD] = {0};
    struct stat st;
    if (fstat(s->file, &st) != 0)
        return error_set(err, TACIT_ERR_IO, "%s", strerror(errno));
    if (!S_ISREG(st.st_mode))
        return error_set(err, TACIT_ERR_FORMAT, "it is not a regular file");
    if ((st.st_uid != geteuid() && st.st_uid != 0) || st.st_mode & (S_IWGRP | S_IWOTH))
        return error_set(err, TACIT_ERR_STATE, "others may write it");
    if (pread(s->file, head, sizeof head, 0) != (ssize_t)sizeof head)
        return error_set(err, TACIT_ERR_FORMAT, "it is too short");
    return packed_head_read(head, (uint64_t)st.st_size, &s->head, err);
}

/* Addresses for the file, from a huge page on, so that its huge pages may be mapped as such;
 * nothing lies there. */
static bool reserve(packed_store *s)
{
    if (s->head.bytes > SIZE_MAX / 2)
        return false;
    s->reserved_bytes = (size_t)s->head.bytes + 2 * (size_t)MEM_HUGE_PAGE;
    void *at = mmap(NULL, s->reserved_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                    -1, 0);
    if (at == MAP_FAILED)
        return false;
    s->reserved = at;
    s->region = (char *)align_up((uintptr_t)at, MEM_HUGE_PAGE) + PACKED_HEAD;
    return true;
}

static void forget_file(packed_store *s)
{
    if (s->file >= 0)
        close(s->file);
    s->file = -1;
}

tacit_status packed_open(packed_store *s, slab *weights, size_t expected, tacit_error *err)
{
    s->file = -1;
    weights->expected = expected;
    if (!s->path)
        return TACIT_OK;
    sha256_init(&s->key);
    sha256_add(&s->key, TACIT_VERSION_STRING, sizeof TACIT_VERSION_STRING);
    if (!add_build(&s->key)) {
        log_line(s->log, TACIT_LOG_WARNING,
                 "no packed weights are kept: this build has no build id to know it by");
        s->path = NULL;
        return TACIT_OK;
    }
    s->file = open(s->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (s->file >= 0) {
        tacit_error why = {0};
        if (read_head(s, &why) != TACIT_OK) {
            log_line(s->log, TACIT_LOG_WARNING, "packed weights in '%s' are not used: %s", s->path,
                     why.message);
            forget_file(s);
        } else if (s->head.bytes == 0 || !reserve(s)) {
            forget_file(s);
        }
    }
    if (s->region && !slab_give(weights, s->region, (size_t)s->head.bytes))
        return error_memory(err, "packed weights");
    return TACIT_OK;
}

/* The addresses handed out become memory. */
static tacit_status make_writable(packed_store *s, tacit_error *err)
{
    size_t bytes = s->reserved_bytes - (size_t)(s->region - s->reserved);
    if (mmap(s->region, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
             0) == MAP_FAILED)
        return error_memory(err, "packed weights");
#if defined(MADV_HUGEPAGE)
    (void)madvise(s->region, bytes, MADV_HUGEPAGE); /* a wish */
#endif
    return TACIT_OK;
}

tacit_status packed_map(packed_store *s, tacit_error *err)
{
    uint8_t key[PACKED_KEY];
    sha256 all = s->key;
    add_number(&all, s->bytes);
    sha256_end(&all, key);
    bool same =
        s->file >= 0 && s->bytes == s->head.bytes && memcmp(key, s->head.key, sizeof key) == 0;
    if (same) {
        /* Read-only: a kernel that wrote its weights would be stopped, not spoil the file. */
        void *at = mmap(s->region - PACKED_HEAD, PACKED_HEAD + s->bytes, PROT_READ,
                        MAP_PRIVATE | MAP_FIXED, s->file, 0);
        s->mapped = at != MAP_FAILED;
    } else if (s->file >= 0) {
        log_line(s->log, TACIT_LOG_INFO,
                 "packed weights in '%s' are for another model, build or processor, or other "
                 "options: packed again",
                 s->path);
    }
    forget_file(s);
    memcpy(s->head.key, key, sizeof key);
    s->head.bytes = s->bytes;
    if (s->mapped)
        log_line(s->log, TACIT_LOG_INFO, "packed weights: %zu bytes mapped from '%s'", s->bytes,
                 s->path);
    return s->region && !s->mapped ? make_writable(s, err) : TACIT_OK;
}

/* --- writing ----------------------------------------------------------------------------------
 */

static tacit_status write_parts(packed_store *s, file_writer *w, tacit_error *err)
{
    static const char zeros[MEM_ALIGN];
    unsigned char head[PACKED_HEAD];
    packed_head_write(&s->head, head);
    TRY(file_writer_write(w, head, sizeof head, err));
    for (uint32_t i = 0; i < s->parts.count; i++) {
        const op_packed *p = &s->parts.data[i];
        size_t room = align_up(p->bytes ? p->bytes : 1, MEM_ALIGN);
        TRY(file_writer_write(w, p->data, p->bytes, err));
        TRY(file_writer_write(w, zeros, room - p->bytes, err));
    }
    return TACIT_OK;
}

static tacit_status save(packed_store *s, tacit_error *err)
{
    struct stat st;
    file_writer w;
    if (stat(s->path, &st) == 0 && !S_ISREG(st.st_mode))
        return error_set(err, TACIT_ERR_IO, "it is not a regular file");
    TRY(file_writer_open(&w, s->path, err));
    /* Whatever the umask says: nobody else writes what we will trust. */
    tacit_status status = fchmod(fileno(w.stream), S_IRUSR | S_IWUSR | S_IRGRP | S_IROTH) == 0
                              ? write_parts(s, &w, err)
                              : error_set(err, TACIT_ERR_IO, "%s", strerror(errno));
    if (status == TACIT_OK)
        return file_writer_commit(&w, err);
    file_writer_abort(&w);
    return status;
}

void packed_save(packed_store *s)
{
    tacit_error why = {0};
    if (!s->path || s->mapped || s->bytes == 0)
        return;
    if (s->too_new) {
        log_line(s->log, TACIT_LOG_INFO,
                 "packed weights are not kept in '%s' this time: the model has just been written",
                 s->path);
        return;
    }
    if (save(s, &why) != TACIT_OK)
        log_line(s->log, TACIT_LOG_WARNING, "packed weights are not kept in '%s': %s", s->path,
                 why.message);
    else
        log_line(s->log, TACIT_LOG_INFO, "packed weights: %zu bytes kept in '%s'", s->bytes,
                 s->path);
}

void packed_close(packed_store *s)
{
    if (s->path)
        forget_file(s);
    if (s->reserved)
        munmap(s->reserved, s->reserved_bytes);
    s->reserved = NULL;
}
