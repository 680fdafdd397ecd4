"""What the HTTP clients send, and what they make of every kind of answer."""

import json
from typing import Any

import numpy as np
import pytest

from rosebed.client import messages
from rosebed.core.encodings import to_base64
from rosebed.core.errors import (
    ERROR_TABLE,
    ConfigError,
    InvalidInput,
    Overloaded,
    RequestError,
    RosebedError,
    ServerError,
    Unavailable,
)


@pytest.mark.parametrize("url", ["http://host:1", "http://host:1/", "http://host:1/v1", "http://host:1/v1/"])
def test_base_url_may_be_written_as_for_other_clients(url: str) -> None:
    assert messages.server_root(url) == "http://host:1"


def test_a_path_before_v1_stays() -> None:
    assert messages.server_root("https://host/gateway/v1") == "https://host/gateway"


def test_body_holds_only_what_was_given() -> None:
    body = messages.embeddings_body(["a", "b"], {"model": "m", "dimensions": None, "normalize": False})
    assert body == {"input": ["a", "b"], "encoding_format": "base64", "model": "m", "normalize": False}


def test_one_text_instead_of_a_list_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"embed\(\[text\]\)") as caught:
        messages.embeddings_body("a text", {})
    assert caught.value.param == "texts"


@pytest.mark.parametrize(
    ("texts", "param"),
    [([1, 2], "input[0]"), (["a", None], "input[1]"), (None, "texts"), ([], "texts"), (["a", "\ud800"], "input[1]")],
)
def test_what_is_no_list_of_texts_is_refused_before_it_is_sent(texts: Any, param: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        messages.embeddings_body(texts, {})
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("dimensions", "384"),
        ("dimensions", 1.5),
        ("dimensions", True),
        ("dimensions", 0),
        ("dimensions", -1),
        ("normalize", "x"),
        ("truncate", 1),
        ("prompt_name", ["a"]),
        ("prompt", b"a"),
        ("prompt", "\ud800"),
        ("model", 5),
        ("input_type", {}),
        ("dimension", 8),
    ],
)
def test_a_wrong_option_is_named_before_it_is_sent(name: str, value: Any) -> None:
    options: Any = {name: value}
    with pytest.raises(InvalidInput, match=name) as caught:
        messages.embeddings_body(["a"], options)
    assert caught.value.param == name


def test_numpy_numbers_and_flags_are_sent_as_json_knows_them() -> None:
    options: Any = {"dimensions": np.int64(8), "normalize": np.bool_(False)}
    body = json.loads(json.dumps(messages.embeddings_body(["a"], options)))
    assert (body["dimensions"], body["normalize"]) == (8, False)


@pytest.mark.parametrize("api_key", [5, "a\nb", "schlüssel"])
def test_a_key_that_no_header_can_hold_is_refused(api_key: Any) -> None:
    with pytest.raises(ConfigError, match="api_key"):
        messages.headers(api_key)


@pytest.mark.parametrize("url", [None, "127.0.0.1:8080", "localhost", "ftp://host"])
def test_a_base_url_without_a_scheme_is_refused(url: Any) -> None:
    with pytest.raises(ConfigError, match=f"http:// or https://, not be {url!r}"):
        messages.server_root(url)


def test_vectors_come_in_the_order_of_the_texts_and_exact() -> None:
    rows = np.array([[1.5, -0.1], [3e-39, 2.0], [0.0, -7.25]], np.float32)
    data = [{"index": i, "embedding": to_base64(rows[i])} for i in (2, 0, 1)]
    parsed = messages.parse_embeddings(json.dumps({"data": data}).encode())
    assert parsed.dtype == np.float32
    np.testing.assert_array_equal(parsed, rows)


@pytest.mark.parametrize("content", [b"<html>", b"[]", b'{"data": 3}', b'{"data": []}', b'{"data":[{"index":0}]}'])
def test_an_answer_that_is_no_embeddings_is_a_server_error(content: bytes) -> None:
    with pytest.raises(ServerError, match="not a list of embeddings"):
        messages.parse_embeddings(content)


def test_model_names() -> None:
    assert messages.parse_models(b'{"object":"list","data":[{"id":"a/b"},{"id":"c"}]}') == ["a/b", "c"]
    with pytest.raises(ServerError, match="not a list of models"):
        messages.parse_models(b"{}")


@pytest.mark.parametrize("error_type", ERROR_TABLE)
def test_every_listed_error_arrives_as_itself(error_type: type[RosebedError]) -> None:
    mapping = ERROR_TABLE[error_type]
    body = {"error": {"message": "why", "type": "t", "param": "input[3]", "code": mapping.code}}
    error = messages.parse_error(mapping.http_status, {"retry-after": "7"}, json.dumps(body).encode())
    assert type(error) is error_type
    assert error.message == "why"
    assert error.param == "input[3]"
    assert not isinstance(error, Overloaded | Unavailable) or error.retry_after_s == 7


@pytest.mark.parametrize(
    ("status", "expected"),
    [(404, RequestError), (429, Overloaded), (500, ServerError), (502, Unavailable), (503, Unavailable)],
)
@pytest.mark.parametrize(
    "content", [b"<html>no</html>", b'{"error": "no"}', b'{"error": {"message": "no", "code": null}}', b"[]", b""]
)
def test_a_foreign_error_is_judged_by_its_status(status: int, expected: type[RosebedError], content: bytes) -> None:
    error = messages.parse_error(status, {}, content)
    assert type(error) is expected
    assert error.message.startswith(f"HTTP {status}: ")
