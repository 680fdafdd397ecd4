"""Which checkpoints score, and what their files say of labels and activations."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from core_folders import BERT, PIPELINE, QWEN3, XLM_R, minilm, modules, write_folder

from rosebed.core.activations import Activation, activate
from rosebed.core.checkpoint import CheckpointFiles
from rosebed.core.errors import CheckpointError, ConfigError
from rosebed.core.model_spec import ModelOverrides, ModelSpec, resolve_model_spec
from rosebed.core.scorer import ScorerKind, ScorerSpec

CROSS_ENCODER = XLM_R | {"architectures": ["XLMRobertaForSequenceClassification"], "id2label": {"0": "LABEL_0"}}
LOGIT_SCORE = modules(
    ("sentence_transformers.base.modules.transformer.Transformer", ""),
    ("sentence_transformers.cross_encoder.modules.logit_score.LogitScore", "1_LogitScore"),
)


def spec(folder: Path, files: dict[str, Any], **overrides: Any) -> ModelSpec:
    return resolve_model_spec(CheckpointFiles.read(write_folder(folder, files)), ModelOverrides(**overrides))


def scorer(folder: Path, files: dict[str, Any], **overrides: Any) -> ScorerSpec:
    found = spec(folder, files, **overrides).scorer
    assert found is not None
    return found


def test_a_cross_encoder(tmp_path: Path) -> None:
    found = spec(tmp_path, {"config.json": CROSS_ENCODER})
    assert found.scorer == ScorerSpec(
        kind=ScorerKind.CLASSIFIER,
        labels=("LABEL_0",),
        activation=Activation.SIGMOID,
        kind_source="config.json",
        activation_source="default",
    )
    assert (found.normalize, found.max_length) == (False, 8192)


@pytest.mark.parametrize("kind", ["embed", "auto"])
def test_embedders_do_not_score(tmp_path: Path, kind: str) -> None:
    assert spec(tmp_path, minilm(), task=kind).scorer is None


def test_labels(tmp_path: Path) -> None:
    named = CROSS_ENCODER | {"id2label": {"1": "neutral", "0": "entailment", "2": "contradiction"}}
    assert scorer(tmp_path, {"config.json": named}).labels == ("entailment", "neutral", "contradiction")
    assert scorer(tmp_path, {"config.json": named}).activation is Activation.IDENTITY
    unnamed = {key: value for key, value in CROSS_ENCODER.items() if key != "id2label"}
    assert scorer(tmp_path, {"config.json": unnamed}).labels == ("LABEL_0", "LABEL_1")
    assert scorer(tmp_path, {"config.json": unnamed | {"num_labels": 1}}).labels == ("LABEL_0",)


@pytest.mark.parametrize("labels", [{"1": "a"}, {"0": "a", "2": "b"}, {"0": None}, {"x": "a"}])
def test_labels_with_holes(tmp_path: Path, labels: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match="id2label should name the labels 0 to"):
        spec(tmp_path, {"config.json": CROSS_ENCODER | {"id2label": labels}})


@pytest.mark.parametrize(
    ("files", "expected", "source"),
    [
        (
            {"config_sentence_transformers.json": {"activation_fn": "torch.nn.modules.linear.Identity"}},
            Activation.IDENTITY,
            "config_sentence_transformers.json",
        ),
        (
            {
                "config.json": CROSS_ENCODER
                | {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity", "version": "4.1.0"}}
            },
            Activation.IDENTITY,
            "config.json",
        ),
        (
            {"config.json": CROSS_ENCODER | {"sbert_ce_default_activation_function": "torch.nn.Identity"}},
            Activation.IDENTITY,
            "config.json",
        ),
        (
            {
                "config_sentence_transformers.json": {"activation_fn": "torch.nn.modules.activation.Sigmoid"},
                "config.json": CROSS_ENCODER | {"sbert_ce_default_activation_function": "torch.nn.Identity"},
            },
            Activation.SIGMOID,
            "config_sentence_transformers.json",
        ),
        ({"config_sentence_transformers.json": {"activation_fn": "my_code.Clip"}}, Activation.SIGMOID, "default"),
    ],
)
def test_activations(tmp_path: Path, files: dict[str, Any], expected: Activation, source: str) -> None:
    found = scorer(tmp_path, {"config.json": CROSS_ENCODER} | files)
    assert (found.activation, found.activation_source) == (expected, source)


def test_an_activation_that_is_not_computed(tmp_path: Path) -> None:
    settings = {"activation_fn": "torch.nn.modules.activation.Tanhshrink"}
    with pytest.raises(CheckpointError, match=r"Tanhshrink' is not served; identity, sigmoid, softmax"):
        spec(tmp_path, {"config.json": CROSS_ENCODER, "config_sentence_transformers.json": settings})


@pytest.mark.parametrize(
    ("folder", "files", "source"),
    [
        ("Qwen3-Reranker-0.6B", {}, "the folder's name"),
        ("models--Qwen--Qwen3-Reranker-0.6B/snapshots/0a1b", {}, "the folder's name"),
        ("m", {"modules.json": LOGIT_SCORE, "1_LogitScore/config.json": {}}, "modules.json"),
    ],
)
def test_a_language_model_that_scores(tmp_path: Path, folder: str, files: dict[str, Any], source: str) -> None:
    answers = {"true_token_id": 9693, "false_token_id": 2152}
    files = {name: answers if name.startswith("1_") else content for name, content in files.items()}
    found = scorer(tmp_path / folder, {"config.json": QWEN3} | files)
    assert (found.kind, found.num_labels, found.kind_source) == (ScorerKind.YES_NO, 1, source)
    assert found.answer_ids == ((2152, 9693) if files else None)
    assert found.activation is Activation.SIGMOID


def test_a_language_model_that_embeds(tmp_path: Path) -> None:
    assert spec(tmp_path / "Qwen3-Embedding-0.6B", {"config.json": QWEN3}).scorer is None
    pipeline = {
        "config.json": QWEN3,
        "modules.json": PIPELINE,
        "1_Pooling/config.json": {"pooling_mode_lasttoken": True},
    }
    assert spec(tmp_path / "a-reranker-in-name-only", pipeline).scorer is None
    reranker = {"config.json": QWEN3}
    assert spec(tmp_path / "my-reranker", reranker, task="embed").scorer is None
    assert scorer(tmp_path / "m", reranker, task="score").kind_source == "--task"


def test_one_answer_alone_gives_no_odds(tmp_path: Path) -> None:
    files = {"config.json": QWEN3, "modules.json": LOGIT_SCORE, "1_LogitScore/config.json": {"true_token_id": 5}}
    with pytest.raises(CheckpointError, match="true_token_id and false_token_id are both needed"):
        spec(tmp_path, files)


def test_a_pipeline_that_is_none_of_a_scorer(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="Transformer → Pooling → Normalize is not served for scoring"):
        spec(tmp_path, {"config.json": CROSS_ENCODER, "modules.json": PIPELINE, "1_Pooling/config.json": {}})
    files = {"config.json": CROSS_ENCODER, "sentence_bert_config.json": {"transformer_task": "fill-mask"}}
    with pytest.raises(CheckpointError, match="transformer_task 'fill-mask' is not served for scoring"):
        spec(tmp_path / "b", files)


def test_task_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--task score: BertModel has no head"):
        spec(tmp_path, {"config.json": BERT}, task="score")
    with pytest.raises(ConfigError, match="--task should be auto, embed, score, not 'rank'"):
        spec(tmp_path, {"config.json": BERT}, task="rank")


def test_activate() -> None:
    logits = np.array([[0.0, 2.0], [-200.0, 200.0]], np.float32)
    assert activate(logits, Activation.IDENTITY) is logits
    np.testing.assert_allclose(
        activate(logits, Activation.SIGMOID), [[0.5, 0.8807971], [1.38389653e-87, 1.0]], atol=1e-7
    )
    np.testing.assert_allclose(activate(logits, Activation.SOFTMAX), [[0.1192029, 0.8807971], [0, 1]], atol=1e-7)
    assert activate(logits, Activation.SOFTMAX).dtype == activate(logits, Activation.SIGMOID).dtype == np.float32
