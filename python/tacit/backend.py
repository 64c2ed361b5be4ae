# SPDX-License-Identifier: Apache-2.0
"""onnx.backend.base.Backend on Tacit: tacit.backend.prepare(model).run(inputs)."""

from __future__ import annotations

from typing import Any, Sequence, Tuple

import numpy as np
from onnx import ModelProto, NodeProto, helper
from onnx.backend.base import Backend, BackendRep

from . import Model, load, runner


class TacitRep(BackendRep):
    def __init__(self, model: Model, **options: Any) -> None:
        self.runner = runner(model, **options)

    def run(self, inputs: Any, **kwargs: Any) -> Tuple[Any, ...]:
        """Inputs by position, or by name in a dict."""
        if not isinstance(inputs, dict):
            values = inputs if isinstance(inputs, (list, tuple)) else [inputs]
            inputs = dict(zip((p.name for p in self.runner.inputs), values))
        return tuple(self.runner.results(inputs, None))


class TacitBackend(Backend):
    """Every graph, on the cpu: sequences are lists, an empty optional is None, maps are dicts."""

    @classmethod
    def is_compatible(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        return cls.supports_device(device)

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> TacitRep:
        if not cls.supports_device(device):
            raise ValueError(f"no such device: {device}")
        return TacitRep(load(model), **kwargs)

    @classmethod
    def run_model(
        cls, model: ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any
    ) -> Tuple[Any, ...]:
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: NodeProto,
        inputs: Sequence[Any],
        device: str = "CPU",
        outputs_info: Any = None,
        **kwargs: Any,
    ) -> Tuple[Any, ...]:
        opset = kwargs.pop("opset_version", None)
        arrays = [np.asarray(a) for a in inputs]
        names = [n for n in node.input if n]
        given = [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for name, array in zip(names, arrays)
        ]
        made = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
        graph = helper.make_graph([node], "node", given, made)
        imports = [helper.make_opsetid(node.domain, opset)] if opset else None
        model = helper.make_model(graph, **({"opset_imports": imports} if imports else {}))
        return cls.run_model(model, dict(zip(names, arrays)), device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device.split(":")[0] == "CPU"


is_compatible = TacitBackend.is_compatible
prepare = TacitBackend.prepare
run_model = TacitBackend.run_model
run_node = TacitBackend.run_node
supports_device = TacitBackend.supports_device
