/* SPDX-License-Identifier: Apache-2.0
 * npy, npz and safetensors, against NumPy, against themselves, and with bad input. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "load/load.h"
#include "support/suite.h"

static file_map map_of(const char *format, const char *folder, int k)
{
    char path[256];
    file_map m;
    snprintf(path, sizeof path, format, folder, k);
    assert_int_equal(file_map_open(&m, path, NULL), TACIT_OK);
    return m;
}

static void expect_elements(const ir_tensor *t, const file_map *bytes)
{
    if (t->dtype != TACIT_STRING) {
        assert_int_equal(t->bytes, bytes->size);
        if (t->bytes)
            assert_memory_equal(t->data, bytes->data, bytes->size);
        return;
    }
    const unsigned char *at = bytes->data;
    for (int64_t i = 0; i < ir_tensor_count(t); i++) {
        ir_string s = ((const ir_string *)t->data)[i];
        assert_true(at + s.length < bytes->data + bytes->size);
        assert_memory_equal(s.data, at, s.length);
        assert_int_equal(at[s.length], '\n');
        at += s.length + 1;
    }
    assert_ptr_equal(at, bytes->data + bytes->size);
}

static void expect_type(const ir_tensor *t, const file_map *description)
{
    char want[128], have[128];
    snprintf(want, sizeof want, "%.*s", (int)description->size, (const char *)description->data);
    int n = snprintf(have, sizeof have, "%s", tacit_dtype_text(t->dtype));
    for (int32_t i = 0; i < t->shape.rank; i++)
        n += snprintf(have + n, sizeof have - (size_t)n, " %lld", (long long)t->shape.dims[i]);
    assert_string_equal(have, want);
}

static int count_cases(const char *folder)
{
    char path[256];
    for (int k = 0;; k++) {
        snprintf(path, sizeof path, "%s/%d.npy", folder, k);
        if (access(path, F_OK) != 0)
            return k;
    }
}

static void numpy_files_are_read_and_written_as_numpy_does(void **state)
{
    (void)state;
    const char *python = suite_python();
    if (!python)
        skip();
    char folder[] = "/tmp/tacit_npy_XXXXXX", line[1024], path[256];
    assert_non_null(mkdtemp(folder));
    const char *script = TACIT_SOURCE_DIR "/tests/load/peer_tensors.py";
    snprintf(line, sizeof line, "%s %s make %s", python, script, folder);
    assert_int_equal(system(line), 0);
    int n = count_cases(folder);
    assert_true(n > 20);
    arena a;
    arena_init(&a, NULL);
    tacit_error err = {0};
    file_map stored = map_of("%s/stored.npz", folder, 0);
    load_tensors archive, deflated, out = {0};
    assert_int_equal(load_npz(stored.data, stored.size, &a, &archive, &err), TACIT_OK);
    assert_int_equal(archive.items.count, n);
    for (int k = 0; k < n; k++) {
        file_map m = map_of("%s/%d.npy", folder, k), bytes = map_of("%s/%d.bin", folder, k),
                 type = map_of("%s/%d.txt", folder, k);
        ir_tensor t;
        char name[16];
        snprintf(name, sizeof name, "t%d", k);
        assert_int_equal(load_npy(m.data, m.size, &a, &t, &err), TACIT_OK);
        expect_type(&t, &type);
        expect_elements(&t, &bytes);
        const ir_tensor *member = load_tensors_find(&archive, name);
        assert_non_null(member);
        expect_type(member, &type);
        expect_elements(member, &bytes);
        snprintf(path, sizeof path, "%s/%d.out.npy", folder, k);
        assert_int_equal(load_npy_write(&t, path, &err), TACIT_OK);
        ir_tensor *kept = ir_tensor_copy(&a, &t);
        assert_true(vec_push(&a, &out.items, (load_named){arena_strdup(&a, name), *kept}));
        file_map_close(&m);
        file_map_close(&bytes);
        file_map_close(&type);
    }
    file_map packed = map_of("%s/deflated.npz", folder, 0);
#ifdef TACIT_HAVE_ZLIB
    assert_int_equal(load_npz(packed.data, packed.size, &a, &deflated, &err), TACIT_OK);
    for (int k = 0; k < n; k++)
        assert_true(
            ir_tensor_identical(&deflated.items.data[k].tensor, &archive.items.data[k].tensor));
#else
    assert_int_equal(load_npz(packed.data, packed.size, &a, &deflated, &err),
                     TACIT_ERR_UNSUPPORTED);
#endif
    snprintf(path, sizeof path, "%s/out.npz", folder);
    assert_int_equal(load_npz_write(&out, path, &err), TACIT_OK);
    snprintf(line, sizeof line, "%s %s check %s", python, script, folder);
    assert_int_equal(system(line), 0);
    file_map_close(&stored);
    file_map_close(&packed);
    arena_free(&a);
    snprintf(line, sizeof line, "rm -r %s", folder);
    assert_int_equal(system(line), 0);
}

static load_tensors some_tensors(arena *a)
{
    load_tensors t = {0};
    const tacit_dtype dtypes[] = {TACIT_I8, TACIT_F32, TACIT_BF16, TACIT_F64, TACIT_BOOL};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        ir_shape shape = {2, {3, (int64_t)i}};
        ir_tensor *x = ir_tensor_new(a, dtypes[i], &shape);
        for (int64_t k = 0; k < ir_tensor_count(x); k++)
            ir_store_f64(dtypes[i], x->data, k, (double)(k % 2));
        assert_true(
            vec_push(a, &t.items, (load_named){arena_printf(a, "t \"%zu\" \xc3\xbc\n", i), *x}));
    }
    assert_true(vec_push(a, &t.metadata, (load_pair){"format", "pt\\x"}));
    return t;
}

static void safetensors_round_trip(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    tacit_error err = {0};
    load_tensors t = some_tensors(&a), again;
    char path[] = "/tmp/tacit_safe_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(load_safetensors_write(&t, path, &err), TACIT_OK);
    file_map m;
    assert_int_equal(file_map_open(&m, path, &err), TACIT_OK);
    assert_true(load_safetensors_probe(m.data, m.size));
    assert_int_equal(load_safetensors(m.data, m.size, &a, &again, &err), TACIT_OK);
    assert_int_equal(again.items.count, t.items.count);
    for (uint32_t i = 0; i < t.items.count; i++) {
        const ir_tensor *x = load_tensors_find(&again, t.items.data[i].name);
        assert_non_null(x);
        assert_true(ir_tensor_identical(x, &t.items.data[i].tensor));
    }
    assert_string_equal(again.metadata.data[0].key, "format");
    assert_string_equal(again.metadata.data[0].value, "pt\\x");
    /* A file cut anywhere is refused. */
    for (size_t n = 0; n < m.size; n++) {
        arena cut;
        arena_init(&cut, NULL);
        assert_int_not_equal(load_safetensors(m.data, n, &cut, &again, &err), TACIT_OK);
        arena_free(&cut);
    }
    file_map_close(&m);
    unlink(path);
    arena_free(&a);
}

static tacit_status safe_text(const char *header, size_t data, tacit_error *err)
{
    arena a;
    load_tensors out;
    unsigned char file[512] = {0};
    size_t n = strlen(header);
    arena_init(&a, NULL);
    file[0] = (unsigned char)n;
    memcpy(file + 8, header, n);
    tacit_status status = load_safetensors(file, 8 + n + data, &a, &out, err);
    arena_free(&a);
    return status;
}

static void bad_safetensors_are_refused_with_a_reason(void **state)
{
    (void)state;
    const struct {
        const char *header, *reason;
        size_t data;
    } cases[] = {
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", NULL, 8},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", "belong", 9},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}}", "'a'", 8},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}", "'a'", 12},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", "'a'", 8},
        {"{\"a\":{\"dtype\":\"F99\",\"shape\":[2],\"data_offsets\":[0,8]}}", "F99", 8},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", "whole", 8},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,0]}}",
         "'a'", 0},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
         "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
         "two tensors", 2},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", "missing", 8},
        {"{\"a\":[[[[[[[[", "'{'", 0},
        {"{\"\\ud800\":1}", "escape", 0},
        {"{} x", "end of the header", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tacit_error err = {0};
        tacit_status status = safe_text(cases[i].header, cases[i].data, &err);
        if (!cases[i].reason)
            assert_int_equal(status, TACIT_OK);
        else {
            assert_int_not_equal(status, TACIT_OK);
            assert_non_null(strstr(err.message, cases[i].reason));
        }
    }
}

static tacit_status npy_text(const char *header, size_t data, tacit_error *err)
{
    arena a;
    ir_tensor out;
    unsigned char file[512] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0};
    size_t n = strlen(header);
    arena_init(&a, NULL);
    file[8] = (unsigned char)n;
    memcpy(file + 10, header, n);
    tacit_status status = load_npy(file, 10 + n + data, &a, &out, err);
    arena_free(&a);
    return status;
}

static void bad_npy_files_are_refused_with_a_reason(void **state)
{
    (void)state;
    const struct {
        const char *header, *reason;
        size_t data;
    } cases[] = {
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", NULL, 8},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", "8 bytes", 7},
        {"{'descr': '|O', 'fortran_order': False, 'shape': (2,), }", "|O", 8},
        {"{'descr': [('a','<f4')], 'fortran_order': False, 'shape': (2,), }", "structured", 8},
        {"{'descr': '<f4', 'fortran_order': Maybe, 'shape': (2,), }", "fortran_order", 8},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-2,), }", "shape", 8},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (9999999999,9999999999), }",
         "too large", 8},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }", "shape",
         8},
        {"{'descr': '<f4', 'shape': (2,), }", "lacks", 8},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2", "shape", 8},
        {"nonsense", "malformed", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tacit_error err = {0};
        tacit_status status = npy_text(cases[i].header, cases[i].data, &err);
        if (!cases[i].reason)
            assert_int_equal(status, TACIT_OK);
        else {
            assert_int_not_equal(status, TACIT_OK);
            assert_non_null(strstr(err.message, cases[i].reason));
        }
    }
}

static void a_damaged_npz_is_refused(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    tacit_error err = {0};
    load_tensors t = {0}, out;
    ir_shape shape = {1, {40}};
    ir_tensor *x = ir_tensor_new(&a, TACIT_F32, &shape);
    memset(x->data, 7, x->bytes);
    assert_true(vec_push(&a, &t.items, (load_named){"x", *x}));
    assert_true(vec_push(&a, &t.items, (load_named){"y", *x}));
    char path[] = "/tmp/tacit_npz_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(load_npz_write(&t, path, &err), TACIT_OK);
    file_map m;
    assert_int_equal(file_map_open(&m, path, &err), TACIT_OK);
    unsigned char *copy = malloc(m.size);
    assert_non_null(copy);
    for (size_t n = 0; n < m.size; n++) {
        arena cut;
        arena_init(&cut, NULL);
        assert_int_not_equal(load_npz(m.data, n, &cut, &out, &err), TACIT_OK);
        arena_free(&cut);
    }
    /* Any changed byte of the elements breaks the checksum. */
    memcpy(copy, m.data, m.size);
    copy[250] ^= 1;
    assert_int_not_equal(load_npz(copy, m.size, &a, &out, &err), TACIT_OK);
    assert_non_null(strstr(err.message, "checksum"));
    free(copy);
    file_map_close(&m);
    unlink(path);
    arena_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numpy_files_are_read_and_written_as_numpy_does),
        cmocka_unit_test(safetensors_round_trip),
        cmocka_unit_test(bad_safetensors_are_refused_with_a_reason),
        cmocka_unit_test(bad_npy_files_are_refused_with_a_reason),
        cmocka_unit_test(a_damaged_npz_is_refused),
    };
    return cmocka_run_group_tests_name("load tensors", tests, NULL, NULL);
}
