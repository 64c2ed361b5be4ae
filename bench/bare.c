/* SPDX-License-Identifier: Apache-2.0
 *
 * What decoding costs beside reading weights: a token of MODEL behind one position of its cache,
 * and a bare loop over the same weights: of the same program, on the same arguments, only the
 * products with packed weights, one behind the other. Both run by turns in one process, so that
 * neither the time of measuring nor where the weights lie in memory makes a difference.
 *
 * usage: bare MODEL THREADS    prints: a token's and the loop's milliseconds (medians)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "api/internal.h"
#include "bare_loop.h"
#include "prog/program.h"

enum { TURNS = 41, TURN_RUNS = 5, MOST_INPUTS = 8, PAST = 1, CAPACITY = 256 };

static tacit_error err;

static int complain(const char *what)
{
    fprintf(stderr, "bare: %s%s%s\n", what, err.message[0] ? ": " : "", err.message);
    return 1;
}

typedef struct decoder {
    tacit_model *model;
    tacit_program *program;
    tacit_session *session;
    tacit_tensor inputs[MOST_INPUTS];
    uint32_t n_inputs;
    bare_loop loop;
} decoder;

static void free_decoder(decoder *d)
{
    for (uint32_t i = 0; i < d->n_inputs; i++)
        free(d->inputs[i].data);
    free(d->loop.steps);
    tacit_session_free(d->session);
    tacit_program_free(d->program);
    tacit_model_free(d->model);
}

/* Zeros for every input: token 0. */
static bool make_inputs(decoder *d)
{
    uint32_t n = tacit_program_input_count(d->program);
    if (n > MOST_INPUTS)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        tacit_port port;
        if (tacit_program_input(d->program, i, &port) != TACIT_OK || !port.bytes)
            return false;
        tacit_tensor *t = &d->inputs[i];
        *t = (tacit_tensor){.name = port.name,
                            .dtype = port.dtype,
                            .rank = port.rank,
                            .data = calloc(1, port.bytes),
                            .bytes = port.bytes};
        memcpy(t->dims, port.dims, sizeof t->dims);
        if (!t->data)
            return false;
        d->n_inputs++;
    }
    return true;
}

static bool is_product(const char *kernel)
{
    static const char *const products[] = {"gemm_", "slim_", "half_", "qdot_"};
    for (size_t i = 0; i < sizeof products / sizeof *products; i++)
        if (strncmp(kernel, products[i], strlen(products[i])) == 0)
            return true;
    return false;
}

static bool make_loop(decoder *d, uint32_t threads)
{
    const prog_session *s = api_session_run(d->session);
    const prog_program *p = s->program;
    d->loop = (bare_loop){.steps = calloc(p->n_thunks, sizeof(bare_step)), .threads = threads};
    if (!d->loop.steps)
        return false;
    for (uint32_t i = 0; i < p->n_thunks; i++)
        if (is_product(p->thunks[i].made->kernel)) {
            bare_step *step = &d->loop.steps[d->loop.n_steps++];
            step->fn = s->calls[i].fn;
            step->args = s->calls[i].args;
            step->tiles = s->calls[i].tiles;
        }
    return d->loop.n_steps > 0;
}

static double token(decoder *d)
{
    uint64_t start = clock_ns();
    if (tacit_run(d->session, d->inputs, d->n_inputs, NULL, 0, &err) != TACIT_OK)
        return -1;
    double ms = (double)(clock_ns() - start) / 1e6;
    return tacit_session_cache_rewind(d->session, PAST, &err) == TACIT_OK ? ms : -1;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The first run of a turn finds in the caches what the other side has left. Workers of the program
 * that still look for work are given time to go to sleep. */
static int measure(decoder *d)
{
    static double whole[TURNS * TURN_RUNS], bare[TURNS * TURN_RUNS];
    size_t n = 0;
    if (token(d) < 0) /* from then on the cache holds one position */
        return complain("a token");
    for (int turn = 0; turn < TURNS; turn++) {
        for (int side = 0; side < 2; side++) {
            nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
            for (int i = -1; i < TURN_RUNS; i++) {
                double ms = side ? bare_once(&d->loop) : token(d);
                if (ms < 0)
                    return complain(side ? "no thread" : "a token");
                if (i >= 0)
                    (side ? bare : whole)[n + (size_t)i] = ms;
            }
        }
        n += TURN_RUNS;
    }
    qsort(whole, n, sizeof *whole, by_value);
    qsort(bare, n, sizeof *bare, by_value);
    printf("%.4f %.4f\n", whole[n / 2], bare[n / 2]);
    return 0;
}

int main(int argc, char **argv)
{
    uint32_t threads = argc == 3 ? (uint32_t)strtoul(argv[2], NULL, 10) : 0;
    if (threads != 1 && threads != 2) {
        fprintf(stderr, "usage: bare MODEL THREADS    (1 or 2)\n");
        return 2;
    }
    tacit_compile_options options = {
        .cache_capacity = CAPACITY,
        .executor = threads == 1 ? TACIT_EXEC_SERIAL : TACIT_EXEC_TASKS,
        .threads = threads,
    };
    decoder d = {0};
    int code = 1;
    if (tacit_model_load(argv[1], NULL, &d.model, &err) != TACIT_OK ||
        tacit_compile(d.model, &options, &d.program, &err) != TACIT_OK ||
        tacit_session_create(d.program, &d.session, &err) != TACIT_OK)
        complain(argv[1]);
    else if (!make_inputs(&d) || !make_loop(&d, threads))
        complain("no inputs of known sizes, or no products");
    else
        code = measure(&d);
    free_decoder(&d);
    return code;
}
