"""One model that scores, verified: its logits of pairs against the reference's, each pair also alone."""

from importlib.metadata import version

import numpy as np

from rosebed.bench.verify.checks import Check, VerifyReport, Watch
from rosebed.bench.verify.comparison import TIES, TOLERANCES
from rosebed.bench.verify.reference import BATCH_SIZE
from rosebed.bench.verify.texts import MAX_COMPUTED_TOKENS, verification_texts
from rosebed.core.errors import CheckpointError, ConfigError
from rosebed.core.extras import needs_extra
from rosebed.core.model_spec import ModelSpec
from rosebed.core.scorer import ScorerKind
from rosebed.core.types import Float32Array, Int32Array

with needs_extra("rosebed verify", "serve"):
    from rosebed.scorer import Scorer
    from rosebed.text.prompts import resolve_prompt
    from rosebed.text.tokenizer import TextTokenizer, TokenizeOptions

Pair = tuple[str, str]


def verify_scores(scorer: Scorer, *, tolerance: float | None = None, watch: Watch = lambda _: None) -> VerifyReport:
    """Compare. ConfigError for Qwen3-Reranker, which the reference library only knows with a template of its own."""
    spec = scorer.spec
    if spec.scorer is None or spec.scorer.kind is not ScorerKind.CLASSIFIER:
        raise ConfigError("rosebed verify compares classification heads, not models that answer yes or no")
    texts = verification_texts(spec.max_length)
    pairs = list(zip(texts, [*texts[1:], texts[0]], strict=True))
    watch("computing the reference")
    expected_ids, computed, expected = _reference(spec, pairs)
    watch("computing pairs, twice")
    chosen = [pairs[index] for index in computed]
    together = _rows(scorer.score(chosen, activation="identity"))
    alone = _rows(np.concatenate([scorer.score([pair], activation="identity") for pair in chosen]))
    own_ids = _own_ids(spec, pairs)
    other_ids = [
        i for i, (own, ids) in enumerate(zip(own_ids, expected_ids, strict=True)) if not np.array_equal(own, ids)
    ]
    limit = TOLERANCES[scorer.info.dtype] if tolerance is None else tolerance
    return VerifyReport(
        info=scorer.info,
        source=f"sentence-transformers {version('sentence-transformers')}, float32, cpu",
        tolerance=limit,
        num_texts=len(pairs),
        num_computed=len(computed),
        checks=(
            Check(name="pairs with other token ids", value=len(other_ids), limit=0),
            *check_logits(together, alone, expected, limit),
        ),
        worst_text=" + ".join(chosen[int(np.abs(together - expected).max(axis=1).argmax())]),
        other_ids=tuple(" + ".join(pairs[index]) for index in other_ids),
        what="scores",
    )


def check_logits(
    together: Float32Array, alone: Float32Array, expected: Float32Array, tolerance: float
) -> tuple[Check, ...]:
    """All figures of logits, float32[n, num_labels] each, in units of the largest expected one (1 at least)."""
    unit = max(1.0, float(np.abs(expected).max()))
    errors, apart = (np.nan_to_num(np.abs(together - other).max(), nan=np.inf) / unit for other in (expected, alone))
    bound = float(np.sqrt(2 * tolerance))
    return (
        Check(name="relative error of a logit, largest", value=float(errors), limit=bound),
        Check(
            name="pairs in another order, beyond ties",
            value=_disorder(together, expected, TIES * bound * unit),
            limit=0,
        ),
        Check(name="alone or in a batch, relative difference", value=float(apart), limit=bound),
    )


def _disorder(logits: Float32Array, expected: Float32Array, tie: float) -> int:
    """Pairs that the reference ranks clearly apart, by any label, and that stand the other way round here."""
    clearly_above = expected[:, None] - expected[None] > tie
    return int((clearly_above & (logits[:, None] < logits[None])).sum())


def _rows(scores: Float32Array) -> Float32Array:
    """float32[n, num_labels], of one label too."""
    return scores.reshape(len(scores), -1)


def _own_ids(spec: ModelSpec, pairs: list[Pair]) -> list[Int32Array]:
    options = TokenizeOptions(prompt=resolve_prompt(spec), truncate=True)
    return [tokenized.token_ids for tokenized in TextTokenizer.load(spec).tokenize_pairs(pairs, options)]


def _reference(spec: ModelSpec, pairs: list[Pair]) -> tuple[list[Int32Array], list[int], Float32Array]:
    """Ids of every pair; those short enough for the reference to compute, and their logits, float32[n, num_labels]."""
    with needs_extra("the reference of `rosebed verify`", "bench"):
        from sentence_transformers import CrossEncoder
    try:
        model = CrossEncoder(
            str(spec.folder), device="cpu", max_length=spec.max_length, model_kwargs={"dtype": "float32"}
        )
    except (OSError, ValueError, KeyError) as error:
        raise CheckpointError(f"the reference cannot load {spec.folder}: {error}") from error
    prompt = model.prompts.get(model.default_prompt_name or "") or ""
    ids = [
        np.asarray(model.preprocess([[prompt + first, second]])["input_ids"][0], np.int32) for first, second in pairs
    ]
    computed = [index for index, own in enumerate(ids) if len(own) <= MAX_COMPUTED_TOKENS]
    logits = model.predict(
        [list(pairs[index]) for index in computed], batch_size=BATCH_SIZE, show_progress_bar=False, activation_fn=_same
    )
    return ids, computed, _rows(np.asarray(logits, np.float32))


def _same(logits: object) -> object:
    """The activation that leaves logits as they are."""
    return logits
