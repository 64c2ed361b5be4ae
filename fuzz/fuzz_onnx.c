/* SPDX-License-Identifier: Apache-2.0
 * The ONNX reader; what it accepts, the writer must take and the reader accept again. */
#include <stdlib.h>

#include "load/load.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    arena a;
    load_files files = {0};
    ir_graph *g = NULL, *again = NULL;
    sbuf bytes;
    arena_init(&a, NULL);
    sbuf_init(&bytes, NULL);
    if (load_onnx(data, size, NULL, &a, &files, &g, NULL) == TACIT_OK &&
        load_onnx_encode(g, &bytes, NULL) == TACIT_OK &&
        load_onnx(bytes.data, bytes.length, NULL, &a, &files, &again, NULL) != TACIT_OK)
        abort();
    load_files_close(&files);
    sbuf_free(&bytes);
    arena_free(&a);
    return 0;
}
