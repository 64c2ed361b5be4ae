# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

import tacit


@pytest.fixture
def affine():
    """y = 2 (x w + 1.5) with a symbolic batch, and the same in NumPy."""
    w = np.arange(12, dtype=np.float32).reshape(4, 3)
    g = tacit.Graph("affine")
    x = g.input("x", "f32", ("batch", 4))
    g.output("y", (x @ w + 1.5) * 2)
    return g.model(), lambda a: (a @ w + 1.5) * 2


@pytest.fixture
def rng():
    return np.random.default_rng(7)
