/* SPDX-License-Identifier: Apache-2.0
 * What the parts of the GPU benchmark share. */
#ifndef BENCH_GPU_BENCH_H
#define BENCH_GPU_BENCH_H

#include <math.h>
#include <stdio.h>

#include "fss/suite.h"
#include "secure/device.h"
#include "tacit/secure.h"

typedef struct bench {
    char tool[512], dir[64];
    const char *prefix;
    FILE *lines, *page;
    cuda_device d;
    tacit_error err;
    bool failed;
} bench;

/* One entry; `up`: larger is better; NAN: nothing was measured, or asked for. */
void bench_row(bench *b, const char *name, double ours, double peer, double goal, bool up,
               const char *unit, const char *note);
bool bench_wanted(const bench *b, const char *name);
bool bench_ok(bench *b, tacit_status s);
void *bench_device_new(bench *b, size_t size);
void *bench_upload(bench *b, const void *data, size_t size);
void bench_download(bench *b, void *to, const void *from, size_t size);
int bench_by_value(const void *a, const void *b); /* doubles, for qsort */
double bench_replay(bench *b, void *graph);       /* median seconds */
void bench_fresh(bench *b); /* the device's memory is given back by opening it anew */

/* Gates, look-ups and ring products. */
void micro_all(bench *b);

typedef struct model_entry {
    const char *name, *example, *options;
    double two, alone, deal; /* SIGMA's seconds */
    double two_goal, alone_goal, deal_goal;
} model_entry;
extern const model_entry bench_models[];
enum { BENCH_TINY, BENCH_BASE, BENCH_GPT2, BENCH_LARGE, BENCH_LLAMA, BENCH_MODELS };
bool models_make(bench *b, const model_entry *e, char *path, size_t size);

/* A line between the parties: seconds of a round trip and bytes a second each way; 0: none. */
typedef struct net {
    const char *name;
    double delay, rate;
} net;
/* Two processes over TLS, asked `runs` times (inferences at once: `together`) from one dealing. */
void models_two(bench *b, const model_entry *e, int runs, unsigned together, const net *over);
/* One party with its messages looped back, and the dealer. */
void models_alone(bench *b, const model_entry *e);
void models_gelu(bench *b, const char *how, tacit_secure_compare compare, double goal);

/* Two network namespaces joined by such a line; false: that is not allowed here. */
typedef struct spaces {
    int space[2]; /* the server's and the client's */
    int pid;
} spaces;
#define SPACES_SERVER "10.77.0.1"
bool spaces_start(spaces *s, const net *line);
bool spaces_enter(const spaces *s,
                  int party); /* the calling process; nothing where there are none */
void spaces_stop(spaces *s);

/* Without namespaces: a process that passes bytes between `from` and `to` (ports of this machine)
 * as such a line would; it ends with its parent. */
int relay_start(int from, int to, const net *line);

#endif
