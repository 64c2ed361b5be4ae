/* SPDX-License-Identifier: Apache-2.0
 * The head of a file of packed weights: what is written is read, anything else is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "prog/packed.h"

static packed_head some_head(void)
{
    packed_head h = {.bytes = 123456};
    for (int i = 0; i < PACKED_KEY; i++)
        h.key[i] = (uint8_t)(7 * i + 1);
    return h;
}

static void a_head_is_read_as_written(void **state)
{
    (void)state;
    packed_head h = some_head(), got = {0};
    unsigned char data[PACKED_HEAD];
    packed_head_write(&h, data);
    assert_int_equal(packed_head_read(data, PACKED_HEAD + h.bytes, &got, NULL), TACIT_OK);
    assert_int_equal(got.bytes, h.bytes);
    assert_memory_equal(got.key, h.key, sizeof h.key);
}

static void any_change_is_seen(void **state)
{
    (void)state;
    packed_head h = some_head(), got;
    unsigned char data[PACKED_HEAD];
    packed_head_write(&h, data);
    for (size_t i = 0; i < 96; i++)
        for (int bit = 0; bit < 8; bit++) {
            data[i] ^= (unsigned char)(1 << bit);
            tacit_error err = {0};
            assert_int_equal(packed_head_read(data, PACKED_HEAD + h.bytes, &got, &err),
                             TACIT_ERR_FORMAT);
            assert_true(err.message[0]);
            data[i] ^= (unsigned char)(1 << bit);
        }
}

static void the_size_must_be_right(void **state)
{
    (void)state;
    packed_head h = some_head(), got;
    unsigned char data[PACKED_HEAD];
    packed_head_write(&h, data);
    uint64_t right = PACKED_HEAD + h.bytes;
    const uint64_t wrong[] = {0, 1, PACKED_HEAD - 1, PACKED_HEAD, right - 1, right + 1, UINT64_MAX};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(packed_head_read(data, wrong[i], &got, NULL), TACIT_ERR_FORMAT);
    h.bytes = UINT64_MAX - PACKED_HEAD + 1; /* whose sum with the head is 0 */
    packed_head_write(&h, data);
    assert_int_equal(packed_head_read(data, 0, &got, NULL), TACIT_ERR_FORMAT);
    assert_int_equal(packed_head_read(data, PACKED_HEAD, &got, NULL), TACIT_ERR_FORMAT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_head_is_read_as_written),
        cmocka_unit_test(any_change_is_seen),
        cmocka_unit_test(the_size_must_be_right),
    };
    return cmocka_run_group_tests_name("packed weights", tests, NULL, NULL);
}
