"""Bodies that do not arrive, or too many at once."""

import asyncio
from typing import Any

import pytest

from rosebed.core.errors import BodyTimeout, InvalidInput, Overloaded
from rosebed.ivy.http.call import Call
from rosebed.ivy.http.intake import BodyIntake


async def never() -> Any:
    await asyncio.Event().wait()


def call(receive: Any, *headers: tuple[bytes, bytes]) -> Call:
    return Call({"type": "http", "headers": headers}, receive)


async def test_a_stalled_body_times_out_and_gives_its_place_back() -> None:
    intake = BodyIntake(max_bytes=10, timeout_s=0.01, max_open=1)
    for _ in range(2):
        with pytest.raises(BodyTimeout, match=r"--body-timeout-s"):
            await call(never).read_json(intake)


async def test_a_body_that_drips_times_out_as_well() -> None:
    async def drip() -> Any:
        await asyncio.sleep(0.01)
        return {"type": "http.request", "body": b"x", "more_body": True}

    async with asyncio.timeout(5):
        with pytest.raises(BodyTimeout, match=r"\d+ bytes of the body"):
            await call(drip).read_json(BodyIntake(max_bytes=1 << 20, timeout_s=0.1))


async def test_more_bodies_than_may_be_open_are_refused() -> None:
    intake = BodyIntake(max_bytes=10, timeout_s=10, max_open=1)
    with intake.open(), pytest.raises(Overloaded):
        await call(never).read_json(intake)


async def test_a_chunked_body_that_breaks_off_is_the_callers_fault() -> None:
    async def broken() -> Any:
        return {"type": "http.disconnect"}

    with pytest.raises(InvalidInput, match="chunks"):
        await call(broken, (b"transfer-encoding", b"chunked")).read_json(BodyIntake(max_bytes=10, timeout_s=1))
