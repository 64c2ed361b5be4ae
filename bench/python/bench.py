# SPDX-License-Identifier: Apache-2.0
"""The Python package's own costs, and the drop-in class against ONNX Runtime.

    python/call_overhead   what a call costs beyond the C call (one small input and output)
    python/call            the whole call, against ONNX Runtime's
    python/import          `import tacit`; NumPy comes with the first array, see python/import_numpy
    python/dropin/MODEL    InferenceSession.run of tacit.onnxruntime and of onnxruntime on the models of
                           bench/models, with 1 and 2 threads (2: the default on the machine we report)

Usage: bench.py BUILD [PREFIX]; appends JSON lines to $TACIT_BENCH_JSONL."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

import tacit

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "models"))
import compare  # noqa: E402

build = sys.argv[1]
prefix = sys.argv[2] if len(sys.argv) > 2 else ""
try:
    import onnxruntime as real

    real.set_default_logger_severity(4)
except ImportError:
    real = None


def wanted(name):
    return name.startswith(prefix) or prefix.startswith(name + "/")


def record(bench, ours, peer, peer_name, unit, **more):
    ratio = None if peer is None else round(peer / ours, 3)
    print(f"{bench:<32} {ours:>10.3f} {unit} {'-' if peer is None else f'{peer:10.3f}'} {ratio}", flush=True)
    row = {"bench": bench, "ours": round(ours, 4), "peer": peer and round(peer, 4)}
    row.update(peer_name=peer_name, unit=unit, ratio=ratio, **more)
    if "TACIT_BENCH_JSONL" in os.environ:
        with open(os.environ["TACIT_BENCH_JSONL"], "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def per_call(call, number=5000, repeats=15):
    """Microseconds a call: the best of several loops, as the machine may be busy."""
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(number):
            call()
        best = min(best, time.perf_counter() - start)
    return best / number * 1e6


def small_model(path):
    g = tacit.Graph()
    g.output("y", g.Relu(g.input("x", "f32", (1, 16))))
    g.model().save(path)


def calls():
    path = os.path.join(tempfile.mkdtemp(), "small.onnx")
    small_model(path)
    x = np.ones((1, 16), np.float32)
    session = tacit.compile(path)
    ours = per_call(lambda: session(x))
    if wanted("python/call_overhead"):
        # The C call alone, as the command line times it.
        command = [f"{build}/tacit", "bench", path, "--runs", "2000", "--json"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == 0:
            in_c = json.loads(done.stdout)["median_ms"] * 1e3
            record("python/call_overhead", max(ours - in_c, 0.001), None, "none", "us")
        else:
            print(f"python/call_overhead: {build}/tacit cannot time the C call; left out")
    if wanted("python/call"):
        peer = None
        if real:
            options = real.SessionOptions()
            options.intra_op_num_threads = 1
            other = real.InferenceSession(path, options, providers=["CPUExecutionProvider"])
            peer = per_call(lambda: other.run(None, {"x": x}), 1000)
        record("python/call", ours, peer, "onnxruntime" if real else "none", "us")


def import_ms(module):
    """Milliseconds in a fresh interpreter: the median of several."""
    code = (
        "import time; t = time.perf_counter(); "
        f"import {module}; print((time.perf_counter() - t) * 1e3)"
    )
    command = [sys.executable, "-c", code]
    runs = [
        float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        for _ in range(9)
    ]
    return statistics.median(runs)


def drop_in(models, name, arguments, threads):
    """The same script in two processes, one per runtime, which take turns (bench/models)."""
    path = models.model(name, arguments)
    runner = os.path.join(HERE, "dropin_runner.py")
    cpus = compare.processors(threads)
    sides, calm = [], compare.Calm(build, cpus)
    try:
        for module in ("tacit.onnxruntime", "onnxruntime"):
            command = [sys.executable, runner, module, path, str(threads)]
            sides.append(compare.Side(command, module, cpus))
        compare.interleave(sides, calm)
        return (sides[0].median(), sides[1].median(), sides[1].opened["version"],
                compare.measured(sides))
    finally:
        for side in [*sides, calm]:
            side.close()


def drop_ins():
    models = compare.Bench(build, prefix)
    failed = 0
    for entry, arguments in [*compare.ENTRIES, ("model/bert-int8-128", "none")]:
        short = entry.removeprefix("model/").replace("/", "-")
        for threads in (1, 2):
            name = f"python/dropin/{short}/t{threads}"
            if not wanted(name):
                continue
            try:
                ours, peer, version, more = drop_in(models, entry, arguments, threads)
                record(name, ours, peer, version, "ms", **more)
            except (RuntimeError, OSError, ValueError, subprocess.CalledProcessError) as e:
                print(f"{name}: {e}", file=sys.stderr)
                failed = 1
    return failed


if wanted("python/call") or wanted("python/call_overhead"):
    calls()
if wanted("python/import"):
    peer = import_ms("onnxruntime") if real else None
    record("python/import", import_ms("tacit"), peer, "onnxruntime" if real else "none", "ms")
if wanted("python/import_numpy"):
    record("python/import_numpy", import_ms("numpy"), None, "none", "ms")
sys.exit(drop_ins() if real else 0)
