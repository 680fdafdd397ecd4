"""Bits of vectors that do not fill whole bytes: every dialect says so of its own field."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from ivy_support import engine_info, serving, write_checkpoint

from rosebed.core.model_spec import ModelOverrides
from rosebed.testing import FakeEngine

REQUESTS: list[tuple[str, dict[str, Any], str, str]] = [
    ("/openai/v1/embeddings", {"input": "a", "embed_dtype": "binary"}, "dimensions", "embed_dtype"),
    ("/vllm/pooling", {"input": "a", "embed_dtype": "ubinary"}, "dimensions", "embed_dtype"),
    ("/jina/v1/embeddings", {"input": "a", "embedding_type": "binary"}, "dimensions", "embedding_type"),
    (
        "/cohere/v2/embed",
        {"texts": ["a"], "embedding_types": ["int8", "ubinary"]},
        "output_dimension",
        "embedding_types",
    ),
    ("/voyage/v1/embeddings", {"input": "a", "output_dtype": "binary"}, "output_dimension", "output_dtype"),
    (
        "/voyage/v1/contextualizedembeddings",
        {"inputs": [["a"]], "output_dtype": "ubinary"},
        "output_dimension",
        "output_dtype",
    ),
    (
        "/perplexity/v1/embeddings",
        {"input": ["a"], "encoding_format": "base64_binary"},
        "dimensions",
        "encoding_format",
    ),
    (
        "/perplexity/v1/contextualizedembeddings",
        {"input": [["a"]], "encoding_format": "base64_binary"},
        "dimensions",
        "encoding_format",
    ),
]
"""Path, body, the dialect's names for the number of components and for the form of them."""


async def test_components_asked_for(checkpoint: Path) -> None:
    async with serving(
        FakeEngine(engine_info(checkpoint)), model=str(checkpoint), overrides=ModelOverrides(matryoshka="any")
    ) as client:
        for path, body, dimensions, _ in REQUESTS:
            answer = await client.post(path, json={**body, dimensions: 4})
            assert answer.status_code in (400, 422)
            assert f"{dimensions}: bit formats need a multiple of 8 components, not 4" in answer.text, path
            assert (await client.post(path, json={**body, dimensions: 8})).status_code == 200  # the next is unharmed


async def test_all_components(tmp_path: Path) -> None:
    """Nothing was asked for but the form, which the model's vectors do not have."""
    folder = write_checkpoint(tmp_path / "twelve", hidden_size=12)
    engine = FakeEngine(replace(engine_info(folder), model=str(folder)))
    async with serving(engine, model=str(folder)) as client:
        for path, body, _, form in REQUESTS:
            answer = await client.post(path, json=body)
            assert answer.status_code in (400, 422)
            assert f"{form}: bit formats need a multiple of 8 components, not 12" in answer.text, path
