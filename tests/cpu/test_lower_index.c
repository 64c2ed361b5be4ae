/* SPDX-License-Identifier: Apache-2.0
 * Lower rules that read and write where indices say, and element-wise ones on integers, against
 * their evaluators; indices outside are refused in the evaluator's words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "cpu/index.h"
#include "prog/program.h"
#include "support/lower_check.h"

static const tacit_dtype sizes[] = {TACIT_U8,  TACIT_F16, TACIT_F32,
                                    TACIT_I64, TACIT_F64, TACIT_C128};
enum { SIZES = sizeof sizes / sizeof *sizes };

static void indices(op_case *c, rng *r, bool narrow, ir_shape shape, int64_t n)
{
    op_case_random(c, r, narrow ? TACIT_I32 : TACIT_I64, shape, (double)-n, (double)n);
}

static void gathers_of_every_size(void **state)
{
    (void)state;
    rng r = rng_seed(50);
    for (int k = 0; k < SIZES; k++)
        for (int64_t axis = 0; axis < 3; axis++) {
            static const int64_t dims[] = {5, 40, 70};
            op_case c;
            op_case_begin(&c, "", "GatherElements");
            op_case_random(&c, &r, sizes[k], SHAPE(5, 40, 70), 0, 200);
            indices(&c, &r, k % 2, SHAPE(4, 33, 65), dims[axis]);
            op_case_int(&c, "axis", axis);
            lower_check(&c, &r, 1, 0, 0);
            op_case_end(&c);
            op_case_begin(&c, "", "Gather");
            op_case_random(&c, &r, sizes[k], SHAPE(5, 40, 70), 0, 200);
            indices(&c, &r, k % 2, SHAPE(3, 2), dims[axis]);
            op_case_int(&c, "axis", axis);
            lower_check(&c, &r, 1, 0, 0);
            op_case_end(&c);
            op_case_begin(&c, "", "GatherND");
            op_case_random(&c, &r, sizes[k], SHAPE(3, 6, 6, 9), 0, 200);
            indices(&c, &r, k % 2, SHAPE(3, 50, axis + 1), axis == 2 ? 6 : 3);
            op_case_int(&c, "batch_dims", axis == 2 ? 1 : 0);
            lower_check(&c, &r, 1, 0, 0);
            op_case_end(&c);
        }
}

static void scatters_of_every_reduction(void **state)
{
    (void)state;
    static const char *const how[] = {"none", "add", "mul", "max", "min"};
    rng r = rng_seed(51);
    for (int k = 0; k < SIZES; k++)
        for (int h = 0; h < 5; h++)
            for (int64_t axis = 0; axis < 3; axis++) {
                static const int64_t dims[] = {6, 20, 30};
                bool known = h == 0 || (sizes[k] != TACIT_C128 && sizes[k] != TACIT_F16);
                if (sizes[k] == TACIT_C128 && h > 0)
                    continue;
                op_case c;
                op_case_begin(&c, "", "ScatterElements");
                op_case_random(&c, &r, sizes[k], SHAPE(6, 20, 30), 0, 4);
                indices(&c, &r, k % 2, SHAPE(5, 17, 29), dims[axis]);
                op_case_random(&c, &r, sizes[k], SHAPE(5, 17, 29), 0, 4);
                op_case_int(&c, "axis", axis);
                op_case_string(&c, "reduction", how[h]);
                known ? lower_check(&c, &r, 1, 0, 0) : lower_check_none(&c, 1);
                op_case_end(&c);
                op_case_begin(&c, "", "ScatterND");
                op_case_random(&c, &r, sizes[k], SHAPE(6, 6, 700), 0, 4);
                indices(&c, &r, k % 2, SHAPE(9, axis % 2 + 1), 6);
                ir_shape one = SHAPE(9, 6, 700), two = SHAPE(9, 700);
                op_case_random(&c, &r, sizes[k], axis % 2 ? two : one, 0, 4);
                op_case_string(&c, "reduction", how[h]);
                known ? lower_check(&c, &r, 1, 0, 0) : lower_check_none(&c, 1);
                op_case_end(&c);
            }
}

static void one_hot_leaves_columns_off(void **state)
{
    (void)state;
    rng r = rng_seed(52);
    for (int k = 0; k < SIZES; k++)
        for (int64_t axis = -1; axis < 2; axis++) {
            op_case c;
            op_case_begin(&c, "", "OneHot");
            indices(&c, &r, k % 2, SHAPE(20, 30), 12); /* of 9: some are outside */
            op_case_i64(&c, TACIT_I64, SHAPE(1), (int64_t[]){9});
            op_case_random(&c, &r, sizes[k], SHAPE(2), 0, 100);
            op_case_int(&c, "axis", axis);
            lower_check(&c, &r, 1, 2, 0);
            op_case_end(&c);
        }
}

static void integers_and_doubles(void **state)
{
    (void)state;
    static const char *const ops[] = {"Add",  "Sub",   "Mul",     "Min",         "Max",
                                      "Less", "Equal", "Greater", "LessOrEqual", "GreaterOrEqual"};
    static const tacit_dtype types[] = {TACIT_I8,  TACIT_I16, TACIT_I32, TACIT_I64, TACIT_U8,
                                        TACIT_U16, TACIT_U32, TACIT_U64, TACIT_F64};
    rng r = rng_seed(53);
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        op_case c;
        for (size_t o = 0; o < sizeof ops / sizeof *ops; o++) {
            bool real = types[t] == TACIT_F64;
            if (real && (o == 3 || o == 4))
                continue;
            double low = t < 4 || real ? -9 : 0;
            for (int way = 0; way < 3; way++) {
                op_case_begin(&c, "", ops[o]);
                op_case_random(&c, &r, types[t], way == 1 ? SHAPE(70, 1) : SHAPE(70, 600), low, 9);
                op_case_random(&c, &r, types[t], way == 2 ? SCALAR : SHAPE(600), low, 9);
                lower_check(&c, &r, 1, 0, 0);
                op_case_end(&c);
            }
        }
        op_case_begin(&c, "", "Where");
        op_case_random(&c, &r, TACIT_BOOL, SHAPE(70, 1), 0, 2);
        op_case_random(&c, &r, types[t], SHAPE(70, 600), 0, 100);
        op_case_random(&c, &r, types[t], SHAPE(600), 0, 100);
        lower_check(&c, &r, 1, 0, 0);
        op_case_end(&c);
        for (int64_t k = -3; k <= 80; k += 83) {
            op_case_begin(&c, "", "Trilu");
            op_case_random(&c, &r, types[t], SHAPE(3, 40, 70), 1, 100);
            op_case_i64(&c, TACIT_I64, SCALAR, &k);
            op_case_int(&c, "upper", k > 0);
            lower_check(&c, &r, 1, 0, 0);
            op_case_end(&c);
        }
    }
}

/* The compiled node refuses with the evaluator's status and words. */
static void same_refusal(op_case *c)
{
    assert_int_equal(op_case_try(c, 1), TACIT_ERR_VALUE);
    arena a;
    arena_init(&a, NULL);
    ir_graph *g = ir_graph_new(&a, "g");
    ir_value *in[4];
    for (uint32_t i = 0; i < c->n_in; i++) {
        ir_type type = ir_tensor_type(c->in[i]);
        in[i] = ir_input_new(g, NULL, &type);
    }
    ir_node *n = op_node(g, c->type, "n", c->n_in, in);
    assert_true(n && ir_attr_copy_all(g, n, c->node) && ir_output_add(g, n->outputs[0]));
    tacit_error err = {0};
    prog_program *program = NULL;
    prog_session *session = NULL;
    ir_tensor out = {0};
    assert_int_equal(op_infer_graph(g, &err), TACIT_OK);
    for (int tasks = 0; tasks < 2; tasks++) {
        prog_options o = {.executor = tasks ? TACIT_EXEC_TASKS : TACIT_EXEC_SERIAL, .threads = 2};
        assert_int_equal(prog_build(g, &o, &program, &err), TACIT_OK);
        assert_int_equal(prog_session_create(program, &session, &err), TACIT_OK);
        assert_int_equal(prog_run_values(session, c->in, &out, &a, &err), TACIT_ERR_VALUE);
        const char *words = strstr(c->err.message, "index ");
        if (!words || !strstr(err.message, words))
            fail_msg("'%s', not '%s'", err.message, c->err.message);
        prog_session_free(session);
        prog_free(program);
    }
    arena_free(&a);
}

static void indices_outside_are_named(void **state)
{
    (void)state;
    static const char *const ops[] = {"Gather", "GatherElements", "GatherND", "ScatterElements",
                                      "ScatterND"};
    for (int i = 0; i < 5; i++)
        for (int high = 0; high < 2; high++) {
            rng r = rng_seed(54);
            op_case c;
            op_case_begin(&c, "", ops[i]);
            op_case_random(&c, &r, TACIT_F32, SHAPE(4, 3), 0, 1);
            op_case_i64(&c, TACIT_I64, i == 2 || i == 4 ? SHAPE(3, 1) : SHAPE(3, 3),
                        (int64_t[]){0, 1, high ? 4 : -5, -4, 3, 0, 1, 1, 1});
            if (i >= 3)
                op_case_random(&c, &r, TACIT_F32, SHAPE(3, 3), 0, 1);
            same_refusal(&c);
            op_case_end(&c);
        }
}

/* Rows of a table that are copied from its file. The table in memory has other numbers, so that it
 * shows which of the two was read. */
static void rows_come_from_the_file(void **state)
{
    (void)state;
    enum { ROWS = 90, ROW = 33, SKIP = 5, COUNT = 7 };
    static int32_t there[SKIP + ROWS * ROW], here[ROWS * ROW], got[COUNT * ROW];
    static const int64_t index[COUNT] = {3, -1, 0, 89, 90, 44, 3}; /* one is outside */
    for (int i = 0; i < SKIP + ROWS * ROW; i++)
        there[i] = i * 7 + 1;
    for (int i = 0; i < ROWS * ROW; i++)
        here[i] = -i;
    FILE *f = tmpfile();
    struct stat st;
    assert_true(f && fwrite(there, sizeof there, 1, f) == 1 && fflush(f) == 0);
    assert_int_equal(fstat(fileno(f), &st), 0);
    cpu_fault fault = {0};
    cpu_gather_args a = {
        .from = (const char *)here,
        .to = (char *)got,
        .where = {.index = index, .fault = &fault, .depth = 1},
        .run = sizeof *here * ROW,
        .apart = true,
        .file = {fileno(f), (uint64_t)st.st_dev, (uint64_t)st.st_ino, SKIP * sizeof *there}};
    a.where.limit[0] = ROWS;
    a.where.step[0] = a.run;
    cpu_nd_begin(&a.nd, 1, (int64_t[]){COUNT});
    cpu_nd_operand(&a.nd, (int64_t[]){0});
    cpu_nd_operand(&a.nd, (int64_t[]){1});
    cpu_nd_operand(&a.nd, (int64_t[]){1});
    uint32_t tiles = cpu_nd_ready(&a.nd, 2);
    assert_true(tiles > 1);
    /* As it should be; cut short; another file under the same number. */
    for (int turn = 0; turn < 3; turn++) {
        FILE *other = turn == 2 ? tmpfile() : NULL;
        if (turn == 1)
            assert_int_equal(ftruncate(fileno(f), (SKIP + 44 * ROW) * sizeof *there), 0);
        if (turn == 2)
            assert_true(other && fwrite(there, sizeof there, 1, other) == 1 && fflush(other) == 0 &&
                        dup2(fileno(other), fileno(f)) >= 0);
        memset(got, 1, sizeof got);
        for (uint32_t t = 0; t < tiles; t++)
            cpu_gather(&a, t, t + 1);
        for (int i = 0; i < COUNT; i++)
            for (int k = 0; k < ROW; k++) {
                int64_t row = index[i] < 0 ? index[i] + ROWS : index[i];
                bool file = turn == 0 || (turn == 1 && row < 44);
                int64_t want = row == ROWS ? 0
                               : file      ? there[SKIP + row * ROW + k]
                                           : here[row * ROW + k];
                assert_int_equal(got[i * ROW + k], want);
            }
        if (other)
            fclose(other);
    }
    fclose(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gathers_of_every_size),      cmocka_unit_test(scatters_of_every_reduction),
        cmocka_unit_test(one_hot_leaves_columns_off), cmocka_unit_test(integers_and_doubles),
        cmocka_unit_test(indices_outside_are_named),  cmocka_unit_test(rows_come_from_the_file),
    };
    return cmocka_run_group_tests_name("lowered indexing", tests, NULL, NULL);
}
