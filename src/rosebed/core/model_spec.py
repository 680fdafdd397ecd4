"""What a checkpoint is, decided once: pooling, length limit, prompts, normalisation, and from which file each came.

A pure function of the folder's JSON and the operator's overrides; text and ROSE both build on its answer.
Source of the rules: the sentence-transformers and transformers configuration formats.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from rosebed.core.checkpoint import CheckpointFiles, Json, ModuleStage
from rosebed.core.errors import CheckpointError, ConfigError

UNSET_MODEL_MAX_LENGTH = 1_000_000
"""transformers writes a huge `model_max_length` for "unknown"; from here on it is ignored."""

QWEN3_TYPES = frozenset({"qwen3", "bidirectional_pplx_qwen3"})
OFFSET_POSITION_TYPES = frozenset({"roberta", "xlm-roberta", "mpnet", "camembert"})
"""Positions start at padding_idx + 1, so that many rows of the position table are never used."""

NO_POSITION_LIMIT = 1 << 30


class Pooling(StrEnum):
    """How hidden states of a span become one vector."""

    CLS = "cls"
    """The span's first token."""
    MEAN = "mean"
    LAST = "last"
    """The span's last token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOverrides:
    """What the operator insists on; None leaves the checkpoint's word."""

    pooling: str | None = None
    """cls, mean or last."""
    max_length: int | None = None
    """Most tokens of one sequence; clamped to the model's usable positions."""
    matryoshka_any: bool = False
    """Allow `dimensions` on models that do not declare Matryoshka training."""


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
class ModelSpec:
    """All that is known of a model before its weights are read."""

    folder: Path
    config: Json
    """config.json as it is."""
    architecture: str
    """Class name, e.g. BertModel."""
    model_type: str
    """transformers' model_type, e.g. bert."""
    hidden_size: int
    vocab_size: int
    type_vocab_size: int
    max_length: int
    """Most tokens of one sequence, special tokens included."""
    pooling: Pooling
    pool_prompt: bool
    """Whether prompt tokens count in pooling (`include_prompt`)."""
    dense: tuple[DenseStage, ...]
    """Dense modules after pooling, in order."""
    normalize: bool
    """Whether the pipeline ends in Normalize."""
    dim: int
    """Components of the dense vector."""
    prompts: Mapping[str, str]
    default_prompt_name: str | None
    lower_case: bool
    """Lower the text before tokenizing (`do_lower_case` of sentence-transformers, not of the tokenizer)."""
    matryoshka: bool
    """Whether `dimensions` below `dim` are allowed."""
    matryoshka_dimensions: tuple[int, ...]
    """The only smaller sizes allowed; empty allows every one where `matryoshka`."""
    fingerprint: str
    sources: Mapping[str, str] = field(default_factory=dict[str, str])
    """Field name → the file or flag that decided it."""


def resolve_model_spec(files: CheckpointFiles, overrides: ModelOverrides = ModelOverrides()) -> ModelSpec:
    """Decide everything. CheckpointError for what cannot be served, ConfigError for a bad override."""
    config = files.config
    sources: dict[str, str] = {}
    architecture, model_type = _architecture(config)
    pooling_stage = _stage(files, "Pooling")
    dense = tuple(_dense_stage(stage) for stage in files.stages if stage.kind == "Dense")
    _check_stages(files)
    hidden_size = _positive(config, "hidden_size", "dim")
    settings = files.sentence_transformers_config
    prompts, default_prompt_name = _prompts(settings)
    matryoshka_dimensions = tuple(int(size) for size in config.get("matryoshka_dimensions") or ())
    normalize = _normalizes(files, model_type, sources)
    return ModelSpec(
        folder=files.folder,
        config=config,
        architecture=architecture,
        model_type=model_type,
        hidden_size=hidden_size,
        vocab_size=_positive(config, "vocab_size"),
        type_vocab_size=int(config.get("type_vocab_size") or 0),
        max_length=_max_length(files, model_type, overrides, sources),
        pooling=_pooling(pooling_stage, files, model_type, overrides, sources),
        pool_prompt=bool(pooling_stage.config.get("include_prompt", True)) if pooling_stage else True,
        dense=dense,
        normalize=normalize,
        dim=dense[-1].out_features if dense else hidden_size,
        prompts=prompts,
        default_prompt_name=default_prompt_name,
        lower_case=bool(files.sentence_bert_config.get("do_lower_case", False)),
        matryoshka=overrides.matryoshka_any
        or bool(config.get("is_matryoshka") or matryoshka_dimensions)
        or model_type in QWEN3_TYPES,
        matryoshka_dimensions=() if overrides.matryoshka_any else matryoshka_dimensions,
        fingerprint=files.fingerprint,
        sources=sources | {"prompts": "config_sentence_transformers.json" if prompts else "default"},
    )


def _architecture(config: Json) -> tuple[str, str]:
    names = config.get("architectures") or []
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or not names:
        raise CheckpointError("config.json names no architecture: 'architectures' and 'model_type' are needed")
    return str(names[0]), model_type


def _positive(config: Json, *keys: str) -> int:
    for key in keys:
        value: Any = config.get(key)
        if isinstance(value, int) and value > 0:
            return value
    raise CheckpointError(f"config.json: {keys[0]} should be a positive integer, not {config.get(keys[0])!r}")


def _stage(files: CheckpointFiles, kind: str) -> ModuleStage | None:
    return next((stage for stage in files.stages if stage.kind == kind), None)


_KNOWN_STAGES = frozenset({"Transformer", "Pooling", "Dense", "Normalize"})


def _check_stages(files: CheckpointFiles) -> None:
    kinds = [stage.kind for stage in files.stages]
    unknown = sorted(set(kinds) - _KNOWN_STAGES)
    if unknown:
        raise CheckpointError(f"modules.json: stages {', '.join(unknown)} are not supported")
    middle = kinds[2:-1] if kinds and kinds[-1] == "Normalize" else kinds[2:]
    if kinds and (kinds[:2] != ["Transformer", "Pooling"] or any(kind != "Dense" for kind in middle)):
        raise CheckpointError(
            f"modules.json: {' → '.join(kinds)} is not served; Transformer → Pooling → Dense… → Normalize is"
        )


def _dense_stage(stage: ModuleStage) -> DenseStage:
    return DenseStage(
        path=stage.path,
        in_features=_positive(stage.config, "in_features"),
        out_features=_positive(stage.config, "out_features"),
        bias=bool(stage.config.get("bias", True)),
        activation=str(stage.config.get("activation_function", "torch.nn.modules.activation.Tanh")).rpartition(".")[2],
    )


def _prompts(settings: Json) -> tuple[Mapping[str, str], str | None]:
    prompts: Any = settings.get("prompts") or {}
    default = settings.get("default_prompt_name")
    if not isinstance(prompts, dict) or any(not isinstance(text, str) for text in prompts.values()):
        raise CheckpointError("config_sentence_transformers.json: prompts should map names to strings")
    if default is not None and default not in prompts:
        raise CheckpointError(
            f"config_sentence_transformers.json: default_prompt_name {default!r} is not among the prompts "
            f"{sorted(prompts)}"
        )
    return prompts, default


def _normalizes(files: CheckpointFiles, model_type: str, sources: dict[str, str]) -> bool:
    if files.stages:
        sources["normalize"] = "modules.json"
        return files.stages[-1].kind == "Normalize"
    # A bare transformers folder: sentence-transformers would add mean pooling and nothing else.
    sources["normalize"] = f"default for {model_type}"
    return model_type == "qwen3"


def _max_length(files: CheckpointFiles, model_type: str, overrides: ModelOverrides, sources: dict[str, str]) -> int:
    usable = usable_positions(files.config, model_type)
    candidates = (
        ("--max-length", overrides.max_length),
        ("sentence_bert_config.json", files.sentence_bert_config.get("max_seq_length")),
        ("tokenizer_config.json", files.tokenizer_config.get("model_max_length")),
    )
    if overrides.max_length is not None and overrides.max_length < 1:
        raise ConfigError(f"--max-length should be at least 1, not {overrides.max_length}")
    for source, value in candidates:
        if isinstance(value, int | float) and 0 < value < UNSET_MODEL_MAX_LENGTH:
            sources["max_length"] = source if value <= usable else f"{source}, clamped to config.json"
            return min(int(value), usable)
    if usable == NO_POSITION_LIMIT:
        raise CheckpointError("no file says how long a sequence may be: give --max-length")
    sources["max_length"] = "config.json"
    return usable


def usable_positions(config: Json, model_type: str) -> int:
    """Most tokens the position table or rotary range covers (8194 rows of XLM-RoBERTa are 8192 tokens)."""
    rows = config.get("max_position_embeddings")
    if not isinstance(rows, int) or rows < 1:
        return NO_POSITION_LIMIT
    if model_type not in OFFSET_POSITION_TYPES:
        return rows
    # NOTE: MPNet hard-codes padding index 1 for positions, whatever pad_token_id says.
    padding_idx = 1 if model_type == "mpnet" else int(config.get("pad_token_id", 1))
    return rows - padding_idx - 1


def _pooling(
    stage: ModuleStage | None,
    files: CheckpointFiles,
    model_type: str,
    overrides: ModelOverrides,
    sources: dict[str, str],
) -> Pooling:
    if overrides.pooling is not None:
        sources["pooling"] = "--pooling"
        try:
            return Pooling(overrides.pooling)
        except ValueError:
            raise ConfigError(f"--pooling should be cls, mean or last, not {overrides.pooling!r}") from None
    if stage is not None:
        sources["pooling"] = f"{stage.path}/config.json"
        return _pooling_of(stage)
    default = _architecture_pooling(files.config, model_type)
    if default is None:
        raise CheckpointError(
            f"no file says how {model_type} is pooled (no modules.json with a Pooling stage): "
            "give --pooling cls, mean or last"
        )
    sources["pooling"] = f"default for {model_type}"
    return default


def _architecture_pooling(config: Json, model_type: str) -> Pooling | None:
    if model_type == "bidirectional_pplx_qwen3" or (model_type == "qwen3" and config.get("is_causal") is False):
        return Pooling.MEAN
    return Pooling.LAST if model_type == "qwen3" else None


_POOLING_FLAGS = {
    "pooling_mode_cls_token": Pooling.CLS,
    "pooling_mode_mean_tokens": Pooling.MEAN,
    "pooling_mode_lasttoken": Pooling.LAST,
}


def _pooling_of(stage: ModuleStage) -> Pooling:
    named = stage.config.get("pooling_mode")
    chosen = [named] if isinstance(named, str) else [key for key in stage.config if _is_chosen(stage.config, key)]
    if len(chosen) != 1:
        raise CheckpointError(f"{stage.path}/config.json: one pooling mode is served, not {chosen or 'none'}")
    modes = {**_POOLING_FLAGS, **{str(mode): mode for mode in Pooling}, "lasttoken": Pooling.LAST}
    if chosen[0] not in modes:
        raise CheckpointError(f"{stage.path}/config.json: pooling {chosen[0]!r} is not served; cls, mean and last are")
    return modes[chosen[0]]


def _is_chosen(config: Json, key: str) -> bool:
    return key.startswith("pooling_mode_") and bool(config[key])
