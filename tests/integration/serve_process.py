"""A `rosebed serve` on the real MiniLM, as a user would run it: a process, its output, its descendants."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from minilm import MINILM

START_S = 60.0


class ServeProcess:
    """The supervisor's process, ready to answer."""

    def __init__(self, *options: str, log: Path, models: tuple[str, ...] = (MINILM,)) -> None:
        self._log = log
        command = [sys.executable, "-m", "rosebed", "serve", *models, "--port", "0", "--num-threads", "1", *options]
        with log.open("wb") as stderr:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)

    def wait_ready(self) -> str:
        """The address it announces. AssertionError with its log if it ends instead."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"at (http://\S+) after", line)
        assert found, f"{line!r}\n{self.log}"
        return found[1]

    @property
    def log(self) -> str:
        """What it wrote to stderr so far."""
        return self._log.read_text()

    def child(self, name: str) -> int:
        """Process id of the child that runs `rosebed NAME`."""
        (found,) = self.children(name)
        return found

    def children(self, name: str) -> list[int]:
        """Process ids of all children that run `rosebed NAME`."""
        return [pid for pid in children(self.process.pid) if name in command_line(pid)]

    def descendants(self) -> list[int]:
        """Process ids of everything it started."""
        found = children(self.process.pid)
        for pid in found:
            found += children(pid)
        return found

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send the signal and wait; the exit code."""
        self.process.send_signal(number)
        return self.process.wait(timeout=30)


@contextmanager
def serving(*options: str, log: Path, models: tuple[str, ...] = (MINILM,)) -> Generator[tuple[ServeProcess, str]]:
    """A server and its address. Whatever is left of it is killed at the end."""
    server = ServeProcess(*options, log=log, models=models)
    descendants: list[int] = []
    try:
        url = server.wait_ready()
        descendants = server.descendants()
        yield server, url
    finally:
        if server.process.poll() is None:
            server.stop()
        for pid in filter(is_alive, descendants):
            os.kill(pid, signal.SIGKILL)


def children(pid: int) -> list[int]:
    """Process ids of the direct children, of all threads."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += [int(child) for child in task.read_text().split()]
    return found


def command_line(pid: int) -> list[str]:
    """Its arguments; empty for a process that is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []


def is_alive(pid: int) -> bool:
    """Whether it runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def eventually(condition: Callable[[], Any], *, within_s: float = START_S) -> Any:
    """The first truthy value of `condition`; AssertionError if there is none in time."""
    deadline_s = time.monotonic() + within_s
    while time.monotonic() < deadline_s:
        if value := condition():
            return value
        time.sleep(0.05)
    raise AssertionError(f"not within {within_s} s: {condition}")
