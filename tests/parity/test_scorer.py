"""`Scorer` against sentence-transformers' CrossEncoder."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import text_assets
import torch
import transformers
from rose_checkpoints import rewrite_json
from sentence_transformers import CrossEncoder

from rosebed import Embedder, Scorer
from rosebed.core.errors import ConfigError, InvalidInput, NonFiniteOutput, Unavailable, WrongModelKind
from rosebed.core.types import Float32Array

QUERY = "How many people live in Berlin?"
DOCUMENTS = [
    "Berlin had a population of 3,520,031 registered inhabitants in an area of 891.82 square kilometers.",
    "Berlin is well known for its museums.",
    "",
    "Füße, naïve café, 東京は日本の首都です。",
    "word " * 400,
    "Berlin is well known for its museums.",
]
PAIRS = [(QUERY, document) for document in DOCUMENTS] + [("", ""), ("word " * 300, "other " * 300)]
DEFAULTS: dict[str, Any] = {"query": "a", "documents": ["b"]}
_SIZES: dict[str, Any] = {
    "vocab_size": 30522,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "initializer_range": 0.3,
}


def sizes(num_labels: int) -> dict[str, Any]:
    return _SIZES | {"num_labels": num_labels}


def write_cross_encoder(folder: Path, num_labels: int, **settings: Any) -> Path:
    """A random BERT cross-encoder with the vocabulary of MiniLM."""
    torch.manual_seed(num_labels)
    config = transformers.BertConfig(**sizes(num_labels))
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(text_assets.minilm()).save_pretrained(folder)
    rewrite_json(folder / "config.json", settings)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_cross_encoder(tmp_path_factory.mktemp("one"), 1)


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_cross_encoder(
        tmp_path_factory.mktemp("three"), 3, id2label={"0": "entailment", "1": "neutral", "2": "contradiction"}
    )


def cross_encoder(folder: Path, **arguments: Any) -> Any:
    return CrossEncoder(str(folder), device="cpu", **arguments)


def predictions(folder: Path, **arguments: Any) -> Float32Array:
    return cross_encoder(folder).predict(PAIRS, show_progress_bar=False, **arguments)


def test_scores_are_those_of_cross_encoders(folder: Path) -> None:
    with Scorer(folder) as scorer:
        scores = scorer.score(PAIRS)
        raw = scorer.score(PAIRS, activation="identity")
        alone = np.concatenate([scorer.score([pair]) for pair in PAIRS])
        np.testing.assert_allclose(scores, predictions(folder), atol=1e-5)
        np.testing.assert_allclose(raw, predictions(folder, activation_fn=torch.nn.Identity()), atol=1e-5)
        np.testing.assert_allclose(alone, scores, atol=1e-5)
        prompted = scorer.score(PAIRS, prompt="query: ")
        np.testing.assert_allclose(prompted, predictions(folder, prompt="query: "), atol=1e-5)
    assert scores.shape == (len(PAIRS),)
    assert scores.dtype == np.float32
    assert np.ptp(scores) > 0.01


def test_ranks_are_those_of_cross_encoders(folder: Path) -> None:
    reference = cross_encoder(folder)
    with Scorer(folder) as scorer:
        ranks = scorer.rerank(QUERY, DOCUMENTS)
        assert [rank.index for rank in scorer.rerank(QUERY, DOCUMENTS, top_n=2)] == [rank.index for rank in ranks[:2]]
        assert scorer.rerank(QUERY, []) == []
    expected = reference.rank(QUERY, DOCUMENTS, show_progress_bar=False)
    assert [rank.index for rank in ranks] == [rank["corpus_id"] for rank in expected]
    np.testing.assert_allclose([rank.score for rank in ranks], [rank["score"] for rank in expected], atol=1e-5)
    twins = [place for place, rank in enumerate(ranks) if rank.index in (1, 5)]
    assert [ranks[place].index for place in twins] == [1, 5]  # the same text, so a tie


def test_several_labels(labelled: Path) -> None:
    with Scorer(labelled) as scorer:
        assert scorer.spec.scorer is not None
        assert scorer.spec.scorer.labels == ("entailment", "neutral", "contradiction")
        np.testing.assert_allclose(scorer.score(PAIRS), predictions(labelled), atol=1e-5)
        np.testing.assert_allclose(
            scorer.score(PAIRS, activation="softmax"), predictions(labelled, apply_softmax=True), atol=1e-5
        )
        assert scorer.score([]).shape == (0, 3)
        with pytest.raises(WrongModelKind, match="has 3 labels"):
            scorer.rerank(QUERY, DOCUMENTS)


def test_as_cross_encoders_save_it(folder: Path, tmp_path: Path) -> None:
    reference = cross_encoder(folder, activation_fn=torch.nn.Identity())
    reference.save_pretrained(str(tmp_path))
    with Scorer(tmp_path) as scorer:
        expected = reference.predict(PAIRS, show_progress_bar=False)
        np.testing.assert_allclose(scorer.score(PAIRS), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("pairs", "param"),
    [
        ("ab", "pairs"),
        (5, "pairs"),
        ([("a", "b"), ("c",)], r"pairs[1]"),
        ([("a", "b"), "ab"], r"pairs[1]"),
        ([("a", None)], r"pairs[0]"),
        ([("a", "b"), ("\ud800", "b")], r"pairs[1]"),
    ],
)
def test_what_is_no_pair(folder: Path, pairs: Any, param: str) -> None:
    with Scorer(folder) as scorer:
        with pytest.raises(InvalidInput) as caught:
            scorer.score(pairs)
        assert caught.value.param == param
        assert scorer.score([]).shape == (0,)


@pytest.mark.parametrize(
    ("arguments", "param"),
    [
        ({"query": None}, "query"),
        ({"documents": "a"}, "documents"),
        ({"documents": ["a", 5]}, "documents[1]"),
        ({"top_n": 0}, "top_n"),
        ({"top_n": 1.5}, "top_n"),
        ({"activation": "relu"}, "activation"),
        ({"prompt": 5}, "prompt"),
        ({"prompt_name": "query"}, "prompt_name"),
    ],
)
def test_what_is_wrong_is_named(folder: Path, arguments: dict[str, Any], param: str) -> None:
    with Scorer(folder) as scorer, pytest.raises(InvalidInput) as caught:
        scorer.rerank(**(DEFAULTS | arguments))
    assert caught.value.param == param


def test_each_kind_of_model_has_its_class(folder: Path) -> None:
    with pytest.raises(ConfigError, match="Scorer loads it"):
        Embedder(folder)
    with pytest.raises(ConfigError, match="Embedder loads it"):
        Scorer(text_assets.minilm())


def test_closed(folder: Path) -> None:
    scorer = Scorer(folder)
    scorer.close()
    with pytest.raises(Unavailable, match="this Scorer is closed"):
        scorer.score([("a", "b")])


def test_scores_that_are_not_finite_are_named(tmp_path: Path) -> None:
    model = transformers.BertForSequenceClassification(transformers.BertConfig(**sizes(1)))
    torch.nn.init.constant_(model.classifier.bias, float("nan"))
    model.save_pretrained(tmp_path)
    transformers.AutoTokenizer.from_pretrained(text_assets.minilm()).save_pretrained(tmp_path)
    with Scorer(tmp_path) as scorer, pytest.raises(NonFiniteOutput, match=r"no finite score for documents\[0\]"):
        scorer.rerank("a", ["b"])
