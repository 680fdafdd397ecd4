"""`rosebed tune` without a GPU: which shapes a model has, what a timer's figures choose, what a table keeps."""

from pathlib import Path

import pytest
from rose_checkpoints import spec_of, write_checkpoint

from rosebed.core.errors import ConfigError
from rosebed.rose.cuda.attention_choice import ATTENTION, AttentionShape
from rosebed.rose.cuda.linear_table import FLOAT8_PRODUCTS, PRODUCTS, ProductKind, ProductShape, load_table
from rosebed.rose.cuda.shapes import model_shapes
from rosebed.rose.cuda.tables import shipped_table
from rosebed.rose.cuda.tune import TOKEN_STEPS, candidates, choose_products
from rosebed.rose.cuda.tuning import shapes_to_measure, with_rows
from rosebed.rose.ops.triton.small_linear import LinearTiles

QKV = ProductShape(ProductKind.PLAIN, 3072, 1024)
DOWN = ProductShape(ProductKind.UNREDUCED, 1024, 4096)


@pytest.mark.parametrize("name", ["bert", "xlm_roberta", "mpnet", "distilbert"])
def test_shapes_of_an_encoder(name: str, tmp_path: Path) -> None:
    write_checkpoint(name, tmp_path)
    shapes = model_shapes(spec_of(tmp_path))
    assert shapes.products == (
        ProductShape(ProductKind.PLAIN, 192, 64),
        ProductShape(ProductKind.UNREDUCED, 64, 64),
        ProductShape(ProductKind.ACTIVATION, 96, 64),
        ProductShape(ProductKind.UNREDUCED, 64, 96),
    )
    assert (shapes.attention.num_heads, shapes.attention.causal) == (4, False)


def test_shapes_of_a_decoder(tmp_path: Path) -> None:
    write_checkpoint("qwen3", tmp_path)
    shapes = model_shapes(spec_of(tmp_path))
    assert shapes.products == (
        ProductShape(ProductKind.PLAIN, 256, 64),
        ProductShape(ProductKind.UNREDUCED, 64, 128),
        ProductShape(ProductKind.GATED, 96, 64),
        ProductShape(ProductKind.UNREDUCED, 64, 96),
    )
    assert shapes.attention == AttentionShape(num_heads=4, num_kv_heads=2, head_dim=32, causal=True)


def test_the_fastest_that_runs_is_chosen() -> None:
    cuts = list(candidates(QKV, 64))
    broken, best = cuts[0], cuts[1]
    running = {(QKV, cut) for cut in cuts if cut != broken}

    def time_us(shape: ProductShape, num_tokens: int, tiles: LinearTiles | None) -> float:
        if tiles == broken:
            pytest.fail("this one does not run")
        return 5.0 if tiles is None else 3.0 if tiles == best and num_tokens <= 64 else 7.0

    rows = choose_products([QKV], running, time_us)
    assert [row["most_tokens"] for row in rows] == list(TOKEN_STEPS)
    assert {row["most_tokens"]: row["us"] for row in rows}[64] == 3.0
    assert {row["cublas_us"] for row in rows} == {5.0}
    table = load_table({PRODUCTS: rows})
    assert table.choose(QKV, 64) == best
    assert table.choose(QKV, 512) is None


def test_float8_without_a_table_of_its_own_takes_few_tokens_from_the_other() -> None:
    shipped = shipped_table("NVIDIA H200")
    plain, float8 = load_table(shipped), load_table(shipped, float8=True)
    for tokens in (1, 16, 64):
        assert float8.choose(DOWN, tokens) == plain.choose(DOWN, tokens) is not None
    for tokens in (65, 4096):
        assert float8.choose(DOWN, tokens) is None
    unlisted = ProductShape(ProductKind.PLAIN, 64, 64)
    assert float8.choose(unlisted, 64) is not None
    assert float8.choose(unlisted, 65) is None


def test_a_table_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(ConfigError, match="the table of kernels has products of another form"):
        load_table({PRODUCTS: [{"kind": "plain"}]})


def test_without_a_model_the_shapes_of_the_table_are_measured_again() -> None:
    products, _ = shapes_to_measure(None, shipped_table("NVIDIA H200"))
    assert QKV in products
    with pytest.raises(ConfigError, match="give a MODEL"):
        shapes_to_measure(None, {})


def test_what_was_not_measured_is_kept() -> None:
    known = {"chip": "x", PRODUCTS: [_row(QKV, 1.0), _row(DOWN, 2.0)]}
    table = with_rows(known, {FLOAT8_PRODUCTS: [_row(QKV, 0.5)], PRODUCTS: [_row(QKV, 0.9)], ATTENTION: []})
    assert table == {PRODUCTS: [_row(DOWN, 2.0), _row(QKV, 0.9)], FLOAT8_PRODUCTS: [_row(QKV, 0.5)]}


def _row(shape: ProductShape, us: float) -> dict[str, object]:
    return {"kind": str(shape.kind), "out_features": shape.out_features, "in_features": shape.in_features, "us": us}
