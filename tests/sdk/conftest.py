"""Two live servers, and what sentence-transformers and transformers say of the texts that are sent to them."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def servers() -> Iterator[dict[str, Any]]:
    command = [ROOT / ".venv" / "bin" / "python", Path(__file__).with_name("servers.py")]
    helpers = [str(ROOT / "tests" / folder) for folder in ("parity", "unit", "integration")]
    path = os.pathsep.join([*helpers, os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen(
        command, env=os.environ | {"PYTHONPATH": path}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, "the servers did not start"
        yield json.loads(line)
        process.stdin.close()
        assert process.wait(60) == 0


@pytest.fixture(scope="session")
def minilm(servers: dict[str, Any]) -> SimpleNamespace:
    """`url`, `texts` and their `vectors`."""
    return SimpleNamespace(**servers["minilm"])


@pytest.fixture(scope="session")
def pplx(servers: dict[str, Any]) -> SimpleNamespace:
    """The same, with `documents`, and int8 and bits of all of it."""
    return SimpleNamespace(**servers["pplx"])
