/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/ort.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "load/load.h"

enum { WHY = 256 };

/* Commands in, one answer line each: "ok …" or "error …". */
static const char script[] =
    "import sys, time, os\n"
    "def say(s):\n"
    "    print(s.replace('\\n', ' '), flush=True)\n"
    "try:\n"
    "    import numpy as np, onnxruntime as ort\n"
    "except Exception as e:\n"
    "    say('error ' + str(e)); sys.exit(0)\n"
    "say('ok ' + ort.__version__)\n"
    "ort.set_default_logger_severity(3)\n"
    "feeds, session, results, path = {}, None, [], None\n"
    "def expose(path):\n"
    "    import onnx\n"
    "    m = onnx.load(path)\n"
    "    have = {o.name for o in m.graph.output}\n"
    "    for n in m.graph.node:\n"
    "        for o in n.output:\n"
    "            if o and o not in have:\n"
    "                have.add(o); m.graph.output.append(onnx.ValueInfoProto(name=o))\n"
    "    return m.SerializeToString()\n"
    "for line in sys.stdin:\n"
    "    word, _, rest = line.rstrip('\\n').partition(' ')\n"
    "    try:\n"
    "        if word == 'input':\n"
    "            file, _, name = rest.partition(' ')\n"
    "            feeds[name] = np.load(file); say('ok')\n"
    "        elif word == 'open':\n"
    "            threads, everything, path = rest.split(' ', 2)\n"
    "            o = ort.SessionOptions()\n"
    "            o.intra_op_num_threads = int(threads); o.inter_op_num_threads = 1\n"
    "            if everything == '1':\n"
    "                o.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL\n"
    "            t = time.perf_counter()\n"
    "            session = ort.InferenceSession(expose(path) if everything == '1' else path, o,\n"
    "                                           providers=['CPUExecutionProvider'])\n"
    "            say('ok %.6f' % (time.perf_counter() - t)); feeds = {}; bound = None\n"
    "        elif word == 'run':\n"
    "            if bound is None:\n"
    "                bound = session.io_binding()\n"
    "                for k, v in feeds.items(): bound.bind_cpu_input(k, v)\n"
    "                for x in session.get_outputs(): bound.bind_output(x.name)\n"
    "            t = time.perf_counter_ns()\n"
    "            session.run_with_iobinding(bound)\n"
    "            say('ok %d' % (time.perf_counter_ns() - t))\n"
    "        elif word == 'count':\n"
    "            results = bound.copy_outputs_to_cpu(); say('ok %d' % len(results))\n"
    "        elif word == 'output':\n"
    "            i, file = rest.split(' ', 1)\n"
    "            np.save(file, np.ascontiguousarray(results[int(i)]))\n"
    "            say('ok ' + session.get_outputs()[int(i)].name)\n"
    "        else:\n"
    "            say('error unknown command')\n"
    "    except Exception as e:\n"
    "        say('error ' + str(e)[:200])\n";

/* Reads the answer; the text behind "ok " goes to `answer` (WHY bytes). */
static bool answer_of(ort_peer *p, char *answer, char *why)
{
    char line[WHY + 8];
    if (!fgets(line, sizeof line, p->from)) {
        snprintf(why, WHY, "the Python process ended");
        return false;
    }
    line[strcspn(line, "\n")] = '\0';
    if (strncmp(line, "ok", 2) != 0) {
        snprintf(why, WHY, "ONNX Runtime: %.200s", line + (strncmp(line, "error ", 6) ? 0 : 6));
        return false;
    }
    if (answer)
        snprintf(answer, WHY, "%.250s", line[2] ? line + 3 : "");
    return true;
}

static bool ask(ort_peer *p, char *answer, char *why, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vfprintf(p->to, format, args);
    va_end(args);
    fputc('\n', p->to);
    fflush(p->to);
    return answer_of(p, answer, why);
}

const char ort_needs[] =
    "TACIT_PYTHON names a Python with numpy and onnxruntime; scripts/setup makes one";

static const char *python(void)
{
    const char *chosen = getenv("TACIT_PYTHON");
    if (chosen)
        return chosen;
    return access(".venv/bin/python", X_OK) == 0 ? ".venv/bin/python" : "python3";
}

static void become_child(const int in[2], const int out[2])
{
    dup2(in[0], STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    close(in[0]);
    close(in[1]);
    close(out[0]);
    close(out[1]);
    execlp(python(), python(), "-c", script, (char *)NULL);
    _exit(127);
}

bool ort_start(ort_peer *p, char *why)
{
    *p = (ort_peer){0};
    signal(SIGPIPE, SIG_IGN); /* a dead child shows as a failed read */
    int in[2], out[2];
    snprintf(p->dir, sizeof p->dir, "/tmp/tacit-ort-XXXXXX");
    if (!mkdtemp(p->dir) || pipe(in) != 0) {
        snprintf(why, WHY, "no temporary folder or pipe");
        return false;
    }
    if (pipe(out) != 0 || (p->child = fork()) < 0) {
        snprintf(why, WHY, "cannot start a process");
        return false;
    }
    if (p->child == 0)
        become_child(in, out);
    close(in[0]);
    close(out[1]);
    p->to = fdopen(in[1], "w");
    p->from = fdopen(out[0], "r");
    char version[WHY] = "";
    if (!p->to || !p->from || !answer_of(p, version, why)) {
        ort_stop(p);
        return false;
    }
    snprintf(p->version, sizeof p->version, "%.60s", version);
    return true;
}

static bool send_inputs(ort_peer *p, const tacit_tensor *inputs, uint32_t n, char *why)
{
    for (uint32_t i = 0; i < n; i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/input.npy", p->dir);
        ir_shape shape = ir_shape_of(inputs[i].rank, inputs[i].dims);
        ir_tensor t = ir_tensor_view(inputs[i].dtype, &shape, inputs[i].data);
        tacit_error err = {TACIT_OK, ""};
        if (load_npy_write(&t, path, &err) != TACIT_OK) {
            snprintf(why, WHY, "%.250s", err.message);
            return false;
        }
        if (!ask(p, NULL, why, "input %s %s", path, inputs[i].name))
            return false;
    }
    return true;
}

bool ort_open(ort_peer *p, const char *path, int threads, bool all_values,
              const tacit_tensor *inputs, uint32_t n_inputs, double *seconds, char *why)
{
    char answer[WHY] = "";
    if (!ask(p, answer, why, "open %d %d %s", threads, all_values, path))
        return false;
    if (seconds)
        *seconds = strtod(answer, NULL);
    return send_inputs(p, inputs, n_inputs, why);
}

bool ort_run(ort_peer *p, uint64_t *nanoseconds, char *why)
{
    char answer[WHY] = "";
    if (!ask(p, answer, why, "run"))
        return false;
    *nanoseconds = strtoull(answer, NULL, 10);
    return true;
}

uint32_t ort_output_count(ort_peer *p, char *why)
{
    char answer[WHY] = "";
    return ask(p, answer, why, "count") ? (uint32_t)strtoul(answer, NULL, 10) : 0;
}

bool ort_output(ort_peer *p, uint32_t i, arena *memory, tacit_tensor *out, char *why)
{
    char path[128], name[WHY] = "";
    snprintf(path, sizeof path, "%s/output.npy", p->dir);
    if (!ask(p, name, why, "output %u %s", i, path))
        return false;
    tacit_error err = {TACIT_OK, ""};
    ir_tensor t;
    if (cli_load_npy(path, memory, &t, &err) != TACIT_OK) {
        snprintf(why, WHY, "%.250s", err.message);
        return false;
    }
    *out = (tacit_tensor){.name = arena_strdup(memory, name),
                          .dtype = t.dtype,
                          .rank = t.shape.rank,
                          .data = t.data,
                          .bytes = t.bytes};
    memcpy(out->dims, t.shape.dims, sizeof out->dims);
    return out->name != NULL;
}

void ort_stop(ort_peer *p)
{
    if (p->to)
        fclose(p->to);
    if (p->from)
        fclose(p->from);
    if (p->child > 0)
        waitpid(p->child, NULL, 0);
    if (*p->dir) {
        char path[128];
        static const char *const files[] = {"input.npy", "output.npy"};
        for (int i = 0; i < 2; i++) {
            snprintf(path, sizeof path, "%s/%s", p->dir, files[i]);
            unlink(path);
        }
        rmdir(p->dir);
    }
    *p = (ort_peer){0};
}
