"""The bare install is the client: with the extras blocked, it works, and the rest says what to install."""

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Blocks all that the extra [serve] brings, but not what the bare install needs.
BLOCK = """
import sys
from importlib.abc import MetaPathFinder

class Absent(MetaPathFinder):
    names = {"click", "fastokens", "grpc_health", "grpc_reflection", "httptools", "huggingface_hub", "msgspec",
             "orjson", "prometheus_client", "safetensors", "splintr", "tokenizers", "torch", "uvloop"}

    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    """`code` in an interpreter that has only the bare install."""
    return subprocess.run([sys.executable, "-c", BLOCK + code], capture_output=True, text=True, check=False, cwd=ROOT)


def test_clients_import_and_speak() -> None:
    code = """
import httpx, numpy as np, rosebed
from rosebed.core.encodings import to_base64
rows = {"data": [{"index": 0, "embedding": to_base64(np.ones(3, np.float32))}]}
transport = httpx.MockTransport(lambda request: httpx.Response(200, json=rows))
print(rosebed.Client("http://x", transport=transport).embed(["a"]).tolist())
rosebed.AsyncClient("http://x"), rosebed.TokenClient("x:1")
"""
    result = run(code)
    assert result.stdout == "[[1.0, 1.0, 1.0]]\n", result.stderr


def test_all_names_can_be_imported() -> None:
    result = run("from rosebed import *; print(Client.__name__)")
    assert result.stdout == "Client\n", result.stderr


@pytest.mark.parametrize(
    "code",
    [
        "from rosebed import Embedder",
        "import rosebed; rosebed.Embedder('model')",
        "import rosebed.wiring",
        "sys.argv = ['rosebed', 'serve', 'model']; from rosebed.cli import main; main()",
        "Absent.names -= {'click'}; sys.argv = ['rosebed', 'serve', 'model']; from rosebed.cli import main; main()",
        "from rosebed.core.hub import resolve_model_folder; resolve_model_folder('owner/name')",
    ],
)
def test_the_rest_names_the_extra(code: str) -> None:
    result = run(code)
    assert result.returncode != 0
    assert "pip install 'rosebed[serve]'" in result.stderr


def test_the_blocked_names_are_those_of_the_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["serve"]
    modules = {"grpcio-health-checking": "grpc_health", "grpcio-reflection": "grpc_reflection", "splintr-rs": "splintr"}
    for requirement in extras:
        name = requirement.partition(">")[0]
        assert f'"{modules.get(name, name.replace("-", "_"))}"' in BLOCK


def test_the_wheel_holds_types_and_protocol(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", tmp_path, ROOT]
    subprocess.run(command, check=True)
    (wheel,) = tmp_path.glob("rosebed-*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    needed = {"py.typed", "proto/rosebed.proto", "proto/rosebed_pb2.py", "proto/rosebed_pb2.pyi", "cli/serve.py"}
    assert {f"rosebed/{name}" for name in needed} <= names
    assert not [name for name in names if name.startswith("tests/")]
