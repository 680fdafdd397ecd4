"""Texts to token ids: prompt, lower-casing, special tokens, truncation. Knows no wire format and no tensors.

The shared tokenizer is never changed after loading, so that any number of threads may use it with different options:
texts are encoded bare, and cutting and special tokens are done here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice

import numpy as np
from tokenizers import Tokenizer

from rosebed.core.counting import counted
from rosebed.core.errors import CheckpointError, ConfigError, InvalidInput
from rosebed.core.model_spec import ModelSpec
from rosebed.core.scorer import ScorerKind
from rosebed.core.token_ids import all_below, int32_ids
from rosebed.core.types import Int32Array, whole_span
from rosebed.text.boundaries import splits_at_blanks
from rosebed.text.chunks import join_chunks
from rosebed.text.encoders import Encoder, choose_encoder
from rosebed.text.heads import LEAST_CHARACTERS, MOST_CHARACTERS, Ids, encode_heads, encode_whole, groups
from rosebed.text.loading import load_tokenizer
from rosebed.text.question import LiteralEncoder, question_template, question_texts
from rosebed.text.special_tokens import SpecialTokenTemplate
from rosebed.text.tokenized import PairCut, Side, TokenizedInput, TokenizeOptions, TokenSpan
from rosebed.text.truncation import fit, keep, part_name, too_long

__all__ = ["ForeignTokenId", "PairCut", "Side", "TextTokenizer", "TokenSpan", "TokenizeOptions", "TokenizedInput"]

_DEFAULTS = TokenizeOptions()
_BARE = SpecialTokenTemplate.bare(1)
_BARE_PAIR = SpecialTokenTemplate.bare(2)
_REMEMBERED_CHARACTERS = 4096
"""Prompts up to this long are measured once."""


class ForeignTokenId(InvalidInput):
    """An id that a caller brought and the model has not: as a rule another tokenizer's."""


class TextTokenizer:
    """One model's tokenizer. Safe to share between threads."""

    def __init__(self, tokenizer: Tokenizer, encoder: Encoder, spec: ModelSpec, *, max_length: int) -> None:
        self.max_length = max_length
        """Most tokens of one sequence, special tokens included."""
        self._tokenizer = tokenizer
        self._encoder = encoder
        self._spec = spec
        self._template = SpecialTokenTemplate.probe(tokenizer, 1)
        self._asks = spec.scorer is not None and spec.scorer.kind is ScorerKind.YES_NO
        self._pair_template = question_template(tokenizer) if self._asks else SpecialTokenTemplate.probe(tokenizer, 2)
        self._splits_at_blanks = splits_at_blanks(tokenizer)
        added = tokenizer.get_added_tokens_decoder().items()
        self._has_strangers = max(tokenizer.get_vocab().values(), default=0) >= spec.vocab_size
        self._special_ids = frozenset(token_id for token_id, token in added if token.special)
        self._prompt_length = lru_cache(maxsize=1024)(self._measure_prompt)
        self._separator = _separator(tokenizer, spec)

    @classmethod
    def load(cls, spec: ModelSpec, *, max_length: int | None = None) -> "TextTokenizer":
        """Open the tokenizer of `spec.folder`. `max_length` tightens the model's own limit (a server's, say).

        CheckpointError if the folder's tokenizer cannot be read, ConfigError if the limit leaves no room for text.
        """
        limit = spec.max_length if max_length is None else min(max_length, spec.max_length)
        loaded = _load_with_room(spec, limit)
        encoder = choose_encoder(spec.folder, loaded)
        if spec.scorer is not None and spec.scorer.kind is ScorerKind.YES_NO:
            encoder = LiteralEncoder.of(loaded, encoder)
        return cls(loaded, encoder, spec, max_length=limit)

    @property
    def num_special_tokens(self) -> int:
        """Special tokens added to one text, which truncation always keeps."""
        return self._template.num_tokens

    def tokenize(self, inputs: Sequence[str], options: TokenizeOptions = _DEFAULTS) -> list[TokenizedInput]:
        """Ids of each input, in order.

        Names the lowest `input[i]` at fault: InvalidInput for what is no text, not valid Unicode or gives no tokens,
        ContextLengthExceeded for what is over the limit while nothing is to be cut.
        """
        template = self._template if options.add_special_tokens else _BARE
        return self._tokenize([(text,) for text in inputs], template, options)

    def tokenize_pairs(
        self, pairs: Sequence[tuple[str, str]], options: TokenizeOptions = _DEFAULTS
    ) -> list[TokenizedInput]:
        """Ids of each (first, second) pair as one sequence with segments, in order. Raises as `tokenize` does.

        Of a model that is asked a question, they are that; `options.prompt` is its instruction then, and only the
        second text is ever cut.
        """
        if self._asks:
            rows = question_texts(pairs, options.prompt)
            options = replace(options, prompt="", pair_cut=PairCut.SECOND)
            return self._tokenize(rows, self._pair_template, options)
        template = self._pair_template if options.add_special_tokens else _BARE_PAIR
        return self._tokenize(pairs, template, options)

    def tokenize_documents(
        self, documents: Sequence[Sequence[str]], options: TokenizeOptions = _DEFAULTS
    ) -> list[TokenizedInput]:
        """Each document's chunks as one sequence with a pool span for each chunk, in order.

        Chunks are tokenized by themselves; a prompt and special tokens go around all of them, the model's separator, if
        it has one, between them, and neither is pooled. Nothing is ever cut. Names what is at fault: InvalidInput for
        an `input[i][j]` that is no text, not valid Unicode or gives no tokens, or an `input[i]` without chunks;
        ContextLengthExceeded for an `input[i]` over the limit.
        """
        return [self._document(chunks, index, options) for index, chunks in enumerate(documents)]

    def wrap_token_ids(
        self, ids: Sequence[int], index: int, options: TokenizeOptions = _DEFAULTS, *, name: str | None = None
    ) -> TokenizedInput:
        """Ids that a caller brought for `input[index]`, used as given: no prompt, no special tokens added.

        `name` is what the caller knows them by, if not `input[index]`.

        InvalidInput if there are none or one lies outside [0, vocab_size). Too many are cut or refused as texts are;
        where they carry the special tokens that a text would get, cutting keeps those.
        """
        own = f"input[{index}]"
        array = self._check_vocabulary(ids, name or own, param=None if name else own)
        if len(array) == 0:
            raise InvalidInput(f"input[{index}] gives no tokens", param=own)
        limit = self._limit(options)
        before, after = self._template.gaps
        if len(array) <= limit:
            kept = array
        elif self._template.strip(array.tolist()) is None:
            (kept,) = fit((array,), limit=limit, num_special=0, index=index, options=options)
        else:
            bare = array[len(before) : len(array) - len(after)]
            num_special = self._template.num_tokens
            (kept,) = fit((bare,), limit=limit, num_special=num_special, index=index, options=options)
            kept = np.concatenate([np.array(before, np.int32), kept, np.array(after, np.int32)])
        return TokenizedInput(
            token_ids=kept,
            token_type_ids=self._types_of_given(kept),
            pool_spans=whole_span(len(kept)),
            num_tokens_before=len(array) if len(kept) < len(array) else 0,
        )

    def token_spans(self, text: str, options: TokenizeOptions = _DEFAULTS) -> list[TokenSpan]:
        """Each token of the prompted (and, where the model asks for it, lowered) text, uncut, with its characters."""
        prepared = self._prepare((text,), options)[0]
        if complaint := _complaint(prepared, "input[0]"):
            raise complaint
        encoding = self._tokenizer.encode(prepared, add_special_tokens=options.add_special_tokens)
        columns = encoding.ids, encoding.tokens, encoding.special_tokens_mask, encoding.offsets
        return [
            TokenSpan(id=token_id, text=token, special=True, start=None, stop=None)
            if special
            else TokenSpan(id=token_id, text=prepared[start:stop], special=False, start=start, stop=stop)
            for token_id, token, special, (start, stop) in zip(*columns, strict=True)
        ]

    def token_strings(self, text: str, options: TokenizeOptions = _DEFAULTS) -> tuple[list[int], list[str]]:
        """The ids of a text, uncut, and the tokens as the vocabulary has them. The text is valid Unicode."""
        prepared = self._prepare((text,), options)[0]
        encoding = self._tokenizer.encode(prepared, add_special_tokens=options.add_special_tokens)
        return encoding.ids, encoding.tokens

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True, name: str = "ids") -> str:
        """The text of `ids`, which the caller calls `name`. InvalidInput if one lies outside [0, vocab_size)."""
        self._check_vocabulary(ids, name, param=None)
        return self._tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)

    def _types_of_given(self, ids: Int32Array) -> Int32Array | None:
        """Segments of ids that a caller brought: those of a dressed text, if they are one."""
        if not self._template.has_types or self._spec.type_vocab_size <= 1:
            return None
        content = self._template.strip(ids.tolist())
        types = None if content is None else self._template.token_type_ids((content,))
        return None if types is None else np.array(types, np.int32)

    def _check_vocabulary(self, ids: Sequence[int], name: str, *, param: str | None) -> Int32Array:
        """`ids` in numpy. `param` is what the refusal names; None for the very id."""
        vocab_size = self._spec.vocab_size
        array = int32_ids(ids)
        if array is not None and (len(array) == 0 or all_below(array, vocab_size)):
            return array
        position, wrong = next((i, token_id) for i, token_id in enumerate(ids) if not 0 <= token_id < vocab_size)
        place = f"{name}[{position}]"
        raise ForeignTokenId(f"{place} is {wrong}, but token ids lie in [0, {vocab_size})", param=param or place)

    def _tokenize(
        self, rows: Sequence[tuple[str, ...]], template: SpecialTokenTemplate, options: TokenizeOptions
    ) -> list[TokenizedInput]:
        if len(rows) == 1 and len(rows[0]) == 1 and len(str(rows[0][0])) + len(options.prompt) <= LEAST_CHARACTERS:
            return [self._tokenize_short(rows[0], template, options)]
        done: list[TokenizedInput] = []
        for group in self._groups(rows, options):
            try:
                texts = [text for row in rows[group] for text in self._prepare(row, options)]
                found = iter(self._encode(texts, template, options))
            except (TypeError, AttributeError, UnicodeEncodeError):
                raise self._fault(rows, group, template, options) from None
            for index in range(group.start, group.stop):
                row = tuple(islice(found, len(rows[index])))
                done.append(self._dress(row, index, template, options))
        return done

    def _tokenize_short(
        self, row: tuple[str, ...], template: SpecialTokenTemplate, options: TokenizeOptions
    ) -> TokenizedInput:
        """One text, too short to be worth a head, as in nearly every online request."""
        try:
            (ids,) = self._encoder.encode(self._prepare(row, options))
        except (TypeError, AttributeError, UnicodeEncodeError):
            raise self._fault((row,), slice(0, 1), template, options) from None
        if 0 < len(ids) + template.num_tokens <= self._limit(options):
            return self._dressed((ids,), 0, 0, template, options)
        return self._dress((Ids(ids),), 0, template, options)

    def _groups(self, rows: Sequence[tuple[str, ...]], options: TokenizeOptions) -> Iterator[slice]:
        # Not by the length of heads: where there is no place to cut, all of a text is encoded.
        lengths = (sum(min(len(str(text)), MOST_CHARACTERS) for text in row) for row in rows)
        return groups([len(options.prompt) + length for length in lengths])

    def _encode(self, texts: list[str], template: SpecialTokenTemplate, options: TokenizeOptions) -> list[Ids]:
        cuts_left = options.truncate and options.side is Side.LEFT
        if len(template.text_types) > 1 or cuts_left or not self._splits_at_blanks:
            return encode_whole(self._encoder, texts)
        return encode_heads(self._encoder, texts, self._limit(options) - template.num_tokens)

    def _document(self, chunks: Sequence[str], index: int, options: TokenizeOptions) -> TokenizedInput:
        if not chunks:
            raise InvalidInput(f"input[{index}] holds no chunks", param=f"input[{index}]")
        template = self._template if options.add_special_tokens else _BARE
        content, spans = join_chunks(
            self._chunk_ids(chunks, index, options),
            before=self._bare_ids((options.prompt,), ("prompt",), index)[0] if options.prompt else (),
            separator=self._separator,
        )
        token_ids = template.token_ids((content,))
        self._refuse_overlong(len(token_ids), index, options)
        if self._has_strangers:
            self._refuse_strangers(token_ids, f"input[{index}]")
        types = template.token_type_ids((content,)) if self._spec.type_vocab_size > 1 else None
        return TokenizedInput(
            token_ids=np.array(token_ids, np.int32),
            token_type_ids=None if types is None else np.array(types, np.int32),
            pool_spans=spans + np.int32(len(template.gaps[0])),
        )

    def _chunk_ids(self, chunks: Sequence[str], index: int, options: TokenizeOptions) -> list[list[int]]:
        """Bare ids of each chunk. No more is encoded than it takes to see that a document is too long."""
        found: list[list[int]] = []
        num_tokens = 0
        for group in groups([len(str(chunk)) for chunk in chunks]):
            names = [f"input[{index}][{place}]" for place in range(group.start, group.stop)]
            found += self._bare_ids(chunks[group], names, index)
            num_tokens += sum(map(len, found[group]))
            if group.stop < len(chunks):
                self._refuse_overlong(num_tokens, index, options, at_least=True)
        return found

    def _bare_ids(self, texts: Sequence[str], names: Sequence[str], index: int) -> list[list[int]]:
        """Ids of each text by itself. InvalidInput for one, by its name, that is no text or gives no tokens."""
        for text, name in zip(texts, names, strict=True):
            if complaint := _complaint(text, name):
                raise complaint
        encoded = encode_whole(self._encoder, self._prepare(tuple(texts), _DEFAULTS))
        for ids, name in zip(encoded, names, strict=True):
            if ids.num_characters:
                raise too_long(f"{name} has {ids.num_characters} characters", MOST_CHARACTERS, f"input[{index}]")
            if not ids.ids:
                raise InvalidInput(f"{name} gives no tokens", param=name)
        return [ids.ids for ids in encoded]

    def _refuse_overlong(
        self, num_tokens: int, index: int, options: TokenizeOptions, *, at_least: bool = False
    ) -> None:
        if num_tokens > self._limit(options):
            what = f"input[{index}] has {'over ' if at_least else ''}{num_tokens} tokens, and documents are never cut"
            raise too_long(what, self._limit(options), f"input[{index}]")

    def _limit(self, options: TokenizeOptions) -> int:
        return self.max_length if options.truncate_to is None else min(self.max_length, options.truncate_to)

    def _prepare(self, row: tuple[str, ...], options: TokenizeOptions) -> tuple[str, ...]:
        if options.prompt:
            row = (options.prompt + row[0], *row[1:])
        return tuple([text.lower() for text in row]) if self._spec.lower_case else row

    def _fault(
        self, rows: Sequence[tuple[str, ...]], group: slice, template: SpecialTokenTemplate, options: TokenizeOptions
    ) -> InvalidInput:
        """What is wrong with rows of a group that the library would not take."""
        if complaint := _complaint(options.prompt, "prompt"):
            return complaint
        complaints = (
            (i, _complaint(text, part_name(i, place, len(row))))
            for i, row in enumerate(rows[: group.stop])
            for place, text in enumerate(row)
        )
        index, complaint = next((index, complaint) for index, complaint in complaints if complaint)
        self._tokenize(rows[:index], template, options)  # Raises if one before it is at fault for another reason.
        return complaint

    def _dress(
        self, texts: tuple[Ids, ...], index: int, template: SpecialTokenTemplate, options: TokenizeOptions
    ) -> TokenizedInput:
        """Cut the bare ids of one input where they must be, and put the special tokens around them."""
        for place, text in enumerate(texts):
            if text.num_characters:
                name = part_name(index, place, len(texts))
                what = f"{name} has {text.num_characters} characters, all of which would have to be encoded"
                raise too_long(what, MOST_CHARACTERS, name)
        ids = tuple([text.ids for text in texts])
        num_before = sum(map(len, ids)) + template.num_tokens
        if options.second_to is not None:
            ids = (*ids[:1], *(keep(own, options.second_to, options.side) for own in ids[1:]))
        if num_before == 0:
            raise InvalidInput(f"input[{index}] gives no tokens", param=f"input[{index}]")
        if texts[0].is_head and not options.truncate:
            raise too_long(f"input[{index}] has over {num_before} tokens", self._limit(options), f"input[{index}]")
        kept = fit(ids, limit=self._limit(options), num_special=template.num_tokens, index=index, options=options)
        return self._dressed(kept, num_before - sum(map(len, kept)) - template.num_tokens, index, template, options)

    def _dressed(
        self,
        kept: tuple[list[int], ...],
        num_cut: int,
        index: int,
        template: SpecialTokenTemplate,
        options: TokenizeOptions,
    ) -> TokenizedInput:
        """The ids of one input, `num_cut` less than there were, with the special tokens around them."""
        token_ids = template.token_ids(kept)
        if self._has_strangers:
            for place, own in enumerate(kept):
                self._refuse_strangers(own, part_name(index, place, len(kept)))
            self._refuse_strangers(token_ids, f"input[{index}]")
        types = template.token_type_ids(kept) if self._spec.type_vocab_size > 1 else None
        return TokenizedInput(
            token_ids=np.array(token_ids, np.int32),
            token_type_ids=None if types is None else np.array(types, np.int32),
            pool_spans=self._pool_spans(len(token_ids), num_cut, options),
            num_tokens_before=len(token_ids) + num_cut if num_cut else 0,
        )

    def _refuse_strangers(self, token_ids: Sequence[int], name: str) -> None:
        """InvalidInput for a token that the tokenizer knows and the model does not: their files can disagree."""
        for token_id in token_ids:
            if token_id >= self._spec.vocab_size:
                raise InvalidInput(
                    f"{name} holds the token {self._tokenizer.id_to_token(token_id)!r} ({token_id}), for which "
                    f"the model has no vector: its vocabulary is {self._spec.vocab_size} tokens",
                    param=name,
                )

    def _pool_spans(self, num_tokens: int, num_cut: int, options: TokenizeOptions) -> Int32Array:
        """All tokens, or those after the prompt where the checkpoint says so."""
        spans = whole_span(num_tokens)
        if options.prompt and not self._spec.pool_prompt:
            start = self._prompt_tokens(options)
            start -= num_cut if options.side is Side.LEFT else 0
            # Where cutting left nothing after the prompt, pooling covers all there is.
            spans[0, 0] = start if 0 < start < num_tokens else 0
        return spans

    def _prompt_tokens(self, options: TokenizeOptions) -> int:
        """Tokens the prompt takes, or, of one over the limit that is cut at its end, any number over the limit."""
        if len(options.prompt) <= _REMEMBERED_CHARACTERS:
            return self._prompt_length(options.prompt, options.add_special_tokens)
        if options.side is Side.RIGHT and self._splits_at_blanks:
            (found,) = encode_heads(self._encoder, self._prepare((options.prompt,), _DEFAULTS), self.max_length)
            if found.is_head or found.num_characters:
                return max(len(found.ids), self.max_length + 1)
        return self._measure_prompt(options.prompt, options.add_special_tokens)

    def _measure_prompt(self, prompt: str, add_special_tokens: bool) -> int:
        """Tokens the prompt takes at the front: its own length, less a special token at its end.

        What sentence-transformers does; a prompt whose last piece merges with the text is off by one there too.
        """
        text = prompt.lower() if self._spec.lower_case else prompt
        ids = self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
        return len(ids) - (bool(ids) and ids[-1] in self._special_ids)


def _separator(tokenizer: Tokenizer, spec: ModelSpec) -> tuple[int, ...]:
    """What stands between two chunks of a document."""
    if spec.chunk_separator is None:
        return ()
    token_id = tokenizer.token_to_id(spec.chunk_separator)
    if token_id is None:
        raise CheckpointError(f"{spec.folder}: the tokenizer lacks {spec.chunk_separator}, which separates chunks")
    return (token_id,)


def check_tokenizer(spec: ModelSpec) -> None:
    """Raises what `TextTokenizer.load` would: for a server to find out before it starts its workers."""
    _load_with_room(spec, spec.max_length)


def _load_with_room(spec: ModelSpec, limit: int) -> Tokenizer:
    tokenizer = load_tokenizer(spec.folder, spec.model_type)
    num_special = SpecialTokenTemplate.probe(tokenizer, 1).num_tokens
    if limit <= num_special:
        raise ConfigError(
            f"--max-length: a limit of {counted(limit, 'token')} leaves no room for text beside "
            f"{counted(num_special, 'special token')}"
        )
    return tokenizer


def _complaint(text: object, name: str) -> InvalidInput | None:
    """Why `text` cannot be tokenized at all, if so."""
    if not isinstance(text, str):
        return InvalidInput(f"{name} should be text, not {type(text).__name__}", param=name)
    try:
        text.encode()
    except UnicodeEncodeError:
        return InvalidInput(f"{name} is not valid Unicode: it has a lone surrogate", param=name)
    return None
