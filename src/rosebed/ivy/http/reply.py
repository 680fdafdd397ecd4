"""An HTTP answer as a value."""

from dataclasses import dataclass

from starlette.types import Send

Headers = tuple[tuple[bytes, bytes], ...]

JSON_TYPE = b"application/json"


@dataclass(frozen=True, slots=True)
class Reply:
    """Status, body and headers of one answer."""

    status: int
    body: bytes
    headers: Headers = ()
    """Beyond content-type, content-length and x-request-id."""
    content_type: bytes = JSON_TYPE

    async def send(self, send: Send, request_id: bytes) -> None:
        """Write the answer, echoing the id of its request."""
        headers = [
            (b"content-type", self.content_type),
            (b"content-length", b"%d" % len(self.body)),
            (b"x-request-id", request_id),
            *self.headers,
        ]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})
