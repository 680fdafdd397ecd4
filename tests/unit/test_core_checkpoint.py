"""Reading a model folder: what is missing, malformed, oddly placed, and what its fingerprint depends on."""

from pathlib import Path
from typing import Any

import pytest
from core_folders import BERT, MEAN, PIPELINE, minilm, modules, write_folder

from rosebed.core.checkpoint import CheckpointFiles
from rosebed.core.errors import CheckpointError

JSON_FILES = [
    "config.json",
    "tokenizer_config.json",
    "config_sentence_transformers.json",
    "sentence_bert_config.json",
    "1_Pooling/config.json",
]


def read(folder: Path, files: dict[str, Any]) -> CheckpointFiles:
    return CheckpointFiles.read(write_folder(folder, files))


def test_reads_every_file(tmp_path: Path) -> None:
    files = read(tmp_path, minilm())
    assert files.folder == tmp_path
    assert files.config == BERT
    assert files.tokenizer_config == {"model_max_length": 512}
    assert files.sentence_bert_config == {"max_seq_length": 256, "do_lower_case": False}
    assert files.sentence_bert_file == "sentence_bert_config.json"
    assert [(stage.kind, stage.path) for stage in files.stages] == [
        ("Transformer", ""),
        ("Pooling", "1_Pooling"),
        ("Normalize", "2_Normalize"),
    ]
    assert files.stages[1].config == MEAN
    assert files.stages[1].config_file == "1_Pooling/config.json"
    assert files.stages[2].config == {}


def test_a_bare_transformers_folder_has_no_stages(tmp_path: Path) -> None:
    files = read(tmp_path, {"config.json": BERT})
    assert files.stages == ()
    assert files.tokenizer_config == files.sentence_bert_config == files.sentence_transformers_config == {}


def test_stages_come_in_the_order_of_idx(tmp_path: Path) -> None:
    files = read(tmp_path, minilm(**{"modules.json": PIPELINE[::-1]}))
    assert [stage.kind for stage in files.stages] == ["Transformer", "Pooling", "Normalize"]


@pytest.mark.parametrize("name", ["sentence_roberta_config.json", "sentence_xlm-roberta_config.json"])
def test_older_settings_files_are_read(tmp_path: Path, name: str) -> None:
    files = read(tmp_path, minilm(**{"sentence_bert_config.json": None, name: {"max_seq_length": 128}}))
    assert files.sentence_bert_config == {"max_seq_length": 128}
    assert files.sentence_bert_file == name


def test_the_newest_settings_file_wins(tmp_path: Path) -> None:
    files = read(tmp_path, minilm(**{"sentence_roberta_config.json": {"max_seq_length": 128}}))
    assert files.sentence_bert_config["max_seq_length"] == 256


@pytest.mark.parametrize("name", ["with space", "näme-模型", "a'quote\""])
def test_any_folder_name(tmp_path: Path, name: str) -> None:
    assert read(tmp_path / name, minilm()).config == BERT


def test_symlinks_are_followed(tmp_path: Path) -> None:
    """The hub's cache is a folder of links into a folder of blobs."""
    blobs = write_folder(tmp_path / "blobs", minilm())
    snapshot = tmp_path / "snapshot"
    (snapshot / "1_Pooling").mkdir(parents=True)
    for name in minilm():
        (snapshot / name).symlink_to(blobs / name)
    (tmp_path / "link").symlink_to(snapshot)
    linked = CheckpointFiles.read(tmp_path / "link")
    assert linked.stages[1].config == MEAN
    assert linked.fingerprint == CheckpointFiles.read(blobs).fingerprint


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="nowhere is not a folder"):
        CheckpointFiles.read(tmp_path / "nowhere")
    write_folder(tmp_path, {"file": ""})
    with pytest.raises(CheckpointError, match="file is not a folder"):
        CheckpointFiles.read(tmp_path / "file")


def test_no_config(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"has no config\.json"):
        read(tmp_path, minilm(**{"config.json": None}))


@pytest.mark.parametrize("name", JSON_FILES)
@pytest.mark.parametrize("text", ["", "{", '{"a": }', "[" * 100_000])
def test_what_is_not_json_is_refused_by_name(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(CheckpointError, match=f"{name} is not JSON"):
        read(tmp_path, minilm(**{name: text}))


@pytest.mark.parametrize("name", JSON_FILES)
@pytest.mark.parametrize("value", [[], "null", 1, '"text"'])
def test_what_is_not_an_object_is_refused_by_name(tmp_path: Path, name: str, value: object) -> None:
    with pytest.raises(CheckpointError, match=f"{name} should hold a JSON object"):
        read(tmp_path, minilm(**{name: value}))


def test_a_byte_order_mark_is_no_matter(tmp_path: Path) -> None:
    assert read(tmp_path, {"config.json": '\ufeff{"a": 1}'}).config == {"a": 1}


def test_invalid_utf8_is_refused(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, minilm())
    (folder / "config.json").write_bytes(b'{"a": "\xff"}')
    with pytest.raises(CheckpointError, match=r"config\.json is not JSON"):
        CheckpointFiles.read(folder)


def test_a_folder_in_a_files_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").mkdir()
    with pytest.raises(CheckpointError, match=r"tokenizer_config\.json cannot be read"):
        read(tmp_path, {"config.json": BERT})


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"idx": 0},
        [1],
        [{"idx": 0}],
        [{"idx": 0, "path": None, "type": "a.B"}],
        [{"idx": 0, "path": "", "type": 3}],
        [{"idx": "a", "path": "", "type": "a.B"}, {"idx": 1, "path": "", "type": "a.B"}],
        "null",
    ],
)
def test_malformed_modules_are_refused(tmp_path: Path, value: object) -> None:
    with pytest.raises(CheckpointError, match=r"modules\.json is not a list of"):
        read(tmp_path, minilm(**{"modules.json": value}))


@pytest.mark.parametrize("path", ["../other", "/etc", "1_Pooling/../../x", "a\0b", "\ud800"])
def test_a_stage_outside_the_folder_is_refused(tmp_path: Path, path: str) -> None:
    entries = modules(("sentence_transformers.models.Transformer", ""), ("sentence_transformers.models.Pooling", path))
    with pytest.raises(CheckpointError, match="leads out of the model folder"):
        read(tmp_path, minilm(**{"modules.json": entries}))


def test_the_fingerprint_is_the_same_for_the_same_files(tmp_path: Path) -> None:
    first = read(tmp_path / "a", minilm(**{"tokenizer.json": "{}"}))
    second = read(tmp_path / "b", minilm(**{"tokenizer.json": "{}", "README.md": "more", "model.safetensors": "x"}))
    assert first.fingerprint == second.fingerprint
    assert len(first.fingerprint) == 16


@pytest.mark.parametrize(
    "changed",
    [
        {"tokenizer.json": '{"a": 1}'},
        {"tokenizer.json": None},
        {"config.json": BERT | {"hidden_size": 385}},
        {"tokenizer_config.json": {"model_max_length": 511}},
        {"tokenizer_config.json": None},
        {"sentence_bert_config.json": {"max_seq_length": 255}},
        {"config_sentence_transformers.json": {"prompts": {"query": "q: "}}},
        {"modules.json": PIPELINE[:2]},
        {"1_Pooling/config.json": {"pooling_mode": "cls"}},
        {"2_Normalize/config.json": {}},
    ],
)
def test_the_fingerprint_changes_with_what_decides_ids_and_vectors(tmp_path: Path, changed: dict[str, Any]) -> None:
    files = {"tokenizer.json": "{}"}
    before = read(tmp_path / "a", minilm(**files)).fingerprint
    assert read(tmp_path / "b", minilm(**(files | changed))).fingerprint != before


def test_a_vocabulary_counts_where_it_is_the_tokenizer(tmp_path: Path) -> None:
    def fingerprint(name: str, **files: str) -> str:
        return read(tmp_path / name, minilm(**files)).fingerprint

    assert fingerprint("a", **{"vocab.txt": "a"}) != fingerprint("b", **{"vocab.txt": "b"})
    with_json = [fingerprint(text, **{"vocab.txt": text, "tokenizer.json": "{}"}) for text in ("c", "d")]
    assert with_json[0] == with_json[1]
