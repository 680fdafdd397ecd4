"""`Supervisor` with small shell children in place of servers."""

import asyncio
import os
import signal
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from serve_process import is_alive

from rosebed.cli.supervisor import ChildCommand, RestartBudget, Supervisor

FOREVER = "sleep 60 & wait"
STUBBORN = "trap '' TERM; sleep 60 & wait; sleep 60 & wait"


def child(name: str, script: str, **settings: Any) -> ChildCommand:
    return ChildCommand(name=name, arguments=["sh", "-c", script], environment=dict(os.environ), **settings)


async def at_once() -> None:
    """Ready from the start."""


async def never() -> None:
    await asyncio.Event().wait()


async def test_a_child_that_cannot_start_ends_the_others_with_its_exit_code(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    steady = child("steady", f"echo $$ > {pid_file}; {FOREVER}")
    broken = child("broken", f"until [ -s {pid_file} ]; do sleep 0.01; done; exit 3")
    assert await Supervisor([steady, broken], become_ready=never, grace_s=5).run() == 3
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)


async def test_a_child_that_keeps_dying_ends_it(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    dying = child("dying", f"echo >> {starts}; sleep 0.1; kill -9 $$")
    assert await Supervisor([dying, child("steady", FOREVER)], become_ready=at_once, grace_s=5).run() == 1
    assert len(starts.read_text().splitlines()) == 4  # the first, and three more


async def test_one_of_a_group_that_keeps_dying_is_tried_again_as_long_as_another_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rosebed.cli.supervisor.RestartBudget", partial(RestartBudget, limit=1, window_s=0.5))
    starts, pid_file = tmp_path / "starts", tmp_path / "pid"
    dying = child("dying", f"echo >> {starts}; sleep 0.1; exit 3", group="a")
    steady = child("steady", f"echo $$ > {pid_file}; {FOREVER}", group="a")
    stranger = child("stranger", FOREVER, group="b")
    running = asyncio.create_task(Supervisor([dying, steady, stranger], become_ready=at_once, grace_s=5).run())
    async with asyncio.timeout(20):
        while not starts.exists() or len(starts.read_text().splitlines()) < 4:  # noqa: ASYNC110 - a file has no event
            await asyncio.sleep(0.05)
        assert not running.done()
        while not running.done():  # the other dies whenever it is started, too: then nobody is left to serve
            with suppress(ProcessLookupError, ValueError):
                os.kill(int(pid_file.read_text()), signal.SIGKILL)
            await asyncio.sleep(0.05)
        assert await running in (1, 3)  # by signal, or as the other ends


async def test_children_of_groups_stop_together(tmp_path: Path) -> None:
    order = tmp_path / "order"
    slow = [
        child(name, f"trap 'sleep 1; echo {name} >> {order}; exit' TERM; {FOREVER}", group=name) for name in ("a", "b")
    ]
    gateway = child("gateway", f"trap 'echo gateway >> {order}; exit' TERM; {FOREVER}")
    stopped_s = 0.0

    async def signal_myself() -> None:
        nonlocal stopped_s
        await asyncio.sleep(0.3)  # for the traps to be set
        stopped_s = time.monotonic()
        os.kill(os.getpid(), signal.SIGTERM)

    assert await Supervisor([*slow, gateway], become_ready=signal_myself, grace_s=5).run() == 0
    assert time.monotonic() - stopped_s < 1.9
    first, *others = order.read_text().split()
    assert (first, sorted(others)) == ("gateway", ["a", "b"])


async def test_a_child_keeps_to_its_cores(tmp_path: Path) -> None:
    core = max(os.sched_getaffinity(0))
    script = f"grep Cpus_allowed_list /proc/self/status > {tmp_path / 'cores'}; exit 3"
    assert await Supervisor([child("a", script, cores=frozenset({core}))], become_ready=never, grace_s=5).run() == 3
    assert (tmp_path / "cores").read_text().split() == ["Cpus_allowed_list:", str(core)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_stops_it_in_reverse_order(tmp_path: Path, number: signal.Signals) -> None:
    order = tmp_path / "order"
    children = [child(name, f"trap 'echo {name} >> {order}; exit' TERM; {FOREVER}") for name in ("first", "second")]

    async def signal_myself() -> None:
        await asyncio.sleep(0.3)  # for the traps to be set
        os.kill(os.getpid(), number)

    assert await Supervisor(children, become_ready=signal_myself, grace_s=5).run() == 0
    assert order.read_text().split() == ["second", "first"]


async def test_a_child_that_does_not_stop_is_killed_with_what_it_started() -> None:
    async def signal_myself() -> None:
        await asyncio.sleep(0.3)
        os.kill(os.getpid(), signal.SIGTERM)

    started_s = time.monotonic()
    assert await Supervisor([child("stubborn", STUBBORN)], become_ready=signal_myself, grace_s=0.3).run() == 0
    assert time.monotonic() - started_s < 10


async def test_a_second_signal_ends_it_at_once_with_all_it_started(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    stubborn = child("stubborn", f"trap '' TERM; sleep 61 & echo $! > {pid_file}; wait; wait; sleep 61")

    async def signal_twice() -> None:
        await asyncio.sleep(0.3)
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(0.3)
        os.kill(os.getpid(), signal.SIGINT)

    started_s = time.monotonic()
    signals = asyncio.create_task(signal_twice())
    assert await Supervisor([stubborn], become_ready=at_once, grace_s=30).run() == 0
    assert time.monotonic() - started_s < 5
    await signals
    assert not is_alive(int(pid_file.read_text()))
