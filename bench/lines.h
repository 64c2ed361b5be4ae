/* SPDX-License-Identifier: Apache-2.0
 * What the benchmark programs share: which entries were asked for, and the lines that
 * scripts/bench-report makes tables of. */
#ifndef BENCH_LINES_H
#define BENCH_LINES_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline bool bench_wanted(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

/* Is some entry below `group` ("task/") asked for, or all of them? */
static inline bool bench_group_wanted(const char *group, const char *prefix)
{
    size_t n = strlen(prefix), m = strlen(group);
    return strncmp(group, prefix, n < m ? n : m) == 0;
}

/* Appends to the file that TACIT_BENCH_JSONL names, where it does. Peer 0: there is none. */
static inline void bench_line(const char *name, double ours, double peer, const char *peer_name,
                              const char *unit, double ratio)
{
    const char *path = getenv("TACIT_BENCH_JSONL");
    FILE *f = path ? fopen(path, "a") : NULL;
    if (!f)
        return;
    fprintf(f, "{\"bench\":\"%s\",\"ours\":%.6g,\"unit\":\"%s\",", name, ours, unit);
    if (peer > 0)
        fprintf(f, "\"peer\":%.6g,\"peer_name\":\"%s\",\"ratio\":%.6g}\n", peer, peer_name, ratio);
    else
        fprintf(f, "\"peer\":null,\"peer_name\":\"none\",\"ratio\":null}\n");
    fclose(f);
}

#endif
