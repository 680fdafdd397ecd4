"""Errors as HTTP: the one table, and what each kind adds to it."""

import json
import logging

import pytest

from rosebed.core.errors import (
    ERROR_TABLE,
    AuthenticationFailed,
    CheckpointError,
    ContextLengthExceeded,
    MethodNotAllowed,
    Overloaded,
    RosebedError,
    Unavailable,
)
from rosebed.ivy.dialects.openai import ERRORS, error_body
from rosebed.ivy.http.faults import error_reply, fault_of


@pytest.mark.parametrize("error_type", ERROR_TABLE)
def test_status_and_code_are_the_tables(error_type: type[RosebedError]) -> None:
    fault = fault_of(error_type("why"), b"id", ERRORS)
    mapping = ERROR_TABLE[error_type]
    assert (fault.status, fault.code, fault.message) == (mapping.http_status, mapping.code, "why")
    kind = {429: "rate_limit_error"}.get(
        fault.status, "server_error" if fault.status >= 500 else "invalid_request_error"
    )
    assert json.loads(error_body(fault))["error"]["type"] == kind


@pytest.mark.parametrize(
    ("error", "headers"),
    [
        (Overloaded("full", retry_after_s=3), ((b"retry-after", b"3"),)),
        (Unavailable("gone"), ((b"retry-after", b"1"),)),
        (AuthenticationFailed("no"), ((b"www-authenticate", b"Bearer"),)),
        (MethodNotAllowed("no", allowed=("GET", "POST")), ((b"allow", b"GET, POST"),)),
        (CheckpointError("odd"), ()),
    ],
)
def test_headers(error: RosebedError, headers: tuple[tuple[bytes, bytes], ...]) -> None:
    assert fault_of(error, b"id", ERRORS).headers == headers


def test_openai_body() -> None:
    reply = error_reply(ContextLengthExceeded("too long", param="input[2]"), ERRORS, b"id")
    assert reply.status == 400
    assert json.loads(reply.body) == {
        "error": {
            "message": "too long",
            "type": "invalid_request_error",
            "param": "input[2]",
            "code": "context_length_exceeded",
        }
    }


def test_unexpected_error_is_logged_and_its_text_kept_back(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        fault = fault_of(ValueError("secret path"), b"abc", ERRORS)
    assert (fault.status, fault.code) == (500, "internal_error")
    assert fault.message == "internal error; the log has it under request abc"
    (record,) = caplog.records
    assert record.getMessage() == "request abc failed"
    assert record.exc_info is not None
