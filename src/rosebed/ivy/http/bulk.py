"""Large lists in JSON, decoded only after a look at the bytes has shown that they hold no more than they may.

Decoding holds the interpreter lock: eleven million empty strings would hold up every other request for seconds, and
counting quotes takes milliseconds.
"""

import re
from typing import Any

import msgspec

from rosebed.core.errors import InvalidInput
from rosebed.ivy.http.json_body import decode

_BLANKS = rb"[ \t\r\n]*"
_KIND = re.compile(rb"(?P<list>\[%b)?(?P<first>.)" % (_BLANKS,), re.DOTALL)
_TEXT = msgspec.json.Decoder(str | None)
_TEXTS = msgspec.json.Decoder(list[str])
_IDS = msgspec.json.Decoder(list[int])
_ID_LISTS = msgspec.json.Decoder(list[list[int]])


MAX_IDS = 1 << 20
"""Most token ids of one list: more than any model takes."""
MAX_ALL_IDS = 1 << 23
"""Most token ids of one request."""


class BulkInputs:
    """Reads a text, a list of texts, one list of token ids, or a list of those."""

    def __init__(self, field: str, *, max_inputs: int) -> None:
        self._field = field
        self._max_inputs = max_inputs

    def read_texts(self, raw: bytes) -> Any:
        """One text or a list of texts."""
        if not raw.startswith(b"["):
            return decode(_TEXT, raw, self._field)
        # A quote after a backslash may be part of a text. At least every other quote that delimits one is not.
        least = (raw.count(b'"') - raw.count(b'\\"') + 1) // 2
        self._check(least, self._max_inputs, "inputs", " (--max-inputs)")
        return decode(_TEXTS, raw, self._field)

    def read(self, raw: bytes) -> Any:
        """Any of the four."""
        kind = _KIND.match(raw)
        if kind is None or not kind["list"] or kind["first"] == b'"':
            return self.read_texts(raw)
        num_ids = raw.count(b",") + 1
        if kind["first"] != b"[":
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
