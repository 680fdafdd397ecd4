"""What `rosebed inspect` prints: what was detected of a model folder, and the file or flag that decided it.

Reads JSON, the tokenizer and the headers of the weight files; never a weight.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path

from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer

from rosebed.core.checkpoint import CheckpointFiles, read_json
from rosebed.core.errors import CheckpointError
from rosebed.core.model_spec import ModelOverrides, ModelSpec, ScorerSpec, resolve_model_spec
from rosebed.text.encoders import choose_encoder
from rosebed.text.loading import load_tokenizer
from rosebed.text.special_tokens import SpecialTokenTemplate

_WEIGHTS = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_FLOATS = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}


@dataclass(frozen=True, slots=True)
class InspectRow:
    """One line of the report."""

    field: str
    value: str
    source: str
    """The file (relative to the folder) or flag that decided it."""


def inspect_model(folder: Path, overrides: ModelOverrides = ModelOverrides()) -> list[InspectRow]:
    """Everything that is decided before weights are read. Raises what loading would: CheckpointError, ConfigError."""
    spec = resolve_model_spec(CheckpointFiles.read(folder), overrides)
    tokenizer = load_tokenizer(folder, spec.model_type)
    answers = _vector_rows(spec) if spec.scorer is None else _score_rows(spec.scorer)
    return [*_model_rows(spec), _dtype_row(spec), *answers, *_text_rows(spec, tokenizer)]


def _model_rows(spec: ModelSpec) -> Iterator[InspectRow]:
    yield InspectRow("architecture", f"{spec.architecture} ({spec.model_type})", "config.json")
    yield InspectRow("fingerprint", spec.fingerprint, "tokenizer and configuration files")


def _vector_rows(spec: ModelSpec) -> Iterator[InspectRow]:
    yield InspectRow("dimensions", str(spec.dim), spec.sources["dim"])
    yield InspectRow("fewer dimensions", _fewer_dimensions(spec), spec.sources["matryoshka"])
    yield InspectRow("pooling", spec.pooling, spec.sources["pooling"])
    yield InspectRow("prompt in pooling", _yes(spec.pool_prompt), spec.sources["pool_prompt"])
    for stage in spec.dense:
        shape = f"{stage.in_features} → {stage.out_features}, {stage.activation}"
        yield InspectRow("dense layer", shape, f"{stage.path}/config.json")
    yield InspectRow("normalize", _yes(spec.normalize), spec.sources["normalize"])


def _score_rows(scorer: ScorerSpec) -> Iterator[InspectRow]:
    yield InspectRow("scores by", scorer.kind, scorer.kind_source)
    yield InspectRow("labels", ", ".join(scorer.labels), "config.json")
    yield InspectRow("activation", scorer.activation, scorer.activation_source)


def _text_rows(spec: ModelSpec, tokenizer: Tokenizer) -> Iterator[InspectRow]:
    file = "tokenizer.json" if (spec.folder / "tokenizer.json").is_file() else "vocab.txt"
    kind = type(tokenizer.model).__name__
    yield InspectRow("max length", f"{spec.max_length} tokens", spec.sources["max_length"])
    encoder = choose_encoder(spec.folder, tokenizer)
    yield InspectRow("tokenizer", f"{kind}, {tokenizer.get_vocab_size()} tokens, by {encoder.name}", file)
    yield InspectRow("special tokens", _special_tokens(tokenizer), file)
    yield InspectRow("lower the text", _yes(spec.lower_case), spec.sources["lower_case"])
    for name, text in spec.prompts.items():
        yield InspectRow(f"prompt {name}", json.dumps(text, ensure_ascii=False), spec.sources["prompts"])
    yield InspectRow("default prompt", spec.default_prompt_name or "none", spec.sources["prompts"])


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _fewer_dimensions(spec: ModelSpec) -> str:
    return ", ".join(map(str, spec.matryoshka_dimensions)) or _yes(spec.matryoshka)


def _special_tokens(tokenizer: Tokenizer) -> str:
    """The special tokens around a text, "…" standing for it."""
    before, after = SpecialTokenTemplate.probe(tokenizer, 1).gaps
    return " ".join([*map(str, map(tokenizer.id_to_token, before)), "…", *map(str, map(tokenizer.id_to_token, after))])


def _dtype_row(spec: ModelSpec) -> InspectRow:
    """The number type of the weights as they lie on disk; config.json's word where they are no safetensors files."""
    source, files = _weight_files(spec.folder)
    if not files:
        return InspectRow("dtype", str(spec.config.get("dtype") or spec.config.get("torch_dtype")), "config.json")
    counts = Counter[str]()
    for file in files:
        counts.update(_floats(spec.folder / file))
    return InspectRow(
        "dtype", ", ".join(f"{dtype} ({count / 1e6:.1f} M)" for dtype, count in counts.most_common()), source
    )


def _weight_files(folder: Path) -> tuple[str, list[str]]:
    """The file that names the weight files, and those; none if the folder has no safetensors."""
    index = read_json(folder / _INDEX)
    if index is None:
        return _WEIGHTS, [_WEIGHTS] if (folder / _WEIGHTS).is_file() else []
    weight_map = index.get("weight_map")
    if not isinstance(weight_map, dict):
        raise CheckpointError(f"{folder / _INDEX}: weight_map should map tensors to files, not be {weight_map!r}")
    return _INDEX, sorted(set(weight_map.values()))


def _floats(path: Path) -> Counter[str]:
    """How many numbers of each floating type a safetensors file holds. Reads its header only."""
    counts = Counter[str]()
    try:
        with safe_open(path, framework="numpy") as tensors:
            for name in tensors.keys():  # noqa: SIM118 - not a mapping
                entry = tensors.get_slice(name)
                if entry.get_dtype() in _FLOATS:
                    counts[_FLOATS[entry.get_dtype()]] += prod(entry.get_shape())
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    return counts
