"""A model folder as it lies on disk: its JSON files and what they say. Interprets nothing; see `model_spec`."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rosebed.core.errors import CheckpointError

Json = Mapping[str, Any]

_FINGERPRINTED = (
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
)
"""Files that decide which ids a text becomes and what a vector means."""


@dataclass(frozen=True, slots=True)
class ModuleStage:
    """One entry of a sentence-transformers `modules.json`."""

    kind: str
    """Last part of the class name: Transformer, Pooling, Dense, Normalize, …"""
    path: str
    """Its subfolder, "" for the model folder itself."""
    config: Json
    """That subfolder's config.json; empty if it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFiles:
    """The parsed JSON side of a model folder."""

    folder: Path
    config: Json
    tokenizer_config: Json
    sentence_transformers_config: Json
    sentence_bert_config: Json
    stages: tuple[ModuleStage, ...]
    fingerprint: str

    @classmethod
    def read(cls, folder: Path) -> "CheckpointFiles":
        """Read the folder. CheckpointError if it, or its config.json, is missing or malformed."""
        if not folder.is_dir():
            raise CheckpointError(f"{folder} is not a folder")
        config = read_json(folder / "config.json")
        if config is None:
            raise CheckpointError(f"{folder} has no config.json, so it is not a model folder")
        return cls(
            folder=folder,
            config=config,
            tokenizer_config=read_json(folder / "tokenizer_config.json") or {},
            sentence_transformers_config=read_json(folder / "config_sentence_transformers.json") or {},
            sentence_bert_config=_read_transformer_settings(folder),
            stages=_read_stages(folder),
            fingerprint=_fingerprint(folder),
        )


def read_json(path: Path) -> Json | None:
    """The JSON object in `path`, or None if there is no such file. CheckpointError if it holds anything else."""
    value = _read_any_json(path)
    if value is not None and not isinstance(value, dict):
        raise CheckpointError(f"{path} should hold a JSON object, not {type(value).__name__}")
    return value


def _read_any_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (ValueError, OSError) as error:
        raise CheckpointError(f"{path} cannot be read as JSON: {error}") from error


def _read_transformer_settings(folder: Path) -> Json:
    # Older sentence-transformers releases wrote one such file per architecture; the content is the same.
    for name in ("sentence_bert_config.json", "sentence_roberta_config.json", "sentence_xlm-roberta_config.json"):
        if (settings := read_json(folder / name)) is not None:
            return settings
    return {}


def _read_stages(folder: Path) -> tuple[ModuleStage, ...]:
    entries = _read_any_json(folder / "modules.json")
    if entries is None:
        return ()
    try:
        return tuple(
            ModuleStage(
                kind=entry["type"].rpartition(".")[2],
                path=entry["path"],
                config=read_json(folder / entry["path"] / "config.json") or {},
            )
            for entry in sorted(entries, key=lambda entry: entry["idx"])
        )
    except (TypeError, KeyError, AttributeError) as error:
        raise CheckpointError(f"{folder / 'modules.json'} is not a list of {{idx, path, type}}: {error!r}") from error


def _fingerprint(folder: Path) -> str:
    digest = hashlib.sha256()
    for name in _FINGERPRINTED:
        path = folder / name
        digest.update(f"{name}\0".encode())
        if path.is_file():
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]
