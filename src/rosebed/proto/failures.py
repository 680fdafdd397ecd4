"""Errors as they travel: an `ItemError` keeps the stable code, what is at fault, and when to try again."""

from rosebed.core.errors import Overloaded, RequestError, RosebedError, Unavailable, error_from_code, mapping_of
from rosebed.proto.rosebed_pb2 import ItemError


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
