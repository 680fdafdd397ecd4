"""`Embedder`: text in, vectors out, in this process. No server, no queue; the same tokenizer and engine as theirs."""

from collections.abc import Sequence

from rosebed.core.dimensions import check_dimensions
from rosebed.core.errors import ConfigError
from rosebed.core.extras import needs_extra
from rosebed.core.options import as_dimensions, as_flag, as_text
from rosebed.core.texts import as_list
from rosebed.core.types import Float32Array
from rosebed.core.types import Sequence as TokenSequence

with needs_extra("Embedder", "serve"):
    from rosebed.in_process import LocalModel
    from rosebed.text.prompts import resolve_prompt
    from rosebed.text.tokenizer import TokenizeOptions


class Embedder(LocalModel):
    """A model held in this process. Usable from several threads, whose texts are computed one call after another.

    Not usable in a forked child, which has none of its parent's threads: make one there.

    >>> with Embedder("sentence-transformers/all-MiniLM-L6-v2") as embedder:
    ...     vectors = embedder.embed(["a text", "another"])
    """

    def embed(
        self,
        texts: Sequence[str],
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        dimensions: int | None = None,
        normalize: bool | None = None,
    ) -> Float32Array:
        """One vector per text, in order: float32[n, dim]; no texts give float32[0, dim].

        `prompt` goes in front of every text, or the checkpoint's own called `prompt_name`, or its default one.
        `dimensions` keeps the leading components, where the model was trained for it; `normalize` None does what
        the checkpoint's pipeline says. Too long a text is cut at its end, as sentence-transformers does.
        InvalidInput names `input[i]` or the parameter; `Unavailable` once closed, and in a forked child.
        """
        return self._embed(texts, None, prompt_name, prompt, dimensions=dimensions, normalize=normalize)

    def encode_query(
        self,
        texts: Sequence[str],
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        dimensions: int | None = None,
        normalize: bool | None = None,
    ) -> Float32Array:
        """As `embed`; unless another is given, with the prompt that the checkpoint calls `query`, or none."""
        return self._embed(texts, "query", prompt_name, prompt, dimensions=dimensions, normalize=normalize)

    def encode_document(
        self,
        texts: Sequence[str],
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        dimensions: int | None = None,
        normalize: bool | None = None,
    ) -> Float32Array:
        """As `embed`; unless another is given, with the prompt called `document`, `passage` or `corpus`, or none."""
        return self._embed(texts, "document", prompt_name, prompt, dimensions=dimensions, normalize=normalize)

    def _check_spec(self) -> None:
        if self.spec.scorer is not None:
            raise ConfigError(f"{self.spec.folder} scores pairs of texts, and has no vectors: Scorer loads it")

    def _embed(
        self,
        texts: Sequence[str],
        input_type: str | None,
        prompt_name: str | None,
        prompt: str | None,
        *,
        dimensions: int | None,
        normalize: bool | None,
    ) -> Float32Array:
        self._check_open()
        kept = check_dimensions(self.spec, as_dimensions(dimensions))
        normalize = as_flag(normalize, "normalize")
        prompt, prompt_name = as_text(prompt, "prompt"), as_text(prompt_name, "prompt_name")
        prompt = resolve_prompt(self.spec, prompt=prompt, prompt_name=prompt_name, input_type=input_type)
        options = TokenizeOptions(prompt=prompt, truncate=True)
        sequences = [
            TokenSequence(
                token_ids=tokenized.token_ids,
                pool_spans=tokenized.pool_spans,
                token_type_ids=tokenized.token_type_ids,
                dimensions=kept,
                normalize=normalize,
                index=index,
            )
            for index, tokenized in enumerate(self._tokenizer.tokenize(as_list(texts), options))
        ]
        vectors = self._rows(sequences)
        return vectors[:, :kept] if kept else vectors
