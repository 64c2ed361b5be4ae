/* SPDX-License-Identifier: Apache-2.0
 * A party on a device, inside: what it holds, and the walk that records its rounds. */
#ifndef SECURE_DEVICE_PARTY_H
#define SECURE_DEVICE_PARTY_H

#include "secure/device_plan.h"

typedef struct flight {
    const sec_instr *in;
    cuda_gate gate;
    unsigned step;
    uint64_t key_at;
    plan_vector open[2];
} flight;

typedef struct round_plan {
    void *graph;
    uint64_t size; /* of the message that ends it */
} round_plan;

/* One weight as the device holds it, by position of its instruction. */
typedef struct weight {
    uint64_t *words, *clear, *share;
} weight;

struct sec_device {
    const sec_program *p;
    const fss_party *party;
    cuda_device device;
    round_plan *rounds; /* [p->rounds + 2]: inputs, then rounds */
    weight *weights;
    int8_t **limbs;   /* by position of a product: its weight, split */
    uint64_t *key_at; /* by position: offset of its key */
    uint8_t **output_key;
    uint64_t *output_at;         /* by position: words from the start of `results` */
    uint64_t *results, *encoded; /* pinned */
    void *memory, *constants, *keys, *run, *message[2]; /* device */
    uint8_t *sent, *received, *stage[2];                /* pinned */
    uint64_t key_bytes, memory_bytes, input_words, message_bytes;
    /* while walking */
    plan_walk *w;
    flight *flights;
    uint32_t n_flights, at;
    uint64_t result_words;
    const cuda_string *strings; /* of the round before, on the device */
    uint32_t n_strings;
    uint64_t longest;
};

/* One walk of the program, with d->w. */
void device_walk(sec_device *d);

#endif
