"""vLLM's dialect: pooling, tokens both ways, its state, and its words for errors."""

import base64
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest
from ivy_support import CLS, HELLO, MAX_LENGTH, SEP, WORLD, expected_spans, expected_vector, serving, vectors_of

import rosebed
from rosebed.core.engine import EngineInfo
from rosebed.ivy.dialects.vllm import PoolingList, VllmTokens
from rosebed.testing import FakeEngine

A = 6
IDS = [CLS, HELLO, SEP]


@pytest.fixture
async def client(checkpoint: Path, info: EngineInfo) -> AsyncGenerator[httpx.AsyncClient]:
    async with serving(FakeEngine(info), model=str(checkpoint)) as client:
        yield client


async def test_embeddings(client: httpx.AsyncClient, info: EngineInfo) -> None:
    body = {"input": "hello", "truncation": True, "task": "x", "output_dtype": "int8"}
    answer = await client.post("/vllm/v1/embeddings", json=body)  # under a prefix nothing is decided
    np.testing.assert_array_equal(vectors_of(answer), [expected_vector(info, IDS)])
    raw = await client.post("/vllm/v1/embeddings", json={"input": [IDS], "encoding_format": "bytes_only"})
    assert raw.content == expected_vector(info, IDS).tobytes()


@pytest.mark.parametrize("path", ["/pooling", "/vllm/pooling"])
async def test_pooling(client: httpx.AsyncClient, info: EngineInfo, path: str) -> None:
    vector = expected_vector(info, IDS)
    answer = await client.post(path, json={"input": ["hello"]})
    (item,) = answer.json()["data"]
    np.testing.assert_array_equal(np.array(item["data"], np.float32), vector)
    assert (item["object"], answer.json()["object"], answer.json()["model"]) == ("pooling", "list", "tiny bert")
    msgspec.json.decode(answer.content, type=PoolingList)
    coded = await client.post(path, json={"input": ["hello"], "encoding_format": "base64", "embed_dtype": "float16"})
    assert base64.b64decode(coded.json()["data"][0]["data"]) == vector.astype("<f2").tobytes()
    raw = await client.post(path, json={"input": ["hello"], "encoding_format": "bytes"})
    assert raw.content == vector.tobytes()


async def test_pooling_of_tokens(client: httpx.AsyncClient, info: EngineInfo) -> None:
    body = {"input": ["hello world", "a"], "task": "token_embed"}
    answer = await client.post("/pooling", json=body)
    coded = await client.post("/pooling", json=body | {"encoding_format": "base64"})
    for index, ids in enumerate(([CLS, HELLO, WORLD, SEP], [CLS, A, SEP])):
        expected = expected_spans(info, ids, [(i, i + 1) for i in range(len(ids))])
        np.testing.assert_array_equal(np.array(answer.json()["data"][index]["data"], np.float32), expected)
        assert base64.b64decode(coded.json()["data"][index]["data"]) == expected.tobytes()


@pytest.mark.parametrize("path", ["/tokenize", "/vllm/tokenize"])
async def test_tokenize(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.post(path, json={"prompt": "Hello a", "model": "tiny bert"})
    tokens = {"count": 4, "max_model_len": MAX_LENGTH, "tokens": [CLS, HELLO, A, SEP], "token_strs": None}
    assert answer.json() == tokens
    body = {"prompt": "hello a", "add_special_tokens": False, "return_token_strs": True}
    bare = await client.post(path, json=body)
    assert (bare.json()["tokens"], bare.json()["token_strs"]) == ([HELLO, A], ["hello", "a"])
    msgspec.json.decode(bare.content, type=VllmTokens)


@pytest.mark.parametrize("path", ["/detokenize", "/vllm/detokenize"])
async def test_detokenize(client: httpx.AsyncClient, path: str) -> None:
    assert (await client.post(path, json={"tokens": IDS})).json() == {"prompt": "[CLS] hello [SEP]"}


async def test_state(client: httpx.AsyncClient) -> None:
    for prefix in ("", "/vllm"):
        assert (await client.get(f"{prefix}/version")).json() == {"version": rosebed.__version__}
        assert (await client.get(f"{prefix}/load")).json() == {"server_load": 0}
        assert (await client.get(f"{prefix}/ping")).status_code == 200
    assert (await client.get("/vllm/v1/models")).json()["data"][0]["id"] == "tiny bert"


REFUSALS: list[tuple[str, dict[str, Any], str | None, str]] = [
    ("/vllm/v1/embeddings", {}, "input", "input is missing"),
    ("/vllm/v1/embeddings", {"input": ["a", "a " * 30]}, "input[1]", "over the limit"),
    ("/vllm/v1/embeddings", {"input": "a", "embed_dtype": "fp8_e4m3"}, "embed_dtype", "embed_dtype"),
    ("/pooling", {"input": "a", "task": "classify"}, "task", "task"),
    ("/pooling", {"input": "a", "task": "token_embed", "encoding_format": "bytes"}, "encoding_format", "token_embed"),
    ("/tokenize", {"messages": []}, "messages", "chat template"),
    ("/tokenize", {"prompt": None}, "prompt", "prompt is missing"),
    ("/tokenize", {"prompt": ["a"]}, "prompt", "expected str"),
    ("/tokenize", {"prompt": "a" * 262_145}, "prompt", "over the limit of 262144"),
    ("/detokenize", {}, "tokens", "tokens is missing"),
    ("/detokenize", {"tokens": [A, 58]}, "tokens[1]", "tokens[1] is 58"),
]


@pytest.mark.parametrize(("path", "body", "param", "says"), REFUSALS)
async def test_refusals(
    client: httpx.AsyncClient, path: str, body: dict[str, Any], param: str | None, says: str
) -> None:
    answer = await client.post(path, json=body)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert says in error.pop("message")
    assert error == {"type": "BadRequestError", "param": param, "code": 400}


async def test_an_unknown_model(client: httpx.AsyncClient) -> None:
    for path, field in (("/pooling", "input"), ("/tokenize", "prompt"), ("/vllm/v1/embeddings", "input")):
        answer = await client.post(path, json={field: "a", "model": "x"})
        assert (answer.status_code, answer.json()["error"]["type"]) == (404, "NotFoundError")
