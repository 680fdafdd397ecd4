"""A server's life: warming up, ready, stalled, stopping; and what it says of itself meanwhile."""

import asyncio
import signal
import subprocess
import sys
import time
from typing import Any

import grpc.aio
import httpx
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest
from grpc_reflection.v1alpha.reflection_pb2_grpc import ServerReflectionStub
from tulip_live import eventually, failed_call, live

from rosebed import __version__
from rosebed.core.engine_statistics import SlotStatistics
from rosebed.core.errors import ConfigError, StepFailed
from rosebed.core.types import Lane
from rosebed.proto.codec import info_of, request_message
from rosebed.proto.rosebed_pb2 import InfoRequest
from rosebed.proto.rosebed_pb2_grpc import TulipStub
from rosebed.testing import FakeEngine, Faults, StepTime, fake_sequence
from rosebed.tulip.config import TulipConfig
from rosebed.tulip.server import TulipServer

SERVING, NOT_SERVING = HealthCheckResponse.SERVING, HealthCheckResponse.NOT_SERVING
SERVICE = "rosebed.v1.Tulip"


def _stub(stub_type: Any, channel: grpc.aio.Channel) -> Any:
    """A generated stub; the libraries' annotations know blocking channels only."""
    return stub_type(channel)


async def _health(channel: grpc.aio.Channel, service: str = "") -> Any:
    return (await _stub(HealthStub, channel).Check(HealthCheckRequest(service=service))).status


async def test_not_ready_until_a_real_inference_succeeded() -> None:
    engine = FakeEngine(by_hand=True)
    server = TulipServer(engine, TulipConfig(port=0), on_fatal=pytest.fail)
    starting = asyncio.ensure_future(server.start())
    await eventually(lambda: bool(engine.unfinished))
    assert engine.warmed_up
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        stub = _stub(TulipStub, channel)
        for call in (stub.Info(InfoRequest()), stub.Embed(request_message([fake_sequence([1])], request_id=1))):
            status, metadata, details = await failed_call(call)
            assert status is grpc.StatusCode.UNAVAILABLE
            assert (metadata["rosebed-code"], details) == ("unavailable", "the server is warming up")
        assert [await _health(channel, name) for name in ("", SERVICE)] == [NOT_SERVING] * 2
        engine.finish_next()
        await starting
        info = info_of(await stub.Info(InfoRequest()))
        assert info.engine == engine.info
        assert (info.version, info.max_request_sequences) == (__version__, 2048)
        assert [await _health(channel, name) for name in ("", SERVICE)] == [SERVING] * 2
    await server.stop(0)
    engine.close()


async def test_a_failing_warm_up_fails_the_start() -> None:
    engine = FakeEngine(faults=Faults(raise_in_result={0}))
    server = TulipServer(engine, TulipConfig(port=0), on_fatal=pytest.fail)
    with pytest.raises(StepFailed, match="raise_in_result"):
        await server.start()
    await asyncio.wait_for(server.wait_closed(), 5)
    engine.close()


async def test_a_taken_port_is_a_config_error() -> None:
    async with live(FakeEngine()) as tulip:
        engine = FakeEngine()
        other = TulipServer(engine, TulipConfig(port=tulip.server.port), on_fatal=pytest.fail)
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{tulip.server.port}"):
            await other.start()
        engine.close()


async def test_a_taken_metrics_port_is_a_config_error() -> None:
    async with live(FakeEngine(), metrics_port=0) as tulip:
        engine = FakeEngine()
        config = TulipConfig(port=0, metrics_port=tulip.server.metrics_port)
        with pytest.raises(ConfigError, match=r"metrics_port: cannot listen on 127\.0\.0\.1"):
            await TulipServer(engine, config, on_fatal=pytest.fail).start()
        engine.close()


async def test_health_of_an_unknown_service() -> None:
    async with live(FakeEngine()) as tulip:
        status, _, _ = await failed_call(_health(tulip.channel, "no.such.Service"))
        assert status is grpc.StatusCode.NOT_FOUND


async def test_every_watcher_sees_every_change() -> None:
    async with live(FakeEngine()) as tulip:
        stub = _stub(HealthStub, tulip.channel)
        watchers = [stub.Watch(HealthCheckRequest(service=SERVICE)) for _ in range(3)]
        assert [(await watcher.read()).status for watcher in watchers] == [SERVING] * 3
        watchers.pop().cancel()
        stopping = asyncio.ensure_future(tulip.server.stop(5))
        assert [(await watcher.read()).status for watcher in watchers] == [NOT_SERVING] * 2
        assert [await watcher.read() for watcher in watchers] == [grpc.aio.EOF] * 2  # pyright: ignore[reportAttributeAccessIssue]
        await asyncio.wait_for(stopping, 2)


async def test_reflection_lists_the_services_and_describes_them() -> None:
    async with live(FakeEngine()) as tulip:
        stub = _stub(ServerReflectionStub, tulip.channel)
        call = stub.ServerReflectionInfo()
        await call.write(ServerReflectionRequest(list_services=""))
        listed = {service.name for service in (await call.read()).list_services_response.service}
        assert listed == {SERVICE, "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}
        await call.write(ServerReflectionRequest(file_containing_symbol=SERVICE))
        (described,) = (await call.read()).file_descriptor_response.file_descriptor_proto
        assert b"EmbedStream" in described
        await call.done_writing()


async def test_stopping_answers_what_was_taken_and_refuses_the_rest() -> None:
    engine = FakeEngine()
    async with live(engine) as tulip, tulip.stream() as stream:
        engine.by_hand = True
        running = asyncio.ensure_future(tulip.embed([fake_sequence([1])]))
        await stream.send(request_message([fake_sequence([2])], request_id=1))
        await eventually(lambda: tulip.server.step_loop.scheduler.admission.held(Lane.ONLINE).sequences == 2)
        started = time.monotonic()
        stopping = asyncio.ensure_future(tulip.server.stop(10))
        await stream.send(request_message([fake_sequence([3])], request_id=2))
        (refused,) = await stream.answer(2)
        assert (refused.refused.code, refused.refused.message) == ("unavailable", "the server is shutting down")
        while not (running.done() and 1 in stream.responses):
            if engine.unfinished:
                engine.finish_next()
            await asyncio.sleep(0.001)
        (served,) = await stream.answer(1)
        assert not served.HasField("refused")
        tulip.check([fake_sequence([1])], await running)
        assert await stream.call.code() is grpc.StatusCode.UNAVAILABLE
        await stopping
        await asyncio.wait_for(tulip.server.wait_closed(), 1)
        assert time.monotonic() - started < 5


async def test_the_grace_period_ends() -> None:
    async with live(FakeEngine(faults=Faults(hang={1013}))) as tulip:
        hanging = tulip.stub.Embed(request_message([fake_sequence([1013])], request_id=1))
        await eventually(lambda: tulip.server.step_loop.scheduler.num_in_flight == 1)
        await asyncio.wait_for(tulip.server.stop(0.1), 5)
        with pytest.raises(BaseException, match=r".*"):
            await hanging


async def test_a_stalled_step_makes_the_server_not_ready_until_it_ends() -> None:
    engine = FakeEngine(step_time=StepTime(per_token_s=0.01))
    async with live(engine, stall_factor=1, stall_floor_s=0.01) as tulip:
        watcher = _stub(HealthStub, tulip.channel).Watch(HealthCheckRequest())
        assert (await watcher.read()).status == SERVING
        for _ in range(4):  # short steps, so that a long one is not expected
            await tulip.embed([fake_sequence([1])])
        long = asyncio.ensure_future(tulip.embed([fake_sequence([1] * 120)]))
        assert (await watcher.read()).status == NOT_SERVING
        assert not long.done()
        status, _, details = await failed_call(tulip.stub.Info(InfoRequest()))
        assert (status, details) == (grpc.StatusCode.UNAVAILABLE, "the running step is overdue")
        await long
        assert (await watcher.read()).status == SERVING
        await tulip.embed([fake_sequence([1])])


async def test_no_progress_is_fatal() -> None:
    reasons: list[str] = []
    async with live(FakeEngine(faults=Faults(hang={1013})), on_fatal=reasons.append, fatal_s=1) as tulip:
        hanging = asyncio.ensure_future(tulip.embed([fake_sequence([1013])]))
        await eventually(lambda: bool(reasons))
        assert reasons == ["no progress for 1 s"]
        assert await _health(tulip.channel) == NOT_SERVING
        hanging.cancel()


async def test_a_long_step_that_was_to_be_expected_is_not_fatal() -> None:
    async with live(FakeEngine(step_time=StepTime(per_token_s=0.004)), stall_factor=1, fatal_s=1) as tulip:
        long = [fake_sequence([1] * 500)]
        tulip.check(long, await tulip.embed(long))


async def test_a_queue_of_one_token_serves_one() -> None:
    async with live(FakeEngine(), max_queued_tokens=1) as tulip:
        await tulip.embed([fake_sequence([1])])


async def test_a_queue_that_holds_nothing_is_a_bad_setting() -> None:
    with pytest.raises(ConfigError, match=r"--max-queued.*output_bytes"):
        async with live(FakeEngine(), max_queued_output_bytes=1):
            raise AssertionError("it started")


async def test_a_blocked_loop_is_fatal() -> None:
    reasons: list[str] = []
    async with live(FakeEngine(), on_fatal=reasons.append, fatal_s=1):
        await asyncio.sleep(0.3)
        time.sleep(1.6)  # noqa: ASYNC251
        assert reasons == ["no progress for 1 s"]


async def test_the_death_of_the_engine_is_fatal_and_answers_everybody() -> None:
    reasons: list[str] = []
    async with live(FakeEngine(faults=Faults(die={1013})), on_fatal=reasons.append) as tulip:
        call = tulip.stub.Embed(request_message([fake_sequence([1013]), fake_sequence([1])], request_id=1))
        status, metadata, details = await failed_call(call)
        assert (status, metadata["rosebed-code"], details) == (grpc.StatusCode.UNAVAILABLE, "unavailable", "fault: die")
        assert reasons == ["fault: die"]
        assert await _health(tulip.channel) == NOT_SERVING
        status, _, details = await failed_call(tulip.stub.Info(InfoRequest()))
        assert (status, details) == (grpc.StatusCode.UNAVAILABLE, "the engine cannot compute any more")


HANGING_SERVER = """
import asyncio
from rosebed.testing import FakeEngine, Faults, fake_sequence
from rosebed.tulip.config import TulipConfig
from rosebed.tulip.server import TulipServer

async def main():
    server = TulipServer(FakeEngine(faults=Faults(hang={1013})), TulipConfig(port=0, fatal_s=1))
    await server.start()
    server.step_loop.scheduler.submit((fake_sequence([1013]),), on_done=print)
    server.step_loop.wake()
    await server.wait_closed()

asyncio.run(main())
"""


def test_by_default_a_fatal_fault_ends_the_process_with_an_error() -> None:
    command = [sys.executable, "-c", HANGING_SERVER]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=30)
    assert ended.returncode == 70
    assert "ending the process: no progress for 1 s" in ended.stderr


IDLE_SERVER = """
import asyncio
from rosebed.testing import FakeEngine
from rosebed.tulip.config import TulipConfig
from rosebed.tulip.server import TulipServer

async def main():
    server = TulipServer(FakeEngine(), TulipConfig(port=0, fatal_s=2))
    await server.start()
    print("up", flush=True)
    await server.wait_closed()

asyncio.run(main())
"""


def test_a_process_that_was_stopped_and_goes_on_lives() -> None:
    with subprocess.Popen([sys.executable, "-c", IDLE_SERVER], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "up\n"
        server.send_signal(signal.SIGSTOP)
        time.sleep(2.6)
        server.send_signal(signal.SIGCONT)
        time.sleep(0.7)
        assert server.poll() is None
        server.kill()


def test_tulip_needs_no_torch() -> None:
    code = """
import sys
import rosebed.tulip.server, rosebed.testing, rosebed.proto.codec
loaded = {name.partition(".")[0] for name in sys.modules}
print(sorted(loaded & {"torch", "triton", "tokenizers", "transformers", "httptools"}), "rosebed.rose" in sys.modules)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[] False"


async def test_the_engines_figures_are_scraped_by_lane() -> None:
    engine = FakeEngine()
    engine.figures = {
        Lane.ONLINE: SlotStatistics(graphs=75, graph_bytes=800_000_000, capture_seconds=12.5, replays=9, eager_steps=2),
        Lane.BULK: SlotStatistics(graphs=17, cold_steps=1, live_captures=3, padding_tokens=40),
    }
    async with live(engine, metrics_port=0) as tulip, httpx.AsyncClient() as client:
        page = (await client.get(f"http://127.0.0.1:{tulip.server.metrics_port}/metrics")).text
    values = {
        line.removeprefix("rosebed_tulip_engine_").rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1])
        for line in page.splitlines()
        if line.startswith("rosebed_tulip_engine_")
    }
    expected = {
        "graphs": (75, 17),
        "graph_bytes": (8e8, 0),
        "capture_seconds": (12.5, 0),
        "replays_total": (9, 0),
        "eager_steps_total": (2, 0),
        "cold_steps_total": (0, 1),
        "live_captures_total": (0, 3),
        "idle_captures_total": (0, 0),
        "padding_tokens_total": (0, 40),
    }
    assert values == {
        f'{name}{{lane="{lane}"}}': value
        for name, pair in expected.items()
        for lane, value in zip(("online", "bulk"), pair, strict=True)
    }


async def test_metrics_are_scraped_over_http() -> None:
    faults = Faults(non_finite={1002})
    async with live(FakeEngine(faults=faults), metrics_port=0) as tulip:
        await tulip.embed([fake_sequence([1, 2, 3]), fake_sequence([1002])])
        await failed_call(tulip.stub.Embed(request_message([fake_sequence([1] * 600)], request_id=1)))
        async with httpx.AsyncClient() as client:
            page = (await client.get(f"http://127.0.0.1:{tulip.server.metrics_port}/metrics")).text
    values = dict(line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))
    # The warm-up sequence has 64 tokens; the sequence that is not finite runs twice.
    assert float(values["rosebed_tulip_tokens_total"]) == 64 + 4 + 1
    assert float(values["rosebed_tulip_requests_total"]) == 2
    assert float(values["rosebed_tulip_sequences_total"]) == 3
    assert float(values['rosebed_tulip_errors_total{code="non_finite_output"}']) == 1
    assert float(values['rosebed_tulip_errors_total{code="context_length_exceeded"}']) == 1
    assert float(values["rosebed_tulip_step_seconds_count"]) == 3
    assert float(values['rosebed_tulip_batch_tokens_bucket{le="1"}']) == 1
    assert float(values['rosebed_tulip_batch_tokens_bucket{le="8"}']) == 2
    assert float(values["rosebed_tulip_batch_tokens_sum"]) == 69
    assert float(values["rosebed_tulip_batch_sequences_sum"]) == 4
    assert float(values['rosebed_tulip_queued_tokens{lane="online"}']) == 0
    assert float(values["rosebed_tulip_steps_in_flight"]) == 0
    assert float(values["rosebed_tulip_ready"]) == 1
    assert float(values['rosebed_tulip_predicted_step_seconds{tokens="64"}']) > 0
    assert not any("engine_" in name for name in values)  # an engine that counts nothing
