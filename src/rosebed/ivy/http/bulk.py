"""Large lists in JSON, decoded only after a look at the bytes has shown that they hold no more than they may.

Decoding holds the interpreter lock: eleven million empty strings would hold up every other request for seconds, and
counting quotes takes milliseconds.
"""

import re
from collections.abc import Callable
from itertools import islice
from typing import Any

import msgspec

from rosebed.core.errors import InvalidInput
from rosebed.ivy.http.json_body import decode

_BLANKS = rb"[ \t\r\n]*"
_KIND = re.compile(rb"(?P<list>\[%b)?(?P<first>.)" % (_BLANKS,), re.DOTALL)
_TEXT_OR_BRACKET = re.compile(rb'"(?:[^"\\]++|\\.)*+"|\[', re.DOTALL)
_TEXT = msgspec.json.Decoder(str | None)
_TEXTS = msgspec.json.Decoder(list[str])
_IDS = msgspec.json.Decoder(list[int] | None)
_ID_LISTS = msgspec.json.Decoder(list[list[int]])
_DOCUMENTS = msgspec.json.Decoder(list[list[str]] | None)


MAX_IDS = 1 << 20
"""Most token ids of one list: more than any model takes."""
MAX_ALL_IDS = 1 << 23
"""Most token ids of one request."""
MAX_ALL_CHUNKS = 1 << 16
"""Most chunks of documents of one request, well above what any dialect takes."""


class BulkInputs:
    """Reads a text, a list of texts, one list of token ids, or a list of those."""

    def __init__(self, field: str, *, max_inputs: int) -> None:
        self._field = field
        self._max_inputs = max_inputs

    def read_texts(self, raw: bytes) -> Any:
        """One text or a list of texts."""
        if not raw.startswith(b"["):
            return decode(_TEXT, raw, self._field)
        self._check(_least_texts(raw), self._max_inputs, "inputs", " (--max-inputs)")
        return decode(_TEXTS, raw, self._field)

    def reading(self, kind: Any, *, strings_each: int = 1) -> Callable[[bytes], Any]:
        """A reader of lists of `kind`, any type msgspec knows, with at most so many strings to an input."""
        decoder = msgspec.json.Decoder(kind)

        def read(raw: bytes) -> Any:
            self._check(_least_texts(raw) // strings_each, self._max_inputs, "inputs", " (--max-inputs)")
            return decode(decoder, raw, self._field)

        return read

    def read_documents(self, raw: bytes) -> Any:
        """A list of lists of texts."""
        self._check(_least_texts(raw), MAX_ALL_CHUNKS, "chunks")
        if raw.count(b"[") > self._max_inputs:  # texts hold brackets too
            brackets = islice(
                (found for found in _TEXT_OR_BRACKET.finditer(raw) if found[0] == b"["), self._max_inputs + 2
            )
            self._check(sum(1 for _ in brackets) - 1, self._max_inputs, "inputs", " (--max-inputs)")
        return decode(_DOCUMENTS, raw, self._field)

    def read(self, raw: bytes) -> Any:
        """Any of the four."""
        kind = _KIND.match(raw)
        is_text = kind is None or not kind["list"] or kind["first"] == b'"'
        return self.read_texts(raw) if is_text else self.read_ids(raw)

    def read_ids(self, raw: bytes) -> Any:
        """One list of token ids, or a list of those."""
        kind = _KIND.match(raw)
        num_ids = raw.count(b",") + 1
        if kind is None or not kind["list"] or kind["first"] != b"[":
            self._check(num_ids, MAX_IDS, "token ids")
            return decode(_IDS, raw, self._field)
        self._check(raw.count(b"[") - 1, self._max_inputs, "inputs", " (--max-inputs)")
        self._check(num_ids, MAX_ALL_IDS, "token ids")
        return decode(_ID_LISTS, raw, self._field)

    def _check(self, least: int, limit: int, what: str, flag: str = "") -> None:
        """InvalidInput if there are too many; `least` is a lower bound on their number."""
        if least > limit:
            raise InvalidInput(
                f"{self._field} holds at least {least} {what}, over the limit of {limit}{flag}", param=self._field
            )


def _least_texts(raw: bytes) -> int:
    """How many texts there are at least."""
    # A quote after a backslash may be part of a text. At least every other quote that delimits one is not.
    return (raw.count(b'"') - raw.count(b'\\"') + 1) // 2
