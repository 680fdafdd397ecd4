"""Which prompt goes in front: API rules on a few prompt tables."""

from pathlib import Path
from typing import Any

import pytest
from core_folders import minilm, write_folder

from rosebed.core.checkpoint import CheckpointFiles
from rosebed.core.errors import InvalidInput
from rosebed.core.model_spec import ModelSpec, resolve_model_spec
from rosebed.text.prompts import resolve_prompt

E5 = {"query": "query: ", "passage": "passage: "}
QWEN = {"query": "Instruct: …\nQuery:", "document": ""}
ALL = {"query": "q ", "document": "d ", "passage": "p ", "corpus": "c ", "classification": "x "}


def spec(folder: Path, prompts: dict[str, str], default: str | None = None) -> ModelSpec:
    settings = {"prompts": prompts, "default_prompt_name": default}
    files: dict[str, Any] = minilm(**{"config_sentence_transformers.json": settings})
    return resolve_model_spec(CheckpointFiles.read(write_folder(folder, files)))


@pytest.mark.parametrize(
    ("prompts", "default", "asked", "expected"),
    [
        ({}, None, {}, ""),
        (E5, None, {}, ""),
        (E5, "passage", {}, "passage: "),
        (E5, "passage", {"prompt": "own "}, "own "),
        (E5, "passage", {"prompt": ""}, ""),
        (E5, "passage", {"prompt_name": "query"}, "query: "),
        (E5, "passage", {"input_type": "query"}, "query: "),
        (E5, "passage", {"input_type": "none"}, ""),
        (E5, None, {"prompt": "own ", "prompt_name": "nonsense", "input_type": "nonsense"}, "own "),
        (E5, None, {"prompt_name": "query", "input_type": "passage"}, "query: "),
        (E5, None, {"input_type": "search_query"}, "query: "),
        (E5, None, {"input_type": "document"}, "passage: "),
        (E5, None, {"input_type": "passage"}, "passage: "),
        (E5, None, {"input_type": "search_document"}, "passage: "),
        (ALL, None, {"input_type": "document"}, "d "),
        (ALL, None, {"input_type": "passage"}, "d "),
        ({"corpus": "c ", "passage": "p "}, None, {"input_type": "document"}, "p "),
        ({"corpus": "c "}, None, {"input_type": "search_document"}, "c "),
        (QWEN, None, {"input_type": "query"}, "Instruct: …\nQuery:"),
        (QWEN, None, {"input_type": "document"}, ""),
        (QWEN, None, {"prompt_name": "document"}, ""),
        # An input type for which the model has no prompt adds none, not even the default.
        ({"passage": "p "}, "passage", {"input_type": "query"}, ""),
        ({}, None, {"input_type": "query"}, ""),
        ({}, None, {"input_type": "document"}, ""),
        (ALL, "query", {"input_type": "classification"}, ""),
        (ALL, "query", {"input_type": "clustering"}, ""),
    ],
)
def test_prompts(
    tmp_path: Path, prompts: dict[str, str], default: str | None, asked: dict[str, str], expected: str
) -> None:
    assert resolve_prompt(spec(tmp_path, prompts, default), **asked) == expected


def test_an_unknown_name_lists_the_names(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="'qurey' is unknown; this model has: passage, query") as caught:
        resolve_prompt(spec(tmp_path, E5), prompt_name="qurey")
    assert caught.value.param == "prompt_name"


def test_a_model_without_prompts_says_so(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="'query' is unknown; this model has: none"):
        resolve_prompt(spec(tmp_path, {}), prompt_name="query")


def test_an_unknown_input_type_lists_the_types(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="'qurey' is unknown; there are: query, search_query, document") as caught:
        resolve_prompt(spec(tmp_path, E5), input_type="qurey")
    assert caught.value.param == "input_type"
