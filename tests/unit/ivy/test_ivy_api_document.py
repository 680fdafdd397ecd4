"""The API's description covers every route, and its page fetches nothing."""

import re
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.testclient import TestClient

from rosebed.ivy.app import create_app
from rosebed.ivy.config import IvyConfig, ModelConfig
from rosebed.ivy.dialects.openai import EmbeddingsBody


@pytest.fixture(scope="module")
def application() -> Starlette:
    return create_app(IvyConfig(models=(ModelConfig(tulips=("127.0.0.1:1",)),)))


@pytest.fixture(scope="module")
def document(application: Starlette) -> dict[str, Any]:
    return TestClient(application).get("/openapi.json").json()


def test_every_route_is_described(application: Starlette, document: dict[str, Any]) -> None:
    paths = [route.path.replace(":path", "") for route in application.routes if isinstance(route, Route)]
    assert sorted(document["paths"]) == sorted(paths)
    assert {"/v1/embeddings", "/embeddings", "/v1/models", "/models", "/v1/models/{id}", "/tokenize"} <= set(paths)
    assert {"/", "/health", "/ready", "/ping", "/metrics", "/openapi.json", "/docs"} <= set(paths)


def test_body_and_answer_are_described_by_their_schemas(document: dict[str, Any]) -> None:
    post = document["paths"]["/v1/embeddings"]["post"]
    body = post["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    assert body == "#/components/schemas/EmbeddingsBody"
    properties = document["components"]["schemas"]["EmbeddingsBody"]["properties"]
    assert list(properties) == list(EmbeddingsBody.__struct_fields__)
    answer = post["responses"]["200"]["content"]["application/json"]["schema"]["$ref"]
    assert answer == "#/components/schemas/EmbeddingsList"


def test_references_resolve(document: dict[str, Any]) -> None:
    names = set(re.findall(r"#/components/schemas/(\w+)", str(document)))
    assert names <= set(document["components"]["schemas"])


def test_only_health_needs_no_key(document: dict[str, Any]) -> None:
    is_open = {path for path, item in document["paths"].items() for op in item.values() if op and op_is_open(op)}
    assert is_open == {"/", "/health", "/ready", "/ping"}


def op_is_open(operation: Any) -> bool:
    return isinstance(operation, dict) and operation["security"] == []


def test_bare_address_answers_health_and_says_where_to_read_on(application: Starlette) -> None:
    client = TestClient(application)
    answer = client.get("/")
    assert answer.status_code == 200
    assert answer.json() == {"status": "ok", "docs": "/docs", "openapi": "/openapi.json"}
    assert all(client.get(answer.json()[name]).status_code == 200 for name in ("docs", "openapi"))


def test_page_names_every_route_and_fetches_nothing(application: Starlette, document: dict[str, Any]) -> None:
    answer = TestClient(application).get("/docs")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    for path in document["paths"]:
        assert f"</b> {path}</h2>" in answer.text
    assert "encoding_format" in answer.text
    assert not re.search(r"<script|<link|<img|src=|@import|url\(|https?://", answer.text)
