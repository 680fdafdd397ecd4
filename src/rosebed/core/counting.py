"""Numbers of things, in words that people read."""


def counted(number: int, noun: str) -> str:
    """`1 worker`, `2 workers`; `noun` is the singular of one that takes an s."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
