"""Finds what answers a request by its path. Knows no method and no meaning."""

import re
from collections.abc import Sequence
from typing import Generic, TypeVar
from urllib.parse import unquote, urlsplit

Target = TypeVar("Target")

_PARAMETER = re.compile(r"\{(?P<name>\w+)(?P<is_path>:path)?\}")


class Router(Generic[Target]):
    """Paths, and what each leads to."""

    def __init__(self, routes: Sequence[tuple[str, Target]], default: Target, *, root_path: str = "") -> None:
        """Paths may leave parts open: `{name}` up to the next slash, `{name:path}` beyond it.

        `default` answers all others. `root_path` is what a proxy puts before each path, whether it leaves it there or
        not.
        """
        self._fixed = {path: target for path, target in routes if "{" not in path}
        self._open = [(_pattern(path), target) for path, target in routes if "{" in path]
        self.default = default
        """What answers all other paths."""
        self._root_path = root_path
        self._by_bytes = {path.encode(): target for path, target in self._fixed.items()}

    def find(self, target: bytes) -> tuple[Target, dict[str, str] | None]:
        """What a request line's target leads to, and the parts that its path leaves open, if any."""
        found = self._by_bytes.get(target)
        return self._look_up(path_of(target)) if found is None else (found, None)

    def _look_up(self, path: str) -> tuple[Target, dict[str, str] | None]:
        if self._root_path and path.startswith(self._root_path + "/"):
            path = path.removeprefix(self._root_path)
        if path in self._fixed:
            return self._fixed[path], None
        for pattern, target in self._open:
            if match := pattern.fullmatch(path):
                return target, match.groupdict()
        return self.default, None


def path_of(target: bytes) -> str:
    """The path that a request line's target names, unquoted. Targets may be whole addresses."""
    text = target.decode("latin-1")
    path = text.partition("?")[0] if text.startswith("/") else _path_of_address(text)
    return unquote(path) if "%" in path else path


def _path_of_address(text: str) -> str:
    try:
        return urlsplit(text).path or "/"
    except ValueError:
        return text


def _pattern(path: str) -> re.Pattern[str]:
    pattern = ""
    end = 0
    for parameter in _PARAMETER.finditer(path):
        part = ".*" if parameter["is_path"] else "[^/]+"
        pattern += re.escape(path[end : parameter.start()]) + f"(?P<{parameter['name']}>{part})"
        end = parameter.end()
    return re.compile(pattern + re.escape(path[end:]), re.DOTALL)
