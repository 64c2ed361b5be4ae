# SPDX-License-Identifier: Apache-2.0
"""Nothing grows: every part of the package is used again and again, and neither Python's blocks nor
the bytes of the C heap may be more afterwards. (References of single objects: test_core.)"""

import ctypes
import gc
import sys
import warnings

import numpy as np
import pytest
from test_gguf import write

import tacit
import tacit.onnxruntime
import tacit.secure

WARM, ROUNDS = 6, 40


class Mallinfo(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    ]


def heap_bytes():
    """Bytes in use of the main heap and of large blocks; 0 where the C library does not tell."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallinfo2"):
        return 0
    libc.mallinfo2.restype = Mallinfo
    info = libc.mallinfo2()
    return info.uordblks + info.hblkhd


X = np.ones((2, 4), np.float32)


def build():
    g = tacit.Graph("leaks")
    x = g.input("x", "f32", ("batch", 4))
    y = g.Tanh(x @ g.weight("w", np.ones((4, 3), np.float32)) + 1.5)
    g.output("y", y)
    g.output("loss", y.sum())
    return g.model()


MODEL = build()
SESSION = tacit.compile(MODEL, dims={"batch": 2})
RUNNER = tacit.runner(MODEL)


def refused(use):
    with pytest.raises((tacit.Error, TypeError, ValueError)):
        use()


def run():
    SESSION(X), SESSION.run(x=X), SESSION.run({"x": X}), RUNNER(X), RUNNER.results({"x": X}, None)
    SESSION([[1, 2, 3, 4]] * 2), SESSION(X[:, ::-1]), SESSION(memoryview(X))


def run_badly():
    for thing in (SESSION, RUNNER):
        for use in (
            lambda: thing(X[:, :2].copy()), lambda: thing(q=X), lambda: thing(X, X), lambda: thing(),
            lambda: thing(X, x=X), lambda: thing(X, out=X), lambda: thing(object()),
            lambda: thing(X.astype(np.float64)), lambda: thing.run({1: X}),
        ):  # fmt: skip
            refused(use)


def compile_and_close():
    for executor in ("serial", "tasks", "reference"):
        with tacit.compile(MODEL, dims={"batch": 2}, exec=executor, threads=2) as session:
            session(X)
    with tacit.runner(MODEL, buckets={"batch": 4}) as runner:
        runner(X)
    refused(lambda: tacit.compile(MODEL))
    refused(lambda: tacit.compile(MODEL, dims={"batch": 1}, disabled_passes=["none"]))


def load_and_save(path):
    MODEL.save(path)
    model = tacit.load(path)
    tacit.load(path.read_bytes()), model.text(), model.weights, model.weight("w"), repr(model)
    refused(lambda: tacit.load(b"\x08"))
    refused(lambda: tacit.load(path.parent / "none.onnx"))


def transform():
    tacit.grad(MODEL, "w", output=1, dims={"batch": 2}), tacit.jvp(MODEL, "x", dims={"batch": 2})
    tacit.vmap(MODEL, "x", 3, dims={"batch": 2}), tacit.quantize(MODEL)
    step = tacit.train_step(MODEL, ["w"], output=1, dims={"batch": 2})
    step(x=X)
    g = tacit.Graph()
    last, _ = tacit.scan(lambda c, _: (c * 2.0, c), g.input("x", "f32", (3,)), length=3)
    g.output("y", last)
    tacit.compile(g)(np.ones(3, np.float32))
    refused(lambda: tacit.grad(MODEL, "q"))


def look():
    SESSION.profile()
    SESSION(X)
    SESSION.profile_rows(), SESSION.show("plan")._repr_html_(), str(tacit.show(MODEL))
    SESSION.program.memory(), SESSION.inputs, SESSION.outputs
    SESSION.watch(lambda *_: None, X)
    with pytest.raises(KeyError):
        SESSION.watch(lambda *_: {}["mine"], X)
    SESSION.profile(False)


def drop_in(path):
    MODEL.save(path)
    session = tacit.onnxruntime.InferenceSession(path)
    session.run(None, {"x": X}), session.get_inputs(), session.get_outputs()
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    refused(lambda: session.run(None, {}))


def large_outputs():
    g = tacit.Graph()
    g.output("y", g.input("x", "f32", (256, 256)) + 1.0)
    session = tacit.compile(g)
    x = np.zeros((256, 256), np.float32)
    kept = [session(x) for _ in range(4)]
    session.close()
    assert all((y == 1).all() for y in kept)


def strings_and_sequences():
    g = tacit.Graph()
    g.output("y", g.StringConcat(g.input("a", "string", (2,)), g.input("b", "string", (2,))))
    tacit.compile(g)(np.array(["a", "b"], object), np.array(["c", "d"]))
    text = b'tacit 1\ngraph "m" {\n  opset "" 22\n  in %s : seq(f32[?])\n  %t : seq(f32[?]) = Identity(%s) @n\n  out %t\n}\n'
    tacit.compile(tacit.load(text))([X[0], X[1]])


def private():
    tacit.secure.sim(MODEL, X, dims={"batch": 2}), tacit.secure.plan(MODEL, dims={"batch": 2})
    refused(lambda: tacit.secure.sim(MODEL, X[:, :2].copy(), dims={"batch": 2}))


def tokens(path):
    names = {"model": "llama", "tokens": ["<unk>", "▁", "a"], "scores": [0.0, -1.0, -2.0]}
    write(path, {f"tokenizer.ggml.{k}": v for k, v in names.items()}, {})
    t = tacit.Tokenizer(path)
    t.decode(t.encode("a" * 100)), t.piece(1), t.ends(1), t.size
    refused(lambda: t.decode([1, "a"]))
    refused(lambda: t.encode(b"a"))
    refused(lambda: tacit.Tokenizer(path.parent / "none.gguf"))


USES = [
    run, run_badly, compile_and_close, load_and_save, transform, look, drop_in, large_outputs,
    strings_and_sequences, private, build, tokens,
]  # fmt: skip


@pytest.mark.parametrize("use", USES, ids=lambda f: f.__name__)
def test_nothing_grows(use, tmp_path):
    arguments = [tmp_path / "m.onnx"] if use.__code__.co_argcount else []

    def rounds(n):
        for _ in range(n):
            use(*arguments)
        gc.collect()
        return sys.getallocatedblocks(), heap_bytes()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rounds(WARM)
        growth = []
        for _ in range(3):  # caches fill up once; a leak is there every time
            blocks, heap = rounds(0)
            more_blocks, more_heap = rounds(ROUNDS)
            growth.append((more_blocks - blocks, more_heap - heap))
            if growth[-1][0] < ROUNDS // 2 and growth[-1][1] < ROUNDS * 16:
                return
    pytest.fail(f"(blocks, bytes) more after each {ROUNDS} rounds: {growth}")
