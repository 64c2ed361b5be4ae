/* SPDX-License-Identifier: Apache-2.0
 * tacit secure demo: dealer, server and client as three processes on this machine. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/secure.h"

typedef struct demo {
    char dir[480], arch[512], server[512], client[512], certs[512], address[64];
    cli_job job;
    tacit_secure *owner, *other;
    tacit_tensor *secure, *sim;
    uint64_t seed;          /* predictable keys: only with dither, where the twin needs the masks */
    int64_t runs, together; /* queries, and inferences in each */
    const char *device;
    uint64_t device_bytes, host_bytes;
    uint64_t online_ns;
    tacit_secure_report last;
    secure_match match;
    bool exact;
} demo;

static void remove_folder(const char *dir)
{
    pid_t pid = fork();
    if (pid == 0) {
        execlp("rm", "rm", "-rf", dir, (char *)NULL);
        _exit(127);
    }
    if (pid > 0)
        waitpid(pid, NULL, 0);
}

/* The dealer's process knows the description only. */
static int deal_process(const demo *d)
{
    tacit_secure *s = NULL;
    tacit_error err = {TACIT_OK, ""};
    tacit_secure_deal_options o = {.runs = (uint32_t)(d->runs * d->together),
                                   .server_key = d->server,
                                   .client_key = d->client,
                                   .insecure_seed = d->seed,
                                   .device = d->device};
    if (tacit_secure_load(d->arch, &s, &err) != TACIT_OK ||
        tacit_secure_deal(s, &o, &err) != TACIT_OK)
        return cli_fail("secure demo", "dealer: %s", err.message);
    tacit_secure_free(s);
    return CLI_OK;
}

static tacit_secure_peer peer_of(const demo *d, const char *key)
{
    return (tacit_secure_peer){.key = key,
                               .address = d->address,
                               .certificates = d->certs,
                               .timeout_ms = 120000,
                               .accept_predictable = d->seed != 0,
                               .device = d->device,
                               .device_bytes = d->device_bytes,
                               .host_bytes = d->host_bytes,
                               .inferences = (uint32_t)d->together};
}

static int serve_process(const demo *d)
{
    tacit_secure_peer peer = peer_of(d, d->server);
    for (int64_t i = 0; i < d->runs; i++) {
        tacit_error err = {TACIT_OK, ""};
        tacit_secure_report report;
        if (tacit_secure_serve(d->owner, &peer, &report, &err) != TACIT_OK)
            return cli_fail("secure demo", "server: %s", err.message);
    }
    return CLI_OK;
}

/* Forks; the child does `work` and ends by Ctrl-C or with its parent. */
static pid_t start(int (*work)(const demo *d), const demo *d)
{
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGINT, SIG_DFL);
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        _exit(work(d));
    }
    return pid;
}

static int wait_for(pid_t pid, const char *who)
{
    int status = 0;
    while (pid > 0 && waitpid(pid, &status, 0) != pid)
        if (errno != EINTR || cli_interrupted)
            kill(pid, SIGTERM);
    if (cli_interrupted)
        return cli_stop("secure demo", "interrupted");
    if (pid < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return cli_fail("secure demo", "the %s failed", who);
    return -1;
}

static void compare(demo *d, const tacit_tensor *secure)
{
    for (uint32_t i = 0; i < d->job.n_outputs; i++)
        d->exact &= memcmp(secure[i].data, d->sim[i].data, secure[i].bytes) == 0;
    secure_compare(secure, d->job.outputs, d->job.n_outputs, &d->match);
}

/* The same inputs for every inference of a query. */
static tacit_tensor *inputs_of(demo *d)
{
    size_t n = d->job.n_inputs;
    tacit_tensor *in = ARENA_ARRAY(&d->job.memory, n * (size_t)d->together + 1, tacit_tensor);
    for (size_t i = 0; in && i < n * (size_t)d->together; i++)
        in[i] = d->job.inputs[i % n];
    return in;
}

static int ask(demo *d, int64_t run)
{
    tacit_error err = {TACIT_OK, ""};
    tacit_secure_report report;
    tacit_secure_peer peer = peer_of(d, d->client);
    uint32_t n = d->job.n_outputs;
    const tacit_tensor *in = inputs_of(d);
    if (!in)
        return cli_fail("secure demo", "out of memory");
    if (tacit_secure_query(d->other, &peer, in, d->job.n_inputs, d->secure, n, &report, &err) !=
        TACIT_OK)
        return cli_fail("secure demo", "%s", err.message);
    d->online_ns += report.online_ns;
    d->last = report;
    int code = cli_job_run(&d->job);
    for (int64_t i = 0; i < d->together && code < 0; i++) {
        if (tacit_secure_simulate(d->owner, d->job.inputs, d->job.n_inputs, d->sim, n, d->seed,
                                  (uint32_t)(run * d->together + i), &err) != TACIT_OK)
            return cli_fail("secure demo", "%s", err.message);
        compare(d, d->secure + (size_t)i * n);
    }
    return code;
}

static int demo_files(demo *d)
{
    tacit_error err = {TACIT_OK, ""};
    const char *temporary = getenv("TMPDIR");
    temporary = temporary && *temporary ? temporary : "/tmp";
    if ((size_t)snprintf(d->dir, sizeof d->dir, "%s/tacit-demo-XXXXXX", temporary) >= sizeof d->dir)
        return cli_fail("secure demo", "TMPDIR is too long");
    if (!mkdtemp(d->dir)) {
        d->dir[0] = '\0';
        return cli_fail("secure demo", "cannot make a folder in %s", temporary);
    }
    snprintf(d->arch, sizeof d->arch, "%s/arch.tacit", d->dir);
    snprintf(d->server, sizeof d->server, "%s/s.key", d->dir);
    snprintf(d->client, sizeof d->client, "%s/c.key", d->dir);
    snprintf(d->certs, sizeof d->certs, "%s/certs", d->dir);
    setenv("TACIT_STATE_HOME", d->dir, 1); /* marks of these keys go with the folder */
    snprintf(d->address, sizeof d->address, "127.0.0.1:%d", 20000 + (int)getpid() % 30000);
    if (tacit_secure_certificates(d->certs, 1, &err) != TACIT_OK ||
        tacit_secure_strip(d->owner, d->arch, &err) != TACIT_OK ||
        tacit_secure_load(d->arch, &d->other, &err) != TACIT_OK)
        return cli_fail("secure demo", "%s", err.message);
    return -1;
}

static int demo_run(demo *d)
{
    int code = demo_files(d);
    if (code >= 0)
        return code;
    uint32_t n = tacit_secure_output_count(d->other);
    d->sim = secure_outputs(d->other, &d->job.memory);
    d->secure = ARENA_ARRAY(&d->job.memory, (size_t)d->together * n + 1, tacit_tensor);
    for (int64_t i = 0; d->secure && i < d->together; i++) {
        const tacit_tensor *set = secure_outputs(d->other, &d->job.memory);
        if (!set)
            return cli_fail("secure demo", "out of memory");
        memcpy(d->secure + (size_t)i * n, set, n * sizeof *set);
    }
    if (!d->secure || !d->sim)
        return cli_fail("secure demo", "out of memory");
    printf("strip: done, hash agreed\n");
    fflush(stdout);
    code = wait_for(start(deal_process, d), "dealer");
    if (code >= 0)
        return code;
    printf("deal: %lld runs\n", (long long)d->runs);
    fflush(stdout);
    pid_t server = start(serve_process, d);
    for (int64_t run = 0; run < d->runs && code < 0 && !cli_interrupted; run++)
        code = ask(d, run);
    if (server > 0 && (code >= 0 || cli_interrupted))
        kill(server, SIGTERM); /* it would wait for the questions that do not come */
    int served = wait_for(server, "server");
    return code >= 0 ? code : served;
}

int secure_demo(int argc, char **argv)
{
    secure_how h = {.seed = 1};
    const char *path = NULL;
    demo d = {.runs = 1, .together = 1, .exact = true};
    const cli_option options[] = {
        SECURE_OPTIONS(&h),
        {"--runs", CLI_INT, &d.runs, "N", "queries (default 1)"},
        {"--together", CLI_INT, &d.together, "N", "inferences of one query (devices only)"},
        SECURE_DEVICE_OPTIONS(&d)};
    const cli_usage usage = {"secure demo",
                             "MODEL [options]",
                             "All of it on this machine: dealer, server and client as three "
                             "processes over TLS on the\nloopback, compared with the twin and "
                             "with a run in the clear.",
                             options,
                             CLI_COUNT(options),
                             1,
                             1};
    int code = cli_parse(&usage, argc, argv, &path, NULL);
    if (code >= 0)
        return code;
    if (d.runs < 1 || d.runs > 10000)
        return cli_usage_error("secure demo", "--runs is 1..10000");
    if (d.together < 1 || d.together > 255)
        return cli_usage_error("secure demo", "--together is 1..255");
    cli_finish_first(); /* the folder with the keys is removed in every case */
    d.seed = h.dither ? 20250101 : 0;
    code = secure_open("secure demo", path, &h, &d.job, &d.owner);
    if (code < 0)
        code = demo_run(&d);
    if (code < 0) {
        tacit_secure_costs c;
        tacit_secure_cost(d.owner, &c);
        printf("mode: %s; wire %llu bytes; mean error %.3g relative; computed on %s, prepared in "
               "%.3f s\n",
               c.mode, (unsigned long long)c.wire_bytes, secure_mean_error(&d.match), d.last.device,
               (double)d.last.prepare_ns / 1e9);
        printf(
            "secure: bit-exact %s, max error %.3g, argmax equal %lld/%lld, online %.3f s, rounds "
            "%u, key %llu bytes\n",
            d.exact ? "yes" : "no", d.match.worst, (long long)d.match.equal,
            (long long)d.match.rows, (double)d.online_ns / 1e9 / (double)d.runs, c.rounds,
            (unsigned long long)(c.key_bytes_server > c.key_bytes_client ? c.key_bytes_server
                                                                         : c.key_bytes_client));
        if (!d.exact)
            code = cli_fail("secure demo", "the parties and the twin disagree");
    }
    if (d.dir[0])
        remove_folder(d.dir);
    tacit_secure_free(d.other);
    tacit_secure_free(d.owner);
    cli_job_close(&d.job);
    return code < 0 ? CLI_OK : code;
}
