"""Several models behind one gateway: which one a request gets, what each takes, what is counted of each."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from ivy_support import (
    CLS,
    HELLO,
    SEP,
    WORLD,
    engine_info,
    expected_vector,
    running_app,
    running_tulip,
    vectors_of,
    write_checkpoint,
)

from rosebed.core.engine import EngineInfo
from rosebed.core.model_spec import ModelOverrides
from rosebed.ivy.config import IvyConfig, ModelConfig
from rosebed.testing import FakeEngine
from rosebed.tulip.server import TulipServer


@dataclass(frozen=True, slots=True)
class Pair:
    """A gateway of two models and what is behind it."""

    client: httpx.AsyncClient
    first: FakeEngine
    second: FakeEngine
    second_server: TulipServer


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another checkpoint, with another fingerprint."""
    return write_checkpoint(tmp_path_factory.mktemp("models") / "other", pad_token_id=0)


@asynccontextmanager
async def two_models(info: EngineInfo, other: Path, **of_second: Any) -> AsyncGenerator[Pair]:
    """A gateway of `tiny` (also called `t`) and `other`; `of_second` are fields of the latter's `ModelConfig`."""
    first, second = FakeEngine(info), FakeEngine(replace(engine_info(other), device="second"))
    async with running_tulip(first) as one, running_tulip(second) as two:
        models = (
            ModelConfig(tulips=(f"127.0.0.1:{one.port}",), served_model_names=("tiny", "t")),
            ModelConfig(tulips=(f"127.0.0.1:{two.port}",), **of_second),
        )
        async with running_app(IvyConfig(models=models)) as client:
            yield Pair(client, first, second, two)


async def embed(client: httpx.AsyncClient, text: Any, **fields: Any) -> httpx.Response:
    return await client.post("/v1/embeddings", json={"input": text, **fields})


def num_computed(engine: FakeEngine) -> int:
    return sum(batch.num_sequences for batch in engine.batches)


async def test_the_requests_model_decides_who_computes(info: EngineInfo, other: Path) -> None:
    async with two_models(info, other) as pair:
        before = num_computed(pair.first), num_computed(pair.second)
        for name, number in (("tiny", 2), ("t", 3), ("other", 5)):
            answer = await embed(pair.client, ["hello"] * number, model=name)
            assert answer.json()["model"] == name
            np.testing.assert_array_equal(vectors_of(answer), [expected_vector(info, [CLS, HELLO, SEP])] * number)
        assert (num_computed(pair.first) - before[0], num_computed(pair.second) - before[1]) == (5, 5)


async def test_without_a_name_or_with_an_unknown_one_the_served_are_named(info: EngineInfo, other: Path) -> None:
    async with two_models(info, other) as pair:
        for body in ({}, {"model": None}):
            refused = await embed(pair.client, "hello", **body)
            assert (refused.status_code, refused.json()["error"]["param"]) == (400, "model")
            assert "several are served here; tiny, t, other are" in refused.json()["error"]["message"]
        unknown = await embed(pair.client, "hello", model="bert")
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")
        assert "the model 'bert' is not served here; tiny, t, other are" in unknown.json()["error"]["message"]
        assert (await pair.client.post("/tokenize", json={"inputs": "a"})).status_code == 422
        assert (await pair.client.get("/v1/models/bert")).status_code == 404


async def test_all_are_listed_by_all_their_names(info: EngineInfo, other: Path) -> None:
    async with two_models(info, other, overrides=ModelOverrides(max_length=9)) as pair:
        listed = (await pair.client.get("/v1/models")).json()["data"]
        assert [(model["id"], model["max_model_len"]) for model in listed] == [("tiny", 16), ("t", 16), ("other", 9)]
        assert (await pair.client.get("/v1/models/other")).json()["max_model_len"] == 9


async def test_each_has_its_own_limits_and_defaults(info: EngineInfo, other: Path) -> None:
    overrides = ModelOverrides(max_length=4, matryoshka="any")
    settings: dict[str, Any] = {"overrides": overrides, "auto_truncate": True, "dimensions": 3}
    async with two_models(info, other, **settings, default_prompt_name="passage") as pair:
        long = "hello " * 9
        assert (await embed(pair.client, long, model="tiny")).status_code == 200
        assert (await embed(pair.client, long * 2, model="tiny")).json()["error"]["code"] == "context_length_exceeded"
        cut = await embed(pair.client, long, model="other")
        assert cut.json()["data"][0]["truncated_from"] == 12
        expected = expected_vector(info, [CLS, WORLD, HELLO, SEP], dimensions=3)
        np.testing.assert_array_equal(vectors_of(cut), [expected])
        whole = await embed(pair.client, "hello", model="other", dimensions=8, prompt="")
        np.testing.assert_array_equal(vectors_of(whole), [expected_vector(info, [CLS, HELLO, SEP])])


async def test_an_operators_own_prompt_is_the_default(info: EngineInfo, other: Path) -> None:
    async with two_models(info, other, default_prompt="world ") as pair:
        answer = await embed(pair.client, "hello", model="other")
        np.testing.assert_array_equal(vectors_of(answer), [expected_vector(info, [CLS, WORLD, HELLO, SEP])])


async def test_it_is_ready_once_each_model_is(info: EngineInfo, other: Path) -> None:
    async with two_models(info, other) as pair:
        ready = (await pair.client.get("/ready")).json()
        assert ready == {"status": "ready", "replicas": 2, "models": {"tiny": 1, "other": 1}}
        await pair.second_server.stop(0)
        async with asyncio.timeout(5):
            while (answer := await pair.client.get("/ready")).status_code == 200:  # noqa: ASYNC110 - no event over HTTP
                await asyncio.sleep(0.01)
        assert answer.json()["error"]["message"] == "no inference server is ready for other"
        assert (await embed(pair.client, "hello", model="other")).status_code == 503
        assert (await embed(pair.client, "hello", model="tiny")).status_code == 200


async def test_each_is_counted_by_itself(info: EngineInfo, other: Path) -> None:
    async with two_models(info, other) as pair:
        await embed(pair.client, ["hello", "world"], model="t")
        await embed(pair.client, "hello", model="other")
        lines = (await pair.client.get("/metrics")).text.splitlines()
        assert 'rosebed_ivy_inputs_total{model="tiny"} 2.0' in lines
        assert 'rosebed_ivy_tokens_total{model="other"} 3.0' in lines
        (connections,) = (line for line in lines if line.startswith('rosebed_ivy_replica_connections{model="other"'))
        assert connections.endswith(" 1.0")


async def test_a_name_still_to_be_learnt_is_waited_for(info: EngineInfo, other: Path) -> None:
    """A worker just started does not say 404 of a model whose server has not told its name yet."""
    async with running_tulip(FakeEngine(engine_info(other))) as server:
        models = (
            ModelConfig(tulips=("127.0.0.1:1",), served_model_names=("absent",)),
            ModelConfig(tulips=(f"127.0.0.1:{server.port}",)),
        )
        async with running_app(IvyConfig(models=models), wait_ready=False) as client:
            assert (await embed(client, "hello", model="other")).status_code == 200
            assert (await embed(client, "hello", model="bert")).status_code == 404
            assert (await client.get("/ready")).status_code == 503


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"dimensions": 4}, "--dimensions: dimensions is 4, but this model was not trained for fewer"),
        ({"default_prompt_name": "ask"}, "--default-prompt-name ask is unknown; other has: passage, query"),
    ],
)
async def test_a_default_that_the_model_does_not_have_keeps_its_servers_out(
    other: Path, settings: dict[str, Any], says: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_tulip(FakeEngine(engine_info(other))) as server:
        config = IvyConfig(models=(ModelConfig(tulips=(f"127.0.0.1:{server.port}",), **settings),))
        async with running_app(config, wait_ready=False) as client, asyncio.timeout(5):
            while says not in caplog.text:  # noqa: ASYNC110 - a log has no event
                await asyncio.sleep(0.01)
            assert (await client.get("/ready")).status_code == 503
