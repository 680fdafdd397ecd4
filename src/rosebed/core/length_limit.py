"""How long one sequence may be: what the operator, the checkpoint's files and its position table allow."""

from rosebed.core.checkpoint import CheckpointFiles
from rosebed.core.errors import CheckpointError, ConfigError
from rosebed.core.json_fields import Json, optional_number

UNSET_MODEL_MAX_LENGTH = 1_000_000
"""transformers writes a huge `model_max_length` for "unknown"; from here on it is ignored."""

OFFSET_POSITION_TYPES = frozenset({"roberta", "xlm-roberta", "mpnet", "camembert"})
"""Positions start at padding_idx + 1, so that many rows of the position table are never used."""

NO_POSITION_LIMIT = 1 << 30


def max_length(files: CheckpointFiles, model_type: str, override: int | None) -> tuple[int, str]:
    """Most tokens of one sequence, special tokens included, and the file or flag that says so.

    `--max-length`, else `max_seq_length`, else `model_max_length`, each clamped to the usable positions; else those.
    """
    usable = usable_positions(files.config, model_type)
    for source, value in _candidates(files, override):
        if value is not None:
            return (value, source) if value <= usable else (usable, f"{source}, clamped to config.json")
    if usable == NO_POSITION_LIMIT:
        raise CheckpointError("no file says how long a sequence may be: give --max-length")
    return usable, "config.json"


def usable_positions(config: Json, model_type: str) -> int:
    """Most tokens the position table or rotary range covers (8194 rows of XLM-RoBERTa are 8192 tokens)."""
    rows = optional_number(config, "max_position_embeddings", file="config.json")
    if rows is None:
        return NO_POSITION_LIMIT
    usable = rows - _unused_rows(config, model_type)
    if usable < 1:
        raise CheckpointError(f"config.json: max_position_embeddings {rows} leaves no position for a token")
    return usable


def _unused_rows(config: Json, model_type: str) -> int:
    if model_type not in OFFSET_POSITION_TYPES:
        return 0
    # NOTE: MPNet hard-codes padding index 1 for positions, whatever pad_token_id says.
    padding_idx = None if model_type == "mpnet" else optional_number(config, "pad_token_id", file="config.json")
    return 2 if padding_idx is None else padding_idx + 1


def _candidates(files: CheckpointFiles, override: int | None) -> list[tuple[str, int | None]]:
    if override is not None and override < 1:
        raise ConfigError(f"--max-length should be at least 1, not {override}")
    max_seq_length = optional_number(files.sentence_bert_config, "max_seq_length", file=files.sentence_bert_file)
    model_max_length = optional_number(files.tokenizer_config, "model_max_length", file="tokenizer_config.json")
    if model_max_length is not None and model_max_length >= UNSET_MODEL_MAX_LENGTH:
        model_max_length = None
    return [
        ("--max-length", override),
        (files.sentence_bert_file, max_seq_length),
        ("tokenizer_config.json", model_max_length),
    ]
