"""From a model folder to a model in memory, for any device. What runs it, and when, is the engines' business."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from rosebed.core.engine import BatchLimits, EngineInfo
from rosebed.core.model_spec import ModelSpec
from rosebed.core.outputs import OutputSpec, OutputSpecs, RowsPer
from rosebed.core.types import OutputKind
from rosebed.rose.checkpoint_tensors import CheckpointTensors, open_tensors, select
from rosebed.rose.heads.base import TailHead
from rosebed.rose.heads.dense import DenseHead
from rosebed.rose.heads.logits import load_logits_head
from rosebed.rose.heads.token import load_token_heads
from rosebed.rose.models.base import EncoderModel
from rosebed.rose.models.registry import model_class
from rosebed.rose.ops import reference
from rosebed.rose.ops.base import Ops
from rosebed.rose.weights import LoadReport, load_weights

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model with its heads, on one device."""

    spec: ModelSpec
    model: EncoderModel
    dense: DenseHead
    tails: Mapping[OutputKind, TailHead]
    """The other outputs: rows per token, where the checkpoint has them, or the logits of one that scores."""
    dtype: torch.dtype
    """Of weights and hidden states; heads are float32."""
    device: torch.device
    report: LoadReport

    @property
    def outputs(self) -> OutputSpecs:
        """What the checkpoint can return: a scorer was not trained for vectors, so that it offers none."""
        tails = {kind: head.output_spec for kind, head in self.tails.items()}
        dense = {OutputKind.DENSE: OutputSpec(rows_per=RowsPer.SPAN, dim=self.spec.dim)}
        return tails if self.spec.scorer else dense | tails

    @property
    def has_token_types(self) -> bool:
        """Whether token types are an input at all."""
        return self.spec.type_vocab_size > 1

    def engine_info(self, limits: BatchLimits, *, max_in_flight: int) -> EngineInfo:
        """What an engine that runs this model says of itself."""
        spec = self.spec
        return EngineInfo(
            model=str(spec.folder),
            architecture=spec.architecture,
            dtype=str(self.dtype).removeprefix("torch."),
            device=str(self.device),
            vocab_size=spec.vocab_size,
            type_vocab_size=spec.type_vocab_size,
            max_length=spec.max_length,
            outputs=self.outputs,
            normalize=spec.normalize,
            limits=limits,
            max_in_flight=max_in_flight,
            fingerprint=spec.fingerprint,
        )


def count_parameters(spec: ModelSpec) -> int:
    """Values in the model's weights, from its configuration alone."""
    with torch.device("meta"):
        model = model_class(spec.architecture)(spec.config, reference)
    return sum(parameter.numel() for parameter in model.parameters())


def load_model(spec: ModelSpec, ops: Ops, *, device: torch.device, dtype: torch.dtype) -> LoadedModel:
    """Build the model on `meta` and fill it. CheckpointError says what is wrong with the folder."""
    with torch.device("meta"):
        model = model_class(spec.architecture)(spec.config, ops)
        dense = DenseHead(spec, ops)
    tensors = open_tensors(spec.folder)
    tails, of_tails = _load_tails(spec, tensors, device)
    report = load_weights(model, select(tensors, tensors.names - of_tails), dtype=dtype, device=device)
    dense.load(spec, device)
    _logger.info("%s: %s", spec.folder, report)
    return LoadedModel(
        spec=spec,
        model=model.eval(),
        dense=dense.eval(),
        tails=tails,
        dtype=dtype,
        device=device,
        report=report,
    )


def _load_tails(
    spec: ModelSpec, tensors: CheckpointTensors, device: torch.device
) -> tuple[Mapping[OutputKind, TailHead], frozenset[str]]:
    """The outputs beside the dense vector, and the names of the model's tensors that only they need."""
    if spec.scorer is None:
        return load_token_heads(spec.folder, spec.hidden_size, device), frozenset()
    head, own = load_logits_head(spec, tensors, device)
    return {OutputKind.LOGITS: head.eval()}, own
