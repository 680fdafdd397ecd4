"""Strict reading of JSON bodies, beyond what the refusals over HTTP show."""

import json
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rosebed.core.errors import InvalidInput
from rosebed.ivy.http.json_body import JsonReader
from rosebed.ivy.http.json_keys import MOST_KEYS


class Body(msgspec.Struct):
    text: str | None = None
    number: int | None = None


READER = JsonReader(Body)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda values: st.lists(values) | st.dictionaries(st.text(), values),
)


@given(st.text(), st.booleans())
def test_any_text_is_read_as_it_was_written(text: str, ascii_only: bool) -> None:
    body = json.dumps({"text": text}, ensure_ascii=ascii_only).encode()
    assert READER.read(body).text == text


@given(JSON_VALUES)
def test_unknown_fields_never_matter(value: Any) -> None:
    body = json.dumps({"unknown": value, "text": "a", "other": value}).encode()
    assert READER.read(body) == Body(text="a")


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    with suppress(InvalidInput):
        assert isinstance(READER.read(body), Body)


@pytest.mark.parametrize(
    "body",
    [
        b'{"text": "\\"number\\": 1, \\"number\\": 2", "number": 3}',
        b'{"number": 3, "x": {"number": 1, "number": 2}}',
        b'{"number": 3, "x": ["number", "number"]}',
        b'{"text": "number", "number": 3}',
        b'{"number": 3, "x": {"number": 1' + b"0" * 5000 + b"}}",
        b'{"number": 3, "x": [' + b'"", ' * 200 + b'"number"]}',
        b'{"number": 3, "x": "a \\" b", "y": "number"}',
    ],
    ids=range(7),
)
def test_a_key_elsewhere_is_no_duplicate(body: bytes) -> None:
    assert READER.read(body).number == 3


def outcome(body: bytes) -> str:
    try:
        return str(READER.read(body).number)
    except InvalidInput as error:
        return error.message


def test_look_alikes_at_any_depth_are_read_or_refused() -> None:
    bodies = [b'{"number": 3, "x": ' + b'{"number": ' * n + b"1" + b"}" * n + b"}" for n in range(100, 1200, 20)]
    assert {outcome(body) for body in bodies} == {"3", "the body is nested too deeply"}


def test_duplicate_after_a_nested_look_alike() -> None:
    with pytest.raises(InvalidInput, match="'number' twice") as refused:
        READER.read(b'{"number": 1, "x": {"number": 2}, "number": 3}')
    assert refused.value.param == "number"


@pytest.mark.parametrize(
    "between", [b"", b'"x": [' + b'"", ' * 200 + b"1], ", b'"x": "\\"", '], ids=["few", "many", "escaped"]
)
def test_duplicates_are_found_among_any_number_of_strings(between: bytes) -> None:
    with pytest.raises(InvalidInput, match="'number' twice"):
        READER.read(b'{"number": 1, ' + between + b'"number": 3}')


def test_only_so_many_suspicious_keys_are_looked_at() -> None:
    def body(num_unknown: int) -> bytes:
        return b'{"\\u0061": 1, ' + b'"b": 1, ' * num_unknown + b'"number": 3}'

    assert READER.read(body(MOST_KEYS - 2)).number == 3
    with pytest.raises(InvalidInput, match=f"over {MOST_KEYS} keys"):
        READER.read(body(MOST_KEYS - 1))


def test_wrong_value_names_its_place() -> None:
    with pytest.raises(InvalidInput, match=r"^number: expected int or null, not str$") as refused:
        READER.read(b'{"number": "1"}')
    assert refused.value.param == "number"
