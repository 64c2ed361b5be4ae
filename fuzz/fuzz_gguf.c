/* SPDX-License-Identifier: Apache-2.0 */
#include "load/gguf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    arena a;
    load_gguf_file f;
    ir_graph *g;
    arena_init(&a, NULL);
    if (load_gguf(data, size, &a, &f, NULL) == TACIT_OK) /* refusing is fine, crashing is not */
        (void)load_gguf_graph(&f, &a, &g, NULL);
    arena_free(&a);
    return 0;
}
