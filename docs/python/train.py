# SPDX-License-Identifier: Apache-2.0
"""# Transform and train

`tacit.grad` makes a model of gradients from a model. It is a graph like any other: it can be shown,
saved, transformed again and compiled.
"""

import numpy as np

import tacit

# ## A loss
#
# What is trained is an input, so that one compiled model serves every step.
graph = tacit.Graph("regression")
x = graph.input("x", "f32", (64, 3))
t = graph.input("t", "f32", (64, 1))
w = graph.input("w", "f32", (3, 1))
b = graph.input("b", "f32", (1,))
error = x @ w + b - t
graph.output("loss", (error * error).mean())
loss = graph.model()

# ## Its gradients, and gradient descent
step = tacit.compile(tacit.grad(loss, wrt=["w", "b"], with_loss=True))
rng = np.random.default_rng(0)
true_w, true_b = np.float32([[1], [-2], [0.5]]), np.float32([0.25])
data = rng.standard_normal((64, 3)).astype(np.float32)
target = data @ true_w + true_b
weights, bias = np.zeros((3, 1), np.float32), np.zeros(1, np.float32)
for _ in range(200):
    value, dw, db = step.run(x=data, t=target, w=weights, b=bias)
    weights -= 0.1 * dw
    bias -= 0.1 * db
print("loss", float(value), "weights", weights.ravel(), "bias", bias)
assert value < 1e-6 and np.allclose(weights, true_w, atol=1e-3)

# ## Forward mode and batching
#
# jvp adds an input tangent_<name> and gives the outputs, then their tangents. vmap gives the named
# inputs, and all that depends on them, a leading axis: here, one loss for each of five weights.
value, change = tacit.compile(tacit.jvp(loss, "b")).run(
    x=data, t=target, w=weights * 0, b=bias, tangent_b=np.ones(1, np.float32)
)
assert np.allclose(change, 2 * (bias - target).mean(), rtol=1e-4)
many = rng.standard_normal((5, 3, 1)).astype(np.float32)
losses = tacit.compile(tacit.vmap(loss, "w", 5)).run(x=data, t=target, w=many, b=bias)
assert np.allclose(losses, ((data @ many + bias - target) ** 2).mean((1, 2)), rtol=1e-4)
