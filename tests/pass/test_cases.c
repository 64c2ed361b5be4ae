/* SPDX-License-Identifier: Apache-2.0
 * Text in, text out: each file of tests/pass/cases holds a graph, a line `=>`, and the graph the
 * passes must make of it. Comment lines at the top choose what runs:
 *   # only: PASS      # off: PASS      # tolerance: 1e-5
 * Every case is also held to the interpreter's answer before the passes, with every pass on, with
 * each alone and with each off. TACIT_UPDATE=1 writes the result into the file instead. */
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

static char *read_all(arena *a, const char *path)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    long size = ftell(f);
    rewind(f);
    char *text = arena_alloc_zero(a, (size_t)size + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, (size_t)size, f), size);
    fclose(f);
    return text;
}

/* The rest of the line "# key: value" at the top of the file, or NULL. */
static const char *directive(arena *a, const char *text, const char *key)
{
    size_t length = strlen(key);
    for (const char *line = text; *line == '#'; line = strchr(line, '\n') + 1) {
        if (strncmp(line + 2, key, length) == 0 && line[2 + length] == ':') {
            const char *value = line + length + 4;
            return arena_strndup(a, value, strcspn(value, "\n"));
        }
    }
    return NULL;
}

static void write_back(const char *path, const char *head, size_t head_size, const char *graph)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fprintf(f, "%.*s=>\n%s", (int)head_size, head, graph);
    fclose(f);
}

static void check_text(const char *path, const char *text, size_t head, const ir_graph *after)
{
    sbuf out;
    sbuf_init(&out, NULL);
    ir_graph_print(after, &(ir_text_options){0}, &out);
    const char *expected = text[head] ? text + head + 3 : "";
    if (getenv("TACIT_UPDATE"))
        write_back(path, text, head, sbuf_str(&out));
    else if (strcmp(expected, sbuf_str(&out)) != 0)
        fail_msg("%s: expected\n%s\nbut the passes made\n%s", path, expected, sbuf_str(&out));
    sbuf_free(&out);
}

static void check_case(const char *path)
{
    arena a;
    arena_init(&a, NULL);
    const char *text = read_all(&a, path);
    const char *mark = strstr(text, "\n=>");
    size_t head = mark ? (size_t)(mark + 1 - text) : strlen(text);
    const char *tolerance = directive(&a, text, "tolerance");
    double t = tolerance ? strtod(tolerance, NULL) : 1e-5;
    ir_graph *g = pass_check_parse(&a, text, head);
    ir_graph *after =
        pass_check_run(g, directive(&a, text, "only"), directive(&a, text, "off"), t, NULL);
    check_text(path, text, head, after);
    pass_check_run(g, NULL, NULL, t, NULL);
    pass_check_run(g, NULL, "all", 0, NULL);
    for (uint32_t i = 0; pass_at(i); i++) {
        pass_check_run(g, pass_at(i)->name, NULL, t, NULL);
        pass_check_run(g, NULL, pass_at(i)->name, t, NULL);
    }
    arena_free(&a);
}

static void every_case(void **state)
{
    (void)state;
    const char *folder = TACIT_SOURCE_DIR "/tests/pass/cases";
    const char *one = getenv("TACIT_CASE");
    struct dirent **entries;
    int n = scandir(folder, &entries, NULL, alphasort), ran = 0;
    assert_true(n > 0);
    for (int i = 0; i < n; i++) {
        const char *dot = strrchr(entries[i]->d_name, '.');
        if (dot && strcmp(dot, ".tacit") == 0 && (!one || strstr(entries[i]->d_name, one))) {
            char path[512];
            snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
            print_message("%s\n", entries[i]->d_name);
            check_case(path);
            ran++;
        }
        free(entries[i]);
    }
    free(entries);
    assert_true(ran > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_case)};
    return cmocka_run_group_tests_name("pass cases", tests, NULL, NULL);
}
