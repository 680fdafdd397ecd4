"""Every error Rosebed raises on purpose, and the one table of what each becomes on a wire.

RosebedError
├── RequestError                  the caller's fault
│   ├── InvalidInput              a value is wrong (names the field and index)
│   │   └── ContextLengthExceeded an input has too many tokens
│   ├── MalformedRequest          what came is no HTTP request
│   ├── TargetTooLong             a path and query over the limit
│   ├── HeadTooLarge              headers over the limits
│   ├── HeadTimeout               a request's headers did not arrive
│   ├── AuthenticationFailed      no key, or a wrong one
│   ├── ModelNotFound             a model that is not served here
│   ├── RouteNotFound             no such path
│   ├── MethodNotAllowed          the path exists, the method does not
│   ├── UnsupportedMediaType      a body that is not JSON
│   ├── PayloadTooLarge           body over the limit
│   ├── BodyTimeout               the body did not arrive
│   ├── WrongModelKind            the model cannot do that (rerank on an embedder)
│   ├── Overloaded                queue full: try again later
│   ├── DeadlineExceeded          the caller's own time limit passed
│   └── Cancelled                 the caller went away
├── ServerError                   ours
│   ├── Unavailable               not ready, or the replica is gone
│   ├── NonFiniteOutput           the model made NaN or infinity of this input
│   ├── FingerprintMismatch       gateway and replica hold different models
│   └── StepFailed                a forward pass raised
└── SetupError                    found before serving
    ├── ConfigError               a flag or setting (names it)
    ├── CheckpointError           a model folder that cannot be served as it is
    └── MissingExtra              an optional dependency is not installed
"""

from dataclasses import dataclass


class RosebedError(Exception):
    """Root of all deliberate errors. `message` is meant for people."""

    param: str | None = None
    """What the error is about, where that can be named, e.g. `input[3]`."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class RequestError(RosebedError):
    """The caller's fault."""

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class InvalidInput(RequestError):
    """A value is wrong; `param` names it, e.g. `input[3]`."""


class ContextLengthExceeded(InvalidInput):
    """An input has more tokens than the model takes."""


class MalformedRequest(RequestError):
    """What came is no HTTP request, or one that two readers would understand differently."""


class TargetTooLong(RequestError):
    """The request's path and query are over the limit."""


class HeadTooLarge(RequestError):
    """The request's headers are over the limits."""


class HeadTimeout(RequestError):
    """The request's headers did not arrive in time."""


class AuthenticationFailed(RequestError):
    """No API key, or a wrong one."""


class ModelNotFound(RequestError):
    """A model that is not served here."""


class RouteNotFound(RequestError):
    """No such path."""


class MethodNotAllowed(RequestError):
    """The path exists, the method does not."""

    def __init__(self, message: str, *, allowed: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.allowed = allowed


class UnsupportedMediaType(RequestError):
    """A body in a form the route does not read."""


class PayloadTooLarge(RequestError):
    """The body is over the limit."""


class BodyTimeout(RequestError):
    """The body, or the next part of it, did not arrive in time."""


class WrongModelKind(RequestError):
    """The loaded model cannot answer this kind of question."""


class Overloaded(RequestError):
    """The queue is full."""

    def __init__(self, message: str, *, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class DeadlineExceeded(RequestError):
    """The caller's own time limit passed before the work was done."""


class Cancelled(RequestError):
    """The caller went away."""


class ServerError(RosebedError):
    """Ours. Never an HTTP 200."""


class Unavailable(ServerError):
    """Not ready yet, or the replica is gone."""

    def __init__(self, message: str, *, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class NonFiniteOutput(ServerError):
    """The model made NaN or infinity of this input, also when it ran alone."""


class FingerprintMismatch(ServerError):
    """Gateway and replica hold different tokenizers or configurations."""


class StepFailed(ServerError):
    """A forward pass raised."""


class SetupError(RosebedError):
    """Found before serving starts."""


class ConfigError(SetupError):
    """A flag or setting has a bad value."""


class CheckpointError(SetupError):
    """A model folder that cannot be served as it is."""


class MissingExtra(SetupError):
    """An optional dependency is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(
            f"{what} needs the extra [{extra}]: pip install 'rosebed[{extra}]', or '.[{extra}]' from a clone"
        )
        self.extra = extra


@dataclass(frozen=True, slots=True)
class ErrorMapping:
    """What one error type becomes outside."""

    code: str
    """Stable machine-readable name, the same on every wire."""
    grpc_status: str
    """Name of a grpc.StatusCode."""
    http_status: int


ERROR_TABLE: dict[type[RosebedError], ErrorMapping] = {
    InvalidInput: ErrorMapping("invalid_input", "INVALID_ARGUMENT", 400),
    ContextLengthExceeded: ErrorMapping("context_length_exceeded", "INVALID_ARGUMENT", 400),
    MalformedRequest: ErrorMapping("malformed_request", "INVALID_ARGUMENT", 400),
    TargetTooLong: ErrorMapping("uri_too_long", "INVALID_ARGUMENT", 414),
    HeadTooLarge: ErrorMapping("headers_too_large", "INVALID_ARGUMENT", 431),
    HeadTimeout: ErrorMapping("headers_timeout", "DEADLINE_EXCEEDED", 408),
    AuthenticationFailed: ErrorMapping("invalid_api_key", "UNAUTHENTICATED", 401),
    ModelNotFound: ErrorMapping("model_not_found", "NOT_FOUND", 404),
    RouteNotFound: ErrorMapping("not_found", "UNIMPLEMENTED", 404),
    MethodNotAllowed: ErrorMapping("method_not_allowed", "UNIMPLEMENTED", 405),
    UnsupportedMediaType: ErrorMapping("unsupported_media_type", "INVALID_ARGUMENT", 415),
    PayloadTooLarge: ErrorMapping("payload_too_large", "INVALID_ARGUMENT", 413),
    BodyTimeout: ErrorMapping("body_timeout", "DEADLINE_EXCEEDED", 408),
    WrongModelKind: ErrorMapping("wrong_model_kind", "FAILED_PRECONDITION", 400),
    Overloaded: ErrorMapping("overloaded", "RESOURCE_EXHAUSTED", 429),
    DeadlineExceeded: ErrorMapping("deadline_exceeded", "DEADLINE_EXCEEDED", 504),
    Cancelled: ErrorMapping("cancelled", "CANCELLED", 499),
    Unavailable: ErrorMapping("unavailable", "UNAVAILABLE", 503),
    NonFiniteOutput: ErrorMapping("non_finite_output", "INTERNAL", 500),
    FingerprintMismatch: ErrorMapping("fingerprint_mismatch", "FAILED_PRECONDITION", 503),
    StepFailed: ErrorMapping("step_failed", "INTERNAL", 500),
}
"""Each leaf that can reach a client. A test holds HTTP, gRPC and the docs to it."""

_BY_CODE = {mapping.code: error_type for error_type, mapping in ERROR_TABLE.items()}


def mapping_of(error: RosebedError) -> ErrorMapping:
    """The table's row for `error`, or for its nearest listed ancestor; an unlisted one is an internal fault."""
    for error_type in type(error).__mro__:
        if error_type in ERROR_TABLE:
            return ERROR_TABLE[error_type]
    return ErrorMapping("internal_error", "INTERNAL", 500)


def error_from_code(code: str, message: str) -> RosebedError:
    """The error that a peer named by `code`; unknown codes become a `ServerError`."""
    return _BY_CODE.get(code, ServerError)(message)
