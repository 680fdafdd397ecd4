"""The memory plan: what it counts, and how it refuses. No torch."""

from pathlib import Path
from typing import Any

import pytest
from core_folders import PPLX, XLM_R, write_folder

from rosebed.core.checkpoint import CheckpointFiles
from rosebed.core.errors import ConfigError
from rosebed.core.model_spec import ModelOverrides, ModelSpec, resolve_model_spec
from rosebed.rose.cuda.memory import MemoryPlan, plan_memory


def spec_of(folder: Path, config: dict[str, Any]) -> ModelSpec:
    return resolve_model_spec(
        CheckpointFiles.read(write_folder(folder, {"config.json": config})), ModelOverrides(pooling="cls")
    )


def test_counts_weights_and_the_widest_layer(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, XLM_R | {"num_attention_heads": 16, "intermediate_size": 4096})
    plan = plan_memory(spec, num_parameters=568_000_000, item_bytes=2, max_graph_tokens=8192)
    assert plan.weights == 1_136_000_000
    assert plan.graphs == 8192 * int((6 * 1024 + 4 * 1024 + 3 * 4096) * 2 * 1.25)
    assert plan.largest_step == 0  # 8192 tokens fit the ladder


def test_float8_is_read_as_bfloat16_and_keeps_activations_twice(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, XLM_R | {"num_attention_heads": 16, "intermediate_size": 4096})
    plan = plan_memory(spec, num_parameters=568_000_000, item_bytes=2, max_graph_tokens=8192, is_float8=True)
    assert plan.weights == 1_136_000_000
    assert plan.graphs == 8192 * int((6 * 1024 + 4 * 1024 + 3 * 4096) * 3 * 1.25)


def test_a_longer_context_is_planned_for(tmp_path: Path) -> None:
    config = PPLX | {
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 3072,
    }
    plan = plan_memory(spec_of(tmp_path, config), num_parameters=1, item_bytes=2, max_graph_tokens=8192)
    assert plan.largest_step == 4 * plan.graphs  # 32768 tokens, one by one


def test_a_bulk_slot_computes_beside_the_other(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, XLM_R | {"num_attention_heads": 16, "intermediate_size": 4096})
    plan = plan_memory(spec, num_parameters=568_000_000, item_bytes=2, max_graph_tokens=8192, bulk_slot=True)
    assert plan.bulk_slot == plan.graphs + (256 << 20)
    assert plan.total == plan.weights + 2 * plan.graphs + plan.fixed + (256 << 20)
    with pytest.raises(ConfigError, match=r"bulk lane 0\.7 GB.*or --max-length, or --no-bulk-slot$"):
        plan.check(plan.total - 1, "cuda:0")


def test_refuses_naming_device_need_and_parts() -> None:
    plan = MemoryPlan(weights=8_000_000_000, graphs=1_000_000_000, largest_step=0, fixed=500_000_000)
    plan.check(9_500_000_000, "cuda:0")
    with pytest.raises(ConfigError, match=r"cuda:0 has 9\.4 GB free, but this model needs 9\.5 GB: weights 8\.0 GB"):
        plan.check(9_400_000_000, "cuda:0")
