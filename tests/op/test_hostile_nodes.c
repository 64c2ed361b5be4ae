/* SPDX-License-Identifier: Apache-2.0
 * Every row of the table with inputs and attributes that mostly make no sense: whatever comes back
 * is a status with a message or a well-formed result, never a touch outside a buffer (the
 * sanitised run of this test sees those). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "prog/interp.h"
#include "support/odd_node.h"

enum { SEEDS = 300 };

/* A result says what it is and holds that much. */
static void check_result(const ir_tensor *t)
{
    if (t->kind != IR_TENSOR || !t->data)
        return;
    assert_true(ir_shape_is_static(&t->shape));
    assert_true(tacit_dtype_bits(t->dtype) > 0);
    volatile unsigned char sum = 0;
    for (size_t i = 0; i < t->bytes; i++)
        sum = (unsigned char)(sum + ((const unsigned char *)t->data)[i]);
}

static bool try_row(const op_def *row, uint64_t seed)
{
    arena a;
    arena_init(&a, NULL);
    odd_node n;
    odd_node_make(&a, row, seed, false, &n);
    ir_tensor out[ODD_VALUES] = {0};
    tacit_error err = {0};
    tacit_status status = op_infer_graph(n.graph, &err);
    if (status == TACIT_OK)
        status = interp_run(n.graph, n.given, out, &a, 0, &err);
    if (status != TACIT_OK && !err.message[0])
        fail_msg("%s, seed %llu: status %d without a message", row->name, (unsigned long long)seed,
                 (int)status);
    for (uint32_t i = 0; status == TACIT_OK && i < n.n_out; i++)
        check_result(&out[i]);
    arena_free(&a);
    return status == TACIT_OK;
}

static void no_row_can_be_led_outside_its_buffers(void **state)
{
    (void)state;
    const op_def *row;
    uint64_t ran = 0, tried = 0;
    for (uint32_t k = 0; (row = op_at(k)); k++) {
        if (!row->eval)
            continue;
        for (uint64_t seed = 0; seed < SEEDS; seed++, tried++)
            ran += try_row(row, seed);
    }
    print_message("%llu of %llu odd nodes ran\n", (unsigned long long)ran,
                  (unsigned long long)tried);
    assert_true(ran > tried / 50);
}

/* test_op_hostile_nodes NAME [SEED]: one row again, perhaps one seed of it. */
static int again(const char *name, const char *seed_text)
{
    const op_def *row;
    unsigned long long only = 0;
    bool one = seed_text && sscanf(seed_text, "%llu", &only) == 1;
    for (uint32_t k = 0; (row = op_at(k)); k++)
        for (uint64_t seed = one ? only : 0; seed < (one ? only + 1 : SEEDS); seed++)
            if (strcmp(row->name, name) == 0 && row->eval) {
                fprintf(stderr, "%s %llu\n", name, (unsigned long long)seed);
                try_row(row, seed);
            }
    return 0;
}

/* A node that asks for absurdly much memory is to be refused it, not to take the machine down. */
static void limit_memory(void)
{
#ifndef __SANITIZE_ADDRESS__
    struct rlimit limit = {UINT64_C(4) << 30, UINT64_C(4) << 30};
    (void)setrlimit(RLIMIT_AS, &limit);
#endif
}

int main(int argc, char **argv)
{
    limit_memory();
    if (argc > 1)
        return again(argv[1], argc > 2 ? argv[2] : NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_row_can_be_led_outside_its_buffers),
    };
    return cmocka_run_group_tests_name("hostile nodes", tests, NULL, NULL);
}
