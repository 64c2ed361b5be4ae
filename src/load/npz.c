/* SPDX-License-Identifier: Apache-2.0
 * .npz files: zip archives of .npy members. */
#include <string.h>

#ifdef TACIT_HAVE_ZLIB
#include <zlib.h>
#endif

#include "load/load.h"

enum {
    LOCAL_SIZE = 30,
    CENTRAL_SIZE = 46,
    END_SIZE = 22,
    END64_SIZE = 56,
    LOCATOR_SIZE = 20,
    STORED = 0,
    DEFLATED = 8,
    INFLATE_RATIO = 200,
};
static const uint64_t inflate_always = (uint64_t)1 << 30;

static uint64_t number(const unsigned char *p, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)p[i] << (8 * i);
    return value;
}

static uint32_t checksum(const void *data, size_t size)
{
    uint32_t table[256];
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++)
            c = c >> 1 ^ (c & 1 ? 0xedb88320u : 0);
        table[i] = c;
    }
    uint32_t crc = ~0u;
    const unsigned char *p = data;
    for (size_t i = 0; i < size; i++)
        crc = crc >> 8 ^ table[(crc ^ p[i]) & 0xff];
    return ~crc;
}

typedef struct zip {
    const unsigned char *data;
    size_t size;
    uint64_t entries, directory; /* how many, where */
    uint64_t stored;             /* bytes of stored members so far: they cannot overlap */
    uint64_t inflated, limit;    /* bytes of deflated ones, and how many there may be */
    arena *memory;
    tacit_error *err;
} zip;

typedef struct zip_entry {
    const char *name;
    const unsigned char *packed;
    uint64_t packed_size, size, header;
    uint32_t crc;
    unsigned method, flags;
} zip_entry;

static tacit_status malformed(zip *z, const char *what)
{
    return error_set(z->err, TACIT_ERR_FORMAT, "npz: %s", what);
}

/* The end record stands within the last 64 KiB; sizes beyond 32 bits in a second record. */
static tacit_status find_directory(zip *z)
{
    if (z->size < END_SIZE)
        return malformed(z, "not a zip archive");
    size_t lowest = z->size > 65535 + END_SIZE ? z->size - 65535 - END_SIZE : 0;
    size_t at = z->size - END_SIZE + 1;
    do {
        if (at-- == lowest)
            return malformed(z, "not a zip archive");
    } while (number(z->data + at, 4) != 0x06054b50);
    z->entries = number(z->data + at + 10, 2);
    z->directory = number(z->data + at + 16, 4);
    if (at < LOCATOR_SIZE || number(z->data + at - LOCATOR_SIZE, 4) != 0x07064b50)
        return TACIT_OK;
    uint64_t end64 = number(z->data + at - LOCATOR_SIZE + 8, 8);
    if (end64 > z->size || z->size - end64 < END64_SIZE || number(z->data + end64, 4) != 0x06064b50)
        return malformed(z, "the zip64 end record is malformed");
    z->entries = number(z->data + end64 + 32, 8);
    z->directory = number(z->data + end64 + 48, 8);
    return TACIT_OK;
}

/* The extra field of 64-bit sizes replaces those that are all ones. */
static bool read_extra(zip_entry *e, const unsigned char *p, size_t left)
{
    while (left >= 4) {
        uint64_t id = number(p, 2), size = number(p + 2, 2);
        if (size > left - 4)
            return false;
        const unsigned char *field = p + 4;
        uint64_t *const wide[] = {&e->size, &e->packed_size, &e->header};
        for (int k = 0, at = 0; id == 1 && k < 3; k++)
            if (*wide[k] == UINT32_MAX) {
                if ((uint64_t)at + 8 > size)
                    return false;
                *wide[k] = number(field + at, 8);
                at += 8;
            }
        p += 4 + size;
        left -= 4 + size;
    }
    return true;
}

static tacit_status read_entry(zip *z, uint64_t *at, zip_entry *e)
{
    if (*at > z->size || z->size - *at < CENTRAL_SIZE || number(z->data + *at, 4) != 0x02014b50)
        return malformed(z, "the directory is malformed");
    const unsigned char *p = z->data + *at;
    uint64_t name = number(p + 28, 2), extra = number(p + 30, 2), comment = number(p + 32, 2);
    if (z->size - *at - CENTRAL_SIZE < name + extra + comment)
        return malformed(z, "the directory is cut short");
    *e = (zip_entry){.flags = (unsigned)number(p + 8, 2),
                     .method = (unsigned)number(p + 10, 2),
                     .crc = (uint32_t)number(p + 16, 4),
                     .packed_size = number(p + 20, 4),
                     .size = number(p + 24, 4),
                     .header = number(p + 42, 4)};
    if (!read_extra(e, p + CENTRAL_SIZE + name, extra))
        return malformed(z, "the directory is malformed");
    const char *text = (const char *)p + CENTRAL_SIZE;
    if (memchr(text, 0, name))
        return malformed(z, "a member's name has a NUL byte in it");
    if (name > 4 && memcmp(text + name - 4, ".npy", 4) == 0)
        name -= 4;
    e->name = arena_strndup(z->memory, text, name);
    *at += CENTRAL_SIZE + number(p + 28, 2) + extra + comment;
    return e->name ? TACIT_OK : error_memory(z->err, "an npz member");
}

static tacit_status locate(zip *z, zip_entry *e)
{
    if (e->flags & 1)
        return error_set(z->err, TACIT_ERR_UNSUPPORTED, "encrypted members are not supported");
    if (e->header > z->size || z->size - e->header < LOCAL_SIZE ||
        number(z->data + e->header, 4) != 0x04034b50)
        return malformed(z, "a member's header is malformed");
    const unsigned char *p = z->data + e->header;
    uint64_t skip = LOCAL_SIZE + number(p + 26, 2) + number(p + 28, 2);
    if (z->size - e->header < skip || z->size - e->header - skip < e->packed_size)
        return malformed(z, "a member is cut short");
    e->packed = p + skip;
    return TACIT_OK;
}

#ifdef TACIT_HAVE_ZLIB
static tacit_status inflate_into(zip *z, const zip_entry *e, unsigned char *to)
{
    z_stream s = {0};
    if (inflateInit2(&s, -MAX_WBITS) != Z_OK)
        return error_memory(z->err, "inflating");
    uint64_t in = e->packed_size, out = e->size;
    int code = Z_OK;
    s.next_in = (unsigned char *)e->packed;
    s.next_out = to;
    while (code == Z_OK) {
        uInt some_in = in > 1u << 30 ? 1u << 30 : (uInt)in;
        uInt some_out = out > 1u << 30 ? 1u << 30 : (uInt)out;
        s.avail_in = some_in;
        s.avail_out = some_out;
        code = inflate(&s, Z_NO_FLUSH);
        in -= some_in - s.avail_in;
        out -= some_out - s.avail_out;
        if (code == Z_OK && some_in == s.avail_in && some_out == s.avail_out)
            break; /* no progress: cut short, or more than it promised */
    }
    inflateEnd(&s);
    return code == Z_STREAM_END && out == 0 ? TACIT_OK : malformed(z, "deflated data is corrupt");
}
#endif

static tacit_status unpack(zip *z, const zip_entry *e, const unsigned char **out)
{
    if (e->method == STORED) {
        if (e->packed_size != e->size)
            return malformed(z, "a stored member has two sizes");
        if (e->size > z->size - z->stored)
            return malformed(z, "members overlap");
        z->stored += e->size;
        *out = e->packed;
        return TACIT_OK;
    }
#ifdef TACIT_HAVE_ZLIB
    if (e->method == DEFLATED) {
        if (e->size > z->limit - z->inflated)
            return error_set(z->err, TACIT_ERR_LIMIT, "inflates far beyond the file's size");
        z->inflated += e->size;
        unsigned char *to = arena_alloc_aligned(z->memory, e->size + 1, MEM_ALIGN);
        if (!to)
            return error_memory(z->err, "an npz member");
        *out = to;
        return inflate_into(z, e, to);
    }
#endif
    return error_set(z->err, TACIT_ERR_UNSUPPORTED, "compression method %u is not supported",
                     e->method);
}

static tacit_status read_member(zip *z, const zip_entry *e, ir_tensor *out)
{
    zip_entry located = *e;
    const unsigned char *bytes = NULL;
    TRY(locate(z, &located));
    TRY(unpack(z, &located, &bytes));
    if (checksum(bytes, e->size) != e->crc)
        return malformed(z, "the checksum is wrong");
    return load_npy(bytes, e->size, z->memory, out, z->err);
}

const ir_tensor *load_tensors_find(const load_tensors *t, const char *name)
{
    for (uint32_t i = 0; i < t->items.count; i++)
        if (strcmp(t->items.data[i].name, name) == 0)
            return &t->items.data[i].tensor;
    return NULL;
}

tacit_status load_npz(const void *data, size_t size, arena *memory, load_tensors *out,
                      tacit_error *err)
{
    zip z = {.data = data, .size = size, .memory = memory, .err = err};
    uint64_t ratio = size > UINT64_MAX / INFLATE_RATIO ? UINT64_MAX : size * INFLATE_RATIO;
    z.limit = ratio > inflate_always ? ratio : inflate_always;
    TRY(find_directory(&z));
    *out = (load_tensors){0};
    map names;
    map_init(&names, memory);
    uint64_t at = z.directory;
    for (uint64_t i = 0; i < z.entries; i++) {
        zip_entry e;
        load_named item = {0};
        TRY(read_entry(&z, &at, &e));
        item.name = e.name;
        if (map_get(&names, e.name))
            return error_set(err, TACIT_ERR_FORMAT, "npz: two members are named '%s'", e.name);
        tacit_status status = read_member(&z, &e, &item.tensor);
        if (status != TACIT_OK)
            return error_context(err, status, "npz member '%s'", e.name);
        if (!vec_push(memory, &out->items, item) || !map_put(&names, e.name, &names))
            return error_memory(err, "an npz file");
    }
    return TACIT_OK;
}

/* --- writing ---------------------------------------------------------------------------------- */

static void put_number(sbuf *b, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        sbuf_char(b, (char)(value >> (8 * i)));
}

/* What the local and the central header have in common. */
static void put_common(sbuf *b, const char *name, uint32_t crc, size_t size)
{
    put_number(b, 20, 2);    /* version needed */
    put_number(b, 0x800, 2); /* names are UTF-8 */
    put_number(b, STORED, 2);
    put_number(b, 0, 2);      /* time */
    put_number(b, 0x0021, 2); /* date: the first of 1980, the same on every run */
    put_number(b, crc, 4);
    put_number(b, size, 4);
    put_number(b, size, 4);
    put_number(b, strlen(name) + 4, 2);
    put_number(b, 0, 2); /* extra */
}

static tacit_status put_member(const load_named *item, sbuf *member, sbuf *head, sbuf *directory,
                               uint64_t offset, tacit_error *err)
{
    member->length = head->length = 0;
    TRY(load_npy_encode(&item->tensor, member, err));
    if (member->length >= UINT32_MAX || offset + member->length >= UINT32_MAX - 65536)
        return error_set(err, TACIT_ERR_LIMIT, "npz files end at 4 GiB");
    if (strlen(item->name) > 60000)
        return error_set(err, TACIT_ERR_LIMIT, "the name is too long");
    uint32_t crc = checksum(member->data, member->length);
    put_number(head, 0x04034b50, 4);
    put_common(head, item->name, crc, member->length);
    sbuf_printf(head, "%s.npy", item->name);
    put_number(directory, 0x02014b50, 4);
    put_number(directory, 20, 2);
    put_common(directory, item->name, crc, member->length);
    put_number(directory, 0, 2); /* comment */
    put_number(directory, 0, 2); /* disk */
    put_number(directory, 0, 2); /* attributes */
    put_number(directory, 0, 4);
    put_number(directory, offset, 4);
    sbuf_printf(directory, "%s.npy", item->name);
    return head->failed || directory->failed ? error_memory(err, "an npz file") : TACIT_OK;
}

static tacit_status write_members(const load_tensors *t, file_writer *w, tacit_error *err)
{
    sbuf member, head, directory;
    uint64_t offset = 0;
    tacit_status status = t->items.count < 65535
                              ? TACIT_OK
                              : error_set(err, TACIT_ERR_LIMIT, "too many tensors for an npz file");
    sbuf_init(&member, NULL);
    sbuf_init(&head, NULL);
    sbuf_init(&directory, NULL);
    for (uint32_t i = 0; i < t->items.count && status == TACIT_OK; i++) {
        const load_named *item = &t->items.data[i];
        status = put_member(item, &member, &head, &directory, offset, err);
        if (status != TACIT_OK)
            status = error_context(err, status, "tensor '%s'", item->name);
        if (status == TACIT_OK)
            status = file_writer_write(w, head.data, head.length, err);
        if (status == TACIT_OK)
            status = file_writer_write(w, member.data, member.length, err);
        offset += head.length + member.length;
    }
    if (status == TACIT_OK) {
        size_t size = directory.length;
        put_number(&directory, 0x06054b50, 4);
        put_number(&directory, 0, 4);
        put_number(&directory, t->items.count, 2);
        put_number(&directory, t->items.count, 2);
        put_number(&directory, size, 4);
        put_number(&directory, offset, 4);
        put_number(&directory, 0, 2);
        status = directory.failed ? error_memory(err, "an npz file")
                                  : file_writer_write(w, directory.data, directory.length, err);
    }
    sbuf_free(&member);
    sbuf_free(&head);
    sbuf_free(&directory);
    return status;
}

tacit_status load_npz_write(const load_tensors *t, const char *path, tacit_error *err)
{
    file_writer w;
    TRY(file_writer_open(&w, path, err));
    tacit_status status = write_members(t, &w, err);
    if (status == TACIT_OK)
        return file_writer_commit(&w, err);
    file_writer_abort(&w);
    return error_context(err, status, "writing '%s'", path);
}
