"""Why a value is no agent, and what its module has to offer instead."""

import inspect
import types
from contextlib import suppress

from holodeck.errors import ConfigError
from holodeck.lib.backends.base import AgentBackend
from holodeck.lib.backends.frameworks import FRAMEWORKS, adapt, find_framework
from holodeck.lib.user_code.code_root import CodeFolders
from holodeck.lib.user_code.registry import load_module

MAX_SHOWN = 3


def problem_with(value: object) -> str | None:
    """Return why a value cannot be an agent, nor make one, before anything of it is called."""
    if inspect.iscoroutine(value):
        value.close()
        return (
            f"found a coroutine object: {value.__name__}() was called without 'await'; name the"
            " function itself, without the brackets"
        )
    return _problem_with_class(value) if inspect.isclass(value) else None


def _problem_with_class(kind: type) -> str | None:
    """Return why a class of a framework itself is no agent; one of the user's may be one."""
    framework, name = find_framework(kind), kind.__name__
    if framework is None or kind.__module__.partition(".")[0] != framework.package:
        return None
    if not any(name in adapter.objects for adapter in framework.adapters()):
        return None
    return (
        f"{name} is a class of {framework.name} itself; create an agent with it in a module of"
        f" yours, and name that: 'agent = {name}(…)', say"
    )


def what_fits(agent: object, target: object, base_dir: CodeFolders | None) -> str:
    """Return what is accepted of the framework, if it is one, and what its module has to offer."""
    if agent is None:  # the module has what was named; it makes nothing
        return ""
    framework = find_framework(agent)
    if framework is None:
        names = dict.fromkeys(framework.name for framework in FRAMEWORKS)
        accepted = f"; agents of frameworks are taken, too: {', '.join(names)}"
    else:
        objects = [name for adapter in framework.adapters() for name in adapter.objects]
        accepted = f"; of {framework.name}, {', '.join(objects)} are taken"
    if not isinstance(target, str):
        return accepted
    module_name, _, _ = target.partition(":")
    with suppress(ConfigError):
        agents = _agents_in(load_module(module_name, base_dir, location=""))
        if agents:
            return f"{accepted}; module {module_name!r} has {', '.join(agents[:MAX_SHOWN])}"
    return accepted


def _agents_in(module: types.ModuleType) -> list[str]:
    """Return the agents that a module defines, those of frameworks and backends first."""
    public = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    objects = [
        f"{name!r} ({type(value).__name__})"
        for name, value in public.items()
        if not inspect.isclass(value)
        and (isinstance(value, AgentBackend) or _is_of_framework(value))
    ]
    functions = [
        f"{name!r} (function)"
        for name, value in public.items()
        if inspect.isfunction(value) and value.__module__ == module.__name__
    ]
    return [*objects, *functions]


def _is_of_framework(value: object) -> bool:
    with suppress(Exception):  # an adapter may refuse it
        return find_framework(value) is not None and adapt(value) is not None
    return False
