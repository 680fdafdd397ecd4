"""Hugging Face TEI's tokenization route.

Source: the OpenAPI document of text-embeddings-inference.
"""

from collections.abc import Iterator
from functools import partial
from typing import Annotated

import msgspec

from rosebed.core.errors import InvalidInput
from rosebed.ivy.dialects.bodies import BodyReader
from rosebed.ivy.directory import ModelDirectory
from rosebed.ivy.http.bulk import BulkInputs
from rosebed.ivy.http.call import Call
from rosebed.ivy.http.endpoint import Operation, Resource
from rosebed.ivy.http.faults import ErrorShape
from rosebed.ivy.http.intake import BodyIntake
from rosebed.ivy.http.reply import Reply
from rosebed.ivy.workload import Workload
from rosebed.text.prompts import resolve_prompt
from rosebed.text.tokenizer import TextTokenizer, TokenizeOptions, TokenSpan

MAX_CHARACTERS = 1 << 18
"""Most text of one request: eight characters for each token of the longest models. An answer is up to a hundred times
as large as its texts."""
SLICE_TOKENS = 4096
"""Answers are written in slices of so many tokens: writing holds the interpreter lock."""


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
        self,
        directory: ModelDirectory,
        error_shape: ErrorShape,
        *,
        intake: BodyIntake,
        workload: Workload,
        max_inputs: int,
    ) -> None:
        self._directory = directory
        self._error_shape = error_shape
        self._workload = workload
        self._max_inputs = max_inputs
        inputs = BulkInputs("inputs", max_inputs=max_inputs)
        self._reader = BodyReader(TokenizeBody, "inputs", inputs.read_texts, intake=intake, workload=workload)

    def resources(self) -> list[Resource]:
        """Paths under the dialect's base URL."""
        tokenize = Operation(
            handler=self.tokenize, summary="Show texts as tokens", body=TokenizeBody, answer=list[list[Token]]
        )
        return [Resource(path="/tokenize", operations={"POST": tokenize}, error_shape=self._error_shape)]

    async def tokenize(self, call: Call) -> Reply:
        body = await self._reader.read(call)
        model = self._directory.find(None)
        options = TokenizeOptions(
            prompt=resolve_prompt(model.spec, prompt_name=body.prompt_name),
            add_special_tokens=body.add_special_tokens is not False,
        )
        texts = self._texts(body)
        size = _size(texts, options)
        return Reply(200, await self._workload.run(size, partial(_tokens, model.tokenizer, texts, options)))

    def _texts(self, body: TokenizeBody) -> list[str]:
        texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
        if not texts:
            raise InvalidInput("inputs should hold at least one text", param="inputs")
        if len(texts) > self._max_inputs:
            raise InvalidInput(
                f"inputs holds {len(texts)} texts, over the limit of {self._max_inputs} (--max-inputs)", param="inputs"
            )
        return texts


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
