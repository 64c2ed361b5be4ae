/* SPDX-License-Identifier: Apache-2.0
 * One party alone: what the device and its rounds cost without a network, where the time goes, with
 * keys on the device and with keys uploaded meanwhile; and the dealer. */
#include <stdlib.h>
#include <string.h>

#include "../../src/api/secure_internal.h"
#include "base/cpu.h"
#include "bench.h"
#include "secure/run.h"

typedef struct loop {
    uint64_t bytes, exchanges, back;
    double *rounds; /* seconds of each, without the exchange */
    bool silent;    /* what comes back does not matter, nor the time to copy it */
} loop;
static tacit_status zero_key(void *context, void *data, size_t size, tacit_error *err)
{
    const bool *again = context; /* it is there from the run before */
    (void)err;
    if (!*again)
        memset(data, 0x5a, size);
    return TACIT_OK;
}
static tacit_status echo(void *context, const void *out, size_t out_size, void *in, size_t in_size,
                         tacit_error *err)
{
    loop *l = context;
    (void)err;
    if (l->rounds)
        l->rounds[l->exchanges] = (double)(clock_ns() - l->back) * 1e-9;
    if (out && in_size && !l->silent)
        memcpy(in, out, in_size);
    l->bytes += out_size;
    l->exchanges++;
    l->back = clock_ns();
    return TACIT_OK;
}
static tacit_status discard(void *context, unsigned party, const void *data, size_t size,
                            tacit_error *err)
{
    (void)party, (void)data, (void)err;
    *(uint64_t *)context += size;
    return TACIT_OK;
}

static bool opens(const sec_program *p, uint32_t round)
{
    for (uint32_t i = 0; i < p->instrs.count; i++) {
        const sec_instr *in = &p->instrs.data[i];
        if (sec_steps(in) && in->start <= round && in->start + sec_steps(in) > round)
            return true;
    }
    return false;
}

/* Where the time goes: rounds by the largest gate that steps in them. */
static void profile(const sec_program *p, const double *rounds, uint64_t n)
{
    enum { MOST = 64 };
    struct {
        char name[80];
        double seconds;
        int count;
    } sort[MOST] = {{{0}, 0, 0}};
    int used = 0;
    double total = 0;
    for (uint64_t r = 1, round = 0; r < n; r++, round++) {
        while (round <= p->rounds && !opens(p, (uint32_t)round)) /* exchange r ends this round */
            round++;
        char name[80] = "-";
        size_t largest = 0;
        for (uint32_t i = 0; i < p->instrs.count; i++) {
            const sec_instr *in = &p->instrs.data[i];
            unsigned steps = sec_steps(in);
            if (!steps || in->start > round || in->start + steps <= round)
                continue;
            size_t size = in->op == SEC_GATE
                              ? in->gate.count * (1 + in->info.key_bytes[0] / (1 + in->gate.count))
                              : in->batch * in->m * in->n * 8;
            if (size < largest)
                continue;
            largest = size;
            if (in->op == SEC_GATE)
                snprintf(name, sizeof name,
                         "%s%s n=%zu in %u eff %u shift %u idx %u,%u t %u step %u",
                         fss_kind_name(in->gate.kind),
                         in->gate.direct   ? " direct"
                         : in->gate.wide   ? " wide"
                         : in->gate.digits ? " digits"
                                           : "",
                         in->gate.count, in->gate.in_bits, in->gate.eff_bits, in->gate.shift,
                         in->gate.index_bits, in->gate.index2_bits, in->gate.thresholds,
                         (unsigned)(round - in->start));
            else
                snprintf(name, sizeof name, "matmul %zux%zux%zu x%u bits %u", in->m, in->k, in->n,
                         in->batch, in->bits);
        }
        int at = 0;
        while (at < used && strcmp(sort[at].name, name) != 0)
            at++;
        if (at == used && used < MOST - 1)
            used++;
        snprintf(sort[at].name, sizeof sort[at].name, "%s", name);
        sort[at].seconds += rounds[r];
        sort[at].count++;
        total += rounds[r];
    }
    printf("    %.2f ms in %d kinds of rounds, inputs %.2f ms\n", total * 1e3, used,
           rounds[0] * 1e3);
    for (int k = 0; k < 24; k++) {
        int best = -1;
        for (int i = 0; i < used; i++)
            if (sort[i].seconds > 0 && (best < 0 || sort[i].seconds > sort[best].seconds))
                best = i;
        if (best < 0)
            break;
        printf("    %8.3f ms in %3d: %s\n", sort[best].seconds * 1e3, sort[best].count,
               sort[best].name);
        sort[best].seconds = 0;
    }
}

/* A party of a program, its messages sent back to it. The words are meaningless, their number is
 * not. */
typedef struct lonely {
    tacit_model *model;
    tacit_secure *s;
    fss_party party;
    loop l;
    sec_link link;
    sec_weights weights;
    bool again;
} lonely;

static bool lonely_open(bench *b, lonely *x, const char *path, const tacit_secure_options *o)
{
    static const uint8_t seed[16] = {1, 2, 3};
    *x = (lonely){.link = {.key_read = zero_key, .exchange = echo}};
    x->link.context = &x->l;
    x->link.key_context = &x->again;
    if (!bench_ok(b, tacit_model_load(path, NULL, &x->model, &b->err)) ||
        !bench_ok(b, tacit_secure_compile(x->model, o, &x->s, &b->err)))
        return false;
    fss_party_init(&x->party, &x->s->program->suite, SEC_SERVER, seed);
    return bench_ok(b,
                    sec_weights_exchange(x->s->program, &x->party, &x->link, &x->weights, &b->err));
}
static void lonely_close(bench *b, lonely *x)
{
    if (x->s)
        sec_weights_free(x->s->program, &x->weights);
    tacit_secure_free(x->s);
    tacit_model_free(x->model);
    bench_fresh(b);
}

/* Median seconds of a run; `load`: seconds to get the key to where it is kept. */
static double lonely_run(bench *b, lonely *x, const sec_device_options *o, double *load,
                         double *rounds)
{
    enum { TIMES = 7 };
    const sec_program *p = x->s->program;
    sec_device *d = NULL;
    double times[TIMES] = {0};
    bench_ok(b, sec_device_create(p, &x->party, &b->d, 1, &x->weights, o, &d, &b->err));
    for (int i = -1; i < TIMES && !b->failed; i++) {
        uint64_t start = clock_ns();
        x->again = i >= 0;
        if (i < 0 || sec_device_size(d).streamed)
            bench_ok(b, sec_device_load(d, 0, &x->link, &b->err));
        *load = i < 0 ? (double)(clock_ns() - start) * 1e-9 : *load;
        x->l = (loop){.rounds = i + 1 == TIMES ? rounds : NULL, .silent = x->l.silent};
        start = x->l.back = clock_ns();
        bench_ok(b, sec_device_run(d, 0, &x->link, NULL, NULL, &b->err));
        if (i >= 0)
            times[i] = (double)(clock_ns() - start) * 1e-9;
    }
    sec_device_free(d);
    qsort(times, TIMES, sizeof *times, bench_by_value);
    return times[TIMES / 2];
}

static void deal_alone(bench *b, const model_entry *e, const sec_program *p, const char *name)
{
    enum { TIMES = 3 };
    static const uint8_t seed[16] = {1, 2, 3};
    fss_dealer dealer;
    uint64_t written = 0;
    sec_device_dealer *there = NULL;
    double times[TIMES] = {0};
    fss_dealer_init(&dealer, &p->suite, seed, seed);
    bench_ok(b, sec_device_dealer_create(p, &dealer, &b->d, &there, &b->err));
    for (int i = 0; i < TIMES && !b->failed; i++) {
        written = 0;
        uint64_t start = clock_ns();
        bench_ok(b, sec_device_dealer_run(there, (uint64_t)i, discard, &written, &b->err));
        times[i] = (double)(clock_ns() - start) * 1e-9;
    }
    sec_device_dealer_free(there);
    if (b->failed)
        return;
    char note[120];
    qsort(times, TIMES, sizeof *times, bench_by_value);
    snprintf(note, sizeof note, "both keys, %.2f GB, to pinned host memory", (double)written / 1e9);
    bench_row(b, name, times[TIMES / 2], e->deal, e->deal_goal, false, "s", note);
}

void models_alone(bench *b, const model_entry *e)
{
    char name[80], path[200], streamed_name[80], deal_name[80], note[160];
    snprintf(name, sizeof name, "gpu/%s/alone", e->name);
    snprintf(streamed_name, sizeof streamed_name, "gpu/%s/alone-streamed", e->name);
    snprintf(deal_name, sizeof deal_name, "gpu/%s/deal", e->name);
    bool wanted = bench_wanted(b, name) || bench_wanted(b, streamed_name);
    if ((!wanted && !bench_wanted(b, deal_name)) || b->failed ||
        !models_make(b, e, path, sizeof path))
        return;
    lonely x;
    double load = 0;
    if (!lonely_open(b, &x, path, NULL)) {
        lonely_close(b, &x);
        return;
    }
    const sec_program *p = x.s->program;
    double *rounds = calloc(p->rounds + 3u, sizeof *rounds);
    bool profiled = getenv("TACIT_BENCH_PROFILE") != NULL;
    if (wanted) {
        double s = lonely_run(b, &x, NULL, &load, profiled ? rounds : NULL);
        snprintf(note, sizeof note, "%llu messages, %.0f MB sent; key %.2f GB loaded in %.2f s",
                 (unsigned long long)x.l.exchanges, (double)x.l.bytes / 1e6,
                 (double)p->key_bytes[0] / 1e9, load);
        if (!b->failed)
            bench_row(b, name, s * 1e3, e->alone * 1e3, e->alone_goal * 1e3, false, "ms", note);
        if (!b->failed && profiled && rounds)
            profile(p, rounds, x.l.exchanges);
        /* a single block has few rounds: each needs more of its key at once */
        uint64_t window = p->key_bytes[0] / (p->rounds > 100 ? 4 : 2);
        sec_device_options stream = {.stream = true, .key_bytes = window};
        s = lonely_run(b, &x, &stream, &load, NULL);
        snprintf(note, sizeof note, "%.2f GB of key uploaded meanwhile, %.2f GB on the device",
                 (double)p->key_bytes[0] / 1e9, (double)window / 1e9);
        if (!b->failed)
            bench_row(b, streamed_name, s * 1e3, e->alone * 1e3, e->alone_goal * 1e3, false, "ms",
                      note);
    }
    free(rounds);
    if (bench_wanted(b, deal_name) && !b->failed)
        deal_alone(b, e, p, deal_name);
    lonely_close(b, &x);
}

/* A million GELUs of one party: its rounds without the network, its key uploaded meanwhile. */
void models_gelu(bench *b, const char *how, tacit_secure_compare compare, double goal)
{
    enum { N = 1 << 20 };
    char name[80], path[200], note[160];
    snprintf(name, sizeof name, "gpu/gelu/%s", how);
    snprintf(path, sizeof path, "%s/gelu.tacit", b->dir);
    if (!bench_wanted(b, name) || b->failed)
        return;
    FILE *f = fopen(path, "w");
    if (!f)
        return;
    fprintf(f, "tacit 1\ngraph \"g\" {\n opset \"\" 22\n in %%x : f32[1024,1024]\n"
               " %%y : f32[1024,1024] = Gelu(%%x) @g\n out %%y\n}\n");
    fclose(f);
    lonely x;
    double load = 0;
    if (lonely_open(b, &x, path, &(tacit_secure_options){.compare = compare})) {
        const sec_program *p = x.s->program;
        x.l.silent = true;
        double resident = lonely_run(b, &x, NULL, &load, NULL);
        double s = lonely_run(b, &x, &(sec_device_options){.stream = true}, &load, NULL);
        snprintf(note, sizeof note,
                 "%.2f ms with its key of %.0f bytes each uploaded meanwhile, %.2f ms without; %u "
                 "rounds",
                 s * 1e3, (double)p->key_bytes[0] / N, resident * 1e3, p->rounds);
        if (!b->failed)
            bench_row(b, name, N / s / 1e6, 58, goal, true, "M/s", note);
    }
    lonely_close(b, &x);
}
