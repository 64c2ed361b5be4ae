/* SPDX-License-Identifier: Apache-2.0 */
#include "support/suite.h"

#include <ftw.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#ifndef TACIT_SOURCE_DIR
#define TACIT_SOURCE_DIR "."
#endif

static int has_nodes(const char *folder)
{
    char path[4096];
    struct stat st;
    snprintf(path, sizeof path, "%s/node", folder);
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

const char *suite_folder(void)
{
    static char found[4096];
    const char *given = getenv("TACIT_ONNX_TESTS");
    if (given && has_nodes(given))
        return given;
    const char *const patterns[] = {
        TACIT_SOURCE_DIR "/../shared/onnx-conformance",
        TACIT_SOURCE_DIR "/.venv/lib/python3*/site-packages/onnx/backend/test/data",
    };
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        glob_t g;
        int ok = glob(patterns[i], 0, NULL, &g) == 0 && has_nodes(g.gl_pathv[0]);
        if (ok)
            snprintf(found, sizeof found, "%s", g.gl_pathv[0]);
        globfree(&g);
        if (ok)
            return found;
    }
    fprintf(stderr, "*** SKIPPED: no ONNX conformance data (set TACIT_ONNX_TESTS)\n");
    return NULL;
}

static void (*visit_model)(void *context, const char *path);
static void *visit_context;
static size_t visited;

static int on_entry(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st;
    (void)ftw;
    size_t n = strlen(path);
    if (kind == FTW_F && n > 5 && strcmp(path + n - 5, ".onnx") == 0) {
        visit_model(visit_context, path);
        visited++;
    }
    return 0;
}

size_t suite_each_model(const char *folder, void (*visit)(void *context, const char *path),
                        void *context)
{
    visit_model = visit;
    visit_context = context;
    visited = 0;
    nftw(folder, on_entry, 16, FTW_PHYS);
    return visited;
}

const char *suite_python(void)
{
    static char found[4200];
    const char *const candidates[] = {getenv("TACIT_PYTHON"), TACIT_SOURCE_DIR "/.venv/bin/python",
                                      "python3"};
    for (size_t i = 0; i < sizeof candidates / sizeof *candidates; i++) {
        if (!candidates[i])
            continue;
        snprintf(found, sizeof found, "%s -c 'import onnx, onnxruntime, numpy' >/dev/null 2>&1",
                 candidates[i]);
        if (system(found) == 0) {
            snprintf(found, sizeof found, "%s", candidates[i]);
            return found;
        }
    }
    fprintf(stderr, "*** SKIPPED: no Python with onnx and onnxruntime (set TACIT_PYTHON)\n");
    return NULL;
}
