"""Outputs with one row per token: lexical weights and multi-vectors, as BGE-M3 makes them (Chen et al., 2024).

Every token gets its row. Which of them count is for those to say who know the ids: BGE-M3's own library drops the
weights of special tokens and the multi-vector of the first.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rosebed.core.errors import CheckpointError
from rosebed.core.outputs import OutputSpec, RowsPer
from rosebed.core.types import Batch, Int32Array, OutputKind
from rosebed.rose.checkpoint_tensors import PickledTensors
from rosebed.rose.models.base import Loadable
from rosebed.rose.weights import load_weights


class TokenHead(Loadable):
    """One linear map of a token's hidden state, and what becomes of it."""

    FILE: ClassVar[str]
    """Where the checkpoint keeps the map, relative to its folder; a model without the file lacks the output."""

    def __init__(self, hidden_size: int, out_features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_features, hidden_size))
        self.bias = nn.Parameter(torch.empty(out_features))

    @property
    def output_spec(self) -> OutputSpec:
        return OutputSpec(rows_per=RowsPer.TOKEN, dim=len(self.bias))

    def forward(self, hidden_states: Tensor) -> Tensor:
        """float32[num_tokens, dim] from [num_tokens, hidden]."""
        raise NotImplementedError

    def project(self, hidden_states: Tensor) -> Tensor:
        return F.linear(hidden_states.float(), self.weight, self.bias)


class SparseHead(TokenHead):
    """One weight per token, never negative."""

    FILE = "sparse_linear.pt"

    def forward(self, hidden_states: Tensor) -> Tensor:
        return F.relu(self.project(hidden_states))


class MultiVectorHead(TokenHead):
    """One vector of length 1 per token."""

    FILE = "colbert_linear.pt"

    def forward(self, hidden_states: Tensor) -> Tensor:
        return F.normalize(self.project(hidden_states), dim=-1)


_HEADS: Mapping[OutputKind, type[TokenHead]] = {
    OutputKind.SPARSE: SparseHead,
    OutputKind.MULTI_VECTOR: MultiVectorHead,
}


def load_token_heads(folder: Path, hidden_size: int, device: torch.device) -> dict[OutputKind, TokenHead]:
    """The heads that the checkpoint has files for."""
    heads: dict[OutputKind, TokenHead] = {}
    for kind, head_class in _HEADS.items():
        path = folder / head_class.FILE
        if path.is_file():
            heads[kind] = _load(head_class, PickledTensors(path), hidden_size, device)
    return heads


def _load(head_class: type[TokenHead], tensors: PickledTensors, hidden_size: int, device: torch.device) -> TokenHead:
    if "bias" not in tensors.names:
        raise CheckpointError(f"{tensors.origin} should hold 'weight' and 'bias', not {', '.join(tensors.names)}")
    with torch.device("meta"):
        head = head_class(hidden_size, len(tensors.read("bias")))
    load_weights(head, tensors, dtype=torch.float32, device=device)
    return head


def token_rows(batch: Batch, kind: OutputKind) -> tuple[Int32Array, Int32Array]:
    """Tokens of the sequences that want `kind`: int32[num_rows] packed places, int32[num_rows] owning sequences."""
    wanted = np.array([kind in sequence.outputs for sequence in batch.sequences], np.bool_)
    lengths = np.diff(batch.layout.cu_seqlens)
    owners = np.repeat(np.arange(batch.num_sequences, dtype=np.int32), lengths)
    rows = np.flatnonzero(wanted[owners]).astype(np.int32)
    return rows, owners[rows]
