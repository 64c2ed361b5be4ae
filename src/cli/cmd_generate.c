/* SPDX-License-Identifier: Apache-2.0
 * tacit generate: a language model goes on with a text. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/cpu.h"
#include "base/sbuf.h"
#include "cli/cli.h"
#include "token/choose.h"
#include "token/tokenizer.h"

static const char command[] = "generate";

typedef struct settings {
    const char *path, *prompt, *prompt_file;
    int64_t tokens, context, threads, seed;
    token_choice choice;
    bool special, bare, echo, beyond_end, one_by_one, json;
} settings;

/* A program with what its runs take and give: a run allocates nothing. */
typedef struct stage {
    tacit_program *program;
    tacit_session *session;
    arena memory; /* of what follows */
    size_t count; /* tokens of a run */
    int64_t *ids, *positions;
    tacit_tensor *in, *out;
    uint32_t n_in, n_out;
    tacit_tensor *past; /* outputs but the logits, by the names of the inputs they become */
    uint32_t n_past;
} stage;

typedef struct generation {
    const settings *set;
    arena memory;
    tacit_model *model;
    tacit_tokenizer *tokenizer;
    int64_t *prompt; /* tokens */
    size_t n_prompt;
    int64_t context; /* positions of the cache */
    stage whole;     /* of the prompt at once */
    stage next;      /* of one token */
    float *logits;
    uint32_t words; /* logits of a position */
    token_weight *work;
    uint64_t prompt_ns, tokens_ns;
    sbuf text, ids; /* for --json */
    size_t made;
    bool failed, blocked; /* a write to standard output: with an error, or until Ctrl-C */
} generation;

static int fail(tacit_error *err)
{
    return cli_fail(command, "%s", err->message);
}

static int out_of_memory(void)
{
    return cli_fail(command, "out of memory");
}

/* --- the prompt ------------------------------------------------------------------------------- */

static int read_prompt(const settings *s, sbuf *out)
{
    if (s->prompt) {
        sbuf_text(out, s->prompt);
        return out->failed ? out_of_memory() : -1;
    }
    bool standard = strcmp(s->prompt_file, "-") == 0;
    FILE *f = standard ? stdin : fopen(s->prompt_file, "rb");
    char part[4096];
    if (!f)
        return cli_fail(command, "cannot open '%s': %s", s->prompt_file, strerror(errno));
    bool too_long = false; /* it may have no end */
    for (size_t n; !out->failed && !too_long && (n = fread(part, 1, sizeof part, f)) > 0;) {
        too_long = n > TOKEN_TEXT_MOST - out->length;
        if (!too_long)
            sbuf_bytes(out, part, n);
    }
    int why = ferror(f) ? errno : 0;
    if (!standard)
        fclose(f);
    if (why)
        return cli_fail(command, "cannot read '%s': %s", s->prompt_file, strerror(why));
    if (too_long)
        return cli_fail(command, "the prompt in '%s' has more than %d bytes", s->prompt_file,
                        (int)TOKEN_TEXT_MOST);
    return out->failed ? out_of_memory() : -1;
}

static int encode_prompt(generation *g, const sbuf *text)
{
    tacit_error err = {TACIT_OK, ""};
    int flags = TACIT_ENCODE_OPEN | (g->set->bare ? TACIT_ENCODE_BARE : 0) |
                (g->set->special ? TACIT_ENCODE_SPECIAL : 0);
    const char *data = text->data ? text->data : "";
    if (tacit_tokenizer_encode(g->tokenizer, data, text->length, flags, NULL, 0, &g->n_prompt,
                               &err) != TACIT_OK)
        return fail(&err);
    g->prompt = ARENA_ARRAY(&g->memory, g->n_prompt + 1, int64_t);
    if (!g->prompt)
        return out_of_memory();
    if (tacit_tokenizer_encode(g->tokenizer, data, text->length, flags, g->prompt, g->n_prompt,
                               &g->n_prompt, &err) != TACIT_OK)
        return fail(&err);
    if (g->n_prompt == 0)
        return cli_usage_error(command, "the prompt has no tokens, and the model has none that "
                                        "begins a text: give it a word");
    return -1;
}

/* --- the model -------------------------------------------------------------------------------- */

/* Positions that the model has; 0: it does not say. */
static int64_t positions_of(const tacit_model *model)
{
    tacit_about about;
    const char *key, *value;
    tacit_model_about(model, &about);
    for (uint32_t i = 0; i < about.metadata_count; i++)
        if (tacit_model_metadata(model, i, &key, &value) == TACIT_OK &&
            strcmp(key, "tacit.positions") == 0)
            return strtoll(value, NULL, 10);
    return 0;
}

/* Room for the prompt and what follows; --context may ask for less, and then the text ends there.
 */
static int choose_context(generation *g)
{
    const settings *s = g->set;
    int64_t most = positions_of(g->model), want = (int64_t)g->n_prompt + s->tokens;
    want = want < 2 ? 2 : want; /* the least that a cache has */
    g->context = s->context ? s->context : most && want > most ? most : want;
    if (most && s->context > most)
        return cli_usage_error(command,
                               "--context %lld is more than the %lld positions of the model",
                               (long long)s->context, (long long)most);
    if ((int64_t)g->n_prompt > g->context)
        return cli_fail(
            command, "the prompt has %zu tokens, but there is room for %lld positions%s",
            g->n_prompt, (long long)g->context, s->context ? ": raise --context" : " in the model");
    return -1;
}

/* --- running it ------------------------------------------------------------------------------- */

static void stage_end(stage *s)
{
    tacit_session_free(s->session);
    tacit_program_free(s->program);
    s->session = NULL;
    s->program = NULL;
}

static tacit_status compile(generation *g, stage *s, int64_t cache, tacit_error *err)
{
    static const char *const logits[] = {"logits"};
    const tacit_dim dims[] = {{"seq", (int64_t)s->count}, {"past", 0}};
    tacit_compile_options o = {.dims = dims,
                               .n_dims = cache ? 1 : 2,
                               .executor =
                                   g->set->threads == 1 ? TACIT_EXEC_SERIAL : TACIT_EXEC_TASKS,
                               .threads = (uint32_t)g->set->threads,
                               .last_only = logits,
                               .n_last_only = 1,
                               .cache_capacity = cache,
                               .start_early = 1};
    tacit_status status = tacit_compile(g->model, &o, &s->program, err);
    return status == TACIT_OK ? tacit_session_create(s->program, &s->session, err) : status;
}

static tacit_tensor tensor_of(const tacit_port *port, void *data)
{
    tacit_tensor t = {.name = port->name,
                      .dtype = port->dtype,
                      .rank = port->rank,
                      .data = data,
                      .bytes = port->bytes};
    memcpy(t.dims, port->dims, sizeof t.dims);
    return t;
}

/* Room for the logits, which are the same in every program. */
static int bind_logits(generation *g, const tacit_port *port, tacit_tensor *out)
{
    if (port->dtype != TACIT_F32 || port->rank != 3 || port->dims[0] != 1 || port->dims[1] != 1 ||
        port->dims[2] < 1 || port->dims[2] > INT32_MAX)
        return cli_fail(command, "the logits are not f32 [1, 1, words]");
    if (!g->logits) {
        g->words = (uint32_t)port->dims[2];
        g->logits = ARENA_ARRAY(&g->memory, g->words, float);
        g->work = ARENA_ARRAY(&g->memory, g->words, token_weight);
        if (!g->logits || !g->work)
            return out_of_memory();
    }
    if (tacit_tokenizer_size(g->tokenizer) > g->words)
        return cli_fail(command, "the vocabulary has %u tokens, but the model gives logits for %u",
                        tacit_tokenizer_size(g->tokenizer), g->words);
    *out = tensor_of(port, g->logits);
    return -1;
}

static int bind_inputs(stage *s)
{
    static float nothing[1];
    for (uint32_t i = 0; i < s->n_in; i++) {
        tacit_port port;
        tacit_status status = tacit_program_input(s->program, i, &port);
        if (status != TACIT_OK)
            return cli_fail(command, "input %u: %s", (unsigned)i, tacit_status_text(status));
        bool ids = strcmp(port.name, "input_ids") == 0;
        bool known = ids || strcmp(port.name, "position_ids") == 0;
        if (known ? port.bytes != s->count * sizeof *s->ids : port.bytes != 0)
            return cli_fail(command,
                            "input '%s' is none of those that language models in GGUF "
                            "files have",
                            port.name);
        s->in[i] = tensor_of(&port, ids ? (void *)s->ids : known ? (void *)s->positions : nothing);
    }
    return -1;
}

/* What is given as present.N.key is taken as past_key_values.N.key. */
static int bind_outputs(generation *g, stage *s)
{
    for (uint32_t i = 0; i < s->n_out; i++) {
        tacit_port port;
        int code = -1;
        tacit_status status = tacit_program_output(s->program, i, &port);
        if (status != TACIT_OK)
            return cli_fail(command, "output %u: %s", (unsigned)i, tacit_status_text(status));
        if (strcmp(port.name, "logits") == 0) {
            if ((code = bind_logits(g, &port, &s->out[i])) >= 0)
                return code;
            continue;
        }
        const char *dot = strchr(port.name, '.');
        void *data = arena_alloc_aligned(&s->memory, port.bytes, 64);
        char *name = arena_printf(&s->memory, "past_key_values%s", dot ? dot : "");
        if (!data || !name)
            return out_of_memory();
        s->out[i] = tensor_of(&port, data);
        s->past[s->n_past] = s->out[i];
        s->past[s->n_past++].name = name;
    }
    return g->logits ? -1 : cli_fail(command, "the model gives no logits");
}

static int stage_begin(generation *g, stage *s, size_t count, int64_t cache)
{
    tacit_error err = {TACIT_OK, ""};
    s->count = count;
    if (compile(g, s, cache, &err) != TACIT_OK)
        return fail(&err);
    s->n_in = tacit_program_input_count(s->program);
    s->n_out = tacit_program_output_count(s->program);
    s->in = ARENA_ARRAY(&s->memory, s->n_in, tacit_tensor);
    s->out = ARENA_ARRAY(&s->memory, s->n_out, tacit_tensor);
    s->past = ARENA_ARRAY(&s->memory, s->n_out, tacit_tensor);
    s->ids = ARENA_ARRAY(&s->memory, count, int64_t);
    s->positions = ARENA_ARRAY(&s->memory, count, int64_t);
    if (!s->in || !s->out || !s->past || !s->ids || !s->positions)
        return out_of_memory();
    int code = bind_inputs(s);
    return code < 0 ? bind_outputs(g, s) : code;
}

/* Runs the tokens at `ids` behind `first` others. */
static int stage_run(stage *s, const int64_t *ids, size_t first)
{
    tacit_error err = {TACIT_OK, ""};
    for (size_t i = 0; i < s->count; i++) {
        s->ids[i] = ids[i];
        s->positions[i] = (int64_t)(first + i);
    }
    if (tacit_run(s->session, s->in, s->n_in, s->out, s->n_out, &err) != TACIT_OK)
        return fail(&err);
    return -1;
}

/* The prompt but for its last token in one run, whose keys and values the cache begins with. Few
 * tokens take less time one by one. */
static int run_prompt(generation *g)
{
    enum { FEW = 4 };
    tacit_error err = {TACIT_OK, ""};
    size_t most = g->n_prompt - 1, done = most < FEW || g->set->one_by_one ? 0 : most;
    int code = done ? stage_begin(g, &g->whole, done, 0) : -1;
    if (code < 0 && done)
        code = stage_run(&g->whole, g->prompt, 0);
    stage_end(&g->whole); /* the weights of both programs at a time would take twice the memory */
    if (code < 0)
        code = stage_begin(g, &g->next, 1, g->context);
    if (code < 0 && done &&
        tacit_session_cache_fill(g->next.session, g->whole.past, g->whole.n_past, &err) != TACIT_OK)
        code = fail(&err);
    arena_free(&g->whole.memory);
    for (size_t i = done; code < 0 && i < g->n_prompt; i++)
        code = stage_run(&g->next, g->prompt + i, i);
    return code;
}

/* --- what comes out --------------------------------------------------------------------------- */

/* To standard output at once; false: it is not there. Ctrl-C ends a write that waits for a reader,
 * and is no error of it. */
static bool print(generation *g, const char *bytes, size_t n)
{
    if (fwrite(bytes, 1, n, stdout) == n && fflush(stdout) == 0)
        return true;
    g->blocked = errno == EINTR && cli_interrupted;
    g->failed = !g->blocked;
    if (g->blocked) {
        __fpurge(stdout); /* or the rest would wait, too */
        clearerr(stdout);
    }
    return false;
}

/* False: it could not be shown. */
static bool show(generation *g, int64_t id, bool is_new)
{
    size_t n;
    const char *piece = tacit_tokenizer_piece(g->tokenizer, id, &n);
    if (!g->set->json)
        return print(g, piece, n);
    sbuf_bytes(&g->text, piece, n);
    if (is_new)
        sbuf_printf(&g->ids, "%s%lld", g->ids.length ? "," : "", (long long)id);
    return true;
}

/* What ends a text from outside, or NULL. */
static const char *broken_off(const generation *g)
{
    return g->failed ? "a failed write" : cli_interrupted ? "interruption" : NULL;
}

/* Token by token; *why becomes what has ended it. */
static int go_on(generation *g, const char **why)
{
    rng random = rng_seed((uint64_t)g->set->seed);
    int code = -1;
    *why = "length";
    while ((int64_t)g->made < g->set->tokens && !broken_off(g) && code < 0) {
        int64_t id = token_choose(g->logits, g->words, &g->set->choice, &random, g->work);
        if (id < 0)
            return cli_fail(command, "the model gives logits that are no numbers");
        if (tacit_tokenizer_ends(g->tokenizer, id) && !g->set->beyond_end) {
            *why = "end";
            return -1;
        }
        if (!show(g, id, true))
            break;
        size_t at = g->n_prompt + g->made++;
        if ((int64_t)g->made == g->set->tokens)
            return -1;
        if ((int64_t)at >= g->context) {
            *why = "context";
            return -1;
        }
        code = stage_run(&g->next, &id, at);
    }
    if (broken_off(g))
        *why = broken_off(g);
    return code;
}

/* Bytes as a JSON string: sbuf_json's would end at a zero byte. */
static void put_json(sbuf *out, const sbuf *text)
{
    const char *at = sbuf_str(text), *end = at + text->length;
    sbuf_char(out, '"');
    for (size_t n; at < end; at += n) {
        sbuf part;
        sbuf_init(&part, NULL);
        sbuf_json(&part, at);
        if (part.failed)
            out->failed = true;
        else
            sbuf_bytes(out, part.data + 1, part.length - 2); /* without its quotes */
        sbuf_free(&part);
        n = strlen(at);
        if (at + n < end) {
            sbuf_text(out, "\\u0000");
            n++;
        }
    }
    sbuf_char(out, '"');
}

/* Whether a line's end would have to wait for a reader. */
static bool is_full(void)
{
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return poll(&out, 1, 0) == 0;
}

static int report(generation *g, const char *why)
{
    /* the first comes from the prompt's run */
    double runs = g->made > 1 ? (double)(g->made - 1) : 0;
    double rate = g->tokens_ns ? runs * 1e9 / (double)g->tokens_ns : 0;
    if (!g->set->json) {
        if (!g->blocked && !(cli_interrupted && is_full()))
            printf("\n");
        fprintf(stderr,
                "%zu tokens of prompt in %.0f ms, %zu more at %.1f a second (ended by %s)\n",
                g->n_prompt, (double)g->prompt_ns / 1e6, g->made, rate, why);
        return CLI_OK;
    }
    if (g->text.failed || g->ids.failed)
        return out_of_memory();
    sbuf out;
    sbuf_init(&out, NULL);
    sbuf_text(&out, "{\"prompt_tokens\":[");
    for (size_t i = 0; i < g->n_prompt; i++)
        sbuf_printf(&out, "%s%lld", i ? "," : "", (long long)g->prompt[i]);
    sbuf_printf(&out, "],\"tokens\":[%s],\"text\":", sbuf_str(&g->ids));
    put_json(&out, &g->text);
    sbuf_printf(&out,
                ",\"ended_by\":\"%s\",\"prompt_ms\":%.3f,\"tokens_ms\":%.3f,"
                "\"tokens_per_second\":%.3f}\n",
                why, (double)g->prompt_ns / 1e6, (double)g->tokens_ns / 1e6, rate);
    const char *text = sbuf_str(&out);
    int code = text ? CLI_OK : out_of_memory();
    fputs(text ? text : "", stdout);
    sbuf_free(&out);
    return code;
}

/* The tokenizer, the prompt, the model, and how long the text may become. */
static int open_all(generation *g)
{
    const settings *s = g->set;
    tacit_error err = {TACIT_OK, ""};
    sbuf prompt;
    sbuf_init(&prompt, NULL);
    int code = read_prompt(s, &prompt);
    if (code < 0 && tacit_tokenizer_load(s->path, NULL, &g->tokenizer, &err) != TACIT_OK)
        code = fail(&err);
    if (code < 0)
        code = encode_prompt(g, &prompt);
    sbuf_free(&prompt);
    if (code < 0 && tacit_model_load(s->path, NULL, &g->model, &err) != TACIT_OK)
        code = fail(&err);
    return code < 0 ? choose_context(g) : code;
}

static int generate(generation *g)
{
    const char *why = "length";
    int code = open_all(g);
    uint64_t start = clock_ns();
    if (code < 0)
        code = run_prompt(g);
    g->prompt_ns = clock_ns() - start;
    for (size_t i = 0; code < 0 && g->set->echo && !g->failed && i < g->n_prompt; i++)
        (void)show(g, g->prompt[i], false);
    cli_finish_first(); /* from here on there is something to show */
    start = clock_ns();
    if (code < 0)
        code = go_on(g, &why);
    g->tokens_ns = clock_ns() - start;
    if (code >= 0)
        return code;
    cli_finish_done();
    code = report(g, why);
    return cli_interrupted ? cli_stop(command, "interrupted") : code;
}

static int check(const settings *s)
{
    if (!s->prompt == !s->prompt_file)
        return cli_usage_error(command, "give --prompt TEXT or --prompt-file FILE");
    if (s->tokens < 0 || s->tokens > INT32_MAX)
        return cli_usage_error(command, "--tokens is 0 or more");
    if (s->context < 0 || s->context == 1 || s->context > INT32_MAX)
        return cli_usage_error(command, "--context is 2 or more");
    if (s->threads < 0 || s->threads > 1024)
        return cli_usage_error(command, "--threads is 0 (all) to 1024");
    if (!(s->choice.temperature >= 0 && s->choice.temperature <= 1e6))
        return cli_usage_error(command, "--temperature is 0 or more");
    if (s->choice.top_k < 0)
        return cli_usage_error(command, "--top-k is 0 (all) or more");
    if (!(s->choice.top_p > 0 && s->choice.top_p <= 1))
        return cli_usage_error(command, "--top-p is above 0, up to 1");
    return -1;
}

int cmd_generate(int argc, char **argv)
{
    settings s = {.tokens = 128, .seed = 1, .choice = {.top_k = 40, .top_p = 0.95}};
    const cli_option options[] = {
        {"--prompt", CLI_STRING, &s.prompt, "TEXT", "the text to go on with"},
        {"--prompt-file", CLI_STRING, &s.prompt_file, "FILE",
         "the same from a file ('-': standard input)"},
        {"--tokens", CLI_INT, &s.tokens, "N", "at most so many tokens (default 128)"},
        {"--temperature", CLI_FLOAT, &s.choice.temperature, "T",
         "0 (default): always the likeliest token; 1: as likely as the model says"},
        {"--top-k", CLI_INT, &s.choice.top_k, "K", "only the K likeliest (default 40; 0: all)"},
        {"--top-p", CLI_FLOAT, &s.choice.top_p, "P",
         "of these only as many as have probability P together (default 0.95)"},
        {"--seed", CLI_INT, &s.seed, "N", "of what is drawn (default 1)"},
        {"--context", CLI_INT, &s.context, "N",
         "room for N positions (default: as many as needed)"},
        {"--threads", CLI_INT, &s.threads, "N", "threads (default: all)"},
        {"--special", CLI_FLAG, &s.special, NULL,
         "names of control tokens in the prompt (<|im_start|>) stand for them"},
        {"--bare", CLI_FLAG, &s.bare, NULL, "do not put the token that begins a text before it"},
        {"--echo", CLI_FLAG, &s.echo, NULL, "print the prompt, too"},
        {"--ignore-end", CLI_FLAG, &s.beyond_end, NULL,
         "go on when the model says the text has ended"},
        {"--one-by-one", CLI_FLAG, &s.one_by_one, NULL,
         "run the prompt token by token: slower, but in less memory"},
        {"--json", CLI_FLAG, &s.json, NULL, "machine-readable result, when all is done"},
    };
    const cli_usage usage = {command,
                             "MODEL.gguf --prompt TEXT [options]",
                             "Goes on with a text, token by token, as a language model in a GGUF "
                             "file would. The prompt is\nrun at once, the rest with a cache; text "
                             "appears as it is made.",
                             options,
                             CLI_COUNT(options),
                             1,
                             1};
    int code = cli_parse(&usage, argc, argv, &s.path, NULL);
    if (code < 0)
        code = check(&s);
    if (code >= 0)
        return code;
    generation g = {.set = &s};
    arena_init(&g.memory, NULL);
    arena_init(&g.whole.memory, NULL);
    arena_init(&g.next.memory, NULL);
    sbuf_init(&g.text, NULL);
    sbuf_init(&g.ids, NULL);
    code = generate(&g);
    stage_end(&g.whole);
    stage_end(&g.next);
    tacit_model_free(g.model);
    tacit_tokenizer_free(g.tokenizer);
    sbuf_free(&g.text);
    sbuf_free(&g.ids);
    arena_free(&g.whole.memory);
    arena_free(&g.next.memory);
    arena_free(&g.memory);
    return code;
}
