/* SPDX-License-Identifier: Apache-2.0
 * Ring matrix products against three plain loops, and the masked ones against cleartext. */
#include "fss/linear.h"
#include "fss/world.h"

static void reference(const fss_gemm_args *g, uint64_t *c)
{
    for (size_t i = 0; i < g->m; i++)
        for (size_t j = 0; j < g->n; j++) {
            uint64_t sum = 0;
            for (size_t k = 0; k < g->k; k++)
                sum += g->a[i * g->lda + k] * g->b[k * g->ldb + j];
            uint64_t *at = &c[i * g->ldc + j];
            *at = g->mode == FSS_GEMM_SET ? sum : g->mode == FSS_GEMM_ADD ? *at + sum : *at - sum;
        }
}

static void every_kernel_matches_plain_loops(void **state)
{
    (void)state;
    rng r = rng_seed(1);
    size_t shape[][3] = {{1, 1, 1},    {8, 24, 128}, {7, 25, 129}, {3, 5, 0}, {17, 70, 300},
                         {9, 23, 127}, {64, 8, 33},  {2, 48, 257}, {5, 31, 1}};
    for (size_t s = 0; s < sizeof shape / sizeof *shape; s++)
        for (int mode = FSS_GEMM_SET; mode <= FSS_GEMM_SUB; mode++)
            for (unsigned bits = 20; bits <= 64; bits += bits == 52 ? 12 : 8)
                for (int plain = 0; plain < 2; plain++) {
                    size_t m = shape[s][0], n = shape[s][1], k = shape[s][2];
                    size_t lda = k + 3, ldb = n + 1, ldc = n + 2;
                    uint64_t *a = words_new(m * lda), *b = words_new(k * ldb + n);
                    uint64_t *c = words_new(m * ldc), *want = words_new(m * ldc);
                    for (size_t i = 0; i < m * lda; i++)
                        a[i] = fss_low(rng_u64(&r), bits);
                    for (size_t i = 0; i < k * ldb; i++)
                        b[i] = fss_low(rng_u64(&r), bits);
                    for (size_t i = 0; i < m * ldc; i++)
                        c[i] = want[i] = fss_low(rng_u64(&r), bits);
                    fss_gemm_args g = {m, n, k, a, b, c, lda, ldb, ldc, (fss_gemm_mode)mode};
                    fss_gemm_set set = fss_gemm_detect();
                    if (plain)
                        set.narrow = set.wide = fss_gemm_portable;
                    fss_gemm(&set, bits, &g);
                    reference(&g, want);
                    for (size_t i = 0; i < m; i++)
                        for (size_t j = 0; j < ldc; j++)
                            assert_true(c[i * ldc + j] == fss_low(want[i * ldc + j], bits));
                    free(a);
                    free(b);
                    free(c);
                    free(want);
                }
}

static uint64_t *uniform(world *w, size_t n, unsigned bits)
{
    uint64_t *x = words_new(n);
    for (size_t i = 0; i < n; i++)
        x[i] = fss_low(rng_u64(&w->r), bits);
    return x;
}

static void deal_share(world *w, const uint64_t *r, size_t n, unsigned bits, uint64_t *share[2])
{
    fss_gate s = {.kind = FSS_SHARE,
                  .id = w->next_id++,
                  .count = n,
                  .in_bits = (uint8_t)bits,
                  .heavy = (uint8_t)(n & 1)};
    fss_info info;
    assert_int_equal(fss_gate_info(&w->suite, &s, &info, NULL), TACIT_OK);
    uint8_t *key[2] = {malloc(info.key_bytes[0] + 1), malloc(info.key_bytes[1] + 1)};
    share[0] = words_new(n);
    share[1] = words_new(n);
    fss_mask mask = {r, n};
    assert_int_equal(fss_gate_deal(&w->dealer, &s, &info, &mask, share, key, 0, n, NULL), TACIT_OK);
    for (unsigned b = 0; b < 2; b++) { /* what the dealer says is what the party gets */
        uint64_t *mine = words_new(n);
        fss_io io = {.key = key[b], .out = {mine}};
        fss_gate_step(&w->party[b], &s, &info, 0, &io, 0, n);
        assert_memory_equal(mine, share[b], n * 8);
        free(mine);
        free(key[b]);
    }
}

static void masked_product(world *w, const fss_gemm_set *set, fss_matmul mm)
{
    size_t mk = mm.m * mm.k, kn = mm.k * mm.n, mn = mm.m * mm.n;
    uint64_t *x = uniform(w, mk, mm.bits), *rx = uniform(w, mk, mm.bits), *xh = words_new(mk);
    uint64_t *wt = uniform(w, kn, mm.bits), *rw = uniform(w, kn, mm.bits), *wh = words_new(kn);
    uint64_t *rz = words_new(mn), *want = words_new(mn), *z[2], *sx[2], *sw[2], *op = words_new(kn);
    if (mm.owner >= 0)
        fss_weight_mask(&w->party[mm.owner].seed, 99, mm.bits, 0, rw, kn);
    for (size_t i = 0; i < mk; i++)
        xh[i] = fss_low(x[i] + rx[i], mm.bits);
    for (size_t i = 0; i < kn; i++)
        wh[i] = fss_low(wt[i] + rw[i], mm.bits);
    deal_share(w, rx, mk, mm.bits, sx);
    deal_share(w, rw, kn, mm.bits, sw);
    mm.id = w->next_id++;
    size_t cut = mm.m / 2;
    const uint64_t *dealt = mm.owner < 0 ? rx : sx[1 - mm.owner];
    fss_matmul_deal(&w->dealer, set, &mm, dealt, rw, rz, 0, cut);
    fss_matmul_deal(&w->dealer, set, &mm, dealt, rw, rz, cut, mm.m);
    for (unsigned b = 0; b < 2; b++) {
        uint64_t *scratch = words_new(mk);
        z[b] = words_new(mn);
        fss_matmul_operand(&w->party[b], &mm, wh, sw[b], op);
        const uint64_t *seen = mm.owner == (int)b ? wt : wh;
        fss_matmul_step(&w->party[b], set, &mm, xh, sx[b], seen, op, scratch, z[b], 0, cut);
        fss_matmul_step(&w->party[b], set, &mm, xh, sx[b], seen, op, scratch, z[b], cut, mm.m);
        free(scratch);
    }
    fss_gemm_args g = {mm.m, mm.n, mm.k, x, wt, want, mm.k, mm.n, mm.n, FSS_GEMM_SET};
    reference(&g, want);
    for (size_t i = 0; i < mn; i++)
        assert_true(fss_low(z[0][i] + z[1][i] - rz[i], mm.bits) == fss_low(want[i], mm.bits));
    uint64_t *all[] = {x, rx, xh, wt, rw, wh, rz, want, z[0], z[1], sx[0], sx[1], sw[0], sw[1], op};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
        free(all[k]);
}

static void masked_products_in_every_mode(void **state)
{
    (void)state;
    world w;
    world_init(&w, FSS_PRG_AES, FSS_TREE_HALF, 2);
    fss_gemm_set set = fss_gemm_detect();
    for (unsigned bits = 1; bits <= 64; bits += 9)
        for (int owner = -1; owner < 2; owner++) {
            masked_product(&w, &set, (fss_matmul){0, bits, 13, 21, 34, owner});
            masked_product(&w, &set, (fss_matmul){0, bits, 2, 300, 5, owner});
        }
}

/* Convolution as a product of columns, against the definition. */
static void columns_make_a_convolution(void **state)
{
    (void)state;
    rng r = rng_seed(3);
    for (int t = 0; t < 30; t++) {
        fss_window w = {.channels = 1 + rng_below(&r, 3),
                        .height = 3 + rng_below(&r, 6),
                        .width = 3 + rng_below(&r, 6)};
        for (int d = 0; d < 2; d++) {
            w.kernel[d] = 1 + rng_below(&r, 3);
            w.stride[d] = 1 + rng_below(&r, 2);
            w.dilation[d] = 1 + rng_below(&r, 2);
            w.pad[d] = rng_below(&r, 3);
            size_t size = d ? w.width : w.height, span = (w.kernel[d] - 1) * w.dilation[d] + 1;
            if (size + 2 * w.pad[d] < span)
                w.pad[d] = span;
            w.out[d] = (size + 2 * w.pad[d] - span) / w.stride[d] + 1;
        }
        size_t k = w.channels * w.kernel[0] * w.kernel[1], n = w.out[0] * w.out[1];
        uint64_t x[3 * 9 * 9], f[27], *columns = words_new(k * n), *y = words_new(n);
        for (size_t i = 0; i < w.channels * w.height * w.width; i++)
            x[i] = rng_u64(&r);
        for (size_t i = 0; i < k; i++)
            f[i] = rng_u64(&r);
        fss_im2col(&w, x, columns);
        fss_gemm_portable(&(fss_gemm_args){1, n, k, f, columns, y, k, n, n, FSS_GEMM_SET});
        for (size_t oy = 0; oy < w.out[0]; oy++)
            for (size_t ox = 0; ox < w.out[1]; ox++) {
                uint64_t sum = 0;
                for (size_t q = 0; q < k; q++) {
                    size_t kx = q % w.kernel[1], ky = q / w.kernel[1] % w.kernel[0];
                    size_t c = q / w.kernel[1] / w.kernel[0];
                    long iy = (long)(oy * w.stride[0] + ky * w.dilation[0]) - (long)w.pad[0];
                    long ix = (long)(ox * w.stride[1] + kx * w.dilation[1]) - (long)w.pad[1];
                    if (iy >= 0 && ix >= 0 && iy < (long)w.height && ix < (long)w.width)
                        sum += f[q] * x[(c * w.height + (size_t)iy) * w.width + (size_t)ix];
                }
                assert_true(y[oy * w.out[1] + ox] == sum);
            }
        free(columns);
        free(y);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kernel_matches_plain_loops),
        cmocka_unit_test(masked_products_in_every_mode),
        cmocka_unit_test(columns_make_a_convolution),
    };
    return cmocka_run_group_tests_name("fss.ring", tests, NULL, NULL);
}
