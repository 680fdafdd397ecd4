"""Infinity's dialect: OpenAI's answers with an id and a time, its list of models, its words for errors."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest
from ivy_support import CLS, HELLO, SEP, expected_vector, serving, vectors_of

from rosebed.core.engine import EngineInfo
from rosebed.ivy.dialects.infinity import InfinityList, InfinityModels
from rosebed.testing import FakeEngine


@pytest.fixture
async def client(checkpoint: Path, info: EngineInfo) -> AsyncGenerator[httpx.AsyncClient]:
    async with serving(FakeEngine(info), model=str(checkpoint)) as client:
        yield client


async def test_embeddings(client: httpx.AsyncClient, info: EngineInfo) -> None:
    answer = await client.post("/infinity/embeddings", json={"input": ["hello"], "model": "tiny bert"})
    np.testing.assert_array_equal(vectors_of(answer), [expected_vector(info, [CLS, HELLO, SEP])])
    assert answer.json()["id"] == f"infinity-{answer.headers['x-request-id']}"
    msgspec.json.decode(answer.content, type=InfinityList)


async def test_models(client: httpx.AsyncClient) -> None:
    answer = await client.get("/infinity/models")
    (model,) = msgspec.json.decode(answer.content, type=InfinityModels).data
    assert (model.id, model.owned_by, model.capabilities) == ("tiny bert", "infinity", ["embed"])
    assert (await client.get("/infinity/health")).status_code == 200


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "input"),
        ({"input": []}, "input"),
        ({"input": [[1]]}, "input[0]"),
        ({"input": ["a", "a " * 30]}, "input[1]"),
        ({"input": "a", "modality": "image"}, "modality"),
        ({"input": "a", "dimensions": 0}, "dimensions"),
    ],
)
async def test_refusals(client: httpx.AsyncClient, body: dict[str, Any], param: str) -> None:
    answer = await client.post("/infinity/embeddings", json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (422, 422, param)
