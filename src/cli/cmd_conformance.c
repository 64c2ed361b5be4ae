/* SPDX-License-Identifier: Apache-2.0
 *
 * tacit conformance: every ONNX conformance case below a folder, each in a process of its own with
 * a time and a memory limit, so that one crash is one failure.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/conform.h"
#include "base/cpu.h"
#include "base/progress.h"
#include "base/sbuf.h"
#include "cli/cli.h"

static const char command[] = "conformance";
enum { MAX_JOBS = 64, VERDICTS = 4 };
static const char *const verdict_names[VERDICTS] = {"passed", "failed", "unsupported", "random"};

typedef struct test_case {
    char *name;   /* "node/test_abs" */
    char *model;  /* its file */
    char *folder; /* of its data; NULL for a light model */
    conform_result result;
} test_case;

typedef struct case_list {
    test_case *items;
    size_t count, capacity;
    const char *root;
    const regex_t *only;
    bool failed; /* out of memory */
} case_list;

/* nftw has no context argument: the walk below is the only user, and not nested. */
static case_list *walk_list;

static char *cut(const char *text, size_t length)
{
    char *copy = malloc(length + 1);
    if (copy) {
        memcpy(copy, text, length);
        copy[length] = '\0';
    }
    return copy;
}

static void add_case(case_list *list, const char *path, bool light)
{
    size_t length = strlen(path), root = strlen(list->root);
    const char *slash = strrchr(path, '/');
    size_t folder = slash ? (size_t)(slash - path) : 0;
    while (root < length && path[root] == '/')
        root++;
    size_t end = light ? length - 5 : folder;
    char *name = end > root ? cut(path + root, end - root) : cut(path, folder);
    if (name && list->only && regexec(list->only, name, 0, NULL, 0) != 0) {
        free(name);
        return;
    }
    if (list->count == list->capacity) {
        size_t larger = list->capacity ? list->capacity * 2 : 256;
        test_case *items = realloc(list->items, larger * sizeof *items);
        if (!items) {
            free(name);
            list->failed = true;
            return;
        }
        list->items = items;
        list->capacity = larger;
    }
    test_case *c = &list->items[list->count++];
    *c = (test_case){.name = name, .model = cut(path, length)};
    c->folder = light ? NULL : cut(path, folder);
    list->failed |= !c->name || !c->model || (!light && !c->folder);
}

static int on_file(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st;
    const char *base = path + ftw->base;
    size_t length = strlen(path);
    if (kind != FTW_F || length < 5 || strcmp(path + length - 5, ".onnx") != 0)
        return walk_list->failed;
    if (strcmp(base, "model.onnx") == 0)
        add_case(walk_list, path, false);
    else {
        char beside[4096];
        int n = snprintf(beside, sizeof beside, "%.*s_output_0.pb", (int)length - 5, path);
        if (n > 0 && (size_t)n < sizeof beside && access(beside, R_OK) == 0)
            add_case(walk_list, path, true);
    }
    return walk_list->failed;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const test_case *)a)->name, ((const test_case *)b)->name);
}

static void free_cases(case_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        free(list->items[i].name);
        free(list->items[i].model);
        free(list->items[i].folder);
    }
    free(list->items);
}

/* --- workers ---------------------------------------------------------------------------------- */

typedef struct worker {
    pid_t pid; /* 0: free */
    int fd;
    size_t index, received;
    uint64_t deadline;
} worker;

typedef struct pool {
    case_list *list;
    const tacit_compile_options *options;
    worker workers[MAX_JOBS];
    uint32_t jobs;
    uint64_t limit_ns, limit_bytes;
    size_t next, done;
} pool;

static void work(const pool *p, const test_case *c, int fd)
{
    struct rlimit no_core = {0, 0};
#ifndef __SANITIZE_ADDRESS__ /* its shadow alone is larger than any limit */
    struct rlimit memory = {p->limit_bytes, p->limit_bytes};
    setrlimit(RLIMIT_AS, &memory);
#endif
    setrlimit(RLIMIT_CORE, &no_core);
    conform_result result;
    conform_run(c->model, c->folder, p->options, &result);
    const char *at = (const char *)&result;
    size_t left = sizeof result;
    while (left) {
        ssize_t n = write(fd, at, left);
        if (n < 0 && errno != EINTR)
            _exit(3);
        at += n > 0 ? n : 0;
        left -= n > 0 ? (size_t)n : 0;
    }
    _exit(0);
}

static bool start(pool *p, worker *w)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0)
        return false;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        close(fds[0]);
        signal(SIGINT, SIG_DFL);
        work(p, &p->list->items[p->next], fds[1]);
    }
    close(fds[1]);
    if (pid < 0) {
        close(fds[0]);
        return false;
    }
    *w = (worker){.pid = pid, .fd = fds[0], .index = p->next++};
    w->deadline = clock_ns() + p->limit_ns;
    return true;
}

/* The worker has ended, was killed, or is past its time: take its verdict and free the place. */
static void finish(pool *p, worker *w, bool late)
{
    conform_result *result = &p->list->items[w->index].result;
    int status = 0;
    if (late)
        kill(w->pid, SIGKILL);
    close(w->fd);
    while (waitpid(w->pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (late || w->received != sizeof *result) {
        result->verdict = CONFORM_FAILED;
        if (!memchr(result->op, 0, sizeof result->op) || !w->received)
            strcpy(result->op, "(no verdict)");
        if (late)
            snprintf(result->reason, sizeof result->reason, "no result after %llu s",
                     (unsigned long long)(p->limit_ns / 1000000000u));
        else if (WIFSIGNALED(status))
            snprintf(result->reason, sizeof result->reason, "crashed: %s",
                     strsignal(WTERMSIG(status)));
        else
            snprintf(result->reason, sizeof result->reason, "ended with code %d and no result",
                     WEXITSTATUS(status));
    }
    w->pid = 0;
    p->done++;
}

static void receive(pool *p, worker *w)
{
    conform_result *result = &p->list->items[w->index].result;
    char *at = (char *)result + w->received;
    ssize_t n = read(w->fd, at, sizeof *result - w->received);
    if (n > 0)
        w->received += (size_t)n;
    if (n == 0 || (n < 0 && errno != EINTR) || w->received == sizeof *result)
        finish(p, w, false);
}

static void wait_some(pool *p)
{
    struct pollfd polls[MAX_JOBS];
    worker *who[MAX_JOBS];
    nfds_t n = 0;
    for (uint32_t i = 0; i < p->jobs; i++)
        if (p->workers[i].pid) {
            polls[n] = (struct pollfd){.fd = p->workers[i].fd, .events = POLLIN};
            who[n++] = &p->workers[i];
        }
    if (poll(polls, n, 100) > 0)
        for (nfds_t i = 0; i < n; i++)
            if (polls[i].revents)
                receive(p, who[i]);
    uint64_t now = clock_ns();
    for (uint32_t i = 0; i < p->jobs; i++)
        if (p->workers[i].pid && now > p->workers[i].deadline)
            finish(p, &p->workers[i], true);
}

static bool run_all(pool *p)
{
    progress bar;
    bool ok = true;
    progress_begin(&bar, command, p->list->count);
    while (p->done < p->list->count && !cli_interrupted && ok) {
        for (uint32_t i = 0; i < p->jobs && p->next < p->list->count && ok; i++)
            if (!p->workers[i].pid)
                ok = start(p, &p->workers[i]);
        wait_some(p);
        progress_update(&bar, p->done, NULL);
    }
    for (uint32_t i = 0; i < p->jobs; i++)
        if (p->workers[i].pid)
            finish(p, &p->workers[i], true);
    progress_end(&bar);
    return ok;
}

/* --- reports ---------------------------------------------------------------------------------- */

typedef struct op_row {
    const char *op;
    size_t count[VERDICTS];
} op_row;

static int by_op(const void *a, const void *b)
{
    return strcmp(((const op_row *)a)->op, ((const op_row *)b)->op);
}

static bool print_table(const case_list *list)
{
    op_row *rows = calloc(list->count + 1, sizeof *rows);
    size_t n = 0;
    if (!rows)
        return false;
    for (size_t i = 0; i < list->count; i++) {
        const conform_result *r = &list->items[i].result;
        size_t k = 0;
        while (k < n && strcmp(rows[k].op, r->op) != 0)
            k++;
        n += k == n;
        rows[k].op = r->op;
        rows[k].count[r->verdict]++;
    }
    qsort(rows, n, sizeof *rows, by_op);
    printf("%-32s %7s %7s %12s %7s\n", "operator", "passed", "failed", "unsupported", "random");
    for (size_t k = 0; k < n; k++)
        printf("%-32s %7zu %7zu %12zu %7zu\n", rows[k].op, rows[k].count[CONFORM_PASSED],
               rows[k].count[CONFORM_FAILED], rows[k].count[CONFORM_UNSUPPORTED],
               rows[k].count[CONFORM_RANDOM]);
    free(rows);
    return true;
}

static void print_failures(const case_list *list)
{
    bool any = false;
    for (size_t i = 0; i < list->count; i++) {
        const conform_result *r = &list->items[i].result;
        if (r->verdict != CONFORM_FAILED && r->verdict != CONFORM_UNSUPPORTED)
            continue;
        if (!any)
            printf("\n");
        any = true;
        printf("%s: %s: %s\n", r->verdict == CONFORM_FAILED ? "FAILED" : "unsupported",
               list->items[i].name, r->reason);
    }
    if (any)
        printf("\n");
}

static void print_json(const case_list *list, const size_t *total)
{
    sbuf b;
    sbuf_init(&b, NULL);
    sbuf_text(&b, "{\"cases\":[");
    for (size_t i = 0; i < list->count; i++) {
        const test_case *c = &list->items[i];
        sbuf_text(&b, i ? ",\n{\"name\":" : "\n{\"name\":");
        sbuf_json(&b, c->name);
        sbuf_text(&b, ",\"operator\":");
        sbuf_json(&b, c->result.op);
        sbuf_printf(&b, ",\"verdict\":\"%s\",\"reason\":", verdict_names[c->result.verdict]);
        sbuf_json(&b, c->result.reason);
        sbuf_char(&b, '}');
    }
    sbuf_text(&b, "]");
    for (int v = 0; v < VERDICTS; v++)
        sbuf_printf(&b, ",\"%s\":%zu", verdict_names[v], total[v]);
    sbuf_printf(&b, ",\"total\":%zu}\n", list->count);
    fputs(sbuf_str(&b) ? sbuf_str(&b) : "", stdout);
    sbuf_free(&b);
}

static const test_case *find_case(const case_list *list, const char *name)
{
    test_case key = {.name = (char *)name};
    return bsearch(&key, list->items, list->count, sizeof key, by_name);
}

/* Names in the file that do not pass now; -1 when the file cannot be read. */
static long count_lost(const case_list *list, const char *path)
{
    FILE *f = fopen(path, "r");
    char line[1024];
    long lost = 0;
    if (!f)
        return -1;
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\r\n")] = '\0';
        if (!*line || *line == '#' || (list->only && regexec(list->only, line, 0, NULL, 0) != 0))
            continue;
        const test_case *c = find_case(list, line);
        if (c && c->result.verdict == CONFORM_PASSED)
            continue;
        fprintf(stderr, "no longer passes: %s: %s\n", line, c ? c->result.reason : "not found");
        lost++;
    }
    fclose(f);
    return lost;
}

static bool save_list(const case_list *list, const char *path)
{
    FILE *f = fopen(path, "w");
    if (!f)
        return false;
    for (size_t i = 0; i < list->count; i++)
        if (list->items[i].result.verdict == CONFORM_PASSED)
            fprintf(f, "%s\n", list->items[i].name);
    return fclose(f) == 0;
}

/* --- the command ------------------------------------------------------------------------------ */

typedef struct arguments {
    cli_compile compile;
    const char *only, *list, *save;
    int64_t jobs, seconds, megabytes;
    bool json, quiet;
} arguments;

static int report(const arguments *a, const case_list *list)
{
    size_t total[VERDICTS] = {0};
    for (size_t i = 0; i < list->count; i++)
        total[list->items[i].result.verdict]++;
    if (a->json)
        print_json(list, total);
    else {
        if (!a->quiet)
            print_failures(list);
        if (!print_table(list))
            return cli_fail(command, "out of memory");
    }
    long lost = a->list ? count_lost(list, a->list) : 0;
    if (a->save && !save_list(list, a->save))
        return cli_fail(command, "cannot write '%s': %s", a->save, strerror(errno));
    if (!a->json)
        printf("conformance: %zu passed, %zu failed, %zu unsupported, %zu random of %zu\n",
               total[CONFORM_PASSED], total[CONFORM_FAILED], total[CONFORM_UNSUPPORTED],
               total[CONFORM_RANDOM], list->count);
    if (lost < 0)
        return cli_fail(command, "cannot read '%s': %s", a->list, strerror(errno));
    if (lost > 0)
        return cli_fail(command, "%ld cases of '%s' no longer pass", lost, a->list);
    return a->list || total[CONFORM_FAILED] == 0 ? CLI_OK : CLI_FAILURE;
}

static int run_folder(const arguments *a, const char *folder, const regex_t *only)
{
    tacit_compile_options options = {0};
    int code = cli_compile_options(command, &a->compile, &options);
    if (code >= 0)
        return code;
    case_list list = {.root = folder, .only = only};
    walk_list = &list;
    if (nftw(folder, on_file, 16, FTW_PHYS) != 0 || list.failed)
        code = cli_fail(command, "cannot read '%s': %s", folder, strerror(errno));
    else if (!list.count)
        code = cli_fail(command, "no conformance cases below '%s'", folder);
    else {
        qsort(list.items, list.count, sizeof *list.items, by_name);
        uint32_t jobs = a->jobs > 0 && a->jobs < MAX_JOBS ? (uint32_t)a->jobs : cpu_count();
        pool p = {.list = &list, .options = &options, .jobs = jobs < MAX_JOBS ? jobs : MAX_JOBS};
        p.limit_ns = (uint64_t)a->seconds * 1000000000u;
        p.limit_bytes = (uint64_t)a->megabytes << 20;
        bool ok = run_all(&p);
        code = cli_interrupted ? cli_stop(command, "interrupted")
               : !ok           ? cli_fail(command, "cannot start a worker: %s", strerror(errno))
                               : report(a, &list);
    }
    free_cases(&list);
    return code;
}

int cmd_conformance(int argc, char **argv)
{
    cli_finish_first();
    arguments a = {.seconds = 120, .megabytes = 8192};
    const cli_option options[] = {
        {"--only", CLI_STRING, &a.only, "REGEX", "only cases whose name matches"},
        {"--list", CLI_STRING, &a.list, "FILE", "fail when a name in FILE no longer passes"},
        {"--save", CLI_STRING, &a.save, "FILE", "write the names that pass to FILE"},
        {"--jobs", CLI_INT, &a.jobs, "N", "cases at a time (default: one per processor)"},
        {"--time", CLI_INT, &a.seconds, "SECONDS", "limit for one case (default 120)"},
        {"--memory", CLI_INT, &a.megabytes, "MB", "address space of one case (default 8192)"},
        {"--json", CLI_FLAG, &a.json, NULL, "one JSON object instead of the table"},
        {"--quiet", CLI_FLAG, &a.quiet, NULL, "only the table, not each failure"},
        CLI_COMPILE_OPTIONS(&a.compile),
    };
    const cli_usage usage = {
        command,
        "DIR [options]",
        "Runs every ONNX conformance case below DIR: folders with a model.onnx and "
        "test_data_set_N,\n"
        "and light models with their output beside them. Each case runs in a process of its own.",
        options,
        CLI_COUNT(options),
        1,
        1};
    const char *folder;
    uint32_t n;
    int code = cli_parse(&usage, argc, argv, &folder, &n);
    if (code >= 0)
        return code;
    if (a.seconds <= 0 || a.megabytes <= 0 || a.megabytes > 1 << 24)
        return cli_usage_error(command, "--time and --memory must be positive");
    regex_t only;
    if (a.only && regcomp(&only, a.only, REG_EXTENDED | REG_NOSUB) != 0)
        return cli_usage_error(command, "'%s' is not a regular expression", a.only);
    code = run_folder(&a, folder, a.only ? &only : NULL);
    if (a.only)
        regfree(&only);
    return code;
}
