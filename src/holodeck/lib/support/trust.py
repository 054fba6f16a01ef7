"""What a configuration may name: modules that are there, and nothing untrusted."""

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from configparser import ConfigParser
from configparser import Error as ConfigParserError
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from holodeck.errors import ConfigError

_MARKS = ("pyproject.toml", "setup.cfg", "setup.py", ".git")
_REQUIREMENTS = "requirements*.txt"
_NAME = re.compile(r"\s*([A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?)\s*(?:$|[\[<>=!~;@#,(\s])")
_EGG = re.compile(r"#egg=([\w.-]+)")
_TOOLS_WITH_LISTS = ("uv", "pdm")


def find_project(folder: Path) -> Path | None:
    """Return the nearest folder, from `folder` upwards, that is a project; None without one."""
    folder = folder.resolve()
    return next((parent for parent in (folder, *folder.parents) if _is_project(parent)), None)


def _is_project(folder: Path) -> bool:
    return any((folder / mark).exists() for mark in _MARKS) or any(folder.glob(_REQUIREMENTS))


@cache
def declared_dependencies(project: Path) -> frozenset[str] | None:
    """Return the names of the packages that a project declares, its own included.

    None if it declares none, or in a way that only running code would tell.
    """
    names: set[str] = set()
    try:
        declared = [_of_pyproject(project / "pyproject.toml"), _of_setup_cfg(project / "setup.cfg")]
        declared += [_of_requirements(file) for file in project.glob(_REQUIREMENTS)]
    except (OSError, ValueError, ConfigParserError):  # another tool says what is wrong in it
        return None
    if (project / "setup.py").exists() and declared[0] is None:
        return None
    for requirements in declared:
        names.update(requirements or ())
    is_declared = any(requirements is not None for requirements in declared)
    return frozenset(names) if is_declared else None


def provides(name: str, top: str) -> bool:
    """Return whether the installed distribution `name` contains the top-level module `top`."""
    if name == _normalized(top):
        return True
    try:
        installed = distribution(name)
    except (PackageNotFoundError, ValueError):
        return False
    if top in (installed.read_text("top_level.txt") or "").split():
        return True
    return any(file.parts[0] in {top, f"{top}.py"} for file in installed.files or () if file.parts)


def distributions_of(top: str) -> list[str]:
    """Return the names of the installed distributions that contain a top-level module."""
    return sorted(set(packages_distributions().get(top, ())))


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _names_in(requirements: Iterable[Any]) -> Iterator[str]:
    """Yield the names in requirements such as `name[extra] >= 1`."""
    for text in requirements:
        match = _NAME.match(text) or _EGG.search(text) if isinstance(text, str) else None
        if match is not None:
            yield _normalized(match[1])


def _of_pyproject(file: Path) -> set[str] | None:
    """Return what a pyproject.toml declares; None without a list of dependencies."""
    if not file.is_file():
        return None
    data = tomllib.loads(file.read_text(encoding="utf-8"))
    project, tool = data.get("project", {}), data.get("tool", {})
    poetry = tool.get("poetry", {})
    lists = [project.get("dependencies")] if "dependencies" in project else []
    lists += project.get("optional-dependencies", {}).values()
    lists += data.get("dependency-groups", {}).values()
    for name in _TOOLS_WITH_LISTS:
        groups = tool.get(name, {}).get("dev-dependencies", [])
        lists += groups.values() if isinstance(groups, dict) else [groups] if groups else []
    groups = [poetry, *poetry.get("group", {}).values()]
    lists += [group["dependencies"] for group in groups if "dependencies" in group]
    lists += [poetry["dev-dependencies"]] if "dev-dependencies" in poetry else []
    if not lists or "dependencies" in project.get("dynamic", ()):
        return None
    names = [project.get("name"), poetry.get("name")]
    return {*_names_in(names), *(name for group in lists for name in _names_in(group))}


def _of_setup_cfg(file: Path) -> set[str] | None:
    """Return what a setup.cfg declares; None without a list of dependencies."""
    parser = ConfigParser(interpolation=None)
    parser.read(file, encoding="utf-8")
    if not parser.has_option("options", "install_requires"):
        return None
    texts = [parser.get("options", "install_requires"), parser.get("metadata", "name", fallback="")]
    if parser.has_section("options.extras_require"):
        texts += [text for _, text in parser.items("options.extras_require")]
    return set(_names_in(line for text in texts for line in text.splitlines()))


def _of_requirements(file: Path) -> set[str]:
    """Return what a requirements.txt declares, with the files beside it that it includes."""
    return set(_names_in(file.read_text(encoding="utf-8", errors="replace").splitlines()))


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
