/* SPDX-License-Identifier: Apache-2.0
 * The dealer's walk on a device: masks stay there, finished keys come back through two pinned
 * buffers while the next instruction is being dealt. */
#include <stdlib.h>
#include <string.h>

#include "secure/device_plan.h"

enum { INPUT_SLOT = 3, WEIGHT_SLOT = 2, MATMUL_SLOT = 1, PRODUCT_SLOT = 5 };

/* Keys on their way to the writer. */
typedef struct parcel {
    const sec_instr *in;
    uint8_t *bytes; /* pinned */
    uint64_t size[2];
    plan_vector keys[2]; /* on the device, until they are copied */
    bool full;
} parcel;

typedef struct deal_walk {
    plan_walk w;
    const fss_dealer *dealer;
    sec_key_write write;
    void *context;
    parcel parcel[2];
    unsigned turn;
    uint64_t most; /* bytes of the largest pair of keys */
} deal_walk;

/* ---- keys to the writer ---- */

static void parcel_write(deal_walk *d, parcel *q)
{
    plan_walk *w = &d->w;
    if (!q->full || w->status != TACIT_OK)
        return;
    q->full = false;
    w->status = w->ops->wait_mark(w->self, (unsigned)(q - d->parcel), w->err);
    const sec_instr *in = q->in;
    if (in->op == SEC_OUTPUT) {
        for (unsigned b = 0; b < 2 && w->status == TACIT_OK; b++)
            if (sec_learns(in, b))
                w->status = d->write(d->context, b, q->bytes, q->size[1], w->err);
        return;
    }
    for (unsigned b = 0; b < 2; b++) {
        cuda_gate g;
        sec_device_gate(&w->p->suite, &in->gate, &in->info, b, &g);
        for (unsigned k = 0; k < in->info.items && w->status == TACIT_OK; k++) {
            const fss_info *info = &in->info;
            size_t at = info->item[k].at[b];
            size_t end = k + 1u < info->items ? info->item[k + 1].at[b] : info->key_bytes[b];
            if (end > at)
                w->status = d->write(d->context, b, q->bytes + (b ? q->size[0] : 0) + g.item[k].at,
                                     end - at, w->err);
        }
    }
}

/* Queues the copy of one instruction's keys; the writer gets them one instruction later. */
static void parcel_send(deal_walk *d, const sec_instr *in, const plan_vector from[2],
                        const uint64_t size[2])
{
    plan_walk *w = &d->w;
    parcel *q = &d->parcel[d->turn];
    d->most = size[0] + size[1] > d->most ? size[0] + size[1] : d->most;
    if (w->live)
        parcel_write(d, q);
    plan_drop(w, &q->keys[0]);
    plan_drop(w, &q->keys[1]);
    *q = (parcel){.in = in,
                  .bytes = q->bytes,
                  .size = {size[0], size[1]},
                  .keys = {from[0], from[1]},
                  .full = w->live};
    for (unsigned b = 0; b < 2; b++)
        if (size[b])
            PLAN_CALL(w, copy, CUDA_TO_HOST_ASIDE, q->bytes + (b ? size[0] : 0), from[b].words,
                      size[b]);
    PLAN_CALL(w, mark, d->turn);
    d->turn ^= 1;
}

/* ---- instructions ---- */

static void deal_words(deal_walk *d, uint64_t id, const uint64_t *run, uint32_t slot, unsigned seed,
                       unsigned bits, uint64_t rows, uint64_t width, bool add, uint64_t *out)
{
    cuda_words r = {.id = id,
                    .run = run,
                    .slot = slot,
                    .seed = CUDA_SEED + seed,
                    .bits = bits,
                    .rows = rows,
                    .width = width,
                    .stride = (width + 1) & ~(uint64_t)1,
                    .add = add,
                    .out = out};
    PLAN_CALL(&d->w, words, &r);
}

static plan_vector zeros(deal_walk *d, uint64_t count)
{
    plan_vector v = plan_new(&d->w, count);
    PLAN_CALL(&d->w, clear, v.words, count * 8);
    return v;
}

/* A shared weight is masked by both: the sum of what either knows. */
static void deal_both(deal_walk *d, const sec_instr *in, const sec_wire *wire)
{
    plan_walk *w = &d->w;
    sec_wire_id o = in->out[0];
    for (unsigned b = 0; b < 2 && wire->share_bits; b++) {
        w->share[b][o] = plan_new(w, wire->count);
        deal_words(d, in->id, w->run + 1, WEIGHT_SLOT, b, wire->bits, 1, wire->count, false,
                   w->share[b][o].words);
    }
    deal_words(d, in->id, w->run + 1, WEIGHT_SLOT, SEC_CLIENT, wire->bits, 1, wire->count, true,
               w->words[o].words);
}

static void deal_end(deal_walk *d, const sec_instr *in)
{
    plan_walk *w = &d->w;
    sec_wire_id o = in->out[0];
    const sec_wire *wire = &w->p->wires.data[o];
    bool public = in->op == SEC_CONST || (in->op == SEC_WEIGHT && in->owner == SEC_PUBLIC);
    unsigned owner = in->op == SEC_INPUT ? SEC_CLIENT : SEC_SERVER;
    plan_vector v = public ? zeros(d, wire->count) : plan_new(w, wire->count);
    if (!public)
        deal_words(d, in->id, in->op == SEC_WEIGHT ? w->run + 1 : w->run,
                   in->op == SEC_WEIGHT ? WEIGHT_SLOT : INPUT_SLOT, owner, wire->bits, 1,
                   wire->count, false, v.words);
    w->words[o] = v;
    if (in->op == SEC_WEIGHT && in->owner == SEC_SHARED) {
        deal_both(d, in, wire);
        return;
    }
    if (!wire->share_bits)
        return;
    w->share[owner][o] = (plan_vector){v.words, v.count, false}; /* goes with the words */
    w->share[1 - owner][o] = zeros(d, wire->count);
}

/* Masks through a product with weights that everybody knows. */
static void deal_public(deal_walk *d, const sec_instr *in)
{
    plan_walk *w = &d->w;
    const sec_program *p = w->p;
    const sec_instr *from = &p->instrs.data[p->wires.data[in->in[1]].producer];
    uint64_t count = p->wires.data[in->in[1]].count;
    uint64_t *words = w->live ? malloc((count + 1) * 8) : NULL;
    if (w->live && !words)
        w->status = error_memory(w->err, "the weights");
    if (words && w->status == TACIT_OK)
        w->status = sec_weight_words(p, from, words, w->err);
    plan_vector y = plan_new(w, count), z = zeros(d, p->wires.data[in->out[0]].count);
    PLAN_CALL(w, copy, CUDA_TO_DEVICE, y.words, words, count * 8);
    if (w->live && w->status == TACIT_OK)
        w->status = w->ops->wait(w->self, w->err);
    free(words);
    const uint64_t *x = w->words[in->in[0]].words;
    if (in->op == SEC_MATMUL) {
        plan_multiply(w, in, &(plan_term){.cx = 1, .bx = 1, .x = x, .w = y.words}, z.words);
    } else {
        cuda_product q = {z.count, in->period, 1, 0, x, NULL, y.words, in->bits, z.words};
        PLAN_CALL(w, product, &q);
    }
    plan_drop(w, &y);
    w->words[in->out[0]] = z;
}

static void deal_product(deal_walk *d, const sec_instr *in)
{
    plan_walk *w = &d->w;
    const sec_program *p = w->p;
    uint64_t minus = ~(uint64_t)0, full = in->op == SEC_PRODUCT ? p->wires.data[in->in[0]].count
                                                                : in->batch * in->m * in->n;
    const uint64_t *rx = in->owner == SEC_SHARED ? w->words[in->in[0]].words
                                                 : w->share[1 - in->owner][in->in[0]].words;
    const uint64_t *rw = w->words[in->in[1]].words;
    bool keep = in->keep || in->keep_sum;
    plan_vector z = plan_new(w, full), out = z;
    for (unsigned b = 0; b < 2; b++) {
        if (in->op == SEC_PRODUCT)
            deal_words(d, in->id, w->run, PRODUCT_SLOT, b, in->bits, 1, full, b, z.words);
        for (uint32_t t = 0; in->op == SEC_MATMUL && t < in->batch; t++)
            deal_words(d, in->id + t, w->run, MATMUL_SLOT, b, in->bits, in->m, in->n, b,
                       z.words + (size_t)t * in->m * in->n);
    }
    if (in->op == SEC_MATMUL) {
        plan_multiply(w, in, &(plan_term){.cx = minus, .bx = 1, .x = rx, .w = rw}, z.words);
    } else {
        cuda_product q = {full, in->period, minus, 0, rx, NULL, rw, in->bits, z.words};
        PLAN_CALL(w, product, &q);
    }
    if (keep) {
        out = plan_new(w, in->keep_count);
        plan_keep(w, in, in->bits, z.words, out.words);
        plan_drop(w, &z);
    }
    w->words[in->out[0]] = out;
}

static void deal_gate(deal_walk *d, const sec_instr *in)
{
    plan_walk *w = &d->w;
    const sec_program *p = w->p;
    bool keep = in->keep || in->keep_sum;
    cuda_gate g = plan_gate(w, in, 0);
    cuda_io io = {.run = w->run};
    plan_vector key[2], out[2] = {{0}}, whole = {0};
    uint64_t size[2];
    for (uint32_t k = 0; k < in->n_in; k++)
        io.in[k] = w->words[in->in[k]].words;
    for (unsigned b = 0; b < 2; b++) {
        size[b] = sec_device_key_bytes(&p->suite, &in->gate, &in->info, b);
        key[b] = zeros(d, size[b] / 8 + 2);
        io.deal[b] = (uint8_t *)key[b].words;
        if (in->gate.kind == FSS_SHARE)
            out[b] = plan_new(w, in->gate.count);
        else if (b < in->n_out)
            out[b] = plan_new(w, p->wires.data[in->out[b]].count);
        io.out[b] = out[b].words;
    }
    if (keep) {
        whole = plan_new(w, in->info.out[0].rows * in->gate.count);
        io.out[0] = whole.words;
    }
    PLAN_CALL(w, deal, &g, &io);
    if (keep)
        plan_keep(w, in, in->info.out[0].bits, whole.words, out[0].words);
    for (unsigned b = 0; b < 2; b++) {
        if (in->gate.kind == FSS_SHARE)
            w->share[b][in->in[0]] = out[b];
        else if (b < in->n_out)
            w->words[in->out[b]] = out[b];
    }
    parcel_send(d, in, key, size);
    plan_drop(w, &whole);
}

static void deal_output(deal_walk *d, const sec_instr *in)
{
    plan_walk *w = &d->w;
    const sec_wire *wire = &w->p->wires.data[in->in[0]];
    uint64_t size = fss_pack_bytes(wire->bits, wire->count);
    plan_vector packed = zeros(d, size / 8 + 2);
    cuda_string s = {w->words[in->in[0]].words, wire->count, 0, wire->bits};
    const cuda_string *there = plan_constant(w, &s, sizeof s);
    PLAN_CALL(w, pack, there, 1, wire->count, packed.words);
    parcel_send(d, in, (const plan_vector[]){{0}, packed}, (const uint64_t[]){0, size});
}

static void deal_walk_all(deal_walk *d)
{
    plan_walk *w = &d->w;
    for (uint32_t i = 0; i < w->p->instrs.count && w->status == TACIT_OK; i++) {
        const sec_instr *in = &w->p->instrs.data[i];
        bool local = in->op >= SEC_GATHER && in->op <= SEC_LOCALS;
        if (local) {
            plan_local(w, in, w->words, false);
            for (int b = 0; b < 2 && w->p->wires.data[in->out[0]].share_derived; b++)
                plan_local(w, in, w->share[b], false);
        } else if (sec_is_local(in))
            deal_public(d, in);
        else if (in->op == SEC_GATE)
            deal_gate(d, in);
        else if (in->op == SEC_MATMUL || in->op == SEC_PRODUCT)
            deal_product(d, in);
        else if (in->op == SEC_OUTPUT)
            deal_output(d, in);
        else
            deal_end(d, in);
        plan_done(w, in);
        plan_round(w);
    }
    for (int i = 0; i < 2; i++)
        parcel_write(d, &d->parcel[d->turn ^ i]);
}

/* ---- all of it ---- */

struct sec_device_dealer {
    const sec_program *p;
    const fss_dealer *dealer;
    cuda_device device;
    void *memory, *constants, *run, *pinned[2];
    uint64_t bytes;
};

/* How much memory, and the constants, which must be there before the work that reads them: a walk
 * that counts, and one that fills. */
static tacit_status dealer_walk(sec_device_dealer *d, uint8_t *image, uint64_t *constants,
                                uint64_t *most, tacit_error *err)
{
    deal_walk w = {.dealer = d->dealer,
                   .w = {.memory = d->memory,
                         .constants = d->constants,
                         .image = image,
                         .fill = image != NULL,
                         .run = d->run}};
    tacit_status status = plan_begin(&w.w, d->p, &d->device, err);
    if (status == TACIT_OK) {
        deal_walk_all(&w);
        status = w.w.status;
    }
    *constants = w.w.constants_at + PLAN_ALIGN;
    *most = w.most;
    d->bytes = w.w.pool.most + PLAN_ALIGN;
    plan_end(&w.w);
    return status;
}

static tacit_status dealer_prepare(sec_device_dealer *d, tacit_error *err)
{
    const cuda_ops *ops = d->device.ops;
    void *self = d->device.self;
    uint64_t constants = 0, most = 0;
    TRY(dealer_walk(d, NULL, &constants, &most, err));
    TRY(ops->alloc(self, d->bytes, &d->memory, err));
    TRY(ops->alloc(self, constants, &d->constants, err));
    TRY(ops->alloc(self, 16, &d->run, err));
    TRY(ops->alloc_host(self, most + 64, &d->pinned[0], err));
    TRY(ops->alloc_host(self, most + 64, &d->pinned[1], err));
    uint8_t *image = calloc(1, constants);
    tacit_status status = image ? dealer_walk(d, image, &constants, &most, err)
                                : error_memory(err, "dealing on the device");
    if (status == TACIT_OK)
        status = ops->copy(self, CUDA_TO_DEVICE, d->constants, image, constants, err);
    if (status == TACIT_OK)
        status = ops->wait(self, err);
    free(image);
    return status;
}

tacit_status sec_device_dealer_create(const sec_program *p, const fss_dealer *dealer,
                                      const cuda_device *device, sec_device_dealer **out,
                                      tacit_error *err)
{
    sec_device_dealer *d = calloc(1, sizeof *d);
    *out = NULL;
    if (!d)
        return error_memory(err, "dealing on the device");
    *d = (sec_device_dealer){.p = p, .dealer = dealer, .device = *device};
    tacit_status status = dealer_prepare(d, err);
    if (status != TACIT_OK)
        sec_device_dealer_free(d);
    else
        *out = d;
    return status;
}

tacit_status sec_device_dealer_run(sec_device_dealer *d, uint64_t run, sec_key_write write,
                                   void *context, tacit_error *err)
{
    const cuda_ops *ops = d->device.ops;
    void *self = d->device.self;
    uint64_t shift[2] = {run * d->p->ids, 0};
    uint32_t words[CUDA_KEY_WORDS];
    sec_device_keys(&d->p->suite, &d->dealer->seed[0], &d->dealer->seed[1], words);
    tacit_status status = ops->keys(self, words, err);
    if (status == TACIT_OK)
        status = ops->copy(self, CUDA_TO_DEVICE, d->run, shift, sizeof shift, err);
    if (status == TACIT_OK)
        status = ops->wait(self, err);
    explicit_bzero(words, sizeof words);
    deal_walk w = {
        .dealer = d->dealer,
        .write = write,
        .context = context,
        .parcel = {{.bytes = d->pinned[0]}, {.bytes = d->pinned[1]}},
        .w = {.live = true, .memory = d->memory, .constants = d->constants, .run = d->run}};
    if (status == TACIT_OK)
        status = plan_begin(&w.w, d->p, &d->device, err);
    if (status == TACIT_OK) {
        deal_walk_all(&w);
        status = w.w.status;
    }
    plan_end(&w.w);
    return status == TACIT_OK ? ops->wait(self, err) : status;
}

void sec_device_dealer_free(sec_device_dealer *d)
{
    if (!d)
        return;
    const cuda_ops *ops = d->device.ops;
    tacit_error ignored;
    if (d->memory)
        (void)!ops->clear(d->device.self, d->memory, d->bytes, &ignored);
    ops->release(d->device.self, d->memory);
    ops->release(d->device.self, d->constants);
    ops->release(d->device.self, d->run);
    for (int i = 0; i < 2; i++)
        if (d->pinned[i])
            ops->release_host(d->device.self, d->pinned[i]);
    free(d);
}
