/* SPDX-License-Identifier: Apache-2.0
 * A GPU that fails in the middle of a run: a clean error there, the peer hears of it, and nobody
 * gets a result. A program of its own: it makes the very faults that other tests are searched for.
 */
#include <sys/wait.h>

#include "secure/device.h"
#include "secure/world.h"

static const char small[] =
    "tacit 1\ngraph \"t\" {\n opset \"\" 22\n in %x : f32[4,6]\n const %w : f32[6,5] = ...\n"
    " %a : f32[4,6] = Relu(%x)\n %c : f32[4,5] = MatMul(%a, %w)\n"
    " %s : f32[4,5] = Softmax(%c) axis=-1\n out %s\n}\n";

typedef struct device_side {
    side s;
    const cuda_device *device; /* NULL: the processor */
} device_side;

static void *run_device_side(void *context)
{
    device_side *x = context;
    side *s = &x->s;
    if (!x->device)
        return run_side(s);
    sec_link link = {
        .key_read = key_take, .key_context = s->key, .exchange = swap_bytes, .context = s};
    sec_weights weights = {0};
    sec_device *d = NULL;
    s->status = sec_weights_exchange(s->w->p, &s->party, &link, &weights, &s->err);
    if (s->status == TACIT_OK)
        s->status =
            sec_device_create(s->w->p, &s->party, x->device, 1, &weights, NULL, &d, &s->err);
    if (s->status == TACIT_OK)
        s->status = sec_device_load(d, 0, &link, &s->err);
    if (s->status == TACIT_OK)
        s->status = sec_device_run(d, s->run, &link, (const ir_tensor *const *)s->w->in, s->w->out,
                                   &s->err);
    sec_device_free(d);
    sec_weights_free(s->w->p, &weights);
    if (s->status != TACIT_OK)
        shutdown(s->fd, SHUT_RDWR);
    return NULL;
}

static void run_with(world *w, uint64_t run, device_side s[2])
{
    uint8_t seed[2][16] = {{1}, {2}};
    memory_key key[2] = {{0}};
    fss_dealer dealer;
    fss_dealer_init(&dealer, &w->p->suite, seed[0], seed[1]);
    if (sec_deal(w->p, &dealer, run, key_append, key, &w->err) != TACIT_OK)
        fail_msg("%s", w->err.message);
    world_run_both(w, run, key, seed, run_device_side, &s[0].s, &s[1].s);
    for (int b = 0; b < 2; b++)
        free(key[b].data);
}

/* A GPU that really fails: its table of functions with one round that writes where nothing is. */
static cuda_ops broken;
static const cuda_ops *whole;
static int rounds_left;

static tacit_status broken_run(void *self, void *graph, tacit_error *err)
{
    if (rounds_left-- == 0) {
        cuda_local nowhere = {.op = CUDA_COPY,
                              .n_in = 1,
                              .count = 64,
                              .mask = 1,
                              .in = {(const uint64_t *)(uintptr_t)(1ull << 46)},
                              .out = (uint64_t *)(uintptr_t)(1ull << 46)};
        TRY(whole->local(self, &nowhere, err));
    }
    return whole->graph_run(self, graph, err);
}

/* In a process of its own, whose use of the GPU ends with it. 77: there is none. */
static int fail_for_real(unsigned who, int rounds)
{
    tacit_error err = {0};
    cuda_device d;
    if (!cuda_present(NULL, 0))
        return 77;
    if (cuda_open(0, 0, &d, &err) != TACIT_OK)
        return 2;
    whole = d.ops;
    broken = *whole;
    broken.graph_run = broken_run;
    d.ops = &broken;
    rounds_left = rounds;
    world w;
    world_graph(&w, small, 5, 0.6);
    if (world_compile(&w, world_mode()) != TACIT_OK)
        return 3;
    world_inputs(&w, 2);
    device_side s[2] = {{.device = who == 0 ? &d : NULL}, {.device = who == 1 ? &d : NULL}};
    run_with(&w, 1, s);
    printf("party %u lost its GPU: '%s'; the other: '%s'\n", who, s[who].s.err.message,
           s[1 - who].s.err.message);
    if (s[who].s.status != TACIT_ERR_IO || !strstr(s[who].s.err.message, "GPU"))
        return 4;
    if (s[1 - who].s.status != TACIT_ERR_PEER)
        return 5;
    for (size_t i = 0; i < w.out[0]->bytes; i++)
        if (((const uint8_t *)w.out[0]->data)[i] != 0xa5)
            return 6;
    d.ops = whole;
    cuda_close(&d);
    world_end(&w);
    return 0;
}

static void a_broken_gpu(void **state)
{
    (void)state;
    for (unsigned who = 0; who < 2; who++)
        for (int rounds = 0; rounds < 12; rounds += 5) {
            fflush(NULL);
            pid_t pid = fork();
            if (pid == 0) {
                alarm(120); /* a hang is a failure */
                int code = fail_for_real(who, rounds);
                fflush(NULL);
                _exit(code);
            }
            int status = 0;
            assert_int_equal(waitpid(pid, &status, 0), pid);
            assert_true(WIFEXITED(status));
            if (WEXITSTATUS(status) == 77)
                skip();
            assert_int_equal(WEXITSTATUS(status), 0);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_broken_gpu)};
    return cmocka_run_group_tests_name("secure.device_loss", tests, NULL, NULL);
}
