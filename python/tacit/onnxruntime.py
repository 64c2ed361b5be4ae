# SPDX-License-Identifier: Apache-2.0
"""The part of ONNX Runtime's Python interface that inference uses, on Tacit.

    import tacit.onnxruntime as ort      # instead of: import onnxruntime as ort
"""

from __future__ import annotations

import enum
import json
import os
import time
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Union

import numpy as np

from . import Error, Port, __version__, _arrays, _fail, load, runner  # noqa: F401

_TYPES = {
    "f32": "float", "f64": "double", "f16": "float16", "bf16": "bfloat16",
    "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
    "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64",
    "bool": "bool", "string": "string", "c64": "complex64", "c128": "complex128",
    "f8e4m3fn": "float8e4m3fn", "f8e4m3fnuz": "float8e4m3fnuz", "f8e5m2": "float8e5m2",
    "f8e5m2fnuz": "float8e5m2fnuz", "i4": "int4", "u4": "uint4",
}  # fmt: skip


class GraphOptimizationLevel(enum.IntEnum):
    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(enum.IntEnum):
    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class SessionOptions:
    """Threads, profiling and the optimisation level mean what they say; the rest is remembered."""

    def __init__(self) -> None:
        self.intra_op_num_threads = 0
        self.inter_op_num_threads = 0
        self.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_ALL
        self.execution_mode = ExecutionMode.ORT_SEQUENTIAL
        self.enable_profiling = False
        self.profile_file_prefix = "onnxruntime_profile_"
        self.enable_mem_pattern = True
        self.enable_cpu_mem_arena = True
        self.log_severity_level = 2
        self.logid = ""
        self._entries: Dict[str, str] = {}
        self._sizes: Dict[str, int] = {}

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """This symbol has that size in every run."""
        self._sizes[name] = int(size)

    def add_session_config_entry(self, key: str, value: str) -> None:
        self._entries[key] = value

    def get_session_config_entry(self, key: str) -> str:
        return self._entries[key]


class RunOptions:
    def __init__(self) -> None:
        self.log_severity_level = 2
        self.logid = ""
        self._entries: Dict[str, str] = {}

    def add_run_config_entry(self, key: str, value: str) -> None:
        self._entries[key] = value

    def get_run_config_entry(self, key: str) -> str:
        return self._entries[key]


class NodeArg(NamedTuple):
    name: str
    shape: Optional[List[Union[int, str, None]]]
    type: str


def _node_arg(port: Port, sizes: Dict[str, int]) -> NodeArg:
    shape = None
    if port.shape is not None:
        shape = [sizes.get(d, d) if isinstance(d, str) else d for d in port.shape]
    tensor = f"tensor({_TYPES.get(port.dtype, port.dtype)})"
    kinds = {"sequence": f"seq({tensor})", "optional": f"optional({tensor})"}
    return NodeArg(port.name, shape, kinds.get(port.kind, tensor))


class ModelMetadata(NamedTuple):
    producer_name: str
    graph_name: str
    domain: str
    description: str
    graph_description: str
    version: int
    custom_metadata_map: Dict[str, str]


class OrtValue:
    """An array with ONNX Runtime's methods. The array is shared, not copied."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    @staticmethod
    def ortvalue_from_numpy(array: Any, device_type: str = "cpu", device_id: int = 0) -> "OrtValue":
        _only_cpu(device_type)
        return OrtValue(np.ascontiguousarray(array).reshape(np.shape(array)))

    @staticmethod
    def ortvalue_from_shape_and_type(
        shape: Sequence[int], element_type: Any, device_type: str = "cpu", device_id: int = 0
    ) -> "OrtValue":
        _only_cpu(device_type)
        return OrtValue(np.empty(tuple(shape), element_type))

    def numpy(self) -> np.ndarray:
        return self._array

    def shape(self) -> List[int]:
        return list(self._array.shape)

    def data_ptr(self) -> int:
        return self._array.ctypes.data

    def device_name(self) -> str:
        return "cpu"

    def is_tensor(self) -> bool:
        return True

    def has_value(self) -> bool:
        return True

    def data_type(self) -> str:
        return f"tensor({_TYPES[_arrays.text_of(self._array.dtype)]})"

    def update_inplace(self, array: np.ndarray) -> None:
        np.copyto(self._array, array)

    @property
    def __array_struct__(self) -> Any:
        return self._array.__array_struct__

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.asarray(self._array, dtype)


def _only_cpu(device: str) -> None:
    if device != "cpu":
        raise _fail("ERR_UNSUPPORTED", f"this interface runs on the cpu, not on '{device}'")


class IOBinding:
    """Inputs and outputs tied to arrays, for run_with_iobinding."""

    def __init__(self, session: "InferenceSession") -> None:
        self._names = [port.name for port in session._runner.outputs]
        self._inputs: Dict[str, np.ndarray] = {}
        self._outputs: Dict[str, Optional[np.ndarray]] = {}
        self._results: List[np.ndarray] = []

    def bind_cpu_input(self, name: str, array: np.ndarray) -> None:
        self._inputs[name] = array

    def bind_ortvalue_input(self, name: str, value: OrtValue) -> None:
        self._inputs[name] = value.numpy()

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: Any,
        shape: Sequence[int], buffer_ptr: int,
    ) -> None:  # fmt: skip
        _only_cpu(device_type)
        self._inputs[name] = _arrays.at(buffer_ptr, element_type, shape)

    def bind_output(
        self, name: str, device_type: str = "cpu", device_id: int = 0, element_type: Any = None,
        shape: Optional[Sequence[int]] = None, buffer_ptr: Optional[int] = None,
    ) -> None:  # fmt: skip
        _only_cpu(device_type)
        if buffer_ptr is None or shape is None:
            self._outputs[name] = None
        else:
            self._outputs[name] = _arrays.at(buffer_ptr, element_type, shape)

    def bind_ortvalue_output(self, name: str, value: OrtValue) -> None:
        self._outputs[name] = value.numpy()

    def clear_binding_inputs(self) -> None:
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        self._outputs.clear()

    def synchronize_inputs(self) -> None:
        """Nothing is ever under way on a cpu."""

    def synchronize_outputs(self) -> None:
        """Nothing is ever under way on a cpu."""

    def get_outputs(self) -> List[OrtValue]:
        return [OrtValue(a) for a in self._results]

    def copy_outputs_to_cpu(self) -> List[np.ndarray]:
        return list(self._results)


class InferenceSession:
    """onnxruntime.InferenceSession: models with symbolic sizes are compiled for each set of sizes
    they meet (the newest few are kept)."""

    def __init__(
        self,
        path_or_bytes: Any,
        sess_options: Optional[SessionOptions] = None,
        providers: Optional[Sequence[Any]] = None,
        provider_options: Optional[Sequence[Any]] = None,
        **kwargs: Any,
    ) -> None:
        self._options = sess_options or SessionOptions()
        threads = int(self._options.intra_op_num_threads)
        off = self._options.graph_optimization_level == GraphOptimizationLevel.ORT_DISABLE_ALL
        model = load(path_or_bytes)
        sizes = self._options._sizes
        self._sizes = {name: sizes[name] for name in model.symbols if name in sizes}
        self._runner = runner(
            model,
            dims=self._sizes,
            exec="serial" if threads == 1 else "tasks",
            threads=max(threads, 0),
            disabled_passes=["all"] if off else [],
        )
        self._about = model.about
        self._results = self._runner.results
        self._names = [port.name for port in self._runner.outputs]
        self._started = time.time_ns()
        if self._options.enable_profiling:
            self._runner.profile()

    def get_inputs(self) -> List[NodeArg]:
        return [_node_arg(p, self._sizes) for p in self._runner.inputs]

    def get_outputs(self) -> List[NodeArg]:
        return [_node_arg(p, self._sizes) for p in self._runner.outputs]

    def get_overridable_initializers(self) -> List[NodeArg]:
        return []

    def get_modelmeta(self) -> ModelMetadata:
        about = self._about
        return ModelMetadata(
            producer_name=about.producer,
            graph_name=about.graph_name,
            domain=about.domain,
            description=about.doc,
            graph_description=about.graph_doc,
            version=about.version,
            custom_metadata_map=dict(about.metadata),
        )

    def get_providers(self) -> List[str]:
        return get_available_providers()

    def get_provider_options(self) -> Dict[str, Dict[str, str]]:
        return {name: {} for name in get_available_providers()}

    def get_session_options(self) -> SessionOptions:
        return self._options

    def run(
        self,
        output_names: Optional[Sequence[str]],
        input_feed: Dict[str, Any],
        run_options: Optional[RunOptions] = None,
    ) -> List[Any]:
        try:
            results = self._results(input_feed, None)
        except Error as error:
            raise self._explain(error, input_feed) from None
        if not output_names:
            return results
        return [results[self._position(name)] for name in output_names]

    def _explain(self, error: Error, feed: Dict[str, Any]) -> Exception:
        missing = sorted({port.name for port in self._runner.inputs} - feed.keys())
        if not missing or error.status != "ERR_ARGUMENT":
            return error
        return ValueError(
            f"Required inputs ({missing}) are missing from input feed ({sorted(feed)})."
        )

    def _position(self, name: str) -> int:
        try:
            return self._names.index(name)
        except ValueError:
            raise _fail("ERR_ARGUMENT", f"Invalid output name: {name}") from None

    def run_with_ort_values(
        self,
        output_names: Optional[Sequence[str]],
        input_dict_ort_values: Dict[str, OrtValue],
        run_options: Optional[RunOptions] = None,
    ) -> List[OrtValue]:
        return [OrtValue(a) for a in self.run(output_names, input_dict_ort_values)]

    def io_binding(self) -> IOBinding:
        return IOBinding(self)

    def run_with_iobinding(
        self, iobinding: IOBinding, run_options: Optional[RunOptions] = None
    ) -> None:
        wanted = [self._position(name) for name in iobinding._outputs]
        given = tuple(iobinding._outputs.get(name) for name in self._names)
        results = self._results(iobinding._inputs, given)
        iobinding._results = [results[i] for i in wanted]

    def end_profiling(self) -> str:
        """Writes the profile as trace events (total time and calls of each node); its name."""
        path = f"{self._options.profile_file_prefix}{time.strftime('%Y-%m-%d_%H-%M-%S')}.json"
        events, at = [], 0.0
        for row in self._runner.profile_rows():
            duration = row["nanoseconds"] / 1e3
            events.append(
                {
                    "cat": "Node",
                    "pid": os.getpid(),
                    "tid": 0,
                    "dur": duration,
                    "ts": at,
                    "ph": "X",
                    "name": f"{row['node']}_kernel_time",
                    "args": {
                        "op_name": row["op"],
                        "kernel": row["kernel"],
                        "calls": row["calls"],
                        "provider": "CPUExecutionProvider",
                    },
                }
            )
            at += duration
        with open(path, "w", encoding="utf-8") as file:
            json.dump(events, file)
        return path

    def get_profiling_start_time_ns(self) -> int:
        return self._started


def get_available_providers() -> List[str]:
    return ["CPUExecutionProvider"]


def get_all_providers() -> List[str]:
    return get_available_providers()


def get_device() -> str:
    return "CPU"


def set_default_logger_severity(severity: int) -> None:
    """Tacit logs nothing unless it is given a sink."""
