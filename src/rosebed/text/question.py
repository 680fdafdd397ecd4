"""The question that Qwen3-Reranker answers with yes or no, word for word as its model card asks it.

The reference tokenizes instruction, query and document as one text between fixed tokens, and cuts it at its end. Here
the text is two, split before the blank in front of the document, where Qwen's tokenizer always splits: the ids are the
same, and the document can be cut by itself.
"""

from collections.abc import Sequence

from tokenizers import Tokenizer

from rosebed.core.errors import CheckpointError
from rosebed.text.encoders import Encoder, TokenizersEncoder
from rosebed.text.special_tokens import SpecialTokenTemplate

INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
"""Unless the caller gives one."""

_BEFORE = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
)
_AFTER = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"

_PROBE = ("a\n<Query>: b", "c")


def question_template(tokenizer: Tokenizer) -> SpecialTokenTemplate:
    """The fixed tokens around the two texts. CheckpointError if `tokenizer` does not take the two one by one."""
    before, after = (_ids(tokenizer, text) for text in (_BEFORE, _AFTER))
    (first, second), *_ = question_texts([_PROBE], INSTRUCTION)
    if _ids(tokenizer, first) + _ids(tokenizer, second) != _ids(tokenizer, first + second):
        raise CheckpointError("the tokenizer is none of Qwen's, whose questions are asked as Qwen3-Reranker's are")
    own_before, own_after = SpecialTokenTemplate.probe(tokenizer, 1).gaps
    gaps = (before + own_before, [], own_after + after)
    return SpecialTokenTemplate(gaps=gaps, gap_types=tuple([0] * len(gap) for gap in gaps), text_types=(0, 0))


def question_texts(pairs: Sequence[tuple[str, str]], instruction: str) -> list[tuple[str, str]]:
    """The two texts of each (query, document)."""
    return [
        (f"<Instruct>: {instruction or INSTRUCTION}\n<Query>: {query}\n<Document>:", f" {document}")
        for query, document in pairs
    ]


def _ids(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False).ids


class LiteralEncoder:
    """Special tokens that a text spells out are encoded as the characters they are.

    The reference takes them for the tokens, so that a document could end its own turn and begin the answer.
    """

    def __init__(self, encoder: Encoder, literal: Encoder, special_tokens: Sequence[str]) -> None:
        """`literal` is slower, and asked only about texts that hold one of `special_tokens`."""
        self.name = encoder.name
        self._encoder = encoder
        self._literal = literal
        self._special_tokens = tuple(special_tokens)

    @classmethod
    def of(cls, tokenizer: Tokenizer, encoder: Encoder) -> "LiteralEncoder":
        """`encoder` is of `tokenizer`, whose vocabulary both share."""
        added = tokenizer.get_added_tokens_decoder()
        literal = Tokenizer(tokenizer.model)
        literal.normalizer, literal.pre_tokenizer = tokenizer.normalizer, tokenizer.pre_tokenizer
        for _, token in sorted(added.items()):
            (literal.add_special_tokens if token.special else literal.add_tokens)([token])
        if literal.get_added_tokens_decoder().keys() != added.keys():
            raise CheckpointError("the tokenizer's added tokens have ids with gaps between them, as none of Qwen's has")
        literal.encode_special_tokens = True
        special = [token.content for token in added.values() if token.special]
        return cls(encoder, TokenizersEncoder(literal), special)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        found = self._encoder.encode(texts)
        for index, text in enumerate(texts):
            if any(token in text for token in self._special_tokens):
                (found[index],) = self._literal.encode([text])
        return found
