/* SPDX-License-Identifier: Apache-2.0
 * A build without nvcc. */
#ifndef TACIT_HAVE_CUDA
#include <stdio.h>

#include "cuda/device.h"

bool cuda_present(char *why, size_t size)
{
    if (why)
        snprintf(why, size, "this build has no CUDA code");
    return false;
}
tacit_status cuda_open(unsigned n, uint64_t budget, cuda_device *out, tacit_error *err)
{
    (void)n, (void)budget, (void)out;
    return error_set(err, TACIT_ERR_UNSUPPORTED, "this build has no CUDA code");
}
void cuda_close(cuda_device *device)
{
    *device = (cuda_device){0};
}
uint64_t cuda_free_bytes(const cuda_device *device)
{
    (void)device;
    return 0;
}
#endif
