/* SPDX-License-Identifier: Apache-2.0
 * .npy files: a magic, a Python dict literal, the elements. */
#include <stdio.h>
#include <string.h>

#include "load/load.h"

static const unsigned char magic[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

/* --- the header's dict literal ---------------------------------------------------------------- */

typedef struct npy_text {
    const char *at, *end;
} npy_text;

typedef struct npy_header {
    ir_shape shape;
    tacit_dtype dtype;
    uint32_t chars; /* of a fixed-width string element, else 0 */
    bool wide;      /* those are UCS-4 */
    bool swapped;   /* big-endian */
    bool fortran;
    bool has_descr, has_order, has_shape;
} npy_header;

static void skip_space(npy_text *t)
{
    while (t->at < t->end && (*t->at == ' ' || *t->at == '\n' || *t->at == '\t' || *t->at == '\r'))
        t->at++;
}

static bool accept(npy_text *t, char c)
{
    skip_space(t);
    if (t->at == t->end || *t->at != c)
        return false;
    t->at++;
    return true;
}

static bool read_quoted(npy_text *t, char *out, size_t room)
{
    skip_space(t);
    if (t->at == t->end || (*t->at != '\'' && *t->at != '"'))
        return false;
    char quote = *t->at++;
    size_t n = 0;
    while (t->at < t->end && *t->at != quote) {
        if (n + 1 == room || *t->at == '\\')
            return false;
        out[n++] = *t->at++;
    }
    out[n] = '\0';
    return accept(t, quote);
}

static bool read_word(npy_text *t, const char *word)
{
    size_t n = strlen(word);
    skip_space(t);
    if ((size_t)(t->end - t->at) < n || memcmp(t->at, word, n) != 0)
        return false;
    t->at += n;
    return true;
}

static bool read_size(npy_text *t, int64_t *out)
{
    skip_space(t);
    const char *first = t->at;
    int64_t value = 0;
    while (t->at < t->end && *t->at >= '0' && *t->at <= '9')
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, *t->at++ - '0', &value))
            return false;
    if (t->at < t->end && *t->at == 'L') /* Python 2 wrote long sizes so */
        t->at++;
    *out = value;
    return t->at > first;
}

static tacit_status read_shape(npy_text *t, npy_header *h, tacit_error *err)
{
    h->has_shape = true;
    if (!accept(t, '('))
        return error_set(err, TACIT_ERR_FORMAT, "npy: the shape is not a tuple");
    while (!accept(t, ')')) {
        if (h->shape.rank == IR_MAX_RANK)
            return error_set(err, TACIT_ERR_LIMIT, "npy: more than %d dimensions", IR_MAX_RANK);
        if (!read_size(t, &h->shape.dims[h->shape.rank++]))
            return error_set(err, TACIT_ERR_FORMAT, "npy: malformed shape");
        if (!accept(t, ',') && !(t->at < t->end && *t->at == ')'))
            return error_set(err, TACIT_ERR_FORMAT, "npy: malformed shape");
    }
    return TACIT_OK;
}

typedef struct npy_kind {
    char kind;
    uint32_t size;
    tacit_dtype dtype;
} npy_kind;

static const npy_kind kinds[] = {
    {'f', 2, TACIT_F16}, {'f', 4, TACIT_F32},   {'f', 8, TACIT_F64}, {'b', 1, TACIT_BOOL},
    {'i', 1, TACIT_I8},  {'i', 2, TACIT_I16},   {'i', 4, TACIT_I32}, {'i', 8, TACIT_I64},
    {'u', 1, TACIT_U8},  {'u', 2, TACIT_U16},   {'u', 4, TACIT_U32}, {'u', 8, TACIT_U64},
    {'c', 8, TACIT_C64}, {'c', 16, TACIT_C128},
};

static tacit_status read_descr(npy_text *t, npy_header *h, tacit_error *err)
{
    char text[32];
    h->has_descr = true;
    if (!read_quoted(t, text, sizeof text))
        return error_set(err, TACIT_ERR_UNSUPPORTED,
                         "npy: structured element types are not "
                         "supported");
    npy_text d = {text, text + strlen(text)};
    char order = *d.at == '<' || *d.at == '>' || *d.at == '|' || *d.at == '=' ? *d.at++ : '|';
    char kind = d.at < d.end ? *d.at++ : '\0';
    int64_t size = 0;
    if (!read_size(&d, &size) || d.at != d.end)
        kind = '\0';
    h->swapped = order == '>';
    if ((kind == 'U' || kind == 'S') && size <= 1 << 20) {
        h->dtype = TACIT_STRING;
        h->chars = (uint32_t)size;
        h->wide = kind == 'U';
        return TACIT_OK;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].kind == kind && kinds[i].size == size) {
            h->dtype = kinds[i].dtype;
            return TACIT_OK;
        }
    return error_set(err, TACIT_ERR_UNSUPPORTED, "npy: element type '%s' is not supported", text);
}

static tacit_status read_entry(npy_text *t, npy_header *h, tacit_error *err)
{
    char key[32];
    if (!read_quoted(t, key, sizeof key) || !accept(t, ':'))
        return error_set(err, TACIT_ERR_FORMAT, "npy: malformed header");
    if (strcmp(key, "descr") == 0 && !h->has_descr)
        return read_descr(t, h, err);
    if (strcmp(key, "shape") == 0 && !h->has_shape)
        return read_shape(t, h, err);
    if (strcmp(key, "fortran_order") != 0 || h->has_order)
        return error_set(err, TACIT_ERR_FORMAT, "npy: unexpected header entry '%s'", key);
    h->has_order = true;
    h->fortran = read_word(t, "True");
    return h->fortran || read_word(t, "False")
               ? TACIT_OK
               : error_set(err, TACIT_ERR_FORMAT, "npy: fortran_order is neither True nor False");
}

static tacit_status read_header(npy_text *t, npy_header *h, tacit_error *err)
{
    *h = (npy_header){0};
    if (!accept(t, '{'))
        return error_set(err, TACIT_ERR_FORMAT, "npy: malformed header");
    while (!accept(t, '}')) {
        TRY(read_entry(t, h, err));
        if (!accept(t, ',') && !(t->at < t->end && *t->at == '}'))
            return error_set(err, TACIT_ERR_FORMAT, "npy: malformed header");
    }
    if (!h->has_descr || !h->has_order || !h->has_shape)
        return error_set(err, TACIT_ERR_FORMAT, "npy: the header lacks an entry");
    return TACIT_OK;
}

/* --- elements --------------------------------------------------------------------------------- */

/* Element number `i` in C order lies at this position of a Fortran-ordered file. */
static int64_t fortran_position(const ir_shape *s, int64_t i)
{
    int64_t position = 0, stride[IR_MAX_RANK], step = 1;
    for (int32_t d = 0; d < s->rank; d++) {
        stride[d] = step;
        step *= s->dims[d];
    }
    for (int32_t d = s->rank; d-- > 0;) {
        position += i % s->dims[d] * stride[d];
        i /= s->dims[d];
    }
    return position;
}

static void copy_swapped(unsigned char *to, const unsigned char *from, size_t size, size_t word)
{
    for (size_t base = 0; base < size; base += word)
        for (size_t k = 0; k < word; k++)
            to[base + k] = from[base + word - 1 - k];
}

static size_t put_utf8(char *out, uint32_t c)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xc0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xe0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3f));
        out[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3f));
    out[2] = (char)(0x80 | (c >> 6 & 0x3f));
    out[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

/* A fixed-width element without its trailing NULs. */
static tacit_status read_string(const npy_header *h, const unsigned char *from, arena *memory,
                                ir_string *out, tacit_error *err)
{
    size_t width = h->wide ? 4 : 1, chars = h->chars, n = 0;
    static const unsigned char nul[4];
    while (chars && memcmp(from + (chars - 1) * width, nul, width) == 0)
        chars--;
    char *text = arena_alloc(memory, chars * width + 1);
    if (!text)
        return error_memory(err, "a string");
    for (size_t i = 0; i < chars; i++) {
        const unsigned char *p = from + i * width;
        uint32_t c = p[0];
        if (h->wide)
            c = h->swapped
                    ? (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3]
                    : (uint32_t)p[3] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[1] << 8 | p[0];
        if (c > 0x10ffff || (h->wide && c >= 0xd800 && c < 0xe000))
            return error_set(err, TACIT_ERR_FORMAT, "npy: a character is not Unicode");
        if (h->wide)
            n += put_utf8(text + n, c);
        else
            text[n++] = (char)c;
    }
    text[n] = '\0';
    *out = (ir_string){text, n};
    return TACIT_OK;
}

static tacit_status fill(const npy_header *h, const unsigned char *from, size_t each, arena *memory,
                         ir_tensor *t, tacit_error *err)
{
    bool complex = ir_dtype_classify(h->dtype) == IR_CLASS_COMPLEX;
    size_t word = h->swapped ? (complex ? each / 2 : each) : 1;
    unsigned char *to = t->data;
    for (int64_t i = 0, n = ir_tensor_count(t); i < n; i++) {
        size_t at = (size_t)(h->fortran ? fortran_position(&h->shape, i) : i) * each;
        if (h->dtype == TACIT_STRING)
            TRY(read_string(h, from + at, memory, (ir_string *)t->data + i, err));
        else if (h->dtype == TACIT_BOOL)
            to[i] = from[at] != 0;
        else
            copy_swapped(to + (size_t)i * each, from + at, each, word);
    }
    return TACIT_OK;
}

static bool usable_in_place(const npy_header *h, const unsigned char *from, size_t each)
{
    size_t align = each > 8 ? 8 : each;
    return h->dtype != TACIT_STRING && h->dtype != TACIT_BOOL && !(h->swapped && each > 1) &&
           !(h->fortran && h->shape.rank > 1) && (uintptr_t)from % align == 0;
}

static tacit_status read_elements(const npy_header *h, const unsigned char *from, size_t left,
                                  arena *memory, ir_tensor *out, tacit_error *err)
{
    ir_type type = {.kind = IR_TENSOR, .dtype = h->dtype, .shape = h->shape};
    size_t bytes, want,
        each = h->dtype == TACIT_STRING ? (size_t)h->chars * (h->wide ? 4 : 1)
                                        : tacit_dtype_bits(h->dtype) / 8;
    int64_t count;
    if (!ir_type_bytes(&type, &bytes) || !ir_shape_count(&h->shape, &count) ||
        !size_mul((size_t)count, each, &want))
        return error_set(err, TACIT_ERR_LIMIT, "npy: the shape is too large to address");
    if (want > left || (h->dtype == TACIT_STRING && !each && (size_t)count > left + (1 << 20)))
        return error_set(err, TACIT_ERR_FORMAT, "npy: needs %zu bytes of elements but has %zu",
                         want, left);
    if (count && usable_in_place(h, from, each)) {
        *out = ir_tensor_view(h->dtype, &h->shape, from);
        return TACIT_OK;
    }
    ir_tensor *t = ir_tensor_new(memory, h->dtype, &h->shape);
    if (!t)
        return error_memory(err, "an npy tensor");
    TRY(fill(h, from, each, memory, t, err));
    *out = *t;
    return TACIT_OK;
}

tacit_status load_npy(const void *data, size_t size, arena *memory, ir_tensor *out,
                      tacit_error *err)
{
    const unsigned char *p = data;
    npy_header h;
    if (size < 10 || memcmp(p, magic, sizeof magic) != 0)
        return error_set(err, TACIT_ERR_FORMAT, "not an npy file");
    if (p[6] < 1 || p[6] > 3)
        return error_set(err, TACIT_ERR_UNSUPPORTED, "npy: format version %d is not supported",
                         p[6]);
    size_t start = p[6] == 1 ? 10 : 12, length = p[8] | (size_t)p[9] << 8;
    if (p[6] > 1 && size >= 12)
        length |= (size_t)p[10] << 16 | (size_t)p[11] << 24;
    if (size < start || length > size - start)
        return error_set(err, TACIT_ERR_FORMAT, "npy: the header is cut short");
    npy_text t = {(const char *)p + start, (const char *)p + start + length};
    TRY(read_header(&t, &h, err));
    return read_elements(&h, p + start + length, size - start - length, memory, out, err);
}

/* --- writing ---------------------------------------------------------------------------------- */

/* Code points of UTF-8 text into `out` (may be NULL: count only); false when it is not UTF-8. */
static bool utf8_points(ir_string s, uint32_t *out, size_t *count)
{
    size_t n = 0;
    for (uint64_t i = 0; i < s.length;) {
        unsigned char c = (unsigned char)s.data[i++];
        int length = 0;
        int more = c < 0x80 ? 0 : c >> 5 == 6 ? 1 : c >> 4 == 14 ? 2 : c >> 3 == 30 ? 3 : -1;
        uint32_t point = more <= 0 ? c : c & (0x3fu >> more);
        if (more < 0 || (uint64_t)more > s.length - i)
            return false;
        for (; more > 0; more--) {
            unsigned char d = (unsigned char)s.data[i++];
            if (d >> 6 != 2)
                return false;
            point = point << 6 | (d & 0x3fu);
            length++;
        }
        static const uint32_t lowest[] = {0, 0x80, 0x800, 0x10000};
        if (point < lowest[length] || point > 0x10ffff || (point >= 0xd800 && point < 0xe000))
            return false; /* over-long, beyond Unicode, or half a surrogate pair */
        if (out)
            out[n] = point;
        n++;
    }
    *count = n;
    return true;
}

static tacit_status widest_string(const ir_tensor *t, size_t *widest, tacit_error *err)
{
    const ir_string *s = t->data;
    *widest = 1;
    for (int64_t i = 0, n = ir_tensor_count(t); i < n; i++) {
        size_t chars;
        if (!utf8_points(s[i], NULL, &chars))
            return error_set(err, TACIT_ERR_UNSUPPORTED, "npy: string %lld is not UTF-8",
                             (long long)i);
        if (s[i].length && !s[i].data[s[i].length - 1])
            return error_set(err, TACIT_ERR_UNSUPPORTED,
                             "npy: string %lld ends in NUL, which the format drops", (long long)i);
        *widest = chars > *widest ? chars : *widest;
    }
    return TACIT_OK;
}

static void put_strings(const ir_tensor *t, size_t width, sbuf *out)
{
    const ir_string *s = t->data;
    for (int64_t i = 0, n = ir_tensor_count(t); i < n; i++) {
        size_t start = out->length, chars = 0;
        for (size_t k = 0; k < width; k++)
            sbuf_bytes(out, "\0\0\0", 4);
        if (out->failed)
            return;
        uint32_t point;
        for (uint64_t at = 0; at < s[i].length; chars++) {
            unsigned char c = (unsigned char)s[i].data[at];
            uint64_t length = c < 0x80 ? 1 : c >> 5 == 6 ? 2 : c >> 4 == 14 ? 3 : 4;
            size_t one;
            (void)utf8_points((ir_string){s[i].data + at, length}, &point, &one);
            at += length;
            unsigned char le[4] = {(unsigned char)point, (unsigned char)(point >> 8),
                                   (unsigned char)(point >> 16), 0};
            memcpy(out->data + start + chars * 4, le, 4);
        }
    }
}

static tacit_status put_header(const ir_tensor *t, size_t width, sbuf *out, tacit_error *err)
{
    const npy_kind *k = NULL;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].dtype == t->dtype)
            k = &kinds[i];
    if (t->kind != IR_TENSOR || (!k && t->dtype != TACIT_STRING))
        return error_set(err, TACIT_ERR_UNSUPPORTED, "npy files cannot hold %s",
                         t->kind == IR_TENSOR ? tacit_dtype_text(t->dtype)
                                              : "sequences, optionals or maps");
    size_t start = out->length;
    sbuf_bytes(out, magic, sizeof magic);
    sbuf_bytes(out, "\1\0\0\0", 4);
    if (k)
        sbuf_printf(out, "{'descr': '%c%c%u', ", k->size == 1 ? '|' : '<', k->kind, k->size);
    else
        sbuf_printf(out, "{'descr': '<U%zu', ", width);
    sbuf_text(out, "'fortran_order': False, 'shape': (");
    for (int32_t i = 0; i < t->shape.rank; i++)
        sbuf_printf(out, "%lld,%s", (long long)t->shape.dims[i], i + 1 < t->shape.rank ? " " : "");
    sbuf_text(out, "), }");
    while ((out->length - start + 1) % 64)
        sbuf_char(out, ' ');
    sbuf_char(out, '\n');
    if (out->failed)
        return error_memory(err, "an npy header");
    size_t length = out->length - start - 10;
    out->data[start + 8] = (char)(length & 0xff);
    out->data[start + 9] = (char)(length >> 8);
    return TACIT_OK;
}

tacit_status load_npy_encode(const ir_tensor *t, sbuf *out, tacit_error *err)
{
    size_t width = 0;
    if (t->dtype == TACIT_STRING && t->kind == IR_TENSOR)
        TRY(widest_string(t, &width, err));
    TRY(put_header(t, width, out, err));
    if (t->dtype == TACIT_STRING)
        put_strings(t, width, out);
    else if (t->bytes)
        sbuf_bytes(out, t->data, t->bytes);
    return out->failed ? error_memory(err, "an npy file") : TACIT_OK;
}

tacit_status load_npy_write(const ir_tensor *t, const char *path, tacit_error *err)
{
    sbuf b;
    sbuf_init(&b, NULL);
    tacit_status status = load_npy_encode(t, &b, err);
    if (status == TACIT_OK)
        status = file_write_all(path, b.data, b.length, err);
    sbuf_free(&b);
    return status == TACIT_OK ? status : error_context(err, status, "writing '%s'", path);
}
