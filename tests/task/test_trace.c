/* SPDX-License-Identifier: Apache-2.0
 * Traces: the exported files hold every task once, arrows for every edge, and balance. */
#include "base/file.h"
#include "task/util.h"

static tacit_status spin(const tacit_task_call *call)
{
    for (volatile int i = 0; i < 2000; i++)
        ;
    (void)call;
    return TACIT_OK;
}
static const tacit_task_kernel k_spin = {spin, "spin \"<b>\"", TACIT_TASK_CUBE};

static char *slurp(const char *path)
{
    file_map m;
    OK(file_map_open(&m, path, &err));
    char *text = malloc(m.size + 1);
    memcpy(text, m.data, m.size);
    text[m.size] = 0;
    file_map_close(&m);
    return text;
}

static int occurrences(const char *text, const char *what)
{
    int n = 0;
    for (const char *p = text; (p = strstr(p, what)); p += strlen(what))
        n++;
    return n;
}

static bool balanced(const char *json)
{
    int depth = 0;
    bool quoted = false;
    for (; *json; json++) {
        if (quoted) {
            if (*json == '\\')
                json++;
            else if (*json == '"')
                quoted = false;
        } else if (*json == '"') {
            quoted = true;
        } else {
            depth += (*json == '{' || *json == '[') - (*json == '}' || *json == ']');
            if (depth < 0)
                return false;
        }
    }
    return depth == 0 && !quoted;
}

static void tile(const void *args, uint32_t begin, uint32_t end)
{
    (void)args;
    (void)begin;
    (void)end;
}

/* 100 tasks in ten chains, then a graph of 30 nodes in a chain. */
static void work(tacit_task_runtime *rt)
{
    static char memory[10 * 64];
    tacit_task_buffer b = tacit_task_memory(memory, sizeof memory);
    scope(rt, "traced");
    for (int i = 0; i < 100; i++) {
        tacit_task_param p = tacit_task_part(TACIT_TASK_INOUT, &b, (uint64_t)(i % 10) * 64, 64);
        submit(rt, &k_spin, NULL, &p, 1, NULL, 0);
    }
    end(rt);
    OK(tacit_task_wait_all(rt, &err));
    tacit_task_graph *g;
    OK(tacit_task_graph_create(rt, &g, &err));
    for (uint32_t i = 0; i < 30; i++) {
        uint32_t dep = i - 1;
        OK(tacit_task_graph_add(
            g, &(tacit_task_node){.tile = tile, .deps = &dep, .dep_count = i > 0, .name = "matmul"},
            NULL, &err));
    }
    OK(tacit_task_graph_seal(g, &err));
    OK(tacit_task_graph_run(rt, g, &err));
    tacit_task_graph_destroy(g); /* the trace does not need it */
}

static void files_hold_every_task_and_edge(void **state)
{
    (void)state;
    char path[] = "/tmp/tacit-trace-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    tacit_task_runtime *rt = make(
        (tacit_task_config){.threads = 2, .trace_level = 3, .window = 128, .oversubscribe = true});
    work(rt);
    OK(tacit_task_trace_chrome(rt, path, &err));
    char *json = slurp(path);
    assert_true(balanced(json));
    assert_int_equal(occurrences(json, "\"cat\":\"task\",\"ph\":\"X\""), 100);
    assert_int_equal(occurrences(json, "\"cat\":\"node\",\"ph\":\"X\""), 30);
    assert_int_equal(occurrences(json, "\"name\":\"matmul\""), 30);
    assert_int_equal(occurrences(json, "\"name\":\"spin \\\"<b>\\\"\""), 100);
    int arrows = occurrences(json, "\"ph\":\"s\"");
    assert_int_equal(arrows, occurrences(json, "\"ph\":\"f\""));
    tacit_task_stats s;
    tacit_task_stats_get(rt, &s);
    assert_int_equal(arrows, s.edges + 29); /* completed producers need no edge */
    assert_true(occurrences(json, "heap ring") > 0);
    assert_true(occurrences(json, "orchestrator 0") == 1 && occurrences(json, "worker 1") == 1);
    free(json);
    OK(tacit_task_trace_html(rt, path, &err));
    char *page = slurp(path);
    assert_int_equal(occurrences(page, "<script>"), 1);
    assert_int_equal(occurrences(page, "<b>"), 0);
    assert_non_null(strstr(page, "const S=[["));
    free(page);
    unlink(path);
    FAILS(TACIT_ERR_IO, "/nonexistent", tacit_task_trace_chrome(rt, "/nonexistent/x", &err));
    tacit_task_destroy(rt);
}

static void keep(void *context, const char *text, size_t length)
{
    memcpy(context, text, length);
    ((char *)context)[length] = 0;
}

static void report_adds_up(void **state)
{
    (void)state;
    static char text[8192];
    tacit_task_runtime *rt = make((tacit_task_config){.threads = 2});
    OK(tacit_task_trace_report(rt, keep, text, &err));
    assert_non_null(strstr(text, "no kernels traced"));
    OK(tacit_task_trace_level(rt, 2, &err));
    work(rt);
    OK(tacit_task_trace_level(rt, 0, &err));
    work(rt); /* not in the trace */
    OK(tacit_task_trace_report(rt, keep, text, &err));
    assert_non_null(strstr(text, "130 kernels in"));
    assert_non_null(strstr(text, "critical path: "));
    assert_null(strstr(text, "needs trace level 2"));
    assert_non_null(strstr(text, "largest scope: 100 tasks"));
    double path = strtod(strstr(text, "critical path: ") + 15, NULL);
    double span = strtod(strstr(text, "130 kernels in ") + 15, NULL);
    assert_true(path > 0 && path <= span);
    unsigned worker;
    unsigned long long tasks, total = 0;
    double busy, overhead, asleep, idle;
    const char *line = strstr(text, "idle %\n") + 7;
    for (int w = 0; w < 2; w++) {
        assert_int_equal(sscanf(line, "%u %llu %lf %lf %lf %lf", &worker, &tasks, &busy, &overhead,
                                &asleep, &idle),
                         6);
        total += tasks;
        line = strchr(line, '\n') + 1;
    }
    assert_int_equal(total, 130);
    FAILS(TACIT_ERR_ARGUMENT, "trace level 4", tacit_task_trace_level(rt, 4, &err));
    tacit_task_destroy(rt);
}

/* The ring keeps the newest records. */
static void old_records_give_way(void **state)
{
    (void)state;
    static char text[8192];
    tacit_task_runtime *rt =
        make((tacit_task_config){.threads = 1, .trace_level = 1, .trace_records = 64});
    for (int i = 0; i < 1000; i++)
        submit(rt, &k_nop, NULL, NULL, 0, NULL, 0);
    OK(tacit_task_wait_all(rt, &err));
    OK(tacit_task_trace_report(rt, keep, text, &err));
    assert_non_null(strstr(text, "32 kernels in"));
    assert_non_null(strstr(text, "1936 older records lost"));
    tacit_task_destroy(rt);
}

int main(void)
{
    unused_helpers();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_hold_every_task_and_edge),
        cmocka_unit_test(report_adds_up),
        cmocka_unit_test(old_records_give_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
