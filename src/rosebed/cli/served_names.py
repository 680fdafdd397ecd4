"""Several models may not answer to one name: who they are that would."""

from collections.abc import Iterable

from rosebed.core.errors import ConfigError


def check_served_names(models: Iterable[tuple[str, tuple[str, ...]]], remedy: str) -> None:
    """ConfigError for the first name of two models, each said as where it comes from and its names."""
    owners: dict[str, str] = {}
    for where, names in models:
        for name in dict.fromkeys(names):
            if name in owners:
                raise ConfigError(f"{owners[name]} and {where} are both called {name!r}: {remedy}")
            owners[name] = where
