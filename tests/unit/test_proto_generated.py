"""The generated modules are what `make proto` would write now."""

import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
PROTO = "rosebed/proto/rosebed.proto"


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("proto")
    outputs = [f"--{kind}={folder}" for kind in ("python_out", "pyi_out", "grpc_python_out")]
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I", str(SOURCE), *outputs, PROTO]
    subprocess.run(command, cwd=SOURCE, check=True)
    return folder / "rosebed" / "proto"


@pytest.mark.parametrize("name", ["rosebed_pb2.py", "rosebed_pb2.pyi", "rosebed_pb2_grpc.py"])
def test_generated_files_match_the_proto(generated: Path, name: str) -> None:
    assert (generated / name).read_text() == (SOURCE / "rosebed" / "proto" / name).read_text()
