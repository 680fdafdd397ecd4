"""Frames of the link, however they come apart."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rosebed.core.errors import InvalidInput
from rosebed.proto.link import FrameReader, frame
from rosebed.proto.rosebed_pb2 import EmbedRequest, StreamRequest

MESSAGES = [
    *(StreamRequest(cancel=number) for number in (1, 0, 300, 1 << 40)),
    StreamRequest(embed=EmbedRequest(token_ids=b"x" * 500)),
]
STREAM = b"".join(map(frame, MESSAGES))


@given(st.lists(st.integers(1, len(STREAM) - 1), unique=True))
def test_messages_come_out_whole_and_in_order(cuts: list[int]) -> None:
    reader = FrameReader(max_bytes=1000)
    bounds = [0, *sorted(cuts), len(STREAM)]
    parts = [STREAM[start:stop] for start, stop in pairwise(bounds)]
    assert [StreamRequest.FromString(data) for part in parts for data in reader.feed(part)] == MESSAGES


def test_a_message_that_is_too_large_is_refused_before_it_comes() -> None:
    reader = FrameReader(max_bytes=100)
    with pytest.raises(InvalidInput, match="a message of 506 bytes, at most 100"):
        reader.feed(frame(MESSAGES[-1])[:10])
