/* SPDX-License-Identifier: Apache-2.0 */
#include "load/load.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    arena a;
    load_tensors t;
    arena_init(&a, NULL);
    (void)load_npz(data, size, &a, &t, NULL); /* refusing is fine, crashing is not */
    arena_free(&a);
    return 0;
}
