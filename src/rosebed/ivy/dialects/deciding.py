"""Which dialect answers at the root, where several share a path. A table, and its reading of a body.

A body is decided by the keys it has, `null` or not, never by who sends it. Under a dialect's own prefix nothing is
decided. A body that cannot be read falls to the path's default, which says what is wrong in its own words.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from rosebed.core.errors import InvalidInput

Fields = Mapping[str, bytes]
"""Key → its JSON, of those keys that decide something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What bodies an operation answers."""

    operation: str
    """`dialect.name`, as in `BodyOperation`s."""
    any_of: tuple[str, ...]
    """The body has one of these keys …"""
    values: tuple[str, ...] = ()
    """… and, if there are any, its value is one of these strings …"""
    is_object: bool = False
    """… or is an object."""

    def applies(self, fields: Fields) -> bool:
        return any(self._accepts(fields[key]) for key in self.any_of if key in fields)

    def _accepts(self, value: bytes) -> bool:
        if self.values:
            return value.startswith(b'"') and msgspec.json.decode(value) in self.values
        return value.startswith(b"{") or not self.is_object


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What is decided at some paths, all alike: the first rule that applies, else the default."""

    paths: tuple[str, ...]
    rules: tuple[Rule, ...]
    default: str
    is_exclusive: bool = False
    """A body to which none of the rules applies, or more than one, is refused."""

    @property
    def operations(self) -> tuple[str, ...]:
        """All that may answer, the default first."""
        return tuple(dict.fromkeys((self.default, *(rule.operation for rule in self.rules))))


ROOT = (
    Row(
        paths=("/v1/embeddings", "/embeddings"),
        rules=(
            Rule(
                operation="perplexity.embeddings", any_of=("encoding_format",), values=("base64_int8", "base64_binary")
            ),
            Rule(operation="voyage.embeddings", any_of=("truncation", "output_dtype", "output_dimension")),
            Rule(operation="jina.embeddings", any_of=("task", "embedding_type", "late_chunking", "normalized")),
        ),
        default="openai.embeddings",
    ),
    Row(
        paths=("/v1/contextualizedembeddings",),
        rules=(
            Rule(operation="perplexity.contextualized", any_of=("input",)),
            Rule(operation="voyage.contextualized", any_of=("inputs",)),
        ),
        default="perplexity.contextualized",
        is_exclusive=True,
    ),
    Row(
        paths=("/tokenize",),
        rules=(
            Rule(operation="tei.tokenize", any_of=("inputs",)),
            Rule(operation="vllm.tokenize", any_of=("prompt", "messages")),
        ),
        default="tei.tokenize",
    ),
    Row(
        paths=("/", "/invocations"),
        rules=(
            Rule(operation="tei.rerank", any_of=("texts",)),
            Rule(operation="tei.similarity", any_of=("inputs",), is_object=True),
        ),
        default="tei.inputs",
    ),
    Row(
        paths=("/v1/rerank",),
        rules=(Rule(operation="voyage.rerank", any_of=("top_k", "truncation")),),
        default="vllm.rerank",
    ),
    Row(
        paths=("/rerank",),
        rules=(
            Rule(operation="tei.rerank", any_of=("texts",)),
            Rule(operation="vllm.rerank", any_of=("documents",)),
        ),
        default="tei.rerank",
        is_exclusive=True,
    ),
)
"""All paths at the root that more than one operation answers."""


class Decider:
    """Reads bodies for one row."""

    def __init__(self, row: Row) -> None:
        self._row = row
        keys = tuple(dict.fromkeys(key for rule in row.rules for key in rule.any_of))
        raw = msgspec.Raw | msgspec.UnsetType
        self._keys = keys
        self._decoder = msgspec.json.Decoder(msgspec.defstruct("Keys", [(key, raw, msgspec.UNSET) for key in keys]))

    def decide(self, body: bytes) -> str:
        """The operation that answers `body`. InvalidInput where the row is exclusive and not one rule applies."""
        fields = self._fields(body)
        if fields is None:
            return self._row.default
        applying = [rule for rule in self._row.rules if rule.applies(fields)]
        if self._row.is_exclusive and len(applying) != 1:
            raise InvalidInput(f"the body should have {' or '.join(self._keys)}, and not more than one of them")
        return applying[0].operation if applying else self._row.default

    def _fields(self, body: bytes) -> Fields | None:
        """The deciding fields; None of what is no JSON object."""
        # NOTE: other fields are skipped without making objects: a third of a microsecond for a short request.
        try:
            found: Any = self._decoder.decode(body)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            return None
        fields = {key: value for key in self._keys if (value := getattr(found, key)) is not msgspec.UNSET}
        return {key: bytes(value) for key, value in fields.items()}
