"""Token ids against transformers' own tokenizers, reading the same folders, on texts made to differ."""

import json
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest
import text_assets
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from text_corpus import CORPUS
from tokenizers import Tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from rosebed.core.checkpoint import CheckpointFiles
from rosebed.core.model_spec import ModelOverrides, resolve_model_spec
from rosebed.text.encoders import TokenizersEncoder, choose_encoder
from rosebed.text.loading import load_tokenizer
from rosebed.text.tokenizer import PairCut, Side, TextTokenizer, TokenizeOptions

TEXTS = list(CORPUS.values())
UNLIMITED = 1 << 20

LIBRARIES = {
    "minilm": "tokenizers",
    "xlm-r": "splintr",
    "xlm-r of transformers 5": "splintr",
    "qwen3": "fastokens",
    "qwen3-embedding": "fastokens",
}
"""Folder → what encodes its texts."""


class Subject:
    """Our tokenizer and the reference for one folder."""

    def __init__(self, name: str, folder: Path, reference: Any) -> None:
        spec = resolve_model_spec(CheckpointFiles.read(folder), ModelOverrides(pooling="mean"))
        self.name = name
        self.folder = folder
        self.ours = TextTokenizer.load(spec)
        self.ours.max_length = UNLIMITED
        self.reference = reference

    def ids(self, texts: list[str], **options: Any) -> list[list[int]]:
        return [result.token_ids.tolist() for result in self.ours.tokenize(texts, TokenizeOptions(**options))]


@pytest.fixture(scope="module")
def xlm_r(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return text_assets.xlm_r(tmp_path_factory.mktemp("folder"))


@pytest.fixture(scope="module")
def rebuilt_xlm_r(xlm_r: Path) -> Any:
    """What transformers 5 makes of the folder: AutoTokenizer does not read its pre-tokenizer, see the last test."""
    return AutoTokenizer.from_pretrained(xlm_r)


@pytest.fixture(scope="module", params=LIBRARIES)
def subject(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, xlm_r: Path) -> Subject:
    name = request.param
    if name == "minilm":
        return Subject(name, text_assets.minilm(), AutoTokenizer.from_pretrained(text_assets.minilm()))
    if name == "xlm-r":
        return Subject(name, xlm_r, PreTrainedTokenizerFast(tokenizer_file=str(xlm_r / "tokenizer.json")))
    folder = tmp_path_factory.mktemp("folder")
    if name == "xlm-r of transformers 5":
        tokenizer = request.getfixturevalue("rebuilt_xlm_r")
        tokenizer.save_pretrained(folder)
        shutil.copy(xlm_r / "config.json", folder)
        return Subject(name, folder, tokenizer)
    path = text_assets.qwen3(folder, appends_end=name == "qwen3-embedding")
    return Subject(name, path, AutoTokenizer.from_pretrained(path))


def reference_ids(subject: Subject, texts: list[str], **options: Any) -> list[list[int]]:
    return [subject.reference(text, **options)["input_ids"] for text in texts]


def differing(texts: list[str], ours: list[list[int]], theirs: list[list[int]]) -> list[tuple[str, Any, Any]]:
    rows = zip(texts, ours, theirs, strict=True)
    return [(text[:40], mine[:20], other[:20]) for text, mine, other in rows if mine != other]


def test_hostile_corpus(subject: Subject) -> None:
    kept = [text for text in TEXTS if subject.reference(text)["input_ids"]]
    assert differing(kept, subject.ids(kept), reference_ids(subject, kept)) == []
    assert len(kept) >= len(TEXTS) - 1


def test_without_special_tokens(subject: Subject) -> None:
    kept = [text for text in TEXTS if subject.reference(text, add_special_tokens=False)["input_ids"]]
    ours = subject.ids(kept, add_special_tokens=False)
    assert differing(kept, ours, reference_ids(subject, kept, add_special_tokens=False)) == []


@pytest.mark.parametrize("limit", [3, 4, 9, 64])
@pytest.mark.parametrize("side", Side)
def test_truncation(subject: Subject, limit: int, side: Side) -> None:
    ours = subject.ids(TEXTS[1:], truncate=True, truncate_to=limit, side=side)
    subject.reference.truncation_side = side.value
    theirs = reference_ids(subject, TEXTS[1:], truncation=True, max_length=limit)
    assert differing(TEXTS[1:], ours, theirs) == []


@pytest.mark.parametrize("limit", [16, 17])
@pytest.mark.parametrize("cut", PairCut)
@pytest.mark.parametrize("side", Side)
def test_pairs(subject: Subject, limit: int, cut: PairCut, side: Side) -> None:
    queries = ["who?", "a longer question about several things"]
    pairs = [(query, text) for query in queries for text in TEXTS] + [(text, "short") for text in TEXTS]
    if cut is PairCut.SECOND:
        pairs = pairs[: 2 * len(TEXTS)]
    options = TokenizeOptions(truncate=True, truncate_to=limit, pair_cut=cut, side=side)
    results = subject.ours.tokenize_pairs(pairs, options)
    subject.reference.truncation_side = side.value
    strategy = "longest_first" if cut is PairCut.LONGEST_FIRST else "only_second"
    firsts, seconds = map(list, zip(*pairs, strict=True))
    theirs = subject.reference(firsts, seconds, truncation=strategy, max_length=limit, return_token_type_ids=True)
    assert [result.token_ids.tolist() for result in results] == theirs["input_ids"]
    for result, types in zip(results, theirs["token_type_ids"], strict=True):
        # Only BERT has a second segment: the others' models take no token types.
        assert result.token_type_ids is None or result.token_type_ids.tolist() == types


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(max_size=200))
def test_any_text(subject: Subject, text: str) -> None:
    theirs = subject.reference(text)["input_ids"]
    assert not theirs or subject.ids([text]) == [theirs]


def test_batches_and_threads_do_not_change_ids(subject: Subject) -> None:
    """Caches inside the library are shared by all threads and warm up in any order."""
    texts = TEXTS[1:]
    one_by_one = [subject.ids([text])[0] for text in texts]
    assert subject.ids(texts) == one_by_one
    orders = [texts[i:] + texts[:i] for i in range(0, 80, 5)]
    expected = [one_by_one[i:] + one_by_one[:i] for i in range(0, 80, 5)]
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(subject.ids, orders)) == expected


def test_the_library_at_work_gives_the_ids_of_the_tokenizers_library(subject: Subject) -> None:
    """On pieces that pre-tokenizers treat apart, in every order, and on many scripts at once."""
    tokenizer = load_tokenizer(subject.folder, "")
    chosen, reference = choose_encoder(subject.folder, tokenizer), TokenizersEncoder(tokenizer)
    assert chosen.name == LIBRARIES[subject.name]
    parts = [" ", "\n", "\u3000", "a", "1", "!", "'s", "é", "▁", "<mask>", "<|im_end|>", "\x00"]
    structure = ["".join(choice) for choice in product(parts, repeat=4)]
    random = Random(0)
    scripts = ["".join(map(chr, random.choices(range(0x20, 0xD800), k=12))) for _ in range(3000)]
    for texts in (TEXTS, structure, scripts):
        ids = reference.encode(texts)
        assert differing(texts, chosen.encode(texts), ids) == []
        if chosen.name == "tokenizers":  # which keeps words of texts that come one by one
            assert differing(texts, [chosen.encode([text])[0] for text in texts], ids) == []


@pytest.mark.parametrize("run", ["a", " ", "!", "\u0301"])
def test_a_megabyte_of_one_character_takes_bounded_time(subject: Subject, run: str) -> None:
    text = run * (1_000_000 // len(run.encode()))
    start = time.thread_time()
    result = subject.ours.tokenize([text + "."], TokenizeOptions(truncate=True, truncate_to=512))[0]
    assert time.thread_time() - start < 5
    assert result.num_tokens <= 512


def test_token_spans_have_the_same_ids(subject: Subject) -> None:
    texts = [text for text in TEXTS if len(text) < 1000]
    spans = [[span.id for span in subject.ours.token_spans(text)] for text in texts]
    assert differing(texts, spans, reference_ids(subject, texts)) == []


def test_a_bare_vocabulary_gives_the_same_ids(tmp_path: Path) -> None:
    """A folder with vocab.txt and no tokenizer.json, as older BERT checkpoints are."""
    for name in ("config.json", "vocab.txt", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((text_assets.minilm() / name).read_bytes())
    subject = Subject("minilm", tmp_path, AutoTokenizer.from_pretrained(tmp_path))
    assert differing(TEXTS, subject.ids(TEXTS), reference_ids(subject, TEXTS)) == []


@pytest.mark.parametrize(
    "values", [{"do_lower_case": False}, {"strip_accents": False}, {"tokenize_chinese_chars": False}]
)
def test_settings_over_the_tokenizer(tmp_path: Path, values: dict[str, bool]) -> None:
    """transformers lets tokenizer_config.json overrule the normaliser of a BERT's tokenizer.json."""
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((text_assets.minilm() / name).read_bytes())
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))
    subject = Subject("minilm", tmp_path, AutoTokenizer.from_pretrained(tmp_path))
    assert differing(TEXTS, subject.ids(TEXTS), reference_ids(subject, TEXTS)) == []


def test_the_vocabularies_are_the_real_ones(tmp_path: Path, xlm_r: Path) -> None:
    multilingual = Tokenizer.from_file(str(xlm_r / "tokenizer.json"))
    assert multilingual.encode("Hello world").ids == [0, 35378, 8999, 2]
    assert multilingual.get_vocab_size() == 250002
    qwen3 = Tokenizer.from_file(str(text_assets.qwen3(tmp_path / "q", appends_end=True) / "tokenizer.json"))
    assert qwen3.encode("Hello world").ids == [9707, 1879, 151643]
    assert qwen3.get_vocab_size() == 151669


def test_transformers_5_drops_blanks_that_the_file_keeps(xlm_r: Path, rebuilt_xlm_r: Any) -> None:
    """It rebuilds XLM-R's pre-tokenizer from the class name; the file, and every server that reads it, says otherwise.

    The lone word marks (id 6) of trailing blanks are lost, and U+0085 becomes a blank. If this fails, it has changed.
    """
    rebuilt_xlm_r.truncation_side = "right"
    subject = Subject("xlm-r", xlm_r, rebuilt_xlm_r)
    assert subject.ids(["trail "]) == [[0, 141037, 6, 2]]
    assert reference_ids(subject, ["trail "]) == [[0, 141037, 2]]
    texts = [text for text in TEXTS if "\x85" not in text]
    ours, theirs = subject.ids(texts), reference_ids(subject, texts)
    assert [without_marks(ids) for ids in ours] == [without_marks(ids) for ids in theirs]


def without_marks(ids: list[int]) -> list[int]:
    return [token_id for token_id in ids if token_id != 6]
