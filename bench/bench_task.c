/* SPDX-License-Identifier: Apache-2.0
 * The task runtime against OpenMP tasks and oneTBB, two threads, in the same run.
 * Usage: bench_task [PREFIX]; peers are the programs beside it in peers/, each optional. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lines.h"
#include "peers/task_shapes.h"
#include "tacit/task.h"

enum { TASKS = 262144, GRAIN_TASKS = 16384, THREADS = 2 };

static const char *wanted = "";
static char folder[4096];

static void must(tacit_status status, const tacit_error *err)
{
    if (status == TACIT_OK)
        return;
    fprintf(stderr, "bench_task: %s\n", err->message);
    exit(1);
}

/* ---- output ------------------------------------------------------------------------------- */

typedef struct rival {
    double value; /* 0: none */
    const char *name;
} rival;

/* `better`: the larger value wins (efficiencies), otherwise the smaller (times). */
static void entry(const char *name, double ours, rival peer, const char *unit, bool better)
{
    double ratio = peer.value > 0 ? (better ? ours / peer.value : peer.value / ours) : 0;
    if (peer.value > 0)
        printf("%-28s %10.2f %10.2f %-8s %8.2fx  %s\n", name, ours, peer.value, peer.name, ratio,
               unit);
    else
        printf("%-28s %10.2f %10s %-8s %9s  %s\n", name, ours, "-", "no peer", "", unit);
    fflush(stdout);
    bench_line(name, ours, peer.value, peer.name, unit, ratio);
}

static bool asked(const char *name)
{
    return bench_group_wanted(name, wanted);
}

/* The fastest of the peers that are there. */
static rival best_peer(const char *shape, uint32_t tasks, double grain, bool again)
{
    static const char *const names[] = {"libgomp", "libomp", "tbb"};
    rival best = {0, "-"};
    for (int i = 0; i < 3; i++) {
        char command[5000], line[64];
        snprintf(command, sizeof command, "%s/peers/task_%s", folder, names[i]);
        if (access(command, X_OK) != 0)
            continue;
        size_t n = strlen(command);
        snprintf(command + n, sizeof command - n, " %s %u %d %.0f%s 2>/dev/null", shape, tasks,
                 THREADS, grain, again && i == 2 ? " again" : "");
        FILE *f = popen(command, "r");
        double ns = f && fgets(line, sizeof line, f) ? atof(line) : 0;
        if (f)
            pclose(f);
        if (ns > 0 && (best.value == 0 || ns < best.value))
            best = (rival){ns, names[i]};
    }
    return best;
}

/* ---- ours --------------------------------------------------------------------------------- */

static uint64_t work;
static tacit_status run_body(const tacit_task_call *call)
{
    (void)call;
    if (work)
        burn(work);
    return TACIT_OK;
}
static void tile_body(const void *args, uint32_t begin, uint32_t end)
{
    (void)args;
    (void)begin;
    (void)end;
    if (work)
        burn(work);
}
static const tacit_task_kernel kernel = {run_body, "body", TACIT_TASK_CUBE};

static double explicit_once(tacit_task_runtime *rt, char shape, uint32_t n, uint32_t width)
{
    tacit_error err;
    tacit_task_id first = 0;
    double begin = now_ns();
    for (uint32_t i = 0; i < n; i++) {
        uint32_t d[2];
        tacit_task_id deps[2], id;
        int count = shape_deps(shape, i, width, d);
        for (int k = 0; k < count; k++)
            deps[k] = first + d[k];
        tacit_task_desc desc = {.kernel = &kernel, .deps = deps, .dep_count = (uint32_t)count};
        must(tacit_task_submit(rt, &desc, &id, &err), &err);
        if (i == 0)
            first = id;
    }
    must(tacit_task_wait_all(rt, &err), &err);
    return (now_ns() - begin) / n;
}

/* Dependences from memory: task i writes cell i, and reads its producers' cells. */
static double regions_once(tacit_task_runtime *rt, char shape, uint32_t n, uint32_t width)
{
    enum { ROWS = 16, CELL = 64 };
    static char memory[ROWS * WAVE_WIDTH * CELL];
    tacit_error err;
    tacit_task_buffer rows[ROWS], all = tacit_task_memory(memory, sizeof memory);
    const uint32_t cells = ROWS * WAVE_WIDTH;
    for (uint32_t r = 0; r < ROWS; r++)
        rows[r] = tacit_task_memory(memory + r * width * CELL, width * CELL);
    double begin = now_ns();
    for (uint32_t i = 0; i < n; i++) {
        tacit_task_param p[3];
        uint32_t d[2], used = 0;
        int count = shape_deps(shape, i, width, d);
        if (shape == 'c') {
            p[used++] = tacit_task_part(TACIT_TASK_INOUT, &all, 0, CELL);
        } else if (shape == 'w') {
            for (int k = 0; k < count; k++)
                p[used++] = tacit_task_part(TACIT_TASK_IN, &rows[d[k] / width % ROWS],
                                            d[k] % width * CELL, CELL);
            p[used++] =
                tacit_task_part(TACIT_TASK_OUT, &rows[i / width % ROWS], i % width * CELL, CELL);
        } else {
            for (int k = 0; k < count; k++)
                p[used++] = tacit_task_part(TACIT_TASK_IN, &all, d[k] % cells * CELL, CELL);
            p[used++] = tacit_task_part(TACIT_TASK_OUT, &all, i % cells * CELL, CELL);
        }
        tacit_task_desc desc = {.kernel = &kernel, .params = p, .param_count = used};
        must(tacit_task_submit(rt, &desc, NULL, &err), &err);
    }
    must(tacit_task_wait_all(rt, &err), &err);
    return (now_ns() - begin) / n;
}

static tacit_task_graph *shape_graph(tacit_task_runtime *rt, char shape, uint32_t n, uint32_t width)
{
    tacit_error err;
    tacit_task_graph *g;
    must(tacit_task_graph_create(rt, &g, &err), &err);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t d[2];
        int count = shape_deps(shape, i, width, d);
        tacit_task_node node = {.tile = tile_body, .deps = d, .dep_count = (uint32_t)count};
        must(tacit_task_graph_add(g, &node, NULL, &err), &err);
    }
    must(tacit_task_graph_seal(g, &err), &err);
    return g;
}

static double replay_once(tacit_task_runtime *rt, tacit_task_graph *g)
{
    tacit_error err;
    double begin = now_ns();
    must(tacit_task_graph_run(rt, g, &err), &err);
    return (now_ns() - begin) / tacit_task_graph_nodes(g);
}

typedef enum mode { EXPLICIT, REGIONS, REPLAY } mode;
static const char *const mode_names[] = {"explicit", "regions", "replay"};

static double measure(mode m, char shape, uint32_t n, uint32_t width, uint32_t threads)
{
    tacit_error err;
    tacit_task_runtime *rt;
    must(tacit_task_create(&(tacit_task_config){.threads = threads}, &rt, &err), &err);
    tacit_task_graph *g = m == REPLAY ? shape_graph(rt, shape, n, width) : NULL;
    double t[REPEATS];
    for (int k = -1; k < REPEATS; k++) {
        double ns = m == EXPLICIT  ? explicit_once(rt, shape, n, width)
                    : m == REGIONS ? regions_once(rt, shape, n, width)
                                   : replay_once(rt, g);
        if (k >= 0)
            t[k] = ns;
    }
    tacit_task_graph_destroy(g);
    tacit_task_destroy(rt);
    return median(t, REPEATS);
}

/* ---- entries ------------------------------------------------------------------------------ */

static void empty_tasks(void)
{
    static const char *const shapes[] = {"indep", "chain", "wave", "tree"};
    work = 0;
    for (int s = 0; s < 4; s++) {
        char prefix[64];
        snprintf(prefix, sizeof prefix, "task/%s", shapes[s]);
        if (!asked(prefix))
            continue;
        rival dynamic = best_peer(shapes[s], TASKS, 0, false);
        rival again = best_peer(shapes[s], TASKS, 0, true);
        for (int m = EXPLICIT; m <= REPLAY; m++) {
            char name[64];
            snprintf(name, sizeof name, "task/%s/%s", shapes[s], mode_names[m]);
            if (asked(name))
                entry(name, measure((mode)m, shapes[s][0], TASKS, WAVE_WIDTH, THREADS),
                      m == REPLAY ? again : dynamic, "ns/task", false);
        }
    }
}

/* Efficiency on a wavefront of real work: ideal time over measured time. */
static void grains(double rate)
{
    static const double sizes[] = {100, 150, 250, 500, 1000, 2000};
    for (int m = EXPLICIT; m <= REPLAY; m++) {
        double last = 0, metg = 0;
        char name[64];
        for (int i = 0; i < 6; i++) {
            snprintf(name, sizeof name, "task/grain/%.0f/%s", sizes[i], mode_names[m]);
            if (!asked(name))
                continue;
            work = (uint64_t)(sizes[i] * rate);
            double ns = measure((mode)m, 'w', GRAIN_TASKS, GRAIN_WIDTH, THREADS);
            double ours = sizes[i] / THREADS / ns;
            rival peer = best_peer("wave", GRAIN_TASKS, sizes[i], m == REPLAY);
            if (peer.value > 0)
                peer.value = sizes[i] / THREADS / peer.value;
            entry(name, ours, peer, "efficiency", true);
            if (ours >= 0.5 && metg == 0)
                metg = last > 0
                           ? sizes[i - 1] + (sizes[i] - sizes[i - 1]) * (0.5 - last) / (ours - last)
                           : sizes[i];
            last = ours;
        }
        work = 0;
        snprintf(name, sizeof name, "task/grain/half/%s", mode_names[m]);
        if (metg > 0 && asked(name))
            entry(name, metg, (rival){0, NULL}, "ns at 50 %", false);
    }
}

/* 300 ops of two chunks each, every chunk needing both of the op before: a decode step. */
static void fork_join(double rate, double grain, const char *name)
{
    if (!asked(name))
        return;
    tacit_error err;
    tacit_task_runtime *rt;
    must(tacit_task_create(&(tacit_task_config){.threads = THREADS}, &rt, &err), &err);
    tacit_task_graph *g;
    must(tacit_task_graph_create(rt, &g, &err), &err);
    for (uint32_t i = 0; i < FORK_OPS * THREADS; i++) {
        uint32_t deps[THREADS], level = i / THREADS;
        for (uint32_t k = 0; k < THREADS && level; k++)
            deps[k] = (level - 1) * THREADS + k;
        tacit_task_node node = {.tile = tile_body,
                                .deps = deps,
                                .dep_count = level ? THREADS : 0,
                                .home = i % THREADS + 1};
        must(tacit_task_graph_add(g, &node, NULL, &err), &err);
    }
    must(tacit_task_graph_seal(g, &err), &err);
    work = (uint64_t)(grain * rate);
    double t[101];
    for (int k = -5; k < 101; k++) {
        double ns = replay_once(rt, g) * THREADS - grain;
        if (k >= 0)
            t[k] = ns;
    }
    rival peer = best_peer("forkjoin", 0, grain, false);
    if (peer.value > 0)
        peer.value -= grain;
    entry(name, median(t, 101), peer, "ns/op over the work", false);
    tacit_task_graph_destroy(g);
    tacit_task_destroy(rt);
    work = 0;
}

/* More threads than CPUs must not hurt: time of 8 threads over time of 1. */
static void oversubscribed(double rate)
{
    if (!asked("task/oversubscribed"))
        return;
    work = (uint64_t)(1000 * rate);
    double one = measure(EXPLICIT, 'w', GRAIN_TASKS, GRAIN_WIDTH, 1);
    double eight = measure(EXPLICIT, 'w', GRAIN_TASKS, GRAIN_WIDTH, 8);
    work = 0;
    entry("task/oversubscribed", eight / one, (rival){0, NULL}, "8 threads / 1 thread", false);
}

/* Time of a graph (a wavefront of 10 us tasks, many runs) beside busy processes. */
static double beside(uint32_t threads, double rate)
{
    tacit_error err;
    tacit_task_runtime *rt;
    must(tacit_task_create(&(tacit_task_config){.threads = threads}, &rt, &err), &err);
    work = (uint64_t)(10000 * rate);
    tacit_task_graph *g = shape_graph(rt, 'w', 512, 32);
    double begin = now_ns();
    for (int i = 0; i < 100; i++)
        replay_once(rt, g);
    double took = now_ns() - begin;
    work = 0;
    tacit_task_graph_destroy(g);
    tacit_task_destroy(rt);
    return took;
}

/* On a machine that others use, the second thread must not make things worse: time of two threads
 * over time of one, with one and with two neighbours that never rest. */
static void neighbours(double rate)
{
    for (int count = 1; count <= 2; count++) {
        char name[64];
        snprintf(name, sizeof name, "task/neighbour/%d", count);
        if (!asked(name))
            continue;
        pid_t pids[2] = {0};
        for (int i = 0; i < count; i++)
            if ((pids[i] = fork()) == 0)
                for (;;)
                    burn(1000000);
        double one = beside(1, rate), two = beside(2, rate);
        for (int i = 0; i < count; i++)
            if (pids[i] > 0) {
                kill(pids[i], SIGKILL);
                waitpid(pids[i], NULL, 0);
            }
        entry(name, two / one, (rival){0, NULL}, "2 threads / 1 thread", false);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1)
        wanted = argv[1];
    if (!asked("task/"))
        return 0;
    ssize_t n = readlink("/proc/self/exe", folder, sizeof folder - 1);
    folder[n > 0 ? n : 0] = 0;
    char *slash = strrchr(folder, '/');
    if (slash)
        *slash = 0;
    printf("%-28s %10s %10s %-8s %9s\n", "benchmark", "ours", "peer", "", "ratio");
    double rate = burn_rate();
    empty_tasks();
    grains(rate);
    fork_join(rate, 0, "task/forkjoin");
    fork_join(rate, 2000, "task/forkjoin/2us");
    oversubscribed(rate);
    neighbours(rate);
    return 0;
}
