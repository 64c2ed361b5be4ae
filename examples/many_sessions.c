/* SPDX-License-Identifier: Apache-2.0
 * One compiled program, several threads: each has its own session, all share the weights. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <tacit/tacit.h>

enum { N = 64, THREADS = 4, RUNS = 100 };

typedef struct job {
    const tacit_program *program;
    float scale, first;
    tacit_status status;
    tacit_error err;
} job;

static void *run_job(void *context)
{
    job *j = context;
    tacit_session *session = NULL;
    float x[N], y[N];
    for (int i = 0; i < N; i++)
        x[i] = j->scale * (float)i;
    tacit_tensor in = {.dtype = TACIT_F32, .rank = 1, .dims = {N}, .data = x, .bytes = sizeof x};
    tacit_tensor out = in;
    out.data = y;
    j->status = tacit_session_create(j->program, &session, &j->err);
    for (int i = 0; j->status == TACIT_OK && i < RUNS; i++)
        j->status = tacit_run(session, &in, 1, &out, 1, &j->err);
    j->first = y[1];
    tacit_session_free(session);
    return NULL;
}

static tacit_status compile(tacit_program **program, tacit_error *err)
{
    tacit_builder *b = NULL;
    tacit_model *model = NULL;
    int64_t n = N;
    tacit_status status = tacit_builder_create("shared", NULL, &b, err);
    if (status != TACIT_OK)
        return status;
    tacit_value x = tacit_builder_input(b, "x", TACIT_F32, 1, &n, NULL);
    tacit_builder_output(b, "y", tacit_builder_node(b, "Tanh", 1, &x, 1, NULL));
    status = tacit_builder_finish(b, &model, err);
    if (status == TACIT_OK)
        status = tacit_compile(model, NULL, program, err);
    /* The program keeps what it needs of its model. */
    tacit_model_free(model);
    tacit_builder_free(b);
    return status;
}

int main(void)
{
    tacit_program *program = NULL;
    tacit_error err;
    pthread_t threads[THREADS];
    job jobs[THREADS];
    if (compile(&program, &err) != TACIT_OK) {
        fprintf(stderr, "many_sessions: %s\n", err.message);
        return 1;
    }
    memset(jobs, 0, sizeof jobs);
    for (int i = 0; i < THREADS; i++) {
        jobs[i].program = program;
        jobs[i].scale = 0.1f * (float)(i + 1);
        if (pthread_create(&threads[i], NULL, run_job, &jobs[i]) != 0)
            return 1;
    }
    int failed = 0;
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        if (jobs[i].status != TACIT_OK) {
            fprintf(stderr, "many_sessions: %s\n", jobs[i].err.message);
            failed = 1;
        } else
            printf("thread %d: tanh(%.1f) = %.6f, %d runs\n", i, (double)jobs[i].scale,
                   (double)jobs[i].first, RUNS);
    }
    tacit_program_free(program);
    return failed;
}
