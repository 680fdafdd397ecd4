"""The table that decides at the root: every row and every rule, alone, together, hidden and escaped."""

import json
from itertools import combinations
from typing import Any

import pytest

from rosebed.core.errors import InvalidInput
from rosebed.ivy.app import create_app
from rosebed.ivy.config import IvyConfig, ModelConfig
from rosebed.ivy.dialects.deciding import ROOT, Decider, Row, Rule
from rosebed.ivy.http.application import Application
from rosebed.ivy.http.body import Body
from rosebed.ivy.http.call import Call
from rosebed.ivy.http.reply import Reply
from rosebed.ivy.routes import PREFIXES

BY_PATH = {path: row for row in ROOT for path in row.paths}

CASES = [(path, rule, key) for path, row in BY_PATH.items() for rule in row.rules for key in rule.any_of]


def decide(path: str, body: Any) -> str:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Decider(BY_PATH[path]).decide(raw)


def value_for(rule: Rule) -> Any:
    """A value that the rule wants."""
    if rule.is_object:
        return {"source_sentence": "a"}
    return rule.values[0] if rule.values else None


@pytest.mark.parametrize(("path", "rule", "key"), CASES, ids=lambda value: getattr(value, "operation", str(value)))
def test_a_rule_is_decided_by_the_presence_of_its_key(path: str, rule: Rule, key: str) -> None:
    row = BY_PATH[path]
    body = {"model": "m", key: value_for(rule)}
    assert decide(path, body) == rule.operation
    escaped = json.dumps(body).replace(f'"{key}"', f'"\\u00{ord(key[0]):02x}{key[1:]}"').encode()
    assert decide(path, escaped) == rule.operation
    assert decide(path, {"other": {key: value_for(rule)}, "user": key, **_neutral(row)}) == _neutral_answer(row)


@pytest.mark.parametrize(("path", "rule", "key"), CASES, ids=lambda value: getattr(value, "operation", str(value)))
def test_null_counts_unless_a_value_is_asked_for(path: str, rule: Rule, key: str) -> None:
    expected = BY_PATH[path].default if rule.values or rule.is_object else rule.operation
    assert decide(path, {key: None}) == expected


@pytest.mark.parametrize("path", [path for path, row in BY_PATH.items() if not row.is_exclusive])
def test_the_first_rule_that_applies_wins(path: str) -> None:
    for first, second in combinations(BY_PATH[path].rules, 2):
        body = {second.any_of[0]: value_for(second), first.any_of[0]: value_for(first)}
        assert decide(path, body) == first.operation


@pytest.mark.parametrize("path", BY_PATH)
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'"a"', b'{"a": "\xff', b"[" * 5000, b'{"task": }'])
def test_what_cannot_be_read_falls_to_the_default(path: str, body: bytes) -> None:
    assert decide(path, body) == BY_PATH[path].default


BY_VALUE = [(path, rule, key) for path, rule, key in CASES if rule.values or rule.is_object]


@pytest.mark.parametrize(("path", "rule", "key"), BY_VALUE, ids=lambda value: getattr(value, "operation", str(value)))
def test_a_value_that_decides_does_so_once(path: str, rule: Rule, key: str) -> None:
    """Two readers would disagree on whose request it is."""
    value = json.dumps(value_for(rule))
    for first, second in ((value, '"x"'), ('"x"', value), (value, value)):
        for name in (key, f"\\u00{ord(key[0]):02x}{key[1:]}"):
            with pytest.raises(InvalidInput, match=f"the body has '{key}' twice") as caught:
                decide(path, f'{{"{key}": {first}, "{name}": {second}}}'.encode())
            assert caught.value.param == key
    assert decide(path, f'{{"{key}": {value}, "other": {{"{key}": "x"}}, "user": "{key}"}}'.encode()) == rule.operation


@pytest.mark.parametrize("path", [path for path, row in BY_PATH.items() if not row.is_exclusive])
def test_nothing_decisive_is_the_default(path: str) -> None:
    assert decide(path, {"input": ["task", '"truncation"'], "model": "output_dtype"}) == BY_PATH[path].default


@pytest.mark.parametrize("path", [path for path, row in BY_PATH.items() if row.is_exclusive])
def test_exclusive_rows_refuse_both_and_neither(path: str) -> None:
    keys = [rule.any_of[0] for rule in BY_PATH[path].rules]
    for body in ({}, dict.fromkeys(keys)):
        with pytest.raises(InvalidInput) as caught:
            decide(path, body)
        assert all(key in caught.value.message for key in keys)


def test_an_ordinary_request_is_openais() -> None:
    body = {"input": ["a"], "model": "m", "encoding_format": "base64", "dimensions": 8, "user": "u", "truncate": True}
    assert decide("/v1/embeddings", body) == "openai.embeddings"


async def ask(application: Application, method: str, path: str) -> Reply:
    body = Body()
    body.finish()
    return await application.answer(Call(method.encode(), path.encode(), {}, body))


@pytest.fixture
def application() -> Application:
    return create_app(IvyConfig(models=(ModelConfig(tulips=("127.0.0.1:1",)),)))


@pytest.fixture
async def paths(application: Application) -> dict[str, Any]:
    """All that the API's description has."""
    return json.loads((await ask(application, "GET", "/openapi.json")).body)["paths"]


def test_every_path_of_the_table_takes_the_bodies_of_all_its_operations(paths: dict[str, Any]) -> None:
    for path, row in BY_PATH.items():
        body = paths[path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert len(body["anyOf"]) == len(row.operations)


KEYS = {
    "/openai/v1": ["error"],
    "/perplexity": ["detail"],
    "/voyage/v1": ["detail"],
    "/jina/v1": ["detail"],
    "/cohere": ["message"],
    "/tei": ["error", "error_type"],
    "/vllm": ["error"],
    "/infinity": ["error"],
}


@pytest.mark.parametrize("prefix", PREFIXES)
async def test_a_prefix_words_its_errors_itself(application: Application, paths: dict[str, Any], prefix: str) -> None:
    assert list(PREFIXES) == list(KEYS)
    answer = await ask(application, "POST", f"{prefix}/nothing")
    assert (answer.status, list(json.loads(answer.body))) == (404, KEYS[prefix])
    own = next(path for path in paths if path.startswith(f"{prefix}/"))
    wrong = await ask(application, "BREW", own)
    assert (wrong.status, list(json.loads(wrong.body))) == (405, KEYS[prefix])


def _neutral(row: Row) -> dict[str, Any]:
    """What an exclusive row needs beside, so that something is decided."""
    return {row.rules[0].any_of[0]: []} if row.is_exclusive else {}


def _neutral_answer(row: Row) -> str:
    return row.rules[0].operation if row.is_exclusive else row.default
