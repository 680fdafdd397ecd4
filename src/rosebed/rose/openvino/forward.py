"""A model that OpenVINO has compiled: hidden states of batches, and vectors of whole sequences. Knows no step."""

import logging
import warnings
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from rosebed.core.counting import counted
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

KERNELS_KEPT = 500
"""Of all operations and shapes. Each takes up to 0.2 MB; the shapes of mixed batches have no end."""

_logger = logging.getLogger(__name__)

_TYPES = {torch.int32: ov.Type.i32, torch.float32: ov.Type.f32}
_PRECISIONS: dict[DtypeName, str] = {"float32": "f32", "bfloat16": "bf16"}


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
        threads = counted(num_threads, "thread")
        _logger.info("%s: compiled by OpenVINO %s, %s", loaded.spec.folder, ov.__version__, threads)

    def __call__(self, batch: Batch) -> Tensor:
        """float32[num_tokens, hidden]; may be overwritten by the next call."""
        hidden_states: Float32Array | None = None
        for group, tokens, packed in self._calls(batch):
            computed = self._infer(group, packed, 0)
            if tokens is None:
                return torch.from_numpy(computed)
            if hidden_states is None:
                hidden_states = np.empty((batch.num_tokens, computed.shape[1]), np.float32)
            hidden_states[tokens] = computed
        assert hidden_states is not None
        return torch.from_numpy(hidden_states)

    def vectors(self, batch: Batch) -> Float32Array:
        """float32[num_sequences, dim] of whole sequences, neither truncated nor normalised; as above."""
        vectors: Float32Array | None = None
        for group, tokens, packed in self._calls(batch):
            computed = self._infer(group, packed, 1)
            if tokens is None:
                return computed
            if vectors is None:
                vectors = np.empty((batch.num_sequences, computed.shape[1]), np.float32)
            vectors[group.members] = computed
        assert vectors is not None
        return vectors

    def _calls(self, batch: Batch) -> Iterator[tuple[Group, Int32Array | None, list[Int32Array]]]:
        """Each group; the places of its tokens on the packed axis, None if it has them all; and of those tokens ids,
        positions and, if the model has them, types."""
        token_ids, lengths = batch.token_ids, np.diff(batch.layout.cu_seqlens)
        if token_ids.min() < 0 or token_ids.max() >= self._vocab_size:
            raise IndexError(f"index out of range: token ids should lie in [0, {self._vocab_size})")
        packed = [token_ids, self._positions(batch.layout, token_ids)]
        if self._has_token_types:
            types = batch.token_type_ids
            packed.append(np.zeros(len(token_ids), np.int32) if types is None else types)
        groups = near_lengths(lengths)
        if len(groups) == 1:
            yield groups[0], None, packed
            return
        owners = np.repeat(np.arange(batch.num_sequences), lengths)
        for group in groups:
            tokens = np.flatnonzero(np.isin(owners, group.members)).astype(np.int32)
            yield group, tokens, [array[tokens] for array in packed]

    def _infer(self, group: Group, packed: list[Int32Array], output: int) -> Float32Array:
        ids, positions, *types = packed
        # Tensors do not keep alive what they share, so the arrays have to last until the end.
        inputs = [ids, positions, group.places, group.slots, group.padding, *types]
        inputs = [np.ascontiguousarray(array) for array in inputs]
        for index, array in enumerate(inputs):
            self._request.set_input_tensor(index, ov.Tensor(array, shared_memory=True))
        self._request.infer()
        return self._request.get_output_tensor(output).data


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
        parameter.set_partial_shape(ov.PartialShape([-1] * given.dim()))
    model.validate_nodes_and_infer_types()
    return model


def _settings(dtype: DtypeName, num_threads: int) -> dict[str, Any]:
    return {
        "INFERENCE_PRECISION_HINT": _PRECISIONS[dtype],
        "INFERENCE_NUM_THREADS": num_threads,
        "NUM_STREAMS": 1,
        # Neighbours, the gateway among them, may run where a thread would be bound to.
        "ENABLE_CPU_PINNING": False,
        "CPU_RUNTIME_CACHE_CAPACITY": KERNELS_KEPT,
    }
