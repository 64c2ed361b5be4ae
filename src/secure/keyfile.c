/* SPDX-License-Identifier: Apache-2.0 */
#include "secure/keyfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sha256.h"
#ifdef TACIT_HAVE_OPENSSL
#include <openssl/evp.h>
#endif

static const uint8_t magic[8] = "TACITKEY";
enum { KEY_VERSION = 1 };

/* Chunks that threads may be ahead of the one that uses a key. */
enum { CREW_CHUNKS = 64 };

/* ---- header ---- */

static void put(uint8_t *out, uint64_t x, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        out[i] = (uint8_t)(x >> (8 * i));
}
static uint64_t get(const uint8_t *in, unsigned bytes)
{
    uint64_t x = 0;
    for (unsigned i = 0; i < bytes; i++)
        x |= (uint64_t)in[i] << (8 * i);
    return x;
}

void key_header_write(const key_header *h, uint8_t out[KEY_HEADER])
{
    memset(out, 0, KEY_HEADER);
    memcpy(out, magic, 8);
    put(out + 8, KEY_VERSION, 4);
    out[12] = h->party;
    out[13] = h->prg;
    out[14] = h->tree;
    out[15] = (uint8_t)h->weights;
    out[16] = h->frac;
    out[17] = h->weight_frac;
    put(out + 20, h->flags, 4);
    put(out + 24, h->runs, 4);
    memcpy(out + 32, h->session, 16);
    memcpy(out + 48, h->graph, 32);
    memcpy(out + 80, h->nonce, 12);
    put(out + 96, h->run_bytes, 8);
    put(out + 104, KEY_CHUNK, 4);
}

uint64_t key_file_size(const key_header *h)
{
    uint64_t chunks = (h->run_bytes + KEY_CHUNK - 1) / KEY_CHUNK;
    return KEY_HEADER + 16 + KEY_TAG + h->runs * (h->run_bytes + chunks * KEY_TAG);
}

tacit_status key_header_read(const uint8_t in[KEY_HEADER], uint64_t size, key_header *h,
                             tacit_error *err)
{
    if (memcmp(in, magic, 8) != 0)
        return error_set(err, TACIT_ERR_FORMAT, "this is not a key file");
    if (get(in + 8, 4) != KEY_VERSION || get(in + 104, 4) != KEY_CHUNK)
        return error_set(err, TACIT_ERR_FORMAT, "key file version %llu is not known here",
                         (unsigned long long)get(in + 8, 4));
    *h = (key_header){.party = in[12],
                      .prg = in[13],
                      .tree = in[14],
                      .weights = (int8_t)in[15],
                      .frac = in[16],
                      .weight_frac = in[17],
                      .flags = (uint32_t)get(in + 20, 4),
                      .runs = (uint32_t)get(in + 24, 4),
                      .run_bytes = get(in + 96, 8)};
    memcpy(h->session, in + 32, 16);
    memcpy(h->graph, in + 48, 32);
    memcpy(h->nonce, in + 80, 12);
    uint8_t again[KEY_HEADER];
    key_header_write(h, again);
    if (memcmp(in, again, KEY_HEADER) != 0 || h->party > 1 || !h->runs || h->runs > 1000000 ||
        h->run_bytes > (uint64_t)1 << 44)
        return error_set(err, TACIT_ERR_FORMAT, "the key file's header does not make sense");
    if (key_file_size(h) != size)
        return error_set(err, TACIT_ERR_FORMAT,
                         "the key file has %llu bytes and should have %llu: it was cut or changed",
                         (unsigned long long)size, (unsigned long long)key_file_size(h));
    return TACIT_OK;
}

key_header key_header_for(const sec_program *p, unsigned party, uint32_t runs, bool predictable)
{
    const sec_mode *m = &p->mode;
    key_header h = {.party = (uint8_t)party,
                    .prg = FSS_PRG_AES,
                    .tree = FSS_TREE_HALF,
                    .weights = (int8_t)m->weights,
                    .frac = m->frac,
                    .weight_frac = m->weight_frac,
                    .runs = runs,
                    .run_bytes = p->key_bytes[party]};
    h.flags = (m->dither ? KEY_DITHER : 0) | ((uint32_t)m->compare << 8) |
              (m->calibrated ? KEY_CALIBRATED : 0) | (predictable ? KEY_PREDICTABLE : 0);
#ifdef TACIT_HAVE_OPENSSL
    h.flags |= KEY_ENCRYPTED;
#endif
    memcpy(h.graph, p->hash, 32);
    return h;
}

tacit_status key_check(const key_header *h, const sec_program *p, unsigned party, tacit_error *err)
{
    key_header want = key_header_for(p, party, h->runs, h->flags & KEY_PREDICTABLE);
    static const char *const names[] = {"server", "client"};
    if (h->party != party)
        return error_set(err, TACIT_ERR_SECURITY, "this is the %s's key, not the %s's",
                         names[h->party], names[party]);
    if (memcmp(h->graph, p->hash, 32) != 0)
        return error_set(err, TACIT_ERR_SECURITY,
                         "this key was dealt for another graph, other weights' sizes or another "
                         "mode");
    if (h->flags != want.flags || h->weights != want.weights || h->prg != want.prg ||
        h->tree != want.tree || h->run_bytes != want.run_bytes || h->frac != want.frac ||
        h->weight_frac != want.weight_frac)
        return error_set(err, TACIT_ERR_SECURITY, "this key was dealt for another mode or build");
    return TACIT_OK;
}

/* ---- sealing: the chunk number makes the nonce, the header is authenticated with each ---- */

#ifdef TACIT_HAVE_OPENSSL
static void chunk_nonce(const key_header *h, uint64_t number, uint8_t nonce[12])
{
    memcpy(nonce, h->nonce, 12);
    for (int i = 0; i < 8; i++)
        nonce[4 + i] ^= (uint8_t)(number >> (8 * i));
}

/* In place; the tag is written or checked. */
static bool seal(bool encrypt, const key_header *h, const uint8_t secret[KEY_SECRET],
                 uint64_t number, uint8_t *data, size_t size, uint8_t tag[KEY_TAG])
{
    uint8_t nonce[12], raw[KEY_HEADER];
    int n = 0;
    chunk_nonce(h, number, nonce);
    key_header_write(h, raw);
    EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
    bool ok = c && EVP_CipherInit_ex(c, EVP_aes_256_gcm(), NULL, secret, nonce, encrypt) == 1 &&
              EVP_CipherUpdate(c, NULL, &n, raw, KEY_HEADER) == 1 &&
              EVP_CipherUpdate(c, data, &n, data, (int)size) == 1;
    if (ok && !encrypt)
        ok = EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_GCM_SET_TAG, KEY_TAG, tag) == 1;
    ok = ok && EVP_CipherFinal_ex(c, data + size, &n) == 1;
    if (ok && encrypt)
        ok = EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_GCM_GET_TAG, KEY_TAG, tag) == 1;
    EVP_CIPHER_CTX_free(c);
    return ok;
}
#else
static bool seal(bool encrypt, const key_header *h, const uint8_t secret[KEY_SECRET],
                 uint64_t number, uint8_t *data, size_t size, uint8_t tag[KEY_TAG])
{
    uint8_t raw[KEY_HEADER], count[8], sum[32];
    sha256 s;
    sha256_init(&s);
    key_header_write(h, raw);
    put(count, number, 8);
    sha256_add(&s, secret, KEY_SECRET);
    sha256_add(&s, raw, KEY_HEADER);
    sha256_add(&s, count, 8);
    sha256_add(&s, data, size);
    sha256_end(&s, sum);
    if (encrypt)
        memcpy(tag, sum, KEY_TAG);
    return memcmp(tag, sum, KEY_TAG) == 0;
}
#endif

/* ---- the secret ---- */

tacit_status key_secret(const char *path, const char *secret_path, bool make,
                        uint8_t out[KEY_SECRET], tacit_error *err)
{
    char name[4200];
    snprintf(name, sizeof name, "%s%s", secret_path ? secret_path : path,
             secret_path ? "" : ".secret");
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && make && errno == ENOENT) {
        if (getrandom(out, KEY_SECRET, 0) != KEY_SECRET)
            return error_set(err, TACIT_ERR_IO, "the system gives no random numbers");
        fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        bool ok = fd >= 0 && write(fd, out, KEY_SECRET) == KEY_SECRET && fsync(fd) == 0;
        if (fd >= 0)
            close(fd);
        if (!ok && fd >= 0)
            unlink(name);
        return ok ? TACIT_OK
                  : error_set(err, TACIT_ERR_IO, "cannot write '%s': %s", name, strerror(errno));
    }
    if (fd < 0)
        return error_set(err, TACIT_ERR_IO, "cannot open the key's secret '%s': %s", name,
                         strerror(errno));
    uint8_t extra;
    bool ok = read(fd, out, KEY_SECRET) == KEY_SECRET && read(fd, &extra, 1) == 0;
    close(fd);
    return ok ? TACIT_OK
              : error_set(err, TACIT_ERR_FORMAT, "'%s' must hold exactly %d bytes", name,
                          KEY_SECRET);
}

/* ---- several cores ---- */

static bool worth_a_crew(const key_header *h, unsigned threads)
{
    return threads > 1 && h->run_bytes / KEY_CHUNK >= 2 * threads;
}

static int all_bytes(int fd, crew_piece *p, bool writing)
{
    for (size_t at = 0, size = p->size + KEY_TAG; at < size;) {
        off_t offset = (off_t)(p->offset + at);
        ssize_t n = writing ? pwrite(fd, p->data + at, size - at, offset)
                            : pread(fd, p->data + at, size - at, offset);
        if (n <= 0 && !(n < 0 && errno == EINTR))
            return n < 0 ? errno : ENODATA;
        at += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static int crew_seal(void *context, crew_piece *p)
{
    key_writer *w = context;
    if (!seal(true, &w->header, w->secret, p->number, p->data, p->size, p->data + p->size))
        return EINVAL;
    return all_bytes(fileno(w->file.stream), p, true);
}

static int crew_open(void *context, crew_piece *p)
{
    key_reader *r = context;
    int failed = all_bytes(fileno(r->file), p, false);
    if (failed)
        return failed;
    return seal(false, &r->header, r->secret, p->number, p->data, p->size, p->data + p->size)
               ? 0
               : EBADMSG;
}

/* ---- writing ---- */

tacit_status key_writer_open(key_writer *w, const char *path, const key_header *header,
                             const uint8_t secret[KEY_SECRET], const uint8_t seed[16],
                             tacit_error *err)
{
    *w = (key_writer){.header = *header, .threads = crew_threads()};
    memcpy(w->secret, secret, KEY_SECRET);
    if (getrandom(w->header.nonce, 12, 0) != 12)
        return error_set(err, TACIT_ERR_IO, "the system gives no random numbers");
    uint8_t raw[KEY_HEADER], block[16 + KEY_TAG];
    key_header_write(&w->header, raw);
    memcpy(block, seed, 16);
    if (!seal(true, &w->header, w->secret, w->chunks++, block, 16, block + 16))
        return error_set(err, TACIT_ERR_INTERNAL, "sealing a key failed");
    if (!(w->chunk = w->own = malloc(KEY_CHUNK + KEY_TAG)))
        return error_memory(err, "a key file");
    tacit_status status = file_writer_open(&w->file, path, err);
    if (status == TACIT_OK)
        status = file_writer_write(&w->file, raw, KEY_HEADER, err);
    if (status == TACIT_OK)
        status = file_writer_write(&w->file, block, sizeof block, err);
    w->bytes = KEY_HEADER + sizeof block;
    explicit_bzero(block, sizeof block);
    return status;
}

static tacit_status write_failed(const key_writer *w, int why, tacit_error *err)
{
    return error_set(err, TACIT_ERR_IO, "cannot write '%s': %s", w->file.path, strerror(why));
}

/* From now on threads write, each at its place; a pipe has no places. */
static tacit_status hire_writers(key_writer *w, tacit_error *err)
{
    if (w->file.kind == FILE_WRITER_SPECIAL || !worth_a_crew(&w->header, w->threads))
        return TACIT_OK;
    if (fflush(w->file.stream) != 0)
        return write_failed(w, errno, err);
    TRY(crew_new(w->threads, CREW_CHUNKS, KEY_CHUNK + KEY_TAG, crew_seal, w, &w->crew, err));
    w->chunk = crew_next(w->crew)->data;
    return TACIT_OK;
}

static tacit_status flush_chunk(key_writer *w, tacit_error *err)
{
    if (!w->used)
        return TACIT_OK;
    if (w->crew) {
        crew_piece *p = crew_next(w->crew);
        p->size = w->used;
        p->number = w->chunks++;
        p->offset = w->bytes;
        crew_give(w->crew);
        w->bytes += w->used + KEY_TAG;
        w->used = 0;
        p = crew_next(w->crew);
        w->chunk = p->data;
        return p->failed ? write_failed(w, p->failed, err) : TACIT_OK;
    }
    w->bytes += w->used + KEY_TAG;
    if (!seal(true, &w->header, w->secret, w->chunks++, w->chunk, w->used, w->chunk + w->used))
        return error_set(err, TACIT_ERR_INTERNAL, "sealing a key failed");
    tacit_status status = file_writer_write(&w->file, w->chunk, w->used + KEY_TAG, err);
    w->used = 0;
    return status;
}

tacit_status key_writer_add(key_writer *w, const void *data, size_t size, tacit_error *err)
{
    const uint8_t *p = data;
    if (!w->crew && w->chunks == 1 && !w->used)
        TRY(hire_writers(w, err));
    while (size) {
        size_t n = KEY_CHUNK - w->used < size ? KEY_CHUNK - w->used : size;
        memcpy(w->chunk + w->used, p, n);
        w->used += n;
        p += n;
        size -= n;
        if (w->used == KEY_CHUNK)
            TRY(flush_chunk(w, err));
    }
    return TACIT_OK;
}

tacit_status key_writer_end_run(key_writer *w, tacit_error *err)
{
    return flush_chunk(w, err);
}

tacit_status key_writer_commit(key_writer *w, tacit_error *err)
{
    int failed = w->crew ? crew_finish(w->crew) : 0;
    tacit_status status = failed ? write_failed(w, failed, err) : file_writer_commit(&w->file, err);
    key_writer_abort(w);
    return status;
}

void key_writer_abort(key_writer *w)
{
    crew_free(w->crew);
    if (w->own)
        explicit_bzero(w->own, KEY_CHUNK);
    free(w->own);
    file_writer_abort(&w->file);
    explicit_bzero(w, sizeof *w);
}

/* ---- reading ---- */

static tacit_status open_checked(key_reader *r, const char *secret_path, tacit_error *err)
{
    struct stat st;
    uint8_t block[16 + KEY_TAG];
    if (fstat(fileno(r->file), &st) != 0 || fread(r->raw, 1, KEY_HEADER, r->file) != KEY_HEADER)
        return error_set(err, TACIT_ERR_FORMAT, "the key file is too short");
    TRY(key_header_read(r->raw, (uint64_t)st.st_size, &r->header, err));
#ifdef TACIT_HAVE_OPENSSL
    bool encrypted = true;
#else
    bool encrypted = false;
#endif
    if (encrypted != !!(r->header.flags & KEY_ENCRYPTED))
        return error_set(err, TACIT_ERR_UNSUPPORTED, "the key file %s encrypted; this build %s",
                         encrypted ? "is not" : "is",
                         encrypted ? "wants that" : "has no OpenSSL to read it");
    TRY(key_secret(r->path, secret_path, false, r->secret, err));
    if (fread(block, 1, sizeof block, r->file) != sizeof block ||
        !seal(false, &r->header, r->secret, 0, block, 16, block + 16))
        return error_set(err, TACIT_ERR_SECURITY,
                         "the key file was changed, or its secret is not this one");
    memcpy(r->seed, block, 16);
    explicit_bzero(block, sizeof block);
    return marks_init(&r->marks, r->path, r->header.session, r->header.party, err);
}

tacit_status key_reader_open(key_reader *r, const char *path, const char *secret_path,
                             tacit_error *err)
{
    *r = (key_reader){.threads = crew_threads()};
    r->file = fopen(path, "rb");
    if (!r->file)
        return error_set(err, TACIT_ERR_IO, "cannot open '%s': %s", path, strerror(errno));
    r->path = strdup(path);
    r->own = malloc(KEY_CHUNK + KEY_TAG);
    tacit_status status =
        r->path && r->own ? open_checked(r, secret_path, err) : error_memory(err, "a key file");
    if (status != TACIT_OK) {
        status = error_context(err, status, "%s", path);
        key_reader_close(r);
    }
    return status;
}

void key_reader_close(key_reader *r)
{
    crew_free(r->crew);
    if (r->file)
        fclose(r->file);
    if (r->own)
        explicit_bzero(r->own, KEY_CHUNK);
    free(r->own);
    free(r->path);
    marks_free(&r->marks);
    explicit_bzero(r, sizeof *r);
}

uint32_t key_next_run(const key_reader *r)
{
    uint32_t run = 0;
    while (run < r->header.runs && marks_used(&r->marks, run))
        run++;
    return run;
}

tacit_status key_take_run(key_reader *r, uint32_t run, tacit_error *err)
{
    if (run >= r->header.runs)
        return error_set(err, TACIT_ERR_SECURITY,
                         "the key '%s' is used up: it was dealt for %u runs and keys are never "
                         "used twice",
                         r->path, r->header.runs);
    tacit_status status = marks_take(&r->marks, run, err);
    if (status != TACIT_OK)
        return error_context(err, status, "%s", r->path);
    uint64_t bytes = r->header.run_bytes, chunks = (bytes + KEY_CHUNK - 1) / KEY_CHUNK;
    uint64_t at = KEY_HEADER + 16 + KEY_TAG + run * (bytes + chunks * KEY_TAG);
    if (fseeko(r->file, (off_t)at, SEEK_SET) != 0)
        return error_set(err, TACIT_ERR_IO, "cannot seek in '%s'", r->path);
    crew_free(r->crew);
    r->crew = NULL;
    r->run = run;
    r->left = r->ahead = bytes;
    r->at = r->have = 0;
    r->taken = 0;
    r->chunks = 1 + run * chunks;
    return worth_a_crew(&r->header, r->threads)
               ? crew_new(r->threads, CREW_CHUNKS, KEY_CHUNK + KEY_TAG, crew_open, r, &r->crew, err)
               : TACIT_OK;
}

tacit_status key_bind_weights(const key_reader *r, const uint8_t hash[32], uint8_t tag[32],
                              tacit_error *err)
{
    uint8_t salted[32];
    bool same = false;
    sha256 s;
    sha256_init(&s); /* the secret keeps the file from confirming guesses of the weights */
    sha256_add(&s, r->secret, KEY_SECRET);
    sha256_add(&s, hash, 32);
    sha256_end(&s, salted);
    sha256_init(&s);
    sha256_add(&s, salted, 32);
    sha256_add(&s, r->header.session, 16);
    sha256_end(&s, tag);
    TRY(marks_bind(&r->marks, salted, &same, err));
    return same ? TACIT_OK
                : error_set(err, TACIT_ERR_SECURITY,
                            "the key '%s' has served other weights; its masks must not hide a "
                            "second set: deal new keys",
                            r->path);
}

static tacit_status too_short(const key_reader *r, tacit_error *err)
{
    return error_set(err, TACIT_ERR_FORMAT, "the key '%s' ends too early", r->path);
}
static tacit_status changed(const key_reader *r, tacit_error *err)
{
    return error_set(err, TACIT_ERR_SECURITY, "the key '%s' was changed", r->path);
}

/* The crew's next chunk; as many as there is room for are given out before. The one in use is of
 * no use any more. */
static tacit_status crew_chunk(key_reader *r, tacit_error *err)
{
    uint64_t bytes = r->header.run_bytes, chunks = (bytes + KEY_CHUNK - 1) / KEY_CHUNK;
    uint64_t start = KEY_HEADER + 16 + KEY_TAG + r->run * (bytes + chunks * KEY_TAG);
    for (; r->ahead && crew_given(r->crew) < r->taken + CREW_CHUNKS; crew_give(r->crew)) {
        crew_piece *p = crew_next(r->crew);
        uint64_t n = crew_given(r->crew);
        p->size = r->ahead < KEY_CHUNK ? (size_t)r->ahead : KEY_CHUNK;
        p->number = r->chunks + n;
        p->offset = start + n * (KEY_CHUNK + KEY_TAG);
        r->ahead -= p->size;
    }
    const crew_piece *p = crew_take(r->crew, r->taken++);
    if (p->failed)
        return p->failed == EBADMSG ? changed(r, err) : too_short(r, err);
    r->chunk = p->data;
    return TACIT_OK;
}

static tacit_status next_chunk(key_reader *r, tacit_error *err)
{
    size_t n = r->left < KEY_CHUNK ? (size_t)r->left : KEY_CHUNK;
    if (!n)
        return too_short(r, err);
    if (r->crew) {
        TRY(crew_chunk(r, err));
    } else {
        if (fread(r->own, 1, n + KEY_TAG, r->file) != n + KEY_TAG)
            return too_short(r, err);
        if (!seal(false, &r->header, r->secret, r->chunks++, r->own, n, r->own + n))
            return changed(r, err);
        r->chunk = r->own;
    }
    r->left -= n;
    r->have = n;
    r->at = 0;
    return TACIT_OK;
}

tacit_status key_reader_read(void *reader, void *data, size_t size, tacit_error *err)
{
    key_reader *r = reader;
    uint8_t *to = data;
    while (size) {
        if (r->at == r->have)
            TRY(next_chunk(r, err));
        size_t n = r->have - r->at < size ? r->have - r->at : size;
        memcpy(to, r->chunk + r->at, n);
        r->at += n;
        to += n;
        size -= n;
    }
    return TACIT_OK;
}
