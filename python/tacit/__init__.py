# SPDX-License-Identifier: Apache-2.0
"""Tacit: compile a model graph once, run it many times.

    import tacit
    session = tacit.compile("model.onnx", exec="tasks")
    y = session(x)                     # NumPy arrays in and out, no copies
"""

from __future__ import annotations

import os
import sys
from typing import (
    TYPE_CHECKING, Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple, Union,
)  # fmt: skip

from . import _tacit
from ._tacit import Error, Tokenizer

if TYPE_CHECKING:
    from . import backend, onnxruntime, secure, torch, train  # noqa: F401
    from ._graph import Graph, Value, scan
    from .torch import from_torch
    from .train import TrainStep, train_step

__version__ = _tacit.version()
__all__ = [
    "About", "Error", "Graph", "Model", "Port", "Program", "Quantized", "Runner", "Session",
    "Tokenizer", "TrainStep", "Value", "View", "compile", "from_torch", "grad", "jvp", "load",
    "quantize", "runner", "scan", "show", "train_step", "vmap",
]  # fmt: skip

_EXECUTORS = {"serial": 0, "reference": 1, "tasks": 2}
_VALIDATE = {"normal": 0, "strict": 1, "none": 2}
_PLANS = {"min_memory": 0, "min_time": 1}
_VIEWS = {"graph": 0, "passes": 1, "plan": 2, "program": 3, "explain": 4}
_FORMATS = {"text": 0, "json": 1, "html": 2}


class Port(NamedTuple):
    """What a model takes or gives: sizes are ints, names of symbols, or None (the data tells).

    A sequence is a list of arrays, an optional is a value or None, a map is a dict."""

    name: str
    dtype: str
    shape: Optional[Tuple[Union[int, str, None], ...]]
    kind: str = "tensor"  # or "sequence", "optional", "map"


def _fail(status: str, message: str) -> Error:
    error = Error(message)
    error.status, error.message = status, message
    return error


def _choice(table: Dict[str, int], value: str, what: str) -> int:
    if value not in table:
        raise ValueError(f"{what} must be one of {', '.join(map(repr, table))}, not {value!r}")
    return table[value]


class About(NamedTuple):
    """What a file says about its model; "" (0, no pairs) where it says nothing."""

    graph_name: str
    graph_doc: str
    producer: str
    producer_version: str
    domain: str
    doc: str
    version: int
    metadata: Dict[str, str]


def _signature(ports: Sequence[Port]) -> str:
    def one(p: Port) -> str:
        shape = "?" if p.shape is None else ",".join("?" if d is None else str(d) for d in p.shape)
        return f"{p.name}: {p.dtype}[{shape}]"

    return "(" + ", ".join(map(one, ports)) + ")"


def _described(thing: Any) -> str:
    """The __repr__ of what has inputs and outputs; what is closed says so."""
    name = type(thing).__name__
    try:
        return f"<tacit.{name} {_signature(thing.inputs)} -> {_signature(thing.outputs)}>"
    except Error as e:
        return f"<tacit.{name}: {e}>"


class Model(_tacit.Model):
    """A graph as it was loaded or built. Immutable."""

    __slots__ = ()

    @property
    def inputs(self) -> List[Port]:
        return [Port(*p) for p in self._inputs()]

    @property
    def outputs(self) -> List[Port]:
        return [Port(*p) for p in self._outputs()]

    @property
    def weights(self) -> List[str]:
        """Names of the weights; weight(name) gives a copy of one."""
        return self._weight_names()

    @property
    def symbols(self) -> List[str]:
        """Names of the symbolic sizes of the inputs, in order of appearance."""
        found: Dict[str, None] = {}
        for port in self.inputs:
            for size in port.shape or ():
                if isinstance(size, str):
                    found[size] = None
        return list(found)

    @property
    def about(self) -> About:
        """What the file says about its model."""
        return About(*self._about())

    def compile(self, **options: Any) -> "Session":
        """See tacit.compile."""
        return compile(self, **options)

    def show(self) -> "View":
        return View(self.text())

    def _repr_html_(self) -> str:
        return self.show()._repr_html_()

    __repr__ = _described


class Program(_tacit.Program):
    """A model compiled for one choice of sizes and options. Immutable, shared by sessions."""

    __slots__ = ()

    @property
    def inputs(self) -> List[Port]:
        return [Port(*p) for p in self._inputs()]

    @property
    def outputs(self) -> List[Port]:
        return [Port(*p) for p in self._outputs()]

    def view(self, kind: str = "graph", format: str = "text", node: Optional[str] = None) -> str:
        """`kind`: graph, passes, plan, program or explain; `format`: text, json or html."""
        return self._view(_choice(_VIEWS, kind, "kind"), _choice(_FORMATS, format, "format"), node)

    def show(self, kind: str = "graph") -> "View":
        return View(self.view(kind), self.view(kind, "html"))

    def _repr_html_(self) -> str:
        return self.show()._repr_html_()

    __repr__ = _described


class Session(_tacit.Session):
    """Runs a program: session(array), session.run(x=array), session.run({"x": array}).

    One output comes as an array, several as a tuple. Any number of threads may call one session.
    """

    __slots__ = ()

    @property
    def inputs(self) -> List[Port]:
        return self.program.inputs

    @property
    def outputs(self) -> List[Port]:
        return self.program.outputs

    def show(self, kind: str = "graph") -> "View":
        """The program's views and, when profiling is on, where the time went."""
        view = self.program.show(kind)
        rows = self.profile_rows()
        return View(view.text + _profile_text(rows), view.html, rows)

    def _repr_html_(self) -> str:
        return self.show()._repr_html_()

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *unused: Any) -> None:
        self.close()

    __repr__ = _described


class Runner(_tacit.Runner):
    """Calls like a session, for whatever sizes the arrays have: see tacit.runner."""

    __slots__ = ()

    @property
    def inputs(self) -> List[Port]:
        return self.model.inputs

    @property
    def outputs(self) -> List[Port]:
        return self.model.outputs

    def profile_rows(self) -> List[Dict[str, Any]]:
        """One dict per kernel call of every program kept."""
        return [row for session in self.sessions for row in session.profile_rows()]

    def __enter__(self) -> "Runner":
        return self

    def __exit__(self, *unused: Any) -> None:
        self.close()

    __repr__ = _described


class View:
    """Something to look at: text in a terminal, a page in a notebook."""

    def __init__(self, text: str, html: Optional[str] = None, rows: Sequence[Any] = ()) -> None:
        self.text, self.html, self.rows = text, html, list(rows)

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from html import escape

        if self.html is None:
            return f"<pre>{escape(self.text)}</pre>"
        profile = f"<pre>{escape(_profile_text(self.rows))}</pre>" if self.rows else ""
        frame = '<iframe style="width:100%;height:40em;border:1px solid #ccc" srcdoc="{}"></iframe>'
        return frame.format(escape(self.html)) + profile


def _profile_text(rows: Sequence[Dict[str, Any]]) -> str:
    if not rows:
        return ""
    total = sum(r["nanoseconds"] for r in rows) or 1
    lines = ["", f"{'time':>12} {'share':>6} {'calls':>7}  op, kernel, node"]
    for r in sorted(rows, key=lambda r: -r["nanoseconds"]):
        lines.append(
            f"{r['nanoseconds'] / 1e3:>9.1f} us {100 * r['nanoseconds'] / total:>5.1f}% "
            f"{r['calls']:>7}  {r['op']}, {r['kernel']}, {r['node']}"
        )
    return "\n".join(lines) + "\n"


def load(source: Any, external_data_dir: Any = None) -> Model:
    """A model from a path, from bytes, or from an object with SerializeToString (onnx)."""
    if hasattr(source, "SerializeToString"):
        source = source.SerializeToString()
    if isinstance(source, (bytes, bytearray, memoryview)):
        extra = {} if external_data_dir is None else {"external_data_dir": external_data_dir}
        return _tacit.load_memory(bytes(source), **extra)
    return _tacit.load(os.fspath(source))


def _model(model: Any) -> Model:
    building = sys.modules.get(f"{__name__}._graph")
    if building is not None and isinstance(model, building.Graph):
        return model.model()
    return model if isinstance(model, Model) else load(model)


def compile(
    model: Any,
    dims: Optional[Dict[str, int]] = None,
    exec: str = "serial",
    threads: int = 0,
    strict: bool = False,
    validate: str = "normal",
    plan: str = "min_memory",
    disabled_passes: Sequence[str] = (),
    update_in_place: bool = False,
    plain_sums: bool = False,
    packed: Optional[str] = None,
    last: Sequence[str] = (),
    start_early: bool = False,
    batch_invariant: bool = False,
) -> Session:
    """Compiles a model (or what tacit.load or tacit.Graph make one of) and opens a session.

    `dims` gives sizes of symbolic dimensions; `exec` is "serial", "tasks" (threads=0: every core)
    or "reference" (slow and obvious); `strict` refuses arrays that would have to be copied. With
    `update_in_place` the array of an input NAME may be given for the output NAME.next, too.
    `plain_sums` sums products and convolutions term by term, as they are written, instead of taking
    faster ways that round differently. `packed` names a file that keeps the packed weights, so that
    the next process maps them ("auto": the model's name with .tacit-cache behind it). `last` names
    outputs of which only the last position (the axis before the last) is wanted. With `start_early`
    threads may still be packing weights when this returns; the first run waits for what it needs, and
    until it has ended the process must not fork and arrays used as weights must not change. With
    `batch_invariant` a row has the same bits whatever the batch it is in.
    """
    options = _options(
        dims, exec, threads, validate, plan, disabled_passes, update_in_place, plain_sums,
        packed, last, start_early, batch_invariant
    )
    return _model(model)._compile(*options).session(strict)


def runner(
    model: Any,
    dims: Optional[Dict[str, int]] = None,
    exec: str = "serial",
    threads: int = 0,
    strict: bool = False,
    validate: str = "normal",
    plan: str = "min_memory",
    disabled_passes: Sequence[str] = (),
    capacity: int = 8,
    buckets: Optional[Dict[str, int]] = None,
    plain_sums: bool = False,
    packed: Optional[str] = None,
    last: Sequence[str] = (),
    start_early: bool = False,
    batch_invariant: bool = False,
) -> Runner:
    """A model to call with arrays of any sizes: it is compiled once for every set of sizes met, and
    the programs of the last `capacity` sets are kept. `dims` fixes some of the symbolic sizes.

    `buckets`, {symbol: multiple}, rounds sizes up: fewer programs, some wasted work. Inputs are padded
    with zeros and outputs cut back, so it is for sizes where padding does not touch the rows that
    count (a batch; a sequence under a causal or padding mask). `plain_sums`, `packed`, `last`,
    `start_early` and `batch_invariant` as in tacit.compile.
    """
    options = _options(
        dims, exec, threads, validate, plan, disabled_passes, False, plain_sums, packed,
        last, start_early, batch_invariant
    )
    return _model(model)._runner(options, capacity, buckets, strict)


def _options(
    dims: Optional[Dict[str, int]],
    exec: str,
    threads: int,
    validate: str,
    plan: str,
    disabled_passes: Sequence[str],
    update_in_place: bool,
    plain_sums: bool,
    packed: Optional[str],
    last: Sequence[str],
    start_early: bool,
    batch_invariant: bool,
) -> Tuple[Any, ...]:
    return (
        dims,
        _choice(_EXECUTORS, exec, "exec"),
        threads,
        _choice(_VALIDATE, validate, "validate"),
        _choice(_PLANS, plan, "plan"),
        disabled_passes,
        update_in_place,
        plain_sums,
        packed,
        last,
        start_early,
        batch_invariant,
    )


def _names(names: Union[str, Iterable[str]]) -> Sequence[str]:
    return [names] if isinstance(names, str) else list(names)


def grad(
    model: Any,
    wrt: Union[str, Sequence[str]],
    dims: Optional[Dict[str, int]] = None,
    output: int = 0,
    with_loss: bool = False,
    seed: bool = False,
    checkpoints: Sequence[str] = (),
    memory_budget: int = 0,
) -> Model:
    """A model of the gradients of one output with respect to the inputs or weights in `wrt`.

    `with_loss` puts the loss first; `seed` adds an input d_output, so that the output need not be
    one number (a vector-Jacobian product). What lies between the values named in `checkpoints` is
    computed again instead of kept; a `memory_budget` in bytes chooses them.
    """
    return _model(model)._grad(
        _names(wrt), dims, output, with_loss, not seed, _names(checkpoints), memory_budget
    )


def jvp(model: Any, wrt: Union[str, Sequence[str]], dims: Optional[Dict[str, int]] = None) -> Model:
    """A model of the outputs, then their tangents; inputs tangent_<name> are added."""
    return _model(model)._jvp(_names(wrt), dims)


def vmap(
    model: Any, inputs: Union[str, Sequence[str]], size: int, dims: Optional[Dict[str, int]] = None
) -> Model:
    """A model whose named inputs, and all that depends on them, have a leading axis of `size`."""
    return _model(model)._vmap(_names(inputs), size, dims)


_STORAGE = {"int8": 0, "int4": 1, "bf16": 2, "f16": 3}


class Quantized(NamedTuple):
    """What tacit.quantize made: the model, how many layers changed, the bytes of their weights,
    and the root of the mean squared error over that of the weights."""

    model: Model
    layers: int
    bytes_before: int
    bytes_after: int
    weight_error: float


def quantize(
    model: Any,
    weights: str = "int8",
    block: int = 0,
    ranges: Optional[Dict[str, Tuple[float, float]]] = None,
) -> Quantized:
    """A model whose linear layers have weights in fewer bits: "int8", "int4", "bf16" or "f16".

    `block` weights share a scale (0: 32). With `ranges`, {value: (low, high)}, products whose left
    side has a range run on bytes on both sides.
    """
    plain = None
    if ranges is not None:
        plain = {name: (float(low), float(high)) for name, (low, high) in ranges.items()}
    made = _model(model)._quantize(_choice(_STORAGE, weights, "weights"), block, plain)
    return Quantized(*made)


def show(thing: Any, kind: str = "graph") -> View:
    """Text in a terminal, a page in a notebook: of a model, graph, program or session."""
    if isinstance(thing, (Program, Session)):
        return thing.show(kind)
    return _model(thing).show()


_tacit.configure(Model, Program, Session, Runner)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_tacit.forked)

# What needs NumPy, or more, comes when it is asked for: `import tacit` itself stays cheap.
_MODULES = ("_arrays", "_graph", "backend", "onnxruntime", "secure", "torch", "train")
_HOMES = {
    "Graph": "_graph", "Value": "_graph", "scan": "_graph",
    "TrainStep": "train", "train_step": "train", "from_torch": "torch",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    import importlib

    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _HOMES:
        value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'tacit' has no attribute {name!r}")
