/* SPDX-License-Identifier: Apache-2.0
 * The dealer: walks the program on masks and writes both parties' keys, one instruction at a
 * time, so its memory is that of the masks still to be read. */
#include <stdlib.h>
#include <string.h>

#include "secure/run.h"

enum { INPUT_SLOT = 3, OUTPUT_SLOT = 4, PRODUCT_SLOT = 5 };

/* Masks of what one party brings: from its own seed, so that it knows them and nobody stores
 * them. The other party's share of such a mask is zero. */
static void own_masks(const fss_prf *seed, const sec_program *p, const sec_instr *in, uint64_t id,
                      uint64_t *out)
{
    const sec_wire *w = &p->wires.data[in->out[0]];
    if (in->op == SEC_WEIGHT)
        fss_weight_mask(seed, id, w->bits, 0, out, w->count);
    else
        fss_prf_words(seed, id, INPUT_SLOT, 0, w->bits, out, w->count);
}

/* A shared weight is masked by both: words hold the server's mask and become the sum. */
static tacit_status both_masks(deal_state *d, const sec_instr *in, tacit_error *err)
{
    const sec_program *p = d->s.p;
    const sec_wire *wire = &p->wires.data[in->out[0]];
    uint64_t *words = d->s.words[in->out[0]], *client = run_new(wire->count);
    if (!client)
        return error_memory(err, "masks of weights");
    own_masks(&d->dealer->seed[SEC_CLIENT], p, in, run_id(p, in, d->run), client);
    tacit_status status = TACIT_OK;
    for (int b = 0; b < 2 && wire->share_bits && status == TACIT_OK; b++) {
        uint64_t **share = d->s.share[b];
        status = run_vector(&d->s, &share, in->out[0], err);
        if (status == TACIT_OK)
            memcpy(share[in->out[0]], b == SEC_SERVER ? words : client, wire->count * 8);
    }
    for (size_t i = 0; i < wire->count; i++)
        words[i] = fss_low(words[i] + client[i], wire->bits);
    run_release(client, wire->count);
    return status;
}

static tacit_status deal_end(deal_state *d, const sec_instr *in, tacit_error *err)
{
    const sec_program *p = d->s.p;
    sec_wire_id w = in->out[0];
    uint64_t **words = d->s.words, **clear = d->s.clear;
    TRY(run_vector(&d->s, &words, w, err));
    size_t count = p->wires.data[w].count;
    int owner = in->op == SEC_INPUT ? SEC_CLIENT : SEC_SERVER;
    if (in->op == SEC_WEIGHT && in->owner == SEC_PUBLIC) {
        TRY(run_vector(&d->s, &clear, w, err));
        TRY(sec_weight_words(p, in, clear[w], err));
    }
    if (in->op == SEC_CONST || (in->op == SEC_WEIGHT && in->owner == SEC_PUBLIC))
        memset(words[w], 0, count * 8);
    else
        own_masks(&d->dealer->seed[owner], p, in, run_id(p, in, d->run), words[w]);
    if (in->op == SEC_WEIGHT && in->owner == SEC_SHARED)
        return both_masks(d, in, err);
    if (!p->wires.data[w].share_bits)
        return TACIT_OK;
    for (int b = 0; b < 2; b++) {
        uint64_t **share = d->s.share[b];
        TRY(run_vector(&d->s, &share, w, err));
        if (b == owner)
            memcpy(share[w], words[w], count * 8);
        else
            memset(share[w], 0, count * 8);
    }
    return TACIT_OK;
}

static tacit_status write_keys(deal_state *d, const sec_instr *in, uint8_t *const key[2],
                               tacit_error *err)
{
    for (unsigned b = 0; b < 2 && d->write; b++) {
        size_t size = sec_key_bytes(d->s.p, in, b);
        if (size)
            TRY(d->write(d->context, b, key[b], size, err));
    }
    return TACIT_OK;
}

/* Through `keep` into the output wire. */
static tacit_status settle(deal_state *d, const sec_instr *in, uint64_t *full, unsigned bits,
                           tacit_error *err)
{
    uint64_t **words = d->s.words;
    TRY(run_vector(&d->s, &words, in->out[0], err));
    sec_keep(in, bits, full, words[in->out[0]]);
    return TACIT_OK;
}

static tacit_status gate_masks(deal_state *d, const sec_instr *in, const fss_gate *g,
                               const fss_mask *masks, uint8_t *const key[2], tacit_error *err)
{
    uint64_t *out[2] = {0}, **words = d->s.words;
    bool keep = in->keep || in->keep_sum;
    if (g->kind == FSS_SHARE) {
        for (int b = 0; b < 2; b++) {
            uint64_t **share = d->s.share[b];
            TRY(run_vector(&d->s, &share, in->in[0], err));
            out[b] = share[in->in[0]];
        }
        return fss_gate_deal(d->dealer, g, &in->info, masks, out, key, 0, g->count, err);
    }
    for (uint32_t v = 0; v < in->n_out && !keep; v++) {
        TRY(run_vector(&d->s, &words, in->out[v], err));
        out[v] = words[in->out[v]];
    }
    size_t full = in->info.out[0].rows * g->count;
    if (keep && !(out[0] = run_new(full)))
        return error_memory(err, "masks");
    tacit_status status = fss_gate_deal(d->dealer, g, &in->info, masks, out, key, 0, g->count, err);
    if (keep) {
        if (status == TACIT_OK)
            status = settle(d, in, out[0], in->info.out[0].bits, err);
        run_release(out[0], full);
    }
    return status;
}

static tacit_status deal_gate(deal_state *d, const sec_instr *in, tacit_error *err)
{
    const sec_program *p = d->s.p;
    fss_gate g = run_gate(p, in, d->run);
    fss_mask masks[FSS_MAX_INPUTS] = {{0}};
    uint64_t *copy[FSS_MAX_INPUTS] = {0};
    uint8_t *key[2] = {0};
    tacit_status status = TACIT_OK;
    for (uint32_t k = 0; k < in->n_in && status == TACIT_OK; k++) {
        masks[k] = (fss_mask){
            run_narrow(&d->s, d->s.words, in->in[k], run_in_bits(in, k), &copy[k]), g.count};
        if (!masks[k].r)
            status = error_memory(err, "masks");
    }
    for (unsigned b = 0; b < 2 && status == TACIT_OK; b++)
        if (!(key[b] = calloc(1, in->info.key_bytes[b] + 1)))
            status = error_memory(err, "keys");
    if (status == TACIT_OK)
        status = gate_masks(d, in, &g, masks, key, err);
    if (status == TACIT_OK)
        status = write_keys(d, in, key, err);
    for (uint32_t k = 0; k < in->n_in; k++)
        run_release(copy[k], g.count);
    for (unsigned b = 0; b < 2; b++) {
        if (key[b])
            explicit_bzero(key[b], in->info.key_bytes[b]);
        free(key[b]);
    }
    return status;
}

static void product_masks(deal_state *d, const sec_instr *in, const uint64_t *rx,
                          const uint64_t *rw, uint64_t *rz)
{
    const sec_program *p = d->s.p;
    uint64_t id = run_id(p, in, d->run);
    if (in->op == SEC_PRODUCT) {
        size_t count = p->wires.data[in->in[0]].count;
        uint64_t words[512];
        fss_prf_words(&d->dealer->seed[0], id, PRODUCT_SLOT, 0, in->bits, rz, count);
        for (size_t at = 0; at < count; at += 512) {
            size_t n = count - at < 512 ? count - at : 512;
            fss_prf_words(&d->dealer->seed[1], id, PRODUCT_SLOT, at, in->bits, words, n);
            for (size_t i = 0; i < n; i++)
                rz[at + i] = fss_low(rz[at + i] + words[i] - rx[at + i] * rw[(at + i) % in->period],
                                     in->bits);
        }
        return;
    }
    for (uint32_t t = 0; t < in->batch; t++) {
        fss_matmul mm = {id + t, in->bits, in->m, in->n, in->k, in->owner};
        fss_matmul_deal(d->dealer, &p->gemm, &mm, rx + (in->x_at ? in->x_at[t] : t) * in->m * in->k,
                        rw + (in->w_at ? in->w_at[t] : t) * in->k * in->n, rz + t * in->m * in->n,
                        0, in->m);
    }
}

static tacit_status deal_product(deal_state *d, const sec_instr *in, tacit_error *err)
{
    const sec_program *p = d->s.p;
    uint64_t **words = d->s.words;
    size_t full =
        in->op == SEC_PRODUCT ? p->wires.data[in->in[0]].count : in->batch * in->m * in->n;
    /* for an owned weight only the other party's share of x's mask is multiplied */
    const uint64_t *rx =
        in->owner == SEC_SHARED ? words[in->in[0]] : d->s.share[1 - in->owner][in->in[0]];
    if (!in->keep && !in->keep_sum) {
        TRY(run_vector(&d->s, &words, in->out[0], err));
        product_masks(d, in, rx, words[in->in[1]], words[in->out[0]]);
        return TACIT_OK;
    }
    uint64_t *rz = run_new(full);
    if (!rz)
        return error_memory(err, "masks");
    product_masks(d, in, rx, words[in->in[1]], rz);
    tacit_status status = settle(d, in, rz, in->bits, err);
    run_release(rz, full);
    return status;
}

static tacit_status deal_output(deal_state *d, const sec_instr *in, tacit_error *err)
{
    const sec_wire *w = &d->s.p->wires.data[in->in[0]];
    size_t size = fss_pack_bytes(w->bits, w->count);
    if (!d->write)
        return TACIT_OK;
    uint8_t *packed = malloc(size + 1);
    if (!packed)
        return error_memory(err, "keys");
    fss_pack(packed, w->bits, d->s.words[in->in[0]], w->count);
    tacit_status status = TACIT_OK;
    for (unsigned b = 0; b < 2 && status == TACIT_OK; b++)
        if (sec_learns(in, b))
            status = d->write(d->context, b, packed, size, err);
    explicit_bzero(packed, size);
    free(packed);
    return status;
}

tacit_status deal_instr(deal_state *d, const sec_instr *in, tacit_error *err)
{
    const sec_program *p = d->s.p;
    if (sec_is_local(in)) {
        TRY(run_local(&d->s, in, d->s.words, false, err));
        for (int b = 0; b < 2 && p->wires.data[in->out[0]].share_derived; b++)
            TRY(run_local(&d->s, in, d->s.share[b], false, err));
        return TACIT_OK;
    }
    switch (in->op) {
    case SEC_GATE:
        return deal_gate(d, in, err);
    case SEC_MATMUL:
    case SEC_PRODUCT:
        return deal_product(d, in, err);
    case SEC_OUTPUT:
        return deal_output(d, in, err);
    default:
        return deal_end(d, in, err);
    }
}

tacit_status sec_deal(const sec_program *p, const fss_dealer *dealer, uint64_t run,
                      sec_key_write write, void *context, tacit_error *err)
{
    deal_state d = {.dealer = dealer, .run = run, .write = write, .context = context};
    TRY(run_init(&d.s, p, err));
    tacit_status status = TACIT_OK;
    for (uint32_t i = 0; i < p->instrs.count && status == TACIT_OK; i++) {
        status = deal_instr(&d, &p->instrs.data[i], err);
        run_done(&d.s, &p->instrs.data[i]);
    }
    run_free(&d.s);
    return status;
}
