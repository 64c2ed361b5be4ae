/* SPDX-License-Identifier: Apache-2.0
 * A graph written as text, compiled in several ways, run twice in each: the outputs must have the
 * values that the test names. */
#ifndef TESTS_API_WAYS_H
#define TESTS_API_WAYS_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ir/tensor.h"
#include "tacit/tacit.h"

enum { WAYS = 3, WAYS_MOST = 12 };

typedef struct ways_values {
    size_t count;
    const double *values;
} ways_values;

#define V(...) ((double[]){__VA_ARGS__})
#define L(...) ((ways_values){sizeof V(__VA_ARGS__) / sizeof(double), V(__VA_ARGS__)})
#define NONE ((ways_values){0, NULL})
/* Lists of inputs and of outputs, each with its length in front. */
#define LISTS(...)                                                                                 \
    sizeof((ways_values[]){__VA_ARGS__}) / sizeof(ways_values), ((ways_values[]){__VA_ARGS__})

static const char *const ways_all_passes[] = {"all"};
/* Optimised; as written; as tasks on two threads. */
static const tacit_compile_options ways_options[WAYS] = {
    {0},
    {.disabled_passes = ways_all_passes, .n_disabled_passes = 1},
    {.executor = TACIT_EXEC_TASKS, .threads = 2}};
static const char *const ways_names[WAYS] = {"optimised", "as written", "as tasks"};

static inline tacit_model *ways_load(const char *body)
{
    static char text[16384];
    tacit_model *m;
    tacit_error err;
    snprintf(text, sizeof text, "tacit 1\ngraph \"g\" {\n%s\n}\n", body);
    if (tacit_model_load_memory(text, strlen(text), NULL, &m, &err) != TACIT_OK)
        fail_msg("%s in\n%s", err.message, text);
    return m;
}

/* The status of compiling, or else of running on inputs of zeros; fails the test when both go
 * well. */
static inline tacit_status ways_refused(const char *body, tacit_error *err)
{
    tacit_model *m = ways_load(body);
    tacit_program *p;
    tacit_session *s;
    tacit_tensor in[WAYS_MOST], out[WAYS_MOST] = {{0}};
    tacit_port port;
    tacit_status status = tacit_compile(m, NULL, &p, err);
    tacit_model_free(m);
    if (status != TACIT_OK)
        return status;
    assert_int_equal(tacit_session_create(p, &s, err), TACIT_OK);
    uint32_t n = tacit_program_input_count(p);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(tacit_program_input(p, i, &port), TACIT_OK);
        in[i] = (tacit_tensor){.dtype = port.dtype, .rank = port.rank, .bytes = port.bytes};
        memcpy(in[i].dims, port.dims, sizeof in[i].dims);
        assert_non_null(in[i].data = calloc(1, port.bytes + 1));
    }
    status = tacit_run(s, in, n, out, tacit_program_output_count(p), err);
    for (uint32_t i = 0; i < n; i++)
        free(in[i].data);
    tacit_session_free(s);
    tacit_program_free(p);
    if (status == TACIT_OK)
        fail_msg("not refused:\n%s", body);
    return status;
}

/* Complex elements are two numbers. */
static inline tacit_dtype ways_number(tacit_dtype dtype, size_t *count)
{
    *count *= dtype == TACIT_C64 || dtype == TACIT_C128 ? 2 : 1;
    return dtype == TACIT_C64 ? TACIT_F32 : dtype == TACIT_C128 ? TACIT_F64 : dtype;
}

static inline void ways_fill(const tacit_port *port, tacit_tensor *t, ways_values given)
{
    size_t count = 1;
    *t = (tacit_tensor){.dtype = port->dtype, .rank = port->rank, .bytes = port->bytes};
    for (int32_t d = 0; d < port->rank; d++) {
        t->dims[d] = port->dims[d];
        count *= (size_t)port->dims[d];
    }
    tacit_dtype number = ways_number(port->dtype, &count);
    assert_int_equal(count, given.count);
    assert_non_null(t->data = calloc(1, port->bytes + 1));
    for (size_t i = 0; i < count; i++)
        ir_store_f64(number, t->data, (int64_t)i, given.values[i]);
}

static inline void ways_compare(const char *body, int way, uint32_t k, const tacit_tensor *t,
                                ways_values want, double eps)
{
    size_t count = 1;
    for (int32_t d = 0; d < t->rank; d++)
        count *= (size_t)t->dims[d];
    tacit_dtype number = ways_number(t->dtype, &count);
    if (count != want.count)
        fail_msg("%s: output %u has %zu elements, not %zu, of\n%s", ways_names[way], k, count,
                 want.count, body);
    for (size_t i = 0; i < count; i++) {
        double x = ir_load_f64(number, t->data, (int64_t)i), y = want.values[i];
        if (!(fabs(x - y) <= eps * (1 + fabs(y))) && !(isnan(x) && isnan(y)) && x != y)
            fail_msg("%s: output %u element %zu is %.17g, not %.17g, of\n%s", ways_names[way], k, i,
                     x, y, body);
    }
}

static inline void ways_expect(const char *body, size_t n_in, const ways_values *in, size_t n_out,
                               const ways_values *want, double eps)
{
    tacit_model *m = ways_load(body);
    tacit_error err;
    for (int way = 0; way < WAYS; way++) {
        tacit_program *p;
        tacit_session *s;
        tacit_tensor given[WAYS_MOST];
        tacit_port port;
        if (tacit_compile(m, &ways_options[way], &p, &err) != TACIT_OK ||
            tacit_session_create(p, &s, &err) != TACIT_OK)
            fail_msg("%s: %s in\n%s", ways_names[way], err.message, body);
        assert_int_equal(tacit_program_input_count(p), n_in);
        assert_int_equal(tacit_program_output_count(p), n_out);
        for (uint32_t i = 0; i < n_in; i++) {
            assert_int_equal(tacit_program_input(p, i, &port), TACIT_OK);
            ways_fill(&port, &given[i], in[i]);
        }
        for (int again = 0; again < 2; again++) {
            tacit_tensor got[WAYS_MOST] = {{0}};
            if (tacit_run(s, given, (uint32_t)n_in, got, (uint32_t)n_out, &err) != TACIT_OK)
                fail_msg("%s: %s in\n%s", ways_names[way], err.message, body);
            for (uint32_t k = 0; k < n_out; k++)
                ways_compare(body, way, k, &got[k], want[k], eps);
        }
        for (uint32_t i = 0; i < n_in; i++)
            free(given[i].data);
        tacit_session_free(s);
        tacit_program_free(p);
    }
    tacit_model_free(m);
}

#endif
