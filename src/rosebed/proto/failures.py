"""Errors as they travel: an `ItemError`, or a failed call's trailing metadata.

Both keep the stable code, what is at fault, and when to try again.
"""

from collections.abc import Mapping

from rosebed.core.errors import Overloaded, RequestError, RosebedError, Unavailable, error_from_code, mapping_of
from rosebed.proto.rosebed_pb2 import ItemError

CODE_KEY = "rosebed-code"
PARAM_KEY = "rosebed-param"
RETRY_AFTER_KEY = "rosebed-retry-after-s"
MAX_SHOWN = 100
"""Characters of a client's own text that an error repeats."""


def shown(text: str) -> str:
    """`text` as an error shows it: quoted, and cut if it is long."""
    if len(text) <= MAX_SHOWN:
        return repr(text)
    return f"{text[:MAX_SHOWN]!r}… ({len(text)} characters)"


def error_item(error: RosebedError, index: int = 0) -> ItemError:
    """The message for `error`; `index` is the sequence it befell."""
    return ItemError(
        index=index,
        code=mapping_of(error).code,
        message=error.message,
        param=(error.param or "") if isinstance(error, RequestError) else "",
        retry_after_s=error.retry_after_s if isinstance(error, Overloaded | Unavailable) else 0,
    )


def error_of(item: ItemError) -> RosebedError:
    """Inverse of `error_item`; a code of a newer peer becomes a `ServerError`."""
    error = error_from_code(item.code, item.message)
    if isinstance(error, RequestError):
        error.param = item.param or None
    if isinstance(error, Overloaded | Unavailable) and item.retry_after_s:
        error.retry_after_s = item.retry_after_s
    return error


def failure_metadata(error: RosebedError) -> tuple[tuple[str, str], ...]:
    """Trailing metadata of a call that failed with `error`; its message travels as the status's details."""
    item = error_item(error)
    pairs = ((CODE_KEY, item.code), (PARAM_KEY, item.param), (RETRY_AFTER_KEY, str(item.retry_after_s or "")))
    return tuple((key, value) for key, value in pairs if value)


def error_of_metadata(metadata: Mapping[str, str], message: str) -> RosebedError | None:
    """Inverse of `failure_metadata`; None if the failure was not Rosebed's own doing."""
    if CODE_KEY not in metadata:
        return None
    return error_of(
        ItemError(
            code=metadata[CODE_KEY],
            message=message,
            param=metadata.get(PARAM_KEY, ""),
            retry_after_s=int(metadata.get(RETRY_AFTER_KEY, "0")),
        )
    )
