/* SPDX-License-Identifier: Apache-2.0
 *
 * What decoding one token of GPT-2 costs when nothing but its weights are read: the products of all
 * layers, one after another, on packed matrices of the same sizes, with 1 and 2 threads, in f32,
 * f16, bf16, int8 and 4-bit; and a loop that only reads as many bytes.
 *
 * usage: bench_decode [PREFIX]    appends to $TACIT_BENCH_JSONL when that is set
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bare_loop.h"
#include "base/slab.h"
#include "cpu/gemm.h"
#include "cpu/half.h"
#include "cpu/qmm.h"
#include "lines.h"
#include "op/lowerings.h"

/* Weights of a tile: an even number of tiles for two threads, about 10 µs each. */
#ifndef TILE_BYTES
#define TILE_BYTES (400 << 10)
#endif
typedef enum storage { F32, F16, BF16, INT8, INT4 } storage;
enum { LAYERS = 12, MATRICES = 4 * LAYERS + 1, RUNS = 15 };

typedef struct matrix {
    int64_t k, n;
    char *data;
    size_t bytes;
    cpu_qdot_args q;
    cpu_gemm_args g;
    uint32_t tiles;
} matrix;

typedef struct work {
    matrix m[MATRICES];
    cpu_features cpu;
    storage stored;
    int8_t *row;
    float *x, *y, *row_scale;
    int32_t *halves;
    bare_step steps[MATRICES];
    size_t bytes;
    slab memory;
    uint64_t sink;
} work;

static void die(const char *what)
{
    fprintf(stderr, "bench_decode: %s\n", what);
    exit(1);
}

/* As packed weights lie: side by side in huge pages. */
static void *room(slab *memory, size_t bytes)
{
    char *p = slab_alloc(memory, bytes);
    if (!p)
        die("out of memory");
    /* Every line its own, every page resident; as f16 and f32 such bytes are normal numbers. */
    for (size_t i = 0; i < bytes; i += 64)
        memset(p + i, (int)(i / 64 % 7) + 0x2c, 64);
    return p;
}

static void make_bytes(work *w, matrix *m)
{
    int64_t width = cpu_qmm_width(&w->cpu), panels = (m->n + width - 1) / width;
    cpu_qdot_weights *q = &m->q.w;
    *q = (cpu_qdot_weights){.groups = m->k / CPU_QGROUP,
                            .bits = (uint8_t)(w->stored == INT8 ? 8 : 4),
                            .subs = 1,
                            .zero = w->stored == INT8 ? 128 : 8,
                            .scale_kind = CPU_QSCALE_F16};
    m->bytes = cpu_qdot_place(q, width, panels, false, NULL);
    m->data = room(&w->memory, m->bytes);
    (void)cpu_qdot_place(q, width, panels, false, m->data);
    m->q.q = w->row;
    m->q.row_scale = w->row_scale;
    m->q.halves = w->halves;
    m->q.y = w->y;
    m->q.m = 1;
    m->q.n = m->n;
    m->q.q_row = cpu_qmm_row(m->k);
    m->q.tile_rows = 4;
    m->q.row_tiles = 1;
    m->q.epilogue.alpha = 1;
    int64_t tiles = 2 * (((int64_t)m->bytes + 2 * TILE_BYTES - 1) / (2 * TILE_BYTES));
    m->q.tile_panels = (panels + tiles - 1) / tiles;
    m->tiles = m->q.col_tiles = (uint32_t)((panels + m->q.tile_panels - 1) / m->q.tile_panels);
}

static void make_floats(work *w, matrix *m)
{
    int64_t width = cpu_gemm_width(w->cpu.isa), panels = (m->n + width - 1) / width;
    m->bytes =
        (size_t)(panels * width * m->k) * (w->stored == F32 ? sizeof(float) : sizeof(uint16_t));
    m->data = room(&w->memory, m->bytes);
    m->g = (cpu_gemm_args){.a = w->x,
                           .c = w->y,
                           .y = w->y,
                           .packed = (const float *)(const void *)m->data,
                           .m = 1,
                           .n = m->n,
                           .k = m->k,
                           .a_row = m->k,
                           .a_col = 1,
                           .c_row = m->n,
                           .streamed = true,
                           .epilogue = {.alpha = 1}};
    op_lower_cut(&m->g, 1, w->cpu.isa);
    m->tiles = m->g.row_tiles * m->g.col_tiles;
}

static cpu_kernel kernel_of(const work *w)
{
    switch (w->stored) {
    case F32:
        return CPU_PICK(w->cpu.isa, cpu_gemm_f32);
    case F16:
        return CPU_PICK(w->cpu.isa, cpu_half_f16);
    case BF16:
        return CPU_PICK(w->cpu.isa, cpu_half_bf16);
    default:
        return CPU_QMM_PICK(&w->cpu, cpu_qdot);
    }
}

static void make(work *w, storage stored)
{
    static const int64_t shapes[4][2] = {{768, 2304}, {768, 768}, {768, 3072}, {3072, 768}};
    *w = (work){.cpu = cpu_detect(), .stored = stored};
    slab_init(&w->memory, NULL, SIZE_MAX / 2);
    w->row = room(&w->memory, 8192);
    w->x = room(&w->memory, 4096 * sizeof(float));
    w->y = room(&w->memory, 50304 * sizeof(float));
    w->row_scale = room(&w->memory, 1024);
    w->halves = room(&w->memory, 2048);
    for (int i = 0; i < MATRICES; i++) {
        matrix *m = &w->m[i];
        m->k = i < MATRICES - 1 ? shapes[i % 4][0] : 768;
        m->n = i < MATRICES - 1 ? shapes[i % 4][1] : 50257;
        if (stored < INT8)
            make_floats(w, m);
        else
            make_bytes(w, m);
        w->bytes += m->bytes;
        bare_step *step = &w->steps[i];
        step->fn = kernel_of(w);
        step->args = stored < INT8 ? (const void *)&m->g : (const void *)&m->q;
        step->tiles = m->tiles;
    }
}

/* The same bytes, only read: a number of every line, asked for a page before. */
static double reading(work *w)
{
    uint64_t sum = 0, start = clock_ns();
    for (int i = 0; i < MATRICES; i++) {
        const matrix *m = &w->m[i];
        for (size_t b = 0; b + 64 <= m->bytes; b += 64) {
            __builtin_prefetch(m->data + b + 4096, 0, 2);
            sum += *(const uint64_t *)(const void *)(m->data + b);
        }
    }
    double ms = (double)(clock_ns() - start) / 1e6;
    w->sink += sum;
    return ms;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(const char *prefix, const char *name, storage stored)
{
    work w = {0};
    for (uint32_t threads = 1; threads <= 2; threads++) {
        char entry[64];
        snprintf(entry, sizeof entry, "decode/gemv-%s/t%u", name, threads);
        if (!bench_wanted(entry, prefix))
            continue;
        if (!w.bytes)
            make(&w, stored);
        double ms[RUNS], read[RUNS];
        for (int i = 0; i < RUNS; i++) {
            ms[i] = bare_once(&(bare_loop){w.steps, MATRICES, threads});
            if (ms[i] < 0)
                die("cannot start a thread");
            read[i] = reading(&w);
        }
        qsort(ms, RUNS, sizeof *ms, by_value);
        qsort(read, RUNS, sizeof *read, by_value);
        double median = ms[RUNS / 2], roof = read[RUNS / 2];
        printf("%-24s %9.3f ms  %6.1f GB/s; only reading, one thread: %6.1f GB/s\n", entry, median,
               (double)w.bytes / median / 1e6, (double)w.bytes / roof / 1e6);
        bench_line(entry, median, roof, "reading the same bytes with one thread", "ms",
                   roof / median);
    }
    if (w.bytes)
        slab_free(&w.memory);
}

int main(int argc, char **argv)
{
    const char *prefix = argc > 1 ? argv[1] : "";
    measure(prefix, "f32", F32);
    measure(prefix, "f16", F16);
    measure(prefix, "bf16", BF16);
    measure(prefix, "int8", INT8);
    measure(prefix, "int4", INT4);
    return 0;
}
