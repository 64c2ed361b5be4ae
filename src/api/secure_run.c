/* SPDX-License-Identifier: Apache-2.0
 * Private inference: dealing, serving, asking, simulating. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/secure_device.h"
#include "api/secure_internal.h"
#include "base/cpu.h"
#include "fss/rand.h"
#include "secure/channel.h"
#include "secure/lanes.h"
#include "secure/weights.h"

/* ---- dealer ---- */

typedef struct dealt {
    uint8_t seed[2][16], session[16];
    bool predictable;
} dealt;

static tacit_status draw(const sec_program *p, uint64_t insecure_seed, dealt *d, tacit_error *err)
{
    fss_rand r;
    if (insecure_seed)
        fss_rand_init_insecure(&r, &p->suite.prg, insecure_seed);
    else
        TRY(fss_rand_init(&r, &p->suite.prg, err));
    d->predictable = r.predictable;
    fss_rand_bytes(&r, d->seed, sizeof d->seed);
    fss_rand_clear(&r);
    /* never predictable: used runs are remembered by it */
    TRY(fss_rand_init(&r, &p->suite.prg, err));
    fss_rand_bytes(&r, d->session, sizeof d->session);
    fss_rand_clear(&r);
    return TACIT_OK;
}

static tacit_status write_key(void *context, unsigned party, const void *data, size_t size,
                              tacit_error *err)
{
    return key_writer_add((key_writer *)context + party, data, size, err);
}

static tacit_status deal_runs(const sec_program *p, const dealt *d, uint32_t runs, const char *on,
                              key_writer w[2], tacit_error *err)
{
    fss_dealer dealer;
    cuda_device device;
    char why[128];
    fss_dealer_init(&dealer, &p->suite, d->seed[0], d->seed[1]);
    tacit_status status = api_choose_device(on, 0, &device, why, sizeof why, err);
    sec_device_dealer *there = NULL;
    if (status == TACIT_OK && device.ops)
        status = sec_device_dealer_create(p, &dealer, &device, &there, err);
    for (uint32_t run = 0; run < runs && status == TACIT_OK; run++) {
        status = there ? sec_device_dealer_run(there, run, write_key, w, err)
                       : sec_deal(p, &dealer, run, write_key, w, err);
        for (int b = 0; b < 2 && status == TACIT_OK; b++)
            status = key_writer_end_run(&w[b], err);
    }
    sec_device_dealer_free(there);
    if (device.ops)
        cuda_close(&device);
    explicit_bzero(&dealer, sizeof dealer);
    return status;
}

tacit_status tacit_secure_deal(const tacit_secure *s, const tacit_secure_deal_options *o,
                               tacit_error *err)
{
    const sec_program *p = s->program;
    const char *path[2] = {o->server_key, o->client_key};
    const char *secret_path[2] = {o->server_secret, o->client_secret};
    uint32_t runs = o->runs ? o->runs : 1;
    key_writer w[2];
    dealt d;
    memset(w, 0, sizeof w);
    if (!path[0] || !path[1])
        return error_set(err, TACIT_ERR_ARGUMENT, "dealing needs two key files to write");
    TRY(draw(p, o->insecure_seed, &d, err));
    tacit_status status = TACIT_OK;
    for (unsigned b = 0; b < 2 && status == TACIT_OK; b++) {
        uint8_t secret[KEY_SECRET];
        key_header h = key_header_for(p, b, runs, d.predictable);
        memcpy(h.session, d.session, 16);
        status = key_secret(path[b], secret_path[b], true, secret, err);
        if (status == TACIT_OK)
            status = key_writer_open(&w[b], path[b], &h, secret, d.seed[b], err);
        explicit_bzero(secret, sizeof secret);
    }
    if (status == TACIT_OK)
        status = deal_runs(p, &d, runs, o->device, w, err);
    for (int b = 0; b < 2 && status == TACIT_OK; b++)
        status = key_writer_commit(&w[b], err);
    if (status != TACIT_OK) {
        key_writer_abort(&w[0]);
        key_writer_abort(&w[1]);
    }
    explicit_bzero(&d, sizeof d);
    return status;
}

/* ---- the two parties ---- */

typedef struct session {
    const tacit_secure *s;
    const tacit_secure_peer *peer;
    unsigned party;
    key_reader key;
    channel line;
    share_reader share;
    weight_cache cache;
    uint8_t tag[WEIGHT_TAG]; /* the server's name for its weights under this key's masks */
    bool known;              /* the client has them already */
    uint32_t run, inferences;
    uint64_t start, prepare;
    cuda_device device; /* no ops: the processor */
    char computes[128];
    int listener;
    unsigned n_lanes;
    lanes lines;
} session;

/* Lines between the parties: a device makes messages faster than one core encrypts them. */
enum { DEVICE_LANES = 4, DEVICE_SPIN_NS = 200000 };

/* What both must agree on: graph, session, who is who, and the first run unused by both. */
static tacit_status greet(session *x, tacit_error *err)
{
    uint8_t mine[64 + WEIGHT_TAG] = {0}, other[64 + WEIGHT_TAG];
    const key_header *h = &x->key.header;
    uint32_t next = key_next_run(&x->key);
    memcpy(mine, h->graph, 32);
    memcpy(mine + 32, h->session, 16);
    mine[48] = (uint8_t)x->party;
    mine[49] = x->device.ops ? DEVICE_LANES : 1;
    mine[50] = (uint8_t)x->inferences; /* wanted by the client, allowed by the server */
    for (int i = 0; i < 4; i++) {
        mine[52 + i] = (uint8_t)(next >> (8 * i));
        mine[56 + i] = (uint8_t)(h->runs >> (8 * i));
    }
    memcpy(mine + 64, x->party == SEC_SERVER ? x->tag : x->cache.tag, WEIGHT_TAG);
    x->line.kind = FRAME_HELLO;
    TRY(channel_exchange(&x->line, mine, sizeof mine, other, sizeof other, err));
    x->line.kind = FRAME_DATA;
    if (memcmp(mine, other, 32) != 0)
        return error_set(err, TACIT_ERR_SECURITY, "the other party has another graph or mode");
    if (memcmp(mine + 32, other + 32, 16) != 0)
        return error_set(err, TACIT_ERR_SECURITY,
                         "the other party's key is not from the same dealing");
    if (other[48] != 1 - x->party || memcmp(mine + 56, other + 56, 4) != 0)
        return error_set(err, TACIT_ERR_SECURITY, "the other party's key does not fit this one");
    uint32_t theirs = 0;
    for (int i = 0; i < 4; i++)
        theirs |= (uint32_t)other[52 + i] << (8 * i);
    x->run = next > theirs ? next : theirs;
    unsigned wanted = x->party == SEC_CLIENT ? mine[50] : other[50];
    unsigned allowed = x->party == SEC_CLIENT ? other[50] : mine[50];
    if (wanted == 0 || wanted > allowed)
        return error_set(err, TACIT_ERR_UNSUPPORTED,
                         "%u inferences at once are asked for, the server runs at most %u", wanted,
                         allowed);
    if (wanted > h->runs - x->run)
        return error_set(err, TACIT_ERR_SECURITY,
                         "%u inferences are asked for and the key has %u runs left", wanted,
                         h->runs - x->run);
    x->inferences = wanted;
    x->n_lanes = mine[49] < other[49] ? mine[49] : other[49];
    static const uint8_t none[WEIGHT_TAG];
    x->known =
        memcmp(mine + 64, other + 64, WEIGHT_TAG) == 0 && memcmp(mine + 64, none, WEIGHT_TAG) != 0;
    if (x->party == SEC_CLIENT)
        memcpy(x->tag, other + 64, WEIGHT_TAG);
    return TACIT_OK;
}

static tacit_status run_party(session *x, const ir_tensor *const *inputs, ir_tensor *const *outputs,
                              tacit_error *err)
{
    const sec_program *p = x->s->program;
    TRY(greet(x, err));
    /* from here on the run is spent, whatever happens */
    TRY(key_take_run(&x->key, x->run, err));
    if (x->device.ops && sysconf(_SC_NPROCESSORS_ONLN) > 4)
        x->line.spin_ns = DEVICE_SPIN_NS;
    TRY(lanes_open(&x->lines, &x->line, x->n_lanes, x->party, x->listener, x->peer->address,
                   x->peer->certificates, x->key.header.session, err));
    fss_party party;
    fss_party_init(&party, &p->suite, x->party, x->key.seed);
    sec_link link = {.key_read = key_reader_read,
                     .key_context = &x->key,
                     .exchange = channel_exchange,
                     .context = &x->line,
                     .begin = channel_begin,
                     .push = channel_push,
                     .end = channel_end,
                     .own_weight = x->share.file ? share_read : NULL,
                     .own_context = &x->share};
    if (x->lines.count > 1) {
        link.exchange = lanes_exchange;
        link.context = &x->lines;
        link.begin = lanes_begin;
        link.push = lanes_push;
        link.end = lanes_end;
    }
    sec_weights weights = {0};
    uint64_t before = clock_ns();
    sec_link cached =
        p->mode.weights == SEC_SERVER ? cache_link(&x->cache, &link, x->known, x->tag) : link;
    tacit_status status = sec_weights_exchange(p, &party, &cached, &weights, err);
    cache_close(&x->cache, status == TACIT_OK);
    uint64_t prepared = clock_ns(), done = 0;
    if (status == TACIT_OK && x->device.ops) {
        device_job job = {.program = p,
                          .party = &party,
                          .device = &x->device,
                          .weights = &weights,
                          .link = &link,
                          .key_path = x->peer->key,
                          .key_secret = x->peer->secret,
                          .run = x->run,
                          .count = x->inferences,
                          .host_bytes = x->peer->host_bytes,
                          .inputs = inputs,
                          .outputs = outputs};
        status = api_device_run(&job, &prepared, &done, err);
    } else if (status == TACIT_OK) {
        status = sec_party_run(p, &party, x->run, &link, &weights, inputs, outputs, err);
    }
    x->prepare = prepared - before;
    x->start = (done ? done : clock_ns()) - prepared;
    sec_weights_free(p, &weights);
    explicit_bzero(&party, sizeof party);
    return status;
}

static tacit_status open_key(session *x, tacit_error *err)
{
    const tacit_secure_peer *peer = x->peer;
    if (!peer->key || !peer->address || !peer->certificates)
        return error_set(err, TACIT_ERR_ARGUMENT, "a key, an address and certificates are needed");
    TRY(key_reader_open(&x->key, peer->key, peer->secret, err));
    TRY(key_check(&x->key.header, x->s->program, x->party, err));
    if ((x->key.header.flags & KEY_PREDICTABLE) && !peer->accept_predictable)
        return error_set(err, TACIT_ERR_SECURITY,
                         "this key was dealt from a predictable seed, for tests: it protects "
                         "nothing");
    if (key_next_run(&x->key) >= x->key.header.runs)
        return error_set(err, TACIT_ERR_SECURITY,
                         "the key '%s' is used up: it was dealt for %u runs and keys are never "
                         "used twice",
                         peer->key, x->key.header.runs);
    TRY(api_choose_device(peer->device, peer->device_bytes, &x->device, x->computes,
                          sizeof x->computes, err));
    return x->party == SEC_CLIENT && x->inferences > 1 && !x->device.ops
               ? error_set(err, TACIT_ERR_UNSUPPORTED, "several inferences at once need a device")
               : TACIT_OK;
}

static tacit_status talk(session *x, int fd, const ir_tensor *const *inputs,
                         ir_tensor *const *outputs, tacit_error *err)
{
    int timeout = x->peer->timeout_ms > 0 ? x->peer->timeout_ms : 30000;
    channel_plain(&x->line, fd, timeout);
    tacit_status status = channel_secure(&x->line, x->party, x->peer->certificates, err);
    if (status == TACIT_OK) {
        status = run_party(x, inputs, outputs, err);
        lanes_close(&x->lines);
        if (status != TACIT_OK && status != TACIT_ERR_PEER)
            channel_abort(&x->line, status);
    }
    return status;
}

static void finish(session *x, tacit_secure_report *report)
{
    if (report) {
        *report = (tacit_secure_report){.run = x->run,
                                        .rounds = x->s->program->rounds,
                                        .sent = x->line.sent,
                                        .received = x->line.received,
                                        .online_ns = x->start,
                                        .prepare_ns = x->prepare};
        memcpy(report->device, x->computes, sizeof report->device);
    }
    if (x->device.ops)
        cuda_close(&x->device);
    channel_close(&x->line);
    key_reader_close(&x->key);
    share_close(&x->share);
    cache_close(&x->cache, false);
}

/* Masks of weights hide one set of weights, or one share of them, as long as the key lasts. */
static tacit_status bind_weights(session *x, tacit_error *err)
{
    const sec_program *p = x->s->program;
    const char *share = x->peer->share;
    if (share) {
        TRY(share_open(&x->share, p, x->party, share, err));
        return key_bind_weights(&x->key, x->share.hash, x->tag, err);
    }
    if (p->mode.weights == SEC_PUBLIC || x->party == SEC_CLIENT)
        return TACIT_OK;
    if (!x->s->model)
        return error_set(err, TACIT_ERR_ARGUMENT,
                         "serving needs the model, or a share of its weights (--share), not just "
                         "its public description");
    uint8_t hash[32];
    TRY(sec_weights_hash(p, hash, err));
    return key_bind_weights(&x->key, hash, x->tag, err);
}

tacit_status tacit_secure_serve(const tacit_secure *s, const tacit_secure_peer *peer,
                                tacit_secure_report *report, tacit_error *err)
{
    session x = {.s = s, .peer = peer, .party = SEC_SERVER, .line = {.fd = -1}, .listener = -1};
    int fd = -1;
    tacit_status status = open_key(&x, err);
    x.inferences = !x.device.ops ? 1 : peer->inferences ? peer->inferences : DEVICE_INFERENCES;
    if (status == TACIT_OK)
        status = bind_weights(&x, err);
    if (status == TACIT_OK)
        status = channel_listen(peer->address, &x.listener, err);
    if (status == TACIT_OK)
        status =
            channel_accept(x.listener, peer->timeout_ms > 0 ? peer->timeout_ms : 600000, &fd, err);
    if (status == TACIT_OK)
        status = talk(&x, fd, NULL, NULL, err);
    if (x.listener >= 0)
        close(x.listener);
    finish(&x, report);
    return status;
}

/* Bad inputs are found before anybody is called and before a run is spent. */
static tacit_status check_inputs(const sec_program *p, const ir_tensor *const *inputs,
                                 tacit_error *err)
{
    for (uint32_t i = 0; i < p->inputs.count; i++) {
        const sec_port *port = &p->inputs.data[i];
        size_t count = p->wires.data[port->wire].count;
        uint64_t *words = malloc((count ? count : 1) * 8);
        if (!words)
            return error_memory(err, "an input");
        tacit_status status = sec_encode(p, i, inputs[port->input], words, err);
        explicit_bzero(words, count * 8);
        free(words);
        TRY(status);
    }
    return TACIT_OK;
}

typedef struct tensors {
    ir_tensor *views, **in, **out;
} tensors;

/* Tensors of `sets` inferences, one set behind the other. */
static tacit_status tensors_make(const tacit_secure *s, uint32_t sets, const tacit_tensor *inputs,
                                 uint32_t n_in, tacit_tensor *outputs, uint32_t n_out, tensors *t,
                                 tacit_error *err)
{
    size_t each = (size_t)n_in + n_out;
    t->views = calloc(sets * each + 1, sizeof *t->views);
    t->in = calloc((size_t)sets * n_in + 1, sizeof *t->in);
    t->out = calloc((size_t)sets * n_out + 1, sizeof *t->out);
    if (!t->views || !t->in || !t->out)
        return error_memory(err, "the tensors");
    for (uint32_t i = 0; i < sets; i++) {
        ir_tensor *views = t->views + i * each;
        TRY(api_secure_views(s, inputs ? inputs + (size_t)i * n_in : NULL, n_in, true, views,
                             t->in + (size_t)i * n_in, err));
        TRY(api_secure_views(s, outputs ? outputs + (size_t)i * n_out : NULL, n_out, false,
                             views + n_in, t->out + (size_t)i * n_out, err));
    }
    return TACIT_OK;
}
static void tensors_free(tensors *t)
{
    free(t->views);
    free(t->in);
    free(t->out);
}

tacit_status tacit_secure_query(const tacit_secure *s, const tacit_secure_peer *peer,
                                const tacit_tensor *inputs, uint32_t n_inputs,
                                tacit_tensor *outputs, uint32_t n_outputs,
                                tacit_secure_report *report, tacit_error *err)
{
    session x = {.s = s, .peer = peer, .party = SEC_CLIENT, .line = {.fd = -1}, .listener = -1};
    tensors t = {0};
    int fd = -1;
    x.inferences = peer->inferences ? peer->inferences : 1;
    tacit_status status =
        x.inferences > UINT8_MAX
            ? error_set(err, TACIT_ERR_ARGUMENT, "at most 255 inferences run at once")
            : tensors_make(s, x.inferences, inputs, n_inputs, outputs, n_outputs, &t, err);
    for (uint32_t i = 0; i < x.inferences && status == TACIT_OK; i++)
        status =
            check_inputs(s->program, (const ir_tensor *const *)t.in + (size_t)i * n_inputs, err);
    if (status == TACIT_OK)
        status = open_key(&x, err);
    if (status == TACIT_OK)
        status = bind_weights(&x, err);
    if (status == TACIT_OK && s->program->mode.weights == SEC_SERVER)
        cache_find(&x.cache, s->program, peer->key);
    if (status == TACIT_OK)
        status = channel_connect(peer->address, peer->timeout_ms > 0 ? peer->timeout_ms : 30000,
                                 &fd, err);
    if (status == TACIT_OK)
        status = talk(&x, fd, (const ir_tensor *const *)t.in, t.out, err);
    finish(&x, report);
    tensors_free(&t);
    return status;
}

tacit_status tacit_secure_simulate(const tacit_secure *s, const tacit_tensor *inputs,
                                   uint32_t n_inputs, tacit_tensor *outputs, uint32_t n_outputs,
                                   uint64_t insecure_seed, uint32_t run, tacit_error *err)
{
    tensors t = {0};
    fss_dealer dealer;
    bool with_masks = s->program->mode.dither && insecure_seed;
    tacit_status status = tensors_make(s, 1, inputs, n_inputs, outputs, n_outputs, &t, err);
    if (status == TACIT_OK && with_masks) {
        dealt d;
        status = draw(s->program, insecure_seed, &d, err);
        fss_dealer_init(&dealer, &s->program->suite, d.seed[0], d.seed[1]);
    }
    if (status == TACIT_OK)
        status = sec_simulate(s->program, with_masks ? &dealer : NULL, run,
                              (const ir_tensor *const *)t.in, t.out, err);
    tensors_free(&t);
    return status;
}

tacit_status tacit_secure_share(const tacit_secure *s, const char *server_share,
                                const char *client_share, tacit_error *err)
{
    if (!server_share || !client_share)
        return error_set(err, TACIT_ERR_ARGUMENT, "sharing weights needs two files to write");
    if (!s->model)
        return error_set(err, TACIT_ERR_ARGUMENT, "sharing weights needs the model");
    return share_write(s->program, (const char *[]){server_share, client_share}, err);
}

tacit_status tacit_secure_certificates(const char *folder, int days, tacit_error *err)
{
    return channel_make_certificates(folder, days, err);
}
