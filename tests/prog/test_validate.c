/* SPDX-License-Identifier: Apache-2.0
 * Validators between the stages: what they find and what each mode makes of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "prog/validate.h"

typedef struct sample {
    arena memory;
    ir_graph *g;
    prog_program *p;
    tacit_error err;
    uint32_t lines; /* logged */
} sample;

static void count_line(void *context, tacit_log_level level, const char *line)
{
    sample *s = context;
    (void)level;
    (void)line;
    s->lines++;
}

/* r = Relu(op(x + x)) */
static void make(sample *s, const char *op)
{
    *s = (sample){0};
    arena_init(&s->memory, NULL);
    s->g = ir_graph_new(&s->memory, "g");
    ir_type type = ir_type_tensor(TACIT_F32, 2, (int64_t[]){4, 4});
    ir_value *x = ir_input_new(s->g, "x", &type);
    ir_node *a = op_node(s->g, "Add", "a", 2, (ir_value *[]){x, x});
    ir_node *t = op_node(s->g, op, "t", 1, (ir_value *[]){a->outputs[0]});
    ir_node *r = op_node(s->g, "Relu", "r", 1, (ir_value *[]){t->outputs[0]});
    assert_true(ir_output_add(s->g, r->outputs[0]));
    assert_int_equal(ir_graph_sort(s->g, &s->err), TACIT_OK);
    assert_int_equal(op_infer_graph(s->g, &s->err), TACIT_OK);
}

static tacit_status build(sample *s, tacit_validate mode)
{
    return prog_build(s->g, &(prog_options){.validate = mode}, &s->p, &s->err);
}

static void finish(sample *s)
{
    prog_free(s->p);
    arena_free(&s->memory);
}

static void sound_programs_pass(void **state)
{
    (void)state;
    sample s;
    make(&s, "Tanh");
    assert_int_equal(validate_graph(s.g, VALIDATE_PASSED, TACIT_VALIDATE_STRICT, NULL, &s.err),
                     TACIT_OK);
    if (build(&s, TACIT_VALIDATE_STRICT) != TACIT_OK)
        fail_msg("%s", s.err.message);
    finish(&s);
}

static void wrong_types_are_found(void **state)
{
    (void)state;
    sample s;
    make(&s, "Tanh");
    s.g->nodes.data[1]->outputs[0]->type.shape.dims[0] = 5;
    assert_int_equal(validate_graph(s.g, VALIDATE_PASSED, TACIT_VALIDATE_NORMAL, NULL, &s.err),
                     TACIT_ERR_INTERNAL);
    assert_non_null(strstr(s.err.message, "[5,4]"));
    assert_non_null(strstr(s.err.message, "[4,4]"));
    assert_int_equal(validate_graph(s.g, VALIDATE_PASSED, TACIT_VALIDATE_NONE, NULL, &s.err),
                     TACIT_OK);
    finish(&s);
}

static void broken_plans_and_pointers_are_found(void **state)
{
    (void)state;
    sample s;
    make(&s, "Tanh");
    assert_int_equal(build(&s, TACIT_VALIDATE_NORMAL), TACIT_OK);
    uint64_t arena_bytes = s.p->plan.arena_bytes;
    s.p->plan.arena_bytes = 8;
    if (arena_bytes)
        assert_int_equal(prog_validate(s.p, VALIDATE_PLAN, &s.err), TACIT_ERR_INTERNAL);
    s.p->plan.arena_bytes = arena_bytes;
    assert_int_equal(prog_validate(s.p, VALIDATE_PLAN, &s.err), TACIT_OK);
    assert_int_equal(prog_validate(s.p, VALIDATE_PROGRAM, &s.err), TACIT_OK);
    assert_true(s.p->input_first[1] > 0);
    s.p->input_patches[0].add = 65;
    assert_int_equal(prog_validate(s.p, VALIDATE_PROGRAM, &s.err), TACIT_ERR_INTERNAL);
    assert_non_null(strstr(s.err.message, "outside its buffer"));
    s.p->input_patches[0].add = 0;
    finish(&s);
}

/* A row without a kernel: a warning, which only strict refuses. */
static tacit_status negate_eval(op_eval *c)
{
    for (int64_t i = 0; i < ir_tensor_count(op_in(c, 0)); i++)
        ((float *)op_out(c, 0)->data)[i] = -((const float *)op_in(c, 0)->data)[i];
    return TACIT_OK;
}
static const op_def negate_row = {.name = "Negate",
                                  .min_in = 1,
                                  .max_in = 1,
                                  .min_out = 1,
                                  .max_out = 1,
                                  .infer = op_infer_same,
                                  .eval = negate_eval};

static void missing_kernels_warn(void **state)
{
    (void)state;
    for (int mode = TACIT_VALIDATE_NORMAL; mode <= TACIT_VALIDATE_NONE; mode++) {
        sample s;
        make(&s, "Tanh");
        s.g->nodes.data[1]->op = &negate_row;
        tacit_log log = {count_line, &s, TACIT_LOG_WARNING};
        tacit_status status = prog_build(
            s.g, &(prog_options){.validate = (tacit_validate)mode, .log = &log}, &s.p, &s.err);
        assert_int_equal(status, mode == TACIT_VALIDATE_STRICT ? TACIT_ERR_UNSUPPORTED : TACIT_OK);
        assert_int_equal(s.lines, mode == TACIT_VALIDATE_NONE ? 0 : 1);
        if (status != TACIT_OK)
            assert_non_null(strstr(s.err.message, "'t'"));
        finish(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sound_programs_pass),
        cmocka_unit_test(wrong_types_are_found),
        cmocka_unit_test(broken_plans_and_pointers_are_found),
        cmocka_unit_test(missing_kernels_warn),
    };
    return cmocka_run_group_tests_name("validators", tests, NULL, NULL);
}
