/* SPDX-License-Identifier: Apache-2.0
 * Sequences, optionals and control flow, run by the interpreter on graphs written as text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ir/text.h"
#include "prog/interp.h"
#include "support/op_case.h"

typedef struct run {
    arena memory;
    ir_tensor out[4];
    tacit_error err;
} run;

static void resolve(ir_graph *g);
static tacit_status resolve_sub(void *context, ir_graph *sub)
{
    (void)context;
    resolve(sub);
    return TACIT_OK;
}
static void resolve(ir_graph *g)
{
    for (uint32_t i = 0; i < g->nodes.count; i++) {
        op_resolve(NULL, g->nodes.data[i]);
        assert_int_equal(ir_node_subgraphs(g->nodes.data[i], resolve_sub, NULL), TACIT_OK);
    }
}

/* Runs the graph with up to two f32 vectors as inputs. */
static tacit_status run_text(run *r, const char *text, uint32_t n, const ir_tensor *const *inputs)
{
    ir_graph *g = NULL;
    *r = (run){0};
    arena_init(&r->memory, NULL);
    if (ir_graph_parse(text, strlen(text), &r->memory, &g, &r->err) != TACIT_OK)
        fail_msg("%s", r->err.message);
    resolve(g);
    assert_int_equal(n, g->inputs.count);
    assert_true(g->outputs.count <= 4);
    return interp_run(g, inputs, r->out, &r->memory, 0, &r->err);
}

static void expect(const ir_tensor *t, tacit_dtype dtype, ir_shape shape, const double *want)
{
    char a[IR_SHAPE_TEXT], b[IR_SHAPE_TEXT];
    assert_int_equal(t->dtype, dtype);
    assert_string_equal(ir_shape_text(&t->shape, a), ir_shape_text(&shape, b));
    for (int64_t i = 0; i < ir_shape_size(&shape); i++)
        assert_true(ir_load_f64(dtype, t->data, i) == want[i]);
}

static ir_tensor vector(int64_t n, const float *values)
{
    ir_shape s = SHAPE(n);
    return ir_tensor_view(TACIT_F32, &s, values);
}

static const char *const loop_text =
    "tacit 1\n"
    "graph \"main\" {\n"
    "  in %m : i64[]\n"
    "  in %c : bool[]\n"
    "  in %x : f32[1]\n"
    "  const %one : f32[1] = [1.0]\n"
    "  %last, %all = Loop(%m, %c, %x | %one) body=graph \"body\" {\n"
    "    in %i : i64[]\n"
    "    in %k : bool[]\n"
    "    in %s : f32[1]\n"
    "    capture %step : f32[1]\n"
    "    const %limit : f32[1] = [5.0]\n"
    "    const %axes : i64[1] = [0]\n"
    "    %next : f32[1] = Add(%s, %step) @add\n"
    "    %less = Less(%next, %limit) @less\n"
    "    %again = Squeeze(%less, %axes) @squeeze\n"
    "    out %again\n"
    "    out %next\n"
    "    out %next\n"
    "  } @loop\n"
    "  out %last\n"
    "  out %all\n"
    "}\n";

static void run_loop(run *r, int64_t trips, bool going, float x)
{
    uint8_t flag = going;
    ir_shape scalar = SCALAR;
    ir_tensor m = ir_tensor_view(TACIT_I64, &scalar, &trips);
    ir_tensor c = ir_tensor_view(TACIT_BOOL, &scalar, &flag), v = vector(1, &x);
    if (run_text(r, loop_text, 3, (const ir_tensor *[]){&m, &c, &v}) != TACIT_OK)
        fail_msg("%s", r->err.message);
}

static void loops_end_by_count_or_condition(void **state)
{
    (void)state;
    run r;
    run_loop(&r, 3, true, 0);
    expect(&r.out[0], TACIT_F32, SHAPE(1), (double[]){3});
    expect(&r.out[1], TACIT_F32, SHAPE(3, 1), (double[]){1, 2, 3});
    arena_free(&r.memory);
    run_loop(&r, 100, true, 2); /* stops when the sum reaches 5 */
    expect(&r.out[0], TACIT_F32, SHAPE(1), (double[]){5});
    expect(&r.out[1], TACIT_F32, SHAPE(3, 1), (double[]){3, 4, 5});
    arena_free(&r.memory);
    run_loop(&r, 100, false, 2); /* never starts: no scan rows, the state as it came */
    expect(&r.out[0], TACIT_F32, SHAPE(1), (double[]){2});
    expect(&r.out[1], TACIT_F32, SHAPE(0, 1), NULL);
    arena_free(&r.memory);
}

static void branches_capture_outer_values(void **state)
{
    (void)state;
    const char *text = "tacit 1\n"
                       "graph \"main\" {\n"
                       "  in %c : bool[]\n"
                       "  in %x : f32[2]\n"
                       "  %y = If(%c | %x) else_branch=graph \"no\" {\n"
                       "    capture %v : f32[2]\n"
                       "    %n = Neg(%v) @neg\n"
                       "    out %n\n"
                       "  } then_branch=graph \"yes\" {\n"
                       "    capture %v : f32[2]\n"
                       "    out %v\n"
                       "  } @if\n"
                       "  out %y\n"
                       "}\n";
    for (int yes = 0; yes < 2; yes++) {
        uint8_t flag = (uint8_t)yes;
        ir_shape scalar = SCALAR;
        ir_tensor c = ir_tensor_view(TACIT_BOOL, &scalar, &flag);
        ir_tensor x = vector(2, (float[]){1, -2});
        run r;
        assert_int_equal(run_text(&r, text, 2, (const ir_tensor *[]){&c, &x}), TACIT_OK);
        expect(&r.out[0], TACIT_F32, SHAPE(2), yes ? (double[]){1, -2} : (double[]){-1, 2});
        arena_free(&r.memory);
    }
}

static void scans_walk_both_ways(void **state)
{
    (void)state;
    const char *text = "tacit 1\n"
                       "graph \"main\" {\n"
                       "  in %s : f32[1]\n"
                       "  in %x : f32[3]\n"
                       "  %last, %all = Scan(%s, %x) body=graph \"body\" {\n"
                       "    in %a : f32[1]\n"
                       "    in %b : f32[]\n"
                       "    %sum = Add(%a, %b) @add\n"
                       "    out %sum\n"
                       "    out %sum\n"
                       "  } num_scan_inputs=1 scan_input_directions=[1] scan_output_axes=[-1] "
                       "scan_output_directions=[1] @scan\n"
                       "  out %last\n"
                       "  out %all\n"
                       "}\n";
    ir_tensor s = vector(1, (float[]){0.5f}), x = vector(3, (float[]){1, 2, 4});
    run r;
    if (run_text(&r, text, 2, (const ir_tensor *[]){&s, &x}) != TACIT_OK)
        fail_msg("%s", r.err.message);
    expect(&r.out[0], TACIT_F32, SHAPE(1), (double[]){7.5});
    expect(&r.out[1], TACIT_F32, SHAPE(1, 3), (double[]){7.5, 6.5, 4.5});
    arena_free(&r.memory);
}

/* Split, insert at the front, erase the last, stack. */
static void sequences_edit(void **state)
{
    (void)state;
    const char *text = "tacit 1\n"
                       "graph \"main\" {\n"
                       "  in %x : f32[4]\n"
                       "  in %y : f32[2]\n"
                       "  const %two : i64[] = [2]\n"
                       "  const %zero : i64[] = [0]\n"
                       "  const %back : i64[] = [-1]\n"
                       "  %s = SplitToSequence(%x, %two) @split\n"
                       "  %t = SequenceInsert(%s, %y, %zero) @insert\n"
                       "  %u = SequenceErase(%t) @erase\n"
                       "  %n = SequenceLength(%u) @length\n"
                       "  %a = SequenceAt(%u, %back) @at\n"
                       "  %j = ConcatFromSequence(%u) axis=1 new_axis=1 @join\n"
                       "  out %n\n"
                       "  out %a\n"
                       "  out %j\n"
                       "}\n";
    ir_tensor x = vector(4, (float[]){1, 2, 3, 4}), y = vector(2, (float[]){8, 9});
    run r;
    if (run_text(&r, text, 2, (const ir_tensor *[]){&x, &y}) != TACIT_OK)
        fail_msg("%s", r.err.message);
    expect(&r.out[0], TACIT_I64, SCALAR, (double[]){2});
    expect(&r.out[1], TACIT_F32, SHAPE(2), (double[]){1, 2});
    expect(&r.out[2], TACIT_F32, SHAPE(2, 2), (double[]){8, 1, 9, 2});
    arena_free(&r.memory);
}

static void positions_outside_are_refused(void **state)
{
    (void)state;
    const char *text = "tacit 1\n"
                       "graph \"main\" {\n"
                       "  in %x : f32[4]\n"
                       "  const %far : i64[] = [4]\n"
                       "  %s = SequenceConstruct(%x, %x) @make\n"
                       "  %a = SequenceAt(%s, %far) @at\n"
                       "  out %a\n"
                       "}\n";
    ir_tensor x = vector(4, (float[]){1, 2, 3, 4});
    run r;
    assert_int_equal(run_text(&r, text, 1, (const ir_tensor *[]){&x}), TACIT_ERR_VALUE);
    assert_non_null(strstr(r.err.message, "position 4"));
    arena_free(&r.memory);
}

static void maps_and_optionals(void **state)
{
    (void)state;
    const char *text = "tacit 1\n"
                       "graph \"main\" {\n"
                       "  in %x : f32[2]\n"
                       "  %s = SequenceConstruct(%x, %x, %x) @make\n"
                       "  %m = SequenceMap(%s, %x) body=graph \"twice\" {\n"
                       "    in %a : f32[2]\n"
                       "    in %b : f32[2]\n"
                       "    %c = Add(%a, %b) @add\n"
                       "    out %c\n"
                       "  } @map\n"
                       "  %o = Optional(%m) @wrap\n"
                       "  %has = OptionalHasElement(%o) @has\n"
                       "  %none = Optional() type=type f32[2] @none\n"
                       "  %lacks = OptionalHasElement(%none) @lacks\n"
                       "  %e = OptionalGetElement(%o) @get\n"
                       "  %j = ConcatFromSequence(%e) axis=0 @join\n"
                       "  out %has\n"
                       "  out %lacks\n"
                       "  out %j\n"
                       "}\n";
    ir_tensor x = vector(2, (float[]){1, 2});
    run r;
    if (run_text(&r, text, 1, (const ir_tensor *[]){&x}) != TACIT_OK)
        fail_msg("%s", r.err.message);
    expect(&r.out[0], TACIT_BOOL, SCALAR, (double[]){1});
    expect(&r.out[1], TACIT_BOOL, SCALAR, (double[]){0});
    expect(&r.out[2], TACIT_F32, SHAPE(6), (double[]){2, 4, 2, 4, 2, 4});
    arena_free(&r.memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loops_end_by_count_or_condition),
        cmocka_unit_test(branches_capture_outer_values),
        cmocka_unit_test(scans_walk_both_ways),
        cmocka_unit_test(sequences_edit),
        cmocka_unit_test(positions_outside_are_refused),
        cmocka_unit_test(maps_and_optionals),
    };
    return cmocka_run_group_tests_name("control flow", tests, NULL, NULL);
}
