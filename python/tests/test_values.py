# SPDX-License-Identifier: Apache-2.0
"""Values that are no tensors: sequences as lists, optionals as None or a value, maps as dicts."""

import sys

import numpy as np
import pytest

import tacit

SEQUENCE = b"""tacit 1
graph "sequences" {
  opset "" 22
  in %s : seq(f32[?])
  const %one : i64[] = [1]
  %t : seq(f32[?]) = SequenceErase(%s, %one) @erase
  out %t
}
"""
OPTIONAL = b"""tacit 1
graph "optionals" {
  opset "" 22
  in %x : optional(f32[?])
  %has : bool[] = OptionalHasElement(%x) @has
  %y : optional(f32[?]) = Identity(%x) @same
  out %has
  out %y
}
"""


def arrays():
    return [np.float32([1, 2]), np.float32([3]), np.float32([4, 5, 6])]


def test_sequence():
    session = tacit.compile(tacit.load(SEQUENCE))
    assert session.inputs[0].kind == "sequence" and session.outputs[0].kind == "sequence"
    got = session(arrays())
    assert isinstance(got, list) and len(got) == 2
    np.testing.assert_array_equal(got[0], [1, 2])
    np.testing.assert_array_equal(got[1], [4, 5, 6])
    got = session(s=([1, 2], [3], np.float32([[4, 5, 6]])[:, ::2][0]))  # lists, tuples, strides
    np.testing.assert_array_equal(got[1], [4, 6])


def test_sequence_errors():
    session = tacit.compile(tacit.load(SEQUENCE))
    with pytest.raises(tacit.Error, match="'s' is a sequence: give it as a list"):
        session(np.float32([1]))
    with pytest.raises(tacit.Error, match="item 1 is i64"):
        session([np.float32([1]), np.int64([1])])
    with pytest.raises(tacit.Error):
        session([np.float32([1])])  # nothing at position 1


def test_optional():
    session = tacit.compile(tacit.load(OPTIONAL))
    has, y = session(None)
    assert not has and y is None
    has, y = session(np.float32([7, 8]))
    assert has
    np.testing.assert_array_equal(y, [7, 8])


def test_references_are_balanced():
    session, things = tacit.compile(tacit.load(SEQUENCE)), arrays()
    before = [sys.getrefcount(t) for t in things]
    for _ in range(200):
        session(things)
        with pytest.raises(tacit.Error):
            session(things[:1])
    after = [sys.getrefcount(t) for t in things]
    assert max(abs(a - b) for a, b in zip(after, before)) < 20
