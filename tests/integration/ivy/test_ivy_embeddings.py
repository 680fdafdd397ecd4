"""What a good request is answered, value by value."""

import base64
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import msgspec
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
    expected_vector,
    serving,
    vectors_of,
    write_checkpoint,
)

from rosebed.core.encodings import Encoding, VectorType
from rosebed.core.engine import EngineInfo
from rosebed.core.model_spec import ModelOverrides
from rosebed.ivy.dialects.openai import EmbeddingsList, Model, ModelList
from rosebed.testing import FakeEngine, Faults

HELLO_IDS = [CLS, HELLO, SEP]
A = 6
"""Token id of the letter a."""
NAN_ID = A + 25
"""Token id of the letter z, which the engine of these tests cannot compute."""


@pytest.fixture
async def client(checkpoint: Path, info: EngineInfo) -> AsyncGenerator[httpx.AsyncClient]:
    engine = FakeEngine(info, faults=Faults(non_finite={NAN_ID}))
    async with serving(engine, model=str(checkpoint)) as client:
        yield client


async def embed(client: httpx.AsyncClient, text: Any, **fields: Any) -> httpx.Response:
    return await client.post("/v1/embeddings", json={"input": text, **fields})


async def test_text(client: httpx.AsyncClient, info: EngineInfo) -> None:
    answer = await embed(client, "Hello")
    vector = expected_vector(info, HELLO_IDS)
    assert answer.json() == {
        "object": "list",
        "data": [{"object": "embedding", "index": 0, "embedding": [pytest.approx(x, abs=1e-7) for x in vector]}],
        "model": "tiny bert",
        "usage": {"prompt_tokens": 3, "total_tokens": 3},
    }
    msgspec.json.decode(answer.content, type=EmbeddingsList)


async def test_list_keeps_its_order(client: httpx.AsyncClient, info: EngineInfo) -> None:
    answer = await embed(client, ["a", "hello world", "", "a"])
    ids = [[CLS, A, SEP], [CLS, HELLO, WORLD, SEP], [CLS, SEP], [CLS, A, SEP]]
    np.testing.assert_array_equal(vectors_of(answer), [expected_vector(info, i) for i in ids])
    assert [item["index"] for item in answer.json()["data"]] == [0, 1, 2, 3]
    assert answer.json()["usage"] == {"prompt_tokens": 12, "total_tokens": 12}


@pytest.mark.parametrize("ids", [[HELLO], [CLS, HELLO, SEP], [0, 57]])
async def test_token_ids_are_used_as_given(client: httpx.AsyncClient, info: EngineInfo, ids: list[int]) -> None:
    answer = await embed(client, ids, input_type="query")
    np.testing.assert_array_equal(vectors_of(answer), [expected_vector(info, ids)])
    assert answer.json()["usage"]["prompt_tokens"] == len(ids)


async def test_token_lists(client: httpx.AsyncClient, info: EngineInfo) -> None:
    answer = await embed(client, [[HELLO], [A, A]])
    np.testing.assert_array_equal(vectors_of(answer), [expected_vector(info, ids) for ids in ([HELLO], [A, A])])


async def test_base64_is_the_same_vector(client: httpx.AsyncClient, info: EngineInfo) -> None:
    answer = await embed(client, ["hello", "a"], encoding_format="base64")
    coded = [base64.b64decode(item["embedding"]) for item in answer.json()["data"]]
    numbers = vectors_of(await embed(client, ["hello", "a"], encoding_format="float"))
    np.testing.assert_array_equal([np.frombuffer(data, "<f4") for data in coded], numbers)
    np.testing.assert_array_equal(numbers[0], expected_vector(info, HELLO_IDS))


async def test_null_is_absent_and_unknown_fields_are_ignored(client: httpx.AsyncClient, info: EngineInfo) -> None:
    names = "model encoding_format dimensions user truncate_prompt_tokens truncate add_special_tokens normalize prompt"
    nulls: dict[str, Any] = dict.fromkeys([*names.split(), "prompt_name", "input_type", "priority"])
    answer = await embed(client, "hello", **nulls, unheard_of={"input": ["input"]}, user_agent=None)
    np.testing.assert_array_equal(vectors_of(answer), [expected_vector(info, HELLO_IDS)])


@pytest.mark.parametrize(
    ("fields", "ids"),
    [
        ({"prompt": "a "}, [CLS, A, HELLO, SEP]),
        ({"prompt": "", "prompt_name": "query"}, [CLS, HELLO, SEP]),
        ({"prompt_name": "passage"}, [CLS, WORLD, HELLO, SEP]),
        ({"prompt_name": "passage", "input_type": "query"}, [CLS, WORLD, HELLO, SEP]),
        ({"input_type": "query"}, [CLS, HELLO, HELLO, SEP]),
        ({"input_type": "search_query"}, [CLS, HELLO, HELLO, SEP]),
        ({"input_type": "document"}, [CLS, WORLD, HELLO, SEP]),
        ({"input_type": "classification"}, [CLS, HELLO, SEP]),
        ({"add_special_tokens": False}, [HELLO]),
        ({"user": "me", "priority": 0}, [CLS, HELLO, SEP]),
        ({"priority": 3}, [CLS, HELLO, SEP]),
    ],
)
async def test_fields_that_change_the_tokens(
    client: httpx.AsyncClient, info: EngineInfo, fields: dict[str, Any], ids: list[int]
) -> None:
    answer = await embed(client, "hello", **fields)
    np.testing.assert_array_equal(vectors_of(answer), [expected_vector(info, ids)])


@pytest.mark.parametrize("normalize", [True, False])
async def test_normalize(client: httpx.AsyncClient, info: EngineInfo, normalize: bool) -> None:
    answer = await embed(client, "hello", normalize=normalize)
    np.testing.assert_array_equal(vectors_of(answer), [expected_vector(info, HELLO_IDS, normalize=normalize)])


async def test_native_dimensions_are_always_allowed(client: httpx.AsyncClient, info: EngineInfo) -> None:
    answer = await embed(client, "hello", dimensions=DIM)
    np.testing.assert_array_equal(vectors_of(answer), [expected_vector(info, HELLO_IDS)])


async def test_too_long_is_cut_where_asked(client: httpx.AsyncClient, info: EngineInfo) -> None:
    answer = await embed(client, ["a", "a " * 30, "b", "a " * 15], truncate=True)
    cut = [CLS, *[A] * (MAX_LENGTH - 2), SEP]
    np.testing.assert_array_equal(vectors_of(answer)[[1, 3]], [expected_vector(info, cut)] * 2)
    assert [item.get("truncated_from") for item in answer.json()["data"]] == [None, 32, None, 17]
    assert answer.headers["x-rosebed-truncated"] == "1,3"
    assert answer.json()["usage"]["prompt_tokens"] == 3 + MAX_LENGTH + 3 + MAX_LENGTH
    msgspec.json.decode(answer.content, type=EmbeddingsList)


@pytest.mark.parametrize(("tokens", "kept"), [(5, 3), (-1, MAX_LENGTH - 2), (1000, MAX_LENGTH - 2)])
async def test_truncate_prompt_tokens(client: httpx.AsyncClient, info: EngineInfo, tokens: int, kept: int) -> None:
    answer = await embed(client, "a " * 30, truncate_prompt_tokens=tokens)
    np.testing.assert_array_equal(vectors_of(answer), [expected_vector(info, [CLS, *[A] * kept, SEP])])


async def test_truncate_false_beats_truncate_prompt_tokens(client: httpx.AsyncClient) -> None:
    answer = await embed(client, "a " * 9, truncate_prompt_tokens=5, truncate=False)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "context_length_exceeded"
    assert "11 tokens, over the limit of 5" in answer.json()["error"]["message"]


async def test_header_names_at_most_a_thousand_cut_inputs(client: httpx.AsyncClient) -> None:
    answer = await embed(client, ["a " * 30] * 1200, truncate=True, dimensions=DIM)
    assert answer.headers["x-rosebed-truncated"] == ",".join(map(str, range(1000)))
    assert [item["truncated_from"] for item in answer.json()["data"]] == [32] * 1200


async def test_item_that_cannot_be_computed_fails_the_request_by_its_index(client: httpx.AsyncClient) -> None:
    answer = await embed(client, ["a", "z", "b", "z z"])
    assert answer.status_code == 500
    error = answer.json()["error"]
    assert (error["type"], error["param"], error["code"]) == ("server_error", "input[1]", "non_finite_output")
    assert error["message"].startswith("input[1]: ")
    assert (await embed(client, ["a", "b"])).status_code == 200


async def test_huge_answer_is_whole(client: httpx.AsyncClient, info: EngineInfo) -> None:
    texts = ["hello", "a", "b"] * 3000
    vectors = vectors_of(await embed(client, texts))
    three = [expected_vector(info, [CLS, token, SEP]) for token in (HELLO, A, A + 1)]
    np.testing.assert_array_equal(vectors, three * 3000)


async def test_model_is_echoed_as_asked_for(checkpoint: Path, info: EngineInfo) -> None:
    names = ("org/tiny", "tiny")
    async with serving(FakeEngine(info), model=str(checkpoint), served_model_names=names) as client:
        for asked, echoed in ((None, "org/tiny"), ("tiny", "tiny"), ("org/tiny", "org/tiny")):
            assert (await embed(client, "a", model=asked)).json()["model"] == echoed
        unknown = await embed(client, "a", model="tiny bert")
        assert unknown.status_code == 404
        assert unknown.json()["error"]["code"] == "model_not_found"


async def test_models(client: httpx.AsyncClient, checkpoint: Path) -> None:
    created = int((checkpoint / "config.json").stat().st_mtime)
    described = {
        "id": "tiny bert",
        "object": "model",
        "created": created,
        "owned_by": "rosebed",
        "max_model_len": MAX_LENGTH,
    }
    for path in ("/v1/models", "/models"):
        answer = await client.get(path)
        assert answer.json() == {"object": "list", "data": [described]}
        msgspec.json.decode(answer.content, type=ModelList)
    for path in ("/v1/models/tiny%20bert", "/models/tiny bert"):
        answer = await client.get(path)
        assert answer.json() == described
        msgspec.json.decode(answer.content, type=Model)


async def test_aliases(client: httpx.AsyncClient, info: EngineInfo) -> None:
    answer = await client.post("/embeddings", json={"input": "hello"})
    np.testing.assert_array_equal(vectors_of(answer), [expected_vector(info, HELLO_IDS)])
    assert (await client.get("/ping")).status_code == 200


VECTOR_TYPES = {
    "float32": "<f4",
    "float16": "<f2",
    "int8": "int8",
    "uint8": "uint8",
    "binary": "int8",
    "ubinary": "uint8",
}


@pytest.mark.parametrize("kind", VECTOR_TYPES)
@pytest.mark.parametrize("encoding_format", [None, "base64", "bytes", "bytes_only"])
async def test_encodings(client: httpx.AsyncClient, info: EngineInfo, kind: str, encoding_format: str | None) -> None:
    answer = await embed(client, ["hello", "a"], embed_dtype=kind, encoding_format=encoding_format)
    assert answer.status_code == 200, answer.text
    vectors = np.stack([expected_vector(info, ids) for ids in (HELLO_IDS, [CLS, A, SEP])])
    encoded = Encoding(type=VectorType(kind)).encode(vectors, "BertModel")
    if encoding_format is None:  # floats of fewer bits stay as exact as they are
        expected = vectors if kind == "float16" else encoded
        numbers = [np.array(item["embedding"], expected.dtype) for item in answer.json()["data"]]
        np.testing.assert_array_equal(numbers, expected)
    elif encoding_format == "base64":
        data = [base64.b64decode(item["embedding"]) for item in answer.json()["data"]]
        assert data == [row.astype(VECTOR_TYPES[kind]).tobytes() for row in encoded]
    else:
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.content == encoded.tobytes()
        assert ("metadata" in answer.headers) == (encoding_format == "bytes")


async def test_bytes_say_in_a_header_which_are_whose(client: httpx.AsyncClient, info: EngineInfo) -> None:
    answer = await embed(client, ["hello", "a"], encoding_format="bytes", embed_dtype="bfloat16", endianness="big")
    metadata = json.loads(answer.headers["metadata"])
    assert metadata["model"] == "tiny bert"
    assert metadata["usage"] == {"prompt_tokens": 6, "total_tokens": 6}
    first, second = metadata["data"]
    described = {"index": 1, "embed_dtype": "bfloat16", "endianness": "big", "start": 16, "end": 32, "shape": [8]}
    assert second == described
    halves = np.frombuffer(answer.content[first["start"] : first["end"]], ">u2").astype(np.uint32) << 16
    np.testing.assert_allclose(halves.view(np.float32), expected_vector(info, HELLO_IDS), rtol=2**-8)


async def test_bytes_of_many_vectors_have_no_room_in_a_header(client: httpx.AsyncClient) -> None:
    answer = await embed(client, ["a"] * 1000, encoding_format="bytes")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "encoding_format")
    assert "bytes_only" in answer.json()["error"]["message"]
    whole = await embed(client, ["a"] * 1000, encoding_format="bytes_only")
    assert len(whole.content) == 1000 * 4 * DIM


async def test_ids_of_another_tokenizer_name_the_flag_that_sends_them(client: httpx.AsyncClient) -> None:
    answer = await embed(client, [[9906, 1917]])
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, "input[0]")
    assert error["message"].startswith("input[0][0] is 9906, but token ids lie in [0, 58)")
    assert "check_embedding_ctx_length=False" in error["message"]


@pytest.mark.parametrize(("side", "kept"), [("left", [A + 1] * 3), ("right", [A] * 3)])
async def test_the_side_that_is_cut(client: httpx.AsyncClient, info: EngineInfo, side: str, kept: list[int]) -> None:
    answer = await embed(client, "a a a b b b", truncate_prompt_tokens=5, truncation_side=side)
    np.testing.assert_array_equal(vectors_of(answer), [expected_vector(info, [CLS, *kept, SEP])])


async def test_matryoshka_model(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "matryoshka", is_matryoshka=True)
    info = engine_info(folder)
    async with serving(FakeEngine(info)) as client:
        for dimensions in (1, 4, 7):
            vectors = vectors_of(await embed(client, "hello", dimensions=dimensions))
            np.testing.assert_array_equal(vectors, [expected_vector(info, HELLO_IDS, dimensions=dimensions)])


async def test_dimensions_are_refused_before_texts_are_looked_at(client: httpx.AsyncClient) -> None:
    answer = await embed(client, "a " * 30, dimensions=3)  # too long as well
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "dimensions"


async def test_operator_may_allow_any_dimensions(info: EngineInfo) -> None:
    async with serving(FakeEngine(info), overrides=ModelOverrides(matryoshka="any")) as client:
        vectors = vectors_of(await embed(client, "hello", dimensions=3, normalize=False))
        expected = expected_vector(info, HELLO_IDS, dimensions=3, normalize=False)
        np.testing.assert_array_equal(vectors, [expected])


async def test_auto_truncate(info: EngineInfo) -> None:
    async with serving(FakeEngine(info), auto_truncate=True) as client:
        assert (await embed(client, "a " * 30)).json()["data"][0]["truncated_from"] == 32
        assert (await embed(client, [A] * 30)).json()["data"][0]["truncated_from"] == 30
        assert (await embed(client, "a " * 30, truncate=False)).status_code == 400


async def test_default_prompt(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "prompted")
    prompts = {"prompts": {"query": "hello "}, "default_prompt_name": "query"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    info = engine_info(folder)
    async with serving(FakeEngine(info)) as client:
        vectors = vectors_of(await embed(client, "a"))
        np.testing.assert_array_equal(vectors, [expected_vector(info, [CLS, HELLO, A, SEP])])
        vectors = vectors_of(await embed(client, [A]))
        np.testing.assert_array_equal(vectors, [expected_vector(info, [A])])
