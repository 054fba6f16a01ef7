"""The decorator `@scenario.cache()`; what it needs is imported once it is used.

`holodeck.scenario` imports this module at once, so that its name `cache` is the decorator, also
after somebody has imported the module of that name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from holodeck.lib.conversation.script_run import running as context_scenario
    from holodeck.scenario.caching import NotRecorded

__all__ = ["NotRecorded", "context_scenario", "scenario_cache"]

F = TypeVar("F", bound=Callable[..., Any])


def scenario_cache(ignore: Sequence[str] = ()) -> Callable[[F], F]:
    """Cache what a function returns in scenarios that have a `cache_key`.

    See `holodeck.scenario.caching.cache`.
    """
    from holodeck.scenario.caching import cache  # noqa: PLC0415 - see above

    return cache(ignore)


def __getattr__(name: str) -> object:
    names = {"NotRecorded": "NotRecorded", "context_scenario": "running"}
    if name not in names:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from holodeck.scenario import caching  # noqa: PLC0415 - see above

    return getattr(caching, names[name])
