"""Whatever the OpenAPI document allows, and what it does not, is answered: by no 5xx but 503 with a Retry-After."""

from types import SimpleNamespace
from typing import Any

import hypothesis
import schemathesis
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import response_schema_conformance

EXAMPLES = 10
"""Of each operation, of what the document allows and of what it does not; with more, a run takes minutes."""


def test_every_operation(minilm: SimpleNamespace) -> None:
    schema = schemathesis.openapi.from_url(f"{minilm.url}/openapi.json")
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) > 60
    succeeded: set[str] = set()
    for operation in operations:
        modes = GenerationMode if operation.body else [GenerationMode.POSITIVE]  # nothing can be wrong without a body
        for mode in modes:
            run(operation.as_strategy(generation_mode=mode), succeeded)
    assert len(succeeded) > 40  # of paths; some take more luck than there are examples


def run(strategy: Any, succeeded: set[str]) -> None:
    @hypothesis.given(case=strategy)
    @hypothesis.seed(0)
    @hypothesis.settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.generate],
    )
    def check(case: Any) -> None:
        answer = case.call(timeout=20)
        if answer.status_code == 503:
            assert int(answer.headers["retry-after"][0]) >= 1
            return
        assert answer.status_code < 500, f"{case.as_curl_command()}\n{answer.text}"
        if answer.status_code == 200:
            succeeded.add(case.operation.path)
        if answer.status_code == 200 and answer.headers["content-type"] == ["application/json"]:
            case.validate_response(answer, checks=[response_schema_conformance])

    check()
