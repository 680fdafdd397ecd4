"""`rosebed serve` with two models, one of which has two inference servers, as processes on the real MiniLM."""

import os
import signal
from pathlib import Path

import httpx
import numpy as np
import pytest
from minilm import COSINE, MINILM, RELATED
from serve_process import eventually, serving

from rosebed import Client
from rosebed.core.errors import InvalidInput, ModelNotFound


def test_models_and_replicas_live_and_die_each_by_itself(tmp_path: Path) -> None:
    config = tmp_path / "serve.toml"
    config.write_text(
        f"""
        [[models]]
        model = "twice={MINILM}"
        replicas = 2
        [[models]]
        model = "small={MINILM}"
        matryoshka = "any"
        dimensions = 32
        """
    )
    with serving("--config", str(config), log=tmp_path / "log", models=()) as (server, url), Client(url) as client:
        assert client.models() == ["twice", "small"]
        a, b = client.embed(RELATED, model="twice")
        assert float(a @ b) == pytest.approx(COSINE, abs=5e-5)
        (small,) = client.embed(RELATED[:1], model="small")
        np.testing.assert_allclose(small, a[:32] / np.linalg.norm(a[:32]), atol=1e-6)
        with pytest.raises(InvalidInput, match="twice, small are"):
            client.embed(["a"])
        with pytest.raises(ModelNotFound, match="'model'"):
            client.embed(["a"], model="model")

        eventually(lambda: _ready(url) == {"twice": 2, "small": 1})
        before = server.children("tulip")
        assert len(before) == 3
        os.kill(before[0], signal.SIGKILL)  # one of the two
        for _ in range(20):
            assert client.embed(["a"], model="twice").shape == (1, 384)
        eventually(lambda: len(set(server.children("tulip")) - set(before)) == 1)
        eventually(lambda: _ready(url) == {"twice": 2, "small": 1})
        assert set(before[1:]) < set(server.children("tulip"))
        assert "tulip 1 of 2 for twice ended with SIGKILL: starting it again" in server.log

        descendants = server.descendants()
        assert server.stop() == 0
        assert not [pid for pid in descendants if Path(f"/proc/{pid}").exists()]
        assert "Traceback" not in server.log


def _ready(url: str) -> dict[str, int] | None:
    answer = httpx.get(f"{url}/ready")
    return answer.json()["models"] if answer.status_code == 200 else None
