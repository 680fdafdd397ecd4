"""Inference servers given by name: all addresses are used, they come and go, and what is in flight is answered."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import pytest
from ivy_support import HELLO, expected_vector, ivy_config, running_app, running_tulip, vectors_of

from rosebed.core.engine import EngineInfo
from rosebed.core.version import __version__
from rosebed.ivy.upstream.address import addresses_of, is_final
from rosebed.proto.info import info_message
from rosebed.proto.rosebed_pb2 import InfoResponse
from rosebed.testing import FakeEngine, StepTime
from rosebed.tulip.server import TulipServer

NAME = "tulips.example:50051"


class Zone:
    """What the name stands for at the moment."""

    def __init__(self) -> None:
        self.addresses: set[str] = set()
        self.times_asked = 0

    def holds(self, *servers: TulipServer) -> None:
        self.addresses = {f"127.0.0.1:{server.port}" for server in servers}

    async def look_up(self, target: str) -> set[str]:
        assert target == NAME
        self.times_asked += 1
        if not self.addresses:
            raise socket.gaierror(socket.EAI_NONAME, "unknown name")
        return set(self.addresses)

    async def asked_for(self, times: int) -> None:
        """Return once the name has been looked up so many times more."""
        wanted = self.times_asked + times
        async with asyncio.timeout(5):
            while self.times_asked < wanted:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Zone:
    zone = Zone()
    monkeypatch.setattr("rosebed.ivy.upstream.address.addresses_of", zone.look_up)
    monkeypatch.setattr("rosebed.ivy.upstream.address.SHORTEST_S", 0.05)
    return zone


async def num_ready(client: httpx.AsyncClient) -> int:
    answer = await client.get("/ready")
    return answer.json()["replicas"] if answer.status_code == 200 else 0


async def until(value: Callable[[], Awaitable[Any]], wanted: Any) -> None:
    async with asyncio.timeout(10):
        while await value() != wanted:  # noqa: ASYNC110 - over HTTP there is no event
            await asyncio.sleep(0.01)


async def embed(client: httpx.AsyncClient, given: Any) -> httpx.Response:
    return await client.post("/v1/embeddings", json={"input": given})


def num_computed(engine: FakeEngine) -> int:
    return sum(batch.num_sequences for batch in engine.batches)


async def test_all_addresses_of_a_name_are_used_and_new_ones_join(zone: Zone, info: EngineInfo) -> None:
    engines = [FakeEngine(info, step_time=StepTime(base_s=0.3)) for _ in range(3)]
    async with running_tulip(engines[0]) as one, running_tulip(engines[1]) as two, running_tulip(engines[2]) as three:
        zone.holds(one, two)
        async with running_app(ivy_config(tulips=(NAME,), resolve_every_s=0.1)) as client:
            await until(lambda: num_ready(client), 2)
            zone.holds(one, two, three)
            await until(lambda: num_ready(client), 3)
            before = [num_computed(engine) for engine in engines]
            answers = await asyncio.gather(*(embed(client, "hello") for _ in range(30)))
            assert {answer.status_code for answer in answers} == {200}
            assert [num_computed(engine) for engine in engines] == [number + 10 for number in before]
            lines = (await client.get("/metrics")).text.splitlines()
            assert f'rosebed_ivy_replica_connections{{model="tiny bert",replica="{NAME}"}} 3.0' in lines


async def test_one_that_leaves_answers_what_it_was_asked(zone: Zone, info: EngineInfo) -> None:
    leaving, staying = FakeEngine(info), FakeEngine(info)
    async with running_tulip(leaving) as one, running_tulip(staying) as two:
        zone.holds(one)
        async with running_app(ivy_config(tulips=(NAME,), resolve_every_s=0.1)) as client:
            leaving.by_hand = True
            in_flight = asyncio.create_task(embed(client, [HELLO, HELLO]))
            async with asyncio.timeout(5):
                while not leaving.unfinished:  # noqa: ASYNC110 - the engine has no event for it
                    await asyncio.sleep(0.01)
            zone.holds(one, two)
            await until(lambda: num_ready(client), 2)
            zone.holds(two)
            await until(lambda: num_ready(client), 1)
            before = num_computed(leaving)
            for _ in range(5):
                assert (await embed(client, "hello")).status_code == 200
            assert num_computed(leaving) == before
            assert not in_flight.done()
            leaving.finish_next()
            np.testing.assert_array_equal(vectors_of(await in_flight), [expected_vector(info, [HELLO, HELLO])])
            metrics = (await client.get("/metrics")).text
            assert 'rosebed_ivy_upstream_retries_total{model="tiny bert"} 0.0' in metrics
            assert f'replica_outstanding_tokens{{model="tiny bert",replica="{NAME}"}} 0.0' in metrics


async def test_a_lost_connection_has_the_name_looked_up_at_once(zone: Zone, info: EngineInfo) -> None:
    async with running_tulip(FakeEngine(info)) as one, running_tulip(FakeEngine(info)) as two:
        zone.holds(one)
        async with running_app(ivy_config(tulips=(NAME,), resolve_every_s=3600)) as client:
            zone.holds(two)
            await one.stop(0)

            async def status() -> int:
                return (await embed(client, "hello")).status_code

            await until(status, 200)


async def test_a_name_that_nobody_knows_is_asked_for_until_somebody_does(
    zone: Zone, info: EngineInfo, caplog: pytest.LogCaptureFixture
) -> None:
    config = ivy_config(tulips=(NAME,), resolve_every_s=0.1)
    async with running_tulip(FakeEngine(info)) as one, running_app(config, wait_ready=False) as client:
        await zone.asked_for(3)
        assert caplog.text.count(f"{NAME} cannot be looked up: ") == 1
        zone.holds(one)
        await until(lambda: num_ready(client), 1)
        zone.addresses = set()  # the name server is down: what was known still serves
        await zone.asked_for(2)
        assert (await embed(client, "hello")).status_code == 200


async def test_a_replica_of_another_version_is_left_out_while_others_serve(
    info: EngineInfo, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def told(engine: EngineInfo, *, version: str, **more: Any) -> InfoResponse:
        return info_message(engine, version="0.9.3" if engine.device == "new" else version, **more)

    monkeypatch.setattr("rosebed.tulip.servicer.info_message", told)
    stranger = FakeEngine(replace(info, device="new"))
    async with running_tulip(stranger) as one, running_tulip(FakeEngine(info)) as two:
        before = num_computed(stranger)
        targets = tuple(f"127.0.0.1:{server.port}" for server in (one, two))
        async with running_app(ivy_config(tulips=targets)) as client:
            for _ in range(5):
                assert (await embed(client, "hello")).status_code == 200
            assert await num_ready(client) == 1
        assert num_computed(stranger) == before
    errors = [record for record in caplog.records if record.levelname == "ERROR"]
    (refusal,) = [record.getMessage() for record in errors if record.name.startswith("rosebed.")]
    assert refusal == (
        f"{targets[0]} is not in use: it runs Rosebed 0.9.3, the gateway {__version__}: "
        "both need the same major and minor version"
    )


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (["10.0.0.2", "10.0.0.1", "10.0.0.2"], {"10.0.0.1:7", "10.0.0.2:7"}),
        (["10.0.0.1", "fd00::1"], {"10.0.0.1:7"}),  # one server, reached in two ways
        (["fd00::1", "fd00::2"], {"[fd00::1]:7", "[fd00::2]:7"}),
    ],
)
async def test_addresses_of_a_name(found: list[str], expected: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    async def getaddrinfo(host: str, port: int, **_: Any) -> list[Any]:
        assert (host, port) == ("tulips", 7)
        return [
            (socket.AF_INET6, 1, 6, "", (address, port, 0, 0))
            if ":" in address
            else (socket.AF_INET, 1, 6, "", (address, port))
            for address in found
        ]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    assert await addresses_of("tulips:7") == expected


async def test_a_name_of_this_machine() -> None:
    assert await addresses_of("localhost:50051") == {"127.0.0.1:50051"}


@pytest.mark.parametrize("target", ["unix:/a b.sock", "10.0.0.1:1", "[::1]:1", "[fe80::1%eth0]:1"])
def test_what_need_not_be_looked_up(target: str) -> None:
    assert is_final(target)
    assert not is_final(NAME)
