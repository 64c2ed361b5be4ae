# SPDX-License-Identifier: Apache-2.0
"""Arrays by name in a .safetensors file: a length, a JSON header, the bytes."""

from __future__ import annotations

import json
import os
import tempfile
from typing import Any, Dict, Tuple

import numpy as np

from . import _arrays, _fail

_NAMES = {
    "f64": "F64", "f32": "F32", "f16": "F16", "bf16": "BF16", "f8e4m3fn": "F8_E4M3",
    "f8e5m2": "F8_E5M2", "i64": "I64", "i32": "I32", "i16": "I16", "i8": "I8",
    "u64": "U64", "u32": "U32", "u16": "U16", "u8": "U8", "bool": "BOOL",
}  # fmt: skip
_TEXTS = {name: text for text, name in _NAMES.items()}


def save(path: Any, arrays: Dict[str, np.ndarray], metadata: Dict[str, str]) -> None:
    """Whole or not at all: a new file takes the place of the old one."""
    header: Dict[str, Any] = {"__metadata__": metadata}
    at = 0
    for name, array in arrays.items():
        text = _arrays.text_of(array.dtype)
        if text not in _NAMES:
            raise TypeError(f"a safetensors file cannot hold '{name}' of {text}")
        header[name] = {
            "dtype": _NAMES[text], "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]
        }  # fmt: skip
        at += array.nbytes
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    path = os.fspath(path)
    handle, fresh = tempfile.mkstemp(dir=os.path.dirname(os.path.abspath(path)), suffix=".new")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(len(head).to_bytes(8, "little") + head)
            for array in arrays.values():
                file.write(np.ascontiguousarray(array).tobytes())
        os.replace(fresh, path)
    except BaseException:
        os.unlink(fresh)
        raise


def load(path: Any) -> Tuple[Dict[str, np.ndarray], Dict[str, str]]:
    data = np.fromfile(os.fspath(path), np.uint8)
    size = int.from_bytes(data[:8].tobytes(), "little") if data.size >= 8 else -1
    if not 0 < size <= data.size - 8:
        raise _fail("ERR_FORMAT", f"{os.fspath(path)} is no safetensors file")
    try:
        header = json.loads(data[8 : 8 + size].tobytes())
        metadata = header.pop("__metadata__", {})
        arrays = {name: _array(entry, data[8 + size :]) for name, entry in header.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise _fail("ERR_FORMAT", f"{os.fspath(path)}: {e}") from e
    return arrays, metadata


def _array(entry: Dict[str, Any], data: np.ndarray) -> np.ndarray:
    start, end = entry["data_offsets"]
    if not 0 <= start <= end <= data.size:
        raise ValueError("a tensor lies outside the file")
    dtype = _arrays.dtypes[_TEXTS[entry["dtype"]]]
    return np.frombuffer(data[start:end].tobytes(), dtype).reshape(entry["shape"])
