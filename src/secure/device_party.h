/* SPDX-License-Identifier: Apache-2.0
 * A party on a device, inside: what it holds, the inferences under way, and the walk that records
 * their rounds. */
#ifndef SECURE_DEVICE_PARTY_H
#define SECURE_DEVICE_PARTY_H

#include <pthread.h>

#include "secure/device_plan.h"

typedef struct flight {
    const sec_instr *in;
    cuda_gate gate;
    uint32_t at; /* position of `in` */
    unsigned step;
    plan_vector open[2];
} flight;

/* A round is recorded in parts, so that the first can be sent while the next are computed. */
enum { ROUND_PARTS = 4 };
typedef struct round_plan {
    void *graph[ROUND_PARTS];
    uint64_t ready[ROUND_PARTS]; /* bytes of the message that are final after each */
    uint32_t keys[ROUND_PARTS];  /* groups of keys that must be there before each */
    unsigned parts;
    uint64_t size; /* of the message that ends it */
} round_plan;

/* One weight as the device holds it, by position of its instruction. */
typedef struct weight {
    uint64_t *words, *clear, *share;
} weight;

/* Keys of some instructions that start in one round: a range of the key as it is laid out for the
 * device, and where on the device it lies from its upload until round `last` is over. */
typedef struct key_group {
    uint64_t from, size, at;
    uint32_t start, last;
    uint32_t after; /* rounds below this must be over before the upload */
} key_group;

typedef enum key_home { KEYS_RESIDENT, KEYS_PINNED, KEYS_FILE } key_home;
enum { KEY_STAGES = 4, STAGE_BYTES = 32 << 20 /* usually */ };

typedef struct key_store {
    key_home home;
    uint64_t *from;  /* by position of the instruction, and the end: offset in the layout */
    uint32_t *group; /* likewise: how many groups there are up to its own */
    key_group *groups;
    uint32_t n_groups, uploaded, needed; /* needed: of the work queued so far */
    uint64_t total, ring;                /* bytes of the layout, and of `memory` */
    uint8_t *memory;                     /* device */
    uint8_t *image;                      /* pinned: all of it (KEYS_PINNED) */
    uint8_t *stage[KEY_STAGES];          /* pinned: windows over the layout */
    uint64_t stage_bytes;
    /* KEYS_FILE: a thread fills stages, the party's thread uploads from them */
    const sec_link *link;
    pthread_t reader;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool reading, quit;
    uint64_t filled, emptied; /* stages so far */
    uint64_t copied;          /* bytes of the layout whose upload was queued */
    tacit_status status;
    tacit_error err;
} key_store;

/* One inference under way. */
typedef struct slot {
    const sec_program *p;
    const fss_party *party;
    cuda_device device;
    unsigned index;        /* among those that share messages */
    const weight *weights; /* of all */
    int8_t *const *limbs;  /* of all, by position of a product: its weight, split */
    round_plan *rounds;    /* [p->rounds + 2]: inputs, then rounds */
    key_store key;
    uint64_t *output_at; /* by position: bytes from the start of `results` */
    uint8_t *results;    /* pinned */
    uint64_t *encoded;   /* pinned */
    void *memory, *constants, *run, *message[2]; /* device */
    uint8_t *sent, *received;                    /* pinned, of all */
    uint64_t part_bytes;                         /* least of a message sent ahead */
    uint64_t memory_bytes, input_words, message_bytes, result_bytes;
    /* while walking */
    plan_walk *w;
    flight *flights;
    uint32_t n_flights, at;
    const cuda_string *strings; /* of the round before, on the device */
    uint32_t n_strings;
    uint64_t longest;
} slot;

struct sec_device {
    const sec_program *p;
    const fss_party *party;
    cuda_device device; /* of the first inference; it holds what they share */
    unsigned count;
    slot *slots;
    weight *weights;
    int8_t **limbs;
    uint64_t *zero;           /* device: the run of weights' masks */
    uint8_t *sent, *received; /* pinned: of all, one behind the other */
    uint64_t message_bytes;
};
tacit_status weights_upload(sec_device *d, const sec_weights *from, tacit_error *err);
void weights_release(sec_device *d);

/* Inputs that arrive as an index are made into rows on the device. */
static inline bool slot_input_is_index(const sec_program *p, const sec_instr *in)
{
    const sec_port *port = &p->inputs.data[in->port];
    return port->one_hot && !port->table;
}
static inline uint64_t slot_input_words(const sec_program *p, const sec_instr *in)
{
    uint64_t count = p->wires.data[in->out[0]].count;
    return slot_input_is_index(p, in) ? count / p->inputs.data[in->port].one_hot : count;
}
/* Outputs that are read as plain numbers. */
static inline bool slot_output_is_plain(const sec_program *p, const sec_instr *in)
{
    return !in->guard && p->outputs.data[in->port].dtype == TACIT_F32;
}

/* One walk of the program, with s->w. */
void slot_walk(slot *s);

/* Offsets of keys in the layout; what must be on the device when. */
tacit_status key_plan(key_store *k, const sec_program *p, unsigned party, tacit_error *err);
/* Least device memory with which a run can be served. */
uint64_t key_least(const key_store *k);
/* Places groups in `ring` bytes and allocates. `home` must suit it. */
tacit_status key_place(key_store *k, const cuda_device *device, key_home home, uint64_t ring,
                       tacit_error *err);
void key_free(key_store *k, const cuda_device *device); /* wipes */
static inline uint8_t *key_on_device(const key_store *k, uint32_t at)
{
    const key_group *g = k->group[at] ? &k->groups[k->group[at] - 1] : NULL;
    /* in the first walk there is no memory yet */
    return (uint8_t *)((uintptr_t)k->memory + (g ? g->at + (k->from[at] - g->from) : 0));
}
static inline uint64_t key_size(const key_store *k, uint32_t at)
{
    return k->from[at + 1] - k->from[at];
}
/* Brings a run's key to where it is kept; as much as fits goes to the device. */
tacit_status key_load(slot *s, const sec_link *link, tacit_error *err);
/* Before work that needs the first `groups` of them is queued, `over` rounds being over: those, and
 * some of later ones. */
tacit_status key_feed(slot *s, uint32_t groups, uint32_t over, tacit_error *err);
/* The run is over: stops the reader. */
void key_stop(slot *s);

#endif
