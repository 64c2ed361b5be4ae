/* SPDX-License-Identifier: Apache-2.0
 * The wire reader: by itself at its edges, and against protobuf-c on every conformance file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "load/load.h"
#include "load/wire.h"
#include "load/wire_write.h"
#include "support/suite.h"

static tacit_status next(const char *bytes, size_t size, wire_field *f, bool *more)
{
    wire w = wire_open((wire_span){(const uint8_t *)bytes, size}, "test");
    tacit_error err = {0};
    *more = wire_next(&w, f, &err);
    tacit_status status = wire_status(&w);
    if (status != TACIT_OK)
        assert_non_null(strstr(err.message, "test: "));
    return status;
}

static void fields_end_where_they_must(void **state)
{
    (void)state;
    wire_field f;
    bool more;
    assert_int_equal(next("", 0, &f, &more), TACIT_OK);
    assert_false(more);
    assert_int_equal(next("\x08\x96\x01", 3, &f, &more), TACIT_OK);
    assert_int_equal(f.number, 1);
    assert_int_equal(f.value, 150);
    assert_int_equal(next("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11, &f, &more), TACIT_OK);
    assert_int_equal((int64_t)f.value, -1);
    assert_int_equal(next("\x12\x03"
                          "abc",
                          5, &f, &more),
                     TACIT_OK);
    assert_memory_equal(f.bytes.data, "abc", 3);
    /* Cut short, too long, out of range. */
    assert_int_equal(next("\x08", 1, &f, &more), TACIT_ERR_FORMAT);
    assert_int_equal(next("\x08\x80", 2, &f, &more), TACIT_ERR_FORMAT);
    assert_int_equal(next("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 11, &f, &more),
                     TACIT_ERR_FORMAT);
    assert_int_equal(next("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12, &f, &more),
                     TACIT_ERR_FORMAT);
    assert_int_equal(next("\x12\x04"
                          "abc",
                          5, &f, &more),
                     TACIT_ERR_FORMAT);
    assert_int_equal(next("\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11, &f, &more),
                     TACIT_ERR_FORMAT);
    assert_int_equal(next("\x0d\1\2\3", 4, &f, &more), TACIT_ERR_FORMAT);
    assert_int_equal(next("\x09\1\2\3\4\5\6\7", 8, &f, &more), TACIT_ERR_FORMAT);
    assert_int_equal(next("\x0b", 1, &f, &more), TACIT_ERR_FORMAT);     /* groups are not used */
    assert_int_equal(next("\x02\x00", 2, &f, &more), TACIT_ERR_FORMAT); /* field 0 */
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    sbuf b;
    sbuf_init(&b, NULL);
    const int64_t numbers[] = {0, 1, 127, 128, -1, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        wire_put_int(&b, (uint32_t)i + 1, numbers[i]);
    size_t start = wire_begin(&b, 100);
    for (int i = 0; i < 100; i++)
        wire_put_f32(&b, 7, 1.5f);
    wire_end(&b, start);
    wire w = wire_open((wire_span){(const uint8_t *)b.data, b.length}, "test");
    wire_field f;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        int64_t got;
        assert_true(wire_next(&w, &f, NULL));
        assert_int_equal(f.number, i + 1);
        assert_int_equal(wire_int(&w, &f, &got, NULL), TACIT_OK);
        assert_true(got == numbers[i]);
    }
    assert_true(wire_next(&w, &f, NULL));
    assert_int_equal(f.number, 100);
    assert_int_equal(f.bytes.size, 500);
    assert_false(wire_next(&w, &f, NULL));
    assert_int_equal(wire_status(&w), TACIT_OK);
    sbuf_free(&b);
}

#ifdef TACIT_HAVE_PROTOBUF_C
#include "onnx_subset.pb-c.h"

/* Every field of `message` with this number, in turn; NULL data after the last. */
static wire_span nth(wire_span message, uint32_t number, size_t n)
{
    wire w = wire_open(message, "message");
    wire_field f;
    while (wire_next(&w, &f, NULL))
        if (f.number == number && f.type == WIRE_BYTES && n-- == 0)
            return f.bytes;
    assert_int_equal(wire_status(&w), TACIT_OK);
    return (wire_span){0};
}

static void same_text(wire_span got, const char *want)
{
    if (!want)
        want = "";
    assert_int_equal(got.size, strlen(want));
    if (got.size)
        assert_memory_equal(got.data, want, got.size);
}

static void same_numbers(const ir_tensor *t, const Peer__Tensor *p)
{
    for (size_t i = 0; i < p->n_float_data; i++)
        assert_memory_equal((float *)t->data + i, &p->float_data[i], 4);
    for (size_t i = 0; i < p->n_double_data; i++)
        assert_memory_equal((double *)t->data + i, &p->double_data[i], 8);
    for (size_t i = 0; i < p->n_int64_data; i++)
        assert_true(((int64_t *)t->data)[i] == p->int64_data[i]);
    for (size_t i = 0; i < p->n_uint64_data; i++)
        assert_true((uint64_t)ir_load_i64(t->dtype, t->data, (int64_t)i) == p->uint64_data[i]);
    uint32_t bits = tacit_dtype_bits(t->dtype);
    for (size_t i = 0; i < p->n_int32_data; i++) {
        uint32_t got = 0, mask = bits >= 32 ? ~0u : bits < 8 ? 0xffu : (1u << bits) - 1;
        size_t width = bits < 8 ? 1 : bits / 8;
        memcpy(&got, (char *)t->data + i * width, width);
        assert_int_equal(got, (uint32_t)p->int32_data[i] & mask);
    }
    for (size_t i = 0; i < p->n_string_data; i++) {
        ir_string s = ((const ir_string *)t->data)[i];
        assert_int_equal(s.length, p->string_data[i].len);
        assert_memory_equal(s.data, p->string_data[i].data, s.length);
    }
}

static size_t tensors_seen, nodes_seen;

static void same_tensor(wire_span got, const Peer__Tensor *p)
{
    arena a;
    ir_tensor t;
    tacit_error err = {0};
    if (p->data_location)
        return;
    arena_init(&a, NULL);
    assert_int_equal(load_onnx_value(got.data, got.size, IR_TENSOR, &a, &t, &err), TACIT_OK);
    assert_int_equal(ir_dtype_to_onnx(t.dtype), p->data_type);
    assert_int_equal(t.shape.rank, p->n_dims);
    for (size_t i = 0; i < p->n_dims; i++)
        assert_true(t.shape.dims[i] == p->dims[i]);
    if (p->has_raw_data && p->raw_data.len) {
        assert_int_equal(t.bytes, p->raw_data.len);
        assert_memory_equal(t.data, p->raw_data.data, t.bytes);
    } else
        same_numbers(&t, p);
    arena_free(&a);
    tensors_seen++;
}

static void same_graph(wire_span got, const Peer__Graph *p);

static void same_attribute(wire_span got, const Peer__Attribute *p)
{
    wire w = wire_open(got, "attribute");
    wire_field f;
    size_t n_ints = 0, n_floats = 0;
    same_text(nth(got, 1, 0), p->name);
    while (wire_next(&w, &f, NULL)) {
        wire_packed list;
        uint64_t value;
        if (f.number == 3)
            assert_true((int64_t)f.value == p->i);
        if (f.number != 7 && f.number != 8)
            continue;
        assert_int_equal(
            wire_packed_open(&w, &f, f.number == 7 ? WIRE_FIXED32 : WIRE_VARINT, &list, NULL),
            TACIT_OK);
        while (wire_packed_next(&list, &value))
            if (f.number == 8)
                assert_true((int64_t)value == p->ints[n_ints++]);
            else
                assert_memory_equal(&value, &p->floats[n_floats++], 4);
    }
    assert_int_equal(n_ints, p->n_ints);
    assert_int_equal(n_floats, p->n_floats);
    if (p->t)
        same_tensor(nth(got, 5, 0), p->t);
    if (p->g)
        same_graph(nth(got, 6, 0), p->g);
}

static void same_node(wire_span got, const Peer__Node *p)
{
    for (size_t i = 0; i < p->n_input; i++)
        same_text(nth(got, 1, i), p->input[i]);
    assert_null(nth(got, 1, p->n_input).data);
    for (size_t i = 0; i < p->n_output; i++)
        same_text(nth(got, 2, i), p->output[i]);
    same_text(nth(got, 4, 0), p->op_type);
    same_text(nth(got, 7, 0), p->domain);
    for (size_t i = 0; i < p->n_attribute; i++)
        same_attribute(nth(got, 5, i), p->attribute[i]);
    assert_null(nth(got, 5, p->n_attribute).data);
    nodes_seen++;
}

static void same_graph(wire_span got, const Peer__Graph *p)
{
    same_text(nth(got, 2, 0), p->name);
    /* One walk, not nth: light models have hundreds of nodes. */
    wire w = wire_open(got, "graph");
    wire_field f;
    size_t node = 0, weight = 0, input = 0, output = 0;
    while (wire_next(&w, &f, NULL)) {
        if (f.number == 1)
            same_node(f.bytes, p->node[node++]);
        if (f.number == 5)
            same_tensor(f.bytes, p->initializer[weight++]);
        if (f.number == 11)
            same_text(nth(f.bytes, 1, 0), p->input[input++]->name);
        if (f.number == 12)
            same_text(nth(f.bytes, 1, 0), p->output[output++]->name);
    }
    assert_int_equal(wire_status(&w), TACIT_OK);
    assert_int_equal(node, p->n_node);
    assert_int_equal(weight, p->n_initializer);
    assert_int_equal(input, p->n_input);
    assert_int_equal(output, p->n_output);
}

static void same_model(void *context, const char *path)
{
    (void)context;
    file_map m;
    assert_int_equal(file_map_open(&m, path, NULL), TACIT_OK);
    Peer__Model *p = peer__model__unpack(NULL, m.size, m.data);
    assert_non_null(p);
    same_graph(nth((wire_span){m.data, m.size}, 7, 0), p->graph);
    peer__model__free_unpacked(p, NULL);
    file_map_close(&m);
}

static void every_conformance_file_reads_as_protobuf_c_reads_it(void **state)
{
    (void)state;
    const char *folder = suite_folder();
    if (!folder)
        skip();
    size_t models = suite_each_model(folder, same_model, NULL);
    printf("%zu models, %zu nodes, %zu tensors read alike\n", models, nodes_seen, tensors_seen);
    assert_true(models > 1900 && nodes_seen > 10000 && tensors_seen > 1000);
}
#else
static void every_conformance_file_reads_as_protobuf_c_reads_it(void **state)
{
    (void)state;
    fprintf(stderr, "*** SKIPPED: built without protobuf-c\n");
    skip();
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_end_where_they_must),
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(every_conformance_file_reads_as_protobuf_c_reads_it),
    };
    return cmocka_run_group_tests_name("load wire", tests, NULL, NULL);
}
