# SPDX-License-Identifier: Apache-2.0
"""# Train

`tacit.train_step` makes a training step from a model whose output is a loss, compiles it once, and
owns the parameters and the optimiser's state. What it is made of stands on its own, too:
`tacit.grad`, `jvp`, `vmap` and `scan` give graphs like any other, which can be shown, saved,
transformed again and compiled.
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

# ## A training step
#
# Optimisers are "sgd", "adam" and "adamw". Parameters are inputs or weights of the model; here they
# are given with their initial values.
rng = np.random.default_rng(0)
true_w, true_b = np.float32([[1], [-2], [0.5]]), np.float32([0.25])
data = rng.standard_normal((64, 3)).astype(np.float32)
target = data @ true_w + true_b
initial = {"w": np.zeros((3, 1), np.float32), "b": np.zeros(1, np.float32)}
step = tacit.train_step(loss, initial, optimizer="adamw", learning_rate=0.05)
for i in range(300):
    step.learning_rate = 0.05 * 0.99**i  # it may change from step to step
    value = step(x=data, t=target)
print("loss", value, "weights", step.parameters["w"].ravel(), "bias", step.parameters["b"])
assert value < 1e-5 and np.allclose(step.parameters["w"], true_w, atol=1e-2)

# A checkpoint holds parameters, state and the number of steps. Going on from it gives the same bits.
step.save("checkpoint.safetensors")
other = tacit.train_step(loss, initial, optimizer="adamw")
other.load("checkpoint.safetensors")
assert other(x=data, t=target) == step(x=data, t=target)

# ## Less memory
#
# Activations can be computed again instead of kept: name the values to keep (`checkpoints=`), or give
# a budget in bytes for the step's memory (`memory_budget=`).
g = tacit.Graph("deep")
h = g.input("x", "f32", (256, 32))
for i in range(6):
    h = g.Tanh(h @ g.input(f"w{i}", "f32", (32, 32)))
g.output("loss", g.ReduceMean(g.Mul(h, h), keepdims=0))
layers = {f"w{i}": 0.2 * rng.standard_normal((32, 32)).astype(np.float32) for i in range(6)}
full = tacit.train_step(g, layers)
arena = full.session.program.memory()["arena_bytes"]
small = tacit.train_step(g, layers, memory_budget=arena * 3 // 4)
print("bytes:", arena, "->", small.session.program.memory()["arena_bytes"])
assert small.session.program.memory()["arena_bytes"] <= arena * 3 // 4

# ## Gradients by themselves
gradient = tacit.compile(tacit.grad(loss, wrt=["w", "b"], with_loss=True))
weights, bias = np.zeros((3, 1), np.float32), np.zeros(1, np.float32)
for _ in range(200):
    value, dw, db = gradient.run(x=data, t=target, w=weights, b=bias)
    weights -= 0.1 * dw
    bias -= 0.1 * db
assert value < 1e-6 and np.allclose(weights, true_w, atol=1e-3)

# ## Loops
#
# `tacit.scan` carries a value through steps: here a damped spring for 50 of them, whose stiffness is
# found from where the mass came to be. The body is a Python function that builds the loop's graph;
# values of the outer graph, as `stiffness`, can be read in it. `checkpoints=5` keeps five carries
# instead of fifty for the gradient; `recursive=True` keeps fewer still.
g = tacit.Graph("spring")
stiffness = g.input("stiffness", "f32", ())
kicks = g.input("kicks", "f32", (50,))


def move(carry, kick):
    place, speed = carry
    speed = speed * 0.98 + (kick - stiffness * place) * 0.1
    place = place + speed * 0.1
    return (place, speed), place


start = (g.constant(np.float32(1)), g.constant(np.float32(0)))
_, path = tacit.scan(move, start, kicks, checkpoints=5)
g.output("path", path)
spring = g.model()
push = rng.standard_normal(50).astype(np.float32)
run = tacit.compile(spring)
seen = run(np.float32(2.5), push)
place, speed = 1.0, 0.0
for k in range(50):
    speed = speed * 0.98 + (push[k] - 2.5 * place) * 0.1
    place += speed * 0.1
assert np.isclose(seen[-1], place, rtol=1e-4)
back = tacit.compile(tacit.grad(spring, "stiffness", seed=True))
guess = np.float32(1.0)
for _ in range(200):
    error = run(guess, push) - seen
    guess -= 0.3 * back.run(stiffness=guess, kicks=push, d_output=error) / 50
print("stiffness", guess)
assert abs(guess - 2.5) < 0.05

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
