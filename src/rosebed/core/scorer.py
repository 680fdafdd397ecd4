"""Whether a checkpoint scores instead of embedding, and what its scores are: labels, activation, kind of head.

Source of the rules: transformers' configurations, and what sentence-transformers' CrossEncoder reads and saves.
"""

import logging
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal

from rosebed.core.activations import Activation
from rosebed.core.checkpoint import CheckpointFiles, Json
from rosebed.core.errors import CheckpointError, ConfigError
from rosebed.core.json_fields import flag, optional_number, optional_object, optional_text

_logger = logging.getLogger(__name__)

Task = Literal["auto", "embed", "score"]

_CLASSIFIER_SUFFIX = "ForSequenceClassification"
_LANGUAGE_MODEL = "Qwen3ForCausalLM"
"""The one architecture whose files can mean either: Qwen3-Embedding has it, and so has Qwen3-Reranker."""
_RERANKER_WORD = "rerank"
_LOGIT_SCORE = "LogitScore"
_SCORER_TASKS = frozenset({"sequence-classification", "text-generation"})
_SETTINGS = "config_sentence_transformers.json"


class ScorerKind(StrEnum):
    """How a pair becomes logits."""

    CLASSIFIER = "classifier"
    """A classification head over the pooled state; one logit per label."""
    YES_NO = "yes-no"
    """A language model asked a question: logit of "yes" less logit of "no" at the last token, which is one label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScorerSpec:
    """What a scoring checkpoint says of its scores."""

    kind: ScorerKind
    labels: tuple[str, ...]
    """Name of each logit."""
    activation: Activation
    """What makes a score of a logit, unless the caller says otherwise."""
    problem_type: str | None = None
    """transformers' `problem_type`: regression, single_label_classification, multi_label_classification."""
    answer_ids: tuple[int, int] | None = None
    """Ids of "no" and "yes", where the checkpoint gives them; else they are the tokens of those names."""
    kind_source: str
    """The file or flag that says that it scores."""
    activation_source: str
    """The file that decided the activation, or default."""

    @property
    def num_labels(self) -> int:
        return len(self.labels)


def read_scorer(files: CheckpointFiles, architecture: str, task: Task) -> ScorerSpec | None:
    """None for a checkpoint that embeds. ConfigError if it cannot do what `task` insists on."""
    source = _source(files, architecture, task)
    if source is None:
        return None
    _check_stages(files)
    if architecture.endswith(_CLASSIFIER_SUFFIX):
        return _scorer(files, ScorerKind.CLASSIFIER, _labels(files.config), None, source)
    return _scorer(files, ScorerKind.YES_NO, ("relevance",), _answer_ids(files), source)


def _source(files: CheckpointFiles, architecture: str, task: Task) -> str | None:
    """What says that the checkpoint scores; None if it embeds."""
    can_score = architecture.endswith(_CLASSIFIER_SUFFIX) or architecture == _LANGUAGE_MODEL
    if task == "score" and not can_score:
        raise ConfigError(
            f"--task score: {architecture} has no head that scores; a …{_CLASSIFIER_SUFFIX} or {_LANGUAGE_MODEL} has"
        )
    if task != "auto":
        return "--task" if task == "score" else None
    if architecture.endswith(_CLASSIFIER_SUFFIX):
        return "config.json"
    if architecture != _LANGUAGE_MODEL:
        return None
    if files.stages:
        return "modules.json" if files.stages[-1].kind == _LOGIT_SCORE else None
    # Qwen3-Reranker's files say nothing that Qwen3's own do not: only its name tells.
    return "the folder's name" if _RERANKER_WORD in _repository_name(files.folder).lower() else None


def _repository_name(folder: Path) -> str:
    """The folder's name, or, in the hub's cache, its repository's: models--Qwen--Qwen3-Reranker-0.6B/snapshots/…"""
    path = folder.absolute()
    return path.parent.parent.name if path.parent.name == "snapshots" else path.name


def _check_stages(files: CheckpointFiles) -> None:
    kinds = [stage.kind for stage in files.stages]
    if kinds not in ([], ["Transformer"], ["Transformer", _LOGIT_SCORE]):
        raise CheckpointError(
            f"modules.json: {' → '.join(kinds)} is not served for scoring; Transformer, with a {_LOGIT_SCORE} where "
            "it is a language model, is"
        )
    task = files.sentence_bert_config.get("transformer_task")
    if task is not None and task not in _SCORER_TASKS:
        raise CheckpointError(f"{files.sentence_bert_file}: transformer_task {task!r} is not served for scoring")


def _scorer(
    files: CheckpointFiles,
    kind: ScorerKind,
    labels: tuple[str, ...],
    answer_ids: tuple[int, int] | None,
    source: str,
) -> ScorerSpec:
    activation, activation_source = _activation(files, len(labels))
    return ScorerSpec(
        kind=kind,
        labels=labels,
        activation=activation,
        problem_type=optional_text(files.config, "problem_type", file="config.json"),
        answer_ids=answer_ids,
        kind_source=source,
        activation_source=activation_source,
    )


def _labels(config: Json) -> tuple[str, ...]:
    """Names in the order of their logits; transformers writes none where there are its default two."""
    named = optional_object(config, "id2label", file="config.json")
    if not named:
        num_labels = optional_number(config, "num_labels", file="config.json")
        return tuple(f"LABEL_{i}" for i in range(2 if num_labels is None else num_labels))
    expected = {str(i) for i in range(len(named))}
    if set(named) != expected or not all(isinstance(label, str | int) for label in named.values()):
        raise CheckpointError(f"config.json: id2label should name the labels 0 to {len(named) - 1}, not be {named!r}")
    return tuple(str(named[str(i)]) for i in range(len(named)))


def _activation(files: CheckpointFiles, num_labels: int) -> tuple[Activation, str]:
    """sentence-transformers' order: its own settings, then config.json's, then sigmoid for one label."""
    for file, name in _named_activations(files):
        if name is None:
            continue
        if not name.startswith("torch."):
            _logger.warning("%s: activation_fn %s is code of the checkpoint's own, which is never run", file, name)
            continue
        try:
            return Activation(name.rpartition(".")[2].lower()), file
        except ValueError:
            known = ", ".join(Activation)
            raise CheckpointError(f"{file}: activation_fn {name!r} is not served; {known} of torch.nn are") from None
    return (Activation.SIGMOID if num_labels == 1 else Activation.IDENTITY), "default"


def _named_activations(files: CheckpointFiles) -> list[tuple[str, str | None]]:
    config, settings = files.config, files.sentence_transformers_config
    within = optional_object(config, "sentence_transformers", file="config.json")
    return [
        (_SETTINGS, optional_text(settings, "activation_fn", file=_SETTINGS)),
        ("config.json", optional_text(within, "activation_fn", file="config.json: sentence_transformers")),
        ("config.json", optional_text(config, "sbert_ce_default_activation_function", file="config.json")),
    ]


def _answer_ids(files: CheckpointFiles) -> tuple[int, int] | None:
    """What a LogitScore stage names. CheckpointError for a score of one token alone, which has no such odds."""
    stage = next((stage for stage in files.stages if stage.kind == _LOGIT_SCORE), None)
    if stage is None:
        return None
    ids = [optional_number(stage.config, key, file=stage.config_file) for key in ("false_token_id", "true_token_id")]
    if None in ids:
        raise CheckpointError(f"{stage.config_file}: true_token_id and false_token_id are both needed")
    return ids[0], ids[1]  # pyright: ignore[reportReturnType]


def is_tied(config: Json) -> bool:
    """Whether a language model's output rows are its embeddings'. transformers ties Qwen3's only where told to."""
    return flag(config, "tie_word_embeddings", default=False, file="config.json")
