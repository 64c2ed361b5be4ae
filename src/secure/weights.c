/* SPDX-License-Identifier: Apache-2.0 */
#include "secure/weights.h"

#include <stdlib.h>
#include <string.h>

#include "base/sha256.h"
#include "fss/rand.h"
#include "secure/crew.h"
#include "secure/run.h"

/* ---- the exchange, once per session ---- */

void sec_weights_free(const sec_program *p, sec_weights *w)
{
    for (uint32_t i = 0; i < p->instrs.count; i++) {
        size_t count = p->instrs.data[i].n_out ? p->wires.data[p->instrs.data[i].out[0]].count : 0;
        if (w->words)
            run_release(w->words[i], count);
        if (w->own)
            run_release(w->own[i], count);
    }
    free(w->words);
    free(w->own);
    *w = (sec_weights){0};
}

/* The party's own part of a weight: all of it or nothing, or its share. */
static tacit_status own_part(const sec_program *p, const fss_party *party, const sec_link *link,
                             const sec_instr *in, uint64_t *words, tacit_error *err)
{
    if (in->owner == SEC_SHARED && link->own_weight)
        return link->own_weight(link->own_context, p, in, words, err);
    if (party->index == SEC_SERVER)
        return sec_weight_words(p, in, words, err);
    memset(words, 0, p->wires.data[in->out[0]].count * sizeof *words);
    return TACIT_OK;
}

/* An exchange: what a weight's parts are packed in, by instruction. */
typedef struct exchange {
    const sec_program *p;
    const fss_party *party;
    const sec_link *link;
    sec_weights *to;
    uint8_t **out, **in;
} exchange;

static bool with(const exchange *x, const sec_instr *in, unsigned party)
{
    return in->owner == SEC_SHARED || (in->owner != SEC_PUBLIC && x->party->index == party);
}
static size_t packed_size(const exchange *x, const sec_instr *in)
{
    const sec_wire *w = &x->p->wires.data[in->out[0]];
    return fss_pack_bytes(w->bits, w->count);
}

/* What this party says of a weight, masked by it. */
static tacit_status before(const exchange *x, uint32_t i, tacit_error *err)
{
    const sec_instr *in = &x->p->instrs.data[i];
    const sec_wire *w = &x->p->wires.data[in->out[0]];
    sec_weights *to = x->to;
    if (!(to->words[i] = run_new(w->count)))
        return error_memory(err, "the weights");
    if (in->owner == SEC_PUBLIC)
        return sec_weight_words(x->p, in, to->words[i], err);
    if (!with(x, in, SEC_SERVER))
        return TACIT_OK;
    to->own[i] = run_new(w->count);
    x->out[i] = malloc(packed_size(x, in) + 1);
    if (!to->own[i] || !x->out[i])
        return error_memory(err, "the weights");
    TRY(own_part(x->p, x->party, x->link, in, to->own[i], err));
    fss_weight_mask(&x->party->seed, in->id, w->bits, 0, to->words[i], w->count);
    for (size_t k = 0; k < w->count; k++)
        to->words[i][k] = fss_low(to->words[i][k] + to->own[i][k], w->bits);
    fss_pack(x->out[i], w->bits, to->words[i], w->count);
    return TACIT_OK;
}

/* What went wrong in a thread goes wrong again here, where it can be said. */
static tacit_status before_again(const exchange *x, uint32_t i, tacit_error *err)
{
    size_t count = x->p->wires.data[x->p->instrs.data[i].out[0]].count;
    run_release(x->to->words[i], count);
    run_release(x->to->own[i], count);
    free(x->out[i]);
    x->to->words[i] = x->to->own[i] = NULL;
    x->out[i] = NULL;
    return before(x, i, err);
}

/* A weight of the server goes one way, masked by the server; of a shared one both send their part,
 * each under a mask of its own, and the sum is what both see. */
static tacit_status across(const exchange *x, uint32_t i, tacit_error *err)
{
    const sec_instr *in = &x->p->instrs.data[i];
    size_t size = packed_size(x, in);
    if (in->owner == SEC_PUBLIC)
        return TACIT_OK;
    if (with(x, in, SEC_CLIENT) && !(x->in[i] = malloc(size + 1)))
        return error_memory(err, "the weights");
    tacit_status status = x->link->exchange(x->link->context, x->out[i], x->out[i] ? size : 0,
                                            x->in[i], x->in[i] ? size : 0, err);
    free(x->out[i]);
    x->out[i] = NULL;
    return status;
}

static void after(const exchange *x, uint32_t i)
{
    const sec_instr *in = &x->p->instrs.data[i];
    const sec_wire *w = &x->p->wires.data[in->out[0]];
    if (!x->in[i])
        return;
    if (in->owner == SEC_SHARED)
        fss_unpack_add(x->to->words[i], w->bits, x->in[i], w->count);
    else
        fss_unpack(x->to->words[i], w->bits, x->in[i], w->count);
    free(x->in[i]);
    x->in[i] = NULL;
}

/* Work of one weight beside the line: the server's before it, the client's behind it. */
static int beside(void *context, crew_piece *p)
{
    const exchange *x = context;
    uint32_t i = (uint32_t)p->number;
    if (x->party->index == SEC_SERVER)
        return before(x, i, NULL) == TACIT_OK ? 0 : 1;
    after(x, i);
    return 0;
}

static bool is_weight(const sec_program *p, uint32_t i)
{
    return p->instrs.data[i].op == SEC_WEIGHT;
}

static tacit_status exchange_alone(const exchange *x, tacit_error *err)
{
    for (uint32_t i = 0; i < x->p->instrs.count; i++) {
        if (!is_weight(x->p, i))
            continue;
        TRY(before(x, i, err));
        TRY(across(x, i, err));
        after(x, i);
    }
    return TACIT_OK;
}

enum { WEIGHTS_AHEAD = 12 };

static tacit_status exchange_as_server(const exchange *x, crew *c, tacit_error *err)
{
    const sec_program *p = x->p;
    uint64_t taken = 0;
    for (uint32_t i = 0, next = 0; i < p->instrs.count; i++) {
        if (!is_weight(p, i))
            continue;
        for (; next < p->instrs.count && crew_given(c) < taken + WEIGHTS_AHEAD; next++)
            if (is_weight(p, next)) {
                crew_next(c)->number = next;
                crew_give(c);
            }
        if (crew_take(c, taken++)->failed)
            TRY(before_again(x, i, err));
        TRY(across(x, i, err));
    }
    return TACIT_OK;
}

static tacit_status exchange_as_client(const exchange *x, crew *c, tacit_error *err)
{
    for (uint32_t i = 0; i < x->p->instrs.count; i++) {
        if (!is_weight(x->p, i))
            continue;
        TRY(before(x, i, err));
        TRY(across(x, i, err));
        crew_next(c)->number = i;
        crew_give(c);
    }
    crew_finish(c);
    return TACIT_OK;
}

tacit_status sec_weights_exchange(const sec_program *p, const fss_party *party,
                                  const sec_link *link, sec_weights *w, tacit_error *err)
{
    size_t n = p->instrs.count + 1u;
    w->words = calloc(n, sizeof *w->words);
    w->own = calloc(n, sizeof *w->own);
    exchange x = {p, party, link, w, calloc(n, sizeof *x.out), calloc(n, sizeof *x.in)};
    unsigned threads = w->threads ? w->threads : crew_threads();
    crew *c = NULL;
    tacit_status status =
        w->words && w->own && x.out && x.in ? TACIT_OK : error_memory(err, "the weights");
    if (status == TACIT_OK && threads > 1 && p->mode.weights == SEC_SERVER)
        status = crew_new(threads, WEIGHTS_AHEAD, 1, beside, &x, &c, err);
    if (status == TACIT_OK)
        status = !c                           ? exchange_alone(&x, err)
                 : party->index == SEC_SERVER ? exchange_as_server(&x, c, err)
                                              : exchange_as_client(&x, c, err);
    crew_free(c);
    for (size_t i = 0; i < n; i++) {
        free(x.out ? x.out[i] : NULL);
        free(x.in ? x.in[i] : NULL);
    }
    free(x.out);
    free(x.in);
    if (status != TACIT_OK)
        sec_weights_free(p, w);
    return status;
}

/* ---- shares ---- */

enum { SHARE_HEADER = 40 };

static void share_header(const sec_program *p, unsigned party, uint8_t out[SHARE_HEADER])
{
    memcpy(out, "TWS1", 4);
    out[4] = (uint8_t)party;
    memset(out + 5, 0, 3);
    memcpy(out + 8, p->hash, 32);
}

static tacit_status add(file_writer *w, sha256 *s, const void *data, size_t size, tacit_error *err)
{
    sha256_add(s, data, size);
    return file_writer_write(w, data, size, err);
}

/* One weight into both files: a is random, b the rest. */
static tacit_status share_weight(const sec_program *p, const sec_instr *in, fss_rand *rand,
                                 file_writer w[2], sha256 s[2], tacit_error *err)
{
    const sec_wire *wire = &p->wires.data[in->out[0]];
    size_t size = fss_pack_bytes(wire->bits, wire->count);
    uint64_t *words = run_new(wire->count), *random = run_new(wire->count);
    uint8_t *packed = malloc(size + 1);
    tacit_status status = words && random && packed ? sec_weight_words(p, in, words, err)
                                                    : error_memory(err, "shares of weights");
    if (status == TACIT_OK) {
        fss_rand_bytes(rand, random, wire->count * sizeof *random);
        for (size_t i = 0; i < wire->count; i++) {
            random[i] = fss_low(random[i], wire->bits);
            words[i] = fss_low(words[i] - random[i], wire->bits);
        }
        fss_pack(packed, wire->bits, random, wire->count);
        status = add(&w[0], &s[0], packed, size, err);
    }
    if (status == TACIT_OK) {
        fss_pack(packed, wire->bits, words, wire->count);
        status = add(&w[1], &s[1], packed, size, err);
    }
    run_release(words, wire->count);
    run_release(random, wire->count);
    free(packed);
    return status;
}

tacit_status share_write(const sec_program *p, const char *path[2], tacit_error *err)
{
    file_writer w[2];
    sha256 s[2];
    fss_rand rand;
    memset(w, 0, sizeof w);
    if (p->mode.weights != SEC_SHARED)
        return error_set(err, TACIT_ERR_ARGUMENT,
                         "the program has no shared weights; use --weights shared");
    TRY(fss_rand_init(&rand, &p->suite.prg, err));
    tacit_status status = TACIT_OK;
    for (unsigned b = 0; b < 2 && status == TACIT_OK; b++) {
        uint8_t head[SHARE_HEADER];
        share_header(p, b, head);
        sha256_init(&s[b]);
        status = file_writer_open(&w[b], path[b], err);
        if (status == TACIT_OK)
            status = add(&w[b], &s[b], head, sizeof head, err);
    }
    for (uint32_t i = 0; i < p->instrs.count && status == TACIT_OK; i++)
        if (p->instrs.data[i].op == SEC_WEIGHT)
            status = share_weight(p, &p->instrs.data[i], &rand, w, s, err);
    fss_rand_clear(&rand);
    for (unsigned b = 0; b < 2 && status == TACIT_OK; b++) {
        uint8_t sum[32];
        sha256_end(&s[b], sum);
        status = file_writer_write(&w[b], sum, sizeof sum, err);
    }
    for (unsigned b = 0; b < 2 && status == TACIT_OK; b++)
        status = file_writer_commit(&w[b], err);
    file_writer_abort(&w[0]);
    file_writer_abort(&w[1]);
    return status;
}

static tacit_status bad_share(tacit_error *err, const char *path, const char *why)
{
    return error_set(err, TACIT_ERR_SECURITY, "'%s' is not this party's share of these weights: %s",
                     path, why);
}

/* Bytes of all weights as they lie in a file. */
static uint64_t weights_size(const sec_program *p)
{
    uint64_t size = 0;
    for (uint32_t i = 0; i < p->instrs.count; i++)
        if (p->instrs.data[i].op == SEC_WEIGHT) {
            const sec_wire *w = &p->wires.data[p->instrs.data[i].out[0]];
            size += fss_pack_bytes(w->bits, w->count);
        }
    return size;
}

static tacit_status check_share(share_reader *r, const sec_program *p, unsigned party,
                                const char *path, tacit_error *err)
{
    uint8_t want[SHARE_HEADER], have[1 << 12], sum[32];
    sha256 s;
    share_header(p, party, want);
    sha256_init(&s);
    if (fread(have, 1, SHARE_HEADER, r->file) != SHARE_HEADER || memcmp(have, want, 4) != 0)
        return bad_share(err, path, "it is no file of shares");
    if (have[4] != want[4])
        return bad_share(err, path, "it is the other party's");
    if (memcmp(have, want, SHARE_HEADER) != 0)
        return bad_share(err, path, "it was made for another graph or mode");
    sha256_add(&s, have, SHARE_HEADER);
    for (uint64_t left = weights_size(p); left;) {
        size_t n = left < sizeof have ? (size_t)left : sizeof have;
        if (fread(have, 1, n, r->file) != n)
            return bad_share(err, path, "it ends too early");
        sha256_add(&s, have, n);
        left -= n;
    }
    sha256_end(&s, r->hash);
    if (fread(sum, 1, 32, r->file) != 32 || memcmp(sum, r->hash, 32) != 0)
        return bad_share(err, path, "it was changed");
    if (fseek(r->file, SHARE_HEADER, SEEK_SET) != 0)
        return error_set(err, TACIT_ERR_IO, "cannot read '%s'", path);
    return TACIT_OK;
}

tacit_status share_open(share_reader *r, const sec_program *p, unsigned party, const char *path,
                        tacit_error *err)
{
    *r = (share_reader){.file = fopen(path, "rb")};
    if (!r->file)
        return error_set(err, TACIT_ERR_IO, "cannot open '%s'", path);
    if (p->mode.weights != SEC_SHARED) {
        share_close(r);
        return error_set(err, TACIT_ERR_ARGUMENT, "a share was given but weights are not shared");
    }
    tacit_status status = check_share(r, p, party, path, err);
    if (status != TACIT_OK)
        share_close(r);
    return status;
}

tacit_status share_read(void *reader, const sec_program *p, const sec_instr *in, uint64_t *words,
                        tacit_error *err)
{
    share_reader *r = reader;
    const sec_wire *w = &p->wires.data[in->out[0]];
    size_t size = fss_pack_bytes(w->bits, w->count);
    uint8_t *packed = malloc(size + 1);
    if (!packed)
        return error_memory(err, "the weights");
    bool ok = fread(packed, 1, size, r->file) == size;
    if (ok)
        fss_unpack(words, w->bits, packed, w->count);
    free(packed);
    return ok ? TACIT_OK : error_set(err, TACIT_ERR_IO, "the share of the weights ends too early");
}

void share_close(share_reader *r)
{
    if (r->file)
        fclose(r->file);
    r->file = NULL;
}

/* ---- the client's cache ---- */

enum { CACHE_HEADER = 4 + WEIGHT_TAG + 8 };

/* Against faults of the disk: the file is the client's own. */
static uint64_t fold(uint64_t sum, const uint8_t *data, size_t size)
{
    uint64_t word;
    for (; size >= 8; data += 8, size -= 8) {
        memcpy(&word, data, 8);
        sum = (sum ^ word) * 0x9e3779b97f4a7c15u;
        sum ^= sum >> 29;
    }
    for (; size; data++, size--)
        sum = (sum ^ *data) * 0x9e3779b97f4a7c15u;
    return sum ^ sum >> 32;
}

static void number_bytes(uint64_t x, uint8_t out[8])
{
    for (int i = 0; i < 8; i++)
        out[i] = (uint8_t)(x >> (8 * i));
}

/* Every message of weights is folded separately, so sums agree however the file is read. */
static bool whole(weight_cache *c, const sec_program *p, const uint8_t want[8])
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < p->instrs.count; i++) {
        const sec_instr *in = &p->instrs.data[i];
        if (in->op != SEC_WEIGHT)
            continue;
        const sec_wire *w = &p->wires.data[in->out[0]];
        size_t size = fss_pack_bytes(w->bits, w->count);
        uint8_t *packed = malloc(size + 1);
        bool ok = packed && fread(packed, 1, size, c->file) == size;
        if (ok)
            sum = fold(sum, packed, size);
        free(packed);
        if (!ok)
            return false;
    }
    uint8_t have[8], tail[8];
    number_bytes(sum, have);
    return fread(tail, 1, 8, c->file) == 8 && memcmp(tail, have, 8) == 0 &&
           memcmp(want, "\0\0\0\0\0\0\0\0", 8) != 0 && fseek(c->file, CACHE_HEADER, SEEK_SET) == 0;
}

void cache_find(weight_cache *c, const sec_program *p, const char *key)
{
    uint8_t head[CACHE_HEADER], size[8];
    *c = (weight_cache){.size = weights_size(p)};
    snprintf(c->path, sizeof c->path, "%s.cache", key);
    number_bytes(c->size, size);
    c->file = fopen(c->path, "rb");
    bool ok = c->file && fread(head, 1, sizeof head, c->file) == sizeof head &&
              memcmp(head, "TWC1", 4) == 0 && memcmp(head + 4 + WEIGHT_TAG, size, 8) == 0 &&
              whole(c, p, size);
    if (ok)
        memcpy(c->tag, head + 4, WEIGHT_TAG);
    else if (c->file) {
        fclose(c->file);
        c->file = NULL;
    }
}

static tacit_status from_cache(void *context, const void *out, size_t out_size, void *in,
                               size_t in_size, tacit_error *err)
{
    weight_cache *c = context;
    (void)out;
    if (!c->file || out_size) /* the server has nothing to send either */
        return TACIT_OK;
    if (fread(in, 1, in_size, c->file) == in_size)
        return TACIT_OK;
    return error_set(err, TACIT_ERR_IO, "'%s' cannot be read any more", c->path);
}

static tacit_status through(void *context, const void *out, size_t out_size, void *in,
                            size_t in_size, tacit_error *err)
{
    weight_cache *c = context;
    TRY(c->line->exchange(c->line->context, out, out_size, in, in_size, err));
    if (c->writing && !c->broken) {
        c->sum = fold(c->sum, in, in_size);
        c->broken = file_writer_write(&c->writer, in, in_size, NULL) != TACIT_OK;
    }
    return TACIT_OK;
}

sec_link cache_link(weight_cache *c, const sec_link *line, bool hit, const uint8_t tag[WEIGHT_TAG])
{
    sec_link link = *line;
    uint8_t head[CACHE_HEADER] = "TWC1";
    c->line = line;
    link.context = c;
    link.exchange = hit ? from_cache : through;
    if (hit || !*c->path)
        return link;
    memcpy(head + 4, tag, WEIGHT_TAG);
    number_bytes(c->size, head + 4 + WEIGHT_TAG);
    c->writing = file_writer_open(&c->writer, c->path, NULL) == TACIT_OK &&
                 file_writer_write(&c->writer, head, sizeof head, NULL) == TACIT_OK;
    return link;
}

void cache_close(weight_cache *c, bool complete)
{
    uint8_t sum[8];
    number_bytes(c->sum, sum);
    if (c->file)
        fclose(c->file);
    if (c->writing && complete && !c->broken &&
        file_writer_write(&c->writer, sum, 8, NULL) == TACIT_OK &&
        file_writer_commit(&c->writer, NULL) == TACIT_OK)
        c->writing = false;
    file_writer_abort(&c->writer);
    c->file = NULL;
}
