"""Targets: what names them, what they send, and how they read answers, without a server."""

import json
from urllib.parse import urlsplit

import numpy as np
import pytest

from rosebed.bench.requests import BenchRequest, RequestShape
from rosebed.bench.targets.address import TargetAddress, TargetKind, parse_target
from rosebed.bench.targets.base import Stages, TargetSettings
from rosebed.bench.targets.engine import plan_steps
from rosebed.bench.targets.http_answer import HttpAnswer
from rosebed.bench.targets.http_connection import request_bytes
from rosebed.bench.targets.openai import OpenAITarget
from rosebed.bench.targets.tei import TeiTarget
from rosebed.bench.targets.tulip_stream import TulipTarget
from rosebed.core.encodings import to_base64
from rosebed.core.engine import BatchLimits
from rosebed.core.errors import ConfigError, Overloaded, RosebedError, ServerError
from rosebed.core.types import Lane
from rosebed.proto.codec import error_item
from rosebed.proto.rosebed_pb2 import EmbedResponse, Output, Timings
from rosebed.testing import FakeEngine, fake_info, fake_sequence

IDS = BenchRequest(RequestShape((2, 1)), token_ids=(np.array([5, 6], np.int32), np.array([7], np.int32)))
TEXTS = BenchRequest(RequestShape((3, 3)), texts=("a word", "ünï"))


@pytest.mark.parametrize(
    ("text", "kind", "location"),
    [
        ("grpc://gpu-1:50051", TargetKind.GRPC, "gpu-1:50051"),
        ("grpc://[::1]:50051/", TargetKind.GRPC, "[::1]:50051"),
        ("unix:/run/tulip.sock", TargetKind.GRPC, "unix:/run/tulip.sock"),
        ("http://127.0.0.1:8080", TargetKind.OPENAI, "http://127.0.0.1:8080"),
        ("https://host/openai/v1/", TargetKind.OPENAI, "https://host/openai/v1"),
        ("tei+http://host:80", TargetKind.TEI, "http://host:80"),
        ("inprocess:org/model", TargetKind.EMBEDDER, "org/model"),
        ("engine:./folder", TargetKind.ENGINE, "./folder"),
        ("st:/a:b", TargetKind.SENTENCE_TRANSFORMERS, "/a:b"),
    ],
)
def test_targets_are_parsed(text: str, kind: TargetKind, location: str) -> None:
    assert parse_target(text) == TargetAddress(kind, location)


@pytest.mark.parametrize(
    "text",
    ["", "host:80", "grpc://host", "grpc://host:0", "grpc://:5", "grpc:host:5", "grpc://host:99999", "unix:",
     "http://", "http:///path", "http://host:port", "http://host:0", "ftp://host", "st:", "engine", "tei+grpc://h:1"],
)  # fmt: skip
def test_what_is_no_target_is_refused_naming_the_flag(text: str) -> None:
    with pytest.raises(ConfigError, match="--target") as caught:
        parse_target(text)
    assert repr(text) in caught.value.message


def openai(**settings: str) -> OpenAITarget:
    url = settings.pop("url", "http://host:8080")
    return OpenAITarget(TargetSettings(address=parse_target(url), **settings))  # pyright: ignore[reportArgumentType]


def sent(payload: bytes) -> tuple[str, dict[str, str], object]:
    head, _, body = payload.partition(b"\r\n\r\n")
    line, *headers = head.decode().split("\r\n")
    return line, dict(header.split(": ", 1) for header in headers), json.loads(body)


def test_openai_sends_ids_and_asks_for_base64() -> None:
    line, headers, body = sent(openai(model_name="m", api_key="k").encode(IDS))
    assert line == "POST /v1/embeddings HTTP/1.1"
    assert body == {"model": "m", "input": [[5, 6], [7]], "encoding_format": "base64"}
    assert (headers["Host"], headers["Authorization"]) == ("host:8080", "Bearer k")
    content = json.dumps(body, separators=(",", ":"))
    assert headers["Content-Length"] == str(len(content))


def test_openai_sends_texts_to_the_base_url_it_was_given() -> None:
    line, headers, body = sent(openai(url="http://host/base", model_name="m").encode(TEXTS))
    assert line == "POST /base/embeddings HTTP/1.1"
    assert body == {"model": "m", "input": ["a word", "ünï"], "encoding_format": "base64"}
    assert "Authorization" not in headers


def test_a_get_has_no_body() -> None:
    payload = request_bytes(urlsplit("http://host:1"), "/v1/models", None, None)
    assert payload == b"GET /v1/models HTTP/1.1\r\nHost: host:1\r\nAccept: application/json\r\n\r\n"


def answer(status: int, value: object, head: bytes = b"") -> HttpAnswer:
    return HttpAnswer(status, b"HTTP/1.1 %d\r\n%s\r\n" % (status, head), json.dumps(value).encode())


def test_openai_reads_vectors_in_the_order_of_the_inputs() -> None:
    vectors = np.array([[1, 2], [3, 4]], np.float32)
    data = [{"index": i, "embedding": to_base64(vectors[i])} for i in (1, 0)]
    np.testing.assert_array_equal(openai().vectors(answer(200, {"data": data})), vectors)


@pytest.mark.parametrize(
    ("reply", "error", "says"),
    [
        (answer(429, {"error": {"code": "overloaded", "message": "full"}}), Overloaded, "full"),
        (answer(500, {"detail": "oh"}), ServerError, "HTTP 500"),
        (answer(200, {"data": [{}]}), ServerError, "not a list of embeddings"),
    ],
)
def test_openai_raises_what_an_answer_means(reply: HttpAnswer, error: type[RosebedError], says: str) -> None:
    with pytest.raises(error, match=says):
        openai().vectors(reply)


def test_a_canned_answer_says_its_length() -> None:
    canned = openai().canned(answer(200, [1], b"transfer-encoding: chunked\r\n"))
    assert canned.messages == (b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 3\r\n\r\n[1]",)


def test_tei_routes_and_its_headers_of_times() -> None:
    target = TeiTarget(TargetSettings(address=parse_target("tei+http://host:1")))
    line, _, body = sent(target.encode(IDS))
    assert (line, body) == ("POST /embed HTTP/1.1", {"inputs": [[5, 6], [7]]})
    head = b"x-total-time: 7\r\nX-Tokenization-Time: 1\r\nx-queue-time: 2.5\r\nx-inference-time: 3\r\n"
    reply = answer(200, [[1, 2], [3, 4]], head)
    assert target.check(reply) == Stages(
        tokenize_ns=1_000_000, queue_ns=2_500_000, compute_ns=3_000_000, total_ns=7_000_000
    )
    np.testing.assert_array_equal(target.vectors(reply), [[1, 2], [3, 4]])
    assert target.check(answer(200, [], b"x-total-time: soon\r\n")) == Stages()


def tulip() -> TulipTarget:
    return TulipTarget(TargetSettings(address=parse_target("grpc://host:1")))


def test_grpc_requests_carry_packed_ids_and_the_lane() -> None:
    embed = tulip().encode(BenchRequest(RequestShape((2, 1), Lane.BULK), token_ids=IDS.token_ids)).embed
    assert np.frombuffer(embed.token_ids, "<i4").tolist() == [5, 6, 7]
    assert np.frombuffer(embed.lengths, "<i4").tolist() == [2, 1]
    assert int(embed.lane) == Lane.BULK


def test_grpc_answers_are_joined_and_their_timings_read() -> None:
    rows = np.array([[1, 2], [3, 4], [5, 6]], "<f4")
    first = EmbedResponse(outputs=[Output(dim=2, rows=2, data=rows[:2].tobytes())])
    timings = Timings(queue_ns=1, compute_ns=2, total_ns=4, device_ns=8, steps=2)
    last = EmbedResponse(outputs=[Output(dim=2, rows=1, data=rows[2:].tobytes())], timings=timings, last=True)
    assert tulip().check([first, last]) == Stages(queue_ns=1, compute_ns=2, total_ns=4, device_ns=8, num_steps=2)
    np.testing.assert_array_equal(tulip().vectors([first, last]), rows)
    assert [EmbedResponse.FromString(message) for message in tulip().canned([first, last]).messages] == [first, last]


def test_grpc_errors_are_raised() -> None:
    item = error_item(Overloaded("full"))
    for response in (EmbedResponse(last=True, refused=item), EmbedResponse(last=True, errors=[item])):
        with pytest.raises(Overloaded, match="full"):
            tulip().check([response])
    with pytest.raises(ServerError, match="without vectors"):
        tulip().vectors([EmbedResponse(last=True)])


@pytest.mark.parametrize(
    ("lengths", "limits", "expected"),
    [
        ([3, 3, 3], (6, 10, 10), [[3, 3], [3]]),
        ([9, 1, 9], (6, 10, 10), [[9], [1], [9]]),
        ([1] * 5, (100, 2, 10), [[1, 1], [1, 1], [1]]),
        ([1] * 5, (100, 10, 3), [[1, 1, 1], [1, 1]]),
        ([4], (4, 1, 1), [[4]]),
    ],
)
def test_an_engines_requests_are_cut_at_its_limits(
    lengths: list[int], limits: tuple[int, int, int], expected: list[list[int]]
) -> None:
    tokens, sequences, spans = limits
    engine = FakeEngine(
        fake_info(limits=BatchLimits(tokens=tokens, sequences=sequences, spans=spans, output_bytes=1 << 20))
    )
    steps = list(plan_steps([fake_sequence([1] * length) for length in lengths], engine))
    assert [[sequence.num_tokens for sequence in step] for step in steps] == expected
    engine.close()
