/* SPDX-License-Identifier: Apache-2.0 */
#include "secure/crew.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/thread.h"

enum { MOST_THREADS = 8 };

struct crew {
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    pthread_t *threads;
    unsigned n_threads, n_pieces;
    size_t bytes;
    crew_work function;
    void *context;
    crew_piece *pieces; /* piece n is in n % n_pieces */
    uint64_t given, begun;
    bool quit;
    int failed;
};

unsigned crew_threads(void)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores < 4 ? 1 : cores / 2 < MOST_THREADS ? (unsigned)(cores / 2) : MOST_THREADS;
}

static void *worker(void *context)
{
    crew *c = context;
    thread_name("tacit-crew");
    pthread_mutex_lock(&c->lock);
    for (;;) {
        while (!c->quit && c->begun == c->given)
            pthread_cond_wait(&c->work, &c->lock);
        if (c->quit)
            break;
        crew_piece *p = &c->pieces[c->begun++ % c->n_pieces];
        pthread_mutex_unlock(&c->lock);
        int failed = c->function(c->context, p);
        pthread_mutex_lock(&c->lock);
        p->failed = failed;
        p->done = true;
        if (failed && !c->failed)
            c->failed = failed;
        pthread_cond_signal(&c->done); /* one thread gives and takes */
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

tacit_status crew_new(unsigned threads, unsigned pieces, size_t bytes, crew_work work,
                      void *context, crew **out, tacit_error *err)
{
    crew *c = calloc(1, sizeof *c);
    *out = NULL;
    if (!c)
        return error_memory(err, "threads for a key");
    c->n_pieces = pieces;
    c->bytes = bytes;
    c->function = work;
    c->context = context;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->work, NULL);
    pthread_cond_init(&c->done, NULL);
    c->threads = calloc(threads, sizeof *c->threads);
    c->pieces = calloc(pieces, sizeof *c->pieces);
    bool ok = c->threads && c->pieces;
    for (unsigned i = 0; i < pieces && ok; i++) {
        c->pieces[i].done = true;
        ok = (c->pieces[i].data = malloc(bytes)) != NULL;
    }
    while (ok && c->n_threads < threads && thread_start(&c->threads[c->n_threads], NULL, worker, c))
        c->n_threads++;
    if (!ok || !c->n_threads) {
        crew_free(c);
        return error_memory(err, "threads for a key");
    }
    *out = c;
    return TACIT_OK;
}

static crew_piece *wait_for(crew *c, uint64_t n)
{
    crew_piece *p = &c->pieces[n % c->n_pieces];
    pthread_mutex_lock(&c->lock);
    while (!p->done)
        pthread_cond_wait(&c->done, &c->lock);
    pthread_mutex_unlock(&c->lock);
    return p;
}

crew_piece *crew_next(crew *c)
{
    return wait_for(c, c->given);
}

void crew_give(crew *c)
{
    pthread_mutex_lock(&c->lock);
    c->pieces[c->given++ % c->n_pieces].done = false;
    pthread_cond_signal(&c->work);
    pthread_mutex_unlock(&c->lock);
}

const crew_piece *crew_take(crew *c, uint64_t n)
{
    return wait_for(c, n);
}

uint64_t crew_given(const crew *c)
{
    return c->given;
}

int crew_finish(crew *c)
{
    for (unsigned i = 0; i < c->n_pieces; i++)
        wait_for(c, i);
    return c->failed;
}

void crew_free(crew *c)
{
    if (!c)
        return;
    pthread_mutex_lock(&c->lock);
    c->quit = true;
    pthread_cond_broadcast(&c->work);
    pthread_mutex_unlock(&c->lock);
    for (unsigned i = 0; i < c->n_threads; i++)
        pthread_join(c->threads[i], NULL);
    for (unsigned i = 0; i < c->n_pieces && c->pieces; i++) {
        if (c->pieces[i].data)
            explicit_bzero(c->pieces[i].data, c->bytes);
        free(c->pieces[i].data);
    }
    free(c->pieces);
    free(c->threads);
    pthread_cond_destroy(&c->done);
    pthread_cond_destroy(&c->work);
    pthread_mutex_destroy(&c->lock);
    free(c);
}
