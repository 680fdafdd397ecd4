"""Perplexity's dialect: int8 and bits of every vector, nested answers, limits, errors."""

import base64
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest
from ivy_support import (
    CLS,
    HELLO,
    SEP,
    WORLD,
    engine_info,
    expected_spans,
    expected_vector,
    serving,
    vectors_of,
    write_checkpoint,
)

from rosebed.core.engine import EngineInfo
from rosebed.core.quantize import pack_bits, to_int8, to_pplx_int8
from rosebed.core.types import Float32Array
from rosebed.ivy.dialects.perplexity import DocumentList, QuantizedList
from rosebed.testing import FakeEngine

EMBEDDINGS = "/perplexity/v1/embeddings"
CONTEXTUALIZED = "/perplexity/v1/contextualizedembeddings"
IDS = [[CLS, HELLO, SEP], [CLS, WORLD, SEP]]
PPLX = {"architectures": ["PPLXQwen3Model"], "is_matryoshka": True}


@pytest.fixture
async def client(checkpoint: Path, info: EngineInfo) -> AsyncGenerator[httpx.AsyncClient]:
    async with serving(FakeEngine(info), model=str(checkpoint)) as client:
        yield client


@pytest.fixture
def pplx(tmp_path: Path) -> EngineInfo:
    """A model that says it is pplx-embed: quantisers of its own, any dimensions, and no Normalize behind the mean."""
    return engine_info(write_checkpoint(tmp_path / "pplx", **PPLX))


def decoded(answer: httpx.Response, dtype: Any = np.int8) -> list[Any]:
    assert answer.status_code == 200, answer.text
    return [np.frombuffer(base64.b64decode(item["embedding"]), dtype).tolist() for item in answer.json()["data"]]


def as_bits(vectors: Float32Array) -> list[Any]:
    return pack_bits(vectors, "little").tolist()


async def test_int8_is_the_default_under_the_prefix(client: httpx.AsyncClient, info: EngineInfo) -> None:
    answer = await client.post(EMBEDDINGS, json={"input": ["hello", "world"], "model": "tiny bert"})
    vectors = np.stack([expected_vector(info, ids) for ids in IDS])
    assert decoded(answer) == to_int8(vectors).tolist()
    assert answer.json()["usage"] == {"prompt_tokens": 6, "total_tokens": 6}
    msgspec.json.decode(answer.content, type=QuantizedList)
    alone = await client.post(EMBEDDINGS, json={"input": "hello"})
    assert decoded(alone) == decoded(answer)[:1]


async def test_bits_come_with_the_least_significant_first(client: httpx.AsyncClient, info: EngineInfo) -> None:
    body = {"input": ["hello", "world"], "encoding_format": "base64_binary"}
    for path in (EMBEDDINGS, "/v1/embeddings", "/embeddings"):
        answer = await client.post(path, json=body)
        assert decoded(answer, np.uint8) == as_bits(np.stack([expected_vector(info, ids) for ids in IDS]))


async def test_pplx_embed_is_quantised_as_its_own_code_does(pplx: EngineInfo) -> None:
    async with serving(FakeEngine(pplx)) as client:
        for dimensions in (None, 8):
            body = {"input": ["hello", "world"], "dimensions": dimensions}
            vectors = np.stack([expected_vector(pplx, ids, dimensions=dimensions or 0) for ids in IDS])
            assert decoded(await client.post(EMBEDDINGS, json=body)) == to_pplx_int8(vectors).tolist()
            bits = await client.post(EMBEDDINGS, json=body | {"encoding_format": "base64_binary"})
            assert decoded(bits, np.uint8) == as_bits(vectors)
        # Without its prefix, Perplexity's own request is taken for OpenAI's.
        root = await client.post("/v1/embeddings", json={"input": ["hello", "world"]})
        np.testing.assert_array_equal(vectors_of(root), [expected_vector(pplx, ids) for ids in IDS])


@pytest.mark.parametrize("path", [CONTEXTUALIZED, "/v1/contextualizedembeddings"])
async def test_contextualized(client: httpx.AsyncClient, info: EngineInfo, path: str) -> None:
    answer = await client.post(path, json={"input": [["hello world", "a"], ["world"]]})
    assert answer.status_code == 200, answer.text
    first, second = answer.json()["data"]
    vectors = expected_spans(info, [CLS, HELLO, WORLD, 6, SEP], [(1, 3), (3, 4)])
    assert (first["object"], first["index"], [item["index"] for item in first["data"]]) == ("list", 0, [0, 1])
    chunks = [np.frombuffer(base64.b64decode(item["embedding"]), np.int8).tolist() for item in first["data"]]
    assert chunks == to_int8(vectors).tolist()
    assert second["index"] == 1
    assert len(second["data"]) == 1
    assert answer.json()["usage"]["total_tokens"] == 8
    msgspec.json.decode(answer.content, type=DocumentList)


@pytest.mark.parametrize(
    ("path", "body", "location"),
    [
        (EMBEDDINGS, {}, ["input"]),
        (EMBEDDINGS, {"input": ["a", ""]}, ["input", 1]),
        (EMBEDDINGS, {"input": ["a", 5]}, ["input", 1]),
        (EMBEDDINGS, {"input": [[1, 2]]}, ["input", 0]),
        (EMBEDDINGS, {"input": []}, ["input"]),
        (EMBEDDINGS, {"input": ["a"] * 513}, ["input"]),
        (EMBEDDINGS, {"input": "a", "encoding_format": "float"}, ["encoding_format"]),
        (EMBEDDINGS, {"input": "a", "dimensions": 9}, ["dimensions"]),
        (EMBEDDINGS, {"input": ["a", "a " * 30]}, ["input", 1]),
        (CONTEXTUALIZED, {"input": ["a"]}, ["input", 0]),
        (CONTEXTUALIZED, {"input": [["a"], ["a", ""]]}, ["input", 1, 1]),
        (CONTEXTUALIZED, {"input": [["a"], []]}, ["input", 1]),
        (CONTEXTUALIZED, {"input": [["a"], ["a", " "]]}, ["input", 1, 1]),
        (CONTEXTUALIZED, {"input": [["a"], ["a"] * 15]}, ["input", 1]),
        (CONTEXTUALIZED, {"input": [["a"]] * 513}, ["input"]),
        ("/v1/contextualizedembeddings", {"model": None}, []),
        ("/v1/contextualizedembeddings", {"input": [["a"]], "inputs": [["a"]]}, []),
    ],
)
async def test_refusals(client: httpx.AsyncClient, path: str, body: dict[str, Any], location: list[str | int]) -> None:
    answer = await client.post(path, json=body)
    assert answer.status_code == 422, answer.text
    (detail,) = answer.json()["detail"]
    assert detail["loc"] == ["body", *location]
    assert sorted(detail) == ["loc", "msg", "type"]
    assert (await client.post(EMBEDDINGS, json={"input": "hello"})).status_code == 200


async def test_what_is_no_json_is_worded_by_the_dialect(client: httpx.AsyncClient) -> None:
    for path in (EMBEDDINGS, "/v1/contextualizedembeddings"):
        answer = await client.post(path, content=b"{")
        assert (answer.status_code, answer.json()["detail"][0]["loc"]) == (422, ["body"])


async def test_tokens_of_all_inputs_are_limited(checkpoint: Path, info: EngineInfo) -> None:
    async with serving(FakeEngine(info), model=str(checkpoint)) as client:
        document = [["a"] * 14] * 512  # 16 tokens each
        assert (await client.post(CONTEXTUALIZED, json={"input": document})).status_code == 200


async def test_models_that_pool_one_token_have_no_chunks(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "cls")
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    async with serving(FakeEngine(engine_info(folder)), model=str(folder)) as client:
        answer = await client.post(CONTEXTUALIZED, json={"input": [["a"]]})
        assert answer.status_code == 400
        assert answer.json()["detail"][0]["type"] == "wrong_model_kind"


async def test_a_wrong_key_and_an_unknown_model_are_worded_by_the_dialect(checkpoint: Path, info: EngineInfo) -> None:
    async with serving(FakeEngine(info), model=str(checkpoint), api_key="key") as client:
        assert (await client.post(EMBEDDINGS, json={"input": "a"})).json()["detail"][0]["type"] == "invalid_api_key"
        headers = {"authorization": "Bearer key"}
        unknown = await client.post(EMBEDDINGS, json={"input": "a", "model": "x"}, headers=headers)
        assert (unknown.status_code, unknown.json()["detail"][0]["type"]) == (404, "model_not_found")
