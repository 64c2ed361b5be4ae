# SPDX-License-Identifier: Apache-2.0
"""Graphs built node by node, in Python's own operators.

    g = tacit.Graph()
    x = g.input("x", "f32", ("batch", 4))
    g.output("y", g.Softmax(x @ weights + bias, axis=-1))
    session = tacit.compile(g, dims={"batch": 8})
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional, Sequence, Tuple, Union

import numpy as np

from . import _arrays, _tacit


class Value:
    """A tensor of a graph under construction."""

    __slots__ = ("graph", "handle", "dtype")
    __array_ufunc__ = None  # an array on the left leaves the operator to us

    def __init__(self, graph: "Graph", handle: int, dtype: Optional[str]) -> None:
        self.graph, self.handle, self.dtype = graph, handle, dtype

    def _binary(self, op: str, other: Any, swap: bool = False, dtype: Any = ...) -> "Value":
        graph = self.graph
        if isinstance(other, Value) and other.graph._is_inside(graph):
            graph = other.graph  # a body reads an outer value
        other = graph.value(other, self.dtype)
        pair = (other, self) if swap else (self, other)
        made = graph.node(op, *pair)
        made.dtype = self.dtype if dtype is ... else dtype
        return made

    def _unary(self, op: str) -> "Value":
        made = self.graph.node(op, self)
        made.dtype = self.dtype
        return made

    def __add__(self, o: Any) -> "Value":
        return self._binary("Add", o)

    def __radd__(self, o: Any) -> "Value":
        return self._binary("Add", o, True)

    def __sub__(self, o: Any) -> "Value":
        return self._binary("Sub", o)

    def __rsub__(self, o: Any) -> "Value":
        return self._binary("Sub", o, True)

    def __mul__(self, o: Any) -> "Value":
        return self._binary("Mul", o)

    def __rmul__(self, o: Any) -> "Value":
        return self._binary("Mul", o, True)

    def __truediv__(self, o: Any) -> "Value":
        return self._binary("Div", o)

    def __rtruediv__(self, o: Any) -> "Value":
        return self._binary("Div", o, True)

    def __pow__(self, o: Any) -> "Value":
        return self._binary("Pow", o)

    def __rpow__(self, o: Any) -> "Value":
        return self._binary("Pow", o, True)

    def __matmul__(self, o: Any) -> "Value":
        return self._binary("MatMul", o)

    def __rmatmul__(self, o: Any) -> "Value":
        return self._binary("MatMul", o, True)

    def __neg__(self) -> "Value":
        return self._unary("Neg")

    def __abs__(self) -> "Value":
        return self._unary("Abs")

    def __lt__(self, o: Any) -> "Value":
        return self._binary("Less", o, dtype="bool")

    def __le__(self, o: Any) -> "Value":
        return self._binary("LessOrEqual", o, dtype="bool")

    def __gt__(self, o: Any) -> "Value":
        return self._binary("Greater", o, dtype="bool")

    def __ge__(self, o: Any) -> "Value":
        return self._binary("GreaterOrEqual", o, dtype="bool")

    def __invert__(self) -> "Value":
        return self._unary("Not")

    def __and__(self, o: Any) -> "Value":
        return self._binary("And", o)

    def __or__(self, o: Any) -> "Value":
        return self._binary("Or", o)

    def reshape(self, *shape: Any) -> "Value":
        sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        return self._like(self.graph.node("Reshape", self, np.array(sizes, np.int64), allowzero=0))

    def transpose(self, *perm: int) -> "Value":
        return self._like(self.graph.node("Transpose", self, perm=perm or None))

    def _reduce(self, op: str, axes: Any, keepdims: bool) -> "Value":
        if axes is None:
            return self._like(self.graph.node(op, self, keepdims=int(keepdims)))
        axes = np.array([axes] if isinstance(axes, int) else axes, np.int64)
        return self._like(self.graph.node(op, self, axes, keepdims=int(keepdims)))

    def sum(self, axes: Any = None, keepdims: bool = False) -> "Value":
        return self._reduce("ReduceSum", axes, keepdims)

    def mean(self, axes: Any = None, keepdims: bool = False) -> "Value":
        return self._reduce("ReduceMean", axes, keepdims)

    def max(self, axes: Any = None, keepdims: bool = False) -> "Value":
        return self._reduce("ReduceMax", axes, keepdims)

    def astype(self, dtype: Any) -> "Value":
        text = _arrays.text_of(dtype)
        made = self.graph.node("Cast", self, to=ONNX_CODES[text])
        made.dtype = text
        return made

    def __getitem__(self, key: Any) -> "Value":
        """Integers and slices; an integer drops its axis."""
        keys = key if isinstance(key, tuple) else (key,)
        starts, ends, axes, steps, dropped = [], [], [], [], []
        for axis, k in enumerate(keys):
            if isinstance(k, (int, np.integer)):
                k = int(k)
                starts.append(k)
                ends.append(k + 1 if k != -1 else _FAR)
                steps.append(1)
                axes.append(axis)
                dropped.append(axis)
            elif isinstance(k, slice):
                if k == slice(None):
                    continue
                step = 1 if k.step is None else k.step
                starts.append(k.start if k.start is not None else (0 if step > 0 else _FAR))
                ends.append(k.stop if k.stop is not None else (_FAR if step > 0 else -_FAR))
                steps.append(step)
                axes.append(axis)
            else:
                raise TypeError("only integers and slices index a value of a graph")
        made = self
        if axes:
            parts = [np.array(p, np.int64) for p in (starts, ends, axes, steps)]
            made = self._like(self.graph.node("Slice", self, *parts))
        if dropped:
            made = self._like(self.graph.node("Squeeze", made, np.array(dropped, np.int64)))
        return made

    def _like(self, made: "Value") -> "Value":
        made.dtype = self.dtype
        return made

    def __bool__(self) -> bool:
        raise TypeError("a value of a graph has no truth value: it is known when the graph runs")

    def __iter__(self) -> Any:
        raise TypeError("a value of a graph cannot be iterated over")


_FAR = 2**63 - 1
ONNX_CODES = {
    "f32": 1, "u8": 2, "i8": 3, "u16": 4, "i16": 5, "i32": 6, "i64": 7, "string": 8, "bool": 9,
    "f16": 10, "f64": 11, "u32": 12, "u64": 13, "c64": 14, "c128": 15, "bf16": 16,
    "f8e4m3fn": 17, "f8e4m3fnuz": 18, "f8e5m2": 19, "f8e5m2fnuz": 20, "u4": 21, "i4": 22,
    "f4e2m1": 23, "f8e8m0": 24, "u2": 25, "i2": 26,
}  # fmt: skip


class Graph:
    """A model under construction. Every ONNX operator is a method: g.Softmax(x, axis=-1)."""

    def __init__(self, name: str = "model", parent: Optional["Graph"] = None) -> None:
        """With a `parent`: the body of one of its nodes (see tacit.scan), free to read its
        values."""
        self._builder = _tacit.Builder(name)
        self._model: Any = None
        self._parent = parent
        self._outer: Dict[int, Tuple[Value, Value]] = {}  # by the outer handle: outer, inner

    def _is_inside(self, other: "Graph") -> bool:
        graph = self._parent
        while graph is not None and graph is not other:
            graph = graph._parent
        return graph is other

    def _argument(self, name: str, dtype: Optional[str]) -> Value:
        """A parameter of a body: its node tells the type."""
        return Value(self, self._builder.input(name, None, ()), dtype)

    def _capture(self, parent: "Graph", thing: Value) -> Value:
        outer = parent.value(thing)
        if outer.handle not in self._outer:
            inner = self._argument(f"outer.{len(self._outer)}", outer.dtype)
            self._outer[outer.handle] = outer, inner
        return self._outer[outer.handle][1]

    def input(self, name: str, dtype: Any = "f32", shape: Sequence[Union[int, str]] = ()) -> Value:
        text = _arrays.text_of(dtype)
        return Value(self, self._builder.input(name, text, tuple(shape)), text)

    def constant(self, value: Any, name: Optional[str] = None, dtype: Any = None) -> Value:
        """A copy of `value` in the graph."""
        array = _arrays.constant(value, dtype)
        return Value(self, self._builder.constant(name, array, False), _arrays.text_of(array.dtype))

    def weight(self, name: str, array: Any) -> Value:
        """The array itself, in place: later changes to it show in the next *compile*."""
        array = _arrays.dense(_arrays._as_array(array, ""), f"weight '{name}'", True)
        return Value(self, self._builder.constant(name, array, True), _arrays.text_of(array.dtype))

    def value(self, thing: Any, dtype: Optional[str] = None) -> Value:
        """A value as it is; anything else as a constant. Plain numbers take `dtype`."""
        if isinstance(thing, Value):
            if self._parent is not None and self._is_inside(thing.graph):
                return self._capture(self._parent, thing)
            if thing.graph is not self:
                raise ValueError("a value of another graph")
            return thing
        if isinstance(thing, (bool, int, float, list, tuple)):
            return self.constant(thing, dtype=dtype)
        return self.constant(thing)

    def node(self, op: str, *inputs: Any, outputs: int = 1, **attrs: Any) -> Any:
        """A node "Op" or "domain.Op"; None stands for an absent input. Several outputs come as a
        tuple."""
        handles = tuple(0 if i is None else self.value(i).handle for i in inputs)
        plain = {k: _attribute(v) for k, v in attrs.items() if v is not None}
        made = self._builder.node(op, handles, outputs, plain)
        values = tuple(Value(self, h, None) for h in made)
        return values[0] if outputs == 1 else values

    def output(self, name: str, value: Value) -> None:
        self._builder.output(name, self.value(value).handle)

    def model(self) -> Any:
        """The finished model; the graph can take no more nodes."""
        if self._model is None:
            self._model = self._builder.finish()
        return self._model

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if not name[:1].isupper():
            raise AttributeError(f"a graph has no attribute {name!r}")

        def node(*inputs: Any, outputs: int = 1, **attrs: Any) -> Any:
            return self.node(name, *inputs, outputs=outputs, **attrs)

        return node


def _list(things: Any) -> list:
    if things is None:
        return []
    return list(things) if isinstance(things, (tuple, list)) else [things]


def _like(values: Sequence[Value], given: Any) -> Any:
    """`values` in the form of what was given: None, one, or a tuple."""
    if given is None:
        return None
    return tuple(values) if isinstance(given, (tuple, list)) else values[0]


def scan(
    body: Callable[..., Any],
    init: Any,
    xs: Any = None,
    broadcast: Sequence[Any] = (),
    length: Optional[int] = None,
    reverse: bool = False,
    checkpoints: Optional[int] = None,
    recursive: bool = False,
) -> Any:
    """Runs `carry, y = body(carry, x, *broadcast)` over the leading axis of `xs`; gives the last
    carry and all ys, stacked.

    `init`, `xs` and y are one value each, or tuples; without `xs`, `length` says how many steps
    there are (x is None). `broadcast`, and any other value of the graph that `body` mentions, is
    the same in every step. `reverse` goes from the last step to the first.

    Gradients keep the carry of every step, or with `checkpoints=K` the K carries between equal
    pieces, which are run again; with `recursive` a piece is halved until few steps are left.
    """
    carries, inputs = _list(init), _list(xs)
    values = [v for v in [*carries, *inputs, *broadcast] if isinstance(v, Value)]
    if not values:
        raise TypeError("scan needs a value of a graph among init, xs and broadcast")
    graph = values[0].graph
    for v in values:
        graph = v.graph if v.graph._is_inside(graph) else graph
    if not inputs:
        if length is None:
            raise TypeError("scan needs xs or a length")
        inputs = [graph.constant(np.zeros(length, np.float32))]
    elif length is not None:
        raise TypeError("scan takes xs or a length, not both")
    if recursive and checkpoints is None:
        raise TypeError("recursive needs checkpoints")
    carries, inputs = [graph.value(v) for v in carries], [graph.value(v) for v in inputs]
    inner = Graph("body", graph)
    c = [inner._argument(f"carry.{i}", v.dtype) for i, v in enumerate(carries)]
    x = [inner._argument(f"x.{i}", v.dtype) for i, v in enumerate(inputs)]
    made = body(_like(c, init), _like(x, xs), *[inner.value(graph.value(v)) for v in broadcast])
    if not isinstance(made, tuple) or len(made) != 2:
        raise TypeError("the body of a scan gives two things: the next carry, and y (or None)")
    after, ys = _list(made[0]), _list(made[1])
    if len(after) != len(carries):
        raise ValueError(f"the body gives {len(after)} carries, but init has {len(carries)}")
    after = [inner.value(v, k.dtype) for v, k in zip(after, carries)]
    ys = [inner.value(v) for v in ys]
    if not after and not ys:
        raise ValueError("the scan has no results")
    for i, v in enumerate(after + ys):
        inner.output(f"next.{i}" if i < len(after) else f"y.{i - len(after)}", v)
    results = graph.node(
        "Scan", *carries, *inputs, outputs=len(after) + len(ys), num_scan_inputs=len(inputs),
        scan_input_directions=[1] * len(inputs) if reverse else None,
        scan_output_directions=[1] * len(ys) if reverse and ys else None,
        checkpoints=checkpoints, recursive=int(recursive) or None, body=inner,
    )  # fmt: skip
    results = [results] if isinstance(results, Value) else list(results)
    for v, k in zip(results, after + ys):
        v.dtype = k.dtype
    return _like(results[: len(after)], init), _like(results[len(after) :], made[1])


def _attribute(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, Graph):
        return value.model(), tuple(outer.handle for outer, _ in value._outer.values())
    if isinstance(value, _tacit.Model):
        return value, ()
    return int(value) if isinstance(value, bool) else value
