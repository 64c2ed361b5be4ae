/* SPDX-License-Identifier: Apache-2.0
 * The public interface end to end: description, keys, TLS over the loopback, both parties as
 * threads; and everything that must be refused there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tacit/secure.h"

typedef struct place {
    char dir[64], arch[96], server[96], client[96], certs[96], address[64];
    tacit_model *model;
    tacit_secure *owner, *other;
    tacit_error err;
} place;

static const char text[] =
    "tacit 1\ngraph \"net\" {\n model_doc \"hush\"\n metadata \"for\" \"hush\"\n doc \"hush\"\n "
    "opset \"\" 22\n in %x : f32[1,4]\n"
    " const %w : f32[4,3] = [0.5, -0.25, 1.0, 0.125, 0.75, -1.0, 0.3, 0.2, 0.1, -0.6, 0.4, 0.9]\n"
    " const %b : f32[3] = [0.1, -0.2, 0.3]\n %a : f32[1,3] = MatMul(%x, %w) @m\n"
    " %c : f32[1,3] = Add(%a, %b) @a\n %y : f32[1,3] = Relu(%c) @r\n out %y\n}\n";

static void must(place *p, tacit_status status)
{
    if (status != TACIT_OK)
        fail_msg("%s", p->err.message);
}

static void place_with(place *p, int number, const tacit_secure_options *options)
{
    memset(p, 0, sizeof *p);
    snprintf(p->dir, sizeof p->dir, "/tmp/tacit-session-XXXXXX");
    assert_non_null(mkdtemp(p->dir));
    assert_int_equal(setenv("TACIT_STATE_HOME", p->dir, 1), 0);
    snprintf(p->arch, sizeof p->arch, "%s/arch.tacit", p->dir);
    snprintf(p->server, sizeof p->server, "%s/s.key", p->dir);
    snprintf(p->client, sizeof p->client, "%s/c.key", p->dir);
    snprintf(p->certs, sizeof p->certs, "%s/certs", p->dir);
    snprintf(p->address, sizeof p->address, "127.0.0.1:%d",
             20000 + ((int)getpid() * 16 + number) % 30000);
    char path[96];
    snprintf(path, sizeof path, "%s/m.tacit", p->dir);
    FILE *f = fopen(path, "w");
    fputs(text, f);
    fclose(f);
    must(p, tacit_model_load(path, NULL, &p->model, &p->err));
    must(p, tacit_secure_compile(p->model, options, &p->owner, &p->err));
    must(p, tacit_secure_strip(p->owner, p->arch, &p->err));
    must(p, tacit_secure_load(p->arch, &p->other, &p->err));
    tacit_secure_deal_options deal = {.runs = 4, .server_key = p->server, .client_key = p->client};
    must(p, tacit_secure_deal(p->other, &deal, &p->err));
    must(p, tacit_secure_certificates(p->certs, 2, &p->err));
}

static void place_make(place *p, int number)
{
    place_with(p, number, NULL);
}

static void place_end(place *p)
{
    char command[128];
    tacit_secure_free(p->other);
    tacit_secure_free(p->owner);
    tacit_model_free(p->model);
    snprintf(command, sizeof command, "rm -rf %s", p->dir);
    assert_int_equal(system(command), 0);
}

typedef struct serving {
    place *p;
    const char *certs, *share[2];
    tacit_secure_report report;
    tacit_status status;
    tacit_error err;
} serving;

static void *serve(void *context)
{
    serving *s = context;
    tacit_secure_peer peer = {.key = s->p->server,
                              .address = s->p->address,
                              .certificates = s->certs,
                              .share = s->share[0],
                              .timeout_ms = 8000};
    s->status = tacit_secure_serve(s->share[0] ? s->p->other : s->p->owner, &peer, NULL, &s->err);
    return NULL;
}

/* One query against a server thread; both statuses come back. */
static tacit_status ask(place *p, serving *s, const char *certs, float *x, float *y)
{
    tacit_secure_peer peer = {.key = p->client,
                              .address = p->address,
                              .certificates = certs,
                              .share = s->share[1],
                              .timeout_ms = 8000};
    tacit_tensor in = {
        .name = "x", .dtype = TACIT_F32, .rank = 2, .dims = {1, 4}, .data = x, .bytes = 16};
    tacit_tensor out = {
        .name = "y", .dtype = TACIT_F32, .rank = 2, .dims = {1, 3}, .data = y, .bytes = 12};
    pthread_t thread;
    s->p = p;
    s->certs = s->certs ? s->certs : p->certs;
    assert_int_equal(pthread_create(&thread, NULL, serve, s), 0);
    tacit_status status = tacit_secure_query(p->other, &peer, &in, 1, &out, 1, &s->report, &p->err);
    pthread_join(thread, NULL);
    return status;
}

static void a_query_is_answered_and_keys_run_out(void **state)
{
    (void)state;
    place p;
    place_make(&p, 0);
    float x[4] = {0.5f, -1.25f, 2.0f, 0.75f}, y[3], sim[3];
    tacit_tensor in = {.dtype = TACIT_F32, .rank = 2, .dims = {1, 4}, .data = x, .bytes = 16};
    tacit_tensor out = {.dtype = TACIT_F32, .rank = 2, .dims = {1, 3}, .data = sim, .bytes = 12};
    must(&p, tacit_secure_simulate(p.owner, &in, 1, &out, 1, 0, 0, &p.err));
    for (int run = 0; run < 4; run++) {
        serving s = {0};
        must(&p, ask(&p, &s, p.certs, x, y));
        assert_int_equal(s.status, TACIT_OK);
        assert_memory_equal(y, sim, sizeof y);
        float want[3];
        static const float w[4][3] = {
            {0.5f, -0.25f, 1.0f}, {0.125f, 0.75f, -1.0f}, {0.3f, 0.2f, 0.1f}, {-0.6f, 0.4f, 0.9f}};
        static const float b[3] = {0.1f, -0.2f, 0.3f};
        for (int j = 0; j < 3; j++) {
            want[j] = b[j];
            for (int i = 0; i < 4; i++)
                want[j] += x[i] * w[i][j];
            want[j] = want[j] > 0 ? want[j] : 0;
            assert_float_equal(y[j], want[j], 0.003);
        }
    }
    serving s = {0};
    assert_int_equal(ask(&p, &s, p.certs, x, y), TACIT_ERR_SECURITY);
    assert_int_equal(s.status, TACIT_ERR_SECURITY);
    assert_non_null(strstr(s.err.message, "used up"));
    place_end(&p);
}

static void strangers_are_refused(void **state)
{
    (void)state;
    place p;
    place_make(&p, 1);
    char other[96], old[96];
    snprintf(other, sizeof other, "%s/other", p.dir);
    snprintf(old, sizeof old, "%s/old", p.dir);
    must(&p, tacit_secure_certificates(other, 2, &p.err));
    must(&p, tacit_secure_certificates(old, 0, &p.err));
    float x[4] = {0}, y[3] = {7, 7, 7};
    serving s = {0};
    assert_int_not_equal(ask(&p, &s, other, x, y), TACIT_OK); /* another authority */
    assert_int_not_equal(s.status, TACIT_OK);
    s = (serving){.certs = old};
    assert_int_not_equal(ask(&p, &s, old, x, y), TACIT_OK); /* expired */
    assert_non_null(strstr(p.err.message, "expired"));
    assert_true(y[0] == 7 && y[1] == 7 && y[2] == 7);
    /* neither spent a run */
    for (int run = 0; run < 4; run++) {
        s = (serving){0};
        must(&p, ask(&p, &s, p.certs, x, y));
    }
    place_end(&p);
}

static void descriptions_hold_no_weights(void **state)
{
    (void)state;
    place p;
    place_make(&p, 2);
    FILE *f = fopen(p.arch, "r");
    char all[8192];
    size_t n = fread(all, 1, sizeof all - 1, f);
    fclose(f);
    all[n] = 0;
    assert_null(strstr(all, "0.75"));
    assert_null(strstr(all, "b64"));
    assert_null(strstr(all, "hush")); /* words about the model are not part of it */
    assert_non_null(strstr(all, "%w : f32[4,3] = ..."));
    /* a changed description is noticed */
    char *shape = strstr(all, "facts");
    char *digit = shape + strlen("facts 8 ");
    *digit = *digit == '1' ? '2' : '1';
    f = fopen(p.arch, "w");
    fputs(all, f);
    fclose(f);
    tacit_secure *bad = NULL;
    assert_int_not_equal(tacit_secure_load(p.arch, &bad, &p.err), TACIT_OK);
    assert_null(bad);
    place_end(&p);
}

static void bad_inputs_spend_nothing(void **state)
{
    (void)state;
    place p;
    place_make(&p, 3);
    float x[4] = {0, 0, 1e9f, 0}, y[3];
    tacit_secure_peer peer = {.key = p.client, .address = p.address, .certificates = p.certs};
    tacit_tensor in = {.dtype = TACIT_F32, .rank = 2, .dims = {1, 4}, .data = x, .bytes = 16};
    tacit_tensor out = {.dtype = TACIT_F32, .rank = 2, .dims = {1, 3}, .data = y, .bytes = 12};
    assert_int_equal(tacit_secure_query(p.other, &peer, &in, 1, &out, 1, NULL, &p.err),
                     TACIT_ERR_VALUE);
    in.dims[1] = 3;
    assert_int_equal(tacit_secure_query(p.other, &peer, &in, 1, &out, 1, NULL, &p.err),
                     TACIT_ERR_SHAPE);
    char marks[128];
    snprintf(marks, sizeof marks, "%s/.tacit-used", p.dir);
    assert_int_not_equal(access(marks, F_OK), 0);
    place_end(&p);
}

/* Bytes between client and server, one of them changed on its way. */
typedef struct proxy {
    int listener, port;
    const char *server;
    uint64_t break_at;
    bool toward_server;
} proxy;

static bool pass(int from, int to, uint64_t *count, uint64_t break_at)
{
    uint8_t bytes[4096];
    ssize_t n = recv(from, bytes, sizeof bytes, 0);
    if (n <= 0)
        return false;
    if (*count <= break_at && break_at < *count + (uint64_t)n)
        bytes[break_at - *count] ^= 0x10;
    *count += (uint64_t)n;
    return send(to, bytes, (size_t)n, MSG_NOSIGNAL) == n;
}

static void *relay(void *context)
{
    proxy *p = context;
    int client = accept(p->listener, NULL, NULL), server = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(p->server))};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int i = 0; i < 400 && connect(server, (void *)&to, sizeof to) != 0; i++)
        usleep(20000);
    uint64_t up = 0, down = 0, never = UINT64_MAX;
    struct pollfd f[2] = {{client, POLLIN, 0}, {server, POLLIN, 0}};
    bool open = true;
    while (open && poll(f, 2, 10000) > 0) {
        if (f[0].revents)
            open = pass(client, server, &up, p->toward_server ? p->break_at : never);
        if (open && f[1].revents)
            open = pass(server, client, &down, p->toward_server ? never : p->break_at);
    }
    close(client);
    close(server);
    return NULL;
}

static void a_changed_byte_ends_the_session(void **state)
{
    (void)state;
    for (int way = 0; way < 2; way++) {
        place p;
        place_make(&p, 8 + way);
        float x[4] = {0.5f, 0, 1, 0}, y[3] = {7, 7, 7};
        struct sockaddr_in at = {.sin_family = AF_INET};
        socklen_t size = sizeof at;
        proxy between = {.listener = socket(AF_INET, SOCK_STREAM, 0),
                         .server = strchr(p.address, ':') + 1,
                         .break_at = 1300, /* behind the certificates, in the middle of the run */
                         .toward_server = way};
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        assert_int_equal(bind(between.listener, (void *)&at, sizeof at), 0);
        assert_int_equal(listen(between.listener, 1), 0);
        assert_int_equal(getsockname(between.listener, (void *)&at, &size), 0);
        char address[64];
        snprintf(address, sizeof address, "127.0.0.1:%d", ntohs(at.sin_port));
        pthread_t wire, server;
        serving s = {.p = &p, .certs = p.certs};
        assert_int_equal(pthread_create(&server, NULL, serve, &s), 0);
        assert_int_equal(pthread_create(&wire, NULL, relay, &between), 0);
        tacit_secure_peer peer = {
            .key = p.client, .address = address, .certificates = p.certs, .timeout_ms = 8000};
        tacit_tensor in = {.dtype = TACIT_F32, .rank = 2, .dims = {1, 4}, .data = x, .bytes = 16};
        tacit_tensor out = {.dtype = TACIT_F32, .rank = 2, .dims = {1, 3}, .data = y, .bytes = 12};
        assert_int_not_equal(tacit_secure_query(p.other, &peer, &in, 1, &out, 1, NULL, &p.err),
                             TACIT_OK);
        pthread_join(server, NULL);
        pthread_join(wire, NULL);
        assert_int_not_equal(s.status, TACIT_OK);
        assert_true(y[0] == 7 && y[1] == 7 && y[2] == 7);
        close(between.listener);
        place_end(&p);
    }
}

static void copy_file(const char *from, const char *to)
{
    char command[600];
    snprintf(command, sizeof command, "cp %s %s && cp %s.secret %s.secret", from, to, from, to);
    assert_int_equal(system(command), 0);
}

/* Used runs are remembered by the session: copies of a key under other names and in other folders
 * know of them, keys dealt anew to the same paths do not. */
static void marks_follow_the_session(void **state)
{
    (void)state;
    place p;
    place_make(&p, 10);
    float x[4] = {0.5f, 0, 1, 0}, y[3];
    for (int run = 0; run < 4; run++) {
        serving s = {0};
        must(&p, ask(&p, &s, p.certs, x, y));
    }
    char copy[128], folder[96], there[128];
    snprintf(copy, sizeof copy, "%s/copy.key", p.dir);
    snprintf(folder, sizeof folder, "mkdir %s/elsewhere", p.dir);
    snprintf(there, sizeof there, "%s/elsewhere/s.key", p.dir);
    assert_int_equal(system(folder), 0);
    copy_file(p.server, copy);
    copy_file(p.server, there);
    const char *used[] = {p.server, copy, there};
    for (int i = 0; i < 3; i++) {
        tacit_secure_peer peer = {
            .key = used[i], .address = p.address, .certificates = p.certs, .timeout_ms = 1000};
        assert_int_equal(tacit_secure_serve(p.owner, &peer, NULL, &p.err), TACIT_ERR_SECURITY);
        assert_non_null(strstr(p.err.message, "used up"));
    }
    tacit_secure_deal_options deal = {.runs = 1, .server_key = p.server, .client_key = p.client};
    must(&p, tacit_secure_deal(p.other, &deal, &p.err));
    serving s = {0};
    must(&p, ask(&p, &s, p.certs, x, y));
    assert_int_equal(s.status, TACIT_OK);
    /* one party's marks are enough: the other's run is not used again either */
    deal.runs = 2;
    must(&p, tacit_secure_deal(p.other, &deal, &p.err));
    for (int run = 0; run < 2; run++) {
        s = (serving){0};
        must(&p, ask(&p, &s, p.certs, x, y));
        assert_int_equal(s.report.run, run);
        char forget[200]; /* as if the client's key had been brought to another machine */
        snprintf(forget, sizeof forget, "rm -f %s/.tacit-used/*-c-* %s/keys/*-c-*", p.dir, p.dir);
        assert_int_equal(system(forget), 0);
    }
    place_end(&p);
}

/* The owner's are others now, of the same rounded sizes. */
static void change_weights(place *p)
{
    char path[96], changed[sizeof text];
    snprintf(path, sizeof path, "%s/other.tacit", p->dir);
    strcpy(changed, text);
    memcpy(strstr(changed, "0.125"), "0.126", 5);
    FILE *f = fopen(path, "w");
    fputs(changed, f);
    fclose(f);
    tacit_secure_free(p->owner);
    tacit_model_free(p->model);
    must(p, tacit_model_load(path, NULL, &p->model, &p->err));
    must(p, tacit_secure_compile(p->model, NULL, &p->owner, &p->err));
}

/* New keys at the old place serve other weights. */
static void keys_dealt_anew_serve_other_weights(void **state)
{
    (void)state;
    place p;
    place_make(&p, 11);
    float x[4] = {0.5f, 0, 1, 0}, y[3];
    serving s = {0};
    must(&p, ask(&p, &s, p.certs, x, y));
    change_weights(&p);
    tacit_secure_deal_options deal = {.runs = 1, .server_key = p.server, .client_key = p.client};
    must(&p, tacit_secure_deal(p.other, &deal, &p.err));
    s = (serving){0};
    must(&p, ask(&p, &s, p.certs, x, y));
    assert_int_equal(s.status, TACIT_OK);
    place_end(&p);
}

/* Other weights under the same masks would show their difference. */
static void a_key_serves_one_set_of_weights(void **state)
{
    (void)state;
    place p;
    place_make(&p, 5);
    float x[4] = {0.5f, 0, 1, 0}, y[3];
    serving s = {0};
    must(&p, ask(&p, &s, p.certs, x, y));
    change_weights(&p);
    tacit_secure_peer peer = {
        .key = p.server, .address = p.address, .certificates = p.certs, .timeout_ms = 1000};
    assert_int_equal(tacit_secure_serve(p.owner, &peer, NULL, &p.err), TACIT_ERR_SECURITY);
    assert_non_null(strstr(p.err.message, "other weights"));
    place_end(&p);
}

/* Weights are sent once per key; a damaged copy is as good as none. */
static void weights_are_sent_once(void **state)
{
    (void)state;
    place p;
    place_make(&p, 6);
    float x[4] = {0.5f, 0, 1, 0}, y[4][3];
    uint64_t received[4];
    char cache[128];
    snprintf(cache, sizeof cache, "%s.cache", p.client);
    for (int run = 0; run < 4; run++) {
        serving s = {0};
        must(&p, ask(&p, &s, p.certs, x, y[run]));
        received[run] = s.report.received;
        assert_memory_equal(y[run], y[0], sizeof y[0]);
        assert_int_equal(access(cache, F_OK), 0);
        if (run != 1)
            continue;
        FILE *f = fopen(cache, "r+b");
        assert_int_equal(fseek(f, -12, SEEK_END), 0);
        int byte = fgetc(f);
        assert_int_equal(fseek(f, -12, SEEK_END), 0);
        fputc(byte ^ 1, f);
        fclose(f);
    }
    assert_true(received[1] < received[0]);
    assert_int_equal(received[2], received[0]);
    assert_int_equal(received[3], received[1]);
    place_end(&p);
}

/* Both parties from the public description and a share each; nobody has the model any more. */
static void weights_shared_by_both(void **state)
{
    (void)state;
    place p;
    tacit_secure_options o = {.weights = TACIT_WEIGHTS_SHARED};
    place_with(&p, 7, &o);
    char share[2][96];
    snprintf(share[0], sizeof share[0], "%s/a.share", p.dir);
    snprintf(share[1], sizeof share[1], "%s/b.share", p.dir);
    must(&p, tacit_secure_share(p.owner, share[0], share[1], &p.err));
    float x[4] = {0.5f, -1.25f, 2.0f, 0.75f}, y[3], sim[3];
    tacit_tensor in = {.dtype = TACIT_F32, .rank = 2, .dims = {1, 4}, .data = x, .bytes = 16};
    tacit_tensor out = {.dtype = TACIT_F32, .rank = 2, .dims = {1, 3}, .data = sim, .bytes = 12};
    must(&p, tacit_secure_simulate(p.owner, &in, 1, &out, 1, 0, 0, &p.err));
    serving s = {.share = {share[0], share[1]}};
    must(&p, ask(&p, &s, p.certs, x, y));
    assert_int_equal(s.status, TACIT_OK);
    assert_memory_equal(y, sim, sizeof y);
    tacit_secure_peer peer = {
        .key = p.client, .address = p.address, .certificates = p.certs, .share = share[0]};
    assert_int_equal(tacit_secure_query(p.other, &peer, &in, 1, &out, 1, NULL, &p.err),
                     TACIT_ERR_SECURITY);
    assert_non_null(strstr(p.err.message, "other party"));
    /* other shares of the same weights would tell the difference of the masks' contents */
    must(&p, tacit_secure_share(p.owner, share[0], share[1], &p.err));
    peer.share = share[1];
    assert_int_equal(tacit_secure_query(p.other, &peer, &in, 1, &out, 1, NULL, &p.err),
                     TACIT_ERR_SECURITY);
    FILE *f = fopen(share[1], "r+b");
    fseek(f, -40, SEEK_END);
    fputc(0x5a, f);
    fclose(f);
    assert_int_equal(tacit_secure_query(p.other, &peer, &in, 1, &out, 1, NULL, &p.err),
                     TACIT_ERR_SECURITY);
    tacit_secure *owned = NULL;
    must(&p, tacit_secure_compile(p.model, NULL, &owned, &p.err));
    assert_int_equal(tacit_secure_share(owned, share[0], share[1], &p.err), TACIT_ERR_ARGUMENT);
    tacit_secure_free(owned);
    place_end(&p);
}

/* A disk that is full leaves no half key. */
static void dealing_is_whole_or_not_at_all(void **state)
{
    (void)state;
    place p;
    place_make(&p, 4);
    char key[128];
    snprintf(key, sizeof key, "%s/new.key", p.dir);
    tacit_secure_deal_options deal = {
        .server_key = key, .client_key = "/dev/full/c.key", .client_secret = NULL};
    assert_int_not_equal(tacit_secure_deal(p.other, &deal, &p.err), TACIT_OK);
    assert_int_not_equal(access(key, F_OK), 0);
    /* no room for the bytes of a key: files may grow to 200 bytes */
    char other[128];
    snprintf(other, sizeof other, "%s/other.key", p.dir);
    deal.client_key = other;
    struct rlimit before, tiny;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    tiny = (struct rlimit){200, before.rlim_max};
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tiny), 0);
    tacit_status status = tacit_secure_deal(p.other, &deal, &p.err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    assert_int_equal(status, TACIT_ERR_IO);
    assert_int_not_equal(access(key, F_OK), 0);
    assert_int_not_equal(access(other, F_OK), 0);
    place_end(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(descriptions_hold_no_weights),
        cmocka_unit_test(a_query_is_answered_and_keys_run_out),
        cmocka_unit_test(strangers_are_refused),
        cmocka_unit_test(bad_inputs_spend_nothing),
        cmocka_unit_test(marks_follow_the_session),
        cmocka_unit_test(keys_dealt_anew_serve_other_weights),
        cmocka_unit_test(a_key_serves_one_set_of_weights),
        cmocka_unit_test(a_changed_byte_ends_the_session),
        cmocka_unit_test(weights_are_sent_once),
        cmocka_unit_test(weights_shared_by_both),
        cmocka_unit_test(dealing_is_whole_or_not_at_all),
    };
#ifndef TACIT_HAVE_OPENSSL
    return 77;
#endif
    return cmocka_run_group_tests_name("secure.session", tests, NULL, NULL);
}
