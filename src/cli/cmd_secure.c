/* SPDX-License-Identifier: Apache-2.0
 * tacit secure: private inference between two parties. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/secure.h"
#include "load/load.h"

/* A bare file name is the model's first input. */
static int name_inputs(const char *command, const char *first, cli_list *items)
{
    for (uint32_t i = 0; i < items->count; i++) {
        if (strchr(items->items[i], '='))
            continue;
        size_t size = strlen(first) + strlen(items->items[i]) + 2;
        char *named = malloc(size); /* lives as long as the options */
        if (!named)
            return cli_fail(command, "out of memory");
        snprintf(named, size, "%s=%s", first, items->items[i]);
        items->items[i] = named;
    }
    return -1;
}

static int secure_options(const char *command, const secure_how *h, const cli_job *job,
                          tacit_secure_options *o)
{
    *o = (tacit_secure_options){.dither = h->dither, .frac = (int)h->frac, .bound = h->bound};
    if (h->weights && strcmp(h->weights, "public") == 0)
        o->weights = TACIT_WEIGHTS_PUBLIC;
    else if (h->weights && strcmp(h->weights, "shared") == 0)
        o->weights = TACIT_WEIGHTS_SHARED;
    else if (h->weights && strcmp(h->weights, "owned") != 0)
        return cli_usage_error(command, "--weights is owned, public or shared, not '%s'",
                               h->weights);
    if (h->compare && strcmp(h->compare, "trees") == 0)
        o->compare = TACIT_COMPARE_TREES;
    else if (h->compare && strcmp(h->compare, "digits") == 0)
        o->compare = TACIT_COMPARE_DIGITS;
    else if (h->compare && strcmp(h->compare, "direct") == 0)
        o->compare = TACIT_COMPARE_DIRECT;
    else if (h->compare && strcmp(h->compare, "auto") != 0)
        return cli_usage_error(command, "--compare is auto, trees, digits or direct, not '%s'",
                               h->compare);
    tacit_dim *dims = calloc(h->dims.count + 1u, sizeof *dims);
    if (!dims)
        return cli_fail(command, "out of memory");
    int code = cli_dims(command, &h->dims, dims);
    o->dims = dims;
    o->n_dims = h->dims.count;
    if (h->calibrate && job) {
        o->calibration = job->inputs;
        o->n_calibration = job->n_inputs;
    }
    return code;
}

int secure_open(const char *command, const char *path, secure_how *h, cli_job *job,
                tacit_secure **out)
{
    tacit_error err = {TACIT_OK, ""};
    cli_compile compile = {.dims = h->dims};
    tacit_model *peek = NULL;
    tacit_port port;
    if (h->inputs.count) {
        if (tacit_model_load(path, NULL, &peek, &err) != TACIT_OK)
            return cli_fail(command, "%s", err.message);
        int code = tacit_model_input(peek, 0, &port) == TACIT_OK
                       ? name_inputs(command, port.name, &h->inputs)
                       : -1;
        tacit_model_free(peek);
        if (code >= 0)
            return code;
    }
    int code = cli_job_open(job, command, path, &compile, &h->inputs, h->seed);
    if (code >= 0)
        return code;
    tacit_secure_options o;
    code = secure_options(command, h, job, &o);
    if (code < 0 && tacit_secure_compile(job->model, &o, out, &err) != TACIT_OK)
        code = cli_fail(command, "%s", err.message);
    free((void *)o.dims);
    return code;
}

static void print_tensor(const tacit_tensor *t)
{
    char type[320];
    printf("%s : %s = [", t->name, cli_tensor_type(t, type));
    int64_t n = cli_elements(t);
    for (int64_t i = 0; i < n && i < 10; i++)
        printf("%s%.6g", i ? ", " : "", cli_element(t, i));
    printf("%s]\n", n > 10 ? ", ..." : "");
}

static int write_tensors(const char *command, const char *dir, const tacit_tensor *t, uint32_t n)
{
    mkdir(dir, 0777);
    for (uint32_t i = 0; i < n; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s.npy", dir, t[i].name);
        for (char *c = path + strlen(dir) + 1; *c; c++)
            if (*c == '/' || *c == ':')
                *c = '_';
        ir_shape shape = ir_shape_of(t[i].rank, t[i].dims);
        ir_tensor tensor = ir_tensor_view(t[i].dtype, &shape, t[i].data);
        tacit_error err = {TACIT_OK, ""};
        if (load_npy_write(&tensor, path, &err) != TACIT_OK)
            return cli_fail(command, "%s", err.message);
    }
    return -1;
}

tacit_tensor *secure_outputs(const tacit_secure *s, arena *memory)
{
    uint32_t n = tacit_secure_output_count(s);
    tacit_tensor *t = ARENA_ARRAY(memory, n + 1u, tacit_tensor);
    for (uint32_t i = 0; t && i < n; i++) {
        tacit_port p;
        if (tacit_secure_output(s, i, &p) != TACIT_OK)
            return NULL;
        t[i] = (tacit_tensor){.name = p.name, .dtype = p.dtype, .rank = p.rank, .bytes = p.bytes};
        memcpy(t[i].dims, p.dims, sizeof t[i].dims);
        t[i].data = arena_alloc_zero(memory, p.bytes ? p.bytes : 1);
        if (!t[i].data)
            return NULL;
    }
    return t;
}

static int64_t largest(const tacit_tensor *t, int64_t row, int64_t k)
{
    int64_t at = 0;
    for (int64_t i = 1; i < k; i++)
        if (cli_element(t, row * k + i) > cli_element(t, row * k + at))
            at = i;
    return at;
}

void secure_compare(const tacit_tensor *ours, const tacit_tensor *plain, uint32_t n,
                    secure_match *m)
{
    for (uint32_t i = 0; i < n; i++) {
        const tacit_tensor *a = &ours[i], *b = &plain[i];
        int64_t count = cli_elements(a), k = a->rank ? a->dims[a->rank - 1] : 1;
        for (int64_t e = 0; e < count; e++) {
            double off = fabs(cli_element(a, e) - cli_element(b, e));
            m->worst = fmax(m->worst, off);
            m->off += off;
            m->size += fabs(cli_element(b, e));
        }
        for (int64_t r = 0; i == 0 && k > 0 && r < count / k; r++) {
            m->rows++;
            m->equal += largest(a, r, k) == largest(b, r, k);
        }
    }
}

/* ---- what the subcommands share: parse, open, work, close ---- */

typedef struct task task;
struct task {
    const char *command, *path;
    secure_how how;
    bool described; /* the file is a public description, not a model */
    cli_job job;
    tacit_secure *s;
    tacit_error err;
    const char *out[2], *dir; /* files to write */
    bool json, predictable;
    int64_t runs, number, timeout;
    tacit_secure_deal_options deal;
    tacit_secure_peer peer;
    cli_list items;
    int (*check)(task *t); /* of the options; NULL: nothing to check. -1 or an exit code */
    int (*work)(task *t);  /* -1 or an exit code */
};

static int fails(task *t)
{
    return cli_fail(t->command, "%s", t->err.message);
}

static int perform(task *t, const cli_usage *usage, int argc, char **argv)
{
    t->command = usage->command;
    int code = cli_parse(usage, argc, argv, &t->path, NULL);
    if (code < 0 && t->check)
        code = t->check(t);
    if (code >= 0)
        return code;
    if (!t->described)
        code = secure_open(t->command, t->path, &t->how, &t->job, &t->s);
    else {
        arena_init(&t->job.memory, NULL);
        if (tacit_secure_load(t->path, &t->s, &t->err) != TACIT_OK)
            code = fails(t);
    }
    if (code < 0)
        code = t->work(t);
    tacit_secure_free(t->s);
    cli_job_close(&t->job);
    return code < 0 ? CLI_OK : code;
}

#define USAGE(name, synopsis, about, options)                                                      \
    {                                                                                              \
        name, synopsis, about, options, CLI_COUNT(options), 1, 1                                   \
    }

/* ---- plan, strip, share, sim ---- */

static int do_plan(task *t)
{
    char *text = NULL;
    if (tacit_secure_plan(t->s, t->json, &text, &t->err) != TACIT_OK)
        return fails(t);
    fputs(text, stdout);
    tacit_text_free(text);
    return -1;
}

static int sub_plan(int argc, char **argv)
{
    task t = {.how = {.seed = 1}, .work = do_plan};
    const cli_option options[] = {SECURE_OPTIONS(&t.how),
                                  {"--json", CLI_FLAG, &t.json, NULL, "machine-readable totals"}};
    const cli_usage usage =
        USAGE("secure plan", "MODEL [options]",
              "What a private run costs, by node and in total: key bytes, bytes "
              "on the wire, rounds,\nrings. Nothing is dealt.",
              options);
    return perform(&t, &usage, argc, argv);
}

static int out_given(task *t)
{
    return t->out[0] ? -1 : cli_usage_error(t->command, "--out is missing");
}

static int do_strip(task *t)
{
    return tacit_secure_strip(t->s, t->out[0], &t->err) == TACIT_OK ? -1 : fails(t);
}

static int sub_strip(int argc, char **argv)
{
    task t = {.how = {.seed = 1}, .check = out_given, .work = do_strip};
    const cli_option options[] = {
        SECURE_OPTIONS(&t.how),
        {"--out", CLI_STRING, &t.out[0], "FILE", "the description; required"}};
    const cli_usage usage =
        USAGE("secure strip", "MODEL --out arch.tacit [options]",
              "Writes what dealer and client may know: the graph without weights, the rounded "
              "sizes of\nthe weights, the mode, and a hash of it all.",
              options);
    return perform(&t, &usage, argc, argv);
}

static int outs_given(task *t)
{
    return t->out[0] && t->out[1]
               ? -1
               : cli_usage_error(t->command, "--out-server and --out-client are needed");
}

static int do_share(task *t)
{
    return tacit_secure_share(t->s, t->out[0], t->out[1], &t->err) == TACIT_OK ? -1 : fails(t);
}

static int sub_share(int argc, char **argv)
{
    task t = {.how = {.seed = 1}, .check = outs_given, .work = do_share};
    const cli_option options[] = {
        SECURE_OPTIONS(&t.how),
        {"--out-server", CLI_STRING, &t.out[0], "FILE", "the server's share; required"},
        {"--out-client", CLI_STRING, &t.out[1], "FILE", "the client's share; required"}};
    const cli_usage usage =
        USAGE("secure share", "MODEL --weights shared --out-server FILE --out-client FILE",
              "Splits the weights into two files that tell nothing each; with them both parties "
              "need\nonly the public description (serve and query --share).",
              options);
    return perform(&t, &usage, argc, argv);
}

static int do_sim(task *t)
{
    cli_job *job = &t->job;
    tacit_tensor *out = secure_outputs(t->s, &job->memory);
    if (!out)
        return cli_fail(t->command, "out of memory");
    if (tacit_secure_simulate(t->s, job->inputs, job->n_inputs, out, job->n_outputs,
                              (uint64_t)t->how.seed, 0, &t->err) != TACIT_OK)
        return fails(t);
    for (uint32_t i = 0; i < job->n_outputs; i++)
        print_tensor(&out[i]);
    int code = t->dir ? write_tensors(t->command, t->dir, out, job->n_outputs) : -1;
    if (code < 0)
        code = cli_job_run(job);
    if (code >= 0)
        return code;
    secure_match m = {0};
    secure_compare(out, job->outputs, job->n_outputs, &m);
    printf("against f32: argmax equal %lld/%lld, mean error %.3g relative, max error %.3g\n",
           (long long)m.equal, (long long)m.rows, secure_mean_error(&m), m.worst);
    return -1;
}

static int sub_sim(int argc, char **argv)
{
    task t = {.how = {.seed = 1}, .work = do_sim};
    const cli_option options[] = {SECURE_OPTIONS(&t.how),
                                  {"--output", CLI_STRING, &t.dir, "DIR", "write DIR/NAME.npy"}};
    const cli_usage usage = USAGE("secure sim", "MODEL --input x.npy [options]",
                                  "The bit-exact cleartext twin of a private run.", options);
    return perform(&t, &usage, argc, argv);
}

/* ---- deal, serve, query, certs ---- */

static int deal_given(task *t)
{
    if (t->deal.server_key && t->deal.client_key && t->runs >= 1 && t->runs <= 1000000)
        return -1;
    return cli_usage_error(t->command,
                           "--out-server and --out-client are needed, --runs is 1..1000000");
}

static int do_deal(task *t)
{
    t->deal.runs = (uint32_t)t->runs;
    t->deal.insecure_seed = (uint64_t)t->number;
    return tacit_secure_deal(t->s, &t->deal, &t->err) == TACIT_OK ? -1 : fails(t);
}

static int sub_deal(int argc, char **argv)
{
    task t = {.described = true, .runs = 1, .check = deal_given, .work = do_deal};
    tacit_secure_deal_options *o = &t.deal;
    const cli_option options[] = {
        {"--runs", CLI_INT, &t.runs, "N", "queries the keys last for (default 1)"},
        {"--out-server", CLI_STRING, &o->server_key, "FILE", "the server's key; required"},
        {"--out-client", CLI_STRING, &o->client_key, "FILE", "the client's key; required"},
        {"--secret-server", CLI_STRING, &o->server_secret, "FILE",
         "32 bytes that encrypt it (default: KEY.secret, made where absent)"},
        {"--secret-client", CLI_STRING, &o->client_secret, "FILE", "the same for the client's"},
        {"--insecure-seed", CLI_INT, &t.number, "N", "predictable keys, for tests only"},
        {"--device", CLI_STRING, &o->device, "DEVICE", "auto, cpu (default), cuda or cuda:N"},
    };
    const cli_usage usage =
        USAGE("secure deal", "arch.tacit --out-server s.key --out-client c.key [options]",
              "Makes one-time keys for both parties from the public description.", options);
    return perform(&t, &usage, argc, argv);
}

#define PEER_OPTIONS(t)                                                                            \
    {"--key", CLI_STRING, &(t)->peer.key, "FILE", "this party's key; required"},                   \
        {"--secret", CLI_STRING, &(t)->peer.secret, "FILE",                                        \
         "what it is encrypted with (KEY.secret)"},                                                \
        {"--cert", CLI_STRING, &(t)->peer.certificates, "DIR",                                     \
         "folder with certificates; required"},                                                    \
        {"--timeout", CLI_INT, &(t)->timeout, "MS", "longest silence of the other party"},         \
        {"--share", CLI_STRING, &(t)->peer.share, "FILE", "this party's share of shared weights"}, \
        SECURE_DEVICE_OPTIONS(&(t)->peer),                                                         \
    {                                                                                              \
        "--accept-predictable", CLI_FLAG, &(t)->predictable, NULL,                                 \
            "use keys dealt with --insecure-seed: they protect nothing"                            \
    }

static int peer_given(task *t)
{
    t->peer.timeout_ms = (int)t->timeout;
    t->peer.accept_predictable = t->predictable;
    t->described |= t->peer.share != NULL;
    return -1;
}

static void print_report(const tacit_secure_report *r)
{
    printf("run %u: online %.3f s, rounds %u, sent %llu bytes, received %llu bytes, on %s\n",
           r->run, (double)r->online_ns / 1e9, r->rounds, (unsigned long long)r->sent,
           (unsigned long long)r->received, r->device);
}

static int do_serve(task *t)
{
    for (int64_t i = 0; i < t->runs; i++) {
        tacit_secure_report report;
        if (tacit_secure_serve(t->s, &t->peer, &report, &t->err) != TACIT_OK)
            return fails(t);
        print_report(&report);
    }
    return -1;
}

static int sub_serve(int argc, char **argv)
{
    task t = {.how = {.seed = 1}, .runs = 1, .check = peer_given, .work = do_serve};
    const cli_option options[] = {
        SECURE_OPTIONS(&t.how),
        PEER_OPTIONS(&t),
        {"--listen", CLI_STRING, &t.peer.address, "HOST:PORT", "where to wait; required"},
        {"--queries", CLI_INT, &t.runs, "N", "answer this many, then end (default 1)"},
    };
    const cli_usage usage =
        USAGE("secure serve", "MODEL --key s.key --listen HOST:PORT --cert DIR [options]",
              "Answers private queries. Mode options must be those of strip. With --share the "
              "public\ndescription takes the model's place.",
              options);
    return perform(&t, &usage, argc, argv);
}

/* Inputs of a query: every one must be a file. */
static int read_inputs(task *t, tacit_tensor **out)
{
    uint32_t n = tacit_secure_input_count(t->s);
    tacit_port port;
    *out = ARENA_ARRAY(&t->job.memory, n + 1u, tacit_tensor);
    if (!*out || tacit_secure_input(t->s, 0, &port) != TACIT_OK)
        return cli_fail(t->command, "out of memory");
    int code = name_inputs(t->command, port.name, &t->items);
    for (uint32_t i = 0; i < n && code < 0; i++) {
        const char *file = NULL;
        if (tacit_secure_input(t->s, i, &port) != TACIT_OK)
            return cli_fail(t->command, "input %u cannot be read", i);
        for (uint32_t k = 0; k < t->items.count; k++)
            if (strncmp(t->items.items[k], port.name, strlen(port.name)) == 0 &&
                t->items.items[k][strlen(port.name)] == '=')
                file = t->items.items[k] + strlen(port.name) + 1;
        if (!file)
            return cli_usage_error(t->command, "input '%s' is not given", port.name);
        ir_tensor x;
        if (cli_load_npy(file, &t->job.memory, &x, &t->err) != TACIT_OK)
            return fails(t);
        (*out)[i] = (tacit_tensor){.name = port.name,
                                   .dtype = x.dtype,
                                   .rank = x.shape.rank,
                                   .data = x.data,
                                   .bytes = x.bytes};
        memcpy((*out)[i].dims, x.shape.dims, sizeof(*out)[i].dims);
    }
    return code;
}

static int do_query(task *t)
{
    tacit_tensor *in = NULL, *out = secure_outputs(t->s, &t->job.memory);
    uint32_t n = tacit_secure_output_count(t->s);
    tacit_secure_report report;
    int code = out ? read_inputs(t, &in) : cli_fail(t->command, "out of memory");
    if (code >= 0)
        return code;
    if (tacit_secure_query(t->s, &t->peer, in, tacit_secure_input_count(t->s), out, n, &report,
                           &t->err) != TACIT_OK)
        return fails(t);
    for (uint32_t i = 0; i < n; i++)
        print_tensor(&out[i]);
    print_report(&report);
    return t->dir ? write_tensors(t->command, t->dir, out, n) : -1;
}

static int sub_query(int argc, char **argv)
{
    task t = {.described = true, .check = peer_given, .work = do_query};
    const cli_option options[] = {
        PEER_OPTIONS(&t),
        {"--connect", CLI_STRING, &t.peer.address, "HOST:PORT", "the server; required"},
        {"--input", CLI_LIST, &t.items, "[NAME=]FILE.npy", "an input; repeatable"},
        {"--output", CLI_STRING, &t.dir, "DIR", "write DIR/NAME.npy"},
    };
    const cli_usage usage =
        USAGE("secure query", "arch.tacit --key c.key --connect HOST:PORT --cert DIR --input x.npy",
              "Asks a server without showing it the input.", options);
    return perform(&t, &usage, argc, argv);
}

static int sub_certs(int argc, char **argv)
{
    const char *out = NULL;
    int64_t days = 30;
    const cli_option options[] = {
        {"--out", CLI_STRING, &out, "DIR", "folder to write to; required"},
        {"--days", CLI_INT, &days, "N", "validity (default 30)"},
    };
    const cli_usage usage = {"secure certs",
                             "--out DIR [--days N]",
                             "A test authority with a certificate for each party.",
                             options,
                             CLI_COUNT(options),
                             0,
                             0};
    int code = cli_parse(&usage, argc, argv, NULL, NULL);
    if (code >= 0)
        return code;
    tacit_error err = {TACIT_OK, ""};
    if (!out)
        return cli_usage_error("secure certs", "--out is missing");
    if (tacit_secure_certificates(out, (int)days, &err) != TACIT_OK)
        return cli_fail("secure certs", "%s", err.message);
    return CLI_OK;
}

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} subcommands[] = {
    {"plan", sub_plan, "what a private run costs"},
    {"strip", sub_strip, "the public part of a model"},
    {"share", sub_share, "split the weights between both parties"},
    {"deal", sub_deal, "one-time keys for both parties"},
    {"serve", sub_serve, "answer private queries"},
    {"query", sub_query, "ask a server"},
    {"sim", sub_sim, "the bit-exact cleartext twin"},
    {"demo", secure_demo, "all of it on this machine"},
    {"certs", sub_certs, "test certificates"},
};

int cmd_secure(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    for (uint32_t i = 0; i < CLI_COUNT(subcommands); i++)
        if (strcmp(name, subcommands[i].name) == 0)
            return subcommands[i].run(argc - 1, argv + 1);
    bool help = strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0;
    FILE *out = help ? stdout : stderr;
    if (*name && !help)
        fprintf(out, "tacit secure: unknown subcommand '%s'\n", name);
    fprintf(out, "usage: tacit secure SUBCOMMAND [options]\n\n"
                 "Private inference between a server with a model and a client with inputs.\n\n");
    for (uint32_t i = 0; i < CLI_COUNT(subcommands); i++)
        fprintf(out, "  %-8s %s\n", subcommands[i].name, subcommands[i].summary);
    fprintf(out, "\n'tacit secure SUBCOMMAND --help' tells more; docs/private-inference.md is the "
                 "guide.\n");
    return help ? CLI_OK : CLI_USAGE;
}
