"""Which table of measured choices is used, and how one is written. No torch."""

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from rosebed.core.errors import ConfigError
from rosebed.rose.cuda.tables import TableKey, find_table, shipped_table, write_table

KEY = TableKey(chip="NVIDIA H200", driver="580.1", torch="2.11.0+cu130", triton="3.6.0")
ROWS = [{"kind": "plain", "us": 1.5}, {"kind": "gated", "us": 2.5}]


def test_what_was_written_for_this_machine_is_preferred(tmp_path: Path) -> None:
    assert find_table(KEY, folder=tmp_path) == shipped_table(KEY.chip)
    write_table(tmp_path / KEY.file_name, KEY, {"products": ROWS})
    table = find_table(KEY, folder=tmp_path)
    assert table["products"] == ROWS
    assert (table["chip"], table["torch"]) == ("NVIDIA H200", "2.11.0+cu130")
    assert [path.name for path in tmp_path.iterdir()] == [KEY.file_name]


@pytest.mark.parametrize("change", [{"driver": "590.1"}, {"torch": "2.12.0"}, {"triton": "3.7.0"}])
def test_other_versions_do_not_find_it(change: dict[str, str], tmp_path: Path) -> None:
    write_table(tmp_path / KEY.file_name, KEY, {"products": ROWS})
    assert find_table(replace(KEY, **change), folder=tmp_path) == shipped_table(KEY.chip)


def test_a_chip_without_a_table_has_an_empty_one(tmp_path: Path) -> None:
    assert find_table(replace(KEY, chip="NVIDIA L4"), folder=tmp_path) == {}
    assert shipped_table("NVIDIA H200")["products"]


def test_a_given_table_of_other_versions_is_used_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "deep" / "own.json"
    write_table(path, replace(KEY, torch="2.9.0"), {"products": ROWS})
    with caplog.at_level(logging.WARNING):
        assert find_table(KEY, str(path), folder=tmp_path)["products"] == ROWS
    assert caplog.messages == [f"{path} was measured with torch 2.9.0; this is 2.11.0+cu130"]


def test_a_given_table_of_another_chip_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "own.json"
    write_table(path, replace(KEY, chip="NVIDIA L4"), {"products": ROWS})
    with pytest.raises(ConfigError, match=r"own\.json was measured on 'NVIDIA L4', and this is 'NVIDIA H200'"):
        find_table(KEY, str(path), folder=tmp_path)


@pytest.mark.parametrize("content", [None, "{", "[]"])
def test_a_given_table_that_cannot_be_read_is_refused(content: str | None, tmp_path: Path) -> None:
    path = tmp_path / "own.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=r"--tune-table .*own\.json"):
        find_table(KEY, str(path), folder=tmp_path)


def test_an_unwritable_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"table\.json cannot be written"):
        write_table(tmp_path / "file" / "table.json", KEY, {"products": ROWS})


def test_a_table_is_a_line_per_choice(tmp_path: Path) -> None:
    write_table(tmp_path / "t.json", KEY, {"products": ROWS, "float8_products": []})
    text = (tmp_path / "t.json").read_text()
    assert json.loads(text)["float8_products"] == []
    assert sum(line.startswith("  {") for line in text.splitlines()) == len(ROWS)
