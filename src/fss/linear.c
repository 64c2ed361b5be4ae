/* SPDX-License-Identifier: Apache-2.0 */
#include "fss/linear.h"

enum { MATMUL_SLOT = 1, WEIGHT_SLOT = 2 };

/* One row of pseudo-random words; rows are apart by n rounded up to whole blocks. */
static void row_words(const fss_prf *seed, const fss_matmul *mm, size_t row, uint64_t *out)
{
    fss_prf_words(seed, mm->id, MATMUL_SLOT, row * ((mm->n + 1) & ~(size_t)1), mm->bits, out,
                  mm->n);
}

void fss_matmul_deal(const fss_dealer *dealer, const fss_gemm_set *set, const fss_matmul *mm,
                     const uint64_t *rx, const uint64_t *rw, uint64_t *rz, size_t begin, size_t end)
{
    enum { CHUNK = 256 };
    uint64_t words[CHUNK];
    for (size_t i = begin; i < end; i++) {
        uint64_t *row = rz + i * mm->n;
        row_words(&dealer->seed[0], mm, i, row);
        for (size_t j = 0; j < mm->n; j += CHUNK) {
            size_t n = mm->n - j < CHUNK ? mm->n - j : CHUNK;
            fss_prf_words(&dealer->seed[1], mm->id, MATMUL_SLOT, i * ((mm->n + 1) & ~(size_t)1) + j,
                          mm->bits, words, n);
            for (size_t k = 0; k < n; k++)
                row[j + k] += words[k];
        }
    }
    fss_gemm(set, mm->bits,
             &(fss_gemm_args){end - begin, mm->n, mm->k, rx + begin * mm->k, rw, rz + begin * mm->n,
                              mm->k, mm->n, mm->n, FSS_GEMM_SUB});
}

void fss_matmul_operand(const fss_party *party, const fss_matmul *mm, const uint64_t *w_masked,
                        const uint64_t *rw_share, uint64_t *operand)
{
    for (size_t i = 0; i < mm->k * mm->n; i++)
        operand[i] = fss_low(party->index * w_masked[i] - rw_share[i], mm->bits);
}

void fss_matmul_step(const fss_party *party, const fss_gemm_set *set, const fss_matmul *mm,
                     const uint64_t *x_masked, const uint64_t *rx_share, const uint64_t *w,
                     const uint64_t *operand, uint64_t *scratch, uint64_t *z, size_t begin,
                     size_t end)
{
    const uint64_t *x = x_masked + begin * mm->k, *rx = rx_share + begin * mm->k;
    fss_gemm_args g = {end - begin,       mm->n, mm->k, x,     w,
                       z + begin * mm->n, mm->k, mm->n, mm->n, FSS_GEMM_ADD};
    for (size_t i = begin; i < end; i++)
        row_words(&party->seed, mm, i, z + i * mm->n);
    if (mm->owner < 0) {
        g.b = operand;
        fss_gemm(set, mm->bits, &g);
        g.b = w;
    }
    if (mm->owner == (int)party->index) {
        for (size_t i = 0; i < (end - begin) * mm->k; i++)
            scratch[i] = x[i] - rx[i];
        g.a = scratch;
    } else {
        g.a = rx;
        g.mode = FSS_GEMM_SUB;
    }
    fss_gemm(set, mm->bits, &g);
}

void fss_weight_mask(const fss_prf *owner_seed, uint64_t id, unsigned bits, uint64_t first,
                     uint64_t *out, size_t n)
{
    fss_prf_words(owner_seed, id, WEIGHT_SLOT, first, bits, out, n);
}

void fss_im2col(const fss_window *w, const uint64_t *x, uint64_t *columns)
{
    for (size_t c = 0; c < w->channels; c++)
        for (size_t ky = 0; ky < w->kernel[0]; ky++)
            for (size_t kx = 0; kx < w->kernel[1]; kx++)
                for (size_t oy = 0; oy < w->out[0]; oy++)
                    for (size_t ox = 0; ox < w->out[1]; ox++) {
                        size_t y = oy * w->stride[0] + ky * w->dilation[0] - w->pad[0];
                        size_t v = ox * w->stride[1] + kx * w->dilation[1] - w->pad[1];
                        /* a negative coordinate is a huge one */
                        *columns++ = y < w->height && v < w->width
                                         ? x[(c * w->height + y) * w->width + v]
                                         : 0;
                    }
}
