/* SPDX-License-Identifier: Apache-2.0
 * Distributed comparison functions with a payload: additive shares of beta where x < alpha, of zero
 * elsewhere, without any opening; and interval containment on top of them.
 *
 * One key is larger and slower than the point function's comparison, so gates use that one wherever
 * a bit may be opened (see FSS_LESS, FSS_PIECES); this is for when it may not. Keys come in batches
 * of up to FSS_LANES; per level a row of blocks, a row of packed bits and the payload words. */
#ifndef FSS_DCF_H
#define FSS_DCF_H

#include "fss/dpf.h"
#include "fss/pack.h"

enum { FSS_DCF_WORDS = 8 };

typedef struct fss_dcf {
    const fss_prg *prg;
    unsigned bits;  /* domain, 1 to 64 */
    unsigned ring;  /* payload ring, 1 to 64 bits */
    unsigned words; /* payload words, 1 to FSS_DCF_WORDS */
    unsigned lanes; /* keys in this batch, 1 to FSS_LANES */
} fss_dcf;

/* Bytes of one batch, the same for both parties; roots come from fss_dpf_roots (BGI form). */
size_t fss_dcf_bytes(const fss_dcf *dcf);
/* beta[w * lanes + i]: payload word w of key i. Constant time in alpha and beta. */
void fss_dcf_gen(const fss_dcf *dcf, const fss_block *roots0, const fss_block *roots1,
                 const uint64_t *alpha, const uint64_t *beta, uint8_t *key);
/* out[w * lanes + i]: this party's additive share. */
void fss_dcf_eval(const fss_dcf *dcf, unsigned party, const fss_block *roots, const uint8_t *key,
                  const uint64_t *x, uint64_t *out);

/* Interval containment 1{p <= x <= q} of x = x^ - r from the key at alpha = r - 1 with beta = 1:
 * the parties' values and a dealer constant, shared as the dealer likes, add up to it. */
uint64_t fss_mic_point(unsigned bits, uint64_t r); /* alpha */
uint64_t fss_mic_constant(unsigned bits, uint64_t r, uint64_t p, uint64_t q);
void fss_mic_eval(const fss_dcf *dcf, unsigned party, const fss_block *roots, const uint8_t *key,
                  const uint64_t *masked, uint64_t p, uint64_t q, uint64_t *out);

#endif
