"""The decorator `@scenario.cache()`: responses that are recorded and replayed."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from holodeck.config.secrets import collect
from holodeck.errors import ConfigError
from holodeck.lib.conversation.response_cache import CacheKey, NotRecorded, ResponseCache
from holodeck.lib.conversation.script_run import ScriptRun
from holodeck.lib.conversation.script_run import running as context_scenario
from holodeck.lib.secrets.redact import Redactor
from holodeck.lib.support.environment import cache_dir, cache_mode
from holodeck.scenario.config import ScenarioConfig

__all__ = ["NotRecorded", "context_scenario", "scenario_cache"]

F = TypeVar("F", bound=Callable[..., Any])


def scenario_cache(ignore: Sequence[str] = ()) -> Callable[[F], F]:
    """Cache what a function returns in scenarios that have a `cache_key`.

    Outside of such a scenario, the function is simply called. The cache key, the function and all
    of its arguments identify a response; for a method, also the class and the plain attributes of
    its object. Ids that are new in every run, such as those of threads and tool calls, do not
    count, nor do secrets.

    Args:
        ignore: Arguments that do not count, such as `client`, or parts of them: `self.calls`.

    Raises:
        ConfigError: The function has no such argument; on a call: an argument or the response
            cannot be recorded.
        NotRecorded: On a call in the mode `replay`: there is no recorded response.
    """
    if not isinstance(ignore, Sequence) or isinstance(ignore, str):
        raise ConfigError(
            "scenario.cache", "write @scenario.cache() or @scenario.cache(ignore=[…])"
        )

    def decorate(function: F) -> F:
        cached = _CachedFunction(function, tuple(ignore))

        async def call_async(*args: Any, **kwargs: Any) -> Any:
            call = functools.partial(function, *args, **kwargs)
            entry = cached.lookup(args, kwargs)
            return await (call() if entry is None else entry[0].get(cached.name, entry[1], call))

        def call_blocking(*args: Any, **kwargs: Any) -> Any:
            call = functools.partial(function, *args, **kwargs)
            entry = cached.lookup(args, kwargs)
            return call() if entry is None else entry[0].get_blocking(cached.name, entry[1], call)

        wrapper = call_async if inspect.iscoroutinefunction(function) else call_blocking
        return cast("F", functools.wraps(function)(wrapper))

    return decorate


class _CachedFunction:
    def __init__(self, function: Callable[..., Any], ignored: Sequence[str]) -> None:
        self.name = f"{function.__module__}.{function.__qualname__}"
        self._signature = inspect.signature(function)
        self._ignored = ignored
        parameters = self._signature.parameters
        self._rest = next((k for k, p in parameters.items() if p.kind is p.VAR_KEYWORD), None)
        unknown = [path for path in ignored if path.partition(".")[0] not in parameters]
        if unknown and self._rest is None:
            raise ConfigError(
                f"scenario.cache(ignore={list(ignored)!r})",
                f"{self.name} has no argument {unknown[0]!r}; it has {', '.join(parameters)}",
            )

    def lookup(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[ResponseCache, Mapping[str, Any]] | None:
        """Return the cache and the arguments that identify the call; None if it is not cached."""
        run = context_scenario.get()
        config = run.config if run is not None else None
        if run is None or not isinstance(config, ScenarioConfig):
            return None
        mode = config.cache_mode or cache_mode()
        if mode == "off" or (config.cache_key is None and mode != "replay"):
            return None
        if config.cache_key is None:
            raise ConfigError(run.location, "replaying needs a cache_key; write cache_key='…'")
        folder = (
            Path(config.cache_dir).expanduser() if config.cache_dir else cache_dir() / "scenarios"
        )
        cache = ResponseCache(folder, config.cache_key, mode, clean=_clean)
        return cache, self._key_arguments(run, args, kwargs)

    def _key_arguments(
        self, run: ScriptRun, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> dict[str, Any]:
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        values = dict(bound.arguments)
        values.update(values.pop(self._rest) if self._rest is not None else {})
        ids = {
            run.thread_id: "(this thread)",
            run.ids["scenario_run_id"]: "(this run)",
            run.batch_run_id: "(this batch)",
        }
        key = CacheKey(ids, self._ignored)
        known = {}
        if "self" in values:
            owner = values.pop("self")
            known = {} if "self" in self._ignored else {"self": key.of_owner(owner, "self")}
        return {**known, **key.of_values(values)}


def _clean(value: dict[str, Any]) -> dict[str, Any]:
    return Redactor(collect()).redact_report(value)
