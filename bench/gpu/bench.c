/* SPDX-License-Identifier: Apache-2.0 */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"

/* A number for the page; nothing was measured, or asked for, where it is not one. */
static const char *shown(double x, char text[32])
{
    snprintf(text, 32, isnan(x) ? "-" : "%.4g", x);
    return text;
}

void bench_row(bench *b, const char *name, double ours, double peer, double goal, bool up,
               const char *unit, const char *note)
{
    double ratio = up ? ours / peer : peer / ours;
    const char *met = isnan(goal) ? "-" : (up ? ours >= goal : ours <= goal) ? "yes" : "no";
    char p[32], r[32], g[32];
    shown(peer, p);
    shown(ratio, r);
    shown(goal, g);
    printf("%-34s %11.4g %11s %-7s %7s  goal %s met %s  %s\n", name, ours, p, unit, r, g, met,
           note);
    fflush(stdout);
    if (b->lines) {
        fprintf(b->lines, "{\"bench\":\"%s\",\"ours\":%.6g,\"unit\":\"%s\",\"note\":\"%s\"", name,
                ours, unit, note);
        if (!isnan(peer))
            fprintf(b->lines, ",\"peer\":%.6g,\"peer_name\":\"SIGMA\",\"ratio\":%.6g", peer, ratio);
        if (!isnan(goal))
            fprintf(b->lines, ",\"goal\":%.6g", goal);
        fprintf(b->lines, "}\n");
        fflush(b->lines);
    }
    if (b->page) {
        fprintf(b->page, "| %s | %.4g %s | %s | %s | %s | %s | %s |\n", name, ours, unit, p, r, g,
                met, note);
        fflush(b->page);
    }
}
bool bench_wanted(const bench *b, const char *name)
{
    size_t n = strlen(b->prefix), m = strlen(name);
    return strncmp(name, b->prefix, n < m ? n : m) == 0;
}
bool bench_ok(bench *b, tacit_status s)
{
    if (s != TACIT_OK) {
        fprintf(stderr, "bench_gpu: %s\n", b->err.message);
        b->failed = true;
    }
    return s == TACIT_OK;
}
void *bench_device_new(bench *b, size_t size)
{
    void *p = NULL;
    bench_ok(b, b->d.ops->alloc(b->d.self, size + 64, &p, &b->err));
    return p;
}
void *bench_upload(bench *b, const void *data, size_t size)
{
    void *p = bench_device_new(b, size);
    if (p && size) {
        bench_ok(b, b->d.ops->copy(b->d.self, CUDA_TO_DEVICE, p, data, size, &b->err));
        bench_ok(b, b->d.ops->wait(b->d.self, &b->err));
    }
    return p;
}
void bench_download(bench *b, void *to, const void *from, size_t size)
{
    bench_ok(b, b->d.ops->copy(b->d.self, CUDA_TO_HOST, to, from, size, &b->err));
    bench_ok(b, b->d.ops->wait(b->d.self, &b->err));
}
int bench_by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}
/* Median seconds of one replay of a recorded graph. */
double bench_replay(bench *b, void *graph)
{
    enum { TIMES = 15, EACH = 4 };
    double t[TIMES];
    for (int i = -2; i < TIMES && !b->failed; i++) {
        uint64_t start = clock_ns();
        for (int k = 0; k < EACH; k++)
            bench_ok(b, b->d.ops->graph_run(b->d.self, graph, &b->err));
        bench_ok(b, b->d.ops->wait(b->d.self, &b->err));
        if (i >= 0)
            t[i] = (double)(clock_ns() - start) * 1e-9 / EACH;
    }
    qsort(t, TIMES, sizeof *t, bench_by_value);
    return t[TIMES / 2];
}

void bench_fresh(bench *b)
{
    cuda_close(&b->d);
    bench_ok(b, cuda_open(0, 0, &b->d, &b->err));
}
