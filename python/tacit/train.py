# SPDX-License-Identifier: Apache-2.0
"""Training: one step compiled once, with the parameters and the optimiser's state it works on.

    step = tacit.train_step(loss_model, {"w": w, "b": b}, optimizer="adamw", learning_rate=1e-3)
    for x, t in batches:
        loss = step(x=x, t=t)
    step.save("checkpoint.safetensors")
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from . import _arrays, _choice, _fail, _model, _names, _safetensors, compile

_OPTIMIZERS = {"sgd": 0, "adam": 1, "adamw": 2}


class TrainStep:
    """Made by tacit.train_step. `learning_rate` may be changed between steps; `steps` counts them;
    `session` runs the step, and shows it."""

    def __init__(self, session: Any, initial: Mapping[str, Any], learning_rate: float) -> None:
        self.session = session
        self.learning_rate = learning_rate
        self.steps = 0
        ports = {p.name: p for p in session.inputs}
        self._scalars = {
            name: np.zeros((), _arrays.dtypes[ports[name].dtype])
            for name in ("learning_rate", "step")
            if name in ports and name not in initial
        }
        self._names = [p.name[: -len(".next")] for p in session.outputs[1:]]
        self._parameters = list(initial)
        self._buffers = {}
        for name in self._names:
            port = ports[name]
            buffer = np.zeros(port.shape, _arrays.dtypes[port.dtype])
            if name in initial:
                _fill(buffer, initial[name], name)
            self._buffers[name] = buffer
        self._loss = np.zeros(session.outputs[0].shape, _arrays.dtypes[session.outputs[0].dtype])
        self._out = [self._loss, *(self._buffers[name] for name in self._names)]

    def step(self, **batch: Any) -> float:
        """One step on a batch, given by the names of the model's inputs; the loss before it."""
        scalars = self._scalars
        if "learning_rate" in scalars:
            scalars["learning_rate"][()] = self.learning_rate
        if "step" in scalars:
            scalars["step"][()] = self.steps + 1
        for name in batch:
            if name in scalars or name in self._buffers:
                raise TypeError(f"'{name}' belongs to the step, not to the batch")
        self.session.run({**batch, **scalars, **self._buffers}, out=self._out)
        self.steps += 1
        return float(self._loss)

    __call__ = step

    @property
    def parameters(self) -> Dict[str, np.ndarray]:
        """The parameters themselves: the next step changes them where they lie."""
        return {name: self._buffers[name] for name in self._parameters}

    @property
    def state(self) -> Dict[str, np.ndarray]:
        """The optimiser's state, likewise: NAME.momentum, or NAME.mean and NAME.square."""
        return {k: v for k, v in self._buffers.items() if k not in self._parameters}

    def save(self, path: Any) -> None:
        """Parameters, state and the number of steps, as a .safetensors file."""
        metadata = {"step": str(self.steps), "learning_rate": repr(float(self.learning_rate))}
        _safetensors.save(path, self._buffers, metadata)

    def load(self, path: Any) -> None:
        """What save wrote, for a step of the same parameters and optimiser. All or nothing."""
        arrays, metadata = _safetensors.load(path)
        missing = [name for name in self._names if name not in arrays]
        if missing:
            raise _fail("ERR_ARGUMENT", f"{path} has no {', '.join(missing)}")
        for name, buffer in self._buffers.items():
            _check(buffer, arrays[name], name)
        try:
            steps = int(metadata.get("step", 0))
            rate = float(metadata.get("learning_rate", self.learning_rate))
        except ValueError as e:
            raise _fail("ERR_FORMAT", f"{path}: {e}") from e
        for name, buffer in self._buffers.items():
            buffer[...] = arrays[name]
        self.steps, self.learning_rate = steps, rate

    def __repr__(self) -> str:
        return f"<tacit.TrainStep of {', '.join(self._parameters)} after {self.steps} steps>"


def _check(buffer: np.ndarray, array: np.ndarray, name: str) -> None:
    if array.shape != buffer.shape or array.dtype != buffer.dtype:
        raise _fail(
            "ERR_SHAPE" if array.shape != buffer.shape else "ERR_TYPE",
            f"parameter '{name}' is {buffer.dtype}{list(buffer.shape)}, "
            f"but {array.dtype}{list(array.shape)} is given",
        )


def _fill(buffer: np.ndarray, value: Any, name: str) -> None:
    array = _arrays._as_array(value, _arrays.text_of(buffer.dtype))
    _check(buffer, array, name)
    buffer[...] = array


def train_step(
    model: Any,
    params: Union[Mapping[str, Any], Iterable[str], str],
    optimizer: str = "adamw",
    learning_rate: float = 1e-3,
    *,
    momentum: float = 0.0,
    betas: Tuple[float, float] = (0.9, 0.999),
    epsilon: float = 1e-8,
    weight_decay: float = 0.0,
    clip_norm: float = 0.0,
    loss_scale: float = 0.0,
    output: int = 0,
    dims: Optional[Dict[str, int]] = None,
    checkpoints: Sequence[str] = (),
    memory_budget: int = 0,
    exec: str = "serial",
    threads: int = 0,
) -> TrainStep:
    """A training step of a model whose output number `output` is the loss, one number.

    `params` are inputs or weights of the model, with their initial values (copied); names alone
    stand for weights, which begin as they are. `optimizer` is "sgd", "adam" or "adamw".
    `checkpoints` and `memory_budget` save memory as in tacit.grad.
    """
    model = _model(model)
    if isinstance(params, Mapping):
        initial = dict(params)
    else:
        initial = {name: model.weight(name) for name in _names(params)}
    made = model._train_step(
        list(initial), dims, output, _choice(_OPTIMIZERS, optimizer, "optimizer"), momentum, *betas,
        epsilon, weight_decay, clip_norm, loss_scale, _names(checkpoints), memory_budget,
    )  # fmt: skip
    session = compile(made, exec=exec, threads=threads, update_in_place=True)
    return TrainStep(session, initial, learning_rate)
