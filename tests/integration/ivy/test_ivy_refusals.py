"""Every way to ask wrongly, over real sockets: the answer says what is wrong, and the next request is unharmed."""

import gzip
import json
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field

import httpx
import numpy as np
import pytest
from ivy_support import CLS, HELLO, SEP, VOCABULARY, expected_vector, vectors_of

from rosebed.core.engine import EngineInfo

JSON_TYPE = {"content-type": "application/json"}


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A request, and what it should be told."""

    body: bytes
    says: str
    param: str | None = None
    status: int = 400
    code: str = "invalid_input"
    headers: dict[str, str] = field(default_factory=lambda: dict(JSON_TYPE))


def inputs(value: str, says: str, param: str = "input", code: str = "invalid_input") -> Refusal:
    """The refusal of one value of `input`."""
    return Refusal(body=f'{{"input": {value}}}'.encode(), says=says, param=param, code=code)


def fields(text: str, says: str, param: str) -> Refusal:
    """The refusal of a field beside a good input."""
    return Refusal(body=f'{{"input": "hello", {text}}}'.encode(), says=says, param=param)


def bodies(body: bytes, says: str, param: str | None = None) -> Refusal:
    """The refusal of a body as a whole."""
    return Refusal(body=body, says=says, param=param)


MIXED = "all texts, all token ids, or all lists of token ids"
REFUSALS = {
    "input missing": bodies(b"{}", "input is missing", "input"),
    "input null": inputs("null", "input is missing"),
    "empty list": inputs("[]", "at least one"),
    "number": inputs("5", "expected str or array or null, not int"),
    "fraction": inputs("1.5", "not float"),
    "object": inputs('{"a": 1}', "not object"),
    "true": inputs("true", "not bool"),
    "null in list": inputs('["a", null]', "not null", "input[1]"),
    "bool in list": inputs('["a", true]', "not bool", "input[1]"),
    "bool among ids": inputs("[4, false]", "not bool", "input[1]"),
    "object in list": inputs("[{}]", "not object", "input[0]"),
    "texts nested": inputs('[["hello"]]', "expected int, not str", "input[0][0]"),
    "ids nested too deep": inputs("[[[4]]]", "expected int, not array", "input[0][0]"),
    "text then id": inputs('["hello", 4]', MIXED, "input[1]"),
    "id then text": inputs('[4, 5, "hello"]', MIXED, "input[2]"),
    "id then list": inputs("[4, [4]]", MIXED, "input[1]"),
    "list then text": inputs('[[4], "hello"]', MIXED, "input[1]"),
    "no ids": inputs("[[]]", "input[0] gives no tokens", "input[0]"),
    "no ids second": inputs("[[4], []]", "input[1] gives no tokens", "input[1]"),
    "id negative": inputs("[4, -1]", "input[1] is -1, but token ids lie in [0, 58)", "input[1]"),
    "id negative second": inputs("[[4], [4, -1]]", "input[1][1] is -1", "input[1]"),
    "id of vocabulary size": inputs(f"[[4], [{len(VOCABULARY)}]]", "input[1][0] is 58", "input[1]"),
    "id of 2^31": inputs(f"[{1 << 31}]", "token ids lie in", "input[0]"),
    "id of 2^63": inputs(f"[{1 << 63}]", "token ids lie in", "input[0]"),
    "id of 2^64": inputs(f"[[{1 << 64}]]", "token ids lie in", "input[0]"),
    "id beyond any int": inputs(f"[{10**30}]", "token ids lie in", "input[0]"),
    "id 1e400": inputs("[1e400]", "number out of range", "input[0]"),
    "id 1.0": inputs("[1.0]", "not float", "input[0]"),
    "id NaN": bodies(b'{"input": [NaN]}', "not valid JSON"),
    "id Infinity": bodies(b'{"input": [-Infinity]}', "not valid JSON"),
    "too long": inputs(
        '"%s"' % ("a " * 20), "has 22 tokens, over the limit of 16", "input[0]", "context_length_exceeded"
    ),
    "second too long": inputs('["a", "%s"]' % ("a " * 20), "input[1] has 22", "input[1]", "context_length_exceeded"),
    "ids too long": inputs(str([4] * 17), "has 17 tokens", "input[0]", "context_length_exceeded"),
    "one input too many": inputs(
        str(["a"] * 51).replace("'", '"'), "holds 51 inputs, over the limit of 50 (--max-inputs)"
    ),
    "one token list too many": inputs(str([[4]] * 51), "over the limit of 50"),
    "lone high surrogate": bodies(rb'{"input": "\ud800"}', "surrogate escapes must come in pairs"),
    "lone high surrogate inside": bodies(rb'{"input": "a\ud83dbcdefghijk"}', "surrogate escapes must come in pairs"),
    "lone low surrogate": bodies(rb'{"input": ["a", "\udc00 and more"]}', "surrogate escapes must come in pairs"),
    "surrogates reversed": bodies(rb'{"input": "\ude00\ud83d"}', "surrogate escapes must come in pairs"),
    "invalid UTF-8": bodies(b'{"input": "a\xff"}', "not valid UTF-8: byte 12"),
    "surrogate as UTF-8": bodies(b'{"input": "\xed\xa0\x80"}', "not valid UTF-8"),
    "invalid UTF-8 where it is ignored": bodies(b'{"input": "a", "x": "\xc3("}', "not valid UTF-8: byte 21"),
    "raw control character": bodies(b'{"input": "a\x01b"}', "not valid JSON"),
    "not JSON": bodies(b"hello", "not valid JSON"),
    "two values": bodies(b'{"input": "a"} {}', "trailing characters"),
    "cut off": bodies(b'{"input": "a"', "not valid JSON"),
    "trailing comma": bodies(b'{"input": "a",}', "trailing comma"),
    "byte order mark": bodies(b'\xef\xbb\xbf{"input": "a"}', "not valid JSON"),
    "list": bodies(b'["hello"]', "the body: expected object, not array"),
    "text": bodies(b'"hello"', "expected object, not str"),
    "null": bodies(b"null", "expected object, not null"),
    "empty body": bodies(b"", "the body is empty"),
    "deep in input": inputs("[" * 100_000, "expected int, not array", "input[0][0]"),
    "deep where it is ignored": bodies(b'{"input": "a", "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "too deeply"),
    "input twice": bodies(b'{"input": "hello", "input": "world"}', "'input' twice", "input"),
    "deciding value twice": bodies(
        b'{"input": "hello", "encoding_format": "float", "encoding_format": "base64_int8"}',
        "'encoding_format' twice",
        "encoding_format",
    ),
    "deciding value twice, the other way round": bodies(
        b'{"input": "hello", "\\u0065ncoding_format": "base64_int8", "encoding_format": "float"}',
        "'encoding_format' twice",
        "encoding_format",
    ),
    "model twice": bodies(b'{"model": "tiny", "input": "a", "model": null}', "'model' twice", "model"),
    "dimensions 0": fields('"dimensions": 0', "dimensions should lie in [1, 8], not be 0", "dimensions"),
    "dimensions negative": fields('"dimensions": -8', "should lie in [1, 8]", "dimensions"),
    "dimensions one over": fields('"dimensions": 9', "should lie in [1, 8]", "dimensions"),
    "dimensions huge": fields(f'"dimensions": {10**30}', "should lie in [1, 8]", "dimensions"),
    "dimensions not trained for": fields('"dimensions": 4', "--matryoshka any", "dimensions"),
    "dimensions fraction": fields('"dimensions": 1e3', "not float", "dimensions"),
    "dimensions text": fields('"dimensions": "8"', "not str", "dimensions"),
    "encoding_format unknown": fields('"encoding_format": "hex"', "invalid enum value 'hex'", "encoding_format"),
    "encoding_format number": fields('"encoding_format": 1', "not int", "encoding_format"),
    "normalize number": fields('"normalize": 1', "not int", "normalize"),
    "truncate text": fields('"truncate": "END"', "not str", "truncate"),
    "truncate_prompt_tokens 0": fields('"truncate_prompt_tokens": 0', "at least 1, or -1", "truncate_prompt_tokens"),
    "truncate_prompt_tokens -2": fields('"truncate_prompt_tokens": -2', "at least 1, or -1", "truncate_prompt_tokens"),
    "cut below special tokens": Refusal(
        body=b'{"input": ["hello", "hello world"], "truncate_prompt_tokens": 1}',
        says="cut to 1 token: its 2 special tokens stay",
        param="input[0]",
    ),
    "nothing but a cut away text": Refusal(
        body=b'{"input": ["a", ""], "add_special_tokens": false}', says="input[1] gives no tokens", param="input[1]"
    ),
    "prompt_name unknown": fields('"prompt_name": "nope"', "this model has: passage, query", "prompt_name"),
    "model number": fields('"model": 5', "not int", "model"),
    "model unknown": Refusal(
        body=b'{"input": "hello", "model": "gpt-4"}',
        says="'gpt-4' is not served here; tiny, org/tiny-bert are",
        status=404,
        code="model_not_found",
    ),
    "model empty": Refusal(
        body=b'{"input": "hello", "model": ""}', says="'' is not served here", status=404, code="model_not_found"
    ),
    "body over the limit": Refusal(
        body=b'{"input": "%s"}' % (b"a" * 2_000_000),
        says="over the limit of 2000000 bytes (--max-body-bytes)",
        status=413,
        code="payload_too_large",
    ),
    "form": Refusal(
        body=b"input=hello",
        says="should be application/json, not 'application/x-www-form-urlencoded'",
        status=415,
        code="unsupported_media_type",
        headers={"content-type": "application/x-www-form-urlencoded"},
    ),
    "brotli": Refusal(
        body=b"\x0b\x02\x80{}\x03",
        says="content-encoding 'br' is not read here; gzip is",
        status=415,
        code="unsupported_media_type",
        headers=JSON_TYPE | {"content-encoding": "br"},
    ),
    "two codings": Refusal(
        body=b"\x1f\x8b",
        says="content-encoding 'gzip, gzip'",
        status=415,
        code="unsupported_media_type",
        headers=JSON_TYPE | {"content-encoding": "gzip, gzip"},
    ),
    "gzip that is none": Refusal(
        body=b'{"input": "hello"}', says="not valid gzip", headers=JSON_TYPE | {"content-encoding": "gzip"}
    ),
    "gzip that breaks off": Refusal(
        body=gzip.compress(b'{"input": "hello"}')[:-1],
        says="breaks off",
        headers=JSON_TYPE | {"content-encoding": "gzip"},
    ),
    "gzip of too much": Refusal(
        body=gzip.compress(b'{"input": "%s"}' % (b"a" * 2_000_000)),
        says="the body, unpacked, is over the limit of 2000000 bytes (--max-body-bytes)",
        status=413,
        code="payload_too_large",
        headers=JSON_TYPE | {"content-encoding": "gzip"},
    ),
    "gzip of nothing": Refusal(
        body=gzip.compress(b""), says="the body is empty", headers=JSON_TYPE | {"content-encoding": "gzip"}
    ),
}


@pytest.fixture(scope="module")
def client(live_url: str) -> Generator[httpx.Client]:
    """One connection for all of them, so that a request is also read from where the last one ended."""
    with httpx.Client(base_url=live_url, timeout=20) as client:
        yield client


def check_next_request(client: httpx.Client, info: EngineInfo) -> None:
    answer = client.post("/v1/embeddings", json={"input": "hello"})
    np.testing.assert_array_equal(vectors_of(answer), [expected_vector(info, [CLS, HELLO, SEP])])


@pytest.mark.parametrize("name", REFUSALS)
def test_refusal_says_what_is_wrong(client: httpx.Client, info: EngineInfo, name: str) -> None:
    refusal = REFUSALS[name]
    answer = client.post("/v1/embeddings", content=refusal.body, headers=refusal.headers)
    assert answer.headers["content-type"] == "application/json"
    assert answer.status_code == refusal.status, answer.text
    error = answer.json()["error"]
    assert refusal.says.lower() in error.pop("message").lower()
    assert error == {"type": "invalid_request_error", "param": refusal.param, "code": refusal.code}
    check_next_request(client, info)


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nothing", 404, "not_found"),
        ("POST", "/v1/nothing", 404, "not_found"),
        ("POST", "/v1/embeddings/", 404, "not_found"),
        ("POST", "/V1/embeddings", 404, "not_found"),
        ("GET", "/v1/models/gpt-4", 404, "model_not_found"),
        ("GET", "/v1/embeddings", 405, "method_not_allowed"),
        ("DELETE", "/embeddings", 405, "method_not_allowed"),
        ("BREW", "/v1/embeddings", 400, "malformed_request"),
        ("POST", "/v1/models", 405, "method_not_allowed"),
        ("POST", "/health", 405, "method_not_allowed"),
    ],
)
def test_wrong_path_or_method(
    client: httpx.Client, info: EngineInfo, method: str, path: str, status: int, code: str
) -> None:
    answer = client.request(method, path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    if status == 405:
        assert answer.headers["allow"] == ("POST" if "embeddings" in path else "GET")
    check_next_request(client, info)


def test_body_over_the_limit_without_content_length(client: httpx.Client, info: EngineInfo) -> None:
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        yield b'{"input": "'
        for _ in range(1000):
            sent += 1
            yield b"a" * 100_000

    try:
        answer = client.post("/v1/embeddings", content=endless(), headers=JSON_TYPE)
    except httpx.TransportError:
        pass  # the server closed while the rest was being sent, which is its right
    else:
        assert answer.status_code == 413
        assert "limit of 2000000 bytes" in answer.json()["error"]["message"]
    assert sent < 1000
    check_next_request(client, info)


@pytest.mark.parametrize("text", ["a", "é", "字", "\u0000", " ", "😀", "ﾊ"])
def test_megabyte_of_one_character_takes_bounded_time(client: httpx.Client, info: EngineInfo, text: str) -> None:
    run = text * (1_000_000 // (len(json.dumps(text, ensure_ascii=False).encode()) - 2))
    started = time.monotonic()
    answer = client.post("/v1/embeddings", json={"input": run})
    assert time.monotonic() - started < 5
    # A long word is one unknown token, blanks are none: both fit. Characters that are words by themselves do not.
    assert answer.status_code == (400 if text in "字" else 200), answer.text
    check_next_request(client, info)
