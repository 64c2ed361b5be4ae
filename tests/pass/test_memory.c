/* SPDX-License-Identifier: Apache-2.0
 * Passes that run out of memory at any point say so and leave nothing behind that is not freed. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ir/text.h"
#include "support/pass_check.h"

/* Fails every allocation once `left` have been given. */
typedef struct meter {
    int64_t left;
    bool failed;
} meter;

static void *meter_alloc(void *context, size_t size, size_t align)
{
    meter *m = context;
    if (m->left-- <= 0) {
        m->failed = true;
        return NULL;
    }
    return aligned_alloc(align, (size + align - 1) / align * align);
}

static void meter_release(void *context, void *memory, size_t size)
{
    (void)context;
    (void)size;
    free(memory);
}

/* Runs the passes with `allowed` allocations; whether none was refused. */
static bool run_with(const char *text, size_t length, int64_t allowed)
{
    meter m = {.left = INT64_MAX};
    tacit_allocator allocator = {meter_alloc, meter_release, &m};
    arena a, reports;
    arena_init(&a, &allocator);
    arena_init(&reports, &allocator);
    tacit_error err = {0};
    pass_report report;
    ir_graph *g = pass_check_parse(&a, text, length);
    /* What the block at hand has left would hide most of what passes ask for. */
    assert_non_null(arena_alloc(&a, 1 << 16));
    m.left = allowed;
    tacit_status status = pass_pipeline(g, NULL, &reports, &report, &err);
    bool failed = m.failed;
    if (failed && status != TACIT_OK) {
        assert_int_equal(status, TACIT_ERR_MEMORY);
        assert_non_null(strstr(err.message, "memory"));
    } else {
        assert_int_equal(status, TACIT_OK);
    }
    arena_free(&reports);
    arena_free(&a);
    return !failed;
}

static void running_out_is_reported(void **state)
{
    (void)state;
    struct dirent **entries;
    const char *folder = TACIT_SOURCE_DIR "/tests/pass/cases";
    int n = scandir(folder, &entries, NULL, alphasort);
    uint32_t points = 0;
    assert_true(n > 0);
    for (int i = 0; i < n; i++) {
        char path[512], text[16384];
        snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        const char *dot = strrchr(entries[i]->d_name, '.');
        FILE *f = dot && strcmp(dot, ".tacit") == 0 ? fopen(path, "rb") : NULL;
        free(entries[i]);
        if (!f)
            continue;
        size_t length = fread(text, 1, sizeof text - 1, f);
        fclose(f);
        text[length] = 0;
        const char *mark = strstr(text, "\n=>");
        assert_non_null(mark);
        int64_t allowed = 0;
        while (!run_with(text, (size_t)(mark + 1 - text), allowed))
            allowed++;
        points += (uint32_t)allowed;
    }
    free(entries);
    print_message("%u points of failure\n", points);
    assert_true(points > 500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(running_out_is_reported)};
    return cmocka_run_group_tests_name("passes without memory", tests, NULL, NULL);
}
