"""Scores of pairs and labels of texts, before a fake engine whose logits and vectors a test predicts."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ivy_scorers import computed, expected_logits, scorer_info, scoring, write_scorer
from ivy_support import CLS, HELLO, SEP, WORLD, engine_info, expected_vector

from rosebed.core.activations import Activation
from rosebed.core.engine import EngineInfo
from rosebed.core.errors import ConfigError, ContextLengthExceeded, InvalidInput, NonFiniteOutput, WrongModelKind
from rosebed.core.scores import Scale, check_top_n, ranked
from rosebed.ivy.config import ModelConfig
from rosebed.ivy.model import ServedModel
from rosebed.ivy.scoring_request import ClassificationRequest, ScoringRequest
from rosebed.testing import FakeEngine, Faults
from rosebed.text.tokenized import Side

A, B, C = 6, 7, 8


def request(queries: Any = ("hello",), documents: Any = ("a", "b"), **fields: Any) -> ScoringRequest:
    return ScoringRequest(queries=queries, documents=documents, **fields)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_scorer(tmp_path_factory.mktemp("models") / "scorer", "relevance")


@pytest.fixture(scope="module")
def one(folder: Path) -> EngineInfo:
    return scorer_info(folder, 1)


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> EngineInfo:
    folder = write_scorer(tmp_path_factory.mktemp("models") / "nli", "entailment", "neutral", "contradiction")
    return scorer_info(folder, 3)


async def test_one_query_and_many_documents(one: EngineInfo) -> None:
    engine = FakeEngine(one)
    async with scoring(engine) as service:
        answer = await service.score(request(documents=["a", "b world", "", "a"], scale=Scale.RAW))
    expected = [expected_logits(one, [HELLO], ids)[0] for ids in ([A], [B, WORLD], [], [A])]
    assert answer.scores.tolist() == expected
    assert answer.model == "scorer"
    # The same pair is computed once: 5 + 6 + 4 tokens.
    assert answer.num_tokens == 15
    assert [sequence.token_ids.tolist() for sequence in computed(engine)] == [
        [CLS, HELLO, SEP, A, SEP],
        [CLS, HELLO, SEP, B, WORLD, SEP],
        [CLS, HELLO, SEP, SEP],
    ]


async def test_each_query_with_its_own_document(one: EngineInfo) -> None:
    async with scoring(FakeEngine(one)) as service:
        answer = await service.score(request(["a", "b"], ["b", "a"], scale=Scale.RAW))
    assert answer.scores.tolist() == [expected_logits(one, [A], [B])[0], expected_logits(one, [B], [A])[0]]


@pytest.mark.parametrize("scale", [Scale.MODEL, Scale.UNIT])
async def test_scales(one: EngineInfo, scale: Scale) -> None:
    async with scoring(FakeEngine(one)) as service:
        answer = await service.score(request(scale=scale))
    logits = np.array([expected_logits(one, [HELLO], [A])[0], expected_logits(one, [HELLO], [B])[0]])
    np.testing.assert_allclose(answer.scores, 1 / (1 + np.exp(-logits)), rtol=1e-6)


async def test_the_checkpoint_says_that_logits_are_scores(tmp_path: Path) -> None:
    folder = write_scorer(
        tmp_path / "m", "x", sentence_transformers={"activation_fn": "torch.nn.modules.linear.Identity"}
    )
    info = scorer_info(folder, 1)
    async with scoring(FakeEngine(info)) as service:
        plain = await service.score(request(documents=["a"]))
        unit = await service.score(request(documents=["a"], scale=Scale.UNIT))
    logit = expected_logits(info, [HELLO], [A])[0]
    assert plain.scores.tolist() == [logit]
    assert unit.scores[0] == pytest.approx(1 / (1 + np.exp(-logit)))


async def test_cutting(one: EngineInfo) -> None:
    long = " ".join("abcdefghijkl")
    async with scoring(FakeEngine(one)) as service:
        with pytest.raises(
            ContextLengthExceeded, match=r"^documents\[1\] has 18 tokens, over the limit of 16"
        ) as caught:
            await service.score(request(["hello world hello"], ["a", long]))
        assert caught.value.param == "documents[1]"
        with pytest.raises(ContextLengthExceeded, match=r"^texts\[0\] has 5 tokens, over the limit of 4"):
            await service.score(request(document_field="texts", truncate=False, truncate_to=4))
        with pytest.raises(
            ContextLengthExceeded, match=r"^query alone takes 17 tokens, over the limit of 16"
        ) as caught:
            await service.score(request(["a " * 14], ["a", "b"]))
        assert caught.value.param == "query"
        with pytest.raises(ContextLengthExceeded, match=r"^text_1\[1\] alone takes 17 tokens"):
            await service.score(request(["a", "a " * 14], ["a", "b"], query_field="text_1", document_field="text_2"))
        with pytest.raises(ContextLengthExceeded, match=r"^documents\[0\] has 17 tokens"):  # as it is with any query
            await service.score(request(["a " * 13], ["a", "b"]))
        cut = await service.score(request(["hello"], ["a", long], truncate_to=6, scale=Scale.RAW))
        left = await service.score(request(["hello"], [long], truncate_to=6, side=Side.LEFT, scale=Scale.RAW))
        short = await service.score(request(["hello"], [long], document_tokens=1, scale=Scale.RAW))
    assert cut.truncated_from == {1: 16}
    assert cut.num_tokens == 5 + 6
    assert cut.scores[1] == expected_logits(one, [HELLO], [A, B])[0]
    assert left.scores[0] == expected_logits(one, [HELLO], [16, 17])[0]
    assert short.scores[0] == expected_logits(one, [HELLO], [A])[0]
    assert short.truncated_from == {0: 16}


async def test_the_server_may_be_set_to_cut(one: EngineInfo) -> None:
    async with scoring(FakeEngine(one), auto_truncate=True) as service:
        answer = await service.score(request(documents=["a " * 30]))
        with pytest.raises(ContextLengthExceeded, match=r"documents\[0\] has 34 tokens"):
            await service.score(request(documents=["a " * 30], truncate=False))
    assert answer.truncated_from == {0: 34}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"documents": []}, "documents should hold at least one text"),
        ({"documents": [], "document_field": "texts"}, "texts should hold at least one text"),
        ({"documents": ["a"] * 51}, r"documents holds 51 texts, over the limit of 50 \(--max-inputs\)"),
        (
            {"queries": ["a"] * 3, "query_field": "text_1", "document_field": "text_2"},
            "text_1 holds 3 texts and text_2 2: there should be one of the former, or as many",
        ),
        ({"queries": []}, "query holds 0 texts and documents 2"),
    ],
)
async def test_what_is_refused(one: EngineInfo, fields: Any, message: str) -> None:
    async with scoring(FakeEngine(one)) as service:
        with pytest.raises(InvalidInput, match=f"^{message}"):
            await service.score(request(**fields))
        assert len((await service.score(request())).scores) == 2  # the next one is unharmed


async def test_what_fails_is_named(one: EngineInfo) -> None:
    engine = FakeEngine(one, faults=Faults(non_finite=frozenset({C})))
    async with scoring(engine) as service:
        with pytest.raises(NonFiniteOutput, match=r"^documents\[2\]: ") as caught:
            await service.score(request(documents=["a", "a", "c", "c"]))
    assert caught.value.param == "documents[2]"


async def test_several_labels_are_no_score(three: EngineInfo) -> None:
    async with scoring(FakeEngine(three)) as service:
        with pytest.raises(WrongModelKind, match=r"has 3 labels \(entailment, neutral, contradiction\)"):
            await service.score(request())


async def test_cosines_of_a_model_that_embeds(info: EngineInfo) -> None:
    """Each distinct text is computed once, with its side's prompt: "hello " before queries, "world " before others."""
    engine = FakeEngine(info)
    async with scoring(engine) as service:
        answer = await service.score(request(["a"], ["a", "b", "a"]))
        unit = await service.score(request(["a"], ["a"], scale=Scale.UNIT))
        with pytest.raises(WrongModelKind, match="embeds texts"):
            await service.score(request(only_scorers=True))
    query, first, second = (
        expected_vector(info, [CLS, *ids, SEP], normalize=True) for ids in ([HELLO, A], [WORLD, A], [WORLD, B])
    )
    np.testing.assert_allclose(answer.scores, [query @ first, query @ second, query @ first], atol=1e-6)
    assert answer.scores[0] == answer.scores[2]
    assert answer.num_tokens == 12
    assert unit.scores[0] == pytest.approx((1 + query @ first) / 2, abs=1e-6)
    assert [sequence.token_ids.tolist() for sequence in computed(engine)[:3]] == [
        [CLS, HELLO, A, SEP],
        [CLS, WORLD, A, SEP],
        [CLS, WORLD, B, SEP],
    ]


async def test_what_becomes_the_same_tokens_is_computed_once(tmp_path: Path, checkpoint: Path) -> None:
    """A query and a document alike, though only the document is cut; documents alike as far as they are kept."""
    folder = tmp_path / "bare"
    shutil.copytree(checkpoint, folder)
    (folder / "config_sentence_transformers.json").unlink()
    engine = FakeEngine(engine_info(folder), faults=Faults(non_finite=frozenset({C})))
    async with scoring(engine) as service:
        answer = await service.score(request(["a"], ["a", "b a a", "b a b"], document_tokens=2, truncate=True))
        with pytest.raises(NonFiniteOutput, match=r"^documents\[2\]: "):
            await service.score(request(["a"], ["a", "a", "c"], document_tokens=2))
    assert [sequence.token_ids.tolist() for sequence in computed(engine)[:2]] == [[CLS, A, SEP], [CLS, B, A, SEP]]
    assert answer.num_tokens == 3 + 4
    assert answer.scores[0] == pytest.approx(1)
    assert answer.scores[1] == answer.scores[2]
    assert answer.truncated_from == {1: 5, 2: 5}


async def test_pairs_that_become_the_same_tokens_are_computed_once(one: EngineInfo) -> None:
    engine = FakeEngine(one)
    async with scoring(engine) as service:
        answer = await service.score(request(["hello"], ["a b", "a a"], document_tokens=1, scale=Scale.RAW))
    assert [sequence.token_ids.tolist() for sequence in computed(engine)] == [[CLS, HELLO, SEP, A, SEP]]
    assert answer.num_tokens == 5
    assert answer.scores.tolist() == [expected_logits(one, [HELLO], [A])[0]] * 2


async def test_without_prompts_both_sides_share_their_texts(tmp_path: Path, info: EngineInfo, checkpoint: Path) -> None:
    folder = tmp_path / "bare"
    shutil.copytree(checkpoint, folder)
    (folder / "config_sentence_transformers.json").unlink()
    bare = engine_info(folder)
    engine = FakeEngine(bare)
    async with scoring(engine) as service:
        answer = await service.score(request(["a"], ["a", "b"]))
        with pytest.raises(ContextLengthExceeded, match=r"^query has 20 tokens"):
            await service.score(request(["c " * 18], ["a"]))
        with pytest.raises(ContextLengthExceeded, match=r"^documents\[1\] has 20 tokens"):
            await service.score(request(["c"], ["a", "c " * 18]))
        with pytest.raises(ContextLengthExceeded, match=r"^queries\[1\] has 20 tokens"):
            await service.score(request(["c", "a " * 18], ["c", "a"], query_field="queries"))
    assert answer.num_tokens == 6
    assert answer.scores[0] == pytest.approx(1)


async def test_classify(three: EngineInfo) -> None:
    async with scoring(FakeEngine(three)) as service:
        answer = await service.classify(ClassificationRequest(inputs=[("a",), ("b", "c"), ("a",)]))
        raw = await service.classify(ClassificationRequest(inputs=[("b", "c")], activation=Activation.IDENTITY))
    assert answer.labels == ("entailment", "neutral", "contradiction")
    np.testing.assert_allclose(answer.scores.sum(axis=1), 1, rtol=1e-6)
    logits = expected_logits(three, [B], [C])
    np.testing.assert_array_equal(raw.scores[0], logits)
    np.testing.assert_allclose(answer.scores[1], np.exp(logits) / np.exp(logits).sum(), rtol=1e-6)
    assert answer.scores[0].tolist() == answer.scores[2].tolist()
    assert answer.num_tokens == 3 + 5  # what comes twice is computed once


@pytest.mark.parametrize(
    ("problem_type", "activation"),
    [
        ("regression", Activation.IDENTITY),
        ("multi_label_classification", Activation.SIGMOID),
        (None, Activation.SOFTMAX),
    ],
)
async def test_classify_by_problem_type(tmp_path: Path, problem_type: str | None, activation: Activation) -> None:
    info = scorer_info(write_scorer(tmp_path / "m", "x", "y", problem_type=problem_type), 2)
    async with scoring(FakeEngine(info)) as service:
        own = await service.classify(ClassificationRequest(inputs=[("a",)]))
        asked = await service.classify(ClassificationRequest(inputs=[("a",)], activation=activation))
    assert own.scores.tolist() == asked.scores.tolist()


async def test_classify_names_what_is_wrong(three: EngineInfo, info: EngineInfo) -> None:
    async with scoring(FakeEngine(three)) as service:
        with pytest.raises(ContextLengthExceeded, match=r"^inputs\[2\] has 18 tokens"):
            await service.classify(ClassificationRequest(inputs=[("a", "b"), ("a",), ("a " * 16,)]))
        with pytest.raises(ContextLengthExceeded, match=r"^input\[1\]\[0\] alone takes 19 tokens"):
            await service.classify(ClassificationRequest(inputs=[("a",), ("a " * 16, "b")], field="input"))
        with pytest.raises(InvalidInput, match="inputs should hold at least one text"):
            await service.classify(ClassificationRequest(inputs=[]))
    async with scoring(FakeEngine(info)) as service:
        with pytest.raises(WrongModelKind, match="has no labels"):
            await service.classify(ClassificationRequest(inputs=[("a",)]))


async def test_a_replica_that_embeds_is_none_of_a_scorer(one: EngineInfo, info: EngineInfo, folder: Path) -> None:
    model = ServedModel.load(str(folder), ModelConfig(tulips=("127.0.0.1:1",)))
    with pytest.raises(ConfigError, match="give both the same --task"):
        model.check_replica(replace(one, outputs=info.outputs))
    model.check_replica(one)


def test_ranks() -> None:
    scores = np.array([0.5, 0.75, 0.5, 0.75, 0.1], np.float32)
    assert ranked(scores) == [1, 3, 0, 2, 4]
    assert ranked(scores, 3) == [1, 3, 0]
    assert ranked(scores, 99) == [1, 3, 0, 2, 4]
    assert ranked(scores[:0]) == []
    assert check_top_n(None) is None
    assert check_top_n(4) == 4
    with pytest.raises(InvalidInput, match="top_k should be at least 1, not 0"):
        check_top_n(0, "top_k")
