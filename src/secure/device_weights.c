/* SPDX-License-Identifier: Apache-2.0
 * Weights on the device: uploaded and split into limbs once, for all inferences under way. */
#include <stdlib.h>

#include "secure/device_party.h"

enum { WEIGHT_SLOT = 2 };

static bool reads_as_product(const sec_instr *in, sec_wire_id w)
{
    return in->op == SEC_MATMUL && in->in[1] == w && in->in[0] != w;
}

/* Does anything but a matrix product read the wire? */
static bool read_elsewhere(const sec_program *p, sec_wire_id w)
{
    for (uint32_t i = 0; i < p->instrs.count; i++)
        for (uint32_t k = 0; k < p->instrs.data[i].n_in; k++)
            if (p->instrs.data[i].in[k] == w && !reads_as_product(&p->instrs.data[i], w))
                return true;
    return false;
}

static tacit_status device_new(sec_device *d, uint64_t bytes, void *out, tacit_error *err)
{
    return d->device.ops->alloc(d->device.self, bytes, out, err);
}

/* Limbs of every product that multiplies with this weight and knows it as it is uploaded. */
static tacit_status split_weight(sec_device *d, sec_wire_id w, const uint64_t *words, bool clear,
                                 tacit_error *err)
{
    const sec_program *p = d->p;
    for (uint32_t i = 0; i < p->instrs.count; i++) {
        const sec_instr *in = &p->instrs.data[i];
        bool mine = in->owner == (int)d->party->index || in->owner == SEC_PUBLIC;
        if (!reads_as_product(in, w) || in->owner == SEC_SHARED || mine != clear || d->limbs[i])
            continue;
        unsigned limbs = cuda_limbs(in->bits);
        uint32_t matrices = plan_matrices(in->w_at, in->batch);
        TRY(device_new(d, cuda_split_bytes(in->n, in->k, matrices, limbs), &d->limbs[i], err));
        cuda_split s = {.rows = in->n,
                        .k = in->k,
                        .batch = matrices,
                        .cx = 1,
                        .x = words,
                        .limbs = limbs,
                        .transposed = true,
                        .out = d->limbs[i]};
        TRY(d->device.ops->split(d->device.self, &s, err));
    }
    return TACIT_OK;
}

static tacit_status upload_weight(sec_device *d, uint32_t i, const sec_weights *from,
                                  tacit_error *err)
{
    const sec_program *p = d->p;
    const sec_instr *in = &p->instrs.data[i];
    sec_wire_id w = in->out[0];
    uint64_t bytes = (uint64_t)p->wires.data[w].count * 8;
    bool server = d->party->index == SEC_SERVER, public = in->owner == SEC_PUBLIC;
    bool elsewhere = read_elsewhere(p, w) || in->owner == SEC_SHARED;
    for (int clear = 0; clear < 2; clear++) {
        const uint64_t *words = !clear || public ? from->words[i] : server ? from->own[i] : NULL;
        if (!words || (!clear && public) || (clear && in->owner == SEC_SHARED))
            continue;
        void *to = NULL;
        tacit_status status = device_new(d, bytes, &to, err);
        if (status == TACIT_OK)
            status = d->device.ops->copy(d->device.self, CUDA_TO_DEVICE, to, words, bytes, err);
        if (status == TACIT_OK)
            status = split_weight(d, w, to, clear, err);
        if (status == TACIT_OK)
            status = d->device.ops->wait(d->device.self, err);
        if (status != TACIT_OK || !elsewhere)
            d->device.ops->release(d->device.self, to);
        else if (clear)
            d->weights[i].clear = to;
        else
            d->weights[i].words = to;
        if (public)
            d->weights[i].words = d->weights[i].clear;
        TRY(status);
    }
    if (!p->wires.data[w].share_bits || !elsewhere)
        return TACIT_OK;
    TRY(device_new(d, bytes, &d->weights[i].share, err));
    cuda_words mask = {.id = in->id,
                       .run = d->zero,
                       .slot = WEIGHT_SLOT,
                       .seed = CUDA_SEED,
                       .bits = p->wires.data[w].bits,
                       .rows = 1,
                       .width = p->wires.data[w].count,
                       .out = d->weights[i].share};
    bool mine = (server && !public) || in->owner == SEC_SHARED;
    return mine ? d->device.ops->words(d->device.self, &mask, err) : TACIT_OK;
}

tacit_status weights_upload(sec_device *d, const sec_weights *from, tacit_error *err)
{
    const sec_program *p = d->p;
    size_t n = p->instrs.count + 1u;
    d->weights = calloc(n, sizeof *d->weights);
    d->limbs = calloc(n, sizeof *d->limbs);
    if (!d->weights || !d->limbs)
        return error_memory(err, "planning for the device");
    TRY(device_new(d, 16, &d->zero, err));
    for (uint32_t i = 0; i < p->instrs.count; i++)
        if (p->instrs.data[i].op == SEC_WEIGHT)
            TRY(upload_weight(d, i, from, err));
    return TACIT_OK;
}

void weights_release(sec_device *d)
{
    const cuda_ops *ops = d->device.ops;
    void *self = d->device.self;
    for (uint32_t i = 0; i < d->p->instrs.count; i++) {
        if (d->weights) {
            if (d->weights[i].clear != d->weights[i].words)
                ops->release(self, d->weights[i].clear);
            ops->release(self, d->weights[i].words);
            ops->release(self, d->weights[i].share);
        }
        if (d->limbs)
            ops->release(self, d->limbs[i]);
    }
    ops->release(self, d->zero);
    free(d->weights);
    free(d->limbs);
}
