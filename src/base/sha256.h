/* SPDX-License-Identifier: Apache-2.0
 * SHA-256 (FIPS 180-4), for names of graphs and of packed weights; works without OpenSSL. */
#ifndef BASE_SHA256_H
#define BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

typedef struct sha256 {
    uint32_t state[8];
    uint64_t length;
    uint8_t block[64];
} sha256;

void sha256_init(sha256 *s);
void sha256_add(sha256 *s, const void *data, size_t size);
void sha256_end(sha256 *s, uint8_t out[32]);

#endif
