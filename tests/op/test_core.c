/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "op/lower.h"
#include "op/op.h"

static void a_small_graph_infers_and_folds_known_values(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    tacit_error err = {0};
    ir_graph *g = ir_graph_new(&a, "g");
    ir_value *c = ir_constant_i64(g, "c", 1, 3, (int64_t[]){1, 2, 3});
    ir_type type = ir_type_tensor(TACIT_I64, 2, (int64_t[]){2, 1});
    type.shape.dims[0] = IR_DIM_SYMBOL(ir_symbol_index(g, "N"));
    ir_value *x = ir_input_new(g, "x", &type);
    ir_node *twice = op_node(g, "Add", "twice", 2, (ir_value *[]){c, c});
    ir_node *sum = op_node(g, "Add", "sum", 2, (ir_value *[]){x, twice->outputs[0]});
    assert_true(ir_output_add(g, sum->outputs[0]));
    assert_int_equal(op_bind_symbols(g, 0, NULL, &err), TACIT_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "'N'"));
    assert_int_equal(op_bind_symbols(g, 1, &(op_binding){"N", 5}, &err), TACIT_OK);
    assert_int_equal(ir_graph_sort(g, &err), TACIT_OK);
    assert_int_equal(op_infer_graph(g, &err), TACIT_OK);
    assert_int_equal(sum->outputs[0]->type.shape.dims[0], 5);
    assert_int_equal(sum->outputs[0]->type.shape.dims[1], 3);
    assert_memory_equal(twice->outputs[0]->constant->data, ((int64_t[]){2, 4, 6}), 24);
    assert_null(sum->outputs[0]->constant);
    ir_graph *copy = ir_graph_clone(g, &a);
    assert_non_null(copy);
    assert_int_equal(copy->nodes.count, 2);
    assert_ptr_equal(copy->nodes.data[1]->inputs[1], copy->nodes.data[0]->outputs[0]);
    arena_free(&a);
}

static void cycles_are_named(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    tacit_error err = {0};
    ir_graph *g = ir_graph_new(&a, "g");
    ir_type type = ir_type_tensor(TACIT_F32, 1, (int64_t[]){2});
    ir_value *x = ir_input_new(g, "x", &type);
    ir_node *p = op_node(g, "Add", "p", 2, (ir_value *[]){x, x});
    ir_node *q = op_node(g, "Add", "q", 2, (ir_value *[]){x, p->outputs[0]});
    p->inputs[1] = q->outputs[0];
    assert_int_equal(ir_graph_sort(g, &err), TACIT_ERR_GRAPH);
    assert_non_null(strstr(err.message, "cycle"));
    arena_free(&a);
}

static void small_floats_round_trip(void **state)
{
    (void)state;
    const struct {
        tacit_dtype dtype;
        int patterns;
    } kinds[] = {{TACIT_F16, 65536},      {TACIT_BF16, 65536}, {TACIT_F8E4M3FN, 256},
                 {TACIT_F8E4M3FNUZ, 256}, {TACIT_F8E5M2, 256}, {TACIT_F8E5M2FNUZ, 256},
                 {TACIT_F8E8M0, 256},     {TACIT_F4E2M1, 16}};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (int i = 0; i < kinds[k].patterns; i++) {
            uint16_t bits = (uint16_t)i, back = 0;
            double v = ir_load_f64(kinds[k].dtype, &bits, 0);
            if (v != v)
                continue;
            ir_store_f64_saturate(kinds[k].dtype, &back, 0, v, false);
            assert_int_equal(back, bits);
        }
}

/* By the processor's largest cache, and by a default where nobody said how large it is. */
static void constants_beyond_the_caches_are_streamed(void **state)
{
    (void)state;
    op_lower c = {.constant_bytes = (size_t)12 << 20, .cpu = {.cache_bytes = UINT64_C(8) << 20}};
    assert_true(op_lower_streams(&c));
    c.cpu.cache_bytes = UINT64_C(64) << 20;
    assert_false(op_lower_streams(&c));
    c.cpu.cache_bytes = 0;
    assert_false(op_lower_streams(&c));
    c.constant_bytes = CPU_CACHE_DEFAULT;
    assert_true(op_lower_streams(&c));
}

/* What has the same name as an earlier one, or none, is not found. */
static void rows_are_found_by_name(void **state)
{
    (void)state;
    uint32_t n = 0;
    for (const op_def *row; (row = op_at(n)); n++) {
        const op_def *found = op_find(NULL, row->domain ? row->domain : "", row->name);
        for (uint32_t i = 0; i <= n && found != row; i++)
            row = found == op_at(i) ? found : row;
        assert_ptr_equal(found, row);
    }
    assert_in_range(n, 200, OP_MOST);
    assert_null(op_find(NULL, "", "NoSuchOp"));
    assert_null(op_find(NULL, "tacit", "Relu"));
    assert_null(op_find(NULL, "no.domain", "Relu"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_small_graph_infers_and_folds_known_values),
        cmocka_unit_test(cycles_are_named),
        cmocka_unit_test(small_floats_round_trip),
        cmocka_unit_test(constants_beyond_the_caches_are_streamed),
        cmocka_unit_test(rows_are_found_by_name),
    };
    return cmocka_run_group_tests_name("op core", tests, NULL, NULL);
}
