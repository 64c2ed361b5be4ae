/* SPDX-License-Identifier: Apache-2.0 */
#include "fss/pack.h"

#include <string.h>

#include "fss/prg.h"

static void pack_bits(uint8_t *out, const uint64_t *words, size_t count)
{
    for (size_t i = 0; i < count; i += 8) {
        size_t n = count - i < 8 ? count - i : 8;
        unsigned byte = 0;
        for (size_t k = 0; k < n; k++)
            byte |= (unsigned)(words[i + k] & 1) << k;
        *out++ = (uint8_t)byte;
    }
}

void fss_pack(uint8_t *out, unsigned bits, const uint64_t *words, size_t count)
{
    if (bits == 1) {
        pack_bits(out, words, count);
        return;
    }
    uint64_t held = 0; /* the low `fill` bits are waiting to be written */
    unsigned fill = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t word = fss_low(words[i], bits);
        held |= fill < 64 ? word << fill : 0;
        if (fill + bits >= 64) {
            memcpy(out, &held, 8);
            out += 8;
            held = fill ? word >> (64 - fill) : 0;
            fill = fill + bits - 64;
            held = fss_low(held, fill);
        } else {
            fill += bits;
        }
    }
    memcpy(out, &held, (fill + 7) / 8);
}

/* Word i of the string; `size` bytes may be read. */
static inline uint64_t word_at(const uint8_t *in, size_t size, unsigned bits, size_t i)
{
    size_t at = i / 8 * bits + i % 8 * bits / 8;
    unsigned shift = (unsigned)(i % 8 * bits % 8);
    uint64_t low = 0, high = 0;
    memcpy(&low, in + at, size - at < 8 ? size - at : 8);
    if (shift + bits > 64)
        high = (uint64_t)in[at + 8] << (64 - shift);
    return fss_low(low >> shift | high, bits);
}

/* Words whose eight-byte load stays inside the string, so that the fast loop needs no test. */
static size_t safe_words(unsigned bits, size_t size, size_t count)
{
    if (bits > 56 || size < 8)
        return 0;
    size_t n = bits ? (size - 8) * 8 / bits : count;
    return n < count ? n : count;
}

static inline uint64_t fast_word(const uint8_t *in, unsigned bits, size_t i)
{
    uint64_t v;
    size_t bit = i * bits;
    memcpy(&v, in + bit / 8, 8);
    return fss_low(v >> (bit & 7), bits);
}

void fss_unpack(uint64_t *words, unsigned bits, const uint8_t *in, size_t count)
{
    size_t size = fss_pack_bytes(bits, count), i = 0, safe = safe_words(bits, size, count);
    if (bits == 0)
        memset(words, 0, count * sizeof *words);
    else if (bits == 64)
        memcpy(words, in, 8 * count);
    else {
        for (; i < safe; i++)
            words[i] = fast_word(in, bits, i);
        for (; i < count; i++)
            words[i] = word_at(in, size, bits, i);
    }
}

void fss_unpack_add(uint64_t *words, unsigned bits, const uint8_t *in, size_t count)
{
    size_t size = fss_pack_bytes(bits, count), i = 0, safe = safe_words(bits, size, count);
    if (bits == 0)
        return;
    for (; i < safe; i++)
        words[i] = fss_low(words[i] + fast_word(in, bits, i), bits);
    for (; i < count; i++)
        words[i] = fss_low(words[i] + word_at(in, size, bits, i), bits);
}
