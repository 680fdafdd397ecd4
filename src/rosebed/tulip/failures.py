"""What to run again after a step went wrong. Pure.

A forward pass that raised says nothing about which sequence is to blame, so its batch is halved until one is alone.
A sequence of non-finite rows may only be the victim of a batch mate, so each is run alone before it is believed.
"""

from rosebed.tulip.request import Portion, Portions


def num_sequences(portions: Portions) -> int:
    """Sequences in all."""
    return sum(portion.num_sequences for portion in portions)


def halves(portions: Portions) -> tuple[Portions, Portions]:
    """The first and second half of the sequences, in order. Both hold some if there are at least two."""
    left: list[Portion] = []
    right: list[Portion] = []
    room = num_sequences(portions) // 2
    for state, first, stop in portions:
        cut = min(stop, first + room)
        room -= cut - first
        if first < cut:
            left.append(Portion(state, first, cut))
        if cut < stop:
            right.append(Portion(state, cut, stop))
    return tuple(left), tuple(right)


def one_by_one(portions: Portions) -> list[Portion]:
    """Each sequence by itself, in order."""
    return [Portion(state, index, index + 1) for state, first, stop in portions for index in range(first, stop)]
