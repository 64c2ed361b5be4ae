# SPDX-License-Identifier: Apache-2.0
"""# Bring NumPy arrays (and other tensors)

Dense arrays are read and written where they are.
"""

import threading
import warnings

import numpy as np

import tacit

graph = tacit.Graph()
x = graph.input("x", "f32", (256, 64))
graph.output("y", graph.Relu(x @ np.eye(64, dtype=np.float32) - 0.5))
session = tacit.compile(graph)

# ## Results
#
# A call makes a new array for its result; `out` writes into one of yours.
a = np.random.default_rng(0).random((256, 64), np.float32)
y = session(a)
out = np.empty_like(y)
assert session(a, out=out) is out and np.array_equal(out, y)

# ## Strided arrays
#
# They are copied, and the first time a warning says so. `strict=True` refuses them instead.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    assert np.allclose(session(a.T.copy().T), y)
strict = tacit.compile(graph, strict=True)
try:
    strict(a.T.copy().T)
except tacit.Error as error:
    print(error)

# ## Other libraries
#
# Anything with `__dlpack__`, the array interface or the buffer protocol is an input, and results
# are DLPack producers: `torch.from_dlpack(session(tensor))`.
assert np.allclose(session(memoryview(a)), y)
assert np.allclose(np.from_dlpack(session(a)), y)

# ## Threads
#
# The GIL is released while a model runs, and one session serves any number of threads.
results = [None] * 4


def work(i):
    results[i] = session(a * i)


threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
for t in threads:
    t.start()
for t in threads:
    t.join()
assert all(np.allclose(results[i], np.maximum(a * i - 0.5, 0)) for i in range(4))
