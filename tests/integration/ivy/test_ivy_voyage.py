"""Voyage's dialect: numbers or base64 of each type, chunks in the light of their documents."""

import base64
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest
from ivy_support import CLS, HELLO, SEP, WORLD, expected_spans, expected_vector, serving

from rosebed.core.encodings import Encoding, VectorType
from rosebed.core.engine import EngineInfo
from rosebed.ivy.dialects.voyage import VoyageDocumentList, VoyageList
from rosebed.testing import FakeEngine

A = 6
DTYPES = {None: "float32", "float": "float32", "int8": "int8", "uint8": "uint8", "binary": "int8", "ubinary": "uint8"}


@pytest.fixture
async def client(checkpoint: Path, info: EngineInfo) -> AsyncGenerator[httpx.AsyncClient]:
    async with serving(FakeEngine(info), model=str(checkpoint)) as client:
        yield client


def values(items: list[dict[str, Any]], kind: str | None) -> list[Any]:
    """What Voyage's own client makes of an answer, in numbers or in base64."""
    dtype = np.dtype(DTYPES[kind])
    return [
        np.frombuffer(base64.b64decode(item["embedding"]), dtype).tolist()
        if isinstance(item["embedding"], str)
        else np.array(item["embedding"], dtype).tolist()
        for item in items
    ]


def encoded(vectors: Any, kind: str | None) -> list[Any]:
    found = VectorType.FLOAT32 if kind in (None, "float") else VectorType(kind)
    return Encoding(type=found).encode(vectors, "BertModel").tolist()


@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize("encoding_format", [None, "base64"])
async def test_embeddings(
    client: httpx.AsyncClient, info: EngineInfo, kind: str | None, encoding_format: str | None
) -> None:
    vectors = np.stack([expected_vector(info, [CLS, token, SEP]) for token in (HELLO, WORLD)])
    body = {"input": ["hello", "world"], "output_dtype": kind, "encoding_format": encoding_format, "truncation": None}
    for path in ("/voyage/v1/embeddings", "/v1/embeddings"):
        answer = await client.post(path, json=body)
        assert answer.status_code == 200, answer.text
        assert values(answer.json()["data"], kind) == encoded(vectors, kind)
        assert answer.json()["usage"] == {"total_tokens": 6}
        msgspec.json.decode(answer.content, type=VoyageList)


@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize("encoding_format", [None, "base64"])
async def test_contextualized(
    client: httpx.AsyncClient, info: EngineInfo, kind: str | None, encoding_format: str | None
) -> None:
    vectors = expected_spans(info, [CLS, WORLD, HELLO, A, SEP], [(2, 3), (3, 4)])
    body = {"inputs": [["hello", "a"]], "input_type": "document", "output_dtype": kind}
    for path in ("/voyage/v1/contextualizedembeddings", "/v1/contextualizedembeddings"):
        answer = await client.post(path, json=body | {"encoding_format": encoding_format})
        assert answer.status_code == 200, answer.text
        (document,) = answer.json()["data"]
        assert values(document["data"], kind) == encoded(vectors, kind)
        assert answer.json()["usage"] == {"total_tokens": 5}
        msgspec.json.decode(answer.content, type=VoyageDocumentList)


@pytest.mark.parametrize(
    ("fields", "ids"),
    [
        ({"input_type": "query"}, [CLS, HELLO, A, SEP]),
        ({"input_type": "document"}, [CLS, WORLD, A, SEP]),
        ({"output_dimension": 8}, [CLS, A, SEP]),
    ],
)
async def test_fields(client: httpx.AsyncClient, info: EngineInfo, fields: dict[str, Any], ids: list[int]) -> None:
    answer = await client.post("/voyage/v1/embeddings", json={"input": "a", **fields})
    assert values(answer.json()["data"], None) == [expected_vector(info, ids).tolist()]


async def test_too_long_is_cut_unless_told_otherwise(client: httpx.AsyncClient, info: EngineInfo) -> None:
    expected = expected_vector(info, [CLS, *[A] * 14, SEP]).tolist()
    for truncation in ({}, {"truncation": None}, {"truncation": True}):
        answer = await client.post("/voyage/v1/embeddings", json={"input": ["a " * 30], **truncation})
        assert values(answer.json()["data"], None) == [expected]
    refused = await client.post("/v1/embeddings", json={"input": ["a", "a " * 30], "truncation": False})
    assert (refused.status_code, list(refused.json())) == (400, ["detail"])
    assert refused.json()["detail"] == "input[1] has 32 tokens, over the limit of 16"


EMBEDDINGS, CONTEXTUALIZED = "/voyage/v1/embeddings", "/voyage/v1/contextualizedembeddings"
REFUSALS: list[tuple[str, dict[str, Any], str]] = [
    (EMBEDDINGS, {}, "input is missing"),
    (EMBEDDINGS, {"input": []}, "input should hold at least one item"),
    (EMBEDDINGS, {"input": [[1]]}, "input[0]: expected str"),
    (EMBEDDINGS, {"input": "a", "output_dtype": "float16"}, "output_dtype"),
    (EMBEDDINGS, {"input": "a", "input_type": "passage"}, "input_type"),
    (EMBEDDINGS, {"input": "a", "encoding_format": "float"}, "encoding_format"),
    (EMBEDDINGS, {"input": "a", "output_dimension": 4}, "output_dimension is 4"),
    (CONTEXTUALIZED, {}, "inputs is missing"),
    (CONTEXTUALIZED, {"inputs": []}, "inputs should hold at least one item"),
    (CONTEXTUALIZED, {"inputs": [["a"], ["a", ""]]}, "inputs[1][1] gives no tokens"),
    (CONTEXTUALIZED, {"inputs": [["a"], ["a"] * 20]}, "inputs[1] has 22 tokens, and documents are never cut"),
    (CONTEXTUALIZED, {"inputs": [["a"]], "enable_auto_chunking": True}, "enable_auto_chunking"),
    (CONTEXTUALIZED, {"inputs": [["a"] * 200] * 81}, "inputs holds 16200 chunks, over the limit of 16000"),
]


@pytest.mark.parametrize(("path", "body", "says"), REFUSALS)
async def test_refusals(client: httpx.AsyncClient, path: str, body: dict[str, Any], says: str) -> None:
    answer = await client.post(path, json=body)
    assert (answer.status_code, list(answer.json())) == (400, ["detail"])
    assert says in answer.json()["detail"]


async def test_large_bodies_of_documents(client: httpx.AsyncClient, info: EngineInfo) -> None:
    padding = {"unheard_of": "x" * 300_000}
    answer = await client.post(CONTEXTUALIZED, json={"inputs": [["hello"]] * 40, **padding})
    expected = expected_spans(info, [CLS, HELLO, SEP], [(1, 2)]).tolist()
    assert [values(document["data"], None) for document in answer.json()["data"]] == [expected] * 40
    for inputs, says in (
        ([["a", 5]], "inputs[0][1]"),
        ([[]] * 10_001, "holds at least 10001 inputs"),
        ([["a"] * 70_000], "holds at least 70000 chunks"),
        ([["[" * 20_000]], "inputs[0]"),
    ):
        refused = await client.post(CONTEXTUALIZED, json={"inputs": inputs, **padding})
        assert refused.status_code == 400
        assert says in refused.json()["detail"]
