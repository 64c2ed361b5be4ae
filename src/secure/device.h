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

/* Plans memory, uploads weights and constants, records the rounds. */
tacit_status sec_device_create(const sec_program *p, const fss_party *party,
                               const cuda_device *device, const sec_weights *weights,
                               sec_device **out, tacit_error *err);
/* Brings one run's key onto the device. */
tacit_status sec_device_load(sec_device *d, const sec_link *link, tacit_error *err);
tacit_status sec_device_run(sec_device *d, uint64_t run, const sec_link *link,
                            const ir_tensor *const *inputs, ir_tensor *const *outputs,
                            tacit_error *err);
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
