"""Settings, permits, phases, verdicts and statuses: the small pure parts."""

import grpc
import pytest

from rosebed.core.errors import ERROR_TABLE, ConfigError, Overloaded, Unavailable
from rosebed.core.types import Lane
from rosebed.tulip.admission import Admission
from rosebed.tulip.config import TulipConfig
from rosebed.tulip.cost import Cost
from rosebed.tulip.readiness import Gate, Readiness
from rosebed.tulip.watchdog import Verdict, judge


@pytest.mark.parametrize(
    "settings",
    [
        {"port": -1},
        {"port": 65_536},
        {"metrics_port": 70_000},
        {"max_queued_tokens": 0},
        {"chunk_bytes": 10},
        {"bulk_wait_s": -0.1},
        {"fatal_s": float("nan")},
        {"bulk_wait_s": float("inf")},
        {"stall_factor": float("inf")},
        {"max_message_bytes": 1 << 31},
    ],
)
def test_a_bad_setting_names_itself(settings: dict[str, float]) -> None:
    name = next(iter(settings))
    with pytest.raises(ConfigError, match=f"--{name.replace('_', '-')} should lie in"):
        TulipConfig(**settings)  # pyright: ignore[reportArgumentType]


def test_every_error_has_a_grpc_status() -> None:
    assert {mapping.grpc_status for mapping in ERROR_TABLE.values()} <= set(grpc.StatusCode.__members__)


def test_retry_after_follows_backlog_and_throughput() -> None:
    admission = Admission(Cost(1000, 10, 10, 10))
    admission.acquire(Lane.ONLINE, Cost(1000, 1, 1, 1), tokens_per_s=0)
    for tokens_per_s, seconds in [(0, 1), (100, 5), (90, 6), (1e6, 1), (0.1, 60)]:
        with pytest.raises(Overloaded, match="1000 tokens are waiting") as caught:
            admission.acquire(Lane.ONLINE, Cost(1), tokens_per_s=tokens_per_s)
        assert caught.value.retry_after_s == seconds
    admission.release(Lane.ONLINE, Cost(1000, 1, 1, 1))
    assert admission.held(Lane.ONLINE) == Cost()


@pytest.mark.parametrize("quantity", Cost._fields)
def test_each_quantity_is_limited(quantity: str) -> None:
    admission = Admission(Cost(5, 5, 5, 5))
    admission.acquire(Lane.ONLINE, Cost()._replace(**{quantity: 5}), tokens_per_s=0)
    with pytest.raises(Overloaded, match=f"5 {quantity} are waiting"):
        admission.acquire(Lane.ONLINE, Cost()._replace(**{quantity: 1}), tokens_per_s=0)


def test_phases_of_a_gate() -> None:
    gate, seen = Gate(), list[Readiness]()
    gate.add_listener(seen.append)
    with pytest.raises(Unavailable, match="warming up"):
        gate.require_open()
    gate.stall(True)
    gate.stall(False)
    assert seen == []
    gate.open()
    gate.require_open()
    gate.stall(True)
    with pytest.raises(Unavailable, match="overdue"):
        gate.require_open()
    gate.stall(False)
    gate.fail()
    gate.stall(False)
    gate.open()
    assert not gate.is_open
    gate.stop()
    gate.fail()
    assert seen == [
        Readiness.SERVING,
        Readiness.STALLED,
        Readiness.SERVING,
        Readiness.FAILED,
        Readiness.STOPPING,
    ]
    gate.remove_listener(seen.append)


@pytest.mark.parametrize(
    ("step_age_s", "predicted_s", "heartbeat_age_s", "verdict"),
    [
        (0, 0, 0.2, Verdict.WELL),
        (1.9, 0, 0, Verdict.WELL),
        (2.1, 0, 0, Verdict.STALLED),
        (11.9, 1, 0, Verdict.WELL),
        (12.1, 1, 0, Verdict.STALLED),
        (29.9, 1, 0, Verdict.STALLED),
        (39.9, 1, 0, Verdict.STALLED),
        (40.1, 1, 0, Verdict.LOST),
        (100, 10, 0, Verdict.WELL),
        (129.9, 10, 0, Verdict.STALLED),
        (130.1, 10, 0, Verdict.LOST),
        (329.9, 0, 0, Verdict.STALLED),
        (330.1, 0, 0, Verdict.LOST),
        (0, 100, 30.1, Verdict.LOST),
        (0, 0, 30.1, Verdict.LOST),
    ],
)
def test_verdicts(step_age_s: float, predicted_s: float, heartbeat_age_s: float, verdict: Verdict) -> None:
    assert judge(step_age_s, predicted_s, heartbeat_age_s, TulipConfig()) is verdict
