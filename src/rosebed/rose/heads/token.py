"""Outputs with one row per token: lexical weights and multi-vectors, as BGE-M3 makes them (Chen et al., 2024).

Every token gets its row. Which of them count is for those to say who know the ids: BGE-M3's own library drops the
weights of special tokens and the multi-vector of the first.
"""

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
from rosebed.rose.heads.base import TailHead
from rosebed.rose.weights import load_weights


class TokenHead(TailHead):
    """One linear map of a token's hidden state, and what becomes of it."""

    KIND: ClassVar[OutputKind]
    FILE: ClassVar[str]
    """Where the checkpoint keeps the map, relative to its folder; a model without the file lacks the output."""

    def __init__(self, hidden_size: int, out_features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_features, hidden_size))
        self.bias = nn.Parameter(torch.empty(out_features))

    @property
    def output_spec(self) -> OutputSpec:
        return OutputSpec(rows_per=RowsPer.TOKEN, dim=len(self.bias))

    def rows(self, batch: Batch) -> tuple[Int32Array, Int32Array]:
        return token_rows(batch, self.KIND)

    def project(self, hidden_states: Tensor) -> Tensor:
        return F.linear(hidden_states.float(), self.weight, self.bias)


class SparseHead(TokenHead):
    """One weight per token, never negative."""

    KIND = OutputKind.SPARSE
    FILE = "sparse_linear.pt"

    def forward(self, hidden_states: Tensor) -> Tensor:
        return F.relu(self.project(hidden_states))


class MultiVectorHead(TokenHead):
    """One vector of length 1 per token."""

    KIND = OutputKind.MULTI_VECTOR
    FILE = "colbert_linear.pt"

    def forward(self, hidden_states: Tensor) -> Tensor:
        return F.normalize(self.project(hidden_states), dim=-1)


_HEADS: tuple[type[TokenHead], ...] = (SparseHead, MultiVectorHead)


def load_token_heads(folder: Path, hidden_size: int, device: torch.device) -> dict[OutputKind, TailHead]:
    """The heads that the checkpoint has files for."""
    heads: dict[OutputKind, TailHead] = {}
    for head_class in _HEADS:
        path = folder / head_class.FILE
        if path.is_file():
            heads[head_class.KIND] = _load(head_class, PickledTensors(path), hidden_size, device)
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
