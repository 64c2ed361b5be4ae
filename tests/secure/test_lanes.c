/* SPDX-License-Identifier: Apache-2.0
 * Several lines between two parties: messages of all lengths arrive whole, over TLS, and a party
 * that goes away is noticed on every line; nobody takes itself for the other party. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/rng.h"
#include "secure/lanes.h"

enum { COUNT = 3, SIZES = 6 };
static const size_t sizes[SIZES] = {1, 1000, 16000, LANES_LONG - 1, LANES_LONG, 3000001};

typedef struct end {
    unsigned party;
    const char *address, *certs;
    int listener;
    bool leaves; /* after the first message */
    tacit_status status;
    tacit_error err;
} end;

static void fill(uint8_t *data, size_t size, uint64_t seed)
{
    rng r = rng_seed(seed);
    for (size_t i = 0; i < size; i++)
        data[i] = (uint8_t)rng_u64(&r);
}

static tacit_status talk(end *e, lanes *l)
{
    uint8_t *out = malloc(sizes[SIZES - 1]), *in = malloc(sizes[SIZES - 1]);
    uint8_t *want = malloc(sizes[SIZES - 1]);
    tacit_status status = TACIT_OK;
    for (int i = 0; i < SIZES && status == TACIT_OK && !(e->leaves && i); i++) {
        fill(out, sizes[i], 10 + (uint64_t)i * 2 + e->party);
        fill(want, sizes[i], 10 + (uint64_t)i * 2 + 1 - e->party);
        status = lanes_exchange(l, out, sizes[i], in, sizes[i], &e->err);
        if (status == TACIT_OK && memcmp(in, want, sizes[i]) != 0)
            status = TACIT_ERR_INTERNAL;
        /* one way */
        if (status == TACIT_OK && e->party == SEC_CLIENT)
            status = lanes_exchange(l, out, sizes[i], NULL, 0, &e->err);
        else if (status == TACIT_OK)
            status = lanes_exchange(l, NULL, 0, in, sizes[i], &e->err);
        if (status == TACIT_OK && e->party == SEC_SERVER && memcmp(in, want, sizes[i]) != 0)
            status = TACIT_ERR_INTERNAL;
    }
    free(out);
    free(in);
    free(want);
    return status;
}

static void *run(void *context)
{
    end *e = context;
    channel first = {.fd = -1};
    lanes l = {0};
    int fd = -1;
    static const uint8_t session[16] = {1, 2, 3};
    e->status = e->party == SEC_SERVER ? channel_accept(e->listener, 20000, &fd, &e->err)
                                       : channel_connect(e->address, 20000, &fd, &e->err);
    if (e->status == TACIT_OK) {
        channel_plain(&first, fd, 20000);
        e->status = channel_secure(&first, e->party, e->certs, &e->err);
    }
    if (e->status == TACIT_OK)
        e->status = lanes_open(&l, &first, COUNT, e->party, e->listener, e->address, e->certs,
                               session, &e->err);
    if (e->status == TACIT_OK)
        e->status = talk(e, &l);
    if (l.first)
        lanes_close(&l);
    channel_close(&first);
    return NULL;
}

static void both(bool leaves, end e[2])
{
    char dir[] = "/tmp/tacit-lanes-XXXXXX", certs[64], address[64], command[128];
    tacit_error err;
    int listener = -1;
    pthread_t thread[2];
    assert_non_null(mkdtemp(dir));
    snprintf(certs, sizeof certs, "%s/certs", dir);
    snprintf(address, sizeof address, "127.0.0.1:%d", 20000 + (int)getpid() % 30000 + leaves);
    if (channel_make_certificates(certs, 1, &err) == TACIT_ERR_UNSUPPORTED)
        skip();
    if (channel_listen(address, &listener, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    for (unsigned p = 0; p < 2; p++) {
        e[p] = (end){.party = p,
                     .address = address,
                     .certs = certs,
                     .listener = listener,
                     .leaves = leaves && p == 1};
        assert_int_equal(pthread_create(&thread[p], NULL, run, &e[p]), 0);
    }
    pthread_join(thread[0], NULL);
    pthread_join(thread[1], NULL);
    close(listener);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
}

static void messages_arrive_whole(void **state)
{
    end e[2];
    (void)state;
    both(false, e);
    for (int p = 0; p < 2; p++)
        if (e[p].status != TACIT_OK)
            fail_msg("party %d: %s", p, e[p].err.message);
}

static void a_party_that_leaves(void **state)
{
    end e[2];
    (void)state;
    both(true, e);
    assert_int_equal(e[1].status, TACIT_OK);
    assert_int_equal(e[0].status, TACIT_ERR_PEER);
}

/* In a network of its own, where connections have two ports to come from and nobody listens. 77: no
 * such network can be made here. */
static int connect_to_nobody(void)
{
    static const char ports[] = "40000 40001";
    struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0)
        return 77;
    int range = open("/proc/sys/net/ipv4/ip_local_port_range", O_WRONLY);
    int s = socket(AF_INET, SOCK_DGRAM, 0);
    if (range < 0 || write(range, ports, sizeof ports - 1) < 0 || s < 0 ||
        ioctl(s, SIOCSIFFLAGS, &lo) != 0)
        return 77;
    tacit_error err = {0};
    int fd = -1;
    for (int i = 0; i < 2; i++)
        if (channel_connect(i ? "127.0.0.1:40001" : "127.0.0.1:40000", 200, &fd, &err) !=
            TACIT_ERR_PEER)
            return 1;
    return 0;
}

static void nobody_reaches_himself(void **state)
{
    (void)state;
    int status = 0;
    pid_t pid = fork();
    if (pid == 0)
        _exit(connect_to_nobody());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_arrive_whole),
        cmocka_unit_test(a_party_that_leaves),
        cmocka_unit_test(nobody_reaches_himself),
    };
    return cmocka_run_group_tests_name("secure.lanes", tests, NULL, NULL);
}
