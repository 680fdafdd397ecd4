"""One live gateway for the tests that leave it as it was."""

from collections.abc import Generator
from pathlib import Path

import pytest
from ivy_live import ivy_process, tulip_thread
from ivy_support import engine_info, write_checkpoint

from rosebed.core.engine import EngineInfo
from rosebed.testing import FakeEngine


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("models") / "tiny bert")


@pytest.fixture(scope="session")
def info(checkpoint: Path) -> EngineInfo:
    return engine_info(checkpoint)


@pytest.fixture(scope="session")
def live_url(info: EngineInfo) -> Generator[str]:
    """A gateway with a few low limits, over real sockets."""
    with (
        tulip_thread(FakeEngine(info)) as port,
        ivy_process(
            tulips=[f"127.0.0.1:{port}"],
            served_model_names=["tiny", "org/tiny-bert"],
            max_inputs=50,
            max_body_bytes=2_000_000,
        ) as (url, _),
    ):
        yield url
