"""Classifying over HTTP: what is one text, one pair or a batch, labels in order, and the models that cannot."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ivy_scorers import expected_logits, scorer_info, write_scorer
from ivy_support import CLS, SEP, serving

from rosebed.core.engine import EngineInfo
from rosebed.core.errors import InvalidInput
from rosebed.core.types import Float32Array, OutputKind
from rosebed.ivy.dialects.infinity_scoring import InfinityClasses
from rosebed.ivy.dialects.tei_scoring import Prediction, read_inputs
from rosebed.ivy.dialects.vllm_scoring import ClassifyList
from rosebed.testing import FakeEngine, expected_rows, fake_sequence

A, B, C = 6, 7, 8
LABELS = ["entailment", "neutral", "contradiction"]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> EngineInfo:
    return scorer_info(write_scorer(tmp_path_factory.mktemp("models") / "nli", *LABELS), 3)


@pytest.fixture
async def client(three: EngineInfo) -> AsyncGenerator[httpx.AsyncClient]:
    async with serving(FakeEngine(three), max_inputs=50) as client:
        yield client


def logits_of(info: EngineInfo, *ids: int) -> Float32Array:
    """float32[num_labels] of one text."""
    return expected_rows(fake_sequence([CLS, *ids, SEP]), OutputKind.LOGITS, info)[0]


def softmax(logits: Any) -> Any:
    return np.exp(logits) / np.exp(logits).sum()


def predictions(scores: Any) -> list[dict[str, Any]]:
    """As TEI gives them: the likeliest first."""
    order = np.argsort(-np.asarray(scores), kind="stable")
    return [{"score": pytest.approx(float(scores[label]), rel=1e-5), "label": LABELS[label]} for label in order]


async def post(client: httpx.AsyncClient, path: str, body: Any, status: int = 200) -> Any:
    answer = await client.post(path, json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


@pytest.mark.parametrize("path", ["/predict", "/tei/predict", "/", "/tei", "/invocations"])
async def test_predict(client: httpx.AsyncClient, three: EngineInfo, path: str) -> None:
    """At the top level two texts are one pair; only a list of lists is a batch."""
    single, pair = softmax(logits_of(three, A)), softmax(expected_logits(three, [A], [B]))
    assert await post(client, path, {"inputs": "a"}) == predictions(single)
    assert await post(client, path, {"inputs": ["a"]}) == predictions(single)
    assert await post(client, path, {"inputs": ["a", "b"]}) == predictions(pair)
    batch = await post(client, path, {"inputs": [["a"], ["a", "b"]]})
    assert batch == [predictions(single), predictions(pair)]
    assert await post(client, path, {"inputs": [["a"]]}) == [predictions(single)]
    raw = await post(client, path, {"inputs": ["a", "b"], "raw_scores": True})
    assert raw == predictions(expected_logits(three, [A], [B]))
    msgspec.convert(batch, list[list[Prediction]])


async def test_predict_headers_and_cutting(client: httpx.AsyncClient, three: EngineInfo) -> None:
    answer = await client.post("/predict", json={"inputs": [["a"], ["a", "b"]]})
    assert answer.headers["x-compute-tokens"] == "8"
    assert answer.headers["x-compute-characters"] == "3"
    long = "a " * 20
    cut = await client.post("/predict", json={"inputs": [["b"], [long]], "truncate": True})
    assert cut.headers["x-rosebed-truncated"] == "1"
    assert cut.json()[1] == predictions(softmax(logits_of(three, *[A] * 14)))
    left = {"inputs": f"b {long}", "truncate": True, "truncation_direction": "Left"}
    assert await post(client, "/predict", left) == predictions(softmax(logits_of(three, *[A] * 14)))


@pytest.mark.parametrize(
    ("body", "status", "kind", "message"),
    [
        ({"inputs": ["a", "b", "c"]}, 422, "Validation", "inputs should hold one text or two, not 3"),
        ({"inputs": [["a"], ["a", "b", "c"]]}, 422, "Validation", "inputs[1] should hold one text or two, not 3"),
        ({"inputs": [["a"], []]}, 422, "Validation", "inputs[1] should hold one text or two, not 0"),
        ({"inputs": ["a", ["b"]]}, 422, "Validation", "inputs[1]: inputs should be a text, a pair, or a list of lists"),
        ({"inputs": [["a"], ["b"], "c"]}, 422, "Validation", "inputs[2]: inputs should be a text, a pair"),
        ({"inputs": ["a " * 20, "b"]}, 422, "Validation", "inputs[0] alone takes 23 tokens, over the limit of 16"),
        ({"inputs": [["a"], ["a " * 20, "b"]]}, 422, "Validation", "inputs[1][0] alone takes 23 tokens"),
        ({"inputs": []}, 400, "Empty", "inputs should hold at least one text"),
        ({"inputs": ""}, 422, "Validation", "inputs cannot be empty"),
        ({"inputs": ["", ""]}, 422, "Validation", "inputs cannot be empty"),
        ({"inputs": [["a"], [""]]}, 422, "Validation", "inputs[1] cannot be empty"),
        ({}, 422, "Validation", "inputs is missing"),
        ({"inputs": "a " * 20}, 422, "Validation", "inputs has 22 tokens, over the limit of 16"),
        ({"inputs": [["a"], ["b", "a " * 20]]}, 422, "Validation", "inputs[1] has 24 tokens, over the limit of 16"),
        ({"inputs": [["a"]] * 51}, 422, "Validation", "inputs holds 51 texts, over the limit of 50"),
        ({"inputs": 5}, 422, "Validation", "inputs"),
    ],
)
async def test_predict_refuses(
    client: httpx.AsyncClient, body: dict[str, Any], status: int, kind: str, message: str
) -> None:
    answer = await post(client, "/predict", body, status)
    assert answer["error_type"] == kind
    assert answer["error"].startswith(message)
    assert len(await post(client, "/predict", {"inputs": ["", "b"]})) == 3  # the next one is unharmed


async def test_one_label_is_a_sigmoid(tmp_path: Path) -> None:
    info = scorer_info(write_scorer(tmp_path / "one", "relevance"), 1)
    logit = expected_logits(info, [A], [B])[0]
    async with serving(FakeEngine(info)) as client:
        (prediction,) = await post(client, "/predict", {"inputs": ["a", "b"]})
        classes = await post(client, "/classify", {"input": "a"})
        described = (await client.get("/info")).json()
    assert prediction == {"score": pytest.approx(1 / (1 + np.exp(-logit))), "label": "relevance"}
    assert classes["data"][0]["probs"] == [pytest.approx(1 / (1 + np.exp(-logits_of(info, A)[0])))]
    assert described["model_type"] == {"reranker": {"id2label": {"0": "relevance"}, "label2id": {"relevance": 0}}}


async def test_one_label_is_a_sigmoid_whatever_its_scores_are_as_a_cross_encoder(tmp_path: Path) -> None:
    """As TEI, vLLM and transformers' pipeline, which is Infinity's, have it; `/score` follows the checkpoint."""
    identity = {"activation_fn": "torch.nn.modules.linear.Identity"}
    info = scorer_info(write_scorer(tmp_path / "one", "relevance", sentence_transformers=identity), 1)
    single, pair = logits_of(info, A)[0], expected_logits(info, [A], [B])[0]
    async with serving(FakeEngine(info)) as client:
        (prediction,) = await post(client, "/predict", {"inputs": ["a", "b"]})
        of_vllm = await post(client, "/classify", {"input": "a"})
        of_infinity = await post(client, "/infinity/classify", {"input": ["a"]})
        scored = await post(client, "/score", {"text_1": "a", "text_2": "b"})
    assert prediction["score"] == pytest.approx(1 / (1 + np.exp(-pair)))
    assert of_vllm["data"][0]["probs"] == [pytest.approx(1 / (1 + np.exp(-single)))]
    assert of_infinity["data"][0][0]["score"] == pytest.approx(1 / (1 + np.exp(-single)))
    assert scored["data"][0]["score"] == pytest.approx(pair)


@pytest.mark.parametrize("path", ["/classify", "/vllm/classify"])
async def test_vllm(client: httpx.AsyncClient, three: EngineInfo, path: str) -> None:
    answer = await post(client, path, {"input": ["a", "b c"], "model": "nli"})
    for item, ids in zip(answer["data"], ([A], [B, C]), strict=True):
        expected = softmax(logits_of(three, *ids))
        np.testing.assert_allclose(item["probs"], expected, rtol=1e-5)
        assert item["label"] == LABELS[int(expected.argmax())]
        assert item["num_classes"] == 3
    assert answer["usage"] == {"prompt_tokens": 7, "total_tokens": 7}
    assert (answer["object"], answer["model"]) == ("list", "nli")
    msgspec.convert(answer, ClassifyList)
    raw = await post(client, path, {"input": "a", "use_activation": False})
    np.testing.assert_allclose(raw["data"][0]["probs"], logits_of(three, A), rtol=1e-6)
    bare = await post(client, path, {"input": "a b", "add_special_tokens": False, "activation": False})
    expected = expected_rows(fake_sequence([A, B]), OutputKind.LOGITS, three)[0]
    np.testing.assert_allclose(bare["data"][0]["probs"], expected, rtol=1e-6)


async def test_infinity(client: httpx.AsyncClient, three: EngineInfo) -> None:
    answer = await post(client, "/infinity/classify", {"input": ["a", "b"]})
    assert answer["data"] == [predictions(softmax(logits_of(three, token))) for token in (A, B)]
    assert answer["object"] == "classify"
    msgspec.convert(answer, InfinityClasses)
    assert (await client.get("/infinity/models")).json()["data"][0]["capabilities"] == ["classify"]


async def test_problem_types(tmp_path: Path) -> None:
    folder = write_scorer(tmp_path / "topics", "x", "y", problem_type="multi_label_classification")
    info = scorer_info(folder, 2)
    async with serving(FakeEngine(info)) as client:
        answer = await post(client, "/classify", {"input": "a"})
    np.testing.assert_allclose(answer["data"][0]["probs"], 1 / (1 + np.exp(-logits_of(info, A))), rtol=1e-6)


async def test_a_model_that_embeds_has_no_labels(checkpoint: Path, info: EngineInfo) -> None:
    async with serving(FakeEngine(info), model=str(checkpoint)) as client:
        tei = await post(client, "/predict", {"inputs": "a"}, 424)
        vllm = await post(client, "/classify", {"input": "a"}, 400)
        await post(client, "/", {"inputs": "a"})
    assert tei == {"error": "this model embeds texts, and has no labels", "error_type": "Backend"}
    assert vllm["error"]["message"] == "this model embeds texts, and has no labels"


@given(st.lists(st.text(min_size=1, max_size=3), min_size=1, max_size=4))
def test_a_flat_list_is_never_a_batch(texts: list[str]) -> None:
    if len(texts) > 2:
        with pytest.raises(InvalidInput, match="one text or two"):
            read_inputs([*texts])
        return
    assert read_inputs([*texts]) == ([tuple(texts)], True)
    assert read_inputs([[*texts]]) == ([tuple(texts)], False)
