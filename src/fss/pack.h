/* SPDX-License-Identifier: Apache-2.0
 * Ring words as a bit string at their true width, least significant bit first: the form of every
 * opening on the wire and every word in a key. */
#ifndef FSS_PACK_H
#define FSS_PACK_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of `count` words of `bits` bits, bits in [0, 64]. */
static inline size_t fss_pack_bytes(unsigned bits, size_t count)
{
    return count / 8 * bits + (count % 8 * bits + 7) / 8;
}

/* High bits of the words are ignored; unused bits of the last byte are zero. */
void fss_pack(uint8_t *out, unsigned bits, const uint64_t *words, size_t count);
/* Are the unused bits of the last byte zero, as fss_pack leaves them? */
static inline int fss_pack_clean(const uint8_t *in, unsigned bits, size_t count)
{
    unsigned used = (unsigned)(count % 8 * bits % 8);
    return !used || in[fss_pack_bytes(bits, count) - 1] >> used == 0;
}
/* Reads exactly fss_pack_bytes(bits, count) bytes; every word comes out below 2^bits. */
void fss_unpack(uint64_t *words, unsigned bits, const uint8_t *in, size_t count);
/* words[i] = (words[i] + unpacked i) mod 2^bits: the two halves of an opening made one. */
void fss_unpack_add(uint64_t *words, unsigned bits, const uint8_t *in, size_t count);

#endif
