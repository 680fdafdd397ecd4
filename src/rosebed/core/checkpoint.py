"""A model folder as it lies on disk: its JSON files and what they say. Interprets nothing; see `model_spec`."""

import hashlib
import json
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path, PurePosixPath
from typing import Any

from rosebed.core.errors import CheckpointError
from rosebed.core.json_fields import Json

__all__ = ["CheckpointFiles", "Json", "ModuleStage", "read_json"]

_TRANSFORMER_SETTINGS = (
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_xlm-roberta_config.json",
)
"""Older sentence-transformers releases wrote one such file per architecture; the content is the same."""

_FINGERPRINTED = (
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "modules.json",
    "config_sentence_transformers.json",
    *_TRANSFORMER_SETTINGS,
)
"""Files that decide which ids a text becomes and what a vector means; each stage's config.json comes on top."""


@dataclass(frozen=True, slots=True)
class ModuleStage:
    """One entry of a sentence-transformers `modules.json`."""

    type_name: str
    """Full class name, e.g. sentence_transformers.models.Pooling."""
    path: str
    """Its subfolder, "" for the model folder itself."""
    config: Json
    """That subfolder's config.json; empty if it has none."""

    @property
    def kind(self) -> str:
        """Last part of the class name: Transformer, Pooling, Dense, Normalize, …"""
        return self.type_name.rpartition(".")[2]

    @property
    def config_file(self) -> str:
        """Its config.json, relative to the model folder."""
        return f"{self.path}/config.json" if self.path else "config.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFiles:
    """The parsed JSON side of a model folder."""

    folder: Path
    config: Json
    tokenizer_config: Json
    sentence_transformers_config: Json
    sentence_bert_config: Json
    sentence_bert_file: str
    """The file that `sentence_bert_config` was read from."""
    stages: tuple[ModuleStage, ...]
    fingerprint: str

    @classmethod
    def read(cls, folder: Path) -> "CheckpointFiles":
        """Read the folder. CheckpointError if it, or its config.json, is missing or a file is malformed."""
        if not folder.is_dir():
            raise CheckpointError(f"{folder} is not a folder")
        config = read_json(folder / "config.json")
        if config is None:
            raise CheckpointError(f"{folder} has no config.json, so it is not a model folder")
        stages = _read_stages(folder)
        settings_file, settings = _read_transformer_settings(folder)
        return cls(
            folder=folder,
            config=config,
            tokenizer_config=read_json(folder / "tokenizer_config.json") or {},
            sentence_transformers_config=read_json(folder / "config_sentence_transformers.json") or {},
            sentence_bert_config=settings,
            sentence_bert_file=settings_file,
            stages=stages,
            fingerprint=_fingerprint(folder, stages),
        )


def read_json(path: Path) -> Json | None:
    """The JSON object in `path`, or None if there is no such file. CheckpointError if it holds anything else."""
    content = _read(path)
    if content is None:
        return None
    value = _parse(path, content)
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} should hold a JSON object, not {type(value).__name__}")
    return value


def leads_out(path: str) -> bool:
    """Whether `path`, as one of the checkpoint's files writes it, is anything but a plain place in the folder."""
    pure = PurePosixPath(path)
    return pure.is_absolute() or ".." in pure.parts or not path.isprintable()


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        raise CheckpointError(f"{path} cannot be read: {error}") from error


def _parse(path: Path, content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not JSON: {error}") from error


def _read_transformer_settings(folder: Path) -> tuple[str, Json]:
    for name in _TRANSFORMER_SETTINGS:
        if (settings := read_json(folder / name)) is not None:
            return name, settings
    return _TRANSFORMER_SETTINGS[0], {}


def _read_stages(folder: Path) -> tuple[ModuleStage, ...]:
    path = folder / "modules.json"
    content = _read(path)
    if content is None:
        return ()
    entries = _parse(path, content)
    try:
        if not isinstance(entries, list):
            raise TypeError(f"it is a {type(entries).__name__}")
        return tuple(_stage(folder, entry) for entry in sorted(entries, key=itemgetter("idx")))
    except (TypeError, KeyError) as error:
        raise CheckpointError(f"{path} is not a list of {{idx, path, type}}: {error!r}") from error


def _stage(folder: Path, entry: Json) -> ModuleStage:
    type_name, path = entry["type"], entry["path"]
    for key, value in (("type", type_name), ("path", path)):
        if not isinstance(value, str):
            raise TypeError(f"{key} is {value!r}")
    if leads_out(path):
        raise CheckpointError(f"{folder / 'modules.json'}: path {path!r} leads out of the model folder")
    subfolder = "" if PurePosixPath(path) == PurePosixPath() else str(PurePosixPath(path))
    return ModuleStage(type_name, subfolder, read_json(folder / subfolder / "config.json") or {})


def _fingerprint(folder: Path, stages: tuple[ModuleStage, ...]) -> str:
    names = [*_FINGERPRINTED, *(stage.config_file for stage in stages)]
    if not (folder / "tokenizer.json").is_file():
        names.append("vocab.txt")
    digest = hashlib.sha256()
    for name in names:
        digest.update(f"{name}\0".encode())
        if (content := _read(folder / name)) is not None:
            digest.update(hashlib.sha256(content).digest())
    return digest.hexdigest()[:16]
