"""A model that OpenVINO has compiled: hidden states of batches, and vectors of whole sequences. Knows no step."""

import logging
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from rosebed.core.errors import ConfigError
from rosebed.core.extras import needs_extra
from rosebed.core.types import Batch, Float32Array, Int32Array
from rosebed.rose.config import DtypeName
from rosebed.rose.loader import LoadedModel
from rosebed.rose.openvino.groups import Group, near_lengths
from rosebed.rose.openvino.silence import silenced
from rosebed.rose.openvino.traced import TracedModel

with needs_extra("--cpu-backend openvino", "cpu"), silenced():
    import openvino as ov
    from openvino.frontend import FrontEndManager
    from openvino.frontend.pytorch.ts_decoder import TorchScriptPythonDecoder

_logger = logging.getLogger(__name__)

_TYPES = {torch.int32: ov.Type.i32, torch.float32: ov.Type.f32}
_PRECISIONS: dict[DtypeName, str] = {"float32": "f32", "bfloat16": "bf16"}


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """What one call computes."""

    members: Int32Array
    """int32[num_rows], which sequence of the batch each row is."""
    inputs: list[Any]
    """What the model takes, arrays [num_rows, length], in its order."""
    places: Int32Array | None
    """int32[num_tokens of these], where each of their tokens lies on the packed axis; None if the rows, end to end, are
    that axis."""
    is_token: Any
    """bool[num_rows, length]; what is not is padding."""


class OpenVinoForward:
    """Computes batches, group by group of near lengths. One caller at a time."""

    def __init__(self, loaded: LoadedModel, *, dtype: DtypeName, num_threads: int) -> None:
        """Compile `loaded`, which is float32 and computes by `ops.cpu`; its model's weights are let go of.

        ConfigError if `dtype` is not one that this processor computes in.
        """
        self._positions = loaded.model.positions
        self._vocab_size = loaded.spec.vocab_size
        self._has_token_types = loaded.has_token_types
        self.makes_vectors = dtype == "float32" and not loaded.spec.scorer
        """Whether `vectors` can be asked. In bfloat16 it would round the sums that means are made of."""
        compiled = ov.Core().compile_model(_converted(loaded, self.makes_vectors), "CPU", _settings(dtype, num_threads))
        precision = cast(ov.Type, compiled.get_property("INFERENCE_PRECISION_HINT")).get_type_name()
        if precision != _PRECISIONS[dtype]:
            raise ConfigError(f"--dtype {dtype}: OpenVINO computes in {precision} on this processor")
        self._request = compiled.create_infer_request()
        loaded.model.to("meta")
        _logger.info("%s: compiled by OpenVINO %s, %d threads", loaded.spec.folder, ov.__version__, num_threads)

    def __call__(self, batch: Batch) -> Tensor:
        """float32[num_tokens, hidden]; may be overwritten by the next call."""
        hidden_states: Float32Array | None = None
        for rows in self._rows(batch):
            computed = self._infer(rows, 0)
            if rows.places is None:
                return torch.from_numpy(computed)
            if hidden_states is None:
                hidden_states = np.empty((batch.num_tokens, computed.shape[1]), np.float32)
            hidden_states[rows.places] = computed[rows.is_token.ravel()]
        assert hidden_states is not None
        return torch.from_numpy(hidden_states)

    def vectors(self, batch: Batch) -> Float32Array:
        """float32[num_sequences, dim] of whole sequences, neither truncated nor normalised; as above."""
        vectors: Float32Array | None = None
        for rows in self._rows(batch):
            computed = self._infer(rows, 1)
            if rows.places is None:
                return computed
            if vectors is None:
                vectors = np.empty((batch.num_sequences, computed.shape[1]), np.float32)
            vectors[rows.members] = computed
        assert vectors is not None
        return vectors

    def _rows(self, batch: Batch) -> Iterator[Rows]:
        token_ids, layout = batch.token_ids, batch.layout
        if token_ids.min() < 0 or token_ids.max() >= self._vocab_size:
            raise IndexError(f"index out of range: token ids should lie in [0, {self._vocab_size})")
        packed = [token_ids, self._positions(layout, token_ids)]
        if self._has_token_types:
            types = batch.token_type_ids
            packed.append(np.zeros(len(token_ids), np.int32) if types is None else types)
        groups = near_lengths(np.diff(layout.cu_seqlens))
        if len(groups) == 1 and len(token_ids) == np.prod(groups[0].shape):
            yield _whole(groups[0], packed)
            return
        for group in groups:
            yield _gathered(group, packed, layout.cu_seqlens)

    def _infer(self, rows: Rows, output: int) -> Float32Array:
        # Tensors do not keep alive what they share, so the arrays have to last until the end.
        inputs = [np.ascontiguousarray(array) for array in rows.inputs]
        for index, array in enumerate(inputs):
            self._request.set_input_tensor(index, ov.Tensor(array, shared_memory=True))
        self._request.infer()
        return self._request.get_output_tensor(output).data


def _whole(group: Group, packed: list[Int32Array]) -> Rows:
    """Rows of one length, in the batch's order."""
    ids, positions, *types = (array.reshape(group.shape) for array in packed)
    inputs = [ids, positions, np.zeros(group.shape, np.float32), *types]
    return Rows(members=group.members, inputs=inputs, places=None, is_token=np.True_)


def _gathered(group: Group, packed: list[Int32Array], cu_seqlens: Int32Array) -> Rows:
    """Rows of a group, padded by the first token of each."""
    starts = cu_seqlens[group.members][:, None]
    lengths = cu_seqlens[group.members + 1][:, None] - starts
    columns = np.arange(group.length, dtype=np.int32)
    is_token = columns < lengths
    places = np.where(is_token, starts + columns, starts)
    ids, positions, *types = (array[places] for array in packed)
    padding = np.where(is_token, np.float32(0), np.float32(-np.inf))
    inputs = [ids, positions, padding, *types]
    return Rows(members=group.members, inputs=inputs, places=places[is_token], is_token=is_token)


def _converted(loaded: LoadedModel, makes_vectors: bool) -> ov.Model:
    traced = TracedModel(loaded, makes_vectors=makes_vectors).eval()
    example = traced.example()
    with torch.inference_mode(), warnings.catch_warnings():
        # NOTE: deprecated for torch.export, whose graphs have another reader in OpenVINO. This one takes 0.2 s.
        warnings.simplefilter("ignore", DeprecationWarning)
        script = torch.jit.trace(traced, example, check_trace=False)
    frontend = FrontEndManager().load_by_framework("pytorch")
    decoder = TorchScriptPythonDecoder(script, example_input=example)  # which has to outlive what it decodes
    model = frontend.convert(frontend.load(decoder))
    for parameter, given in zip(model.get_parameters(), example, strict=True):
        parameter.set_element_type(_TYPES[given.dtype])
        parameter.set_partial_shape(ov.PartialShape([-1, -1]))
    model.validate_nodes_and_infer_types()
    return model


def _settings(dtype: DtypeName, num_threads: int) -> dict[str, Any]:
    return {
        "INFERENCE_PRECISION_HINT": _PRECISIONS[dtype],
        "INFERENCE_NUM_THREADS": num_threads,
        "NUM_STREAMS": 1,
        # Neighbours, the gateway among them, may run where a thread would be bound to.
        "ENABLE_CPU_PINNING": False,
    }
