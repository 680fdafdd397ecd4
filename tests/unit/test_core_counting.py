"""Numbers of things in words."""

from rosebed.core.counting import counted


def test_one_is_singular() -> None:
    assert [counted(number, "worker") for number in (0, 1, 2)] == ["0 workers", "1 worker", "2 workers"]
