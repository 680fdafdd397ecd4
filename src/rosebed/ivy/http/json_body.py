"""JSON bodies, decoded once and strictly: one meaning or a refusal that says what is wrong. Knows no schema."""

import json
import re
from collections import Counter
from typing import Generic, TypeVar

import msgspec

from rosebed.core.errors import InvalidInput

Body = TypeVar("Body", bound=msgspec.Struct)

_PATH = re.compile(r"^(?P<problem>.*) - at `\$\.?(?P<path>.*)`$", re.DOTALL)
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")


class JsonReader(Generic[Body]):
    """Reads bodies of one schema: unknown fields ignored, duplicates of known ones refused."""

    def __init__(self, schema: type[Body]) -> None:
        self._decoder = msgspec.json.Decoder(schema)
        self._keys = [f'"{name}"'.encode() for name in schema.__struct_encode_fields__]

    def read(self, body: bytes) -> Body:
        """The body as `schema`. InvalidInput names the field at fault."""
        try:
            body.decode()  # the decoder itself skips over strings it has no use for
            value = self._decoder.decode(body)
        except UnicodeDecodeError as error:
            raise InvalidInput(f"the body is not valid UTF-8: byte {error.start}") from None
        except msgspec.ValidationError as error:
            raise _wrong_value(str(error)) from None
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidInput(_syntax_problem(error, body)) from None
        for key in self._keys:
            if body.count(key) > 1:
                _refuse_duplicates(body)
        return value


def _wrong_value(message: str) -> InvalidInput:
    match = _PATH.match(message)
    if match is None:
        return InvalidInput(f"the body: {_plain(message)}")
    path = match["path"]
    return InvalidInput(f"{path}: {_plain(match['problem'])}", param=path)


def _plain(problem: str) -> str:
    lowered = problem[:1].lower() + problem[1:]
    return lowered.replace("`", "").replace(" | ", " or ").replace(", got ", ", not ")


def _syntax_problem(error: Exception, body: bytes) -> str:
    if isinstance(error, RecursionError):
        return "the body is nested too deeply"
    hint = "; surrogate escapes must come in pairs" if _SURROGATE_ESCAPE.search(body) else ""
    return f"the body is not valid JSON: {_plain(str(error).removeprefix('JSON is malformed: '))}{hint}"


def _refuse_duplicates(body: bytes) -> None:
    """InvalidInput if the top object has a key twice, since two readers would disagree on what it says."""
    # NOTE: only run where the bytes of a key occur twice, which a nested object or a text may cause as well.
    try:
        # Numbers stay text: Python refuses to make an integer of over 4,300 digits.
        pairs: list[tuple[str, object]] = json.loads(body, object_pairs_hook=list, parse_int=str, parse_float=str)
    except RecursionError as error:
        raise InvalidInput(_syntax_problem(error, body)) from None
    names = Counter(name for name, _ in pairs)
    for name, count in names.items():
        if count > 1:
            raise InvalidInput(f"the body has {name!r} twice", param=name)
