# SPDX-License-Identifier: Apache-2.0
"""One script for both runtimes: InferenceSession.run behind the protocol of `tacit bench --serve`.

    dropin_runner.py onnxruntime|tacit.onnxruntime MODEL THREADS

then "run N" on standard input is answered by one line of JSON with the time of each run. But for the
threads the session options are the defaults, and so is the way to run: arrays in, new arrays out."""

import importlib
import json
import resource
import sys
import time

import numpy as np

KINDS = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int32)": np.int32}


def random_input(port, rng):
    shape = [d if isinstance(d, int) else 1 for d in port.shape]
    if port.type == "tensor(float)":
        return rng.standard_normal(shape).astype(np.float32)
    return rng.integers(0, 2, shape).astype(KINDS[port.type])


def main():
    ort, path, threads = importlib.import_module(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    ort.set_default_logger_severity(3)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(1)
    feed = {port.name: random_input(port, rng) for port in session.get_inputs()}
    session.run(None, feed)
    print(json.dumps({"version": f"onnxruntime {ort.__version__}"}), flush=True)
    for line in sys.stdin:
        times, clock = [], time.perf_counter_ns
        used = resource.getrusage(resource.RUSAGE_SELF)
        for _ in range(int(line.split()[1])):
            start = clock()
            results = session.run(None, feed)  # kept until the next ones are there
            times.append(clock() - start)
        now = resource.getrusage(resource.RUSAGE_SELF)
        cpu = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
        print(json.dumps({"ns": times, "cpu_ns": cpu * 1e9}), flush=True)
        del results


main()
