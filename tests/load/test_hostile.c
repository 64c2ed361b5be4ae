/* SPDX-License-Identifier: Apache-2.0
 * Bad ONNX files: each is refused with a reason that names the place; nothing crashes or leaks. */
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

#include "base/rng.h"
#include "load/load.h"
#include "load/wire_write.h"
#include "support/suite.h"

/* --- small models, field by field ------------------------------------------------------------- */

static void put_value_info(sbuf *b, uint32_t field, const char *name, int64_t dtype, int rank,
                           const int64_t *dims)
{
    size_t info = wire_begin(b, field);
    wire_put_text(b, 1, name);
    size_t type = wire_begin(b, 2), tensor = wire_begin(b, 1);
    wire_put_int(b, 1, dtype);
    size_t shape = wire_begin(b, 2);
    for (int i = 0; i < rank; i++) {
        size_t dim = wire_begin(b, 1);
        wire_put_int(b, 1, dims[i]);
        wire_end(b, dim);
    }
    wire_end(b, shape);
    wire_end(b, tensor);
    wire_end(b, type);
    wire_end(b, info);
}

static void put_node(sbuf *b, uint32_t field, const char *type, const char *domain, const char *in,
                     const char *out)
{
    size_t n = wire_begin(b, field);
    wire_put_text(b, 1, in);
    wire_put_text(b, 2, out);
    wire_put_text(b, 3, "the node");
    wire_put_text(b, 4, type);
    wire_put_text(b, 7, domain);
    wire_end(b, n);
}

static void put_opset(sbuf *b, uint32_t field, const char *domain, int64_t version)
{
    size_t o = wire_begin(b, field);
    wire_put_text(b, 1, domain);
    wire_put_int(b, 2, version);
    wire_end(b, o);
}

/* A model of one input x and one output y around whatever `fill` puts into the graph. */
typedef void fill_fn(sbuf *graph);
typedef struct model_spec {
    fill_fn *graph, *model;
    int64_t ir, opset;
} model_spec;

static void build(sbuf *b, const model_spec *m)
{
    sbuf_init(b, NULL);
    wire_put_int(b, 1, m->ir ? m->ir : 8);
    put_opset(b, 8, "", m->opset ? m->opset : 17);
    put_opset(b, 8, "own", 1);
    size_t g = wire_begin(b, 7);
    wire_put_text(b, 2, "g");
    put_value_info(b, 11, "x", 1, 1, (int64_t[]){2});
    if (m->graph)
        m->graph(b);
    else
        put_node(b, 1, "Relu", "", "x", "y");
    put_value_info(b, 12, "y", 1, 1, (int64_t[]){2});
    wire_end(b, g);
    if (m->model)
        m->model(b);
    assert_false(b->failed);
}

static tacit_status load_bytes(const void *data, size_t size, const char *dir, tacit_error *err)
{
    arena a;
    load_files files = {0};
    ir_graph *g = NULL;
    load_options o = {.name = "hostile.onnx", .dir = dir};
    arena_init(&a, NULL);
    *err = (tacit_error){0};
    tacit_status status = load_onnx(data, size, &o, &a, &files, &g, err);
    if (status == TACIT_OK)
        assert_non_null(g);
    else {
        assert_int_equal(err->status, status);
        assert_non_null(strstr(err->message, "hostile.onnx: "));
    }
    load_files_close(&files);
    arena_free(&a);
    return status;
}

static void expect(const model_spec *m, tacit_status want, const char *reason)
{
    sbuf b;
    tacit_error err;
    build(&b, m);
    tacit_status status = load_bytes(b.data, b.length, NULL, &err);
    if (status != want || (reason && !strstr(err.message, reason)))
        fail_msg("status %d, message '%s'; expected %d and '%s'", status, err.message, want,
                 reason ? reason : "");
    sbuf_free(&b);
}

/* --- graphs that do not add up ---------------------------------------------------------------- */

static void cycle(sbuf *b)
{
    size_t n = wire_begin(b, 1);
    wire_put_text(b, 1, "x");
    wire_put_text(b, 1, "y");
    wire_put_text(b, 2, "t");
    wire_put_text(b, 3, "first");
    wire_put_text(b, 4, "Add");
    wire_end(b, n);
    put_node(b, 1, "Relu", "", "t", "y");
}

static void backwards(sbuf *b)
{
    put_node(b, 1, "Relu", "", "t", "y");
    put_node(b, 1, "Neg", "", "x", "t");
}

static void twice(sbuf *b)
{
    put_node(b, 1, "Relu", "", "x", "y");
    put_node(b, 1, "Neg", "", "x", "y");
}

static void dangling(sbuf *b)
{
    put_node(b, 1, "Relu", "", "nowhere", "y");
}

static void no_output(sbuf *b)
{
    put_node(b, 1, "Relu", "", "x", "z");
}

static void nul_name(sbuf *b)
{
    size_t n = wire_begin(b, 1);
    wire_put_bytes(b, 1, "x\0z", 3);
    wire_put_text(b, 2, "y");
    wire_put_text(b, 4, "Relu");
    wire_end(b, n);
}

static void confused_node(sbuf *b)
{
    wire_put_int(b, 1, 77); /* a node that is a number */
}

static void attribute_twice(sbuf *b)
{
    size_t n = wire_begin(b, 1);
    wire_put_text(b, 1, "x");
    wire_put_text(b, 2, "y");
    wire_put_text(b, 4, "Elu");
    for (int i = 0; i < 2; i++) {
        size_t a = wire_begin(b, 5);
        wire_put_text(b, 1, "alpha");
        wire_put_f32(b, 2, 1.0f);
        wire_put_int(b, 20, 1);
        wire_end(b, a);
    }
    wire_end(b, n);
}

static void deep_subgraphs(sbuf *b)
{
    size_t marks[3 * 200];
    size_t n = 0;
    for (int i = 0; i < 200; i++) {
        marks[n++] = wire_begin(b, 1);
        wire_put_text(b, 1, "x");
        wire_put_text(b, 2, "y");
        wire_put_text(b, 4, "If");
        marks[n++] = wire_begin(b, 5);
        wire_put_text(b, 1, "then_branch");
        wire_put_int(b, 20, 5);
        marks[n++] = wire_begin(b, 6);
    }
    while (n)
        wire_end(b, marks[--n]);
}

static void graphs_that_do_not_add_up_are_refused(void **state)
{
    (void)state;
    expect(&(model_spec){0}, TACIT_OK, NULL);
    expect(&(model_spec){.graph = backwards}, TACIT_OK, NULL);
    expect(&(model_spec){.graph = cycle}, TACIT_ERR_GRAPH, "cycle");
    expect(&(model_spec){.graph = twice}, TACIT_ERR_GRAPH, "two values are named 'y'");
    expect(&(model_spec){.graph = dangling}, TACIT_ERR_GRAPH,
           "node 'the node' (Relu): nothing produces the value 'nowhere'");
    expect(&(model_spec){.graph = no_output}, TACIT_ERR_GRAPH, "graph output 0");
    expect(&(model_spec){.graph = nul_name}, TACIT_ERR_FORMAT, "NUL");
    expect(&(model_spec){.graph = confused_node}, TACIT_ERR_FORMAT, "wrong wire type");
    expect(&(model_spec){.graph = attribute_twice}, TACIT_ERR_GRAPH, "'alpha' is given twice");
    expect(&(model_spec){.graph = deep_subgraphs}, TACIT_ERR_LIMIT, "nested");
    expect(&(model_spec){.ir = 2}, TACIT_ERR_UNSUPPORTED, "IR version 2");
    expect(&(model_spec){.ir = 99}, TACIT_ERR_UNSUPPORTED, "IR version 99");
    expect(&(model_spec){.opset = 28}, TACIT_ERR_UNSUPPORTED, "opset 28");
}

/* --- tensors ---------------------------------------------------------------------------------- */

static struct {
    int64_t dtype, dims[16];
    int rank;
    size_t bytes;
    const char *location, *offset;
} tensor;

static void one_tensor(sbuf *b)
{
    static const char zeros[64];
    size_t t = wire_begin(b, 5);
    for (int i = 0; i < tensor.rank; i++)
        wire_put_int(b, 1, tensor.dims[i]);
    wire_put_int(b, 2, tensor.dtype);
    wire_put_text(b, 8, "w");
    if (tensor.location) {
        const char *const keys[2] = {"location", "offset"};
        const char *const values[2] = {tensor.location, tensor.offset ? tensor.offset : "0"};
        for (int i = 0; i < 2; i++) {
            size_t e = wire_begin(b, 13);
            wire_put_text(b, 1, keys[i]);
            wire_put_text(b, 2, values[i]);
            wire_end(b, e);
        }
        wire_put_int(b, 14, 1);
    } else
        wire_put_bytes(b, 9, zeros, tensor.bytes);
    wire_end(b, t);
    put_node(b, 1, "Relu", "", "w", "y");
}

static void expect_tensor(int64_t dtype, int rank, const int64_t *dims, size_t bytes,
                          tacit_status want, const char *reason)
{
    memset(&tensor, 0, sizeof tensor);
    tensor.dtype = dtype;
    tensor.rank = rank;
    tensor.bytes = bytes;
    memcpy(tensor.dims, dims, (size_t)rank * sizeof *dims);
    expect(&(model_spec){.graph = one_tensor}, want, reason);
}

static void tensors_that_do_not_add_up_are_refused(void **state)
{
    (void)state;
    const int64_t many[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    expect_tensor(1, 1, (int64_t[]){2}, 8, TACIT_OK, NULL);
    expect_tensor(1, 1, (int64_t[]){2}, 7, TACIT_ERR_FORMAT, "tensor 'w': f32[2] needs 8 bytes");
    expect_tensor(1, 1, (int64_t[]){2}, 0, TACIT_ERR_FORMAT, "has 0");
    expect_tensor(1, 1, (int64_t[]){-2}, 8, TACIT_ERR_SHAPE, "negative");
    expect_tensor(1, 2, (int64_t[]){(int64_t)1 << 40, (int64_t)1 << 40}, 8, TACIT_ERR_LIMIT,
                  "too large");
    expect_tensor(1, 3, (int64_t[]){(int64_t)1 << 62, 0, 4}, 0, TACIT_ERR_LIMIT, "too large");
    expect_tensor(1, 16, many, 4, TACIT_ERR_LIMIT, "dimensions");
    expect_tensor(99, 1, (int64_t[]){2}, 8, TACIT_ERR_TYPE, "unknown element type 99");
    expect_tensor(8, 1, (int64_t[]){1000000000}, 8, TACIT_ERR_FORMAT, "strings");
}

static void negative_input(sbuf *b)
{
    put_value_info(b, 11, "bad", 1, 1, (int64_t[]){-5});
    put_node(b, 1, "Relu", "", "x", "y");
}

static void huge_input(sbuf *b)
{
    put_value_info(b, 11, "bad", 1, 3, (int64_t[]){INT64_MAX, INT64_MAX, 2});
    put_node(b, 1, "Relu", "", "x", "y");
}

static void input_shapes_are_checked(void **state)
{
    (void)state;
    expect(&(model_spec){.graph = negative_input}, TACIT_ERR_SHAPE, "'bad': dimension 0");
    expect(&(model_spec){.graph = huge_input}, TACIT_ERR_LIMIT, "'bad'");
}

/* --- external data ---------------------------------------------------------------------------- */

static tacit_status load_external(const char *dir, const char *location, const char *offset,
                                  tacit_error *err)
{
    sbuf b;
    memset(&tensor, 0, sizeof tensor);
    tensor.dtype = 1;
    tensor.rank = 1;
    tensor.dims[0] = 2;
    tensor.location = location;
    tensor.offset = offset;
    build(&b, &(model_spec){.graph = one_tensor});
    tacit_status status = load_bytes(b.data, b.length, dir, err);
    sbuf_free(&b);
    return status;
}

static void external_data_stays_in_the_models_folder(void **state)
{
    (void)state;
    char root[] = "/tmp/tacit_ext_XXXXXX", path[256], dir[64];
    tacit_error err;
    assert_non_null(mkdtemp(root));
    snprintf(dir, sizeof dir, "%s/model", root);
    assert_int_equal(mkdir(dir, 0700), 0);
    const char *const inside = "model/data.bin", *const outside = "secret.bin";
    snprintf(path, sizeof path, "%s/%s", root, inside);
    assert_int_equal(file_write_all(path, "01234567", 8, &err), TACIT_OK);
    snprintf(path, sizeof path, "%s/%s", root, outside);
    assert_int_equal(file_write_all(path, "01234567", 8, &err), TACIT_OK);
    char link[256];
    snprintf(link, sizeof link, "%s/link.bin", dir);
    assert_int_equal(symlink(path, link), 0);
    assert_int_equal(load_external(dir, "data.bin", NULL, &err), TACIT_OK);
    assert_int_equal(load_external(dir, "./data.bin", NULL, &err), TACIT_OK);
    const char *const escapes[] = {"../secret.bin",  "a/../../secret.bin", path, "..",
                                   "..\\secret.bin", "link.bin",           ""};
    for (size_t i = 0; i < sizeof escapes / sizeof *escapes; i++) {
        assert_int_equal(load_external(dir, escapes[i], NULL, &err), TACIT_ERR_SECURITY);
        assert_non_null(strstr(err.message, "tensor 'w': external data"));
    }
    assert_int_equal(load_external(dir, "missing.bin", NULL, &err), TACIT_ERR_IO);
    assert_non_null(strstr(err.message, "missing.bin"));
    assert_int_equal(load_external(NULL, "data.bin", NULL, &err), TACIT_ERR_IO);
    assert_int_equal(load_external(dir, "data.bin", "1", &err), TACIT_ERR_FORMAT);
    assert_non_null(strstr(err.message, "pass the end"));
    assert_int_equal(load_external(dir, "data.bin", "18446744073709551615", &err),
                     TACIT_ERR_FORMAT);
    assert_int_equal(load_external(dir, "data.bin", "99999999999999999999999", &err),
                     TACIT_ERR_FORMAT);
    assert_int_equal(load_external(dir, "data.bin", "-8", &err), TACIT_ERR_FORMAT);
    char line[300];
    snprintf(line, sizeof line, "rm -r %s", root);
    assert_int_equal(system(line), 0);
}

/* --- functions -------------------------------------------------------------------------------- */

static void put_function(sbuf *b, const char *name, int calls, const char *callee,
                         const char *callee_domain)
{
    size_t f = wire_begin(b, 25);
    wire_put_text(b, 1, name);
    wire_put_text(b, 10, "own");
    wire_put_text(b, 4, "a");
    wire_put_text(b, 5, "b");
    put_opset(b, 9, "", 17);
    put_opset(b, 9, "own", 1);
    char from[16] = "a", to[16];
    for (int i = 0; i < calls; i++) {
        snprintf(to, sizeof to, i + 1 == calls ? "b" : "t%d", i);
        put_node(b, 7, callee, callee_domain, from, to);
        memcpy(from, to, sizeof to);
    }
    wire_end(b, f);
}

static void call_f(sbuf *b)
{
    put_node(b, 1, "f", "own", "x", "y");
}

static void fine(sbuf *b)
{
    put_function(b, "f", 3, "Relu", "");
}
static void itself(sbuf *b)
{
    put_function(b, "f", 1, "f", "own");
}
static void each_other(sbuf *b)
{
    put_function(b, "f", 1, "h", "own");
    put_function(b, "h", 1, "f", "own");
}
static void doubling(sbuf *b)
{
    char name[16] = "f", callee[16];
    for (int i = 0; i < 40; i++) {
        snprintf(callee, sizeof callee, "f%d", i);
        put_function(b, name, 2, callee, "own");
        memcpy(name, callee, sizeof name);
    }
    put_function(b, name, 2, "Relu", "");
}
static void long_chain(sbuf *b)
{
    char name[16] = "f", callee[16];
    for (int i = 0; i < 100; i++) {
        snprintf(callee, sizeof callee, "f%d", i);
        put_function(b, name, 1, callee, "own");
        memcpy(name, callee, sizeof name);
    }
    put_function(b, name, 1, "Relu", "");
}
static void nothing_made(sbuf *b)
{
    put_function(b, "f", 0, "", "");
}
static void defined_twice(sbuf *b)
{
    fine(b);
    fine(b);
}

static void functions_that_run_away_are_refused(void **state)
{
    (void)state;
    expect(&(model_spec){call_f, fine, 0, 0}, TACIT_OK, NULL);
    expect(&(model_spec){call_f, itself, 0, 0}, TACIT_ERR_GRAPH, "function 'f' calls itself");
    expect(&(model_spec){call_f, each_other, 0, 0}, TACIT_ERR_GRAPH, "calls itself");
    expect(&(model_spec){call_f, doubling, 0, 0}, TACIT_ERR_LIMIT, "unfolds to more than");
    expect(&(model_spec){call_f, long_chain, 0, 0}, TACIT_ERR_LIMIT, "nested");
    expect(&(model_spec){call_f, nothing_made, 0, 0}, TACIT_ERR_GRAPH, "'b'");
    expect(&(model_spec){call_f, defined_twice, 0, 0}, TACIT_ERR_GRAPH, "defined twice");
}

/* --- damaged files ---------------------------------------------------------------------------- */

typedef struct damage {
    size_t seen, every, loads, refusals;
    rng random;
} damage;

/* Loads a private copy, so that a read past its end is seen by the sanitizers. */
static void load_copy(damage *d, const unsigned char *data, size_t size)
{
    unsigned char *copy = malloc(size ? size : 1);
    tacit_error err;
    assert_non_null(copy);
    memcpy(copy, data, size);
    if (load_bytes(copy, size, NULL, &err) == TACIT_OK)
        d->loads++;
    else
        d->refusals++;
    free(copy);
}

static void damage_one(void *context, const char *path)
{
    damage *d = context;
    file_map m;
    if (d->seen++ % d->every || file_map_open(&m, path, NULL) != TACIT_OK)
        return;
    unsigned char *copy = malloc(m.size);
    assert_non_null(copy);
    size_t step = m.size / 97 + 1;
    for (size_t n = 0; n < m.size && m.size < 1 << 20; n += step)
        load_copy(d, m.data, n);
    for (int i = 0; i < 60 && m.size < 1 << 20; i++) {
        memcpy(copy, m.data, m.size);
        for (int k = 0; k <= i % 4; k++)
            copy[rng_below(&d->random, m.size)] ^= (unsigned char)(1u << rng_below(&d->random, 8));
        load_copy(d, copy, m.size);
    }
    free(copy);
    file_map_close(&m);
}

static void cut_and_flipped_files_never_crash(void **state)
{
    (void)state;
    const char *folder = suite_folder();
    if (!folder)
        skip();
    damage d = {.every = 25, .random = rng_seed(7)};
    suite_each_model(folder, damage_one, &d);
    printf("%zu damaged files refused, %zu still fine\n", d.refusals, d.loads);
    assert_true(d.refusals > 3000);
}

/* --- memory running out ----------------------------------------------------------------------- */

typedef struct failing {
    size_t left, live; /* allocations until the first failure; not yet released */
} failing;

static void *failing_alloc(void *context, size_t size, size_t align)
{
    failing *f = context;
    if (f->left == 0)
        return NULL;
    f->left--;
    void *p = aligned_alloc(align, align_up(size ? size : 1, align));
    f->live += p != NULL;
    return p;
}

static void failing_release(void *context, void *memory, size_t size)
{
    (void)size;
    failing *f = context;
    f->live -= memory != NULL;
    free(memory);
}

static void starve_one(void *context, const char *path)
{
    damage *d = context;
    file_map m;
    if (d->seen++ % d->every || file_map_open(&m, path, NULL) != TACIT_OK)
        return;
    tacit_status status = TACIT_ERR_MEMORY;
    for (size_t n = 0; status == TACIT_ERR_MEMORY && n < 10000; n++) {
        failing f = {.left = n};
        tacit_allocator allocator = {failing_alloc, failing_release, &f};
        arena a;
        load_files files = {0};
        ir_graph *g;
        tacit_error err = {0};
        arena_init(&a, &allocator);
        status = load_onnx(m.data, m.size, NULL, &a, &files, &g, &err);
        load_files_close(&files);
        arena_free(&a);
        assert_int_equal(f.live, 0);
        d->refusals += status == TACIT_ERR_MEMORY;
    }
    d->loads += status == TACIT_OK;
    file_map_close(&m);
}

static void running_out_of_memory_is_an_error_and_leaks_nothing(void **state)
{
    (void)state;
    const char *folder = suite_folder();
    if (!folder)
        skip();
    damage d = {.every = 10};
    suite_each_model(folder, starve_one, &d);
    printf("%zu starved loads refused, %zu models then loaded\n", d.refusals, d.loads);
    assert_true(d.refusals > 300 && d.loads > 180);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(graphs_that_do_not_add_up_are_refused),
        cmocka_unit_test(tensors_that_do_not_add_up_are_refused),
        cmocka_unit_test(input_shapes_are_checked),
        cmocka_unit_test(external_data_stays_in_the_models_folder),
        cmocka_unit_test(functions_that_run_away_are_refused),
        cmocka_unit_test(cut_and_flipped_files_never_crash),
        cmocka_unit_test(running_out_of_memory_is_an_error_and_leaks_nothing),
    };
    return cmocka_run_group_tests_name("load hostile", tests, NULL, NULL);
}
