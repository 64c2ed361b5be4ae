# SPDX-License-Identifier: Apache-2.0
"""One handler per ATen operator: what it is in ONNX terms. A handler only maps; optimising is the
compiler's work. None of them keeps state.

A handler gets the walk (`c`: the graph, the exported node and its result's type) and the operator's
arguments: Tensor for tensors, Sym for symbolic sizes, plain Python otherwise. It returns a Value,
or a list of them."""

from __future__ import annotations

import operator
from typing import Any, Callable, Dict, List, Optional, Sequence

import numpy as np

from ._graph import Value

HANDLERS: Dict[str, Callable[..., Any]] = {}
FAR = 2**63 - 1


class Unsupported(Exception):
    """A form of a known operator that has no mapping."""


class Tensor:
    """A value with what torch knows about it; a size is an int, or None where it is symbolic."""

    __slots__ = ("value", "dtype", "shape")

    def __init__(self, value: Value, dtype: str, shape: Sequence[Any]) -> None:
        self.value, self.dtype = value, dtype
        self.shape: List[Any] = list(shape)

    @property
    def rank(self) -> int:
        return len(self.shape)


class Sym:
    """A size known when the graph is compiled: an i64 value of shape [1]."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value


def handles(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            HANDLERS[name] = function
        return function

    return add


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def pair(value: Any, n: int) -> List[int]:
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    return values * n if len(values) == 1 else values


def axis_of(dim: int, rank: int) -> int:
    return dim + rank if dim < 0 else dim


# --- element by element ---------------------------------------------------------------------------


def _binary(name: str, op: str) -> None:
    @handles(f"aten.{name}.Tensor", f"aten.{name}.Scalar", f"aten.{name}_.Tensor",
             f"aten.{name}_.Scalar", f"aten.{name}.default", f"aten.{name}.other")  # fmt: skip
    def handler(c: Any, a: Any, b: Any, alpha: Any = 1) -> Value:
        b = c.as_type(b, c.dtype)
        if alpha != 1:
            b = c.op("Mul", b, c.as_type(alpha, c.dtype))
        return c.op(op, c.as_type(a, c.dtype), b)


for _name, _op in {
    "add": "Add", "sub": "Sub", "mul": "Mul", "minimum": "Min", "maximum": "Max", "min": "Min",
    "max": "Max",
}.items():  # fmt: skip
    _binary(_name, _op)
for _name in ("min", "max"):  # of one tensor: a reduction
    del HANDLERS[f"aten.{_name}.default"]


@handles("aten.rsub.Scalar", "aten.rsub.Tensor")
def rsub(c: Any, a: Any, b: Any, alpha: Any = 1) -> Value:
    return HANDLERS["aten.sub.Tensor"](c, b, a, alpha)


@handles("aten.div.Tensor", "aten.div.Scalar", "aten.div_.Tensor", "aten.div.Tensor_mode",
         "aten.floor_divide.default", "aten.div.Scalar_mode")  # fmt: skip
def div(c: Any, a: Any, b: Any, rounding_mode: Optional[str] = None) -> Value:
    if c.name == "aten.floor_divide.default":
        rounding_mode = "floor"
    whole = c.dtype[0] in "iu"
    if not whole or rounding_mode == "trunc":
        q = c.op("Div", c.as_type(a, c.dtype), c.as_type(b, c.dtype))
        if not whole and rounding_mode == "floor":
            return c.op("Floor", q)
        if not whole and rounding_mode == "trunc":
            return c.op("Mul", c.op("Sign", q), c.op("Floor", c.op("Abs", q)))
        return q
    # Whole numbers divide towards zero in ONNX; Mod (of the divisor's sign) makes it the floor.
    a, b = c.as_type(a, c.dtype), c.as_type(b, c.dtype)
    return c.op("Div", c.op("Sub", a, c.op("Mod", a, b)), b)


@handles("aten.remainder.Scalar", "aten.remainder.Tensor")
def remainder(c: Any, a: Any, b: Any) -> Value:
    a, b = c.as_type(a, c.dtype), c.as_type(b, c.dtype)
    if c.dtype[0] in "iu":
        return c.op("Mod", a, b)
    return c.op("Sub", a, c.op("Mul", c.op("Floor", c.op("Div", a, b)), b))


@handles("aten.pow.Tensor_Scalar", "aten.pow.Tensor_Tensor", "aten.pow.Scalar")
def pow(c: Any, a: Any, b: Any) -> Value:
    return c.op("Pow", c.as_type(a, c.dtype), c.as_type(b, c.dtype))


def _unary(name: str, op: str, **attrs: Any) -> None:
    @handles(f"aten.{name}.default", f"aten.{name}_.default")
    def handler(c: Any, a: Tensor) -> Value:
        return c.op(op, c.as_type(a, c.dtype), **attrs)


for _name, _op in {
    "neg": "Neg", "abs": "Abs", "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "sin": "Sin",
    "cos": "Cos", "tanh": "Tanh", "sigmoid": "Sigmoid", "erf": "Erf", "relu": "Relu",
    "reciprocal": "Reciprocal", "floor": "Floor", "ceil": "Ceil", "round": "Round", "sign": "Sign",
    "hardswish": "HardSwish", "mish": "Mish", "logical_not": "Not",
}.items():  # fmt: skip
    _unary(_name, _op)
_unary("hardsigmoid", "HardSigmoid", alpha=1 / 6, beta=0.5)


@handles("aten.relu6.default", "aten.relu6_.default")
def relu6(c: Any, a: Tensor) -> Value:
    return hardtanh(c, a, 0.0, 6.0)


@handles("aten.hardtanh.default", "aten.hardtanh_.default", "aten.clamp.default",
         "aten.clamp_.default")  # fmt: skip
def hardtanh(c: Any, a: Tensor, low: Any = None, high: Any = None, **named: Any) -> Value:
    low, high = named.get("min", low), named.get("max", high)
    if "hardtanh" in c.name:
        low, high = named.get("min_val", low), named.get("max_val", high)
        low, high = (-1.0 if low is None else low), (1.0 if high is None else high)
    bounds = [None if v is None else c.as_type(v, c.dtype) for v in (low, high)]
    return c.op("Clip", c.as_type(a, c.dtype), *bounds)


@handles("aten.clamp_min.default")
def clamp_min(c: Any, a: Tensor, low: Any) -> Value:
    return c.op("Max", a, c.as_type(low, c.dtype))


@handles("aten.clamp_max.default")
def clamp_max(c: Any, a: Tensor, high: Any) -> Value:
    return c.op("Min", a, c.as_type(high, c.dtype))


@handles("aten.rsqrt.default")
def rsqrt(c: Any, a: Tensor) -> Value:
    return c.op("Reciprocal", c.op("Sqrt", a))


@handles("aten.log1p.default")
def log1p(c: Any, a: Tensor) -> Value:
    return c.op("Log", c.op("Add", c.as_type(a, c.dtype), c.scalar(1, c.dtype)))


@handles("aten.gelu.default")
def gelu(c: Any, a: Tensor, approximate: str = "none") -> Value:
    return c.op("Gelu", a, approximate=approximate)


@handles("aten.silu.default", "aten.silu_.default")
def silu(c: Any, a: Tensor) -> Value:
    return c.op("Mul", a, c.op("Sigmoid", a))


@handles("aten.leaky_relu.default", "aten.leaky_relu_.default")
def leaky_relu(c: Any, a: Tensor, slope: float = 0.01) -> Value:
    return c.op("LeakyRelu", a, alpha=float(slope))


@handles("aten.elu.default", "aten.elu_.default")
def elu(c: Any, a: Tensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Value:
    if scale != 1 or input_scale != 1:
        raise Unsupported("elu with a scale")
    return c.op("Elu", a, alpha=float(alpha))


# --- comparing and choosing -----------------------------------------------------------------------


def _comparison(name: str, op: str, negate: bool = False) -> None:
    @handles(f"aten.{name}.Scalar", f"aten.{name}.Tensor")
    def handler(c: Any, a: Tensor, b: Any) -> Value:
        common = c.common(a, b)
        made = c.op(op, c.as_type(a, common), c.as_type(b, common))
        return c.op("Not", made) if negate else made


for _name, _op in {
    "eq": "Equal", "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual",
}.items():  # fmt: skip
    _comparison(_name, _op)
_comparison("ne", "Equal", True)


def _logic(names: Sequence[str], op: str, bits: str) -> None:
    @handles(*names)
    def handler(c: Any, a: Tensor, b: Any) -> Value:
        kind = op if c.dtype == "bool" else bits
        return c.op(kind, c.as_type(a, c.dtype), c.as_type(b, c.dtype))


_logic(["aten.logical_and.default", "aten.bitwise_and.Tensor", "aten.__and__.Tensor"], "And",
       "BitwiseAnd")  # fmt: skip
_logic(["aten.logical_or.default", "aten.bitwise_or.Tensor", "aten.__or__.Tensor"], "Or",
       "BitwiseOr")  # fmt: skip


@handles("aten.bitwise_not.default")
def bitwise_not(c: Any, a: Tensor) -> Value:
    return c.op("Not" if c.dtype == "bool" else "BitwiseNot", a)


@handles("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar")
def where(c: Any, condition: Tensor, a: Any, b: Any) -> Value:
    return c.op("Where", condition, c.as_type(a, c.dtype), c.as_type(b, c.dtype))


@handles("aten.masked_fill.Scalar", "aten.masked_fill.Tensor", "aten.masked_fill_.Scalar")
def masked_fill(c: Any, a: Tensor, mask: Tensor, value: Any) -> Value:
    return c.op("Where", mask, c.as_type(value, c.dtype), a)


@handles("aten.tril.default", "aten.triu.default")
def tri(c: Any, a: Tensor, diagonal: int = 0) -> Value:
    return c.op("Trilu", a, np.array(diagonal, np.int64), upper=int("triu" in c.name))


# --- moving ---------------------------------------------------------------------------------------


@handles("aten.view.default", "aten.reshape.default", "aten._unsafe_view.default")
def view(c: Any, a: Tensor, shape: Sequence[Any]) -> Value:
    return c.op("Reshape", a, c.sizes(shape), allowzero=1)


@handles("aten.flatten.using_ints")
def flatten(c: Any, a: Tensor, start: int = 0, end: int = -1) -> Value:
    start, end = axis_of(start, a.rank), axis_of(end, a.rank)
    if a.rank == 0:
        return c.op("Reshape", a, ints(1))
    # 0 copies a leading size; what follows is read back, since only one -1 may be.
    tail = [c.size(a, i) for i in range(end + 1, a.rank)]
    return c.op("Reshape", a, c.sizes([0] * start + [-1] + tail))


@handles("aten.unflatten.int")
def unflatten(c: Any, a: Tensor, dim: int, sizes: Sequence[Any]) -> Value:
    dim = axis_of(dim, a.rank)
    all_sizes = [c.size(a, i) for i in range(a.rank)]
    return c.op("Reshape", a, c.sizes(all_sizes[:dim] + list(sizes) + all_sizes[dim + 1 :]))


@handles("aten.unsqueeze.default")
def unsqueeze(c: Any, a: Tensor, dim: int) -> Value:
    return c.op("Unsqueeze", a, ints(axis_of(dim, a.rank + 1)))


@handles("aten.squeeze.dim", "aten.squeeze.dims")
def squeeze(c: Any, a: Tensor, dims: Any) -> Value:
    axes = [axis_of(d, a.rank) for d in pair(dims, 1)]
    axes = [d for d in axes if a.shape[d] == 1]
    return c.op("Squeeze", a, ints(*axes)) if axes else c.value(a)


@handles("aten.permute.default")
def permute(c: Any, a: Tensor, dims: Sequence[int]) -> Value:
    return c.op("Transpose", a, perm=[axis_of(d, a.rank) for d in dims])


@handles("aten.transpose.int")
def transpose(c: Any, a: Tensor, i: int, k: int) -> Value:
    perm = list(range(a.rank))
    i, k = axis_of(i, a.rank), axis_of(k, a.rank)
    perm[i], perm[k] = perm[k], perm[i]
    return c.op("Transpose", a, perm=perm)


@handles("aten.t.default", "aten.numpy_T.default")
def t(c: Any, a: Tensor) -> Value:
    return c.op("Transpose", a, perm=list(range(a.rank))[::-1])


@handles("aten.expand.default")
def expand(c: Any, a: Tensor, sizes: Sequence[Any], implicit: bool = False) -> Value:
    return c.op("Expand", a, c.sizes([1 if isinstance(s, int) and s == -1 else s for s in sizes]))


@handles("aten.repeat.default")
def repeat(c: Any, a: Tensor, repeats: Sequence[Any]) -> Value:
    made = c.value(a)
    if len(repeats) > a.rank:
        made = c.op("Unsqueeze", made, ints(*range(len(repeats) - a.rank)))
    return c.op("Tile", made, c.sizes(repeats))


@handles("aten.slice.Tensor")
def slice_(c: Any, a: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Value:
    start, end = 0 if start is None else start, FAR if end is None else end
    if isinstance(start, int) and start == 0 and isinstance(end, int) and end == FAR and step == 1:
        return c.value(a)
    bounds = c.sizes([start]), c.sizes([end])
    return c.op("Slice", a, *bounds, ints(axis_of(dim, a.rank)), ints(step))


@handles("aten.select.int")
def select(c: Any, a: Tensor, dim: int, index: Any) -> Value:
    return c.op("Gather", a, c.scalar(index, "i64"), axis=axis_of(dim, a.rank))


@handles("aten.cat.default", "aten.concat.default")
def cat(c: Any, tensors: Sequence[Tensor], dim: int = 0) -> Value:
    parts = [c.as_type(p, c.dtype) for p in tensors if p.shape != [0]]
    return c.op("Concat", *parts, axis=axis_of(dim, c.rank))


@handles("aten.stack.default")
def stack(c: Any, tensors: Sequence[Tensor], dim: int = 0) -> Value:
    dim = axis_of(dim, c.rank)
    parts = [c.op("Unsqueeze", c.as_type(p, c.dtype), ints(dim)) for p in tensors]
    return c.op("Concat", *parts, axis=dim)


def _cuts(c: Any, a: Tensor, dim: int, sizes: Sequence[int]) -> List[Value]:
    made, at = [], 0
    for size in sizes:
        made.append(c.op("Slice", a, ints(at), ints(at + size), ints(dim), ints(1)))
        at += size
    return made


@handles("aten.split.Tensor", "aten.split_with_sizes.default", "aten.chunk.default",
         "aten.split.sizes")  # fmt: skip
def split(c: Any, a: Tensor, sizes: Any, dim: int = 0) -> List[Value]:
    dim = axis_of(dim, a.rank)
    # torch already knows how large the parts are.
    known = [part.shape[dim] for part in c.result]
    if not all(isinstance(k, int) for k in known):
        raise Unsupported("a split along a symbolic axis")
    return _cuts(c, a, dim, known)


@handles("aten.unbind.int")
def unbind(c: Any, a: Tensor, dim: int = 0) -> List[Value]:
    dim = axis_of(dim, a.rank)
    return [c.op("Gather", a, np.array(i, np.int64), axis=dim) for i in range(len(c.result))]


@handles("aten.embedding.default")
def embedding(c: Any, weight: Tensor, indices: Tensor, *unused: Any) -> Value:
    return c.op("Gather", weight, indices, axis=0)


@handles("aten.index_select.default")
def index_select(c: Any, a: Tensor, dim: int, index: Tensor) -> Value:
    return c.op("Gather", a, index, axis=axis_of(dim, a.rank))


@handles("aten.gather.default")
def gather(c: Any, a: Tensor, dim: int, index: Tensor, *unused: Any, **also: Any) -> Value:
    return c.op("GatherElements", a, index, axis=axis_of(dim, a.rank))


@handles("aten.index.Tensor")
def index(c: Any, a: Tensor, indices: Sequence[Optional[Tensor]]) -> Value:
    given = [(i, t) for i, t in enumerate(indices) if t is not None]
    if any(t.dtype == "bool" for _, t in given):
        raise Unsupported("indexing by a mask")
    if len(given) == 1:
        return c.op("Gather", a, given[0][1], axis=given[0][0])
    if [i for i, _ in given] != list(range(len(given))):
        raise Unsupported("indices that do not come first")
    # The indices broadcast against each other, then become the rows of one index tensor.
    rank = max(t.rank for _, t in given)
    zero = None
    for _, one in given:
        part = c.op("Mul", c.as_type(one, "i64"), ints(0).reshape(()))
        zero = part if zero is None else c.op("Add", zero, part)
    rows = [
        c.op("Unsqueeze", c.op("Add", c.as_type(one, "i64"), zero), ints(rank)) for _, one in given
    ]
    return c.op("GatherND", a, c.op("Concat", *rows, axis=rank))


@handles("aten.constant_pad_nd.default", "aten.pad.default")
def pad(c: Any, a: Tensor, pads: Sequence[int], mode: Any = "constant", value: Any = None) -> Value:
    if not isinstance(mode, str):
        mode, value = "constant", mode
    n = len(pads) // 2
    begin, end = [0] * a.rank, [0] * a.rank
    for i in range(n):
        begin[a.rank - 1 - i], end[a.rank - 1 - i] = pads[2 * i], pads[2 * i + 1]
    kind = {"constant": "constant", "reflect": "reflect", "replicate": "edge"}[mode]
    if kind != "constant":
        return c.op("Pad", a, ints(*begin, *end), mode=kind)
    fill = c.scalar(value or 0, c.dtype)
    return c.op("Pad", a, ints(*begin, *end), fill, mode=kind)


# --- making ---------------------------------------------------------------------------------------


@handles("aten.arange.default", "aten.arange.start", "aten.arange.start_step")
def arange(c: Any, *bounds: Any, **unused: Any) -> Value:
    start, end, step = {1: (0, *bounds, 1), 2: (*bounds, 1), 3: bounds}[len(bounds)]
    if not any(isinstance(b, Sym) for b in (start, end, step)):
        return c.graph.constant(np.arange(start, end, step), dtype=c.dtype)
    return c.op("Range", *(c.scalar(b, c.dtype) for b in (start, end, step)))


@handles("aten.full.default", "aten.full_like.default", "aten.ones.default", "aten.zeros.default",
         "aten.ones_like.default", "aten.zeros_like.default", "aten.new_ones.default",
         "aten.new_zeros.default", "aten.new_full.default")  # fmt: skip
def full(c: Any, *args: Any, **unused: Any) -> Value:
    name = c.name.split(".")[1]
    like = name.endswith("_like")
    rest = args[1:] if name.startswith("new_") else args
    fill: Any = 1 if "ones" in name else 0
    if "full" in name:
        fill = rest[1]
    if like:
        sizes = [c.size(args[0], i) for i in range(args[0].rank)]
    else:
        sizes = list(rest[0])
    return c.op("Expand", c.scalar(fill, c.dtype), c.sizes(sizes))


@handles("aten.scalar_tensor.default")
def scalar_tensor(c: Any, value: Any, **unused: Any) -> Value:
    return c.scalar(value, c.dtype)


@handles("aten.to.dtype", "aten.to.device", "aten.to.dtype_layout", "aten._to_copy.default",
         "aten.to.other", "aten.type_as.default", "aten.float.default")  # fmt: skip
def to(c: Any, a: Tensor, *unused: Any, **also: Any) -> Value:
    return c.as_type(a, c.dtype)


@handles("aten.dropout.default", "aten.dropout_.default", "aten.alias.default",
         "aten.clone.default", "aten.contiguous.default", "aten.detach.default",
         "aten.detach_.default", "aten.lift_fresh_copy.default", "aten.positive.default",
         "aten.feature_dropout.default")  # fmt: skip
def same(c: Any, a: Tensor, *unused: Any, **also: Any) -> Value:
    if "dropout" in c.name and unused[1]:
        raise Unsupported("dropout while training")
    return c.value(a)


# --- reducing -------------------------------------------------------------------------------------


def _reduce(names: Sequence[str], op: str) -> None:
    @handles(*names)
    def handler(c: Any, a: Tensor, dims: Any = None, keepdim: bool = False, **unused: Any) -> Value:
        axes = [] if dims is None else [axis_of(d, a.rank) for d in pair(dims, 1)]
        made = c.as_type(a, c.dtype)
        return c.op(op, made, ints(*axes) if axes else None, keepdims=int(keepdim))


_reduce(["aten.sum.dim_IntList", "aten.sum.default"], "ReduceSum")
_reduce(["aten.mean.dim", "aten.mean.default"], "ReduceMean")
_reduce(["aten.amax.default", "aten.max.default"], "ReduceMax")
_reduce(["aten.amin.default", "aten.min.default"], "ReduceMin")


@handles("aten.var.correction", "aten.std.correction")
def var(c: Any, a: Tensor, dims: Any = None, correction: Any = None, keepdim: bool = False) -> Value:
    axes = list(range(a.rank)) if not dims else [axis_of(d, a.rank) for d in pair(dims, 1)]
    sizes = [a.shape[i] for i in axes]
    if any(s is None for s in sizes):
        raise Unsupported("a variance along a symbolic axis")
    away = c.op("Sub", a, c.op("ReduceMean", a, ints(*axes), keepdims=1))
    total = c.op("ReduceSum", c.op("Mul", away, away), ints(*axes), keepdims=int(keepdim))
    free = max(int(np.prod(sizes)) - (1 if correction is None else correction), 0)
    made = c.op("Div", total, c.scalar(free, c.dtype))
    return c.op("Sqrt", made) if ".std." in c.name else made


@handles("aten.any.dim", "aten.any.default", "aten.all.dim", "aten.all.default")
def any_all(c: Any, a: Tensor, dim: Any = None, keepdim: bool = False) -> Value:
    op = "ReduceMax" if ".any." in c.name else "ReduceMin"
    axes = None if dim is None else ints(axis_of(dim, a.rank))
    made = c.op(op, c.as_type(a, "i32"), axes, keepdims=int(keepdim))
    return c.cast(made, "bool")


@handles("aten.argmax.default", "aten.argmin.default")
def argmax(c: Any, a: Tensor, dim: Any = None, keepdim: bool = False) -> Value:
    op = "ArgMax" if "argmax" in c.name else "ArgMin"
    if dim is None:
        return c.op(op, c.op("Reshape", a, ints(-1)), axis=0, keepdims=0)
    return c.op(op, a, axis=axis_of(dim, a.rank), keepdims=int(keepdim))


@handles("aten.cumsum.default")
def cumsum(c: Any, a: Tensor, dim: int, **unused: Any) -> Value:
    return c.op("CumSum", c.as_type(a, c.dtype), np.array(axis_of(dim, a.rank), np.int64))


@handles("aten.diff.default")
def diff(c: Any, a: Tensor, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None) -> Value:
    dim = axis_of(dim, a.rank)
    parts = [p for p in (prepend, a, append) if p is not None]
    made = c.value(a) if len(parts) == 1 else c.op("Concat", *parts, axis=dim)
    for _ in range(n):
        high = c.op("Slice", made, ints(1), ints(FAR), ints(dim), ints(1))
        low = c.op("Slice", made, ints(0), ints(-1), ints(dim), ints(1))
        made = c.op("Sub", high, low)
    return made


@handles("aten.softmax.int", "aten._softmax.default", "aten.log_softmax.int",
         "aten._log_softmax.default")  # fmt: skip
def softmax(c: Any, a: Tensor, dim: int, *unused: Any, **also: Any) -> Value:
    op = "LogSoftmax" if "log_softmax" in c.name else "Softmax"
    return c.op(op, c.as_type(a, c.dtype), axis=axis_of(dim, a.rank))


# --- sizes ----------------------------------------------------------------------------------------


@handles("aten.sym_size.int")
def sym_size(c: Any, a: Tensor, dim: int) -> Any:
    return c.size(a, axis_of(dim, a.rank))


def _sym(function: Any, op: str) -> None:
    @handles(f"operator.{function.__name__}")
    def handler(c: Any, a: Any, b: Any) -> Any:
        if isinstance(a, (int, float)) and isinstance(b, (int, float)):
            return function(a, b)
        return Sym(c.op(op, c.sizes([a]), c.sizes([b])))


for _function, _op in ((operator.add, "Add"), (operator.sub, "Sub"), (operator.mul, "Mul"),
                       (operator.floordiv, "Div")):  # fmt: skip
    _sym(_function, _op)

# Checks torch leaves in the graph; shapes are checked when the graph is compiled.
IGNORED = {
    "aten._assert_tensor_metadata.default", "aten._assert_scalar.default",
    "aten.sym_constrain_range_for_size.default", "aten.sym_constrain_range.default",
    "aten._assert_async.msg", "operator.ge", "operator.le", "operator.eq", "operator.gt",
    "operator.lt", "operator.ne", "operator.and_", "operator.or_",
}  # fmt: skip

# Results that share memory with their argument: changing one in place changes the other.
VIEWS = {
    "view", "slice", "select", "transpose", "permute", "expand", "unsqueeze", "squeeze", "t",
    "split", "unbind", "chunk", "alias", "detach", "diagonal",
}  # fmt: skip
