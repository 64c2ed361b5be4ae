# SPDX-License-Identifier: Apache-2.0
"""The graph builder against NumPy, and the transforms against formulas."""

import numpy as np
import pytest

import tacit


def evaluate(build, *arrays):
    g = tacit.Graph()
    inputs = [g.input(f"x{i}", a.dtype, a.shape) for i, a in enumerate(arrays)]
    g.output("y", build(*inputs))
    return tacit.compile(g)(*arrays)


OPERATORS = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "pow": lambda a, b: a**b,
    "matmul": lambda a, b: a @ b.transpose(1, 0),
    "neg": lambda a, b: -a,
    "abs": lambda a, b: abs(a - b),
    "number": lambda a, b: 2 * a - 1 + b / 2,
    "reflected": lambda a, b: 1 - a,
    "reflected_div": lambda a, b: 1 / a,
    "reflected_pow": lambda a, b: 2**a,
    "less": lambda a, b: a < b,
    "less_equal": lambda a, b: a <= b,
    "greater": lambda a, b: a > b,
    "greater_equal": lambda a, b: a >= b,
    "logic": lambda a, b: (a < b) & ~(a > 0.5) | (b > 0.9),
    "sum": lambda a, b: a.sum(1),
    "index": lambda a, b: a[1, 1:3],
    "index_last": lambda a, b: a[-1],
    "stride": lambda a, b: a[:, ::2],
    "backwards": lambda a, b: a[::-1],
    "reshape": lambda a, b: a.reshape(2, 6),
    "cast": lambda a, b: (a * 10.0).astype("int32"),
    "array_left": lambda a, b: np.float32(3) * a,
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_match_numpy(name, rng):
    a, b = rng.random((3, 4), np.float32) + 0.1, rng.random((3, 4), np.float32) + 0.1
    f = OPERATORS[name]
    expected = f(a, b)
    y = evaluate(f, a, b)
    assert y.dtype == expected.dtype
    np.testing.assert_allclose(y, expected, rtol=1e-5)


def test_every_operator_is_a_method(rng):
    a = rng.random((2, 6), np.float32)
    y = evaluate(lambda x: x.graph.Softmax(x, axis=-1), a)
    e = np.exp(a - a.max(1, keepdims=True))
    np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), rtol=1e-5)
    g = tacit.Graph()
    parts = g.Split(g.input("x", "f32", (2, 6)), np.array([2, 4]), outputs=2, axis=1)
    for i, p in enumerate(parts):
        g.output(f"y{i}", p)
    left, right = tacit.compile(g)(a)
    np.testing.assert_array_equal(np.hstack([left, right]), a)


def test_what_a_graph_refuses():
    g = tacit.Graph()
    x = g.input("x", "f32", (2,))
    with pytest.raises(TypeError, match="truth"):
        bool(x)
    with pytest.raises(TypeError):
        x[None]
    with pytest.raises(ValueError, match="another graph"):
        tacit.Graph().output("y", x)
    with pytest.raises(TypeError):
        g.input("z", "f33", (2,))
    with pytest.raises(AttributeError):
        g.softmax
    with pytest.raises(tacit.Error, match="Nonsense"):
        g.Nonsense(x)
    with pytest.raises(tacit.Error):
        g.model()
    with pytest.raises(tacit.Error, match="no output"):
        tacit.Graph().model()


def cubic():
    g = tacit.Graph()
    x = g.input("x", "f32", (3,))
    g.output("loss", (x * x * x).sum())
    return g.model()


def test_grad(rng):
    x = rng.random(3, np.float32)
    np.testing.assert_allclose(tacit.compile(tacit.grad(cubic(), "x"))(x), 3 * x**2, rtol=1e-5)
    loss, d = tacit.compile(tacit.grad(cubic(), ["x"], with_loss=True))(x)
    np.testing.assert_allclose(loss, (x**3).sum(), rtol=1e-5)
    np.testing.assert_allclose(d, 3 * x**2, rtol=1e-5)
    twice = tacit.grad(tacit.grad(cubic(), "x"), "x", seed=True)
    seed = rng.random(3, np.float32)
    np.testing.assert_allclose(
        tacit.compile(twice).run(x=x, d_output=seed), 6 * x * seed, rtol=1e-5
    )
    with pytest.raises(tacit.Error, match="nothing"):
        tacit.grad(cubic(), "nothing")


def test_jvp_and_vmap(rng):
    x, t = rng.random((2, 3), np.float32)
    y, dy = tacit.compile(tacit.jvp(cubic(), "x")).run(x=x, tangent_x=t)
    np.testing.assert_allclose(y, (x**3).sum(), rtol=1e-5)
    np.testing.assert_allclose(dy, (3 * x**2 * t).sum(), rtol=1e-5)
    many = rng.random((5, 3), np.float32)
    batched = tacit.vmap(tacit.grad(cubic(), "x"), "x", 5)
    np.testing.assert_allclose(tacit.compile(batched)(many), 3 * many**2, rtol=1e-5)
