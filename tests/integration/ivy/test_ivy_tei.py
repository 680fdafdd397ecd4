"""TEI's dialect, at the root and under its prefix: vectors, tokens, similarities, headers, statuses."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from ivy_support import (
    CLS,
    DIM,
    HELLO,
    MAX_LENGTH,
    SEP,
    WORLD,
    engine_info,
    expected_spans,
    expected_vector,
    serving,
    write_checkpoint,
)

from rosebed.core.engine import EngineInfo
from rosebed.testing import FakeEngine, Faults

HELLO_IDS, WORLD_IDS = [CLS, HELLO, SEP], [CLS, WORLD, SEP]
A, NAN_ID = 6, 6 + 25


@pytest.fixture
async def client(checkpoint: Path, info: EngineInfo) -> AsyncGenerator[httpx.AsyncClient]:
    engine = FakeEngine(info, faults=Faults(non_finite={NAN_ID}))
    async with serving(engine, model=str(checkpoint)) as client:
        yield client


def numbers(answer: httpx.Response) -> Any:
    assert answer.status_code == 200, answer.text
    return np.array(answer.json(), np.float32)


@pytest.mark.parametrize("path", ["/embed", "/tei/embed", "/", "/invocations", "/tei", "/tei/", "/tei/invocations"])
async def test_embed(client: httpx.AsyncClient, info: EngineInfo, path: str) -> None:
    expected = [expected_vector(info, ids) for ids in (HELLO_IDS, WORLD_IDS)]
    both = await client.post(path, json={"inputs": ["hello", "world"]})
    np.testing.assert_array_equal(numbers(both), expected)
    np.testing.assert_array_equal(numbers(await client.post(path, json={"inputs": "hello"})), expected[:1])
    np.testing.assert_array_equal(numbers(await client.post(path, json={"inputs": HELLO_IDS})), expected[:1])
    lists = await client.post(path, json={"inputs": [HELLO_IDS, WORLD_IDS]})
    np.testing.assert_array_equal(numbers(lists), expected)


@pytest.mark.parametrize(
    ("fields", "ids"),
    [
        ({"prompt_name": "query"}, [CLS, HELLO, HELLO, SEP]),
        ({"dimensions": DIM, "encoding_format": "float"}, HELLO_IDS),
        ({"truncate": None, "truncation_direction": None, "prompt_name": None, "normalize": None}, HELLO_IDS),
    ],
)
async def test_fields(client: httpx.AsyncClient, info: EngineInfo, fields: dict[str, Any], ids: list[int]) -> None:
    answer = await client.post("/embed", json={"inputs": "hello", **fields})
    np.testing.assert_array_equal(numbers(answer), [expected_vector(info, ids)])


@pytest.mark.parametrize(("direction", "kept"), [("Left", [A + 1] * 14), ("right", [A] * 14), (None, [A] * 14)])
async def test_truncation(client: httpx.AsyncClient, info: EngineInfo, direction: str | None, kept: list[int]) -> None:
    body = {"inputs": "a " * 14 + "b " * 14, "truncate": True, "truncation_direction": direction}
    answer = await client.post("/embed", json=body)
    np.testing.assert_array_equal(numbers(answer), [expected_vector(info, [CLS, *kept, SEP])])
    assert answer.headers["x-rosebed-truncated"] == "0"


async def test_vectors_are_normalised_unless_asked_otherwise(tmp_path: Path) -> None:
    info = replace(engine_info(write_checkpoint(tmp_path / "plain")), normalize=False)
    async with serving(FakeEngine(info)) as client:
        for normalize in (None, True, False):
            answer = await client.post("/embed", json={"inputs": "hello", "normalize": normalize})
            expected = expected_vector(info, HELLO_IDS, normalize=normalize is not False)
            np.testing.assert_array_equal(numbers(answer), [expected])


@pytest.mark.parametrize("path", ["/embed_all", "/tei/embed_all"])
async def test_embed_all(client: httpx.AsyncClient, info: EngineInfo, path: str) -> None:
    answer = await client.post(path, json={"inputs": ["hello world", "a"]})
    assert answer.status_code == 200
    for ids, vectors in zip(([CLS, HELLO, WORLD, SEP], [CLS, A, SEP]), answer.json(), strict=True):
        expected = expected_spans(info, ids, [(i, i + 1) for i in range(len(ids))], normalize=False)
        np.testing.assert_array_equal(np.array(vectors, np.float32), expected)


async def test_embed_all_of_more_tokens_than_a_replica_takes_spans(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "long", max_position_embeddings=700)
    info = engine_info(folder, max_length=700)
    assert info.limits.spans == 256
    async with serving(FakeEngine(info)) as client:
        answer = await client.post("/embed_all", json={"inputs": ["a " * 600, "hello"]})
        assert [len(vectors) for vectors in answer.json()] == [602, 3]
        ids = [CLS, *[A] * 600, SEP]
        expected = expected_spans(info, ids, [(i, i + 1) for i in range(602)], normalize=False)
        np.testing.assert_array_equal(np.array(answer.json()[0], np.float32), expected)


@pytest.mark.parametrize("path", ["/similarity", "/tei/similarity", "/", "/invocations", "/tei"])
async def test_similarity(client: httpx.AsyncClient, info: EngineInfo, path: str) -> None:
    inputs = {"source_sentence": "hello", "sentences": ["hello", "world"]}
    answer = await client.post(path, json={"inputs": inputs})
    source, other = (expected_vector(info, ids) for ids in (HELLO_IDS, WORLD_IDS))
    np.testing.assert_allclose(numbers(answer), [1, float(source @ other)], atol=1e-6)
    prompted = await client.post(path, json={"inputs": inputs, "parameters": {"prompt_name": "query"}})
    source, other = (expected_vector(info, [CLS, HELLO, token, SEP]) for token in (HELLO, WORLD))
    np.testing.assert_allclose(numbers(prompted)[1], source @ other, atol=1e-6)


@pytest.mark.parametrize("path", ["/tokenize", "/tei/tokenize"])
async def test_tokenize(client: httpx.AsyncClient, path: str) -> None:
    cls: dict[str, Any] = {"id": CLS, "text": "[CLS]", "special": True, "start": None, "stop": None}
    sep = cls | {"id": SEP, "text": "[SEP]"}
    hello = {"id": HELLO, "text": "Hello", "special": False, "start": 0, "stop": 5}
    answer = await client.post(path, json={"inputs": "Hello"})
    assert answer.json() == [[cls, hello, sep]]
    answer = await client.post(path, json={"inputs": ["Hello", ""], "add_special_tokens": False})
    assert answer.json() == [[hello], []]
    answer = await client.post(path, json={"inputs": "a", "prompt_name": "query", "add_special_tokens": None})
    assert [token["id"] for token in answer.json()[0]] == [CLS, HELLO, A, SEP]


@pytest.mark.parametrize("path", ["/decode", "/tei/decode"])
async def test_decode(client: httpx.AsyncClient, path: str) -> None:
    assert (await client.post(path, json={"ids": HELLO_IDS})).json() == ["hello"]
    answer = await client.post(path, json={"ids": [HELLO_IDS, [WORLD, A]], "skip_special_tokens": False})
    assert answer.json() == ["[CLS] hello [SEP]", "world a"]


async def test_info(client: httpx.AsyncClient) -> None:
    for path in ("/info", "/tei/info"):
        described = (await client.get(path)).json()
        assert described["model_id"] == "tiny bert"
        assert described["model_type"] == {"embedding": {"pooling": "mean"}}
        assert (described["model_dtype"], described["max_input_length"]) == ("float32", MAX_LENGTH)
        assert (described["max_client_batch_size"], described["auto_truncate"]) == (10_000, False)
        assert {"max_concurrent_requests", "max_batch_tokens", "tokenization_workers", "version"} <= set(described)


async def test_headers(client: httpx.AsyncClient) -> None:
    posts = {"/embed": "hello", "/embed_all": "hello", "/tei/embeddings": "hello"}
    for path, text in posts.items():
        answer = await client.post(path, json={"inputs": text, "input": text})
        assert answer.headers["x-compute-characters"] == "5"
        assert answer.headers["x-compute-tokens"] == "3"
        assert answer.headers["x-compute-type"] == "none"
        times = [int(answer.headers[f"x-{name}-time"]) for name in ("tokenization", "queue", "inference")]
        assert sum(times) <= int(answer.headers["x-total-time"]) + 2
        assert answer.headers["x-compute-time"] == answer.headers["x-total-time"]


async def test_openai_route(client: httpx.AsyncClient, info: EngineInfo) -> None:
    for path in ("/tei/embeddings", "/tei/v1/embeddings"):
        answer = await client.post(path, json={"input": ["hello"], "model": "anything", "user": None})
        (item,) = answer.json()["data"]
        np.testing.assert_array_equal(np.array(item["embedding"], np.float32), expected_vector(info, HELLO_IDS))
        refused = await client.post(path, json={"input": ["a", ""]})
        assert refused.json() == {"message": "input[1] cannot be empty", "code": 422, "type": "Validation"}
        assert refused.status_code == 422


REFUSALS: list[tuple[str, dict[str, Any], int, str, str]] = [
    ("/embed", {}, 422, "Validation", "inputs is missing"),
    ("/embed", {"inputs": []}, 400, "Empty", "inputs should hold at least one"),
    ("/embed", {"inputs": ["a", ""]}, 422, "Validation", "inputs[1] cannot be empty"),
    ("/embed", {"inputs": ["a", 5]}, 422, "Validation", "inputs[1]: inputs should be all texts"),
    ("/embed", {"inputs": [[A], [A, 58]]}, 422, "Validation", "inputs[1][1] is 58"),
    ("/embed", {"inputs": ["a", "a " * 30]}, 422, "Validation", "inputs[1] has 32 tokens, over the limit of 16"),
    ("/embed", {"inputs": "a", "truncation_direction": "up"}, 422, "Validation", "truncation_direction"),
    ("/embed", {"inputs": "a", "prompt_name": "x"}, 422, "Validation", "prompt_name 'x' is unknown"),
    ("/embed", {"inputs": "a", "dimensions": 4}, 422, "Validation", "dimensions is 4"),
    ("/embed", {"inputs": ["a", "z"]}, 424, "Backend", "inputs[1]"),
    ("/embed_all", {"inputs": ["a", "z"]}, 424, "Backend", "inputs[1]"),
    ("/similarity", {"inputs": {"source_sentence": "a"}}, 422, "Validation", "sentences"),
    ("/similarity", {"inputs": {"source_sentence": "a", "sentences": []}}, 400, "Empty", "inputs.sentences"),
    (
        "/similarity",
        {"inputs": {"source_sentence": "a", "sentences": ["a", ""]}},
        422,
        "Validation",
        "inputs.sentences[1] cannot be empty",
    ),
    (
        "/similarity",
        {"inputs": {"source_sentence": "a", "sentences": ["a", "a " * 30]}},
        422,
        "Validation",
        "inputs.sentences[1] has 32 tokens",
    ),
    ("/", {"inputs": {"sentences": ["a"]}}, 422, "Validation", "source_sentence"),
    ("/tokenize", {}, 400, "Empty", "inputs"),
    ("/tokenize", {"inputs": []}, 400, "Empty", "inputs"),
    ("/tokenize", {"inputs": [1]}, 422, "Validation", "inputs[0]"),
    ("/tokenize", {"inputs": ["a"] * 10_001}, 422, "Validation", "(--max-inputs)"),
    ("/tokenize", {"inputs": "a", "prompt_name": "x"}, 422, "Validation", "prompt_name"),
    ("/decode", {"ids": []}, 400, "Empty", "ids"),
    ("/decode", {"ids": [[A], [58]]}, 422, "Validation", "ids[1][0] is 58"),
    ("/decode", {"ids": [A, -1]}, 422, "Validation", "ids[1] is -1"),
    ("/decode", {"ids": [[A], 5]}, 422, "Validation", "ids"),
    ("/decode", {"ids": "a"}, 422, "Validation", "ids"),
]


@pytest.mark.parametrize(("path", "body", "status", "kind", "says"), REFUSALS)
async def test_refusals(
    client: httpx.AsyncClient, path: str, body: dict[str, Any], status: int, kind: str, says: str
) -> None:
    for prefix in ("", "/tei"):
        answer = await client.post(prefix + path, json=body)
        assert answer.status_code == status, answer.text
        assert sorted(answer.json()) == ["error", "error_type"]
        assert answer.json()["error_type"] == kind
        assert says in answer.json()["error"]


async def test_a_wrong_key_is_answered_by_nothing(checkpoint: Path, info: EngineInfo) -> None:
    async with serving(FakeEngine(info), model=str(checkpoint), api_key="key") as client:
        for path in ("/embed", "/", "/tei"):
            answer = await client.post(path, json={"inputs": "a"})
            assert (answer.status_code, answer.content) == (401, b"")
        assert (await client.get("/tei/health")).status_code == 200
