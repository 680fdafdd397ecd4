"""From a model folder to a model in memory, for any device. What runs it, and when, is the engines' business."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from rosebed.core.engine import BatchLimits, EngineInfo
from rosebed.core.model_spec import ModelSpec
from rosebed.core.outputs import OutputSpec, OutputSpecs, RowsPer
from rosebed.core.types import OutputKind
from rosebed.rose.checkpoint_tensors import open_tensors
from rosebed.rose.heads.dense import DenseHead
from rosebed.rose.heads.token import TokenHead, load_token_heads
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
    token_heads: Mapping[OutputKind, TokenHead]
    """Outputs with a row per token, where the checkpoint has them."""
    dtype: torch.dtype
    """Of weights and hidden states; heads are float32."""
    device: torch.device
    report: LoadReport

    @property
    def outputs(self) -> OutputSpecs:
        """What the checkpoint can return."""
        dense = OutputSpec(rows_per=RowsPer.SPAN, dim=self.spec.dim)
        return {OutputKind.DENSE: dense} | {kind: head.output_spec for kind, head in self.token_heads.items()}

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
    report = load_weights(model, open_tensors(spec.folder), dtype=dtype, device=device)
    dense.load(spec, device)
    _logger.info("%s: %s", spec.folder, report)
    return LoadedModel(
        spec=spec,
        model=model.eval(),
        dense=dense.eval(),
        token_heads=load_token_heads(spec.folder, spec.hidden_size, device),
        dtype=dtype,
        device=device,
        report=report,
    )
