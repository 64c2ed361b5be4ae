/* SPDX-License-Identifier: Apache-2.0 */
#ifndef API_SECURE_DEVICE_H
#define API_SECURE_DEVICE_H

#include "secure/device.h"
#include "secure/keyfile.h"

enum { DEVICE_INFERENCES = 16 }; /* most at once, unless a server says otherwise */

/* The device that `wanted` names, or none: then `why` says what computes instead. A GPU that is
 * there but cannot be used is an error only where it was asked for by name. */
tacit_status api_choose_device(const char *wanted, uint64_t budget, cuda_device *device, char *why,
                               size_t size, tacit_error *err);

/* `count` inferences of one party, with runs from `run` on. The first run of the key is taken and
 * `link` reads it; the others are taken here. */
typedef struct device_job {
    const sec_program *program;
    const fss_party *party;
    const cuda_device *device;
    const sec_weights *weights;
    const sec_link *link;
    const char *key_path, *key_secret;
    uint32_t run;
    unsigned count;
    uint64_t host_bytes;
    const ir_tensor *const *inputs;
    ir_tensor *const *outputs;
} device_job;
/* *prepared: when keys and weights were in place; *done: when the results were there. */
tacit_status api_device_run(const device_job *j, uint64_t *prepared, uint64_t *done,
                            tacit_error *err);

#endif
