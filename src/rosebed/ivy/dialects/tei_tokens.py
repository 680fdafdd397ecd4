"""Hugging Face TEI: its tokenizer's routes.

Source: the OpenAPI document of text-embeddings-inference.
"""

from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any

import msgspec
import orjson

from rosebed.core.errors import InvalidInput
from rosebed.ivy.dialects.base import BodyOperation, Parts
from rosebed.ivy.dialects.openai import says
from rosebed.ivy.dialects.tei import ERRORS
from rosebed.ivy.http.bulk import BulkInputs
from rosebed.ivy.http.call import Call
from rosebed.ivy.http.endpoint import Resource
from rosebed.ivy.http.reply import Reply
from rosebed.ivy.request import EmptyInput
from rosebed.text.prompts import resolve_prompt
from rosebed.text.tokenizer import TextTokenizer, TokenizeOptions, TokenSpan

MAX_CHARACTERS = 1 << 18
"""Most text of one request: eight characters for each token of the longest models. An answer is up to a hundred times
as large as its texts."""
MAX_IDS = 1 << 18
"""Most ids of one request to decode."""
SLICE_TOKENS = 4096
"""Answers are written in slices of so many tokens: writing holds the interpreter lock."""


class TeiTokenizeBody(msgspec.Struct):
    """Texts to see as tokens."""

    inputs: Annotated[str | list[str] | None, says("One text or a list of texts.")] = None
    add_special_tokens: Annotated[bool | None, says("False leaves out [CLS], </s> and the like.")] = None
    prompt_name: Annotated[str | None, says("Name of one of the model's own prompts, put in front of every text.")] = (
        None
    )


class Token(msgspec.Struct):
    """One token and the characters it covers; none for special tokens."""

    id: int
    text: str
    special: bool
    start: int | None
    stop: int | None


class DecodeBody(msgspec.Struct):
    """Token ids to see as texts."""

    ids: Annotated[list[int | list[int]] | None, says("One list of token ids or a list of those.")] = None
    skip_special_tokens: Annotated[bool | None, says("False shows [CLS], </s> and the like too.")] = None


class TeiTokens:
    """The operations of the tokenizer."""

    def __init__(self, parts: Parts) -> None:
        self.error_shape = ERRORS
        self._parts = parts
        inputs = BulkInputs("inputs", max_inputs=parts.max_inputs)
        ids = BulkInputs("ids", max_inputs=parts.max_inputs)
        self._texts_reader = parts.reader(TeiTokenizeBody, "inputs", inputs.read_texts)
        self._ids_reader = parts.reader(DecodeBody, "ids", ids.read_ids)

    def operations(self) -> dict[str, BodyOperation]:
        """What the root decides about."""
        return {
            "tei.tokenize": BodyOperation(
                handle=self.tokenize,
                summary="Show texts as tokens",
                body=TeiTokenizeBody,
                answer=list[list[Token]],
                error_shape=self.error_shape,
                names={"input": "inputs"},
            )
        }

    def resources(self) -> list[Resource]:
        """Paths under the dialect's base URL that mean the same at the root."""
        decode = BodyOperation(
            handle=self.decode,
            summary="Show token ids as texts",
            body=DecodeBody,
            answer=list[str],
            error_shape=self.error_shape,
        )
        return [self._resource("/decode", decode)]

    def decided_resources(self) -> list[Resource]:
        """Paths that at the root others share."""
        return [self._resource("/tokenize", self.operations()["tei.tokenize"])]

    def _resource(self, path: str, operation: BodyOperation) -> Resource:
        return Resource(
            path=path, operations={"POST": operation.operation(self._parts.intake)}, error_shape=self.error_shape
        )

    async def tokenize(self, _call: Call, raw: bytes) -> Reply:
        body: TeiTokenizeBody = await self._texts_reader.read(raw)
        model = self._parts.directory.find(None)
        options = TokenizeOptions(
            prompt=resolve_prompt(model.spec, prompt_name=body.prompt_name),
            add_special_tokens=body.add_special_tokens is not False,
        )
        texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
        _check_count(texts, "inputs", self._parts.max_inputs)
        size = _size(texts or [], options)
        return Reply(200, await self._parts.workload.run(size, partial(_tokens, model.tokenizer, texts or [], options)))

    async def decode(self, _call: Call, raw: bytes) -> Reply:
        body: DecodeBody = await self._ids_reader.read(raw)
        lists = _id_lists(body.ids)
        _check_count(lists, "ids", self._parts.max_inputs)
        size = sum(map(len, lists))
        if size > MAX_IDS:
            raise InvalidInput(f"ids holds {size} token ids, over the limit of {MAX_IDS}", param="ids")
        tokenizer = self._parts.directory.find(None).tokenizer
        skip = body.skip_special_tokens is not False
        work = partial(_decoded, tokenizer, lists, is_flat=lists == [body.ids], skip_special_tokens=skip)
        return Reply(200, await self._parts.workload.run(size, work))


def _check_count(given: list[Any] | None, name: str, limit: int) -> None:
    """InvalidInput unless there is something to do, and no more than may be."""
    if not given:
        raise EmptyInput(f"{name} should hold at least one item", param=name)
    if len(given) > limit:
        raise InvalidInput(f"{name} holds {len(given)} items, over the limit of {limit} (--max-inputs)", param=name)


def _id_lists(ids: list[int | list[int]] | None) -> list[list[int]]:
    kinds = {type(item) for item in ids or ()}
    if len(kinds) > 1:
        raise InvalidInput("ids should be all token ids, or all lists of token ids, not a mixture", param="ids")
    if kinds == {int}:
        return [ids]  # pyright: ignore[reportReturnType]
    return ids or []  # pyright: ignore[reportReturnType]


def _decoded(tokenizer: TextTokenizer, lists: list[list[int]], *, is_flat: bool, skip_special_tokens: bool) -> bytes:
    return orjson.dumps(
        [
            tokenizer.decode(ids, skip_special_tokens=skip_special_tokens, name="ids" if is_flat else f"ids[{index}]")
            for index, ids in enumerate(lists)
        ]
    )


def _size(texts: list[str], options: TokenizeOptions) -> int:
    """Characters to go through. InvalidInput if there are too many."""
    size = sum(map(len, texts)) + len(texts) * len(options.prompt)
    if size > MAX_CHARACTERS:
        raise InvalidInput(
            f"inputs hold {size} characters, prompts included, over the limit of {MAX_CHARACTERS}", param="inputs"
        )
    return size


def _tokens(tokenizer: TextTokenizer, texts: list[str], options: TokenizeOptions) -> bytes:
    return b"[%b]" % b",".join(b"[%b]" % b",".join(_slices(tokenizer.token_spans(text, options))) for text in texts)


def _slices(spans: list[TokenSpan]) -> Iterator[bytes]:
    for start in range(0, len(spans), SLICE_TOKENS):
        yield msgspec.json.encode(spans[start : start + SLICE_TOKENS])[1:-1]
