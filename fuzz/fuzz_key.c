/* SPDX-License-Identifier: Apache-2.0
 * Headers of key files: what is read is canonical, and its sizes are sane. */
#include <stdlib.h>
#include <string.h>

#include "secure/keyfile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    key_header h;
    uint8_t again[KEY_HEADER];
    if (size < KEY_HEADER + 8)
        return 0;
    uint64_t file_size;
    memcpy(&file_size, data + KEY_HEADER, 8);
    if (key_header_read(data, file_size, &h, NULL) != TACIT_OK)
        return 0;
    key_header_write(&h, again);
    if (memcmp(again, data, KEY_HEADER) != 0 || key_file_size(&h) != file_size || h.party > 1)
        abort();
    return 0;
}
