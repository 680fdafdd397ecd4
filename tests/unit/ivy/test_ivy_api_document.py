"""The API's description covers every route, and its page fetches nothing."""

import json
import re
from typing import Any

import pytest

from rosebed.ivy.app import create_app
from rosebed.ivy.config import IvyConfig, ModelConfig
from rosebed.ivy.dialects.openai import EmbeddingsBody
from rosebed.ivy.http.application import Application
from rosebed.ivy.http.body import Body
from rosebed.ivy.http.call import Call
from rosebed.ivy.http.reply import Reply

MODELS = (ModelConfig(tulips=("127.0.0.1:1",)),)


@pytest.fixture
def application() -> Application:
    return create_app(IvyConfig(models=MODELS))


async def get(application: Application, path: str) -> Reply:
    body = Body()
    body.finish()
    return await application.answer(Call(b"GET", path.encode(), {}, body))


@pytest.fixture
async def document(application: Application) -> dict[str, Any]:
    return json.loads((await get(application, "/openapi.json")).body)


async def test_every_route_is_described(application: Application, document: dict[str, Any]) -> None:
    paths = set(document["paths"])
    assert {"/v1/embeddings", "/embeddings", "/v1/models", "/models", "/v1/models/{id}", "/tokenize"} <= paths
    assert {"/", "/health", "/ready", "/ping", "/metrics", "/openapi.json", "/docs"} <= paths
    for path, item in document["paths"].items():
        methods = {method.upper() for method in item if method != "parameters"}
        reply = await get(application, path.replace("{id}", "a"))
        assert reply.status != 405 if "GET" in methods else dict(reply.headers)[b"allow"].decode() in methods


def test_body_and_answer_are_described_by_their_schemas(document: dict[str, Any]) -> None:
    post = document["paths"]["/v1/embeddings"]["post"]
    bodies = [option["$ref"] for option in post["requestBody"]["content"]["application/json"]["schema"]["anyOf"]]
    names = ["EmbeddingsBody", "PerplexityEmbeddingsBody", "VoyageEmbeddingsBody", "JinaEmbeddingsBody"]
    assert bodies == [f"#/components/schemas/{name}" for name in names]
    properties = document["components"]["schemas"]["EmbeddingsBody"]["properties"]
    assert list(properties) == list(EmbeddingsBody.__struct_fields__)
    own = document["paths"]["/openai/v1/embeddings"]["post"]
    assert own["requestBody"]["content"]["application/json"]["schema"]["$ref"] == bodies[0]
    answer = own["responses"]["200"]["content"]["application/json"]["schema"]["$ref"]
    assert answer == "#/components/schemas/EmbeddingsList"


def test_references_resolve(document: dict[str, Any]) -> None:
    names = set(re.findall(r"#/components/schemas/(\w+)", str(document)))
    assert names <= set(document["components"]["schemas"])


def test_only_health_needs_no_key(document: dict[str, Any]) -> None:
    is_open = {path for path, item in document["paths"].items() for op in item.values() if op and op_is_open(op)}
    tei = {"/tei", "/tei/", "/tei/health", "/tei/ping"}
    others = {"/vllm/health", "/vllm/ping", "/infinity/health"}
    assert is_open == {"/", "/health", "/ready", "/ping"} | tei | others


def test_what_shares_its_path_with_an_open_method_needs_the_key(document: dict[str, Any]) -> None:
    for path in ("/", "/tei", "/tei/"):
        assert op_is_open(document["paths"][path]["get"])
        assert not op_is_open(document["paths"][path]["post"])


def op_is_open(operation: Any) -> bool:
    return isinstance(operation, dict) and operation["security"] == []


async def test_bare_address_answers_health_and_says_where_to_read_on(application: Application) -> None:
    answer = await get(application, "/")
    assert answer.status == 200
    assert json.loads(answer.body) == {"status": "ok", "docs": "/docs", "openapi": "/openapi.json"}
    assert [(await get(application, path)).status for path in ("/docs", "/openapi.json")] == [200, 200]


async def test_page_names_every_route_and_fetches_nothing(application: Application, document: dict[str, Any]) -> None:
    answer = await get(application, "/docs")
    assert answer.content_type == b"text/html; charset=utf-8"
    text = answer.body.decode()
    for path in document["paths"]:
        assert f"</b> {path}</h2>" in text
    assert "encoding_format" in text
    assert not re.search(r"<script|<link|<img|src=|@import|url\(|https?://", text)


async def test_behind_a_proxy_s_path() -> None:
    application = create_app(IvyConfig(models=MODELS, root_path="/nlp/embed"))
    for prefix in ("", "/nlp/embed"):
        assert (await get(application, f"{prefix}/health")).status == 200
        assert (await get(application, f"{prefix}/v1/models?x=1")).status == 200
        assert (await get(application, f"{prefix}/nothing")).status == 404
    assert (await get(application, "/nlp/embedhealth")).status == 404
    document = json.loads((await get(application, "/nlp/embed/openapi.json")).body)
    assert document["servers"] == [{"url": "/nlp/embed"}]
    assert "/v1/embeddings" in document["paths"]
    root = json.loads((await get(application, "/nlp/embed/")).body)
    assert root == {"status": "ok", "docs": "/nlp/embed/docs", "openapi": "/nlp/embed/openapi.json"}
