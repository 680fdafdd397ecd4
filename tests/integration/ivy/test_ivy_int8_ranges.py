"""`--int8-ranges`: int8 and uint8 on the operator's ranges, over HTTP, and where there is no use for them."""

import json
from pathlib import Path

import numpy as np
import pytest
from ivy_support import CLS, HELLO, SEP, expected_vector, serving

from rosebed.core.engine import EngineInfo
from rosebed.core.errors import ConfigError
from rosebed.core.model_spec import ModelOverrides
from rosebed.ivy.config import ModelConfig
from rosebed.ivy.model import int8_ranges_of, read_spec
from rosebed.testing import FakeEngine


@pytest.fixture
def ranges(tmp_path: Path) -> str:
    file = tmp_path / "ranges.json"
    file.write_text(json.dumps([[-0.5] * 8, [1.0] * 8]))
    return str(file)


async def test_they_are_of_vectors_as_the_model_has_them(info: EngineInfo, ranges: str) -> None:
    overrides = ModelOverrides(matryoshka="any")
    async with serving(FakeEngine(info), int8_ranges=ranges, overrides=overrides) as client:
        vector = expected_vector(info, [CLS, HELLO, SEP])
        unsigned = np.clip(np.floor((vector + np.float32(0.5)) / (np.float32(1.5) / np.float32(255))), 0, 255)
        for dtype, expected in (("uint8", unsigned), ("int8", unsigned - 128)):
            answer = await client.post("/v1/embeddings", json={"input": "hello", "embed_dtype": dtype})
            assert answer.json()["data"][0]["embedding"] == expected.tolist()
        fewer = {"input": "hello", "dimensions": 4}
        refused = await client.post("/v1/embeddings", json={**fewer, "embed_dtype": "int8"})
        assert refused.status_code == 400
        assert refused.json()["error"]["param"] == "dimensions"
        message = "int8 and uint8 are made with ranges of 8 components here (--int8-ranges), not 4"
        assert refused.json()["error"]["message"] == f"dimensions: {message}"
        of_cohere = await client.post(
            "/v2/embed", json={"texts": ["hello"], "output_dimension": 4, "embedding_types": ["int8"]}
        )
        assert of_cohere.json() == {"message": f"output_dimension: {message}"}
        kept = await client.post("/v1/embeddings", json=fewer)
        assert len(kept.json()["data"][0]["embedding"]) == 4


def config_of(folder: Path, architecture: str) -> str:
    kind = {"BertModel": "bert", "PPLXQwen3Model": "bidirectional_pplx_qwen3"}[architecture]
    config = {"architectures": [architecture], "model_type": kind, "hidden_size": 8, "vocab_size": 10}
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 16}))
    return str(folder)


@pytest.mark.parametrize(
    ("architecture", "dimensions", "says"),
    [
        ("PPLXQwen3Model", None, "this model has a quantiser of its own"),
        ("BertModel", 4, "vectors have 4 components, list [0] has 8"),
    ],
)
def test_a_model_that_has_no_use_for_them(
    tmp_path: Path, ranges: str, architecture: str, dimensions: int | None, says: str
) -> None:
    overrides = ModelOverrides(matryoshka="any", max_length=9)
    config = ModelConfig(tulips=("h:1",), overrides=overrides, int8_ranges=ranges, dimensions=dimensions)
    spec = read_spec(config_of(tmp_path, architecture), config)
    with pytest.raises(ConfigError) as refused:
        int8_ranges_of(spec, config)
    assert refused.value.message == f"--int8-ranges {ranges}: {says}"
