"""What variables of text-embeddings-inference mean to `rosebed serve`."""

from pathlib import Path
from typing import Any

import pytest

from rosebed.cli.serve import command
from rosebed.cli.tei_environment import IGNORED, SHARED, UNDERSTOOD, read_tei
from rosebed.core.errors import ConfigError

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "deploying.md"


@pytest.mark.parametrize(
    ("name", "text", "parameter", "value"),
    [
        ("MODEL_ID", "BAAI/bge-m3", "models", ("BAAI/bge-m3",)),
        ("REVISION", "refs/pr/2", "revision", "refs/pr/2"),
        ("SERVED_MODEL_NAME", "a,b", "served_model_names", ('"a,b"',)),
        ("DTYPE", "float16", "dtype", "float16"),
        ("POOLING", "last-token", "pooling", "last"),
        ("MAX_BATCH_TOKENS", "16384", "token_budget", 16384),
        ("MAX_CLIENT_BATCH_SIZE", "32", "max_inputs", 32),
        ("PAYLOAD_LIMIT", "2000000", "max_body_bytes", 2_000_000),
        ("AUTO_TRUNCATE", "True", "auto_truncate", True),
        ("AUTO_TRUNCATE", "false", "auto_truncate", False),
        ("DEFAULT_PROMPT_NAME", "query", "default_prompt_name", "query"),
        ("DEFAULT_PROMPT", "query: ", "default_prompt", "query: "),
        ("HF_API_TOKEN", "hf_x", "hub_token", "hf_x"),
        ("DEVICE_ID", "1", "device", "cuda:1"),
        ("HOSTNAME", "::1", "host", "::1"),
        ("PORT", "80", "port", 80),
        ("API_KEY", "secret", "api_key", "secret"),
    ],
)
def test_each_has_its_meaning(name: str, text: str, parameter: str, value: Any) -> None:
    assert read_tei({"MODEL_ID": "m", name: text}).values[parameter] == value


def test_those_are_all_and_each_is_an_option() -> None:
    parameters = {parameter.name for parameter in command.params}
    assert {parameter for parameter, _ in UNDERSTOOD.values()} <= parameters


def test_names_that_mean_other_things_elsewhere_count_only_beside_a_model_id() -> None:
    environment = {"PORT": "3000", "HOSTNAME": "10.0.0.1", "API_KEY": "k", "REVISION": "r", "DEVICE_ID": "1"}
    assert environment.keys() == SHARED
    assert read_tei(environment | {"MAX_BATCH_TOKENS": "9"}).values == {"token_budget": 9}
    assert read_tei(environment | {"MODEL_ID": ""}).values == {}
    assert len(read_tei(environment | {"MODEL_ID": "m"}).values) == 6


def test_the_first_gpu_is_left_to_auto() -> None:
    assert "device" not in read_tei({"MODEL_ID": "m", "DEVICE_ID": "0"}).values


def test_a_containers_name_means_all_addresses_as_it_does_there() -> None:
    found = read_tei({"MODEL_ID": "m", "HOSTNAME": "3f2a9c1d0b7e"})
    assert (found.values["host"], found.notes) == (
        "0.0.0.0",
        ("HOSTNAME is no address: listening on 0.0.0.0, as TEI does",),
    )


def test_what_has_no_effect_is_said_once_without_its_value() -> None:
    found = read_tei({"MODEL_ID": "m", "PROMETHEUS_PORT": "9123", "OTLP_ENDPOINT": "http://user:secret@host"})
    assert [note.partition(" ")[0] for note in found.notes] == ["PROMETHEUS_PORT", "OTLP_ENDPOINT"]
    assert not any("9123" in note or "secret" in note for note in found.notes)
    assert read_tei({"PROMETHEUS_PORT": "9123"}).notes == ()


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("MAX_BATCH_TOKENS", "many", "MAX_BATCH_TOKENS should be a whole number, not 'many'"),
        ("AUTO_TRUNCATE", "maybe", "AUTO_TRUNCATE should be true or false, not 'maybe'"),
        ("DTYPE", "int8", "DTYPE should be one of float16, float32, bfloat16, not 'int8'"),
        ("POOLING", "splade", "POOLING should be one of cls, mean, last-token, not 'splade'"),
    ],
)
def test_a_bad_value_names_its_variable(name: str, text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        read_tei({name: text})


def test_the_guide_has_a_line_on_each() -> None:
    guide = GUIDE.read_text()
    assert [
        name for name in (*UNDERSTOOD, *IGNORED, "HF_TOKEN", "HUGGINGFACE_HUB_CACHE") if f"`{name}`" not in guide
    ] == []
