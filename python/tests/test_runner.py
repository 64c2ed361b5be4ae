# SPDX-License-Identifier: Apache-2.0
"""Runners: sizes from the arrays, programs kept and dropped, buckets, threads; and the pool that
sessions take the arrays of large outputs from."""

import gc
import os
import sys
import threading

import numpy as np
import pytest

import tacit


def test_sizes_come_from_the_arrays(affine, rng):
    model, expected = affine
    runner = tacit.runner(model)
    assert runner.compiled == 0
    for batch in (2, 5, 2, 0, 5):
        x = rng.random((batch, 4), np.float32)
        for y in (runner(x), runner.run(x=x), runner({"x": x}), runner.results({"x": x}, None)[0]):
            assert y.shape == (batch, 3)
            np.testing.assert_allclose(y, expected(x), rtol=1e-6)
    assert runner.compiled == 3
    assert [s.outputs[0].shape for s in runner.sessions] == [(5, 3), (0, 3), (2, 3)]
    assert runner.inputs == model.inputs and runner.outputs == model.outputs


def test_the_least_recently_used_program_leaves(affine, rng):
    model, expected = affine
    runner = tacit.runner(model, capacity=2)
    for batch, compiled in ((1, 1), (2, 2), (1, 2), (3, 3), (1, 3), (2, 4)):
        x = rng.random((batch, 4), np.float32)
        np.testing.assert_allclose(runner(x), expected(x), rtol=1e-6)
        assert runner.compiled == compiled and len(runner.sessions) <= 2


def test_a_model_without_open_sizes_is_compiled_at_once(affine):
    assert tacit.runner(affine[0], dims={"batch": 3}).compiled == 1
    with pytest.raises(tacit.Error, match="no pass named"):
        tacit.runner(affine[0], dims={"batch": 3}, disabled_passes=["nothing"])


def test_buckets_round_up(affine, rng):
    model, expected = affine
    runner = tacit.runner(model, buckets={"batch": 4})
    for batch in (1, 2, 3, 4, 5):
        x, out = rng.random((batch, 4), np.float32), np.empty((batch, 3), np.float32)
        np.testing.assert_allclose(runner(x), expected(x), rtol=1e-6)
        assert runner(x, out=out) is out
        np.testing.assert_allclose(out, expected(x), rtol=1e-6)
    assert runner.compiled == 2
    with pytest.raises(tacit.Error, match="width"):
        tacit.runner(model, buckets={"width": 4})


def test_two_open_sizes():
    g = tacit.Graph()
    a, b = g.input("a", "f32", ("n", "k")), g.input("b", "f32", ("k", 2))
    g.output("y", a @ b)
    runner = tacit.runner(g)
    a, b = np.ones((3, 5), np.float32), np.ones((5, 2), np.float32)
    assert runner(a, b).tolist() == [[5, 5]] * 3
    with pytest.raises(tacit.Error, match="'k' is 5 elsewhere") as caught:
        runner(a, np.ones((4, 2), np.float32))
    assert caught.value.status == "ERR_SHAPE"
    with pytest.raises(tacit.Error, match="no input tells the size of 'n'"):
        runner(b=b)
    with pytest.raises(tacit.Error, match="rank"):
        runner(a[0], b)
    with pytest.raises(tacit.Error, match="no input named 'q'"):
        runner(a, b, q=b)
    assert runner(a, b).shape == (3, 2)


def test_sequences_have_no_one_size():
    onnx = pytest.importorskip("onnx")
    h = onnx.helper
    node = h.make_node("ConcatFromSequence", ["s"], ["y"], axis=0)
    s = h.make_tensor_sequence_value_info("s", onnx.TensorProto.FLOAT, ["n"])
    y = h.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["m"])
    graph = h.make_graph([node], "g", [s], [y])
    runner = tacit.runner(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)]))
    assert runner([np.float32([1]), np.float32([2, 3])]).tolist() == [1, 2, 3]


def test_closed_runners_raise(affine, rng):
    x = rng.random((2, 4), np.float32)
    with tacit.runner(affine[0]) as runner:
        runner(x)
    for use in (lambda: runner(x), lambda: runner.compiled, lambda: runner.model):
        with pytest.raises(tacit.Error, match="closed"):
            use()
    runner.close()
    assert runner.sessions == [] and "closed" in repr(runner)


@pytest.mark.parametrize("options", [{}, {"exec": "tasks", "threads": 2}, {"buckets": {"batch": 8}}])
def test_one_runner_from_many_threads(affine, options):
    model, expected = affine
    runner = tacit.runner(model, capacity=3, **options)
    wrong = []

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(40):
            x = rng.random((int(rng.integers(1, 30)), 4), np.float32)
            if not np.allclose(runner(x), expected(x), rtol=1e-5):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong and len(runner.sessions) <= 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("buckets", [None, {"batch": 4}])
def test_runners_work_after_a_fork(affine, rng, buckets):
    model, expected = affine
    runner = tacit.runner(model, exec="tasks", threads=2, buckets=buckets)
    known, fresh = rng.random((3, 4), np.float32), rng.random((6, 4), np.float32)
    runner(known)
    child = os.fork()
    if child == 0:
        good = all(np.allclose(runner(x), expected(x), rtol=1e-5) for x in (known, fresh))
        del runner
        os._exit(0 if good else 1)
    assert os.waitpid(child, 0)[1] == 0
    np.testing.assert_allclose(runner(fresh), expected(fresh), rtol=1e-5)


def test_profile_rows_of_every_size(affine, rng):
    runner = tacit.runner(affine[0])
    runner(rng.random((1, 4), np.float32))
    runner.profile()
    for batch in (1, 1, 2):
        runner(rng.random((batch, 4), np.float32))
    assert sorted({row["calls"] for row in runner.profile_rows()}) == [1, 2]


def test_references_are_balanced(affine, rng):
    model, _ = affine
    x, out, wrong = (rng.random(s, np.float32) for s in ((2, 4), (2, 3), (2, 5)))
    runner = tacit.runner(model)

    def use():
        runner(x), runner.results({"x": x}, (out,)), runner.results({"x": x}, (None,))
        runner.sessions, runner.compiled, runner.inputs
        for bad in (lambda: runner(wrong), lambda: runner(q=x), lambda: runner(x, out=1)):
            with pytest.raises(tacit.Error):
                bad()
        other = tacit.runner(model, buckets={"batch": 8})
        other(x), other(x, out=out)

    things = (x, out, wrong, runner, model, tacit.Runner, tacit.Session, tacit.Program, np.empty)
    use()
    gc.collect()
    before = [sys.getrefcount(t) for t in things]
    for _ in range(100):
        use()
    gc.collect()
    after = [sys.getrefcount(t) for t in things]
    assert max(abs(a - b) for a, b in zip(after, before)) < 10  # a leak would be a hundred


# --- the arrays of large outputs ----------------------------------------------------------------


@pytest.fixture
def large():
    """y = x + 1, of 256 KiB, in each of two outputs."""
    g = tacit.Graph()
    x = g.input("x", "f32", (256, 256))
    g.output("y", x + 1.0)
    g.output("z", g.Cast(x * 2.0, to=tacit._graph.ONNX_CODES["i64"]))
    return tacit.compile(g)


def test_large_outputs_are_ordinary_arrays(large):
    x = np.full((256, 256), 3, np.float32)
    y, z = large(x)
    assert type(y) is np.ndarray and y.dtype == np.float32 and z.dtype == np.int64
    assert y.shape == z.shape == (256, 256) and y.strides == (1024, 4) and y.flags.writeable
    assert (y == 4).all() and (z == 6).all()
    y[0] = 7
    assert np.from_dlpack(y)[0, 0] == 7


def test_large_outputs_never_share_memory(large):
    kept = [large(np.full((256, 256), i, np.float32)) for i in range(6)]
    views = [(y[3:5, ::2], z.reshape(-1)) for y, z in kept]
    del kept
    gc.collect()
    for _ in range(4):
        large(np.full((256, 256), -1, np.float32))
    for i, (y, z) in enumerate(views):
        assert (y == i + 1).all() and (z == 2 * i).all()


def test_memory_of_large_outputs_is_used_again(large):
    x = np.zeros((256, 256), np.float32)
    seen = set()
    for _ in range(20):
        y, z = large(x)
        seen.add(y.ctypes.data)
        del y, z
    assert len(seen) == 1
    for _ in range(20):  # as in a loop, where the last result dies after the next one is made
        y, z = large(x)
        seen.add(y.ctypes.data)
    assert len(seen) <= 2


def test_large_outputs_outlive_their_session(large):
    y, z = large(np.full((256, 256), 3, np.float32))
    large.close()
    del large, z
    gc.collect()
    assert (y == 4).all()


def test_large_outputs_from_many_threads(large):
    wrong = []

    def work(seed):
        for i in range(50):
            y, z = large(np.full((256, 256), seed * 100 + i, np.float32))
            if not ((y == seed * 100 + i + 1).all() and (z == 2 * (seed * 100 + i)).all()):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
