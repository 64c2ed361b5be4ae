# SPDX-License-Identifier: Apache-2.0
"""With one or two processes beside it that never stop, is a model with two threads at least as fast
as with one? Ours and ONNX Runtime, each with one thread and with two, take turns as in compare.py.
What counts is how much gets done: the mean over all turns, after every side has had a second to find
out who else is there. Who shares a processor with whom is the kernel's chance, for many turns in a row: of
two sides that are the same one may seem 10 % faster after seven turns beside two processes. So our
sides have many turns, in both orders, and the ratio's standard error is reported.

Usage: neighbours.py BUILD [PREFIX]   entries neighbour/NAME/nK, K processes
Environment: as compare.py."""
import math
import os
import statistics
import subprocess
import sys
import time

from compare import Bench, PAUSE

ENTRIES = [("mlp-32x2048", "mlp --width 2048 --batch 32", 0),
           ("mobilenetv2", "mobilenetv2", 0),
           ("minilm-128", "minilm --seq 128", 0),
           ("gpt2-decode", "gpt2 --decode", 128)]  # positions behind the token
TURN = 0.4  # seconds: several time slices of the kernel's
SETTLE = 1.0  # seconds beside the others that do not count
ROUNDS = 3 * int(os.environ.get("TACIT_BENCH_ROUNDS", "7"))
PEER_EVERY = 3  # rounds: a hint is enough there
# Never stops while somebody wants to know; whoever is killed leaves no busy process behind.
BUSY = "import os\np = os.getppid()\nwhile os.getppid() == p:\n  for _ in range(100000): pass"


def turn(side):
    time.sleep(PAUSE)
    times = side.ask(side.count + 1)["ns"][1:]
    side.turns.append(statistics.mean(times))


def measure(sides):
    for side in sides:
        start = time.monotonic()
        while time.monotonic() - start < SETTLE:
            took = min(side.ask(3)["ns"])
        side.count = max(3, int(TURN * 1e9 / took))
    for i in range(ROUNDS):
        for side in sides if i % 2 else sides[::-1]:
            if side.label == "tacit" or i % PEER_EVERY == 0:
                turn(side)
    return [statistics.mean(side.turns) / 1e6 for side in sides]


def error(one, two):
    """Standard error of the ratio, from turns of the same round."""
    logs = [math.log(a / b) for a, b in zip(one.turns, two.turns)]
    return statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else 0


def open_sides(bench, sides, path, past):
    ours = ["--cache", "256", "--past", str(past)] if past else []
    dims = [f"past={past}"] if past else []
    for threads in (1, 2):
        bench.open_sides(sides, path, "none", threads, ours, dims)


def neighbour(bench, name, arguments, past, count):
    path = bench.model("decode-gpt2" if past else name, arguments)
    sides, busy = [], []
    try:
        open_sides(bench, sides, path, past)
        busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
        times = measure(sides)
    finally:
        for process in busy:
            process.kill()
            process.wait()
        for side in sides:
            side.close()
    half = len(times) // 2  # ours with one thread, perhaps the peer's, then the same with two
    theirs = f"; {sides[1].opened['version']}: {times[1] / times[half + 1]:.2f}" if half > 1 else ""
    chance = f"1 thread, ± {error(sides[0], sides[half]):.2f}"
    bench.record(f"neighbour/{name}/n{count}", times[half], times[0], chance + theirs, "ms",
                 runs=len(sides[half].turns))


def main():
    bench = Bench(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "")
    for name, arguments, past in ENTRIES:
        for count in (1, 2):
            if bench.wanted(f"neighbour/{name}/n{count}"):
                bench.attempt(neighbour, bench, name, arguments, past, count)
    return bench.failed


if __name__ == "__main__":
    sys.exit(main())
