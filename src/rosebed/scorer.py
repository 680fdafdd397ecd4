"""`Scorer`: pairs of texts in, scores out, in this process."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rosebed.core.activations import Activation, activate
from rosebed.core.errors import ConfigError, InvalidInput
from rosebed.core.extras import needs_extra
from rosebed.core.options import as_dimensions, as_text
from rosebed.core.retelling import naming
from rosebed.core.scorer import ScorerSpec
from rosebed.core.scores import check_one_label, ranked
from rosebed.core.types import Float32Array, OutputKind
from rosebed.core.types import Sequence as TokenSequence

with needs_extra("Scorer", "serve"):
    from rosebed.in_process import LocalModel
    from rosebed.text.prompts import resolve_prompt
    from rosebed.text.tokenizer import TokenizeOptions

_LOGITS = frozenset({OutputKind.LOGITS})


@dataclass(frozen=True, slots=True)
class RankedDocument:
    """One document in its place."""

    index: int
    """Where it stood in what was ranked."""
    score: float


class Scorer(LocalModel):
    """A cross-encoder, classifier or Qwen3-Reranker in this process. Used as an `Embedder` is, with the same rules.

    >>> with Scorer("BAAI/bge-reranker-v2-m3") as scorer:
    ...     best = scorer.rerank("what is a rose?", ["a flower", "a car"], top_n=1)
    """

    def score(
        self,
        pairs: Sequence[tuple[str, str]],
        *,
        prompt: str | None = None,
        prompt_name: str | None = None,
        activation: str | None = None,
    ) -> Float32Array:
        """What the model makes of each pair, in order: float32[n]; of several labels, float32[n, num_labels].

        `activation` is identity, sigmoid or softmax (over labels); None takes the checkpoint's own, which is the
        sigmoid of one label and identity of several, unless it says otherwise. `prompt`, or the checkpoint's own called
        `prompt_name`, goes before the first text; of Qwen3-Reranker it is the instruction. Pairs that are too long are
        cut, the longer text first; of Qwen3-Reranker only the second. InvalidInput names `pairs[i]`.
        """
        self._check_open()
        with naming(lambda index: f"pairs[{index}]"):
            scores = self._score(_as_pairs(pairs), _as_activation(activation), prompt, prompt_name)
        return scores[:, 0] if self._scorer.num_labels == 1 else scores

    def rerank(
        self,
        query: str,
        documents: Sequence[str],
        *,
        top_n: int | None = None,
        prompt: str | None = None,
        prompt_name: str | None = None,
        activation: str | None = None,
    ) -> list[RankedDocument]:
        """The `top_n` documents (None: all) that fit the query best, best first; of equal scores the first comes first.

        Arguments are those of `score`. WrongModelKind if the model has several labels; InvalidInput names `query`,
        `documents[i]` or the parameter.
        """
        self._check_open()
        check_one_label(self._scorer)
        kept = as_dimensions(top_n, "top_n")
        pairs = [(_text(query, "query"), document) for document in _as_texts(documents)]
        with naming(
            lambda index: f"documents[{index}]", lambda index, place: f"documents[{index}]" if place else "query"
        ):
            scores = self._score(pairs, _as_activation(activation), prompt, prompt_name)[:, 0]
        return [RankedDocument(index, float(scores[index])) for index in ranked(scores, kept)]

    def _check_spec(self) -> None:
        if self.spec.scorer is None:
            raise ConfigError(f"{self.spec.folder} embeds texts, and has no head that scores: Embedder loads it")

    @property
    def _scorer(self) -> ScorerSpec:
        assert self.spec.scorer is not None
        return self.spec.scorer

    def _score(
        self,
        pairs: list[tuple[str, str]],
        activation: Activation | None,
        prompt: str | None,
        prompt_name: str | None,
    ) -> Float32Array:
        """float32[n, num_labels]"""
        prompt, prompt_name = as_text(prompt, "prompt"), as_text(prompt_name, "prompt_name")
        prompt = resolve_prompt(self.spec, prompt=prompt, prompt_name=prompt_name)
        sequences = [
            TokenSequence(
                token_ids=tokenized.token_ids,
                pool_spans=tokenized.pool_spans,
                token_type_ids=tokenized.token_type_ids,
                outputs=_LOGITS,
                index=index,
            )
            for index, tokenized in enumerate(
                self._tokenizer.tokenize_pairs(pairs, TokenizeOptions(prompt=prompt, truncate=True))
            )
        ]
        return activate(self._rows(sequences), activation or self._scorer.activation)


def _as_pairs(pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """`pairs` as they should be. InvalidInput names `pairs[i]` that is none."""
    if isinstance(pairs, str) or not isinstance(pairs, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance] - callers need not be typed
        raise InvalidInput("pairs should be a list of pairs of texts", param="pairs")
    return [_as_pair(pair, f"pairs[{index}]") for index, pair in enumerate(pairs)]


def _as_pair(pair: object, name: str) -> tuple[str, str]:
    if not isinstance(pair, list | tuple) or len(pair) != 2:  # pyright: ignore[reportUnknownArgumentType]
        raise InvalidInput(f"{name} should be two texts, not {pair!r}", param=name)
    return _text(pair[0], name), _text(pair[1], name)


def _as_texts(documents: Sequence[str]) -> list[str]:
    if isinstance(documents, str) or not isinstance(documents, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput("documents should be a list of texts", param="documents")
    return [_text(document, f"documents[{index}]") for index, document in enumerate(documents)]


def _text(value: object, name: str) -> str:
    text = as_text(value, name)
    if text is None:
        raise InvalidInput(f"{name} should be text, not None", param=name)
    return text


def _as_activation(activation: str | None) -> Activation | None:
    try:
        return None if activation is None else Activation(activation)
    except ValueError:
        known = ", ".join(Activation)
        raise InvalidInput(f"activation should be one of {known}, not {activation!r}", param="activation") from None
