"""How large the message of a request can get: known before it is made, since its numbers are packed."""

from rosebed.core.errors import ConfigError

TOKEN_BYTES = 8
"""An id and a type."""
SEQUENCE_BYTES = 16
"""A length, and one pool span."""
HEADER_BYTES = 256


def message_bytes(num_tokens: int, num_sequences: int) -> int:
    """At most so large is the message of one request, with one pool span a sequence."""
    return HEADER_BYTES + TOKEN_BYTES * num_tokens + SEQUENCE_BYTES * num_sequences


def check_message_bytes(max_message_bytes: int, max_length: int) -> None:
    """ConfigError if a server that takes no larger messages could not take the longest sequence."""
    least = message_bytes(max_length, 1)
    if max_message_bytes < least:
        raise ConfigError(
            f"--max-message-bytes {max_message_bytes} is less than a sequence of {max_length} tokens can take: {least}"
        )
