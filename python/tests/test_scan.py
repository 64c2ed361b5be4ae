# SPDX-License-Identifier: Apache-2.0
"""tacit.scan against loops in NumPy, and its gradients against differences."""

import numpy as np
import pytest

import tacit


def run(build, *arrays):
    """`build` makes outputs from inputs of the arrays' types."""
    g = tacit.Graph()
    made = build(*[g.input(f"x{i}", a.dtype, a.shape) for i, a in enumerate(arrays)])
    for i, v in enumerate(made):
        g.output(f"y{i}", v)
    return tacit.compile(g)(*arrays)


def decay(carry, x, m):
    after = carry * m + x
    return after, after * 2.0


def test_carry_xs_broadcast_and_trajectory(rng):
    init, xs, m = rng.random(3, np.float32), rng.random((5, 3), np.float32), rng.random(3, np.float32)
    last, ys = run(lambda i, x, m: tacit.scan(decay, i, x, broadcast=[m]), init, xs, m)
    carry, expected = init, []
    for x in xs:
        carry = carry * m + x
        expected.append(2 * carry)
    np.testing.assert_allclose(last, carry, rtol=1e-5)
    np.testing.assert_allclose(ys, expected, rtol=1e-5)


def test_bodies_read_outer_values_from_any_depth(rng):
    init, xs, m = rng.random(2, np.float32), rng.random((3, 4, 2), np.float32), rng.random(2, np.float32)

    def nested(i, x, m):
        def outer(c, row):
            def inner(c, x):
                return m * c + x, None  # the outer value on the left

            after, _ = tacit.scan(inner, c, row)
            return after, after

        return tacit.scan(outer, i, x)

    last, ys = run(nested, init, xs, m)
    carry, expected = init, []
    for row in xs:
        for x in row:
            carry = m * carry + x
        expected.append(carry)
    np.testing.assert_allclose(last, carry, rtol=1e-5)
    np.testing.assert_allclose(ys, expected, rtol=1e-5)


def test_several_carries_reverse_and_a_length(rng):
    xs = rng.random((4, 2), np.float32)
    a0, b0 = rng.random((2, 2), np.float32)

    def body(carry, x):
        a, b = carry
        return (b, a + x), (a, b)

    def build(a, b, x):
        (a, b), (left, right) = tacit.scan(body, (a, b), x, reverse=True)
        return a, b, left, right

    got = run(build, a0, b0, xs)
    a, b, left, right = a0, b0, [None] * 4, [None] * 4
    for t in reversed(range(4)):
        left[t], right[t] = a, b
        a, b = b, a + xs[t]
    for y, expected in zip(got, (a, b, left, right)):
        np.testing.assert_allclose(y, expected, rtol=1e-6)

    def powers(x):
        return tacit.scan(lambda c, _: (c * 2.0, c), x, length=5)

    last, ys = run(powers, a0)
    np.testing.assert_allclose(last, a0 * 32)
    np.testing.assert_allclose(ys, [a0 * 2**k for k in range(5)])


OPTIONS = [{}, {"checkpoints": 3}, {"checkpoints": 2, "recursive": True}]


@pytest.mark.parametrize("options", OPTIONS, ids=["full", "checkpoints", "recursive"])
def test_gradients(rng, options):
    steps = 12
    g = tacit.Graph()
    init, m = g.input("init", "f64", (2,)), g.input("m", "f64", (2,))
    xs = g.input("xs", "f64", (steps, 2))
    last, ys = tacit.scan(
        lambda c, x, m: ((c * m + x) * 0.5, g_tanh(c)), init, xs, broadcast=[m], **options
    )
    g.output("loss", (last * last).sum() + (ys * ys).sum())
    loss = g.model()
    values = {"init": rng.random(2), "m": rng.random(2), "xs": rng.random((steps, 2))}
    forward = tacit.compile(loss)
    gradients = tacit.compile(tacit.grad(loss, list(values))).run(values)
    for (name, value), got in zip(values.items(), gradients):
        expected = np.empty_like(value)
        for at in np.ndindex(value.shape):
            ends = []
            for h in (1e-5, -1e-5):
                moved = value.copy()
                moved[at] += h
                ends.append(forward.run({**values, name: moved}))
            expected[at] = (ends[0] - ends[1]) / 2e-5
        np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-8)


def g_tanh(x):
    return x.graph.Tanh(x)


def test_what_scan_refuses(rng):
    g = tacit.Graph()
    x = g.input("x", "f32", (4, 2))
    c = g.input("c", "f32", (2,))
    same = lambda c, x: (c, None)  # noqa: E731
    with pytest.raises(TypeError, match="two things"):
        tacit.scan(lambda c, x: c, c, x)
    with pytest.raises(ValueError, match="2 carries"):
        tacit.scan(lambda c, x: ((c, c), None), c, x)
    with pytest.raises(TypeError, match="length"):
        tacit.scan(same, c)
    with pytest.raises(TypeError, match="not both"):
        tacit.scan(same, c, x, length=4)
    with pytest.raises(TypeError, match="checkpoints"):
        tacit.scan(same, c, x, recursive=True)
    with pytest.raises(TypeError, match="value of a graph"):
        tacit.scan(same, np.zeros(2))
    with pytest.raises(KeyError, match="mine"):
        tacit.scan(lambda c, x: {}["mine"], c, x)
    last, _ = tacit.scan(lambda c, x: (c + x, None), c, x)  # the graph is still of use
    g.output("last", last)
    a, b = rng.random(2, np.float32), rng.random((4, 2), np.float32)
    np.testing.assert_allclose(tacit.compile(g).run(x=b, c=a), a + b.sum(0), rtol=1e-6)


def test_too_many_checkpoints_are_an_error():
    g = tacit.Graph()
    last, _ = tacit.scan(
        lambda c, x: (c * x, None), g.input("c", "f32", ()), g.input("x", "f32", (3,)), checkpoints=9
    )
    g.output("y", last)
    with pytest.raises(tacit.Error, match="checkpoints"):
        tacit.grad(g, "c")
