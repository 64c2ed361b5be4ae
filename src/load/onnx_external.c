/* SPDX-License-Identifier: Apache-2.0
 * External tensor data: where it may lie, and mapping each file once. */
#include <stdlib.h>
#include <string.h>

#include "load/onnx_reader.h"

void load_files_close(load_files *files)
{
    for (load_file *f = files->first; f; f = f->next)
        file_map_close(&f->map);
    files->first = NULL;
}

const load_moved *load_moved_of(const load_files *files, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    uint32_t low = 0, high = files->copies.count;
    while (low < high) { /* the first that begins behind it */
        uint32_t middle = low + (high - low) / 2;
        if (files->copies.data[middle].data <= at)
            low = middle + 1;
        else
            high = middle;
    }
    const load_moved *c = low ? &files->copies.data[low - 1] : NULL;
    return c && at + bytes <= c->data + c->bytes ? c : NULL;
}

static int by_address(const void *a, const void *b)
{
    const load_moved *x = a, *y = b;
    return (x->data > y->data) - (x->data < y->data);
}

void onnx_sort_copies(load_files *files)
{
    if (files->copies.count)
        qsort(files->copies.data, files->copies.count, sizeof *files->copies.data, by_address);
}

static tacit_status parse_number(onnx_reader *r, wire_span text, const char *key, uint64_t *out)
{
    uint64_t value = 0;
    bool good = text.size > 0;
    for (size_t i = 0; i < text.size && good; i++) {
        unsigned digit = text.data[i] - (unsigned)'0';
        good = digit <= 9 && !__builtin_mul_overflow(value, 10, &value) &&
               !__builtin_add_overflow(value, digit, &value);
    }
    if (!good)
        return error_set(r->err, TACIT_ERR_FORMAT, "external data: %s is not a number", key);
    *out = value;
    return TACIT_OK;
}

static bool span_is(wire_span s, const char *text)
{
    return s.size == strlen(text) && memcmp(s.data, text, s.size) == 0;
}

tacit_status onnx_external_entry(onnx_reader *r, wire_span entry, onnx_external *out)
{
    wire w = wire_open(entry, "external data entry");
    wire_field f;
    wire_span key = {0}, value = {0};
    while (wire_next(&w, &f, r->err)) {
        if (f.number == 1 || f.number == 2)
            TRY(wire_bytes(&w, &f, f.number == 1 ? &key : &value, r->err));
    }
    TRY(wire_status(&w));
    if (span_is(key, "location"))
        out->location = value;
    else if (span_is(key, "offset"))
        return parse_number(r, value, "offset", &out->offset);
    else if (span_is(key, "length")) {
        out->has_length = true;
        return parse_number(r, value, "length", &out->length);
    }
    return TACIT_OK;
}

/* Relative, without ".." and without leaving the folder through a link. */
static tacit_status safe_path(onnx_reader *r, const char *location, char **out)
{
    const char *dir = *r->options->dir ? r->options->dir : ".";
    if (!*location || *location == '/')
        return error_set(r->err, TACIT_ERR_SECURITY, "external data '%s': the path is %s", location,
                         *location ? "absolute" : "empty");
    for (const char *part = location; *part;) {
        size_t length = strcspn(part, "/\\");
        if (length == 2 && memcmp(part, "..", 2) == 0)
            return error_set(r->err, TACIT_ERR_SECURITY,
                             "external data '%s': the path leaves the model's folder", location);
        part += length + (part[length] != '\0');
    }
    const char *joined = arena_printf(r->scratch, "%s/%s", dir, location);
    if (!joined)
        return error_memory(r->err, "a path");
    char *root = realpath(dir, NULL), *full = realpath(joined, NULL);
    tacit_status status = TACIT_OK;
    size_t n = root ? strlen(root) : 0;
    if (n && root[n - 1] == '/')
        n--; /* the root folder itself */
    if (!root || !full)
        status = error_set(r->err, TACIT_ERR_IO, "external data '%s' was not found in '%s'",
                           location, dir);
    else if (strncmp(full, root, n) != 0 || full[n] != '/')
        status = error_set(r->err, TACIT_ERR_SECURITY,
                           "external data '%s': a link leads out of the model's folder", location);
    free(root);
    if (status != TACIT_OK) {
        free(full);
        full = NULL;
    }
    *out = full;
    return status;
}

static tacit_status open_file(onnx_reader *r, const char *location, const load_file **out)
{
    for (const load_file *f = r->files->first; f; f = f->next)
        if (strcmp(f->path, location) == 0) {
            *out = f;
            return TACIT_OK;
        }
    if (!r->options->dir)
        return error_set(r->err, TACIT_ERR_IO,
                         "external data '%s': the model came without a folder to look in",
                         location);
    load_file *f = ARENA_NEW(r->memory, load_file);
    if (!f || !(f->path = arena_strdup(r->memory, location)))
        return error_memory(r->err, "external data");
    char *path = NULL;
    TRY(safe_path(r, location, &path));
    tacit_status status = file_map_open(&f->map, path, r->err);
    free(path);
    TRY(status);
    f->next = r->files->first;
    r->files->first = f;
    if (!size_add(r->budget, f->map.size, &r->budget))
        r->budget = SIZE_MAX;
    *out = f;
    return TACIT_OK;
}

tacit_status onnx_external_bytes(onnx_reader *r, const onnx_external *x, size_t expected,
                                 wire_span *out, const file_map **whence)
{
    const char *location;
    const load_file *file = NULL;
    TRY(onnx_text(r, x->location, &location));
    TRY(open_file(r, location, &file));
    uint64_t length = x->has_length ? x->length : expected;
    if (x->offset > file->map.size || length > file->map.size - x->offset)
        return error_set(r->err, TACIT_ERR_FORMAT,
                         "external data '%s': %llu bytes at %llu pass the end (%zu bytes)",
                         location, (unsigned long long)length, (unsigned long long)x->offset,
                         file->map.size);
    *out = (wire_span){file->map.data + x->offset, (size_t)length};
    *whence = &file->map;
    return TACIT_OK;
}
