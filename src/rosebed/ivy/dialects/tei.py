"""Hugging Face TEI's tokenization route.

Source: the OpenAPI document of text-embeddings-inference.
"""

import asyncio
from typing import Annotated

import msgspec

from rosebed.core.errors import InvalidInput
from rosebed.ivy.directory import ModelDirectory
from rosebed.ivy.http.call import Call
from rosebed.ivy.http.endpoint import Operation, Resource
from rosebed.ivy.http.faults import ErrorShape
from rosebed.ivy.http.json_body import JsonReader
from rosebed.ivy.http.reply import Reply
from rosebed.text.prompts import resolve_prompt
from rosebed.text.tokenizer import TextTokenizer, TokenizeOptions


class TokenizeBody(msgspec.Struct):
    """Texts to see as tokens."""

    inputs: Annotated[str | list[str] | None, msgspec.Meta(description="One text or a list of texts.")] = None
    add_special_tokens: Annotated[
        bool | None, msgspec.Meta(description="False leaves out [CLS], </s> and the like.")
    ] = None
    prompt_name: Annotated[
        str | None, msgspec.Meta(description="Name of one of the model's own prompts, put in front of every text.")
    ] = None


class Token(msgspec.Struct):
    """One token and the characters it covers; none for special tokens."""

    id: int
    text: str
    special: bool
    start: int | None
    stop: int | None


class Tei:
    """The dialect's operations."""

    def __init__(
        self, directory: ModelDirectory, error_shape: ErrorShape, *, max_body_bytes: int, max_inputs: int
    ) -> None:
        self._directory = directory
        self._error_shape = error_shape
        self._max_body_bytes = max_body_bytes
        self._max_inputs = max_inputs
        self._reader = JsonReader(TokenizeBody)

    def resources(self) -> list[Resource]:
        """Paths under the dialect's base URL."""
        tokenize = Operation(
            handler=self.tokenize, summary="Show texts as tokens", body=TokenizeBody, answer=list[list[Token]]
        )
        return [Resource(path="/tokenize", operations={"POST": tokenize}, error_shape=self._error_shape)]

    async def tokenize(self, call: Call) -> Reply:
        body = self._reader.read(await call.read_json(self._max_body_bytes))
        model = self._directory.find(None)
        options = TokenizeOptions(
            prompt=resolve_prompt(model.spec, prompt_name=body.prompt_name),
            add_special_tokens=body.add_special_tokens is not False,
        )
        texts = self._texts(body)
        return Reply(200, await asyncio.to_thread(_tokens, model.tokenizer, texts, options))

    def _texts(self, body: TokenizeBody) -> list[str]:
        texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
        if not texts:
            raise InvalidInput("inputs should hold at least one text", param="inputs")
        if len(texts) > self._max_inputs:
            raise InvalidInput(
                f"inputs holds {len(texts)} texts, over the limit of {self._max_inputs} (--max-inputs)", param="inputs"
            )
        return texts


def _tokens(tokenizer: TextTokenizer, texts: list[str], options: TokenizeOptions) -> bytes:
    return msgspec.json.encode([tokenizer.token_spans(text, options) for text in texts])
