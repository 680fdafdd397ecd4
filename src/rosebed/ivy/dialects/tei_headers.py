"""TEI's headers: what a request took."""

import time
from collections.abc import Mapping
from typing import Protocol

from rosebed.core.engine import EngineInfo
from rosebed.ivy.dialects.writing import truncation_headers
from rosebed.ivy.http.reply import Headers
from rosebed.ivy.request import Timings


class Answer(Protocol):
    """What there is to tell of any answer."""

    @property
    def num_tokens(self) -> int: ...
    @property
    def truncated_from(self) -> Mapping[int, int]: ...
    @property
    def timings(self) -> Timings: ...


def tei_headers(engine: EngineInfo, answer: Answer, *, num_characters: int, started_ns: int) -> Headers:
    """Device, tokens and times in ms, of a request that came at `started_ns` of the performance counter."""
    device = engine.device.partition(":")[0].replace("cuda", "gpu+optimized")
    total_ms = _ms(time.perf_counter_ns() - started_ns)
    return (
        (b"x-compute-type", device.encode()),
        (b"x-compute-time", total_ms),
        (b"x-compute-characters", b"%d" % num_characters),
        (b"x-compute-tokens", b"%d" % answer.num_tokens),
        (b"x-total-time", total_ms),
        (b"x-tokenization-time", _ms(answer.timings.tokenization_ns)),
        (b"x-queue-time", _ms(answer.timings.queue_ns)),
        (b"x-inference-time", _ms(answer.timings.compute_ns)),
        *truncation_headers(answer.truncated_from),
    )


def _ms(duration_ns: int) -> bytes:
    return b"%d" % round(duration_ns / 1e6)
