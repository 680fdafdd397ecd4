"""Texts to token ids: prompt, lower-casing, special tokens, truncation. Knows no wire format and no tensors.

The shared `tokenizers.Tokenizer` is never changed after loading, so that any number of threads may use it with
different options: texts are encoded bare, and cutting and special tokens are done here.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from tokenizers import Encoding, Tokenizer

from rosebed.core.errors import ContextLengthExceeded, InvalidInput
from rosebed.core.model_spec import ModelSpec
from rosebed.core.types import Int32Array, whole_span
from rosebed.text.loading import load_tokenizer
from rosebed.text.special_tokens import SpecialTokenTemplate
from rosebed.text.tokenized import Side, TokenizedInput, TokenizeOptions, TokenSpan
from rosebed.text.truncation import keep

__all__ = ["Side", "TextTokenizer", "TokenSpan", "TokenizeOptions", "TokenizedInput"]

_DEFAULTS = TokenizeOptions()


class TextTokenizer:
    """One model's tokenizer. Safe to share between threads."""

    def __init__(self, tokenizer: Tokenizer, spec: ModelSpec, *, max_length: int) -> None:
        self.max_length = max_length
        """Most tokens of one sequence, special tokens included."""
        self._tokenizer = tokenizer
        self._spec = spec
        self._template = SpecialTokenTemplate.probe(tokenizer, 1)
        self._bare = SpecialTokenTemplate.bare(1)
        special = tokenizer.get_added_tokens_decoder().items()
        self._special_ids = frozenset(token_id for token_id, token in special if token.special)
        self._prompt_length = lru_cache(maxsize=1024)(self._measure_prompt)

    @classmethod
    def load(cls, spec: ModelSpec, *, max_length: int | None = None) -> "TextTokenizer":
        """Open the tokenizer of `spec.folder`. `max_length` tightens the model's own limit (a server's, say)."""
        limit = spec.max_length if max_length is None else min(max_length, spec.max_length)
        return cls(load_tokenizer(spec.folder), spec, max_length=limit)

    @property
    def num_special_tokens(self) -> int:
        """Special tokens added to one text, which truncation always keeps."""
        return self._template.num_tokens

    def tokenize(self, inputs: Sequence[str], options: TokenizeOptions = _DEFAULTS) -> list[TokenizedInput]:
        """Ids of each input, in order.

        InvalidInput names the lowest `input[i]` that is not valid Unicode or gives no tokens, ContextLengthExceeded
        the lowest that is over the limit while not truncating.
        """
        texts = [self._prepare(text, options) for text in inputs]
        return [
            self._finish(np.array(encoding.ids, np.int32), index, options)
            for index, encoding in enumerate(self._encode(texts))
        ]

    def wrap_token_ids(self, ids: Sequence[int], index: int, options: TokenizeOptions = _DEFAULTS) -> TokenizedInput:
        """Ids that a caller brought for `input[index]`, used as given: no prompt, no special tokens added.

        InvalidInput if there are none or one lies outside [0, vocab_size); too many are cut or refused as texts are.
        """
        vocab_size = self._spec.vocab_size
        for position, token_id in enumerate(ids):
            if not 0 <= token_id < vocab_size:
                raise InvalidInput(
                    f"input[{index}][{position}] is {token_id}, but token ids lie in [0, {vocab_size})",
                    param=f"input[{index}]",
                )
        return self._dress(np.array(ids, np.int32), index, self._bare, options)

    def token_spans(self, text: str, options: TokenizeOptions = _DEFAULTS) -> list[TokenSpan]:
        """Each token of the prompted text, uncut, with the characters it covers."""
        prepared = self._prepare(text, options)
        try:
            encoding = self._tokenizer.encode(prepared, add_special_tokens=options.add_special_tokens)
        except TypeError:
            raise _not_unicode(0) from None
        return [_token_span(encoding, position, prepared) for position in range(len(encoding.ids))]

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """The text that `ids` spell."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=skip_special_tokens)

    def _prepare(self, text: str, options: TokenizeOptions) -> str:
        prompted = options.prompt + text if options.prompt else text
        return prompted.lower() if self._spec.lower_case else prompted

    def _encode(self, texts: list[str]) -> list[Encoding]:
        try:
            return self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        except TypeError:
            raise _not_unicode(next(index for index, text in enumerate(texts) if not _is_unicode(text))) from None

    def _finish(self, content: Int32Array, index: int, options: TokenizeOptions) -> TokenizedInput:
        template = self._template if options.add_special_tokens else self._bare
        return self._dress(content, index, template, options)

    def _dress(
        self, content: Int32Array, index: int, template: SpecialTokenTemplate, options: TokenizeOptions
    ) -> TokenizedInput:
        num_tokens = len(content) + template.num_tokens
        if num_tokens == 0:
            raise InvalidInput(f"input[{index}] gives no tokens", param=f"input[{index}]")
        kept = keep(content, self._room(num_tokens, index, template, options), options.side)
        num_cut = len(content) - len(kept)
        token_ids = template.token_ids((kept,))
        return TokenizedInput(
            token_ids=token_ids,
            token_type_ids=template.token_type_ids((kept,)) if self._spec.type_vocab_size > 1 else None,
            pool_spans=self._pool_spans(len(token_ids), num_cut, options),
            num_tokens_before=num_tokens if num_cut else 0,
        )

    def _room(self, num_tokens: int, index: int, template: SpecialTokenTemplate, options: TokenizeOptions) -> int:
        """Tokens of the text itself that fit."""
        limit = self.max_length if options.truncate_to is None else min(self.max_length, options.truncate_to)
        if num_tokens > limit and not options.truncate:
            raise ContextLengthExceeded(
                f"input[{index}] has {num_tokens} tokens, over the limit of {limit}", param=f"input[{index}]"
            )
        if limit < max(1, template.num_tokens):
            raise InvalidInput(
                f"cannot cut to {limit} tokens: {template.num_tokens} special tokens are always kept",
                param=f"input[{index}]",
            )
        return limit - template.num_tokens

    def _pool_spans(self, num_tokens: int, num_cut: int, options: TokenizeOptions) -> Int32Array:
        spans = whole_span(num_tokens)
        if options.prompt and not self._spec.pool_prompt:
            start = self._prompt_length(options.prompt, options.add_special_tokens)
            start -= num_cut if options.side is Side.LEFT else 0
            if 0 < start < num_tokens:
                spans[0, 0] = start
        return spans

    def _measure_prompt(self, prompt: str, add_special_tokens: bool) -> int:
        """Tokens the prompt takes at the front: its own length, less a special token at its end.

        What sentence-transformers does; a prompt whose last piece merges with the text is off by one there too.
        """
        text = prompt.lower() if self._spec.lower_case else prompt
        ids = self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
        return len(ids) - (bool(ids) and ids[-1] in self._special_ids)


def _not_unicode(index: int) -> InvalidInput:
    return InvalidInput(f"input[{index}] is not valid Unicode: it has a lone surrogate", param=f"input[{index}]")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _token_span(encoding: Encoding, position: int, text: str) -> TokenSpan:
    token_id = encoding.ids[position]
    if encoding.special_tokens_mask[position]:
        return TokenSpan(id=token_id, text=encoding.tokens[position], special=True, start=None, stop=None)
    start, stop = encoding.offsets[position]
    return TokenSpan(id=token_id, text=text[start:stop], special=False, start=start, stop=stop)
