"""`Embedder` on the real MiniLM, against sentence-transformers on the same folder."""

import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from minilm import COSINE, MAX_COSINE_DISTANCE, MINILM, TEXTS, cosine_distances, reference_model
from sentence_transformers import SentenceTransformer

from rosebed import Embedder
from rosebed.core.errors import CheckpointError, ConfigError, InvalidInput, Unavailable
from rosebed.core.model_spec import ModelOverrides
from rosebed.rose.config import EngineConfig


@pytest.fixture(scope="module")
def embedder() -> Iterator[Embedder]:
    with Embedder(MINILM, config=EngineConfig(num_threads=2)) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def reference() -> SentenceTransformer:
    return reference_model()


def test_vectors_are_those_of_sentence_transformers(embedder: Embedder, reference: SentenceTransformer) -> None:
    vectors = embedder.embed(TEXTS)
    assert vectors.dtype == np.float32
    assert cosine_distances(vectors, reference.encode(TEXTS)).max() < MAX_COSINE_DISTANCE
    assert float(vectors[0] @ vectors[1]) == pytest.approx(COSINE, abs=5e-5)


def test_a_text_alone_gets_the_vector_it_gets_among_others(embedder: Embedder) -> None:
    together = embedder.embed(TEXTS)
    for index, text in enumerate(TEXTS):
        np.testing.assert_allclose(embedder.embed([text])[0], together[index], atol=2e-6)


def test_prompt_goes_in_front(embedder: Embedder, reference: SentenceTransformer) -> None:
    vectors = embedder.embed(["a guitar"], prompt="query: ")
    assert cosine_distances(vectors, reference.encode(["a guitar"], prompt="query: ")).max() < MAX_COSINE_DISTANCE


@pytest.mark.parametrize(
    ("prompts", "default"),
    [
        ({"query": "query: ", "document": "passage: "}, None),
        ({"query": "query: ", "document": "passage: ", "other": "other: "}, "other"),
        ({}, None),
    ],
)
def test_queries_and_documents_have_their_own_prompts(
    tmp_path: Path, prompts: dict[str, str], default: str | None
) -> None:
    folder = shutil.copytree(MINILM, tmp_path / "model", copy_function=os.symlink)
    settings = folder / "config_sentence_transformers.json"
    settings.unlink()
    settings.write_text(json.dumps({"prompts": prompts, "default_prompt_name": default}))
    reference = SentenceTransformer(str(folder), device="cpu")
    texts = ["a guitar", "a man on a stage"]
    with Embedder(folder, config=EngineConfig(num_threads=2)) as embedder:
        for ours, theirs in (
            (embedder.encode_query, reference.encode_query),
            (embedder.encode_document, reference.encode_document),
            (embedder.embed, reference.encode),
        ):
            assert cosine_distances(ours(texts), theirs(texts)).max() < MAX_COSINE_DISTANCE
            own, other = ours(texts, prompt="so: "), theirs(texts, prompt="so: ")
            assert cosine_distances(own, other).max() < MAX_COSINE_DISTANCE


def test_documents_take_the_prompt_of_passages_where_there_is_none_of_their_own(tmp_path: Path) -> None:
    """As sentence-transformers' documentation says; 6.2 itself adds an empty prompt called document, and takes that."""
    folder = shutil.copytree(MINILM, tmp_path / "model", copy_function=os.symlink)
    settings = folder / "config_sentence_transformers.json"
    settings.unlink()
    settings.write_text(json.dumps({"prompts": {"passage": "passage: "}}))
    with Embedder(folder, config=EngineConfig(num_threads=2)) as embedder:
        vectors = embedder.encode_document(["a guitar"])
        np.testing.assert_array_equal(vectors, embedder.embed(["passage: a guitar"]))
        np.testing.assert_array_equal(embedder.encode_query(["a guitar"]), embedder.embed(["a guitar"]))


def test_no_texts_give_no_rows(embedder: Embedder) -> None:
    assert embedder.embed([]).shape == (0, 384)


def test_normalize_false_keeps_the_direction_and_gives_up_the_length(embedder: Embedder) -> None:
    unit, raw = embedder.embed(TEXTS[:2]), embedder.embed(TEXTS[:2], normalize=False)
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), 1, atol=1e-6)
    assert (np.linalg.norm(raw, axis=1) > 1.5).all()
    assert np.abs(cosine_distances(unit, raw)).max() < 1e-6


def test_dimensions_are_refused_where_the_model_was_not_trained_for_them(embedder: Embedder) -> None:
    assert embedder.embed(["a"], dimensions=384).shape == (1, 384)
    with pytest.raises(InvalidInput, match="--matryoshka any"):
        embedder.embed(["a"], dimensions=64)


def test_dimensions_are_cut_and_then_normalised() -> None:
    with Embedder(MINILM, overrides=ModelOverrides(matryoshka="any")) as embedder:
        full, cut = embedder.embed(TEXTS[:3]), embedder.embed(TEXTS[:3], dimensions=64)
    head = full[:, :64]
    np.testing.assert_allclose(cut, head / np.linalg.norm(head, axis=1, keepdims=True), atol=1e-6)


def test_one_text_instead_of_a_list_is_refused(embedder: Embedder) -> None:
    with pytest.raises(InvalidInput, match=r"embed\(\[text\]\)"):
        embedder.embed("a text")


@pytest.mark.parametrize(("texts", "named"), [(["a", "\ud800"], "input[1]"), (["a", "b", "\udfff"], "input[2]")])
def test_a_bad_text_is_named(embedder: Embedder, texts: list[str], named: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        embedder.embed(texts)
    assert caught.value.param == named
    assert named in caught.value.message


@pytest.mark.parametrize(("texts", "named"), [(None, "texts"), (["a", 1], "input[1]")])
def test_what_is_no_list_of_texts_is_named(embedder: Embedder, texts: Any, named: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        embedder.embed(texts)
    assert caught.value.param == named


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("dimensions", "384"),
        ("dimensions", 1.5),
        ("dimensions", True),
        ("dimensions", 0),
        ("normalize", "x"),
        ("normalize", 1),
        ("prompt_name", ["a"]),
        ("prompt", 5),
        ("prompt", "\udfff"),
    ],
)
def test_a_wrong_option_is_named(embedder: Embedder, name: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match=name) as caught:
        embedder.embed(["a"], **{name: value})
    assert caught.value.param == name


def test_numpy_numbers_and_flags_are_options(embedder: Embedder) -> None:
    options: Any = {"dimensions": np.int64(384), "normalize": np.bool_(False)}
    np.testing.assert_array_equal(embedder.embed(["a"], **options), embedder.embed(["a"], normalize=False))


def test_threads_share_an_embedder(embedder: Embedder) -> None:
    texts = [[f"text {thread} {i} " + "x " * (thread * 7) for i in range(3)] for thread in range(8)]
    expected = [embedder.embed(rows) for rows in texts]
    with ThreadPoolExecutor(8) as threads:
        for actual, rows in zip(threads.map(embedder.embed, texts * 2), expected * 2, strict=True):
            np.testing.assert_allclose(actual, rows, atol=2e-6)


def test_a_forked_child_is_told_to_make_its_own(embedder: Embedder) -> None:
    child = multiprocessing.get_context("fork").Process(target=embed_in_a_child, args=(embedder,))
    child.start()
    child.join(30)
    assert child.exitcode == 0
    assert embedder.embed(["a"]).shape == (1, 384)


def embed_in_a_child(embedder: Embedder) -> None:
    with pytest.raises(Unavailable, match="make one in each process"):
        embedder.embed(["a"])
    embedder.close()


def test_a_closed_embedder_says_so() -> None:
    embedder = Embedder(MINILM, config=EngineConfig(num_threads=2))
    embedder.close()
    with pytest.raises(Unavailable, match="closed"):
        embedder.embed(["a"])


def test_an_unknown_prompt_name_is_named(embedder: Embedder) -> None:
    with pytest.raises(InvalidInput, match="'nonsense'"):
        embedder.embed(["a"], prompt_name="nonsense")


def test_what_cannot_be_loaded_says_why() -> None:
    with pytest.raises(CheckpointError, match="'/no/such/folder' is not a folder here"):
        Embedder("/no/such/folder")
    with pytest.raises(ConfigError, match="MODEL should be a folder or a hub id, not None"):
        Embedder(cast(Any, None))
    with pytest.raises(ConfigError, match="overrides should be ModelOverrides"):
        Embedder(MINILM, overrides=cast(Any, {}))
    with pytest.raises(ConfigError, match="--pooling"):
        Embedder(MINILM, overrides=ModelOverrides(pooling="max"))
    with pytest.raises(ConfigError, match="--device"):
        Embedder(MINILM, config=EngineConfig(device="tpu"))


def test_an_interrupted_call_ends_with_its_batch(embedder: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["a word " * 200] * 600  # half a minute's work

    def interrupted(_future: Future[Any], _timeout: float | None = None) -> Any:
        monkeypatch.undo()
        time.sleep(0.2)
        raise KeyboardInterrupt

    monkeypatch.setattr(Future, "result", interrupted)
    with pytest.raises(KeyboardInterrupt):
        embedder.embed(texts)
    started_s = time.monotonic()
    assert embedder.embed(["short"]).shape == (1, 384)
    assert time.monotonic() - started_s < 8


AT_EXIT = """
import atexit, sys
from rosebed import Embedder
from rosebed.core.errors import Unavailable
embedder = Embedder(sys.argv[1])
def late():
    try:
        embedder.embed(["a"])
    except Unavailable as error:
        print(error.message)
atexit.register(late)
"""


def test_a_call_while_the_interpreter_ends_is_told_so() -> None:
    ended = subprocess.run([sys.executable, "-c", AT_EXIT, MINILM], capture_output=True, text=True, check=True)
    assert ended.stdout == "the interpreter is shutting down\n"


CLOSED_AT_EXIT = """
import atexit, sys
from rosebed import Embedder
embedder = Embedder(sys.argv[1])
atexit.register(embedder.close)
"""


def test_it_may_be_closed_while_the_interpreter_ends() -> None:
    ended = subprocess.run([sys.executable, "-c", CLOSED_AT_EXIT, MINILM], capture_output=True, text=True, check=True)
    assert ended.stderr == ""
