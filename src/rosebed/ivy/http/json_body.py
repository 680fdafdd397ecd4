"""JSON bodies, decoded once and strictly: one meaning or a refusal that says what is wrong. Knows no schema."""

import re
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from rosebed.core.errors import InvalidInput
from rosebed.ivy.http.json_keys import check_duplicates

Body = TypeVar("Body", bound=msgspec.Struct)

ReadBulk = Callable[[bytes], Any]
"""Decodes the one field that may be large, at a cost that it bounds beforehand."""

_PATH = re.compile(r"^(?P<problem>.*) - at `\$\.?(?P<path>.*)`$", re.DOTALL)
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")


class JsonReader(Generic[Body]):
    """Reads bodies of one schema: unknown fields ignored, duplicates of known ones refused."""

    def __init__(self, schema: type[Body]) -> None:
        self._decoder = msgspec.json.Decoder(schema)
        self._names = schema.__struct_encode_fields__
        self._written = frozenset(name.encode() for name in self._names)

    def read(self, body: bytes) -> Body:
        """The body as `schema`. InvalidInput names the field at fault."""
        value = decode(self._decoder, body)
        check_duplicates(body, self._names, self._written)
        return value


class BulkReader(Generic[Body]):
    """Reads large bodies: `field` is skipped at first, which makes no objects, and then left to `read_bulk`."""

    def __init__(self, schema: type[Body], field: str, read_bulk: ReadBulk) -> None:
        skipped = msgspec.defstruct(schema.__name__, [(field, msgspec.Raw, msgspec.Raw(b"null"))], bases=(schema,))
        self._reader = JsonReader[Any](skipped)
        self._field = field
        self._read_bulk = read_bulk

    def read(self, body: bytes) -> Body:
        """The body as `schema`. InvalidInput names the field at fault."""
        value = self._reader.read(body)
        setattr(value, self._field, self._read_bulk(bytes(getattr(value, self._field))))
        return value


def decode(decoder: "msgspec.json.Decoder[Any]", body: bytes, field: str = "") -> Any:
    """`body`, or its `field`, by `decoder`. InvalidInput says what is wrong, and where."""
    try:
        body.decode()  # the decoder itself skips over strings it has no use for
        return decoder.decode(body)
    except UnicodeDecodeError as error:
        raise InvalidInput(f"the body is not valid UTF-8: byte {error.start}") from None
    except msgspec.ValidationError as error:
        raise _wrong_value(str(error), field) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidInput(_syntax_problem(error, body)) from None


def _wrong_value(message: str, field: str) -> InvalidInput:
    match = _PATH.match(message)
    path = field + (match["path"] if match else "")
    problem = _plain(match["problem"] if match else message)
    return InvalidInput(f"{path}: {problem}", param=path) if path else InvalidInput(f"the body: {problem}")


def _plain(problem: str) -> str:
    lowered = problem[:1].lower() + problem[1:]
    return lowered.replace("`", "").replace(" | ", " or ").replace(", got ", ", not ")


def _syntax_problem(error: Exception, body: bytes) -> str:
    if isinstance(error, RecursionError):
        return "the body is nested too deeply"
    hint = "; surrogate escapes must come in pairs" if _SURROGATE_ESCAPE.search(body) else ""
    return f"the body is not valid JSON: {_plain(str(error).removeprefix('JSON is malformed: '))}{hint}"
