/* SPDX-License-Identifier: Apache-2.0
 * A device that is the host: the same element functions the CUDA kernels are made of, in loops. */
#ifndef TEST_HOST_DEVICE_H
#define TEST_HOST_DEVICE_H

#include "cuda/device.h"

/* `budget`: most bytes, 0: no limit. Work queued after `fail_after` operations fails as a lost
 * device would; 0: never. */
cuda_device host_device_open(uint64_t budget, uint64_t fail_after);
/* Copies aside happen as late as they may, not at once. */
void host_device_lazy(const cuda_device *d);
uint64_t host_device_held(const cuda_device *d); /* bytes allocated now */
void host_device_close(cuda_device *d);

#endif
