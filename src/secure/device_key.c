/* SPDX-License-Identifier: Apache-2.0
 * A run's key on its way to the device. Where it fits it is there before the query. Where it does
 * not, the device holds a window of it: every round's keys are uploaded beside the rounds before,
 * from pinned memory or, read by a thread of its own, straight from the file. */
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "secure/device_party.h"

enum { OVERRUN = 16, ALIGN = 16, GROUP_BYTES = 4 << 20 };
enum { STAGE_MARK = 0, GROUP_MARK = 16, GROUP_MARKS = CUDA_MARKS - GROUP_MARK, AHEAD = 120 };

/* ---- what lies where ---- */

static uint64_t device_bytes(const sec_program *p, const sec_instr *in, unsigned party)
{
    if (in->op == SEC_GATE)
        return sec_device_key_bytes(&p->suite, &in->gate, &in->info, party);
    if (sec_learns(in, party))
        return (sec_key_bytes(p, in, party) + OVERRUN + ALIGN - 1) / ALIGN * ALIGN;
    return 0;
}

tacit_status key_plan(key_store *k, const sec_program *p, unsigned party, tacit_error *err)
{
    size_t n = p->instrs.count + 1u;
    k->from = calloc(n, sizeof *k->from);
    k->group = calloc(n, sizeof *k->group);
    k->groups = calloc(n, sizeof *k->groups);
    if (!k->from || !k->group || !k->groups)
        return error_memory(err, "planning for the device");
    for (uint32_t i = 0; i < p->instrs.count; i++) {
        const sec_instr *in = &p->instrs.data[i];
        uint64_t bytes = device_bytes(p, in, party);
        key_group *g = k->n_groups ? &k->groups[k->n_groups - 1] : NULL;
        if (bytes && (!g || g->start != in->start || g->size >= GROUP_BYTES)) {
            g = &k->groups[k->n_groups++];
            *g = (key_group){.from = k->total, .start = in->start};
        }
        k->from[i] = k->total;
        k->group[i] = k->n_groups;
        if (!bytes)
            continue;
        unsigned steps = sec_steps(in);
        uint32_t last = in->start + (steps ? steps - 1 : 0);
        g->last = last > g->last ? last : g->last;
        g->size += bytes;
        k->total += bytes;
    }
    k->from[p->instrs.count] = k->total;
    return TACIT_OK;
}

/* One after the other, from the start again where the end is reached. */
static bool place_groups(key_store *k, uint64_t ring)
{
    uint64_t at = 0;
    for (uint32_t g = 0; g < k->n_groups; g++) {
        key_group *here = &k->groups[g];
        if (here->size > ring)
            return false;
        if (at + here->size > ring)
            at = 0;
        here->at = at;
        here->after = 0;
        at += here->size;
        for (uint32_t h = 0; h < g; h++) {
            const key_group *other = &k->groups[h];
            if (other->at < at && here->at < other->at + other->size)
                here->after = other->last + 1 > here->after ? other->last + 1 : here->after;
        }
        if (here->after > here->start)
            return false;
    }
    return true;
}

uint64_t key_least(const key_store *k)
{
    key_store try = *k;
    uint64_t most = 0;
    if (!(try.groups = malloc((k->n_groups + 1u) * sizeof *try.groups)))
        return k->total;
    memcpy(try.groups, k->groups, k->n_groups * sizeof *try.groups);
    for (uint32_t g = 0; g < k->n_groups; g++) {
        uint64_t live = 0;
        for (uint32_t h = 0; h < k->n_groups && k->groups[h].start <= k->groups[g].start; h++)
            live += k->groups[h].last >= k->groups[g].start ? k->groups[h].size : 0;
        most = live > most ? live : most;
    }
    while (most < k->total && !place_groups(&try, most))
        most += most / 32 + ALIGN;
    free(try.groups);
    return most < k->total ? most : k->total;
}

static uint64_t stage_size(const key_store *k, uint64_t n)
{
    uint64_t left = k->total - n * k->stage_bytes;
    return left < k->stage_bytes ? left : k->stage_bytes;
}

tacit_status key_place(key_store *k, const cuda_device *device, key_home home, uint64_t ring,
                       tacit_error *err)
{
    const cuda_ops *ops = device->ops;
    k->home = home;
    k->ring = ring < k->total ? ring : k->total;
    if (!place_groups(k, k->ring))
        return error_set(err, TACIT_ERR_MEMORY,
                         "the device has room for %llu bytes of keys; the rounds of this program "
                         "need %llu",
                         (unsigned long long)ring, (unsigned long long)key_least(k));
    void *memory = NULL;
    TRY(ops->alloc(device->self, k->ring + 64, &memory, err));
    k->memory = memory;
    if (home == KEYS_PINNED) {
        TRY(ops->alloc_host(device->self, k->total + 64, &memory, err));
        k->image = memory;
        return TACIT_OK;
    }
    for (uint64_t i = 0; i < KEY_STAGES && i * k->stage_bytes < k->total; i++) {
        TRY(ops->alloc_host(device->self, stage_size(k, i), &memory, err));
        k->stage[i] = memory;
    }
    return TACIT_OK;
}

void key_free(key_store *k, const cuda_device *device)
{
    const cuda_ops *ops = device->ops;
    tacit_error ignored;
    if (k->memory)
        (void)!ops->clear(device->self, k->memory, k->ring, &ignored);
    ops->release(device->self, k->memory);
    if (k->image) {
        explicit_bzero(k->image, k->total);
        ops->release_host(device->self, k->image);
    }
    for (int i = 0; i < KEY_STAGES; i++)
        if (k->stage[i]) {
            explicit_bzero(k->stage[i], stage_size(k, (uint64_t)i));
            ops->release_host(device->self, k->stage[i]);
        }
    free(k->from);
    free(k->group);
    free(k->groups);
    *k = (key_store){0};
}

/* ---- reading ---- */

/* Stage n is full. */
static tacit_status stage_done(slot *s, uint64_t n, tacit_error *err)
{
    key_store *k = &s->key;
    const cuda_ops *ops = s->device.ops;
    if (k->home == KEYS_RESIDENT) {
        TRY(ops->copy(s->device.self, CUDA_TO_DEVICE_ASIDE, k->memory + n * k->stage_bytes,
                      k->stage[n % KEY_STAGES], stage_size(k, n), err));
        return ops->mark(s->device.self, STAGE_MARK + n % KEY_STAGES, err);
    }
    pthread_mutex_lock(&k->lock);
    k->filled = n + 1;
    pthread_cond_broadcast(&k->changed);
    pthread_mutex_unlock(&k->lock);
    return TACIT_OK;
}

/* Stage n may be written. */
static tacit_status stage_free(slot *s, uint64_t n, tacit_error *err)
{
    key_store *k = &s->key;
    if (k->home == KEYS_RESIDENT)
        return n < KEY_STAGES
                   ? TACIT_OK
                   : s->device.ops->wait_mark(s->device.self, STAGE_MARK + n % KEY_STAGES, err);
    pthread_mutex_lock(&k->lock);
    while (!k->quit && n >= k->emptied + KEY_STAGES)
        pthread_cond_wait(&k->changed, &k->lock);
    bool quit = k->quit;
    pthread_mutex_unlock(&k->lock);
    return quit ? error_set(err, TACIT_ERR_INTERRUPTED, "the run is over") : TACIT_OK;
}

typedef struct cursor {
    slot *s;
    const sec_link *link;
    uint64_t stages; /* begun so far */
} cursor;

static tacit_status read_bytes(cursor *c, uint64_t at, uint64_t size, tacit_error *err)
{
    key_store *k = &c->s->key;
    if (k->home == KEYS_PINNED)
        return c->link->key_read(c->link->key_context, k->image + at, size, err);
    while (size) {
        uint64_t n = at / k->stage_bytes, skip = at % k->stage_bytes, room = k->stage_bytes - skip;
        for (; c->stages <= n; c->stages++) {
            if (c->stages)
                TRY(stage_done(c->s, c->stages - 1, err));
            TRY(stage_free(c->s, c->stages, err));
        }
        uint64_t take = size < room ? size : room;
        TRY(c->link->key_read(c->link->key_context, k->stage[n % KEY_STAGES] + skip, take, err));
        at += take;
        size -= take;
    }
    return TACIT_OK;
}

static tacit_status read_key(slot *s, const sec_link *link, tacit_error *err)
{
    const sec_program *p = s->p;
    unsigned party = s->party->index;
    cursor c = {s, link, 0};
    for (uint32_t i = 0; i < p->instrs.count; i++) {
        const sec_instr *in = &p->instrs.data[i];
        uint64_t from = s->key.from[i];
        if (sec_learns(in, party))
            TRY(read_bytes(&c, from, sec_key_bytes(p, in, party), err));
        if (in->op != SEC_GATE)
            continue;
        cuda_gate g;
        sec_device_gate(&p->suite, &in->gate, &in->info, party, &g);
        for (unsigned k = 0; k < in->info.items; k++) {
            size_t end = k + 1u < in->info.items ? in->info.item[k + 1].at[party]
                                                 : in->info.key_bytes[party];
            TRY(read_bytes(&c, from + g.item[k].at, end - in->info.item[k].at[party], err));
        }
    }
    /* overruns may reach into a stage that nothing was read into */
    uint64_t stages = (s->key.total + s->key.stage_bytes - 1) / s->key.stage_bytes;
    for (; s->key.home != KEYS_PINNED && c.stages < stages; c.stages++) {
        if (c.stages)
            TRY(stage_done(s, c.stages - 1, err));
        TRY(stage_free(s, c.stages, err));
    }
    return c.stages ? stage_done(s, c.stages - 1, err) : TACIT_OK;
}

static void *reader_thread(void *context)
{
    slot *s = context;
    key_store *k = &s->key;
    thread_name("tacit-key");
    tacit_status status = read_key(s, k->link, &k->err);
    pthread_mutex_lock(&k->lock);
    k->status = status;
    pthread_cond_broadcast(&k->changed);
    pthread_mutex_unlock(&k->lock);
    return NULL;
}

tacit_status key_load(slot *s, const sec_link *link, tacit_error *err)
{
    key_store *k = &s->key;
    const cuda_ops *ops = s->device.ops;
    key_stop(s);
    k->uploaded = k->needed = 0;
    k->copied = k->filled = k->emptied = 0;
    k->status = TACIT_OK;
    if (k->home == KEYS_FILE) {
        k->link = link;
        k->quit = false;
        pthread_mutex_init(&k->lock, NULL);
        pthread_cond_init(&k->changed, NULL);
        if (!thread_start(&k->reader, NULL, reader_thread, s))
            return error_set(err, TACIT_ERR_MEMORY, "no thread to read the key with");
        k->reading = true;
        return TACIT_OK;
    }
    TRY(read_key(s, link, err));
    if (k->home == KEYS_PINNED)
        return TACIT_OK;
    for (unsigned i = 0; i < KEY_STAGES; i++)
        TRY(ops->wait_mark(s->device.self, STAGE_MARK + i, err));
    k->uploaded = k->n_groups;
    return TACIT_OK;
}

void key_stop(slot *s)
{
    key_store *k = &s->key;
    if (!k->reading)
        return;
    pthread_mutex_lock(&k->lock);
    k->quit = true;
    pthread_cond_broadcast(&k->changed);
    pthread_mutex_unlock(&k->lock);
    pthread_join(k->reader, NULL);
    pthread_cond_destroy(&k->changed);
    pthread_mutex_destroy(&k->lock);
    k->reading = false;
}

/* ---- uploading during the run ---- */

/* Gives stages before n back to the reader, then waits until n is filled. */
static tacit_status stage_wait(slot *s, uint64_t n, tacit_error *err)
{
    key_store *k = &s->key;
    for (uint64_t m = k->emptied; m < n; m++) {
        TRY(s->device.ops->wait_mark(s->device.self, STAGE_MARK + m % KEY_STAGES, err));
        pthread_mutex_lock(&k->lock);
        k->emptied = m + 1;
        pthread_cond_broadcast(&k->changed);
        pthread_mutex_unlock(&k->lock);
    }
    pthread_mutex_lock(&k->lock);
    while (k->filled <= n && k->status == TACIT_OK)
        pthread_cond_wait(&k->changed, &k->lock);
    bool there = k->filled > n;
    pthread_mutex_unlock(&k->lock);
    return there ? TACIT_OK : error_set(err, k->status, "%s", k->err.message);
}

static bool stage_there(key_store *k, uint64_t end)
{
    pthread_mutex_lock(&k->lock);
    bool there = k->filled * k->stage_bytes >= end || k->filled * k->stage_bytes >= k->total;
    pthread_mutex_unlock(&k->lock);
    return there;
}

static tacit_status upload_group(slot *s, const key_group *g, tacit_error *err)
{
    key_store *k = &s->key;
    const cuda_ops *ops = s->device.ops;
    if (k->home == KEYS_PINNED)
        return ops->copy(s->device.self, CUDA_TO_DEVICE_ASIDE, k->memory + g->at,
                         k->image + g->from, g->size, err);
    for (uint64_t at = g->from, end = g->from + g->size; at < end;) {
        uint64_t n = at / k->stage_bytes, skip = at % k->stage_bytes,
                 room = stage_size(k, n) - skip;
        uint64_t take = end - at < room ? end - at : room;
        TRY(stage_wait(s, n, err));
        TRY(ops->copy(s->device.self, CUDA_TO_DEVICE_ASIDE, k->memory + g->at + (at - g->from),
                      k->stage[n % KEY_STAGES] + skip, take, err));
        at += take;
        if (take == room)
            TRY(ops->mark(s->device.self, STAGE_MARK + n % KEY_STAGES, err));
    }
    return TACIT_OK;
}

tacit_status key_feed(slot *s, uint32_t groups, uint32_t over, tacit_error *err)
{
    key_store *k = &s->key;
    const cuda_ops *ops = s->device.ops;
    if (k->home == KEYS_RESIDENT)
        return TACIT_OK;
    k->needed = groups > k->needed ? groups : k->needed;
    for (; k->uploaded < k->n_groups && k->uploaded < k->needed + AHEAD; k->uploaded++) {
        const key_group *g = &k->groups[k->uploaded];
        bool later = k->uploaded >= groups;
        if (later && g->after > over)
            break;
        if (later && k->home == KEYS_FILE && !stage_there(k, g->from + g->size))
            break;
        if (g->after > over)
            TRY(ops->wait(s->device.self, err)); /* rounds without a message in between */
        TRY(upload_group(s, g, err));
        TRY(ops->mark(s->device.self, GROUP_MARK + k->uploaded % GROUP_MARKS, err));
    }
    return groups ? ops->after_mark(s->device.self, GROUP_MARK + (groups - 1) % GROUP_MARKS, err)
                  : TACIT_OK;
}
