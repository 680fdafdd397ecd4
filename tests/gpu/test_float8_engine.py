"""`--dtype float8` as a whole: eager, captured and replayed, against the CPU engine in float32."""

from pathlib import Path

import pytest
from cuda_steps import least_cosine, vectors_of
from rose_checkpoints import load, make_sequence, pack, random_ids, spec_of, write_checkpoint
from safetensors.torch import load_file, save_file

from rosebed.core.types import Batch
from rosebed.rose import load_engine
from rosebed.rose.config import EngineConfig, GraphPolicy
from rosebed.rose.cuda.engine import CudaEngine

LENGTHS = (2, 7, 63, 64, 65, 150)


def write_calm_checkpoint(name: str, folder: Path) -> None:
    """A random model in which rounding does not grow from layer to layer, as in a trained one: small products."""
    write_checkpoint(name, folder)
    tensors = load_file(folder / "model.safetensors")
    for key, tensor in tensors.items():
        if key.endswith("embed_tokens.weight"):
            tensors[key] = 10 * tensor
        elif tensor.dim() == 2 and "embed" not in key and "bias" not in key:
            tensors[key] = tensor / 2
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def float8_engine(folder: Path, graphs: GraphPolicy) -> CudaEngine:
    config = EngineConfig(device="cuda", dtype="float8", graphs=graphs, token_budget=512)
    engine = load_engine(spec_of(folder), config)
    assert isinstance(engine, CudaEngine)
    return engine


def batches() -> list[Batch]:
    """Few tokens, whose weights alone are float8, and many, which are too."""
    sequences = [make_sequence(random_ids(n, seed=n)) for n in LENGTHS]
    return [*(pack(sequence) for sequence in sequences), pack(*sequences), pack(*sequences * 8)]


@pytest.mark.parametrize("name", ["bert", "xlm_roberta", "mpnet", "distilbert", "qwen3", "pplx"])
def test_cosine_to_float32(name: str, tmp_path: Path) -> None:
    write_calm_checkpoint(name, tmp_path)
    reference, engine = load(tmp_path), float8_engine(tmp_path, "lazy")
    assert engine.info.dtype == "float8"
    for repeat in ("eager", "captured", "replayed"):
        for batch in batches():
            cosine = least_cosine(vectors_of(engine, batch), vectors_of(reference, batch))
            assert cosine >= 0.999, (repeat, batch.num_tokens)


def test_every_graph_is_captured_first(tmp_path: Path) -> None:
    write_calm_checkpoint("bert", tmp_path)
    reference, engine = load(tmp_path), float8_engine(tmp_path, "full")
    engine.warm_up()
    for batch in batches():
        assert least_cosine(vectors_of(engine, batch), vectors_of(reference, batch)) >= 0.999


def test_a_bound_on_graphs_leaves_a_coarser_ladder_that_serves_the_same(tmp_path: Path) -> None:
    write_calm_checkpoint("bert", tmp_path)
    engine, full = (
        load_engine(spec_of(tmp_path), EngineConfig(device="cuda", graph_memory_mb=bound, token_budget=512))
        for bound in (256, None)
    )
    engine.warm_up()
    full.warm_up()
    for batch in batches():
        assert least_cosine(vectors_of(engine, batch), vectors_of(full, batch)) >= 0.9999
