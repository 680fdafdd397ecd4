"""What a model multiplies and attends, found by running it once on tensors without values."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import torch
from torch import Tensor

from rosebed.core.model_spec import ModelSpec
from rosebed.rose.cuda.attention_choice import AttentionShape
from rosebed.rose.cuda.linear_table import ProductKind, ProductShape
from rosebed.rose.models.registry import model_class
from rosebed.rose.ops import reference
from rosebed.rose.ops.base import Ops

_KINDS = {
    "linear": ProductKind.PLAIN,
    "linear_add_layer_norm": ProductKind.UNREDUCED,
    "linear_add_rms_norm": ProductKind.UNREDUCED,
    "linear_activation": ProductKind.ACTIVATION,
    "linear_silu_mul": ProductKind.GATED,
}


@dataclass(frozen=True, slots=True)
class ModelShapes:
    """Each once."""

    products: tuple[ProductShape, ...]
    attention: AttentionShape


@dataclass(slots=True)
class _Recorder:
    """The reference's operations, each product noted."""

    products: dict[ProductShape, None] = field(default_factory=dict[ProductShape, None])

    def ops(self) -> Ops:
        names = [name for name in dir(Ops) if not name.startswith("_")]
        return cast(Ops, SimpleNamespace(**{name: self._recorded(name) for name in names}))

    def _recorded(self, name: str) -> Any:
        operation, kind = getattr(reference, name), _KINDS.get(name)

        def run(x: Tensor, *arguments: Any) -> Any:
            if kind is not None:
                num_rows, in_features = arguments[0].shape
                out_features = num_rows // 2 if kind is ProductKind.GATED else num_rows
                self.products[ProductShape(kind, out_features, in_features)] = None
            return operation(x, *arguments)

        return run


class _Attention:
    def forward(self, q: Tensor, k: Tensor, v: Tensor, relative_bias: Tensor | None = None) -> Tensor:  # noqa: ARG002
        return q


def model_shapes(spec: ModelSpec) -> ModelShapes:
    """The shapes of `spec`'s model, from its configuration alone."""
    recorder = _Recorder()
    with torch.device("meta"):
        model = model_class(spec.architecture)(spec.config, recorder.ops()).to("meta")
        ids = torch.zeros(16, dtype=torch.int32)
        model(ids, ids, None, _Attention())
    heads = model.attention_spec
    shape = AttentionShape(heads.num_heads, heads.num_kv_heads, heads.head_dim, heads.causal)
    return ModelShapes(tuple(recorder.products), shape)
