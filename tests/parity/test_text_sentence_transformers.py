"""Limits, prompts and pooled spans against sentence-transformers, on models that it saved itself (random weights)."""

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import text_assets
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer
from text_corpus import CORPUS
from transformers import AutoConfig, AutoModel, AutoTokenizer, BertConfig

from rosebed.core.checkpoint import CheckpointFiles
from rosebed.core.model_spec import ModelSpec, resolve_model_spec
from rosebed.text.prompts import resolve_prompt
from rosebed.text.tokenizer import TextTokenizer, TokenizeOptions

Mode = Literal["cls", "mean", "lasttoken"]

TEXTS = [text for text in CORPUS.values() if len(text) < 500]
PROMPTS = {"query": "query: ", "passage": "A passage from a book:\n", "empty": ""}


def save(folder: Path, name: str, *, pooling: Mode = "mean", max_length: int = 64, dense: bool = False) -> Path:
    """A one-layer model of the tokenizer called `name`, with a pipeline, saved by sentence-transformers."""
    source = folder / "source"
    _write_source(source, name)
    transformer = Transformer(str(source), max_seq_length=max_length)
    width = transformer.get_embedding_dimension()
    stages: list[Any] = [transformer, Pooling(width, pooling_mode=pooling, include_prompt=False)]
    stages += [Dense(width, 4), Normalize()] if dense else []
    model = SentenceTransformer(modules=stages, prompts=PROMPTS, default_prompt_name="query", device="cpu")
    model.save(str(folder / "model"))
    return folder / "model"


def _write_source(source: Path, name: str) -> None:
    if name == "minilm":
        config = BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
        tokenizer = AutoTokenizer.from_pretrained(text_assets.minilm())
    else:
        path = text_assets.xlm_r(source) if name == "xlm-r" else text_assets.qwen3(source, appends_end=True)
        config, tokenizer = AutoConfig.from_pretrained(path), AutoTokenizer.from_pretrained(path)
    AutoModel.from_config(config).save_pretrained(source)
    tokenizer.save_pretrained(source)


class Subject:
    def __init__(self, folder: Path) -> None:
        self.reference = SentenceTransformer(str(folder), device="cpu")
        self.spec: ModelSpec = resolve_model_spec(CheckpointFiles.read(folder))
        self.ours = TextTokenizer.load(self.spec)


@pytest.fixture(scope="module", params=["minilm", "xlm-r", "qwen3-embedding"])
def subject(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Subject:
    return Subject(save(tmp_path_factory.mktemp("model"), request.param))


def test_limit(subject: Subject) -> None:
    assert subject.ours.max_length == subject.reference.max_seq_length == 64


def test_the_real_minilms_limit_and_size() -> None:
    subject = Subject(text_assets.minilm())
    assert subject.ours.max_length == subject.reference.max_seq_length == 256
    assert subject.spec.dim == subject.reference.get_embedding_dimension() == 384


@pytest.mark.parametrize("prompt_name", [None, *PROMPTS])
def test_prompts_and_pooled_spans(subject: Subject, prompt_name: str | None) -> None:
    prompt = resolve_prompt(subject.spec, prompt_name=prompt_name)
    assert prompt == PROMPTS[prompt_name or "query"]
    results = subject.ours.tokenize(TEXTS, TokenizeOptions(prompt=prompt, truncate=True))
    for text, result in zip(TEXTS, results, strict=True):
        features = subject.reference.preprocess([text], prompt=prompt)
        assert result.token_ids.tolist() == features["input_ids"][0].tolist(), text
        start = features.get("prompt_length", 0)
        if start < result.num_tokens:
            assert result.pool_spans.tolist() == [[start, result.num_tokens]], text
        else:
            assert result.pool_spans.tolist() == [[0, result.num_tokens]], text


@pytest.mark.parametrize("pooling", ["cls", "mean", "lasttoken"])
def test_the_span_holds_what_is_pooled(tmp_path: Path, pooling: Mode) -> None:
    """Pooling our span of the reference's own hidden states gives the reference's vector."""
    subject = Subject(save(tmp_path, "minilm", pooling=pooling))
    for prompt in ("", "query: ", "a long prompt of many words: "):
        options = TokenizeOptions(prompt=prompt, truncate=True)
        for text in ("", "a", "an ordinary sentence", "word " * 100):
            result = subject.ours.tokenize([text], options)[0]
            encoded: Any = subject.reference.encode([text], prompt=prompt, output_value=None)
            hidden = encoded[0]["token_embeddings"].numpy()
            span = hidden[slice(*result.pool_spans[0])]
            pooled = {"cls": span[0], "mean": span.mean(axis=0), "last": span[-1]}[subject.spec.pooling]
            np.testing.assert_allclose(pooled, encoded[0]["sentence_embedding"].numpy(), atol=1e-6)


def test_the_pipeline_is_read_as_it_was_saved(tmp_path: Path) -> None:
    spec = resolve_model_spec(CheckpointFiles.read(save(tmp_path, "minilm", pooling="cls", dense=True)))
    assert (spec.pooling, spec.pool_prompt, spec.normalize, spec.dim) == ("cls", False, True, 4)
    assert [(stage.in_features, stage.out_features, stage.activation) for stage in spec.dense] == [(8, 4, "Tanh")]
    assert spec.prompts.items() >= PROMPTS.items()
    assert spec.default_prompt_name == "query"
