/* SPDX-License-Identifier: Apache-2.0
 * npy files; what is read must be written and read back alike. */
#include <stdlib.h>

#include "load/load.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    arena a;
    ir_tensor t, again;
    sbuf bytes;
    arena_init(&a, NULL);
    sbuf_init(&bytes, NULL);
    if (load_npy(data, size, &a, &t, NULL) == TACIT_OK &&
        load_npy_encode(&t, &bytes, NULL) == TACIT_OK)
        if (load_npy(bytes.data, bytes.length, &a, &again, NULL) != TACIT_OK ||
            !ir_tensor_identical(&t, &again))
            abort();
    sbuf_free(&bytes);
    arena_free(&a);
    return 0;
}
