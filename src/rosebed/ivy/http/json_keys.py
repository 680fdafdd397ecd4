"""Finds keys that a JSON object has twice, since two readers would disagree on what it says. Knows no schema."""

import json
import re
from collections.abc import Collection, Iterator

from rosebed.core.errors import InvalidInput

_ESCAPED_LETTER = re.compile(rb"\\u00(?:[46][1-9a-fA-F]|[57][0-9aA]|5[fF])")
_PART = re.compile(
    rb'(?P<text>"(?:[^"\\]++|\\.)*+")(?P<colon>[ \t\r\n]*:)?|(?P<open>[{\[])|(?P<close>[}\]])', re.DOTALL
)

MOST_KEYS = 1000
"""Of an object with something suspicious about its keys: to look at each takes time."""


FEW_QUOTES = 128
"""With no more of them than this, all strings of a body are looked at at once."""


def check_duplicates(body: bytes, names: Collection[str], written: frozenset[bytes]) -> None:
    """InvalidInput if the top object of `body`, which is valid JSON, has one of `names` twice.

    `written` are the names as they are commonly written, without quotes. Nothing is looked for where the bytes of none
    come twice and no letter is escaped, as no program escapes one.
    """
    if _come_once(body, written):
        return
    found = set[str]()
    for count, key in enumerate(_top_keys(body)):
        if count == MOST_KEYS:
            raise InvalidInput(f"the body has over {MOST_KEYS} keys")
        if key in found:
            raise InvalidInput(f"the body has {key!r} twice", param=key)
        if key in names:
            found.add(key)


def _come_once(body: bytes, written: frozenset[bytes]) -> bool:
    """Whether no string of `body` that is a name comes twice; False if that takes a closer look."""
    if b"\\" not in body:
        parts = body.split(b'"', FEW_QUOTES)
        if len(parts) <= FEW_QUOTES:
            names = [part for part in parts[1::2] if part in written]
            return len(names) == len(set(names))
    elif _ESCAPED_LETTER.search(body) is not None:
        return False
    return all(body.count(b'"%b"' % name) < 2 for name in written)


def _top_keys(body: bytes) -> Iterator[str]:
    """The keys of the top object, unescaped."""
    # NOTE: a loop in Python, not one call into C: the interpreter's other threads get their turn meanwhile.
    depth = 0
    for part in _PART.finditer(body):
        if part["open"]:
            depth += 1
        elif part["close"]:
            depth -= 1
        elif depth == 1 and part["colon"]:
            yield json.loads(part["text"])
