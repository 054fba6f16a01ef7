"""What a configuration may name: which modules, and nothing that runs if nobody trusts it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec
from pathlib import Path

from holodeck.errors import ConfigError

_is_untrusted: ContextVar[bool] = ContextVar("holodeck_is_untrusted", default=False)
_SITE = frozenset({"site-packages", "dist-packages"})
_OWN_FUNCTION = "write a function of your own in a Python file beside the agent.yaml"


@contextmanager
def untrusted() -> Iterator[None]:
    """Refuse code, commands, foreign endpoints and the user's variables within the block."""
    token = _is_untrusted.set(True)
    try:
        yield
    finally:
        _is_untrusted.reset(token)


def is_untrusted() -> bool:
    """Whether the configuration is a stranger's, from which nothing may run."""
    return _is_untrusted.get()


def refuse_untrusted_code(location: str) -> None:
    """Raise ConfigError if no code of the configuration may run."""
    if is_untrusted():
        raise ConfigError(location, "--untrusted refuses to import it")


def require_nameable(module: str, folder: Path | None, location: str) -> None:
    """Raise ConfigError unless a configuration in `folder` may name a module that is not in it.

    Python's own modules and those of holodeck are no agents and no metrics. An installed package
    must be declared, where a project around `folder` declares its dependencies. None leaves out
    that check, for another interpreter.
    """
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names or top == "__main__":
        raise ConfigError(location, f"{module!r} is a module of Python itself; {_OWN_FUNCTION}")
    if top == "holodeck":
        raise ConfigError(location, f"{module!r} is a module of holodeck; {_OWN_FUNCTION}")
    if folder is None or not _is_installed(top):
        return
    # Imported here because most modules are files beside the agent.yaml.
    from holodeck.lib.support.dependencies import (  # noqa: PLC0415
        declared_dependencies,
        distributions_of,
        find_project,
        provides,
    )

    project = find_project(folder)
    declared = None if project is None else declared_dependencies(project)
    if declared is None or any(provides(name, top) for name in declared):
        return
    name = ", ".join(distributions_of(top)) or top
    raise ConfigError(
        location,
        f"the project in {project} does not declare the package of {module!r}; add {name!r} to its"
        " dependencies",
    )


def _is_installed(top: str) -> bool:
    """Whether a top-level module is in a folder of installed packages, and not the user's own."""
    try:
        spec = find_spec(top)
    except (ImportError, ValueError):
        return False
    if spec is None:
        return False
    origins = [spec.origin or "", *(spec.submodule_search_locations or ())]
    return any(not _SITE.isdisjoint(Path(origin).parts) for origin in origins)
