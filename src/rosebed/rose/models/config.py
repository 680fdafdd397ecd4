"""The few numbers of config.json that shape an encoder, read strictly. Knows no tensors."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rosebed.core import json_fields
from rosebed.core.errors import CheckpointError
from rosebed.core.json_fields import Json
from rosebed.rose.ops.base import Activation, HeadShape

_FILE = "config.json"

# transformers has several names for the same function.
_ACTIVATIONS = {
    "gelu": Activation.GELU,
    "gelu_python": Activation.GELU,
    "gelu_new": Activation.GELU_TANH,
    "gelu_pytorch_tanh": Activation.GELU_TANH,
    "gelu_fast": Activation.GELU_TANH,
    "relu": Activation.RELU,
    "silu": Activation.SILU,
    "swish": Activation.SILU,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderConfig:
    """Sizes of a BERT-like encoder."""

    num_layers: int
    hidden_size: int
    num_heads: int
    intermediate_size: int
    vocab_size: int
    num_positions: int
    """Rows of the position table."""
    type_vocab_size: int
    """Rows of the token type table; 0 for none."""
    activation: Activation
    norm_eps: float

    @classmethod
    def read(cls, config: Json) -> "EncoderConfig":
        """From the names that BERT, RoBERTa and MPNet share. CheckpointError for what this code does not compute."""
        require(config, "position_embedding_type", "absolute")
        require(config, "is_decoder", False)
        return cls(
            num_layers=positive(config, "num_hidden_layers"),
            hidden_size=positive(config, "hidden_size"),
            num_heads=positive(config, "num_attention_heads"),
            intermediate_size=positive(config, "intermediate_size"),
            vocab_size=positive(config, "vocab_size"),
            num_positions=positive(config, "max_position_embeddings"),
            type_vocab_size=optional(config, "type_vocab_size") or 0,
            activation=activation(config, "hidden_act"),
            norm_eps=positive_float(config, "layer_norm_eps", default=1e-12),
        )

    @property
    def heads(self) -> HeadShape:
        if self.hidden_size % self.num_heads:
            raise CheckpointError(f"config.json: {self.num_heads} heads do not divide hidden_size {self.hidden_size}")
        return HeadShape(self.num_heads, self.num_heads, self.hidden_size // self.num_heads)

    def without_token_types(self) -> "EncoderConfig":
        return replace(self, type_vocab_size=0)


def positive(config: Json, key: str) -> int:
    """config[key], which must be a positive integer."""
    return json_fields.positive_int(config, key, file=_FILE)


def optional(config: Json, key: str) -> int | None:
    """config[key] as a whole number, None if absent or null."""
    return json_fields.optional_number(config, key, file=_FILE)


def positive_float(config: Json, key: str, *, default: float) -> float:
    """config[key], which must be a number above 0; `default` if absent or null."""
    return json_fields.positive_float(config, key, default=default, file=_FILE)


def require(config: Mapping[str, Any], key: str, served: object) -> None:
    """Refuse a setting that changes the computation; absent or null means the one served."""
    value = config.get(key)
    if value is not None and value != served:
        raise CheckpointError(f"config.json: {key} {value!r} is not served, only {served!r}")


def activation(config: Json, key: str) -> Activation:
    """The activation that config[key] names."""
    name = json_fields.optional_text(config, key, file=_FILE) or "gelu"
    if name not in _ACTIVATIONS:
        raise CheckpointError(f"config.json: {key} {name!r} is not served; {', '.join(_ACTIVATIONS)} are")
    return _ACTIVATIONS[name]
