# SPDX-License-Identifier: Apache-2.0
"""The Python package's own costs, and the drop-in class against ONNX Runtime.

    python/call_overhead   what a call costs beyond the C call (one small input and output)
    python/call            the whole call, against ONNX Runtime's
    python/import          `import tacit`; NumPy comes with the first array, see python/import_numpy
    python/dropin/MODEL    tacit.onnxruntime on the models of bench/models, one thread

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
import tacit.onnxruntime

build = sys.argv[1]
prefix = sys.argv[2] if len(sys.argv) > 2 else ""
try:
    import onnxruntime as real

    real.set_default_logger_severity(4)
except ImportError:
    real = None


def wanted(name):
    return name.startswith(prefix)


def record(bench, ours, peer, peer_name, unit):
    ratio = None if peer is None else round(peer / ours, 3)
    print(f"{bench:<32} {ours:>10.3f} {unit} {'-' if peer is None else f'{peer:10.3f}'} {ratio}")
    row = {"bench": bench, "ours": round(ours, 4), "peer": peer and round(peer, 4)}
    row.update(peer_name=peer_name, unit=unit, ratio=ratio)
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


def feed(session, rng):
    made = {}
    for port in session.get_inputs():
        shape = [d if isinstance(d, int) else 1 for d in port.shape]
        if "int" in port.type:
            made[port.name] = rng.integers(0, 100, shape).astype(port.type[7:-1])
        else:
            made[port.name] = rng.random(shape).astype(np.float32)
    return made


def drop_in(path):
    """Both runtimes in turns, so that a busy machine is busy for both."""
    options = tacit.onnxruntime.SessionOptions(), real.SessionOptions()
    for o in options:
        o.intra_op_num_threads = 1
    ours = tacit.onnxruntime.InferenceSession(path, options[0])
    peer = real.InferenceSession(path, options[1], providers=["CPUExecutionProvider"])
    inputs = feed(peer, np.random.default_rng(0))
    times = [], []
    for session in (ours, peer):
        session.run(None, inputs)
    end = time.perf_counter() + 2
    while len(times[0]) < 7 or (len(times[0]) < 500 and time.perf_counter() < end):
        for session, kept in zip((ours, peer), times):
            start = time.perf_counter()
            session.run(None, inputs)
            kept.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times[0]), statistics.median(times[1])


def example(name, arguments):
    """The file that bench/models uses, made where it is not there yet."""
    path = f"{build}/models/{name.replace('/', '-')}.onnx"
    if not os.path.exists(path):
        os.makedirs(f"{build}/models", exist_ok=True)
        part = path.replace(".onnx", ".part.onnx")
        command = [f"{build}/tacit", "example", *arguments.split(), "--out", part]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        os.rename(part, path)
    return path


if wanted("python/call") or wanted("python/call_overhead"):
    calls()
if wanted("python/import"):
    peer = import_ms("onnxruntime") if real else None
    record("python/import", import_ms("tacit"), peer, "onnxruntime" if real else "none", "ms")
if wanted("python/import_numpy"):
    record("python/import_numpy", import_ms("numpy"), None, "none", "ms")
if real:
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "models"))
    from compare import ENTRIES

    for entry, arguments in ENTRIES:
        short = entry.split("/", 1)[1] if entry.startswith("model/") else entry.replace("/", "-")
        if entry.startswith(("model/", "mlp/", "block/")) and wanted(f"python/dropin/{short}"):
            ours, peer = drop_in(example(entry, arguments))
            record(f"python/dropin/{short}", ours, peer, "onnxruntime", "ms")
