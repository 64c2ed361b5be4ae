/* SPDX-License-Identifier: Apache-2.0
 * No branch and no address may depend on a secret. Secrets are declared undefined to valgrind's
 * memcheck, which then reports every jump or index computed from them; this program runs itself
 * under valgrind for each backend that valgrind can execute (it has no AVX-512). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "fss/catalogue.h"
#include "fss/dcf.h"
#include "fss/linear.h"
#include "fss/suite.h"

#if defined(__has_include) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#if __has_include(<valgrind/memcheck.h>)
#include <valgrind/memcheck.h>
#define HAVE_MEMCHECK 1
#endif
#endif

#ifdef HAVE_MEMCHECK
enum { COUNT = 40 }; /* a full batch of lanes and a short one */

static void secret(void *p, size_t n)
{
    VALGRIND_MAKE_MEM_UNDEFINED(p, n);
}
static void public(void *p, size_t n)
{
    VALGRIND_MAKE_MEM_DEFINED(p, n);
}

static uint64_t *words_new(size_t n)
{
    uint64_t *p = calloc(n + 1, 8);
    if (!p)
        exit(3);
    return p;
}

static void visit_gate(const fss_suite *suite, fss_gate g)
{
    uint8_t seed[2][16] = {{1}, {2}};
    fss_dealer dealer;
    fss_info info;
    g.id = 7;
    g.count = COUNT;
    secret(seed, sizeof seed);
    fss_dealer_init(&dealer, suite, seed[0], seed[1]);
    if (fss_gate_info(suite, &g, &info, NULL) != TACIT_OK)
        exit(4);
    fss_mask in[4] = {{0}};
    uint64_t *r[4], *x[4], *share[4], *out[2], *opened[2];
    for (unsigned k = 0; k < 4; k++) {
        unsigned bits = k < info.inputs ? info.in_bits[k] : 1;
        r[k] = words_new(COUNT);
        x[k] = words_new(COUNT);
        share[k] = words_new(COUNT);
        for (size_t i = 0; i < COUNT; i++) {
            x[k][i] = fss_low((i + 1) * 0x12345679abcdefu, bits);
            r[k][i] = fss_low((i + 3) * 0x77777123456789u, bits);
        }
        secret(r[k], COUNT * 8);
        secret(share[k], COUNT * 8);
        in[k] = (fss_mask){r[k], COUNT};
    }
    uint8_t *key[2];
    for (unsigned v = 0; v < 2; v++) {
        key[v] = calloc(1, info.key_bytes[v] + 1);
        unsigned rows =
            info.out[v].rows > info.inner[v].rows ? info.out[v].rows : info.inner[v].rows;
        rows = info.digits.rows > rows ? info.digits.rows : rows;
        out[v] = words_new(COUNT * (rows ? rows : 1));
        opened[v] = words_new(COUNT * (rows ? rows : 1));
    }
    if (fss_gate_deal(&dealer, &g, &info, in, g.kind == FSS_SHARE ? NULL : out, key, 0, COUNT,
                      NULL) != TACIT_OK)
        exit(5);
    for (unsigned b = 0; b < 2; b++) {
        fss_party party;
        secret(seed, sizeof seed);
        fss_party_init(&party, suite, b, seed[b]);
        party.index = b;
        secret(key[b], info.key_bytes[b]);
        fss_io io = {.key = key[b]};
        for (unsigned k = 0; k < 4; k++) {
            io.in[k] = x[k];
            io.mask_share[k] = share[k];
        }
        for (unsigned v = 0; v < 2; v++) {
            io.out[v] = out[v];
            io.opened[v] = opened[v]; /* all zero, and public */
        }
        for (unsigned step = 0; step < info.steps; step++)
            fss_gate_step(&party, &g, &info, step, &io, 0, COUNT);
        for (unsigned v = 0; v < info.out_vectors; v++) { /* packing what goes out */
            uint8_t *bytes = malloc(fss_pack_bytes(info.out[v].bits, COUNT) + 1);
            fss_pack(bytes, info.out[v].bits, out[v], COUNT);
            free(bytes);
        }
    }
    for (unsigned k = 0; k < 4; k++) {
        free(r[k]);
        free(x[k]);
        free(share[k]);
    }
    for (unsigned v = 0; v < 2; v++) {
        free(key[v]);
        free(out[v]);
        free(opened[v]);
    }
}

static void visit_dcf(const fss_prg *prg)
{
    fss_dcf d = {prg, 20, 30, 3, 9};
    fss_block root[2][FSS_LANES] = {{{0}}};
    uint64_t alpha[FSS_LANES] = {5}, beta[3 * 9] = {0}, x[FSS_LANES] = {0}, out[3 * 9];
    uint8_t *key = malloc(fss_dcf_bytes(&d));
    secret(root, sizeof root);
    secret(alpha, sizeof alpha);
    secret(beta, sizeof beta);
    for (unsigned b = 0; b < 2; b++)
        fss_dpf_roots(FSS_TREE_BGI, b, root[b], 9);
    fss_dcf_gen(&d, root[0], root[1], alpha, beta, key);
    for (unsigned b = 0; b < 2; b++) {
        fss_dcf_eval(&d, b, root[b], key, x, out);
        fss_mic_eval(&d, b, root[b], key, x, 3, 9, out);
    }
    out[0] = fss_mic_constant(20, alpha[0], 3, 9);
    free(key);
}

static void visit_products(void)
{
    uint64_t a[9 * 20], b[20 * 31], c[9 * 31];
    secret(a, sizeof a);
    secret(b, sizeof b);
    fss_gemm_set set = fss_gemm_detect();
    fss_gemm(&set, 40, &(fss_gemm_args){9, 31, 20, a, b, c, 20, 31, 31, FSS_GEMM_SET});
    fss_gemm_portable(&(fss_gemm_args){9, 31, 20, a, b, c, 20, 31, 31, FSS_GEMM_SUB});
}

/* Under valgrind: everything once; the exit status is the number of reports. */
static int visit_all(const char *what)
{
    if (strcmp(what, "control") == 0) { /* memcheck must see this one */
        volatile int sink = 0;
        uint64_t key = 1;
        secret(&key, sizeof key);
        if (key & 1)
            sink = 1;
        return VALGRIND_COUNT_ERRORS != 0 && sink <= 1 ? 0 : 1;
    }
    catalogue_init();
    for (int id = FSS_PRG_AES; id <= FSS_PRG_CHACHA8; id++)
        for (int tree = FSS_TREE_HALF; tree <= FSS_TREE_BGI; tree++) {
            fss_suite suite;
            if (fss_suite_init(&suite, (fss_prg_id)id, (fss_tree)tree, NULL, NULL) != TACIT_OK)
                return 2;
            for (size_t i = 0; i < CATALOGUE; i++)
                visit_gate(&suite, catalogue[i]);
            visit_dcf(&suite.prg);
        }
    visit_products();
    public(catalogue_table, sizeof catalogue_table);
    return VALGRIND_COUNT_ERRORS != 0;
}

static void run_under_valgrind(const char *what, const char *isa)
{
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(n > 0);
    self[n] = '\0';
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setenv("TACIT_ISA", isa, 1);
        execlp("valgrind", "valgrind", "-q", "--track-origins=no", self, what, (char *)NULL);
        _exit(127);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 127) {
        fprintf(stderr, "SKIPPED: constant time NOT checked, valgrind is not installed\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}
#endif

static void check(const char *what, const char *isa)
{
#ifdef HAVE_MEMCHECK
    run_under_valgrind(what, isa);
#else
    (void)what;
    (void)isa;
    fprintf(stderr, "SKIPPED: constant time NOT checked, built without valgrind's headers or with "
                    "a sanitizer\n");
    skip();
#endif
}

static void a_secret_branch_is_noticed(void **state)
{
    (void)state;
    check("control", "portable");
}
static void portable_code_is_constant_time(void **state)
{
    (void)state;
    check("all", "portable");
}
static void aesni_code_is_constant_time(void **state)
{
    (void)state;
    check("all", "avx2");
}

int main(int argc, char **argv)
{
#ifdef HAVE_MEMCHECK
    if (argc > 1 && RUNNING_ON_VALGRIND)
        return visit_all(argv[1]);
#else
    (void)argv;
    if (argc > 1)
        return 2;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_secret_branch_is_noticed),
        cmocka_unit_test(portable_code_is_constant_time),
        cmocka_unit_test(aesni_code_is_constant_time),
    };
    return cmocka_run_group_tests_name("fss.constant_time", tests, NULL, NULL);
}
