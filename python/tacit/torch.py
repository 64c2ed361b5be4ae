# SPDX-License-Identifier: Apache-2.0
"""torch.export to a model: placeholders, then one handler per ATen operator, then outputs.

    model = tacit.from_torch(module, (x,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    session = tacit.compile(model, dims={"batch": 8})

Parameters are used where torch keeps them; a model compiled later sees their new values."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import operator
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import numpy as np
import torch

from . import Model, _arrays, _aten_layers, _fail  # noqa: F401 (its handlers join the table)
from ._aten import HANDLERS, IGNORED, VIEWS, Sym, Tensor, Unsupported
from ._graph import Graph, Value

_TEXTS = {
    torch.float64: "f64", torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16",
    torch.int8: "i8", torch.int16: "i16", torch.int32: "i32", torch.int64: "i64",
    torch.uint8: "u8", torch.bool: "bool", torch.complex64: "c64", torch.complex128: "c128",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Missing:
    """An operator without a handler: how often it is used, and where from."""

    op: str
    count: int
    where: List[str]


def _name(target: Any) -> str:
    if getattr(target, "__module__", "") in ("_operator", "operator"):
        return f"operator.{target.__name__}"
    return str(target)


def _where(node: Any) -> str:
    """The innermost module and source line that made a node."""
    stack = node.meta.get("nn_module_stack") or {}
    module = list(stack.values())[-1][0] if stack else ""
    trace = [line.strip() for line in (node.meta.get("stack_trace") or "").splitlines()]
    line = trace[-1] if trace else ""
    return f"{module}: {line}" if module and line else module or line or node.name


def _known(node: Any) -> bool:
    name = _name(node.target)
    return name in HANDLERS or name in IGNORED or node.target is operator.getitem


def coverage(exported: Any) -> List[Missing]:
    """Operators of an exported program that have no handler, the most frequent first."""
    found: Dict[str, List[str]] = collections.defaultdict(list)
    for node in exported.graph.nodes:
        if node.op == "call_function" and not _known(node):
            found[_name(node.target)].append(_where(node))
    rows = [Missing(op, len(where), sorted(set(where))) for op, where in found.items()]
    return sorted(rows, key=lambda row: (-row.count, row.op))


class _Walk:
    """The graph under construction and the node at hand; what handlers see as `c`."""

    def __init__(self, exported: Any, names: Dict[str, str]) -> None:
        self.exported, self.symbol_names = exported, names
        self.graph = Graph(type(exported).__name__)
        self.env: Dict[Any, Any] = {}
        self.name, self.dtype, self.rank = "", "", 0
        self.result: Any = None

    # --- for handlers

    def value(self, thing: Any) -> Any:
        return thing.value if isinstance(thing, (Tensor, Sym)) else thing

    def op(self, op: str, *inputs: Any, **attrs: Any) -> Value:
        values = [self.value(i) for i in inputs]
        while values and values[-1] is None:
            values.pop()
        return self.graph.node(op, *values, **attrs)

    def cast(self, value: Value, dtype: str) -> Value:
        return value.astype(dtype)

    def scalar(self, thing: Any, dtype: str) -> Value:
        """A number or size as a tensor of no axes."""
        if isinstance(thing, Tensor):
            return self.as_type(thing, dtype)
        if isinstance(thing, Sym):
            made = self.op("Squeeze", thing, np.array([0], np.int64))
            return made if dtype == "i64" else self.cast(made, dtype)
        return self.graph.constant(np.array(thing).astype(_arrays.dtypes[dtype]))

    def as_type(self, thing: Any, dtype: str) -> Value:
        if not isinstance(thing, Tensor):
            return thing if isinstance(thing, Value) else self.scalar(thing, dtype)
        return thing.value if thing.dtype == dtype else self.cast(thing.value, dtype)

    def common(self, a: Tensor, b: Any) -> str:
        """The type torch compares two things in."""
        if not isinstance(b, Tensor):
            example: Any = 0 if isinstance(b, Sym) else b
        else:
            example = torch.empty([1] * min(b.rank, 1), dtype=_DTYPES[b.dtype])
        mine = torch.empty([1] * min(a.rank, 1), dtype=_DTYPES[a.dtype])
        return _TEXTS[torch.result_type(mine, example)]

    def size(self, a: Tensor, axis: int) -> Any:
        if a.shape[axis] is not None:
            return a.shape[axis]
        return Sym(self.op("Shape", a, start=axis, end=axis + 1))

    def sizes(self, sizes: Sequence[Any]) -> Any:
        """A shape operand: a constant where it is one."""
        if all(isinstance(s, int) for s in sizes):
            return np.array(list(sizes), np.int64)
        parts = [s.value if isinstance(s, Sym) else np.array([s], np.int64) for s in sizes]
        return parts[0] if len(parts) == 1 else self.op("Concat", *parts, axis=0)

    # --- the three phases

    def _shape(self, fake: Any) -> List[Optional[int]]:
        return [d if isinstance(d, int) else None for d in fake.shape]

    def _input_shape(self, fake: Any) -> Tuple[Any, ...]:
        return tuple(
            d if isinstance(d, int) else self.symbol_names.get(str(d), str(d)) for d in fake.shape
        )

    def wrap(self, value: Any, fake: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [self.wrap(v, f) for v, f in zip(value, fake)]
        if not isinstance(value, Value) or not isinstance(fake, torch.Tensor):
            return value
        value.dtype = _TEXTS[fake.dtype]
        return Tensor(value, _TEXTS[fake.dtype], self._shape(fake))

    def placeholders(self) -> None:
        sig = self.exported.graph_signature
        state, constants = self.exported.state_dict, self.exported.constants
        stored: Dict[str, Any] = {}
        for table in (sig.inputs_to_parameters, sig.inputs_to_buffers):
            for name, target in table.items():
                stored[name] = state[target] if target in state else constants[target]
        for name, target in sig.inputs_to_lifted_tensor_constants.items():
            stored[name] = constants[target]
        for node in self.exported.graph.nodes:
            if node.op != "placeholder":
                continue
            fake = node.meta.get("val")
            if node.name in stored:
                array = _arrays.from_dlpack(stored[node.name].contiguous())
                value = self.graph.weight(node.name, array)
                self.env[node] = self.wrap(value, stored[node.name])
            elif isinstance(fake, torch.Tensor):
                value = self.graph.input(node.name, _TEXTS[fake.dtype], self._input_shape(fake))
                self.env[node] = self.wrap(value, fake)
            else:
                self.env[node] = fake

    def _resolve(self, argument: Any) -> Any:
        if isinstance(argument, torch.fx.Node):
            return self.env[argument]
        if isinstance(argument, (list, tuple)):
            return [self._resolve(a) for a in argument]
        return argument

    def _in_place(self, node: Any) -> None:
        """relu_ and the like: later readers of the argument see the result."""
        changed = node.args[0]
        base = _name(changed.target).split(".")
        aliased = changed.op != "call_function" or (len(base) > 1 and base[1] in VIEWS)
        seen = any(
            len(_name(u.target).split(".")) > 1 and _name(u.target).split(".")[1] in VIEWS
            for u in changed.users
            if u.op == "call_function" and u is not node and u < node
        )
        if aliased or seen:
            raise Unsupported("changing a view in place")
        self.env[changed] = self.env[node]

    def compute(self) -> None:
        for node in self.exported.graph.nodes:
            if node.op != "call_function":
                continue
            self.name = _name(node.target)
            if self.name in IGNORED:
                self.env[node] = None
                continue
            args = [self._resolve(a) for a in node.args]
            named = {k: self._resolve(a) for k, a in node.kwargs.items()}
            if node.target is operator.getitem:
                self.env[node] = args[0][args[1]]
                continue
            self.result = node.meta.get("val")
            first = self.result[0] if isinstance(self.result, (list, tuple)) else self.result
            if isinstance(first, torch.Tensor):
                self.dtype, self.rank = _TEXTS[first.dtype], first.dim()
            try:
                made = HANDLERS[self.name](self, *args, **named)
                self.env[node] = self.wrap(made, self.result)
                if self.name.split(".")[1].endswith("_") and not self.name.startswith("aten.__"):
                    self._in_place(node)
            except Unsupported as problem:
                raise _fail(
                    "ERR_UNSUPPORTED", f"{self.name}: {problem} (in {_where(node)})"
                ) from None

    def outputs(self) -> None:
        import torch.utils._pytree as pytree

        node = next(n for n in self.exported.graph.nodes if n.op == "output")
        specs = self.exported.graph_signature.output_specs
        user = [
            (spec.arg.name if hasattr(spec.arg, "name") else None, arg)
            for spec, arg in zip(specs, node.args[0])
            if spec.kind.name == "USER_OUTPUT"
        ]
        names: List[str] = [f"output_{i}" if len(user) > 1 else "output" for i in range(len(user))]
        tree = pytree.tree_unflatten(list(range(len(user))), self.exported.call_spec.out_spec)
        if isinstance(tree, dict):
            for key, position in tree.items():
                if isinstance(position, int):
                    names[position] = str(key)
        for name, (_, argument) in zip(names, user):
            thing = self._resolve(argument)
            if isinstance(thing, Tensor):
                self.graph.output(name, thing.value)


_DTYPES = {text: dtype for dtype, text in _TEXTS.items()}


def _tensor_specs(specs: Any) -> List[Any]:
    """The specifications of single tensors inside those of nested arguments, in order."""
    parts = list(specs.values() if isinstance(specs, dict) else specs)
    made: List[Any] = []
    for part in parts:
        nested = isinstance(part, (list, tuple)) and all(
            p is None or isinstance(p, (dict, list, tuple)) for p in part
        )
        named = isinstance(part, dict) and any(isinstance(key, str) for key in part)
        made += _tensor_specs(part) if (nested and part) or named else [part]
    return made


def _dim_names(exported: Any, dynamic_shapes: Any) -> Dict[str, str]:
    """torch calls symbols s77; where the caller named a Dim, its name is kept."""
    user = set(exported.graph_signature.user_inputs)
    fakes = [n.meta["val"] for n in exported.graph.nodes if n.op == "placeholder" and n.name in user]
    if dynamic_shapes is None:
        return {}
    specs = _tensor_specs(dynamic_shapes)
    names: Dict[str, str] = {}
    for fake, spec in zip([f for f in fakes if isinstance(f, torch.Tensor)], specs):
        items = spec.items() if isinstance(spec, dict) else enumerate(spec or ())
        for axis, dim in items:
            size = fake.shape[axis]
            given = dim if isinstance(dim, str) else getattr(dim, "__name__", None)
            if given and not isinstance(size, int):
                names.setdefault(str(size), given)
    return names


@contextlib.contextmanager
def _without_cache(module: Any) -> Iterator[None]:
    """Hugging Face models return their key-value cache unless told not to; it is no tensor."""
    config: Any = getattr(module, "config", None)
    if getattr(config, "use_cache", False) is not True:
        yield
        return
    config.use_cache = False
    try:
        yield
    finally:
        config.use_cache = True


def from_exported(exported: Any, dynamic_shapes: Any = None) -> Model:
    """A model from a torch.export.ExportedProgram."""
    names = _dim_names(exported, dynamic_shapes)
    missing = coverage(exported)
    tried: set = set()
    # The rare ones, as torch itself spells them out; what that uses may have to be spelled out too.
    while any(row.op not in tried for row in missing):
        tried |= {row.op for row in missing}
        table = torch.export.default_decompositions()
        exported = exported.run_decompositions(
            {op: table[op] for op in list(table.keys()) if str(op) in tried}
        )
        missing = coverage(exported)
    if missing:
        rows = "; ".join(f"{m.op} ({m.count}, {m.where[0]})" for m in missing)
        raise _fail("ERR_UNSUPPORTED", f"no handler for {rows}")
    walk = _Walk(exported, names)
    walk.placeholders()
    walk.compute()
    walk.outputs()
    return walk.graph.model()


def from_torch(
    module: Any,
    example_inputs: Tuple[Any, ...],
    example_kwargs: Optional[Dict[str, Any]] = None,
    dynamic_shapes: Any = None,
) -> Model:
    """A model from a torch module, by torch.export. The module is exported as for inference."""
    training = module.training
    module.eval()
    try:
        with torch.no_grad(), _without_cache(module):
            exported = torch.export.export(
                module, tuple(example_inputs), example_kwargs, dynamic_shapes=dynamic_shapes
            )
    finally:
        module.train(training)
    return from_exported(exported, dynamic_shapes)
