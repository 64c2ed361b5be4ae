/* SPDX-License-Identifier: Apache-2.0
 * Every gate on a device, bit for bit against src/fss: keys of the dealer, and each party's shares
 * after each step. Runs on the host's twin of the device everywhere, and on a GPU where there is
 * one. */
#include "fss/catalogue.h"
#include "fss/world.h"
#include "secure/device.h"
#include "support/host_device.h"

typedef struct bed {
    cuda_device d;
    world w;
    void *run;
} bed;

static void *upload(bed *b, const void *data, size_t size)
{
    void *to = NULL;
    tacit_error err = {0};
    if (b->d.ops->alloc(b->d.self, size + 64, &to, &err) != TACIT_OK ||
        (size && b->d.ops->copy(b->d.self, CUDA_TO_DEVICE, to, data, size, &err) != TACIT_OK) ||
        b->d.ops->wait(b->d.self, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    return to;
}
static void download(bed *b, void *to, const void *from, size_t size)
{
    tacit_error err = {0};
    if (b->d.ops->copy(b->d.self, CUDA_TO_HOST, to, from, size, &err) != TACIT_OK ||
        b->d.ops->wait(b->d.self, &err) != TACIT_OK)
        fail_msg("%s", err.message);
}
static void drop(bed *b, const void *p)
{
    b->d.ops->release(b->d.self, (void *)p);
}

/* Public tables of a gate, moved to the device. */
static void place_tables(bed *b, const fss_gate *g, cuda_gate *to)
{
    size_t rows = g->rows ? g->rows : 1, pieces = rows * (g->thresholds + 1u) * 8;
    if (g->kind == FSS_SPLINE || g->kind == FSS_CURVE)
        rows = g->degree + 1u;
    if (g->kind == FSS_CURVE)
        pieces = 16;
    if (g->threshold)
        to->threshold = upload(b, g->threshold, g->thresholds * 8u);
    if (g->slope)
        to->slope = upload(b, g->slope, pieces);
    if (g->base)
        to->base = upload(b, g->base, pieces);
    if (g->table)
        to->table = upload(b, g->table, (rows << g->index_bits) * 8);
    if (g->table2)
        to->table2 = upload(b, g->table2, ((size_t)1 << g->index2_bits) * 8);
    if (g->table && g->index_bits > 7) {
        uint32_t *image = malloc((rows << g->index_bits) * 8);
        cuda_fragments(g->table, (unsigned)rows, g->index_bits, image);
        to->fragments = upload(b, image, (rows << g->index_bits) * 8);
        free(image);
    }
    if (g->table2 && g->index2_bits > 7) {
        uint32_t *image = malloc((size_t)8 << g->index2_bits);
        cuda_fragments(g->table2, 1, g->index2_bits, image);
        to->fragments2 = upload(b, image, (size_t)8 << g->index2_bits);
        free(image);
    }
}
static void drop_tables(bed *b, cuda_gate *g)
{
    const void *all[] = {g->threshold, g->slope,     g->base,      g->table,
                         g->table2,    g->fragments, g->fragments2};
    for (int i = 0; i < 7; i++)
        drop(b, all[i]);
}

/* Between the layout of key files and that of the device. */
static void move_key(const fss_info *info, const cuda_gate *g, unsigned party, uint8_t *file,
                     uint8_t *device, bool to_device)
{
    for (unsigned i = 0; i < info->items; i++) {
        size_t at = info->item[i].at[party];
        size_t end = i + 1u < info->items ? info->item[i + 1].at[party] : info->key_bytes[party];
        uint8_t *there = device + (party ? g->item[i].at_1 : g->item[i].at);
        if (to_device)
            memcpy(there, file + at, end - at);
        else
            memcpy(file + at, there, end - at);
    }
}

static void set_keys(bed *b, const fss_prf *seed0, const fss_prf *seed1)
{
    uint32_t words[CUDA_KEY_WORDS];
    sec_device_keys(&b->w.suite, seed0, seed1, words);
    assert_int_equal(b->d.ops->keys(b->d.self, words, NULL), TACIT_OK);
}

static void check_deal(bed *b, const fss_gate *g, const trace *t, const uint64_t *const *r)
{
    tacit_error err = {0};
    cuda_gate dg;
    sec_device_gate(&b->w.suite, g, &t->info, 0, &dg);
    place_tables(b, g, &dg);
    set_keys(b, &b->w.dealer.seed[0], &b->w.dealer.seed[1]);
    cuda_io io = {.run = b->run};
    uint64_t size[2];
    for (unsigned k = 0; k < t->info.inputs; k++)
        io.in[k] = upload(b, r[k], g->count * 8);
    for (unsigned p = 0; p < 2; p++) {
        size[p] = sec_device_key_bytes(&b->w.suite, g, &t->info, p) + 16;
        assert_int_equal(b->d.ops->alloc(b->d.self, size[p], (void **)&io.deal[p], &err), TACIT_OK);
        size_t n = g->kind == FSS_SHARE ? g->count : g->count * t->info.out[p].rows;
        assert_int_equal(b->d.ops->alloc(b->d.self, n * 8 + 8, (void **)&io.out[p], &err),
                         TACIT_OK);
    }
    if (b->d.ops->deal(b->d.self, &dg, &io, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    for (unsigned p = 0; p < 2; p++) {
        uint8_t *key = calloc(1, size[p]), *file = calloc(1, t->info.key_bytes[p] + 1);
        download(b, key, io.deal[p], size[p]);
        move_key(&t->info, &dg, p, file, key, false);
        if (memcmp(file, t->key[p], t->info.key_bytes[p]) != 0)
            fail_msg("%s count %zu: key of party %u differs", fss_kind_name(g->kind), g->count, p);
        free(key);
        free(file);
        size_t n = g->count * t->info.out[p].rows;
        uint64_t *out = words_new(n);
        if (g->kind != FSS_SHARE && n) {
            download(b, out, io.out[p], n * 8);
            assert_memory_equal(out, t->out_mask[p], n * 8);
        }
        free(out);
        drop(b, io.deal[p]);
        drop(b, io.out[p]);
    }
    for (unsigned k = 0; k < t->info.inputs; k++)
        drop(b, io.in[k]);
    drop_tables(b, &dg);
}

static void check_party(bed *b, const fss_gate *g, trace *t, unsigned party,
                        const uint64_t *const *masked, uint64_t *const *share)
{
    tacit_error err = {0};
    cuda_gate dg;
    sec_device_gate(&b->w.suite, g, &t->info, party, &dg);
    place_tables(b, g, &dg);
    set_keys(b, &b->w.party[party].seed, NULL);
    uint64_t size = sec_device_key_bytes(&b->w.suite, g, &t->info, party) + 16;
    uint8_t *key = calloc(1, size);
    move_key(&t->info, &dg, party, t->key[party], key, true);
    cuda_io io = {.run = b->run, .key = upload(b, key, size)};
    for (unsigned k = 0; k < t->info.inputs; k++) {
        io.in[k] = upload(b, masked[k], g->count * 8);
        if (share[k])
            io.share[k] = upload(b, share[k], g->count * 8);
    }
    assert_int_equal(
        b->d.ops->alloc(b->d.self, cuda_scratch_bytes(&dg) + 16, (void **)&io.scratch, &err),
        TACIT_OK);
    for (unsigned step = 0; step < t->info.steps; step++) {
        fss_vector v[2];
        unsigned n = fss_step_vectors(&t->info, step, v);
        bool last = step + 1u == t->info.steps, digits = t->info.digits.rows && step == 0;
        const uint64_t *opened = t->info.digits.rows && step == 1 ? t->digits : t->opened[0];
        fss_vector before[2] = {{0}};
        if (step)
            fss_step_vectors(&t->info, step - 1, before);
        io.opened[0] = upload(b, opened, before[0].rows * g->count * 8);
        io.opened[1] = upload(b, t->opened[1], before[1].rows * g->count * 8);
        for (unsigned k = 0; k < n; k++)
            assert_int_equal(
                b->d.ops->alloc(b->d.self, v[k].rows * g->count * 8 + 8, (void **)&io.out[k], &err),
                TACIT_OK);
        if (b->d.ops->step(b->d.self, &dg, &io, step, &err) != TACIT_OK)
            fail_msg("%s", err.message);
        for (unsigned k = 0; k < n; k++) {
            const uint64_t *want = digits ? t->digit_share[party]
                                   : last ? t->out_share[party][k]
                                          : t->inner_share[party][k];
            size_t count = v[k].rows * g->count;
            uint64_t *got = words_new(count);
            download(b, got, io.out[k], count * 8);
            for (size_t i = 0; i < count; i++)
                if (got[i] != want[i])
                    fail_msg("%s in %u eff %u shift %u index %u direct %d digits %d step %u "
                             "party %u: word %zu is %llx, not %llx",
                             fss_kind_name(g->kind), g->in_bits, g->eff_bits, g->shift,
                             g->index_bits, g->direct, g->digits, step, party, i,
                             (unsigned long long)got[i], (unsigned long long)want[i]);
            free(got);
            drop(b, io.out[k]);
        }
        drop(b, io.opened[0]);
        drop(b, io.opened[1]);
    }
    for (unsigned k = 0; k < t->info.inputs; k++) {
        drop(b, io.in[k]);
        drop(b, io.share[k]);
    }
    drop(b, io.key);
    drop(b, io.scratch);
    drop_tables(b, &dg);
    free(key);
}

static void check_gate(bed *b, fss_gate g)
{
    world *w = &b->w;
    trace t;
    fss_info info;
    uint64_t *x[4] = {0}, *r[4] = {0}, *masked[4] = {0}, *share[2][4] = {{0}};
    assert_int_equal(fss_gate_info(&w->suite, &g, &info, NULL), TACIT_OK);
    for (unsigned k = 0; k < info.inputs; k++) {
        unsigned fit = info.in_bits[k];
        if (g.kind == FSS_GAP)
            fit -= 1;
        x[k] = world_values(w, g.count, info.in_bits[k], fit);
        r[k] = world_masks(w, g.count, info.in_bits[k]);
        masked[k] = words_new(g.count);
        for (size_t i = 0; i < g.count; i++) {
            if (g.kind == FSS_CURVE && k == 3) /* left of the spline is not right of it */
                x[k][i] |= x[2][i];
            if (g.kind == FSS_MAX && k < 2) /* their difference must fit */
                x[k][i] = fss_low((uint64_t)fss_signed(x[k][i], g.eff_bits ? g.eff_bits - 1u : 8),
                                  info.in_bits[k]);
            masked[k][i] = fss_low(x[k][i] + r[k][i], info.in_bits[k]);
        }
    }
    if (g.kind == FSS_SHARE) { /* no simulator: its output is the mask */
        memset(&t, 0, sizeof t);
        g.id = w->next_id++;
        t.info = info;
        world_alloc(&g, &t);
        fss_mask in = {r[0], g.count};
        world_deal(w, &g, &t, &in);
        world_step(w, &g, &t, 0, (const uint64_t *const *)masked, share);
    } else {
        world_run(w, &g, (const uint64_t *const *)x, (const uint64_t *const *)r, &t);
        world_share(
            w, &g, &t,
            (fss_mask[]){{r[0], g.count}, {r[1], g.count}, {r[2], g.count}, {r[3], g.count}},
            share);
        if (info.needs_share[0]) /* the shares that world_run made are gone: step again with these
                                  */
            world_step(w, &g, &t, 0, (const uint64_t *const *)masked, share);
    }
    check_deal(b, &g, &t, (const uint64_t *const *)r);
    for (unsigned p = 0; p < 2; p++)
        check_party(b, &g, &t, p, (const uint64_t *const *)masked, share[p]);
    trace_free(&t);
    for (unsigned k = 0; k < 4; k++) {
        free(x[k]);
        free(r[k]);
        free(masked[k]);
        free(share[0][k]);
        free(share[1][k]);
    }
}

/* For tools that make every access slow: each gate once with either generator. */
static bool quick(void)
{
    return getenv("TACIT_TEST_QUICK") != NULL;
}

static void all_gates(cuda_device d)
{
    static const size_t counts[] = {33, 1, 300};
    uint64_t zero[2] = {0, 0};
    for (int variant = 0; variant < 4; variant += quick() ? 3 : 1) {
        bed b = {.d = d};
        world_init(&b.w, variant & 1 ? FSS_PRG_CHACHA8 : FSS_PRG_AES,
                   variant & 2 ? FSS_TREE_BGI : FSS_TREE_HALF, 11 + (uint64_t)variant);
        b.run = upload(&b, zero, sizeof zero);
        for (size_t i = 0; i < CATALOGUE; i++)
            for (size_t k = 0; k < (quick() ? 1 : sizeof counts / sizeof *counts); k++) {
                fss_gate g = catalogue[i];
                g.count = counts[k];
                check_gate(&b, g);
            }
        drop(&b, b.run);
    }
}

/* Tables of all sizes, among them those that one thread does not expand alone. */
static void all_tables(cuda_device d)
{
    uint64_t zero[2] = {0, 0}, *table = words_new((size_t)5 << 15);
    bed b = {.d = d};
    world_init(&b.w, FSS_PRG_AES, FSS_TREE_HALF, 5);
    for (size_t i = 0; i < (size_t)5 << 15; i++)
        table[i] = rng_u64(&b.w.r);
    b.run = upload(&b, zero, sizeof zero);
    for (unsigned bits = 1; bits <= (quick() ? 11 : 15); bits += quick() ? 5 : 1) {
        fss_gate g = {.kind = FSS_LUT,
                      .index_bits = (uint8_t)bits,
                      .out_bits = (uint8_t)(64 - bits),
                      .rows = (uint16_t)(bits % 3 ? 1 : 5),
                      .table = table,
                      .count = bits > 12 ? 40 : 70};
        check_gate(&b, g);
        fss_gate s = {.kind = FSS_SPLINE,
                      .in_bits = 50,
                      .index_bits = (uint8_t)bits,
                      .degree = (uint8_t)(bits % 4),
                      .table = table,
                      .heavy = 1,
                      .count = 40};
        check_gate(&b, s);
    }
    drop(&b, b.run);
    free(table);
}

static void gates_on_the_host(void **state)
{
    (void)state;
    if (quick())
        skip();
    catalogue_init();
    cuda_device d = host_device_open(0, 0);
    all_gates(d);
    all_tables(d);
    assert_int_equal(host_device_held(&d), 0);
    host_device_close(&d);
}

static void gates_on_the_gpu(void **state)
{
    (void)state;
    char why[200];
    cuda_device d;
    tacit_error err = {0};
    catalogue_init();
    if (!cuda_present(why, sizeof why)) {
        print_message("no GPU: %s\n", why);
        skip();
    }
    if (cuda_open(0, 0, &d, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    all_gates(d);
    all_tables(d);
    cuda_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gates_on_the_host),
        cmocka_unit_test(gates_on_the_gpu),
    };
    return cmocka_run_group_tests_name("cuda.gates", tests, NULL, NULL);
}
