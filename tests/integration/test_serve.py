"""`rosebed serve` on the real MiniLM: what clients get, and what becomes of its processes."""

import io
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
from minilm import COSINE, MAX_COSINE_DISTANCE, MINILM, RELATED, TEXTS, cosine_distances, reference_model
from openai import OpenAI
from scipy.stats import rankdata
from serve_process import ServeProcess, children, command_line, eventually, is_alive, serving

from rosebed import AsyncClient, Client
from rosebed.core.errors import AuthenticationFailed, InvalidInput, ModelNotFound
from rosebed.core.types import Float32Array


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServeProcess, str]]:
    log = tmp_path_factory.mktemp("serve") / "log"
    with serving("--served-model-name", "minilm", log=log) as started:
        yield started


@pytest.fixture(scope="module")
def url(server: tuple[ServeProcess, str]) -> str:
    return server[1]


def test_client(url: str) -> None:
    with Client(url) as client:
        a, b = client.embed(RELATED)
        assert client.models() == ["minilm"]
    assert float(a @ b) == pytest.approx(COSINE, abs=5e-5)
    assert float(a @ a) == pytest.approx(1, abs=1e-6)


def test_vectors_are_those_of_sentence_transformers(url: str) -> None:
    with Client(url) as client:
        together = client.embed(TEXTS, truncate=True)
        alone = np.concatenate([client.embed([text], truncate=True) for text in TEXTS])
    reference = reference_model().encode(TEXTS)
    assert cosine_distances(together, reference).max() < MAX_COSINE_DISTANCE
    assert cosine_distances(alone, reference).max() < MAX_COSINE_DISTANCE


async def test_async_client(url: str) -> None:
    async with AsyncClient(f"{url}/v1") as client:
        a, b = await client.embed(RELATED, model="minilm")
    assert float(a @ b) == pytest.approx(COSINE, abs=5e-5)


def test_errors_arrive_as_what_they_are(url: str) -> None:
    with Client(url) as client:
        with pytest.raises(ModelNotFound, match="'other'"):
            client.embed(["a"], model="other")
        with pytest.raises(InvalidInput) as caught:
            client.embed(["a"], dimensions=64)
        assert caught.value.param == "dimensions"
        with pytest.raises(InvalidInput):
            client.embed([])
        assert client.embed(["a"]).shape == (1, 384)


def test_official_openai_client_with_its_default_settings(url: str) -> None:
    answer = OpenAI(base_url=f"{url}/v1", api_key="any").embeddings.create(model="minilm", input=RELATED)
    a, b = (np.array(item.embedding) for item in answer.data)
    assert float(a @ b) == pytest.approx(COSINE, abs=5e-5)
    assert answer.usage.prompt_tokens == 20


def test_vectors_agree_with_human_judgement_as_well_as_they_should(url: str) -> None:
    """Fifty news documents, and how alike people found each pair of them (Lee, Pincombe and Welsh, 2005)."""
    documents, judged = lee_corpus()
    with Client(url) as client:
        vectors = client.embed(documents)
    pairs = np.triu_indices(len(documents), 1)
    cosines = (vectors @ vectors.T)[pairs]
    pearson = np.corrcoef(cosines, judged[pairs])[0, 1]
    spearman = np.corrcoef(rankdata(cosines), rankdata(judged[pairs]))[0, 1]
    assert (pearson, spearman) == (pytest.approx(0.656, abs=5e-4), pytest.approx(0.508, abs=5e-4))


def lee_corpus() -> tuple[list[str], Float32Array]:
    """The documents, and float32[50, 50] of mean judgements from 0 to 1, out of gensim's test data."""
    wheels = list((Path(__file__).parents[2] / ".assets").glob("gensim-*.whl"))
    assert wheels, "the Lee corpus is not here: `make assets` fetches it"
    with zipfile.ZipFile(wheels[0]) as wheel:
        documents = wheel.read("gensim/test/test_data/lee.cor").decode("utf-8", "replace").splitlines()
        judged = np.loadtxt(io.BytesIO(wheel.read("gensim/test/test_data/similarities0-1.txt")), np.float32)
    return documents, judged


def test_stops_cleanly_on_sigterm(tmp_path: Path) -> None:
    with serving("--api-key", "secret", log=tmp_path / "log") as (server, url):
        with Client(url) as client, pytest.raises(AuthenticationFailed):
            client.embed(["a"])
        with Client(url, "secret") as client:
            assert client.models() == ["model"]  # the folder's own name
        assert "secret" not in " ".join(Path(f"/proc/{server.child('ivy')}/cmdline").read_text().split("\0"))
        descendants = server.descendants()
        assert len(descendants) >= 3  # Tulip, Ivy, a worker
        assert server.stop() == 0
        assert not list(filter(is_alive, descendants))
        assert "Traceback" not in server.log


def test_what_dies_comes_back(tmp_path: Path) -> None:
    with serving(log=tmp_path / "log") as (server, url), Client(url) as client:

        def answers() -> bool:
            try:
                return client.embed(["a"]).shape == (1, 384)
            except Exception:
                return False

        ivy, tulip = server.child("ivy"), server.child("tulip")
        folder = _private_folder(tulip)
        (worker,) = _workers(ivy)

        os.kill(worker, signal.SIGKILL)
        eventually(lambda: _workers(ivy) not in ([], [worker]))
        eventually(answers)

        (left_over,) = folder.glob("rosebed-*")  # what the gateway's workers share
        os.kill(ivy, signal.SIGKILL)
        eventually(lambda: ivy not in children(server.process.pid))
        eventually(answers)
        assert server.child("ivy") != ivy
        assert left_over.exists()

        os.kill(tulip, signal.SIGKILL)
        eventually(lambda: httpx.get(f"{url}/ready").status_code == 503)
        eventually(answers)
        assert server.child("tulip") != tulip

        assert server.stop(signal.SIGINT) == 0
        assert server.log.count("starting it again") == 2
        assert not folder.exists()


def _private_folder(tulip: int) -> Path:
    """Where the supervisor puts the socket of its inference server."""
    (socket,) = (argument for argument in command_line(tulip) if argument.startswith("unix:"))
    return Path(socket.removeprefix("unix:")).parent


def _workers(ivy: int) -> list[int]:
    """The gateway's worker processes that serve."""
    return [pid for pid in children(ivy) if is_alive(pid) and len(list(Path(f"/proc/{pid}/task").iterdir())) > 1]


def test_a_unix_socket(tmp_path: Path) -> None:
    path = str(tmp_path / "ivy.sock")
    server = ServeProcess("--uds", path, "--access-log", log=tmp_path / "log")
    assert server.process.stdout is not None
    found: list[str] = []
    while not found or " after " not in found[-1]:  # between the lines that its own questions make
        found.append(server.process.stdout.readline())
        assert found[-1], server.log
    assert f"rosebed: serving model at unix:{path} after" in found[-1]
    with httpx.Client(transport=httpx.HTTPTransport(uds=path)) as client:
        assert len(client.post("http://x/v1/embeddings", json={"input": "a"}).json()["data"][0]["embedding"]) == 384
    assert server.stop() == 0
    assert '"POST /v1/embeddings" 200' in server.process.stdout.read()
    assert not Path(path).exists()


def test_nothing_is_left_over_when_the_supervisor_is_killed(tmp_path: Path) -> None:
    with serving(log=tmp_path / "log") as (server, _):
        descendants = server.descendants()
        server.process.kill()
        server.process.wait()
        eventually(lambda: not list(filter(is_alive, descendants)), within_s=20)


@pytest.mark.parametrize("command", [["serve", MINILM], ["tulip", MINILM], ["ivy", "--tulip", "127.0.0.1:1"]])
def test_a_taken_port_is_named(url: str, command: list[str]) -> None:
    port = url.rpartition(":")[2]
    arguments = [sys.executable, "-m", "rosebed", *command, "--port", port]
    result = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert f"--port {port}" in line


def test_a_model_that_cannot_be_loaded_ends_it(tmp_path: Path) -> None:
    server = ServeProcess("--device", "tpu", log=tmp_path / "log")
    assert server.process.wait(timeout=60) == 2
    assert "--device should be" in server.log
    assert "Traceback" not in server.log
