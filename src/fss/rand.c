/* SPDX-License-Identifier: Apache-2.0 */
#include "fss/rand.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

enum { REKEY_BLOCKS = 1 << 16 };

tacit_status fss_rand_init(fss_rand *rand, const fss_prg *prg, tacit_error *err)
{
    uint8_t seed[16];
    size_t have = 0;
    while (have < sizeof seed) {
        ssize_t got = getrandom(seed + have, sizeof seed - have, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return error_set(err, TACIT_ERR_SECURITY, "getrandom: %s", strerror(errno));
        have += (size_t)got;
    }
    fss_prf_init(&rand->prf, prg, seed);
    rand->used = 0;
    rand->predictable = false;
    explicit_bzero(seed, sizeof seed);
    return TACIT_OK;
}

void fss_rand_init_insecure(fss_rand *rand, const fss_prg *prg, uint64_t seed)
{
    uint8_t bytes[16] = {0};
    memcpy(bytes, &seed, sizeof seed);
    fss_prf_init(&rand->prf, prg, bytes);
    rand->used = 0;
    rand->predictable = true;
}

static fss_block next_block(fss_rand *rand)
{
    if (rand->used == REKEY_BLOCKS) {
        fss_block key;
        fss_prf_blocks(&rand->prf, UINT64_MAX, 0, 0, &key, 1);
        fss_aes_expand(&rand->prf.key, (const uint8_t *)&key);
        explicit_bzero(&key, sizeof key);
        rand->used = 0;
    }
    fss_block out;
    fss_prf_blocks(&rand->prf, 0, 0, rand->used++, &out, 1);
    return out;
}

void fss_rand_bytes(fss_rand *rand, void *out, size_t size)
{
    uint8_t *p = out;
    while (size) {
        fss_block block = next_block(rand);
        size_t n = size < sizeof block ? size : sizeof block;
        memcpy(p, &block, n);
        p += n;
        size -= n;
    }
}

uint64_t fss_rand_word(fss_rand *rand, unsigned bits)
{
    return fss_low(next_block(rand).lo, bits);
}

void fss_rand_clear(fss_rand *rand)
{
    explicit_bzero(rand, sizeof *rand);
}
