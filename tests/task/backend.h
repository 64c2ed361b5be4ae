/* SPDX-License-Identifier: Apache-2.0
 * An asynchronous device for tests: a thread that doubles numbers some time after they were given,
 * and then completes their tokens. */
#ifndef TESTS_TASK_BACKEND_H
#define TESTS_TASK_BACKEND_H

#include "task/util.h"

typedef struct backend {
    tacit_task_runtime *rt;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct {
        int64_t *x;
        tacit_task_id token;
    } jobs[256];
    uint32_t head, tail;
    bool stop;
    uint32_t delay_us;
    tacit_status result;
} backend;

static inline tacit_status enqueue(const tacit_task_call *call)
{
    backend *b = call->user;
    pthread_mutex_lock(&b->lock);
    b->jobs[b->tail % 256].x = call->values[0].data;
    b->jobs[b->tail++ % 256].token = call->id;
    pthread_cond_signal(&b->more);
    pthread_mutex_unlock(&b->lock);
    return TACIT_OK;
}

static inline void *backend_main(void *argument)
{
    backend *b = argument;
    pthread_mutex_lock(&b->lock);
    for (;;) {
        while (b->head == b->tail && !b->stop)
            pthread_cond_wait(&b->more, &b->lock);
        if (b->head == b->tail)
            break;
        uint32_t at = b->head++ % 256;
        int64_t *x = b->jobs[at].x;
        tacit_task_id token = b->jobs[at].token;
        tacit_status result = b->result;
        pthread_mutex_unlock(&b->lock);
        if (token % 16 == 0)
            usleep(300 + b->delay_us);
        *x *= 2;
        if (tacit_task_complete(b->rt, token, result, NULL) != TACIT_OK)
            abort();
        if (tacit_task_complete(b->rt, token, TACIT_OK, NULL) != TACIT_ERR_STATE)
            abort(); /* exactly once */
        pthread_mutex_lock(&b->lock);
    }
    pthread_mutex_unlock(&b->lock);
    return NULL;
}
static const tacit_task_kernel k_enqueue = {enqueue, "enqueue", TACIT_TASK_ACCELERATOR};

static inline void backend_start(backend *b)
{
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->more, NULL);
    pthread_create(&b->thread, NULL, backend_main, b);
}

static inline void backend_result(backend *b, tacit_status result)
{
    pthread_mutex_lock(&b->lock);
    b->result = result;
    pthread_mutex_unlock(&b->lock);
}

static inline void backend_stop(backend *b)
{
    pthread_mutex_lock(&b->lock);
    b->stop = true;
    pthread_cond_signal(&b->more);
    pthread_mutex_unlock(&b->lock);
    pthread_join(b->thread, NULL);
    pthread_mutex_destroy(&b->lock);
    pthread_cond_destroy(&b->more);
}

#endif
