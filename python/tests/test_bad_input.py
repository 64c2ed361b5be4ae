# SPDX-License-Identifier: Apache-2.0
"""What goes wrong: a Python exception or the right thing, never a crash. A test per thing."""

import os
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pytest

import tacit
import tacit.onnxruntime


@pytest.fixture
def opened(affine, tmp_path):
    """The same model behind the three things one can call: a session, a runner, the drop-in."""
    model, expected = affine
    model.save(tmp_path / "m.onnx")
    drop_in = tacit.onnxruntime.InferenceSession(tmp_path / "m.onnx")
    return {
        "session": tacit.compile(model, dims={"batch": 2}),
        "runner": tacit.runner(model),
        "drop-in": lambda x: drop_in.run(None, {"x": x})[0],
    }, expected


WAYS = pytest.mark.parametrize("way", ["session", "runner", "drop-in"])


@WAYS
def test_wrong_shapes(opened, rng, way):
    for shape in ((2, 5), (2,), (2, 4, 1), ()):
        with pytest.raises(tacit.Error) as caught:
            opened[0][way](np.zeros(shape, np.float32))
        assert caught.value.status == "ERR_SHAPE" and "'x'" in caught.value.message


@WAYS
def test_wrong_dtypes(opened, rng, way):
    for dtype in (np.float64, np.int32, np.complex64, np.bool_, "U4", "M8[s]", "S3", object):
        with pytest.raises((tacit.Error, TypeError, ValueError)):
            opened[0][way](np.ones((2, 4)).astype(dtype))


def test_wrong_names(opened, affine, rng):
    x = rng.random((2, 4), np.float32)
    for name in ("z", "", "x ", "\0", "\ud800", "x" * 100000):
        for way in ("session", "runner"):
            with pytest.raises((tacit.Error, ValueError)):
                opened[0][way](**{name: x})
    for key in (1, None, b"x", (1,)):
        for way in ("session", "runner"):
            with pytest.raises((tacit.Error, TypeError)):
                opened[0][way].run({key: x})


@WAYS
def test_non_contiguous_arrays_are_copied_with_one_warning(opened, rng, monkeypatch, way):
    calls, expected = opened
    monkeypatch.setattr(tacit._arrays, "_warned", False)
    whole = rng.random((4, 8), np.float32)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for x in (whole[::2, ::2], whole[:2, 3::-1], np.asfortranarray(whole[:2, :4]), whole[:, :2].T):
            np.testing.assert_allclose(calls[way](x), expected(x), rtol=1e-5)
    assert len(seen) == 1 and "is not dense" in str(seen[0].message)


def test_non_contiguous_arrays_are_refused_with_strict(affine, rng):
    model, expected = affine
    x = rng.random((4, 2), np.float32).T
    for call in (tacit.compile(model, dims={"batch": 2}, strict=True), tacit.runner(model, strict=True)):
        with pytest.raises(tacit.Error, match="strict is on") as caught:
            call(x)
        assert caught.value.status == "ERR_ARGUMENT"
        np.testing.assert_allclose(call(x.copy()), expected(x), rtol=1e-5)


def test_read_only_outputs_are_refused(affine, rng):
    model, expected = affine
    x, out = rng.random((2, 4), np.float32), np.zeros((2, 3), np.float32)
    out.flags.writeable = False
    frozen = bytes(24)
    for call in (tacit.compile(model, dims={"batch": 2}), tacit.runner(model)):
        for target in (out, frozen, memoryview(frozen)):
            with pytest.raises(tacit.Error, match="read-only|not dense") as caught:
                call(x, out=target)
            assert caught.value.status == "ERR_ARGUMENT"
    assert not out.any() and frozen == bytes(24)


def test_an_output_over_an_input_is_no_crash(affine, rng):
    g = tacit.Graph()
    g.output("y", g.input("x", "f32", (8,)) + 1.0)
    x = rng.random(8, np.float32)
    with pytest.raises(tacit.Error, match="overlap"):
        tacit.compile(g)(x, out=x)


def test_dead_sessions(affine, rng):
    model, _ = affine
    x = rng.random((2, 4), np.float32)
    session, runner = tacit.compile(model, dims={"batch": 2}), tacit.runner(model)
    for thing in (session, runner):
        thing(x)
        thing.close()
        for use in (lambda: thing(x), lambda: thing.run(x=x), lambda: thing.inputs):
            with pytest.raises(tacit.Error, match="closed") as caught:
                use()
            assert caught.value.status == "ERR_STATE"
        assert "closed" in repr(thing)
        thing.close()
    made_by_hand = (tacit.Session, tacit.Runner, tacit.Program, tacit.Model)
    for kind in made_by_hand:
        empty = kind()
        for use in ("inputs", "outputs", "_repr_html_"):
            with pytest.raises((tacit.Error, AttributeError)):
                value = getattr(empty, use)
                value()
    with pytest.raises(tacit.Error):
        tacit.Session()(x)
    with pytest.raises(tacit.Error):
        tacit.Runner()(x)


class Raises:
    """Fails in whichever way its array is asked for."""

    def __init__(self, attribute):
        self.attribute = attribute

    def __getattr__(self, name):
        if name == self.attribute:
            raise ZeroDivisionError(name)
        raise AttributeError(name)


@pytest.mark.parametrize("attribute", ["__array_struct__", "__array_interface__", "__dlpack__", "__array__"])
def test_exceptions_in_an_arrays_attributes_come_out(opened, affine, attribute):
    calls, expected = opened
    for way in ("session", "runner"):
        with pytest.raises((ZeroDivisionError, tacit.Error, TypeError)):
            calls[way](Raises(attribute))
        x = np.ones((2, 4), np.float32)
        np.testing.assert_allclose(calls[way](x), expected(x), rtol=1e-6)


def test_exceptions_in_dlpack_come_out(affine):
    class Tensor:
        def __dlpack__(self, **options):
            raise ZeroDivisionError("mine")

        def __dlpack_device__(self):
            return 1, 0

    session = tacit.compile(affine[0], dims={"batch": 2})
    with pytest.raises(ZeroDivisionError, match="mine"):
        session(Tensor())
    with pytest.raises(ZeroDivisionError, match="mine"):
        session(np.ones((2, 4), np.float32), out=Tensor())


@pytest.mark.parametrize("executor", ["serial", "tasks", "reference"])
def test_exceptions_in_callbacks_come_out(affine, rng, executor):
    model, expected = affine
    session = tacit.compile(model, dims={"batch": 2}, exec=executor, threads=2)
    x, calls = rng.random((2, 4), np.float32), []

    def bad(*what):
        calls.append(what)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        session.watch(bad, x)
    assert len(calls) == 1  # and none after the first
    with pytest.raises(SystemExit):
        session.watch(lambda *_: sys.exit(3), x)
    np.testing.assert_allclose(session(x), expected(x), rtol=1e-6)


def test_callbacks_may_use_the_session(affine, rng):
    model, expected = affine
    session = tacit.compile(model, dims={"batch": 2}, exec="reference")
    x, inner = rng.random((2, 4), np.float32), []
    session.watch(lambda *_: inner.append(session(x)), x)
    assert inner and all(np.allclose(y, expected(x)) for y in inner)
    with pytest.raises(tacit.Error, match="running"):
        session.watch(lambda *_: session.close(), x)


def test_exceptions_in_a_scans_body_come_out():
    g = tacit.Graph()
    x = g.input("x", "f32", (3,))

    def body(c, _):
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        tacit.scan(body, x, length=2)
    g.output("y", x + 1.0)
    assert tacit.compile(g)(np.zeros(3, np.float32)).tolist() == [1, 1, 1]


def test_closing_while_another_thread_runs():
    g = tacit.Graph()
    x = g.input("x", "f32", (512, 512))
    for _ in range(20):
        x = x @ np.eye(512, dtype=np.float32)
    g.output("y", x)
    for thing in (tacit.compile(g), tacit.runner(g)):
        started, stop, seen = threading.Event(), threading.Event(), []

        def work():
            a = np.ones((512, 512), np.float32)
            while not stop.is_set():
                started.set()
                seen.append(bool((thing(a) == 1).all()))

        thread = threading.Thread(target=work)
        thread.start()
        started.wait()
        refused = 0
        while not refused:
            try:
                thing.close()
                break  # between two runs: fine as well
            except tacit.Error as error:
                assert "another thread" in error.message
                refused += 1
        stop.set()
        thread.join()
        assert all(seen)


def test_the_gil_is_released_while_running():
    g = tacit.Graph()
    x = g.input("x", "f32", (1024, 1024))
    y = x
    for _ in range(12):
        y = y @ x
    g.output("y", y)
    session, a = tacit.compile(g), np.zeros((1024, 1024), np.float32)
    span = []

    def work():
        begin = time.monotonic()
        session(a)
        span.extend((begin, time.monotonic()))

    thread = threading.Thread(target=work)
    thread.start()
    ticks = []
    while thread.is_alive():
        ticks.append(time.monotonic())
        time.sleep(0.001)
    thread.join()
    begin, end = span
    inside = [t for t in ticks if begin + 0.1 * (end - begin) < t < begin + 0.9 * (end - begin)]
    assert len(inside) >= 3, f"{len(inside)} ticks in a run of {end - begin:.3f} s"


# --- processes ----------------------------------------------------------------------------------

MAKE = """
import atexit, gc, multiprocessing, numpy as np, os, sys, tacit, threading, time
def make(threads=2):
    g = tacit.Graph()
    x = g.input("x", "f32", ("n", 256))
    g.output("y", (x @ np.eye(256, dtype=np.float32)) + 1.0)
    return g.model()
x = np.ones((256, 256), np.float32)
s = tacit.compile(make(), dims={"n": 256}, exec="tasks", threads=2)
r = tacit.runner(make(), exec="tasks", threads=2)
def good(): return bool((s(x) == 2).all() and (r(x) == 2).all() and (r(x[:7]) == 2).all())
assert good()
"""


def run_child(code):
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", MAKE + code],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "fine" in done.stdout
    return done


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


@needs_fork
def test_fork_while_other_threads_run():
    run_child(
        "stop = []\n"
        "def work():\n"
        "    while not stop: assert good()\n"
        "threads = [threading.Thread(target=work) for _ in range(2)]\n"
        "for t in threads: t.start()\n"
        "for _ in range(10):\n"
        "    pid = os.fork()\n"
        "    if pid == 0:\n"
        "        fresh = tacit.compile(make(), dims={'n': 256})\n"
        "        ok = bool((s(x) == 2).all() and (fresh(x) == 2).all())\n"
        "        try: ok = ok and good()\n"
        "        except tacit.Error as e: ok = ok and e.status == 'ERR_STATE'\n"
        "        del globals()['s'], globals()['r']; gc.collect()\n"
        "        os._exit(0 if ok else 1)\n"
        "    assert os.waitpid(pid, 0)[1] == 0\n"
        "stop.append(1)\n"
        "for t in threads: t.join()\n"
        "assert good(); print('fine')"
    )


@needs_fork
def test_multiprocessing_by_fork():
    run_child(
        "def square(i): return good() and i * i\n"
        "with multiprocessing.get_context('fork').Pool(2) as pool:\n"
        "    assert pool.map(square, range(8)) == [i * i for i in range(8)]\n"
        "assert good(); print('fine')"
    )


@needs_fork
def test_fork_and_ordinary_exit_of_the_child():
    run_child(
        "sys.stdout.flush()\npid = os.fork()\n"
        "if pid == 0:\n    assert good(); sys.exit(0)\n"
        "assert os.waitpid(pid, 0)[1] == 0; print('fine')"
    )


def test_interpreter_exit_while_threads_run():
    run_child(
        "def work():\n    while True: good()\n"
        "for _ in range(3): threading.Thread(target=work, daemon=True).start()\n"
        "time.sleep(0.05); print('fine', flush=True)"
    )


def test_interpreter_exit_with_everything_alive():
    run_child(
        "keep = s(x), r(x), s.program, tacit.grad, tacit.Graph()\n"
        "class Late:\n"
        "    def __init__(self, call, x): self.call, self.x = call, x\n"
        "    def __del__(self): self.call(self.x)\n"
        "late = Late(s, x); ring = [late]; ring.append(ring)\n"
        "atexit.register(lambda: good() and print('fine', flush=True))"
    )


def test_interpreter_exit_from_a_callback():
    done = subprocess.run(
        [sys.executable, "-c", MAKE + "s.watch(lambda *_: sys.exit(7), x)"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 7, done.stderr


def test_threads_that_end_leave_nothing_behind():
    run_child(
        "def work(): assert good()\n"
        "for _ in range(50):\n"
        "    threads = [threading.Thread(target=work) for _ in range(4)]\n"
        "    for t in threads: t.start()\n"
        "    for t in threads: t.join()\n"
        "assert len(r.sessions) == 2; print('fine')"
    )
