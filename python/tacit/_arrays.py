# SPDX-License-Identifier: Apache-2.0
"""Arrays the extension cannot take as they are: made dense, packed or unpacked here."""

from __future__ import annotations

import sys
import warnings
from typing import Any, Optional

import numpy as np

from . import _tacit

# Element types by their text; NumPy knows the first group, ml_dtypes (where installed) the second.
NUMPY_NAMES = {
    "f64": "float64", "f32": "float32", "f16": "float16",
    "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
    "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64",
    "bool": "bool", "c64": "complex64", "c128": "complex128", "string": "object",
}  # fmt: skip
ML_NAMES = {
    "bf16": "bfloat16",
    "f8e4m3fn": "float8_e4m3fn", "f8e4m3fnuz": "float8_e4m3fnuz",
    "f8e5m2": "float8_e5m2", "f8e5m2fnuz": "float8_e5m2fnuz", "f8e8m0": "float8_e8m0fnu",
    "f4e2m1": "float4_e2m1fn", "u4": "uint4", "i4": "int4", "u2": "uint2", "i2": "int2",
}  # fmt: skip
BITS = {"f4e2m1": 4, "u4": 4, "i4": 4, "u2": 2, "i2": 2}  # the packed ones
_RAW = {"bf16": np.uint16}  # without ml_dtypes: the bits, as unsigned integers


def _ml_dtypes() -> Any:
    try:
        import ml_dtypes
    except ImportError:
        return None
    return ml_dtypes


class _Dtypes(dict):
    """{text: numpy.dtype}. ml_dtypes is imported when one of its types is first asked for."""

    def fill(self) -> None:
        for text, name in NUMPY_NAMES.items():
            self[text] = np.dtype(name)
        ml = _ml_dtypes()
        for text, name in ML_NAMES.items():
            kind = getattr(ml, name, None)
            self[text] = np.dtype(kind if kind is not None else _RAW.get(text, np.uint8))


dtypes = _Dtypes()
dtypes.fill()


def text_of(dtype: Any) -> str:
    """The text ("f32") of a text, a numpy dtype, or anything numpy.dtype takes."""
    if isinstance(dtype, str) and dtype in dtypes:
        return dtype
    if isinstance(dtype, str) and dtype in ML_NAMES.values():
        return next(text for text, name in ML_NAMES.items() if name == dtype)
    wanted = np.dtype(dtype)
    for text, known in dtypes.items():
        if known == wanted and (text in NUMPY_NAMES or known.kind not in "ui"):
            return text
    if wanted.kind in "OUST":
        return "string"
    raise TypeError(f"Tacit has no element type for {wanted}")


def pack(array: np.ndarray, text: str) -> np.ndarray:
    """One element per item to packed bytes, the first element in the low bits."""
    bits = BITS[text]
    per = 8 // bits
    raw = np.ascontiguousarray(array).reshape(-1)
    raw = raw.view(np.uint8) if raw.dtype.itemsize == 1 else raw.astype(np.int8).view(np.uint8)
    raw = raw & ((1 << bits) - 1)
    rows = np.concatenate([raw, np.zeros(-raw.size % per, np.uint8)]).reshape(-1, per)
    out = np.zeros(rows.shape[0], np.uint8)
    for i in range(per):
        out |= rows[:, i] << np.uint8(bits * i)
    return out


def unpack(storage: Any, text: str, shape: tuple) -> np.ndarray:
    """The other way round; a list of strings becomes an array of objects."""
    if text == "string":
        array = np.empty(len(storage), object)
        array[:] = storage
        return array.reshape(shape)
    bits = BITS[text]
    count = int(np.prod(shape, dtype=np.int64))
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    raw = ((storage[:, None] >> shifts) & ((1 << bits) - 1)).reshape(-1)[:count].reshape(shape)
    kind = dtypes[text]
    if text in ("i4", "i2"):  # sign
        raw = ((raw ^ (1 << (bits - 1))).astype(np.int8) - (1 << (bits - 1))).astype(np.int8)
        return raw.astype(kind) if kind != np.uint8 else raw
    return raw.astype(np.uint8).view(kind) if kind.itemsize == 1 else raw.astype(kind)


def _strings(array: np.ndarray) -> list:
    return [
        s if isinstance(s, bytes) else str(s).encode("utf-8") for s in array.reshape(-1).tolist()
    ]


def _as_array(value: Any, text: str) -> np.ndarray:
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "__array_interface__") or hasattr(value, "__array_struct__"):
        return np.asarray(value)
    if hasattr(value, "__dlpack__"):
        return from_dlpack(value)
    try:
        memoryview(value)
    except TypeError:
        # Python numbers and lists have no element type of their own: they take the input's.
        return np.asarray(value, None if text in BITS or text == "string" else dtypes.get(text))
    return np.asarray(value)


def from_dlpack(value: Any) -> np.ndarray:
    """A NumPy view of a tensor of another library. bfloat16, which NumPy cannot take over DLPack,
    goes by its bits where the library can show them."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        value = value.detach()
        if value.dtype == torch.bfloat16:
            return value.view(torch.int16).numpy().view(dtypes["bf16"])
        return value.numpy()
    return np.from_dlpack(value)


_warned = False


def dense(array: np.ndarray, what: str, strict: bool) -> np.ndarray:
    """C order, aligned, this machine's byte order. A copy is told once per process."""
    global _warned
    flags = array.flags
    if flags.c_contiguous and flags.aligned and array.dtype.isnative:
        return array
    if strict:
        from . import _fail

        raise _fail(
            "ERR_ARGUMENT",
            f"{what} is not dense (C order, aligned, native bytes), and strict is on",
        )
    if not _warned:
        _warned = True
        warnings.warn(
            f"{what} is not dense: it is copied on every run (strict=True refuses it)",
            RuntimeWarning,
            stacklevel=3,
        )
    return np.ascontiguousarray(array, array.dtype.newbyteorder("=")).reshape(array.shape)


def at(pointer: int, dtype: Any, shape: Any) -> np.ndarray:
    """The array that lies at an address; the caller keeps its owner."""
    import ctypes

    kind = np.dtype(dtype)
    size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    memory: Any = (ctypes.c_char * size).from_address(pointer)
    return np.frombuffer(memory, kind).reshape(tuple(shape))


def place(value: Any) -> Optional[np.ndarray]:
    """The memory of another library's tensor as an array to write into; None: it has none."""
    if isinstance(value, np.ndarray):
        return None
    if hasattr(value, "__dlpack__"):
        array = from_dlpack(value)
        # Before 2.1 NumPy made every tensor read-only; producers refuse to export those that are.
        old = np.lib.NumpyVersion(np.__version__) < "2.1.0"
        if old and array.flags.c_contiguous:
            return at(array.ctypes.data, array.dtype, array.shape)
        return array
    try:
        return np.asarray(memoryview(value))
    except TypeError:
        return None


def convert(value: Any, text: str, name: str, strict: bool) -> Any:
    """What the extension asks for when an argument is no dense array: an array, or for strings and
    packed types (storage, shape)."""
    array = _as_array(value, text)
    if text == "string" and array.dtype.kind in "OUST":
        return _strings(array), tuple(array.shape)
    if text in BITS and array.dtype in (dtypes[text], np.dtype(np.uint8), np.dtype(np.int8)):
        return pack(array, text), tuple(array.shape)
    return dense(array, f"input '{name}'", strict)


def constant(value: Any, dtype: Optional[Any] = None) -> np.ndarray:
    """A dense array for a constant of a graph: Python numbers are f32, i64 or bool."""
    if dtype is not None:
        value = np.asarray(value, dtypes[text_of(dtype)])
    elif isinstance(value, float) or (
        isinstance(value, (list, tuple)) and np.asarray(value).dtype == np.float64
    ):
        value = np.asarray(value, np.float32)
    array = _as_array(value, "")
    return np.ascontiguousarray(array, array.dtype.newbyteorder("=")).reshape(array.shape)


_tacit.arrays(np.empty, np.asarray, convert, place, unpack, dict(dtypes))
