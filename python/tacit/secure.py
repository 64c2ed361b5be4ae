# SPDX-License-Identifier: Apache-2.0
"""Private inference between two parties (docs/security-model.md says what that promises).

    private = tacit.secure.compile(model)        # the server, once
    private.strip("public.tacit")                # what client and dealer may know
    tacit.secure.load("public.tacit").deal("server.key", "client.key")
    private.serve("server.key", "0.0.0.0:7000", "certificates")
    y = tacit.secure.load("public.tacit").query("client.key", "host:7000", "certificates", x)

The functions plan, deal, serve, query and sim do one of these steps from a model or a description.
"""

from __future__ import annotations

import json
import os
from typing import Any, Dict, Optional, Tuple

import numpy as np

from . import _choice, _model, _tacit

_WEIGHTS = {"owned": 0, "public": 1, "shared": 2}
_COMPARE = {"auto": 0, "trees": 1, "digits": 2, "direct": 3}


def _arrays(arrays: Tuple[Any, ...]) -> Tuple[np.ndarray, ...]:
    return tuple(np.ascontiguousarray(a).reshape(np.shape(a)) for a in arrays)


def _one(results: Tuple[Any, ...]) -> Any:
    return results[0] if len(results) == 1 else results


class Private:
    """A model compiled for private inference, or its public description."""

    def __init__(self, handle: _tacit.Secure) -> None:
        self._handle = handle
        self.report: Dict[str, int] = {}  # of the newest query

    def plan(self) -> Dict[str, Any]:
        """Rounds, bytes, key sizes and the protocol of every node."""
        return json.loads(self._handle._plan(True))

    def __str__(self) -> str:
        return self._handle._plan(False)

    def strip(self, path: Any) -> None:
        """Writes the public description: the graph without its weights."""
        self._handle._strip(os.fspath(path))

    def deal(self, server_key: Any, client_key: Any, runs: int = 1, insecure_seed: int = 0) -> None:
        """The dealer's work: one-time keys for `runs` runs. A seed makes them predictable, for
        tests; they are marked as such."""
        self._handle._deal(os.fspath(server_key), os.fspath(client_key), runs, insecure_seed)

    def sim(self, *arrays: Any, insecure_seed: int = 0, run: int = 0) -> Any:
        """The cleartext twin: bit for bit what two parties compute."""
        return _one(self._handle._simulate(_arrays(arrays), insecure_seed, run))

    def serve(
        self, key: Any, address: str, certificates: Any, timeout: float = 30,
        accept_predictable: bool = False,
    ) -> Dict[str, int]:  # fmt: skip
        """Serves one query; bytes and rounds."""
        peer = (os.fspath(key), address, os.fspath(certificates), int(timeout * 1000))
        return self._handle._serve(*peer, int(accept_predictable), ())

    def query(
        self, key: Any, address: str, certificates: Any, *arrays: Any, timeout: float = 30,
        accept_predictable: bool = False,
    ) -> Any:  # fmt: skip
        """The client's side: one array, or a tuple of them."""
        peer = (os.fspath(key), address, os.fspath(certificates), int(timeout * 1000))
        results, self.report = self._handle._query(
            *peer, int(accept_predictable), _arrays(arrays)
        )
        return _one(results)


def compile(
    model: Any,
    weights: str = "owned",
    dither: bool = False,
    compare: str = "auto",
    frac: int = 0,
    bound: float = 0,
    dims: Optional[Dict[str, int]] = None,
) -> Private:
    """`frac` (fraction bits) and `bound` (largest input): 0 means the default."""
    return Private(
        _tacit.secure_compile(
            _model(model),
            _choice(_WEIGHTS, weights, "weights"),
            int(dither),
            _choice(_COMPARE, compare, "compare"),
            frac,
            bound,
            dims,
        )
    )


def load(path: Any) -> Private:
    """From the public description that Private.strip wrote."""
    return Private(_tacit.secure_load(os.fspath(path)))


def _compiled(model: Any, options: Dict[str, Any]) -> Private:
    return model if isinstance(model, Private) else compile(model, **options)


def _described(public: Any) -> Private:
    return public if isinstance(public, Private) else load(public)


def plan(model: Any, **options: Any) -> Dict[str, Any]:
    """What private inference of a model costs; the options are those of compile."""
    return _compiled(model, options).plan()


def sim(model: Any, *arrays: Any, **options: Any) -> Any:
    """The cleartext twin of a model: bit for bit what two parties would compute."""
    return _compiled(model, options).sim(*arrays)


def deal(public: Any, server_key: Any, client_key: Any, runs: int = 1) -> None:
    """One-time keys from a public description (Private.strip)."""
    _described(public).deal(server_key, client_key, runs)


def serve(
    model: Any, key: Any, address: str, certificates: Any, timeout: float = 30, **options: Any
) -> Dict[str, int]:
    """Serves one query of a model; bytes and rounds."""
    return _compiled(model, options).serve(key, address, certificates, timeout)


def query(
    public: Any, key: Any, address: str, certificates: Any, *arrays: Any, timeout: float = 30
) -> Any:
    """The client's side, from a public description: one array, or a tuple of them."""
    return _described(public).query(key, address, certificates, *arrays, timeout=timeout)


def certificates(folder: Any, days: int = 1) -> None:
    """A test authority with certificates for both parties."""
    _tacit.secure_certificates(os.fspath(folder), days)
