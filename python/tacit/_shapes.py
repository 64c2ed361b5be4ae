# SPDX-License-Identifier: Apache-2.0
"""Sessions of a model with symbolic sizes: one per set of sizes seen, the newest kept."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Tuple

import numpy as np

from . import Error, Model, Session, compile

KEPT = 8  # sessions, so that a stream of ever new shapes does not fill the memory


def fail(status: str, message: str) -> Error:
    error = Error(message)
    error.status, error.message = status, message
    return error


class Shaped:
    """Calls like a session, for whatever sizes the arrays have."""

    def __init__(self, model: Model, **options: Any) -> None:
        self.model, self.options = model, options
        self.inputs, self.outputs = model.inputs, model.outputs
        self.profiling = False
        self._symbolic = [
            (port.name, [(axis, d) for axis, d in enumerate(port.shape) if isinstance(d, str)])
            for port in self.inputs
            if port.kind == "tensor" and port.shape is not None and any(isinstance(d, str) for d in port.shape)
        ]
        self.sessions: Dict[Tuple[int, ...], Session] = {}
        if not self._symbolic:
            self.sessions[()] = compile(model, **options)

    def _bind(self, feed: Mapping[str, Any]) -> Dict[str, int]:
        sizes: Dict[str, int] = {}
        for name, axes in self._symbolic:
            if name not in feed:
                raise fail("ERR_ARGUMENT", f"input '{name}' is missing")
            shape = np.shape(feed[name])
            for axis, symbol in axes:
                if axis >= len(shape):
                    raise fail(
                        "ERR_SHAPE",
                        f"input '{name}' has {len(shape)} axes, but the model has more",
                    )
                if sizes.setdefault(symbol, int(shape[axis])) != shape[axis]:
                    raise fail(
                        "ERR_SHAPE",
                        f"dimension '{symbol}' is {sizes[symbol]}, but axis {axis} of input "
                        f"'{name}' is {shape[axis]}",
                    )
        return sizes

    def session(self, feed: Mapping[str, Any]) -> Session:
        if not self._symbolic:
            return self.sessions[()]
        sizes = self._bind(feed)
        key = tuple(sizes.values())
        session = self.sessions.get(key)
        if session is None:
            session = compile(self.model, dims=sizes, **self.options)
            if self.profiling:
                session.profile()
            while len(self.sessions) >= KEPT:
                self.sessions.pop(next(iter(self.sessions)))
            self.sessions[key] = session
        return session

    def profile(self) -> None:
        self.profiling = True
        for session in self.sessions.values():
            session.profile()

    def profile_rows(self) -> List[Dict[str, Any]]:
        return [row for s in list(self.sessions.values()) for row in s.profile_rows()]

    def run(self, feed: Mapping[str, Any]) -> Tuple[Any, ...]:
        result = self.session(feed).run(feed)
        return result if isinstance(result, tuple) else (result,)
