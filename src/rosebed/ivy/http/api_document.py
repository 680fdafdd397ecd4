"""The API's OpenAPI document, made from the routes and the schemas they read and write."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from rosebed.core.version import __version__
from rosebed.ivy.http.endpoint import ANY_METHOD, Operation, Resource

_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
_REFERENCE = "#/components/schemas/{name}"


def api_document(resources: Sequence[Resource], *, root_path: str = "") -> dict[str, Any]:
    """OpenAPI 3.1, of those that answer certain methods. `root_path` is what a proxy puts before each path."""
    resources = [resource for resource in resources if ANY_METHOD not in resource.operations]
    schemas = _Schemas([operation for resource in resources for operation in resource.operations.values()])
    return {
        "openapi": "3.1.0",
        "info": {"title": "Rosebed", "version": __version__, "description": "Embeddings over HTTP."},
        **({"servers": [{"url": root_path}]} if root_path else {}),
        "paths": {
            _PARAMETER.sub(r"{\1}", resource.path): {
                "parameters": [_path_parameter(name) for name in _PARAMETER.findall(resource.path)],
                **{method.lower(): _describe(operation, schemas) for method, operation in resource.operations.items()},
            }
            for resource in resources
        },
        "components": {
            "schemas": schemas.components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


class _Schemas:
    """JSON schemas of every type the operations name."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        types = [kind for operation in operations for kind in (*operation.body, *operation.answer)]
        schemas, self.components = msgspec.json.schema_components(types, ref_template=_REFERENCE)
        self._by_type = list(zip(types, schemas, strict=True))

    def of(self, kind: Any) -> dict[str, Any]:
        return next(schema for known, schema in self._by_type if known is kind or known == kind)


def _path_parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _describe(operation: Operation, schemas: _Schemas) -> dict[str, Any]:
    described: dict[str, Any] = {
        "summary": operation.summary,
        "responses": {"200": {"description": "Success", **_content(operation.answer, schemas)}},
        "security": [] if operation.is_open else [{"key": []}],
    }
    if operation.body:
        described["requestBody"] = {"required": True, **_content(operation.body, schemas)}
        described["responses"]["default"] = {"description": "A refusal, in the dialect's words"}
    return described


def _content(kinds: tuple[Any, ...], schemas: _Schemas) -> dict[str, Any]:
    if not kinds:
        return {}
    options = [schemas.of(kind) for kind in kinds]
    schema = options[0] if len(options) == 1 else {"anyOf": options}
    return {"content": {"application/json": {"schema": schema}}}
