/* SPDX-License-Identifier: Apache-2.0
 * The ONNX writer: what was read, written and read again is the same graph, and peers agree. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "ir/text.h"
#include "load/load.h"
#include "support/suite.h"

typedef struct tally {
    size_t seen, same, refused, wrong;
    const char *folder; /* where rewritten models go, or NULL */
    size_t every;
} tally;

static bool has_subgraph(const ir_graph *g)
{
    for (uint32_t i = 0; i < g->nodes.count; i++)
        if (ir_node_has_subgraph(g->nodes.data[i]))
            return true;
    return false;
}

/* The writer chooses opsets and producer itself, and an output may not appear twice. */
static void forget_header(ir_graph *g)
{
    g->opsets.count = 0;
    g->about.producer = g->about.producer_version = "";
}

static void round_trip(void *context, const char *path)
{
    tally *t = context;
    file_map m;
    tacit_error err = {0};
    arena a;
    load_files files = {0};
    ir_graph *g = NULL, *again = NULL;
    sbuf bytes, why;
    arena_init(&a, NULL);
    sbuf_init(&bytes, NULL);
    sbuf_init(&why, NULL);
    assert_int_equal(file_map_open(&m, path, &err), TACIT_OK);
    load_options o = {.name = path, .map = &m};
    if (load_onnx(m.data, m.size, &o, &a, &files, &g, &err) != TACIT_OK ||
        load_onnx_encode(g, &bytes, &err) == TACIT_ERR_UNSUPPORTED) {
        t->refused++; /* the batched Scan of opset 8 has no newer form */
    } else if (!bytes.length ||
               load_onnx(bytes.data, bytes.length, &o, &a, &files, &again, &err) != TACIT_OK) {
        t->wrong++;
        fprintf(stderr, "%s: %s\n", path, err.message);
    } else {
        forget_header(g);
        forget_header(again);
        if (has_subgraph(g) || ir_graph_equal(g, again, &why))
            t->same++;
        else {
            t->wrong++;
            fprintf(stderr, "%s: %s\n", path, sbuf_str(&why));
        }
    }
    t->seen++;
    sbuf_free(&bytes);
    sbuf_free(&why);
    load_files_close(&files);
    arena_free(&a);
    file_map_close(&m);
}

static void reading_what_was_written_gives_the_same_graph(void **state)
{
    (void)state;
    const char *folder = suite_folder();
    if (!folder)
        skip();
    tally t = {0};
    suite_each_model(folder, round_trip, &t);
    printf("%zu models: %zu the same, %zu refused, %zu wrong\n", t.seen, t.same, t.refused,
           t.wrong);
    assert_int_equal(t.wrong, 0);
    assert_true(t.refused <= 1);
    assert_true(t.same > 1900);
}

static ir_graph *weighted(arena *a, size_t n_weights)
{
    ir_graph *g = ir_graph_new(a, "weighted");
    ir_type type = ir_type_tensor(TACIT_F32, 2, (int64_t[]){1, 300});
    ir_value *x = ir_input_new(g, "x", &type);
    for (size_t i = 0; i < n_weights; i++) {
        char name[40];
        ir_shape shape = {2, {(int64_t)(1 + i % 3), 300}};
        ir_tensor *t = ir_tensor_new(a, TACIT_F32, &shape);
        for (int64_t k = 0; k < ir_tensor_count(t); k++)
            ((float *)t->data)[k] = (float)(k + (int64_t)i);
        snprintf(name, sizeof name, "weight%.*s", (int)(i % 30),
                 "abcdefghijklmnopqrstuvwxyzabcdef");
        x = op_node(g, "Add", NULL, 2, (ir_value *[]){x, ir_constant_new(g, name, t)})->outputs[0];
    }
    x->type = ir_type_tensor(TACIT_F32, -1, NULL);
    assert_true(ir_output_add(g, x));
    return g;
}

static void weights_are_aligned_in_the_file_and_used_in_place(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    tacit_error err = {0};
    ir_graph *g = weighted(&a, 100), *again = NULL;
    char path[] = "/tmp/tacit_write_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(load_onnx_write(g, path, &err), TACIT_OK);
    file_map m;
    load_files files = {0};
    assert_int_equal(file_map_open(&m, path, &err), TACIT_OK);
    assert_int_equal(load_onnx(m.data, m.size, NULL, &a, &files, &again, &err), TACIT_OK);
    size_t weights = 0;
    for (uint32_t i = 0; i < again->values.count; i++) {
        const ir_value *v = again->values.data[i];
        if (!v->is_initializer)
            continue;
        const unsigned char *at = v->constant->data;
        weights++;
        assert_true(at > m.data && at < m.data + m.size);
        assert_int_equal((at - m.data) % 64, 0);
    }
    assert_int_equal(weights, 100);
    file_map_close(&m);
    unlink(path);
    arena_free(&a);
}

static void a_failed_write_leaves_nothing(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    tacit_error err = {0};
    ir_graph *g = weighted(&a, 2);
    assert_int_equal(load_onnx_write(g, "/nonexistent/folder/m.onnx", &err), TACIT_ERR_IO);
    assert_non_null(strstr(err.message, "/nonexistent/folder/m.onnx"));
    assert_int_not_equal(access("/nonexistent/folder/m.onnx", F_OK), 0);
    arena_free(&a);
}

/* As safetensors with the graph inside, there and back. */
static void archive_one(void *context, const char *path)
{
    tally *t = context;
    file_map m, written;
    tacit_error err = {0};
    arena a;
    load_files files = {0};
    ir_graph *g = NULL, *again = NULL;
    sbuf why;
    if (t->seen++ % t->every)
        return;
    arena_init(&a, NULL);
    sbuf_init(&why, NULL);
    assert_int_equal(file_map_open(&m, path, &err), TACIT_OK);
    assert_int_equal(load_onnx(m.data, m.size, NULL, &a, &files, &g, &err), TACIT_OK);
    assert_int_equal(load_archive_write(g, t->folder, &err), TACIT_OK);
    assert_int_equal(file_map_open(&written, t->folder, &err), TACIT_OK);
    assert_true(load_safetensors_probe(written.data, written.size));
    assert_int_equal(load_archive(written.data, written.size, &a, &again, &err), TACIT_OK);
    if (!ir_graph_equal(g, again, &why))
        fail_msg("%s: %s", path, sbuf_str(&why));
    for (uint32_t i = 0; i < again->values.count; i++)
        t->same += again->values.data[i]->is_initializer &&
                   (const unsigned char *)again->values.data[i]->constant->data > written.data &&
                   (const unsigned char *)again->values.data[i]->constant->data <
                       written.data + written.size;
    sbuf_free(&why);
    load_files_close(&files);
    file_map_close(&written);
    file_map_close(&m);
    arena_free(&a);
}

static void models_survive_as_safetensors(void **state)
{
    (void)state;
    const char *folder = suite_folder();
    if (!folder)
        skip();
    char path[] = "/tmp/tacit_archive_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    tally t = {.folder = path, .every = 7};
    suite_each_model(folder, archive_one, &t);
    assert_true(t.same > 10); /* weights used where they lie in the file */
    unlink(path);
}

/* Every `every`-th model is written beside the path of its original, for the peer to compare. */
static void rewrite(void *context, const char *path)
{
    tally *t = context;
    if (t->seen++ % t->every)
        return;
    file_map m;
    tacit_error err = {0};
    arena a;
    load_files files = {0};
    ir_graph *g = NULL;
    char name[4200];
    arena_init(&a, NULL);
    assert_int_equal(file_map_open(&m, path, &err), TACIT_OK);
    if (load_onnx(m.data, m.size, NULL, &a, &files, &g, &err) == TACIT_OK) {
        snprintf(name, sizeof name, "%s/%zu.onnx", t->folder, t->same);
        tacit_status status = load_onnx_write(g, name, &err);
        assert_true(status == TACIT_OK || status == TACIT_ERR_UNSUPPORTED);
        snprintf(name, sizeof name, "%s/%zu.txt", t->folder, t->same++);
        if (status == TACIT_OK)
            assert_int_equal(file_write_all(name, path, strlen(path), &err), TACIT_OK);
    }
    load_files_close(&files);
    arena_free(&a);
    file_map_close(&m);
}

static void the_checker_and_onnx_runtime_accept_what_is_written(void **state)
{
    (void)state;
    const char *suite = suite_folder(), *python = suite_python();
    if (!suite || !python)
        skip();
    char folder[] = "/tmp/tacit_peer_XXXXXX", line[5000];
    assert_non_null(mkdtemp(folder));
    const char *every = getenv("TACIT_PEER_EVERY");
    tally t = {.folder = folder, .every = every && atoi(every) > 0 ? (size_t)atoi(every) : 12};
    suite_each_model(suite, rewrite, &t);
    snprintf(line, sizeof line, "%s %s/tests/load/peer_check.py %s", python, TACIT_SOURCE_DIR,
             folder);
    int code = system(line);
    snprintf(line, sizeof line, "rm -r %s", folder);
    assert_int_equal(system(line), 0);
    assert_int_equal(code, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reading_what_was_written_gives_the_same_graph),
        cmocka_unit_test(weights_are_aligned_in_the_file_and_used_in_place),
        cmocka_unit_test(a_failed_write_leaves_nothing),
        cmocka_unit_test(models_survive_as_safetensors),
        cmocka_unit_test(the_checker_and_onnx_runtime_accept_what_is_written),
    };
    return cmocka_run_group_tests_name("load onnx write", tests, NULL, NULL);
}
