"""One step: the forward pass, then every output that is wanted. Blocks until the outputs are written."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from rosebed.core.outputs import RowStatus, StepResult
from rosebed.core.types import Batch, Int32Array, OutputKind
from rosebed.rose.attention.base import AttentionBackend
from rosebed.rose.heads.dense import DenseRows
from rosebed.rose.loader import LoadedModel

Forward = Callable[[Batch], Tensor]
"""Hidden states of a batch, [num_tokens, hidden]."""


class EagerForward:
    """A model, operation by operation, on whatever device it is, and the attention it runs with."""

    def __init__(self, loaded: LoadedModel, attention: AttentionBackend) -> None:
        self._loaded = loaded
        self._attention = attention

    def __call__(self, batch: Batch) -> Tensor:
        self._attention.plan(batch.layout)
        model, device = self._loaded.model, self._loaded.device
        token_type_ids = batch.token_type_ids if self._loaded.has_token_types else None
        return model(
            _to(device, batch.token_ids),
            _to(device, model.positions(batch.layout, batch.token_ids)),
            None if token_type_ids is None else _to(device, token_type_ids),
            self._attention,
        )


class StepRunner:
    """A forward pass and the heads of its model. One caller at a time."""

    runs_on_any_thread = False
    """Whether it costs nothing to be called from now this and now that thread. torch's OpenMP has a team for each."""

    def __init__(self, loaded: LoadedModel, forward: Forward) -> None:
        self._loaded = loaded
        self._forward = forward

    @torch.inference_mode()
    def run(self, batch: Batch, result: StepResult) -> None:
        """Compute `batch` and write each output and every status byte of `result`."""
        hidden_states = self._forward(batch)
        result.status[:] = RowStatus.OK
        for kind in result.layout.slots:
            rows, finite, owners = self._rows(kind, hidden_states, batch)
            torch.from_numpy(result.output(kind)).copy_(rows)
            result.status[owners[~finite.cpu().numpy()]] = RowStatus.NON_FINITE

    def _rows(self, kind: OutputKind, hidden_states: Tensor, batch: Batch) -> tuple[Tensor, Tensor, Int32Array]:
        """Of one output: float32[num_rows, dim], bool[num_rows] whether finite, int32[num_rows] owning sequences."""
        if kind is OutputKind.DENSE:
            dense = DenseRows.of(batch, self._loaded.spec)
            arrays = (_to(self._loaded.device, array) for array in (dense.spans, dense.dimensions, dense.normalize))
            return *self._loaded.dense(hidden_states, *arrays), dense.owners
        head = self._loaded.tails[kind]
        places, owners = head.rows(batch)
        rows = head(hidden_states[_to(self._loaded.device, places)])
        return rows, rows.isfinite().all(dim=1), owners


def _to(device: torch.device, array: np.ndarray) -> Tensor:
    # NOTE: spans may be views into a message; torch warns of arrays that it could write to and should not.
    return torch.from_numpy(array if array.flags.writeable else array.copy()).to(device)
