"""What a model is called when nobody gave it a name, and what the gateway need not know of it."""

import json
from pathlib import Path

import pytest

from rosebed.core.model_spec import ModelOverrides
from rosebed.ivy.config import ModelConfig
from rosebed.ivy.model import known_here, model_name, read_spec


@pytest.mark.parametrize("name", ["BAAI/bge-m3", "gpt2", "no/such/folder"])
def test_hub_id_is_its_own_name(name: str) -> None:
    assert model_name(name) == name


def test_folder_is_called_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "my model"
    (folder / "inside").mkdir(parents=True)
    (tmp_path / "link").symlink_to(folder)
    assert model_name(str(folder)) == "my model"
    assert model_name(f"{folder}/") == "my model"
    assert model_name(str(tmp_path / "link")) == "link"
    monkeypatch.chdir(folder)
    assert model_name(".") == "my model"
    assert model_name("inside/..") == "my model"


def test_folder_in_the_hub_cache_is_called_by_its_hub_id(tmp_path: Path) -> None:
    folder = tmp_path / "models--BAAI--bge-m3" / "snapshots" / "5617a9f61b028005a4858fdac845db406aefb181"
    folder.mkdir(parents=True)
    assert model_name(str(folder)) == "BAAI/bge-m3"


def test_what_a_server_elsewhere_holds_is_looked_for_by_its_hub_id(tmp_path: Path) -> None:
    folder = tmp_path / "models--BAAI--bge-m3" / "snapshots" / "5617a9f61b028005a4858fdac845db406aefb181"
    assert known_here(str(folder)) == "BAAI/bge-m3"
    folder.mkdir(parents=True)
    assert known_here(str(folder)) == str(folder)
    assert known_here("/srv/my model") == "/srv/my model"


def test_a_model_whose_files_do_not_say_how_it_is_pooled_needs_no_option_here(tmp_path: Path) -> None:
    config = {"architectures": ["BertModel"], "model_type": "bert", "hidden_size": 8, "vocab_size": 10}
    (tmp_path / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 16}))
    spec = read_spec(str(tmp_path), ModelConfig(tulips=("h:1",), overrides=ModelOverrides(max_length=7)))
    assert (spec.max_length, spec.vocab_size) == (7, 10)
