"""Where and how a gateway listens, what it writes, and what becomes of its workers, in processes of their own."""

import gzip
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path

import httpx
import numpy as np
import pytest
from ivy_live import client_of, ivy_process, tulip_thread
from ivy_support import CLS, HELLO, SEP, expected_vector, vectors_of

from rosebed.core.engine import EngineInfo
from rosebed.testing import FakeEngine

SCRIPT = str(Path(__file__).with_name("ivy_process.py"))


@pytest.fixture(scope="module")
def tulip(info: EngineInfo) -> Generator[str]:
    with tulip_thread(FakeEngine(info)) as port:
        yield f"127.0.0.1:{port}"


@pytest.fixture(scope="module")
def packing_url(tulip: str, checkpoint: Path) -> Generator[str]:
    """A gateway that packs answers from a kilobyte on."""
    with ivy_process(tulips=[tulip], model=str(checkpoint), gzip_min_bytes=1000) as (url, _):
        yield url


def embed(client: httpx.Client, url: str, **request: object) -> httpx.Response:
    return client.post(f"{url}/v1/embeddings", json={"input": "hello", **request})


def check_hello(answer: httpx.Response, info: EngineInfo) -> None:
    np.testing.assert_array_equal(vectors_of(answer)[:1], [expected_vector(info, [CLS, HELLO, SEP])])


def test_packed_requests(packing_url: str, info: EngineInfo) -> None:
    for body in (b'{"input": "hello"}', json.dumps({"input": ["hello"] * 9000, "x": "a" * 100_000}).encode()):
        packed = gzip.compress(body)
        for content in (packed, iter([packed[:10], packed[10:]])):  # whole, and in chunks
            answer = httpx.post(
                f"{packing_url}/v1/embeddings", content=content, headers={"content-encoding": "gzip"}, timeout=30
            )
            check_hello(answer, info)


@pytest.mark.parametrize("num_inputs", [20, 2000])  # on the event loop and off it
def test_answers_are_packed_for_those_who_take_them_so(packing_url: str, info: EngineInfo, num_inputs: int) -> None:
    request = {"input": ["hello"] * num_inputs}
    answers = {
        accepted: httpx.post(f"{packing_url}/v1/embeddings", json=request, headers={"accept-encoding": accepted})
        for accepted in ("gzip", "identity", "gzip;q=0, br")
    }
    packed = answers["gzip"]
    assert (packed.headers["content-encoding"], packed.headers["vary"]) == ("gzip", "accept-encoding")
    assert int(packed.headers["content-length"]) < len(packed.content) / 2
    check_hello(packed, info)
    for accepted in ("identity", "gzip;q=0, br"):
        assert "content-encoding" not in answers[accepted].headers
        assert answers[accepted].headers["vary"] == "accept-encoding"
        assert answers[accepted].content == packed.content


def test_small_answers_are_not_packed(packing_url: str) -> None:
    answer = httpx.post(f"{packing_url}/v1/embeddings", json={"input": "hello"})
    assert not {"content-encoding", "vary"} & set(answer.headers)
    document = httpx.get(f"{packing_url}/openapi.json")
    assert document.headers["content-encoding"] == "gzip"
    assert document.json()["openapi"] == "3.1.0"


def test_nothing_is_packed_unless_asked(live_url: str) -> None:
    answer = httpx.post(f"{live_url}/v1/embeddings", json={"input": ["hello"] * 50})
    assert len(answer.content) > 1000
    assert "content-encoding" not in answer.headers


def test_a_unix_socket_with_workers_that_come_and_go(tmp_path: Path, tulip: str, info: EngineInfo) -> None:
    path = str(tmp_path / "ivy.sock")
    with socket.socket(socket.AF_UNIX) as left_over:  # of a server that was killed
        left_over.bind(path)
    with client_of(path) as client, ivy_process(tulips=[tulip], uds=path, workers=2) as (_, process):
        check_hello(embed(client, "http://ivy"), info)
        refused = subprocess.run(
            [sys.executable, SCRIPT, json.dumps({"tulips": [tulip], "uds": path})],
            check=False,
            capture_output=True,
            text=True,
            timeout=30,
        )
        assert f"--uds {path}: somebody listens there already" in refused.stderr
        for worker in children(process.pid):
            os.kill(worker, signal.SIGKILL)
        check_hello(embed(client_of(path), "http://ivy"), info)  # it waits for the next worker
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    assert not Path(path).exists()


def test_access_log(tulip: str) -> None:
    with ivy_process(tulips=[tulip], access_log=True, root_path="/api") as (url, process):
        httpx.post(f"{url}/api/v1/embeddings?a=b", json={"input": 5}, headers={"x-request-id": "mine"})
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
        assert process.stdout is not None
        lines = [line.split() for line in process.stdout.read().splitlines()]
    *readiness, asked = lines
    assert all(line[2:5] == ['"GET', '/ready"', line[4]] for line in readiness)
    assert asked[1].startswith("127.0.0.1:")
    assert asked[2:5] == ['"POST', '/api/v1/embeddings?a=b"', "400"]
    assert asked[7] == "mine"


def test_keep_alive(tulip: str) -> None:
    with ivy_process(tulips=[tulip], keep_alive_s=0.5) as (url, _):
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            started_s = time.monotonic()
            assert connection.recv(1) == b""
            assert 0.4 < time.monotonic() - started_s < 5


def test_workers_that_die_again_and_again_are_started_less_and_less_often(tmp_path: Path, tulip: str) -> None:
    with (tmp_path / "log").open("w+") as log, ivy_process(tulips=[tulip], workers=1, log=log) as (url, process):
        pauses = [0.1, 0.2, 0.4]
        for _ in pauses:
            (worker,) = children(process.pid)
            os.kill(worker, signal.SIGKILL)
            deadline_s = time.monotonic() + 20
            while children(process.pid) in ([], [worker]):
                assert time.monotonic() < deadline_s
                time.sleep(0.01)
        wait_until_answered(url)
        log.seek(0)
        said = log.read()
    for pause in pauses:
        assert f"another starts in {pause:g} s" in said
    assert said.count("a worker ended with SIGKILL after") == len(pauses)


def test_a_server_whose_workers_cannot_start_ends(tulip: str) -> None:
    code = (
        "import sys; from rosebed.ivy.config import IvyConfig, ModelConfig; from rosebed.ivy.server import serve; "
        "sys.executable = '/bin/false'; "
        "serve(IvyConfig(models=(ModelConfig(tulips=(sys.argv[1],)),), port=0, workers=2))"
    )
    ended = subprocess.run([sys.executable, "-c", code, tulip], check=False, capture_output=True, text=True, timeout=30)
    assert ended.returncode == 1
    assert "a worker ended with exit code 1 before it served: giving up" in ended.stderr


def test_a_stop_finishes_what_is_in_flight_and_ends_idle_connections(info: EngineInfo) -> None:
    engine = FakeEngine(info)
    with tulip_thread(engine) as port, ivy_process(tulips=[f"127.0.0.1:{port}"]) as (url, process):
        host, gateway_port = url.removeprefix("http://").split(":")
        body = b'{"input": "hello"}'
        head = b"POST /v1/embeddings HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)
        with (
            socket.create_connection((host, int(gateway_port)), timeout=10) as idle,
            socket.create_connection((host, int(gateway_port)), timeout=10) as busy,
        ):
            busy.sendall(head + body)
            assert busy.recv(1 << 16).startswith(b"HTTP/1.1 200 OK")
            engine.by_hand = True
            busy.sendall(head + body)
            while not engine.unfinished:
                time.sleep(0.01)
            process.send_signal(signal.SIGTERM)
            assert idle.recv(1) == b""
            with pytest.raises(ConnectionRefusedError):
                connect_for_ever(host, int(gateway_port))
            assert process.poll() is None
            engine.by_hand = False
            engine.finish_next()
            answer = busy.recv(1 << 16)
            assert answer.startswith(b"HTTP/1.1 200 OK")
            assert b"connection: close" in answer
            assert busy.recv(1) == b""
        assert process.wait(10) == 0


def connect_for_ever(host: str, port: int) -> None:
    while True:
        socket.create_connection((host, port), timeout=10).close()


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def wait_until_answered(url: str) -> None:
    deadline_s = time.monotonic() + 20
    while time.monotonic() < deadline_s:
        try:
            if httpx.get(f"{url}/health").status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.05)
    raise TimeoutError(url)
