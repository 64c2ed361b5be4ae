/* SPDX-License-Identifier: Apache-2.0 */
#include "fss/prg.h"

#include <string.h>

#include "base/cpu.h"

/* The role keys are AES of (role, tweak chained) under a published constant: nothing up the sleeve,
 * and a new session tweak changes all of them. */
static void role_keys(fss_prg *prg)
{
    static const uint8_t constant[16] = "tacit fss prg v1";
    fss_aes_key base, tweaked;
    fss_block tweak, block;
    fss_aes_expand(&base, constant);
    memcpy(&tweak, prg->tweak, 16);
    fss_aes_portable(&base, &tweak, &block, 1);
    block = fss_block_xor(block, tweak);
    fss_aes_expand(&tweaked, (const uint8_t *)&block);
    for (unsigned role = 0; role < FSS_ROLES; role++) {
        fss_block in = {role + 1, 0}, out;
        fss_aes_portable(&tweaked, &in, &out, 1);
        fss_aes_expand(&prg->role[role], (const uint8_t *)&out);
    }
}

tacit_status fss_prg_init(fss_prg *prg, fss_prg_id id, const uint8_t tweak[16], tacit_error *err)
{
    if (id != FSS_PRG_AES && id != FSS_PRG_CHACHA8)
        return error_set(err, TACIT_ERR_UNSUPPORTED, "unknown prg_id %d", (int)id);
    memset(prg, 0, sizeof *prg);
    prg->id = id;
    if (tweak)
        memcpy(prg->tweak, tweak, 16);
    role_keys(prg);
    prg->backend = "portable";
    prg->encrypt = fss_aes_portable;
    prg->hash = fss_hash_portable;
#if defined(__x86_64__)
    cpu_features cpu = cpu_detect();
    if (cpu.aes && cpu.sse41) {
        prg->backend = "aesni";
        prg->encrypt = fss_aes_aesni;
        prg->hash = fss_hash_aesni;
    }
    if (cpu.vaes512) {
        prg->backend = "vaes512";
        prg->encrypt = fss_aes_vaes;
        prg->hash = fss_hash_vaes;
        prg->walk = fss_walk_vaes;
    }
#endif
    if (id == FSS_PRG_CHACHA8) {
        prg->hash = fss_hash_chacha8;
        prg->walk = NULL;
    }
    return TACIT_OK;
}

void fss_prf_init(fss_prf *prf, const fss_prg *prg, const uint8_t seed[16])
{
    fss_aes_expand(&prf->key, seed);
    prf->encrypt = prg->encrypt;
}

void fss_prf_blocks(const fss_prf *prf, uint64_t gate, uint32_t slot, uint64_t first,
                    fss_block *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (fss_block){(uint64_t)slot << 48 | (first + i), gate};
    prf->encrypt(&prf->key, out, out, n);
}

/* One-bit words: 128 to a block. */
static void prf_bits(const fss_prf *prf, uint64_t gate, uint32_t slot, uint64_t first,
                     uint64_t *out, size_t n)
{
    fss_block block = {0, 0};
    for (size_t i = 0; i < n; i++) {
        uint64_t at = first + i;
        if (i == 0 || at % 128 == 0)
            fss_prf_blocks(prf, gate, slot, at / 128, &block, 1);
        out[i] = (at & 64 ? block.hi : block.lo) >> (at & 63) & 1;
    }
}

void fss_prf_words(const fss_prf *prf, uint64_t gate, uint32_t slot, uint64_t first, unsigned bits,
                   uint64_t *out, size_t n)
{
    enum { CHUNK = 64 };
    fss_block block[CHUNK];
    if (bits == 1) {
        prf_bits(prf, gate, slot, first, out, n);
        return;
    }
    while (n) {
        uint64_t skip = first & 1;
        size_t m = n < 2 * CHUNK - skip ? n : 2 * CHUNK - skip;
        fss_prf_blocks(prf, gate, slot, first >> 1, block, (size_t)((m + skip + 1) / 2));
        const uint64_t *word = (const uint64_t *)block + skip;
        for (size_t i = 0; i < m; i++)
            out[i] = fss_low(word[i], bits);
        out += m;
        first += m;
        n -= m;
    }
}
