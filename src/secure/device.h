/* SPDX-License-Identifier: Apache-2.0
 * A party or a dealer whose vectors, keys and weights live on a device. The program, the order of
 * everything and every byte on the wire are those of sec_party_run and sec_deal: either side may
 * use a device or not. */
#ifndef SECURE_DEVICE_H
#define SECURE_DEVICE_H

#include "cuda/device.h"
#include "secure/program.h"

/* A gate for the device, with the offsets its key items have there. Pointers stay the host's. */
void sec_device_gate(const fss_suite *suite, const fss_gate *gate, const fss_info *info,
                     unsigned party, cuda_gate *out);
/* Key bytes on the device: every item begins at a multiple of 16, and reads may overrun. */
uint64_t sec_device_key_bytes(const fss_suite *suite, const fss_gate *gate, const fss_info *info,
                              unsigned party);
/* Round keys as the device wants them; seed1 may be NULL. */
void sec_device_keys(const fss_suite *suite, const fss_prf *seed0, const fss_prf *seed1,
                     uint32_t words[CUDA_KEY_WORDS]);

typedef struct sec_device sec_device;

/* Where keys are during a run. Zero everywhere: on the device if they fit, else as much of them as
 * fits, the rest in pinned memory of the host, or in the file where that does not suffice. */
typedef struct sec_device_options {
    uint64_t key_bytes;   /* most device memory for the keys of one run */
    uint64_t host_bytes;  /* most pinned memory for them; 0: half of what is free */
    bool stream, file;    /* for tests and benchmarks: not resident; not pinned either */
    uint64_t part_bytes;  /* least bytes of a message sent ahead; 0: half a megabyte */
    uint64_t stage_bytes; /* of the pinned windows that a file is read through; 0: 32 megabytes */
} sec_device_options;

/* Plans memory, uploads weights and constants, records the rounds of `count` inferences that share
 * weights and messages, each with a device object of its own. */
tacit_status sec_device_create(const sec_program *p, const fss_party *party,
                               const cuda_device *devices, unsigned count,
                               const sec_weights *weights, const sec_device_options *options,
                               sec_device **out, tacit_error *err);
/* Fetches the key of inference `which`; from `link`, which must live until the run is over. */
tacit_status sec_device_load(sec_device *d, unsigned which, const sec_link *link, tacit_error *err);
/* Inference i has the id run + i; its tensors begin at inputs[i * inputs of the graph], likewise
 * the outputs. */
tacit_status sec_device_run(sec_device *d, uint64_t run, const sec_link *link,
                            const ir_tensor *const *inputs, ir_tensor *const *outputs,
                            tacit_error *err);
/* Device bytes of everything but keys, and of the keys of one run (all, and held at a time). */
typedef struct sec_device_sizes {
    uint64_t key_bytes, key_held, vectors;
    bool streamed, from_file;
} sec_device_sizes;
sec_device_sizes sec_device_size(const sec_device *d);
void sec_device_free(sec_device *d); /* wipes what it held */

/* The dealer; a run's keys are those of sec_deal, byte for byte. */
typedef struct sec_device_dealer sec_device_dealer;
tacit_status sec_device_dealer_create(const sec_program *p, const fss_dealer *dealer,
                                      const cuda_device *device, sec_device_dealer **out,
                                      tacit_error *err);
tacit_status sec_device_dealer_run(sec_device_dealer *d, uint64_t run, sec_key_write write,
                                   void *context, tacit_error *err);
void sec_device_dealer_free(sec_device_dealer *d);

#endif
