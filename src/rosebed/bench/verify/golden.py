"""A reference in a file, for machines without the reference library: numpy's `.npz`, nothing pickled."""

import json
from collections.abc import Sequence
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from rosebed.bench.verify.reference import Reference
from rosebed.bench.verify.texts import digest
from rosebed.core.errors import ConfigError
from rosebed.core.model_spec import ModelSpec

FORMAT = "rosebed-golden-1"


def write_golden(path: Path, reference: Reference, spec: ModelSpec, texts: Sequence[str]) -> None:
    """Write `reference`, made of `texts` by the model of `spec`. ConfigError if that is not possible."""
    about = {"format": FORMAT, "source": reference.source, "model": spec.fingerprint, "texts": digest(texts)}
    try:
        with path.open("wb") as file:
            np.savez_compressed(
                file,
                about=np.array(json.dumps(about)),
                token_ids=np.concatenate(reference.token_ids),
                lengths=np.array([len(ids) for ids in reference.token_ids], np.int32),
                vectors=reference.vectors,
            )
    except OSError as error:
        raise ConfigError(f"--golden {path} cannot be written: {error}") from error


def read_golden(path: Path, spec: ModelSpec, texts: Sequence[str]) -> Reference:
    """The reference in `path`. ConfigError if it is none, or of another model or other texts."""
    try:
        with np.load(path, allow_pickle=False) as file:
            about = json.loads(str(file["about"]))
            lengths, token_ids, vectors = file["lengths"], file["token_ids"], file["vectors"]
    except (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile) as error:
        raise ConfigError(f"--golden {path} is not a golden file: {error}") from error
    if about.get("format") != FORMAT:
        raise ConfigError(f"--golden {path} is of the format {about.get('format')}, not {FORMAT}")
    if about["model"] != spec.fingerprint:
        raise ConfigError(f"--golden {path} was made of another model: its tokenizer or configuration differs")
    if about["texts"] != digest(texts):
        raise ConfigError(f"--golden {path} was made of other texts, by another version of Rosebed: make it again")
    return Reference(
        source=f"{about['source']}, from {path.name}",
        token_ids=tuple(np.split(token_ids, np.cumsum(lengths)[:-1])),
        vectors=vectors,
    )
