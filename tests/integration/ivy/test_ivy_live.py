"""The gateway as it is run: worker processes, sockets, signals, and OpenAI's own client."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx
import numpy as np
import openai
import pytest
from ivy_live import ivy_process, tulip_thread
from ivy_support import CLS, DIM, HELLO, MAX_LENGTH, SEP, expected_vector, vectors_of

from rosebed.core.engine import EngineInfo
from rosebed.testing import FakeEngine, StepTime

KEY = "a key/with+odd=characters"


def test_openai_client(live_url: str, info: EngineInfo) -> None:
    client = openai.OpenAI(base_url=f"{live_url}/v1", api_key="any")
    answer = client.embeddings.create(model="tiny", input=["hello", "a"])
    np.testing.assert_array_equal(
        np.array(answer.data[0].embedding, np.float32), expected_vector(info, [CLS, HELLO, SEP])
    )
    assert [item.index for item in answer.data] == [0, 1]
    assert (answer.model, answer.usage.prompt_tokens, answer.usage.total_tokens) == ("tiny", 6, 6)
    numbers = client.embeddings.create(model="tiny", input="hello", encoding_format="float", dimensions=DIM)
    np.testing.assert_array_equal(np.array(numbers.data[0].embedding, np.float32), answer.data[0].embedding)
    ids = client.embeddings.create(model="org/tiny-bert", input=[CLS, HELLO, SEP])
    assert ids.data[0].embedding == answer.data[0].embedding
    assert ids.model == "org/tiny-bert"


async def test_async_openai_client(live_url: str, info: EngineInfo) -> None:
    async with openai.AsyncOpenAI(base_url=f"{live_url}/v1", api_key="any") as client:
        answers = await asyncio.gather(*(client.embeddings.create(model="tiny", input="hello") for _ in range(20)))
        vectors = np.array([answer.data[0].embedding for answer in answers], np.float32)
        np.testing.assert_array_equal(vectors, [expected_vector(info, [CLS, HELLO, SEP])] * 20)
        assert [model.id async for model in client.models.list()] == ["tiny", "org/tiny-bert"]
        assert (await client.models.retrieve("org/tiny-bert")).id == "org/tiny-bert"


def test_openai_client_raises_its_own_errors(live_url: str) -> None:
    client = openai.OpenAI(base_url=f"{live_url}/v1", api_key="any", max_retries=0)
    with pytest.raises(openai.NotFoundError) as unknown:
        client.embeddings.create(model="text-embedding-3-small", input="hello")
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as too_long:
        client.embeddings.create(model="tiny", input="a " * 20)
    assert (too_long.value.code, too_long.value.param) == ("context_length_exceeded", "input[0]")


@pytest.mark.parametrize("path", ["/v1/models/org/tiny-bert", "/v1/models/org%2Ftiny-bert", "/models/org%2ftiny-bert"])
def test_model_id_with_a_slash(live_url: str, path: str) -> None:
    answer = httpx.get(live_url + path)
    assert (answer.json()["id"], answer.json()["max_model_len"]) == ("org/tiny-bert", MAX_LENGTH)


def test_request_id_is_echoed_or_made(live_url: str) -> None:
    assert httpx.get(f"{live_url}/health", headers={"x-request-id": "abc-1"}).headers["x-request-id"] == "abc-1"
    made = [httpx.get(f"{live_url}/nowhere").headers["x-request-id"] for _ in range(2)]
    assert len(set(made)) == 2
    assert all(len(value) == 32 for value in made)
    unprintable = httpx.get(f"{live_url}/health", headers={"x-request-id": "a b"}).headers["x-request-id"]
    assert len(unprintable) == 32
    overlong = httpx.get(f"{live_url}/health", headers={"x-request-id": "a" * 129}).headers["x-request-id"]
    assert len(overlong) == 32


def test_connection_is_kept(live_url: str) -> None:
    request = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"
    host, port = live_url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        for _ in range(3):
            connection.sendall(request)
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")


def test_what_is_no_request_is_refused_in_the_same_words_and_counted(live_url: str) -> None:
    name = 'rosebed_ivy_requests_total{route="unmatched",status="400"}'
    before = metric(live_url, name)
    host, port = live_url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(b"POST /v1/embeddings HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n")
        head, _, body = connection.recv(65536).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json")
        assert json.loads(body)["error"] | {"message": ""} == {
            "message": "",
            "type": "invalid_request_error",
            "param": None,
            "code": "malformed_request",
        }
        assert connection.recv(1) == b""
    assert metric(live_url, name) == before + 1


def test_head_has_no_body(live_url: str) -> None:
    answer = httpx.head(f"{live_url}/health")
    assert (answer.status_code, answer.content) == (200, b"")


def test_chunked_body_is_read(live_url: str, info: EngineInfo) -> None:
    answer = httpx.post(f"{live_url}/v1/embeddings", content=iter([b'{"inp', b'ut": "hel', b'lo"}']))
    np.testing.assert_array_equal(vectors_of(answer), [expected_vector(info, [CLS, HELLO, SEP])])


@pytest.fixture(scope="module")
def keyed_url(info: EngineInfo) -> Generator[str]:
    """A gateway that wants a key."""
    with (
        tulip_thread(FakeEngine(info)) as port,
        ivy_process(tulips=[f"127.0.0.1:{port}"], api_key=KEY) as (url, _),
    ):
        yield url


@pytest.mark.parametrize(
    ("authorization", "says"),
    [
        (None, "an API key is needed"),
        ("", "an API key is needed"),
        (f"Basic {KEY}", "an API key is needed"),
        (KEY, "an API key is needed"),
        ("Bearer", "the API key is wrong"),
        (f"Bearer {KEY}x", "the API key is wrong"),
        (f"Bearer {KEY[:-1]}", "the API key is wrong"),
        ("Bearer \xff", "the API key is wrong"),
    ],
)
def test_wrong_key(keyed_url: str, authorization: str | None, says: str) -> None:
    headers = httpx.Headers({} if authorization is None else {"authorization": authorization}, encoding="latin-1")
    for method, path in (("POST", "/v1/embeddings"), ("GET", "/v1/models"), ("GET", "/metrics"), ("GET", "/docs")):
        answer = httpx.request(method, keyed_url + path, headers=headers)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        error = answer.json()["error"]
        assert says in error["message"]
        assert error["code"] == "invalid_api_key"


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "Bearer "])
def test_right_key(keyed_url: str, scheme: str) -> None:
    answer = httpx.get(f"{keyed_url}/v1/models", headers={"authorization": f"{scheme} {KEY}"})
    assert answer.status_code == 200
    client = openai.OpenAI(base_url=f"{keyed_url}/v1", api_key=KEY)
    assert len(client.embeddings.create(model="tiny bert", input="a").data[0].embedding) == DIM


def test_health_needs_no_key(keyed_url: str) -> None:
    assert [httpx.get(keyed_url + path).status_code for path in ("/health", "/ready", "/ping")] == [200] * 3


def test_client_that_leaves_cancels_its_work(info: EngineInfo) -> None:
    engine = FakeEngine(info, step_time=StepTime(base_s=0.2))
    with tulip_thread(engine) as port, ivy_process(tulips=[f"127.0.0.1:{port}"]) as (url, _):
        steps_before = len(engine.batches)
        # Two steps run at a time; the third batch, which waits, is the one that must not be computed.
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{url}/v1/embeddings", json={"input": [[HELLO] * 16] * 100}, timeout=0.3)
        until(lambda: metric(url, 'rosebed_ivy_requests_total{route="/v1/embeddings",status="499"}'), 1)
        assert httpx.post(f"{url}/v1/embeddings", json={"input": "hello"}, timeout=10).status_code == 200
        computed = sum(batch.num_sequences for batch in list(engine.batches)[steps_before:])
        assert computed < 100 + 1


def test_workers_share_a_port_and_their_metrics_and_are_replaced(info: EngineInfo, checkpoint: Path) -> None:
    with (
        tulip_thread(FakeEngine(info)) as port,
        ivy_process(tulips=[f"127.0.0.1:{port}"], workers=2, model=str(checkpoint)) as (url, process),
    ):
        until(lambda: metric(url, "rosebed_ivy_replica_connections"), 2)
        embed_many(url, 60)
        assert metric(url, 'rosebed_ivy_requests_total{route="/v1/embeddings",status="200"}') == 60
        workers = children(process.pid)
        assert len(workers) == 2
        os.kill(workers[0], signal.SIGKILL)
        until(lambda: len(set(children(process.pid)) - set(workers)), 1)
        until(lambda: metric(url, "rosebed_ivy_replica_connections"), 2)
        embed_many(url, 60)
        assert metric(url, 'rosebed_ivy_requests_total{route="/v1/embeddings",status="200"}') == 120
        assert metric(url, "rosebed_ivy_inputs_total") == 120


def test_bad_model_ends_the_server_before_it_serves(tmp_path: Path) -> None:
    command = [sys.executable, str(Path(__file__).with_name("ivy_process.py"))]
    config = {"tulips": ["127.0.0.1:1"], "port": 0, "model": str(tmp_path)}
    ended = subprocess.run([*command, json.dumps(config)], check=False, capture_output=True, text=True, timeout=30)
    assert ended.returncode == 1
    assert "has no config.json" in ended.stderr
    assert ended.stdout == ""


def embed_many(url: str, number: int) -> None:
    """That many requests, each over a connection of its own, so that every worker gets some."""
    for _ in range(number):
        until(lambda: embed_status(url), 200)


def embed_status(url: str) -> int:
    return httpx.post(f"{url}/v1/embeddings", json={"input": "hello"}).status_code


def until(value: Callable[[], float], wanted: float) -> None:
    """Return once `value` comes to what is wanted, taking refused connections for another value."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with suppress(httpx.TransportError):
            if value() == wanted:
                return
        time.sleep(0.05)
    raise TimeoutError(f"{value()} did not become {wanted}")


def metric(url: str, name: str) -> float:
    lines = httpx.get(f"{url}/metrics").text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_workers_end_with_a_server_that_is_killed(info: EngineInfo) -> None:
    with (
        tulip_thread(FakeEngine(info)) as port,
        ivy_process(tulips=[f"127.0.0.1:{port}"], workers=2) as (url, process),
    ):
        process.kill()
        process.wait()
        deadline = time.monotonic() + 10
        with suppress(httpx.TransportError):
            while time.monotonic() < deadline:
                httpx.get(f"{url}/health")
        assert time.monotonic() < deadline


def test_a_second_signal_ends_a_busy_server_at_once(info: EngineInfo) -> None:
    engine = FakeEngine(info)
    with (
        tulip_thread(engine) as port,
        ivy_process(tulips=[f"127.0.0.1:{port}"], workers=1) as (url, process),
        ThreadPoolExecutor(1) as pool,
    ):
        assert httpx.post(f"{url}/v1/embeddings", json={"input": "hello"}).status_code == 200
        engine.by_hand = True
        pending = pool.submit(httpx.post, f"{url}/v1/embeddings", json={"input": "world"}, timeout=30)
        while not engine.unfinished:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        assert process.poll() is None  # it waits for the answer
        process.send_signal(signal.SIGINT)
        process.wait(3)
        assert isinstance(pending.exception(), httpx.TransportError)
        engine.by_hand = False
        engine.finish_next()


def test_tokenize_takes_so_much_text_and_no_more(live_url: str) -> None:
    answer = httpx.post(f"{live_url}/tokenize", json={"inputs": ["a" * 100, "a " * 5000]})
    assert [len(tokens) for tokens in answer.json()] == [102, 5002]
    refused = httpx.post(f"{live_url}/tokenize", json={"inputs": ["a" * 150_000] * 2})
    assert refused.status_code == 422
    assert "inputs hold 300000 characters, prompts included, over the limit of 262144" in refused.text
