# SPDX-License-Identifier: Apache-2.0
"""Whole models: ours and the peers in one run. Every side is a process that keeps its model open and
runs it when asked; sides take turns in rounds, a pause between them, so that no side pays for the
threads of another. A turn during which other processes (or the host) took the cores is thrown away.
Whether somebody else had the other half of a core is asked before and behind each turn (bench/calm.c):
turns count that were not slowed down, or where those are few after a while, the third that was least.
Reported: the median over all runs of the turns that count.

Usage: compare.py BUILD [PREFIX]   entries whose name begins with PREFIX
Environment: TACIT_PYTHON (has onnxruntime), TACIT_TORCH_PYTHON (has torch), TACIT_BENCH_ROUNDS,
TACIT_BENCH_JSONL (results are appended)."""
import json
import mmap
import os
import shutil
import statistics
import subprocess
import sys
import time

TRANSFORMERS = [("gpt2-16", "gpt2 --seq 16"), ("gpt2-128", "gpt2 --seq 128"),
                ("gpt2-512", "gpt2 --seq 512"), ("bert-128", "bert --seq 128"),
                ("minilm-128", "minilm --seq 128"), ("llama-128", "llama --seq 128")]
CNNS = ["resnet50", "mobilenetv2", "squeezenet", "densenet121"]
ENTRIES = (
    [(f"mlp/{b}x{w}", f"mlp --width {w} --batch {b}")
     for b, w in ((1, 512), (32, 512), (128, 512), (1, 2048), (32, 2048))]
    + [(f"block/{b}x{s}x{h}", f"block --batch {b} --seq {s} --hidden {h}")
       for b, s, h in ((1, 16, 64), (1, 32, 64), (1, 64, 128), (1, 128, 256), (2, 64, 128),
                       (4, 128, 256))]
    + [(f"attention/{b}b{h}h{s}s", f"attention --batch {b} --heads {h} --seq {s}")
       for b, h, s in ((1, 4, 64), (1, 8, 128), (2, 8, 256))]
    + [("attention/1b12h1024s-causal", "attention-causal --batch 1 --heads 12 --seq 1024")]
    + [("model/" + name, arguments) for name, arguments in TRANSFORMERS]
    + [("model/" + name, name) for name in CNNS]
)
# Models in fewer bits: of which entry they are made, and as what (narrow.py); the peer runs the same file.
NARROW = {"model/bert-int8-128": ("model/bert-128", "dynamic-int8"),
          "model/resnet50-int8": ("model/resnet50", "static-int8"),
          "model/mobilenetv2-int8": ("model/mobilenetv2", "static-int8"),
          "model/gpt2-f16-16": ("model/gpt2-16", "f16"),
          "model/bert-f16-128": ("model/bert-128", "f16"),
          "model/mobilenetv2-f16": ("model/mobilenetv2", "f16")}
# Prompts of which only the logits behind the last token are asked for; the peer runs the same file.
LAST = ["model/gpt2-128", "model/gpt2-512"]
TORCH = ("mlp", "block", "attention", "attention-causal", "gpt2", "bert", "minilm", "resnet50",
         "mobilenetv2")
PAUSE = 0.05  # seconds between sides: spinning threads have gone to sleep by then
WARM = 0.15  # seconds of runs that do not count
TURN = 0.02  # seconds of runs a side gets at a time: those who disturb come and go
WAKE = 0.01  # … behind so many that do not count: cores that were idle need them to reach their clock
WAIT = 20  # times that a turn waits for them to go, 2 ms each
LEAST = int(os.environ.get("TACIT_BENCH_ROUNDS", "7"))  # turns of a side that count at least, …
WANTED = 6 * LEAST  # … and as many calm ones as are wanted,
LIMIT = 12  # if they can be had in so many seconds
OPENINGS = 5, 15  # of a side: at least, and at most, if they can be had in as many seconds
FRESH = 1 << 30  # bytes of memory that an opening may ask for
OTHERS = 0.08  # a turn is disturbed when others used more than this share of the cores, …
SLOWER = 1.06  # … or half of a core, so that a loop took so many times as long as it can


def busy_ns():
    """Time all processors spent on anything but idling, and what the host took."""
    with open("/proc/stat") as f:
        v = [int(x) for x in f.readline().split()[1:9]]
    tick = 1e9 / os.sysconf("SC_CLK_TCK")
    return (sum(v) - v[3] - v[4]) * tick


def processors(count):
    """So many of those allowed, each of a core of its own if there are enough."""
    chosen, taken = [], set()
    allowed = sorted(os.sched_getaffinity(0), reverse=True)  # interrupts come to the first
    for cpu in allowed:
        try:
            with open(f"/sys/devices/system/cpu/cpu{cpu}/topology/core_cpus") as f:
                core = f.read()
        except OSError:
            core = cpu
        if core not in taken:
            chosen.append(cpu)
        taken.add(core)
    return (chosen if len(chosen) >= count else allowed)[:count]


def back_memory():
    """The host of a virtual machine may have taken free memory back, and gives it again page by page, in
    up to a second for half a gigabyte. Asked for here, so that no opening pays for it."""
    with mmap.mmap(-1, FRESH, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.madvise(mmap.MADV_HUGEPAGE)
        for at in range(0, FRESH, mmap.PAGESIZE):
            memory[at] = 1


class Server:
    """A process that answers lines with lines."""

    def __init__(self, command, **more):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, **more)

    def answer(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline()

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Calm(Server):
    """How much longer than at best a loop takes on some processors (bench/calm.c)."""
    best = {}

    def __init__(self, build, cpus):
        super().__init__([f"{build}/calm", *map(str, cpus)])
        self.cpus = tuple(cpus)
        for _ in range(300):
            self.slower()

    def wait(self):
        """Until it is calm, but not for long."""
        for _ in range(WAIT):
            slower = self.slower()
            if slower <= SLOWER:
                break
            time.sleep(0.002)
        return slower

    def slower(self):
        took = int(self.answer(""))
        self.best[self.cpus] = min(took, self.best.get(self.cpus, took))
        return took / self.best[self.cpus]


def awake(runs):
    """All but the first run of a turn, which wakes threads and caches, and those that begin while
    cores reach their clock."""
    begin, spent = 1, runs[0]
    while begin < len(runs) - 1 and spent < WAKE * 1e9:
        spent += runs[begin]
        begin += 1
    return runs[begin:]


class Side(Server):
    def __init__(self, command, label, cpus=None):
        super().__init__(command, stderr=subprocess.DEVNULL,
                         preexec_fn=(lambda: os.sched_setaffinity(0, cpus)) if cpus else None)
        self.label, self.turns, self.dropped = label, [], 0
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{label}: {' '.join(command)} ended at once")
        self.opened = json.loads(line)
        self.count = 1

    def ask(self, runs):
        return json.loads(self.answer(f"run {runs}"))

    def warm(self):
        start = time.monotonic()
        while time.monotonic() - start < WARM:
            took = min(self.ask(1)["ns"])
        self.count = max(2, min(3000, int((WAKE + TURN) * 1e9 / took)))

    def turn(self, calm, pause):
        """How calm it was, and how long the runs took; None: others were busy."""
        time.sleep(pause)
        slower = calm.wait()
        before, start = busy_ns(), time.monotonic_ns()
        answer = self.ask(self.count + 1)
        wall = time.monotonic_ns() - start
        others = busy_ns() - before - answer["cpu_ns"]
        cores = os.cpu_count() or 1
        slower = max(slower, calm.slower())
        if others > OTHERS * wall * cores + 2e7:
            self.dropped += 1
            return None
        return slower, awake(answer["ns"])

    def calm_turns(self):
        return sum(slower <= SLOWER for slower, _ in self.turns)

    def counted(self):
        """The runs that count."""
        count = max(LEAST, self.calm_turns(), len(self.turns) // 3)
        calmest = sorted(self.turns, key=lambda turn: turn[0])[:count]
        return [ns for _, runs in calmest for ns in runs]

    def median(self):
        return statistics.median(self.counted()) / 1e6


def interleave(sides, calm):
    pause = PAUSE if len(calm.cpus) > 1 else PAUSE / 10
    for side in sides:
        side.warm()
    start, rounds = time.monotonic(), 0
    while rounds < 3 * LEAST and any(len(side.turns) < LEAST for side in sides) or (
            time.monotonic() - start < LIMIT
            and any(side.calm_turns() < WANTED for side in sides)):
        turns = [side.turn(calm, pause) for side in sides]
        rounds += 1
        if None in turns:
            continue
        # A host can put both processors on one core for half a minute, which costs one side more
        # than another: all sides count the same rounds.
        slowest = max(slower for slower, _ in turns)
        for side, (_, runs) in zip(sides, turns):
            side.turns.append((slowest, runs))
    for side in sides:
        if not side.turns:
            raise RuntimeError(f"{side.label}: every turn was disturbed; is the machine busy?")


def measured(sides):
    """How well, for the report."""
    return {"runs": len(sides[0].counted()), "dropped_turns": sum(s.dropped for s in sides),
            "calm_turns": min(s.calm_turns() for s in sides)}


def python_with(module, *candidates):
    for path in candidates:
        if path and shutil.which(path) and subprocess.run([path, "-c", f"import {module}"], capture_output=True,
                                                          check=False).returncode == 0:
            return path
    return None


class Bench:
    def __init__(self, build, prefix):
        self.build, self.prefix = build, prefix
        self.here = os.path.dirname(os.path.abspath(__file__))
        self.models = os.path.join(build, "models")
        os.makedirs(self.models, exist_ok=True)
        self.ort = python_with("onnxruntime", os.environ.get("TACIT_PYTHON"), ".venv/bin/python",
                               "python3")
        self.torch = python_with("torch", os.environ.get("TACIT_TORCH_PYTHON"),
                                 os.environ.get("TACIT_PYTHON"), ".venv/bin/python", "python3")
        self.out = os.environ.get("TACIT_BENCH_JSONL")
        self.failed = 0

    def wanted(self, name):
        return name.startswith(self.prefix) or self.prefix.startswith(name + "/")

    def record(self, name, ours, peer, peer_name, unit, **more):
        ratio = peer / ours if peer else None
        shown = f"{peer:9.3f} {unit}  {ratio:6.2f}" if peer else "        -"
        print(f"{name:34s} {ours:9.3f} {unit}  {shown}  {peer_name}", flush=True)
        entry = {"bench": name, "ours": round(ours, 5), "peer": peer and round(peer, 5),
                 "peer_name": peer_name, "unit": unit, "ratio": ratio and round(ratio, 3), **more}
        if self.out:
            with open(self.out, "a") as f:
                f.write(json.dumps(entry) + "\n")

    def model(self, name, arguments):
        path = os.path.join(self.models, name.replace("/", "-") + ".onnx")
        if not os.path.exists(path):
            part = path.replace(".onnx", ".part.onnx")
            command = [f"{self.build}/tacit", "example", *arguments.split(), "--out", part]
            if name in NARROW:
                whole, kind = NARROW[name]
                command = [self.ort, f"{self.here}/narrow.py", kind,
                           self.model(whole, dict(ENTRIES)[whole]), part]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            os.rename(part, path)
        return path

    def ours(self, path, threads, *extra):
        how = ["serial"] if threads == 1 else ["tasks", "--threads", str(threads)]
        return [f"{self.build}/tacit", "bench", path, "--serve", "--exec", *how, *extra]

    def commands(self, path, arguments, threads, extra=(), dims=()):
        """What starts each side, and its label."""
        commands = [(self.ours(path, threads, *extra), "tacit")]
        if self.ort:
            commands.append(([self.ort, f"{self.here}/ort_runner.py", path, str(threads), *dims],
                             "ort"))
        words = arguments.split()
        if self.torch and words[0] in TORCH:
            sizes = [f"{k[2:]}={v}" for k, v in zip(words[1::2], words[2::2])]
            commands.append(([self.torch, f"{self.here}/torch_runner.py", words[0], str(threads),
                              *sizes], "torch"))
        return commands

    def open_sides(self, sides, *arguments, cpus=None):
        """One by one, so that those that were opened can be closed if the next cannot."""
        for command, label in self.commands(*arguments):
            sides.append(Side(command, label, cpus))

    def compare(self, name, arguments, threads, asked=""):
        path = self.model(name, arguments)
        name += "-last" if asked else ""
        cpus = processors(threads)
        sides, calm = [], Calm(self.build, cpus)
        try:
            self.open_sides(sides, path, "none" if asked else arguments, threads, asked.split(),
                            cpus=cpus)
            interleave(sides, calm)
            ours, more = sides[0], measured(sides)
            if len(sides) == 1:
                self.record(f"{name}/t{threads}", ours.median(), None, "none", "ms", **more)
            for peer in sides[1:]:
                suffix = "" if peer.label == "ort" else "/torch"
                self.record(f"{name}{suffix}/t{threads}", ours.median(), peer.median(),
                            peer.opened["version"], "ms", **more)
        finally:
            for side in [*sides, calm]:
                side.close()

    def opening(self, name, arguments, threads, asked=""):
        """Load, compile, first run; in fresh processes, one at a time: the best time and the median
        peak of some each. Ours also with the packed weights of an earlier process."""
        if not self.ort:
            return
        path = self.model(name, arguments)
        packed = path + ".tacit-cache"
        cached = self.ours(path, threads, "--packed", packed, *asked.split())
        times, peaks, version = {}, {}, ""
        try:
            Side(cached, "cached").close()  # makes the file
            start = time.monotonic()
            for i in range(OPENINGS[1]):
                if i >= OPENINGS[0] and time.monotonic() - start > LIMIT:
                    break
                for command, label in [*self.commands(path, "none", threads, asked.split()),
                                       (cached, "cached")]:
                    time.sleep(PAUSE)
                    back_memory()
                    side = Side(command, label)
                    side.close()
                    o = side.opened
                    times.setdefault(label, []).append((o["open_ns"] + o["first_ns"]) / 1e6)
                    peaks.setdefault(label, []).append(o["peak_kb"] / 1024)
                    version = o.get("version", version)
        finally:
            if os.path.exists(packed):
                os.remove(packed)
        short = self.short(name) + ("-last" if asked else "")
        for label, suffix in (("tacit", ""), ("cached", "-cached")):
            self.record(f"open/{short}{suffix}/t{threads}", min(times[label]), min(times["ort"]),
                        version, "ms")
            self.record(f"open/{short}{suffix}-peak/t{threads}", statistics.median(peaks[label]),
                        statistics.median(peaks["ort"]), version, "MiB")

    @staticmethod
    def short(name):
        """What comes behind open/."""
        return name.split("/", 1)[1] if name.startswith("model/") else name.replace("/", "-")

    def run(self):
        print(f"{'bench':34s} {'tacit':>12s}  {'peer':>12s}  ratio  peer")
        narrow = [(name, "none") for name in NARROW] if self.ort else []
        for name, arguments in [("overhead/call", "mlp --width 1 --batch 1"), *ENTRIES, *narrow]:
            for threads in (1, 2):
                if self.wanted(name + f"/t{threads}") and (threads == 1 or "overhead" not in name):
                    self.attempt(self.compare, name, arguments, threads)
            for threads in (1, 2):
                if (name.startswith(("model/", "mlp/", "block/"))
                        and self.wanted(f"open/{self.short(name)}/t{threads}")):
                    self.attempt(self.opening, name, arguments, threads)
        for name in LAST:
            for threads in (1, 2):
                given = (name, dict(ENTRIES)[name], threads, "--last logits")
                if self.wanted(f"{name}-last/t{threads}"):
                    self.attempt(self.compare, *given)
                if self.wanted(f"open/{self.short(name)}-last/t{threads}"):
                    self.attempt(self.opening, *given)
        return self.failed

    def attempt(self, what, name, *arguments):
        try:
            what(name, *arguments)
        except (RuntimeError, subprocess.CalledProcessError, OSError, ValueError) as e:
            print(f"{name}: {e}", file=sys.stderr)
            self.failed = 1


if __name__ == "__main__":
    sys.exit(Bench(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "").run())
