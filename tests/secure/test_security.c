/* SPDX-License-Identifier: Apache-2.0
 * What must never happen: keys used twice, by the wrong party, for another graph, cut or changed;
 * frames that do not fit; a peer's death that hangs the other; masks that repeat; transcripts that
 * tell inputs apart. */
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/sha256.h"
#include "secure/channel.h"
#include "secure/keyfile.h"
#include "secure/world.h"

static const char net[] = "tacit 1\ngraph \"net\" {\n opset \"\" 22\n in %x : f32[2,6]\n"
                          " const %w1 : f32[6,9] = ...\n const %w2 : f32[9,4] = ...\n"
                          " %a : f32[2,9] = MatMul(%x, %w1)\n %b : f32[2,9] = Relu(%a)\n"
                          " %y : f32[2,4] = MatMul(%b, %w2)\n out %y\n}\n";

static const char soft[] = "tacit 1\ngraph \"soft\" {\n opset \"\" 22\n in %x : f32[2,6]\n"
                           " const %g : f32[6] = ...\n %a : f32[2,6] = Gelu(%x)\n"
                           " %n : f32[2,6] = LayerNormalization(%a, %g) axis=-1 epsilon=1e-5\n"
                           " %y : f32[2,6] = Softmax(%n) axis=-1\n out %y\n}\n";

static void world_of(world *w, const char *text, sec_mode mode, uint64_t seed)
{
    world_graph(w, text, seed, 0.5);
    w->seen = mode.calibrated ? ARENA_ARRAY(&w->memory, w->graph->values.count + 1u, double) : NULL;
    for (uint32_t i = 0; w->seen && i < w->graph->values.count; i++)
        w->seen[i] = 3;
    if (world_compile(w, mode) != TACIT_OK)
        fail_msg("%s", w->err.message);
    assert_true(!mode.calibrated || w->p->guarded > 0);
    world_inputs(w, 1.5);
}

static void small_world(world *w, sec_mode mode, uint64_t seed)
{
    world_of(w, net, mode, seed);
}

/* ---- key files ---- */

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/tacit-secure-XXXXXX");
    return mkdtemp(folder) && setenv("TACIT_STATE_HOME", folder, 1) == 0 ? 0 : -1;
}
static int drop_folder(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

static tacit_status to_writer(void *context, unsigned party, const void *data, size_t size,
                              tacit_error *err)
{
    return key_writer_add((key_writer *)context + party, data, size, err);
}

static const char *key_path(unsigned party)
{
    static char path[2][128];
    snprintf(path[party], sizeof path[party], "%s/%u.key", folder, party);
    return path[party];
}

/* The session of these keys is all zeros. */
static void forget_marks(void)
{
    static const char *const places[] = {".tacit-used", "keys"};
    for (int i = 0; i < 2; i++) {
        char mark[160];
        snprintf(mark, sizeof mark, "%s/%s/%032d-c-0", folder, places[i], 0);
        unlink(mark);
    }
}

static void deal_files(world *w, uint32_t runs)
{
    uint8_t seed[2][16] = {{1}, {2}}, secret[KEY_SECRET];
    key_writer writer[2];
    fss_dealer dealer;
    fss_dealer_init(&dealer, &w->p->suite, seed[0], seed[1]);
    for (unsigned b = 0; b < 2; b++) {
        key_header h = key_header_for(w->p, b, runs, true);
        assert_int_equal(key_secret(key_path(b), NULL, true, secret, &w->err), TACIT_OK);
        assert_int_equal(key_writer_open(&writer[b], key_path(b), &h, secret, seed[b], &w->err),
                         TACIT_OK);
    }
    for (uint32_t run = 0; run < runs; run++) {
        assert_int_equal(sec_deal(w->p, &dealer, run, to_writer, writer, &w->err), TACIT_OK);
        for (int b = 0; b < 2; b++)
            assert_int_equal(key_writer_end_run(&writer[b], &w->err), TACIT_OK);
    }
    for (int b = 0; b < 2; b++)
        assert_int_equal(key_writer_commit(&writer[b], &w->err), TACIT_OK);
}

static void a_run_is_given_out_once(void **state)
{
    (void)state;
    world w;
    small_world(&w, world_mode(), 1);
    deal_files(&w, 3);
    key_reader r;
    assert_int_equal(key_reader_open(&r, key_path(1), NULL, &w.err), TACIT_OK);
    assert_int_equal(key_check(&r.header, w.p, 1, &w.err), TACIT_OK);
    assert_true(r.header.flags & KEY_PREDICTABLE);
    assert_int_equal(key_next_run(&r), 0);
    uint8_t *all = malloc(r.header.run_bytes + 1);
    for (uint32_t run = 0; run < 3; run++) {
        assert_int_equal(key_take_run(&r, run, &w.err), TACIT_OK);
        assert_int_equal(key_reader_read(&r, all, r.header.run_bytes, &w.err), TACIT_OK);
        assert_int_not_equal(key_reader_read(&r, all, 1, &w.err), TACIT_OK);
        assert_int_equal(key_take_run(&r, run, &w.err), TACIT_ERR_SECURITY);
        assert_int_equal(key_next_run(&r), run + 1);
    }
    assert_int_equal(key_take_run(&r, 3, &w.err), TACIT_ERR_SECURITY);
    free(all);
    key_reader_close(&r);
    world_end(&w);
}

/* Killed between the mark and the first byte: the run stays spent. */
static void a_killed_run_stays_spent(void **state)
{
    (void)state;
    world w;
    small_world(&w, world_mode(), 2);
    deal_files(&w, 2);
    pid_t pid = fork();
    if (pid == 0) {
        key_reader r;
        if (key_reader_open(&r, key_path(0), NULL, NULL) == TACIT_OK &&
            key_take_run(&r, 0, NULL) == TACIT_OK)
            kill(getpid(), SIGKILL);
        _exit(1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    key_reader r;
    assert_int_equal(key_reader_open(&r, key_path(0), NULL, &w.err), TACIT_OK);
    assert_int_equal(key_next_run(&r), 1);
    assert_int_equal(key_take_run(&r, 0, &w.err), TACIT_ERR_SECURITY);
    assert_int_equal(key_take_run(&r, 1, &w.err), TACIT_OK);
    key_reader_close(&r);
    world_end(&w);
}

/* A mark in one of the two folders is enough, and what cannot be marked is not used. */
static void one_mark_is_enough(void **state)
{
    (void)state;
    world w;
    small_world(&w, world_mode(), 2);
    deal_files(&w, 3);
    key_reader r;
    assert_int_equal(key_reader_open(&r, key_path(0), NULL, &w.err), TACIT_OK);
    static const char *const places[] = {".tacit-used", "keys"};
    for (uint32_t run = 0; run < 2; run++) {
        assert_int_equal(key_take_run(&r, run, &w.err), TACIT_OK);
        char mark[160];
        snprintf(mark, sizeof mark, "%s/%s/%032d-s-%u", folder, places[run], 0, run);
        assert_int_equal(unlink(mark), 0);
        assert_int_equal(key_next_run(&r), run + 1);
        assert_int_equal(key_take_run(&r, run, &w.err), TACIT_ERR_SECURITY);
    }
    key_reader_close(&r);
    assert_int_equal(setenv("TACIT_STATE_HOME", "/dev/null", 1), 0);
    assert_int_equal(key_reader_open(&r, key_path(0), NULL, &w.err), TACIT_OK);
    assert_int_equal(key_take_run(&r, 2, &w.err), TACIT_ERR_IO);
    key_reader_close(&r);
    world_end(&w);
}

static void wrong_keys_are_refused(void **state)
{
    (void)state;
    world w, other;
    small_world(&w, world_mode(), 3);
    sec_mode dither = world_mode();
    dither.dither = true;
    small_world(&other, dither, 3);
    deal_files(&w, 1);
    key_reader r;
    assert_int_equal(key_reader_open(&r, key_path(0), NULL, &w.err), TACIT_OK);
    assert_int_equal(key_check(&r.header, w.p, 0, &w.err), TACIT_OK);
    assert_int_equal(key_check(&r.header, w.p, 1, &w.err), TACIT_ERR_SECURITY);
    assert_int_equal(key_check(&r.header, other.p, 0, &w.err), TACIT_ERR_SECURITY);
    key_reader_close(&r);
    char command[96];
    snprintf(command, sizeof command, "%s/wrong.secret", folder);
    FILE *f = fopen(command, "wb");
    assert_int_equal(fwrite((uint8_t[KEY_SECRET]){1}, 1, KEY_SECRET, f), KEY_SECRET);
    fclose(f);
    assert_int_equal(key_reader_open(&r, key_path(0), command, &w.err), TACIT_ERR_SECURITY);
    world_end(&w);
    world_end(&other);
}

/* Every kind of damage is noticed: at opening, or when the damaged chunk is read. */
static void damaged_keys_are_refused(void **state)
{
    (void)state;
    world w;
    small_world(&w, world_mode(), 4);
    deal_files(&w, 1);
    struct stat st;
    assert_int_equal(stat(key_path(1), &st), 0);
    uint8_t *all = malloc((size_t)st.st_size), *run = malloc(w.p->key_bytes[1] + 1);
    FILE *f = fopen(key_path(1), "rb");
    assert_int_equal(fread(all, 1, (size_t)st.st_size, f), st.st_size);
    fclose(f);
    uint32_t refused = 0, tried = 0;
    for (off_t at = 0; at < st.st_size; at += at < 200 ? 1 : 97) {
        f = fopen(key_path(1), "wb");
        all[at] ^= 0x40;
        fwrite(all, 1, (size_t)st.st_size, f);
        all[at] ^= 0x40;
        fclose(f);
        key_reader r;
        bool ok = key_reader_open(&r, key_path(1), NULL, &w.err) == TACIT_OK &&
                  key_check(&r.header, w.p, 1, &w.err) == TACIT_OK &&
                  key_take_run(&r, 0, &w.err) == TACIT_OK &&
                  key_reader_read(&r, run, w.p->key_bytes[1], &w.err) == TACIT_OK;
        if (strstr(w.err.message, "used before"))
            fail_msg("%s", w.err.message);
        key_reader_close(&r);
        forget_marks();
        tried++;
        refused += !ok;
    }
    assert_int_equal(refused, tried);
    assert_true(tried > 100);
    for (off_t size = 0; size < st.st_size; size += 61) {
        assert_int_equal(truncate(key_path(1), size), 0);
        key_reader r;
        assert_int_not_equal(key_reader_open(&r, key_path(1), NULL, &w.err), TACIT_OK);
        f = fopen(key_path(1), "wb");
        fwrite(all, 1, (size_t)st.st_size, f);
        fclose(f);
    }
    free(all);
    free(run);
    world_end(&w);
}

/* ---- the line ---- */

static void lines(channel c[2], int timeout)
{
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    channel_plain(&c[0], fds[0], timeout);
    channel_plain(&c[1], fds[1], timeout);
}

static void frames_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    frame good = {FRAME_DATA, 0, 8};
    static const struct {
        frame f;
        int break_at;
        tacit_status want;
    } cases[] = {
        {{FRAME_DATA, 0, 8}, -1, TACIT_OK},
        {{FRAME_DATA, 1, 8}, -1, TACIT_ERR_SECURITY},
        {{FRAME_DATA, 0, 9}, -1, TACIT_ERR_SECURITY},
        {{FRAME_DATA, 0, (uint64_t)1 << 62}, -1, TACIT_ERR_SECURITY},
        {{FRAME_HELLO, 0, 8}, -1, TACIT_ERR_SECURITY},
        {{FRAME_ABORT, TACIT_ERR_VALUE, 0}, -1, TACIT_ERR_PEER},
        {{FRAME_DATA, 0, 8}, 0, TACIT_ERR_SECURITY},
        {{FRAME_DATA, 0, 8}, 4, TACIT_ERR_SECURITY},
        {{FRAME_DATA, 0, 8}, 6, TACIT_ERR_SECURITY},
        {{FRAME_DATA, 0, 8}, 13, TACIT_ERR_SECURITY},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        channel c[2];
        lines(c, 500);
        uint8_t bytes[FRAME_HEADER + 8] = {0}, in[8];
        frame_write(&cases[i].f, bytes);
        if (cases[i].break_at >= 0)
            bytes[cases[i].break_at] ^= 0x80;
        assert_int_equal(send(c[0].fd, bytes, sizeof bytes, 0), sizeof bytes);
        tacit_error err;
        assert_int_equal(channel_exchange(&c[1], NULL, 0, in, 8, &err), cases[i].want);
        channel_close(&c[0]);
        channel_close(&c[1]);
    }
    uint8_t bytes[FRAME_HEADER];
    frame back;
    frame_write(&good, bytes);
    assert_int_equal(frame_read(bytes, &back, NULL), TACIT_OK);
    assert_true(back.kind == good.kind && back.number == good.number && back.length == good.length);
}

static void silence_ends(void **state)
{
    (void)state;
    channel c[2];
    lines(c, 50);
    uint8_t in[4];
    tacit_error err;
    assert_int_equal(channel_exchange(&c[0], NULL, 0, in, 4, &err), TACIT_ERR_PEER);
    close(c[1].fd);
    c[1].fd = -1;
    assert_int_equal(channel_exchange(&c[0], "abcd", 4, in, 4, &err), TACIT_ERR_PEER);
    channel_close(&c[0]);
}

/* Both directions at once and far beyond what sockets buffer. */
static void *big_side(void *context)
{
    enum { SIZE = 3000000 };
    channel *c = context;
    uint8_t *out = malloc(SIZE), *in = malloc(SIZE);
    memset(out, c->timeout_ms & 255, SIZE);
    tacit_error err;
    tacit_status status = channel_exchange(c, out, SIZE, in, SIZE, &err);
    bool same = status == TACIT_OK;
    for (int i = 1; i < SIZE; i++)
        same &= in[i] == in[0];
    free(out);
    free(in);
    return same ? NULL : c;
}
static void large_messages_cross(void **state)
{
    (void)state;
    channel c[2];
    pthread_t t[2];
    lines(c, 20000);
    for (int b = 0; b < 2; b++)
        assert_int_equal(pthread_create(&t[b], NULL, big_side, &c[b]), 0);
    for (int b = 0; b < 2; b++) {
        void *failed;
        pthread_join(t[b], &failed);
        assert_null(failed);
    }
    channel_close(&c[0]);
    channel_close(&c[1]);
}

/* ---- runs ---- */

/* Whoever dies, whenever: the other ends with an error and nothing has been given out. */
static void a_lost_peer_ends_the_run(void **state)
{
    (void)state;
    for (unsigned who = 0; who < 2; who++) {
        bool finished = false;
        for (uint64_t after = 1; !finished; after++) {
            world w;
            small_world(&w, world_mode(), 5);
            side s[2] = {{0}};
            s[who].stop_after = after;
            world_parties(&w, after, s);
            finished = s[0].status == TACIT_OK && s[1].status == TACIT_OK;
            if (!finished) {
                assert_int_not_equal(s[who].status, TACIT_OK);
                if (s[1].status != TACIT_OK) { /* the client has no answer */
                    const uint8_t *out = w.out[0]->data;
                    for (size_t i = 0; i < w.out[0]->bytes; i++)
                        assert_int_equal(out[i], 0xa5);
                }
            }
            world_end(&w);
            assert_true(after < 40);
        }
    }
}

/* Only the bits behind a string's last word can be too much; whoever receives them says so. */
static void openings_wider_than_their_ring(void **state)
{
    (void)state;
    for (unsigned bits = 1; bits <= 64; bits++)
        for (size_t count = 1; count < 20; count++) {
            uint8_t packed[200] = {0};
            size_t size = fss_pack_bytes(bits, count);
            unsigned unused = (unsigned)(8 * size - bits * count);
            uint64_t words[20];
            memset(words, 0xff, sizeof words);
            fss_pack(packed, bits, words, count);
            assert_true(fss_pack_clean(packed, bits, count));
            for (unsigned k = 0; k < unused; k++) {
                packed[size - 1] ^= (uint8_t)(0x80 >> k);
                assert_false(fss_pack_clean(packed, bits, count));
                packed[size - 1] ^= (uint8_t)(0x80 >> k);
            }
        }
    unsigned refused = 0;
    for (unsigned who = 0; who < 2; who++)
        for (uint64_t message = 1; message < 12; message++) {
            world w;
            small_world(&w, world_mode(), 5);
            side s[2] = {{0}};
            s[who].widen = message;
            world_parties_quietly(&w, message, s);
            bool seen = s[1 - who].status == TACIT_ERR_SECURITY;
            refused += seen;
            assert_true(!seen || strstr(s[1 - who].err.message, "wider than its ring"));
            world_end(&w);
        }
    assert_true(refused >= 4);
}

/* Bytes that each party sends, over many keys: as likely for one input as for another. */
static void compare_transcripts(const char *text, sec_mode mode)
{
    enum { KEYS = 100, BINS = 16 };
    double chi[2] = {0};
    uint64_t cells[2] = {0};
    size_t size[2] = {0};
    uint32_t *count[2][2] = {{0}};
    for (int input = 0; input < 2; input++)
        for (int k = 0; k < KEYS; k++) {
            world w;
            world_of(&w, text, mode, 77);
            w.r = rng_seed((uint64_t)(1000 * input + k + 1)); /* fresh keys, the same model */
            for (int i = 0; i < 12; i++)
                ((float *)w.in[0]->data)[i] = input ? 1.0f : -0.75f;
            side s[2] = {{0}};
            s[0].sent = malloc(1);
            s[1].sent = malloc(1);
            world_parties(&w, 1, s);
            for (int b = 0; b < 2; b++) {
                assert_int_equal(s[b].status, TACIT_OK);
                size[b] = s[b].sent_size;
                if (!count[input][b])
                    count[input][b] = calloc(size[b] * BINS, sizeof(uint32_t));
                for (size_t i = 0; i < size[b]; i++)
                    count[input][b][i * BINS + s[b].sent[i] % BINS]++;
                free(s[b].sent);
            }
            world_end(&w);
        }
    for (int b = 0; b < 2; b++) {
        for (size_t i = 0; i < size[b] * BINS; i++) {
            double x = count[0][b][i], y = count[1][b][i];
            if (x + y > 0) {
                chi[b] += (x - y) * (x - y) / (x + y);
                cells[b]++;
            }
        }
        /* about cells - positions degrees of freedom: mean and deviation of chi-square */
        double freedom = (double)cells[b] - (double)size[b], z;
        z = (chi[b] - freedom) / sqrt(2 * freedom);
        assert_true(freedom > 500);
        if (fabs(z) > 5)
            fail_msg("party %d: chi-square %g for %g degrees of freedom", b, chi[b], freedom);
        free(count[0][b]);
        free(count[1][b]);
    }
}

static void transcripts_do_not_tell_inputs_apart(void **state)
{
    (void)state;
    compare_transcripts(net, world_mode());
    sec_mode guarded = world_mode();
    guarded.calibrated = true;
    compare_transcripts(net, guarded);
    for (int how = SEC_AUTO; how < SEC_COMPARES; how++) {
        sec_mode m = world_mode();
        m.compare = (uint8_t)how;
        m.dither = how == SEC_TREES;
        compare_transcripts(soft, m);
    }
}

/* No two gates, and no two runs, draw from the same place of a seed. */
static void audit_ids(const char *text, sec_mode mode)
{
    world w;
    world_of(&w, text, mode, 6);
    uint64_t last = 0;
    for (uint32_t i = 0; i < w.p->instrs.count; i++) {
        const sec_instr *in = &w.p->instrs.data[i];
        if (in->op == SEC_WEIGHT) {
            assert_true(in->id >> SEC_WEIGHT_ID);
            continue;
        }
        assert_true(in->id > last);
        last = in->id + (in->op == SEC_MATMUL ? in->batch - 1 : 0);
        assert_true(last < w.p->ids);
    }
    assert_true(w.p->ids * 1000000 >> SEC_WEIGHT_ID == 0);
    world_end(&w);
}

static void ids_never_repeat(void **state)
{
    (void)state;
    for (int weights = SEC_PUBLIC; weights <= SEC_SERVER; weights++)
        for (int how = SEC_AUTO; how < SEC_COMPARES; how++) {
            sec_mode m = world_mode();
            m.weights = weights;
            m.compare = (uint8_t)how;
            audit_ids(net, m);
            audit_ids(soft, m);
            m.calibrated = true;
            audit_ids(net, m);
        }
}

/* ---- bad models and inputs ---- */

static void what_cannot_be_done_is_said(void **state)
{
    (void)state;
    static const struct {
        const char *body, *says;
    } cases[] = {
        {" %y : f32[2,6] = Erf(%x)\n", "Op Erf in node 'n0' has no secure rule"},
        {" %z : f32[2,6] = Mul(%x, %x)\n %u : f32[2,6] = Mul(%z, %z)\n %v : f32[2,6] = Mul(%u, "
         "%u)\n"
         " %s : f32[2,6] = Mul(%v, %v)\n %q : f32[2,6] = Mul(%s, %s)\n %y : f32[2,6] = Mul(%q, "
         "%q)\n",
         "bits and there are 64"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[1000];
        world w;
        snprintf(text, sizeof text,
                 "tacit 1\ngraph \"g\" {\n opset \"\" 22\n in %%x : f32[2,6]\n%s out %%y\n}\n",
                 cases[i].body);
        world_graph(&w, text, 1, 1);
        assert_int_not_equal(world_compile(&w, world_mode()), TACIT_OK);
        if (!strstr(w.err.message, cases[i].says))
            fail_msg("'%s' does not say '%s'", w.err.message, cases[i].says);
        world_end(&w);
    }
    world w;
    world_graph(&w, net, 9, 0.5);
    ir_value *v = ir_value_find(w.graph, "w2");
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++) {
        ((float *)v->constant->data)[3] = bad[i];
        assert_int_equal(world_compile(&w, world_mode()), TACIT_ERR_VALUE);
        assert_non_null(strstr(w.err.message, "'w2'"));
    }
    world_end(&w);
}

static void bad_inputs_are_refused_by_the_client(void **state)
{
    (void)state;
    world w;
    small_world(&w, world_mode(), 10);
    uint64_t words[12];
    assert_int_equal(sec_encode(w.p, 0, w.in[0], words, &w.err), TACIT_OK);
    static const float bad[] = {INFINITY, -INFINITY, NAN};
    for (int i = 0; i < 3; i++) {
        ((float *)w.in[0]->data)[5] = bad[i];
        assert_int_equal(sec_encode(w.p, 0, w.in[0], words, &w.err), TACIT_ERR_VALUE);
    }
    ((float *)w.in[0]->data)[5] = 4.5f; /* outside what ranges were proven for */
    assert_int_equal(sec_encode(w.p, 0, w.in[0], words, &w.err), TACIT_ERR_VALUE);
    assert_null(strstr(w.err.message, "4.5")); /* nothing secret in a message */
    ir_shape wrong = ir_shape_of(2, (int64_t[]){3, 4});
    ir_tensor t = ir_tensor_view(TACIT_F32, &wrong, w.in[0]->data);
    assert_int_equal(sec_encode(w.p, 0, &t, words, &w.err), TACIT_ERR_SHAPE);
    world_end(&w);
}

/* The vectors of FIPS 180-4, in pieces of every size. */
static void hashes_are_sha256(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint8_t first[4];
    } cases[] = {
        {"", {0xe3, 0xb0, 0xc4, 0x42}},
        {"abc", {0xba, 0x78, 0x16, 0xbf}},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", {0x24, 0x8d, 0x6a, 0x61}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t piece = 1; piece < 60; piece++) {
            sha256 s;
            uint8_t out[32];
            size_t n = strlen(cases[i].text);
            sha256_init(&s);
            for (size_t at = 0; at < n; at += piece)
                sha256_add(&s, cases[i].text + at, n - at < piece ? n - at : piece);
            sha256_end(&s, out);
            assert_memory_equal(out, cases[i].first, 4);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_run_is_given_out_once, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(a_killed_run_stays_spent, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(one_mark_is_enough, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(wrong_keys_are_refused, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(damaged_keys_are_refused, make_folder, drop_folder),
        cmocka_unit_test(hashes_are_sha256),
        cmocka_unit_test(frames_that_do_not_fit_are_refused),
        cmocka_unit_test(silence_ends),
        cmocka_unit_test(large_messages_cross),
        cmocka_unit_test(a_lost_peer_ends_the_run),
        cmocka_unit_test(openings_wider_than_their_ring),
        cmocka_unit_test(transcripts_do_not_tell_inputs_apart),
        cmocka_unit_test(ids_never_repeat),
        cmocka_unit_test(what_cannot_be_done_is_said),
        cmocka_unit_test(bad_inputs_are_refused_by_the_client),
    };
    return cmocka_run_group_tests_name("secure.security", tests, NULL, NULL);
}
