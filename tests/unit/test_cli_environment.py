"""What the command line sets for libraries, and that a user's own settings stand."""

import os

import pytest

from rosebed.cli import set_environment

NAMES = ("OMP_WAIT_POLICY", "GRPC_EXPERIMENTS")


def environment_after(given: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setattr(os, "environ", dict(given))
    set_environment()
    return {name: os.environ[name] for name in NAMES if name in os.environ}


def test_threads_wait_asleep(monkeypatch: pytest.MonkeyPatch) -> None:
    assert environment_after({}, monkeypatch) == {
        "OMP_WAIT_POLICY": "PASSIVE",
        "GRPC_EXPERIMENTS": "-event_engine_client,-event_engine_listener,-event_engine_callback_cq",
    }


def test_a_user_s_own_settings_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"OMP_WAIT_POLICY": "ACTIVE", "GRPC_EXPERIMENTS": ""}
    assert environment_after(given, monkeypatch) == given
