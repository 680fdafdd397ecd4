"""How cores are shared out among servers of one machine."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rosebed.cli import cores
from rosebed.cli.cores import divided, is_cpu, usable_cores


@given(st.integers(1, 200), st.integers(1, 40))
def test_shares_are_nearly_equal_and_together_all(num_cores: int, shares: int) -> None:
    own = divided(list(range(num_cores)), shares)
    assert len(own) == shares
    sizes = {len(share) for share in own}
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) == max(1, num_cores // shares)
    if shares <= num_cores:
        assert sorted(core for share in own for core in share) == list(range(num_cores))


def test_more_servers_than_cores_share_them_evenly() -> None:
    assert divided([4, 7], 5) == [frozenset({core}) for core in (4, 7, 4, 7, 4)]


def test_neighbours_are_threads_of_one_core_and_cores_of_one_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = {0: (0, 0), 1: (1, 0), 2: (0, 1), 3: (1, 1), 4: (0, 0), 5: (1, 0), 6: (0, 1), 7: (1, 1)}
    for core, (socket, physical) in places.items():
        folder = tmp_path / f"cpu{core}" / "topology"
        folder.mkdir(parents=True)
        (folder / "physical_package_id").write_text(f"{socket}\n")
        (folder / "core_id").write_text(f"{physical}\n")
    monkeypatch.setattr(cores, "_TOPOLOGY", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid=0: set(places))
    assert usable_cores() == [0, 4, 2, 6, 1, 5, 3, 7]


def test_where_the_system_says_nothing_cores_go_by_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "_TOPOLOGY", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid=0: {3, 1, 2})
    assert usable_cores() == [1, 2, 3]


def test_what_computes_on_the_cpu() -> None:
    assert is_cpu("cpu")
    assert not is_cpu("cuda:1")
    assert is_cpu("auto") is not any(Path("/dev").glob("nvidia[0-9]*"))
