# SPDX-License-Identifier: Apache-2.0
"""# Bring a torch module

Needs torch 2.1 or later. The module is exported by torch.export; its parameters are used in place.
"""

import numpy as np
import torch

import tacit

torch.manual_seed(0)
module = torch.nn.Sequential(
    torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4)
)

# ## Three lines
x = torch.rand(2, 8)
session = tacit.compile(tacit.from_torch(module, (x,)))
y = session(x)  # a tensor goes in as it is

with torch.no_grad():
    assert np.allclose(y, module(x), rtol=1e-4, atol=1e-5)
assert torch.from_dlpack(y).shape == (2, 4)

# ## Any batch
#
# A Dim of torch.export is a symbolic size of the model.
batch = torch.export.Dim("batch", min=1, max=256)
model = tacit.from_torch(module, (x,), dynamic_shapes=({0: batch},))
print(model)
wide = tacit.compile(model, dims={"batch": 32}, exec="tasks")
assert wide(torch.rand(32, 8)).shape == (32, 4)

# ## What is supported
#
# Operators without a handler go through torch's own decompositions; what is left is listed, with
# how often it occurs and where it comes from.
exported = torch.export.export(module, (x,))
assert tacit.torch.coverage(exported) == []
