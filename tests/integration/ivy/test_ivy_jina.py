"""Jina's dialect: types, tasks, late chunking."""

import base64
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest
from ivy_support import CLS, HELLO, SEP, WORLD, expected_spans, expected_vector, serving, vectors_of

from rosebed.core.engine import EngineInfo
from rosebed.core.quantize import to_binary, to_ubinary
from rosebed.ivy.dialects.jina import JinaList
from rosebed.testing import FakeEngine

A = 6
PATH = "/jina/v1/embeddings"


@pytest.fixture
async def client(checkpoint: Path, info: EngineInfo) -> AsyncGenerator[httpx.AsyncClient]:
    async with serving(FakeEngine(info), model=str(checkpoint)) as client:
        yield client


@pytest.mark.parametrize("path", [PATH, "/v1/embeddings"])
async def test_late_chunking(client: httpx.AsyncClient, info: EngineInfo, path: str) -> None:
    answer = await client.post(path, json={"input": ["hello world", "a", "world"], "late_chunking": True})
    spans = expected_spans(info, [CLS, HELLO, WORLD, A, WORLD, SEP], [(1, 3), (3, 4), (4, 5)])
    np.testing.assert_array_equal(vectors_of(answer), spans)
    assert answer.json()["usage"] == {"prompt_tokens": 6, "total_tokens": 6}
    ordinary = await client.post(path, json={"input": ["hello world", "a"], "late_chunking": False})
    expected = [expected_vector(info, ids) for ids in ([CLS, HELLO, WORLD, SEP], [CLS, A, SEP])]
    np.testing.assert_array_equal(vectors_of(ordinary), expected)


@pytest.mark.parametrize(
    ("fields", "ids"),
    [
        ({"task": "retrieval.query"}, [CLS, HELLO, A, SEP]),
        ({"task": "retrieval.passage"}, [CLS, WORLD, A, SEP]),
        ({"task": "text-matching"}, [CLS, A, SEP]),
        ({"task": None, "dimensions": 8, "truncate": True}, [CLS, A, SEP]),
    ],
)
async def test_fields(client: httpx.AsyncClient, info: EngineInfo, fields: dict[str, Any], ids: list[int]) -> None:
    for text in ("a", {"text": "a"}, [{"text": "a"}]):
        answer = await client.post(PATH, json={"input": text, **fields})
        np.testing.assert_array_equal(vectors_of(answer), [expected_vector(info, ids)])


async def test_normalized(client: httpx.AsyncClient, info: EngineInfo) -> None:
    for normalized in (True, False):
        answer = await client.post("/v1/embeddings", json={"input": "hello", "normalized": normalized})
        expected = expected_vector(info, [CLS, HELLO, SEP], normalize=normalized)
        np.testing.assert_array_equal(vectors_of(answer), [expected])


async def test_types(client: httpx.AsyncClient, info: EngineInfo) -> None:
    vector = expected_vector(info, [CLS, HELLO, SEP])
    wanted = {"binary": to_binary(vector).tolist(), "ubinary": to_ubinary(vector).tolist()}
    wanted["base64"] = base64.b64encode(vector.tobytes()).decode()
    for kind, value in wanted.items():
        answer = await client.post(PATH, json={"input": "hello", "embedding_type": kind})
        assert answer.json()["data"][0]["embedding"] == value
    answer = await client.post(PATH, json={"input": "hello", "embedding_type": [*wanted, "float"]})
    embedding = answer.json()["data"][0]["embedding"]
    np.testing.assert_array_equal(np.array(embedding.pop("float"), np.float32), vector)
    assert embedding == wanted
    msgspec.json.decode(answer.content, type=JinaList)


REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({}, "input is missing"),
    ({"input": []}, "input should hold at least one item"),
    ({"input": [1]}, "input[0]"),
    ({"input": [{"image": "x"}]}, "input[0]"),
    ({"input": ["a", "a " * 30]}, "input[1] has 32 tokens"),
    ({"input": "a", "embedding_type": "int4"}, "embedding_type"),
    ({"input": "a", "embedding_type": []}, "embedding_type should name"),
    ({"input": ["a", ""], "late_chunking": True}, "input[1] gives no tokens"),
    (
        {"input": ["a"] * 20, "late_chunking": True, "truncate": True},
        "input has 22 tokens, and documents are never cut",
    ),
    ({"input": [], "late_chunking": True}, "input should hold at least one item"),
]


@pytest.mark.parametrize(("body", "says"), REFUSALS)
async def test_refusals(client: httpx.AsyncClient, body: dict[str, Any], says: str) -> None:
    answer = await client.post(PATH, json=body)
    assert (answer.status_code, list(answer.json())) == (400, ["detail"])
    assert says in answer.json()["detail"]
