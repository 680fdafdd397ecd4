"""Large bodies: read as small ones are, and refused before objects are made where they hold too much."""

import json
from typing import Any

import pytest

from rosebed.core.errors import InvalidInput
from rosebed.ivy.dialects.openai import EmbeddingsBody
from rosebed.ivy.http.bulk import MAX_IDS, BulkInputs
from rosebed.ivy.http.json_body import BulkReader, JsonReader

SMALL = JsonReader(EmbeddingsBody)
LARGE = BulkReader(EmbeddingsBody, "input", BulkInputs("input", max_inputs=4).read)


@pytest.mark.parametrize(
    "value",
    ["a", None, [], ["a", 'b"\\', "\\", "ä"], [1, 2], [[1], [2, 3]], ["[", "[[", ",", '","']],
    ids=str,
)
def test_large_bodies_are_read_as_small_ones(value: Any) -> None:
    body = json.dumps({"input": value, "model": "m", "x": [value]}, indent=1).encode()
    assert LARGE.read(body).to_request() == SMALL.read(body).to_request() if value else not LARGE.read(body).input


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"[" + b'"",' * 10_000 + b'""]', "at least 10001 inputs, over the limit of 4"),
        (b"[" + b"[]," * 10_000 + b"[]]", "at least 10001 inputs, over the limit of 4"),
        (b"[" + b"1," * MAX_IDS + b"1]", f"at least {MAX_IDS + 1} token ids"),
        (b'["a",' + b"[]," * 10_000 + b"[]]", r"input\[1\]: expected str, not array"),
        (b"[1, -]", "not valid JSON"),
        (b"5", "input: expected str or null, not int"),
    ],
    ids=["texts", "lists", "ids", "mixture", "syntax", "number"],
)
def test_too_much_or_wrong_is_refused(raw: bytes, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        LARGE.read(b'{"input": %b}' % raw)


@pytest.mark.parametrize("reader", [SMALL, LARGE], ids=["small", "large"])
def test_an_escaped_key_is_a_duplicate_too(reader: JsonReader[EmbeddingsBody]) -> None:
    with pytest.raises(InvalidInput, match="'input' twice"):
        reader.read(rb'{"input": "a", "\u0069nput": "b"}')
