# SPDX-License-Identifier: Apache-2.0
"""Training steps against the same steps in NumPy; quantised models; weights."""

import numpy as np
import pytest

import tacit


def regression(as_weights=None):
    g = tacit.Graph("regression")
    x, t = g.input("x", "f32", (16, 3)), g.input("t", "f32", (16, 1))
    if as_weights is None:
        w, b = g.input("w", "f32", (3, 1)), g.input("b", "f32", (1,))
    else:
        w, b = g.weight("w", as_weights[0]), g.weight("b", as_weights[1])
    error = x @ w + b - t
    g.output("loss", (error * error).mean())
    return g.model()


def gradients(p, x, t):
    error = x @ p["w"] + p["b"] - t
    return (error**2).mean(), {"w": 2 * x.T @ error / len(x), "b": 2 * error.mean(0)}


@pytest.fixture
def data(rng):
    x = rng.standard_normal((16, 3)).astype(np.float32)
    t = (x @ np.float32([[1], [-2], [0.5]]) + np.float32(0.25)).astype(np.float32)
    initial = {"w": rng.random((3, 1), np.float32), "b": np.zeros(1, np.float32)}
    return x, t, initial


def oracle(kind, p, x, t, steps, rate):
    p = {k: v.astype(np.float64) for k, v in p.items()}
    m, v = {k: 0 * a for k, a in p.items()}, {k: 0 * a for k, a in p.items()}
    losses = []
    for step in range(1, steps + 1):
        loss, grads = gradients(p, x, t)
        losses.append(loss)
        for k, g in grads.items():
            if kind == "sgd":
                m[k] = 0.9 * m[k] + g
                p[k] = p[k] - rate * m[k]
                continue
            m[k] = 0.9 * m[k] + 0.1 * g
            v[k] = 0.999 * v[k] + 0.001 * g * g
            if kind == "adamw":
                p[k] = p[k] * (1 - rate * 0.1)
            p[k] = p[k] - rate * m[k] / (1 - 0.9**step) / (np.sqrt(v[k] / (1 - 0.999**step)) + 1e-8)
    return losses, p


OPTIONS = {"sgd": {"momentum": 0.9}, "adam": {}, "adamw": {"weight_decay": 0.1}}


@pytest.mark.parametrize("kind", OPTIONS)
@pytest.mark.parametrize("executor", ["serial", "tasks"])
def test_steps_are_those_of_the_formulas(data, kind, executor):
    x, t, initial = data
    step = tacit.train_step(regression(), initial, kind, 0.05, exec=executor, **OPTIONS[kind])
    losses = [step(x=x, t=t) for _ in range(20)]
    expected, p = oracle(kind, initial, x, t, 20, 0.05)
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    for name, value in step.parameters.items():
        np.testing.assert_allclose(value, p[name], rtol=1e-4, atol=1e-5)
    assert step.steps == 20 and "20 steps" in repr(step)
    assert initial["b"][0] == 0  # the caller's arrays stay as they are


def test_weights_are_parameters_by_name(data):
    x, t, initial = data
    model = regression((initial["w"], initial["b"]))
    assert set(model.weights) >= {"w", "b"}
    np.testing.assert_array_equal(model.weight("w"), initial["w"])
    g = tacit.Graph()
    g.output("y", g.Identity(g.constant(np.float32([1, 2]), name="c")))
    assert g.model().weight("c").tolist() == [1, 2]
    with pytest.raises(tacit.Error, match="no weight named 'q'"):
        model.weight("q")
    named = tacit.train_step(model, ["w", "b"], "adam", 0.05)
    given = tacit.train_step(regression(), initial, "adam", 0.05)
    for _ in range(3):
        assert named(x=x, t=t) == given(x=x, t=t)


def test_a_checkpoint_goes_on_with_the_same_bits(data, tmp_path):
    x, t, initial = data
    first = tacit.train_step(regression(), initial, "adamw", 0.05, weight_decay=0.01)
    for _ in range(5):
        first(x=x, t=t)
    first.learning_rate = 0.01
    first.save(tmp_path / "c.safetensors")
    zeros = {k: np.zeros_like(v) for k, v in initial.items()}
    second = tacit.train_step(regression(), zeros, "adamw", 0.05, weight_decay=0.01)
    second.load(tmp_path / "c.safetensors")
    assert second.steps == 5 and second.learning_rate == 0.01
    for _ in range(5):
        assert first(x=x, t=t) == second(x=x, t=t)
    for name in initial:
        np.testing.assert_array_equal(first.parameters[name], second.parameters[name])
    assert sorted(first.state) == ["b.mean", "b.square", "w.mean", "w.square"]


def test_checkpoints_that_are_wrong_change_nothing(data, tmp_path):
    x, t, initial = data
    step = tacit.train_step(regression(), initial, "adam", 0.05)
    before = {k: v.copy() for k, v in step.parameters.items()}
    (tmp_path / "short").write_bytes(b"\x01")
    (tmp_path / "long").write_bytes((2**60).to_bytes(8, "little") + b"{}")
    (tmp_path / "json").write_bytes((2).to_bytes(8, "little") + b"[]")
    for name in ("short", "long", "json"):
        with pytest.raises(tacit.Error) as caught:
            step.load(tmp_path / name)
        assert caught.value.status == "ERR_FORMAT"
    tacit.train_step(regression(), initial, "sgd").save(tmp_path / "sgd")
    with pytest.raises(tacit.Error, match="mean"):
        step.load(tmp_path / "sgd")
    with pytest.raises(OSError):
        step.load(tmp_path / "none")
    for k, v in step.parameters.items():
        np.testing.assert_array_equal(v, before[k])


def test_what_a_step_refuses(data):
    x, t, initial = data
    with pytest.raises(ValueError, match="optimizer must be"):
        tacit.train_step(regression(), initial, "lion")
    with pytest.raises(tacit.Error, match="q"):
        tacit.train_step(regression(), {"q": initial["w"]})
    with pytest.raises(tacit.Error) as caught:
        tacit.train_step(regression(), {**initial, "w": np.zeros((4, 1), np.float32)})
    assert caught.value.status == "ERR_SHAPE"
    step = tacit.train_step(regression(), initial)
    with pytest.raises(TypeError, match="belongs to the step"):
        step(x=x, t=t, w=initial["w"])
    with pytest.raises(tacit.Error, match="missing"):
        step(x=x)
    with pytest.raises(tacit.Error, match="no input named"):
        step(x=x, t=t, z=x)
    assert step.steps == 0
    assert step(x=x, t=t) == pytest.approx(gradients(initial, x, t)[0], rel=1e-5)


def deep(layers=6, width=32):
    g = tacit.Graph()
    h = g.input("x", "f32", (256, width))
    for i in range(layers):
        h = g.Identity(g.Tanh(h @ g.input(f"w{i}", "f32", (width, width))))
        h.dtype = "f32"
    g.output("loss", (h * h).mean())
    return g.model()


def test_less_memory_gives_the_same_steps(rng):
    params = {f"w{i}": rng.standard_normal((32, 32)).astype(np.float32) * 0.2 for i in range(6)}
    x = rng.standard_normal((256, 32)).astype(np.float32)
    full = tacit.train_step(deep(), params, "sgd", 0.1)
    arena = full.session.program.memory()["arena_bytes"]
    saving = tacit.train_step(deep(), params, "sgd", 0.1, memory_budget=arena * 3 // 4)
    assert saving.session.program.memory()["arena_bytes"] <= arena * 3 // 4
    for _ in range(3):
        assert full(x=x) == pytest.approx(saving(x=x), rel=1e-5)
    with pytest.raises(tacit.Error) as caught:
        tacit.train_step(deep(), params, "sgd", memory_budget=1)
    assert caught.value.status == "ERR_LIMIT"
    with pytest.raises(tacit.Error, match="nothing"):
        tacit.grad(deep(), "w0", checkpoints=["nothing"])


@pytest.mark.parametrize("kind,error", [("int8", 0.01), ("int4", 0.1), ("bf16", 0.01), ("f16", 0.001)])
def test_quantize(rng, kind, error):
    w = rng.standard_normal((64, 32)).astype(np.float32)
    g = tacit.Graph()
    g.output("y", g.input("x", "f32", (4, 64)) @ g.weight("w", w))
    made = tacit.quantize(g, kind)
    assert made.layers == 1 and made.bytes_after < made.bytes_before and made.weight_error < error
    x = rng.standard_normal((4, 64)).astype(np.float32)
    y = tacit.compile(made.model)(x)
    assert 0 < np.linalg.norm(y - x @ w) / np.linalg.norm(x @ w) < 2 * error
    with pytest.raises(ValueError, match="weights must be"):
        tacit.quantize(made.model, "int3")


def test_quantize_with_ranges(rng):
    w = rng.standard_normal((64, 32)).astype(np.float32)
    g = tacit.Graph()
    g.output("y", g.input("x", "f32", (4, 64)) @ g.weight("w", w))
    x = rng.random((4, 64), np.float32)
    made = tacit.quantize(g, ranges={"x": (0, 1)})
    y = tacit.compile(made.model)(x)
    assert np.linalg.norm(y - x @ w) / np.linalg.norm(x @ w) < 0.02
    with pytest.raises(tacit.Error, match="range"):
        tacit.quantize(g, ranges={"x": (1, 0)})
