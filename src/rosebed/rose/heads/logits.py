"""Outputs with one row of class logits per sequence: classification heads, and the odds of "yes" over "no".

Each class carries the checkpoint's own names. Sources: the `…ForSequenceClassification` classes of transformers, and
the model card of Qwen3-Reranker (Zhang et al., 2025).
"""

from importlib import import_module
from pathlib import Path
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rosebed.core.checkpoint import read_json
from rosebed.core.errors import CheckpointError
from rosebed.core.model_spec import ModelSpec
from rosebed.core.outputs import OutputSpec, RowsPer
from rosebed.core.scorer import is_tied
from rosebed.core.types import Batch, Int32Array, OutputKind
from rosebed.rose.architectures import SCORING_HEADS
from rosebed.rose.checkpoint_tensors import CheckpointTensors, select
from rosebed.rose.heads.base import TailHead
from rosebed.rose.models.config import optional
from rosebed.rose.weights import load_weights


class LogitsHead(TailHead):
    """Reads one token of each sequence."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        assert spec.scorer is not None
        self.num_labels = spec.scorer.num_labels
        self.padding_idx = optional(spec.config, "pad_token_id")

    @property
    def output_spec(self) -> OutputSpec:
        return OutputSpec(rows_per=RowsPer.SEQUENCE, dim=self.num_labels)

    def rows(self, batch: Batch) -> tuple[Int32Array, Int32Array]:
        wanted = [OutputKind.LOGITS in sequence.outputs for sequence in batch.sequences]
        owners = np.flatnonzero(np.array(wanted, np.bool_)).astype(np.int32)
        return self.places(batch)[owners], owners

    def places(self, batch: Batch) -> Int32Array:
        """int32[num_sequences]: the packed place of the token that each sequence is judged by; its first."""
        return batch.layout.cu_seqlens[:-1]

    def load(self, spec: ModelSpec, tensors: CheckpointTensors, device: torch.device) -> frozenset[str]:  # noqa: ARG002
        """Fill the head; the names of the tensors that nothing else needs."""
        own = frozenset(name for name, _ in self.named_parameters())
        load_weights(self, select(tensors, own & tensors.names), dtype=torch.float32, device=device)
        return own


class _Linear(nn.Linear):
    """In float32, whatever comes in."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  (torch's name)
        return F.linear(input.float(), self.weight, self.bias)


class BertHead(LogitsHead):
    """The pooler that BERT was pre-trained with, and a classifier."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__(spec)
        self.bert = _BertRemainder(spec.hidden_size)
        self.classifier = _Linear(spec.hidden_size, self.num_labels)

    def forward(self, hidden_states: Tensor) -> Tensor:
        return self.classifier(torch.tanh(self.bert.pooler.dense(hidden_states)))


class _BertRemainder(nn.Module):
    """What BERT has behind its encoder."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.pooler = _BertPooler(hidden_size)


class _BertPooler(nn.Module):
    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.dense = _Linear(hidden_size, hidden_size)


class _RobertaClassifier(nn.Module):
    def __init__(self, hidden_size: int, num_labels: int) -> None:
        super().__init__()
        self.dense = _Linear(hidden_size, hidden_size)
        self.out_proj = _Linear(hidden_size, num_labels)


class RobertaHead(LogitsHead):
    """RoBERTa's, which its kin and MPNet share."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__(spec)
        self.classifier = _RobertaClassifier(spec.hidden_size, self.num_labels)

    def forward(self, hidden_states: Tensor) -> Tensor:
        return self.classifier.out_proj(torch.tanh(self.classifier.dense(hidden_states)))


class DistilBertHead(LogitsHead):
    def __init__(self, spec: ModelSpec) -> None:
        super().__init__(spec)
        self.pre_classifier = _Linear(spec.hidden_size, spec.hidden_size)
        self.classifier = _Linear(spec.hidden_size, self.num_labels)

    def forward(self, hidden_states: Tensor) -> Tensor:
        return self.classifier(F.relu(self.pre_classifier(hidden_states)))


class ScoreHead(LogitsHead):
    """A language model's: one product at the last token that is not padding."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__(spec)
        self.score = _Linear(spec.hidden_size, self.num_labels, bias=False)

    def places(self, batch: Batch) -> Int32Array:
        return last_places(batch, self.padding_idx)

    def forward(self, hidden_states: Tensor) -> Tensor:
        return self.score(hidden_states)


class YesNoHead(LogitsHead):
    """Two rows of the language model's output matrix. The logit of "yes" less that of "no" is the log of their odds:
    its sigmoid is the softmax over both, at "yes"."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__(spec)
        self.answers = nn.Parameter(torch.empty(2, spec.hidden_size))  # "no", "yes"

    def places(self, batch: Batch) -> Int32Array:
        return last_places(batch, None)

    def load(self, spec: ModelSpec, tensors: CheckpointTensors, device: torch.device) -> frozenset[str]:
        name = _output_matrix(spec, tensors)
        assert spec.scorer is not None
        ids = spec.scorer.answer_ids or _ids_of(spec.folder, ("no", "yes"))
        matrix = tensors.read(name)
        if max(ids) >= len(matrix):
            raise CheckpointError(f"{tensors.origin}: {name} has {len(matrix)} rows, but the answers are tokens {ids}")
        rows = matrix[list(ids)].to(device, torch.float32)
        self.answers = nn.Parameter(rows, requires_grad=False)
        return frozenset[str]()

    def forward(self, hidden_states: Tensor) -> Tensor:
        no, yes = F.linear(hidden_states.float(), self.answers).split(1, dim=1)
        return yes - no


def last_places(batch: Batch, padding_idx: int | None) -> Int32Array:
    """The last token of each sequence, or, as in transformers, its last that is not `padding_idx`; else its first."""
    starts, ends = batch.layout.cu_seqlens[:-1], batch.layout.cu_seqlens[1:]
    if padding_idx is None:
        return ends - np.int32(1)
    places = np.where(batch.token_ids == padding_idx, 0, np.arange(batch.num_tokens, dtype=np.int32))
    return np.maximum(np.maximum.reduceat(places, starts), starts).astype(np.int32)


def load_logits_head(
    spec: ModelSpec, tensors: CheckpointTensors, device: torch.device
) -> tuple[LogitsHead, frozenset[str]]:
    """The head of a checkpoint that scores, and the names of the tensors that the encoder is not to see."""
    module, _, name = SCORING_HEADS[spec.architecture].partition(":")
    with torch.device("meta"):
        head = cast(type[LogitsHead], getattr(import_module(module), name))(spec)
    return head, head.load(spec, tensors, device)


def _output_matrix(spec: ModelSpec, tensors: CheckpointTensors) -> str:
    wanted = ("model.embed_tokens.weight", "embed_tokens.weight") if is_tied(spec.config) else ("lm_head.weight",)
    for name in wanted:
        if name in tensors.names:
            return name
    raise CheckpointError(f"{tensors.origin} lacks {wanted[0]}, which the logits of its answers are made with")


def _ids_of(folder: Path, tokens: tuple[str, str]) -> tuple[int, int]:
    """Ids of two plain words in the vocabulary."""
    vocabulary = ((read_json(folder / "tokenizer.json") or {}).get("model") or {}).get("vocab") or {}
    first, second = (vocabulary.get(token) for token in tokens)
    if not isinstance(first, int) or not isinstance(second, int):
        raise CheckpointError(
            f"{folder / 'tokenizer.json'} lacks a token of {', '.join(tokens)}, which it would answer"
        )
    return first, second
