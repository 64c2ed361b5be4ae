/* SPDX-License-Identifier: Apache-2.0
 * start_early: the first run begins while weights are still packed. The same bits, whoever runs,
 * however often, and also where nobody does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pthread.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/example.h"

static tacit_program *compile(const tacit_model *m, const tacit_compile_options *o)
{
    tacit_error err = {0};
    tacit_program *p = NULL;
    if (tacit_compile(m, o, &p, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    return p;
}

static tacit_tensor make(const tacit_port *port)
{
    tacit_tensor t = {.dtype = port->dtype, .rank = port->rank, .bytes = port->bytes};
    memcpy(t.dims, port->dims, sizeof t.dims);
    t.data = malloc(port->bytes);
    assert_non_null(t.data);
    for (size_t i = 0; i < port->bytes; i++)
        ((unsigned char *)t.data)[i] = port->dtype == TACIT_F32 ? (unsigned char)(i * 7 % 61) : 0;
    return t;
}

typedef struct runner {
    const tacit_program *program;
    tacit_tensor in, out;
    tacit_status status;
    pthread_t thread;
} runner;

static runner runner_of(const tacit_program *p)
{
    runner r = {.program = p};
    tacit_port port;
    assert_int_equal(tacit_program_input(p, 0, &port), TACIT_OK);
    r.in = make(&port);
    assert_int_equal(tacit_program_output(p, 0, &port), TACIT_OK);
    r.out = make(&port);
    return r;
}

static void *run(void *context)
{
    runner *r = context;
    tacit_session *s = NULL;
    r->status = tacit_session_create(r->program, &s, NULL);
    for (int i = 0; r->status == TACIT_OK && i < 2; i++)
        r->status = tacit_run(s, &r->in, 1, &r->out, 1, NULL);
    tacit_session_free(s);
    return NULL;
}

static void release(runner *r)
{
    free(r->in.data);
    free(r->out.data);
}

static void check(const char *arguments)
{
    enum { THREADS = 3 };
    tacit_model *m = example_model(arguments);
    static const tacit_executor executors[] = {TACIT_EXEC_SERIAL, TACIT_EXEC_TASKS};
    for (int k = 0; k < 2; k++) {
        tacit_executor e = executors[k];
        tacit_program *p = compile(m, &(tacit_compile_options){.executor = e});
        runner expected = runner_of(p), got[THREADS];
        run(&expected);
        assert_int_equal(expected.status, TACIT_OK);
        tacit_program_free(p);
        tacit_compile_options early = {.executor = e, .start_early = 1};
        p = compile(m, &early);
        for (int i = 0; i < THREADS; i++)
            got[i] = runner_of(p);
        for (int i = 0; i < THREADS; i++)
            assert_int_equal(pthread_create(&got[i].thread, NULL, run, &got[i]), 0);
        for (int i = 0; i < THREADS; i++) {
            assert_int_equal(pthread_join(got[i].thread, NULL), 0);
            assert_int_equal(got[i].status, TACIT_OK);
            assert_memory_equal(got[i].out.data, expected.out.data, expected.out.bytes);
            release(&got[i]);
        }
        release(&expected);
        tacit_program_free(p);
        tacit_program_free(compile(m, &early)); /* nobody runs it */
        tacit_session *s[2];
        p = compile(m, &early);
        for (int i = 0; i < 2; i++)
            assert_int_equal(tacit_session_create(p, &s[i], NULL), TACIT_OK);
        for (int i = 0; i < 2; i++) /* their memory goes while threads may see to its pages */
            tacit_session_free(s[i]);
        tacit_program_free(p);
    }
    tacit_model_free(m);
}

static void the_same_bits(void **state)
{
    (void)state;
    check("mlp --width 1024 --batch 8");
    check("squeezenet --image 64");
    check("mobilenetv2 --image 64"); /* weights that are derived while they are packed */
    check("gpt2 --layers 2 --vocab 5000 --seq 16");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_bits),
    };
    return cmocka_run_group_tests_name("starting early", tests, NULL, NULL);
}
