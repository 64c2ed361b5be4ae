/* SPDX-License-Identifier: Apache-2.0
 * Headers of frames: what is read must be what it would be written as. */
#include <stdlib.h>
#include <string.h>

#include "secure/channel.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    frame f;
    uint8_t again[FRAME_HEADER];
    if (size < FRAME_HEADER || frame_read(data, &f, NULL) != TACIT_OK)
        return 0;
    frame_write(&f, again);
    if (memcmp(again, data, FRAME_HEADER) != 0)
        abort();
    return 0;
}
