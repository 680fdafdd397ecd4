"""Which graphs are added for frequent sizes, when, and what is kept of sizes from run to run. No torch."""

import json
import logging
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rosebed.core.types import Lane
from rosebed.rose.cuda.history import History, HistoryKey, user_folder
from rosebed.rose.cuda.keys import MAX_GRAPHS, GraphKey, ladder, smallest_key
from rosebed.rose.cuda.refine import LEAST_FREE_BYTES, Room, fine_tokens, refinements
from rosebed.rose.cuda.refiner import MOST_S, SAVE_EVERY_S, Refiner

RUNGS = ladder(8192)
KEY = HistoryKey(chip="NVIDIA H200", fingerprint="abc", dtype="bfloat16", rosebed="1", torch="2", triton="3")


def rung_of(key: GraphKey) -> int | None:
    rung = smallest_key(RUNGS, key.num_tokens, key.attention)
    return None if rung is None else rung.num_tokens


def ours(num_tokens: int, slot: Lane = Lane.ONLINE) -> GraphKey:
    return GraphKey(num_tokens, "triton", slot=slot)


@given(num_tokens=st.integers(1, 8192))
def test_sizes_are_multiples_of_64_within_their_rung(num_tokens: int) -> None:
    fine = fine_tokens(num_tokens)
    key = smallest_key(RUNGS, num_tokens, "triton")
    assert key is not None
    assert num_tokens <= fine <= key.num_tokens
    assert fine in (16, 32) or not fine % 64
    if num_tokens <= 1024:
        assert fine == key.num_tokens
    assert ours(fine).num_rows % 16 == 0  # or kernels would be compiled anew for another alignment


def test_the_keys_that_save_most_come_first_and_rare_or_small_savings_not_at_all() -> None:
    counts = {
        ours(1088): 1000,  # 192 saved each
        ours(1216): 1100,  # 64 each
        ours(2112): 99,  # rare
        ours(1280): 10**6,  # a rung already
        ours(5056): 300,  # 64 each: not worth it
        ours(9024): 10**6,  # beyond
    }
    assert refinements(counts, rung_of, captured=()) == []  # a thousandth of all is more than any of them saves
    counts[ours(1280)] = 1000
    assert refinements(counts, rung_of, captured=()) == [ours(1088), ours(1216), ours(5056)]
    assert refinements(counts, rung_of, captured={ours(1088)}) == [ours(1216), ours(5056)]
    assert refinements({}, rung_of, captured=()) == []


@pytest.mark.parametrize(
    ("changes", "left"),
    [
        ({}, True),
        ({"num_graphs": MAX_GRAPHS}, False),
        ({"max_bytes": 100}, False),
        ({"max_bytes": 101}, True),
        ({"free_bytes": LEAST_FREE_BYTES - 1}, False),
    ],
)
def test_there_is_room_within_all_bounds(changes: dict[str, int], left: bool) -> None:
    bounds: dict[str, Any] = {"num_graphs": 100, "graph_bytes": 100, "max_bytes": None, "free_bytes": 1 << 34}
    assert Room(**bounds | changes).is_left is left


def test_a_history_is_read_as_it_was_written(tmp_path: Path) -> None:
    history = History(KEY, tmp_path / "new" / "folder")
    assert history.read() == Counter()
    counts = {ours(1088): 5, ours(64, Lane.BULK): 2, GraphKey(2048, "fa4", 4): 1}
    history.write(counts)
    assert history.read() == counts
    assert [path.name for path in history.folder.iterdir()] == [KEY.file_name]
    assert KEY.file_name.startswith("nvidia_h200_")
    history.write({ours(16): 1})
    assert history.read() == {ours(16): 1}


def test_each_model_chip_and_version_has_a_file_of_its_own() -> None:
    changes = ("chip", "fingerprint", "dtype", "rosebed", "torch", "triton")
    names = {KEY.file_name} | {
        HistoryKey(**{**_fields(KEY), change: "other"}).file_name  # pyright: ignore[reportArgumentType]
        for change in changes
    }
    assert len(names) == 7


def _fields(key: HistoryKey) -> dict[str, str]:
    return {name: getattr(key, name) for name in ("chip", "fingerprint", "dtype", "rosebed", "torch", "triton")}


GOOD_ROW = ["ONLINE", "triton", 64, None, 3]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "null",
        '{"steps": []}',
        json.dumps({"key": {**_fields(KEY), "dtype": "float32"}, "steps": [GOOD_ROW]}),
        *(
            json.dumps({"key": _fields(KEY), "steps": steps})
            for steps in (
                None,
                [None],
                [GOOD_ROW[:4]],
                [["NO", *GOOD_ROW[1:]]],
                [["ONLINE", 5, 64, None, 3]],
                [["ONLINE", "triton", 0, None, 3]],
                [["ONLINE", "triton", 64.5, None, 3]],
                [["ONLINE", "triton", 1 << 40, None, 3]],
                [["ONLINE", "triton", 64, -1, 3]],
                [["ONLINE", "triton", 64, None, True]],
                [["ONLINE", "triton", 64, None, 10**30]],
            )
        ),
        "[" * 100_000,
        " " * (2 << 20),
    ],
)
def test_a_broken_or_foreign_file_is_ignored_with_a_warning(
    tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    history = History(KEY, tmp_path)
    history.path.write_text(content)
    with caplog.at_level(logging.WARNING):
        assert history.read() == Counter()
    assert f"{history.path} is ignored" in caplog.text
    history.write({ours(64): 1})
    assert history.read() == {ours(64): 1}


def test_a_folder_that_cannot_be_written_is_only_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING):
        History(KEY, tmp_path / "file").write({ours(64): 1})
    assert "the sizes of steps are not kept" in caplog.text


@pytest.mark.parametrize(("value", "expected"), [("/caches", "/caches/rosebed/steps"), ("", None), ("relative", None)])
def test_the_folder_is_in_the_users_cache(value: str, expected: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    assert user_folder() == Path(expected or Path.home() / ".cache" / "rosebed" / "steps")


class FakeSlot:
    """Graphs that take a megabyte each, and a clock that moves while they are made."""

    def __init__(self, pass_time: Callable[[float], None]) -> None:
        self.wanted: Counter[GraphKey] = Counter()
        self.held: list[GraphKey] = [ours(rung) for rung in RUNGS]
        self.compiled: list[GraphKey] = []
        self._pass_time = pass_time
        self.piece_s = 0.02

    @property
    def graph_bytes(self) -> int:
        return len(self.held) << 20

    def rung_of(self, key: GraphKey) -> int | None:
        return rung_of(key)

    def compile(self, key: GraphKey) -> None:
        self._pass_time(self.piece_s)
        self.compiled.append(key)

    def capture_idle(self, key: GraphKey) -> None:
        assert key in self.compiled
        self.held.append(key)


class Idle:
    """A refiner over one slot."""

    def __init__(self, folder: Path, *, max_bytes: int | None = None) -> None:
        self.now = 0.0
        self.slot = FakeSlot(self._pass)
        self.history = History(KEY, folder)
        self.refiner = Refiner(
            {Lane.ONLINE: self.slot},
            self.history,
            max_bytes=max_bytes,
            free_bytes=lambda: 1 << 34,
            clock=lambda: self.now,
        )

    def _pass(self, seconds: float) -> None:
        self.now += seconds

    @property
    def added(self) -> list[GraphKey]:
        return self.slot.held[len(RUNGS) :]


def test_frequent_sizes_of_the_last_run_are_captured_in_two_pieces_each(tmp_path: Path) -> None:
    History(KEY, tmp_path).write({ours(1088): 2000, ours(2112): 1000, ours(3136): 1})
    idle = Idle(tmp_path)
    assert [idle.refiner.advance() for _ in range(5)] == [True] * 4 + [False]
    assert idle.added == [ours(1088), ours(2112)]
    idle.slot.wanted[ours(4160)] = 5000
    assert [idle.refiner.advance() for _ in range(3)] == [True, True, False]
    assert idle.added[2:] == [ours(4160)]


def test_a_bound_on_memory_ends_it(tmp_path: Path) -> None:
    History(KEY, tmp_path).write({ours(1088): 2000, ours(2112): 1000})
    idle = Idle(tmp_path, max_bytes=(len(RUNGS) + 1) << 20)
    assert [idle.refiner.advance() for _ in range(3)] == [True, True, False]
    assert idle.added == [ours(1088)]


def test_a_piece_that_takes_too_long_is_the_last(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    History(KEY, tmp_path).write({ours(1088): 2000})
    idle = Idle(tmp_path)
    idle.slot.piece_s = 2 * MOST_S
    with caplog.at_level(logging.WARNING):
        assert [idle.refiner.advance() for _ in range(2)] == [True, False]
    assert "took 0.5 s while idle" in caplog.text
    assert idle.added == []


def test_counts_are_kept_halved_and_written_at_most_every_few_minutes(tmp_path: Path) -> None:
    History(KEY, tmp_path).write({ours(64): 11, ours(128): 1})
    idle = Idle(tmp_path)
    idle.slot.wanted[ours(64)] = 3
    assert not idle.refiner.advance()
    assert idle.history.read() == {ours(64): 11, ours(128): 1}
    idle.now += SAVE_EVERY_S
    assert [idle.refiner.advance() for _ in range(2)] == [True, False]
    assert idle.history.read() == {ours(64): 5 + 3}
    idle.slot.wanted[ours(64)] = 4
    idle.refiner.save()
    assert idle.history.read() == {ours(64): 5 + 4}


def test_a_run_without_steps_leaves_the_file_alone(tmp_path: Path) -> None:
    History(KEY, tmp_path).write({ours(64): 11})
    Idle(tmp_path).refiner.save()
    assert History(KEY, tmp_path).read() == {ours(64): 11}
