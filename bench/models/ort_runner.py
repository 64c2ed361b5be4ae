# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime behind the protocol of `tacit bench --serve`: MODEL THREADS [DIM=SIZE…] as arguments,
then "run N" on standard input is answered by one line of JSON with the time of each run."""
import json
import resource
import sys
import time

import numpy as np
import onnxruntime as ort

KINDS = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int32)": np.int32,
         "tensor(bool)": np.bool_, "tensor(float16)": np.float16}


def peak_kb():
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmHWM:"))


def random_input(arg, dims, rng):
    dtype = KINDS[arg.type]
    shape = [d if isinstance(d, int) else int(dims.get(d, 1)) for d in arg.shape]
    if np.issubdtype(dtype, np.floating):
        return rng.standard_normal(shape).astype(dtype)
    return (rng.integers(0, 2, shape)).astype(dtype)


def main():
    path, threads = sys.argv[1], int(sys.argv[2])
    dims = dict(a.split("=", 1) for a in sys.argv[3:])
    ort.set_default_logger_severity(3)
    before = peak_kb()
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    start = time.perf_counter_ns()
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    opened = time.perf_counter_ns() - start
    rng = np.random.default_rng(1)
    feeds = {a.name: random_input(a, dims, rng) for a in session.get_inputs()}
    start = time.perf_counter_ns()
    bound = session.io_binding()
    for name, value in feeds.items():
        bound.bind_cpu_input(name, value)
    for out in session.get_outputs():
        bound.bind_output(out.name)
    session.run_with_iobinding(bound)
    first = time.perf_counter_ns() - start
    print(json.dumps({"open_ns": opened, "first_ns": first, "peak_kb": peak_kb() - before,
                      "version": "onnxruntime " + ort.__version__}), flush=True)
    for line in sys.stdin:
        runs, times, clock = int(line.split()[1]), [], time.perf_counter_ns
        used = resource.getrusage(resource.RUSAGE_SELF)
        for _ in range(runs):
            start = clock()
            session.run_with_iobinding(bound)
            times.append(clock() - start)
        now = resource.getrusage(resource.RUSAGE_SELF)
        cpu = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
        print(json.dumps({"ns": times, "cpu_ns": cpu * 1e9}), flush=True)


main()
