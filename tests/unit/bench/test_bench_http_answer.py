"""Reading HTTP answers out of bytes that come in any pieces."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rosebed.bench.targets.http_answer import AnswerReader, HttpAnswer
from rosebed.core.errors import ServerError

WITH_LENGTH = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\ncontent-length: 9\r\n\r\n{"a": 12}'
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b'4\r\n{"a"\r\n5;name=value\r\n: 12}\r\n0\r\nX-Trailer: yes\r\n\r\n'
)
EMPTY = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 3\r\nContent-Length: 0\r\n\r\n"


def read(pieces: list[bytes]) -> HttpAnswer:
    """The answer, which must come with the last piece and not before."""
    reader = AnswerReader()
    answers = [reader.feed(piece) for piece in pieces]
    assert answers[:-1] == [None] * (len(pieces) - 1)
    assert answers[-1] is not None
    return answers[-1]


def pieces_of(data: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted({cut for cut in cuts if 0 < cut < len(data)}), len(data)]
    return [data[start:end] for start, end in pairwise(places)]


@given(st.sampled_from([WITH_LENGTH, CHUNKED]), st.lists(st.integers(1, 140)))
def test_the_pieces_do_not_matter(data: bytes, cuts: list[int]) -> None:
    answer = read(pieces_of(data, cuts))
    assert (answer.status, answer.body) == (200, b'{"a": 12}')


def test_one_byte_at_a_time() -> None:
    for data in (WITH_LENGTH, CHUNKED):
        assert read([data[i : i + 1] for i in range(len(data))]).body == b'{"a": 12}'


def test_headers_are_found_by_lower_case_name() -> None:
    answer = read([EMPTY])
    assert (answer.status, answer.body) == (429, b"")
    assert (answer.header(b"retry-after"), answer.header(b"after"), answer.header(b"x-none")) == (b"3", b"", b"")


def test_no_content_has_no_body() -> None:
    assert read([b"HTTP/1.1 204 No Content\r\n\r\n"]).status == 204


def test_an_answer_without_length_ends_with_the_stream() -> None:
    reader = AnswerReader()
    assert reader.end() is None
    assert reader.feed(b"HTTP/1.0 200 OK\r\n\r\nab") is None
    assert reader.feed(b"cd") is None
    assert reader.end() == HttpAnswer(200, b"HTTP/1.0 200 OK\r\n\r\n", b"abcd")


def test_a_stream_that_ends_too_early_is_no_answer() -> None:
    for data in (WITH_LENGTH, CHUNKED):
        reader = AnswerReader()
        assert reader.feed(data[:-4]) is None
        assert reader.end() is None


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"SSH-2.0-OpenSSH\r\n\r\n", "not an HTTP answer"),
        (b"HTTP/1.1 abc\r\n\r\n", "not an HTTP answer"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n", "content-length"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nab", "longer than its content-length"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", "not a chunk"),
        (b"x" * 70_000, "do not end"),
    ],
)
def test_what_is_no_http_says_so(data: bytes, says: str) -> None:
    with pytest.raises(ServerError, match=says):
        AnswerReader().feed(data)
