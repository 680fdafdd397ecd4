"""Ranking over HTTP: every dialect under its prefix and at the root, its defaults, its refusals."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest
from ivy_scorers import expected_logits, scorer_info, write_scorer
from ivy_support import CLS, HELLO, SEP, WORLD, expected_vector, serving

from rosebed.core.engine import EngineInfo
from rosebed.ivy.dialects.cohere_rerank import CohereRerankAnswer
from rosebed.ivy.dialects.infinity_scoring import InfinityRanks
from rosebed.ivy.dialects.jina_rerank import JinaRanks
from rosebed.ivy.dialects.tei_scoring import TeiRank
from rosebed.ivy.dialects.vllm_scoring import RerankAnswer, ScoreList
from rosebed.ivy.dialects.voyage_rerank import VoyageRanks
from rosebed.testing import FakeEngine, Faults

LETTERS = "abcabd"
IDS = [6, 7, 8, 6, 7, 9]
"""Of LETTERS: two pairs of ties."""
BODY = {"query": "hello", "documents": list(LETTERS)}
NUM_TOKENS = 4 * 5


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> EngineInfo:
    return scorer_info(write_scorer(tmp_path_factory.mktemp("models") / "scorer", "relevance"), 1)


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> EngineInfo:
    return scorer_info(write_scorer(tmp_path_factory.mktemp("models") / "nli", "e", "n", "c"), 3)


@pytest.fixture
async def client(one: EngineInfo) -> AsyncGenerator[httpx.AsyncClient]:
    async with serving(FakeEngine(one, faults=Faults(non_finite=frozenset({30}))), max_inputs=50) as client:
        yield client


@pytest.fixture
async def embedding(checkpoint: Path, info: EngineInfo) -> AsyncGenerator[httpx.AsyncClient]:
    async with serving(FakeEngine(info), model=str(checkpoint)) as client:
        yield client


@pytest.fixture
async def labelled(three: EngineInfo) -> AsyncGenerator[httpx.AsyncClient]:
    async with serving(FakeEngine(three)) as client:
        yield client


@pytest.fixture
def logits(one: EngineInfo) -> np.ndarray[Any, Any]:
    return np.array([expected_logits(one, [HELLO], [letter])[0] for letter in IDS])


def sigmoid(values: Any) -> Any:
    return 1 / (1 + np.exp(-values))


def order(scores: Any) -> list[int]:
    """Best first, of equal scores the first."""
    return sorted(range(len(scores)), key=lambda index: (-scores[index], index))


async def post(client: httpx.AsyncClient, path: str, body: Any, status: int = 200) -> Any:
    answer = await client.post(path, json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/vllm/rerank", "/vllm/v1/rerank", "/vllm/v2/rerank"])
async def test_vllm(client: httpx.AsyncClient, logits: Any, path: str) -> None:
    answer = await post(client, path, BODY | {"model": "scorer"})
    ranks = answer["results"]
    assert [rank["index"] for rank in ranks] == order(logits)
    np.testing.assert_allclose([rank["relevance_score"] for rank in ranks], sigmoid(logits)[order(logits)], rtol=1e-6)
    assert [rank["document"] for rank in ranks] == [{"text": LETTERS[index]} for index in order(logits)]
    assert answer["usage"] == {"prompt_tokens": NUM_TOKENS, "total_tokens": NUM_TOKENS}
    assert answer["model"] == "scorer"
    assert answer["id"].startswith("rerank-")
    msgspec.convert(answer, RerankAnswer)


async def test_vllm_options(client: httpx.AsyncClient, logits: Any) -> None:
    raw = await post(client, "/rerank", BODY | {"use_activation": False, "return_documents": False, "top_n": 2})
    assert raw["results"] == [
        {"index": index, "relevance_score": pytest.approx(float(logits[index]))} for index in order(logits)[:2]
    ]
    for top_n, number in ((0, 6), (99, 6), (None, 6), (1, 1)):
        assert len((await post(client, "/rerank", BODY | {"top_n": top_n}))["results"]) == number
    objects = await post(client, "/rerank", {"query": "hello", "documents": [{"text": "a", "title": "x"}, "b"]})
    assert {rank["document"]["text"] for rank in objects["results"]} == {"a", "b"}


@pytest.mark.parametrize("path", ["/v2/rerank", "/cohere/v2/rerank", "/cohere/v1/rerank"])
async def test_cohere(client: httpx.AsyncClient, logits: Any, path: str) -> None:
    answer = await post(client, path, BODY | {"top_n": 3})
    best = order(logits)[:3]
    assert answer["results"] == [
        {"index": index, "relevance_score": pytest.approx(float(sigmoid(logits[index])))} for index in best
    ]
    version = "1" if "v1" in path else "2"
    assert answer["meta"] == {
        "api_version": {"version": version},
        "billed_units": {"search_units": 1, "input_tokens": NUM_TOKENS},
    }
    echoed = await post(client, path, BODY | {"return_documents": True, "documents": [{"text": "a"}]})
    assert echoed["results"][0]["document"] == {"text": "a"}
    msgspec.convert(answer, CohereRerankAnswer)


async def test_cohere_cuts(client: httpx.AsyncClient, one: EngineInfo) -> None:
    body = {"query": "hello", "documents": ["a b c d", "a " * 40]}
    answer = await client.post("/v2/rerank", json=body | {"max_tokens_per_doc": 2})
    scores = {rank["index"]: rank["relevance_score"] for rank in answer.json()["results"]}
    assert scores[0] == pytest.approx(float(sigmoid(expected_logits(one, [HELLO], [6, 7])[0])))
    assert answer.headers["x-rosebed-truncated"] == "0,1"
    plain = await client.post("/v2/rerank", json=body)
    assert plain.headers["x-rosebed-truncated"] == "1"


@pytest.mark.parametrize(
    ("path", "extra"),
    [("/voyage/v1/rerank", {}), ("/v1/rerank", {"top_k": None}), ("/v1/rerank", {"truncation": True})],
)
async def test_voyage(client: httpx.AsyncClient, logits: Any, path: str, extra: dict[str, Any]) -> None:
    answer = await post(client, path, BODY | extra)
    assert answer == {
        "object": "list",
        "data": [
            {"index": index, "relevance_score": pytest.approx(float(sigmoid(logits[index])))} for index in order(logits)
        ],
        "model": "scorer",
        "usage": {"total_tokens": NUM_TOKENS},
    }
    echoed = await post(client, path, BODY | extra | {"top_k": 1, "return_documents": True})
    assert [rank["document"] for rank in echoed["data"]] == [LETTERS[order(logits)[0]]]
    msgspec.convert(answer, VoyageRanks)
    long = {"query": "hello", "documents": ["a " * 40]}
    assert len((await post(client, "/voyage/v1/rerank", long))["data"]) == 1
    refusal = await post(client, "/v1/rerank", long | {"truncation": False}, 400)
    assert refusal == {"detail": "documents[0] has 44 tokens, over the limit of 16"}


async def test_jina(client: httpx.AsyncClient, logits: Any) -> None:
    answer = await post(client, "/jina/v1/rerank", BODY | {"query": {"text": "hello"}, "top_n": 4})
    assert [rank["index"] for rank in answer["results"]] == order(logits)[:4]
    assert answer["results"][0]["document"] == {"text": LETTERS[order(logits)[0]]}
    assert answer["usage"]["total_tokens"] == NUM_TOKENS
    msgspec.convert(answer, JinaRanks)
    silent = await post(client, "/jina/v1/rerank", BODY | {"return_documents": False})
    assert "document" not in silent["results"][0]
    refusal = await post(client, "/jina/v1/rerank", {"query": "hello", "documents": ["a " * 40]}, 400)
    assert refusal == {"detail": "documents[0] has 44 tokens, over the limit of 16"}
    cut = await client.post("/jina/v1/rerank", json={"query": "a", "documents": ["a " * 40], "truncate": True})
    assert cut.headers["x-rosebed-truncated"] == "0"


async def test_infinity(client: httpx.AsyncClient, logits: Any) -> None:
    answer = await post(client, "/infinity/rerank", BODY | {"raw_scores": True, "return_documents": True, "top_n": 2})
    assert answer["results"] == [
        {"index": index, "relevance_score": pytest.approx(float(logits[index])), "document": LETTERS[index]}
        for index in order(logits)[:2]
    ]
    assert (answer["object"], answer["model"]) == ("rerank", "scorer")
    msgspec.convert(answer, InfinityRanks)
    plain = await post(client, "/infinity/rerank", BODY)
    assert plain["results"][0]["document"] is None
    models = (await client.get("/infinity/models")).json()
    assert models["data"][0]["capabilities"] == ["rerank", "classify"]


@pytest.mark.parametrize("path", ["/rerank", "/tei/rerank", "/", "/tei", "/invocations"])
async def test_tei(client: httpx.AsyncClient, logits: Any, path: str) -> None:
    body = {"query": "hello", "texts": list(LETTERS)}
    answer = await client.post(path, json=body)
    assert answer.json() == [
        {"index": index, "score": pytest.approx(float(sigmoid(logits[index])))} for index in order(logits)
    ]
    assert answer.headers["x-compute-tokens"] == str(NUM_TOKENS)
    assert answer.headers["x-compute-characters"] == str(6 * 5 + 6)
    msgspec.convert(answer.json(), list[TeiRank])
    raw = await post(client, path, body | {"raw_scores": True, "return_text": True})
    assert raw[0] == {
        "index": order(logits)[0],
        "text": LETTERS[order(logits)[0]],
        "score": pytest.approx(float(logits.max())),
    }


@pytest.mark.parametrize("path", ["/score", "/v1/score", "/vllm/score", "/vllm/v1/score"])
@pytest.mark.parametrize("names", [("text_1", "text_2"), ("queries", "documents")])
async def test_score(
    client: httpx.AsyncClient, one: EngineInfo, logits: Any, path: str, names: tuple[str, str]
) -> None:
    first, second = names
    answer = await post(client, path, {first: "hello", second: list(LETTERS)})
    assert [item["index"] for item in answer["data"]] == list(range(6))
    np.testing.assert_allclose([item["score"] for item in answer["data"]], sigmoid(logits), rtol=1e-6)
    assert {item["object"] for item in answer["data"]} == {"score"}
    assert answer["usage"]["prompt_tokens"] == NUM_TOKENS
    msgspec.convert(answer, ScoreList)
    pairs = await post(client, path, {first: ["a", "b"], second: ["b", "a"], "activation": False})
    expected = [expected_logits(one, [6], [7])[0], expected_logits(one, [7], [6])[0]]
    np.testing.assert_allclose([item["score"] for item in pairs["data"]], expected, rtol=1e-6)
    single = await post(client, path, {first: ["a"], second: "b"})
    assert len(single["data"]) == 1


async def test_cosines(embedding: httpx.AsyncClient, info: EngineInfo) -> None:
    """A model that embeds: each side with its prompt, each distinct text once."""
    query = expected_vector(info, [CLS, HELLO, 6, SEP])
    documents = np.stack([expected_vector(info, [CLS, WORLD, letter, SEP]) for letter in (7, 8, 7)])
    body = {"query": "a", "documents": ["b", "c", "b"]}
    answer = await post(embedding, "/rerank", body)
    cosines = documents @ query
    assert [rank["index"] for rank in answer["results"]] == order(cosines.round(6))
    np.testing.assert_allclose(
        [rank["relevance_score"] for rank in answer["results"]], sorted(cosines, reverse=True), atol=1e-6
    )
    assert answer["usage"]["total_tokens"] == 12
    for path, results in (("/v2/rerank", "results"), ("/voyage/v1/rerank", "data")):
        ranks = (await post(embedding, path, body))[results]
        scores = [rank["relevance_score"] for rank in ranks]
        np.testing.assert_allclose(scores, sorted((1 + cosines) / 2, reverse=True), atol=1e-6)
    scored = await post(embedding, "/score", {"text_1": "a", "text_2": "b"})
    assert scored["data"][0]["score"] == pytest.approx(float(cosines[0]), abs=1e-6)


EMPTY: list[tuple[str, dict[str, Any], int]] = [
    ("/rerank", {"query": "a", "documents": []}, 400),
    ("/v1/rerank", {"query": "a", "documents": [], "top_k": 1}, 400),
    ("/v2/rerank", {"query": "a", "documents": []}, 400),
    ("/rerank", {"query": "a", "texts": []}, 400),
    ("/jina/v1/rerank", {"query": "a", "documents": []}, 400),
    ("/infinity/rerank", {"query": "a", "documents": []}, 422),
    ("/score", {"text_1": "a", "text_2": []}, 400),
]


@pytest.mark.parametrize(("path", "body", "status"), EMPTY)
async def test_no_documents(client: httpx.AsyncClient, path: str, body: dict[str, Any], status: int) -> None:
    answer = await client.post(path, json=body)
    assert answer.status_code == status, answer.text
    assert "should hold at least one text" in answer.text


async def test_empty_texts(client: httpx.AsyncClient, one: EngineInfo) -> None:
    """An empty document scores as its special tokens do; TEI refuses a pair of nothing at all."""
    answer = await post(client, "/score", {"text_1": "", "text_2": ["", "a"], "use_activation": False})
    expected = [expected_logits(one, [], [])[0], expected_logits(one, [], [6])[0]]
    np.testing.assert_allclose([item["score"] for item in answer["data"]], expected, rtol=1e-6)
    assert len(await post(client, "/rerank", {"query": "a", "texts": ["", "b"]})) == 2
    refusal = await post(client, "/rerank", {"query": "", "texts": ["b", ""]}, 422)
    assert refusal == {"error": "texts[1] and the query cannot both be empty", "error_type": "Validation"}


REFUSALS: list[tuple[str, dict[str, Any], int, Any]] = [
    ("/rerank", {"query": "a"}, 422, {"error_type": "Validation"}),
    ("/rerank", {"query": "a", "texts": ["b"], "documents": ["b"]}, 422, {"error_type": "Validation"}),
    ("/rerank", {"documents": ["b"]}, 400, {"error": {"message": "query is missing", "param": "query"}}),
    ("/v1/rerank", {"query": "a"}, 400, {"error": {"message": "documents is missing", "param": "documents"}}),
    (
        "/rerank",
        BODY | {"top_n": -1},
        400,
        {"error": {"message": "top_n should be at least 0, not -1", "param": "top_n"}},
    ),
    ("/v2/rerank", BODY | {"top_n": 0}, 400, {"message": "top_n should be at least 1, not 0"}),
    (
        "/v2/rerank",
        BODY | {"max_tokens_per_doc": 0},
        400,
        {"message": "max_tokens_per_doc should be at least 1, not 0"},
    ),
    ("/voyage/v1/rerank", BODY | {"top_k": 0}, 400, {"detail": "top_k should be at least 1, not 0"}),
    ("/jina/v1/rerank", BODY | {"top_n": 0}, 400, {"detail": "top_n should be at least 1, not 0"}),
    ("/v2/rerank", {"query": "a", "documents": [5]}, 400, {}),
    (
        "/rerank",
        {"query": "a", "documents": ["b", "a " * 20]},
        400,
        {"error": {"message": "documents[1] has 24 tokens, over the limit of 16", "param": "documents[1]"}},
    ),
    (
        "/rerank",
        {"query": "a " * 20, "documents": ["b", "c"]},
        400,
        {"error": {"message": "query alone takes 23 tokens, over the limit of 16", "param": "query"}},
    ),
    (
        "/rerank",
        {"query": "a " * 20, "texts": ["b"]},
        422,
        {"error": "query alone takes 23 tokens, over the limit of 16"},
    ),
    ("/score", {"text_1": "a " * 20, "text_2": ["b", "c"]}, 400, {"error": {"param": "text_1"}}),
    ("/score", {"queries": ["a", "a " * 20], "documents": ["b", "c"]}, 400, {"error": {"param": "queries[1]"}}),
    (
        "/rerank",
        {"query": "a", "texts": ["b", "a " * 20], "truncate": False},
        422,
        {"error": "texts[1] has 24 tokens, over the limit of 16"},
    ),
    (
        "/score",
        {"text_1": ["a", "b"], "text_2": ["a " * 20, "b"]},
        400,
        {"error": {"param": "text_2[0]"}},
    ),
    ("/score", {"text_1": ["a", "b"], "text_2": ["a"] * 3}, 400, {"error": {"param": "text_1"}}),
    ("/score", {"text_1": "a"}, 400, {"error": {"message": "text_2 is missing", "param": "text_2"}}),
    ("/score", {"text_1": "a", "documents": ["b"]}, 400, {"error": {"param": "text_1"}}),
    ("/score", {"text_1": "a", "text_2": "b", "truncate_prompt_tokens": -2}, 400, {"error": {}}),
    ("/score", {"text_1": "a", "text_2": "b", "model": "other"}, 404, {"error": {}}),
    ("/v2/rerank", {"query": "a", "documents": ["b"] * 51}, 400, {}),
    # The token 30 makes the model's output infinite.
    ("/rerank", {"query": "a", "texts": ["a", "y"]}, 424, {"error_type": "Backend"}),
    ("/rerank", {"query": "a", "documents": ["a", "y"]}, 500, {"error": {"param": "documents[1]"}}),
    ("/v1/embeddings", {"input": "a"}, 400, {"error": {"code": "wrong_model_kind"}}),
    ("/embed", {"inputs": "a"}, 424, {"error_type": "Backend"}),
]


def is_within(expected: Any, found: Any) -> bool:
    """Whether `found` has all that `expected` has."""
    if not isinstance(expected, dict):
        return expected == found
    return all(key in found and is_within(value, found[key]) for key, value in expected.items())  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


@pytest.mark.parametrize(("path", "body", "status", "expected"), REFUSALS)
async def test_refusals(client: httpx.AsyncClient, path: str, body: dict[str, Any], status: int, expected: Any) -> None:
    assert is_within(expected, await post(client, path, body, status))
    await post(client, "/rerank", BODY)  # the next one is unharmed


LABELLED: list[tuple[str, dict[str, Any], int, Any]] = [
    ("/rerank", {"query": "a", "texts": ["b"]}, 424, {"error_type": "Backend"}),
    ("/rerank", BODY, 400, {"error": {"type": "BadRequestError"}}),
    ("/v2/rerank", BODY, 400, {}),
    ("/voyage/v1/rerank", BODY, 400, {}),
    ("/jina/v1/rerank", BODY, 400, {}),
    ("/infinity/rerank", BODY, 400, {"error": {"type": "wrong_model_kind"}}),
    ("/score", {"text_1": "a", "text_2": "b"}, 400, {"error": {}}),
]


@pytest.mark.parametrize(("path", "body", "status", "expected"), LABELLED)
async def test_several_labels_are_no_rank(
    labelled: httpx.AsyncClient, path: str, body: dict[str, Any], status: int, expected: Any
) -> None:
    answer = await post(labelled, path, body, status)
    assert is_within(expected, answer)
    assert "3 labels (e, n, c)" in str(answer)


async def test_tei_ranks_by_scorers_only(embedding: httpx.AsyncClient) -> None:
    refusal = await post(embedding, "/rerank", {"query": "a", "texts": ["b"]}, 424)
    assert refusal == {"error": "this model embeds texts, and has no head that scores pairs", "error_type": "Backend"}


async def test_a_large_body_is_read_off_the_loop(client: httpx.AsyncClient) -> None:
    body = {"query": "a", "documents": [{"text": "b", "note": "x" * 40_000}] * 10, "truncate_prompt_tokens": -1}
    assert len((await post(client, "/rerank", body))["results"]) == 10
    refusal = await post(client, "/rerank", {"query": "a", "documents": ["b"] * 100_000}, 400)
    assert "documents holds" in refusal["error"]["message"]
