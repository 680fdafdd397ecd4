"""Bad settings name themselves."""

from dataclasses import replace
from typing import Any

import pytest

from rosebed.core.errors import ConfigError
from rosebed.ivy.config import IvyConfig


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"tulips": ()}, "--tulip"),
        ({"tulips": ("a:1", "")}, "--tulip"),
        ({"api_key": ""}, "--api-key"),
        ({"served_model_names": ("a", "")}, "--served-model-name"),
        ({"port": -1}, "--port"),
        ({"port": 65536}, "--port"),
        ({"workers": 0}, "--workers"),
        ({"max_inputs": 0}, "--max-inputs"),
        ({"max_body_bytes": 0}, "--max-body-bytes"),
    ],
)
def test_bad_value_names_its_flag(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        replace(IvyConfig(tulips=("127.0.0.1:50051",)), **settings)


def test_defaults() -> None:
    config = IvyConfig(tulips=("127.0.0.1:50051",))
    assert (config.max_inputs, config.auto_truncate, config.api_key) == (10_000, False, None)
