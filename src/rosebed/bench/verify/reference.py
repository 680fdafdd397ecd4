"""What the reference library makes of texts: sentence-transformers on the CPU in float32."""

import json
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rosebed.bench.verify.texts import MAX_COMPUTED_TOKENS
from rosebed.core.errors import CheckpointError
from rosebed.core.extras import needs_extra
from rosebed.core.model_spec import ModelSpec, Pooling
from rosebed.core.types import Float32Array, Int32Array

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_STOCK = {"bidirectional_pplx_qwen3": {"model_type": "qwen3", "architectures": ["Qwen3Model"], "is_causal": False}}
"""Model types that the library only knows with code from the checkpoint, and what they are in its own terms."""

BATCH_SIZE = 8
"""Texts that the reference pads to one length: few, since they differ."""


_POOLING_MODES: dict[Pooling, Any] = {Pooling.CLS: "cls", Pooling.MEAN: "mean", Pooling.LAST: "lasttoken"}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reference:
    """Texts' ids and vectors, as somebody else computed them."""

    source: str
    """Library, version, dtype and device."""
    token_ids: tuple[Int32Array, ...]
    """int32[n] of every text, cut to the model's limit, special tokens included."""
    vectors: Float32Array
    """float32[num_computed, dim] of the texts named by `computed`, in order."""

    @property
    def computed(self) -> list[int]:
        """The texts that are short enough for the reference to compute."""
        return [index for index, ids in enumerate(self.token_ids) if len(ids) <= MAX_COMPUTED_TOKENS]


def compute_reference(spec: ModelSpec, texts: Sequence[str]) -> Reference:
    """Run the reference on `texts`. CheckpointError if it cannot load the model.

    Prompts are the checkpoint's default one, as in `Embedder`.
    """
    with _readable_folder(spec) as folder:
        model = _load(spec, folder)
        ids = tuple(_token_ids(model, text) for text in texts)
        short = [text for text, own in zip(texts, ids, strict=True) if len(own) <= MAX_COMPUTED_TOKENS]
        vectors = model.encode(short, batch_size=BATCH_SIZE, show_progress_bar=False)
    source = f"sentence-transformers {version('sentence-transformers')}, float32, cpu"
    return Reference(source=source, token_ids=ids, vectors=np.asarray(vectors, np.float32))


def _token_ids(model: "SentenceTransformer", text: str) -> Int32Array:
    prompt = model.prompts.get(model.default_prompt_name or "") or ""
    return np.asarray(model.preprocess([prompt + text])["input_ids"][0], np.int32)


def _load(spec: ModelSpec, folder: Path) -> "SentenceTransformer":
    with needs_extra("the reference of `rosebed verify`", "bench"):
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer.modules import Normalize, Transformer
        from sentence_transformers.sentence_transformer.modules import Pooling as PoolingStage
    dtype = {"dtype": "float32"}
    try:
        if spec.sources["pooling"].endswith("config.json") and spec.model_type not in _STOCK:
            model = SentenceTransformer(str(folder), device="cpu", model_kwargs=dtype)
        else:
            pooling = PoolingStage(spec.hidden_size, _POOLING_MODES[spec.pooling])
            stages: list[Any] = [
                Transformer(str(folder), model_kwargs=dtype),
                pooling,
                *([Normalize()] if spec.normalize else []),
            ]
            model = SentenceTransformer(modules=stages, device="cpu")
    except (OSError, ValueError, KeyError) as error:
        raise CheckpointError(f"the reference cannot load {folder}: {error}") from error
    model.max_seq_length = spec.max_length
    return model


@contextmanager
def _readable_folder(spec: ModelSpec) -> Generator[Path]:
    """The model's folder, or one that says in the library's own terms what the model is."""
    changes = _STOCK.get(spec.model_type)
    if changes is None:
        yield spec.folder
        return
    with tempfile.TemporaryDirectory(prefix="rosebed-") as directory:
        folder = Path(directory)
        for path in spec.folder.iterdir():
            if path.name not in ("config.json", "modules.json"):
                (folder / path.name).symlink_to(path.absolute())
        (folder / "config.json").write_text(json.dumps({**spec.config, **changes}))
        yield folder
