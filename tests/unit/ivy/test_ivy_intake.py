"""Bodies that do not arrive, too many at once, or packed with more than they seem."""

import asyncio
import gzip
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rosebed.core.errors import BodyTimeout, Cancelled, InvalidInput, Overloaded, PayloadTooLarge
from rosebed.ivy.http.body import Body
from rosebed.ivy.http.call import Call
from rosebed.ivy.http.intake import MAX_INLINE_BYTES, BodyIntake
from rosebed.ivy.http.packing import MOST_MEMBERS, Unpacker, accepts_gzip, packed
from rosebed.ivy.workload import Workload


def intake(*, max_bytes: int = 10, timeout_s: float = 10, **more: Any) -> BodyIntake:
    return BodyIntake(max_bytes=max_bytes, timeout_s=timeout_s, workload=Workload(), **more)


def call(body: Body, **headers: bytes) -> Call:
    return Call(b"POST", b"/", {name.replace("_", "-").encode(): value for name, value in headers.items()}, body)


def whole(data: bytes) -> Body:
    body = Body(announced=len(data))
    body.feed(data)
    body.finish()
    return body


async def test_a_stalled_body_times_out_and_gives_its_place_back() -> None:
    one_only = intake(timeout_s=0.01, max_open=1)
    for _ in range(2):
        with pytest.raises(BodyTimeout, match=r"--body-timeout-s"):
            await call(Body()).read_json(one_only)


async def test_a_body_that_drips_times_out_as_well() -> None:
    body = Body()

    async def drip() -> None:
        while True:
            await asyncio.sleep(0.01)
            body.feed(b"x")

    dripping = asyncio.create_task(drip())
    async with asyncio.timeout(5):
        with pytest.raises(BodyTimeout, match=r"\d+ bytes of the body"):
            await call(body).read_json(intake(max_bytes=1 << 20, timeout_s=0.1))
    dripping.cancel()


async def test_more_bodies_than_may_be_open_are_refused() -> None:
    one_only = intake(max_open=1)
    first = asyncio.create_task(one_only.read(Body()))
    await asyncio.sleep(0)
    with pytest.raises(Overloaded):
        await one_only.read(Body())
    assert await one_only.read(whole(b"{}")) == b"{}"  # one that has come takes no place
    first.cancel()


@pytest.mark.parametrize("error", [InvalidInput("the chunks are malformed"), Cancelled("the client left")])
async def test_a_body_that_breaks_off_raises_why(error: InvalidInput | Cancelled) -> None:
    body = Body(is_chunked=True)
    reading = asyncio.create_task(call(body).read_json(intake()))
    await asyncio.sleep(0)
    body.feed(b"{")
    await asyncio.sleep(0)
    body.break_off(error)
    with pytest.raises(type(error), match=error.message):
        await reading


async def test_a_body_in_parts() -> None:
    body = Body(is_chunked=True)
    reading = asyncio.create_task(intake().read(body))
    for part in (b"abc", b"", b"d", b"efghij"):
        await asyncio.sleep(0)
        body.feed(part)
    body.finish()
    assert await reading == b"abcdefghij"


async def test_no_more_is_read_than_the_limit() -> None:
    with pytest.raises(PayloadTooLarge, match="over the limit of 10 bytes"):
        await intake().read(Body(announced=11))
    with pytest.raises(PayloadTooLarge):
        await intake().read(whole(b"x" * 11))
    body = Body(is_chunked=True)
    reading = asyncio.create_task(intake().read(body))
    await asyncio.sleep(0)
    body.feed(b"x" * 11)
    with pytest.raises(PayloadTooLarge):
        await reading


@pytest.mark.parametrize("size", [1, MAX_INLINE_BYTES - 1, MAX_INLINE_BYTES, MAX_INLINE_BYTES + 1, 300_000])
async def test_packed_bodies(size: int) -> None:
    body = (b"%d" % size + bytes(size))[:size]
    assert await call(whole(gzip.compress(body)), content_encoding=b"gzip").read_json(intake(max_bytes=1 << 20)) == body
    assert await intake(max_bytes=size).unpack(gzip.compress(body)) == body
    with pytest.raises(PayloadTooLarge, match="unpacked"):
        await intake(max_bytes=size).unpack(gzip.compress(body + b"x"))


async def test_a_bomb_is_noticed_while_it_unpacks() -> None:
    bomb = gzip.compress(bytes(200_000_000), 9)
    assert len(bomb) < 200_000
    with pytest.raises(PayloadTooLarge, match="the body, unpacked, is over the limit of 200000 bytes"):
        await call(whole(bomb), content_encoding=b"gzip").read_json(intake(max_bytes=200_000))


@pytest.mark.parametrize("name", [b"gzip", b"GZIP", b"x-gzip", b" gzip "])
async def test_names_of_gzip(name: bytes) -> None:
    body = whole(gzip.compress(b"{}") + gzip.compress(b" "))  # two files in one are one
    assert await call(body, content_encoding=name).read_json(intake(max_bytes=100)) == b"{} "


@given(st.binary(max_size=300), st.integers(1, 50))
def test_any_bytes_come_back(data: bytes, step: int) -> None:
    unpacker = Unpacker(packed(data))
    parts: list[bytes] = []
    while not unpacker.is_done:
        parts.append(unpacker.read(step))
        assert len(parts[-1]) <= step
    assert b"".join(parts) == data


@given(st.binary(max_size=100))
def test_what_is_no_gzip_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidInput, match="not valid gzip"):
        Unpacker(data).read(1 << 20)


def test_trailing_rubbish_and_many_files_are_refused() -> None:
    with pytest.raises(InvalidInput, match="not valid gzip"):
        Unpacker(gzip.compress(b"{}") + b"rubbish").read(100)
    with pytest.raises(InvalidInput, match="breaks off"):
        Unpacker(gzip.compress(b"{}")[:-8]).read(100)
    with pytest.raises(InvalidInput, match="not valid gzip"):
        Unpacker(zlib.compress(b"{}")).read(100)
    with pytest.raises(InvalidInput, match=f"over {MOST_MEMBERS} gzip files"):
        Unpacker(gzip.compress(b"") * (MOST_MEMBERS + 1)).read(100)


@pytest.mark.parametrize(
    ("header", "accepts"),
    [
        (b"gzip", True),
        (b"gzip, deflate, br", True),
        (b"deflate, GZIP;q=0.5", True),
        (b"br;q=1.0, gzip;q=0", False),
        (b"gzip;q=0.0", False),
        (b"gzip;q=high", False),
        (b"*", True),
        (b"*;q=0", False),
        (b"gzip;q=0, *", False),
        (b"identity", False),
        (b"", False),
    ],
)
def test_who_takes_gzip(header: bytes, accepts: bool) -> None:
    assert accepts_gzip(header) is accepts
