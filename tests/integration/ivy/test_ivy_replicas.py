"""Inference servers behind one gateway: balance, splitting, loss, return, refusal of strangers."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from ivy_support import (
    CLS,
    HELLO,
    SEP,
    VOCABULARY,
    engine_info,
    expected_vector,
    ivy_config,
    running_app,
    running_tulip,
    serving,
    until_ready,
    vectors_of,
    write_checkpoint,
)

from rosebed.core.engine import EngineInfo
from rosebed.ivy.config import IvyConfig
from rosebed.testing import FakeEngine, Faults, StepTime
from rosebed.tulip.server import TulipServer

LAST_ID = len(VOCABULARY) - 1
"""Token id that faults of these tests are bound to."""


@asynccontextmanager
async def two_replicas(
    first: FakeEngine, second: FakeEngine
) -> AsyncGenerator[tuple[httpx.AsyncClient, TulipServer, TulipServer]]:
    """A gateway that is connected to both, and their servers."""
    async with running_tulip(first) as one, running_tulip(second) as two, running_app(config_for(one, two)) as client:
        await until(lambda: num_ready(client), 2)
        yield client, one, two


def config_for(*servers: TulipServer, **settings: Any) -> IvyConfig:
    return ivy_config(tulips=tuple(f"127.0.0.1:{server.port}" for server in servers), **settings)


async def num_ready(client: httpx.AsyncClient) -> int:
    answer = await client.get("/ready")
    return answer.json()["replicas"] if answer.status_code == 200 else 0


async def until(value: Callable[[], Awaitable[Any]], wanted: Any) -> None:
    """Return once `value` comes to what is wanted; TimeoutError after ten seconds."""
    async with asyncio.timeout(10):
        while await value() != wanted:  # noqa: ASYNC110 - over HTTP there is no event
            await asyncio.sleep(0.01)


async def until_busy(engine: FakeEngine) -> None:
    """Return once the engine works on something."""
    async with asyncio.timeout(10):
        while not engine.unfinished:  # noqa: ASYNC110 - the engine has no event for it
            await asyncio.sleep(0.005)


async def embed(client: httpx.AsyncClient, text: Any) -> httpx.Response:
    return await client.post("/v1/embeddings", json={"input": text})


def num_computed(engine: FakeEngine) -> int:
    """Sequences stepped so far."""
    return sum(batch.num_sequences for batch in engine.batches)


async def metric(client: httpx.AsyncClient, name: str) -> float:
    lines = (await client.get("/metrics")).text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"rosebed_ivy_{name}"))


async def test_requests_go_where_least_is_outstanding(info: EngineInfo) -> None:
    first, second = (FakeEngine(info, step_time=StepTime(base_s=0.1)) for _ in range(2))
    async with two_replicas(first, second) as (client, _, _):
        before = num_computed(first), num_computed(second)
        answers = await asyncio.gather(*(embed(client, "hello") for _ in range(20)))
        assert [answer.status_code for answer in answers] == [200] * 20
        assert (num_computed(first) - before[0], num_computed(second) - before[1]) == (10, 10)
        assert await metric(client, "replica_outstanding_tokens") == 0
        assert await metric(client, "replica_connections") == 2


async def test_large_request_is_split_and_joined_in_order(info: EngineInfo) -> None:
    first, second = FakeEngine(info), FakeEngine(info)
    async with two_replicas(first, second) as (client, _, _):
        before = num_computed(first), num_computed(second)
        ids = [[4 + i % 50, 4 + i % 7] for i in range(2000)]
        answer = await embed(client, ids)
        np.testing.assert_array_equal(vectors_of(answer), [expected_vector(info, i) for i in ids])
        assert (num_computed(first) - before[0], num_computed(second) - before[1]) == (1000, 1000)


async def test_first_failure_of_a_split_request_is_named_over_all_of_it(info: EngineInfo) -> None:
    first, second = (FakeEngine(info, faults=Faults(non_finite={LAST_ID})) for _ in range(2))
    async with two_replicas(first, second) as (client, _, _):
        ids = [[HELLO, HELLO] for _ in range(2000)]
        ids[1500] = ids[1700] = [LAST_ID]
        answer = await embed(client, ids)
        assert answer.status_code == 500
        assert answer.json()["error"]["param"] == "input[1500]"


async def test_request_larger_than_the_queue_flows_through_it(info: EngineInfo) -> None:
    small = running_tulip(FakeEngine(info), max_request_sequences=10, max_queued_sequences=40)
    async with small as tulip, running_app(config_for(tulip)) as client:
        assert len(vectors_of(await embed(client, ["hello"] * 500))) == 500


async def test_request_in_flight_on_a_dead_replica_is_sent_again(info: EngineInfo) -> None:
    first, second = FakeEngine(info, faults=Faults(hang={LAST_ID})), FakeEngine(info)
    async with two_replicas(first, second) as (client, one, _):
        request = asyncio.create_task(embed(client, [LAST_ID]))
        await until_busy(first)
        await one.stop(0)
        np.testing.assert_array_equal(vectors_of(await request), [expected_vector(info, [LAST_ID])])
        assert await metric(client, "upstream_retries_total") == 1
        assert len(vectors_of(await embed(client, ["hello"] * 3))) == 3
        await until(lambda: num_ready(client), 1)


async def test_of_a_split_request_only_the_dead_replicas_share_is_sent_again(info: EngineInfo) -> None:
    dying, healthy = FakeEngine(info), FakeEngine(info)
    async with two_replicas(dying, healthy) as (client, one, _):
        computed = num_computed(healthy)
        dying.by_hand = True
        ids = [[4 + i % 50, 4 + i % 7] for i in range(1000)]
        request = asyncio.create_task(embed(client, ids))
        await until_busy(dying)
        async with asyncio.timeout(10):
            while num_computed(healthy) < computed + 500:  # noqa: ASYNC110 - the engine has no event for it
                await asyncio.sleep(0.01)
        await one.stop(0)
        np.testing.assert_array_equal(vectors_of(await request), [expected_vector(info, i) for i in ids])
        assert num_computed(healthy) == computed + 1000
        assert await metric(client, "upstream_retries_total") == 1


async def test_request_is_not_sent_a_third_time(info: EngineInfo) -> None:
    first, second = (FakeEngine(info, faults=Faults(hang={LAST_ID})) for _ in range(2))
    async with two_replicas(first, second) as (client, one, two):
        request = asyncio.create_task(embed(client, [LAST_ID]))
        await until_busy(first)
        await one.stop(0)
        await until_busy(second)
        await two.stop(0)
        answer = await request
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"
        assert answer.json()["error"]["code"] == "unavailable"


async def test_gateway_outlives_its_only_replica(info: EngineInfo) -> None:
    async with running_tulip(FakeEngine(info)) as tulip:
        port = tulip.port
        async with running_app(config_for(tulip)) as client:
            await tulip.stop(0)
            await until(lambda: num_ready(client), 0)
            refused = await embed(client, "hello")
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
            assert refused.json()["error"]["type"] == "server_error"
            assert (await client.get("/health")).status_code == 200
            async with running_tulip(FakeEngine(info), port=port):
                await until_ready(client)
                vectors = vectors_of(await embed(client, "hello"))
                np.testing.assert_array_equal(vectors, [expected_vector(info, [CLS, HELLO, SEP])])


async def test_not_ready_before_a_replica_is(
    info: EngineInfo, checkpoint: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("rosebed.ivy.upstream.balancer.FIRST_CONNECTION_S", 0.3)
    caplog.set_level("INFO")
    async with running_tulip(FakeEngine(info)) as tulip:
        config = config_for(tulip, model=str(checkpoint))
        await tulip.stop(0)
    async with running_app(config, wait_ready=False) as client:
        assert (await client.get("/health")).json() == {"status": "ok"}
        not_ready = await client.get("/ready")
        assert (not_ready.status_code, not_ready.headers["retry-after"]) == (503, "1")
        assert (await embed(client, "hello")).status_code == 503
        assert (await client.get("/v1/models")).json()["data"][0]["id"] == "tiny bert"
    said = [record.getMessage() for record in caplog.records if record.name == "rosebed.ivy.upstream.replica"]
    assert said == [f"waiting for {config.models[0].tulips[0]}"]


@pytest.mark.parametrize("knows_model", [True, False])
async def test_requests_wait_for_the_first_connection(info: EngineInfo, checkpoint: Path, knows_model: bool) -> None:
    async with running_tulip(FakeEngine(info)) as tulip:
        config = config_for(tulip, model=str(checkpoint) if knows_model else None)
        await tulip.stop(0)
    async with running_app(config, wait_ready=False) as client:
        early = asyncio.create_task(embed(client, "hello"))
        await asyncio.sleep(0.2)
        assert (await client.get("/ready")).status_code == 503
        assert not early.done()
        async with running_tulip(FakeEngine(info), port=tulip.port):
            vectors = vectors_of(await early)
            np.testing.assert_array_equal(vectors, [expected_vector(info, [CLS, HELLO, SEP])])


async def test_gateway_without_a_model_of_its_own_asks_for_it(info: EngineInfo) -> None:
    async with serving(FakeEngine(info)) as client:
        assert (await client.get("/v1/models")).json()["data"][0]["id"] == "tiny bert"


async def test_before_any_replica_answered_no_model_is_known() -> None:
    async with running_app(ivy_config(tulips=("127.0.0.1:1",)), wait_ready=False) as client:
        assert (await client.get("/v1/models")).json() == {"object": "list", "data": []}
        assert (await client.post("/tokenize", json={"inputs": "a"})).status_code == 503


async def test_replica_of_another_model_is_refused(
    info: EngineInfo, checkpoint: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = write_checkpoint(tmp_path / "other", pad_token_id=0)
    stranger = FakeEngine(engine_info(other))
    async with running_tulip(stranger) as one, running_tulip(FakeEngine(info)) as two:
        computed = num_computed(stranger)
        async with running_app(config_for(one, two, model=str(checkpoint))) as client:
            for _ in range(10):
                assert (await embed(client, "hello")).status_code == 200
            assert await num_ready(client) == 1
        assert num_computed(stranger) == computed
        errors = [record for record in caplog.records if record.levelname == "ERROR"]
        (refusal,) = [record for record in errors if record.name.startswith("rosebed.")]  # not what grpc says of itself
        assert f"127.0.0.1:{one.port} is not in use: it holds {other}" in refusal.getMessage()


async def test_full_queue_is_a_429_with_retry_after(info: EngineInfo) -> None:
    engine = FakeEngine(info, step_time=StepTime(base_s=0.3))
    async with running_tulip(engine, max_queued_sequences=1) as tulip, running_app(config_for(tulip)) as client:
        answers = await asyncio.gather(*(embed(client, "hello") for _ in range(4)))
        refused = [answer for answer in answers if answer.status_code != 200]
        assert [answer.status_code for answer in refused] == [429] * 3
        assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
        error = refused[0].json()["error"]
        assert (error["type"], error["code"]) == ("rate_limit_error", "overloaded")
        assert (await embed(client, "hello")).status_code == 200


async def test_engine_error_is_a_500_without_a_retry(info: EngineInfo) -> None:
    engine = FakeEngine(replace(info, max_in_flight=1), faults=Faults(raise_in_step={LAST_ID}))
    async with serving(engine) as client:
        answer = await embed(client, [LAST_ID])
        assert (answer.status_code, answer.json()["error"]["code"]) == (500, "step_failed")
        assert await metric(client, "upstream_retries_total") == 0
        assert (await embed(client, "hello")).status_code == 200
