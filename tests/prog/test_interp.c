/* SPDX-License-Identifier: Apache-2.0
 * The reference interpreter: order, subgraphs with captures, memory that stays bounded. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "prog/interp.h"

/* Counts what is held and the most that ever was. */
typedef struct meter {
    size_t held, peak;
} meter;

static void *meter_alloc(void *context, size_t size, size_t align)
{
    meter *m = context;
    m->held += size;
    m->peak = m->held > m->peak ? m->held : m->peak;
    return alloc_libc.alloc(NULL, size, align);
}

static void meter_release(void *context, void *memory, size_t size)
{
    meter *m = context;
    m->held -= size;
    alloc_libc.release(NULL, memory, size);
}

static ir_value *f32_input(ir_graph *g, const char *name, int64_t n)
{
    ir_type type = ir_type_tensor(TACIT_F32, 1, &n);
    return ir_input_new(g, name, &type);
}

static ir_tensor f32_view(const float *data, int64_t n)
{
    ir_shape shape = ir_shape_of(1, &n);
    return ir_tensor_view(TACIT_F32, &shape, data);
}

static ir_value *add(ir_graph *g, const char *name, ir_value *a, ir_value *b)
{
    ir_node *n = op_node(g, "Add", name, 2, (ir_value *[]){a, b});
    return n->outputs[0];
}

static void adds_and_passes_inputs_through(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    tacit_error err = {0};
    ir_graph *g = ir_graph_new(&a, "g");
    ir_value *x = f32_input(g, "x", 3), *y = f32_input(g, "y", 3);
    ir_value *s = add(g, "s", x, y), *t = add(g, "t", s, x);
    assert_true(ir_output_add(g, t) && ir_output_add(g, x) && ir_output_add(g, s) &&
                ir_output_add(g, t));
    ir_tensor in[] = {f32_view((float[]){1, 2, 3}, 3), f32_view((float[]){10, 20, 30}, 3)};
    ir_tensor out[4];
    assert_int_equal(interp_run(g, (const ir_tensor *[]){&in[0], &in[1]}, out, &a, 0, &err),
                     TACIT_OK);
    assert_memory_equal(out[0].data, ((float[]){12, 24, 36}), 12);
    assert_memory_equal(out[1].data, in[0].data, 12);
    assert_memory_equal(out[2].data, ((float[]){11, 22, 33}), 12);
    assert_memory_equal(out[3].data, out[0].data, 12);
    assert_int_equal(interp_run(g, (const ir_tensor *[]){&in[0], NULL}, out, &a, 0, &err),
                     TACIT_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "'y'"));
    arena_free(&a);
}

static void a_long_chain_holds_a_few_values_only(void **state)
{
    (void)state;
    enum { N = 1 << 16, LENGTH = 200 };
    meter m = {0};
    tacit_allocator hook = {meter_alloc, meter_release, &m};
    arena a, run;
    arena_init(&a, NULL);
    arena_init(&run, &hook);
    tacit_error err = {0};
    ir_graph *g = ir_graph_new(&a, "g");
    ir_value *x = f32_input(g, "x", N), *v = x;
    for (int i = 0; i < LENGTH; i++)
        v = add(g, "v", v, x);
    assert_true(ir_output_add(g, v));
    float *data = arena_array(&a, N, sizeof *data);
    for (int i = 0; i < N; i++)
        data[i] = (float)i;
    ir_tensor in = f32_view(data, N), out;
    assert_int_equal(interp_run(g, (const ir_tensor *[]){&in}, &out, &run, 0, &err), TACIT_OK);
    assert_true(((float *)out.data)[7] == 7.0f * (LENGTH + 1));
    assert_true(m.peak < 4u * N * sizeof(float) + (1 << 20));
    arena_free(&run);
    assert_int_equal(m.held, 0);
    arena_free(&a);
}

/* Runs its subgraph as often as the attribute says, feeding the result back. */
static tacit_status repeat_eval(op_eval *c)
{
    const ir_graph *body = ir_attr_graph(c->node, "body");
    ir_tensor carried = *op_in(c, 0);
    for (int64_t i = 0; i < ir_attr_int(c->node, "times", 1); i++) {
        const ir_tensor *arg = &carried;
        ir_tensor next;
        TRY(c->run_graph(c, body, 1, &arg, 1, &next));
        carried = next;
    }
    return op_eval_copy(c, op_out(c, 0), &carried);
}
static const op_def repeat_row = {.name = "Repeat",
                                  .domain = "test",
                                  .min_in = 1,
                                  .max_in = 1,
                                  .min_out = 1,
                                  .max_out = 1,
                                  .flags = OP_CONTROL,
                                  .eval = repeat_eval};

static ir_graph *repeat_graph(arena *a, int64_t times)
{
    ir_graph *g = ir_graph_new(a, "g");
    ir_value *x = f32_input(g, "x", 2), *step = f32_input(g, "step", 2);
    ir_graph *body = ir_graph_new(a, "body");
    body->parent = g;
    ir_value *carried = f32_input(body, "carried", 2);
    ir_type type = ir_type_tensor(TACIT_F32, 1, (int64_t[]){2});
    ir_value *captured = ir_value_new(body, "captured", &type);
    assert_true(vec_push(a, &body->captures, captured));
    assert_true(ir_output_add(body, add(body, "more", carried, captured)));
    ir_node *n = ir_node_new(g, "Repeat", "test", "repeat", 1, &x, 1, NULL);
    n->op = &repeat_row;
    assert_true(ir_node_append_capture(g, n, step));
    assert_true(ir_attr_set_int(g, n, "times", times));
    assert_true(
        ir_attr_set(g, n, &(ir_attr){.name = "body", .kind = IR_ATTR_GRAPH, .graph = body}));
    assert_true(ir_output_add(g, n->outputs[0]));
    return g;
}

static void run_repeat(interp_env *env)
{
    arena a;
    arena_init(&a, NULL);
    tacit_error err = {0};
    ir_graph *g = repeat_graph(&a, 5);
    ir_tensor in[] = {f32_view((float[]){1, 2}, 2), f32_view((float[]){0.5f, 10}, 2)}, out;
    assert_int_equal(interp_run_env(g, (const ir_tensor *[]){&in[0], &in[1]}, &out, &a, env, &err),
                     TACIT_OK);
    assert_memory_equal(out.data, ((float[]){3.5f, 52}), 8);
    arena_free(&a);
}

static void subgraphs_see_captures(void **state)
{
    (void)state;
    run_repeat(&(interp_env){0});
}

typedef struct watcher {
    uint32_t values, begun;
    float sum;
} watcher;

static void watch(void *context, const ir_node *node, const ir_value *value, const ir_tensor *t)
{
    watcher *w = context;
    w->values++;
    w->sum += ((const float *)t->data)[0];
    assert_ptr_equal(value->producer, node);
}

static void begin(void *context)
{
    watcher *w = context;
    w->begun++;
}

static void watching(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    tacit_error err = {0};
    ir_graph *g = ir_graph_new(&a, "g");
    ir_value *x = f32_input(g, "x", 1), *v = x;
    for (int i = 0; i < 4; i++)
        v = add(g, "v", v, x);
    assert_true(ir_output_add(g, v));
    ir_tensor in = f32_view((float[]){1}, 1), out;
    watcher w = {0};
    interp_env env = {.watch = watch, .begin = begin, .watch_context = &w};
    assert_int_equal(interp_run_env(g, (const ir_tensor *[]){&in}, &out, &a, &env, &err), TACIT_OK);
    assert_int_equal(w.values, 4);
    assert_true(w.sum == 2 + 3 + 4 + 5);
    assert_int_equal(w.begun, 4);
    arena_free(&a);
}

/* Nodes inside of nodes are their affair: who counts or times nodes has a row for each outer one.
 */
static void subgraphs_are_not_watched(void **state)
{
    (void)state;
    watcher w = {0};
    run_repeat(&(interp_env){.watch = watch, .begin = begin, .watch_context = &w});
    assert_int_equal(w.values, 1);
    assert_int_equal(w.begun, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adds_and_passes_inputs_through),
        cmocka_unit_test(a_long_chain_holds_a_few_values_only),
        cmocka_unit_test(subgraphs_see_captures),
        cmocka_unit_test(watching),
        cmocka_unit_test(subgraphs_are_not_watched),
    };
    return cmocka_run_group_tests_name("interpreter", tests, NULL, NULL);
}
