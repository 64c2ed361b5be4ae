# SPDX-License-Identifier: Apache-2.0
"""# Run privately

A server has a model, a client has inputs, and neither shows them to the other. A dealer hands both
one-time keys beforehand. docs/security-model.md says what this promises and what it does not.
"""

import os
import socket
import tempfile
import threading

import numpy as np

import tacit
import tacit.secure

folder = tempfile.mkdtemp()
public, server_key, client_key, certificates = (
    os.path.join(folder, name) for name in ("public.tacit", "server.key", "client.key", "certs")
)

# ## The server's model
weights = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
graph = tacit.Graph("private")
graph.output("y", graph.Relu(graph.input("x", "f32", (1, 8)) @ weights))
model = graph.model()
server = tacit.secure.compile(model)
print(server)  # rounds, bytes, key sizes
server.strip(public)  # the graph without its weights

# ## The dealer
tacit.secure.load(public).deal(server_key, client_key, runs=1)

# ## Two parties
#
# Certificates come from your own authority; this one is for tests.
tacit.secure.certificates(certificates)
with socket.socket() as s:
    s.bind(("127.0.0.1", 0))
    address = f"127.0.0.1:{s.getsockname()[1]}"
serving = threading.Thread(target=server.serve, args=(server_key, address, certificates))
serving.start()
client = tacit.secure.load(public)
x = np.random.default_rng(1).random((1, 8), np.float32)
y = client.query(client_key, address, certificates, x)
serving.join()
print("rounds", client.report["rounds"], "bytes sent", client.report["sent"])
assert np.allclose(y, tacit.compile(model)(x), atol=0.02)

# ## The cleartext twin
#
# What two parties would compute, in one process: for choosing `frac` and `bound`.
assert np.allclose(server.sim(x), y, atol=0.02)
