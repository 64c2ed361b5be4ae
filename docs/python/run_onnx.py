# SPDX-License-Identifier: Apache-2.0
"""# Run an ONNX file

Every page here is a script; the tests execute it. This one needs a model: it writes a small one
first, so that it stands alone.
"""

import os
import tempfile

import numpy as np

import tacit

folder = tempfile.mkdtemp()
path = os.path.join(folder, "model.onnx")
graph = tacit.Graph("classifier")
image = graph.input("image", "f32", ("batch", 16))
weights = np.random.default_rng(0).standard_normal((16, 4)).astype(np.float32)
graph.output("scores", graph.Softmax(image @ weights, axis=-1))
graph.model().save(path)

# ## Load, compile, run
#
# A model knows what it takes. Symbolic sizes get their values when it is compiled.
model = tacit.load(path)
print(model.inputs, model.symbols)
session = tacit.compile(model, dims={"batch": 2}, exec="tasks", threads=2)

x = np.random.default_rng(1).random((2, 16), np.float32)
scores = session(x)  # by position
assert np.array_equal(scores, session.run(image=x))  # by name
assert np.allclose(scores.sum(-1), 1)

# ## Sizes that change from call to call
#
# A runner is compiled once for every set of sizes it meets and keeps the last eight programs.
# With buckets it rounds sizes up, pads the arrays and cuts the results back.
runner = tacit.runner(model, exec="tasks", threads=2)
assert np.allclose(runner(x[:1]), scores[:1]) and np.allclose(runner(x), scores)
assert runner.compiled == 2
rounded = tacit.runner(model, buckets={"batch": 8})
assert np.allclose(rounded(x[:1]), scores[:1]) and np.allclose(rounded(x), scores)
assert rounded.compiled == 1

# ## What goes wrong says so
try:
    session(x[:1])
except tacit.Error as error:
    print(error.status, "-", error.message)

# ## Look inside
#
# In a notebook these are pages; in a terminal, text.
print(tacit.show(session, "plan"))
session.profile()
session(x)
print(session.show("program"))

# ## Switch from ONNX Runtime by changing an import
import tacit.onnxruntime as ort  # noqa: E402

drop_in = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
(again,) = drop_in.run(["scores"], {"image": x})  # compiled for the sizes it meets
assert np.allclose(again, scores)
