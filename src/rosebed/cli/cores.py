"""Which CPU cores each of several servers on one machine gets, so that they do not take them from each other."""

import os
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

_TOPOLOGY = Path("/sys/devices/system/cpu")


def usable_cores() -> list[int]:
    """The logical cores this process may use, those of one socket and one physical core next to each other."""
    return sorted(os.sched_getaffinity(0), key=_place)


def divided(cores: list[int], shares: int) -> list[frozenset[int]]:
    """`cores` in so many shares of neighbours, as equal as can be; where there are too few, several get the same."""
    if shares > len(cores):
        return [frozenset({cores[share % len(cores)]}) for share in range(shares)]
    ends = [share * len(cores) // shares for share in range(shares + 1)]
    return [frozenset(cores[start:stop]) for start, stop in pairwise(ends)]


def is_cpu(device: str) -> bool:
    """Whether a server told to take `device` will compute on the CPU, as far as can be told without loading torch."""
    return device == "cpu" or (device == "auto" and not any(Path("/dev").glob("nvidia[0-9]*")))


def _place(core: int) -> tuple[int, int, int]:
    """Socket, physical core, logical core; zeros where the system does not say."""
    numbers = [0, 0]
    for index, name in enumerate(("physical_package_id", "core_id")):
        with suppress(OSError, ValueError):
            numbers[index] = int((_TOPOLOGY / f"cpu{core}" / "topology" / name).read_text())
    return numbers[0], numbers[1], core
