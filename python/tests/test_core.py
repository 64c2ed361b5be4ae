# SPDX-License-Identifier: Apache-2.0
"""Loading, compiling, running; arrays in and out; what goes wrong."""

import os
import pathlib
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import tacit


def test_run_by_position_name_and_mapping(affine, rng):
    model, expected = affine
    session = tacit.compile(model, dims={"batch": 2})
    x = rng.random((2, 4), np.float32)
    for y in (session(x), session.run(x), session.run(x=x), session.run({"x": x})):
        np.testing.assert_allclose(y, expected(x), rtol=1e-6)


@pytest.mark.parametrize("executor", ["serial", "tasks", "reference"])
def test_executors_agree(affine, rng, executor):
    model, expected = affine
    x = rng.random((64, 4), np.float32)
    session = tacit.compile(model, dims={"batch": 64}, exec=executor, threads=2)
    np.testing.assert_allclose(session(x), expected(x), rtol=1e-6)


def test_results_are_fresh_arrays(affine, rng):
    model, expected = affine
    session = tacit.compile(model, dims={"batch": 2})
    a, b = rng.random((2, 2, 4), np.float32)
    ya, yb = session(a), session(b)
    np.testing.assert_allclose(ya, expected(a), rtol=1e-6)
    np.testing.assert_allclose(yb, expected(b), rtol=1e-6)


def test_packed_weights_are_kept(affine, rng, tmp_path):
    model, expected = affine
    packed = tmp_path / "weights"
    x = rng.random((2, 4), np.float32)
    for _ in range(2):  # packed, then mapped
        session = tacit.compile(model, dims={"batch": 2}, packed=str(packed))
        np.testing.assert_allclose(session(x), expected(x), rtol=1e-6)
    assert packed.exists()


@pytest.mark.parametrize("executor", ["serial", "tasks"])
def test_starting_early_gives_the_same_bits(rng, executor):
    g = tacit.Graph()
    y = g.input("x", "f32", ("batch", 512))
    for i in range(4):  # 4 MB of weights: threads pack them
        y = y @ g.weight(f"w{i}", rng.standard_normal((512, 512), np.float32) / 16)
    g.output("y", y)
    model, x = g.model(), rng.standard_normal((3, 512), np.float32)
    expected = tacit.compile(model, dims={"batch": 3}, exec=executor)(x)
    tacit.compile(model, dims={"batch": 3}, exec=executor, start_early=True)  # nobody runs it
    session = tacit.compile(model, dims={"batch": 3}, exec=executor, start_early=True)
    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(session, [x] * 6))
    results.append(tacit.runner(model, exec=executor, start_early=True)(x))
    for result in results:
        np.testing.assert_array_equal(result, expected)


def packing_threads():
    names = []
    for task in pathlib.Path("/proc/self/task").iterdir():
        try:
            names.append((task / "comm").read_text().strip())
        except OSError:  # it has just ended
            pass
    return names.count("tacit-pack")


def gone():
    """A thread that was joined may be listed a moment longer."""
    end = time.monotonic() + 10
    while packing_threads() and time.monotonic() < end:
        time.sleep(0.001)
    return packing_threads() == 0


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor packs by itself")
def test_starting_early_returns_while_weights_are_packed(rng):
    g = tacit.Graph()
    y = g.input("x", "f32", ("batch", 2048))
    for i in range(4):  # 64 MB of weights
        y = y @ g.weight(f"w{i}", rng.standard_normal((2048, 2048), np.float32))
    g.output("y", y)
    model, x = g.model(), np.ones((1, 2048), np.float32)
    session = tacit.compile(model, dims={"batch": 1})
    assert gone()
    expected, seen = session(x), 0
    for _ in range(20):  # on a busy machine the threads may be done before this one looks
        session = tacit.compile(model, dims={"batch": 1}, start_early=True)
        seen = packing_threads()
        np.testing.assert_array_equal(session(x), expected)
        assert gone()
        if seen:
            break
    assert seen


def test_rows_do_not_depend_on_the_batch(rng):
    g = tacit.Graph()
    y = g.input("x", "f32", ("batch", 512)) @ g.weight("w", rng.standard_normal((512, 256), np.float32))
    g.output("y", y)
    model, x = g.model(), rng.standard_normal((33, 512), np.float32)
    runner = tacit.runner(model, batch_invariant=True)
    whole = tacit.compile(model, dims={"batch": 33}, batch_invariant=True)(x)
    for n in (1, 2, 3, 7, 14, 32):
        np.testing.assert_array_equal(runner(x[:n]), whole[:n])
    one, few = tacit.runner(model)(x[:1]), tacit.runner(model)(x[:14])
    assert not np.array_equal(one, few[:1])  # otherwise the option would be for nothing


def test_last_position_only(rng):
    g = tacit.Graph()
    w = rng.random((4, 5), np.float32)
    g.output("y", g.input("x", "f32", (2, 3, 4)) @ g.weight("w", w))
    x = rng.random((2, 3, 4), np.float32)
    y = tacit.compile(g, last=["y"])(x)
    assert y.shape == (2, 1, 5)
    np.testing.assert_allclose(y, (x @ w)[:, -1:], rtol=1e-5)
    with pytest.raises(tacit.Error, match="nothing"):
        tacit.compile(g, last=["nothing"])


def test_out_is_written_in_place(affine, rng):
    model, expected = affine
    session = tacit.compile(model, dims={"batch": 2})
    x, out = rng.random((2, 4), np.float32), np.zeros((2, 3), np.float32)
    assert session(x, out=out) is out
    np.testing.assert_allclose(out, expected(x), rtol=1e-6)


def test_several_outputs_come_as_a_tuple(rng):
    g = tacit.Graph()
    x = g.input("x", "f32", (3,))
    g.output("double", x * 2.0)
    g.output("negative", -x)
    x = rng.random(3, np.float32)
    double, negative = tacit.compile(g)(x)
    np.testing.assert_array_equal(double, 2 * x)
    np.testing.assert_array_equal(negative, -x)


def test_save_and_load(affine, rng, tmp_path):
    model, expected = affine
    x = rng.random((2, 4), np.float32)
    for suffix in ("onnx", "tacit", "safetensors"):
        path = tmp_path / f"m.{suffix}"
        model.save(path)
        session = tacit.compile(tacit.load(path), dims={"batch": 2})
        np.testing.assert_allclose(session(x), expected(x), rtol=1e-6)
    data = (tmp_path / "m.onnx").read_bytes()
    session = tacit.compile(tacit.load(data), dims={"batch": 2})
    del data
    np.testing.assert_allclose(session(x), expected(x), rtol=1e-6)


def test_ports(affine):
    model, _ = affine
    assert model.inputs == [("x", "f32", ("batch", 4), "tensor")]
    assert model.symbols == ["batch"]
    session = tacit.compile(model, dims={"batch": 5})
    assert session.outputs == [("y", "f32", (5, 3), "tensor")]
    assert session.program.memory()["has_dynamic_tail"] is False


DTYPES = ["f64", "f32", "f16", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bool"]


@pytest.mark.parametrize("text", DTYPES + ["bf16", "c64", "c128"])
def test_dtypes_pass_through(text):
    dtype = tacit._arrays.dtypes[text]
    if text == "bf16":
        pytest.importorskip("ml_dtypes")
    g = tacit.Graph()
    g.output("y", g.Identity(g.input("x", text, (2, 3))))
    x = np.array([[0, 1, 1], [1, 0, 1]]).astype(dtype)
    y = tacit.compile(g)(x)
    assert y.dtype == dtype and y.shape == (2, 3)
    np.testing.assert_array_equal(y, x)


@pytest.mark.parametrize("text,low,high", [("i4", -8, 8), ("u4", 0, 16), ("i2", -2, 2), ("u2", 0, 4)])
def test_packed_dtypes(text, low, high):
    pytest.importorskip("ml_dtypes")
    g = tacit.Graph()
    g.output("y", g.input("x", text, (5,)).astype("i32"))
    g.output("same", g.Identity(g.node("Cast", g.input("z", "i32", (5,)), to=tacit._graph.ONNX_CODES[text])))
    x = np.array([low, high - 1, 0, 1, low])
    y, same = tacit.compile(g)(x.astype(tacit._arrays.dtypes[text]), x.astype(np.int32))
    np.testing.assert_array_equal(y, x)
    np.testing.assert_array_equal(same.astype(np.int32), x)


def test_strings():
    g = tacit.Graph()
    g.output("y", g.StringConcat(g.input("a", "string", (2,)), g.input("b", "string", (2,))))
    session = tacit.compile(g)
    y = session(np.array(["grün", "b"], object), np.array(["x", ""]))
    assert y.tolist() == ["grünx", "b"]


def test_data_dependent_shapes():
    g = tacit.Graph()
    g.output("y", g.NonZero(g.input("x", "f32", (5,))))
    session = tacit.compile(g)
    assert session(np.array([0, 1, 0, 2, 3], np.float32)).tolist() == [[1, 3, 4]]
    assert session(np.zeros(5, np.float32)).shape == (1, 0)


def test_numbers_lists_and_buffers_are_inputs():
    g = tacit.Graph()
    g.output("y", g.input("x", "f32", (2,)) + 1.0)
    session = tacit.compile(g)
    assert session([1, 2]).tolist() == [2, 3]
    assert session(memoryview(np.array([1, 2], np.float32))).tolist() == [2, 3]


class OnlyDlpack:
    """A tensor of some other library."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_dlpack_in_and_out(affine, rng):
    model, expected = affine
    x = rng.random((2, 4), np.float32)
    y = tacit.compile(model, dims={"batch": 2})(OnlyDlpack(x))
    np.testing.assert_allclose(np.from_dlpack(y), expected(x), rtol=1e-6)


def address(thing):
    return np.from_dlpack(thing).ctypes.data if hasattr(thing, "__dlpack__") else None


def test_dlpack_and_buffers_are_not_copied(affine, rng):
    """In: the memory lent to the core is the tensor's. Out: the consumer's is the result's."""
    model, expected = affine
    x = rng.random((2, 4), np.float32)
    for thing in (OnlyDlpack(x), memoryview(x), x):
        lent = tacit._arrays.convert(thing, "f32", "x", True)
        assert lent.ctypes.data == x.ctypes.data
    session = tacit.compile(model, dims={"batch": 2}, strict=True)
    y = session(OnlyDlpack(x))
    assert address(OnlyDlpack(y)) == y.ctypes.data
    for make in (OnlyDlpack, memoryview):
        out = np.zeros((2, 3), np.float32)
        target = make(out)
        assert session(x, out=target) is target
        np.testing.assert_allclose(out, expected(x), rtol=1e-6)
    with pytest.raises(tacit.Error, match="not dense"):
        session(x, out=OnlyDlpack(np.zeros((3, 2), np.float32).T))


def test_strided_arrays_are_copied_with_one_warning(affine, rng, monkeypatch):
    model, expected = affine
    monkeypatch.setattr(tacit._arrays, "_warned", False)
    x = rng.random((4, 2), np.float32).T
    session = tacit.compile(model, dims={"batch": 2})
    with pytest.warns(RuntimeWarning, match="input 'x' is not dense"):
        np.testing.assert_allclose(session(x), expected(x), rtol=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session(x)
        swapped = session(np.ascontiguousarray(x).astype(">f4"))
    np.testing.assert_allclose(swapped, expected(x), rtol=1e-6)
    with pytest.raises(tacit.Error, match="strict"):
        tacit.compile(model, dims={"batch": 2}, strict=True)(x)


@pytest.mark.parametrize(
    "call,status,message",
    [
        (lambda s, x: s(x[:1]), "ERR_SHAPE", r"\[2,4\], but \[1,4\]"),
        (lambda s, x: s(x.astype(np.float64)), "ERR_TYPE", "f32, but f64"),
        (lambda s, x: s(z=x), "ERR_ARGUMENT", "no input named 'z'; the model has 'x'"),
        (lambda s, x: s(), "ERR_ARGUMENT", "'x' is missing"),
        (lambda s, x: s(x, x=x), "ERR_ARGUMENT", "given twice"),
        (lambda s, x: s(x, x), "ERR_ARGUMENT", "2 inputs"),
        (lambda s, x: s(x, out=np.zeros((2, 2), np.float32)), "ERR_SHAPE", r"\[2,3\]"),
        (lambda s, x: s(x, out=np.zeros((2, 3))), "ERR_TYPE", "f32"),
        (lambda s, x: s(x, out=(x, x)), "ERR_ARGUMENT", "out must be 1"),
        (lambda s, x: s(x, out=np.zeros((3, 2), np.float32).T), "ERR_ARGUMENT", "not dense"),
        (lambda s, x: s(x, out=np.broadcast_to(np.float32(0), ())), "ERR_ARGUMENT", "read-only"),
    ],
)
def test_bad_calls(affine, rng, call, status, message):
    model, expected = affine
    session = tacit.compile(model, dims={"batch": 2})
    x = rng.random((2, 4), np.float32)
    with pytest.raises(tacit.Error, match=message) as caught:
        call(session, x)
    assert caught.value.status == status
    np.testing.assert_allclose(session(x), expected(x), rtol=1e-6)  # still of use


def test_bad_objects(affine):
    session = tacit.compile(affine[0], dims={"batch": 2})
    for thing in (None, object(), "text", {1: 2}):
        with pytest.raises((tacit.Error, TypeError, ValueError)):
            session(thing)


def test_read_only_input_is_fine(affine, rng):
    model, expected = affine
    x = rng.random((2, 4), np.float32)
    x.flags.writeable = False
    np.testing.assert_allclose(tacit.compile(model, dims={"batch": 2})(x), expected(x), rtol=1e-6)


def test_bad_files_and_options(affine, tmp_path):
    with pytest.raises(tacit.Error) as caught:
        tacit.load(tmp_path / "none.onnx")
    assert caught.value.status == "ERR_IO"
    (tmp_path / "bad.onnx").write_bytes(b"\x08\xff\xff\xff")
    with pytest.raises(tacit.Error):
        tacit.load(tmp_path / "bad.onnx")
    with pytest.raises(tacit.Error):
        tacit.load(b"")
    with pytest.raises(ValueError, match="exec must be"):
        tacit.compile(affine[0], exec="fast")
    with pytest.raises(tacit.Error, match="batch"):
        tacit.compile(affine[0])
    with pytest.raises(TypeError):
        tacit.compile(affine[0], dims={"batch": "two"})
    with pytest.raises(tacit.Error, match="no pass named"):
        tacit.compile(affine[0], dims={"batch": 1}, disabled_passes=["nothing"])
    with pytest.raises(tacit.Error, match="not made by"):
        tacit.Model().text()


def test_closed_sessions_raise(affine, rng):
    with tacit.compile(affine[0], dims={"batch": 2}) as session:
        session(rng.random((2, 4), np.float32))
    for use in (lambda: session(None), lambda: session.program, session.profile_rows):
        if use == session.profile_rows:
            assert use() == []
            continue
        with pytest.raises(tacit.Error, match="closed"):
            use()
    session.close()


@pytest.mark.parametrize("executor", ["serial", "tasks"])
def test_one_session_from_many_threads(affine, executor):
    model, expected = affine
    session = tacit.compile(model, dims={"batch": 256}, exec=executor, threads=2)
    wrong = []

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(50):
            x = rng.random((256, 4), np.float32)
            if not np.allclose(session(x), expected(x), rtol=1e-5):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_watch_sees_every_value_and_its_exceptions_come_out(affine, rng):
    model, expected = affine
    session = tacit.compile(model, dims={"batch": 2}, exec="reference")
    x, seen = rng.random((2, 4), np.float32), {}
    session.watch(lambda node, op, value, array: seen.__setitem__(op, array), x)
    assert set(seen) == {"MatMul", "Add", "Mul"}
    np.testing.assert_allclose(seen["Mul"], expected(x), rtol=1e-6)

    def bad(*_):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        session.watch(bad, x)
    np.testing.assert_allclose(session(x), expected(x), rtol=1e-6)
    with pytest.raises(TypeError):
        session.watch(None, x)


def test_profile_and_views(affine, rng):
    session = tacit.compile(affine[0], dims={"batch": 2})
    session.profile()
    for _ in range(3):
        session(rng.random((2, 4), np.float32))
    rows = session.profile_rows()
    assert rows and all(r["calls"] == 3 for r in rows)
    for kind in ("graph", "passes", "plan", "program", "explain"):
        assert session.program.view(kind)
    assert "<html" in session.program.view(format="html").lower()
    assert "iframe" in session._repr_html_() and "share" in session._repr_html_()
    assert "MatMul" in str(tacit.show(affine[0])) and "<pre>" in affine[0]._repr_html_()
    with pytest.raises(tacit.Error):
        session.program.view("explain", node="nothing")


@pytest.mark.parametrize("kind", ["graph", "passes", "plan", "program"])
def test_views_in_a_notebook(affine, rng, kind):
    """show() is text in a terminal and a page in a notebook: graph, plan, profile."""
    from html.parser import HTMLParser

    class Balanced(HTMLParser):
        def __init__(self):
            super().__init__()
            self.open, self.words, self.void = [], [], {"meta", "br", "hr", "img", "input", "link"}

        def handle_starttag(self, tag, attrs):
            self.open += [] if tag in self.void else [tag]

        def handle_endtag(self, tag):
            assert self.open.pop() == tag

        def handle_data(self, data):
            self.words.append(data)

    session = tacit.compile(affine[0], dims={"batch": 2})
    session.profile()
    session(rng.random((2, 4), np.float32))
    view = session.show(kind)
    page = Balanced()
    page.feed(view.html)
    assert not page.open and "MatMul" in "".join(page.words)
    outer = Balanced()
    outer.feed(view._repr_html_())
    assert not outer.open and "share" in "".join(outer.words)  # the profile's table
    assert "MatMul" in str(view) and "share" in str(view)
    for thing in (affine[0], session.program, session, tacit.show(session, kind)):
        assert thing._repr_html_().startswith("<")


def run_child(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


MAKE = """
import numpy as np, os, tacit, threading
g = tacit.Graph()
g.output("y", (g.input("x", "f32", (64, 64)) @ np.eye(64, dtype=np.float32)) + 1.0)
s = tacit.compile(g, exec="tasks", threads=2)
x = np.ones((64, 64), np.float32)
assert (s(x) == 2).all()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_sessions_work_after_a_fork():
    code = MAKE + (
        "pid = os.fork()\nif pid == 0:\n    ok = (s(x) == 2).all()\n    del s\n    os._exit(not ok)\n"
        "assert os.waitpid(pid, 0)[1] == 0\nassert (s(x) == 2).all()\nprint('fine')"
    )
    assert "fine" in run_child(code)


def test_interpreter_exit_while_running():
    code = MAKE + (
        "def work():\n    while True:\n        s(x)\n"
        "threading.Thread(target=work, daemon=True).start()\nprint('fine')"
    )
    assert "fine" in run_child(code)


def test_references_are_balanced(affine, rng):
    model, _ = affine
    session = tacit.compile(model, dims={"batch": 2})
    x, out = rng.random((2, 4), np.float32), np.empty((2, 3), np.float32)
    strided, wrong = rng.random((4, 2), np.float32).T, rng.random((3, 4), np.float32)
    things = (x, out, strided, wrong, session, model, session.program, np.float32, type(session))
    cached = (np.dtype(np.float32), np.empty, tacit.Error)

    def use():
        session(x), session(x=x), session({"x": x}), session(x, out=out), session(strided)
        session.watch(lambda *_: None, x)
        model.text(), model.inputs, session.outputs, session.profile_rows()
        for bad in (lambda: session(wrong), lambda: session(q=x), lambda: session(x, out=1)):
            with pytest.raises(tacit.Error):
                bad()

    use()
    before = [sys.getrefcount(t) for t in things + cached]
    for _ in range(200):
        use()
    after = [sys.getrefcount(t) for t in things + cached]
    assert max(abs(a - b) for a, b in zip(after, before)) < 20  # a leak would be hundreds


def test_references_are_balanced_in_transforms(rng):
    import gc

    w = rng.random((32, 16), np.float32)
    start, end = rng.random((4, 16), np.float32), (0.0, 1.0)

    def use():
        g = tacit.Graph()
        x, v = g.input("x", "f32", (4, 32)), g.weight("w", w)
        last, ys = tacit.scan(lambda c, _: (c * 0.5 + x @ v, c), g.constant(start), length=3)
        g.output("loss", (last * last).mean() + ys.sum())
        model = g.model()
        model.weight("w"), model.weights
        step = tacit.train_step(model, ["w"], "adam")
        step(x=w[:4].repeat(2, 1))
        tacit.grad(model, "w", with_loss=True), tacit.jvp(model, "x"), tacit.quantize(model, "int8")
        tacit.quantize(model, ranges={"x": end})
        for bad in (
            lambda: tacit.grad(model, "q"),
            lambda: tacit.grad(model, "w", checkpoints=["q"]),
            lambda: tacit.train_step(model, ["q"]),
            lambda: tacit.quantize(model, block=7),
            lambda: tacit.scan(lambda c, _: (c,), x, length=2),
        ):
            with pytest.raises((tacit.Error, TypeError)):
                bad()

    things = (w, start, end, np.float32, tacit.Model, tacit.Session, tacit.Graph, tacit.Error)
    use()
    gc.collect()
    before = [sys.getrefcount(t) for t in things]
    for _ in range(30):
        use()
    gc.collect()
    after = [sys.getrefcount(t) for t in things]
    assert max(abs(a - b) for a, b in zip(after, before)) < 10  # a leak would be thirty


def test_importing_tacit_does_not_import_numpy(tmp_path):
    code = (
        "import sys, tacit\nassert 'numpy' not in sys.modules\n"
        "model = tacit.load(b'tacit 1\\ngraph \"m\" {\\n  in %x : f32[2]\\n  %y = Neg(%x) @n\\n  out %y\\n}\\n')\n"
        "session = tacit.compile(model)\nimport numpy\n"
        "assert session(numpy.float32([1, 2])).tolist() == [-1, -2]\nprint('fine')"
    )
    assert "fine" in run_child(code)


def test_objects_are_freed(affine):
    import gc

    model, _ = affine
    before = sys.getrefcount(model)
    for _ in range(50):
        session = tacit.compile(model, dims={"batch": 2})
        tacit.vmap(model, "x", 3, dims={"batch": 2})
        del session
    gc.collect()
    assert sys.getrefcount(model) == before


def test_weights_in_place_stay_alive(rng):
    g = tacit.Graph()
    w = rng.random((4, 4), np.float32)
    expected = w.copy()
    g.output("y", g.input("x", "f32", (4, 4)) @ g.weight("w", w))
    del w
    session = tacit.compile(g)
    del g
    np.testing.assert_allclose(session(np.eye(4, dtype=np.float32)), expected, rtol=1e-6)
