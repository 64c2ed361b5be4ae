/* SPDX-License-Identifier: Apache-2.0
 * Matrix products of masked wires. As with the elementwise products nothing is shipped for them:
 * the parties add their own pseudo-random words and the dealer works out the output mask.
 *
 *   Z = X W, X (m x k) and W (k x n), row-major, in a ring of `bits`.
 *
 * Three ways to hold W:
 *   public   both know W: X^ W is the public word, r_X W its mask. No call here, use fss_gemm.
 *   owned    one party knows W in the clear, the other W^ = W + r_W (r_W from the owner's seed):
 *            one product per party.
 *   shared   both know W^ and hold shares of r_W; also for products of two activations: two
 *            products per party.
 * A convolution is the same on fss_im2col of the public words and of the mask shares alike. */
#ifndef FSS_LINEAR_H
#define FSS_LINEAR_H

#include "fss/gate.h"
#include "fss/ring.h"

typedef struct fss_matmul {
    uint64_t id; /* from the same space as gate ids */
    unsigned bits;
    size_t m, n, k;
    int owner; /* the party that knows W, or -1 when W is masked for both */
} fss_matmul;

/* Dealer, rows [begin, end) of the mask of Z. `rx`: the mask of X when W is shared, and the share
 * of that mask which the party other than the owner holds when W is owned. */
void fss_matmul_deal(const fss_dealer *dealer, const fss_gemm_set *set, const fss_matmul *mm,
                     const uint64_t *rx, const uint64_t *rw, uint64_t *rz, size_t begin,
                     size_t end);

/* W as a party multiplies with it when it is shared: party * W^ - [r_W]; k x n words, made once. */
void fss_matmul_operand(const fss_party *party, const fss_matmul *mm, const uint64_t *w_masked,
                        const uint64_t *rw_share, uint64_t *operand);

/* Party, rows [begin, end) of its share of Z + r_Z.
 * shared: `w` = W^, `operand` from fss_matmul_operand. Owned: the owner gives W as `w`, the other
 * party W^; `operand` is not read. `scratch` holds (end - begin) * k words for the owner. */
void fss_matmul_step(const fss_party *party, const fss_gemm_set *set, const fss_matmul *mm,
                     const uint64_t *x_masked, const uint64_t *rx_share, const uint64_t *w,
                     const uint64_t *operand, uint64_t *scratch, uint64_t *z, size_t begin,
                     size_t end);

/* Mask of a weight that only its owner knows, from the owner's seed: r_W of element i. */
void fss_weight_mask(const fss_prf *owner_seed, uint64_t id, unsigned bits, uint64_t first,
                     uint64_t *out, size_t n);

/* A two-dimensional window over `channels` planes; padding reads as zero, whose mask is zero. */
typedef struct fss_window {
    size_t channels, height, width;                   /* of one image of one group */
    size_t kernel[2], stride[2], dilation[2], pad[2]; /* pad: before; what is after follows */
    size_t out[2];
} fss_window;
/* x: channels x height x width words; columns: (channels * kernel) x (out) words. */
void fss_im2col(const fss_window *w, const uint64_t *x, uint64_t *columns);

#endif
