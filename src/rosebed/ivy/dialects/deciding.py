"""Which dialect answers at the root, where several share a path. A table, and its reading of a body.

A body is decided by the keys it has, `null` or not, never by who sends it. Under a dialect's own prefix nothing is
decided. A body that cannot be read falls to the path's default, which says what is wrong in its own words; so does one
that has a key twice whose value would decide.
"""

from dataclasses import dataclass
from typing import Any

import msgspec

from rosebed.core.errors import InvalidInput
from rosebed.ivy.http.json_keys import check_duplicates


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

    def applies(self, fields: Any) -> bool:
        """`fields` has every deciding key, a `msgspec.Raw` or `UNSET`."""
        for key in self.any_of:
            value = getattr(fields, key)
            if value is not msgspec.UNSET and self._accepts(value):
                return True
        return False

    def _accepts(self, value: msgspec.Raw) -> bool:
        if not self.values and not self.is_object:
            return True
        written = bytes(value)
        if self.is_object:
            return written.startswith(b"{")
        return written.startswith(b'"') and msgspec.json.decode(written) in self.values


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
        by_value = [rule for rule in row.rules if rule.values or rule.is_object]
        self._once = frozenset(key for rule in by_value for key in rule.any_of)
        self._written = frozenset(key.encode() for key in self._once)
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(
            msgspec.defstruct("Keys", [(key, raw, msgspec.UNSET) for key in keys])
        )

    def decide(self, body: bytes) -> str:
        """The operation that answers `body`.

        InvalidInput where the row is exclusive and not one rule applies, or a key whose value decides comes twice.
        """
        try:
            # NOTE: other fields are skipped without making objects: a third of a microsecond for a short request.
            fields = self._decoder.decode(body)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            return self._row.default
        if any(getattr(fields, key) is not msgspec.UNSET for key in self._once):
            check_duplicates(body, self._once, self._written)
        if self._row.is_exclusive:
            return self._only(fields)
        for rule in self._row.rules:
            if rule.applies(fields):
                return rule.operation
        return self._row.default

    def _only(self, fields: Any) -> str:
        applying = [rule for rule in self._row.rules if rule.applies(fields)]
        if len(applying) != 1:
            raise InvalidInput(f"the body should have {' or '.join(self._keys)}, and not more than one of them")
        return applying[0].operation
