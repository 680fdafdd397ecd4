"""Bad settings name themselves."""

from dataclasses import replace
from typing import Any

import pytest

from rosebed.core.errors import ConfigError
from rosebed.ivy.config import IvyConfig, ModelConfig

MODEL = ModelConfig(tulips=("127.0.0.1:50051",))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"tulips": ()}, "--tulip"),
        ({"tulips": ("a:1", "")}, "--tulip"),
        (
            {"tulips": ("http://127.0.0.1:50051",)},
            "--tulip should be HOST:PORT or unix:PATH, not 'http://127.0.0.1:50051'",
        ),
        ({"tulips": ("127.0.0.1",)}, "not '127.0.0.1'"),
        ({"tulips": ("a:1", "gpu:")}, "not 'gpu:'"),
        ({"tulips": ("gpu:0",)}, "not 'gpu:0'"),
        ({"tulips": ("gpu:65536",)}, "not 'gpu:65536'"),
        ({"tulips": ("::1:50051",)}, "not '::1:50051'"),
        ({"tulips": ("unix:",)}, "not 'unix:'"),
        ({"tulips": ("a:1", "b:1", "a:1")}, "--tulip: the same address is there twice"),
        ({"served_model_names": ("a", "")}, "--served-model-name"),
        ({"default_prompt": "a", "default_prompt_name": "b"}, "--default-prompt and --default-prompt-name"),
    ],
)
def test_bad_value_of_a_model_names_its_flag(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        replace(MODEL, **settings)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"models": ()}, "at least one model"),
        ({"api_key": ""}, "--api-key"),
        ({"api_key": " k "}, "--api-key should be printable ASCII"),
        ({"api_key": "ключ"}, "--api-key should be printable ASCII"),
        ({"api_key": "k\n"}, "--api-key should be printable ASCII"),
        ({"body_timeout_s": 0}, "--body-timeout-s"),
        ({"resolve_every_s": 0}, "--resolve-every-s"),
        ({"port": -1}, "--port"),
        ({"port": 65536}, "--port"),
        ({"workers": 0}, "--workers"),
        ({"max_inputs": 0}, "--max-inputs"),
        ({"max_body_bytes": 0}, "--max-body-bytes"),
        ({"keep_alive_s": 0}, "--keep-alive-s"),
        ({"gzip_min_bytes": -1}, "--gzip-min-bytes"),
        ({"uds": ""}, "--uds should be a path of at most 107 bytes"),
        ({"uds": "/" + "é" * 54}, "--uds should be a path of at most 107 bytes"),
        ({"root_path": "embed"}, "--root-path should be like /embed"),
        ({"root_path": "/embed/"}, "not '/embed/'"),
        ({"root_path": "/a b"}, "--root-path"),
    ],
)
def test_bad_value_names_its_flag(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        replace(IvyConfig(models=(MODEL,)), **settings)


def test_two_models_of_one_name_are_refused() -> None:
    one, other = replace(MODEL, served_model_names=("a", "b")), replace(MODEL, served_model_names=("c", "b"))
    with pytest.raises(ConfigError, match="2 models are called 'b'"):
        IvyConfig(models=(one, other))


@pytest.mark.parametrize("target", ["127.0.0.1:1", "gpu-1.example:65535", "[::1]:50051", "unix:/run/tulip.sock"])
def test_addresses_of_inference_servers(target: str) -> None:
    assert ModelConfig(tulips=(target,)).tulips == (target,)


def test_defaults() -> None:
    config = IvyConfig(models=(MODEL,))
    assert (config.max_inputs, config.api_key, MODEL.auto_truncate, MODEL.dimensions) == (10_000, None, False, None)
