"""Answers of models that are asked for once and then given again: `@scenario.cache()`."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from holodeck.config.environment import cache_dir, cache_mode
from holodeck.config.secrets import collect
from holodeck.errors import ConfigError
from holodeck.lib.conversation.recordings import NotRecorded, Recordings
from holodeck.lib.conversation.response_cache import CachedCall, CacheKey
from holodeck.lib.conversation.script_run import ScriptRun, running
from holodeck.lib.redact import Redactor
from holodeck.scenario.config import ScenarioConfig

__all__ = ["NotRecorded", "cache"]

F = TypeVar("F", bound=Callable[..., Any])


def cache(ignore: Sequence[str] = ()) -> Callable[[F], F]:
    """Keep what a function answers in scenarios that have a `cache_key`, and give it again.

    Outside of such a scenario, the function is simply called. An answer is found by the cache key,
    the function, and all of its arguments; of a method, also by the class and the plain attributes
    of its object. Names that are new in every run, such as those of threads and tool calls, do not
    count, nor do secrets.

    Args:
        ignore: Arguments that do not count, such as `client`, or parts of them: `self.calls`.

    Raises:
        ConfigError: The function has no such argument; on a call: an argument or the answer is
            something that cannot be kept.
        NotRecorded: On a call in the mode `replay`: there is no answer.
    """
    if not isinstance(ignore, Sequence) or isinstance(ignore, str):
        raise ConfigError(
            "scenario.cache", "write @scenario.cache() or @scenario.cache(ignore=[…])"
        )

    def decorated(function: F) -> F:
        call = _Function(function, tuple(ignore))
        wrapper = _waiting(call) if inspect.iscoroutinefunction(function) else _direct(call)
        return cast("F", functools.wraps(function)(wrapper))

    return decorated


class _Function:
    """A function whose answers are kept."""

    def __init__(self, function: Callable[..., Any], ignored: Sequence[str]) -> None:
        self.plain = function
        self.name = f"{function.__module__}.{function.__qualname__}"
        self._signature = inspect.signature(function)
        self._ignored = ignored
        parameters = self._signature.parameters
        self._rest = next((k for k, p in parameters.items() if p.kind is p.VAR_KEYWORD), None)
        unknown = [one for one in ignored if one.partition(".")[0] not in parameters]
        if unknown and self._rest is None:
            raise ConfigError(
                f"scenario.cache(ignore={list(ignored)!r})",
                f"{self.name} has no argument {unknown[0]!r}; it has {', '.join(parameters)}",
            )

    def found_by(self, run: ScriptRun, args: Sequence[Any], given: Mapping[str, Any]) -> Any:
        """The facts of the arguments."""
        bound = self._signature.bind(*args, **given)
        bound.apply_defaults()
        values = dict(bound.arguments)
        values.update(values.pop(self._rest) if self._rest is not None else {})
        facts = CacheKey(_ids_of(run), self._ignored)
        owners = {"self": values.pop("self")} if "self" in values else {}
        if "self" in self._ignored:
            owners = {}
        known = {name: facts.of_owner(owner, name) for name, owner in owners.items()}
        return {**known, **facts.named(values)}


def _call(function: _Function, args: Sequence[Any], given: Mapping[str, Any]) -> CachedCall | None:
    """The call to be looked up; None if the function is simply to be called."""
    run = running.get()
    config = run.config if run is not None else None
    if run is None or not isinstance(config, ScenarioConfig):
        return None
    mode = config.cache_mode or cache_mode()
    if mode == "off" or (config.cache_key is None and mode != "replay"):
        return None
    if config.cache_key is None:
        raise ConfigError(run.place, "to replay, it needs a cache_key; write cache_key='…'")
    folder = Path(config.cache_dir).expanduser() if config.cache_dir else cache_dir() / "scenarios"
    recordings = Recordings(folder, config.cache_key, _cleaned)
    return CachedCall(
        recordings, recordings.key(function.name, function.found_by(run, args, given)), mode
    )


def _cleaned(value: dict[str, Any]) -> dict[str, Any]:
    return Redactor(collect()).redact_report(value)


def _ids_of(run: ScriptRun) -> dict[str, str]:
    return {
        run.thread_id: "(this thread)",
        run.ids["scenario_run_id"]: "(this run)",
        run.batch_run_id: "(this batch)",
    }


def _waiting(function: _Function) -> Callable[..., Any]:
    async def wrapper(*args: Any, **given: Any) -> Any:
        call = _call(function, args, given)
        if call is None:
            return await function.plain(*args, **given)
        return await call.answer(functools.partial(function.plain, *args, **given))

    return wrapper


def _direct(function: _Function) -> Callable[..., Any]:
    def wrapper(*args: Any, **given: Any) -> Any:
        call = _call(function, args, given)
        if call is None:
            return function.plain(*args, **given)
        return call.answer_now(functools.partial(function.plain, *args, **given))

    return wrapper
