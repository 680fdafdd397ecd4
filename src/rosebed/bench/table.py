"""Text tables: columns aligned, numbers to the right."""

from collections.abc import Sequence

GAP = "  "


def format_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lines without trailing blanks. The first column is aligned left, the others right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    return "\n".join(_line(row, widths) for row in (header, *rows))


def number(value: float | None, digits: int = 2) -> str:
    """A number for people, or a dash for none."""
    return "–" if value is None else f"{value:,.{digits}f}"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = (
        cell.rjust(width) if place else cell.ljust(width)
        for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return GAP.join([first, *others]).rstrip()
