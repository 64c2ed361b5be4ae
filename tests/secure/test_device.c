/* SPDX-License-Identifier: Apache-2.0
 * Parties and dealer on a device: the same keys, the same messages, the same results as without
 * one, whichever side has it. On the host's twin of a device everywhere, on a GPU where there is
 * one. */
#include "secure/device.h"
#include "secure/world.h"
#include "support/host_device.h"

#define HEAD "tacit 1\ngraph \"t\" {\n opset \"\" 22\n"

static const char layer[] =
    HEAD " in %x : f32[1,6,8]\n const %g : f32[8] = ...\n const %b : f32[8] = ...\n"
         " const %wq : f32[8,8] = ...\n const %wk : f32[8,8] = ...\n const %wv : f32[8,8] = ...\n"
         " const %split : i64[4] = [0,0,2,4]\n const %join : i64[3] = [0,0,8]\n"
         " const %w1 : f32[8,12] = ...\n const %w2 : f32[12,8] = ...\n"
         " %n : f32[1,6,8] = LayerNormalization(%x, %g, %b) axis=-1 epsilon=1e-5\n"
         " %q0 : f32[1,6,8] = MatMul(%n, %wq)\n %q1 : f32[1,6,2,4] = Reshape(%q0, %split)\n"
         " %q : f32[1,2,6,4] = Transpose(%q1) perm=[0,2,1,3]\n"
         " %k0 : f32[1,6,8] = MatMul(%n, %wk)\n %k1 : f32[1,6,2,4] = Reshape(%k0, %split)\n"
         " %k : f32[1,2,6,4] = Transpose(%k1) perm=[0,2,1,3]\n"
         " %v0 : f32[1,6,8] = MatMul(%n, %wv)\n %v1 : f32[1,6,2,4] = Reshape(%v0, %split)\n"
         " %v : f32[1,2,6,4] = Transpose(%v1) perm=[0,2,1,3]\n"
         " %a : f32[1,6,2,4] = tacit.Attention(%q, %k, %v) scale=0.5 causal=1 out_layout=\"bshd\"\n"
         " %a1 : f32[1,6,8] = Reshape(%a, %join)\n %r : f32[1,6,8] = Add(%a1, %n)\n"
         " %f1 : f32[1,6,12] = MatMul(%r, %w1)\n %f2 : f32[1,6,12] = Gelu(%f1)\n"
         " %f3 : f32[1,6,8] = MatMul(%f2, %w2)\n %y : f32[1,6,8] = Add(%f3, %r)\n out %y\n}\n";

static const char small[] = HEAD
    " in %x : f32[4,6]\n const %g : f32[6] = ...\n const %w : f32[6,5] = ...\n"
    " %a : f32[4,6] = Relu(%x)\n %b : f32[4,6] = Mul(%a, %g)\n %c : f32[4,5] = MatMul(%b, %w)\n"
    " %s : f32[4,5] = Softmax(%c) axis=-1\n %i : i64[4] = ArgMax(%c) axis=-1 keepdims=0\n"
    " out %s\n out %i\n}\n";

static const char conv[] =
    HEAD " in %x : f32[1,2,6,6]\n const %w : f32[3,2,3,3] = ...\n const %b : f32[3] = ...\n"
         " %y : f32[1,3,6,6] = Conv(%x, %w, %b) pads=[1,1,1,1]\n %z : f32[1,3,6,6] = Relu(%y)\n"
         " %p : f32[1,3,3,3] = MaxPool(%z) kernel_shape=[2,2] strides=[2,2]\n out %p\n}\n";

typedef struct device_side {
    side s;
    const cuda_device *device; /* NULL: the processor */
    sec_device_options options;
} device_side;

/* Under compute-sanitizer every access is followed: fewer programs and sizes, on the GPU alone; 2:
 * fewer still, for races, where that takes longest. */
static int quick(void)
{
    const char *level = getenv("TACIT_TEST_QUICK");
    return level ? atoi(level) : 0;
}

/* How the device's party is run: as planned, keys streamed, messages cut finely. */
static const sec_device_options usual;
static const sec_device_options forms[] = {{.part_bytes = 16},
                                           {.stream = true},
                                           {.stream = true, .key_bytes = 1, .part_bytes = 64},
                                           {.file = true, .stage_bytes = 1000},
                                           {.stage_bytes = 5000},
                                           {.file = true, .key_bytes = 1, .stage_bytes = 3000}};
enum { FORMS = sizeof forms / sizeof *forms };

/* key_bytes of 1 stands for the least that will do, which the error tells. */
static tacit_status create_side(device_side *x, const sec_weights *weights, sec_device **d)
{
    side *s = &x->s;
    sec_device_options o = x->options;
    tacit_status status =
        sec_device_create(s->w->p, &s->party, x->device, 1, weights, &o, d, &s->err);
    const char *need = o.key_bytes == 1 ? strstr(s->err.message, "need ") : NULL;
    if (status == TACIT_OK || !need)
        return status;
    assert_int_equal(status, TACIT_ERR_MEMORY);
    o.key_bytes = strtoull(need + 5, NULL, 10);
    status = sec_device_create(s->w->p, &s->party, x->device, 1, weights, &o, d, &s->err);
    if (status == TACIT_OK) {
        sec_device_sizes size = sec_device_size(*d);
        assert_true(size.streamed && size.key_held <= o.key_bytes);
        assert_true(size.from_file == o.file);
        assert_true(size.key_held < size.key_bytes);
    }
    return status;
}

static void *run_device_side(void *context)
{
    device_side *x = context;
    side *s = &x->s;
    if (!x->device)
        return run_side(s);
    sec_link link = {
        .key_read = key_take, .key_context = s->key, .exchange = swap_bytes, .context = s};
    sec_weights weights = {.threads = 3};
    sec_device *d = NULL;
    s->status = sec_weights_exchange(s->w->p, &s->party, &link, &weights, &s->err);
    if (s->status == TACIT_OK)
        s->status = create_side(x, &weights, &d);
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

/* Deals with and without a device, compares the keys, runs with the devices given. */
static void run_with(world *w, uint64_t run, const cuda_device *dealer_device, device_side s[2])
{
    uint8_t seed[2][16];
    memory_key key[2] = {{0}}, again[2] = {{0}};
    fss_dealer dealer;
    world_seeds(w, seed);
    fss_dealer_init(&dealer, &w->p->suite, seed[0], seed[1]);
    if (sec_deal(w->p, &dealer, run, key_append, key, &w->err) != TACIT_OK)
        fail_msg("%s", w->err.message);
    if (dealer_device) {
        sec_device_dealer *d = NULL;
        memory_key first[2] = {{0}};
        if (sec_device_dealer_create(w->p, &dealer, dealer_device, &d, &w->err) != TACIT_OK ||
            sec_device_dealer_run(d, run + 1, key_append, first, &w->err) != TACIT_OK ||
            sec_device_dealer_run(d, run, key_append, again, &w->err) != TACIT_OK)
            fail_msg("%s", w->err.message);
        sec_device_dealer_free(d);
        assert_memory_not_equal(first[0].data, again[0].data, again[0].size);
        free(first[0].data);
        free(first[1].data);
        for (int b = 0; b < 2; b++) {
            assert_int_equal(key[b].size, again[b].size);
            assert_memory_equal(key[b].data, again[b].data, key[b].size);
            free(again[b].data);
        }
    }
    world_run_both(w, run, key, seed, run_device_side, &s[0].s, &s[1].s);
    if (s[0].s.status == TACIT_OK && s[1].s.status == TACIT_OK &&
        sec_simulate(w->p, &dealer, run, (const ir_tensor *const *)w->in, w->sim, &w->err) !=
            TACIT_OK)
        fail_msg("%s", w->err.message);
    free(key[0].data);
    free(key[1].data);
}

/* Both sides in all combinations, each with a device of its own; every byte sent is what a party
 * without device sends. */
static void check_graph(const char *text, sec_mode mode, const cuda_device *device)
{
    world w;
    world_graph(&w, text, 5, 0.6);
    world_inputs(&w, 2);
    if (mode.calibrated)
        world_calibrate(&w);
    if (world_compile(&w, mode) != TACIT_OK)
        fail_msg("%s", w.err.message);
    assert_true(!mode.calibrated || w.p->guarded > 0);
    uint8_t *sent[2] = {0};
    size_t size[2] = {0};
    rng start = w.r;
    for (int which = 0; which < 4 + FORMS; which++) {
        bool key_forms = which == 6 || which == 9;
        if (quick() && which && which != 3 && (!key_forms || quick() > 1))
            continue;
        const sec_device_options *form = which < 4 ? &usual : &forms[which - 4];
        device_side s[2] = {{.s = {.sent = malloc(1)},
                             .device = which & 1 || which >= 4 ? &device[0] : NULL,
                             .options = *form},
                            {.s = {.sent = malloc(1)},
                             .device = which & 2 || which >= 4 ? &device[1] : NULL,
                             .options = *form}};
        w.r = start; /* the same seeds each time */
        for (uint32_t i = 0; i < w.graph->outputs.count; i++)
            memset(w.out[i]->data, 0xa5, w.out[i]->bytes);
        run_with(&w, 2, which == 0 ? device : NULL, s);
        for (int b = 0; b < 2; b++) {
            if (s[b].s.status != TACIT_OK)
                fail_msg("party %d: %s", b, s[b].s.err.message);
            if (which == 0) {
                sent[b] = s[b].s.sent;
                size[b] = s[b].s.sent_size;
                continue;
            }
            assert_int_equal(size[b], s[b].s.sent_size);
            assert_memory_equal(sent[b], s[b].s.sent, size[b]);
            free(s[b].s.sent);
        }
        for (uint32_t i = 0; i < w.graph->outputs.count; i++)
            assert_memory_equal(w.out[i]->data, w.sim[i]->data, w.out[i]->bytes);
    }
    free(sent[0]);
    free(sent[1]);
    world_end(&w);
}

/* A party on a device hears the guard's verdict as well, whichever party that is. */
static void check_guard(const cuda_device *device)
{
    for (int which = quick() ? 2 + quick() : 0; which < 4; which++) {
        world w;
        sec_mode mode = world_mode();
        mode.calibrated = true;
        mode.input_bound = 100;
        world_graph(&w, conv, 5, 0.6);
        world_inputs(&w, 1);
        world_calibrate(&w);
        if (world_compile(&w, mode) != TACIT_OK)
            fail_msg("%s", w.err.message);
        for (int64_t i = 0; i < ir_tensor_count(w.in[0]); i++)
            ((float *)w.in[0]->data)[i] *= 50;
        device_side s[2] = {{.device = which & 1 ? &device[0] : NULL},
                            {.device = which & 2 ? &device[1] : NULL}};
        run_with(&w, 2, which == 0 ? device : NULL, s);
        for (int b = 0; b < 2; b++)
            assert_int_equal(s[b].s.status, TACIT_ERR_VALUE);
        for (size_t i = 0; i < w.out[0]->bytes; i++)
            assert_int_equal(((uint8_t *)w.out[0]->data)[i], 0xa5);
        world_end(&w);
    }
}

static void check_all(const cuda_device *device)
{
    check_guard(device);
    static const char *const graphs[] = {layer, small, conv};
    for (size_t g = 0; g < (quick() > 1 ? 1 : 3); g++)
        for (int weights = quick() ? SEC_SERVER : SEC_PUBLIC; weights <= SEC_SERVER; weights++) {
            sec_mode mode = world_mode();
            mode.weights = weights;
            check_graph(graphs[g], mode, device);
        }
    for (int compare = SEC_AUTO; compare < SEC_COMPARES; compare++)
        for (int dither = 0; dither < 2; dither++) {
            sec_mode mode = world_mode();
            mode.compare = (uint8_t)compare;
            mode.dither = dither;
            if (quick() && !dither && compare == SEC_AUTO)
                continue; /* above */
            if (quick() > 1 && (dither || compare != SEC_TREES))
                continue;
            check_graph(layer, mode, device);
            if (quick() && !dither)
                continue;
            mode.calibrated = true;
            check_graph(layer, mode, device);
        }
}

static void programs_on_the_host(void **state)
{
    (void)state;
    if (quick())
        skip();
    cuda_device d[2] = {host_device_open(0, 0), host_device_open(0, 0)};
    host_device_lazy(&d[1]);
    check_all(d);
    for (int b = 0; b < 2; b++) {
        assert_int_equal(host_device_held(&d[b]), 0);
        host_device_close(&d[b]);
    }
}

static void programs_on_the_gpu(void **state)
{
    (void)state;
    char why[200];
    cuda_device d[2];
    tacit_error err = {0};
    if (!cuda_present(why, sizeof why)) {
        print_message("no GPU: %s\n", why);
        skip();
    }
    for (int b = 0; b < 2; b++)
        if (cuda_open(0, 0, &d[b], &err) != TACIT_OK)
            fail_msg("%s", err.message);
    check_all(d);
    cuda_close(&d[0]);
    cuda_close(&d[1]);
}

/* A device that fails in the middle: a clean error here, the peer hears of it, nothing leaks. */
static void a_lost_device(void **state)
{
    (void)state;
    world w;
    world_graph(&w, small, 5, 0.6);
    assert_int_equal(world_compile(&w, world_mode()), TACIT_OK);
    world_inputs(&w, 2);
    for (uint64_t after = 1; after < 400; after += 57) {
        cuda_device d = host_device_open(0, after);
        device_side s[2] = {{.device = &d}, {.device = NULL}};
        run_with(&w, 1, NULL, s);
        if (s[0].s.status != TACIT_OK) {
            assert_int_equal(s[0].s.status, TACIT_ERR_IO);
            assert_int_equal(s[1].s.status, TACIT_ERR_PEER);
            assert_string_equal(s[0].s.err.message, "the device was lost");
        }
        assert_int_equal(host_device_held(&d), 0);
        host_device_close(&d);
    }
    for (uint64_t budget = 1000; budget < 2000000; budget *= 3) {
        cuda_device d = host_device_open(budget, 0);
        device_side s[2] = {{.device = NULL}, {.device = &d}};
        run_with(&w, 1, NULL, s);
        if (s[1].s.status != TACIT_OK)
            assert_int_equal(s[1].s.status, TACIT_ERR_MEMORY);
        assert_int_equal(host_device_held(&d), 0);
        host_device_close(&d);
    }
    world_end(&w);
}

/* ---- several inferences in one set of rounds ---- */

enum { TOGETHER = 3 };
typedef struct together_side {
    side s;
    const cuda_device *devices;
    memory_key *keys; /* [TOGETHER] */
    const ir_tensor *const *in;
    ir_tensor *const *out;
} together_side;

static void *run_together(void *context)
{
    together_side *x = context;
    side *s = &x->s;
    sec_link link = {.key_read = key_take, .exchange = swap_bytes, .context = s}, from[TOGETHER];
    sec_weights weights = {0};
    sec_device *d = NULL;
    s->status = sec_weights_exchange(s->w->p, &s->party, &link, &weights, &s->err);
    if (s->status == TACIT_OK)
        s->status = sec_device_create(s->w->p, &s->party, x->devices, TOGETHER, &weights, NULL, &d,
                                      &s->err);
    for (unsigned i = 0; i < TOGETHER && s->status == TACIT_OK; i++) {
        from[i] = link;
        from[i].key_context = &x->keys[i];
        s->status = sec_device_load(d, i, &from[i], &s->err);
    }
    if (s->status == TACIT_OK)
        s->status = sec_device_run(d, s->run, &link, x->in, x->out, &s->err);
    sec_device_free(d);
    sec_weights_free(s->w->p, &weights);
    if (s->status != TACIT_OK)
        shutdown(s->fd, SHUT_RDWR);
    return NULL;
}

static void copy_tensor(world *w, const ir_tensor *from, ir_tensor **to)
{
    *to = ir_tensor_new(&w->memory, from->dtype, &from->shape);
    memcpy((*to)->data, from->data, from->bytes);
}

static void check_together(const char *text, const cuda_device devices[2][TOGETHER])
{
    enum { MOST = 4 };
    world w;
    world_graph(&w, text, 5, 0.6);
    if (world_compile(&w, world_mode()) != TACIT_OK)
        fail_msg("%s", w.err.message);
    uint32_t n_in = w.graph->inputs.count, n_out = w.graph->outputs.count;
    uint8_t seed[2][16];
    memory_key key[2][TOGETHER] = {{{0}}};
    ir_tensor *in[TOGETHER * MOST], *out[TOGETHER * MOST];
    fss_dealer dealer;
    world_seeds(&w, seed);
    fss_dealer_init(&dealer, &w.p->suite, seed[0], seed[1]);
    assert_true(n_in <= MOST && n_out <= MOST);
    for (uint32_t i = 0; i < TOGETHER; i++) {
        memory_key pair[2] = {{0}};
        world_inputs(&w, 1 + i);
        if (sec_deal(w.p, &dealer, 4 + i, key_append, pair, &w.err) != TACIT_OK)
            fail_msg("%s", w.err.message);
        key[0][i] = pair[0];
        key[1][i] = pair[1];
        for (uint32_t k = 0; k < n_in; k++)
            copy_tensor(&w, w.in[k], &in[i * n_in + k]);
        for (uint32_t k = 0; k < n_out; k++)
            copy_tensor(&w, w.out[k], &out[i * n_out + k]);
    }
    together_side s[2];
    for (unsigned b = 0; b < 2; b++)
        s[b] = (together_side){
            .devices = devices[b], .keys = key[b], .in = (const ir_tensor *const *)in, .out = out};
    world_run_both(&w, 4, NULL, seed, run_together, &s[0].s, &s[1].s);
    for (int b = 0; b < 2; b++)
        if (s[b].s.status != TACIT_OK)
            fail_msg("party %d: %s", b, s[b].s.err.message);
    for (uint32_t i = 0; i < TOGETHER; i++) {
        if (sec_simulate(w.p, &dealer, 4 + i, (const ir_tensor *const *)in + i * n_in, w.sim,
                         &w.err) != TACIT_OK)
            fail_msg("%s", w.err.message);
        for (uint32_t k = 0; k < n_out; k++)
            assert_memory_equal(out[i * n_out + k]->data, w.sim[k]->data, w.sim[k]->bytes);
        for (int b = 0; b < 2; b++) {
            assert_int_equal(key[b][i].at, key[b][i].size);
            free(key[b][i].data);
        }
    }
    world_end(&w);
}

static void several_at_once(void **state)
{
    (void)state;
    cuda_device d[2][TOGETHER];
    tacit_error err = {0};
    for (int b = 0; b < 2; b++)
        for (int i = 0; i < TOGETHER; i++)
            d[b][i] = host_device_open(0, 0);
    check_together(layer, d);
    check_together(small, d);
    for (int b = 0; b < 2; b++)
        for (int i = 0; i < TOGETHER; i++) {
            assert_int_equal(host_device_held(&d[b][i]), 0);
            host_device_close(&d[b][i]);
        }
    if (!cuda_present(NULL, 0))
        return;
    for (int b = 0; b < 2; b++)
        for (int i = 0; i < TOGETHER; i++)
            if (cuda_open(0, 0, &d[b][i], &err) != TACIT_OK)
                fail_msg("%s", err.message);
    check_together(layer, d);
    for (int b = 0; b < 2; b++)
        for (int i = 0; i < TOGETHER; i++)
            cuda_close(&d[b][i]);
}

/* ---- what goes wrong ---- */

/* Whoever dies, at whichever message: both end, with an error where the run was not over, and the
 * client has nothing. */
static void check_death(const cuda_device *device, const sec_device_options *form)
{
    for (unsigned who = 0; who < 2; who++) {
        bool finished = false;
        for (uint64_t after = 1; !finished; after += quick() ? (quick() > 1 ? 40 : 9) : 1) {
            world w;
            world_graph(&w, small, 5, 0.6);
            assert_int_equal(world_compile(&w, world_mode()), TACIT_OK);
            world_inputs(&w, 2);
            device_side s[2] = {{.device = &device[0], .options = *form},
                                {.device = &device[1], .options = *form}};
            s[who].s.stop_after = after;
            run_with(&w, after, NULL, s);
            finished = s[0].s.status == TACIT_OK && s[1].s.status == TACIT_OK;
            if (!finished)
                assert_int_equal(s[who].s.status, TACIT_ERR_PEER);
            for (size_t i = 0; s[1].s.status != TACIT_OK && i < w.out[0]->bytes; i++)
                assert_int_equal(((const uint8_t *)w.out[0]->data)[i], 0xa5);
            world_end(&w);
            assert_true(after < 100);
        }
    }
}

static void a_lost_peer(void **state)
{
    (void)state;
    static const sec_device_options file = {.file = true, .stage_bytes = 2000};
    cuda_device d[2] = {host_device_open(0, 0), host_device_open(0, 0)};
    check_death(d, &usual);
    check_death(d, &file);
    for (int b = 0; b < 2; b++) {
        assert_int_equal(host_device_held(&d[b]), 0);
        host_device_close(&d[b]);
    }
    tacit_error err = {0};
    if (!cuda_present(NULL, 0))
        return;
    for (int b = 0; b < 2; b++)
        if (cuda_open(0, 0, &d[b], &err) != TACIT_OK)
            fail_msg("%s", err.message);
    check_death(d, &usual);
    check_death(d, &file);
    cuda_close(&d[0]);
    cuda_close(&d[1]);
}

static tacit_status echo(void *context, const void *out, size_t out_size, void *in, size_t in_size,
                         tacit_error *err)
{
    (void)context, (void)err, (void)out_size;
    if (out && in_size)
        memcpy(in, out, in_size);
    else if (in_size)
        memset(in, 0, in_size);
    return TACIT_OK;
}
static tacit_status any_key(void *context, void *data, size_t size, tacit_error *err)
{
    (void)context, (void)err;
    memset(data, 0x3c, size);
    return TACIT_OK;
}

/* Many inferences of one party, its messages sent back to it: memory returns to where it was. */
static void many_runs(const cuda_device *d, int sessions, int runs)
{
    world w;
    world_graph(&w, small, 5, 0.6);
    assert_int_equal(world_compile(&w, world_mode()), TACIT_OK);
    sec_link link = {.key_read = any_key, .exchange = echo};
    fss_party party;
    uint8_t seed[16] = {7};
    fss_party_init(&party, &w.p->suite, SEC_SERVER, seed);
    for (int s = 0; s < sessions; s++) {
        sec_weights weights = {0};
        sec_device *x = NULL;
        tacit_error err = {0};
        assert_int_equal(sec_weights_exchange(w.p, &party, &link, &weights, &err), TACIT_OK);
        sec_device_options o = {.stream = s % 2 == 1, .file = s % 4 == 3};
        if (sec_device_create(w.p, &party, d, 1, &weights, &o, &x, &err) != TACIT_OK)
            fail_msg("%s", err.message);
        for (int r = 0; r < runs; r++) {
            assert_int_equal(sec_device_load(x, 0, &link, &err), TACIT_OK);
            if (sec_device_run(x, (uint64_t)r, &link, NULL, NULL, &err) != TACIT_OK)
                fail_msg("%s", err.message);
        }
        sec_device_free(x);
        sec_weights_free(w.p, &weights);
    }
    world_end(&w);
}

static void memory_returns(void **state)
{
    (void)state;
    cuda_device d = host_device_open(0, 0);
    many_runs(&d, 4, 10);
    assert_int_equal(host_device_held(&d), 0);
    host_device_close(&d);
    tacit_error err = {0};
    if (!cuda_present(NULL, 0))
        return;
    if (cuda_open(0, 0, &d, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    many_runs(&d, 1, 1);
    uint64_t before = cuda_free_bytes(&d);
    many_runs(&d, quick() ? 4 / quick() : 20, quick() ? 2 / quick() : 50);
    if (!quick()) /* the sanitizer takes memory of its own */
        assert_int_equal(cuda_free_bytes(&d), before);
    cuda_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(programs_on_the_host), cmocka_unit_test(several_at_once),
        cmocka_unit_test(a_lost_device),        cmocka_unit_test(a_lost_peer),
        cmocka_unit_test(memory_returns),       cmocka_unit_test(programs_on_the_gpu),
    };
    return cmocka_run_group_tests_name("secure.device", tests, NULL, NULL);
}
