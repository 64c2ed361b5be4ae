/* SPDX-License-Identifier: Apache-2.0
 * The pseudo-random functions everything here stands on: a hash of 128-bit tree nodes under public
 * fixed keys, and a keyed function that stretches a party's secret seed.
 *
 * The node hash is H_k(x) = AES_k(s(x)) ^ s(x) with s(hi, lo) = (hi ^ lo, hi), which stays safe
 * when nodes are correlated (the half-tree needs that), or ChaCha8 of the node. Which one is in use
 * is `prg_id`, written in every key file; how it is computed (portable, AES-NI, VAES-512) is chosen
 * at run time and never changes a result. No variant branches or indexes on data. */
#ifndef FSS_PRG_H
#define FSS_PRG_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct fss_block {
    uint64_t lo, hi;
} __attribute__((aligned(16))) fss_block;

typedef enum fss_prg_id { FSS_PRG_AES = 1, FSS_PRG_CHACHA8 = 2 } fss_prg_id;

/* A node is hashed for different purposes under different keys. */
enum { FSS_ROLE_TREE, FSS_ROLE_RIGHT, FSS_ROLE_LEAF, FSS_ROLE_VALUE, FSS_ROLES };

typedef struct fss_aes_key {
    fss_block round[11];
} fss_aes_key;

typedef struct fss_prg fss_prg;

/* One comparison walk of up to FSS_LANES half-tree keys, see dpf.h; NULL where there is no
 * specialised kernel. `words` holds `levels` rows and a leaf row of exactly FSS_LANES blocks. */
typedef void (*fss_walk_fn)(const fss_prg *prg, unsigned bits, const fss_block *roots,
                            const uint8_t *words, const uint64_t *x, uint64_t *less);

struct fss_prg {
    fss_prg_id id;
    const char *backend; /* "portable", "aesni", "vaes512" */
    fss_aes_key role[FSS_ROLES];
    uint8_t tweak[16];
    void (*hash)(const fss_prg *prg, unsigned role, const fss_block *in, fss_block *out, size_t n);
    void (*encrypt)(const fss_aes_key *key, const fss_block *in, fss_block *out, size_t n);
    fss_walk_fn walk;
};

/* `tweak` is public and should be fresh per session: it makes precomputation against one session
 * useless for another. NULL means all zero. Unknown ids are refused. */
tacit_status fss_prg_init(fss_prg *prg, fss_prg_id id, const uint8_t tweak[16], tacit_error *err);

/* Keyed function of one secret seed: block i of (gate, slot) is AES_seed(gate, slot, i). */
typedef struct fss_prf {
    fss_aes_key key;
    void (*encrypt)(const fss_aes_key *key, const fss_block *in, fss_block *out, size_t n);
} fss_prf;

void fss_prf_init(fss_prf *prf, const fss_prg *prg, const uint8_t seed[16]);
void fss_prf_blocks(const fss_prf *prf, uint64_t gate, uint32_t slot, uint64_t first,
                    fss_block *out, size_t n);
/* Element i of the stream of `bits`-wide words, for i in [first, first + n). */
void fss_prf_words(const fss_prf *prf, uint64_t gate, uint32_t slot, uint64_t first, unsigned bits,
                   uint64_t *out, size_t n);

/* Building blocks of the variants, exposed for their tests. */
void fss_aes_expand(fss_aes_key *key, const uint8_t bytes[16]);
void fss_aes_portable(const fss_aes_key *key, const fss_block *in, fss_block *out, size_t n);
void fss_hash_portable(const fss_prg *prg, unsigned role, const fss_block *in, fss_block *out,
                       size_t n);
void fss_hash_chacha8(const fss_prg *prg, unsigned role, const fss_block *in, fss_block *out,
                      size_t n);
void fss_chacha8_block(uint32_t out[16], const uint32_t in[16]);
#if defined(__x86_64__)
void fss_aes_aesni(const fss_aes_key *key, const fss_block *in, fss_block *out, size_t n);
void fss_hash_aesni(const fss_prg *prg, unsigned role, const fss_block *in, fss_block *out,
                    size_t n);
void fss_aes_vaes(const fss_aes_key *key, const fss_block *in, fss_block *out, size_t n);
void fss_hash_vaes(const fss_prg *prg, unsigned role, const fss_block *in, fss_block *out,
                   size_t n);
void fss_walk_vaes(const fss_prg *prg, unsigned bits, const fss_block *roots, const uint8_t *words,
                   const uint64_t *x, uint64_t *less);
#endif

static inline fss_block fss_block_xor(fss_block a, fss_block b)
{
    return (fss_block){a.lo ^ b.lo, a.hi ^ b.hi};
}
/* `a` where mask is all ones, zero where it is zero. */
static inline fss_block fss_block_and(fss_block a, uint64_t mask)
{
    return (fss_block){a.lo & mask, a.hi & mask};
}
static inline fss_block fss_sigma(fss_block x)
{
    return (fss_block){x.hi, x.hi ^ x.lo};
}
/* 0 or all ones from a bit. */
static inline uint64_t fss_mask_of(uint64_t bit)
{
    return (uint64_t)0 - (bit & 1);
}
/* The low `bits` bits, bits in [0, 64]. */
static inline uint64_t fss_low(uint64_t value, unsigned bits)
{
    return bits >= 64 ? value : value & (((uint64_t)1 << bits) - 1);
}

#endif
