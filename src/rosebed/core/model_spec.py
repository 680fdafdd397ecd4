"""What a checkpoint is, decided once: pooling, length limit, prompts, normalisation, and from which file each came.

A pure function of the folder's JSON and the operator's overrides; text and ROSE both build on its answer.
Source of the rules: the sentence-transformers and transformers configuration formats.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from rosebed.core.checkpoint import CheckpointFiles, Json
from rosebed.core.errors import CheckpointError, ConfigError
from rosebed.core.json_fields import flag, optional_number, optional_object, positive_int, positive_ints
from rosebed.core.length_limit import max_length
from rosebed.core.pipeline import DenseStage, Pipeline, Pooling, read_pipeline
from rosebed.core.scorer import ScorerSpec, Task, read_scorer

__all__ = ["DenseStage", "ModelOverrides", "ModelSpec", "Pooling", "ScorerSpec", "resolve_model_spec"]

_BIDIRECTIONAL_QWEN3 = "bidirectional_pplx_qwen3"
_MATRYOSHKA_TYPES = frozenset({"qwen3", _BIDIRECTIONAL_QWEN3})
"""Families whose model cards promise Matryoshka dimensions while no file says so."""

_CONTEXTUAL = "PPLXQwen3ContextualModel"

_OPTIONAL_PROMPTS = frozenset({"query", "document"})
"""Names that sentence-transformers knows on every model, with an empty prompt where the checkpoint has none."""


Matryoshka = Literal["declared", "any"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOverrides:
    """What the operator insists on; None leaves the checkpoint's word."""

    pooling: str | None = None
    """cls, mean or last."""
    max_length: int | None = None
    """Most tokens of one sequence; clamped to the model's usable positions."""
    matryoshka: Matryoshka = "declared"
    """Where `dimensions` may be below the native size: as the checkpoint declares, or on any model."""
    task: Task = "auto"
    """Whether the model embeds or scores; auto goes by its files, and, for a Qwen3 language model that has no
    modules.json, by whether its name says rerank."""


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
    """A key of `prompts`."""
    lower_case: bool
    """Lower the text before tokenizing (`do_lower_case` of sentence-transformers, not of the tokenizer)."""
    matryoshka: bool
    """Whether `dimensions` below `dim` are allowed."""
    matryoshka_dimensions: tuple[int, ...]
    """The only smaller sizes allowed; empty allows every one where `matryoshka`."""
    chunk_separator: str | None = None
    """The token between two chunks of a document, for models trained to embed chunks in the light of the others."""
    fingerprint: str
    scorer: ScorerSpec | None = None
    """Of a model that scores texts and pairs; None for one that embeds."""
    sources: Mapping[str, str] = field(default_factory=dict[str, str])
    """Field name → the file or flag that decided it, for those where there is a choice."""


def resolve_model_spec(files: CheckpointFiles, overrides: ModelOverrides = ModelOverrides()) -> ModelSpec:
    """Decide everything. CheckpointError for what cannot be served, ConfigError for a bad override."""
    _check_overrides(overrides)
    config = files.config
    architecture, model_type = _architecture(config)
    scorer = read_scorer(files, architecture, overrides.task)
    if scorer is None:
        _check_task(files)
    pipeline = None if scorer else read_pipeline(files.stages)
    hidden_size = _hidden_size(config)
    dense = pipeline.dense if pipeline else ()
    length, length_source = max_length(files, model_type, overrides.max_length)
    pooling, pooling_source = _pooling(pipeline, config, model_type, overrides, is_scorer=scorer is not None)
    normalize, normalize_source = _normalize(pipeline, config, model_type)
    matryoshka, dimensions, matryoshka_source = _matryoshka(config, model_type, overrides)
    prompts, default_prompt_name = _prompts(files.sentence_transformers_config)
    return ModelSpec(
        folder=files.folder,
        config=config,
        architecture=architecture,
        model_type=model_type,
        hidden_size=hidden_size,
        vocab_size=positive_int(config, "vocab_size", file="config.json"),
        type_vocab_size=optional_number(config, "type_vocab_size", file="config.json") or 0,
        max_length=length,
        pooling=pooling,
        pool_prompt=pipeline.include_prompt if pipeline else True,
        dense=dense,
        normalize=normalize and scorer is None,
        dim=_output_size(hidden_size, dense),
        prompts=prompts,
        default_prompt_name=default_prompt_name,
        lower_case=flag(files.sentence_bert_config, "do_lower_case", default=False, file=files.sentence_bert_file),
        matryoshka=matryoshka,
        matryoshka_dimensions=dimensions,
        chunk_separator=_chunk_separator(config, architecture),
        fingerprint=files.fingerprint,
        scorer=scorer,
        sources={
            "max_length": length_source,
            "pooling": pooling_source,
            "pool_prompt": pipeline.pooling_file if pipeline else "default",
            "normalize": normalize_source,
            "dim": f"{dense[-1].path}/config.json" if dense else "config.json",
            "prompts": "config_sentence_transformers.json" if prompts else "default",
            "lower_case": files.sentence_bert_file if "do_lower_case" in files.sentence_bert_config else "default",
            "matryoshka": matryoshka_source,
        },
    )


def _check_overrides(overrides: ModelOverrides) -> None:
    """Overrides made in Python, unlike those of the command line, hold whatever they were given."""
    if overrides.pooling is not None and overrides.pooling not in tuple(Pooling):
        raise ConfigError(f"--pooling should be {', '.join(Pooling)}, not {overrides.pooling!r}")
    if overrides.matryoshka not in get_args(Matryoshka):
        raise ConfigError(f"--matryoshka should be {' or '.join(get_args(Matryoshka))}, not {overrides.matryoshka!r}")
    if overrides.task not in get_args(Task):
        raise ConfigError(f"--task should be {', '.join(get_args(Task))}, not {overrides.task!r}")
    length = overrides.max_length
    if type(length) not in (int, type(None)):
        raise ConfigError(f"--max-length should be a whole number, not {length!r}")


def _architecture(config: Json) -> tuple[str, str]:
    names, model_type = config.get("architectures"), config.get("model_type")
    if not isinstance(model_type, str) or not isinstance(names, list) or not names or not isinstance(names[0], str):
        raise CheckpointError("config.json names no architecture: 'architectures' and 'model_type' are needed")
    return names[0], model_type


def _check_task(files: CheckpointFiles) -> None:
    task = files.sentence_bert_config.get("transformer_task", "feature-extraction")
    if task != "feature-extraction":
        raise CheckpointError(f"{files.sentence_bert_file}: transformer_task {task!r} is not served, only embedding is")


def _hidden_size(config: Json) -> int:
    key = "dim" if "hidden_size" not in config and "dim" in config else "hidden_size"  # DistilBERT says dim.
    return positive_int(config, key, file="config.json")


def _output_size(hidden_size: int, dense: tuple[DenseStage, ...]) -> int:
    size = hidden_size
    for stage in dense:
        if stage.in_features != size:
            raise CheckpointError(f"{stage.path}/config.json: in_features is {stage.in_features}, what comes in {size}")
        size = stage.out_features
    return size


def _causal_qwen3(config: Json, model_type: str) -> bool:
    return model_type == "qwen3" and flag(config, "is_causal", default=True, file="config.json")


def _bidirectional_qwen3(config: Json, model_type: str) -> bool:
    return model_type == _BIDIRECTIONAL_QWEN3 or (model_type == "qwen3" and not _causal_qwen3(config, model_type))


def _pooling(
    pipeline: Pipeline | None, config: Json, model_type: str, overrides: ModelOverrides, *, is_scorer: bool
) -> tuple[Pooling, str]:
    if is_scorer:  # the head says which token it reads
        return Pooling.CLS, "the scoring head"
    if overrides.pooling is not None:
        return Pooling(overrides.pooling), "--pooling"
    if pipeline is not None:
        return pipeline.pooling, pipeline.pooling_file
    if _causal_qwen3(config, model_type):
        return Pooling.LAST, f"default for {model_type}"
    if _bidirectional_qwen3(config, model_type):
        return Pooling.MEAN, f"default for {model_type}"
    raise CheckpointError(
        f"no file says how {model_type} is pooled (no modules.json with a Pooling stage): "
        f"give --pooling {', '.join(Pooling)}"
    )


def _normalize(pipeline: Pipeline | None, config: Json, model_type: str) -> tuple[bool, str]:
    if pipeline is not None:
        return pipeline.normalize, "modules.json"
    # sentence-transformers would not normalise a bare transformers folder; Qwen3-Embedding's own recipe does.
    return _causal_qwen3(config, model_type), f"default for {model_type}"


def _matryoshka(config: Json, model_type: str, overrides: ModelOverrides) -> tuple[bool, tuple[int, ...], str]:
    """Whether fewer dimensions are allowed, which ones (empty: all), and what says so."""
    dimensions = positive_ints(config, "matryoshka_dimensions", file="config.json")
    declared = flag(config, "is_matryoshka", default=False, file="config.json")
    if overrides.matryoshka == "any":
        return True, (), "--matryoshka any"
    if declared or dimensions:
        return True, dimensions, "config.json"
    return model_type in _MATRYOSHKA_TYPES, (), f"default for {model_type}"


def _chunk_separator(config: Json, architecture: str) -> str | None:
    """pplx-embed-context has the configuration of pplx-embed, and a class of its own, named in `auto_map` at least."""
    classes = optional_object(config, "auto_map", file="config.json")
    names = (architecture, str(classes.get("AutoModel", "")).rpartition(".")[2])
    return "<|endoftext|>" if _CONTEXTUAL in names else None


def _prompts(settings: Json) -> tuple[Mapping[str, str], str | None]:
    file = "config_sentence_transformers.json"
    given, default = settings.get("prompts") or {}, settings.get("default_prompt_name")
    if not isinstance(given, dict) or any(not isinstance(text, str | None) for text in given.values()):
        raise CheckpointError(f"{file}: prompts should map names to strings, not be {given!r}")
    # sentence-transformers saves null for a prompt that nobody set.
    prompts = {name: text or "" for name, text in given.items()}
    if default is None or (isinstance(default, str) and default in prompts):
        return prompts, default
    if isinstance(default, str) and default in _OPTIONAL_PROMPTS:
        return prompts | {default: ""}, default
    raise CheckpointError(f"{file}: default_prompt_name {default!r} is not among the prompts {sorted(prompts)}")
