/* SPDX-License-Identifier: Apache-2.0
 * TensorProto, SequenceProto and OptionalProto; the first byte chooses. */
#include "load/load.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    arena a;
    ir_tensor t;
    sbuf bytes;
    if (!size)
        return 0;
    arena_init(&a, NULL);
    sbuf_init(&bytes, NULL);
    if (load_onnx_value(data + 1, size - 1, (ir_kind)(data[0] % 4), &a, &t, NULL) == TACIT_OK)
        (void)load_onnx_encode_value(&t, &bytes, NULL); /* refusing is fine, crashing is not */
    sbuf_free(&bytes);
    arena_free(&a);
    return 0;
}
