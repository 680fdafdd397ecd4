"""What comes after the transformer: pooling, dense layers, normalisation, as `modules.json` lists them.

Source of the rules: sentence-transformers, whose older releases wrote one flag per pooling mode and whose newer ones
write `pooling_mode`. Knows nothing of architectures: what holds without a `modules.json` is `model_spec`'s to decide.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from rosebed.core.checkpoint import ModuleStage
from rosebed.core.errors import CheckpointError
from rosebed.core.json_fields import Json, flag, positive_int


class Pooling(StrEnum):
    """How hidden states of a span become one vector."""

    CLS = "cls"
    """The span's first token."""
    MEAN = "mean"
    LAST = "last"
    """The span's last token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseStage:
    """A sentence-transformers Dense module: activation(x W^T + b)."""

    path: str
    in_features: int
    out_features: int
    bias: bool
    activation: str
    """Class name in torch.nn, e.g. Tanh or Identity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """The stages after the transformer."""

    pooling: Pooling
    pooling_file: str
    """Where that is said, relative to the model folder."""
    include_prompt: bool
    """Whether prompt tokens count in pooling."""
    dense: tuple[DenseStage, ...]
    """Dense modules after pooling, in order."""
    normalize: bool
    """Whether it ends in Normalize."""


_QUANTIZER = "st_quantize.FlexibleQuantizer"
"""The stage that ends pplx-embed's own pipeline. Vectors here stay unquantised; `core.quantize` is its work."""

_OWN_PACKAGE = "sentence_transformers."


def read_pipeline(stages: Sequence[ModuleStage]) -> Pipeline | None:
    """The stages of a `modules.json`, None if there is none. CheckpointError for any that is not computed."""
    served = [stage for stage in stages if stage.type_name != _QUANTIZER]
    if not served:
        return None
    _check(served)
    pooling = served[1]
    return Pipeline(
        pooling=_pooling(pooling),
        pooling_file=pooling.config_file,
        include_prompt=flag(pooling.config, "include_prompt", default=True, file=pooling.config_file),
        dense=tuple(_dense(stage) for stage in served if stage.kind == "Dense"),
        normalize=served[-1].kind == "Normalize",
    )


def _check(stages: Sequence[ModuleStage]) -> None:
    foreign = [stage.type_name for stage in stages if not stage.type_name.startswith(_OWN_PACKAGE)]
    if foreign:
        raise CheckpointError(f"modules.json: {', '.join(foreign)} is code of the checkpoint's own, which is never run")
    kinds = [stage.kind for stage in stages]
    middle = kinds[2:-1] if kinds[-1] == "Normalize" else kinds[2:]
    if kinds[:2] != ["Transformer", "Pooling"] or any(kind != "Dense" for kind in middle):
        raise CheckpointError(
            f"modules.json: {' → '.join(kinds)} is not served; Transformer → Pooling → Dense… → Normalize is"
        )
    if stages[0].path:
        raise CheckpointError(f"modules.json: the Transformer lies in {stages[0].path}; it should lie at the top")


def _dense(stage: ModuleStage) -> DenseStage:
    file = stage.config_file
    for key, served in (("module_input_name", "sentence_embedding"), ("use_residual", False)):
        if stage.config.get(key, served) != served:
            raise CheckpointError(f"{file}: {key} {stage.config[key]!r} is not served, only {served!r}")
    return DenseStage(
        path=stage.path,
        in_features=positive_int(stage.config, "in_features", file=file),
        out_features=positive_int(stage.config, "out_features", file=file),
        bias=flag(stage.config, "bias", default=True, file=file),
        activation=_activation(stage.config, file),
    )


def _activation(config: Json, file: str) -> str:
    name = config.get("activation_function", "torch.nn.modules.activation.Tanh")
    if not isinstance(name, str) or not name.startswith("torch.nn."):
        raise CheckpointError(f"{file}: activation_function {name!r} is not served, only classes of torch.nn")
    return name.rpartition(".")[2]


_MODES = {"cls": Pooling.CLS, "mean": Pooling.MEAN, "lasttoken": Pooling.LAST}
_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}


def _pooling(stage: ModuleStage) -> Pooling:
    if not stage.config:
        raise CheckpointError(f"{stage.config_file} is missing, so nothing says how the model is pooled")
    names = _mode_names(stage.config, stage.config_file)
    if len(names) != 1:
        raise CheckpointError(f"{stage.config_file}: one pooling mode is served, not {' + '.join(names)}")
    if names[0] not in _MODES:
        raise CheckpointError(f"{stage.config_file}: pooling {names[0]} is not served; {', '.join(_MODES)} are")
    return _MODES[names[0]]


def _mode_names(config: Json, file: str) -> list[str]:
    """The modes asked for, in sentence-transformers' words; it takes the mean where a file names none."""
    named = config.get("pooling_mode")
    if named is not None:
        return [str(name) for name in named] if isinstance(named, list) else [str(named)]
    return [mode for key, mode in _FLAGS.items() if flag(config, key, default=False, file=file)] or ["mean"]
