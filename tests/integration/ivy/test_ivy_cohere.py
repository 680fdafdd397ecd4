"""Cohere's dialect: several forms of each vector at once, cutting by default."""

import base64
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest
from ivy_support import CLS, HELLO, SEP, WORLD, expected_vector, serving

from rosebed.core.engine import EngineInfo
from rosebed.core.quantize import to_binary, to_int8, to_ubinary, to_uint8
from rosebed.ivy.dialects.cohere import CohereEmbedAnswer
from rosebed.testing import FakeEngine

A = 6
PATHS = ["/cohere/v2/embed", "/v2/embed", "/vllm/v2/embed"]
TYPES = ["float", "int8", "uint8", "binary", "ubinary", "base64"]


@pytest.fixture
async def client(checkpoint: Path, info: EngineInfo) -> AsyncGenerator[httpx.AsyncClient]:
    async with serving(FakeEngine(info), model=str(checkpoint)) as client:
        yield client


@pytest.mark.parametrize("path", PATHS)
async def test_all_types_at_once(client: httpx.AsyncClient, info: EngineInfo, path: str) -> None:
    body = {"model": "tiny bert", "texts": ["hello", "world"], "embedding_types": [*TYPES, "float"]}
    answer = await client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    vectors = np.stack([expected_vector(info, [CLS, token, SEP]) for token in (HELLO, WORLD)])
    embeddings = answer.json()["embeddings"]
    assert list(embeddings) == TYPES
    np.testing.assert_array_equal(np.array(embeddings["float"], np.float32), vectors)
    assert [np.frombuffer(base64.b64decode(row), "<f4").tolist() for row in embeddings["base64"]] == vectors.tolist()
    for kind, quantize in {"int8": to_int8, "uint8": to_uint8, "binary": to_binary, "ubinary": to_ubinary}.items():
        assert embeddings[kind] == quantize(vectors).tolist()
    assert answer.json()["texts"] == ["hello", "world"]
    assert answer.json()["meta"] == {"api_version": {"version": "2"}, "billed_units": {"input_tokens": 6}}
    assert answer.json()["id"] == answer.headers["x-request-id"]
    msgspec.json.decode(answer.content, type=CohereEmbedAnswer)


@pytest.mark.parametrize(
    ("fields", "ids"),
    [
        ({"input_type": "search_query"}, [CLS, HELLO, A, SEP]),
        ({"input_type": "search_document"}, [CLS, WORLD, A, SEP]),
        ({"input_type": "classification"}, [CLS, A, SEP]),
        ({"input_type": None, "output_dimension": 8, "priority": 1, "images": None}, [CLS, A, SEP]),
    ],
)
async def test_fields(client: httpx.AsyncClient, info: EngineInfo, fields: dict[str, Any], ids: list[int]) -> None:
    answer = await client.post("/v2/embed", json={"texts": ["a"], **fields})
    numbers = np.array(answer.json()["embeddings"]["float"], np.float32)
    np.testing.assert_array_equal(numbers, [expected_vector(info, ids)])


@pytest.mark.parametrize(
    ("fields", "ids"),
    [
        ({}, [CLS, *[A] * 14, SEP]),
        ({"truncate": "END"}, [CLS, *[A] * 14, SEP]),
        ({"truncate": "START"}, [CLS, *[A + 1] * 14, SEP]),
        ({"truncate": "START", "max_tokens": 4}, [CLS, A + 1, A + 1, SEP]),
    ],
)
async def test_too_long_is_cut(
    client: httpx.AsyncClient, info: EngineInfo, fields: dict[str, Any], ids: list[int]
) -> None:
    answer = await client.post("/v2/embed", json={"texts": ["a " * 20 + "b " * 20], **fields})
    numbers = np.array(answer.json()["embeddings"]["float"], np.float32)
    np.testing.assert_array_equal(numbers, [expected_vector(info, ids)])
    assert answer.headers["x-rosebed-truncated"] == "0"


async def test_inputs_of_one_text_each(client: httpx.AsyncClient, info: EngineInfo) -> None:
    inputs = [{"content": [{"type": "text", "text": text}]} for text in ("hello", "world")]
    answer = await client.post("/v2/embed", json={"inputs": inputs})
    vectors = [expected_vector(info, [CLS, token, SEP]) for token in (HELLO, WORLD)]
    np.testing.assert_array_equal(np.array(answer.json()["embeddings"]["float"], np.float32), vectors)


REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({}, "texts is missing"),
    ({"texts": []}, "texts should hold at least one item"),
    ({"texts": "a"}, "texts: expected array"),
    ({"texts": ["a", None]}, "texts[1]"),
    ({"texts": ["a"], "embedding_types": ["float", "hex"]}, "embedding_types[1]: invalid enum value 'hex'"),
    ({"texts": ["a"], "truncate": "MIDDLE"}, "truncate"),
    ({"texts": ["a", "a " * 30], "truncate": "NONE"}, "texts[1] has 32 tokens, over the limit of 16"),
    ({"texts": ["a"], "max_tokens": 0}, "max_tokens should be at least 1"),
    ({"texts": ["a"], "input_type": "x"}, "input_type"),
    ({"texts": ["a"], "output_dimension": 4}, "output_dimension is 4"),
    ({"texts": ["a"], "images": ["data:"]}, "images are not embedded"),
    ({"texts": ["a"], "inputs": []}, "only one should be there"),
    ({"inputs": [{"content": []}]}, "inputs[0] should hold one text"),
    ({"inputs": [{"content": [{"type": "image_url", "image_url": {}}]}]}, "inputs[0].content[0].type"),
]


@pytest.mark.parametrize(("body", "says"), REFUSALS)
async def test_refusals(client: httpx.AsyncClient, body: dict[str, Any], says: str) -> None:
    answer = await client.post("/cohere/v2/embed", json=body)
    assert (answer.status_code, list(answer.json())) == (400, ["message"])
    assert says in answer.json()["message"]
    of_vllm = await client.post("/vllm/v2/embed", json=body)
    assert of_vllm.json()["error"]["message"] == answer.json()["message"]


async def test_large_bodies_are_read_as_small_ones_are(client: httpx.AsyncClient, info: EngineInfo) -> None:
    padding = {"unheard_of": "x" * 300_000}
    answer = await client.post("/v2/embed", json={"texts": ["hello"] * 40, **padding})
    assert answer.json()["embeddings"]["float"] == [pytest.approx(expected_vector(info, [CLS, HELLO, SEP]))] * 40
    for texts, says in (("hello", "expected array"), (["a", 5], "texts[1]"), (["a"] * 10_001, "(--max-inputs)")):
        refused = await client.post("/v2/embed", json={"texts": texts, **padding})
        assert refused.status_code == 400
        assert says in refused.json()["message"]
