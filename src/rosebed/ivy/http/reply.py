"""An HTTP answer as a value."""

import msgspec

Headers = tuple[tuple[bytes, bytes], ...]

JSON_TYPE = b"application/json"


class Reply(msgspec.Struct, frozen=True):
    """Status, body and headers of one answer."""

    status: int
    body: bytes
    headers: Headers = ()
    """Beyond content-type, content-length and x-request-id."""
    content_type: bytes = JSON_TYPE
