"""Servers that a comparison measures: started together, waited for, stopped with everything they started."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

STOP_S = 30.0
POLL_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One server to start. `{port}` in its command stands for the port that it gets."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Running:
    """A started server."""

    name: str
    url: str
    process: "subprocess.Popen[bytes]"

    def is_ready(self) -> bool:
        """Whether it lists its model. RuntimeError if it has ended."""
        if self.process.poll() is not None:
            raise RuntimeError(f"{self.name} ended with exit code {self.process.returncode}: see its log")
        try:
            with urllib.request.urlopen(f"{self.url}/v1/models", timeout=5) as answer:  # noqa: S310 - our own URL
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False


@contextmanager
def running(servers: Sequence[Server], *, logs: Path, start_s: float) -> Generator[list[Running]]:
    """Start all at once, each with its output in a file of `logs`, and wait up to `start_s` until all answer."""
    signal.signal(signal.SIGTERM, _leave)
    with ExitStack() as stack:
        started = [stack.enter_context(_started(server, logs)) for server in servers]
        deadline_s = time.monotonic() + start_s
        for server in started:
            while not server.is_ready():
                if time.monotonic() > deadline_s:
                    raise TimeoutError(f"{server.name} is not ready after {start_s:g} s: see its log")
                time.sleep(POLL_S)
        yield started


def _leave(number: int, _frame: FrameType | None) -> None:
    """End in good order, so that no server outlives a run that is told to stop."""
    sys.exit(128 + number)


@contextmanager
def _started(server: Server, logs: Path) -> Generator[Running]:
    port = _free_port()
    command = [argument.replace("{port}", str(port)) for argument in server.command]
    with (logs / f"{server.name}.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            env={**os.environ, **server.environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield Running(server.name, f"http://127.0.0.1:{port}", process)
    finally:
        _stop(process)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """Ask, then insist; its whole process group, since some leave workers behind."""
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
