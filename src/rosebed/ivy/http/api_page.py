"""The API's description for people: one page, with nothing to fetch from elsewhere."""

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

import orjson

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem }
:root { color-scheme: light dark }
h2 { font-size: 1.1rem; margin-top: 2rem } code, pre, h2 { font-family: ui-monospace, monospace }
pre { overflow-x: auto; padding: .8rem; background: color-mix(in srgb, currentColor 8%, transparent) }
td { padding: .1rem 1rem .1rem 0; vertical-align: top } b { color: #b0306a }
"""
_EXAMPLE = """curl $URL/v1/embeddings -H 'content-type: application/json' -d '{"input": ["a text", "another"]}'"""


def api_page(document: Mapping[str, Any]) -> bytes:
    """HTML of an OpenAPI document that `api_document` made."""
    info = document["info"]
    schemas = document["components"]["schemas"]
    operations = "".join(
        _operation(method, path, operation, schemas)
        for path, item in document["paths"].items()
        for method, operation in item.items()
        if method != "parameters"
    )
    page = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(info["title"])}</title>'
        f"<style>{_STYLE}</style><h1>{escape(info['title'])} {escape(info['version'])}</h1>"
        f"<p>{escape(info['description'])} Machines read <a href=openapi.json>openapi.json</a>.</p>"
        f"<pre>{escape(_EXAMPLE)}</pre>{operations}"
    )
    return page.encode()


def _operation(method: str, path: str, operation: Mapping[str, Any], schemas: Mapping[str, Any]) -> str:
    parts = [f"<h2><b>{method.upper()}</b> {escape(path)}</h2><p>{escape(operation['summary'])}.</p>"]
    if "requestBody" in operation:
        parts += ["<p>Body:</p>", *_schemas(operation["requestBody"], schemas)]
    if "content" in operation["responses"]["200"]:
        parts += ["<p>Answer:</p>", *_schemas(operation["responses"]["200"], schemas)]
    return "".join(parts)


def _schemas(described: Mapping[str, Any], schemas: Mapping[str, Any]) -> Iterator[str]:
    """What a body may be, the form of each dialect."""
    schema = described["content"]["application/json"]["schema"]
    options = schema.get("anyOf", [schema])
    for number, option in enumerate(options):
        if number:
            yield "<p>or:</p>"
        yield _schema(option, schemas)


def _schema(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> str:
    named = schemas.get(schema.get("$ref", "").rpartition("/")[2], schema)
    if "properties" not in named:
        return f"<pre>{escape(orjson.dumps(schema, option=orjson.OPT_INDENT_2).decode())}</pre>"
    rows = "".join(
        f"<tr><td><code>{escape(name)}</code><td>{escape(_type(value))}<td>{escape(value.get('description', ''))}"
        for name, value in named["properties"].items()
    )
    return f"<table>{rows}</table>"


def _type(schema: Mapping[str, Any]) -> str:
    """A schema in a few words: `string or integer`, `list of Token`."""
    if "anyOf" in schema:
        return " or ".join(_type(option) for option in schema["anyOf"] if option != {"type": "null"})
    if "$ref" in schema:
        return schema["$ref"].rpartition("/")[2]
    if "enum" in schema:
        return " or ".join(str(value) for value in schema["enum"] if value is not None)
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return str(schema.get("type", "any"))
